// SGD with optional momentum; the update formulas stand in shaders/sgd.comp.
#include "core/error.h"
#include "gpu/recording.h"
#include "optim/optimizer.h"

namespace etr::optim {
namespace {

constexpr OptionSpec kOptions[] = {
    {"momentum", OptionType::number, "0", "share of the velocity kept each step; 0 is plain SGD", 0,
     0.99999},
    {"nesterov", OptionType::boolean, "false", "look ahead along the velocity (needs momentum)"},
    {"weight_decay", OptionType::number, "0",
     "L2 penalty on weights; biases and normalisation are exempt", 0, 10},
};

class Sgd final : public Optimizer {
 public:
  Sgd(const Options& options, const graph::ParameterStore& store)
      : store_(store),
        arena_(store.device(), gpu::MemoryUse::device),
        momentum_(static_cast<float>(options.number("momentum"))),
        weight_decay_(static_cast<float>(options.number("weight_decay"))),
        nesterov_(options.boolean("nesterov")) {
    if (nesterov_ && momentum_ == 0)
      fail(Code::invalid_argument, "optimizer 'sgd': nesterov needs a momentum above 0");
    const int64_t count = momentum_ != 0 ? store.count() : 1;
    velocity_ = {arena_.allocate(static_cast<uint64_t>(count) * 4), {count}};
    gpu::run_once(store.device(), {gpu::Fill{velocity_.buffer, 0}});
  }

  void emit(ops::Emitter& emit, const gpu::Buffer& step_values) override {
    const struct {
      uint32_t count, decayed, nesterov;
      float momentum, weight_decay;
    } push{store_.count(), store_.decayed(), nesterov_, momentum_, weight_decay_};
    emit.set_label("optimizer");
    emit.for_each("sgd",
                  {{store_.weights(), gpu::Access::read_write},
                   {store_.gradients(), gpu::Access::read},
                   ops::updates(velocity_),
                   {step_values, gpu::Access::read}},
                  push, push.count);
  }

  std::map<std::string, Tensor> download() const override {
    return {{"velocity", graph::download(store_.device(), velocity_)}};
  }

  void upload(const std::map<std::string, Tensor>& state) override {
    const auto it = state.find("velocity");
    if (it == state.end() || it->second.shape() != velocity_.shape)
      fail(Code::invalid_argument, "the optimizer state does not fit this model and optimizer");
    graph::upload(store_.device(), it->second, velocity_);
  }

 private:
  const graph::ParameterStore& store_;
  gpu::Arena arena_;
  ops::DeviceTensor velocity_;
  float momentum_, weight_decay_;
  bool nesterov_;
};

std::unique_ptr<Optimizer> make(const Options& options, const graph::ParameterStore& store) {
  return std::make_unique<Sgd>(options, store);
}

}  // namespace

extern const OptimizerSpec sgd_optimizer;
const OptimizerSpec sgd_optimizer{"sgd", "stochastic gradient descent, momentum, Nesterov",
                                  kOptions, make};

}  // namespace etr::optim
