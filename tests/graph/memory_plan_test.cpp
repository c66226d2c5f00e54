#include "graph/memory_plan.h"

#include <gtest/gtest.h>

#include "core/rng.h"
#include "support/device.h"

namespace etr::test {
namespace {

using namespace graph;

struct Planning {
  MemoryPlan plan{device()};
  gpu::Arena arena{device(), gpu::MemoryUse::device};
  gpu::CommandList commands;

  void fill(const gpu::Buffer& to) { commands.push_back(gpu::Fill{to, 1}); }
  void copy(const gpu::Buffer& from, const gpu::Buffer& to) {
    commands.push_back(gpu::Copy{from, to});
  }
  void place() { plan.place(commands, arena); }
};

TEST(MemoryPlan, WhatIsNeverInUseTogetherSharesMemory) {
  Planning p;
  const gpu::Buffer a = p.plan.allocate(4096), b = p.plan.allocate(4096), c = p.plan.allocate(4096);
  p.fill(a);
  p.fill(b);
  p.copy(a.slice(0, 64), b.slice(0, 64));  // a and b meet; c comes when both are done
  p.fill(c);
  p.place();
  EXPECT_FALSE(overlap(p.plan.real(a), p.plan.real(b)));
  EXPECT_TRUE(overlap(p.plan.real(a), p.plan.real(c)));
  EXPECT_EQ(p.plan.asked_bytes(), 3u * 4096);
  EXPECT_EQ(std::get<gpu::Copy>(p.commands[2]).to.offset, p.plan.real(b).offset);
}

TEST(MemoryPlan, WhatIsReadBehindOrWrittenBeforeKeepsItsMemory) {
  Planning p;
  const gpu::Buffer in = p.plan.allocate(256), out = p.plan.allocate(256),
                    last = p.plan.allocate(256);
  p.plan.written_before(in);
  p.plan.read_after(out);
  p.fill(out);
  p.copy(in.slice(0, 4), out.slice(0, 4));
  p.fill(last);
  p.place();
  EXPECT_FALSE(overlap(p.plan.real(in), p.plan.real(out)));
  EXPECT_FALSE(overlap(p.plan.real(last), p.plan.real(out)));
  EXPECT_TRUE(overlap(p.plan.real(last), p.plan.real(in)));
}

TEST(MemoryPlan, ACopyIsNoCopyWhereNeitherChangesUnderTheOther) {
  Planning p;
  const gpu::Buffer a = p.plan.allocate(256), b = p.plan.allocate(256), c = p.plan.allocate(256),
                    d = p.plan.allocate(256);
  p.fill(a);
  p.copy(a, b);  // both are only read from here on: one
  p.copy(a, c);  // c changes while b is read: this stays
  p.copy(b.slice(0, 4), c.slice(0, 4));
  p.copy(c, d);  // nobody needs c any more: one
  p.fill(d.slice(0, 4));
  p.place();
  ASSERT_EQ(p.commands.size(), 4u);
  EXPECT_EQ(p.plan.real(a).offset, p.plan.real(b).offset);
  EXPECT_FALSE(overlap(p.plan.real(b), p.plan.real(c)));
  EXPECT_EQ(p.plan.real(c).offset, p.plan.real(d).offset);
}

TEST(MemoryPlan, ACopyOfWhatChangesLaterStays) {
  Planning p;
  const gpu::Buffer a = p.plan.allocate(256), b = p.plan.allocate(256), c = p.plan.allocate(256);
  p.fill(a);
  p.copy(a, b);
  p.fill(a.slice(0, 4));
  p.copy(b, c);  // b as it was
  p.plan.read_after(a);
  p.plan.read_after(c);
  p.place();
  EXPECT_FALSE(overlap(p.plan.real(a), p.plan.real(b)));
  EXPECT_FALSE(overlap(p.plan.real(a), p.plan.real(c)));
}

TEST(MemoryPlan, AnUnusedBufferHasNone) {
  Planning p;
  const gpu::Buffer a = p.plan.allocate(256);
  p.place();
  EXPECT_FALSE(p.plan.real(a));
}

// Random programs: buffers whose uses interleave never share a byte.
TEST(MemoryPlan, NothingThatMeetsOverlaps) {
  Rng rng(5);
  for (int round = 0; round < 50; ++round) {
    Planning p;
    std::vector<gpu::Buffer> buffers;
    for (int i = 0; i < 30; ++i) buffers.push_back(p.plan.allocate(4 + rng.below(5000)));
    std::vector<int> first(30, 1000), last(30, -1);
    for (int i = 0; i < 60; ++i) {
      const auto begin = rng.below(30);
      // Neighbours, so that lives are short.
      const auto b = std::min<uint32_t>(begin + rng.below(4), 29);
      p.fill(buffers[b]);
      first[b] = std::min(first[b], i);
      last[b] = std::max(last[b], i);
    }
    p.place();
    for (size_t a = 0; a < 30; ++a)
      for (size_t b = 0; b < a; ++b)
        if (first[a] <= last[b] && first[b] <= last[a]) {
          ASSERT_FALSE(overlap(p.plan.real(buffers[a]), p.plan.real(buffers[b]))) << a << " " << b;
        }
  }
}

}  // namespace
}  // namespace etr::test
