// Byte counts in human-readable form.
#pragma once

#include <string>

#include "core/format_text.h"

namespace etr {

// "640 bytes", "100.5 kB", "12.3 MB".
inline std::string bytes_text(double bytes) {
  if (bytes < 1e3) return format_text("%.0f bytes", bytes);
  return bytes < 1e6 ? format_text("%.1f kB", bytes * 1e-3) : format_text("%.1f MB", bytes * 1e-6);
}

}  // namespace etr
