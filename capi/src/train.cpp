// Models, optimizers, trainers, jobs, reports.
#include <limits>

#include "core/platform.h"
#include "core/utf8.h"
#include "forms.h"
#include "functions.h"
#include "handles.h"
#include "nn/detections.h"
#include "study/advise_job.h"
#include "text_lists.h"
#include "train/report.h"
#include "train/summary.h"

using namespace etr;
using namespace etr::capi;

namespace {

etr_step_result c_result(const train::StepMetrics& m) {
  etr_step_result out{};
  out.samples = static_cast<int32_t>(m.counts.samples);
  out.step = m.step;
  out.loss = static_cast<double>(m.loss);
  out.accuracy = static_cast<double>(m.accuracy);
  out.learning_rate = static_cast<double>(m.learning_rate);
  return out;
}

std::string summary_as(const Json& summary, const std::string& format) {
  const std::string formats[] = {"text", "json"};
  if (std::find(std::begin(formats), std::end(formats), format) == std::end(formats))
    fail(Code::invalid_argument, "a summary has no format '", format, "'",
         suggestion(format, formats));
  return format == "json" ? summary.dump() : train::summary_text(summary);
}

train::Learner& own_learner(etr_trainer* trainer) {
  etr_trainer& t = required(trainer, "trainer");
  if (t.running)
    fail(
        Code::state,
        "this is the trainer of a run, which makes its own steps; for a loop of your own, create a "
        "trainer with etr_trainer_create");
  return *t.own;
}

// etr_trainer_result has moved the results of all finished steps here, of which it returns one.
void check_taken(const etr_trainer& trainer, const char* before) {
  if (!trainer.results.empty() || trainer.own->has_untaken())
    fail(Code::state, "there are steps whose results have not been taken: take them before ",
         before);
}

void hand_out_fields(etr_batch** target, std::vector<pipeline::Field> fields, const char* name) {
  auto made = std::make_unique<etr_batch>();
  made->item.fields = std::move(fields);
  hand_out(target, std::move(made), name);
}

void hand_out_output(etr_batch** target, Tensor output, const char* name) {
  auto made = std::make_unique<etr_batch>();
  pipeline::BatchInfo& info = made->item.batch;  // the output may be another model's input
  info.size = info.fresh = info.unique = static_cast<int32_t>(output.shape()[0]);
  made->item.set("output", std::move(output));
  hand_out(target, std::move(made), name);
}

// Returns the fields of a batch that replace what a trainer has.
const std::vector<pipeline::Field>& host_fields(const etr_batch* batch, const char* argument,
                                                const char* what) {
  const pipeline::Item& item = required(batch, argument).item;
  if (!item.opaque.empty())
    fail(Code::unsupported, what, " '", item.opaque.front().name, "' lies in a Vulkan buffer; ",
         what, "s are set from host memory");
  return item.fields;
}

// Validates a model's spec. One that names an ONNX file becomes the layers of that file, so that it
// is read once and may go away.
void take_file(etr_model& model) {
  const nn::Model made(model.spec);
  if (!made.weights()) return;
  model.spec = made.json();
  model.weights = made.weights();
}

// Validates a changed spec, unless layers have yet to come, and takes it.
void replace_spec(etr_model& model, Json changed) {
  if (changed.contains("model") || !changed.at("layers").empty()) nn::Model check(changed);
  model.spec = std::move(changed);
}

}  // namespace

int32_t etr_model_create(etr_model** model) {
  return guarded([&] { hand_out(model, std::make_unique<etr_model>(), "model"); });
}

int32_t etr_model_create_from_json(const char* spec, etr_model** model) {
  return guarded([&] {
    auto made = std::make_unique<etr_model>();
    made->spec = parse_json(&required(spec, "spec"), "the model");
    take_file(*made);
    hand_out(model, std::move(made), "model");
  });
}

int32_t etr_model_create_from_onnx(const char* path, etr_model** model) {
  return guarded([&] {
    auto made = std::make_unique<etr_model>();
    made->spec = {{"onnx", path_of(path, "path")}};
    take_file(*made);
    hand_out(model, std::move(made), "model");
  });
}
void etr_model_destroy(etr_model* model) { destroy(model); }

