// Pipelines, batches, packing.
#include <system_error>
#include <thread>

#include "core/log.h"
#include "core/platform.h"
#include "core/text.h"
#include "core/utf8.h"
#include "explain/explain.h"
#include "functions.h"
#include "handles.h"
#include "pipeline/tune.h"
#include "sources/pack.h"

using namespace etr;
using namespace etr::capi;

namespace {

// How many functions of the program, called by pipelines, this thread is in.
thread_local int functions_entered = 0;

// Marks the thread as being in a function of the program, and makes it uncancellable. Worker
// threads belong to the library or to TBB: a program that cancels one, which it can identify only
// from inside its own function, would end the process at the next wait.
struct InFunction {
  InFunction() {
    ++functions_entered;
    platform::set_cancellable(false);
  }
  ~InFunction() { --functions_entered; }
  InFunction(const InFunction&) = delete;
  InFunction& operator=(const InFunction&) = delete;
};

enum class Role { map, source };

bool has_fields(const pipeline::Item& item) {
  return !item.fields.empty() || !item.opaque.empty() || item.views;
}

// Returns what went wrong in a function that returned `status`; "" if nothing did.
std::string failure_of(Role role, int32_t status, const etr_batch& view, bool had_fields) {
  if (view.destroyed)
    return " has destroyed its item (etr_batch_destroy), which belongs to the pipeline: leave it "
           "as "
           "it is, the pipeline takes it back when the function returns";
  if (status == ETR_OK && role == Role::source && view.item.fields.empty())
    return " returned ETR_OK and has set no field: set those of the sample (etr_batch_set), or "
           "return ETR_END where the pass is over";
  if (status == ETR_OK && had_fields && !has_fields(view.item))
    return " has removed every field: leave one, or return an error status for a record that "
           "is bad";
  if (status == ETR_OK) return "";
  if (!view.failure.empty()) return " failed: " + view.failure;
  if (status == ETR_END)
    return " returned ETR_END, which only sources may; return ETR_OK, or an error status for a "
           "record that is bad";
  if (status > 0)
    return cat(" returned ", status, ", which is not a status; return ETR_OK or an error status");
  return std::string(" failed: ") + code_name(static_cast<Code>(status));
}

// Lends an item to a function of the program as a batch. The item is always given back, because
// errors name the record.
class Lent {
 public:
  Lent(pipeline::Item& item, uint64_t epoch) : item_(item) {
    batch.item = std::move(item);
    batch.epoch = epoch;
    batch.lent = true;
  }
  ~Lent() { item_ = std::move(batch.item); }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;

  etr_batch batch;

 private:
  pipeline::Item& item_;
};

pipeline::MapFunction call_of(const std::string& name, etr_map_function function,
                              std::shared_ptr<void> user_data, Role role) {
  const std::string called = "the function '" + name + "'";
  return [=](pipeline::Item& item, uint64_t epoch) {
    const bool had_fields = has_fields(item);
    Lent lent(item, epoch);
    const int32_t status = [&] {
      const InFunction entered;
      return in_program(called, [&] { return function(user_data.get(), &lent.batch); });
    }();
    if (role == Role::source && status == ETR_END && !lent.batch.destroyed)
      return lent.batch.item.fields.clear();
    const std::string failure = failure_of(role, status, lent.batch, had_fields);
    if (!failure.empty()) fail(Code::callback, called, failure);
  };
}

// Adds a row to the spec, and reports a bad one now rather than at the first batch. Another thread
// may meanwhile create the pipeline from the rows so far, through a function marked "any thread".
void append(etr_pipeline& p, Json row, pipeline::MapFunctions functions) {
  Json longer = p.spec;
  longer["stages"].push_back(std::move(row));
  // Reads no samples, because the pipeline may still be incomplete.
  const pipeline::Pipeline check(longer, functions, false, pipeline::Pipeline::Budget::at_start);
  const std::scoped_lock lock(p.mutex);
  if (p.running) fail(Code::state, "stages are added before the pipeline is used");
  p.spec = std::move(longer);
  p.functions = std::move(functions);
}

// Appends the stage `map` or `source` with a function of the program.
int32_t add_function(etr_pipeline* pipeline, Role role, const char* name, etr_map_function function,
                     void* user_data, void (*destroy)(void*)) {
  return guarded([&] {
    // `destroy` runs with the last copy of the function, also if something below throws.
    const std::shared_ptr<void> guard = owned(user_data, destroy);
    etr_pipeline& p = required(pipeline, "pipeline");
    pipeline::check_name(&required(name, "name"), "a function");
    if (!function) fail(Code::invalid_argument, "argument 'function' is NULL");
    if (p.functions.contains(name))
      fail(Code::invalid_argument, "the pipeline has a function '", name, "' already");
    pipeline::MapFunctions functions = p.functions;
    functions[name] = call_of(name, function, std::move(guard), role);
    append(p, {{"stage", role == Role::source ? "source" : "map"}, {"function", name}},
           std::move(functions));
  });
}

// Returns the caller's array, checked and without a copy; `owner` keeps the memory alive.
Tensor view_of(const etr_tensor* tensor, const char* field, const std::shared_ptr<void>& owner) {
  const etr_tensor& t = required(tensor, "tensor");
  if (t.struct_size < offsetof(etr_tensor, size_bytes) + sizeof t.size_bytes)
    fail(Code::invalid_argument, "struct_size of etr_tensor is not set");
  const Shape shape = shape_of(t, field);
  const auto dtype = static_cast<DType>(t.dtype);
  const size_t size = size_of(dtype, shape);
  if (size != t.size_bytes)
    fail(Code::invalid_argument, "field '", field, "': size_bytes is ", t.size_bytes, ", but ",
         dtype_name(dtype), " ", shape_text(shape), " needs ", size);
  if (size == 0) return Tensor(dtype, shape);
  if (!t.data) fail(Code::invalid_argument, "field '", field, "': the tensor's data is NULL");
  return Tensor(dtype, shape, {owner, static_cast<const std::byte*>(t.data)});
}

std::string explained(const Json& stats, const std::string& format) {
  const Json result = explain::explain(stats);
  if (format == "json") return result.dump();
  if (format == "text") return explain::to_text(result);
  if (format == "svg") return explain::to_svg(result);
  fail(Code::invalid_argument, "explain: format '", format, "' is none of text, svg and json");
}

}  // namespace

