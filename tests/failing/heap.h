// The heap of the library. This program's operator new, malloc() and so on take the place of the
// standard ones: they count what is allocated for the library, make it fail, and know what is left.
//
// For the library are the allocations that it makes itself, oneTBB's scalable_malloc() included,
// and those of the C++ library, and of the libraries for images, compression and HTTP, within its
// calls. Those of the Vulkan driver, its compiler and oneTBB's scheduler are theirs to survive, and
// where the C library has no memory its calls fail as system_calls.h makes them fail.
#pragma once

#include <cstdint>
#include <string>

namespace etr::failing::heap {

// Finds the library, and the libraries that it has loaded by now. Nothing is counted before.
void watch();

// Allocation `number`, from 1 since this call, fails; with `for_ever`, all after it, too. 0: none.
//
// The next allocation fails instead where others would end the program: nlohmann::json allocates
// where it destroys a value, and may not throw there; the directory iterators of libstdc++ are
// noexcept inside.
void fail(int64_t number, bool for_ever);
int64_t allocations();  // since fail()
std::string failed();   // who asked for the first one that has failed; "" if none has

// Blocks that exist.
int64_t blocks();

// From now on, allocations belong to a new run. `with_callers`: keeps who asked for them.
void begin_run(bool with_callers);
// Whether others have lost blocks in this run: nlohmann::json those of an object that it makes from
// a list, if that throws (its version 3.11.3 does not); the constructors of oneTBB's graph nodes.
bool has_excuse();
// Who has asked for blocks in at least `least` of the latest `runs` runs, without excuse and with
// callers, that still exist; "" if nobody.
std::string left_by(int runs, int least);

}  // namespace etr::failing::heap
