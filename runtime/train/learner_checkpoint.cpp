// The learner's part of checkpoints.
#include <limits>
#include <optional>

#include "core/error.h"
#include "core/json.h"
#include "train/learner.h"

namespace etr::train {
namespace {

constexpr const char* kWeights = "weights.safetensors";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kState = "learner.json";

const std::vector<std::byte>& file_of(const checkpoint::Files& files, const char* name,
                                      const std::string& origin) {
  const auto it = files.find(name);
  if (it == files.end()) fail(Code::corrupt_data, origin, " has no file '", name, "'");
  return it->second;
}

// The contents of learner.json.
struct State {
  uint64_t step = 0;
  std::optional<uint64_t> fresh, examples;  // none in files of earlier versions
  uint64_t latest_fresh = 0;                // in the latest step
  std::map<std::string, int64_t> rows;
  std::string optimizer;              // "" in files of earlier versions
  std::optional<int64_t> accumulate;  // none in files of earlier versions
  std::vector<std::string> frozen;
  std::string base;  // see Loaded
  double scale = 0;
  optim::Hyperparameters::Changes hyperparameters;
};

State state_of(const checkpoint::Files& files, const std::string& origin) {
  const Json json = checkpoint::json_of(files, kState, origin);
  State state;
  try {
    const Json step = json.value("step", Json(0u)), rows = json.value("rows", Json::object());
    if (!step.is_number_unsigned() || !rows.is_object())
      fail(Code::corrupt_data, origin, ": '", kState, "' is damaged: 'step' is ", step.dump(),
           " and 'rows' is ", rows.dump());
    state.step = step.get<uint64_t>();
    if (json.contains("fresh")) state.fresh = json["fresh"].get<uint64_t>();
    if (json.contains("examples")) state.examples = json["examples"].get<uint64_t>();
    state.latest_fresh = json.value("latest_fresh", state.latest_fresh);
    state.optimizer = json.value("optimizer", "");
    if (json.contains("accumulate")) state.accumulate = json["accumulate"].get<int64_t>();
    state.frozen = json.value("frozen", state.frozen);
    state.base = json.value("base", state.base);
    state.scale = json.value("lora_scale", state.scale);
    state.hyperparameters = json.value("hyperparameters", state.hyperparameters);
    for (const auto& [fields, count] : rows.items()) {
      if (!count.is_number_integer() || count.get<int64_t>() < 1 ||
          count.get<int64_t>() > std::numeric_limits<int32_t>::max())
        fail(Code::corrupt_data, origin, ": '", kState, "' is damaged: steps on '", fields,
             "' had ", count.dump(), " rows");
      state.rows[fields] = count.get<int64_t>();
    }
  } catch (const nlohmann::json::exception& error) {
    fail(Code::corrupt_data, origin, ": '", kState, "' is damaged: ", json_problem(error));
  }
  return state;
}

}  // namespace

void Learner::save(checkpoint::Files& files) {
  Weights& weights = begun("there is nothing to save before the first batch");
  wait();
  const auto saved = weights.saved();
  if (!saved) return;
  files[kWeights] = checkpoint::write_safetensors(saved->weights);
  files[kOptimizer] = checkpoint::write_safetensors(saved->optimizer);
  Json state{{"step", steps_.count()},
             {"fresh", steps_.passed().fresh},
             {"examples", steps_.passed().examples},
             {"latest_fresh", steps_.latest_fresh()},
             {"seed", seed_},
             {"rows", plans_->trained_rows()},
             {"optimizer", update_.optimizer().name},
             {"accumulate", update_.accumulate()}};
  if (const auto frozen = weights.frozen(); !frozen.empty()) state["frozen"] = frozen;
  if (weights.net.lora) {
    state["base"] = weights.base();
    state["lora_scale"] = weights.net.lora->scale();
  }
  const auto& were_set = steps_.hyperparameters().were_set();
  if (!were_set.empty()) state["hyperparameters"] = were_set;
  checkpoint::put_text(files, kState, state.dump());
  if (ranks_) ranks_->save(files);
}

void Learner::load(const checkpoint::Files& files, const std::string& origin,
                   const optim::Passed& unsaid) {
  State state = state_of(files, origin);
  const std::string optimizer = update_.optimizer().name;
  check_origin(origin, "optimizer", [&] {
    if (state.optimizer != optimizer && !state.optimizer.empty())
      fail(Code::invalid_argument, "it was made with '", state.optimizer,
           "', and this trainer has '", optimizer, "'");
    // Another number would change which update a step belongs to, and the clock of the schedule.
    if (state.accumulate && state.accumulate != update_.accumulate())
      fail(Code::invalid_argument, "it was made with 'accumulate' ", *state.accumulate,
           ", and this trainer has ", update_.accumulate(), ": set it as in the run that saved it");
  });
  optim::Hyperparameters hyperparameters = steps_.hyperparameters();
  check_origin(origin, "optimizer or loss",
               [&] { hyperparameters.restore(state.hyperparameters); });
  const auto tensors = [&](const char* name) {
    return checkpoint::read_safetensors(file_of(files, name, origin),
                                        cat(origin, ": '", name, "'"));
  };
  Loaded loaded{tensors(kWeights),
                tensors(kOptimizer),
                std::move(state.rows),
                std::move(state.frozen),
                origin,
                std::move(state.base),
                state.scale};
  wait();
  // Before the ranks' state changes, because it may not fit.
  std::optional<SavedWeights> own;
  if (plans_) own = weights_->own_of(loaded);
  if (ranks_) ranks_->load(files, origin);
  if (own) {
    replace_weights([&] { weights_->load(*own); });
    plans_->go_on_with(std::move(loaded.rows));
  } else {
    loaded_ = std::make_unique<Loaded>(std::move(loaded));
  }
  steps_.hyperparameters() = std::move(hyperparameters);
  forget_passes();
  steps_.go_on_after(
      {state.step, state.fresh.value_or(unsaid.fresh), state.examples.value_or(unsaid.examples)},
      state.latest_fresh, plans_.get());
}

}  // namespace etr::train