// A pipeline's thread must not wait for itself, so inside a function of the program the pipeline is
// deleted on another thread. Garbage collectors get here: they run wherever memory is allocated,
// also in map functions.
void etr::capi::end(etr_pipeline* pipeline) {
  if (functions_entered == 0 || !pipeline->running) {
    delete pipeline;
    return;
  }
  pipeline->running->cancel();
  try {
    std::thread([pipeline] { delete pipeline; }).detach();
  } catch (const std::system_error&) {
    log_line(LogLevel::error, "no thread to end a pipeline on; its memory is lost");
  }
}

int32_t etr_pipeline_create(const etr_options* options, etr_pipeline** pipeline) {
  return guarded([&] {
    auto made = std::make_unique<etr_pipeline>();
    made->spec = options ? required(options, "options").values : Json::object();
    remove_member(made->spec, "stages");
    const Options check(pipeline::pipeline_schema(), "pipeline", made->spec);
    made->spec["stages"] = Json::array();
    hand_out(pipeline, std::move(made), "pipeline");
  });
}

int32_t etr_pipeline_create_from_json(const char* json, etr_pipeline** pipeline) {
  return guarded([&] {
    auto made = std::make_unique<etr_pipeline>();
    made->spec = parse_json(&required(json, "json"), "the pipeline's JSON");
    const pipeline::Pipeline check(made->spec);
    hand_out(pipeline, std::move(made), "pipeline");
  });
}

void etr_pipeline_destroy(etr_pipeline* pipeline) {
  if (!pipeline) return;
  guarded([&] {
    // The last call to leave frees the pipeline: this one, or one of another thread, which the
    // cancellation ends.
    etr_pipeline& p = any_thread(pipeline, "pipeline");
    p.occupancy.destroy();
    const std::scoped_lock lock(p.mutex);
    if (p.running) p.running->cancel();
  });
}

int32_t etr_pipeline_add(etr_pipeline* pipeline, const char* stage, const etr_options* options) {
  return guarded([&] {
    etr_pipeline& p = required(pipeline, "pipeline");
    Json row{{"stage", &required(stage, "stage")}};
    if (options) row.update(required(options, "options").values);
    append(p, std::move(row), p.functions);
  });
}

int32_t etr_pipeline_add_map(etr_pipeline* pipeline, const char* name, etr_map_function function,
                             void* user_data, void (*destroy)(void*)) {
  return add_function(pipeline, Role::map, name, function, user_data, destroy);
}

int32_t etr_pipeline_add_source(etr_pipeline* pipeline, const char* name, etr_map_function function,
                                void* user_data, void (*destroy)(void*)) {
  return add_function(pipeline, Role::source, name, function, user_data, destroy);
}

int32_t etr_pipeline_next(etr_pipeline* pipeline, etr_batch** batch) {
  return guarded([&]() -> int32_t {
    etr_batch*& out = required(batch, "batch");
    auto made = std::make_unique<etr_batch>();
    if (required(pipeline, "pipeline").get().next(made->item) ==
        pipeline::Pipeline::Next::end_of_epoch)
      return ETR_END;
    out = made.release();
    return ETR_OK;
  });
}

