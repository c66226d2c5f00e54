#include "nn/onnx_fold.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "tensor/tensor.h"

namespace etr::nn {
namespace {

using Dims = std::vector<int64_t>;

[[noreturn]] void misfit(const OnnxNode& node, const std::string& what) {
  fail(Code::corrupt_data, "ONNX node '", node.name, "' (", node.op, "): ", what);
}

size_t count_of(const OnnxNode& node, const Dims& dims) {
  if (dims.size() > Shape::kMaxRank)
    fail(Code::unsupported, "ONNX node '", node.name, "' (", node.op, "): its result has ",
         dims.size(), " axes; at most ", Shape::kMaxRank, " are supported");
  const auto count = onnx_count(dims);
  if (!count) misfit(node, "a shape is negative or too large");
  return *count;
}

// Returns the number of elements of a constant, or of a value that depends on the batch. Free axes
// have large stand-in lengths, so the product of several exceeds the size of any constant.
size_t size_of_value(const OnnxNode& node, const Dims& dims) {
  size_t count = 1;
  bool empty = false;
  for (const int64_t dim : dims) {
    if (dim < 0 || (dim > 0 && __builtin_mul_overflow(count, static_cast<size_t>(dim), &count)) ||
        count > (size_t{1} << 62))
      misfit(node, "a shape is negative or too large");
    empty = empty || dim == 0;
  }
  return empty ? 0 : count;
}

std::vector<size_t> strides_of(const Dims& dims) {
  std::vector<size_t> out(dims.size(), 1);
  for (size_t i = dims.size(); i-- > 1;) out[i - 1] = out[i] * static_cast<size_t>(dims[i]);
  return out;
}

// Rounds towards zero; what has no integer becomes the nearest one, or 0.
int64_t whole(double value) {
  return value == value ? static_cast<int64_t>(std::clamp(value, -9e18, 9e18)) : 0;
}

// Makes outputs within the budget.
class Folder {
 public:
  Folder(const OnnxNode& node, const std::vector<OnnxConstant>& inputs, int64_t batch,
         FoldBudget& budget)
      : node_(node), inputs_(inputs), batch_(batch), budget_(budget) {}

  std::optional<std::vector<OnnxConstant>> run();

 private:
  const OnnxTensor& in(size_t i) const {
    if (i >= inputs_.size() || !inputs_[i]) misfit(node_, cat("input ", i, " is missing"));
    return *inputs_[i];
  }
  bool has(size_t i) const { return i < inputs_.size() && inputs_[i]; }
  int64_t axis(int64_t given, size_t rank) const {
    return static_cast<int64_t>(onnx_axes(node_, {given}, rank)[0]);
  }

  std::shared_ptr<OnnxTensor> made(const Dims& dims, bool real) {
    const size_t count = count_of(node_, dims);
    budget_.take(count, node_);
    auto out = std::make_shared<OnnxTensor>();
    out->dims = dims;
    out->is_real = real;
    if (real)
      out->reals.resize(count);
    else
      out->integers.resize(count);
    return out;
  }
  static void copy(const OnnxTensor& from, size_t i, OnnxTensor& to, size_t o) {
    if (to.is_real)
      to.reals[o] = from.is_real ? from.reals[i] : static_cast<float>(from.integers[i]);
    else
      to.integers[o] = from.is_real ? whole(static_cast<double>(from.reals[i])) : from.integers[i];
  }

  // Each element of the output is the element of `from` that lies at the sum over axes of
  // index * stride.
  OnnxConstant strided(const OnnxTensor& from, const Dims& dims,
                       const std::vector<int64_t>& strides, int64_t offset = 0) {
    auto out = made(dims, from.is_real);
    std::vector<int64_t> index(dims.size(), 0);
    for (size_t o = 0; o < out->count(); ++o) {
      const int64_t at = std::inner_product(index.begin(), index.end(), strides.begin(), offset);
      copy(from, static_cast<size_t>(at), *out, o);
      for (size_t d = dims.size(); d-- > 0 && ++index[d] == dims[d];) index[d] = 0;
    }
    return out;
  }

  Dims broadcast(const Dims& a, const Dims& b) const;
  std::vector<int64_t> spread(const Dims& dims, const Dims& over) const;
  Dims integers(size_t i) const { return in(i).integers; }
  Dims axes_given(size_t input) const {
    return has(input) ? integers(input) : node_.integers("axes");
  }

