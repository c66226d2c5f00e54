// Data of every kind of source, in two versions, for files that change while they are read.
#pragma once

#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "io/fast_shard.h"
#include "io/tar_writer.h"
#include "sources/files.h"

namespace etr::test {

constexpr int kRecords = 120;     // of a file
constexpr size_t kBytes = 16000;  // of a record: a file is longer than what is read ahead of it
constexpr const char* kFiles[] = {"0", "1"};

// Letters that do not compress. They differ for each version, file and record.
inline std::string letters(int version, int file, int record, size_t size = kBytes) {
  std::mt19937 random(static_cast<unsigned>((version * 10 + file) * 1000 + record));
  std::string out(size, '\0');
  for (char& c : out) c = static_cast<char>('a' + random() % 26);
  return out;
}

enum class Reading {
  once,           // when the pipeline is opened
  by_position,    // files are opened once, or for each record
  front_to_back,  // each epoch anew; pipes, too, whose writer is waited for
  text,           // the same, and a file that was shortened before it is opened is a good one
};

// What is read: writes the files of a version into a folder, and how they are read.
struct ChangingCase {
  const char* name;
  Reading reading;
  std::function<void(const std::string& folder, int version)> write;
  std::function<Json(const std::string& folder)> stages;
  Json more = Json::object();  // options of the pipeline
};

inline Json stages_of(Json source, const std::vector<Json>& more = {}) {
  Json out = Json::array({std::move(source)});
  for (const Json& stage : more) out.push_back(stage);
  return out;
}

// Files that one function makes of their records.
template <typename Make>
auto each_file(const char* ending, Make make) {
  return [=](const std::string& folder, int version) {
    for (int file = 0; file < 2; ++file) make(folder + "/" + kFiles[file] + ending, version, file);
  };
}

inline void write_tar(const std::string& path, int version, int file) {
  io::TarWriter writer(path, 1);
  for (int i = 0; i < kRecords; ++i) {
    const std::string text = letters(version, file, i);
    writer.add(cat("v", version, "-", i, ".bin"), std::as_bytes(std::span(text)));
  }
  writer.finish();
}

inline void write_fast_shard(const std::string& path, int version, int file) {
  io::FastShardWriter writer(path);
  for (int i = 0; i < kRecords; ++i) {
    const std::string text = letters(version, file, i);
    const auto frame = io::zstd_frame(std::as_bytes(std::span(text)), 1);
    const io::FastShardWriter::Field fields[] = {{"bin", frame, text.size()}};
    writer.add(std::to_string(i), fields);
  }
  writer.finish();
}

inline std::string lines(int version, int file, const char* before, const char* after) {
  std::string out;
  for (int i = 0; i < kRecords; ++i) out += before + letters(version, file, i) + after;
  return out;
}

inline void write_lines(const std::string& path, int version, int file) {
  put(path, lines(version, file, "", "\n"));
}

inline std::string tf_records(int version, int file) {
  std::string out;
  for (int i = 0; i < kRecords; ++i)
    out += tf_record(delimited(1, feature("text", 1, delimited(1, letters(version, file, i)))));
  return out;
}

inline void write_png(const std::string& folder, int version) {
  for (int i = 0; i < kRecords; ++i)
    put(cat(folder, "/", i % 2, "/", i, ".png"), make_png(30, 20, 3, kRecords * version + i));
}

inline void write_npy(const std::string& path, int version, int file) {
  std::string data;
  for (int i = 0; i < kRecords; ++i) data += letters(version, file, i);
  put(path, npy("|u1", cat("(", kRecords, ", ", kBytes, ")"), data));
}

inline void write_idx(const std::string& path, int version, int file) {
  std::string bytes("\0\0\x08\x03", 4);
  for (const uint32_t extent : {uint32_t{kRecords}, uint32_t{100}, uint32_t{kBytes / 100}})
    bytes += big_endian(extent);
  for (int i = 0; i < kRecords; ++i) bytes += letters(version, file, i);
  put(path, bytes);
}

inline void write_cifar(const std::string& path, int version, int file) {
  std::string bytes;
  for (int i = 0; i < 4 * kRecords; ++i) bytes += letters(version, file, i, 3073);
  put(path, bytes);
}

inline Json pattern_of(const char* stage, const std::string& pattern, Json more = Json::object()) {
  more.update({{"stage", stage}, {"pattern", pattern}});
  return more;
}

// From front to back, one file after the other.
auto in_order(const char* stage, const char* ending, Json more = Json::object()) {
  more["shuffle_shards"] = false;
  return [=](const std::string& folder) {
    return stages_of(pattern_of(stage, folder + "/*" + ending, more));
  };
}

inline const Json kFromDisk{
    {"budget_bytes", 16 << 20}};  // files of more than a megabyte are not kept

inline std::vector<ChangingCase> changing_cases() {
  const auto fast = [](const std::string& folder) {
    return stages_of(pattern_of("fast_shard", folder + "/*.ets"));
  };
  const auto arrays = [](const std::string& folder) {
    return stages_of(
        {{"stage", "npy"}, {"arrays", cat("a=", folder, "/0.npy,b=", folder, "/1.npy")}});
  };
  const auto images = [](const std::string& folder) {
    return stages_of({{"stage", "idx"}, {"images", folder + "/0.idx"}});
  };
  const auto cifar = [](const std::string& folder) {
    return stages_of(pattern_of("cifar", folder + "/*.bin"));
  };
  const auto decoded = [](Json source) {
    return stages_of(std::move(source), {{{"stage", "decode"}}});
  };
  const Json csv{{"columns", "text:text=0"}, {"header", false}};
  std::vector<ChangingCase> out{
      {"tar", Reading::front_to_back, each_file(".tar", write_tar), in_order("webdataset", ".tar")},
      {"tar.zst", Reading::front_to_back, each_file(".tar.zst", write_tar),
       in_order("webdataset", ".zst")},
      {"tar.gz", Reading::front_to_back,
       each_file(".tar.gz",
                 [](const std::string& path, int version, int file) {
                   const std::string plain = path + ".plain";
                   write_tar(plain, version, file);
                   write_gz(path, platform::read_file(plain));
                   std::filesystem::remove(plain);
                 }),
       in_order("webdataset", ".gz")},
      {"fast_shard", Reading::once, each_file(".ets", write_fast_shard), fast},
      {"fast_shard from the disk", Reading::by_position, each_file(".ets", write_fast_shard), fast,
       kFromDisk},
      {"npy", Reading::once, each_file(".npy", write_npy), arrays},
      {"npy from the disk", Reading::by_position, each_file(".npy", write_npy), arrays, kFromDisk},
      {"idx from the disk", Reading::by_position, each_file(".idx", write_idx), images, kFromDisk},
      {"cifar from the disk", Reading::by_position, each_file(".bin", write_cifar), cifar,
       kFromDisk},
      {"folder", Reading::by_position, write_png,
       [=](const std::string& folder) {
         return decoded({{"stage", "folder"}, {"root", folder}});
       }},
      {"files", Reading::by_position, write_png,
       [=](const std::string& folder) {
         return decoded(pattern_of("files", folder + "/*/*.png"));
       }},
      {"tfrecord", Reading::text,
       each_file(".tfrecord", [](const std::string& path, int version,
                                 int file) { put(path, tf_records(version, file)); }),
       in_order("tfrecord", ".tfrecord")},
      {"jsonl", Reading::text,
       each_file(".jsonl",
                 [](const std::string& path, int version, int file) {
                   put(path, lines(version, file, "{\"text\": \"", "\"}\n"));
                 }),
       in_order("jsonl", ".jsonl", {{"columns", "text:text"}})},
      {"csv", Reading::text, each_file(".csv", write_lines), in_order("csv", ".csv", csv)},
      {"text_lines", Reading::text, each_file(".txt", write_lines), in_order("text_lines", ".txt")},
      {"text_lines.zst", Reading::front_to_back,
       each_file(".txt.zst", [](const std::string& path, int version,
                                int file) { put(path, zst(lines(version, file, "", "\n"))); }),
       in_order("text_lines", ".zst")},
      {"interleave", Reading::front_to_back, each_file(".tar", write_tar),
       [](const std::string& folder) {
         return stages_of({{"stage", "interleave"},
                           {"cycle_length", 2},
                           {"ahead", 2},
                           {"sources", {pattern_of("webdataset", folder + "/*.tar")}}});
       }},
  };
  return out;
}

}  // namespace etr::test
