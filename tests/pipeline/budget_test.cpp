// The byte budget of a pipeline, and pipelines after fork().
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "core/error.h"
#include "io/fast_shard.h"
#include "support/child.h"
#include "support/data.h"
#include "support/eventually.h"
#include "support/images.h"

namespace etr::test {
namespace {

using pipeline::Item;
using pipeline::Pipeline;

Json budget_spec(const std::string& pattern, int64_t budget, int shuffle = 100) {
  return {{"epochs", 1},
          {"threads", 2},
          {"seed", 4},
          {"budget_bytes", budget},
          {"stages",
           {{{"stage", "webdataset"}, {"pattern", pattern}},
            {{"stage", "label"}},
            {{"stage", "decode"}, {"channels", "rgb"}},
            {{"stage", "echo"}, {"factor", 2}, {"buffer", 100}},
            {{"stage", "random_crop"}, {"pad", 4}},
            {{"stage", "shuffle"}, {"buffer", shuffle}},
            {{"stage", "keep"}, {"fields", "image,label"}},
            {{"stage", "batch"}, {"size", 16}},
            {{"stage", "normalize"}}}}};
}

std::string budget_error(const Json& spec) {
  try {
    Pipeline p(spec);
    digest_of_epoch(p);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    return error.what();
  }
  return "";
}

TEST(Budget, ChangesNothingThatComesOut) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 2, 300, 32);
  Pipeline with(budget_spec(pattern, 6'000'000)), without(budget_spec(pattern, 0));
  EXPECT_EQ(digest_of_epoch(with), digest_of_epoch(without));
}

TEST(Budget, TooLittleIsAnErrorThatSaysWhatIsNeeded) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 2, 300, 32);  // 3 kB per image
  const std::string message = budget_error(budget_spec(pattern, 1'000'000, 1000));
  EXPECT_THROW(Pipeline(budget_spec(pattern, 1'000'000, 1000)), Error) << "in the constructor";
  for (const char* part : {"pipeline: budget_bytes is 1.0 MB, which is too little",
                           "'shuffle' holds 3.1 MB", "'echo' holds", "may take 80 % of the budget"})
    EXPECT_NE(message.find(part), std::string::npos) << part << " is not in: " << message;
  // The suggested budget is enough, and slightly less is not.
  const std::string before = "set budget_bytes to at least ";
  const int64_t enough = std::stoll(message.substr(message.find(before) + before.size()));
  EXPECT_EQ(budget_error(budget_spec(pattern, enough, 1000)), "");
  EXPECT_NE(budget_error(budget_spec(pattern, enough - 1100, 1000)), "");
}

// A large JPEG in front of a stage that shrinks is decoded at a fraction of its size.
TEST(Budget, TheTrialDecodesNoMoreThanTheRun) {
  TempDir dir;
  const std::string jpeg = smooth_jpeg({}, 1600, 1200);
  for (const char* name : {"a.jpg", "b.jpg"}) std::ofstream(dir.path(name)) << jpeg;
  const Json spec{{"epochs", 1},
                  {"threads", 2},
                  {"budget_bytes", 8'000'000},
                  {"stages",
                   {{{"stage", "files"}, {"pattern", dir.path("*.jpg")}},
                    {{"stage", "decode"}},
                    {{"stage", "resize"}, {"height", 64}, {"width", 64}},
                    {{"stage", "batch"}, {"size", 2}}}}};
  EXPECT_EQ(budget_error(spec), "");
  Json full = spec;
  full["stages"][1]["min_side"] = 0;
  EXPECT_NE(budget_error(full), "");
}

