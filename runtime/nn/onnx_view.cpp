#include "nn/onnx_view.h"

#include <algorithm>

namespace etr::nn {

OnnxView::Axis joined(const std::vector<OnnxView::Axis>& axes) {
  OnnxView::Axis out;
  for (const auto& axis : axes) out.insert(out.end(), axis.begin(), axis.end());
  return out;
}

int64_t OnnxView::size(const Axis& axis) const {
  int64_t out = 1;
  for (const size_t atom : axis) out *= atoms[atom].size;
  return out;
}

bool OnnxView::fixed(const Axis& axis) const {
  return std::all_of(axis.begin(), axis.end(), [&](size_t atom) { return atoms[atom].fixed; });
}

std::vector<int64_t> OnnxView::dims() const {
  std::vector<int64_t> out;
  for (const Axis& axis : axes) out.push_back(size(axis));
  return out;
}

std::vector<OnnxView::Axis> OnnxView::images() const {
  std::vector<Axis> out = axes;
  if (out.size() > 1) std::rotate(out.begin() + 1, out.begin() + 2, out.end());
  return out;
}

OnnxView OnnxView::transposed(const std::vector<size_t>& order) const {
  OnnxView out = *this;
  for (size_t i = 0; i < order.size(); ++i) out.axes[i] = axes[order[i]];
  return out;
}

OnnxView OnnxView::squeezed(const std::vector<size_t>& which) const {
  OnnxView out = *this;
  for (size_t i = which.size(); i-- > 0;)
    out.axes.erase(out.axes.begin() + static_cast<ptrdiff_t>(which[i]));
  return out;
}

OnnxView OnnxView::unsqueezed(const std::vector<size_t>& which) const {
  OnnxView out = *this;
  for (const size_t at : which)
    out.axes.insert(out.axes.begin() + static_cast<ptrdiff_t>(at), Axis{});
  return out;
}

// Splits an atom into `first` and the rest.
void OnnxView::split(size_t atom, int64_t first) {
  Atom rest = atoms[atom];
  rest.size /= first;
  atoms[atom].size = first;
  atoms.insert(atoms.begin() + static_cast<ptrdiff_t>(atom) + 1, rest);
  for (auto* list : {&ours, &axes})
    for (Axis& axis : *list) {
      for (size_t& each : axis) each += each > atom;
      const auto found = std::find(axis.begin(), axis.end(), atom);
      if (found != axis.end()) axis.insert(found + 1, atom + 1);
    }
}

std::optional<OnnxView> OnnxView::reshaped(const std::vector<int64_t>& dims) const {
  OnnxView out = *this;
  std::vector<Axis> made;
  size_t next = 0;  // in the atoms in the file's order
  for (const int64_t dim : dims) {
    if (dim < 1) return std::nullopt;
    Axis axis;
    int64_t size = 1;
    while (true) {
      const Axis all = joined(out.axes);
      const bool more = next < all.size();
      // A batch of one sample may be one of several axes of length 1: it is the first.
      const bool one = more && all[next] == 0 && out.atoms[0].size == 1 && dim == 1 && axis.empty();
      if (!one && size == dim) break;
      if (!more) return std::nullopt;
      const int64_t here = out.atoms[all[next]].size, rest = dim / size;
      if (here > rest && (all[next] == 0 || here % rest != 0)) return std::nullopt;
      if (here > rest) {
        const size_t atom = all[next];
        out.split(atom, rest);  // which gives the atoms behind it new numbers
        for (Axis& each : made)
          for (size_t& a : each) a += a > atom;
        for (size_t& a : axis) a += a > atom;
        continue;
      }
      if (rest % here != 0) return std::nullopt;
      axis.push_back(all[next++]);
      size *= here;
      if (one) break;
    }
    made.push_back(axis);
  }
  const Axis all = joined(out.axes);
  for (; next < all.size(); ++next) {
    if (out.atoms[all[next]].size != 1 || made.empty()) return std::nullopt;
    made.back().push_back(all[next]);
  }
  out.axes = made;
  return out;
}

std::optional<OnnxView> OnnxView::expanded(const std::vector<int64_t>& dims) const {
  if (dims.size() > axes.size())
    return unsqueezed(std::vector<size_t>(dims.size() - axes.size(), 0)).expanded(dims);
  OnnxView out = *this;
  const size_t first = axes.size() - dims.size();
  for (size_t i = 0; i < dims.size(); ++i) {
    Axis& axis = out.axes[first + i];
    if (dims[i] == 1 || dims[i] == size(axis)) continue;
    if (!axis.empty() || dims[i] < 1) return std::nullopt;
    axis = {out.atoms.size()};
    out.atoms.push_back({dims[i], true, true});
  }
  return out;
}

OnnxView OnnxView::without_repeats() const {
  OnnxView out = *this;
  while (out.repeats()) out.atoms.pop_back();
  for (Axis& axis : out.axes)
    std::erase_if(axis, [&](size_t atom) { return atom >= out.atoms.size(); });
  return out;
}

OnnxView OnnxView::of(int layer, const std::vector<std::vector<Atom>>& ours,
                      const std::vector<size_t>& order) {
  OnnxView out;
  out.layer = layer;
  for (const auto& axis : ours) {
    Axis& made = out.ours.emplace_back();
    for (const Atom& atom : axis)
      if (atom.size != 1 || out.atoms.empty()) {
        made.push_back(out.atoms.size());
        out.atoms.push_back(atom);
      }
  }
  for (const size_t axis : order) out.axes.push_back(out.ours[axis]);
  return out;
}

}  // namespace etr::nn
