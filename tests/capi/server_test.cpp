// Shards of a parameter server, and their workers, within one program.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <thread>

#include "capi/support.h"
#include "echotrain/echotrain.hpp"
#include "support/eventually.h"

namespace {

namespace et = echotrain;

class ParameterServer : public testing::Test {
 protected:
  et::Job job(const std::vector<std::string>& overrides = {}) const {
    return et::Job::parse(R"({"seed": 3, "pipeline": {"stages": [{"stage": "folder", "root": ")" +
                              images_.path() + R"("}, {"stage": "label"}, {"stage": "decode"},
        {"stage": "batch", "size": 8}, {"stage": "normalize"}]},
        "model": {"layers": [{"layer": "flatten"}, {"layer": "dense", "units": 2}]},
        "optimizer": {"optimizer": "sgd"}, "schedule": {"learning_rate": 0.02},
        "train": {"steps": 6}, "output": {"dir": ""}, "parallel": {"algorithm": "downpour",
        "servers": 2, "size": 2, "consistency": "sequential", "timeout": 30,
        "rendezvous": "file:)" +
                              meeting_.path() + "\"}}",
                          overrides);
  }

  static void nothing() {}

  // Steps, and epochs that have ended.
  using Done = std::pair<uint64_t, uint64_t>;

  // Trains to the end; what was done. `joined` is called before the first step, `between` after
  // each event.
  static Done train(const et::Job& job, const std::function<void()>& between,
                    const std::function<void()>& joined = nothing) {
    const char* device = std::getenv("ECHOTRAIN_TEST_DEVICE");
    const et::Runtime runtime(device ? device : "");
    et::Run run(runtime, job, et::Start::new_run);
    joined();
    Done done;
    for (; const auto event = run.next_event(); between()) done = {event->step, event->epoch};
    return done;
  }

  Images images_;
  etr::test::TempDir meeting_;
};

TEST_F(ParameterServer, ServesTrainersOfTheJob) {
  et::Server first(job(), 0), second(job(), 1);
  EXPECT_FALSE(first.wait(0)) << "nobody has come";
  std::atomic<int> joined{0};
  const auto work = [&] {
    return train(job(), nothing, [&] {  // the servers end when all who have come have finished
      ++joined;
      EXPECT_TRUE(etr::test::eventually([&] { return joined == 2; }));
    });
  };
  auto one = std::async(std::launch::async, work), other = std::async(std::launch::async, work);
  const Done half(6, 1);  // of the 64 samples each has a half, in batches of 8
  EXPECT_EQ(one.get(), half);
  EXPECT_EQ(other.get(), half);
  EXPECT_TRUE(second.wait(60));
  etr_server_status status{};
  EXPECT_TRUE(first.wait(60, &status));
  EXPECT_EQ(status.joined, 2);
  EXPECT_EQ(status.finished, 2);
  EXPECT_EQ(status.workers, 0);
  EXPECT_EQ(status.updates, 12u) << "every push was applied";
}

TEST_F(ParameterServer, WorkersLearnThatAShardWasStopped) {
  et::Server first(job(), 0);
  auto second = std::make_unique<et::Server>(job(), 1);
  try {
    train(job({"train.steps=1000000000", "train.progress_every=0.01"}), [&] { second.reset(); });
    FAIL() << "a worker went on without a shard";
  } catch (const et::Error& error) {
    EXPECT_EQ(error.status(), ETR_RANK_LOST) << error.what();
    EXPECT_NE(std::string(error.what()).find("shard 1"), std::string::npos) << error.what();
  }
}

TEST_F(ParameterServer, DestroyingAShardEndsTheWaitOfAnotherThread) {
  etr_server* server = nullptr;
  ASSERT_OK(etr_server_start(job().get(), 0, &server));
  int32_t waited = ETR_STATE;
  std::thread waiting([&] {
    while (waited == ETR_STATE)  // it met the call below
      waited = etr_server_wait(server, 1e6, nullptr);
  });
  EXPECT_TRUE(
      etr::test::eventually([&] { return etr_server_wait(server, 0, nullptr) == ETR_STATE; }));
  etr_server_destroy(server);
  waiting.join();
  EXPECT_EQ(waited, ETR_END);
}

TEST_F(ParameterServer, SaysWhatIsWrong) {
  const auto message = [](const et::Job& job, int32_t shard) -> std::string {
    try {
      et::Server server(job, shard);
    } catch (const et::Error& error) {
      EXPECT_EQ(error.status(), ETR_INVALID_ARGUMENT);
      return error.what();
    }
    return "";
  };
  EXPECT_NE(message(job(), 2).find("shard 2 of 2"), std::string::npos);
  EXPECT_NE(message(job({"parallel={}"}), 0).find("no parameter server"), std::string::npos);
  EXPECT_NE(message(job({"parallel.engine=mpi"}), 0).find("'mpi' does not support"), std::string::npos);
  et::Server server(job(), 0);
  etr_server_status status{};
  EXPECT_EQ(etr_server_wait(server.get(), 0, &status), ETR_INVALID_ARGUMENT) << "struct_size";
  EXPECT_EQ(etr_server_wait(server.get(), -1, nullptr), ETR_INVALID_ARGUMENT);
  EXPECT_EQ(etr_server_wait(nullptr, 0, nullptr), ETR_INVALID_ARGUMENT);
  server.stop();
  EXPECT_TRUE(server.wait(60));
}

}  // namespace
