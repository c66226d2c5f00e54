#include "train/metrics.h"

#include <bit>
#include <chrono>
#include <filesystem>
#include <span>

#include "core/crc32c.h"
#include "core/error.h"
#include "core/json.h"
#include "core/platform.h"

namespace etr::train {
namespace {

// The little of protocol buffers that an Event needs.
void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

template <typename T>
void put_fixed(std::string& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

void put_bytes(std::string& out, int field, const std::string& bytes) {
  put_varint(out, static_cast<uint64_t>(field) << 3 | 2);
  put_varint(out, bytes.size());
  out += bytes;
}

// Event { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5; }
std::string event_head(uint64_t step) {
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  std::string out;
  put_varint(out, 1 << 3 | 1);
  put_fixed(out, std::bit_cast<uint64_t>(now));
  put_varint(out, 2 << 3 | 0);
  put_varint(out, step);
  return out;
}

uint32_t masked_crc(const std::string& bytes) {
  const uint32_t crc = crc32c(std::as_bytes(std::span(bytes)));
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}

void check(const std::ofstream& file, const std::string& path) {
  if (!file) fail(Code::io, "cannot write '", path, "'");
}

}  // namespace

JsonLines::JsonLines(const std::string& path) : path_(path), file_(path, std::ios::app) {
  check(file_, path_);
}

void JsonLines::write(const Json& row) {
  file_ << row.dump() << "\n" << std::flush;
  check(file_, path_);
}

EventFile::EventFile(const std::string& directory) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(
                           std::chrono::system_clock::now().time_since_epoch())
                           .count();
  path_ = cat(directory, "/events.out.tfevents.", seconds, ".", platform::process_id());
  file_.open(path_, std::ios::binary);
  check(file_, path_);
  std::string event = event_head(0);
  put_bytes(event, 3, "brain.Event:2");
  write_record(event);
}

void EventFile::write_record(const std::string& data) {
  std::string frame;
  put_fixed(frame, uint64_t{data.size()});
  put_fixed(frame, masked_crc(frame));
  frame += data;
  put_fixed(frame, masked_crc(data));
  file_.write(frame.data(), static_cast<std::streamsize>(frame.size()));
  file_.flush();
  check(file_, path_);
}

void EventFile::write(uint64_t step, const std::vector<std::pair<std::string, double>>& scalars) {
  // Summary { repeated Value { string tag = 1; float simple_value = 2; } value = 1; }
  std::string summary;
  for (const auto& [tag, value] : scalars) {
    std::string entry;
    put_bytes(entry, 1, tag);
    put_varint(entry, 2 << 3 | 5);
    put_fixed(entry, std::bit_cast<uint32_t>(static_cast<float>(value)));
    put_bytes(summary, 1, entry);
  }
  std::string event = event_head(step);
  put_bytes(event, 5, summary);
  write_record(event);
}

}  // namespace etr::train
