#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "core/error.h"
#include "gpu/recording.h"
#include "gpu/run_once.h"
#include "support/device.h"

namespace etr::test {
namespace {

using namespace gpu;

class HostTurns : public testing::Test {
 protected:
  static constexpr uint32_t kCount = 64;

  Buffer make() { return arena_.allocate(kCount * 4); }
  Dispatch add(const Buffer& from, const Buffer& to) {
    return {"add",
            &kernels().get("add", {}, 2, 4),
            {{from, Access::read}, {to, Access::read_write}},
            push_bytes(kCount),
            {1, 1, 1}};
  }
  static float& at(const Buffer& buffer, int i = 7) {
    return reinterpret_cast<float*>(buffer.host)[i];
  }
  static HostTurn::Mark begin() { return HostTurn::Mark::begin; }
  static HostTurn::Mark end() { return HostTurn::Mark::end; }
  static auto work(std::function<void()> body) {
    return std::make_shared<const std::function<void()>>(std::move(body));
  }

  Arena arena_{device(), MemoryUse::readback};
  const Buffer x_ = make(), y_ = make(), z_ = make();
};

// y += x, then the host doubles y, then z += y.
TEST_F(HostTurns, SeeWhatIsBeforeAndAreSeenByWhatIsAfter) {
  const auto doubles = work([&] { at(y_) *= 2; });
  for (const int parts : {1, 2, 9}) {
    at(x_) = 3, at(y_) = 1, at(z_) = 0;
    Recording recording(device(),
                        {add(x_, y_), HostTurn{begin(), doubles}, HostTurn{end(), doubles},
                         add(y_, z_), add(y_, z_)},
                        /*timed=*/false, parts);
    EXPECT_TRUE(recording.has_host_turns());
    for (int replay = 1; replay <= 3; ++replay) {
      recording.submit();
      recording.wait();
    }
    EXPECT_EQ(at(y_), 50);  // ((1 + 3) * 2 + 3) * 2 + 3) * 2
    EXPECT_EQ(at(z_), 2 * (8 + 22 + 50));
    EXPECT_TRUE(recording.done());
  }
}

// The host's turn ends when the device has done what comes after its begin: they overlap, or this
// would never end.
TEST_F(HostTurns, OverlapWithWhatComesAfterTheirBegin) {
  std::promise<void> device_done;
  const auto first = work([&] { device_done.get_future().wait(); });
  const auto second = work([&] { at(z_) = at(y_) + 100; });
  at(x_) = 3, at(y_) = 1;
  CommandList commands{add(x_, y_),
                       HostTurn{begin(), first},
                       add(x_, y_),
                       HostTurn{begin(), second},
                       HostTurn{end(), first},
                       HostTurn{end(), second},
                       add(z_, y_)};
  Recording recording(device(), commands);
  recording.submit();
  EXPECT_FALSE(recording.done_within(0.01));
  Recording other(device(), {Fill{x_, 0}});  // of another user of the device; not held up
  other.submit();
  other.wait();
  device_done.set_value();
  recording.wait();
  EXPECT_EQ(at(y_), 7 + 107);
}

TEST_F(HostTurns, OfSeveralRecordingsComeInTheirOrder) {
  std::vector<int> order;
  std::vector<std::unique_ptr<Recording>> recordings;
  at(x_) = 1, at(y_) = 0;
  for (int i = 0; i < 4; ++i) {
    const auto turn = work([&order, i, this] {
      order.push_back(i);
      at(y_) *= 10;
    });
    recordings.push_back(std::make_unique<Recording>(
        device(),
        CommandList{add(x_, y_), HostTurn{begin(), turn}, HostTurn{end(), turn}, add(x_, y_)}));
  }
  for (auto& recording : recordings) recording->submit();
  for (auto& recording : recordings) recording->wait();
  EXPECT_EQ(order, (std::vector{0, 1, 2, 3}));
  EXPECT_EQ(at(y_), 12221);  // each: (y + 1) * 10 + 1
}

// As what brings the next step's input to where the step before still reads its own.
TEST_F(HostTurns, AreNotOvertakenByWhatGoesInTurn) {
  std::promise<void> submitted;
  const auto waits = work([&] { submitted.get_future().wait(); });
  at(x_) = 3, at(y_) = 1, at(z_) = 50;
  Recording first(device(), {HostTurn{begin(), waits}, HostTurn{end(), waits}, add(x_, y_)});
  Recording next(device(), {gpu::Copy{z_, x_}});
  first.submit();
  next.submit(nullptr, /*in_turn=*/true);
  EXPECT_FALSE(next.done_within(0.01));
  submitted.set_value();
  next.wait();
  first.wait();
  EXPECT_EQ(at(y_), 4);
  EXPECT_EQ(at(x_), 50);
}

TEST_F(HostTurns, ThatFailLeaveOutWhatWaitsForThem) {
  bool fails = true;
  const auto turn = work([&] {
    if (fails) fail(Code::io, "no network");
  });
  at(x_) = 1, at(y_) = 0, at(z_) = 0;
  Recording recording(device(), {add(x_, y_), HostTurn{begin(), turn}, add(x_, y_),
                                 HostTurn{end(), turn}, add(x_, z_)});
  recording.submit();
  try {
    recording.wait();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::io);
    EXPECT_STREQ(error.what(), "no network");
  }
  EXPECT_FALSE(recording.in_flight());
  EXPECT_EQ(at(y_), 2) << "what was submitted has ended";
  EXPECT_EQ(at(z_), 0);
  fails = false;
  recording.submit();
  recording.wait();
  EXPECT_EQ(at(y_), 4);
  EXPECT_EQ(at(z_), 1);
}

TEST_F(HostTurns, WithoutAnEndAreDoneBeforeTheRecordingIs) {
  std::atomic<int> calls = 0;
  const auto turn = work([&] { ++calls; });
  {
    Recording recording(device(), {add(x_, y_), HostTurn{begin(), turn}});
    recording.submit();
    recording.wait();
    EXPECT_EQ(calls, 1);
    recording.submit();  // and is waited for by the destructor
  }
  EXPECT_EQ(calls, 2);
}

TEST_F(HostTurns, TheDevicesTimeIsWithoutThem) {
  if (device()->info().timestamp_period_ns == 0) return;
  const auto turn = work([] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); });
  Recording recording(device(),
                      {add(x_, y_), HostTurn{begin(), turn}, HostTurn{end(), turn}, add(x_, y_)});
  recording.submit();
  recording.wait();
  EXPECT_GE(recording.end_seconds() - recording.begin_seconds() - recording.busy_seconds(), 0.05);
  EXPECT_GT(recording.busy_seconds(), 0);
}

TEST_F(HostTurns, RunInWhatIsComparedToo) {
  const auto doubles = work([&] { at(y_) *= 2; });
  at(x_) = 3, at(y_) = 1, at(z_) = 0;
  run_once(device(),
           {add(x_, y_), HostTurn{begin(), doubles}, HostTurn{end(), doubles}, add(y_, z_)});
  EXPECT_EQ(at(z_), 8);
}

}  // namespace
}  // namespace etr::test
