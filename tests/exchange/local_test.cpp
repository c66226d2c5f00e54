// Groups of threads, and what a Group does with any engine.
#include "exchange/local.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <optional>
#include <thread>

#include "exchange/conformance.h"
#include "exchange/local_world.h"
#include "support/error_text.h"

namespace etr::test {
namespace {

using exchange::Group;
using exchange::local_groups;
using exchange::RankLost;

using Clock = std::chrono::steady_clock;

double seconds_after(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Runs `body` for all ranks, each in its own thread.
void on_all_ranks(std::vector<Group>& groups, const std::function<void(Group&)>& body) {
  std::vector<std::thread> threads;
  for (Group& group : groups) threads.emplace_back([&] { body(group); });
  for (std::thread& thread : threads) thread.join();
}

TEST(Local, DoesEveryOperation) {
  for (const int size : {1, 2, 3, 5}) {
    auto groups = local_groups(size);
    on_all_ranks(groups, [](Group& group) { EXPECT_EQ(every_operation(group), ""); });
  }
}

TEST(Local, NamesTheRanksThatDoNotCome) {
  auto groups = local_groups(4, 3);
  const auto begin = Clock::now();
  on_all_ranks(groups, [](Group& group) {
    if (group.rank() == 1 || group.rank() == 3) return;
    try {
      group.barrier();
      ADD_FAILURE() << "nothing was missing";
    } catch (const RankLost& lost) {
      EXPECT_EQ(lost.code(), Code::rank_lost);
      EXPECT_EQ(lost.missing(), (std::vector<int>{1, 3}));
      EXPECT_STREQ(lost.what(),
                   "ranks 1 and 3 did not come to barrier, operation 1 of this group, within 3 s");
    }
  });
  EXPECT_LT(seconds_after(begin), 30) << "the time-out was not that of this group";
  EXPECT_EQ(error_text([&] { groups[0].barrier(); }).find("this group ended before: ranks 1 and 3"),
            0u);
  EXPECT_NE(error_text([&] { groups[3].barrier(); }), "");  // a late rank learns of it, too
}

TEST(Local, NamesARankThatHasLeft) {
  auto groups = local_groups(3);
  groups.pop_back();
  on_all_ranks(groups, [](Group& group) {
    EXPECT_EQ(error_text([&] { group.barrier(); }), "rank 2 left the group before barrier");
  });
}

TEST(Local, AbortEndsWaits) {
  auto groups = local_groups(3);
  on_all_ranks(groups, [](Group& group) {
    if (group.rank() == 2) return group.abort("the disk is full");
    EXPECT_EQ(error_text([&] { group.barrier(); }), "rank 2 ended the group: the disk is full");
  });
}

TEST(Local, TellsDifferentCallsApart) {
  auto groups = local_groups(2);
  on_all_ranks(groups, [](Group& group) {
    std::vector<float> values(group.rank() == 0 ? 3 : 4);
    const std::string error = error_text([&] { group.all_reduce(std::span(values)); });
    EXPECT_EQ(error.find("rank 0 calls all_reduce of 3 numbers"), 0u) << error;
  });
}

TEST(Local, AMessageThatNobodyTakesIsAnError) {
  auto groups = local_groups(2, 0.1);
  EXPECT_EQ(error_text([&] { groups[0].send({}, 1, 9); }),
            "rank 1 did not receive a message with the tag 9 from rank 0 within 0.1 s");
  groups = local_groups(2, 0.1);
  EXPECT_EQ(error_text([&] { groups[0].receive({}, 1, 9); }),
            "rank 1 did not send a message with the tag 9 to rank 0 within 0.1 s");
}

TEST(Group, RefusesWrongArgumentsAndLivesOn) {
  auto groups = local_groups(2);
  std::vector<std::byte> data(10);
  const std::vector<uint64_t> sizes{3, 3};
  EXPECT_NE(error_text([&] { groups[0].broadcast(data, 2); }), "");
  EXPECT_NE(error_text([&] { groups[0].send(data, 0, 1); }), "");
  EXPECT_NE(error_text([&] { groups[0].all_gather(data, sizes, data); }), "");
  EXPECT_NE(error_text([&] { groups[0].all_gather(data, {}, data); }), "");
  EXPECT_NE(error_text([&] { groups[0].set_timeout(0); }), "");
  on_all_ranks(groups, [](Group& group) { group.barrier(); });
}

// As of a plug-in that was compiled before the table had allocate() and release(). What lies beyond
// its struct_size must not be used.
TEST(Group, TakesATableWithoutMemory) {
  static int destroyed;
  destroyed = 0;
  etr_engine table{};
  table.size = 1;
  table.all_reduce = [](void*, void*, uint64_t, int32_t, int32_t, double, etr_engine_error*) {
    return int32_t{0};
  };
  table.reduce_scatter = [](void*, const void*, const uint64_t*, void*, int32_t, int32_t, double,
                            etr_engine_error*) { return int32_t{0}; };
  table.all_gather = [](void*, const void*, const uint64_t*, void*, double, etr_engine_error*) {
    return int32_t{0};
  };
  table.broadcast = [](void*, void*, uint64_t, int32_t, double, etr_engine_error*) {
    return int32_t{0};
  };
  table.barrier = [](void*, double, etr_engine_error*) { return int32_t{0}; };
  table.send = [](void*, const void*, uint64_t, int32_t, uint32_t, double, etr_engine_error*) {
    return int32_t{0};
  };
  table.receive = [](void*, void*, uint64_t, int32_t, uint32_t, double, etr_engine_error*) {
    return int32_t{0};
  };
  table.split = [](void*, int32_t, int32_t, double, etr_engine*, etr_engine_error*) {
    return int32_t{0};
  };
  table.abort = [](void*, const char*) {};
  table.destroy = [](void*) { ++destroyed; };
  table.release = [](void*, void*) { FAIL() << "called a function beyond the table's end"; };
  table.struct_size = offsetof(etr_engine, allocate);
  std::optional<Group> group(table);
  std::optional<exchange::Buffer> buffer(group->allocate(5000));
  EXPECT_EQ(buffer->bytes().size(), 5000u);
  EXPECT_EQ(std::ranges::count(buffer->bytes(), std::byte{0}), 5000);
  group.reset();
  EXPECT_EQ(destroyed, 0);  // the buffer keeps the engine alive
  buffer.reset();
  EXPECT_EQ(destroyed, 1);

  table.struct_size = sizeof table;
  EXPECT_EQ(error_text([&] { Group{table}; }),
            "the engine's table has one of allocate and release: both or neither");
}

TEST(Group, RefusesATableThatIsNotWhole) {
  etr_engine table{};
  EXPECT_NE(error_text([&] { Group{table}; }), "");
  table.struct_size = sizeof table;
  table.size = 1;
  EXPECT_NE(error_text([&] { Group{table}; }).find("lacks abort"), std::string::npos);
  table.abort = [](void*, const char*) {};
  EXPECT_NE(error_text([&] { Group{table}; }).find("lacks destroy"), std::string::npos);
  int destroyed = 0;
  table.context = &destroyed;
  table.destroy = [](void* context) { ++*static_cast<int*>(context); };
  table.rank = 1;
  EXPECT_NE(error_text([&] { Group{table}; }).find("rank 1 of 1"), std::string::npos);
  EXPECT_EQ(destroyed, 1) << "the engine is destroyed even if the group cannot be made";
}

etr_engine bare_table() {
  etr_engine table{};
  table.struct_size = sizeof table;
  table.size = 1;
  table.abort = [](void*, const char*) {};
  table.destroy = [](void*) {};
  return table;
}

TEST(Group, SaysWhatNeedsAFunctionThatTheEngineLacks) {
  std::byte data{};
  for (const auto& [call, words] :
       std::vector<std::pair<std::function<void(Group&)>, std::vector<std::string>>>{
           {[](Group& g) { g.duplicate(); }, {"no function split", "exchange gradients"}},
           {[](Group& g) { g.barrier(); }, {"no function barrier"}},
           {[&](Group& g) {
              g.broadcast({&data, 1}, 0);
            },
            {"no function broadcast", "weights"}}}) {
    Group group(bare_table());
    const std::string error = error_text([&] { call(group); });
    for (const std::string& word : words) EXPECT_NE(error.find(word), std::string::npos) << error;
  }
}

TEST(Group, TellsOfAFailureWithoutAReason) {
  etr_engine table = bare_table();
  table.barrier = [](void*, double, etr_engine_error*) { return -3; };
  Group group(table);
  const std::string error = error_text([&] { group.barrier(); });
  EXPECT_NE(error.find("barrier failed with the status -3"), std::string::npos) << error;
}

TEST(Group, AMessageThatIsCutEndsWithAWholeCharacter) {
  static std::string message;
  etr_engine table = bare_table();
  table.barrier = [](void*, double, etr_engine_error* error) {
    exchange::copy_message(message, error);
    return static_cast<int32_t>(Code::io);
  };
  message = "2";  // then each character begins at an odd or at an even byte
  for (int i = 0; i < 2; ++i, message.insert(0, "1")) {
    for (int j = 0; j < 600; ++j) message += "\u00e9";
    Group group(table);
    for (const char* what : {"what the engine says", "what the group says of its end"}) {
      const std::string error = error_text([&] { group.barrier(); });
      EXPECT_GT(error.size(), 1000u);
      EXPECT_TRUE(error.ends_with("\u00e9")) << what << ": " << error;
    }
  }
}

// A program's own transport may forget to return a group, or return a wrong one.
TEST(Group, RefusesASplitWithoutAUsableGroup) {
  etr_engine table = bare_table();
  table.split = [](void*, int32_t, int32_t, double, etr_engine*, etr_engine_error*) { return 0; };
  Group none(table);
  EXPECT_FALSE(none.split(-1, 0));
  for (const auto& call :
       std::vector<std::function<void()>>{[&] { none.split(0, 0); }, [&] { none.duplicate(); }}) {
    const std::string error = error_text(call);
    EXPECT_NE(error.find("split gave no group for colour 0"), std::string::npos) << error;
  }
  table.split = [](void*, int32_t, int32_t, double, etr_engine* part, etr_engine_error*) {
    *part = bare_table();
    part->size = 2;
    return 0;
  };
  const std::string error = error_text([&] { Group(table).duplicate(); });
  EXPECT_NE(error.find("split gave rank 0 of 2"), std::string::npos) << error;
}

// A program's own transport may name a rank that does not exist.
TEST(Group, ALostRankOutsideOfTheGroupKeepsItsNumber) {
  etr_engine table = bare_table();
  table.size = 2;
  table.barrier = [](void*, double, etr_engine_error* error) {
    error->missing_count = 3;
    error->missing[0] = 1;
    error->missing[1] = 7;
    error->missing[2] = -1;
    return static_cast<int32_t>(Code::rank_lost);
  };
  Group group(table);
  group.number_ranks({4, 5}, "a line");
  try {
    group.barrier();
    ADD_FAILURE();
  } catch (const RankLost& lost) {
    EXPECT_EQ(lost.missing(), (std::vector{5, 7, -1}));
  }
}

TEST(Local, SaysWhichMessageARankLeftWithout) {
  std::vector<Group> groups = exchange::local_groups(2, 5);
  { const Group gone = std::move(groups[1]); }
  std::byte data{};
  const std::string error = error_text([&] { groups[0].receive({&data, 1}, 1, 3); });
  EXPECT_NE(error.find("rank 1 left the group before it sent a message with the tag 3 to rank 0"),
            std::string::npos)
      << error;
}

// Memory that a rank brought to a meeting is in use until all ranks are done, even if the group
// ends meanwhile.
TEST(LocalWorld, WhoHasMetLeavesWithTheOthersAlsoWhereTheGroupEnds) {
  exchange::LocalWorld world(2);
  std::promise<void> at_work, go_on;
  std::atomic<bool> is_done{false};
  auto slow = std::async(std::launch::async, [&] {
    world.meet(1, {"barrier", ""}, 60, [&](const std::vector<exchange::Visit>&) {
      at_work.set_value();
      go_on.get_future().wait();
      is_done = true;
    });
  });
  auto fast = std::async(std::launch::async, [&] {
    world.meet(0, {"barrier", ""}, 60, [](const std::vector<exchange::Visit>&) {});
    return is_done.load();
  });
  at_work.get_future().wait();
  world.abort(0, "the test says so");
  fast.wait_for(std::chrono::milliseconds(20));  // enough time to leave, which it must not
  go_on.set_value();
  EXPECT_TRUE(fast.get()) << "left a rank that was at work";
  slow.get();
  EXPECT_THROW(world.meet(0, {"barrier", ""}, 60, {}), RankLost) << "the next meeting";
}

}  // namespace
}  // namespace etr::test
