// Byte counts in human-readable form.
#pragma once

#include <cstdio>
#include <string>

namespace etr {

// "640 bytes", "100.5 kB", "12.3 MB".
inline std::string bytes_text(double bytes) {
  char text[32];
  if (bytes < 1e3)
    std::snprintf(text, sizeof text, "%.0f bytes", bytes);
  else
    std::snprintf(text, sizeof text, "%.1f %s", bytes * (bytes < 1e6 ? 1e-3 : 1e-6),
                  bytes < 1e6 ? "kB" : "MB");
  return text;
}

}  // namespace etr
