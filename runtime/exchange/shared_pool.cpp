#include "exchange/shared_pool.h"

#include <algorithm>
#include <vector>

#include "core/error.h"

namespace etr::exchange {

namespace {

constexpr uint64_t kPage = platform::SharedMemory::kPage;
// The largest size of a block, in bytes. Small enough that arithmetic on offsets cannot overflow.
constexpr uint64_t kMost = uint64_t{1} << 46;

}  // namespace

SharedPool::~SharedPool() {
  for (const auto& [at, piece] : pieces_)
    memory_.unmap(const_cast<std::byte*>(at), piece.begin, piece.size);
}

// Returns the first gap between the blocks that is long enough.
uint64_t SharedPool::gap(uint64_t size) const {
  std::vector<Piece> sorted;
  for (const auto& [at, piece] : pieces_) sorted.push_back(piece);
  std::sort(sorted.begin(), sorted.end(),
            [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
  uint64_t begin = 0;
  for (const Piece& piece : sorted) {
    if (piece.begin - begin >= size) break;
    begin = piece.begin + piece.size;
  }
  return begin;
}

std::byte* SharedPool::take(uint64_t bytes) {
  if (bytes > kMost) fail(Code::out_of_memory, "no ", bytes, " bytes of shared memory");
  const uint64_t size = (std::max<uint64_t>(bytes, 1) + kPage - 1) / kPage * kPage;
  const std::lock_guard lock(mutex_);
  const uint64_t begin = gap(size);
  std::byte* const memory = memory_.map(begin, size);
  pieces_.emplace(memory, Piece{begin, size});
  return memory;
}

void SharedPool::give_back(void* piece) {
  const std::lock_guard lock(mutex_);
  const auto found = pieces_.find(static_cast<std::byte*>(piece));
  if (found == pieces_.end()) return;
  memory_.unmap(static_cast<std::byte*>(piece), found->second.begin, found->second.size);
  pieces_.erase(found);
}

std::optional<uint64_t> SharedPool::place(const void* data, uint64_t bytes) const {
  const auto* const at = static_cast<const std::byte*>(data);
  const std::lock_guard lock(mutex_);
  auto after = pieces_.upper_bound(at);
  if (after == pieces_.begin()) return std::nullopt;
  const auto& [begin, piece] = *--after;
  const auto offset = static_cast<uint64_t>(at - begin);
  if (offset > piece.size || bytes > piece.size - offset) return std::nullopt;
  return piece.begin + offset;
}

}  // namespace etr::exchange