int32_t etr_model_add(etr_model* model, const char* layer, const etr_options* options) {
  return guarded([&] {
    Json longer = required(model, "model").spec;
    Json row{{"layer", &required(layer, "layer")}};
    if (options) row.update(required(options, "options").values);
    if (!longer.contains("layers")) longer["layers"] = Json::array();
    longer["layers"].push_back(std::move(row));
    nn::Model check(longer);
    model->spec = std::move(longer);
  });
}

int32_t etr_model_json(const etr_model* model, char** json) {
  return guarded(
      [&] { hand_out(json, nn::Model(required(model, "model").spec).json().dump(), "json"); });
}

int32_t etr_model_summary(const etr_model* model, const char* fields, const char* format,
                          char** text) {
  return guarded([&] {
    const nn::Model made(required(model, "model").spec);
    const Json shapes = parse_json(&required(fields, "fields"), "the fields of a summary");
    hand_out(text, summary_as(train::summary(made, shapes), &required(format, "format")), "text");
  });
}

int32_t etr_model_set_loss(etr_model* model, const char* loss, const etr_options* options) {
  return guarded([&] {
    Json row{{"loss", &required(loss, "loss")}};
    if (options) row.update(required(options, "options").values);
    const nn::Loss check(row);
    required(model, "model").spec["loss"] = std::move(row);
  });
}

int32_t etr_model_freeze(etr_model* model, const char* pattern) {
  return guarded([&] {
    const std::string text = &required(pattern, "pattern");
    if (!is_utf8(text))
      fail(Code::invalid_argument, "argument 'pattern': '", text, "' is not UTF-8");
    Json changed = required(model, "model").spec;
    Json& frozen = changed["frozen"];
    if (frozen.is_null()) frozen = Json::array();
    if (frozen.is_string()) frozen = Json::array({frozen});
    frozen.push_back(text);
    replace_spec(*model, std::move(changed));
  });
}

int32_t etr_model_set_lora(etr_model* model, const etr_options* options) {
  return guarded([&] {
    Json changed = required(model, "model").spec;
    changed["lora"] = required(options, "options").values;
    const nn::Lora check_lora(changed["lora"]);
    replace_spec(*model, std::move(changed));
  });
}

int32_t etr_model_quantize(etr_model* model, int32_t bits) {
  return guarded([&] {
    Json changed = required(model, "model").spec;
    nn::check_quantize(bits);  // a model without layers is not validated yet
    changed["quantize"] = bits;
    replace_spec(*model, std::move(changed));
  });
}

int32_t etr_optimizer_create(const char* name, const etr_options* options,
                             const etr_options* schedule, etr_optimizer** optimizer) {
  return guarded([&] {
    Json given = options ? required(options, "options").values : Json::object();
    given["optimizer"] = &required(name, "name");
    const optim::UpdateSpec check(given);
    const Options check_schedule(optim::schedule_schema(), "schedule",
                                 required(schedule, "schedule").values);
    auto made = std::make_unique<etr_optimizer>();
    made->optimizer = std::move(given);
    made->schedule = schedule->values;
    hand_out(optimizer, std::move(made), "optimizer");
  });
}
void etr_optimizer_destroy(etr_optimizer* optimizer) { destroy(optimizer); }

int32_t etr_trainer_create(etr_runtime* runtime, const etr_model* model,
                           const etr_optimizer* optimizer, uint64_t seed, int64_t total_steps,
                           etr_trainer** trainer) {
  return guarded([&] {
    if (total_steps < 0)
      fail(Code::invalid_argument, "total_steps is ", total_steps,
           "; expected the step at which decaying schedules end, or 0: unknown");
    const train::LearnerSpec spec{required(model, "model").spec,
                                  required(optimizer, "optimizer").optimizer,
                                  optimizer->schedule,
                                  seed,
                                  total_steps,
                                  0,
                                  model->weights};
    auto made = std::make_unique<etr_trainer>();
    made->own = std::make_unique<train::Learner>(shared(runtime, "runtime").kernels, spec);
    hand_out(trainer, std::move(made), "trainer");
  });
}

void etr_trainer_destroy(etr_trainer* trainer) { destroy(trainer); }

int32_t etr_trainer_step(etr_trainer* trainer, const etr_batch* batch) {
  return guarded([&] { own_learner(trainer).step(required(batch, "batch").item); });
}

