#include "train/shared_tensors.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "train/flat_state.h"

namespace etr::train {
namespace {

using Parameter = graph::ParameterStore::Parameter;

template <typename T>
std::span<T> range(std::span<T> all, const Parameter& parameter) {
  return all.subspan(parameter.begin, parameter.count);
}

}  // namespace

SharedTensors::SharedTensors(graph::Layout whole, graph::Slices slices,
                             parallel::TensorParallel& ranks)
    : layout_(std::move(whole)), slices_(std::move(slices)), ranks_(ranks) {}

Tensor SharedTensors::whole(const std::string& name, const Tensor& own) {
  const auto slice = slices_.find(name);
  return slice == slices_.end() ? own : ranks_.gather(own, slice->second);
}

Tensor SharedTensors::own(const std::string& name, const Tensor& whole) const {
  const auto slice = slices_.find(name);
  if (slice == slices_.end()) return whole;
  if (whole.dtype() != DType::f32 || whole.shape() != slice->second.whole)
    fail(Code::invalid_argument, "weight '", name, "' is f32 ", shape_text(slice->second.whole),
         " in the model, not ", dtype_name(whole.dtype()), " ", shape_text(whole.shape()));
  Tensor out(DType::f32, slice->second.shape());
  slice->second.take(whole.view<float>(), out.mutable_view<float>());
  return out;
}

// Both layouts have the same parameters in the same order.
Tensor SharedTensors::whole_state(const Tensor& own, const graph::ParameterStore& store) {
  if (!is_flat(own, store.count())) return own;
  Tensor out = flat_zeros(layout_.count);
  for (size_t i = 0; i < layout_.parameters.size(); ++i) {
    const Parameter &to = layout_.parameters[i], &from = store.parameters()[i];
    const auto values = range(own.view<float>(), from);
    Tensor part(DType::f32, store.shape(from.name));
    std::copy(values.begin(), values.end(), part.mutable_view<float>().begin());
    const Tensor all = whole(from.name, part);
    const auto all_values = all.view<float>();
    std::copy(all_values.begin(), all_values.end(), range(out.mutable_view<float>(), to).begin());
  }
  return out;
}

Tensor SharedTensors::own_state(const Tensor& whole, const graph::ParameterStore& store) const {
  if (!is_flat(whole, layout_.count)) return whole;
  Tensor out = flat_zeros(store.count());
  for (size_t i = 0; i < layout_.parameters.size(); ++i) {
    const Parameter &from = layout_.parameters[i], &to = store.parameters()[i];
    const auto values = range(whole.view<float>(), from);
    const auto into = range(out.mutable_view<float>(), to);
    if (const auto slice = slices_.find(from.name); slice != slices_.end())
      slice->second.take(values, into);
    else
      std::copy(values.begin(), values.end(), into.begin());
  }
  return out;
}

}  // namespace etr::train
