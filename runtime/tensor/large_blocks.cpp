#include "tensor/large_blocks.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <new>
#include <vector>

namespace etr {
namespace {

struct Block {
  std::byte* memory;
  size_t size;
};

class KeptBlocks {
 public:
  std::byte* take(size_t size) {
    std::scoped_lock lock(mutex_);
    const auto found = std::find_if(blocks_.rbegin(), blocks_.rend(),
                                    [&](const Block& block) { return block.size == size; });
    if (found == blocks_.rend()) return nullptr;
    std::byte* memory = found->memory;
    bytes_ -= size;
    blocks_.erase(std::next(found).base());
    return memory;
  }

  // Keeps the block, and lets the oldest ones go where that makes too many.
  void give(Block block) noexcept {
    std::vector<Block> too_many;
    try {
      std::scoped_lock lock(mutex_);
      blocks_.push_back(block);
      bytes_ += block.size;
      size_t drop = 0;
      while (blocks_.size() - drop > kKeptBlocks || bytes_ > kKeptBytes)
        bytes_ -= blocks_[drop++].size;
      const auto end = blocks_.begin() + static_cast<ptrdiff_t>(drop);
      too_many.assign(blocks_.begin(), end);
      blocks_.erase(blocks_.begin(), end);
    } catch (const std::bad_alloc&) {  // before it was put on the list
      too_many.clear();
      std::free(block.memory);
    }
    for (const Block& old : too_many) std::free(old.memory);
  }

 private:
  std::mutex mutex_;
  std::vector<Block> blocks_;  // oldest first
  size_t bytes_ = 0;
};

// Never destroyed: blocks may be let go while the process ends.
KeptBlocks& kept() {
  static auto& blocks = *new KeptBlocks;
  return blocks;
}

}  // namespace

std::shared_ptr<std::byte> allocate_large(size_t size_bytes) {
  constexpr size_t kPage = 4096;
  const size_t size = (size_bytes + kPage - 1) / kPage * kPage;
  std::byte* memory = kept().take(size);
  if (!memory) memory = static_cast<std::byte*>(std::aligned_alloc(kPage, size));
  if (!memory) throw std::bad_alloc();
  return {memory, [size](std::byte* p) { kept().give({p, size}); }};
}

}  // namespace etr
