// Optimizers that treat each scalar separately; formulas in shaders/optimizer_NAME.comp.
#include "core/error.h"
#include "optim/optimizer.h"
#include "optim/parts.h"

namespace etr::optim {
namespace {

struct Push {
  uint32_t count, decayed;
  uint32_t flag = 0, keeps = 0;
  float epsilon = 0;
};

// A tensor that an optimizer keeps between updates, and its initial value.
struct State {
  const char* name;  // nullptr: nothing
  float initial = 0;
};

class Elementwise final : public Optimizer {
 public:
  Elementwise(const Portion& portion, const char* shader, State first, State second,
              float epsilon = 0, bool flag = false)
      : portion_(portion),
        arena_(portion.device(), gpu::MemoryUse::device),
        shader_(shader),
        flag_(flag),
        epsilon_(epsilon) {
    m_ = make(first);
    v_ = make(second);
  }

  void emit(ops::Emitter& emit, const gpu::Buffer& step_values, const Peers& /*peers*/) override {
    emit.set_label("optimizer");
    using gpu::Access;
    for (const auto& range : portion_.ranges()) {
      const gpu::Binding gradients{part_of(portion_.gradients(), range), Access::read};
      const auto binding = [&](const ops::DeviceTensor& state) {
        return state ? gpu::Binding{part_of(state.buffer, range), Access::read_write} : gradients;
      };
      const Push push{range.count, range.decayed, flag_, m_ ? 1u : 0u, epsilon_};
      emit.for_each(shader_,
                    {{part_of(portion_.weights(), range), Access::read_write},
                     gradients,
                     binding(m_),
                     binding(v_),
                     {step_values, Access::read}},
                    push, invocations_over(*emit.device(), push.count));
    }
  }

  std::map<std::string, ops::DeviceTensor> state() const override { return state_; }
  uint64_t reserved_bytes() const override { return arena_.reserved_bytes(); }

 private:
  ops::DeviceTensor make(const State& state) {
    if (!state.name) return {};
    const ops::DeviceTensor tensor =
        make_state(portion_.device(), arena_, portion_.count(), state.initial);
    state_[state.name] = tensor;
    return tensor;
  }