int32_t etr_pipeline_wait(etr_pipeline* pipeline, double seconds) {
  return guarded([&]() -> int32_t {
    if (!(seconds >= 0 && seconds <= 1e6))
      fail(Code::invalid_argument, "seconds is ", seconds, "; expected 0 to 1e6");
    return required(pipeline, "pipeline").get().wait(seconds) ? ETR_OK : ETR_END;
  });
}

int32_t etr_pipeline_length(etr_pipeline* pipeline, int64_t* batches) {
  return guarded([&] {
    const auto length = required(pipeline, "pipeline").get().length();
    required(batches, "batches") = length ? static_cast<int64_t>(*length) : -1;
  });
}

int32_t etr_pipeline_cancel(etr_pipeline* pipeline) {
  return guarded([&] { any_thread(pipeline, "pipeline").get().cancel(); });
}

int32_t etr_pipeline_stats(etr_pipeline* pipeline, char** json) {
  return guarded(
      [&] { hand_out(json, any_thread(pipeline, "pipeline").get().stats().dump(), "json"); });
}

int32_t etr_pipeline_explain(etr_pipeline* pipeline, const char* format, char** text) {
  return guarded([&] {
    const Json stats = any_thread(pipeline, "pipeline").get().stats();
    hand_out(text, explained(stats, &required(format, "format")), "text");
  });
}

int32_t etr_explain_stats(const char* stats, const char* format, char** text) {
  return guarded([&] {
    const Json parsed = parse_json(&required(stats, "stats"), "the statistics of a pipeline");
    hand_out(text, explained(parsed, &required(format, "format")), "text");
  });
}

int32_t etr_pipeline_tune(const char* spec, double seconds, double step_ms,
                          int32_t (*progress)(void*, const char*), void* user_data, char** json) {
  return guarded([&] {
    if (!(seconds > 0 && seconds <= 1e6))
      fail(Code::invalid_argument, "tune: seconds is ", seconds, "; expected above 0, at most 1e6");
    if (!(step_ms >= 0 && step_ms <= 1e6))
      fail(Code::invalid_argument, "tune: step_ms is ", step_ms, "; expected 0 to 1e6");
    const Json parsed = parse_json(&required(spec, "spec"), "the pipeline's JSON");
    required(json, "json");
    const auto tell = [&](const Json& trial) {
      return goes_on(progress, user_data, trial.dump().c_str());
    };
    hand_out(json, pipeline::tune(parsed, {}, {seconds, step_ms, tell}).dump(1), "json");
  });
}

int32_t etr_pipeline_trace(etr_pipeline* pipeline, char** json) {
  return guarded(
      [&] { hand_out(json, required(pipeline, "pipeline").get().trace_json().dump(), "json"); });
}

int32_t etr_pipeline_bad_records(etr_pipeline* pipeline, char** json) {
  return guarded([&] {
    hand_out(json, any_thread(pipeline, "pipeline").get().bad_record_list().dump(), "json");
  });
}

int32_t etr_pipeline_save(etr_pipeline* pipeline, char** json) {
  return guarded(
      [&] { hand_out(json, required(pipeline, "pipeline").get().save().dump(), "json"); });
}

int32_t etr_pipeline_restore(etr_pipeline* pipeline, const char* json) {
  return guarded([&] {
    required(pipeline, "pipeline")
        .get()
        .restore(parse_json(&required(json, "json"), "the pipeline's saved state"));
  });
}

int32_t etr_batch_get_info(const etr_batch* batch, etr_batch_info* info) {
  return guarded([&] {
    const pipeline::Item& item = required(batch, "batch").item;
    etr_batch_info out{};
    out.samples = item.batch.size;
    out.fresh = item.batch.fresh;
    out.echoed = item.batch.echoed;
    out.fields = static_cast<int32_t>(item.fields.size());
    out.replica = item.replica;
    out.ordinal = item.ordinal;
    out.epoch = batch->epoch;
    out.unique = item.batch.unique;
    // When an echo node repeats a whole batch, all its samples age.
    const double samples_each = item.batch.size > 0 ? item.batch.size : 1;
    out.mean_age = item.batch.mean_age + samples_each * static_cast<double>(item.age);
    fill_struct(info, out);
  });
}

