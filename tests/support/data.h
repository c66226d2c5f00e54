// Small data sets for tests, made on the spot.
#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "pipeline/pipeline.h"
#include "support/temp_dir.h"

namespace etr::test {

// A gray or RGB PNG of a solid gradient that depends on `tag`.
std::string make_png(int width, int height, int channels, int tag);

// Writes `shards` shards of `per_shard` samples: members NUMBER.cls (its number modulo `classes`,
// as text), NUMBER.txt (its number) and, if `image_size` > 0, NUMBER.png. Returns the pattern.
std::string make_shards(const TempDir& dir, int shards, int per_shard, int image_size = 0,
                        int classes = 10, const std::string& extension = ".tar.zst");

// Writes NAME.tar with gray 12 x 12 PNGs of four classes: noise with a bright band whose place is
// the class. Quick to learn, not trivial. Returns its path.
std::string make_band_shard(const TempDir& dir, const std::string& name, int samples, int seed);

// Returns the labels of all items in the rest of the epoch, in order; batches are flattened.
std::vector<int32_t> labels_of_epoch(pipeline::Pipeline& pipeline);

// Returns a digest of the bytes of all fields of all items in the rest of the epoch.
uint64_t digest_of_epoch(pipeline::Pipeline& pipeline, int64_t limit = -1);

}  // namespace etr::test
