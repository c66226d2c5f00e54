#include "graph/fusion.h"

#include <algorithm>
#include <map>
#include <optional>

#include "gpu/glsl.h"
#include "ops/gemm_kernels.h"
#include "ops/pointwise.h"
#include "ops/pooling.h"

namespace etr::graph {
namespace {

using gpu::Access;
using gpu::Buffer;
using gpu::Dispatch;
using ops::GemmKernel;
using ops::Pointwise;
using ops::Product;

// Returns how many buffers a chain's kernel may take. Addresses must fit into 128 bytes of push
// constants.
uint32_t most_bindings(const gpu::Device& device) {
  constexpr uint32_t kMost = 12;
  const bool by_address = device.family() == gpu::KernelFamily::cpu;
  return by_address ? kMost : std::min(kMost, device.info().max_storage_buffers);
}

// An access to a block of memory.
struct Touch {
  size_t command;
  Access access;
  Buffer buffer;
};

template <typename F>
void for_each_touch(const gpu::Command& command, F&& f) {
  if (const auto* dispatch = std::get_if<Dispatch>(&command)) {
    for (const gpu::Binding& binding : dispatch->bindings) f(binding.buffer, binding.access);
  } else if (const auto* copy = std::get_if<gpu::Copy>(&command)) {
    f(copy->from, Access::read);
    f(copy->to, Access::write);
  } else if (const auto* fill = std::get_if<gpu::Fill>(&command)) {
    f(fill->to, Access::write);
  }  // the copies around a host turn cover what its work accesses
}

class Fusion {
 public:
  Fusion(gpu::CommandList& commands, MemoryPlan& memory, gpu::Kernels& kernels)
      : commands_(commands),
        memory_(memory),
        kernels_(kernels),
        most_bindings_(most_bindings(*kernels.device())) {
    look();
  }

  void run() {
    for (size_t i = 1; i < commands_.size(); ++i) before_max_pool(i);
    if (gpu::can_compile_glsl())
      for (size_t i = 0; i < commands_.size(); ++i) into_readers(i);
    for (size_t i = 0; i < commands_.size();)
      if (!into_product(i)) ++i;  // after a fusion the i-th command is another one
    sweep();
  }

 private:
  // A block of memory: planned memory by its number, other memory by its handle.
  struct Block {
    uint32_t planned;
    const void* handle;
    auto operator<=>(const Block&) const = default;
  };
  static Block block_of(const Buffer& buffer) {
    return {buffer.planned, buffer.planned ? nullptr : buffer.handle};
  }

  void look() {
    touches_.clear();
    for (size_t i = 0; i < commands_.size(); ++i)
      for_each_touch(commands_[i], [&](const Buffer& buffer, Access access) {
        touches_[block_of(buffer)].push_back({i, access, buffer});
      });
  }

  const std::vector<Touch>& touches(const Buffer& buffer) { return touches_[block_of(buffer)]; }

  Dispatch* dispatch(size_t i) { return std::get_if<Dispatch>(&commands_[i]); }

  const Pointwise* pointwise(size_t i) {
    const Dispatch* d = dispatch(i);
    return d ? ops::pointwise_of(*d) : nullptr;
  }
  const Product* product(size_t i) {
    const Dispatch* d = dispatch(i);
    return d ? dynamic_cast<const Product*>(d->fusible.get()) : nullptr;
  }

  static bool overlap(const Buffer& a, const Buffer& b) {
    return block_of(a) == block_of(b) && a.offset < b.offset + b.size_bytes &&
           b.offset < a.offset + a.size_bytes;
  }

  // Returns whether `buffer` is a whole block that only these commands use.
  bool is_own(const Buffer& buffer) const {
    return buffer.planned && buffer.offset == 0 && memory_.is_whole(buffer) &&
           !memory_.is_kept(buffer);
  }

  // Returns the commands after `i` that read what it wrote to `buffer`; nullopt if a part of the
  // buffer may be overwritten in between.
  std::optional<std::vector<size_t>> readers(size_t i, const Buffer& buffer) {
    std::vector<size_t> out;
    for (const Touch& touch : touches(buffer)) {
      if (touch.command <= i) continue;
      if (touch.access != Access::write) {
        if (out.empty() || out.back() != touch.command) out.push_back(touch.command);
        if (touch.access == Access::read) continue;
      }
      // A write of the whole buffer ends the life of the old value.
      const bool reads_too = !out.empty() && out.back() == touch.command;
      if (!reads_too && !writes_whole(touch)) return std::nullopt;
      break;
    }
    return out;
  }

  bool writes_whole(const Touch& touch) {
    if (!memory_.is_whole(touch.buffer)) return false;
    const Product* p = product(touch.command);
    return !p || p->params.line_step == 1;
  }

