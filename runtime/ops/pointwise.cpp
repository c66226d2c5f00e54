#include "ops/pointwise.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <map>
#include <set>

#include "core/text.h"
#include "gpu/glsl.h"
#include "gpu/shader_table.h"

namespace etr::ops {
namespace {

using Along = Pointwise::Along;

// Returns `body` with each $NAME replaced by of(NAME).
template <typename F>
std::string replaced(const std::string& body, F&& of) {
  std::string out;
  for (size_t i = 0; i < body.size();) {
    if (body[i] != '$') {
      out += body[i++];
      continue;
    }
    size_t end = i + 1;
    while (end < body.size() && is_letter_or_digit(body[end])) ++end;
    out += of(body.substr(i + 1, end - i - 1));
    i = end;
  }
  return out;
}

uint32_t number(const std::string& digits) { return static_cast<uint32_t>(std::stoul(digits)); }

bool is_operand(const std::string& name) {
  return std::isdigit(static_cast<unsigned char>(name[0])) != 0;
}

// Returns the index of the operand that reads `result` element by element, or -1 if none does or it
// is also read in another way.
int64_t operand_of(const Pointwise& note, const gpu::Dispatch& consumer,
                   const gpu::Buffer& result) {
  int64_t found = -1;
  for (size_t i = 0; i < note.operands.size(); ++i) {
    if (consumer.bindings[note.operands[i].binding].buffer != result) continue;
    if (note.operands[i].along != Along::elements || found >= 0) return -1;
    found = static_cast<int64_t>(i);
  }
  return found;
}

// Collects operands and their buffers, each once.
class Bindings {
 public:
  uint32_t operand(const gpu::Buffer& buffer, Pointwise::Operand operand) {
    const auto at = std::find(buffers_.begin(), buffers_.end(), buffer);
    operand.binding = static_cast<uint32_t>(at - buffers_.begin());
    if (at == buffers_.end()) buffers_.push_back(buffer);
    const auto same = std::find(operands_.begin(), operands_.end(), operand);
    if (same == operands_.end()) operands_.push_back(operand);
    return static_cast<uint32_t>(std::find(operands_.begin(), operands_.end(), operand) -
                                 operands_.begin());
  }

  std::vector<Pointwise::Operand> operands() const { return operands_; }

  std::vector<gpu::Binding> with_result(const gpu::Buffer& result) const {
    std::vector<gpu::Binding> out;
    for (const gpu::Buffer& buffer : buffers_) out.push_back({buffer, gpu::Access::read});
    out.push_back({result, gpu::Access::write});
    return out;
  }

