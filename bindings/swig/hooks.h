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

// Whose function this thread runs if it is a thread of the binding that stands in for one of the
// library's (C#). The library cannot see that, so the binding must not wait there for what may wait
// for the function.
enum class StandIn { none, pipeline, transport };
inline thread_local StandIn stand_in = StandIn::none;

}  // namespace echotrain::facade