  // Returns whether no command between `from` and `to` writes `buffer`.
  bool unchanged(const Buffer& buffer, size_t from, size_t to) {
    return std::none_of(touches(buffer).begin(), touches(buffer).end(), [&](const Touch& touch) {
      return touch.access != Access::read && touch.command > from && touch.command < to &&
             overlap(touch.buffer, buffer);
    });
  }

  bool writes(size_t i, const Buffer& buffer) {
    return std::any_of(touches(buffer).begin(), touches(buffer).end(), [&](const Touch& touch) {
      return touch.command == i && touch.access != Access::read && overlap(touch.buffer, buffer);
    });
  }

  // Merges an element-wise dispatch into all its readers if that moves fewer tensors.
  void into_readers(size_t i) {
    if (!pointwise(i)) return;
    const Dispatch producer = *dispatch(i);
    const Buffer result = producer.bindings.back().buffer;
    if (!is_own(result)) return;
    const auto all = readers(i, result);
    if (!all || all->empty() || (all->size() > 1 && !pointwise(i)->cheap)) return;
    std::vector<Dispatch> with;
    uint32_t before = ops::tensors_read(producer) + 1, after = 0;
    for (const size_t reader : *all) {
      if (!pointwise(reader)) return;
      with.push_back(ops::joined(producer, *dispatch(reader), most_bindings_));
      if (!with.back().fusible) return;
      before += ops::tensors_read(*dispatch(reader));
      after += ops::tensors_read(with.back());
    }
    if (after >= before) return;
    for (const gpu::Binding& binding : producer.bindings) {
      if (binding.buffer == result) continue;
      // The last reader may overwrite what it reads, element by element.
      if (!unchanged(binding.buffer, i, all->back())) return;
      if (writes(all->back(), binding.buffer) && !element_by_element(producer, binding.buffer))
        return;
    }
    for (size_t k = 0; k < with.size(); ++k) commands_[(*all)[k]] = std::move(with[k]);
    drop(i);
  }

  // Masks by the ReLU before the gradient of the max_pool that read the ReLU's result, instead of
  // after it: there are fewer numbers, and a product may take in the mask. An element that receives
  // a gradient is the maximum of its windows, so the mask is the same in both places.
  void before_max_pool(size_t i) {
    const Pointwise* note = pointwise(i);
    const Dispatch* behind = dispatch(i - 1);
    if (!note || !behind || note->form != Pointwise::Form::relu_grad) return;
    const auto* of = dynamic_cast<const ops::MaxPoolGrad*>(behind->fusible.get());
    if (!of) return;
    Dispatch mask = *dispatch(i), pool = *behind;
    const Buffer y = mask.bindings[note->operands[0].binding].buffer,
                 dy = mask.bindings[note->operands[1].binding].buffer,
                 result = mask.bindings.back().buffer, winner = pool.bindings[0].buffer,
                 narrow = pool.bindings[1].buffer, wide = pool.bindings.back().buffer;
    const auto wanted = readers(i - 1, wide);
    const auto forward = writer_before(i - 1, winner);
    if (y != of->x || dy != wide || !is_own(wide) || !wanted || wanted->size() > 1 || !forward ||
        !unchanged(y, *forward, i) || !unchanged(of->y, *forward, i) || overlap(result, winner) ||
        overlap(result, narrow) || overlap(result, of->y) || narrow.size_bytes >= wide.size_bytes)
      return;
    if (of->after_fill) {  // of pixels under no window
      auto* fill = i < 2 ? nullptr : std::get_if<gpu::Fill>(&commands_[i - 2]);
      if (!fill || fill->to != wide) return;
      fill->to = result;
    }

    gpu::CommandList masked;
    ops::Emitter emit(kernels_, memory_, masked);
    emit.set_label(mask.label);
    const Shape shape{static_cast<int64_t>(narrow.size_bytes / sizeof(float))};
    const ops::DeviceTensor kept = emit.scratch(shape);
    ops::emit_relu_grad(emit, {of->y, shape}, {narrow, shape}, kept);
    pool.bindings[1] = {kept.buffer, Access::read};
    pool.bindings.back() = {result, Access::write};
    commands_[i - 1] = std::move(masked.front());
    commands_[i] = std::move(pool);
    look();
  }

  std::optional<size_t> writer_before(size_t i, const Buffer& buffer) {
    std::optional<size_t> out;
    for (const Touch& touch : touches(buffer))
      if (touch.command < i && touch.access != Access::read && overlap(touch.buffer, buffer))
        out = touch.command;
    return out;
  }

  static bool element_by_element(const Dispatch& d, const Buffer& buffer) {
    const auto& operands = ops::pointwise_of(d)->operands;
    return std::all_of(operands.begin(), operands.end(), [&](const Pointwise::Operand& operand) {
      return operand.along == Pointwise::Along::elements ||
             d.bindings[operand.binding].buffer != buffer;
    });
  }

