#include "train/metrics.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <span>

#include "core/crc32c.h"
#include "core/error.h"
#include "core/json.h"
#include "core/parse_json.h"
#include "core/platform.h"
#include "core/protobuf.h"
#include "core/text.h"

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

constexpr char kEventFile[] = "events.out.tfevents.";

// Whole lines of `path` in bytes; lines are short beside the piece that is looked at.
uint64_t whole_lines(const std::string& path, uint64_t size) {
  constexpr uint64_t kPiece = 1 << 16;
  std::string end(static_cast<size_t>(std::min(size, kPiece)), 0);
  std::ifstream in(path, std::ios::binary);
  in.seekg(static_cast<std::streamoff>(size - end.size()));
  in.read(end.data(), static_cast<std::streamsize>(end.size()));
  const size_t newline = end.rfind('\n');
  if (newline != std::string::npos) return size - end.size() + newline + 1;
  return end.size() == size ? 0 : size;
}

void shorten(const std::string& path, uint64_t bytes) {
  std::error_code error;
  std::filesystem::resize_file(path, bytes, error);
  if (error) fail(Code::io, "cannot shorten '", path, "': ", error.message());
}

// False for what is no row of a run.
bool is_behind(std::string_view line, uint64_t step) {
  const auto row = parse_if_json(line, "a row");
  if (!row || !row->is_object() || !row->contains("step")) return false;
  const Json& number = row->at("step");
  return number.is_number_unsigned() && number.get<uint64_t>() > step;
}

// Cuts off a last line that was not finished; the path again.
const std::string& with_whole_lines(const std::string& path) {
  std::error_code error;
  const uint64_t size = std::filesystem::file_size(path, error);
  const uint64_t whole = error || size == 0 ? 0 : whole_lines(path, size);
  if (error || whole == size) return path;
  shorten(path, whole);
  return path;
}

// A name that is not taken: two runs may begin in one second.
std::string free_name(const std::string& first) {
  std::string name = first;
  for (int i = 2; std::filesystem::exists(name); ++i) name = cat(first, ".", i);
  return name;
}

}  // namespace

JsonLines::JsonLines(const std::string& path)
    : file_(with_whole_lines(path), platform::OutputFile::Mode::append) {}

void JsonLines::write(const Json& row) {
  file_.write(row.dump() + "\n");
  file_.flush();
}

bool JsonLines::may_be(const std::string& path) {
  namespace fs = std::filesystem;
  constexpr std::string_view kBeginning = R"({"kind":")";
  std::error_code error;
  const fs::file_type type = fs::symlink_status(path, error).type();
  if (type != fs::file_type::regular) return type == fs::file_type::not_found;
  std::string beginning(kBeginning.size(), '\0');
  std::ifstream in(path, std::ios::binary);
  in.read(beginning.data(), static_cast<std::streamsize>(beginning.size()));
  beginning.resize(static_cast<size_t>(in.gcount()));
  return kBeginning.starts_with(beginning);  // a killed run may have written less
}

// From the end: a killed run has written few rows after its newest checkpoint, and a file may have millions.
void cut_rows_after(const std::string& path, uint64_t step) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return;
  const std::string text = platform::read_file(with_whole_lines(path));
  size_t end = text.size();
  while (end > 0) {
    const size_t before = end < 2 ? std::string::npos : text.rfind('\n', end - 2);
    const size_t begin = before == std::string::npos ? 0 : before + 1;
    if (!is_behind(std::string_view(text).substr(begin, end - begin - 1), step)) break;
    end = begin;
  }
  if (end < text.size()) shorten(path, end);
}

EventFile::EventFile(const std::string& directory) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(
                           std::chrono::system_clock::now().time_since_epoch())
                           .count();
  file_.emplace(free_name(cat(directory, "/", kEventFile, seconds, ".", platform::process_id())),
                platform::OutputFile::Mode::replace);
  write_record(event_head(0).bytes(3, "brain.Event:2").data());
}

bool EventFile::is_name(const std::string& name) {
  if (!name.starts_with(kEventFile)) return false;
  const auto numbers = split(std::string_view(name).substr(sizeof kEventFile - 1), '.');
  return (numbers.size() == 2 || numbers.size() == 3) &&
         std::all_of(numbers.begin(), numbers.end(), [](std::string_view number) {
           return !number.empty() && std::all_of(number.begin(), number.end(),
                                                 [](unsigned char c) { return std::isdigit(c); });
         });
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