  std::optional<OnnxConstant> one();
  std::optional<OnnxConstant> rearranged();
  OnnxConstant reshaped(const Dims& dims);
  OnnxConstant gather();
  OnnxConstant concat();
  OnnxConstant expand(Dims dims);
  OnnxConstant filled();
  OnnxConstant range();
  OnnxConstant trilu();
  OnnxConstant where();
  std::optional<OnnxConstant> product();
  std::optional<OnnxConstant> binary();
  std::optional<OnnxConstant> unary();

  const OnnxNode& node_;
  const std::vector<OnnxConstant>& inputs_;
  const int64_t batch_;
  FoldBudget& budget_;
};

Dims Folder::broadcast(const Dims& a, const Dims& b) const {
  Dims out(std::max(a.size(), b.size()), 1);
  for (size_t i = 0; i < out.size(); ++i) {
    const auto extent = [&](const Dims& dims) {
      return i + dims.size() < out.size() ? 1 : dims[i + dims.size() - out.size()];
    };
    const int64_t x = extent(a), y = extent(b);
    if (x != y && x != 1 && y != 1) misfit(node_, "the shapes of its inputs do not broadcast");
    out[i] = x == 1 ? y : x;
  }
  return out;
}

// Returns the strides of a tensor that is broadcast.
std::vector<int64_t> Folder::spread(const Dims& dims, const Dims& over) const {
  const auto own = strides_of(dims);
  std::vector<int64_t> out(over.size(), 0);
  for (size_t i = 0; i < dims.size(); ++i)
    if (dims[i] != 1) out[over.size() - dims.size() + i] = static_cast<int64_t>(own[i]);
  return out;
}

OnnxConstant Folder::reshaped(const Dims& dims) {
  if (count_of(node_, dims) != in(0).count()) misfit(node_, "the new shape has another size");
  budget_.take(in(0).count(), node_);
  auto out = std::make_shared<OnnxTensor>(in(0));
  out->dims = dims;
  return out;
}

OnnxConstant Folder::gather() {
  const OnnxTensor &x = in(0), &ids = in(1);
  if (ids.is_real) misfit(node_, "its indices are not integers");
  const auto at = static_cast<size_t>(axis(node_.integer("axis", 0), x.dims.size()));
  Dims dims(x.dims.begin(), x.dims.begin() + static_cast<ptrdiff_t>(at));
  dims.insert(dims.end(), ids.dims.begin(), ids.dims.end());
  dims.insert(dims.end(), x.dims.begin() + static_cast<ptrdiff_t>(at) + 1, x.dims.end());
  auto out = made(dims, x.is_real);
  const size_t inner = strides_of(x.dims)[at], length = static_cast<size_t>(x.dims[at]);
  size_t o = 0;
  for (size_t outer = 0; o < out->count(); ++outer)
    for (const int64_t id : ids.integers) {
      const int64_t row = id < 0 ? id + x.dims[at] : id;
      if (row < 0 || row >= x.dims[at]) misfit(node_, cat("there is no element ", id));
      for (size_t i = 0; i < inner; ++i)
        copy(x, (outer * length + static_cast<size_t>(row)) * inner + i, *out, o++);
    }
  return out;
}

OnnxConstant Folder::concat() {
  Dims dims = in(0).dims;
  const auto at = static_cast<size_t>(axis(node_.integer("axis", 0), dims.size()));
  dims[at] = 0;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    Dims other = in(i).dims;
    if (other.size() != dims.size()) misfit(node_, "its inputs differ in rank");
    if (__builtin_add_overflow(dims[at], other[at], &dims[at]))
      misfit(node_, "its result is too large");
    other[at] = dims[at];
    if (other != dims) misfit(node_, "its inputs differ beside the axis");
  }
  auto out = made(dims, in(0).is_real);
  size_t outer = 1;
  for (size_t i = 0; i < at; ++i) outer *= static_cast<size_t>(dims[i]);
  size_t o = 0;
  for (size_t n = 0; n < outer; ++n)
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const size_t run = in(i).count() / outer;
      for (size_t k = 0; k < run; ++k) copy(in(i), n * run + k, *out, o++);
    }
  return out;
}

