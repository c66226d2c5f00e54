// Runs of jobs, and the functions that treated a run as a trainer.
#include <system_error>
#include <thread>

#include "core/log.h"
#include "forms.h"
#include "handles.h"

using namespace etr;
using namespace etr::capi;

namespace {

etr_event c_event(const train::Event& e) {
  etr_event out{};
  out.kind = static_cast<int32_t>(e.kind);
  out.step = e.step;
  out.epoch = e.epoch;
  out.total_steps = e.total_steps;
  out.seconds = e.seconds;
  out.loss = e.loss;
  out.accuracy = e.accuracy;
  out.learning_rate = e.learning_rate;
  out.examples_per_second = e.examples_per_second;
  out.device_wait_share = e.device_wait_share;
  out.examples = e.examples;
  out.fresh = e.fresh;
  out.echoed = e.echoed;
  out.bad_records = e.bad_records;
  out.eval_loss = e.eval_loss;
  out.eval_accuracy = e.eval_accuracy;
  out.target_reached = e.target_reached;
  return out;
}

std::shared_ptr<RunningJob> started(etr_runtime* runtime, const etr_job* job, int32_t start,
                                    std::unique_ptr<train::Ranks> ranks = nullptr) {
  if (start < ETR_START_NEW || start > ETR_START_TRIAL)
    fail(Code::invalid_argument, "argument 'start' is ", start, "; it takes ETR_START_NEW (",
         ETR_START_NEW, ") to ETR_START_TRIAL (", ETR_START_TRIAL, ")");
  const train::Job& spec = required(job, "job").job;
  const etr_runtime& device = shared(runtime, "runtime");
  return std::make_shared<RunningJob>(std::make_unique<train::Team>(
      device.kernels, spec, static_cast<train::Start>(start), std::move(ranks), device.open));
}

// `engine` is the library's from this call on.
std::shared_ptr<RunningJob> started_with_engine(etr_runtime* runtime, const etr_job* job,
                                                int32_t start, const etr_engine* engine) {
  exchange::Group group(required(engine, "engine"));
  const auto& section = required(job, "job").job.parallel();
  if (section) group.set_timeout(section->number("timeout"));
  return started(runtime, job, start, std::make_unique<train::Ranks>(std::move(group)));
}

void hand_out_run(etr_run** run, std::shared_ptr<RunningJob> running) {
  auto made = std::make_unique<etr_run>();
  made->running = std::move(running);
  hand_out(run, std::move(made), "run");
}

void hand_out_trainer(etr_trainer** trainer, std::shared_ptr<RunningJob> running, bool is_run) {
  auto made = std::make_unique<etr_trainer>();
  made->running = std::move(running);
  made->is_run = is_run;
  hand_out(trainer, std::move(made), "trainer");
}

// The run of a trainer that etr_trainer_start_job has made.
RunningJob& run_of(etr_trainer* trainer) {
  etr_trainer& t = required(trainer, "trainer");
  if (!t.is_run) fail(Code::state, "this trainer runs no job; start a run with etr_run_start");
  return *t.running;
}

int32_t next_event(RunningJob& run, double seconds, etr_event* event) {
  if (!(seconds >= 0 && seconds <= 1e6))
    fail(Code::invalid_argument, "seconds is ", seconds, "; expected 0 to 1e6");
  checked_size(event);
  if (run.ended) return ETR_END;
  const train::Event e = run.team->next_event(seconds);
  fill_struct(event, c_event(e));
  run.ended = e.kind == train::EventKind::end;
  return ETR_OK;
}

// Inside a function of a run's transport, ending the run would wait for that very function.
template <typename Work>
void outside_of_engines(Work work) {
  if (!exchange::in_engine()) return work();
  try {
    std::thread(work).detach();
  } catch (const std::system_error&) {
    log_line(LogLevel::error, "no thread to end a run on; its memory is lost");
  }
}

}  // namespace

void etr::capi::end(etr_trainer* trainer) {
  outside_of_engines([trainer] { delete trainer; });
}

void etr::capi::end(etr_run* run) {
  outside_of_engines([run] {
    RunningJob& running = *run->running;
    const bool has_trainers = run->running.use_count() > 1;
    if (has_trainers && running.occupancy.destroy()) close(running);  // or a trainer's call does it
    delete run;
  });
}

void etr::capi::close(RunningJob& running) noexcept {
  running.team->close();
  running.occupancy.reopen();
}

