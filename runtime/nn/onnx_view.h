// How a value of an ONNX file lies in the value of a layer.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace etr::nn {

// ONNX has images as [N, C, H, W], this program as [N, H, W, C], and exporters move axes, split and
// join them. So a value is a layer's value and a way to look at it. Both are made of *atoms*: axes
// that neither has to split further. A layer's axes are runs of atoms in order, the batch alone
// first. The file's axes may name them in any order. Axes of length 1 have no atoms. Along an axis
// that the file expands, values are repeated: its atoms are the last ones, and in no axis of the
// layer.
struct OnnxView {
  struct Atom {
    int64_t size = 1;
    bool fixed = true;  // whether the file says how long it is
    bool repeated = false;
  };
  using Axis = std::vector<size_t>;  // numbers of atoms, outermost first

  int layer = -1;
  std::vector<Atom> atoms;  // 0: the batch
  std::vector<Axis> ours;   // the layer's axes; together 0, 1, 2, ...
  std::vector<Axis> axes;   // the file's

  int64_t size(const Axis& axis) const;
  bool fixed(const Axis& axis) const;
  bool repeats() const { return !atoms.empty() && atoms.back().repeated; }
  std::vector<int64_t> dims() const;  // the file's shape
  std::vector<Axis> images() const;   // the file's axes with the second one last

  // Return the same value with other axes in the file.
  OnnxView transposed(const std::vector<size_t>& order) const;
  OnnxView squeezed(const std::vector<size_t>& axes) const;                  // sorted
  OnnxView unsqueezed(const std::vector<size_t>& axes) const;                // sorted
  std::optional<OnnxView> reshaped(const std::vector<int64_t>& dims) const;  // none: no such view
  // Broadcasts axes of length 1; in `dims` 1 stands for the own length. None if an axis differs.
  std::optional<OnnxView> expanded(const std::vector<int64_t>& dims) const;
  OnnxView without_repeats() const;

  // Returns a layer's value of which the file's axes are order[0], order[1], ... of the layer's.
  static OnnxView of(int layer, const std::vector<std::vector<Atom>>& ours,
                     const std::vector<size_t>& order);

 private:
  void split(size_t atom, int64_t first);
};

OnnxView::Axis joined(const std::vector<OnnxView::Axis>& axes);

}  // namespace etr::nn