OnnxConstant Folder::expand(Dims dims) {
  for (int64_t& dim : dims)
    if (batch_ > 1 && dim % batch_ == 0) dim /= batch_;
  const OnnxTensor& x = in(0);
  dims = broadcast(x.dims, dims);
  return strided(x, dims, spread(x.dims, dims));
}

OnnxConstant Folder::filled() {
  Dims dims = integers(0);
  for (int64_t& dim : dims)
    if (batch_ > 1 && dim % batch_ == 0) dim /= batch_;
  const auto value = node_.attributes.find("value");
  const OnnxConstant of = value == node_.attributes.end() ? nullptr : value->second.tensor;
  auto out = made(dims, !of || of->is_real);
  if (of && of->count() != 1) misfit(node_, "its value is not one number");
  for (size_t i = 0; of && i < out->count(); ++i) copy(*of, 0, *out, i);
  return out;
}

OnnxConstant Folder::range() {
  for (const size_t i : {0, 1, 2})
    if (in(i).count() != 1) misfit(node_, "its inputs are not single numbers");
  const double begin = in(0).number(0), end = in(1).number(0), step = in(2).number(0);
  const double steps = std::ceil((end - begin) / step);
  if (!(steps < 1e9)) misfit(node_, "its step leads nowhere");
  auto out = made({static_cast<int64_t>(std::max(steps, 0.0))}, in(0).is_real);
  for (size_t i = 0; i < out->count(); ++i) {
    const double value = begin + static_cast<double>(i) * step;
    if (out->is_real)
      out->reals[i] = static_cast<float>(value);
    else
      out->integers[i] = whole(value);
  }
  return out;
}

OnnxConstant Folder::trilu() {
  const OnnxTensor& x = in(0);
  if (x.dims.size() < 2) misfit(node_, "it takes a matrix");
  if (has(1) && integers(1).size() != 1) misfit(node_, "'k' is not one number");
  const int64_t k = has(1) ? integers(1)[0] : 0;
  const bool upper = node_.integer("upper", 1) != 0;
  auto out = made(x.dims, x.is_real);
  const auto rows = x.dims[x.dims.size() - 2], columns = x.dims.back();
  for (size_t i = 0; i < out->count(); ++i) {
    const auto column = static_cast<int64_t>(i) % columns,
               row = static_cast<int64_t>(i) / columns % rows;
    if (upper ? column - row >= k : column - row <= k) copy(x, i, *out, i);
  }
  return out;
}

OnnxConstant Folder::where() {
  const OnnxTensor &c = in(0), &a = in(1), &b = in(2);
  const Dims dims = broadcast(broadcast(c.dims, a.dims), b.dims);
  const auto condition = strided(c, dims, spread(c.dims, dims));
  const auto yes = strided(a, dims, spread(a.dims, dims));
  const auto no = strided(b, dims, spread(b.dims, dims));
  auto out = made(dims, a.is_real);
  for (size_t i = 0; i < out->count(); ++i)
    copy(condition->number(i) != 0 ? *yes : *no, i, *out, i);
  return out;
}

// Products of matrices; none for vectors.
std::optional<OnnxConstant> Folder::product() {
  const size_t p = in(0).dims.size(), q = in(1).dims.size();
  if (p < 2 || q < 2) return std::nullopt;
  const auto rows = in(0).dims[p - 2], inner = in(0).dims[p - 1], columns = in(1).dims[q - 1];
  if (inner != in(1).dims[q - 2]) misfit(node_, "the shapes of its inputs do not fit each other");
  const Dims lead = broadcast({in(0).dims.begin(), in(0).dims.end() - 2},
                              {in(1).dims.begin(), in(1).dims.end() - 2});
  const auto matrices = [&](const OnnxTensor& of, int64_t height, int64_t width) {
    Dims dims = lead;
    dims.insert(dims.end(), {height, width});
    return strided(of, dims, spread(of.dims, dims));
  };
  const auto a = matrices(in(0), rows, inner), b = matrices(in(1), inner, columns);
  Dims dims = lead;
  dims.insert(dims.end(), {rows, columns});
  auto out = made(dims, true);
  const auto m = static_cast<size_t>(rows), k = static_cast<size_t>(inner),
             n = static_cast<size_t>(columns);
  for (size_t o = 0; o < out->count(); ++o) {
    const size_t column = o % n, row = o / n, matrix = row / m;
    if (column == 0) budget_.take(n * k, node_);  // bounds the time, too
    double sum = 0;
    for (size_t i = 0; i < k; ++i)
      sum += a->number(row * k + i) * b->number((matrix * k + i) * n + column);
    out->reals[o] = static_cast<float>(sum);
  }
  return out;
}

