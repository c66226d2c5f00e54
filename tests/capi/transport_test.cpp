// Ranks that train together over a transport of the program's.
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <fstream>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <numeric>
#include <sstream>

#include "capi/support.h"
#include "echotrain/echotrain.hpp"

namespace {

namespace et = echotrain;

// Where the ranks, threads of this test, meet with what they bring.
class Place {
 public:
  explicit Place(int size) : brought_(static_cast<size_t>(size)) {}

  // All come; each reads what all brought; all leave. Throws where one does not come, or the place
  // is closed. Who has come leaves with the others, also when the place is closed meanwhile: they
  // may be reading what it brought.
  void meet(int rank, const void* brings, double timeout_s,
            const std::function<void(const std::vector<const void*>&)>& read) {
    std::unique_lock lock(mutex_);
    if (closed_.empty()) {
      brought_[static_cast<size_t>(rank)] = brings;
      if (arrive(lock, timeout_s, /*ends_when_closed=*/true)) {
        lock.unlock();
        read(brought_);
        lock.lock();
        arrive(lock, timeout_s, /*ends_when_closed=*/false);
        return;
      }
    }
    throw et::RankLost(closed_.empty() ? "nobody came" : closed_, {1 - rank});
  }
  std::shared_ptr<Place> part(int colour) {
    const std::lock_guard lock(mutex_);
    auto& part = parts_[{meetings_, colour}];
    if (!part) part = std::make_shared<Place>(static_cast<int>(brought_.size()));
    return part;
  }
  void close(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    if (closed_.empty()) closed_ = reason;
    changed_.notify_all();
  }

 private:
  // Whether all have come.
  bool arrive(std::unique_lock<std::mutex>& lock, double timeout_s, bool ends_when_closed) {
    const uint64_t meeting = meetings_;
    if (++here_ == brought_.size()) {
      here_ = 0;
      ++meetings_;
      changed_.notify_all();
    }
    changed_.wait_for(lock, std::chrono::duration<double>(timeout_s), [&] {
      return meetings_ != meeting || (ends_when_closed && !closed_.empty());
    });
    return meetings_ != meeting;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<const void*> brought_;
  size_t here_ = 0;
  uint64_t meetings_ = 0;
  std::string closed_;
  std::map<std::pair<uint64_t, int>, std::shared_ptr<Place>> parts_;
};

class Threads : public et::Transport {
 public:
  Threads(std::shared_ptr<Place> place, int rank, int size)
      : place_(std::move(place)), rank_(rank), size_(size) {}
  ~Threads() override { ++ended; }

  int32_t rank() const override { return rank_; }
  int32_t size() const override { return size_; }

  void all_reduce(void* data, uint64_t count, int32_t number, int32_t reduction,
                  double timeout_s) override {
    switch (number) {
      case ETR_NUMBER_F32: return reduce(static_cast<float*>(data), count, reduction, timeout_s);
      case ETR_NUMBER_F64: return reduce(static_cast<double*>(data), count, reduction, timeout_s);
      case ETR_NUMBER_I32: return reduce(static_cast<int32_t*>(data), count, reduction, timeout_s);
      default: return reduce(static_cast<int64_t*>(data), count, reduction, timeout_s);
    }
  }
  void all_gather(const void* part, const uint64_t* sizes, void* data, double timeout_s) override {
    place_->meet(rank_, part, timeout_s, [&](const std::vector<const void*>& parts) {
      auto* to = static_cast<char*>(data);
      for (size_t r = 0; r < parts.size(); to += sizes[r++]) std::memcpy(to, parts[r], sizes[r]);
    });
  }
  void broadcast(void* data, uint64_t size_bytes, int32_t root, double timeout_s) override {
    place_->meet(rank_, data, timeout_s, [&](const std::vector<const void*>& all) {
      if (rank_ != root) std::memcpy(data, all[static_cast<size_t>(root)], size_bytes);
    });
  }
  std::unique_ptr<et::Transport> split(int32_t colour, int32_t, double timeout_s) override {
    std::unique_ptr<et::Transport> made;
    place_->meet(rank_, nullptr, timeout_s, [&](const std::vector<const void*>&) {
      made = std::make_unique<Threads>(place_->part(colour), rank_, size_);
    });
    return made;
  }
  void abort(const std::string& reason) override { place_->close(reason); }

  static inline std::atomic<int> ended = 0;

 private:
  template <typename T>
  void reduce(T* data, uint64_t count, int32_t reduction, double timeout_s) {
    const std::vector<T> mine(data, data + count);
    place_->meet(rank_, mine.data(), timeout_s, [&](const std::vector<const void*>& all) {
      for (uint64_t i = 0; i < count; ++i) {
        T result = static_cast<const T*>(all[0])[i];
        for (size_t r = 1; r < all.size(); ++r) {
          const T next = static_cast<const T*>(all[r])[i];
          result = reduction == ETR_REDUCE_SUM   ? result + next
                   : reduction == ETR_REDUCE_MIN ? std::min(result, next)
                                                 : std::max(result, next);
        }
        data[i] = result;
      }
    });
  }

