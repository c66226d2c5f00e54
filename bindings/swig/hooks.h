// Hooks around functions of a language that the library calls.
#pragma once

namespace echotrain::facade {

// Functions that a language runs on a worker thread before and after a callback of the program.
struct Hooks {
  void (*before)() = nullptr;
  void (*after)() = nullptr;
};
inline Hooks& hooks() {
  static Hooks set;
  return set;
}

// In C#, a thread of the binding runs the program's callbacks in place of a thread of the library.
// The library does not know that, so the binding must not wait on that thread for anything that may
// wait for the callback. This tells which kind of callback the current thread runs.
enum class StandIn { none, pipeline, transport };
inline thread_local StandIn stand_in = StandIn::none;

}  // namespace echotrain::facade