// Integers wrap around, as they do elsewhere.
int64_t wrapped(uint64_t value) { return static_cast<int64_t>(value); }

std::optional<int64_t> integer_result(const std::string& op, int64_t a, int64_t b) {
  const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  if (op == "Add") return wrapped(x + y);
  if (op == "Sub") return wrapped(x - y);
  if (op == "Mul") return wrapped(x * y);
  if ((op == "Div" || op == "Mod") && (b == 0 || b == -1)) {
    if (b == 0) return std::nullopt;
    return op == "Mod" ? 0 : wrapped(0 - x);
  }
  if (op == "Div") return a / b;
  if (op == "Mod") {
    const int64_t rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  }
  if (op == "Min") return std::min(a, b);
  if (op == "Max") return std::max(a, b);
  if (op == "Pow") return whole(std::pow(static_cast<double>(a), static_cast<double>(b)));
  if (op == "And") return a && b;
  if (op == "Or") return a || b;
  return std::nullopt;
}

std::optional<float> real_result(const std::string& op, float a, float b) {
  if (op == "Add") return a + b;
  if (op == "Sub") return a - b;
  if (op == "Mul") return a * b;
  if (op == "Div") return a / b;
  if (op == "Min") return std::min(a, b);
  if (op == "Max") return std::max(a, b);
  if (op == "Pow") return std::pow(a, b);
  return std::nullopt;
}

std::optional<bool> comparison(const std::string& op, double a, double b) {
  if (op == "Equal") return a == b;
  if (op == "Less") return a < b;
  if (op == "LessOrEqual") return a <= b;
  if (op == "Greater") return a > b;
  if (op == "GreaterOrEqual") return a >= b;
  return std::nullopt;
}

std::optional<OnnxConstant> Folder::binary() {
  const std::string& op = node_.op;
  const bool compares = comparison(op, 0, 0).has_value();
  if (inputs_.size() != 2 || (!compares && !integer_result(op, 1, 1) && !real_result(op, 1, 1)))
    return std::nullopt;
  const Dims dims = broadcast(in(0).dims, in(1).dims);
  const auto a = strided(in(0), dims, spread(in(0).dims, dims));
  const auto b = strided(in(1), dims, spread(in(1).dims, dims));
  auto out = made(dims, a->is_real && !compares);
  for (size_t i = 0; i < out->count(); ++i) {
    if (compares) {
      out->integers[i] = *comparison(op, a->number(i), b->number(i));
    } else if (out->is_real) {
      const auto y = real_result(op, a->reals[i], static_cast<float>(b->number(i)));
      if (!y) return std::nullopt;
      out->reals[i] = *y;
    } else {
      if (b->is_real) misfit(node_, "its inputs differ in type");
      const auto y = integer_result(op, a->integers[i], b->integers[i]);
      if (!y) misfit(node_, "a division by zero");
      out->integers[i] = *y;
    }
  }
  return out;
}

std::optional<OnnxConstant> Folder::unary() {
  const std::string& op = node_.op;
  const auto y = [&](double x) -> std::optional<double> {
    if (op == "Sqrt") return std::sqrt(x);
    if (op == "Neg") return -x;
    if (op == "Not") return x == 0;
    if (op == "Floor") return std::floor(x);
    if (op == "Ceil") return std::ceil(x);
    if (op == "Abs") return std::abs(x);
    if (op == "Exp") return std::exp(x);
    if (op == "Cos") return std::cos(x);
    if (op == "Sin") return std::sin(x);
    if (op == "Log") return std::log(x);
    if (op == "Reciprocal") return 1 / x;
    return std::nullopt;
  };
  if (inputs_.size() != 1 || !y(1)) return std::nullopt;
  auto out = made(in(0).dims, in(0).is_real);
  for (size_t i = 0; i < out->count(); ++i)
    if (out->is_real)
      out->reals[i] = static_cast<float>(*y(in(0).number(i)));
    else
      out->integers[i] = whole(*y(in(0).number(i)));
  return out;
}

