// Converts between saved positions and the form that a pipeline uses.
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

// Checks that the members of a position exist and have the right types. Throws Error(corrupt_data).
void check_form(const Json& position);

bool lies_within_epoch(const Json& position);

// Checks that the positions are those of all ranks of one world, in order, saved at the same time.
// Throws Error(invalid_argument).
void check_complete(const std::vector<Json>& positions);

// Copies to `input` which samples a rank dropped, and what it decided by time, on its way to a
// position.
void take_notes(const Json& position, ReplayInput& input, const DropSet& drops,
                std::optional<uint64_t> own_samples);

}  // namespace etr::pipeline
