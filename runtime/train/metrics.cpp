#include "train/metrics.h"

#include <chrono>
#include <filesystem>
#include <span>

#include "core/crc32c.h"
#include "core/error.h"
#include "core/json.h"
#include "core/platform.h"
#include "core/protobuf.h"

namespace etr::train {
namespace {

// Little-endian, as records are framed.
template <typename T>
void put_fixed(std::string& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

// Event { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5; }
Message event_head(uint64_t step) {
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return Message().real(1, now).integer(2, step);
}

uint32_t masked_crc(const std::string& bytes) {
  const uint32_t crc = crc32c(std::as_bytes(std::span(bytes)));
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}

}  // namespace

JsonLines::JsonLines(const std::string& path) : file_(path, platform::OutputFile::Mode::append) {}

void JsonLines::write(const Json& row) {
  file_.write(row.dump() + "\n");
  file_.flush();
}

EventFile::EventFile(const std::string& directory) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(
                           std::chrono::system_clock::now().time_since_epoch())
                           .count();
  file_.emplace(cat(directory, "/events.out.tfevents.", seconds, ".", platform::process_id()),
                platform::OutputFile::Mode::replace);
  write_record(event_head(0).bytes(3, "brain.Event:2").data());
}

void EventFile::write_record(const std::string& data) {
  std::string frame;
  put_fixed(frame, uint64_t{data.size()});
  put_fixed(frame, masked_crc(frame));
  frame += data;
  put_fixed(frame, masked_crc(data));
  file_->write(frame);
  file_->flush();
}

void EventFile::write(uint64_t step, const std::vector<std::pair<std::string, double>>& scalars) {
  // Summary { repeated Value { string tag = 1; float simple_value = 2; } value = 1; }
  Message summary;
  for (const auto& [tag, value] : scalars)
    summary.message(1, Message().bytes(1, tag).real(2, static_cast<float>(value)));
  write_record(event_head(step).message(5, summary).data());
}

}  // namespace etr::train
