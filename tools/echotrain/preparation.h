// The preparation of images without training, for 'predict'.
#pragma once

#include <nlohmann/json.hpp>

namespace cli {

using Json = nlohmann::ordered_json;

// Returns the stages after the source that turn an image's bytes into a batch, without those that
// make labels. They come from the job's evaluation or, if it has none, from its training: those
// that treat every image alike, with the middle of the image instead of a random part. The last
// batch is kept. If no stage brings images to one size, each image is a batch of its own, so that
// none depends on those before it.
Json preparation(const Json& job);

}  // namespace cli
