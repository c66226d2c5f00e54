// Fuzz targets for everything that reads what others wrote. One program a target: ETR_FUZZ_TARGET is its
// function. libFuzzer finds crashes, hangs and runaway memory; an Error is the right answer to bad input.
//
//   build-fuzz/tests/fuzz/fuzz_tar tests/fuzz/corpus/tar -max_total_time=60
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "codec/image_codec.h"
#include "core/error.h"
#include "core/json.h"
#include "io/byte_stream.h"
#include "io/fast_shard.h"
#include "io/tar_reader.h"
#include "pipeline/pipeline.h"
#include "pipeline/stage.h"
#include "train/job.h"

namespace etr::fuzz {
namespace {

using Bytes = std::span<const std::byte>;

// The input as a file in memory; a process has one of each ending.
std::string as_file(Bytes bytes, const char* ending) {
  static const std::string stem = "/dev/shm/echotrain-fuzz-" + std::to_string(getpid());
  const std::string path = stem + ending;
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (!file) std::abort();
  std::fwrite(bytes.data(), 1, bytes.size(), file);
  std::fclose(file);
  return path;
}

void tar(Bytes bytes) {
  const std::string path = as_file(bytes, ".tar");
  io::TarReader reader(io::open_stream(path), path, {{1 << 20, "max_member_bytes"}, 1 << 10, 1000});
  size_t total = 0;
  io::TarMember member;
  for (bool more = true; more;) {
    try {
      more = reader.next(member);
      for (const std::byte b : member.data.bytes()) total += std::to_integer<size_t>(b);
    } catch (const Error&) {
      more = reader.can_go_on();
    }
  }
  if (total == 1) std::fputs("", stderr);  // the bytes were really read
}

void decompress(Bytes bytes, const char* ending) {
  const auto stream = io::open_stream(as_file(bytes, ending), {.max_ratio = 100});
  std::vector<std::byte> out(1 << 16);
  for (int i = 0; i < 64 && stream->read(out) == out.size(); ++i) continue;
}
void zstd(Bytes bytes) { decompress(bytes, ".zst"); }
void gzip(Bytes bytes) { decompress(bytes, ".gz"); }

void image(Bytes bytes) {
  constexpr codec::Channels kChannels[] = {codec::Channels::as_stored, codec::Channels::gray,
                                           codec::Channels::rgb};
  if (bytes.empty()) return;
  const auto channels = kChannels[std::to_integer<size_t>(bytes.back()) % 3];
  codec::decode_image(bytes, channels, 1 << 16, 1 << 20);
}

void fast_shard(Bytes bytes) {
  const io::FastShard shard(as_file(bytes, ".ets"));
  for (uint64_t i = 0; i < std::min<uint64_t>(shard.size(), 100); ++i)
    for (const auto& field : shard.record(i).fields) {
      if (!field.frame.data || field.name != "eti") continue;
      try {
        codec::decode_image(field.frame.bytes(), codec::Channels::rgb, 1 << 16);
      } catch (const Error&) {
      }
    }
}

// All records of a source stage.
void source(Bytes bytes, const char* stage, const char* ending, Json options, const char* key) {
  options[key] = as_file(bytes, ending);
  if (key == std::string("arrays")) options[key] = "x=" + options[key].get<std::string>();
  const pipeline::StageSpec& spec = pipeline::find_stage(stage);
  const auto made = spec.make(Options(spec.options, stage, options), {});
  auto& reader = static_cast<pipeline::Source&>(*made);
  reader.start_pass(0, 0);
  for (int i = 0; i < 1000; ++i) {
    pipeline::Item item;
    try {
      if (!reader.next(item)) return;
      for (const pipeline::Field& field : item.fields)
        if (Json(field.name).dump().empty()) std::abort();  // throws where it is not UTF-8
    } catch (const Error& error) {  // goes on behind a bad record, where it can
      if (Json(error.what()).dump().empty()) std::abort();
    }
  }
}
void tfrecord(Bytes bytes) {
  source(bytes, "tfrecord", ".tfrecord", {{"max_record_bytes", 1 << 20}, {"check_data", false}},
         "pattern");
}
void idx(Bytes bytes) { source(bytes, "idx", ".idx", Json::object(), "images"); }
void npy(Bytes bytes) { source(bytes, "npy", ".npy", Json::object(), "arrays"); }
void csv(Bytes bytes) {
  source(bytes, "csv", ".csv", {{"columns", "a:f32,b:i32,c:text"}, {"max_line_bytes", 1 << 12}},
         "pattern");
}
void cifar(Bytes bytes) { source(bytes, "cifar", ".gz", Json::object(), "pattern"); }
void text(Bytes bytes) { source(bytes, "text_lines", ".txt", {{"max_line_bytes", 64}}, "pattern"); }
void webdataset(Bytes bytes) {
  source(bytes, "webdataset", ".tar", {{"max_member_bytes", 1 << 20}, {"max_name_bytes", 1 << 10}},
         "pattern");
}
void jsonl(Bytes bytes) {
  source(bytes, "jsonl", ".jsonl", {{"columns", "a:f32,b:i32=c.d,t:text"}}, "pattern");
}

void job(Bytes bytes) {
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const train::Job parsed = train::Job::parse(text, "fuzz");
  const pipeline::Pipeline built(parsed.pipeline());
}

}  // namespace
}  // namespace etr::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    etr::fuzz::ETR_FUZZ_TARGET({reinterpret_cast<const std::byte*>(data), size});
  } catch (const etr::Error&) {
  }
  return 0;
}
