// Where a run's numbers go: JSON lines and TensorBoard event files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/json_fwd.h"
#include "core/platform_files.h"

namespace etr::train {

// One JSON object a line. Appends; every line is flushed, so that a killed run loses none. A line that a killed run left
// unfinished is cut off.
class JsonLines {
 public:
  explicit JsonLines(const std::string& path);  // Error(io)
  void write(const Json& row);
  void sync() { file_.sync(); }
  bool is_in_place() const { return file_.is_in_place(); }

  // Whether `path` can be a file of a run's rows, as far as its beginning tells. Also where there is none.
  static bool may_be(const std::string& path);

 private:
  platform::OutputFile file_;
};

// Where a run's rows end: with those of `step`, with or without the row of its evaluation.
struct LastRow {
  uint64_t step = 0;
  bool evaluated = false;
};

// Cuts off the rows at the end of a run's file that come after `last`. Error(io).
void cut_rows_after(const std::string& path, LastRow last);

// Scalars in TensorBoard's format: TFRecord frames (length, masked CRC-32C, data, masked CRC-32C)
// around Event messages of protocol buffers.
class EventFile {
 public:
  // Makes a new file there, with a name that comes after those of earlier ones, as TensorBoard reads them; Error(io).
  explicit EventFile(const std::string& directory);
  static bool is_name(const std::string& name);      // whether it is one that this class gives
  void write(uint64_t step, const std::vector<std::pair<std::string, double>>& scalars);

  // What was written of `step` and later ones, in this file and those before it, is void: a killed run left it, and it comes again.
  void restart(uint64_t step);

 private:
  void write_record(const std::string& data);

  std::optional<platform::OutputFile> file_;
};

}  // namespace etr::train