int32_t etr_batch_get(const etr_batch* batch, const char* field, etr_tensor* tensor) {
  return guarded([&] {
    const Tensor& t =
        pipeline::require_field(required(batch, "batch").item, &required(field, "field"));
    if (t.shape().size() > ETR_MAX_RANK)
      fail(Code::unsupported, "field '", field, "' has rank ", t.shape().size());
    etr_tensor out{};
    out.dtype = static_cast<int32_t>(t.dtype());
    out.rank = static_cast<int32_t>(t.shape().size());
    std::copy(t.shape().begin(), t.shape().end(), out.shape);
    out.data = t.data();
    out.size_bytes = t.size_bytes();
    fill_struct(tensor, out);
  });
}

int32_t etr_batch_field_name(const etr_batch* batch, int32_t index, const char** name) {
  return guarded([&] {
    const auto& fields = required(batch, "batch").item.fields;
    if (index < 0 || static_cast<size_t>(index) >= fields.size())
      fail(Code::not_found, "the batch has ", counted(fields.size(), "field"), ", no number ",
           index);
    required(name, "name") = fields[static_cast<size_t>(index)].name.c_str();
  });
}

void etr_batch_destroy(etr_batch* batch) {
  if (!batch || !batch->lent) return destroy(batch);
  guarded([&] {
    required(batch, "batch").destroyed = true;
    fail(Code::state,
         "etr_batch_destroy: a function of the program cannot destroy its item, which "
         "belongs to the pipeline");
  });
}

int32_t etr_batch_create(etr_batch** batch) {
  return guarded([&] { hand_out(batch, std::make_unique<etr_batch>(), "batch"); });
}

int32_t etr_batch_set(etr_batch* batch, const char* field, const etr_tensor* tensor) {
  return guarded([&] {
    field_name(field);
    pipeline::Item& item = required(batch, "batch").item;
    item.set(field, view_of(tensor, field, nullptr).writable());  // copies
  });
}

int32_t etr_batch_wrap(etr_batch* batch, const char* field, const etr_tensor* tensor,
                       void (*release)(void*), void* user_data) {
  return guarded([&] {
    const std::shared_ptr<void> owner = owned(user_data, release);
    field_name(field);
    pipeline::Item& item = required(batch, "batch").item;
    item.set(field, view_of(tensor, field, owner));
  });
}

int32_t etr_batch_wrap_vulkan(etr_batch* batch, const char* field, const etr_vulkan_buffer* buffer,
                              void (*release)(void*), void* user_data) {
  return guarded([&] {
    const std::shared_ptr<void> owner = owned(user_data, release);
    pipeline::OpaqueField made = vulkan_field(required(buffer, "buffer"), field_name(field), owner);
    required(batch, "batch").item.set(std::move(made));
  });
}

int32_t etr_batch_remove(etr_batch* batch, const char* field) {
  return guarded([&] {
    pipeline::Item& item = required(batch, "batch").item;
    required(field, "field");
    if (!item.find_opaque(field)) pipeline::require_field(item, field);
    item.remove(field);
  });
}

int32_t etr_batch_fail(etr_batch* item, const char* message) {
  return guarded([&] { required(item, "item").failure = &required(message, "message"); });
}

int32_t etr_pack(const char* root, const char* prefix, const etr_options* options,
                 int32_t (*progress)(void*, int64_t, int64_t), void* user_data, char** json) {
  return guarded([&] {
    const Options packing(sources::pack_schema(), "pack",
                          options ? required(options, "options").values : Json::object());
    const sources::PackResult result = sources::pack_folder(
        path_of(root, "root"), path_of(prefix, "prefix"), packing,
        [&](int64_t done, int64_t total) { return goes_on(progress, user_data, done, total); });
    if (!json) return;
    Json out{{"samples", result.samples},
             {"validation_samples", result.validation_samples},
             {"bytes", result.bytes},
             {"packed_bytes", result.packed_bytes},
             {"shards", Json::array()},
             {"classes", Json::array()},
             {"classes_file", as_utf8(result.classes_file)},
             {"skipped", Json::array()}};
    for (const std::string& shard : result.shards) out["shards"].push_back(as_utf8(shard));
    for (const std::string& name : result.classes) out["classes"].push_back(as_utf8(name));
    for (const sources::Skipped& file : result.skipped)
      out["skipped"].push_back({{"file", as_utf8(file.name)}, {"reason", as_utf8(file.reason)}});
    *json = copy_string(out.dump());
  });
}

// Deprecated, and deleted with the next version.
int32_t etr_pack_folder(const char* root, const char* prefix, int64_t samples_per_shard,
                        int32_t zstd_level, uint64_t seed,
                        int32_t (*progress)(void*, int64_t, int64_t), void* user_data,
                        char** json) {
  etr_options options;
  options.values = {
      {"per_shard", samples_per_shard}, {"level", zstd_level}, {"seed", seed}, {"overwrite", true}};
  return etr_pack(root, prefix, &options, progress, user_data, json);
}