  const std::shared_ptr<Place> place_;
  const int rank_, size_;
};

// Fails in its n-th all_reduce.
class Failing : public Threads {
 public:
  using Threads::Threads;
  void all_reduce(void* data, uint64_t count, int32_t number, int32_t reduction,
                  double timeout_s) override {
    if (++calls_ == 5) throw std::domain_error(why());
    Threads::all_reduce(data, count, number, reduction, timeout_s);
  }
  static std::string why() {  // more than an engine's message holds
    std::string out = "the wire is cut";
    for (int i = 0; i < 1000; ++i) out += "\u00fc";
    return out;
  }

 private:
  int calls_ = 0;
};

// Has what the base class has.
class Bare : public et::Transport {
 public:
  int32_t rank() const override { return 0; }
  int32_t size() const override { return 1; }
  void abort(const std::string&) override {}
};

std::string job_text(const Images& images, int rows, const std::string& out,
                     const std::string& more = "") {
  return R"({"seed": 3, "pipeline": {"stages": [{"stage": "folder", "root": ")" + images.path() +
         R"("}, {"stage": "label"}, {"stage": "decode"}, {"stage": "batch", "size": )" +
         std::to_string(rows) + R"(}, {"stage": "normalize"}]},
    "model": {"layers": [{"layer": "flatten"}, {"layer": "dense", "units": 2}]},
    "optimizer": {"optimizer": "sgd", "momentum": 0.9}, "schedule": {"learning_rate": 0.02},
    "train": {"steps": 6}, "output": {"dir": ")" +
         out + R"(", "tensorboard": false})" + more + "}";
}

std::vector<std::string> losses_of(const std::string& folder) {
  std::vector<std::string> out;
  std::ifstream file(folder + "/metrics.jsonl");
  for (std::string line; std::getline(file, line);)
    if (line.find("\"step\"") != std::string::npos && line.find("\"loss\":") != std::string::npos) {
      const size_t at = line.find("\"loss\":");
      out.push_back(line.substr(at, line.find(',', at) - at));
    }
  return out;
}

et::Runtime runtime() {
  const char* device = std::getenv("ECHOTRAIN_TEST_DEVICE");
  return et::Runtime(device ? device : "");
}

uint64_t train(const std::string& job, std::unique_ptr<et::Transport> transport) {
  const et::Runtime device = runtime();
  et::Run run(device, et::Job::parse(job), et::Start::overwrite, std::move(transport));
  uint64_t examples = 0;
  while (const auto event = run.next_event()) examples = event->examples;
  return examples;
}

template <typename Of>
std::vector<std::future<uint64_t>> both(const std::string& job, Of&& transport_of) {
  std::vector<std::future<uint64_t>> out;
  for (int rank = 0; rank < 2; ++rank)
    out.push_back(std::async(std::launch::async, [job, transport = transport_of(rank)]() mutable {
      return train(job, std::move(transport));
    }));
  return out;
}

TEST(Transport, RanksTrainOverItAsOneWithAllTheirRows) {
  Images images;
  etr::test::TempDir out;
  const et::Runtime device = runtime();
  et::Run alone(device, et::Job::parse(job_text(images, 16, out.path("one"))),
                et::Start::overwrite);
  while (alone.next_event()) {
  }
  Threads::ended = 0;
  const auto place = std::make_shared<Place>(2);
  auto ranks = both(job_text(images, 8, out.path("two")),
                    [&](int rank) { return std::make_unique<Threads>(place, rank, 2); });
  for (auto& rank : ranks) EXPECT_EQ(rank.get(), 96u) << "of both ranks";
  EXPECT_EQ(Threads::ended, 4) << "each rank's transport, and the one split off for gradients";
  const auto one = losses_of(out.path("one")), two = losses_of(out.path("two"));
  ASSERT_EQ(two.size(), 6u);
  ASSERT_EQ(one.size(), 6u);
  for (size_t i = 0; i < 6; ++i)
    EXPECT_NEAR(std::stod(one[i].substr(7)), std::stod(two[i].substr(7)), 1e-4);
}

