// Whether this build has a sanitizer: its memory is its own, and its time a multiple.
#pragma once

namespace etr::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

}  // namespace etr::test