// The parts in the message add up, also if they are far smaller than a megabyte.
TEST(Budget, ThePartsThatNeedItAddUp) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 1, 30, 8, 10, ".tar");  // no window of zstd
  const std::string message = budget_error(budget_spec(pattern, 20'000, 10));
  const auto bytes_behind = [&](const std::string& text) {
    const size_t at = message.find(text) + text.size();
    size_t digits = 0;
    const double number = std::stod(message.substr(at), &digits);
    return number * (message.compare(at + digits, 3, " kB") == 0 ? 1e3 : 1);
  };
  double sum = 0;
  for (const char* part :
       {"'echo' holds ", "'shuffle' holds ", "'batch' holds ", "the queues need at least "}) {
    EXPECT_GT(bytes_behind(part), 500) << message;
    sum += bytes_behind(part);
  }
  EXPECT_NEAR(bytes_behind("together "), sum, 300) << message;
  EXPECT_NEAR(bytes_behind("to at least ") * 0.8, sum, 1200) << message;
}

// Tries budgets from too small to plenty; none may lead to a deadlock.
TEST(Budget, AnyThatIsEnoughWorks) {
  TempDir dir;
  const std::string pattern = make_shards(dir, 1, 100, 32, 10, ".tar");
  int ran = 0;
  for (double budget = 200'000; budget < 1e8; budget *= 1.5)
    ran += budget_error(budget_spec(pattern, static_cast<int64_t>(budget))).empty();
  EXPECT_GE(ran, 10);
}

// The trial does not see it, because it is far behind.
TEST(Budget, HoldsForAnImageThatIsResized) {
  TempDir dir;
  for (int i = 10; i < 30; ++i)
    std::ofstream(dir.path(std::to_string(i) + ".png")) << make_png(16, 16, 1, i);
  std::ofstream(dir.path("narrow.png")) << make_png(2000, 1, 1, 0);
  Pipeline p({{"epochs", 1},
              {"threads", 2},
              {"on_error", "skip"},
              {"budget_bytes", 20'000'000},
              {"stages",
               {{{"stage", "files"}, {"pattern", dir.path("*.png")}, {"shuffle", false}},
                {{"stage", "decode"}},
                {{"stage", "resize"}, {"shorter_side", 128}}}}});
  Item item;
  int samples = 0;
  for (; p.next(item) == Pipeline::Next::item; ++samples) EXPECT_LT(item.size_bytes(), 100'000);
  EXPECT_EQ(samples, 20);
  const Json list = p.bad_record_list();
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0]["reason"],
            "an image of 1 x 2000 pixels would become one of 128 x 256000, which takes 32768000 "
            "bytes of memory, more than the pipeline's budget_bytes (20000000)");
}

// Runs in a process of its own, which the tests below start.
TEST(Budget, DISABLED_Child) {
  const char* text = std::getenv("ECHOTRAIN_BUDGET_SPEC");
  ASSERT_TRUE(text);
  const Json spec = Json::parse(text);
  // The system refuses memory beyond 1.1 times the budget, plus 40 MiB for the stacks of threads.
  const auto most =
      static_cast<rlim_t>(status_kb("VmData") * 1024 +
                          11 * spec["budget_bytes"].get<int64_t>() / 10 + 10 * (int64_t{4} << 20));
  const rlimit limit{most, most};
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &limit), 0);
  const int64_t before = status_kb("VmRSS");
  std::ofstream("/proc/self/clear_refs") << "5";  // resets the peak
  Pipeline p(spec);
  Item item;
  ASSERT_EQ(p.next(item), Pipeline::Next::item);
  // Every queue fills before it reads on, and again where it is slow.
  ASSERT_TRUE(eventually([&] { return p.stats()["stages"][0]["blocked_s"] > 0.02; }));
  for (int i = 0; p.next(item) == Pipeline::Next::item; ++i)
    if (i % 4 == 0) usleep(2000);
  const int64_t peak = (status_kb("VmHWM") - before) * 1024;
  std::ofstream(std::getenv("ECHOTRAIN_BUDGET_OUT")) << peak;
}

#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)  // they need far more memory than the pipeline
// Runs the pipeline in a process of its own, and checks that its memory stays within the budget.
void check_memory(const Json& spec) {
  TempDir dir;
  const auto budget = spec["budget_bytes"].get<double>();
  setenv("ECHOTRAIN_BUDGET_SPEC", spec.dump().c_str(), 1);
  setenv("ECHOTRAIN_BUDGET_OUT", dir.path("peak").c_str(), 1);
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  ASSERT_EQ(
      std::system((self + " --gtest_also_run_disabled_tests --gtest_filter=Budget.DISABLED_Child "
                          ">/dev/null 2>&1")
                      .c_str()),
      0);
  double peak = 0;
  std::ifstream(dir.path("peak")) >> peak;
  EXPECT_GT(peak, 0.2 * budget) << "too little to test the budget";
  EXPECT_LT(peak, 1.1 * budget);
  testing::Test::RecordProperty("peak_mb", static_cast<int>(peak * 1e-6));
}

// Images have 196 kB, and batches 3.1 MB, or 12.6 MB as f32. The archives are compressed.
TEST(Budget, HoldsForTheProcessesMemory) {
  TempDir dir;
  check_memory(budget_spec(make_shards(dir, 2, 400, 256), 200'000'000, 200));
}