int32_t etr_run_start(etr_runtime* runtime, const etr_job* job, int32_t start, etr_run** run) {
  return guarded([&] {
    required(run, "run");  // first: a run that nobody gets would leave a folder
    hand_out_run(run, started(runtime, job, start));
  });
}

int32_t etr_run_start_with_engine(etr_runtime* runtime, const etr_job* job, int32_t start,
                                  const etr_engine* engine, etr_run** run) {
  return guarded([&] { hand_out_run(run, started_with_engine(runtime, job, start, engine)); });
}

int32_t etr_run_next_event(etr_run* run, etr_event* event) {
  return etr_run_next_event_within(run, 0, event);
}

int32_t etr_run_next_event_within(etr_run* run, double seconds, etr_event* event) {
  return guarded([&] { return next_event(*required(run, "run").running, seconds, event); });
}

int32_t etr_run_stop(etr_run* run) {
  if (!run) return ETR_INVALID_ARGUMENT;  // no message, no handle entered: signal handlers
  run->running->team->stop();
  return ETR_OK;
}

int32_t etr_run_evaluate(etr_run* run, etr_eval_result* result) {
  return guarded([&] {
    checked_size(result);
    fill_result(result, required(run, "run").running->team->evaluate());
  });
}

int32_t etr_run_on_evaluation(etr_run* run,
                              int32_t (*progress)(void* user_data, int64_t done, int64_t batches),
                              void* user_data, void (*destroy)(void*)) {
  return guarded([&] {
    const std::shared_ptr<void> guard = owned(user_data, destroy);
    required(run, "run").running->team->on_evaluation(progress_of(progress, guard));
  });
}

int32_t etr_run_profile(etr_run* run, int32_t steps, const char* format, char** text) {
  return guarded([&] {
    train::Team& team = *required(run, "run").running->team;
    required(text, "text");
    hand_out(text, profile_as(format, steps, [&] { return team.profile(steps); }), "text");
  });
}

int32_t etr_run_pipeline_stats(etr_run* run, char** json) {
  return guarded(
      [&] { hand_out(json, required(run, "run").running->team->pipeline_stats().dump(), "json"); });
}

int32_t etr_run_trainer(etr_run* run, etr_trainer** trainer) {
  return guarded([&] { hand_out_trainer(trainer, required(run, "run").running, false); });
}

void etr_run_destroy(etr_run* run) {
  if (!run) return;
  guarded([&] {
    // The last call to leave ends the run: this one, or one that stopping ends.
    RunningJob& running = *any_thread(run, "run").running;
    run->occupancy.destroy();
    if (run->occupancy.has_others() || running.occupancy.has_others()) running.team->stop();
  });
}

// Deprecated functions, which the next version will not have.

int32_t etr_trainer_start_job(etr_runtime* runtime, const etr_job* job, int32_t start,
                              etr_trainer** trainer) {
  return guarded([&] {
    required(trainer, "trainer");
    hand_out_trainer(trainer, started(runtime, job, start), true);
  });
}

int32_t etr_trainer_create_from_job(etr_runtime* runtime, const etr_job* job, int32_t resume,
                                    etr_trainer** trainer) {
  const int32_t start = resume ? ETR_START_RESUME : ETR_START_NEW;
  return guarded([&] {
    required(trainer, "trainer");
    hand_out_trainer(trainer, started(runtime, job, start), true);
  });
}

int32_t etr_trainer_start_job_over(etr_runtime* runtime, const etr_job* job, int32_t start,
                                   const etr_engine* engine, etr_trainer** trainer) {
  return guarded(
      [&] { hand_out_trainer(trainer, started_with_engine(runtime, job, start, engine), true); });
}

int32_t etr_trainer_next_event(etr_trainer* trainer, etr_event* event) {
  return guarded([&] { return next_event(run_of(trainer), 0, event); });
}

int32_t etr_trainer_next_event_within(etr_trainer* trainer, double seconds, etr_event* event) {
  return guarded([&] { return next_event(run_of(trainer), seconds, event); });
}

int32_t etr_trainer_stop(etr_trainer* trainer) {
  if (!trainer || !trainer->is_run) return ETR_INVALID_ARGUMENT;  // see etr_run_stop
  trainer->running->team->stop();
  return ETR_OK;
}

int32_t etr_trainer_pipeline_stats(etr_trainer* trainer, char** json) {
  return guarded([&] { hand_out(json, run_of(trainer).team->pipeline_stats().dump(), "json"); });
}
