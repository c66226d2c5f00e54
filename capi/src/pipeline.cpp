// Pipelines, batches, packing.
#include "handles.h"
#include "stages/pack.h"

using namespace etr;
using namespace etr::capi;

int32_t etr_pipeline_create(const etr_options* options, etr_pipeline** pipeline) {
  return guarded([&] {
    auto made = std::make_unique<etr_pipeline>();
    made->spec = options ? options->values : Json::object();
    made->spec["stages"] = Json::array();
    hand_out(pipeline, std::move(made), "pipeline");
  });
}

int32_t etr_pipeline_create_from_json(const char* json, etr_pipeline** pipeline) {
  return guarded([&] {
    auto made = std::make_unique<etr_pipeline>();
    made->spec = parse_json(&required(json, "json"), "the pipeline's JSON");
    made->get();  // checks it
    hand_out(pipeline, std::move(made), "pipeline");
  });
}

void etr_pipeline_destroy(etr_pipeline* pipeline) { delete pipeline; }

int32_t etr_pipeline_add(etr_pipeline* pipeline, const char* stage, const etr_options* options) {
  return guarded([&] {
    etr_pipeline& p = required(pipeline, "pipeline");
    if (p.running) fail(Code::state, "stages are added before the pipeline is used");
    Json row{{"stage", &required(stage, "stage")}};
    if (options) row.update(options->values);
    Json longer = p.spec;
    longer["stages"].push_back(std::move(row));
    pipeline::Pipeline check(longer);  // a bad stage is reported here, not at the first batch
    p.spec = std::move(longer);
  });
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

int32_t etr_pipeline_cancel(etr_pipeline* pipeline) {
  return guarded([&] { required(pipeline, "pipeline").get().cancel(); });
}

int32_t etr_pipeline_stats(etr_pipeline* pipeline, char** json) {
  return guarded(
      [&] { hand_out(json, required(pipeline, "pipeline").get().stats().dump(), "json"); });
}

int32_t etr_pipeline_bad_records(etr_pipeline* pipeline, char** json) {
  return guarded([&] {
    hand_out(json, required(pipeline, "pipeline").get().bad_record_list().dump(), "json");
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
      fail(Code::not_found, "the batch has ", fields.size(), " fields, no number ", index);
    required(name, "name") = fields[static_cast<size_t>(index)].name.c_str();
  });
}

void etr_batch_destroy(etr_batch* batch) { delete batch; }

int32_t etr_pack_folder(const char* root, const char* prefix, int64_t samples_per_shard,
                        int32_t zstd_level, uint64_t seed,
                        int32_t (*progress)(void*, int64_t, int64_t), void* user_data,
                        char** json) {
  return guarded([&] {
    const stages::PackResult result = stages::pack_folder(
        {&required(root, "root"), &required(prefix, "prefix"), samples_per_shard, zstd_level, seed},
        [&](int64_t done, int64_t total) {
          return !progress || progress(user_data, done, total) != 0;
        });
    if (json)
      *json = copy_string(Json{
          {"samples", result.samples},
          {"bytes", result.bytes},
          {"shards", result.shards},
          {"classes",
           result.classes}}.dump());
  });
}