  // Merges a sum, or the gradient after a ReLU, into the product that it follows.
  bool into_product(size_t i) {
    const Pointwise* note = pointwise(i);
    if (!note || note->form == Pointwise::Form::other) return false;
    const bool is_gradient = note->form == Pointwise::Form::relu_grad;
    for (const size_t operand : is_gradient ? std::vector<size_t>{1} : std::vector<size_t>{0, 1})
      if (into_product(i, operand)) return true;
    return false;
  }

  bool into_product(size_t i, size_t operand) {
    const Dispatch consumer = *dispatch(i);
    const Pointwise& note = *ops::pointwise_of(consumer);
    const bool is_gradient = note.form == Pointwise::Form::relu_grad;
    const Buffer from = consumer.bindings[note.operands[operand].binding].buffer,
                 other = consumer.bindings[note.operands[1 - operand].binding].buffer,
                 result = consumer.bindings.back().buffer;
    if (!is_own(from) || from == other || from == result) return false;
    const std::vector<size_t> writers = products_behind(i, from);
    if (writers.empty()) return false;
    std::vector<Dispatch> with;
    for (const size_t writer : writers) {
      const Product& now = *product(writer);
      const bool fits = ops::elements_of_c(now.mode, now.params) == note.count;
      // A product applies its operations in a fixed order: bias, sum, ReLU, gradient after another
      // ReLU.
      const bool done = (now.params.epilogue & ops::GemmParams::kRelu) != 0 ||
                        (now.joins & GemmKernel::kKeep) != 0 ||
                        (is_gradient && (now.params.epilogue & ops::GemmParams::kBias) != 0);
      if (!fits || done) return false;
      with.push_back(ops::with_joins(kernels_, *dispatch(writer),
                                     is_gradient ? GemmKernel::kKeep : GemmKernel::kResidual,
                                     note.form == Pointwise::Form::add_relu));
      if (!with.back().kernel) return false;
      with.back().bindings[is_gradient ? 2 : 3] = {other, Access::read};
      with.back().bindings.back() = {result, Access::write};
      if (with.back().label != consumer.label && !consumer.label.ends_with(" (gradient)"))
        with.back().label += " + " + consumer.label;
      for (const gpu::Binding& binding : dispatch(writer)->bindings)
        if (binding.buffer != from &&
            (!unchanged(binding.buffer, writer, i) || overlap(binding.buffer, result)))
          return false;
    }
    gpu::CommandList next;
    for (size_t k = 0; k < commands_.size(); ++k) {
      if (std::find(writers.begin(), writers.end(), k) != writers.end()) continue;
      if (k == i)
        next.insert(next.end(), with.begin(), with.end());
      else
        next.push_back(std::move(commands_[k]));
    }
    commands_ = std::move(next);
    look();
    return true;
  }

  // Returns the products that together write all of `buffer` before command i, the only reader.
  std::vector<size_t> products_behind(size_t i, const Buffer& buffer) {
    std::vector<size_t> out;
    uint32_t lines = 0;
    const auto& all = touches(buffer);
    const auto now = std::find_if(all.begin(), all.end(),
                                  [&](const Touch& touch) { return touch.command == i; });
    const auto alone = readers(i, buffer);
    if (now == all.end() || !alone || !alone->empty()) return {};
    for (auto at = std::make_reverse_iterator(now); at != all.rend(); ++at) {
      const Product* p = product(at->command);
      if (!p || at->access != Access::write ||
          dispatch(at->command)->bindings.back().buffer != buffer)
        return {};
      out.insert(out.begin(), at->command);
      lines |= 1u << p->params.line_offset;
      if (lines + 1 == 1u << p->params.line_step) return out;
    }
    return {};
  }

  void drop(size_t i) {
    commands_[i] = Dispatch{};
    look();
  }

  // Removes dropped commands, and compiles the kernels of chains and of single operations that gain
  // from it.
  void sweep() {
    std::erase_if(commands_, [](const gpu::Command& command) {
      const auto* dispatch = std::get_if<Dispatch>(&command);
      return dispatch && dispatch->bindings.empty();
    });
    for (gpu::Command& command : commands_)
      if (auto* dispatch = std::get_if<Dispatch>(&command);
          dispatch &&
          (!dispatch->kernel || ops::gains_from_compiling(*kernels_.device(), *dispatch)))
        ops::compile(kernels_, *dispatch);
  }

  gpu::CommandList& commands_;
  MemoryPlan& memory_;
  gpu::Kernels& kernels_;
  uint32_t most_bindings_;
  std::map<Block, std::vector<Touch>> touches_;
};

}  // namespace

void fuse(gpu::CommandList& commands, MemoryPlan& memory, gpu::Kernels& kernels) {
  Fusion(commands, memory, kernels).run();
}

}  // namespace etr::graph
