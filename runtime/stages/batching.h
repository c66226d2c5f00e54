// What stages that make batches have in common.
#pragma once

#include <memory>
#include <vector>

#include "pipeline/item.h"

namespace etr::stages {

// A batch of `items` without fields yet: number, origin and accounts.
inline pipeline::Item head_of_batch(const std::vector<pipeline::Item>& items) {
  pipeline::Item batch;
  batch.ordinal = items.front().ordinal;
  batch.origin = items.front().origin;
  for (const pipeline::Item& item : items) {
    batch.ghost = batch.ghost || item.ghost;
    ++(item.replica == 0 ? batch.batch.fresh : batch.batch.echoed);
  }
  batch.batch.size = static_cast<int32_t>(items.size());
  if (items.front().token) {  // restoring: a held batch holds its samples
    auto tokens = std::make_shared<std::vector<std::shared_ptr<void>>>();
    for (const pipeline::Item& item : items) tokens->push_back(item.token);
    batch.token = std::move(tokens);
  }
  return batch;
}

}  // namespace etr::stages
