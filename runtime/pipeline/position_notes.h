// What a saved position says, in the form in which a pipeline uses it.
#pragma once

#include <optional>
#include <vector>

#include "core/json_fwd.h"
#include "pipeline/drop_set.h"
#include "pipeline/replay.h"

namespace etr::pipeline {

constexpr char kDamagedPosition[] = "the saved pipeline state is damaged";

Json pack_drops(const std::vector<Drop>& sorted);
std::vector<Drop> unpack_drops(const Json& packed);
DropSet drop_set(const std::vector<Drop>& drops);

// What is read of a position is there and of its type. Error(corrupt_data).
void check_form(const Json& position);

bool lies_within_epoch(const Json& position);

// They are those of all ranks of one world, in order, at the same time. Error(invalid_argument).
void check_complete(const std::vector<Json>& positions);

// What a rank has left out, and decided by the clock, on its way to a position.
void take_notes(const Json& position, ReplayInput& input, const DropSet& drops,
                std::optional<uint64_t> own_samples);

}  // namespace etr::pipeline
