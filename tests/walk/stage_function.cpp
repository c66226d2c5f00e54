// What the functions of the program do with the items of a pipeline.
#include <array>
#include <stdexcept>

#include "world.h"

namespace walk {
namespace {

constexpr uint64_t kNumber = (uint64_t{1} << 40) - 1;  // of a sample in its pass

void set(Walk& walk, etr_batch* item, const char* field, const etr_tensor& tensor) {
  walk.call("etr_batch_set", "of an item", kOk,
            [&] { return etr_batch_set(item, field, &tensor); });
}

}  // namespace

void StageFunction::close_gate() {
  const std::scoped_lock lock(mutex);
  closed = true;
}

void StageFunction::open_gate() {
  {
    const std::scoped_lock lock(mutex);
    closed = false;
  }
  changed.notify_all();
}

int32_t StageFunction::give(void* self, etr_batch* item) {
  auto& mine = *static_cast<StageFunction*>(self);
  if (mine.destroyed > 0) mine.walk.trace.fail("a function was called after its destroy");
  {
    std::unique_lock lock(mine.mutex);
    ++mine.waiting;
    mine.changed.wait(lock, [&] { return !mine.closed; });
    --mine.waiting;
  }
  if (etr_pipeline* const pipeline = mine.destroys.exchange(nullptr))
    mine.walk.call_void("etr_pipeline_destroy", [&] { etr_pipeline_destroy(pipeline); });
  etr_batch_info info{};
  info.struct_size = sizeof info;
  mine.walk.call("etr_batch_get_info", "of an item", kOk,
                 [&] { return etr_batch_get_info(item, &info); });
  return mine.is_source ? mine.source(item, info) : mine.map(item, info);
}

int32_t StageFunction::source(etr_batch* item, const etr_batch_info& info) {
  const auto number = static_cast<int64_t>(info.ordinal & kNumber);
  if (number >= samples) return ETR_END;
  Random random(0);
  random.begin(seed, info.ordinal);
  if (misbehaves && random.one_in(misbehaves)) return misbehave(item, random);
  const std::array<float, 6> image{1, 2, static_cast<float>(number), 0, 1, 0};
  const auto label = static_cast<int32_t>(number % 2);
  set(walk, item, "image", {sizeof(etr_tensor), ETR_F32, 1, 0, {6}, image.data(), sizeof image});
  set(walk, item, "label", {sizeof(etr_tensor), ETR_I32, 0, 0, {}, &label, sizeof label});
  return ETR_OK;
}

int32_t StageFunction::map(etr_batch* item, const etr_batch_info& info) {
  Random random(0);
  random.begin(seed ^ info.epoch, info.ordinal);
  if (misbehaves && random.one_in(misbehaves)) return misbehave(item, random);
  etr_tensor image{};
  image.struct_size = sizeof image;
  walk.call("etr_batch_get", "of an item", kOk,
            [&] { return etr_batch_get(item, "image", &image); });
  switch (random.below(8)) {
    case 0: set(walk, item, "image", image); break;
    case 1: {
      auto* const memory = walk.keep(std::make_unique<UserData>());
      static const float value = 1;
      const etr_tensor one{sizeof one, ETR_F32, 0, 0, {}, &value, sizeof value};
      walk.call("etr_batch_wrap", "of an item", kOk,
                [&] { return etr_batch_wrap(item, "x", &one, UserData::destroy, memory); });
      walk.call("etr_batch_remove", "of an item", kOk, [&] { return etr_batch_remove(item, "x"); });
      break;
    }
    case 2: use_others(random); break;
    default: break;
  }
  return ETR_OK;
}

// Each is a failure of the function.
int32_t StageFunction::misbehave(etr_batch* item, Random& random) {
  switch (random.below(8)) {
    case 0:
      walk.call("etr_batch_fail", "of an item", kOk,
                [&] { return etr_batch_fail(item, "this record is bad"); });
      return ETR_CALLBACK;
    case 1: return ETR_IO;
    case 2: return 7;  // no status
    case 3: throw std::runtime_error("an exception of the program's");
    case 4: throw 3;
    case 5: etr_batch_destroy(item); return ETR_OK;
    case 6:
      if (is_source) return ETR_OK;  // without a field
      return ETR_END;                // which only sources may
    default:
      if (is_source) return ETR_RANK_LOST;
      for (const char* field : {"image", "label"}) etr_batch_remove(item, field);
      return ETR_OK;
  }
}

// Handles other than those of the pipeline that calls.
void StageFunction::use_others(Random& random) {
  if (random.one_in(2)) {
    etr_options* options = nullptr;
    walk.call("etr_options_create", "in a function", kOk,
              [&] { return etr_options_create(&options); });
    walk.call("etr_options_set_integer", "in a function", kOk,
              [&] { return etr_options_set_integer(options, "units", 2); });
    walk.call("etr_options_set_integer", "in a function, NULL", kInvalid,
              [&] { return etr_options_set_integer(nullptr, "units", 2); });
    etr_options_destroy(options);
    return;
  }
  // The pipeline of a function ends on a thread of its own.
  const std::string json = row_stages(walk, "");
  etr_pipeline* pipeline = nullptr;
  walk.call("etr_pipeline_create_from_json", "in a function", kOk,
            [&] { return etr_pipeline_create_from_json(json.c_str(), &pipeline); });
  etr_batch* batch = nullptr;
  walk.call("etr_pipeline_next", "in a function", kOk,
            [&] { return etr_pipeline_next(pipeline, &batch); });
  etr_batch_destroy(batch);
  walk.call_void("etr_pipeline_destroy", [&] { etr_pipeline_destroy(pipeline); });
}

}  // namespace walk
