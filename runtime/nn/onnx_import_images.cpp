// What the importer makes of convolutions and other operators on images.
#include <algorithm>

#include "nn/onnx_importer.h"
#include "nn/weights.h"

namespace etr::nn {
namespace {

constexpr int64_t kMostKernel = 1 << 12;
constexpr int64_t kMostResized = int64_t{1} << 40;

}  // namespace

Tensor onnx_vector(const OnnxTensor& from, double scale) {
  Tensor out(DType::f32, {static_cast<int64_t>(from.count())});
  for (size_t i = 0; i < from.count(); ++i)
    out.mutable_view<float>()[i] = static_cast<float>(scale * from.number(i));
  return out;
}

bool OnnxImporter::convert_image(const OnnxNode& node) {
  const std::string& op = node.op;
  if (op == "Conv") return convolution(node, false), true;
  if (op == "ConvTranspose") return convolution(node, true), true;
  if (op == "MaxPool") return pool(node, true), true;
  if (op == "AveragePool") return pool(node, false), true;
  if (op == "BatchNormalization") return batch_norm(node), true;
  if (op == "GlobalAveragePool" || op == "GlobalMaxPool")
    return reduce(node, op == "GlobalMaxPool" ? "max" : "mean"), true;
  return false;
}

// Returns the padding that is the same on both sides of each axis.
std::vector<int64_t> OnnxImporter::pads(const OnnxNode& node, const OnnxView& x,
                                        const std::vector<int64_t>& kernel,
                                        const std::vector<int64_t>& stride,
                                        const std::vector<int64_t>& dilation,
                                        bool transposed) const {
  const std::string automatic = node.text("auto_pad", "NOTSET");
  const size_t rank = kernel.size();
  std::vector<int64_t> given = node.integers("pads");
  if (given.empty()) given.assign(2 * rank, 0);
  if (given.size() != 2 * rank) damaged(node, "its 'pads' do not fit its kernel");
  if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER")
    for (size_t i = 0; i < rank; ++i) {
      if (transposed) lacks(node, "its padding is automatic (auto_pad); give it as 'pads'");
      if (stride[i] > 1 && !x.fixed(x.axes[2 + i]))
        lacks(node,
              "its padding is automatic (auto_pad) and depends on the length of an axis that the "
              "file leaves free: export the model with fixed lengths; only the batch may be free");
      const int64_t in = x.size(x.axes[2 + i]);
      const int64_t out = (in - 1) / stride[i] + 1;
      const int64_t all =
          std::max<int64_t>(0, (out - 1) * stride[i] + (kernel[i] - 1) * dilation[i] + 1 - in);
      given[i] = automatic == "SAME_UPPER" ? all / 2 : all - all / 2;
      given[i + rank] = all - given[i];
    }
  for (size_t i = 0; i < rank; ++i) {
    if (given[i] < 0 || given[i] > kMostKernel || given[i] != given[i + rank])
      lacks(node, cat("it pads ", given[i], " in front of an axis and ", given[i + rank],
                      " behind; equal padding is supported"));
  }
  given.resize(rank);
  return given;
}

namespace {

// The options of a node that lists one number for each axis.
std::vector<int64_t> for_axes(const OnnxNode& node, const char* name, size_t rank) {
  std::vector<int64_t> out = node.integers(name);
  if (out.empty()) out.assign(rank, 1);
  return out;
}

bool equal(const std::vector<int64_t>& values) {
  return std::all_of(values.begin(), values.end(), [&](int64_t v) { return v == values[0]; });
}

bool in_range(const std::vector<int64_t>& values) {
  return std::all_of(values.begin(), values.end(),
                     [](int64_t v) { return v >= 1 && v <= kMostKernel; });
}

}  // namespace

OnnxImporter::Window OnnxImporter::window_of(const OnnxNode& node, const OnnxView& x,
                                             const OnnxTensor& w, bool transposed) const {
  const size_t rank = w.dims.size() < 2 ? 0 : w.dims.size() - 2;
  if (rank < 1 || rank > 2 || x.axes.size() != rank + 2 || !w.is_real || w.count() == 0)
    lacks(node, "only convolutions of one and two dimensions are supported");
  std::vector<int64_t> kernel(w.dims.begin() + 2, w.dims.end());
  std::vector<int64_t> stride = for_axes(node, "strides", rank),
                       dilation = for_axes(node, "dilations", rank);
  if (stride.size() != rank || dilation.size() != rank || !in_range(stride) ||
      !in_range(dilation) || !in_range(kernel))
    damaged(node, "its kernel, strides or dilations are wrong");
  std::vector<int64_t> pad = pads(node, x, kernel, stride, dilation, transposed);
  const bool row = rank == 2 && x.axes[2].empty() && kernel[0] == 1 && pad[0] == 0 && !transposed;
  for (auto* values : {&kernel, &stride, &dilation, &pad}) {
    if (row) values->erase(values->begin());
    if (!equal(*values)) lacks(node, "its kernel, stride, dilation or padding is not square");
  }
  const int64_t groups = node.integer("group", 1);
  if (groups < 1 || groups > (transposed ? w.dims[1] : w.dims[0]))
    damaged(node, cat("it has ", groups, " groups"));
  const int64_t reads = transposed ? w.dims[0] : w.dims[1] * groups;
  if (const int64_t channels = x.size(x.axes[1]); reads != channels)
    damaged(node, cat("its weight is for ", reads, " channels, and its input has ", channels));
  const std::vector<int64_t> beyond = node.integers("output_padding");
  const bool grows = std::any_of(beyond.begin(), beyond.end(), [](int64_t v) { return v != 0; });
  if (transposed &&
      (groups > 1 || dilation[0] > 1 || rank == 1 || node.has("output_shape") || grows))
    lacks(node,
          "transposed convolutions are supported only in two dimensions, without groups, "
          "dilation or output padding");
  return {kernel[0], stride[0], dilation[0], pad[0], groups, row};
}

// One dimension, and images of one row, become conv1d.
void OnnxImporter::convolution(const OnnxNode& node, bool transposed) {
  OnnxView x = view(node, 0);
  const OnnxTensor& w = constant(node, 1, "weight");
  const Window at = window_of(node, x, w, transposed);
  const size_t rank = x.axes.size() - 2;
  const bool flat = rank == 1 || at.row;
  const int64_t filters = transposed ? w.dims[1] : w.dims[0];
  x = at.row ? arranged(node, x, {x.axes[0], x.axes[3], x.axes[1]}) : arranged(node, x, x.images());
  Json options{{"filters", filters}, {"kernel", at.kernel}, {"stride", at.stride}, {"pad", at.pad}};
  if (at.dilation > 1) options["dilation"] = at.dilation;
  if (at.groups > 1) options["groups"] = at.groups;
  const int made = add(node,
                       transposed ? "conv2d_transpose"
                       : flat     ? "conv1d"
                                  : "conv2d",
                       {x.layer}, options);
  give(made, "weight", unrolled(w.reals, {flat ? 1 : at.kernel, at.kernel, w.dims[1], w.dims[0]}),
       value(node, 1));
  if (node.has_input(2)) {
    const OnnxTensor& bias = constant(node, 2, "bias");
    if (static_cast<int64_t>(bias.count()) != filters) damaged(node, "its bias has another length");
    give(made, "bias", onnx_vector(bias), value(node, 2));
  }
  std::vector<std::vector<Atom>> ours{{x.atoms[0]}};
  std::vector<size_t> order{0, rank + 1};
  for (size_t i = 0; i < rank; ++i) {
    order.push_back(i + 1);
    if (at.row && i == 0) {
      ours.emplace_back();
      continue;
    }
    const int64_t in = x.size(x.axes[2 + i]);
    if (in > kMostResized) lacks(node, "its image is too large");
    const int64_t reach = (at.kernel - 1) * at.dilation + 1;
    const int64_t out = transposed ? (in - 1) * at.stride - 2 * at.pad + at.kernel
                                   : (in + 2 * at.pad - reach) / at.stride + 1;
    if (out < 1 || (!transposed && in + 2 * at.pad < reach))
      damaged(node, "its kernel is larger than the image");
    ours.push_back({{out, x.fixed(x.axes[2 + i])}});
  }
  ours.push_back({{filters, true}});
  OnnxView out = OnnxView::of(made, ours, order);
  if (at.row) out.ours.erase(out.ours.begin() + 1);
  set(node, std::move(out));
}

void OnnxImporter::pool(const OnnxNode& node, bool max) {
  const OnnxView x = image(node, view(node, 0));
  const std::vector<int64_t> window = node.integers("kernel_shape"),
                             stride = for_axes(node, "strides", 2),
                             dilation = for_axes(node, "dilations", 2);
  if (window.size() != 2 || stride.size() != 2 || !in_range(window) || !in_range(stride) ||
      dilation != std::vector<int64_t>{1, 1})
    lacks(node, "pooling is supported only over images, without dilation");
  const std::vector<int64_t> in{x.size(x.axes[2]), x.size(x.axes[3])};
  const std::vector<int64_t> pad = pads(node, x, window, stride, dilation, false);
  if (!equal(window) || !equal(stride) || !equal(pad))
    lacks(node, "its window, stride or padding is not square");
  if (!max && pad[0] > 0 && node.integer("count_include_pad", 0) != 0)
    lacks(node, "it counts its border (count_include_pad)");
  std::vector<std::vector<Atom>> ours{{x.atoms[0]}};
  for (const size_t i : {0, 1}) {
    const int64_t room = in[i] + 2 * pad[0] - window[0];
    if (room < 0) damaged(node, "its window is larger than the image");
    if (node.integer("ceil_mode", 0) != 0 && (room % stride[0] != 0 || !x.fixed(x.axes[2 + i])))
      lacks(node, "it rounds the size of its result up (ceil_mode)");
    ours.push_back({{room / stride[0] + 1, x.fixed(x.axes[2 + i])}});
  }
  ours.push_back({{x.size(x.axes[1]), true}});
  const int made = add(node, max ? "max_pool" : "avg_pool", {x.layer},
                       {{"window", window[0]}, {"stride", stride[0]}, {"pad", pad[0]}});
  set(node, OnnxView::of(made, ours, {0, 3, 1, 2}));
}

void OnnxImporter::batch_norm(const OnnxNode& node) {
  OnnxView x = view(node, 0);
  if (x.axes.size() < 2) lacks(node, "its input has no channels");
  const int64_t channels = x.size(x.axes[1]);
  const Axis own = x.axes[1];
  x = with_last(node, x, own);
  if (!std::is_sorted(own.begin(), own.end())) lacks(node, "its channels are several axes");
  const int made =
      add(node, "batch_norm", {x.layer},
          {{"epsilon", node.real("epsilon", 1e-5)}, {"momentum", node.real("momentum", 0.9)}});
  const char* const parts[] = {"gamma", "beta", "running_mean", "running_var"};
  for (size_t i = 0; i < 4; ++i) {
    const OnnxTensor& of = constant(node, i + 1, parts[i]);
    if (static_cast<int64_t>(of.count()) != channels)
      damaged(node, cat("it has ", of.count(), " numbers for ", channels, " channels"));
    give(made, parts[i], onnx_vector(of), value(node, i + 1));
  }
  set(node, same(x, made));
}

}  // namespace etr::nn
