// Device memory as seen by a kernel that runs on the host. Pages are fetched on first access.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

namespace etr::spirv {

// The last accesses to a word, each with its stretch between barriers.
struct Trace {
  uint32_t writer = 0, writer_stretch = 0;  // 0: none
  uint32_t reader = 0, reader_stretch = 0;
  bool many_read = false;    // several invocations read it in that stretch
  bool others_read = false;  // an invocation of another workgroup read it
};

class Storage {
 public:
  // Fetches the words from byte `offset` on.
  using Fetch = std::function<void(uint64_t offset, std::span<uint32_t> words)>;

  Storage(uint64_t size_bytes, Fetch fetch);

  enum class State : uint8_t { fetched, written_integer, written_float };
  struct Word {
    uint32_t& value;
    State& state;
    Trace& trace;
  };
  Word word(uint64_t offset);  // `offset` must be a multiple of 4 below size_bytes

  static constexpr uint64_t kPageWords = 1 << 14;
  struct Page {
    std::vector<uint32_t> words;
    std::vector<State> states;
    std::vector<Trace> traces;
  };
  // The pages that were accessed, by number.
  const std::unordered_map<uint64_t, std::unique_ptr<Page>>& pages() const { return pages_; }

 private:
  Page& page(uint64_t number);

  uint64_t size_bytes_;
  Fetch fetch_;
  std::unordered_map<uint64_t, std::unique_ptr<Page>> pages_;
  uint64_t last_ = ~uint64_t{0};
  Page* last_page_ = nullptr;
};

}  // namespace etr::spirv
