// echotrain train, eval, export.
#include <cmath>
#include <cstdio>

#include "console.h"
#include "job.h"
#include "rank.h"
#include "terminal.h"

namespace cli {
namespace {

void print_summary(const etr_event& end) {
  std::printf(
      "%s, %llu examples (%llu fresh, %llu echoed) in %.1f s; device waited %.1f %%\n",
      counted(static_cast<int64_t>(end.step), "step").c_str(),
      static_cast<unsigned long long>(end.examples), static_cast<unsigned long long>(end.fresh),
      static_cast<unsigned long long>(end.echoed), end.seconds, 100 * end.device_wait_share);
}

// Returns whether the job's model has an accuracy: only then does 0 mean that nothing was right.
bool classifies(const Json& job) { return loss_of(job) == "softmax_cross_entropy"; }

// Prints the results of a run. The latest evaluation of an interrupted run may be many steps old.
void print_results(const Json& job, const etr_event& end) {
  const char* when = interrupted() ? "at the latest evaluation: " : "";
  if (end.eval_accuracy > 0 || (end.eval_loss != 0 && classifies(job)))
    std::printf("%stest accuracy %.2f %%, test loss %.4f\n", when, 100 * end.eval_accuracy,
                end.eval_loss);
  else if (end.eval_loss != 0)
    std::printf("%stest loss %.4f\n", when, end.eval_loss);
  if (end.bad_records > 0)
    std::printf("%s left out\n",
                counted(end.bad_records, "bad record was", "bad records were").c_str());
}

// Describes what an interrupted run has kept, and how to continue it.
std::string kept(const RunEnd& end, const Job& job, const std::string& job_file) {
  const std::string at = "at step " + std::to_string(end.event.step), folder = output_dir(job);
  if (folder.empty()) return at + "; nothing is kept, because output.dir is empty";
  if (!end.has_checkpoint)
    return at + "; no checkpoint was written (see output.checkpoint_every_steps and _epochs)";
  return at + ", saved in '" + folder + "/checkpoints'; continue with 'echotrain train " +
         as_word(job_file) + " --resume' (and the same --set)";
}

// Prints the result of a resumed run that was already complete.
void print_complete(const Json& job, const etr_event& end) {
  const int64_t steps = job.value("/train/steps"_json_pointer, int64_t{0}),
                epochs = job.value("/train/epochs"_json_pointer, int64_t{0}),
                fresh = job.value("/train/fresh"_json_pointer, int64_t{0});
  const double seconds = job.value("/train/seconds"_json_pointer, 0.0);
  std::string reached, more;
  const auto add = [&](const std::string& limit, const std::string& setting) {
    reached += (reached.empty() ? "" : ", ") + limit;
    more += " --set " + setting;
  };
  if (end.target_reached)
    for (const std::string name : {"target_accuracy", "target_loss"}) {
      const Json target = job.at("evaluation").value(name, Json(0));
      const bool is_it = name == "target_loss" ? end.eval_loss < target.get<double>()
                                               : end.eval_accuracy >= target.get<double>();
      if (target == 0 || !is_it) continue;
      add("evaluation." + name + " of " + target.dump() + " is reached",
          "evaluation." + name + "=0");
    }
  if (steps > 0 && end.step >= static_cast<uint64_t>(steps))
    add("train.steps is " + std::to_string(steps), "train.steps=" + std::to_string(2 * steps));
  if (epochs > 0 && end.epoch >= static_cast<uint64_t>(epochs))
    add("train.epochs is " + std::to_string(epochs), "train.epochs=" + std::to_string(2 * epochs));
  if (fresh > 0 && end.fresh >= static_cast<uint64_t>(fresh))
    add("train.fresh is " + std::to_string(fresh), "train.fresh=" + std::to_string(2 * fresh));
  if (seconds > 0 && end.seconds >= seconds)
    add("train.seconds are over",
        "train.seconds=" + std::to_string(std::llround(std::ceil(2 * end.seconds))));
  std::printf("the run is complete, at step %llu (%s); to continue training: --resume%s\n",
              static_cast<unsigned long long>(end.step), reached.c_str(), more.c_str());
}

// Prints the speed of ranks that train together, or of a worker, and the cost of their exchanges.
void print_exchange(etr_run* run, const etr_event& end) {
  char* text = nullptr;
  check(etr_run_pipeline_stats(run, &text));
  const Json stats = Json::parse(take_string(text));
  const bool is_worker = stats.contains("worker");
  const Json own = is_worker ? stats["worker"] : stats.value("ranks", Json::object());
  const double steps = own.value("steps", 0.0);
  const int64_t size = own.value("size", int64_t{1});
  if (steps == 0 || end.seconds <= 0 || (!is_worker && size < 2)) return;
  std::printf(is_worker
                  ? "%s: %.0f examples/s over the whole run; exchanged %s a step with the servers\n"
                  : "%s: %.0f examples/s over the whole run; each exchanged %s a step\n",
              is_worker ? "this worker" : counted(size, "rank").c_str(),
              static_cast<double>(end.examples) / end.seconds,
              bytes_text(own.value("bytes", 0.0) / steps).c_str());
}

int32_t start_of(const Arguments& arguments) {
  const bool resume = arguments.flag("resume"), overwrite = arguments.flag("overwrite");
  if (resume && overwrite)
    throw UsageError("--resume continues the earlier run and --overwrite removes it; give one");
  return resume ? ETR_START_RESUME : overwrite ? ETR_START_OVERWRITE : ETR_START_NEW;
}

}  // namespace

int command_train(const Arguments& arguments) {
  leave_output_to_first_rank();
  JobRun started(arguments, start_of(arguments));
  etr_run* const run = started.run.get();
  const std::string folder = output_dir(started.job);
  const Json job = json_of(started.job);
  const bool writes = job.value("/parallel/rank"_json_pointer, int64_t{0}) <= 0;
  std::printf("output: %s%s\n",
              folder.empty() ? "nothing is saved (output.dir is empty)" : folder.c_str(),
              folder.empty() || writes ? "" : ", which rank 0 writes");
  const double seconds = job.value("/train/seconds"_json_pointer, 0.0);
  std::function<void()> follow;
  if (job.value("/parallel/elastic"_json_pointer, false))
    follow = [run] { follow_first_rank(run); };
  const RunEnd end = run_with_progress(run, job.value("name", "job"), seconds, follow);
  if (!end.trained && !interrupted() && arguments.flag("resume"))
    print_complete(job, end.event);
  else
    print_summary(end.event);
  print_exchange(run, end.event);
  if (end.event.step == 0 && seconds > 0 && !interrupted())
    std::fprintf(stderr,
                 "echotrain: train.seconds (%g) were over before the first batch came: nothing "
                 "was trained or saved; raise train.seconds\n",
                 seconds);
  print_results(job, end.event);
  if (interrupted()) throw Interrupted{kept(end, started.job, arguments.operand(0))};
  return 0;
}

int command_eval(const Arguments& arguments) {
  leave_output_to_first_rank();
  JobRun started(arguments, ETR_START_EVALUATE);
  etr_run* const run = started.run.get();
  struct Shown {
    ProgressLine line;
    double began = now_seconds();
  } shown;
  const auto show = [](void* user_data, int64_t done, int64_t batches) -> int32_t {
    auto& s = *static_cast<Shown*>(user_data);
    s.line.show(progress_text("evaluating", done, batches, now_seconds() - s.began));
    return 1;
  };
  check(etr_run_on_evaluation(run, show, &shown, nullptr));
  etr_eval_result result{};
  result.struct_size = sizeof result;
  const InterruptGuard guard(run);
  const int32_t status = etr_run_evaluate(run, &result);
  shown.line.erase();
  if (status == ETR_CANCELLED) throw Interrupted{};
  check(status);
  std::printf("%s: ", counted(result.samples, "sample").c_str());
  if (result.accuracy > 0 || classifies(json_of(started.job)))
    std::printf("accuracy %.2f %%, ", 100 * result.accuracy);
  std::printf("loss %.4f\n", result.loss);
  return 0;
}

int command_export(const Arguments& arguments) {
  const std::string& path = arguments.operand(1);
  JobRun started(arguments, ETR_START_EVALUATE);
  Trainer trainer;
  trainer_of(started.run, trainer);
  check(etr_trainer_export_onnx(trainer.get(), path.c_str()));
  std::printf("wrote %s\n", path.c_str());
  return 0;
}

}  // namespace cli
