// How a job's images are prepared where there is nothing to train on: for 'predict'.
#pragma once

#include <nlohmann/json.hpp>

namespace cli {

using Json = nlohmann::ordered_json;

// The stages after the source that lead from an image's bytes to a batch, without those that make labels. They are those of the
// job's evaluation; of a job without one, those of its training that do the same to every image, with the middle in place
// of a random part. The last batch is kept. Where no stage brings images to one size, each is a batch of its own, so that none
// depends on those before it.
Json preparation(const Json& job);

}  // namespace cli
