// Attention, or its gradients.
#include "command_side.h"

namespace etr::bench {
namespace {

class Attention final : public CommandSide {
 public:
  Attention(const KernelsPtr& kernels, const Json& request)
      : CommandSide(kernels),
        positions_(number(request, "positions")),
        width_(number(request, "width")),
        head_(width_ / number(request, "heads")),
        causal_(request.value("causal", false)),
        options_(ops::find_op("attention").options, "attention",
                 {{"heads", number(request, "heads")}, {"causal", causal_}}) {
    const ops::OpSpec& op = ops::find_op("attention");
    const Shape shape{number(request, "batch"), positions_, width_};
    ops::OpCall call{options_,
                     0,
                     true,
                     {tensor(shape, q_), tensor(shape, k_), tensor(shape, v_)},
                     tensor(shape),
                     {tensor(op.shapes(options_, {shape, shape, shape}).saved.at(0))},
                     {},
                     tensor(shape, dy_),
                     {}};
    const bool backward = request.at("part") == "backward";
    if (backward) {
      run_first([&](ops::Emitter& e) { op.forward(call, e); });
      call.input_grads = {tensor(shape), tensor(shape), tensor(shape)};
    }
    emit([&](ops::Emitter& e) { backward ? op.backward(call, e) : op.forward(call, e); });
    bytes_ = 4.0 * static_cast<double>(element_count(shape)) * (backward ? 8 : 4);
    const DeviceTensor result = backward ? call.input_grads[0] : call.output;
    error_ = [this, result, backward] {
      return largest_error(device(), result, [this, backward](uint64_t i) {
        return at(static_cast<int64_t>(i), backward);
      });
    };
  }

 private:
  // Element e of row t of head h: the output, or the gradient by the query.
  Reference at(int64_t i, bool gradient) const {
    const int64_t row = i / width_, t = row % positions_, first = row - t;
    const int64_t head = i % width_ / head_ * head_, e = i % width_ - head;
    const int64_t keys = causal_ ? t + 1 : positions_;
    const auto element = [&](const Values& values, int64_t of_row, int64_t feature) {
      return values[static_cast<uint64_t>(of_row * width_ + head + feature)];
    };
    const auto dot = [&](const Values& a, int64_t row_a, const Values& b, int64_t row_b) {
      double sum = 0;
      for (int64_t f = 0; f < head_; ++f) sum += element(a, row_a, f) * element(b, row_b, f);
      return sum;
    };
    const double scale = 1 / std::sqrt(static_cast<double>(head_));
    std::vector<double> share;
    double total = 0;
    for (int64_t j = 0; j < keys; ++j) {
      share.push_back(std::exp(scale * dot(q_, row, k_, first + j)));
      total += share.back();
    }
    Reference sum;
    if (!gradient) {
      for (int64_t j = 0; j < keys; ++j)
        sum.add(share[static_cast<size_t>(j)] / total * element(v_, first + j, e));
      return sum;
    }
    // dq = scale * sum of p (dp - sum of p dp) k, with dp = dy . v
    double mean = 0;
    std::vector<double> dp;
    for (int64_t j = 0; j < keys; ++j) {
      dp.push_back(dot(dy_, row, v_, first + j));
      mean += share[static_cast<size_t>(j)] / total * dp.back();
    }
    for (size_t j = 0; j < share.size(); ++j)
      sum.add(scale * share[j] / total * (dp[j] - mean) *
              element(k_, first + static_cast<int64_t>(j), e));
    return sum;
  }

  const int64_t positions_, width_, head_;
  const bool causal_;
  const Options options_;
  const Values q_{1}, k_{2}, v_{3}, dy_{4};
};

}  // namespace

std::unique_ptr<Side> make_attention(const KernelsPtr& kernels, const Json& request) {
  return std::make_unique<Attention>(kernels, request);
}

}  // namespace etr::bench