// Batches of two samples, of which the queues would take more than the budget.
Json pairs_of(const Json& source, int64_t budget) {
  return {{"epochs", 1},
          {"threads", 2},
          {"budget_bytes", budget},
          {"prefetch", 1000},
          {"stages", {source, {{"stage", "batch"}, {"size", 2}}}}};
}

// 60 MB of text, most of it in a file that must not be there twice, and windows of half a megabyte.
TEST(Budget, HoldsWithATextInMemory) {
  TempDir dir;
  std::ofstream(dir.path("a.txt")) << std::string(5'000'000, 'x');
  std::ofstream(dir.path("b.txt")) << std::string(55'000'000, 'x');
  check_memory(pairs_of({{"stage", "text_windows"},
                         {"pattern", dir.path("*.txt")},
                         {"length", 65536},
                         {"stride", 100'000}},
                        90'000'000));
}

// Only the text of a compressed file may be there twice while it is read.
TEST(Budget, HoldsWithATextThatIsPartlyCompressed) {
  TempDir dir;
  std::ofstream(dir.path("a.txt")) << std::string(55'000'000, 'x');
  std::string text(5'000'000, 'x');
  for (size_t i = 0; i < text.size(); i += 100) text[i] = static_cast<char>(i * i / 700 % 251);
  const auto packed = io::zstd_frame(std::as_bytes(std::span(text)), 1);
  platform::write_file_synced(dir.path("b.txt.zst"), packed);
  check_memory(pairs_of({{"stage", "text_windows"},
                         {"pattern", dir.path("{a.txt,b.txt.zst}")},
                         {"length", 65536},
                         {"stride", 100'000}},
                        90'000'000));
}

// Lines of 200 kB, of which 64 MB could be read ahead.
TEST(Budget, HoldsWithFilesThatAreReadAhead) {
  TempDir dir;
  const std::string line(200'000, 'x');
  for (const char* name : {"a.txt", "b.txt", "c.txt", "d.txt"}) {
    std::ofstream out(dir.path(name));
    for (int i = 0; i < 120; ++i) out << line << '\n';
  }
  const Json lines{{"stage", "text_lines"}, {"pattern", dir.path("*.txt")}};
  check_memory(
      pairs_of({{"stage", "interleave"}, {"ahead", 1000}, {"sources", {lines}}}, 50'000'000));
}
#endif

// cancel() does not wait for a function of the program that is called to try samples for the
// budget.
TEST(Budget, CancelDoesNotWaitForTheTrial) {
  std::promise<void> entered, leave;
  pipeline::MapFunctions functions;
  functions["slow"] = [&, first = std::make_shared<std::atomic<bool>>(true)](Item&, uint64_t) {
    if (!first->exchange(false)) return;
    entered.set_value();
    leave.get_future().wait();
  };
  Pipeline p(
      {{"budget_bytes", 100'000'000}, {"stages", {{{"stage", "source"}, {"function", "slow"}}}}},
      functions);
  std::thread consumer([&] {
    Item item;
    EXPECT_THROW(p.next(item), Error);
  });
  entered.get_future().wait();
  p.cancel();  // must not wait for the function
  leave.set_value();
  consumer.join();
}

// A lack of memory in a trial is no bad record, which would be left to the run: neither under the
// given budget nor, if that is too little, in the trials that look for one that is enough.
TEST(Budget, ALackOfMemoryEndsTheTrial) {
  constexpr int kTried = 8, kSamples = 20;
  for (const int good : {0, kTried}) {
    int calls = 0;
    pipeline::MapFunctions functions;
    functions["lacks"] = [&](Item& item, uint64_t) {
      if (calls++ == good) fail(Code::out_of_memory, "no memory for this sample");
      if (calls < kSamples) item.set("x", Tensor(DType::f32, {1000}));
    };
    try {
      Pipeline p({{"budget_bytes", good ? 1000 : 100'000'000},
                  {"stages", {{{"stage", "source"}, {"function", "lacks"}}}}},
                 functions);
      Item item;
      p.next(item);
      ADD_FAILURE() << "there was memory for more than " << good << " samples";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::out_of_memory) << error.what();
    }
  }
}

TEST(Budget, StatisticsAreReadWhileItIsDivided) {
  TempDir dir;
  Pipeline p(budget_spec(make_shards(dir, 1, 30, 64), 20'000'000), {}, false,
             Pipeline::Budget::at_start);
  const auto limit = [&] {
    int64_t bytes = 0;
    const Json stats = p.stats();
    for (const Json& stage : stats["stages"]) bytes += stage.value("queue_limit_bytes", 0);
    return bytes;
  };
  const int64_t before = limit();
  std::atomic<bool> over{false};
  std::thread reader([&] {
    while (!over) EXPECT_LE(limit(), before);
  });
  Item item;
  EXPECT_EQ(p.next(item), Pipeline::Next::item);
  over = true;
  reader.join();
  EXPECT_LT(limit(), before);
}

TEST(Budget, RefusesAPipeInsteadOfTakingItsFirstSamples) {
  TempDir dir;
  ASSERT_EQ(mkfifo(dir.path("pipe").c_str(), 0600), 0);
  try {
    Pipeline p({{"budget_bytes", 100'000'000},
                {"stages", {{{"stage", "text_lines"}, {"pattern", dir.path("pipe")}}}}});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::state) << error.what();
    EXPECT_NE(std::string(error.what()).find("budget_bytes"), std::string::npos);
  }
}

// With Budget::at_start, the constructor accepts a valid pipeline even if its budget is too small.
TEST(Budget, IsNoMatterOfAPipelineThatIsBeingMade) {
  TempDir dir;
  Json spec = budget_spec(make_shards(dir, 1, 30, 64), 20'000);
  EXPECT_NO_THROW(Pipeline(spec, {}, false, Pipeline::Budget::at_start));
  Pipeline p(spec, {}, false, Pipeline::Budget::at_start);
  Item item;
  EXPECT_THROW(p.next(item), Error) << "the budget is checked here";
}

// Dividing the budget reads samples, which may take for ever.
TEST(Budget, IsNotWaitedForLongerThanTheProgramSays) {
  TempDir dir;
  std::promise<void> comes;
  const std::shared_future<void> data = comes.get_future().share();
  Json spec = budget_spec(make_shards(dir, 1, 30, 64), 20'000'000);
  Json& stages = spec["stages"];
  stages.insert(stages.begin() + 1, Json{{"stage", "map"}, {"function", "slow"}});
  const auto slow = [data](Item&, uint64_t) { data.wait_for(std::chrono::seconds(20)); };
  Pipeline p(spec, {{"slow", slow}});
  EXPECT_FALSE(p.wait(0));
  EXPECT_FALSE(p.wait(0.01));
  comes.set_value();
  Item item;
  EXPECT_EQ(p.next(item), Pipeline::Next::item);
}

bool says_fork(const std::function<void()>& use) {
  try {
    use();
  } catch (const Error& error) {
    return error.code() == Code::state &&
           std::string(error.what()).find("fork") != std::string::npos;
  }
  return false;
}

TEST(Fork, AnEarlierOneDoesNoHarmAndALaterOneIsNamed) {
  TempDir dir;
  const Json spec = budget_spec(make_shards(dir, 1, 50, 8), 0, 10);
  EXPECT_EQ(in_child([] { return 0; }), 0);
  Pipeline p(spec);
  Item item;
  ASSERT_EQ(p.next(item), Pipeline::Next::item);
  EXPECT_EQ(in_child([&] {
              if (!says_fork([&] { p.next(item); })) return 1;
              if (!says_fork([&] { p.wait(1); })) return 2;
              if (!says_fork([&] {
                    Pipeline another(spec);
                    another.next(item);
                  }))
                return 3;
              p.~Pipeline();  // must not wait for threads of the parent
              return 0;
            }),
            0);
  EXPECT_EQ(p.next(item), Pipeline::Next::item) << "the parent continues";
}

TEST(Fork, AChildDestroysAPipelineInWhichTheParentWaits) {
  TempDir dir;
  Json spec = budget_spec(make_shards(dir, 1, 50, 8), 0, 10);
  Json& stages = spec["stages"];
  stages.insert(stages.begin() + 1, Json{{"stage", "delay"}, {"milliseconds", 30'000}});
  Pipeline p(spec);
  EXPECT_FALSE(p.wait(0));  // begins it
  std::jthread consumer([&] { p.wait(30); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // mostly long enough to wait there
  EXPECT_EQ(in_child([&] {
              alarm(20);
              p.~Pipeline();
              return 0;
            }),
            0);
  p.cancel();
}

}  // namespace
}  // namespace etr::test