int32_t etr_trainer_result(etr_trainer* trainer, int32_t wait, etr_step_result* result) {
  return guarded([&]() -> int32_t {
    train::Learner& learner = own_learner(trainer);
    etr_trainer& t = *trainer;
    const auto collect = [&] {
      for (const train::StepMetrics& m : learner.take_metrics(/*wait_all=*/false))
        t.results.push_back(m);
    };
    // A failure is reported only after the results of the steps before it.
    if (t.results.empty()) collect();
    if (t.results.empty() && wait) {
      learner.wait_oldest();
      collect();
    }
    if (t.results.empty()) return ETR_END;
    fill_struct(result, c_result(t.results.front()));
    t.results.pop_front();
    return ETR_OK;
  });
}

int32_t etr_trainer_forward(etr_trainer* trainer, const etr_batch* batch, int32_t input_gradients,
                            etr_batch** outputs) {
  return guarded([&] {
    train::Learner& learner = own_learner(trainer);
    required(outputs, "outputs");
    hand_out_output(outputs, learner.forward(required(batch, "batch").item, input_gradients != 0),
                    "outputs");
  });
}

int32_t etr_trainer_backward(etr_trainer* trainer, const etr_batch* output_gradient,
                             int32_t accumulate, etr_batch** inputs) {
  return guarded([&] {
    train::Learner& learner = own_learner(trainer);
    const pipeline::Item& item = required(output_gradient, "output_gradient").item;
    if (inputs && learner.has_output() && !learner.gives_input_gradients())
      fail(Code::state,
           "the latest forward pass does not give gradients of its inputs: call "
           "etr_trainer_forward with 'input_gradients' first");
    auto gradients = learner.backward(pipeline::require_field(item, "output"), accumulate != 0);
    if (inputs) hand_out_fields(inputs, std::move(gradients), "inputs");
  });
}

int32_t etr_trainer_update(etr_trainer* trainer, etr_step_result* result) {
  return guarded([&] {
    train::Learner& learner = own_learner(trainer);
    check_taken(*trainer, "an update");
    if (result) fill_struct(result, etr_step_result{});  // fails before anything changes
    train::StepMetrics m = learner.update();
    m.loss = m.accuracy = std::numeric_limits<float>::quiet_NaN();  // the program knows them
    if (result) fill_struct(result, c_result(m));
  });
}

int32_t etr_trainer_get_gradients(etr_trainer* trainer, const char* name, etr_batch** gradients) {
  return guarded([&] {
    hand_out_fields(gradients, own_learner(trainer).gradients(name ? name : ""), "gradients");
  });
}

int32_t etr_trainer_set_gradients(etr_trainer* trainer, const etr_batch* gradients) {
  return guarded(
      [&] { own_learner(trainer).set_gradients(host_fields(gradients, "gradients", "gradient")); });
}

int32_t etr_trainer_export_onnx(etr_trainer* trainer, const char* path) {
  return guarded([&] {
    etr_trainer& t = required(trainer, "trainer");
    const std::string file = t.shaped_learner().onnx();
    platform::write_file_atomic(path_of(path, "path"), std::as_bytes(std::span(file)));
  });
}

int32_t etr_trainer_get_weights(etr_trainer* trainer, const char* name, etr_batch** weights) {
  return guarded([&] {
    hand_out_fields(weights,
                    required(trainer, "trainer").shaped_learner().weights(name ? name : ""),
                    "weights");
  });
}

int32_t etr_trainer_set_weights(etr_trainer* trainer, const etr_batch* weights) {
  return guarded([&] {
    const auto& fields = host_fields(weights, "weights", "weight");
    etr_trainer& t = required(trainer, "trainer");
    t.shaped_learner();
    t.on_learners([&](train::Learner& learner) { learner.set_weights(fields); });
  });
}

int32_t etr_trainer_set_hyperparameter(etr_trainer* trainer, const char* name, double value) {
  return guarded([&] {
    etr_trainer& t = required(trainer, "trainer");
    const std::string of = &required(name, "name");
    if (t.running) return t.running->team->set_hyperparameter(of, value);
    t.own->set_hyperparameter(of, value, t.own->steps());
  });
}