std::optional<OnnxConstant> Folder::rearranged() {
  const std::string& op = node_.op;
  const OnnxTensor& x = in(0);
  if (op == "Reshape") return reshaped(onnx_reshape(node_, x.dims, integers(1)));
  if (op == "Unsqueeze") {
    const Dims given = axes_given(1);
    const auto axes = onnx_unsqueezed(node_, given, x.dims.size());
    Dims dims = x.dims;
    for (const size_t at : axes) dims.insert(dims.begin() + static_cast<ptrdiff_t>(at), 1);
    return reshaped(dims);
  }
  if (op == "Squeeze") {
    const auto axes = onnx_axes(node_, axes_given(1), x.dims.size());
    Dims dims;
    for (size_t i = 0; i < x.dims.size(); ++i)
      if (axes.empty() ? x.dims[i] != 1 : !std::binary_search(axes.begin(), axes.end(), i))
        dims.push_back(x.dims[i]);
    return reshaped(dims);
  }
  if (op == "Flatten") {
    const int64_t at = node_.integer("axis", 1);
    if (at < 0 || at > static_cast<int64_t>(x.dims.size())) misfit(node_, "there is no such axis");
    Dims dims{1, 1};
    for (size_t i = 0; i < x.dims.size(); ++i) dims[static_cast<int64_t>(i) >= at] *= x.dims[i];
    return reshaped(dims);
  }
  if (op == "Transpose") {
    std::vector<int64_t> order = node_.integers("perm");
    if (order.empty())
      for (size_t i = x.dims.size(); i-- > 0;) order.push_back(static_cast<int64_t>(i));
    if (order.size() != x.dims.size() ||
        onnx_axes(node_, order, x.dims.size()).size() != order.size())
      misfit(node_, "'perm' does not name each axis once");
    Dims dims, strides;
    const auto own = strides_of(x.dims);
    for (int64_t from : order) {
      if (from < 0) from += static_cast<int64_t>(x.dims.size());
      dims.push_back(x.dims[static_cast<size_t>(from)]);
      strides.push_back(static_cast<int64_t>(own[static_cast<size_t>(from)]));
    }
    return strided(x, dims, strides);
  }
  if (op == "Slice") {
    Dims dims = x.dims, strides;
    for (const size_t stride : strides_of(x.dims)) strides.push_back(static_cast<int64_t>(stride));
    int64_t offset = 0;
    for (const OnnxRange& range : onnx_ranges(node_, x.dims, inputs_)) {
      offset += range.begin * strides[range.axis];
      dims[range.axis] = range.length;
      strides[range.axis] *= range.length > 1 ? range.step : 0;  // longer ones lie within the axis
    }
    return strided(x, dims, strides, offset);
  }
  return std::nullopt;
}

std::optional<OnnxConstant> Folder::one() {
  const std::string& op = node_.op;
  if (inputs_.empty()) return std::nullopt;
  if (op == "Identity" || op == "Dropout") return inputs_[0];
  if (op == "Cast") {
    const int64_t to = node_.integer("to", 1);
    const bool real = onnx_is_real(to);
    if (real == in(0).is_real && to != 9) return inputs_[0];
    auto out = made(in(0).dims, real);
    for (size_t i = 0; i < out->count(); ++i)
      if (to == 9)
        out->integers[i] = in(0).number(i) != 0;
      else
        copy(in(0), i, *out, i);
    return out;
  }
  if (op == "Gather") return gather();
  if (op == "Concat") return concat();
  if (op == "Expand") return expand(integers(1));
  if (op == "ConstantOfShape") return filled();
  if (op == "Range") return range();
  if (op == "Trilu") return trilu();
  if (op == "Where") return where();
  if (op == "MatMul") return product();
  if (const auto out = rearranged()) return out;
  if (const auto out = binary()) return out;
  return unary();
}

std::optional<std::vector<OnnxConstant>> Folder::run() {
  const auto out = one();
  if (!out) return std::nullopt;
  return std::vector<OnnxConstant>{*out};
}

}  // namespace

void FoldBudget::take(size_t elements, const OnnxNode& node) {
  if (elements > left_)
    fail(Code::unsupported, "ONNX node '", node.name, "' (", node.op,
         "): the values that the file computes from its constants would take too much "
         "memory",
         advice_);
  left_ -= elements;
}

