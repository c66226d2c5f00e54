#include "train/ranks.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <exception>
#include <limits>
#include <mutex>
#include <optional>
#include <span>
#include <thread>

#include "core/clock.h"
#include "core/error.h"
#include "core/json.h"
#include "core/launcher_variables.h"
#include "core/log.h"
#include "core/long_wait.h"
#include "core/parse_json.h"
#include "core/start_thread.h"
#include "exchange/world.h"
#include "parallel/data_parallel.h"
#include "parallel/local_sgd.h"
#include "train/algorithm.h"
#include "train/launch_checks.h"
#include "train/membership.h"
#include "train/patience.h"

namespace etr::train {
namespace {

constexpr int kMostAttempts = 16;  // to form a group of the remaining ranks

std::span<std::byte> bytes_of(std::string& text) {
  return std::as_writable_bytes(std::span(text.data(), text.size()));
}

parallel::DataParallelOptions data_parallel_options(const Options& given) {
  parallel::DataParallelOptions options;
  options.bucket_mb = given.number("bucket_mb");
  options.sync_batch_norm = given.boolean("sync_batch_norm");
  options.compression = parallel::compression_named(given.string("compression"));
  options.zero_stage = static_cast<int>(given.integer("zero_stage"));
  return options;
}

}  // namespace

void Ranks::lay_out(const parallel::MeshShape& shape) {
  mesh_ = parallel::Mesh(shape, rank(), size());
  if (leads() && sharers() > 1)
    log_line(LogLevel::info, cat("the ranks are laid out as ", parallel::to_text(mesh_.shape())),
             LogSubject::partition);
}

std::unique_ptr<parallel::ModelStage> Ranks::model_stage(
    const gpu::DevicePtr& device, const parallel::ModelStageOptions& options) {
  return std::make_unique<parallel::ModelStage>(mesh_, *group_, device, options);
}

std::unique_ptr<parallel::Sharing> Ranks::sharing(const gpu::DevicePtr& device,
                                                  const Options* options) {
  const Algorithm algorithm = options ? algorithm_of(*options) : Algorithm::synchronous;
  if (has_servers(algorithm))
    fail(Code::invalid_argument,
         "parallel: workers of a parameter server are not ranks of a group, but the "
         "trainer was given a group and the algorithm '",
         options->string("algorithm"), "'");
  if (algorithm == Algorithm::diloco)
    return std::make_unique<parallel::LocalSgd>(
        group_->duplicate(),
        parallel::LocalSgdOptions{options->integer("outer_every"), options->number("outer_rate"),
                                  options->number("outer_momentum")});
  const auto of_gradients =
      options ? data_parallel_options(*options) : parallel::DataParallelOptions{};
  if (mesh_.length(parallel::Axis::tensor) == 1)
    return std::make_unique<parallel::DataParallel>(group_->duplicate(), device, of_gradients);
  exchange::Group rows = mesh_.line(*group_, parallel::Axis::data),
                  slices = mesh_.line(*group_, parallel::Axis::tensor);
  return std::make_unique<parallel::DataParallel>(
      std::move(rows), device, of_gradients,
      std::make_unique<parallel::TensorParallel>(std::move(slices), device));
}

void Ranks::work_apart(const std::function<void()>& work) {
  if (size() == 1) return work();
  std::mutex mutex;
  std::condition_variable changed;
  bool is_done = false;
  std::exception_ptr failed, lost;
  std::thread answers = start_thread("the thread that answers other ranks", "other work", [&] {
    try {
      for (bool all_done = false; !all_done;) {
        int64_t works = 0;
        {
          std::unique_lock lock(mutex);
          works = !changed.wait_until(lock, deadline_after(kPatience), [&] { return is_done; });
        }
        group_->all_reduce(std::span(&works, 1), exchange::Reduction::max);
        all_done = works == 0;
      }
    } catch (...) {
      lost = std::current_exception();
    }
  });
  try {
    work();
  } catch (...) {
    failed = std::current_exception();
  }
  {
    const std::scoped_lock lock(mutex);
    is_done = true;
  }
  changed.notify_one();
  answers.join();
  if (failed) std::rethrow_exception(failed);
  if (lost) std::rethrow_exception(lost);
}

void Ranks::be_patient() {
  constexpr double kForEver = 1e6;  // seconds
  group_->set_timeout(kForEver);
}

Ranks::Outlook Ranks::agree(const Outlook& mine) {
  if (size() == 1) return mine;
  std::array<int64_t, 4> any{mine.stops, mine.is_over, mine.waits, mine.yields};
  group_->all_reduce(std::span<int64_t>(any), exchange::Reduction::max);
  return {any[0] > 0, any[1] > 0, any[2] > 0, any[3] > 0};
}

void Ranks::sum(std::span<int64_t> numbers) {
  if (size() > 1) group_->all_reduce(numbers);
}

Ranks::Share Ranks::agree(const Share& mine) {
  if (size() == 1) return mine;
  const auto& [samples, fresh, echoed] = counts() ? mine.counts : SampleCounts{};
  std::array<int64_t, 5> sums{mine.ends_epoch, samples, fresh, echoed, mine.changes_plan};
  group_->all_reduce(std::span<int64_t>(sums));
  return {sums[0] > 0, {sums[1], sums[2], sums[3]}, sums[4] > 0};
}

void Ranks::check_alike(int64_t fingerprint) {
  const auto parts = static_cast<size_t>(mesh_.shape().data);
  const auto at = static_cast<size_t>(mesh_.coordinates().data);
  std::vector<int64_t> most(2 * parts, std::numeric_limits<int64_t>::min());
  most[at] = fingerprint;
  most[parts + at] = ~fingerprint;  // the largest complement is that of the least fingerprint
  group_->all_reduce(std::span<int64_t>(most), exchange::Reduction::max);
  for (size_t part = 0; part < parts; ++part)
    if (most[part] != ~most[parts + part])
      fail(Code::state, "the stages of the model have different batches (part ", part,
           " of the data): their pipelines must give the same samples in the same order, so let "
           "nothing in them depend on the clock");
}

// The other ranks of an elastic run go on without one that fails.
EvalMetrics Ranks::evaluate(const std::function<EvalMetrics()>& evaluate) {
  EvalMetrics mine;
  std::optional<Error> failure;
  // Only what `evaluate` throws: after an error of work_apart() ranks no longer meet.
  work_apart([&] {
    try {
      mine = evaluate();
    } catch (const Error& error) {
      if (error.code() != Code::cancelled && is_elastic()) throw;
      if (error.code() == Code::rank_lost) {  // maybe only to some ranks, which share a model
        abort(error.what());
        throw;
      }
      failure = error;
    }
  });
  const bool stopped = failure && failure->code() == Code::cancelled, failed = failure && !stopped;
  if (failure || !has_results()) mine = {};
  std::array<double, 6> sums{
      stopped ? 1.0 : 0.0, failed ? 1.0 : 0.0,      static_cast<double>(mine.samples),
      mine.weight,         mine.loss * mine.weight, mine.accuracy * mine.weight};
  group_->all_reduce(std::span<double>(sums));
  std::vector<std::string> reasons;  // a code and a text each
  if (sums[1] > 0)
    reasons = gather(failed ? static_cast<char>(failure->code()) + std::string(failure->what())
                            : std::string());
  if (failure) throw Error(*failure);
  for (size_t rank = 0; rank < reasons.size(); ++rank)
    if (const std::string& reason = reasons[rank]; !reason.empty())
      fail(static_cast<Code>(static_cast<signed char>(reason[0])), "rank ", rank,
           " ended the evaluation: ", reason.substr(1));
  if (sums[0] > 0) fail(Code::cancelled, "the evaluation was stopped on another rank");
  EvalMetrics all{.samples = static_cast<int64_t>(sums[2]), .weight = sums[3]};
  if (all.weight == 0) return all;
  all.loss = sums[4] / all.weight;
  all.accuracy = sums[5] / all.weight;
  return all;
}

Ranks::Ranks(const Elastic& elastic) : elastic_(elastic) {
  exchange::World& world = elastic_.world;
  succession_ = std::make_unique<exchange::Succession>(
      exchange::open_store(world, world.rank == 0 && !elastic.joins), world.name, world.timeout_s);
  if (elastic.joins) {
    enter(succession_->join(elastic.join_timeout_s));
  } else {
    form(world);
    succession_->begin(gather(succession_->id()));
  }
}

Ranks::~Ranks() = default;

uint64_t Ranks::bytes() const { return before_ + (group_ ? group_->bytes() : 0); }

void Ranks::leave_group() {
  before_ = bytes();
  group_.reset();
}

void Ranks::enter(const exchange::Succession::Place& place) {
  leave_group();
  exchange::World world = elastic_.world;
  world.name = place.group;
  world.rank = place.rank;
  world.size = place.size;
  form(world);
}

void Ranks::form(const exchange::World& world) {
  group_.emplace(exchange::open_group(world));
  mesh_ = parallel::Mesh({}, rank(), size());
}

// An error that has crossed threads may have lost its list of ranks, but the dead group still has
// it.
std::vector<int> Ranks::missing(const Error& lost) {
  if (const auto* known = dynamic_cast<const exchange::RankLost*>(&lost)) return known->missing();
  try {
    if (group_) group_->barrier();
  } catch (const exchange::RankLost& again) {
    return again.missing();
  }
  throw Error(lost);
}

void Ranks::regroup(std::vector<int> missing) {
  for (int attempt = 1;; ++attempt) {
    leave_group();
    const auto place = succession_->succeed(missing, elastic_.min_ranks);
    try {
      return enter(place);
    } catch (const exchange::RankLost& again) {  // another rank was lost meanwhile
      if (attempt == kMostAttempts) throw;
      missing = again.missing();
    }
  }
}

bool Ranks::first_says(bool own) { return share(uint64_t{own}) != 0; }

int Ranks::newcomers() {
  if (leads()) waiting_ = succession_->newcomers();
  return static_cast<int>(share(waiting_.size()));
}

void Ranks::admit() {
  if (leads()) succession_->admit(waiting_);
  waiting_.clear();
  const auto place = succession_->follow();
  try {
    enter(place);
  } catch (const exchange::RankLost& lost) {
    regroup(lost.missing());
  }
}

void Ranks::end() {
  if (succession_ && leads()) succession_->end();
}

uint64_t Ranks::share(uint64_t number) {
  group_->broadcast(std::as_writable_bytes(std::span(&number, 1)), 0);
  return number;
}

std::string Ranks::share(std::string text) {
  text.resize(share(text.size()));
  group_->broadcast(bytes_of(text), 0);
  return text;
}

void Ranks::check_said_by_all(const std::string& what) {
  const std::vector<std::string> all = gather(what);
  for (size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all.front())
      fail(Code::invalid_argument, "rank 0 sets ", all.front(), ", and rank ", rank, " sets ",
           all[rank], ": all ranks must make the same call between the same steps");
}

std::vector<std::string> Ranks::gather(const std::string& text) {
  std::vector<uint64_t> sizes(static_cast<size_t>(size()));
  const uint64_t own = text.size();
  group_->all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(sizes)));
  uint64_t total = 0;
  for (const uint64_t bytes : sizes) total += bytes;
  std::string all(total, '\0');
  group_->all_gather(std::as_bytes(std::span(text)), sizes, bytes_of(all));
  std::vector<std::string> out;
  for (uint64_t at = 0; const uint64_t bytes : sizes) {
    out.push_back(all.substr(at, bytes));
    at += bytes;
  }
  return out;
}

