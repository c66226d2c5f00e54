// Converts colour to gray by ITU-R BT.601.
#pragma once

#include <cstdint>

namespace etr::codec {

// T is u8 or u16.
template <typename T>
T luma(const T* rgb) {
  return static_cast<T>((299u * rgb[0] + 587u * rgb[1] + 114u * rgb[2] + 500u) / 1000u);
}

}  // namespace etr::codec