std::optional<std::vector<OnnxConstant>> fold(const OnnxNode& node,
                                              const std::vector<OnnxConstant>& inputs,
                                              int64_t batch, FoldBudget& budget) {
  return Folder(node, inputs, batch, budget).run();
}

std::vector<size_t> onnx_axes(const OnnxNode& node, std::vector<int64_t> axes, size_t rank) {
  std::vector<size_t> out;
  for (const int64_t axis : axes) {
    const auto all = static_cast<int64_t>(rank);
    if (axis < -all || axis >= all) misfit(node, cat("there is no axis ", axis));
    out.push_back(static_cast<size_t>(axis < 0 ? axis + all : axis));
  }
  std::sort(out.begin(), out.end());
  if (std::adjacent_find(out.begin(), out.end()) != out.end())
    misfit(node, "it names an axis twice");
  return out;
}

std::vector<size_t> onnx_unsqueezed(const OnnxNode& node, const std::vector<int64_t>& axes,
                                    size_t rank) {
  if (rank + axes.size() > Shape::kMaxRank)
    fail(Code::unsupported, "ONNX node '", node.name, "' (", node.op, "): its result has ",
         rank + axes.size(), " axes; at most ", Shape::kMaxRank, " are supported");
  return onnx_axes(node, axes, rank + axes.size());
}

std::vector<int64_t> onnx_reshape(const OnnxNode& node, const std::vector<int64_t>& dims,
                                  const std::vector<int64_t>& wanted) {
  Dims out = wanted;
  const size_t count = size_of_value(node, dims);
  size_t known = 1, open = out.size();
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i] == 0 && node.integer("allowzero", 0) == 0) {
      if (i >= dims.size()) misfit(node, "it copies an axis that its input does not have");
      out[i] = dims[i];
    }
    if (out[i] == -1 && open == out.size())
      open = i;
    else if (out[i] < 0 || __builtin_mul_overflow(known, static_cast<size_t>(out[i]), &known))
      misfit(node, "its new shape is not valid");
  }
  if (open < out.size()) out[open] = known ? static_cast<int64_t>(count / known) : 0;
  if (size_of_value(node, out) != count) misfit(node, "the new shape has another size");
  return out;
}

std::vector<OnnxRange> onnx_ranges(const OnnxNode& node, const std::vector<int64_t>& dims,
                                   const std::vector<OnnxConstant>& inputs) {
  const auto numbers = [&](size_t input, const char* attribute) -> Dims {
    if (input < inputs.size() && inputs[input]) return inputs[input]->integers;
    return node.integers(attribute);
  };
  const Dims begins = numbers(1, "starts"), ends = numbers(2, "ends");
  Dims axes = numbers(3, "axes"), steps = numbers(4, "steps");
  if (axes.empty())
    for (size_t i = 0; i < begins.size(); ++i) axes.push_back(static_cast<int64_t>(i));
  if (steps.empty()) steps.assign(begins.size(), 1);
  if (ends.size() != begins.size() || axes.size() != begins.size() || steps.size() != begins.size())
    misfit(node, "its starts, ends, axes and steps differ in number");
  std::vector<OnnxRange> out;
  onnx_axes(node, axes, dims.size());  // refuses those that are named twice
  for (size_t i = 0; i < begins.size(); ++i) {
    const size_t axis = onnx_axes(node, {axes[i]}, dims.size())[0];
    const int64_t size = dims[axis], step = steps[i];
    if (step == 0 || step < -(int64_t{1} << 40) || step > (int64_t{1} << 40))
      misfit(node, cat("a step of ", step));
    if (size == 0) {
      out.push_back({axis, 0, 0, 1});
      continue;
    }
    const auto bound = [&](int64_t at, int64_t least, int64_t most) {
      return std::clamp(at < 0 ? at + size : at, least, most);
    };
    const int64_t begin = step > 0 ? bound(begins[i], 0, size) : bound(begins[i], 0, size - 1);
    const int64_t end = step > 0 ? bound(ends[i], 0, size) : bound(ends[i], -1, size - 1);
    const int64_t span = step > 0 ? end - begin : begin - end, stride = std::abs(step);
    out.push_back({axis, begin, std::max<int64_t>(0, (span + stride - 1) / stride), step});
  }
  return out;
}

}  // namespace etr::nn
