// Converts between saved positions and the form that a pipeline uses.
#pragma once

#include <optional>
#include <vector>

#include "core/json_fwd.h"
#include "pipeline/drop_set.h"
#include "pipeline/replay.h"

namespace etr::pipeline {

constexpr char kDamagedPosition[] = "the saved pipeline state is damaged";

// Sets the position's "drops" and, if there are any, its "dropped_copies": those of stages behind
// stage `first_echo`, where a sample has several copies.
void pack_drops(const std::vector<Drop>& sorted, uint64_t first_echo, Json& position);
std::vector<Drop> unpack_drops(const Json& position);

// Checks that the members of a position exist and have the right types. Throws Error(corrupt_data).
void check_form(const Json& position);

bool lies_within_epoch(const Json& position);

// Moves a position of valid form to the start of its epoch.
void return_to_start(Json& position);

// Checks that the positions are those of all ranks of one world, in order, saved at the same time.
// Throws Error(invalid_argument).
void check_complete(const std::vector<Json>& positions);

// Copies to `input` which samples a rank dropped, and what it decided by time, on its way to a
// position.
void take_notes(const Json& position, ReplayInput& input, const DropSet& drops,
                std::optional<uint64_t> own_samples);

}  // namespace etr::pipeline
