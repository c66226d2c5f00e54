#include "train/metrics.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <span>

#include "core/crc32c.h"
#include "core/error.h"
#include "core/json.h"
#include "core/parse_json.h"
#include "core/platform.h"
#include "core/platform_files.h"
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

// Reads the lines of a file from the last one backwards, without reading the whole file.
class LinesFromEnd {
 public:
  explicit LinesFromEnd(const std::string& path) : file_(path), end_(file_.size()) {}

  uint64_t end() const { return end_; }  // of the remaining lines

  // Returns the last line with its newline, if it has one; "" if there is none. Of a line that is
  // too long for a row, returns only its end.
  std::string_view last() {
    if (newline_before_last() == std::string::npos) read_piece();
    const size_t newline = newline_before_last();
    return std::string_view(piece_).substr(newline == std::string::npos ? 0 : newline + 1);
  }

  void drop_last() {
    size_t newline = newline_before_last();
    while (newline == std::string::npos && piece_.size() < end_) {
      end_ -= piece_.size();
      read_piece();
      newline = piece_.rfind('\n');
    }
    const size_t begin = newline == std::string::npos ? 0 : newline + 1;
    end_ -= piece_.size() - begin;
    piece_.resize(begin);
  }

 private:
  static constexpr uint64_t kPiece = 1 << 16;

  size_t newline_before_last() const {
    return piece_.size() < 2 ? std::string::npos : piece_.rfind('\n', piece_.size() - 2);
  }

  void read_piece() {
    piece_.resize(static_cast<size_t>(std::min(end_, kPiece)));
    file_.read_at(end_ - piece_.size(), std::as_writable_bytes(std::span(piece_)));
  }

  const platform::InputFile file_;
  uint64_t end_;
  std::string piece_;  // of the file, up to end_
};

// Returns false if the line is not a row of a run.
bool is_after(std::string_view line, LastRow last) {
  const auto row = parse_if_json(line, "a row");
  if (!row || !row->is_object() || !row->contains("step")) return false;
  const Json& number = row->at("step");
  if (!number.is_number_unsigned()) return false;
  const auto step = number.get<uint64_t>();
  return step > last.step ||
         (step == last.step && !last.evaluated && row->value("kind", Json()) == "evaluation");
}

// Returns the path.
const std::string& with_whole_lines(const std::string& path) {
  platform::cut_unfinished_line(path);
  return path;
}

// Returns the second in the name of the newest event file; 0 if there is none.
int64_t newest_second(const std::string& directory) {
  int64_t newest = 0;
  std::error_code error;
  for (const auto& [name, type] : platform::list_folder(directory, error))
    if (EventFile::is_name(name) && name.size() < sizeof kEventFile + 17)
      newest = std::max<int64_t>(newest, std::atoll(name.c_str() + sizeof kEventFile - 1));
  return newest;
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
  const platform::InputFile file(path);
  std::string beginning(static_cast<size_t>(std::min<uint64_t>(file.size(), kBeginning.size())), 0);
  file.read_at(0, std::as_writable_bytes(std::span(beginning)));
  return kBeginning.starts_with(beginning);  // a killed run may have written less of it
}

// Reads from the end: a killed run has few rows after its newest checkpoint, but a file may have
// millions. After a loss of power, zeros stand for what had not reached the disk. They are cut off
// only where text comes before them: a file of zeros and little else is not a run's.
void cut_rows_after(const std::string& path, LastRow last) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return;
  LinesFromEnd lines(with_whole_lines(path));
  const uint64_t size = lines.end();
  uint64_t end = size;  // of what stays
  bool zeros = false;
  while (lines.end() > 0) {
    const std::string_view line = lines.last();
    const bool has_zeros = line.find('\0') != std::string_view::npos;
    if (!has_zeros && !is_after(line, last)) break;
    zeros = zeros || has_zeros;
    lines.drop_last();
    if (!zeros) end = lines.end();
  }
  if (lines.end() > 0 || last.step == 0) end = lines.end();
  if (end < size) platform::shorten_file(path, end);
}

EventFile::EventFile(const std::string& directory) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(
                           std::chrono::system_clock::now().time_since_epoch())
                           .count();
  const auto second = std::max<int64_t>(seconds, newest_second(directory) + 1);
  file_.emplace(cat(directory, "/", kEventFile, second, ".", platform::process_id()),
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

// SessionLog { status = 1: START is 1 } session_log = 7
void EventFile::restart(uint64_t step) {
  write_record(event_head(step).message(7, Message().integer(1, 1)).data());
}

void EventFile::write(uint64_t step, const std::vector<std::pair<std::string, double>>& scalars) {
  // Summary { repeated Value { string tag = 1; float simple_value = 2; } value = 1; }
  Message summary;
  for (const auto& [tag, value] : scalars)
    summary.message(1, Message().bytes(1, tag).real(2, static_cast<float>(value)));
  write_record(event_head(step).message(5, summary).data());
}

}  // namespace etr::train