TEST(Transport, RanksTrainOverItAsDevicesOfOneProcess) {
  Images images;
  etr::test::TempDir out;
  const std::string name = runtime().device().name;
  const et::Runtime device = runtime();
  et::Run run(device,
              et::Job::parse(
                  job_text(images, 8, out.path("devices"),
                           R"(, "parallel": {"devices": [")" + name + R"(", ")" + name + R"("]})")),
              et::Start::new_run);
  uint64_t examples = 0;
  while (const auto event = run.next_event()) examples = event->examples;
  EXPECT_EQ(examples, 96u);
  const auto place = std::make_shared<Place>(2);
  auto ranks = both(job_text(images, 8, out.path("ranks")),
                    [&](int rank) { return std::make_unique<Threads>(place, rank, 2); });
  for (auto& rank : ranks) EXPECT_EQ(rank.get(), 96u);
  EXPECT_EQ(losses_of(out.path("devices")), losses_of(out.path("ranks"))) << "to the bit";
  EXPECT_EQ(losses_of(out.path("ranks")).size(), 6u);
}

TEST(Transport, WhatItThrowsComesOutOfTheRunAndEndsTheOther) {
  Images images;
  const auto place = std::make_shared<Place>(2);
  auto ranks = both(job_text(images, 8, ""), [&](int rank) -> std::unique_ptr<et::Transport> {
    if (rank == 0) return std::make_unique<Threads>(place, rank, 2);
    return std::make_unique<Failing>(place, rank, 2);
  });
  try {
    ranks[1].get();
    FAIL() << "no error";
  } catch (const std::domain_error& error) {
    EXPECT_EQ(error.what(), Failing::why());
  }
  try {
    ranks[0].get();
    FAIL() << "a rank went on alone";
  } catch (const et::Error& error) {
    EXPECT_EQ(error.status(), ETR_RANK_LOST) << error.what();
    EXPECT_NE(std::string(error.what()).find("the wire is cut"), std::string::npos) << error.what();
  }
}

TEST(Transport, OthersLearnThatATrainerWasClosed) {
  Images images;
  const auto place = std::make_shared<Place>(2);
  auto other = std::async(std::launch::async, [&] {
    return train(job_text(images, 8, ""), std::make_unique<Threads>(place, 0, 2));
  });
  {
    const et::Runtime device = runtime();
    et::Run run(device, et::Job::parse(job_text(images, 8, "")), et::Start::new_run,
                std::make_unique<Threads>(place, 1, 2));
    run.next_event(1e-6);
  }
  try {
    other.get();
    FAIL() << "a rank went on alone";
  } catch (const et::Error& error) {
    EXPECT_EQ(error.status(), ETR_RANK_LOST);
    EXPECT_NE(std::string(error.what()).find("was closed"), std::string::npos) << error.what();
  }
}

TEST(Transport, SaysWhatNeedsAFunctionThatItLacks) {
  Images images;
  try {
    train(job_text(images, 8, ""), std::make_unique<Bare>());
    FAIL() << "trained without functions";
  } catch (const et::Error& error) {
    EXPECT_EQ(error.status(), ETR_UNSUPPORTED);
    EXPECT_NE(std::string(error.what()).find("split: ranks exchange gradients"), std::string::npos)
        << error.what();
  }
}

// Its destroy is called once, whatever the call makes of it.
TEST(Transport, IsTheRunsAlsoWhereTheCallFails) {
  Images images;
  static int destroyed;
  etr_runtime* device = nullptr;
  etr_job* job = nullptr;
  etr_run* run = nullptr;
  ASSERT_OK(etr_runtime_create(nullptr, &device));
  ASSERT_OK(etr_job_parse(job_text(images, 8, "").c_str(), nullptr, 0, &job));
  etr_engine engine{};
  engine.struct_size = sizeof engine;
  engine.size = 1;
  engine.abort = [](void*, const char*) {};
  engine.destroy = [](void*) { ++destroyed; };
  const auto status = [&](etr_runtime* r, etr_job* j, int32_t start, const etr_engine* e,
                          etr_run** out) {
    destroyed = 0;
    return etr_run_start_with_engine(r, j, start, e, out);
  };
  EXPECT_EQ(status(nullptr, job, ETR_START_NEW, &engine, &run), ETR_INVALID_ARGUMENT);
  EXPECT_EQ(destroyed, 1);
  EXPECT_EQ(status(device, nullptr, ETR_START_NEW, &engine, &run), ETR_INVALID_ARGUMENT);
  EXPECT_EQ(destroyed, 1);
  EXPECT_EQ(status(device, job, 9, &engine, &run), ETR_INVALID_ARGUMENT);
  EXPECT_EQ(destroyed, 1);
  EXPECT_EQ(status(device, job, ETR_START_NEW, &engine, &run), ETR_UNSUPPORTED) << "no split";
  EXPECT_EQ(destroyed, 1);
  EXPECT_EQ(status(device, job, ETR_START_NEW, nullptr, &run), ETR_INVALID_ARGUMENT);
  engine.rank = 1;
  EXPECT_EQ(status(device, job, ETR_START_NEW, &engine, &run), ETR_INVALID_ARGUMENT);
  EXPECT_EQ(destroyed, 1);
  EXPECT_EQ(run, nullptr);
  etr_job_destroy(job);
  etr_runtime_destroy(device);
}

}  // namespace
