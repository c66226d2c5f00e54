#include "io/remote_answer.h"

#include <algorithm>
#include <charconv>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/text.h"

namespace etr::io {
namespace {

constexpr const char* kBetween = " ";  // the parts of a version

uint64_t total_of(const HttpResponse& answer, const std::string& address) {
  const bool whole = answer.status == 200;
  if (whole && (!answer.body.empty() || answer.header("content-length").empty()))
    return answer.body.size();
  // "1234"; "bytes 0-99/1234", "bytes */0"
  const char* const name = whole ? "content-length" : "content-range";
  const std::string text = answer.header(name);
  const size_t begin = whole ? 0 : text.find('/') + 1;  // 0: there is none
  const char* const end = text.data() + text.size();
  constexpr uint64_t kMost = uint64_t{1} << 62;  // more wraps
  uint64_t total = 0;
  const auto [stop, error] = std::from_chars(text.data() + begin, end, total);
  if ((!whole && begin == 0) || error != std::errc() || stop != end || total > kMost)
    fail(Code::io, "'", address, "': the server does not say how long it is ('",
         answer.header_text(name), "')");
  return total;
}

// Some servers and caches return other ranges than requested, or of another version.
void check_range(const HttpResponse& answer, const std::string& address, const RemoteState& state,
                 uint64_t begin, uint64_t size) {
  const std::string range = lower_case(answer.header("content-range"));
  const std::string part = cat("bytes ", begin, "-", begin + size - 1, "/");
  if (answer.body.size() != size || (range != cat(part, state.bytes) && range != part + "*"))
    fail(Code::io, "'", address, "': asked for bytes ", begin, " to ", begin + size - 1, " of ",
         state.bytes, ", the server sent ", answer.body.size(), " bytes as '",
         answer.header_text("content-range"), "'");
}

void check_whole(const HttpResponse& answer, const std::string& address, const RemoteState& state,
                 uint64_t begin) {
  if (begin > 0) fail(Code::io, "'", address, "': the server stopped answering by ranges");
  if (answer.body.size() != state.bytes)
    fail(Code::io, "'", address, "': the server sent ", answer.body.size(),
         " bytes, and said before that it has ", state.bytes);
}

}  // namespace

std::string version_of(const HttpResponse& answer) {
  return answer.header("etag") + kBetween + answer.header("last-modified");
}

bool has_version(const RemoteState& state) { return state.version != kBetween; }

RemoteState state_of(const HttpResponse& answer, const std::string& address) {
  return {total_of(answer, address), version_of(answer)};
}

std::vector<std::byte> part_of(HttpResponse answer, const std::string& address,
                               const RemoteState& state, uint64_t begin, uint64_t size) {
  if (answer.status == 416) {
    if (begin > 0 || state.bytes > 0)
      fail(Code::io, "'", address, "': the server says that it ends before byte ", begin,
           " and that it has ", state.bytes, " bytes");
    return {};  // the file is empty
  }
  if (answer.status == 200) check_whole(answer, address, state, begin);
  if (answer.status == 206)
    check_range(answer, address, state, begin, std::min(size, state.bytes - begin));
  return std::move(answer.body);
}

}  // namespace etr::io
