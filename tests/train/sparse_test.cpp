// Embeddings whose rows lie on a parameter server.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <future>
#include <numeric>
#include <random>
#include <set>

#include "core/error.h"
#include "core/rng.h"
#include "support/data.h"
#include "train/servers.h"

namespace etr::test {
namespace {

using namespace workers;
using train::Event;
using train::EventKind;
using train::Job;
using train::Start;
using train::Trainer;

constexpr int kEntries = 60, kFields = 5, kWidth = 4;

template <typename T>
void write_npy(const std::string& path, const char* type, int rows, int columns,
               const std::vector<T>& values) {
  std::string header = cat("{'descr': '", type, "', 'fortran_order': False, 'shape': (", rows, ", ",
                           columns, "), }");
  header.resize((header.size() + 10 + 64) / 64 * 64 - 11, ' ');
  header += '\n';
  std::ofstream out(path, std::ios::binary);
  out << "\x93NUMPY" << '\1' << '\0' << static_cast<char>(header.size() % 256)
      << static_cast<char>(header.size() / 256) << header;
  out.write(reinterpret_cast<const char*>(values.data()),
            static_cast<std::streamsize>(values.size() * sizeof(T)));
}

// Writes samples of random ids from `first` on, and labels that depend on all ids of a sample.
// `spoilt` replaces ids at some places. Returns the option 'arrays' of the stage `npy`.
std::string make_ids(const TempDir& dir, const std::string& name, int samples, unsigned seed,
                     const std::set<std::pair<size_t, int32_t>>& spoilt = {}, uint32_t first = 0,
                     uint32_t count = kEntries) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids;
  std::vector<float> labels;
  for (int i = 0; i < samples; ++i) {
    int sum = 0;
    for (int k = 0; k < kFields; ++k) {
      ids.push_back(static_cast<int32_t>(first + random() % count));
      sum += ids.back() * (k + 1);
    }
    labels.push_back(sum % 3 == 0 ? 1.0f : 0.0f);
  }
  for (const auto& [at, id] : spoilt) ids[at] = id;
  const std::string x = dir.path(name + "-ids.npy"), y = dir.path(name + "-label.npy");
  write_npy(x, "<i4", samples, kFields, ids);
  write_npy(y, "<f4", samples, 1, labels);
  return cat("ids=", x, ",label=", y);
}

// Returns a factorisation machine with its linear part in a table of its own.
Json machine(bool sparse, int64_t entries) {
  const auto table = [&](const char* name, int width) {
    return Json{{"layer", "embedding"}, {"name", name},   {"input", {"ids"}},
                {"entries", entries},   {"width", width}, {"sparse", sparse}};
  };
  const auto reduce = [](const char* name, const char* input, bool keep) {
    return Json{{"layer", "reduce"}, {"name", name},      {"input", {input}},
                {"axes", {1}},       {"function", "sum"}, {"keep_dims", keep}};
  };
  return {{"inputs", {"ids"}},
          {"layers",
           {table("factors", kWidth),
            reduce("sum", "factors", false),
            {{"layer", "multiply"}, {"name", "square"}, {"input", {"sum", "sum"}}},
            {{"layer", "multiply"}, {"name", "squares"}, {"input", {"factors", "factors"}}},
            reduce("sum_squares", "squares", false),
            {{"layer", "subtract"}, {"name", "pairs"}, {"input", {"square", "sum_squares"}}},
            reduce("pair", "pairs", true),
            table("linear", 1),
            reduce("line", "linear", false),
            {{"layer", "add"}, {"input", {"pair", "line"}}},
            {{"layer", "bias"}}}},
          {"loss", {{"loss", "binary_cross_entropy"}}}};
}

struct SparseCase {
  bool sparse = true;
  Json parallel;  // null: one device
  int steps = 60;
  int64_t entries = kEntries;
};

Json sparse_job(const TempDir& dir, const std::string& out, const SparseCase& c) {
  const auto stages = [&](const char* name, int samples, unsigned seed) {
    return Json::array({{{"stage", "npy"}, {"arrays", make_ids(dir, name, samples, seed)}},
                        {{"stage", "batch"}, {"size", 16}, {"drop_remainder", false}}});
  };
  Json job{{"seed", 4},
           {"pipeline", {{"stages", stages("train", 200, 1)}}},
           {"model", machine(c.sparse, c.entries)},
           {"optimizer", {{"optimizer", "sgd"}}},
           {"schedule", {{"learning_rate", 0.5}}},
           {"train", {{"steps", c.steps}}},
           {"evaluation", {{"every_epochs", 0}, {"pipeline", {{"stages", stages("test", 60, 2)}}}}},
           {"output", {{"dir", out}, {"tensorboard", false}, {"checkpoint_every_steps", 20}}}};
  if (!c.parallel.is_null()) job["parallel"] = c.parallel;
  return job;
}

const Json kInOrder{{"algorithm", "downpour"},
                    {"consistency", "sequential"},
                    {"server_optimizer", "sgd"},
                    {"servers", 3}};

Json sparse_with(Json json, const Json& more) {
  json.update(more);
  return json;
}

void expect_close(const std::vector<double>& a, const std::vector<double>& b, double by) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], by) << "step " << i + 1;
}

