// Steps on runtimes and trainers.
#include <cmath>
#include <cstdlib>

#include "world.h"

namespace walk {
namespace {

// What a trainer may answer besides the usual: it is of no use, or not what the batches are for.
Codes with_odds(const Trainer* trainer, Codes allowed) {
  if (!trainer) return allowed;
  if (trainer->odd) allowed |= kInvalid | kNotFound | kUnsupported;
  if (trainer->may_diverge) allowed |= kNotFinite;
  if (trainer->of_run) allowed |= kState | kRankLost;  // several ranks may have failed
  return allowed;
}

// What a call that needs the shapes of a batch may return.
Codes when_shaped(const Trainer* trainer) {
  if (!trainer) return kOk;
  // Without a step yet, a run that was stopped waits for no batch any more.
  if (trainer->run_stopped && *trainer->run_stopped) return kOk | kCancelled;
  if (trainer->shaped) return kOk;
  return trainer->may_be_shaped ? kOk | kState : kState;
}

// A batch to give to a trainer: rows that fit, or anything else.
struct Given {
  Batch* record = nullptr;
  etr_batch* batch = nullptr;
  bool fits = false;
  bool may_have_nan = false;
};

Given batch_to_give(Walk& walk) {
  Given out;
  if (walk.random.one_in(4)) {  // from anywhere
    out.record = walk.world->batches.any(walk.random);
    out.batch = walk.handle(out.record);
    out.may_have_nan = true;
    return out;
  }
  out.record = rows_of(walk, walk.random.between(1, 6));
  if (walk.random.one_in(12)) {
    set_rows(walk, out.record->handle.get(), 3, true);
    out.record->fields = {{"image", {ETR_F32, {3, 6}, false}}, {"label", {ETR_I32, {3}, false}}};
    out.may_have_nan = true;
  }
  out.batch = out.record->handle.get();
  out.fits = true;
  return out;
}

constexpr Codes kUnfit = kInvalid | kNotFound | kUnsupported | kState;

Codes takes(const Given& given, const Trainer* trainer, Codes allowed) {
  if (!given.fits) allowed |= kUnfit;
  return Walk::needs(given.batch, with_odds(trainer, allowed));
}

void create_runtime(Walk& walk) {
  etr_runtime_options options{};
  options.struct_size = sizeof options;
  options.device = walk.random.of<const char*>({"no such device", "1000", "-1"});
  Codes allowed = kNoDevice | kInvalid;
  const std::string rows = walk.folder + "/rows.jsonl";
  switch (walk.random.below(4)) {
    case 0:
      options.kernels = 17;
      allowed = kInvalid;
      break;
    case 1:
      options.struct_size = 0;
      allowed = kInvalid;
      break;
    case 2:
      options.device = std::getenv("ECHOTRAIN_TEST_DEVICE");
      options.tuning = walk.random.of<const char*>({"/proc/nowhere.json", rows.c_str()});
      allowed = kNotFound | kCorrupt | kInvalid;
      break;
    default: break;
  }
  walk.made<etr_runtime>("etr_runtime_create", "wrong options", allowed,
                         [&](etr_runtime** out) { return etr_runtime_create(&options, out); });
}

void create_shared_runtime(Walk& walk) {
  etr_vulkan_device device{};
  device.struct_size = walk.random.of<uint32_t>({0, sizeof device});
  const etr_vulkan_device* const given = walk.random.one_in(3) ? nullptr : &device;
  walk.made<etr_runtime>(
      "etr_runtime_create_shared", "no handles", kInvalid,
      [&](etr_runtime** out) { return etr_runtime_create_shared(given, nullptr, out); });
}

void describe_runtime(Walk& walk) {
  etr_runtime* const runtime = walk.handle(walk.world->runtimes.any(walk.random));
  walk.filled<etr_device_info>(
      "etr_runtime_device", "", Walk::needs(runtime, kOk),
      [&](etr_device_info* out) { return etr_runtime_device(runtime, out); });
}

struct Tuning {
  Walk& walk;
  etr_runtime* runtime;
  etr_model* model;
  etr_optimizer* optimizer;