  const Portion portion_;
  gpu::Arena arena_;
  const char* const shader_;
  bool flag_;
  float epsilon_;
  ops::DeviceTensor m_, v_;
  std::map<std::string, ops::DeviceTensor> state_;
};

constexpr OptionSpec kWeightDecay{"weight_decay",
                                  OptionType::number,
                                  "0",
                                  "L2 penalty on weights; biases, normalisation parameters, "
                                  "embeddings and 'parameter' layers are "
                                  "exempt",
                                  0,
                                  10};

// sgd -----------------------------------------------------------------------------------------

constexpr OptionSpec kSgdOptions[] = {
    {"momentum", OptionType::number, "0",
     "fraction of the velocity kept in each step; 0 is plain SGD", 0, 0.99999},
    {"nesterov", OptionType::boolean, "false", "Nesterov momentum (needs momentum)"},
    kWeightDecay,
};

std::unique_ptr<Optimizer> make_sgd(const Options& o, const Portion& portion) {
  const double momentum = o.number("momentum");
  if (o.boolean("nesterov") && momentum == 0)
    fail(Code::invalid_argument, "optimizer 'sgd': nesterov needs a momentum above 0");
  return std::make_unique<Elementwise>(portion, "optimizer_sgd",
                                       State{momentum != 0 ? "velocity" : nullptr}, State{}, 0.0f,
                                       o.boolean("nesterov"));
}

// adam, adamw ---------------------------------------------------------------------------------

constexpr OptionSpec kBeta1{"beta1", OptionType::number, "0.9", "decay rate of the first moment", 0,
                            0.999999};
constexpr OptionSpec kBeta2{
    "beta2", OptionType::number, "0.999", "decay rate of the second moment", 0, 0.999999};
constexpr OptionSpec kEpsilon{
    "epsilon", OptionType::number, "1e-8", "added to the square root", kLeastEpsilon, 1};

constexpr OptionSpec kAdamOptions[] = {kBeta1, kBeta2, kEpsilon, kWeightDecay};
constexpr OptionSpec kAdamwOptions[] = {kBeta1,
                                        kBeta2,
                                        kEpsilon,
                                        {"weight_decay", OptionType::number, "0.01",
                                         "decoupled weight decay: multiplied by the learning rate; "
                                         "biases, normalisation parameters, embeddings and "
                                         "'parameter' layers are exempt",
                                         0, 10}};

template <bool decoupled>
std::unique_ptr<Optimizer> make_adam(const Options& o, const Portion& portion) {
  return std::make_unique<Elementwise>(portion, "optimizer_adam", State{"mean"}, State{"square"},
                                       number(o, "epsilon"), decoupled);
}

// adagrad, rmsprop, lion ----------------------------------------------------------------------

constexpr OptionSpec kAdagradOptions[] = {
    {"initial_accumulator", OptionType::number, "0", "initial value of the sums of squares", 0, 1e6,
     "", "", "initial"},
    {"epsilon", OptionType::number, "1e-10", "added to the square root", kLeastEpsilon, 1},
    kWeightDecay,
};

std::unique_ptr<Optimizer> make_adagrad(const Options& o, const Portion& portion) {
  return std::make_unique<Elementwise>(portion, "optimizer_adagrad", State{},
                                       State{"square", number(o, "initial_accumulator")},
                                       number(o, "epsilon"));
}

constexpr OptionSpec kRmspropOptions[] = {
    {"decay", OptionType::number, "0.99", "decay rate of the mean squared gradient", 0, 0.999999},
    {"momentum", OptionType::number, "0", "fraction of the velocity kept in each step", 0, 0.99999},
    kEpsilon,
    kWeightDecay,
};

std::unique_ptr<Optimizer> make_rmsprop(const Options& o, const Portion& portion) {
  return std::make_unique<Elementwise>(portion, "optimizer_rmsprop",
                                       State{o.number("momentum") != 0 ? "velocity" : nullptr},
                                       State{"square"}, number(o, "epsilon"));
}

constexpr OptionSpec kLionOptions[] = {
    {"beta1", OptionType::number, "0.9",
     "weight of the momentum, beside the gradient, in the direction of the update", 0, 0.999999},
    {"beta2", OptionType::number, "0.99", "fraction of the momentum kept in each step", 0,
     0.999999},
    kWeightDecay,
};

std::unique_ptr<Optimizer> make_lion(const Options&, const Portion& portion) {
  return std::make_unique<Elementwise>(portion, "optimizer_lion", State{"mean"}, State{});
}

}  // namespace

extern const OptimizerSpec sgd_optimizer, adam_optimizer, adamw_optimizer, adagrad_optimizer,
    rmsprop_optimizer, lion_optimizer;
const OptimizerSpec sgd_optimizer{
    "sgd",       "stochastic gradient descent, with momentum or Nesterov momentum",
    kSgdOptions, make_sgd,
    false,       true};
const OptimizerSpec adam_optimizer{"adam", "Adam (Kingma and Ba 2015)", kAdamOptions,
                                   make_adam<false>};
const OptimizerSpec adamw_optimizer{"adamw",
                                    "Adam with decoupled weight decay (Loshchilov and Hutter 2019)",
                                    kAdamwOptions, make_adam<true>};
const OptimizerSpec adagrad_optimizer{"adagrad", "Adagrad (Duchi et al. 2011)", kAdagradOptions,
                                      make_adagrad};
const OptimizerSpec rmsprop_optimizer{
    "rmsprop", "RMSprop (Tieleman and Hinton 2012)", kRmspropOptions, make_rmsprop, false, true};
const OptimizerSpec lion_optimizer{"lion", "Lion (Chen et al. 2023)", kLionOptions, make_lion};

}  // namespace etr::optim
