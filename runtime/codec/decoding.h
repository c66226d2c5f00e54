// What all decoders of images do before and while they decode.
#pragma once

#include <csetjmp>
#include <cstdarg>
#include <cstdio>

#include "codec/image_codec.h"
#include "core/error.h"

namespace etr::codec {

inline void check_not_empty(int64_t width, int64_t height) {
  if (width <= 0 || height <= 0)
    fail(Code::corrupt_data, "the image is empty (", width, " x ", height, " pixels)");
}

// Error(corrupt_data) where an image has no pixels, Error(unsupported) where it has more than the limit.
inline void check_pixels(int64_t width, int64_t height, const ImageOptions& options) {
  check_not_empty(width, height);
  if (width > options.max_pixels / height)
    fail(Code::unsupported, "an image of ", width, " x ", height, " pixels; the limit is ",
         options.max_pixels, " pixels (max_pixels)");
}

// Waits for the memory that decoding an image needs, until the hold is gone. Error(unsupported) where it is more than one image
// may have.
inline ByteGate::Hold reserve(int64_t bytes, const ImageOptions& options) {
  if (!options.memory) return {};
  if (bytes > options.memory->most())
    fail(Code::unsupported, "decoding this image takes ", bytes,
         " bytes of memory, more than the pipeline's budget_bytes (", options.memory->most(), ")");
  return {*options.memory, bytes};
}

inline bool is_cancelled(const ImageOptions& options) {
  return options.cancelled && options.cancelled();
}
inline void check_cancelled(const ImageOptions& options) {
  if (is_cancelled(options)) fail(Code::cancelled, "decoding was cancelled");
}

// Out of a C library that reports errors by calling a function that must not return.
class ErrorJump {
 public:
  // Runs a part that calls the library, and throws what it raised. An error jumps over the part's local variables: none of them
  // may need a destructor.
  template <typename Part>
  void call(const Part& part) {
    if (setjmp(target_) != 0) fail(code_, message_);
    part();
  }

  // From within call().
  [[noreturn, gnu::format(printf, 3, 4)]] void raise(Code code, const char* format, ...) {
    std::va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(message_, sizeof message_, format, arguments);
    va_end(arguments);
    code_ = code;
    std::longjmp(target_, 1);
  }

 private:
  std::jmp_buf target_;
  Code code_ = Code::internal;
  char message_[300] = "";
};

}  // namespace etr::codec