checkpoint::Loaded Ranks::share(const std::function<checkpoint::Loaded()>& load) {
  checkpoint::Loaded loaded;
  Json contents;
  work_apart([&] {
    if (leads()) loaded = load();
  });
  if (leads()) {
    contents = {{"step", loaded.step}, {"path", loaded.path}, {"files", Json::object()}};
    for (const auto& [name, bytes] : loaded.files) contents["files"][name] = bytes.size();
  }
  contents = parse_json(share(contents.dump()), "the first rank's checkpoint");
  loaded.step = contents["step"];
  loaded.path = contents["path"];
  for (const auto& [name, bytes] : contents["files"].items()) {
    std::vector<std::byte>& file = loaded.files[name];
    file.resize(bytes);
    // In pieces, each of which has the whole time-out: a file may take longer on a slow network.
    constexpr size_t kPiece = size_t{64} << 20;
    for (size_t at = 0; at < file.size(); at += kPiece)
      group_->broadcast(std::span(file).subspan(at, std::min(kPiece, file.size() - at)), 0);
  }
  return loaded;
}

namespace {

std::optional<exchange::World> launched_world() {
  return exchange::world_from(variable_of_process);
}

bool says_rank(const Options& own) { return own.integer("rank") >= 0 && own.integer("size") > 0; }

// Ranks that continue after a loss need a place to meet, and a checkpoint.
void check_elastic(const Job& job, const exchange::World& world) {
  const auto needs = [](const auto&... what) {
    fail(Code::invalid_argument, "parallel.elastic needs ", what...);
  };
  if (job.mesh().pipeline * job.mesh().tensor != 1)
    needs("the whole model on each rank, but parallel.mesh divides it");
  if (world.engine != "gloo")
    needs("the engine gloo: under '", world.engine, "' all ranks end with one of them");
  if (job.output_dir().value_or("").empty())
    needs("an output.dir that all ranks see: the remaining ranks continue from a checkpoint");
  if (job.output().integer("checkpoint_every_steps") == 0 &&
      job.output().integer("checkpoint_every_epochs") == 0)
    needs("checkpoints to continue from: set output.checkpoint_every_steps or _epochs");
}

// One rank reports for all that a launcher started; a rank started by hand has its own terminal.
std::string wait_text(const Options& own, const exchange::World& world) {
  const bool says = world.rank == 0 || says_rank(own);
  if (!says || world.size < 2 || world.rendezvous.empty()) return "";
  return cat("waits for the other ranks, ", world.size, " in all, at ", world.rendezvous, ", for ",
             world.timeout_s, " s at most");
}

}  // namespace