int32_t etr_trainer_summary(etr_trainer* trainer, const char* format, char** text) {
  return guarded([&] {
    const Json made = required(trainer, "trainer").shaped_learner().summary();
    hand_out(text, summary_as(made, &required(format, "format")), "text");
  });
}

int32_t etr_trainer_profile(etr_trainer* trainer, const etr_batch* batch, int32_t steps,
                            const char* format, char** text) {
  return guarded([&] {
    const auto measure = [&] {
      etr_trainer& t = required(trainer, "trainer");
      if (t.is_run) return t.running->team->profile(steps);
      train::Learner& learner = own_learner(trainer);
      check_taken(t, "a profile");
      Json made = learner.profile(required(batch, "batch").item, steps);
      learner.take_metrics(/*wait_all=*/true);  // of its own step: nobody else expects a result
      return made;
    };
    required(text, "text");
    hand_out(text, profile_as(format, steps, measure), "text");
  });
}

int32_t etr_trainer_predict(etr_trainer* trainer, const etr_batch* batch, etr_batch** outputs) {
  return guarded([&] {
    const pipeline::Item& item = required(batch, "batch").item;
    hand_out_output(outputs, required(trainer, "trainer").learner().predict(item), "outputs");
  });
}

int32_t etr_trainer_predict_vulkan(etr_trainer* trainer, const etr_batch* batch,
                                   const etr_vulkan_buffer* output) {
  return guarded([&] {
    const pipeline::OpaqueField to = vulkan_field(required(output, "output"), "output");
    required(trainer, "trainer").learner().predict(required(batch, "batch").item, to);
  });
}

int32_t etr_detections(const etr_batch* outputs, double score_threshold, double iou_threshold,
                       int32_t max_detections, etr_batch** boxes) {
  return guarded([&] {
    auto made = std::make_unique<etr_batch>();
    const pipeline::Item& item = required(outputs, "outputs").item;
    for (const auto& [name, share] :
         {std::pair("score_threshold", score_threshold), {"iou_threshold", iou_threshold}})
      if (!(share >= 0 && share <= 1))
        fail(Code::invalid_argument, "detections: ", name, " is ", share, "; expected 0 to 1");
    const nn::DetectionOptions options{static_cast<float>(score_threshold),
                                       static_cast<float>(iou_threshold), max_detections};
    made->item.set("boxes", nn::detections(pipeline::require_field(item, "output"), options));
    made->item.batch.size = item.batch.size;
    hand_out(boxes, std::move(made), "boxes");
  });
}

int32_t etr_trainer_evaluate(etr_trainer* trainer, etr_pipeline* pipeline,
                             etr_eval_result* result) {
  return guarded([&] {
    checked_size(result);
    etr_trainer& t = required(trainer, "trainer");
    if (t.is_run && !pipeline) return fill_result(result, t.running->team->evaluate());
    pipeline::Pipeline& input = required(pipeline, "pipeline").get();
    fill_result(result, t.running ? t.running->team->evaluate(input, t.on_evaluation)
                                  : t.own->evaluate(input, t.on_evaluation));
  });
}

int32_t etr_trainer_on_evaluation(etr_trainer* trainer,
                                  int32_t (*progress)(void* user_data, int64_t done,
                                                      int64_t batches),
                                  void* user_data, void (*destroy)(void*)) {
  return guarded([&] {
    const std::shared_ptr<void> guard = owned(user_data, destroy);
    etr_trainer& t = required(trainer, "trainer");
    t.on_evaluation = progress_of(progress, guard);
    if (t.is_run) t.running->team->on_evaluation(t.on_evaluation);
  });
}

int32_t etr_trainer_save(etr_trainer* trainer, const char* directory) {
  return guarded([&] {
    etr_trainer& t = required(trainer, "trainer");
    train::Learner& learner = t.learner();
    checkpoint::Files files;
    if (learner.saves_together())
      t.on_learners([&](train::Learner& each) {
        checkpoint::Files none;  // only the first learner's files are written
        each.save(&each == &learner ? files : none);
      });
    else
      learner.save(files);
    const checkpoint::Store store(path_of(directory, "directory"));
    if (store.has(train::kTrainerState))  // which the run could not resume from any more
      fail(Code::state, "'", directory,
           "' holds the checkpoints of a run, which this one would replace: save into "
           "another folder");
    store.save(learner.steps(), files);
  });
}

