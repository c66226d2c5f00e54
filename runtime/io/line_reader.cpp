#include "io/line_reader.h"

#include <cstring>
#include <utility>

#include "core/error.h"

namespace etr::io {

// The buffered part of the current line, with `line_ends` set if it is complete. Returns an empty
// view, and false in `line_ends`, at the end of the file.
std::string_view LineReader::piece(bool& line_ends) {
  line_ends = false;
  if (position_ == size_) {
    position_ = size_ = 0;
    failed_ = true;  // until the stream has given more
    size_ = stream_->read(buffer_);
    failed_ = false;
    if (size_ == 0) return {};
  }
  const char* begin = reinterpret_cast<const char*>(buffer_.data()) + position_;
  const auto* end = static_cast<const char*>(std::memchr(begin, '\n', size_ - position_));
  line_ends = end != nullptr;
  const size_t length = end ? static_cast<size_t>(end - begin) : size_ - position_;
  position_ += length + (end ? 1 : 0);
  return {begin, length};
}

bool LineReader::next(std::string& line) {
  line.clear();
  bool any = false, ends = false;
  for (bool rest = std::exchange(in_long_line_, false); rest && !ends;) rest = !piece(ends).empty();
  for (ends = false; !ends;) {
    const std::string_view part = piece(ends);
    if (part.empty() && !ends) break;
    any = true;
    if (line.size() + part.size() > max_line_bytes_.bytes) {
      in_long_line_ = !ends;
      fail(Code::unsupported, "'", path_, "': line ", ++number_, " is longer than ",
           max_line_bytes_.bytes, " bytes (", max_line_bytes_.name, ")");
    }
    line.append(part);
  }
  if (!any) return false;
  ++number_;
  ending_ = ends ? "\n" : "";
  if (line.ends_with('\r')) {
    line.pop_back();
    ending_ = ends ? "\r\n" : "\r";
  }
  return true;
}

}  // namespace etr::io
