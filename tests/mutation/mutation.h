// Included before a source file that mutate.py has rewritten. Each mutant has a number. The program
// behaves as usual, but for the mutant whose number is in ECHOTRAIN_MUTANT. If
// ECHOTRAIN_MUTANTS_REACHED names a file, its byte
// of a number becomes 1 when the program comes past that mutant.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

namespace mutation {

struct State {
  int active = 0;
  long places = 0;
  unsigned char* reached = nullptr;  // the file itself, for processes that are killed
};

inline State read_environment() {
  State out;
  if (const char* number = std::getenv("ECHOTRAIN_MUTANT")) out.active = std::atoi(number);
  const char* path = std::getenv("ECHOTRAIN_MUTANTS_REACHED");
  if (!path) return out;
  const int file = ::open(path, O_RDWR | O_CLOEXEC);
  struct stat status {};
  if (file < 0 || ::fstat(file, &status) != 0) std::abort();
  void* const bytes = ::mmap(nullptr, static_cast<std::size_t>(status.st_size),
                             PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (bytes == MAP_FAILED) std::abort();
  ::close(file);
  out.places = status.st_size;
  out.reached = static_cast<unsigned char*>(bytes);
  return out;
}

inline bool on(int number) {
  static const State state = read_environment();
  if (number < state.places) state.reached[number] = 1;
  return number == state.active;
}

template <typename T>
T number(int mutant, T value) {
  return on(mutant) ? static_cast<T>(value + 1) : value;
}

#define MUTATION_RELATION(name, op, first, second)            \
  template <typename A, typename B>                           \
  bool name(int mutant, const A& a, const B& b) {             \
    if (on(mutant)) return static_cast<bool>(a first b);      \
    if (on(mutant + 1)) return static_cast<bool>(a second b); \
    return static_cast<bool>(a op b);                         \
  }
MUTATION_RELATION(less, <, <=, >=)
MUTATION_RELATION(less_or_equal, <=, <, >)
MUTATION_RELATION(greater, >, >=, <=)
MUTATION_RELATION(greater_or_equal, >=, >, <)
#undef MUTATION_RELATION

#define MUTATION_OPERATION(name, op, other)       \
  template <typename A, typename B>               \
  auto name(int mutant, const A& a, const B& b) { \
    if (on(mutant)) return a other b;             \
    return a op b;                                \
  }
MUTATION_OPERATION(equal, ==, !=)
MUTATION_OPERATION(unequal, !=, ==)
MUTATION_OPERATION(plus, +, -)
MUTATION_OPERATION(minus, -, +)
MUTATION_OPERATION(times, *, /)
MUTATION_OPERATION(divided, /, *)
MUTATION_OPERATION(rest, %, *)
MUTATION_OPERATION(shifted_left, <<, >>)
MUTATION_OPERATION(shifted_right, >>, <<)
MUTATION_OPERATION(bits_of_both, &, |)
MUTATION_OPERATION(bits_of_either, |, &)
MUTATION_OPERATION(bits_that_differ, ^, |)
#undef MUTATION_OPERATION

}  // namespace mutation
