// Checks that all image decoders share.
#pragma once

#include <csetjmp>
#include <cstdarg>
#include <cstdio>
#include <new>

#include "codec/image_codec.h"
#include "core/error.h"

namespace etr::codec {

inline void check_not_empty(int64_t width, int64_t height) {
  if (width <= 0 || height <= 0)
    fail(Code::corrupt_data, "the image is empty (", width, " x ", height, " pixels)");
}

// Throws Error(corrupt_data) if an image has no pixels, Error(unsupported) if it exceeds the limit.
inline void check_pixels(int64_t width, int64_t height, const ImageOptions& options) {
  check_not_empty(width, height);
  if (width > options.max_pixels / height)
    fail(Code::unsupported, "an image of ", width, " x ", height, " pixels; the limit is ",
         options.max_pixels, " pixels (max_pixels)");
}

// Waits until the memory for decoding an image is available, and reserves it for the lifetime of
// the result. Throws Error(unsupported) if it exceeds the limit of one image.
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

// Leaves a C library whose error callback must not return.
class ErrorJump {
 public:
  // Runs `part`, which calls the library, and throws the error it raised; of out_of_memory, which
  // is not the image's, std::bad_alloc. An error skips the destructors of the part's local
  // variables, so they must be trivial.
  template <typename Part>
  void call(const Part& part) {
    if (setjmp(target_) != 0) {
      if (code_ == Code::out_of_memory) throw std::bad_alloc();
      fail(code_, message_);
    }
    part();
  }

  // Only within call().
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
