// Matrix products, and kernels that only move bytes.
#include <map>

#include "command_side.h"
#include "ops/gemm_kernels.h"

namespace etr::bench {
namespace {

class Product final : public CommandSide {
 public:
  Product(const KernelsPtr& kernels, const Json& request)
      : CommandSide(kernels),
        m_(number(request, "m")),
        n_(number(request, "n")),
        k_(number(request, "k")) {
    const DeviceTensor a = tensor({m_, k_}, a_), b = tensor({k_, n_}, b_), c = tensor({m_, n_});
    emit(
        [&](ops::Emitter& e) {
          emit_gemm(e, ops::GemmMode::nn, ops::product(m_, n_, k_), a, b, {}, c);
        },
        precision_of(request));
    flops_ = 2.0 * static_cast<double>(m_ * n_ * k_);
    bytes_ = 4.0 * static_cast<double>(m_ * k_ + k_ * n_ + m_ * n_);
    error_ = [this, c] {
      return largest_error(device(), c, [this](uint64_t i) {
        const auto n = static_cast<uint64_t>(n_), k = static_cast<uint64_t>(k_);
        Reference out;
        for (uint64_t z = 0; z < k; ++z) out.add(a_[i / n * k + z] * b_[z * n + i % n]);
        return out;
      });
    };
  }

 private:
  const int64_t m_, n_, k_;
  const Values a_{1}, b_{2};
};

class Memory final : public CommandSide {
 public:
  Memory(const KernelsPtr& kernels, const Json& request) : CommandSide(kernels) {
    const std::string part = request.at("part");
    const int64_t rows = number(request, "rows"), columns = number(request, "columns");
    const Shape shape{rows, columns};
    const double size = 4.0 * static_cast<double>(rows * columns);
    const DeviceTensor x = tensor(shape, x_),
                       y = tensor(part == "sum_columns" ? Shape{columns} : shape);
    if (part == "copy") {
      once_.push_back(gpu::Copy{x.buffer, y.buffer});
    } else if (part == "sum_columns") {
      emit([&](ops::Emitter& e) {
        emit_column_sum(e, x, y, static_cast<uint32_t>(rows), static_cast<uint32_t>(columns));
      });
    } else if (part == "relu") {
      run_op("unary", {{"function", "relu"}}, {x}, y);
    } else if (part == "add") {
      run_op("binary", {{"function", "add"}}, {x, tensor(shape, other_)}, y);
    } else {
      fail(Code::invalid_argument, "there is no part '", part, "' of the case 'memory'");
    }
    bytes_ = size * (part == "sum_columns" ? 1 : part == "add" ? 3 : 2);
    error_ = [this, y, part, rows, columns] {
      return largest_error(device(), y, [&](uint64_t i) { return at(part, i, rows, columns); });
    };
  }

 private:
  void run_op(const char* name, const Json& values, std::vector<DeviceTensor> inputs,
              const DeviceTensor& output) {
    const ops::OpSpec& op = ops::find_op(name);
    const Options options(op.options, name, values);
    const ops::OpCall call{options, 0, false, std::move(inputs), output, {}, {}, {}, {}};
    emit([&](ops::Emitter& e) { op.forward(call, e); });
  }

  Reference at(const std::string& part, uint64_t i, int64_t rows, int64_t columns) const {
    Reference out;
    if (part == "sum_columns")
      for (int64_t r = 0; r < rows; ++r) out.add(x_[static_cast<uint64_t>(r * columns) + i]);
    else
      out.add(part == "relu" ? std::max(x_[i], 0.0) : x_[i] + (part == "add" ? other_[i] : 0.0));
    out.magnitude = std::max(out.magnitude, 1.0);
    return out;
  }

  const Values x_{1}, other_{2};
};

}  // namespace

Json kernel_times(const KernelsPtr& kernels, const Json& request) {
  const std::map<std::string, ops::GemmMode> modes = {{"nn", ops::GemmMode::nn},
                                                      {"tn", ops::GemmMode::tn},
                                                      {"conv", ops::GemmMode::conv},
                                                      {"conv_dx", ops::GemmMode::conv_dx},
                                                      {"conv_dw", ops::GemmMode::conv_dw}};
  ops::GemmParams p;
  const std::map<std::string, uint32_t*> fields = {
      {"m", &p.m},          {"n", &p.n},         {"k", &p.k},           {"batch", &p.batch},
      {"h", &p.h},          {"w", &p.w},         {"c", &p.c},           {"oh", &p.oh},
      {"ow", &p.ow},        {"kc", &p.kc},       {"kh", &p.kh},         {"kw", &p.kw},
      {"pad_y", &p.pad_y},  {"pad_x", &p.pad_x}, {"stride", &p.stride}, {"stride_x", &p.stride_x},
      {"groups", &p.groups}};
  for (const auto& [name, field] : fields) *field = request.value(name, *field);
  const ops::GemmMode mode = modes.at(request.at("mode").get<std::string>());
  Json out = Json::array();
  for (const ops::KernelTime& time : ops::time_kernels(*kernels, mode, p, precision_of(request)))
    out.push_back({{"kernel", time.name}, {"seconds", time.seconds}});
  return {{"kernels", out}, {"flops", 2.0 * p.m * p.n * p.k * p.groups}};
}

std::unique_ptr<Side> make_product(const KernelsPtr& kernels, const Json& request) {
  return std::make_unique<Product>(kernels, request);
}
std::unique_ptr<Side> make_memory(const KernelsPtr& kernels, const Json& request) {
  return std::make_unique<Memory>(kernels, request);
}

}  // namespace etr::bench
