// Hooks around functions of a language that the library calls.
#pragma once

namespace echotrain::facade {

// What a language must do on a worker thread before and after a function of its own.
struct Hooks {
  void (*before)() = nullptr;
  void (*after)() = nullptr;
};
inline Hooks& hooks() {
  static Hooks set;
  return set;
}

}  // namespace echotrain::facade
