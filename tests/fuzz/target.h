// What the fuzz targets share.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>

#include "core/error.h"

namespace etr::fuzz {

using Bytes = std::span<const std::byte>;

// Runs a target. A typed error is the right answer to bad input, unless it says that EchoTrain is
// wrong.
inline int run(void (*target)(Bytes), const uint8_t* data, size_t size) {
  try {
    target({reinterpret_cast<const std::byte*>(data), size});
  } catch (const Error& error) {
    if (error.code() == Code::internal) throw;  // not caught: ends the program
  }
  return 0;
}

inline void write_file(const std::string& path, Bytes bytes) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (!file) std::abort();
  std::fwrite(bytes.data(), 1, bytes.size(), file);
  std::fclose(file);
}

// In memory. A process has one of each ending.
inline std::string path_of(const char* ending) {
  static const std::string stem = "/dev/shm/echotrain-fuzz-" + std::to_string(getpid());
  return stem + ending;
}
// Writes the input to such a file and returns its path.
inline std::string as_file(Bytes bytes, const char* ending) {
  const std::string path = path_of(ending);
  write_file(path, bytes);
  return path;
}
inline std::string as_file(const std::string& text, const char* ending) {
  return as_file(std::as_bytes(std::span(text)), ending);
}

// Ends the program, which libFuzzer reports with the input.
inline void require(bool holds) {
  if (!holds) std::abort();
}
// Of what was accepted, and so must be taken again.
template <typename Call>
void require_no_error(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    std::fputs(error.what(), stderr);
    std::abort();
  }
}

// Makes choices from the input's bytes; zeros when they are used up.
class Choices {
 public:
  explicit Choices(Bytes bytes) : bytes_(bytes) {}
  size_t below(size_t count) {
    if (bytes_.empty()) return 0;
    const auto byte = std::to_integer<size_t>(bytes_.front());
    bytes_ = bytes_.subspan(1);
    return byte % count;
  }
  template <size_t count>
  const char* of(const char* const (&texts)[count]) {
    return texts[below(count)];
  }
  bool left() const { return !bytes_.empty(); }

 private:
  Bytes bytes_;
};

// JSON values at which sums, products and conversions go wrong.
constexpr const char* kNumbers[] = {"0",
                                    "1",
                                    "2",
                                    "3",
                                    "8",
                                    "4611686018427387904",
                                    "4611686018427387905",
                                    "9223372036854775807",
                                    "9223372036854775808",
                                    "18446744073709551615",
                                    "18446744073709551616",
                                    "1152921504606846976",
                                    "4294967296",
                                    "-1",
                                    "2.0",
                                    "1e3",
                                    "null",
                                    "[]",
                                    "\"4\""};

}  // namespace etr::fuzz
