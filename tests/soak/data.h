// Small files for every source.
#pragma once

#include <string>

namespace soak {

constexpr int kSamples = 48;

// Writes into `folder`:
//   images/CLASS/N.png   two classes, 8 x 8, gray
//   shard-*.tar.zst      of these images
//   fast-*.ets           of these images, with classes.txt
//   images.idx, labels.idx, cifar.bin, x.npy, y.npy
//   rows-0.csv ...       rows-N.csv, rows-N.jsonl, rows-N.tfrecord, text-N.txt in two parts each
// with kSamples samples each.
void write_data(const std::string& folder);

void write_file(const std::string& path, const std::string& bytes);
std::string read_file(const std::string& path);

}  // namespace soak