  static int32_t progress(void* self, int64_t, int64_t, const char*, const char*) {
    const auto& mine = *static_cast<Tuning*>(self);
    etr_trainer* trainer = nullptr;
    mine.walk.call("etr_trainer_create", "on a runtime that is tuned", kState | kInvalid, [&] {
      return etr_trainer_create(mine.runtime, mine.model, mine.optimizer, 1, 0, &trainer);
    });
    return 0;
  }
};

void tune_runtime(Walk& walk) {
  etr_runtime* const runtime = walk.handle(walk.world->runtimes.any(walk.random));
  Tuning tuning{walk, runtime, walk.handle(walk.world->models.any(walk.random)),
                walk.handle(walk.world->optimizers.any(walk.random))};
  const std::string path = walk.folder + "/tuning.json", rows = walk.folder + "/rows.jsonl";
  const char* const file = walk.random.of<const char*>({path.c_str(), "", rows.c_str()});
  walk.call("etr_runtime_tune", file,
            Walk::needs(runtime, file == path.c_str() ? kOk : kInvalid | kCorrupt),
            [&] { return etr_runtime_tune(runtime, file, Tuning::progress, &tuning); });
}

void create_trainer(Walk& walk) {
  etr_runtime* const runtime = walk.random.one_in(40) ? nullptr : runtime_of(walk)->handle.get();
  Model* const model_record = walk.world->models.any(walk.random);
  etr_model* const model = walk.handle(model_record);
  etr_optimizer* const optimizer = walk.handle(walk.world->optimizers.any(walk.random));
  const bool trains = model_record && model_record->trains;
  const Codes allowed = trains ? kOk : kOk | kInvalid | kNotFound | kUnsupported;
  const auto steps = walk.random.of<int64_t>({0, 10, -1});
  etr_trainer* const made = walk.made<etr_trainer>(
      "etr_trainer_create", std::to_string(steps),
      Walk::needs(runtime, Walk::needs(model, Walk::needs(optimizer, steps < 0 ? allowed | kInvalid
                                                                               : allowed))),
      [&](etr_trainer** out) {
        return etr_trainer_create(runtime, model, optimizer, 1, steps, out);
      });
  if (!made) return;
  auto record = std::unique_ptr<Trainer>(
      new Trainer{{walk, made, "etr_trainer_destroy", etr_trainer_destroy}});
  record->odd = !trains;
  walk.world->trainers.add(walk.random, std::move(record));
}

Codes own(const Trainer* trainer, Codes allowed) {
  return trainer && trainer->of_run ? kState | (allowed & kInvalid) : allowed;
}

void step(Walk& walk) {
  Trainer* const record = walk.world->trainers.any(walk.random);
  etr_trainer* const trainer = walk.handle(record);
  for (uint64_t i = walk.random.below(4); i < 4; ++i) {
    const Given given = batch_to_give(walk);
    if (record && given.may_have_nan) record->may_diverge = true;
    const int32_t status = walk.call("etr_trainer_step",
                                     !given.fits          ? "any batch"
                                     : given.may_have_nan ? "NaN"
                                                          : "rows",
                                     Walk::needs(trainer, own(record, takes(given, record, kOk))),
                                     [&] { return etr_trainer_step(trainer, given.batch); });
    if (record && status != ETR_OK) record->may_be_shaped = true;
    if (status != ETR_OK) continue;
    record->shaped = true;
    record->has_gradients = false;
    ++record->untaken;
    if (!given.fits) record->odd = true;
  }
}

void result(Walk& walk) {
  Trainer* const record = walk.world->trainers.any(walk.random);
  etr_trainer* const trainer = walk.handle(record);
  const bool waits = walk.random.one_in(2);
  Codes allowed = kOk | kEnd;
  if (record && record->untaken == 0) allowed = kEnd;
  int32_t status = ETR_INTERNAL;
  walk.filled<etr_step_result>(
      "etr_trainer_result", std::to_string(waits),
      Walk::needs(trainer, own(record, with_odds(record, allowed))),
      [&](etr_step_result* out) { return status = etr_trainer_result(trainer, waits, out); });
  if (!trainer) return;
  if (status == ETR_OK) --record->untaken;
  if (status == ETR_NOT_FINITE) record->untaken = 0;
  if (status == ETR_END && waits) record->untaken = 0;
}

void forward(Walk& walk) {
  Trainer* const record = walk.world->trainers.any(walk.random);
  etr_trainer* const trainer = walk.handle(record);
  const Given given = batch_to_give(walk);
  const bool gives_inputs = walk.random.one_in(2);
  const Codes allowed = own(record, takes(given, record, kOk | kUnsupported));
  int32_t status = ETR_INTERNAL;
  etr_batch* const outputs = walk.made<etr_batch>(
      "etr_trainer_forward", std::to_string(gives_inputs), Walk::needs(trainer, allowed),
      [&](etr_batch** out) {
        return status = etr_trainer_forward(trainer, given.batch, gives_inputs, out);
      });
  if (trainer && !record->of_run && status != ETR_INTERNAL)  // what was computed is gone
    record->has_output = outputs != nullptr;
  if (record && !outputs) record->may_be_shaped = true;
  if (!outputs) return;
  record->shaped = true;
  record->gives_inputs = gives_inputs;
  if (!given.fits) record->odd = true;
  if (given.may_have_nan) record->may_diverge = true;
  walk.world->batches.add(walk.random, batch_of(walk, outputs));
}

void backward(Walk& walk) {
  Trainer* const record = walk.world->trainers.any(walk.random);
  etr_trainer* const trainer = walk.handle(record);
  Batch* const batch_record = walk.world->batches.any(walk.random);
  etr_batch* const batch = walk.handle(batch_record);
  const bool accumulates = walk.random.one_in(2), wants_inputs = walk.random.one_in(3);
  Codes allowed = kInvalid | kNotFound | kState;
  if (record && record->has_output) allowed |= kOk;
  etr_batch* inputs = nullptr;
  const int32_t status = walk.call(
      "etr_trainer_backward", std::to_string(accumulates) + ", " + std::to_string(wants_inputs),
      Walk::needs(trainer, own(record, Walk::needs(batch, with_odds(record, allowed)))), [&] {
        return etr_trainer_backward(trainer, batch, accumulates, wants_inputs ? &inputs : nullptr);
      });
  if (status != ETR_OK) return;
  if (wants_inputs && !record->gives_inputs)
    walk.trace.fail("etr_trainer_backward gives gradients of inputs that nobody asked for");
  record->has_output = false;
  record->has_gradients = true;
  if (inputs) walk.world->batches.add(walk.random, batch_of(walk, inputs));
}

void update(Walk& walk) {
  Trainer* const record = walk.world->trainers.any(walk.random);
  etr_trainer* const trainer = walk.handle(record);
  const bool gets_result = walk.random.one_in(2);
  etr_step_result result{};
  result.struct_size = sizeof result;
  // A gradient of the program's may have been anything.
  const Codes allowed = record && record->has_gradients ? kOk | kState | kNotFinite : kState;
  const int32_t status = walk.call(
      "etr_trainer_update", "", Walk::needs(trainer, own(record, with_odds(record, allowed))),
      [&] { return etr_trainer_update(trainer, gets_result ? &result : nullptr); });
  if (status == ETR_OK) record->has_output = false;  // the weights have changed
  if (status == ETR_OK || status == ETR_NOT_FINITE) record->has_gradients = false;
}

void gradients(Walk& walk) {
  Trainer* const record = walk.world->trainers.any(walk.random);
  etr_trainer* const trainer = walk.handle(record);
  Codes allowed = kState;
  if (record && record->has_gradients) allowed = kOk | kNotFound | kInvalid | kState;
  allowed = with_odds(record, allowed);
  if (walk.random.one_in(2)) {
    const auto* const name = walk.random.of<const char*>({nullptr, "dense_1.weight", "nowhere"});
    etr_batch* const made = walk.made<etr_batch>(
        "etr_trainer_get_gradients", name ? name : "NULL",
        Walk::needs(trainer, own(record, allowed)),
        [&](etr_batch** out) { return etr_trainer_get_gradients(trainer, name, out); });
    if (made) walk.world->batches.add(walk.random, batch_of(walk, made));
    return;
  }
  etr_batch* const batch = walk.handle(walk.world->batches.any(walk.random));
  walk.call(
      "etr_trainer_set_gradients", "any batch",
      Walk::needs(trainer, own(record, Walk::needs(batch, allowed | kUnsupported | kInvalid))),
      [&] { return etr_trainer_set_gradients(trainer, batch); });
}

void weights(Walk& walk) {
  Trainer* const record = walk.world->trainers.any(walk.random);
  etr_trainer* const trainer = walk.handle(record);
  const Codes shaped = when_shaped(record);
  if (walk.random.one_in(2)) {
    const auto* const name = walk.random.of<const char*>({nullptr, "dense_1.weight", "nowhere"});
    etr_batch* const made = walk.made<etr_batch>(
        "etr_trainer_get_weights", name ? name : "NULL",
        Walk::needs(trainer, with_odds(record, shaped | (name ? kNotFound : 0))),
        [&](etr_batch** out) { return etr_trainer_get_weights(trainer, name, out); });
    if (made) walk.world->batches.add(walk.random, batch_of(walk, made));
    return;
  }
  etr_batch* const batch = walk.handle(walk.world->batches.any(walk.random));
  walk.call("etr_trainer_set_weights", "any batch",
            Walk::needs(trainer, Walk::needs(batch, with_odds(record, shaped | kUnfit))),
            [&] { return etr_trainer_set_weights(trainer, batch); });
  if (record) record->may_diverge = true;  // the weights may be anything now
}

void set_hyperparameter(Walk& walk) {
  Trainer* const record = walk.world->trainers.any(walk.random);
  etr_trainer* const trainer = walk.handle(record);
  const char* const name = walk.random.of<const char*>(
      {"momentum", "beta1", "weight_decay", "label_smoothing", "nonsense", "", nullptr});
  const double value = walk.random.of({0.0, 0.1, -1.0, 1e300, std::nan("")});
  walk.call("etr_trainer_set_hyperparameter",
            (name ? name : "NULL") + (", " + std::to_string(value)),
            Walk::needs(trainer, Walk::needs(name, with_odds(record, kOk | kInvalid | kNotFound))),
            [&] { return etr_trainer_set_hyperparameter(trainer, name, value); });
}

void predict(Walk& walk) {
  Trainer* const record = walk.world->trainers.any(walk.random);
  etr_trainer* const trainer = walk.handle(record);
  const Given given = batch_to_give(walk);
  if (walk.random.one_in(6)) {
    etr_vulkan_buffer buffer{};
    static int no_buffer;
    buffer.struct_size = sizeof buffer;
    buffer.dtype = ETR_F32;
    buffer.rank = 2;
    buffer.shape[0] = buffer.shape[1] = 2;
    buffer.buffer = &no_buffer;  // never looked at
    walk.call("etr_trainer_predict_vulkan", "", Walk::needs(trainer, takes(given, record, kState)),
              [&] { return etr_trainer_predict_vulkan(trainer, given.batch, &buffer); });
    if (record) record->may_be_shaped = true;
    return;
  }
  etr_batch* const made = walk.made<etr_batch>(
      "etr_trainer_predict", given.fits ? "rows" : "any batch",
      Walk::needs(trainer, takes(given, record, kOk)),
      [&](etr_batch** out) { return etr_trainer_predict(trainer, given.batch, out); });
  if (record && !made) record->may_be_shaped = true;
  if (!made) return;
  record->shaped = true;
  if (!given.fits) record->odd = true;
  walk.world->batches.add(walk.random, batch_of(walk, made));
}

void describe_trainer(Walk& walk) {
  Trainer* const record = walk.world->trainers.any(walk.random);
  etr_trainer* const trainer = walk.handle(record);
  const Codes shaped = when_shaped(record);
  if (walk.random.one_in(3)) {
    const std::string path = walk.folder + "/model.onnx";
    const char* const file =
        walk.random.of<const char*>({path.c_str(), "", "/proc/nowhere/x", nullptr});
    const Codes wrong = file == path.c_str() ? kUnsupported : kInvalid | kIo | kUnsupported;
    walk.call("etr_trainer_export_onnx", file ? file : "NULL",
              Walk::needs(trainer, with_odds(record, shaped | wrong)),
              [&] { return etr_trainer_export_onnx(trainer, file); });
    return;
  }
  const char* const format = walk.random.of<const char*>({"text", "json", "x", nullptr});
  const bool known = format && *format != 'x';
  walk.text("etr_trainer_summary", format ? format : "NULL",
            Walk::needs(trainer, with_odds(record, known ? shaped : Walk::failing(shaped))),
            [&](char** out) { return etr_trainer_summary(trainer, format, out); });
}

void save_or_load(Walk& walk) {
  Trainer* const record = walk.world->trainers.any(walk.random);
  etr_trainer* const trainer = walk.handle(record);
  World& world = *walk.world;
  switch (walk.random.below(3)) {
    case 0: {
      const std::string folder = walk.folder + "/saved" + std::to_string(walk.random.below(3));
      const char* const path = walk.random.of<const char*>({folder.c_str(), "", nullptr});
      const Codes allowed = path == folder.c_str() ? kOk | kState : kInvalid | kState;
      if (walk.call("etr_trainer_save", path ? path : "NULL",
                    Walk::needs(trainer, with_odds(record, allowed)),
                    [&] { return etr_trainer_save(trainer, path); }) == ETR_OK)
        world.checkpoints.push_back(folder);
      break;
    }
    case 1: {
      const std::string path = world.checkpoints.empty() || walk.random.one_in(4)
                                   ? walk.random.of<const char*>({"/proc/nowhere", ""})
                                   : walk.random.of(world.checkpoints);
      walk.call("etr_trainer_load", path,
                Walk::needs(trainer, with_odds(record, kOk | kInvalid | kNotFound | kCorrupt)) |
                    (trainer ? 0 : kNotFound | kCorrupt),
                [&] { return etr_trainer_load(trainer, path.c_str()); });
      if (record) record->odd = record->may_diverge = true;  // told of at the first batch
      break;
    }
    default: {
      const std::string rows = walk.folder + "/rows.jsonl";  // no safetensors
      const char* const path =
          walk.random.of<const char*>({"/proc/nowhere", rows.c_str(), "", nullptr});
      const char* const names = walk.random.of<const char*>({nullptr, "{}", "[", "{\"a\": 3}"});
      walk.call("etr_trainer_load_pytorch", path ? path : "NULL",
                Walk::needs(trainer, with_odds(record, kInvalid | kNotFound | kCorrupt | kState |
                                                           kUnsupported)),
                [&] { return etr_trainer_load_pytorch(trainer, path, names); });
    }
  }
}

void profile(Walk& walk) {
  Trainer* const record = walk.world->trainers.any(walk.random);
  etr_trainer* const trainer = walk.handle(record);
  const Given given = batch_to_give(walk);
  const auto steps = walk.random.of<int32_t>({1, 0, -1});
  const char* const format = walk.random.of<const char*>({"text", "json", "trace", "x", nullptr});
  const bool known = format && *format != 'x' && steps > 0;
  // Results of steps in flight are not to be lost.
  const Codes allowed =
      known ? takes(given, record, kOk | kState | kUnsupported | kNotFinite) : kInvalid;
  walk.text("etr_trainer_profile", (format ? format : "NULL") + (", " + std::to_string(steps)),
            Walk::needs(trainer, known ? own(record, allowed) : allowed), [&](char** out) {
              return etr_trainer_profile(trainer, given.batch, steps, format, out);
            });
  if (record) record->may_diverge = record->odd = record->may_be_shaped = true;  // has trained
}

}  // namespace

Runtime* runtime_of(Walk& walk) {
  Random& random = walk.random;
  if (Runtime* const there = walk.world->runtimes.any(random); there && !random.one_in(60))
    return there;
  etr_runtime_options options{};
  options.struct_size = sizeof options;
  options.device = std::getenv("ECHOTRAIN_TEST_DEVICE");
  etr_runtime* made = nullptr;
  walk.call("etr_runtime_create", "", kOk, [&] { return etr_runtime_create(&options, &made); });
  return walk.world->runtimes.add(
      random, std::unique_ptr<Runtime>(
                  new Runtime{{walk, made, "etr_runtime_destroy", etr_runtime_destroy}}));
}

const std::vector<Step> kTrainerSteps = {{2, create_runtime},
                                         {2, create_shared_runtime},
                                         {5, describe_runtime},
                                         {1, tune_runtime},
                                         {10, create_trainer},
                                         {25, step},
                                         {30, result},
                                         {15, forward},
                                         {20, backward},
                                         {15, update},
                                         {15, gradients},
                                         {20, weights},
                                         {15, set_hyperparameter},
                                         {12, predict},
                                         {10, describe_trainer},
                                         {8, save_or_load},
                                         {1, profile}};

}  // namespace walk
