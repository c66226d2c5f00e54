// Trainers of one job that train together, as threads with one device each.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "exchange/local.h"
#include "support/device.h"
#include "train/band_job.h"
#include "train/trainer.h"

namespace etr::test {

using train::Event;
using train::EventKind;
using train::Job;
using train::Ranks;
using train::Start;
using train::Trainer;

struct Outcome {
  Event end;
  std::vector<Event> evaluations;
  std::vector<float> weights;
  std::optional<Error> error;
};

inline std::vector<float> weights_of(Trainer& trainer) {
  std::vector<float> out;
  for (const pipeline::Field& field : trainer.shaped_learner().weights("")) {
    const auto values = field.tensor.view<float>();
    out.insert(out.end(), values.begin(), values.end());
  }
  return out;
}

using Watch = std::function<void(int rank, Trainer& trainer, const Event& event)>;

inline Outcome run(const Json& job, Start start, std::unique_ptr<Ranks> ranks, const Watch& watch,
                   const gpu::DeviceOptions& options = device_options()) {
  const int rank = ranks ? ranks->rank() : 0;
  const auto kernels = std::make_shared<gpu::Kernels>(std::make_shared<gpu::Device>(options));
  Outcome out;
  try {
    Trainer trainer(kernels, Job::parse(job.dump(), "job"), start, std::move(ranks));
    do {
      out.end = trainer.next_event();
      if (out.end.kind == EventKind::evaluation) out.evaluations.push_back(out.end);
      if (watch) watch(rank, trainer, out.end);
    } while (out.end.kind != EventKind::end);
    out.weights = weights_of(trainer);
  } catch (const Error& error) {
    out.error = error;
  }
  return out;
}

inline std::vector<Outcome> together(int size, const std::function<Json(int rank)>& job,
                                     Start start = Start::new_run, const Watch& watch = {},
                                     const parallel::MeshShape& mesh = {},
                                     const gpu::DeviceOptions& options = device_options()) {
  std::vector<exchange::Group> groups = exchange::local_groups(size, 30);
  std::vector<Json> jobs;  // all jobs first, so that their data is written only once
  for (int rank = 0; rank < size; ++rank) {
    jobs.push_back(job(rank));
    if (mesh.tensor > 1)
      jobs.back()["parallel"]["mesh"] = {{"data", mesh.data}, {"tensor", mesh.tensor}};
  }
  std::vector<std::future<Outcome>> ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.push_back(std::async(std::launch::async, [&, rank] {
      auto own = std::make_unique<Ranks>(std::move(groups[static_cast<size_t>(rank)]));
      return run(jobs[static_cast<size_t>(rank)], start, std::move(own), watch, options);
    }));
  std::vector<Outcome> out;
  for (auto& rank : ranks) out.push_back(rank.get());
  return out;
}

}  // namespace etr::test
