// A parameter server and its workers in one process.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "core/platform.h"
#include "exchange/local.h"
#include "support/device.h"
#include "train/membership.h"
#include "train/trainer.h"

namespace etr::test::workers {

constexpr double kTimeout = 60;  // seconds

// The job's servers, in this process.
class Servers {
 public:
  explicit Servers(const Json& job) : job_(train::Job::parse(job.dump(), "job")) {
    server::Place place;
    place.world.timeout_s = kTimeout;
    place.shards = static_cast<int>(job_.parallel()->integer("servers"));
    for (; place.shard < place.shards; ++place.shard)
      shards_.push_back(
          std::make_unique<server::Server>(train::shard_options(*job_.parallel()), place));
  }

  std::unique_ptr<train::Membership> join(int number = -1, int parts = 1) {
    const auto meet = [&](int shard) {
      auto pair = exchange::local_groups(2, kTimeout);
      shards_[static_cast<size_t>(shard)]->add(std::move(pair[0]));
      return std::move(pair[1]);
    };
    const server::Pair::Name name{.number = number,
                                  .workers = static_cast<uint64_t>(parts),
                                  .terms = train::shard_options(*job_.parallel()).terms};
    return std::make_unique<train::Membership>(
        job_, std::make_unique<server::Client>(static_cast<int>(shards_.size()), meet, name),
        parts);
  }

  server::Server& first() { return *shards_[0]; }
  uint64_t rows() const {  // of sparse tables, on all servers
    uint64_t all = 0;
    for (const auto& shard : shards_) all += shard->status().rows;
    return all;
  }
  void kill() { shards_.clear(); }

 private:
  const train::Job job_;
  std::vector<std::unique_ptr<server::Server>> shards_;
};

struct ServersOutcome {
  train::Event end;
  std::vector<float> weights;
  std::optional<Error> error;
};

using ServersWatch = std::function<void(train::Trainer& trainer, const train::Event& event)>;

inline ServersOutcome run(const Json& job, std::unique_ptr<train::Membership> membership,
                          train::Start start = train::Start::new_run,
                          const ServersWatch& watch = {},
                          const gpu::DeviceOptions& device = device_options()) {
  ServersOutcome out;
  try {
    train::Trainer trainer(std::make_shared<gpu::Kernels>(std::make_shared<gpu::Device>(device)),
                           train::Job::parse(job.dump(), "job"), start, nullptr,
                           std::move(membership));
    do {
      out.end = trainer.next_event();
      if (watch) watch(trainer, out.end);
    } while (out.end.kind != train::EventKind::end);
    if (trainer.learner().trainable() == 0) return out;  // it has not begun
    for (const pipeline::Field& field : trainer.learner().weights("")) {
      const auto values = field.tensor.view<float>();
      out.weights.insert(out.weights.end(), values.begin(), values.end());
    }
  } catch (const Error& error) {
    out.error = error;
  }
  return out;
}

inline ServersOutcome run_with_servers(const Json& job, train::Start start = train::Start::new_run,
                                       const ServersWatch& watch = {}) {
  Servers servers(job);
  return run(job, servers.join(), start, watch);
}

inline std::vector<double> loss_values_of(const std::string& out) {
  std::vector<double> losses;
  std::stringstream lines(platform::read_file(out + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);)
    if (const Json row = parse_json(line, "metrics"); row["kind"] == "step")
      losses.push_back(row["loss"].get<double>());
  return losses;
}

}  // namespace etr::test::workers
