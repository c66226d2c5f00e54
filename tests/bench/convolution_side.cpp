// A convolution, or one of its gradients.
#include "command_side.h"

namespace etr::bench {
namespace {

class Convolution final : public CommandSide {
 public:
  Convolution(const KernelsPtr& kernels, const Json& request)
      : CommandSide(kernels),
        batch_(number(request, "batch")),
        size_(number(request, "size")),
        channels_(number(request, "channels")),
        filters_(number(request, "filters")),
        kernel_(number(request, "kernel")),
        stride_(number(request, "stride")),
        pad_((kernel_ - 1) / 2),
        out_((size_ + 2 * pad_ - kernel_) / stride_ + 1),
        options_(ops::find_op("conv2d").options, "conv2d", {{"pad", pad_}, {"stride", stride_}}) {
    const Shape x{batch_, size_, size_, channels_}, w{kernel_, kernel_, channels_, filters_},
        y{batch_, out_, out_, filters_};
    ops::OpCall call{options_,       0, true, {tensor(x, x_), tensor(w, w_)}, tensor(y), {}, {},
                     tensor(y, dy_), {}};
    const std::string part = request.at("part");
    const ops::OpSpec& op = ops::find_op("conv2d");
    if (part == "by_input") call.input_grads = {tensor(x), {}};
    if (part == "by_weight") call.input_grads = {{}, tensor(w)};
    emit([&](ops::Emitter& e) { part == "forward" ? op.forward(call, e) : op.backward(call, e); },
         precision_of(request));
    flops_ = 2.0 * static_cast<double>(element_count(y) * kernel_ * kernel_ * channels_);
    bytes_ = 4.0 * static_cast<double>(element_count(x) + element_count(w) + element_count(y));
    if (part == "forward")
      compare(call.output, [this](uint64_t i) { return forward_at(static_cast<int64_t>(i)); });
    else if (part == "by_input")
      compare(call.input_grads[0],
              [this](uint64_t i) { return by_input_at(static_cast<int64_t>(i)); });
    else if (part == "by_weight")
      compare(call.input_grads[1],
              [this](uint64_t i) { return by_weight_at(static_cast<int64_t>(i)); });
    else
      fail(Code::invalid_argument, "a convolution has no part '", part, "'");
  }

 private:
  void compare(const DeviceTensor& result, const std::function<Reference(uint64_t)>& reference) {
    error_ = [this, result, reference] { return largest_error(device(), result, reference); };
  }

  bool inside(int64_t at) const { return at >= 0 && at < size_; }
  double x(int64_t n, int64_t row, int64_t column, int64_t c) const {
    return x_[static_cast<uint64_t>(((n * size_ + row) * size_ + column) * channels_ + c)];
  }
  double w(int64_t ky, int64_t kx, int64_t c, int64_t f) const {
    return w_[static_cast<uint64_t>(((ky * kernel_ + kx) * channels_ + c) * filters_ + f)];
  }
  double dy(int64_t n, int64_t row, int64_t column, int64_t f) const {
    return dy_[static_cast<uint64_t>(((n * out_ + row) * out_ + column) * filters_ + f)];
  }

  // y[n, r, q, f] = sum of x[n, stride r + ky - pad, stride q + kx - pad, c] w[ky, kx, c, f]
  Reference forward_at(int64_t i) const {
    const int64_t f = i % filters_, q = i / filters_ % out_, r = i / filters_ / out_ % out_,
                  n = i / filters_ / out_ / out_;
    Reference sum;
    for (int64_t ky = 0; ky < kernel_; ++ky)
      for (int64_t kx = 0; kx < kernel_; ++kx) {
        const int64_t row = stride_ * r + ky - pad_, column = stride_ * q + kx - pad_;
        if (!inside(row) || !inside(column)) continue;
        for (int64_t c = 0; c < channels_; ++c) sum.add(x(n, row, column, c) * w(ky, kx, c, f));
      }
    return sum;
  }

  Reference by_input_at(int64_t i) const {
    const int64_t c = i % channels_, column = i / channels_ % size_,
                  row = i / channels_ / size_ % size_, n = i / channels_ / size_ / size_;
    Reference sum;
    for (int64_t ky = 0; ky < kernel_; ++ky)
      for (int64_t kx = 0; kx < kernel_; ++kx) {
        const int64_t r = row + pad_ - ky, q = column + pad_ - kx;
        if (r < 0 || q < 0 || r % stride_ || q % stride_ || r / stride_ >= out_ ||
            q / stride_ >= out_)
          continue;
        for (int64_t f = 0; f < filters_; ++f)
          sum.add(dy(n, r / stride_, q / stride_, f) * w(ky, kx, c, f));
      }
    return sum;
  }

  Reference by_weight_at(int64_t i) const {
    const int64_t f = i % filters_, c = i / filters_ % channels_,
                  kx = i / filters_ / channels_ % kernel_, ky = i / filters_ / channels_ / kernel_;
    Reference sum;
    for (int64_t n = 0; n < batch_; ++n)
      for (int64_t r = 0; r < out_; ++r)
        for (int64_t q = 0; q < out_; ++q) {
          const int64_t row = stride_ * r + ky - pad_, column = stride_ * q + kx - pad_;
          if (inside(row) && inside(column)) sum.add(x(n, row, column, c) * dy(n, r, q, f));
        }
    return sum;
  }

  const int64_t batch_, size_, channels_, filters_, kernel_, stride_, pad_, out_;
  const Options options_;
  const Values x_{1}, w_{2}, dy_{3};
};

}  // namespace

std::unique_ptr<Side> make_convolution(const KernelsPtr& kernels, const Json& request) {
  return std::make_unique<Convolution>(kernels, request);
}

}  // namespace etr::bench
