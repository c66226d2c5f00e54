// What a learner writes into checkpoints and reads from them.
#include <algorithm>
#include <limits>

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

// What learner.json says.
struct State {
  uint64_t step = 0;
  std::map<std::string, int64_t> rows;
  std::string optimizer;  // "" in those of earlier versions
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
    state.optimizer = json.value("optimizer", "");
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

// A weight that the model lacks would be dropped without notice.
void check_no_others(const checkpoint::NamedTensors& given, const std::vector<std::string>& names) {
  for (const auto& [name, tensor] : given)
    if (std::find(names.begin(), names.end(), name) == names.end())
      fail(Code::invalid_argument, "the model has no weight '", name, "' (the file holds ",
           dtype_name(tensor.dtype()), " ", shape_text(tensor.shape()), ")");
}

template <typename Check>
void check_origin(const std::string& origin, const char* what, Check&& check) {
  try {
    check();
  } catch (const Error& error) {
    fail(error.code(), origin, " is of another ", what, ": ", error.what(), ". Load it with the ",
         what, " that it was made with, or begin anew in another folder");
  }
}

}  // namespace

void Learner::save(checkpoint::Files& files) {
  if (!weights_) fail(Code::state, "there is nothing to save before the first batch");
  files[kWeights] = checkpoint::write_safetensors(weights_->store.download());
  files[kOptimizer] = checkpoint::write_safetensors(weights_->update->download());
  const Json state{{"step", step_},
                   {"seed", seed_},
                   {"rows", trained_rows_},
                   {"optimizer", update_.optimizer().name}};
  checkpoint::put_text(files, kState, state.dump());
}

void Learner::load(const checkpoint::Files& files, const std::string& origin) {
  State state = state_of(files, origin);
  const std::string optimizer = update_.optimizer().name;
  check_origin(origin, "optimizer", [&] {
    if (state.optimizer != optimizer && !state.optimizer.empty())
      fail(Code::invalid_argument, "it was made with '", state.optimizer,
           "', and this trainer has '", optimizer, "'");
  });
  const auto tensors = [&](const char* name) {
    return checkpoint::read_safetensors(file_of(files, name, origin),
                                        cat(origin, ": '", name, "'"));
  };
  auto loaded = std::make_unique<Loaded>(Loaded{tensors(kWeights), tensors(kOptimizer), origin});
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
  check_origin(loaded.origin, "model", [&] {
    to.store.check(loaded.weights);
    check_no_others(loaded.weights, to.store.names());
  });
  check_origin(loaded.origin, "optimizer", [&] { to.update->check(loaded.optimizer); });
  to.store.upload(loaded.weights);
  to.update->upload(loaded.optimizer);
  ++to.age;
}

// Of a step that was not finite, and of those after it, which changed nothing.
void Learner::forget_failure() {
  plans_->results(true).clear();
  weights_->update->resume();
  started_.clear();
  failed_.reset();
}

}  // namespace etr::train
