// Fuzz targets for pipelines and models: the input chooses stages or layers, and for their options
// values that the schemas allow or that they should refuse. One program a target, as in data.cpp.
#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json.h"
#include "core/options.h"
#include "core/text.h"
#include "fuzz/target.h"
#include "pipeline/pipeline.h"
#include "pipeline/stage.h"
#ifdef ETR_FUZZ_TRAINING  // the targets that link both wings
#include "nn/layer.h"
#include "nn/model.h"
#endif

namespace etr::fuzz {
namespace {

#ifdef ETR_FUZZ_TRAINING
constexpr double kMostOfLimited = 1e18;
#else
constexpr double kMostOfLimited = 100;  // samples are really made, and must not take all memory
#endif

// Mostly a small number, which the option may refuse.
double number_for(const OptionSpec& option, Choices& choose) {
  constexpr double kSmall[] = {0, 1, 2, 3, 4, 8, 0.5, 0.1, 5, 7, 16, 64};
  constexpr double kLarge[] = {1e3, 65536, 4294967296.0, 1e12, 9007199254740992.0, 1e18};
  switch (choose.below(12)) {
    case 0: return std::isfinite(option.min) ? option.min : -1e18;
    case 1: return std::isfinite(option.max) ? std::min(option.max, kMostOfLimited) : 1e18;
    case 2: return -kSmall[choose.below(std::size(kSmall))];
    case 3:
      if (option.max <= 1e6) return std::min(option.max, kMostOfLimited);
      return kLarge[choose.below(std::size(kLarge))];
    default: return kSmall[choose.below(std::size(kSmall))];
  }
}
Json whole_for(const OptionSpec& option, Choices& choose) {
  const double number = std::clamp(number_for(option, choose), -9e18, 9e18);
  return static_cast<int64_t>(number);
}

std::string word_for(const OptionSpec& option, Choices& choose) {
  constexpr const char* kWords[] = {"image", "label", "x", "", "a", "y", "%", "\xc3\xa9"};
  if (!*option.choices || choose.below(16) == 1) return choose.of(kWords);
  const auto words = split(std::string_view(option.choices), '|');
  return std::string(words[choose.below(words.size())]);
}

// Nested stages and layers are made by `nest`.
template <class Nest>
Json value_for(const OptionSpec& option, Choices& choose, const Nest& nest) {
  if (choose.below(16) == 1) return Json::parse(choose.of(kNumbers));
  const auto list = [&](const auto& one) {
    Json out = Json::array();
    for (size_t i = choose.below(5); i-- > 0;) out.push_back(one());
    return out;
  };
  switch (option.type) {
    case OptionType::boolean: return choose.below(2) == 1;
    case OptionType::integer: return whole_for(option, choose);
    case OptionType::number: return number_for(option, choose);
    case OptionType::string: return word_for(option, choose);
    case OptionType::integers: return list([&] { return whole_for(option, choose); });
    case OptionType::numbers: return list([&] { return Json(number_for(option, choose)); });
    case OptionType::strings: return list([&] { return Json(word_for(option, choose)); });
    case OptionType::stages:
    case OptionType::layers: return nest();
  }
  return nullptr;
}

template <class Nest>
void add_options(Json& out, Schema schema, Choices& choose, const Nest& nest) {
  for (const OptionSpec& option : schema) {
    const bool is_file =  // would be written, or read, anywhere
        std::string_view(option.unit) == "path" || std::string_view(option.name) == "replay";
    if (is_file) continue;
    const bool given = option.default_json ? choose.below(4) == 3 : choose.below(16) != 1;
    if (given) out[option.name] = value_for(option, choose, nest);
  }
}

// 24 images of 8 x 8 with labels.
Json images() {
  const auto npy = [](std::string type, std::string shape, size_t bytes, const char* ending) {
    std::string header =
        "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }";
    header.resize((10 + header.size() + 64) / 64 * 64 - 10 - 1, ' ');
    std::string file("\x93NUMPY\x01\x00", 8);
    file += static_cast<char>((header.size() + 1) & 255);
    file += static_cast<char>((header.size() + 1) >> 8);
    file += header + "\n";
    for (size_t i = 0; i < bytes; ++i)
      file += static_cast<char>(type == "|u1" ? i * 7 : i % 4 ? 0 : i % 3);
    return as_file(file, ending);
  };
  return {{"stage", "npy"},
          {"arrays", "image=" + npy("|u1", "(24, 8, 8, 3)", 24 * 8 * 8 * 3, ".images.npy") +
                         ",label=" + npy("<i4", "(24,)", 24 * 4, ".labels.npy")}};
}

Json random_stage(Choices& choose) {
  // Left out: those that wait, that write files, or whose functions a program gives.
  static constexpr std::string_view kLeftOut[] = {"delay", "cache", "map"};
  static const std::vector<const pipeline::StageSpec*> all = [] {
    std::vector<const pipeline::StageSpec*> out;
    for (const pipeline::StageSpec* spec : pipeline::stage_table())
      if (spec->kind != pipeline::StageKind::source &&
          std::find(std::begin(kLeftOut), std::end(kLeftOut), spec->name) == std::end(kLeftOut))
        out.push_back(spec);
    return out;
  }();
  const pipeline::StageSpec& spec = *all[choose.below(all.size())];
  Json stage{{"stage", spec.name}};
  add_options(stage, spec.options, choose, [] { return Json::array(); });
  return stage;
}

bool is_timed(const Json& spec) {  // what comes out depends on time
  return std::any_of(spec["stages"].begin(), spec["stages"].end(), [](const Json& stage) {
    const Json mode = stage.value("mode", Json("fixed"));
    return stage["stage"] == "overtake" ||
           (stage["stage"] == "echo" && mode != "fixed" && mode != "together");
  });
}

enum class Stop { enough, end, error, patience };

// The next items, and why there are no more.
Stop read(pipeline::Pipeline& pipeline, size_t count, std::vector<pipeline::Item>& out) {
  constexpr double kPatience = 0.2;  // seconds; of a source that repeats, a filter may drop all
  try {
    while (out.size() < count) {
      if (!pipeline.wait(kPatience)) return Stop::patience;
      pipeline::Item item;
      if (pipeline.next(item) != pipeline::Pipeline::Next::item) return Stop::end;
      out.push_back(std::move(item));
    }
  } catch (const Error& error) {
    if (error.code() == Code::internal) throw;
    return Stop::error;
  }
  return Stop::enough;
}

void check_same(const pipeline::Item& one, const pipeline::Item& other) {
  if (one.ordinal != other.ordinal || one.replica != other.replica ||
      one.batch.size != other.batch.size || one.fields.size() != other.fields.size())
    std::abort();
  for (size_t i = 0; i < one.fields.size(); ++i) {
    const Tensor &tensor = one.fields[i].tensor, &again = other.fields[i].tensor;
    if (one.fields[i].name != other.fields[i].name || tensor.dtype() != again.dtype() ||
        tensor.shape() != again.shape() || !std::ranges::equal(tensor.bytes(), again.bytes()))
      std::abort();
  }
}

// A pipeline that is valid is read; at a saved position, another one delivers what this one does.
void stages(Bytes bytes) {
  static const Json source = images();
  Choices choose(bytes);
  Json spec{{"stages", {source}}, {"threads", 1 + choose.below(2)}, {"seed", 3}};
  if (choose.below(4) == 1) spec["on_error"] = "skip";
  if (choose.below(4) == 1) {
    spec["world_size"] = 2;
    spec["rank"] = choose.below(2);
  }
  for (size_t i = choose.below(6); i-- > 0;) spec["stages"].push_back(random_stage(choose));
  pipeline::Pipeline pipeline(spec);
  std::vector<pipeline::Item> first, rest, again;
  if (read(pipeline, choose.below(8), first) == Stop::patience) return;
  const Json saved = pipeline.save();
  const Stop stop = read(pipeline, 3, rest);
  if (stop == Stop::patience || is_timed(spec)) return;
  pipeline::Pipeline other(spec);
  try {
    other.restore(saved);
  } catch (const Error& error) {
    if (error.code() == Code::unsupported) return;
    throw;
  }
  const Stop same = read(other, 3, again);
  if (same == Stop::patience) return;
  if (same != stop || again.size() != rest.size()) std::abort();
  for (size_t i = 0; i < rest.size(); ++i) check_same(rest[i], again[i]);
}

#ifdef ETR_FUZZ_TRAINING
Json random_layers(Choices& choose, size_t most, int depth) {
  Json out = Json::array();
  for (size_t i = choose.below(most + 1); i-- > 0;) {
    const nn::LayerSpec& spec = *nn::layer_table()[choose.below(nn::layer_table().size())];
    if (std::string_view(spec.name) == "glsl") continue;  // a program of its own, which is trusted
    Json layer{{"layer", spec.name}};
    add_options(layer, spec.options, choose,
                [&] { return depth < 2 ? random_layers(choose, 3, depth + 1) : Json::array(); });
    if (choose.below(4) == 1) {
      constexpr const char* kInputs[] = {"image", "tokens", "a", "b"};
      layer["input"] = Json::array();
      for (size_t inputs = 1 + choose.below(3); inputs-- > 0;)
        layer["input"].push_back(choose.of(kInputs));
    }
    if (choose.below(4) == 1) layer["name"] = choose.below(2) ? "a" : "b";
    out.push_back(layer);
  }
  return out;
}

// The graph of a model for a batch, with its loss.
void layers(Bytes bytes) {
  Choices choose(bytes);
  constexpr const char* kLosses[] = {"softmax_cross_entropy", "mse", "huber", "l1",
                                     "binary_cross_entropy"};
  Json spec{{"layers", random_layers(choose, 6, 0)}};
  if (choose.below(2)) spec["loss"] = {{"loss", choose.of(kLosses)}};
  if (choose.below(8) == 1) spec["quantize"] = choose.below(2) ? 4 : 8;
  if (choose.below(8) == 1) spec["recompute"] = true;
  if (choose.below(8) == 1) spec["inputs"] = {"tokens"};
  const nn::Model model(spec);
  const nn::Fields fields{{"image", {DType::f32, {8, 8, 3}}},
                          {"tokens", {DType::i32, {6}}},
                          {"label", {DType::i32, {}}}};
  model.build(static_cast<int64_t>(1 + choose.below(4)), fields);
}
#endif

}  // namespace
}  // namespace etr::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return etr::fuzz::run(etr::fuzz::ETR_FUZZ_TARGET, data, size);
}