std::string problem_of(const Json& job, Start start = Start::new_run) {
  try {
    const ServersOutcome outcome = run_with_servers(job, start);
    return outcome.error ? outcome.error->what() : "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Sparse, OneSequentialWorkerTrainsAsOneDeviceWithTheWholeTable) {
  TempDir dir;
  const ServersOutcome alone = run(sparse_job(dir, dir.path("alone"), {}), nullptr);
  ASSERT_FALSE(alone.error) << alone.error->what();
  const ServersOutcome worker =
      run_with_servers(sparse_job(dir, dir.path("worker"), {.parallel = kInOrder}));
  ASSERT_FALSE(worker.error) << worker.error->what();
  EXPECT_NEAR(worker.end.eval_loss, alone.end.eval_loss, 1e-5);
  const auto losses = loss_values_of(dir.path("worker"));
  EXPECT_EQ(losses.size(), 60u);
  EXPECT_LT(losses.back(), 0.9 * losses.front()) << "it learns";
  expect_close(losses, loss_values_of(dir.path("alone")), 1e-5);
}

TEST(Sparse, RowsTrainWithAdagradAsAWholeTableOnTheServersDoes) {
  TempDir dir;
  const Json parallel = sparse_with(kInOrder, {{"server_optimizer", "adagrad"}});
  for (const bool sparse : {false, true}) {
    Json job = sparse_job(dir, dir.path(sparse ? "rows" : "whole"), {sparse, parallel});
    job["schedule"]["learning_rate"] = 0.1;
    const ServersOutcome outcome = run_with_servers(job);
    ASSERT_FALSE(outcome.error) << outcome.error->what();
  }
  expect_close(loss_values_of(dir.path("rows")), loss_values_of(dir.path("whole")), 1e-5);
}

TEST(Sparse, RowsBeginWithWhatTheWholeTableDraws) {
  TempDir dir;
  const Json spec = sparse_job(dir, "", {.steps = 1});
  Trainer trainer(std::make_shared<gpu::Kernels>(device()), Job::parse(spec.dump(), "job"),
                  Start::new_run);
  pipeline::Item batch;
  Tensor ids(DType::i32, {1, kFields}), label(DType::f32, {1, 1});
  std::ranges::fill(ids.mutable_view<int32_t>(), 0);
  std::ranges::fill(label.mutable_view<float>(), 0.0f);
  batch.set("ids", ids);
  batch.set("label", label);
  trainer.learner().shape(batch);
  const Tensor whole = trainer.learner().weights("factors.weight")[0].tensor;
  server::TableSpec of{kEntries, 4, graph::parameter_stream("factors.weight"), kWidth, 0.02f};
  server::Table table(of, {});
  for (uint32_t id = 0; id < kEntries; ++id) {
    std::vector<float> row(kWidth);
    table.read(std::span(&id, 1), row.data());
    for (size_t k = 0; k < kWidth; ++k)
      ASSERT_EQ(row[k], whole.view<float>()[id * kWidth + k]) << id << " " << k;
  }
  EXPECT_EQ(table.rows(), 0u) << "reading creates no rows";
}

// As in word2vec, there is no other parameter.
TEST(Sparse, AModelOfTablesAlone) {
  TempDir dir;
  for (const bool served : {false, true}) {
    Json job = sparse_job(dir, dir.path(served ? "rows" : "whole"),
                          {.parallel = served ? kInOrder : Json()});
    job["model"]["layers"].erase(job["model"]["layers"].size() - 1);
    const ServersOutcome outcome = served ? run_with_servers(job) : run(job, nullptr);
    ASSERT_FALSE(outcome.error) << outcome.error->what();
  }
  expect_close(loss_values_of(dir.path("rows")), loss_values_of(dir.path("whole")), 1e-5);
}

TEST(Sparse, ATableLargerThanTheDeviceTrains) {
  TempDir dir;
  constexpr int64_t kMany = 1 << 22;  // 64 MB
  gpu::DeviceOptions small = device_options();
  small.memory_limit_bytes = 32 << 20;
  const ServersOutcome whole =
      run(sparse_job(dir, "", {.entries = kMany}), nullptr, Start::new_run, {}, small);
  ASSERT_TRUE(whole.error);
  EXPECT_EQ(whole.error->code(), Code::out_of_memory);
  EXPECT_NE(std::string(whole.error->what()).find("memory limit"), std::string::npos)
      << whole.error->what();
  const Json job = sparse_job(dir, dir.path("out"), {.parallel = kInOrder, .entries = kMany});
  Servers servers(job);
  const ServersOutcome rows = run(job, servers.join(), Start::new_run, {}, small);
  ASSERT_FALSE(rows.error) << rows.error->what();
  const auto losses = loss_values_of(dir.path("out"));
  EXPECT_LT(losses.back(), losses.front());
  EXPECT_LE(servers.first().status().rows, 2u * kEntries) << "rows that nobody trained on";
  EXPECT_GT(servers.first().status().rows, 0u);
}

TEST(Sparse, GoesOnFromACheckpointOnAnotherNumberOfServers) {
  TempDir dir;
  const Json parallel = sparse_with(kInOrder, {{"server_optimizer", "adagrad"}});
  Json job = sparse_job(dir, dir.path("whole"), {.parallel = parallel});
  job["schedule"]["learning_rate"] = 0.1;
  const ServersOutcome whole = run_with_servers(job);
  ASSERT_FALSE(whole.error) << whole.error->what();
  job["output"]["dir"] = dir.path("parts");
  const auto stopped =
      run_with_servers(job, Start::new_run, [](Trainer& trainer, const Event& event) {
        if (event.kind == EventKind::checkpoint) trainer.stop();
      });
  EXPECT_LT(stopped.end.step, 60u);
  job["parallel"]["servers"] = 2;
  const auto resumed = run_with_servers(job, Start::resume);
  ASSERT_FALSE(resumed.error) << resumed.error->what();
  EXPECT_EQ(loss_values_of(dir.path("parts")), loss_values_of(dir.path("whole"))) << "bit for bit";
  EXPECT_EQ(resumed.end.eval_loss, whole.end.eval_loss);

  // Without servers the rows come from the checkpoint.
  Trainer judge(std::make_shared<gpu::Kernels>(device()), Job::parse(job.dump(), "job"),
                Start::evaluate);
  EXPECT_NEAR(judge.evaluate().loss, whole.end.eval_loss, 1e-6);

  job["model"] = machine(true, kEntries + 1);
  job["train"]["steps"] = 70;
  EXPECT_NE(problem_of(job, Start::resume).find("'factors.weight' has 60 entries of 4"),
            std::string::npos)
      << problem_of(job, Start::resume);
}

// Two workers, with 60 and 45 steps, each with half of the ids, so that each trains
// rows of its own. Unless consistency is eventual, each step is one push.
TEST(Sparse, WorkersTrainTogether) {
  for (const char* consistency : {"eventual", "bounded", "sequential"}) {
    TempDir dir;
    const Json parallel = sparse_with(kInOrder, {{"consistency", consistency}, {"servers", 2}});
    Json first = sparse_job(dir, dir.path("out"), {.parallel = parallel, .steps = 60});
    Json second = sparse_job(dir, "", {.parallel = parallel, .steps = 45});
    const auto half = [&](const char* name, uint32_t from) {
      return make_ids(dir, name, 200, 3, {}, from, kEntries / 2);
    };
    first["pipeline"]["stages"][0]["arrays"] = half("lower", 0);
    second["pipeline"]["stages"][0]["arrays"] = half("upper", kEntries / 2);
    Servers servers(first);
    auto a = servers.join(0, 2), b = servers.join(1, 2);
    auto other = std::async(std::launch::async, [&] { return run(second, std::move(b)); });
    const ServersOutcome leader = run(first, std::move(a)), worker = other.get();
    ASSERT_FALSE(leader.error) << leader.error->what();
    ASSERT_FALSE(worker.error) << worker.error->what();
    EXPECT_TRUE(servers.first().wait(kTimeout));
    EXPECT_EQ(leader.end.step, 60u);
    EXPECT_EQ(worker.end.step, 45u);
    const auto losses = loss_values_of(dir.path("out"));
    const double last = std::accumulate(losses.end() - 10, losses.end(), 0.0) / 10;
    EXPECT_LT(last, 0.9 * losses.front()) << consistency;
    EXPECT_EQ(servers.rows(), 2u * kEntries) << consistency << ": both have trained their rows";
    const auto roster = servers.first().status().roster;
    EXPECT_EQ(roster.finished, 2u) << consistency;
    EXPECT_LE(roster.pushes, 105u) << consistency;
    EXPECT_GE(roster.pushes, consistency == std::string("eventual") ? 2u : 105u) << consistency;
  }
}

TEST(Sparse, AnIdThatIsNotInTheTableIsNamed) {
  TempDir dir;
  for (const int32_t id : {-1, kEntries}) {
    Json job = sparse_job(dir, "", {.parallel = kInOrder});
    auto& stage = job["pipeline"]["stages"][0];
    stage["arrays"] = make_ids(dir, "spoilt", 16, 1, {{3 * kFields + 2, id}});
    stage["shuffle"] = false;
    const std::string problem = problem_of(job);
    EXPECT_NE(problem.find(cat("field 'ids', sample 4 of 16 in the batch, position [2]: id ", id,
                               " is not in the table 'factors.weight', which has 60 entries")),
              std::string::npos)
        << problem;
  }
}

TEST(Sparse, MistakesInTheJobAreTold) {
  TempDir dir;
  const Json good = sparse_job(dir, "", {.parallel = kInOrder, .steps = 1});
  EXPECT_EQ(problem_of(good), "");
  const auto expect_problem = [&](const Json& job, const char* what) {
    EXPECT_NE(problem_of(job).find(what), std::string::npos) << problem_of(job);
  };
  Json job = good;
  job["parallel"] = {{"algorithm", "easgd"}};
  expect_problem(job, "'easgd' exchanges whole tables");
  job["parallel"] = sparse_with(kInOrder, {{"server_momentum", 0.9}});
  expect_problem(job, "server_momentum changes all rows");
  for (const char* option : {"clip_norm", "clip_value", "ema_decay"}) {
    job = good;
    job["optimizer"][option] = 0.5;
    expect_problem(job, option);
  }
  job = good;
  job["optimizer"]["accumulate"] = 2;
  expect_problem(job, "parallel.n_push");
  job = good;
  job["model"]["precision"] = "fp16";
  expect_problem(job, "precision 'fp16'");
  job = good;
  job["model"]["layers"].push_back(
      {{"layer", "dense"}, {"units", kEntries}, {"tied_to", "linear"}});
  expect_problem(job, "the table of 'linear' is sparse");
}

TEST(Sparse, AGradientThatIsNotFiniteReachesNoRow) {
  TempDir dir;
  Json job = sparse_job(dir, "", {.parallel = kInOrder});
  job["schedule"]["learning_rate"] = 1000;
  const std::string problem = problem_of(job);
  EXPECT_NE(problem.find("The parameters are as they were"), std::string::npos) << problem;
}

}  // namespace
}  // namespace etr::test