int32_t etr_trainer_load(etr_trainer* trainer, const char* directory) {
  return guarded([&] {
    const auto loaded = checkpoint::Store(path_of(directory, "directory")).load_latest();
    if (!loaded) fail(Code::not_found, "there is no checkpoint in '", directory, "'");
    required(trainer, "trainer").on_learners([&](train::Learner& learner) {
      learner.load(loaded->files);
    });
  });
}

int32_t etr_trainer_load_pytorch(etr_trainer* trainer, const char* path, const char* names) {
  return guarded([&] {
    std::map<std::string, std::string> map;
    const Json given = names ? parse_json(names, "the map of names") : Json::object();
    if (!given.is_object())
      fail(Code::invalid_argument, "the map of names is a JSON object, not ", given.dump());
    for (const auto& [ours, theirs] : given.items()) {
      if (!theirs.is_string())
        fail(Code::invalid_argument, "the map of names: '", ours, "' is mapped to ", theirs.dump(),
             ", not to text");
      map[ours] = theirs.get<std::string>();
    }
    const std::string file = path_of(path, "path");
    required(trainer, "trainer").on_learners([&](train::Learner& learner) {
      learner.load_pytorch(file, map);
    });
  });
}

int32_t etr_job_load(const char* path, const char* const* overrides, int32_t count, etr_job** job) {
  return guarded([&] {
    hand_out(job,
             std::unique_ptr<etr_job>(new etr_job{train::Job::load(
                 path_of(path, "path"), strings_of(overrides, count, "overrides"))}),
             "job");
  });
}

int32_t etr_job_parse(const char* json, const char* const* overrides, int32_t count,
                      etr_job** job) {
  return guarded([&] {
    hand_out(
        job,
        std::unique_ptr<etr_job>(new etr_job{train::Job::parse(
            &required(json, "json"), "the job's JSON", strings_of(overrides, count, "overrides"))}),
        "job");
  });
}

void etr_job_destroy(etr_job* job) { destroy(job); }

int32_t etr_job_json(const etr_job* job, char** json) {
  return guarded([&] { hand_out(json, required(job, "job").job.json().dump(2), "json"); });
}

int32_t etr_job_output_dir(const etr_job* job, char** directory) {
  return guarded([&] {
    const auto named = required(job, "job").job.output_dir();
    char*& target = required(directory, "directory");
    target = named ? copy_string(*named) : nullptr;
  });
}

int32_t etr_job_advise(etr_runtime* runtime, const etr_job* job, double seconds, int32_t check,
                       int32_t (*progress)(void*, const char*), void* user_data, char** json) {
  return guarded([&] {
    if (!(seconds > 0 && seconds <= 1e6))
      fail(Code::invalid_argument, "advise: seconds is ", seconds,
           "; expected above 0, at most 1e6");
    required(json, "json");
    const auto tell = [&](const std::string& what) {
      return goes_on(progress, user_data, what.c_str());
    };
    const etr_runtime& device = shared(runtime, "runtime");
    hand_out(
        json,
        study::advise_job(device.kernels, required(job, "job").job, {seconds, tell}, check != 0)
            .dump(),
        "json");
  });
}

int32_t etr_report_write(const char* title, const char* const* names,
                         const char* const* metrics_paths, int32_t count, double target_accuracy,
                         const char* html_path, char** json) {
  return guarded([&] {
    if (!(target_accuracy >= 0 && target_accuracy <= 1))
      fail(Code::invalid_argument, "target_accuracy is ", target_accuracy,
           "; expected 0 (none) to 1");
    const auto run_names = strings_of(names, count, "names");
    const auto paths = strings_of(metrics_paths, count, "metrics_paths");
    std::vector<train::ReportRun> runs;
    for (size_t i = 0; i < paths.size(); ++i)
      runs.push_back({as_utf8(run_names[i]), path_of(paths[i].c_str(), "metrics_paths")});
    const Json table = train::write_report(&required(title, "title"), runs, target_accuracy,
                                           path_of(html_path, "html_path"));
    if (json) *json = copy_string(table.dump());
  });
}
