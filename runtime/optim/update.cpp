#include "optim/update.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "core/error.h"
#include "core/json.h"
#include "gpu/run_once.h"
#include "optim/parts.h"

namespace etr::optim {
namespace {

constexpr OptionSpec kCommon[] = {
    {"accumulate", OptionType::integer, "1",
     "number of steps whose gradients are accumulated for one update", 1, 1 << 20, "steps"},
    {"clip_norm", OptionType::number, "0",
     "largest norm of all gradients together; larger gradients are scaled down; 0: no limit", 0,
     1e9},
    {"clip_value", OptionType::number, "0",
     "largest absolute value of an element of the gradients; larger values are "
     "clipped; 0: no limit",
     0, 1e9},
    {"proximal", OptionType::number, "0",
     "strength of the pull towards the weights from before an echoed batch was first used (Agarwal "
     "et al. 2020)",
     0, 1e6},
    {"ema_decay", OptionType::number, "0",
     "decay of an exponential moving average of the weights, such as 0.999; "
     "evaluation uses the average; 0: none",
     0, 0.9999999, "", "", "average"},
};

constexpr uint32_t kParts = 64;  // partial sums of squares

std::string name_of(const Json& json) {
  if (!json.is_object() || !json.contains("optimizer") || !json["optimizer"].is_string())
    fail(Code::invalid_argument,
         "optimizer: needs a key 'optimizer' with its name, for instance "
         "{\"optimizer\": \"sgd\", \"momentum\": 0.9}");
  return json["optimizer"].get<std::string>();
}

// Returns the keys of `json` that are common options, or those that are not.
Json keys(const Json& json, bool common) {
  Json out = Json::object();
  for (const auto& [key, value] : json.items()) {
    bool known = false;
    for (const OptionSpec& option : kCommon) known = known || option.is_called(key);
    if (key != "optimizer" && known == common) out[key] = value;
  }
  return out;
}

// Says how to go on where a state would be lost.
std::string remedy(const std::string& state) {
  constexpr std::pair<const char*, const char*> kOptions[] = {{"velocity", "momentum"},
                                                              {"accumulated", "accumulate"},
                                                              {"anchor", "proximal"},
                                                              {"average", "ema_decay"}};
  for (const auto& [of, option] : kOptions)
    if (state == of) return cat("set '", option, "' as in the run that saved it");
  return "set the options of the optimizer as in the run that saved it";
}

// Returns the state as it is kept now. A loss scale of earlier versions has not counted the updates
// that were left out.
Tensor as_now(const std::string& name, const Tensor& given) {
  if (name != "loss_scale" || given.shape() != Shape{2} || given.dtype() != DType::f32)
    return given;
  Tensor out(DType::f32, {3});
  const auto to = out.mutable_view<float>();
  std::copy_n(given.view<float>().begin(), 2, to.begin());
  to[2] = 0;
  return out;
}

struct Push {
  uint32_t count, steps = 0;
  float most_norm = 0, most = 0, proximal = 0, decay = 0;
};

}  // namespace

Schema update_schema() { return kCommon; }

UpdateSpec::UpdateSpec(const Json& json)
    : optimizer_(&find_optimizer(name_of(json))),
      options_(optimizer_->options, cat("optimizer '", optimizer_->name, "'"), keys(json, false)),
      common_(kCommon, cat("optimizer '", optimizer_->name, "'"), keys(json, true)) {}

Update::Update(const UpdateSpec& spec, const graph::ParameterStore& store,
               const LossScale* loss_scale, const std::optional<Share>& share)
    : store_(store),
      loss_scale_(loss_scale),
      options_(spec.common()),
      arena_(store.device(), gpu::MemoryUse::device),
      gradients_arena_(store.device(), gpu::MemoryUse::device),
      own_gradients_(share && share->only_gradients
                         ? make_state(store.device(), gradients_arena_, share->count)
                         : ops::DeviceTensor{}),
      own_(owned(share)),
      known_(own_gradients_ ? own_ : Portion(store)),
      optimizer_(spec.optimizer().make(spec.options(), own_)) {
  if (options_.integer("accumulate") > 1) sum_ = make(known_.count());
  norm_ = make(1);
  failed_ = make(1);
  if (options_.number("proximal") > 0) anchor_ = make(own_.count());
  if (options_.number("ema_decay") > 0) {
    averages_ = make(store.count());
    begin_averages();
  }
}

Portion Update::owned(const std::optional<Share>& share) const {
  if (!share) return store_;
  return {store_, share->begin, share->count,
          own_gradients_
              ? own_gradients_.buffer
              : store_.gradients().slice(uint64_t{share->begin} * 4, uint64_t{share->count} * 4)};
}

ops::DeviceTensor Update::make(int64_t count) { return make_state(store_.device(), arena_, count); }

// Protects the weights from gradients that are not finite: every later kernel sees that there is no
// update.
void Update::emit_finite(ops::Emitter& emit, const gpu::Buffer& gradients, uint32_t count,
                         const gpu::Buffer& loss, const gpu::Buffer& step_values) const {
  using gpu::Access;
  emit.for_each("gradient_finite",
                {{gradients, Access::read},
                 {loss, Access::read},
                 ops::reads(failed_),
                 {step_values, Access::read_write}},
                Push{count}, invocations_over(*emit.device(), count));
}

void Update::emit_verdict(ops::Emitter& emit, const gpu::Buffer& verdict) const {
  emit.set_label("gradients");
  emit.add(gpu::Fill{verdict, 0});
  for (const auto& range : known_.ranges())
    emit_verdict(emit, part_of(known_.gradients(), range), range.count, verdict);
}

void Update::emit_verdict(ops::Emitter& emit, const gpu::Buffer& gradients, uint32_t count,
                          const gpu::Buffer& verdict) {
  emit.for_each("gradient_verdict",
                {{gradients, gpu::Access::read}, {verdict, gpu::Access::read_write}}, Push{count},
                invocations_over(*emit.device(), count));
}

void Update::emit_gradients(ops::Emitter& emit, const gpu::Buffer& loss,
                            const gpu::Buffer& step_values, const Shared* shared) {
  using gpu::Access;
  emit.set_label("gradients");
  const auto ranges = known_.ranges();
  if (loss_scale_) loss_scale_->emit_number(emit, step_values);
  for (const auto& range : ranges)
    emit_finite(emit, part_of(known_.gradients(), range), range.count, loss, step_values);
  if (shared) {
    emit_finite(emit, shared->verdict, 1, loss, step_values);
    for (const auto& range : shared->divisor ? ranges : std::vector<graph::ParameterStore::Range>{})
      emit.for_each("loss_unscale",
                    {{part_of(known_.gradients(), range), Access::read_write},
                     {shared->divisor, Access::read}},
                    range.count, range.count);
  }
  if (loss_scale_)
    for (const auto& range : ranges)
      loss_scale_->emit_unscale(emit, part_of(known_.gradients(), range), range.count);
  if (!sum_) return;
  const auto steps = static_cast<uint32_t>(options_.integer("accumulate"));
  for (const auto& range : ranges)
    emit.for_each("gradient_accumulate",
                  {{part_of(known_.gradients(), range), Access::read_write},
                   {part_of(sum_.buffer, range), Access::read_write},
                   {step_values, Access::read_write}},
                  Push{range.count, steps}, range.count);
}

// Returns the ranges of known gradients that count in the norm, with neighbours merged.
std::vector<graph::ParameterStore::Range> Update::counted(const Peers& peers) const {
  if (!peers.counts) return known_.ranges();
  std::vector<graph::ParameterStore::Range> out;
  const auto& parameters = store_.parameters();
  const auto counts = [&](const auto& parameter) { return peers.counts(parameter.name); };
  for (auto begin = parameters.begin(); begin != parameters.end();) {
    begin = std::find_if(begin, parameters.end(), counts);
    if (begin == parameters.end()) break;
    const auto end = std::find_if_not(begin, parameters.end(), counts);
    const uint32_t first = begin->begin, last = std::prev(end)->begin + std::prev(end)->count;
    for (auto range : store_.ranges(first, last - first)) {
      range.begin += first;
      out.push_back(range);
    }
    begin = end;
  }
  return out;
}

void Update::emit_norm(ops::Emitter& emit, const Peers& peers) {
  using gpu::Access;
  const auto ranges = counted(peers);
  const ops::DeviceTensor partial =
      emit.scratch({int64_t{kParts} * std::max<int64_t>(1, std::ssize(ranges))});
  if (ranges.empty()) emit.add(gpu::Fill{partial.buffer, 0});
  for (size_t i = 0; i < ranges.size(); ++i)
    emit.for_rows("gradient_squares",
                  {{part_of(known_.gradients(), ranges[i]), Access::read},
                   {partial.buffer.slice(i * kParts * 4, kParts * 4), Access::write}},
                  Push{ranges[i].count}, kParts, ranges[i].count / kParts, {}, 1);
  const auto parts = static_cast<uint32_t>(partial.shape[0]);
  emit.for_rows("gradient_norm", {ops::reads(partial), ops::writes(norm_)}, Push{parts}, 1, parts,
                {}, 1);
  if (peers.join_norm) peers.join_norm(norm_.buffer);
}

// Emits clipping and the proximal step.
void Update::emit_adjustments(ops::Emitter& emit, const gpu::Buffer& step_values,
                              const Peers& peers) {
  using gpu::Access;
  const gpu::Binding step{step_values, Access::read};
  const auto push_of = [&](uint32_t count) {
    return Push{count,
                0,
                static_cast<float>(options_.number("clip_norm")),
                static_cast<float>(options_.number("clip_value")),
                static_cast<float>(options_.number("proximal")),
                0};
  };
  const Push push = push_of(0);
  if (push.most_norm > 0) emit_norm(emit, peers);
  if (push.most_norm <= 0 && push.most <= 0 && push.proximal <= 0) return;
  for (const auto& range : own_.ranges()) {
    const gpu::Binding weights{part_of(own_.weights(), range), Access::read};
    emit.for_each(
        "gradient_adjust",
        {weights,
         {part_of(own_.gradients(), range), Access::read_write},
         ops::reads(norm_),
         anchor_ ? gpu::Binding{part_of(anchor_.buffer, range), Access::read_write} : weights,
         step},
        push_of(range.count), range.count);
  }
}

void Update::emit(ops::Emitter& emit, const gpu::Buffer& loss, const gpu::Buffer& step_values) {
  emit_gradients(emit, loss, step_values);
  emit_change(emit, loss, step_values);
}

void Update::emit_change(ops::Emitter& emit, const gpu::Buffer& loss,
                         const gpu::Buffer& step_values, const Peers& peers) {
  using gpu::Access;
  emit.set_label("gradients");
  emit_adjustments(emit, step_values, peers);
  optimizer_->emit(emit, step_values, peers);
  if (peers.gather_weights) peers.gather_weights();
  if (loss_scale_)
    loss_scale_->emit_next(emit, loss, failed_, step_values);
  else
    emit.add(
        gpu::Copy{step_values.slice(offsetof(ops::StepValues, not_finite), 4), failed_.buffer});
  if (!averages_) return;
  for (const auto& range : store_.ranges()) {
    const Push push{range.count, 0, 0, 0, 0, static_cast<float>(options_.number("ema_decay"))};
    emit.for_each("weights_average",
                  {{part_of(store_.weights(), range), Access::read},
                   {part_of(averages_.buffer, range), Access::read_write},
                   {step_values, Access::read}},
                  push, push.count);
  }
}

void Update::emit_receive(ops::Emitter& emit, const gpu::Buffer& weights, const gpu::Buffer& there,
                          const gpu::Buffer& step_values) {
  const auto count = static_cast<uint32_t>(weights.size_bytes / sizeof(float));
  emit.for_each("weights_receive",
                {{weights, gpu::Access::read_write},
                 {there, gpu::Access::read},
                 {step_values, gpu::Access::read}},
                Push{count}, count);
}

uint64_t Update::reserved_bytes() const {
  return arena_.reserved_bytes() + gradients_arena_.reserved_bytes() + optimizer_->reserved_bytes();
}

uint64_t Update::spared_bytes() const {
  const uint64_t others = uint64_t{store_.count() - own_.count()} * 4;
  return others * (shared_out().size() + (own_gradients_ ? 1 : 0));
}

std::vector<std::string> Update::shared_out() const {
  std::vector<std::string> out;
  for (const auto& [name, tensor] : optimizer_->state()) out.push_back(name);
  if (anchor_) out.push_back("anchor");
  if (sum_ && own_gradients_) out.push_back("accumulated");
  return out;
}

void Update::begin_averages() const {
  if (averages_) gpu::run_once(store_.device(), {gpu::Copy{store_.weights(), averages_.buffer}});
}

void Update::resume() const { gpu::run_once(store_.device(), {gpu::Fill{failed_.buffer, 0}}); }

std::map<std::string, ops::DeviceTensor> Update::state() const {
  auto state = optimizer_->state();
  if (sum_) state["accumulated"] = sum_;
  if (anchor_) state["anchor"] = anchor_;
  if (averages_) state["average"] = averages_;
  if (loss_scale_) state["loss_scale"] = loss_scale_->state();
  return state;
}

std::map<std::string, Tensor> Update::download() const {
  std::map<std::string, Tensor> out;
  for (const auto& [name, tensor] : state()) out[name] = graph::download(store_.device(), tensor);
  return out;
}

void Update::check(const std::map<std::string, Tensor>& given) const {
  const auto own = state();
  for (const auto& [name, tensor] : given)
    // The precision may change, and a scale is found again.
    if (!own.contains(name) && name != "loss_scale")
      fail(Code::invalid_argument, "the file has a state '", name,
           "', which this optimizer does not keep: ", remedy(name));
  for (const auto& [name, tensor] : own) {
    const auto it = given.find(name);
    if (it == given.end() && name == "loss_scale") continue;
    if (it == given.end())
      fail(Code::invalid_argument, "the file has no state '", name, "' (the optimizer expects f32 ",
           shape_text(tensor.shape), ")");
    const Tensor is = as_now(name, it->second);
    if (is.shape() != tensor.shape || is.dtype() != DType::f32)
      fail(Code::invalid_argument, "state '", name, "' is ", dtype_name(is.dtype()), " ",
           shape_text(is.shape()), " in the file but f32 ", shape_text(tensor.shape),
           " in the optimizer");
  }
}

void Update::upload(const std::map<std::string, Tensor>& given) {
  check(given);
  for (const auto& [name, tensor] : state()) {
    if (const auto it = given.find(name); it != given.end()) {
      graph::upload(store_.device(), as_now(name, it->second), tensor);
      continue;
    }
    // The scale stays. None of the updates that made the given state was left out for one.
    Tensor scale = graph::download(store_.device(), tensor);
    scale.mutable_view<float>()[2] = 0;
    graph::upload(store_.device(), scale, tensor);
  }
}

}  // namespace etr::optim
