// What this process holds of the system.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace soak {

// One number for each of the kinds below.
using Amounts = std::vector<double>;

// A kind of thing that a process can hold ever more of. `margin` is by how much it may grow while
// the program runs: a share of what there is at first, and an amount. It is judged if the samples
// cover `settled_after` seconds.
struct Kind {
  const char* name;
  const char* unit;
  double margin_share, margin;
  double settled_after;
};

// Memory in use in the C library's heap, resident memory, mappings, threads, file descriptors,
// child processes.
const std::vector<Kind>& kinds();

// The amounts at this moment.
Amounts amounts();

}  // namespace soak
