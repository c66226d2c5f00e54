// The preparation of images without training, for 'predict'.
#pragma once

#include <nlohmann/json.hpp>

namespace cli {

using Json = nlohmann::ordered_json;

// Returns the stages after the source that turn an image's bytes into a batch, without those that
// make labels. They come from the job's evaluation or, if it has none, from its training: only
// stages that treat every image alike, with the middle of the image instead of a random part. The
// last batch is kept. If no stage gives all images one size, each image is a batch of its own, so
// that its result does not depend on the images before it.
Json preparation(const Json& job);

}  // namespace cli