 private:
  std::vector<gpu::Buffer> buffers_;
  std::vector<Pointwise::Operand> operands_;
};

// Returns the body of a description with its operands renumbered as in `into`, its temporaries from
// `first_temporary` on and its result as `result`. `replaced_operand` (-1: none) becomes
// `replacement`.
std::string moved(const gpu::Dispatch& dispatch, const Pointwise& note, Bindings& into,
                  uint32_t first_temporary, const std::string& result, int64_t replaced_operand,
                  const std::string& replacement) {
  std::vector<std::string> names;
  for (size_t i = 0; i < note.operands.size(); ++i) {
    const Pointwise::Operand& operand = note.operands[i];
    if (static_cast<int64_t>(i) == replaced_operand)
      names.push_back(replacement);
    else
      names.push_back(cat("$", into.operand(dispatch.bindings[operand.binding].buffer, operand)));
  }
  return replaced(note.body, [&](const std::string& name) -> std::string {
    if (is_operand(name)) return names[number(name)];
    return name[0] == 't' ? cat("$t", first_temporary + number(name.substr(1))) : result;
  });
}

// Joins two labels unless they are equal.
std::string both(const std::string& a, const std::string& b) {
  return a == b || a.ends_with(" + " + b) ? a : a + " + " + b;
}

// The kernel of a described dispatch, whose invocations own $width neighbouring columns. Four rows
// per iteration hide the loop overhead, as in batch_norm.comp. All are read before any is written,
// so that the result may overwrite an operand.
constexpr const char* kKernel = R"(#version 450
#extension GL_EXT_control_flow_attributes : require
$buffers
layout(local_size_x = $lanes) in;
layout(push_constant) uniform Push { $addresses uint count, columns, rows, slices, period; };
$functions
void main() {
  const uint column = $width * gl_GlobalInvocationID.x;
  if (column >= columns) return;
  const float column_length = float(count / period);
  $once
  const uint per = (rows + slices - 1) / slices, begin = gl_WorkGroupID.y * per, end = min(begin + per, rows);
  for (uint r = begin; r < end; r += 4) {
    $arrays
    [[unroll]] for (uint i = 0; i < 4; ++i) {
      const uint at = min(r + i, end - 1) * columns + column;
      if (!$tail || at < count) { $loads }
    }
    [[unroll]] for (uint e = 0; e < 4 * $width; ++e) {
      float result $temporaries;
      $body
      $keep
    }
    $stores
  }
}
)";

// How a kernel goes over the elements: as rows of `columns`, of which an invocation owns `width`
// neighbours. Operands along columns have `period` elements.
struct Layout {
  uint32_t lanes, width, columns, period;
  bool by_address, has_tail;
};

std::string source_of(const Pointwise& note, size_t bindings, const Layout& layout) {
  const bool pairs = layout.width == 2;
  std::map<std::string, std::string> parts{{"lanes", cat(layout.lanes)},
                                           {"width", cat(layout.width, "u")},
                                           {"functions", std::string(gpu::elementwise_glsl())},
                                           {"tail", layout.has_tail ? "true" : "false"}};
  if (layout.by_address)
    parts["buffers"] = cat(
        "#extension GL_EXT_buffer_reference : require\n"
        "#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require\n"
        "layout(buffer_reference, std430, buffer_reference_align = 4) buffer Floats { float v[]; "
        "};\n",
        gpu::pair_glsl());
  for (size_t i = 0; i < bindings; ++i)
    if (layout.by_address)
      parts["addresses"] += cat("Floats b", i, ";");
    else
      parts["buffers"] +=
          cat("layout(binding = ", i, ", std430) buffer B", i, " { float v[]; } b", i, ";\n");
  const std::string result = cat("b", bindings - 1);
  const std::string at = "const uint at = min(r + i, end - 1) * columns + column;";
  const std::string in_range = layout.has_tail ? "if (at < count) " : "";
  if (pairs) {
    parts["arrays"] = "float results[8];";
    parts["keep"] = "results[e] = result;";
    parts["stores"] = cat("[[unroll]] for (uint i = 0; i < 4; ++i) { ", at, in_range, "store_pair(",
                          result, ", at, vec2(results[2 * i], results[2 * i + 1])); }");
  } else {
    parts["keep"] = cat("const uint i = e; ", at, in_range, result, ".v[at] = result;");
  }
  for (size_t i = 0; i < note.operands.size(); ++i) {
    const auto& [binding, along, row] = note.operands[i];
    if (along == Along::elements) {
      parts["arrays"] += cat("float x", i, "[4 * ", layout.width, "];");
      parts["loads"] += pairs ? cat("const vec2 pair", i, " = pair(b", binding, ", at); x", i,
                                    "[2 * i] = pair", i, ".x; x", i, "[2 * i + 1] = pair", i, ".y;")
                              : cat("x", i, "[i] = b", binding, ".v[at];");
    } else if (along == Along::nothing) {
      parts["once"] += cat("const float x", i, " = b", binding, ".v[0];");
    } else {
      const std::string first = cat("b", binding, ".v[", row, "u * period + ");
      parts["once"] += pairs ? cat("const float x", i, "[2] = {", first, "column % period], ",
                                   first, "(column + 1) % period]};")
                             : cat("const float x", i, " = ", first, "column];");
    }
  }
  for (uint32_t i = 0; i < note.temporaries; ++i) parts["temporaries"] += cat(", t", i);
  parts["body"] = replaced(note.body, [&](const std::string& name) -> std::string {
    if (name[0] == 't') return name;
    if (!is_operand(name)) return "result";
    const Along along = note.operands[number(name)].along;
    if (along == Along::elements) return cat("x", name, "[e]");
    return cat("x", name, along == Along::columns && pairs ? "[e % 2]" : "");
  });
  return replaced(kKernel, [&](const std::string& name) { return parts[name]; });
}

// Returns whether the dispatch can read and write pairs of elements. The driver of a CPU device
// turns every access into one per lane, which costs the same for 64 bits as for 32.
bool takes_pairs(const gpu::Device& device, const gpu::Dispatch& dispatch) {
  const Pointwise& note = *pointwise_of(dispatch);
  if (device.family() != gpu::KernelFamily::cpu || note.count % 2 != 0) return false;
  for (const Pointwise::Operand& operand : note.operands)
    if (operand.along == Along::elements &&
        !begins_with_a_pair(dispatch.bindings[operand.binding].buffer))
      return false;
  if (!begins_with_a_pair(dispatch.bindings.back().buffer)) return false;
  // Rows are taken by fours.
  return !note.columns ||
         uint64_t{4} * rows_side_by_side(device, note.columns) * note.columns <= note.count;
}

Layout layout_of(const gpu::Device& device, const gpu::Dispatch& dispatch) {
  const Pointwise& note = *pointwise_of(dispatch);
  const bool by_address = device.family() == gpu::KernelFamily::cpu;
  const uint32_t width = takes_pairs(device, dispatch) ? 2 : 1;
  const uint32_t usual = channel_lanes(device) * (note.columns || by_address ? 1 : 4);
  const uint32_t rows = width == 1 ? 1 : rows_side_by_side(device, note.columns);
  const uint32_t along = note.columns * rows;
  const uint32_t lanes = lanes_over(device, along / width, usual);
  // Without an operand along columns any length will do. Choose one with which a workgroup walks
  // through memory in order.
  const uint32_t columns = note.columns ? along : lanes * width;
  return {lanes, width, columns, std::max(note.columns, 1u), by_address, note.count % columns != 0};
}

}  // namespace

