#include "study/advise_measure.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "core/clock.h"
#include "core/error.h"
#include "core/json.h"
#include "core/text.h"
#include "explain/explain.h"
#include "pipeline/pipeline.h"
#include "study/advise_pipeline.h"
#include "train/batch_fields.h"
#include "train/learner.h"
#include "train/trainer.h"

namespace etr::study {
namespace {

using pipeline::Item;
using pipeline::Pipeline;

constexpr size_t kBatches = 8;  // kept for the device and for the noise scale

void check_supported(const train::Job& job) {
  if (job.parallel())
    fail(Code::unsupported,
         "advise: the job has a section 'parallel', but advise measures one device with "
         "one pipeline: give it the job without that section (ranks share a store, see "
         "docs/distributed.md)");
  if (!job.json().contains("model"))
    fail(Code::invalid_argument, "advise: the job has no 'model' to measure steps of");
}

struct Upstream {
  std::vector<Item> batches;
  Json before, after;  // statistics at both ends of the measurement
  double seconds = 0, made = 0;  // between them, and samples made by the last stage before batches
  std::vector<double> paces;     // samples in equal parts of that time
};

// Describes how far a slow source, which may take minutes for a first batch, has come.
std::string first_batch_text(int64_t made, const PlainPipeline& plain, double seconds) {
  return cat("after ", std::lround(seconds), " s ", made, " examples for a first batch of ",
             plain.batch);
}

// Consumes as fast as the pipeline delivers.
Upstream run_upstream(const PlainPipeline& plain, const AdviseOptions& options) {
  options.report("the pipeline alone");
  Pipeline pipeline(short_pipeline(plain.spec), {}, /*defers=*/false, Pipeline::Budget::at_start);
  Upstream out;
  const int64_t begun = now_ns();
  int64_t from = 0, first = 0, last = 0;
  double told = 1;
  for (int ends = 0;;) {
    const double all = seconds_between(begun, now_ns());
    const double measured = from ? seconds_between(from, now_ns()) : 0;
    const int64_t made = pipeline.items_out(plain.batch_stage - 1);
    if (from == 0 && made > 0) {
      out.before = pipeline.stats();  // excludes start-up
      from = now_ns();
      first = last = made;
    } else if (from &&
               measured >= options.seconds * 0.1 * static_cast<double>(out.paces.size() + 1)) {
      out.paces.push_back(static_cast<double>(made - last));
      last = made;
    }
    if (measured >= options.seconds && !out.batches.empty()) {
      out.after = pipeline.stats();
      out.seconds = measured;
      out.made = static_cast<double>(made - first);
      return out;
    }
    if (all > options.longest())
      fail(Code::state, "advise: no batch came in time: ", first_batch_text(made, plain, all),
           "; give a smaller batch (--set), or wait for the store");
    const bool tells = out.batches.empty() && all >= told;
    options.report(tells ? "the pipeline alone, " + first_batch_text(made, plain, all) : "");
    if (tells) told = all + 1;
    if (!pipeline.wait(0.02)) continue;
    Item item;
    if (pipeline.next(item) != Pipeline::Next::item) {
      if (++ends > 2)
        fail(Code::invalid_argument, "advise: the pipeline gives no batch: ", pipeline.why_empty());
      continue;
    }
    ends = 0;
    if (out.batches.size() < kBatches) out.batches.push_back(std::move(item));
  }
}

// Takes the work per fresh example that leaves the pipeline, including work on samples that filters
// drop.
void take_costs(Measured& m, const Upstream& run, const std::vector<RowPlace>& places) {
  // A difference between input and output that queues alone do not explain.
  constexpr double kFilters = 0.2;
  const Json &before = run.before["stages"], &after = run.after["stages"];
  const auto change = [&](size_t row, const char* key) {
    return after[row][key].get<double>() - before[row][key].get<double>();
  };
  std::vector<explain::Passed> passed, from_start;  // in samples
  for (size_t i = 0; i < places.size(); ++i) {
    const double in = places[i].stage > m.batch_stage ? m.batch : 1,
                 out = places[i].stage >= m.batch_stage ? m.batch : 1;
    const bool is_map = after[i]["kind"] == "map";
    passed.push_back({in * change(i, "items_in"), out * change(i, "items_out"), is_map});
    from_start.push_back({in * after[i]["items_in"].get<double>(),
                          out * after[i]["items_out"].get<double>(), is_map});
  }
  const std::vector<double> skipped = explain::skipped(passed),
                            skipped_from_start = explain::skipped(from_start);
  double needed = 1;
  std::vector<double> work(places.size());
  for (size_t i = places.size(); i-- > 0;) {
    const double in = passed[i].in + skipped[i];
    double out = passed[i].out + skipped[i], busy = change(i, "busy_s");
    if (out <= 0) {  // too few to divide by: counts from the start
      out = from_start[i].out + skipped_from_start[i];
      busy = after[i]["busy_s"].get<double>();
    }
    if (out <= 0) out = m.batch;
    work[i] = busy / out * needed;
    if (in > 0 && std::abs(in / out - 1) > kFilters && places[i].stage != m.batch_stage)
      needed *= std::max(1.0, in / out);
  }
  for (size_t i = 0; i < places.size(); ++i) {
    StageCost s;
    s.name = after[i]["name"];
    s.stage = places[i].stage;
    s.runs = after[i]["kind"] == "map"             ? Runs::parallel
             : after[i].value("own_thread", false) ? Runs::own_thread
                                                   : Runs::serial;
    s.augments = after[i]["random"];
    s.takes_echo = places[i].takes_echo;
    s.work_s = work[i];
    m.stages.push_back(std::move(s));
  }
}

// The work of the slowest part that all examples pass, or the observed pace if that was slower for
// other reasons.
void take_upstream(Measured& m, const Upstream& run) {
  Measured alone = m;
  alone.downstream_s = 1e-12;
  alone.device_is_cpu = false;
  m.upstream_s = std::max(predict(alone, {}).example_s, run.made > 0 ? run.seconds / run.made : 0);
  if (run.paces.size() < 5) return;
  double mean = 0, squares = 0;
  for (const double pace : run.paces) mean += pace / static_cast<double>(run.paces.size());
  for (const double pace : run.paces)
    squares += (pace - mean) * (pace - mean) / static_cast<double>(run.paces.size());
  constexpr double kLeast = 20, kUneven = 0.75;
  m.unsteady = mean >= kLeast && std::sqrt(squares) > kUneven * mean;
}

// Measures at the beginning of training: trains on some batches, and measures with others, which
// the model has not seen.
double noise_scale(train::Learner& learner, const std::vector<Item>& batches, double rows,
                   const AdviseOptions& options) {
  options.report("the gradient's noise");
  learner.step(batches.front());  // compiles the kernels
  const size_t trained = batches.size() / 2;
  for (size_t i = 1; i < trained; ++i) learner.step(batches[i]);
  learner.take_metrics(/*wait_all=*/true);
  const std::vector<Item> seen(batches.begin() + static_cast<ptrdiff_t>(trained), batches.end());
  const auto whole = [&](const Item& batch) {
    return train::rows_of(batch, learner.model().inputs()[0]) == static_cast<int64_t>(rows);
  };
  train::NoiseScale noise;
  // Joins several batches into larger ones, which show the gradient itself better.
  if (seen.size() >= 4 && std::all_of(seen.begin(), seen.end(), whole)) {
    if (const auto measured = learner.measure_noise(seen)) noise.add(*measured);
  } else {
    for (const Item& batch : seen)
      if (const auto measured = learner.measure_noise(batch)) noise.add(*measured);
  }
  return noise.value().value_or(0);
}

// Training on the same batches again and again may make the loss non-finite; then only the steps
// before that count.
void time_steps(Measured& m, train::Learner& learner, const std::vector<Item>& batches,
                const AdviseOptions& options) {
  constexpr size_t kLeast = 3;
  options.report("the device, with batches already in memory");
  double rows = 0, busy = 0;
  const int64_t from = now_ns();
  const auto take = [&](bool wait_all) {
    for (const auto& step : learner.take_metrics(wait_all)) {
      busy += step.busy_seconds;
      rows += static_cast<double>(step.counts.samples);
    }
  };
  size_t steps = 0;
  try {
    while (steps < kLeast || seconds_between(from, now_ns()) < options.seconds) {
      learner.step(batches[steps++ % batches.size()]);
      take(/*wait_all=*/false);
      options.report("");
    }
    take(/*wait_all=*/true);
  } catch (const Error& error) {
    if (error.code() != Code::not_finite || rows == 0) throw;
  }
  m.downstream_s = seconds_between(from, now_ns()) / rows;
  m.busy_s = busy / rows;
}

void measure_device(Measured& m, std::shared_ptr<gpu::Kernels> kernels, const train::Job& job,
                    const std::vector<Item>& batches, const AdviseOptions& options) {
  train::Learner learner(std::move(kernels), train::learner_spec(job));
  m.noise_scale = noise_scale(learner, batches, m.batch, options);
  m.device_is_cpu = learner.device()->info().kind == gpu::DeviceKind::cpu;
  time_steps(m, learner, batches, options);
}

}  // namespace

void AdviseOptions::report(const std::string& what) const {
  if (progress && !progress(what)) fail(Code::cancelled, "advise was stopped");
}

Measured measure(std::shared_ptr<gpu::Kernels> kernels, const train::Job& job,
                 const AdviseOptions& options) {
  check_supported(job);
  const Json spec = pipeline::without_side_files(job.pipeline());
  const PlainPipeline plain = plain_pipeline(spec, job.seed());
  Measured m;
  m.echoes = plain.echoes;
  m.batch_stage = plain.batch_stage;
  m.batch = plain.batch;
  m.source = plain.source;
  m.remote = plain.remote;
  if (spec.value("budget_bytes", int64_t{0}) > 0)
    m.memory_bytes = spec["budget_bytes"].get<double>() / 2;
  const Upstream run = run_upstream(plain, options);
  if (const int32_t size = run.batches.front().batch.size; size > 0) m.batch = size;
  m.threads = run.after["threads"];
  m.cores = run.after["cores"];
  take_costs(m, run, plain.rows(run.after));
  take_upstream(m, run);
  look_at_places(m, plain, options);
  for (StageCost& s : m.stages)  // for batches as they finally are, which is when they are largest
    if (s.stage >= m.batch_stage)
      s.bytes = static_cast<double>(run.batches.front().size_bytes()) / m.batch;
  measure_device(m, std::move(kernels), job, run.batches, options);
  return m;
}

}  // namespace etr::study
