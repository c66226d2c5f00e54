// LARS and LAMB, which scale each tensor's step; formulas in shaders/trust.comp.
#include "core/error.h"
#include "optim/optimizer.h"
#include "optim/parts.h"

namespace etr::optim {
namespace {

struct Push {
  uint32_t count;
  float epsilon, trust;
};

constexpr uint32_t kSegment = 1 << 14;  // scalars per workgroup

class Trust final : public Optimizer {
 public:
  Trust(const Portion& portion, bool lamb, Push push)
      : store_(portion.store()),
        arena_(portion.device(), gpu::MemoryUse::device),
        lamb_(lamb),
        push_(push) {
    if (portion.count() != store_.count() || !store_.gradients())
      fail(Code::internal, lamb ? "lamb" : "lars", " on a part of the parameters");
    if (store_.ranges().size() > 1)
      fail(Code::unsupported, lamb ? "lamb" : "lars", " on ", store_.count(),
           " parameters: device '", store_.device()->info().name,
           "' cannot bind them as one buffer; use sgd or adam");
    place_segments();
    mean_ = zeros();
    if (lamb) square_ = zeros();
    direction_ = zeros();
  }

  void emit(ops::Emitter& emit, const gpu::Buffer& step_values, const Peers& peers) override {
    using gpu::Access;
    const gpu::Binding weights{store_.weights(), Access::read},
        gradients{store_.gradients(), Access::read}, step{step_values, Access::read};
    const std::vector<uint32_t> constants{lamb_};
    emit.set_label("optimizer");
    Push push = push_;
    push.count = count_of(segments_);
    emit.for_rows("trust_direction",
                  {weights, gradients, ops::updates(mean_), ops::updates(lamb_ ? square_ : mean_),
                   ops::writes(direction_), ops::reads(segments_), ops::reads(tensors_), step},
                  push, push.count, kSegment, constants);
    emit.for_rows("trust_norms",
                  {weights, lamb_ ? ops::reads(direction_) : gradients, ops::reads(segments_),
                   ops::writes(partial_)},
                  push, push.count, kSegment, constants);
    if (peers.join_squares) join(emit, peers);
    Push by_tensor = push_;
    by_tensor.count = count_of(tensors_);
    emit.for_each("trust_ratios",
                  {ops::reads(partial_), ops::reads(tensors_), ops::writes(ratios_), step},
                  by_tensor, by_tensor.count, {0, lamb_});
    emit.for_rows("trust_apply",
                  {{store_.weights(), Access::read_write},
                   ops::updates(mean_),
                   ops::reads(direction_),
                   ops::reads(ratios_),
                   ops::reads(segments_),
                   step},
                  push, push.count, kSegment, constants);
  }

  std::map<std::string, ops::DeviceTensor> state() const override {
    if (lamb_) return {{"mean", mean_}, {"square", square_}};
    return {{"velocity", mean_}};
  }
  uint64_t reserved_bytes() const override { return arena_.reserved_bytes(); }

 private:
  static uint32_t count_of(const ops::DeviceTensor& rows) {
    return static_cast<uint32_t>(rows.shape[0]);
  }

  ops::DeviceTensor make(const Shape& shape) {
    return {arena_.allocate(static_cast<uint64_t>(element_count(shape)) * 4), shape};
  }

  ops::DeviceTensor zeros() { return make_state(store_.device(), arena_, store_.count()); }

  ops::DeviceTensor table(const std::vector<int32_t>& rows) {
    Tensor host(DType::i32, {static_cast<int64_t>(rows.size() / 3), 3});
    std::copy(rows.begin(), rows.end(), host.mutable_view<int32_t>().begin());
    const ops::DeviceTensor tensor = make(host.shape());
    graph::upload(store_.device(), host, tensor);
    return tensor;
  }

  // Joins the sums of segments, which have the same layout on all ranks.
  void join(ops::Emitter& emit, const Peers& peers) const {
    constexpr uint64_t kBytes = 2 * sizeof(float);  // per segment
    uint64_t at = 0;
    for (const auto& parameter : store_.parameters()) {
      const uint64_t bytes = segments_of(parameter.count) * kBytes;
      if (!peers.counts(parameter.name)) emit.add(gpu::Fill{partial_.buffer.slice(at, bytes), 0});
      at += bytes;
    }
    peers.join_squares(partial_.buffer);
  }

  static uint64_t segments_of(uint32_t count) {
    return (uint64_t{count} + kSegment - 1) / kSegment;
  }

  void place_segments() {
    std::vector<int32_t> segments, tensors;
    for (const auto& parameter : store_.parameters()) {
      const auto first = static_cast<int32_t>(segments.size() / 3);
      for (uint32_t at = 0; at < parameter.count; at += kSegment)
        segments.insert(segments.end(),
                        {static_cast<int32_t>(parameter.begin + at),
                         static_cast<int32_t>(std::min(kSegment, parameter.count - at)),
                         static_cast<int32_t>(tensors.size() / 3)});
      tensors.insert(tensors.end(),
                     {first, static_cast<int32_t>(segments.size() / 3) - first, parameter.decayed});
    }
    segments_ = table(segments);
    tensors_ = table(tensors);
    partial_ = make({segments_.shape[0], 2});
    ratios_ = make({tensors_.shape[0]});
  }

  const graph::ParameterStore& store_;
  gpu::Arena arena_;
  bool lamb_;
  Push push_;
  ops::DeviceTensor segments_, tensors_, partial_, ratios_, mean_, square_, direction_;
};

constexpr OptionSpec kLars[] = {
    {"momentum", OptionType::number, "0.9", "fraction of the velocity kept in each step", 0,
     0.99999},
    {"trust_coefficient", OptionType::number, "0.001",
     "trust coefficient: size of a step relative to the norm of the tensor", 0, 10, "", "",
     "trust"},
    {"weight_decay", OptionType::number, "0.0001",
     "L2 penalty on weights; biases, normalisation parameters, embeddings and 'parameter' layers "
     "are "
     "exempt",
     0, 10},
};

std::unique_ptr<Optimizer> make_lars(const Options& o, const Portion& portion) {
  return std::make_unique<Trust>(portion, false, Push{0, 0, number(o, "trust_coefficient")});
}

constexpr OptionSpec kLamb[] = {
    {"beta1", OptionType::number, "0.9", "decay rate of the first moment", 0, 0.999999},
    {"beta2", OptionType::number, "0.999", "decay rate of the second moment", 0, 0.999999},
    {"epsilon", OptionType::number, "1e-6", "added to the square root", kLeastEpsilon, 1},
    {"weight_decay", OptionType::number, "0.01",
     "penalty on weights; biases, normalisation parameters, embeddings and 'parameter' layers are "
     "exempt",
     0, 10},
};

std::unique_ptr<Optimizer> make_lamb(const Options& o, const Portion& portion) {
  return std::make_unique<Trust>(portion, true, Push{0, number(o, "epsilon"), 1});
}

}  // namespace

extern const OptimizerSpec lars_optimizer, lamb_optimizer;
const OptimizerSpec lars_optimizer{
    "lars", "SGD with a trust ratio for each tensor (You et al. 2017)", kLars, make_lars, true};
const OptimizerSpec lamb_optimizer{
    "lamb", "Adam with a trust ratio for each tensor (You et al. 2020)", kLamb, make_lamb, true};

}  // namespace etr::optim