PointwisePtr pointwise(std::string name, uint32_t count, uint32_t operands, std::string body,
                       Pointwise::Form form) {
  auto note = std::make_shared<Pointwise>();
  note->name = std::move(name);
  note->count = count;
  note->body = std::move(body);
  note->form = form;
  for (uint32_t i = 0; i < operands; ++i) note->operands.push_back({i});
  return note;
}

void emit_relu_grad(Emitter& emit, const DeviceTensor& y, const DeviceTensor& dy,
                    const DeviceTensor& dx) {
  emit.for_each("relu_grad", {reads(y), reads(dy), writes(dx)}, dx.count(), dx.count());
  emit.set_fusible(
      pointwise("relu_grad", dx.count(), 2, "$r = relu_grad($0, $1);", Pointwise::Form::relu_grad));
}

std::string glsl(float value) {
  return cat("uintBitsToFloat(", std::bit_cast<uint32_t>(value), "u)");
}

const Pointwise* pointwise_of(const gpu::Dispatch& dispatch) {
  return dynamic_cast<const Pointwise*>(dispatch.fusible.get());
}

uint32_t tensors_read(const gpu::Dispatch& dispatch) {
  std::set<uint32_t> bindings;
  for (const Pointwise::Operand& operand : pointwise_of(dispatch)->operands)
    if (operand.along == Along::elements) bindings.insert(operand.binding);
  return static_cast<uint32_t>(bindings.size());
}

gpu::Dispatch joined(const gpu::Dispatch& producer, const gpu::Dispatch& consumer,
                     uint32_t most_bindings) {
  const Pointwise &first = *pointwise_of(producer), &second = *pointwise_of(consumer);
  const int64_t at = operand_of(second, consumer, producer.bindings.back().buffer);
  const bool fits = first.count == second.count &&
                    (!first.columns || !second.columns || first.columns == second.columns);
  if (at < 0 || !fits) return {};
  auto note = std::make_shared<Pointwise>();
  Bindings bindings;
  const std::string between = cat("$t", second.temporaries);
  const std::string after = moved(consumer, second, bindings, 0, "$r", at, between);
  note->body = moved(producer, first, bindings, second.temporaries + 1, between, -1, "") +
               "\n      " + after;
  note->name = first.name + " + " + second.name;
  note->count = first.count;
  note->columns = std::max(first.columns, second.columns);
  note->temporaries = first.temporaries + second.temporaries + 1;
  note->cheap = first.cheap && second.cheap;
  note->operands = bindings.operands();
  gpu::Dispatch out;
  out.bindings = bindings.with_result(consumer.bindings.back().buffer);
  if (out.bindings.size() > most_bindings) return {};
  out.label = both(producer.label, consumer.label);
  out.fusible = note;
  return out;
}

void compile(gpu::Kernels& kernels, gpu::Dispatch& dispatch) {
  const Pointwise& note = *pointwise_of(dispatch);
  const gpu::Device& device = *kernels.device();
  const Layout layout = layout_of(device, dispatch);
  const uint32_t rows = gpu::div_up(note.count, layout.columns);
  const uint32_t slices = note.columns || !layout.by_address
                              ? row_slices(device, rows, layout.columns)
                              : std::clamp(rows / 64, 1u, 4096u);
  const struct {
    uint32_t count, columns, rows, slices, period;
  } push{note.count, layout.columns, rows, slices, layout.period};
  dispatch.kernel =
      &kernels.from_source(source_of(note, dispatch.bindings.size(), layout), note.name,
                           dispatch.bindings.size(), sizeof(push), layout.by_address);
  dispatch.push = gpu::push_bytes(push);
  dispatch.groups = {gpu::div_up(layout.columns, layout.lanes * layout.width), push.slices, 1};
}

bool gains_from_compiling(const gpu::Device& device, const gpu::Dispatch& dispatch) {
  constexpr uint32_t kWorthIt = 1 << 16;  // elements; below, a kernel takes less than its start
  const Pointwise* note = pointwise_of(dispatch);
  return note && note->count >= kWorthIt && gpu::can_compile_glsl() &&
         takes_pairs(device, dispatch);
}

}  // namespace etr::ops
