#include "io/line_reader.h"

#include <cstring>

#include "core/error.h"

namespace etr::io {

bool LineReader::next(std::string& line) {
  line.clear();
  bool any = false;
  while (true) {
    if (position_ == size_) {
      position_ = 0;
      size_ = stream_->read(buffer_);
      if (size_ == 0) break;
    }
    any = true;
    const char* begin = reinterpret_cast<const char*>(buffer_.data()) + position_;
    const auto* end = static_cast<const char*>(std::memchr(begin, '\n', size_ - position_));
    const size_t length = end ? static_cast<size_t>(end - begin) : size_ - position_;
    if (line.size() + length > max_line_bytes_)
      fail(Code::unsupported, "'", path_, "': line ", number_ + 1, " is longer than ",
           max_line_bytes_, " bytes (max_line_bytes)");
    line.append(begin, length);
    position_ += length + (end ? 1 : 0);
    if (end) break;
  }
  if (!any) return false;
  ++number_;
  if (line.ends_with('\r')) line.pop_back();
  return true;
}

}  // namespace etr::io
