#include "pipeline/position_notes.h"

#include <map>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/json.h"
#include "core/json_members.h"
#include "core/most_ranks.h"
#include "core/packed.h"
#include "core/text.h"

namespace etr::pipeline {
namespace {

constexpr uint64_t kMostItems = uint64_t{1} << 40;  // per epoch; also the limit of epochs

}  // namespace

// Stores the ordinals by stage, as differences: a filter may drop a large part of a million
// samples. In a list of copies, the copy follows each of them.
void pack_drops(const std::vector<Drop>& sorted, uint64_t first_echo, Json& position) {
  std::map<uint64_t, std::vector<uint64_t>> samples, copies;
  std::map<uint64_t, uint64_t> last_sample, last_copy;
  for (const auto& [stage, ordinal, copy] : sorted) {
    if (copy == kEveryCopy || stage <= first_echo)
      samples[stage].push_back(ordinal - std::exchange(last_sample[stage], ordinal));
    else
      copies[stage].insert(copies[stage].end(),
                           {ordinal - std::exchange(last_copy[stage], ordinal), copy});
  }
  position["drops"] = Json::object();
  for (const auto& [stage, steps] : samples)
    position["drops"][std::to_string(stage)] = pack_numbers(steps);
  if (!copies.empty()) position["dropped_copies"] = Json::object();
  for (const auto& [stage, steps] : copies)
    position["dropped_copies"][std::to_string(stage)] = pack_numbers(steps);
}

// Earlier positions name only samples behind an echo node, too, and so stand for all their copies.
std::vector<Drop> unpack_drops(const Json& position) {
  std::vector<Drop> out;
  const auto number_of = [](const std::string& stage) {
    return static_cast<uint64_t>(parse_integer(stage, "a stage's number"));
  };
  for (const auto& [stage, text] : position.at("drops").items()) {
    uint64_t ordinal = 0;
    for (const uint64_t step : unpack_numbers(text.get<std::string>()))
      out.push_back({number_of(stage), ordinal += step, kEveryCopy});
  }
  const Json copies = position.value("dropped_copies", Json::object());
  for (const auto& [stage, text] : copies.items()) {
    const auto steps = unpack_numbers(text.get<std::string>());
    if (steps.size() % 2)
      fail(Code::corrupt_data, kDamagedPosition, ": 'dropped_copies' of stage ", stage,
           " end with a sample without a copy");
    uint64_t ordinal = 0;
    for (size_t i = 0; i < steps.size(); i += 2)
      out.push_back({number_of(stage), ordinal += steps[i], steps[i + 1]});
  }
  return out;
}

// Between epochs nothing is held, so any number of processes may continue.
bool lies_within_epoch(const Json& position) {
  return position.at("delivered") != 0 || position.contains("done");
}

void return_to_start(Json& position) {
  remove_member(position, "done");
  remove_member(position, "dropped_copies");
  position["delivered"] = 0;
  position["pass_lengths"] = Json::array();
  position["drops"] = position["decisions"] = Json::object();
}

void check_complete(const std::vector<Json>& positions) {
  const uint64_t world = positions.front().at("world");
  if (positions.size() != world)
    fail(Code::invalid_argument, "the position was saved within an epoch by rank ",
         positions.front().at("rank").dump(), " of a world of ", world,
         ": to continue with another number of processes, restore a list of the positions "
         "of all ",
         counted(static_cast<int64_t>(world), "rank"), " (", positions.size(),
         positions.size() == 1 ? " was" : " were", " given), or save at the end of an epoch");
  const Json& first = positions.front();
  for (uint64_t rank = 0; rank < world; ++rank) {
    const Json& position = positions[rank];
    if (position.value("rank", Json()) != rank || position.value("world", Json()) != world)
      fail(Code::invalid_argument, "position ", rank + 1, " of ", world, " is of rank ",
           position.value("rank", Json()).dump(), " of a world of ",
           position.value("world", Json()).dump(), ", not of rank ", rank, " of ", world);
    if (position["epoch"] != first["epoch"] ||
        position.value("done", Json()) != first.value("done", Json()))
      fail(Code::invalid_argument, "the positions of ranks 0 and ", rank,
           " were not saved at the same time: they are in epochs ", first["epoch"].dump(), " and ",
           position["epoch"].dump(), ", or divided in another way");
  }
}

void check_form(const Json& state) {
  const JsonMembers members(state, kDamagedPosition, Code::corrupt_data);
  const JsonMembers pipeline = members.part("pipeline");
  pipeline.at("seed");
  pipeline.list("stages");
  members.whole("epoch", kMostItems);
  if (members.whole("delivered", kMostItems) > 0 || members.has("done") || members.has("world")) {
    const uint64_t world = members.whole("world", kMostRanks);
    const uint64_t rank = members.whole("rank", kMostRanks);
    if (rank >= world)
      fail(Code::corrupt_data, kDamagedPosition, ": 'rank' is ", rank, " of a world of ", world);
  }
  if (members.has("done")) members.object("done");
  for (const Json& length : members.list("pass_lengths"))
    if (!length.is_number_unsigned() || length.get<uint64_t>() > kMostItems)
      fail(Code::corrupt_data, kDamagedPosition, ": 'pass_lengths' holds ", brief_json(length),
           ", not a number of samples");
  members.object("decisions");
  const auto check_lists = [&](const char* key) {
    for (const auto& [stage, list] : members.object(key).items())
      if (!list.is_string())
        fail(Code::corrupt_data, kDamagedPosition, ": '", key, "' of stage ", stage, " are ",
             brief_json(list), ", not a packed list");
  };
  check_lists("drops");
  if (members.has("dropped_copies")) check_lists("dropped_copies");
}

void take_notes(const Json& state, ReplayInput& input, const DropSet& drops,
                std::optional<uint64_t> own_samples) {
  for (const auto& [position, stage] : input.stages)
    if (const std::string key = std::to_string(position); state.at("decisions").contains(key))
      if (TimeDependent* decides = stage->time_dependent())
        decides->load_decisions(input.epoch, state["decisions"][key]);
  input.pass_lengths = state.at("pass_lengths").get<std::vector<uint64_t>>();
  input.pass_length = own_samples;
  if (own_samples)
    for (const uint64_t length : input.pass_lengths)
      if (length > *own_samples + 1)  // the error with which a pass may end counts, too
        fail(Code::corrupt_data, kDamagedPosition, ": 'pass_lengths' holds ", length,
             ", and a pass has ", counted(static_cast<int64_t>(*own_samples), "sample"));
  input.drops = &drops;
}

}  // namespace etr::pipeline
