// 37 samples for each kind of source, in two or more files where there can be several.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "io/fast_shard.h"
#include "sources/files.h"

namespace etr::test {

// Sources within others read text, which differs in every sample.
inline Json options_of_combined(const TempDir& dir, const std::string& stage) {
  const auto lines = [&](const char* name, int from, int to) {
    std::string all;
    for (int i = from; i < to; ++i) all += "line " + std::to_string(i) + "\n";
    write(dir.path(name), all);
    return Json{{"stage", "text_lines"}, {"pattern", dir.path(name)}};
  };
  if (stage == "mix")
    return {{"sources", {lines("a", 0, 7), lines("b", 7, 37)}}, {"weights", {1, 2.5}}};
  if (stage == "zip")
    return {{"sources", {lines("a", 0, 37), lines("b", 100, 137)}}, {"prefixes", "a_,b_"}};
  lines("i0", 0, 11), lines("i1", 11, 30), lines("i2", 30, 37);
  return {{"sources", {{{"stage", "text_lines"}, {"pattern", dir.path("i*")}}}},
          {"cycle_length", 2},
          {"ahead", 3}};
}

inline void write_fast_shards(const TempDir& dir) {
  for (const int shard : {0, 1}) {
    io::FastShardWriter writer(dir.path(std::to_string(shard) + ".ets"));
    for (int i = shard; i < 37; i += 2) {
      const std::string text = std::to_string(i);
      const auto bytes = std::as_bytes(std::span(text));
      const auto frame = io::zstd_frame(bytes, 3);
      const io::FastShardWriter::Field fields[] = {{"cls", bytes, 0}, {"bin", frame, bytes.size()}};
      writer.add(text, fields);
    }
    writer.finish();
  }
}

inline void write_folders(const TempDir& dir) {
  for (int i = 0; i < 37; ++i) {
    std::filesystem::create_directories(dir.path("root/" + std::to_string(i % 3)));
    write(dir.path("root/" + std::to_string(i % 3) + "/" + std::to_string(i) + ".bin"),
          std::to_string(i));
  }
}

// Arrays of numbers, each in one file.
inline Json options_of_arrays(const TempDir& dir, const std::string& stage) {
  std::string bytes;
  if (stage == "idx") {
    write(dir.path("images"), idx_images(37, 2, 2));
    return {{"images", dir.path("images")}};
  }
  if (stage == "cifar") {
    for (int i = 0; i < 37; ++i)
      bytes += static_cast<char>(i) + std::string(3072, static_cast<char>(i));
    write(dir.path("a.bin"), bytes);
    return {{"pattern", dir.path("a.bin")}};
  }
  if (stage == "npy") {
    for (int i = 0; i < 37; ++i) bytes += raw(i);
    write(dir.path("x.npy"), npy("<i4", "(37,)", bytes));
    return {{"arrays", "x=" + dir.path("x.npy")}};
  }
  for (int i = 0; i < 38; ++i) bytes += static_cast<char>(i + 30);
  write(dir.path("t"), bytes);
  return {{"pattern", dir.path("t")}, {"length", 1}};  // text_windows
}

// Two files of lines or records.
inline Json options_of_records(const TempDir& dir, const std::string& stage) {
  std::string a, b;
  for (int i = 0; i < 37; ++i) {
    std::string& to = i % 4 ? a : b;
    if (stage == "tfrecord") to += example(i);
    if (stage == "jsonl") to += "{\"x\": " + std::to_string(i) + "}\n";
    if (stage == "csv" || stage == "text_lines") to += std::to_string(i) + "\n";
  }
  write(dir.path("0.data"), a);
  write(dir.path("1.data"), b);
  Json options{{"pattern", dir.path("*.data")}};
  if (stage == "csv") options.update({{"columns", "x:f32=0"}, {"header", false}});
  if (stage == "jsonl") options["columns"] = "x:f32";
  return options;
}

inline Json options_of_source(const TempDir& dir, const std::string& stage) {
  const auto is_one_of = [&](std::initializer_list<const char*> names) {
    return std::find(names.begin(), names.end(), stage) != names.end();
  };
  if (is_one_of({"mix", "zip", "interleave"})) return options_of_combined(dir, stage);
  if (is_one_of({"idx", "cifar", "npy", "text_windows"})) return options_of_arrays(dir, stage);
  if (stage == "webdataset") {
    if (!std::filesystem::exists(dir.path("shard-0.tar.zst"))) make_shards(dir, 1, 37);
    return {{"pattern", dir.path("shard-*.tar.zst")}};
  }
  if (stage == "fast_shard") {
    write_fast_shards(dir);
    return {{"pattern", dir.path("*.ets")}};
  }
  if (is_one_of({"folder", "files"})) {
    write_folders(dir);
    return stage == "folder" ? Json{{"root", dir.path("root")}, {"extensions", "bin"}}
                             : Json{{"pattern", dir.path("root/*/*.bin")}};
  }
  return options_of_records(dir, stage);
}

// Writes the files and returns a pipeline that reads them; `more` is about the pipeline.
inline Json spec_of_source(const TempDir& dir, const char* stage,
                           const Json& more = Json::object()) {
  Json out = spec_of(stage, options_of_source(dir, stage), more);
  out["seed"] = 3;
  return out;
}

inline std::vector<const char*> every_source() {
  std::vector<const char*> out;
  for (const pipeline::StageSpec* stage : pipeline::stage_table())
    // Functions of the program: tests/capi/own_stage_test.cpp.
    if (stage->kind == pipeline::StageKind::source && stage->name != std::string("source"))
      out.push_back(stage->name);
  return out;
}

// What tells samples apart: all their bytes.
inline std::vector<std::string> contents(Pipeline& p) {
  std::vector<std::string> out;
  for (const Item& item : read_all(p)) {
    std::string all;
    for (const auto& field : item.fields)
      all += field.name + ":" +
             std::string(reinterpret_cast<const char*>(field.tensor.data()),
                         field.tensor.size_bytes());
    out.push_back(all);
  }
  return out;
}

}  // namespace etr::test