bool has_processes(const Job& job) {
  return job.parallel() && !is_alone(*job.parallel()) &&
         (says_rank(*job.parallel()) || launched_world());
}

exchange::World world_of(const Options& own) {
  exchange::World world = launched_world().value_or(exchange::World{.rank = -1, .size = 0});
  if (says_rank(own)) {
    world.rank = static_cast<int>(own.integer("rank"));
    world.size = static_cast<int>(own.integer("size"));
  }
  const auto take = [&](std::string& to, const char* option) {
    if (!own.string(option).empty()) to = own.string(option);
  };
  take(world.engine, "engine");
  take(world.rendezvous, "rendezvous");
  take(world.host, "host");
  take(world.interface, "interface");
  world.timeout_s = own.number("timeout");
  return world;
}

std::unique_ptr<Ranks> join_ranks(const Job& job, int device, int devices) {
  if (!job.parallel() || uses_servers(job)) return nullptr;
  const Options& own = *job.parallel();
  // One that joins is given its rank by the others.
  const bool joins =
      own.boolean("elastic") && (own.boolean("join") || is_told_to_join(variable_of_process));
  const bool has = joins || has_processes(job);
  if (own.boolean("elastic") && !own.strings("devices").empty())
    fail(Code::unsupported,
         "parallel.elastic needs a process for each device, and parallel.devices has several in "
         "one");
  if (!has && (is_alone(own) || !own.strings("devices").empty())) return nullptr;
  if (!has) fail_without_rank(own);
  exchange::World world = world_of(own);
  check_world(own, world);
  if (devices > 1 && world.engine != "gloo")
    fail(Code::unsupported, "parallel.devices names ", devices,
         " devices, each of which is a rank, and the engine '", world.engine,
         "' has one rank per process: use gloo (parallel.engine and parallel.rendezvous), "
         "or start a process for each device");
  world.rank = world.rank * devices + device;
  world.size *= devices;
  if (!own.boolean("elastic")) {
    const LongWait wait(wait_text(own, world));
    return std::make_unique<Ranks>(exchange::open_group(world));
  }
  const Ranks::Elastic elastic{world, static_cast<int>(own.integer("min_ranks")), joins,
                               own.number("join_timeout")};
  check_elastic(job, world);
  const LongWait wait(elastic.joins ? cat("waits to join the run at ", world.rendezvous,
                                          ", which admits new ranks at the end of an epoch")
                                    : wait_text(own, world));
  return std::make_unique<Ranks>(elastic);
}

}  // namespace etr::train
