// Writers of a run's metrics: JSON lines and TensorBoard event files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/json_fwd.h"
#include "core/platform_files.h"

namespace etr::train {

// Appends one JSON object per line. Every line is flushed, so a killed run loses none. Cuts off a
// line that a killed run left unfinished.
class JsonLines {
 public:
  explicit JsonLines(const std::string& path);  // Error(io)
  void write(const Json& row);
  void sync() { file_.sync(); }
  bool is_in_place() const { return file_.is_in_place(); }

  // Returns whether `path` can be a file of a run's rows, judging by its beginning, or does not
  // exist.
  static bool may_be(const std::string& path);

 private:
  platform::OutputFile file_;
};

// The last row of a run to keep: that of `step`, with or without the row of its evaluation.
struct LastRow {
  uint64_t step = 0;
  bool evaluated = false;
};

// Cuts off the rows after `last` in a run's file, and what a loss of power has left in their place.
// Error(io).
void cut_rows_after(const std::string& path, LastRow last);

// Scalars in TensorBoard's format: TFRecord frames (length, masked CRC-32C, data, masked CRC-32C)
// around Event protocol buffers.
class EventFile {
 public:
  // Makes a new file whose name sorts after those of earlier ones, the order in which TensorBoard
  // reads them. Error(io).
  explicit EventFile(const std::string& directory);
  static bool is_name(const std::string& name);  // whether this class makes such names
  void write(uint64_t step, const std::vector<std::pair<std::string, double>>& scalars);

  // Declares scalars of `step` and later steps void, in this file and earlier ones: a killed run
  // left them, and they will be written again.
  void restart(uint64_t step);

 private:
  void write_record(const std::string& data);

  std::optional<platform::OutputFile> file_;
};

}  // namespace etr::train
