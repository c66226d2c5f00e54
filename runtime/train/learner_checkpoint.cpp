// The learner's part of checkpoints.
#include <limits>
#include <optional>

#include "core/error.h"
#include "core/json.h"
#include "core/json_members.h"
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

// {NAME: [[STEP, VALUE], ...]}
optim::Hyperparameters::Changes changes_of(const Json& json, const std::string& damaged) {
  optim::Hyperparameters::Changes out;
  for (const auto& [name, changes] : json.items()) {
    if (!changes.is_array()) fail(Code::corrupt_data, damaged, ": '", name, "' has no changes");
    for (const Json& change : changes) {
      if (!change.is_array() || change.size() != 2 || !change.at(0).is_number_unsigned() ||
          !change.at(1).is_number())
        fail(Code::corrupt_data, damaged, ": '", name, "' has the change ", brief_json(change),
             ", which is not a step and a value");
      out[name][change.at(0).get<uint64_t>()] = change.at(1).get<double>();
    }
  }
  return out;
}

State state_of(const checkpoint::Files& files, const std::string& origin) {
  const Json json = checkpoint::json_of(files, kState, origin);
  const std::string damaged = cat(origin, ": '", kState, "' is damaged");
  const JsonMembers members(json, damaged, Code::corrupt_data);
  const auto count = [&](const char* key) -> std::optional<uint64_t> {
    if (!members.has(key)) return std::nullopt;
    return members.count(key);
  };
  State state;
  try {
    const Json rows = members.has("rows") ? members.object("rows") : Json::object();
    state.step = count("step").value_or(0);
    state.fresh = count("fresh");
    state.examples = count("examples");
    state.latest_fresh = count("latest_fresh").value_or(0);
    state.optimizer = json.value("optimizer", "");
    if (const auto accumulate = count("accumulate"))
      state.accumulate = static_cast<int64_t>(*accumulate);
    state.frozen = json.value("frozen", state.frozen);
    state.base = json.value("base", state.base);
    state.scale = json.value("lora_scale", state.scale);
    if (members.has("hyperparameters"))
      state.hyperparameters = changes_of(members.object("hyperparameters"), damaged);
    for (const auto& [fields, number] : rows.items()) {
      if (!number.is_number_integer() || number.get<int64_t>() < 1 ||
          number.get<int64_t>() > std::numeric_limits<int32_t>::max())
        fail(Code::corrupt_data, damaged, ": steps on '", fields, "' had ", number.dump(), " rows");
      state.rows[fields] = number.get<int64_t>();
    }
  } catch (const nlohmann::json::exception& error) {
    fail(Code::corrupt_data, damaged, ": ", json_problem(error));
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
