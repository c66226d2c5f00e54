#include "pipeline/done_samples.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/json.h"
#include "core/json_members.h"
#include "core/packed.h"
#include "core/text.h"
#include "pipeline/item.h"

namespace etr::pipeline {
namespace {

constexpr char kDamaged[] = "the saved pipeline state is damaged: 'done'";
constexpr uint64_t kMost = uint64_t{1} << 40;        // samples per pass
constexpr uint64_t kMostPasses = uint64_t{1} << 22;  // passes per epoch; a list has all of them

[[noreturn]] void damaged(const char* what) { fail(Code::corrupt_data, kDamaged, ": ", what); }

uint64_t checked(uint64_t number) {
  if (number > kMost) damaged("a number is beyond all samples");
  return number;
}

}  // namespace

void DoneSamples::add(uint64_t pass, std::vector<uint64_t> numbers) {
  Runs& runs = passes_[pass];
  std::sort(numbers.begin(), numbers.end());
  Runs added;
  for (const uint64_t number : numbers)
    if (added.empty() || number > added.back().end)
      added.push_back({number, number + 1, 0});
    else
      added.back().end = number + 1;
  // Runs are not expanded: one of a damaged position may be longer than memory.
  Runs all;
  std::merge(runs.begin(), runs.end(), added.begin(), added.end(), std::back_inserter(all),
             [](const Run& one, const Run& other) { return one.begin < other.begin; });
  runs.clear();
  uint64_t done = 0;
  for (const Run& run : all) {
    if (runs.empty() || run.begin > runs.back().end) runs.push_back({run.begin, run.begin, done});
    const uint64_t end = std::max(runs.back().end, run.end);
    done += end - std::exchange(runs.back().end, end);
  }
}

void DoneSamples::forget_copies_of_done() {
  std::erase_if(copies_, [this](const SampleCopy& copy) {
    return is_done(copy.first >> kPassShift, copy.first & ((uint64_t{1} << kPassShift) - 1));
  });
}

uint64_t DoneSamples::passes() const {
  return passes_.empty() ? first_pass_ : std::max(first_pass_, passes_.rbegin()->first + 1);
}

uint64_t DoneSamples::left(uint64_t pass, uint64_t nth) const {
  const auto it = passes_.find(pass);
  if (it == passes_.end()) return nth;
  const auto after =
      std::upper_bound(it->second.begin(), it->second.end(), nth,
                       [](uint64_t n, const Run& run) { return n < run.left_before(); });
  if (after == it->second.begin()) return nth;
  const Run& run = *std::prev(after);
  return nth + run.done_before + (run.end - run.begin);
}

// The last run that begins at or before `number`.
const DoneSamples::Run* DoneSamples::run_before(uint64_t pass, uint64_t number) const {
  const auto it = passes_.find(pass);
  if (it == passes_.end()) return nullptr;
  const auto after = std::upper_bound(it->second.begin(), it->second.end(), number,
                                      [](uint64_t n, const Run& run) { return n < run.begin; });
  return after == it->second.begin() ? nullptr : &*std::prev(after);
}

uint64_t DoneSamples::left_before(uint64_t pass, uint64_t number) const {
  const Run* run = run_before(pass, number);
  return run ? number - run->done_before - (std::min(number, run->end) - run->begin) : number;
}

bool DoneSamples::is_done(uint64_t pass, uint64_t number) const {
  const Run* run = run_before(pass, number);
  return run && number < run->end;
}

// Encodes runs as gaps and lengths; most of an epoch is one long run.
Json DoneSamples::json() const {
  Json out{{"first_pass", first_pass_}, {"passes", Json::object()}};
  for (const auto& [pass, runs] : passes_) {
    std::vector<uint64_t> steps;
    uint64_t at = 0;
    for (const Run& run : runs) {
      steps.insert(steps.end(), {run.begin - at, run.end - run.begin});
      at = run.end;
    }
    out["passes"][std::to_string(pass)] = pack_numbers(steps);
  }
  std::vector<uint64_t> copies;
  uint64_t last = 0;
  for (const auto& [ordinal, replica] : copies_)
    copies.insert(copies.end(), {ordinal - std::exchange(last, ordinal), replica});
  out["copies"] = pack_numbers(copies);
  return out;
}

DoneSamples DoneSamples::from(const Json& json) {
  const JsonMembers members(json, kDamaged, Code::corrupt_data);
  DoneSamples out;
  out.first_pass_ = members.whole("first_pass", kMostPasses);
  for (const auto& [pass, text] : members.object("passes").items()) {
    if (!text.is_string()) damaged("a pass is no packed list");
    const auto steps = unpack_numbers(text.get<std::string>());
    if (steps.size() % 2) damaged("a run has no length");
    Runs& runs = out.passes_[checked(static_cast<uint64_t>(parse_integer(pass, "a pass")))];
    uint64_t at = 0, done = 0;
    for (size_t i = 0; i < steps.size(); i += 2) {
      const uint64_t begin = checked(at + checked(steps[i])), length = checked(steps[i + 1]);
      if (length == 0 || (i > 0 && steps[i] == 0)) damaged("a run is empty");
      runs.push_back({begin, at = checked(begin + length), done});
      done += length;
    }
  }
  const auto copies = unpack_numbers(members.text("copies"));
  if (copies.size() % 2) damaged("a copy has no number");
  uint64_t ordinal = 0;
  for (size_t i = 0; i < copies.size(); i += 2) {
    if (copies[i + 1] > UINT32_MAX) damaged("a copy's number is beyond all copies");
    out.add_copy({ordinal += copies[i], static_cast<uint32_t>(copies[i + 1])});
  }
  return out;
}

}  // namespace etr::pipeline
