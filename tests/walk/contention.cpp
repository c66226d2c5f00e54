// Steps in which several threads use a handle, or one thread ends what another one waits for.
#include <array>
#include <thread>

#include "world.h"

namespace walk {
namespace {

// A call on a thread of its own, which is to end when something happens on this one.
class Waiting {
 public:
  Waiting(Walk& walk, const char* function, Codes allowed, std::function<int32_t()> body)
      : walk_(walk), function_(function), thread_([this, allowed, call = std::move(body)] {
          walk_.call(function_, "waits", allowed, [&] {
            began_ = true;
            return call();
          });
          ended_ = true;
        }) {}
  ~Waiting() { thread_.join(); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  // Returns when the call has begun, and probably waits.
  void begins() const {
    while (!began_) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  bool ended() const { return ended_; }
  void ends_soon() const {
    walk_.soon((std::string("the end of ") + function_).c_str(), [&] { return ended_.load(); });
  }

 private:
  Walk& walk_;
  const char* const function_;
  std::atomic<bool> began_{false}, ended_{false};
  std::thread thread_;  // last: it uses the members above
};

// Makes a call again that collided with one of another thread, which is about to look whether this
// one waits.
int32_t retried(const std::function<int32_t()>& body) {
  int32_t status = ETR_STATE;
  while (status == ETR_STATE) {
    status = body();
    if (status == ETR_STATE) Walk::called_within();
  }
  return status;
}

// `wait` waits on a thread of its own, until `end` stops or destroys its handle. `other` is another
// call on the handle, which is refused once the first one has it.
void end_while_waiting(Walk& walk, const char* function, Codes allowed,
                       const std::function<int32_t()>& wait, const std::function<int32_t()>& other,
                       const std::function<void()>& end) {
  const Waiting waiting(walk, function, allowed, [&] { return retried(wait); });
  walk.soon((std::string(function) + " of another thread").c_str(),
            [&] { return other() == ETR_STATE || waiting.ended(); });
  end();
  waiting.ends_soon();
}

// A pipeline whose source waits until it is let go.
struct Stalled {
  std::unique_ptr<Pipeline> pipeline;
  StageFunction* source = nullptr;
};

Stalled stalled_pipeline(Walk& walk) {
  Stalled out;
  while (!out.pipeline) out.pipeline = new_pipeline(walk, "{\"epochs\": 1, \"threads\": 2}");
  out.source = add_source(walk, *out.pipeline, 8, 0);
  add_stage(walk, *out.pipeline, "batch", "{\"size\": 4}");
  out.source->close_gate();
  return out;
}

void use_while_busy(Walk& walk, etr_pipeline* pipeline) {
  etr_batch* batch = nullptr;
  char* text = nullptr;
  switch (walk.random.below(4)) {
    case 0:
      walk.call("etr_pipeline_next", "in use by another thread", kState,
                [&] { return etr_pipeline_next(pipeline, &batch); });
      break;
    case 1:
      walk.call("etr_pipeline_wait", "in use by another thread", kState,
                [&] { return etr_pipeline_wait(pipeline, 0); });
      break;
    case 2:
      walk.call("etr_pipeline_save", "in use by another thread", kState,
                [&] { return etr_pipeline_save(pipeline, &text); });
      break;
    default:
      walk.call("etr_pipeline_stats", "in use by another thread", kOk,
                [&] { return etr_pipeline_stats(pipeline, &text); });
      etr_string_free(text);
  }
}

// Its source still waits when the cancelled call returns.
void cancel_a_reader(Walk& walk) {
  const Stalled stalled = stalled_pipeline(walk);
  etr_pipeline* const pipeline = stalled.pipeline->handle.get();
  etr_batch* batch = nullptr;
  const bool reads = walk.random.one_in(2);
  {
    const Waiting reader(
        walk, reads ? "etr_pipeline_next" : "etr_pipeline_wait", reads ? kCancelled : kOk, [&] {
          return reads ? etr_pipeline_next(pipeline, &batch) : etr_pipeline_wait(pipeline, 1e6);
        });
    walk.soon("a call of the source", [&] { return stalled.source->waits(); });
    reader.begins();
    use_while_busy(walk, pipeline);
    walk.call("etr_pipeline_cancel", "under a reader", kOk,
              [&] { return etr_pipeline_cancel(pipeline); });
    reader.ends_soon();
  }
  walk.call("etr_pipeline_next", "cancelled", kCancelled,
            [&] { return etr_pipeline_next(pipeline, &batch); });
  stalled.source->open_gate();
}

void destroy_under_a_reader(Walk& walk) {
  const Stalled stalled = stalled_pipeline(walk);
  etr_pipeline* const pipeline = stalled.pipeline->handle.get();
  stalled.pipeline->handle.forget();
  etr_batch* batch = nullptr;
  // A batch may come before the other thread has begun to destroy the pipeline.
  const Waiting reader(walk, "etr_pipeline_next", kCancelled | kOk,
                       [&] { return etr_pipeline_next(pipeline, &batch); });
  walk.soon("a call of the source", [&] { return stalled.source->waits(); });
  std::thread destroyer(
      [&] { walk.call_void("etr_pipeline_destroy", [&] { etr_pipeline_destroy(pipeline); }); });
  std::this_thread::sleep_for(std::chrono::milliseconds(walk.random.below(5)));
  stalled.source->open_gate();
  reader.ends_soon();
  destroyer.join();
  if (batch) walk.call_void("etr_batch_destroy", [&] { etr_batch_destroy(batch); });
}

// By a function of the pipeline itself, while the program reads.
void destroy_within_a_function(Walk& walk) {
  const Stalled stalled = stalled_pipeline(walk);
  etr_pipeline* const pipeline = stalled.pipeline->handle.get();
  stalled.pipeline->handle.forget();
  etr_batch* batch = nullptr;
  const Waiting reader(walk, "etr_pipeline_next", kCancelled,
                       [&] { return etr_pipeline_next(pipeline, &batch); });
  walk.soon("a call of the source", [&] { return stalled.source->waits(); });
  stalled.source->destroys = pipeline;
  stalled.source->open_gate();
  reader.ends_soon();
}

void cancel_an_evaluation(Walk& walk) {
  Trainer* const record = walk.world->trainers.any(walk.random);
  if (!record || record->odd) return;
  const Stalled stalled = stalled_pipeline(walk);
  etr_trainer* const trainer = record->handle.get();
  const bool destroys = walk.random.one_in(4);
  etr_eval_result result{};
  result.struct_size = sizeof result;
  {
    const Waiting evaluation(walk, "etr_trainer_evaluate", kCancelled, [&] {
      return etr_trainer_evaluate(trainer, stalled.pipeline->handle.get(), &result);
    });
    walk.soon("a call of the source", [&] { return stalled.source->waits(); });
    etr_batch* outputs = nullptr;
    walk.call("etr_trainer_get_weights", "in use by another thread", kState,
              [&] { return etr_trainer_get_weights(trainer, nullptr, &outputs); });
    if (destroys) walk.call_void("etr_trainer_destroy", [&] { etr_trainer_destroy(trainer); });
    walk.call("etr_pipeline_cancel", "under an evaluation", kOk,
              [&] { return etr_pipeline_cancel(stalled.pipeline->handle.get()); });
    evaluation.ends_soon();
  }
  stalled.source->open_gate();
  if (!destroys) return;
  record->handle.forget();
  walk.world->trainers.take(record);
}

// A run without data ends all the same, in whatever call it waits for them.
void stop_a_run(Walk& walk) {
  const auto job = parse_job(walk, true, false, walk.random.one_in(4) ? 2 : 1, "");
  auto run = start_run(walk, *job, ETR_START_NEW, kOk);
  if (!run) return;
  etr_run* const raw = run->handle.get();
  const bool destroys = walk.random.one_in(2);
  etr_event event{};
  event.struct_size = sizeof event;
  end_while_waiting(
      walk, "etr_run_next_event_within", kOk,
      [&] { return etr_run_next_event_within(raw, 1e6, &event); },
      [&] {
        char* text = nullptr;
        const int32_t status = etr_run_pipeline_stats(raw, &text);
        etr_string_free(text);
        return status;
      },
      [&] {
        if (destroys)
          walk.call_void("etr_run_destroy", [&] { etr_run_destroy(raw); });
        else
          walk.call(
              "etr_run_stop", "", kOk, [&] { return etr_run_stop(raw); }, true);
      });
  if (destroys) run->handle.forget();
  if (event.kind != ETR_EVENT_END) walk.trace.fail("a run that was stopped has not ended");
}

void stop_a_server(Walk& walk) {
  Server* const record = walk.world->servers.any(walk.random);
  if (!record || record->stopped) return;
  etr_server* const server = record->handle.get();
  const bool destroys = walk.random.one_in(2);
  end_while_waiting(
      walk, "etr_server_wait", kEnd | kRankLost,
      [&] { return etr_server_wait(server, 1e6, nullptr); },
      [&] { return etr_server_wait(server, 0, nullptr); },
      [&] {
        if (destroys)
          walk.call_void("etr_server_destroy", [&] { etr_server_destroy(server); });
        else
          walk.call("etr_server_stop", "", kOk, [&] { return etr_server_stop(server); });
      });
  record->stopped = true;
  if (!destroys) return;
  record->handle.forget();
  walk.world->servers.take(record);
}

void end_a_study(Walk& walk) {
  Study* const record = walk.world->studies.any(walk.random);
  if (!record || !record->started || record->ended) return;
  etr_study* const study = record->handle.get();
  const bool destroys = walk.random.one_in(2);
  char* event = nullptr;
  end_while_waiting(
      walk, "etr_study_next_event", kOk | kEnd,
      [&] { return etr_study_next_event(study, 1e6, &event); },
      [&] {
        char* other = nullptr;
        const int32_t status = etr_study_next_event(study, 0, &other);
        etr_string_free(other);
        return status;
      },
      [&] {
        if (destroys)
          walk.call_void("etr_study_destroy", [&] { etr_study_destroy(study); });
        else
          walk.call(
              "etr_study_stop", "", kOk, [&] { return etr_study_stop(study); }, true);
      });
  record->ended = !event || std::string(event).find("\"kind\":\"end\"") != std::string::npos;
  etr_string_free(event);
  if (!destroys) return;
  record->handle.forget();
  walk.world->studies.take(record);
}

// Three threads make small calls on one handle: each is served or refused.
void crowd(Walk& walk, const std::function<void(uint64_t)>& body) {
  std::array<std::thread, 3> threads;
  const uint64_t seed = walk.random.below(1u << 30);
  for (size_t i = 0; i < threads.size(); ++i)
    threads[i] = std::thread([&, i] {
      Random random(seed + i);
      for (int j = 0; j < 8; ++j) body(random.below(1000));
    });
  for (std::thread& thread : threads) thread.join();
}

void crowd_a_trainer(Walk& walk) {
  Trainer* const record = walk.world->trainers.any(walk.random);
  if (!record || record->of_run || record->odd || record->may_diverge) return;
  etr_trainer* const trainer = record->handle.get();
  etr_batch* const batch = rows_of(walk, 4)->handle.get();
  crowd(walk, [&](uint64_t number) {
    etr_step_result result{};
    result.struct_size = sizeof result;
    etr_batch* out = nullptr;
    switch (number % 4) {
      case 0:
        walk.call("etr_trainer_step", "of a crowd", kOk | kState,
                  [&] { return etr_trainer_step(trainer, batch); });
        break;
      case 1:
        walk.call("etr_trainer_result", "of a crowd", kOk | kEnd | kState,
                  [&] { return etr_trainer_result(trainer, 1, &result); });
        break;
      case 2:
        walk.call("etr_trainer_predict", "of a crowd", kOk | kState,
                  [&] { return etr_trainer_predict(trainer, batch, &out); });
        break;
      default:
        walk.call("etr_trainer_forward", "of a crowd", kOk | kState,
                  [&] { return etr_trainer_forward(trainer, batch, 0, &out); });
    }
    etr_batch_destroy(out);
  });
  etr_step_result result{};
  result.struct_size = sizeof result;
  while (walk.call("etr_trainer_result", "of a crowd", kOk | kEnd,
                   [&] { return etr_trainer_result(trainer, 1, &result); }) == ETR_OK) {
  }
  record->shaped = record->odd = true;  // nobody knows whether it has an output
  record->untaken = 0;
}

void crowd_a_batch(Walk& walk) {
  etr_batch* const batch = rows_of(walk, 4)->handle.get();
  crowd(walk, [&](uint64_t number) {
    etr_tensor tensor{};
    tensor.struct_size = sizeof tensor;
    const int32_t one = 1;
    const etr_tensor scalar{sizeof scalar, ETR_I32, 0, 0, {}, &one, sizeof one};
    if (number % 2)
      walk.call("etr_batch_get", "of a crowd", kOk | kState,
                [&] { return etr_batch_get(batch, "image", &tensor); });
    else
      walk.call("etr_batch_set", "of a crowd", kOk | kState,
                [&] { return etr_batch_set(batch, "label", &scalar); });
  });
  const std::unique_ptr<Batch> gone = [&] {
    for (const auto& each : walk.world->batches)
      if (each->handle.get() == batch) return walk.world->batches.take(each.get());
    return std::unique_ptr<Batch>();
  }();
}

void crowd_a_pipeline(Walk& walk) {
  auto pipeline = new_pipeline(walk, "{\"epochs\": 1, \"threads\": 2}");
  if (!pipeline) return;
  add_source(walk, *pipeline, 40, 0);
  etr_pipeline* const raw = pipeline->handle.get();
  const bool cancels = walk.random.one_in(2);
  const Codes cancelled = cancels ? kCancelled : 0;
  crowd(walk, [&](uint64_t number) {
    etr_batch* batch = nullptr;
    char* text = nullptr;
    int64_t length = 0;
    switch (number % 6) {
      case 0:
        if (cancels)
          walk.call("etr_pipeline_cancel", "of a crowd", kOk,
                    [&] { return etr_pipeline_cancel(raw); });
        break;
      case 1:
        walk.call("etr_pipeline_stats", "of a crowd", kOk,
                  [&] { return etr_pipeline_stats(raw, &text); });
        break;
      case 2:
        walk.call("etr_pipeline_save", "of a crowd", kOk | kState,
                  [&] { return etr_pipeline_save(raw, &text); });
        break;
      case 3:
        walk.call("etr_pipeline_length", "of a crowd", kOk | kState | cancelled,
                  [&] { return etr_pipeline_length(raw, &length); });
        break;
      default:
        walk.call("etr_pipeline_next", "of a crowd", kOk | kEnd | kState | cancelled,
                  [&] { return etr_pipeline_next(raw, &batch); });
    }
    etr_batch_destroy(batch);
    etr_string_free(text);
  });
}

void crowd_a_runtime(Walk& walk) {
  etr_runtime* const runtime = runtime_of(walk)->handle.get();
  crowd(walk, [&](uint64_t) {
    etr_device_info info{};
    info.struct_size = sizeof info;
    walk.call("etr_runtime_device", "of a crowd", kOk,
              [&] { return etr_runtime_device(runtime, &info); });
  });
}

}  // namespace

const std::vector<Step> kThreadSteps = {{3, cancel_a_reader},
                                        {3, destroy_under_a_reader},
                                        {3, destroy_within_a_function},
                                        {2, cancel_an_evaluation},
                                        {1, stop_a_run},
                                        {2, stop_a_server},
                                        {1, end_a_study},
                                        {1, crowd_a_trainer},
                                        {2, crowd_a_batch},
                                        {2, crowd_a_pipeline},
                                        {1, crowd_a_runtime}};

}  // namespace walk
