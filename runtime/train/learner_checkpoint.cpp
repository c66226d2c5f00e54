// What a learner writes into checkpoints and reads from them.
#include <limits>

#include "core/error.h"
#include "core/json.h"
#include "core/parse_json.h"
#include "train/learner.h"

namespace etr::train {
namespace {

constexpr const char* kWeights = "weights.safetensors";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kState = "learner.json";

const std::vector<std::byte>& file_of(const checkpoint::Files& files, const char* name) {
  const auto it = files.find(name);
  if (it == files.end()) fail(Code::corrupt_data, "the checkpoint has no file '", name, "'");
  return it->second;
}

// What learner.json says.
struct State {
  uint64_t step = 0;
  std::map<std::string, int64_t> rows;
};

State state_of(const checkpoint::Files& files) {
  const auto& bytes = file_of(files, kState);
  const Json json = parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, kState,
                               {.code = Code::corrupt_data});
  State state;
  try {
    const Json step = json.value("step", Json(0u)), rows = json.value("rows", Json::object());
    if (!step.is_number_unsigned() || !rows.is_object())
      fail(Code::corrupt_data, "'", kState, "' is damaged: 'step' is ", step.dump(),
           " and 'rows' is ", rows.dump());
    state.step = step.get<uint64_t>();
    for (const auto& [fields, count] : rows.items()) {
      if (!count.is_number_integer() || count.get<int64_t>() < 1 ||
          count.get<int64_t>() > std::numeric_limits<int32_t>::max())
        fail(Code::corrupt_data, "'", kState, "' is damaged: steps on '", fields, "' had ",
             count.dump(), " rows");
      state.rows[fields] = count.get<int64_t>();
    }
  } catch (const nlohmann::json::exception& error) {
    fail(Code::corrupt_data, "'", kState, "' is damaged: ", json_problem(error));
  }
  return state;
}

}  // namespace

void Learner::save(checkpoint::Files& files) {
  if (!weights_) fail(Code::state, "there is nothing to save before the first batch");
  files[kWeights] = checkpoint::write_safetensors(weights_->store.download());
  files[kOptimizer] = checkpoint::write_safetensors(weights_->update->download());
  const std::string state = Json{{"step", step_}, {"seed", seed_}, {"rows", trained_rows_}}.dump();
  const auto bytes = std::as_bytes(std::span(state));
  files[kState].assign(bytes.begin(), bytes.end());
}

void Learner::load(const checkpoint::Files& files) {
  State state = state_of(files);
  auto loaded = std::make_unique<Loaded>(
      Loaded{checkpoint::read_safetensors(file_of(files, kWeights), kWeights),
             checkpoint::read_safetensors(file_of(files, kOptimizer), kOptimizer)});
  if (weights_)
    apply(*loaded, *weights_);
  else
    loaded_ = std::move(loaded);
  step_ = state.step;
  trained_rows_ = std::move(state.rows);
  if (failed_) forget_failure();
  if (plans_) plans_->forget_last();  // its rows may not be the checkpoint's
}

// All or nothing.
void Learner::apply(const Loaded& loaded, Weights& to) {
  to.store.check(loaded.weights);
  to.update->check(loaded.optimizer);
  to.store.upload(loaded.weights);
  to.update->upload(loaded.optimizer);
  ++to.age;
}

// Of a step that was not finite, and of those behind it, which changed nothing.
void Learner::forget_failure() {
  plans_->results(true).clear();
  weights_->update->resume();
  started_.clear();
  failed_.reset();
}

}  // namespace etr::train
