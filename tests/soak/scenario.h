// What a program does with the library, again and again.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "echotrain/echotrain.hpp"

namespace soak {

namespace et = echotrain;

// What a round of a scenario has at hand.
struct Round {
  const std::string data;  // the folder with the files of data.h; not to be written to
  const std::string work;  // a folder of the round's own, empty at first
  std::mt19937 dice;

  int64_t roll(int64_t sides) {
    return static_cast<int64_t>(dice() % static_cast<uint64_t>(sides));
  }
};

struct Scenario {
  const char* name;
  // Leaves nothing behind: no handle, thread, process or open file. Throws where the library does
  // not do what it should.
  std::function<void(Round&)> run;
};

std::vector<Scenario> pipelines();
std::vector<Scenario> trainers();
std::vector<Scenario> runs();
std::vector<Scenario> groups();
std::vector<Scenario> errors();

inline void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error("it does not hold that " + what);
}

// The call fails with `status`.
template <typename Call>
void expect_error(int32_t status, const std::string& what, Call&& call) {
  try {
    call();
  } catch (const et::Error& error) {
    expect(error.status() == status, what + " is the error " + et::status_name(status) + ", not " +
                                         et::status_name(error.status()) + ": " + error.what());
    return;
  }
  expect(false, what + " is an error");
}

// A device, as ECHOTRAIN_TEST_DEVICE says.
et::Runtime open_device();

// Reads up to `batches` batches, over the ends of epochs; how many there were.
int64_t read(et::Pipeline& pipeline, int64_t batches);

}  // namespace soak
