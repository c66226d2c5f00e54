#include "nn/models.h"

#include <algorithm>

#include "core/error.h"
#include "core/json.h"
#include "core/table.h"

namespace etr::nn {
namespace {

Json layer(const char* kind, Json options = Json::object()) {
  options["layer"] = kind;
  return options;
}

Json named(const std::string& name, Json layer) {
  layer["name"] = name;
  return layer;
}

constexpr OptionSpec kClasses{"classes", OptionType::integer, "10", "length of the output", 1,
                              1 << 24};

// mlp -----------------------------------------------------------------------------------------

constexpr OptionSpec kMlp[] = {
    {"hidden", OptionType::integers, "[128]", "units of each hidden layer", 1, 1 << 20},
    kClasses,
    {"activation", OptionType::string, "\"relu\"", "activation after each hidden layer", 0, 0, "",
     "relu|gelu|silu|tanh|sigmoid"},
    {"dropout", OptionType::number, "0", "probability that a hidden element is set to zero", 0,
     0.99},
};

Json expand_mlp(const Options& o) {
  Json layers{layer("flatten")};
  for (const int64_t units : o.integers("hidden")) {
    layers.push_back(layer("dense", {{"units", units}, {"activation", o.string("activation")}}));
    if (o.number("dropout") > 0)
      layers.push_back(layer("dropout", {{"rate", o.number("dropout")}}));
  }
  layers.push_back(layer("dense", {{"units", o.integer("classes")}, {"init", "glorot"}}));
  return {{"layers", layers}};
}

// simple_cnn ----------------------------------------------------------------------------------

constexpr OptionSpec kSimpleCnn[] = {kClasses};

// Shallue et al. 2018: two convolutions of 5 x 5 with pooling, a hidden layer of 1024.
Json expand_simple_cnn(const Options& o) {
  return {{"layers",
           {layer("conv2d", {{"filters", 32}, {"kernel", 5}, {"activation", "relu"}}),
            layer("max_pool"),
            layer("conv2d", {{"filters", 64}, {"kernel", 5}, {"activation", "relu"}}),
            layer("max_pool"), layer("flatten"),
            layer("dense", {{"units", 1024}, {"activation", "relu"}}),
            layer("dense", {{"units", o.integer("classes")}, {"init", "glorot"}})}}};
}

// Residual networks ---------------------------------------------------------------------------

Json conv(const std::string& name, int64_t filters, int64_t kernel, int64_t stride, bool norm) {
  return named(
      name, layer("conv2d",
                  {{"filters", filters}, {"kernel", kernel}, {"stride", stride}, {"bias", !norm}}));
}

Json batch_norm(const std::string& name, bool relu) {
  return named(name, layer("batch_norm", {{"activation", relu ? "relu" : "none"}}));
}

// Names follow torchvision's (layer1.0.conv1, bn1, downsample), so that its weights can be loaded.
Json block(const std::string& name, int64_t filters, int64_t stride, bool bottleneck, bool project,
           bool norm) {
  Json branch = Json::array(), shortcut = Json::array();
  const auto add = [&](int index, int64_t width, int64_t kernel, int64_t step, bool relu) {
    Json convolution = conv(cat("conv", index), width, kernel, step, norm);
    if (!norm && relu) convolution["activation"] = "relu";
    branch.push_back(std::move(convolution));
    if (norm) branch.push_back(batch_norm(cat("bn", index), relu));
  };
  if (bottleneck) {  // the stride is in the 3 x 3 convolution, as in torchvision
    add(1, filters, 1, 1, true);
    add(2, filters, 3, stride, true);
    add(3, 4 * filters, 1, 1, false);
  } else {
    add(1, filters, 3, stride, true);
    add(2, filters, 3, 1, false);
  }
  if (project) {
    shortcut.push_back(conv("conv", bottleneck ? 4 * filters : filters, 1, stride, norm));
    if (norm) shortcut.push_back(batch_norm("bn", false));
  }
  return named(name, layer("residual",
                           {{"layers", branch}, {"shortcut", shortcut}, {"activation", "relu"}}));
}

Json stages(const std::vector<int>& blocks, int64_t first_filters, bool bottleneck, bool norm) {
  Json out = Json::array();
  int64_t filters = first_filters;
  for (size_t s = 0; s < blocks.size(); ++s, filters *= 2)
    for (int b = 0; b < blocks[s]; ++b)
      out.push_back(block(cat("layer", s + 1, ".", b), filters, s > 0 && b == 0 ? 2 : 1, bottleneck,
                          b == 0 && (s > 0 || bottleneck), norm));
  return out;
}

void append(Json& to, const Json& from) { to.insert(to.end(), from.begin(), from.end()); }

constexpr OptionSpec kNorm{
    "norm", OptionType::string, "\"batch\"", "normalisation after each convolution", 0, 0,
    "",     "batch|none"};
constexpr OptionSpec kCifarResnet[] = {
    {"depth", OptionType::integer, "20", "6 n + 2: 8, 20, 32, 44, 56 or 110", 8, 1202},
    kClasses,
    kNorm};

// He et al. 2016, section 4.2: three stages of n blocks with 16, 32 and 64 filters.
Json expand_cifar_resnet(const Options& o) {
  const auto depth = static_cast<int>(o.integer("depth"));
  if (depth % 6 != 2)
    fail(Code::invalid_argument, "model 'cifar_resnet': a depth of ", depth, " is not 6 n + 2");
  const bool norm = o.string("norm") == "batch";
  const int n = depth / 6;
  Json layers{conv("conv1", 16, 3, 1, norm)};
  if (norm)
    layers.push_back(batch_norm("bn1", true));
  else
    layers[0]["activation"] = "relu";
  append(layers, stages({n, n, n}, 16, /*bottleneck=*/false, norm));
  layers.push_back(layer("global_avg_pool"));
  layers.push_back(
      named("fc", layer("dense", {{"units", o.integer("classes")}, {"init", "glorot"}})));
  return {{"layers", layers}};
}

constexpr OptionSpec kResnet[] = {
    {"depth", OptionType::integer, "50", "18, 34, 50, 101 or 152", 18, 152},
    {"classes", OptionType::integer, "1000", "length of the output", 1, 1 << 24},
};

// He et al. 2016, table 1, for images of about 224 x 224.
Json expand_resnet(const Options& o) {
  const int64_t depth = o.integer("depth");
  const std::vector<int> blocks = depth == 18    ? std::vector{2, 2, 2, 2}
                                  : depth == 34  ? std::vector{3, 4, 6, 3}
                                  : depth == 50  ? std::vector{3, 4, 6, 3}
                                  : depth == 101 ? std::vector{3, 4, 23, 3}
                                  : depth == 152 ? std::vector{3, 8, 36, 3}
                                                 : std::vector<int>{};
  if (blocks.empty())
    fail(Code::invalid_argument, "model 'resnet': there is no depth ", depth,
         "; there are 18, 34, 50, 101 and 152 (smaller ones for small images: 'cifar_resnet')");
  Json layers{conv("conv1", 64, 7, 2, true), batch_norm("bn1", true),
              layer("max_pool", {{"window", 3}, {"stride", 2}, {"pad", 1}})};
  append(layers, stages(blocks, 64, /*bottleneck=*/depth >= 50, true));
  layers.push_back(layer("global_avg_pool"));
  layers.push_back(
      named("fc", layer("dense", {{"units", o.integer("classes")}, {"init", "glorot"}})));
  return {{"layers", layers}};
}

// Transformers --------------------------------------------------------------------------------

constexpr OptionSpec kWidth{"width", OptionType::integer, "128", "features of each position", 4,
                            1 << 16};
constexpr OptionSpec kHeads{"heads", OptionType::integer, "4", "attention heads", 1, 1024};
constexpr OptionSpec kVocabSize{
    "vocab_size", OptionType::integer, nullptr, "size of the vocabulary", 1, 1 << 24, "", "",
    "symbols"};
constexpr OptionSpec kFfnWidth{"ffn_width", OptionType::integer,
                               "0",         "units of the feed-forward layers; 0: 4 * width",
                               0,           1 << 18,
                               "",          "",
                               "hidden"};
constexpr OptionSpec kDropoutRate{
    "dropout", OptionType::number,
    "0.1",     "probability that an element is set to zero after each sub-layer",
    0,         0.99};
constexpr OptionSpec kDecoder[] = {
    kVocabSize,
    {"blocks", OptionType::integer, "4", "number of blocks of attention and feed-forward layers", 1,
     1000},
    kWidth,
    kHeads,
    kFfnWidth,
    kDropoutRate,
    {"tie_embeddings", OptionType::boolean, "true",
     "the output layer shares the embedding's table as its weight", 0, 0, "", "", "tied"},
};

void add_dropout(Json& layers, double rate) {
  if (rate > 0) layers.push_back(layer("dropout", {{"rate", rate}}));
}

int64_t ffn_width_of(const Options& o) {
  return o.integer("ffn_width") ? o.integer("ffn_width") : 4 * o.integer("width");
}

Json attention(const Options& o, bool causal) {
  return named(
      "attention",
      layer("attention", {{"heads", o.integer("heads")}, {"causal", causal}, {"init", "glorot"}}));
}

// x + dropout(f(norm(x))): pre-normalisation (Xiong et al. 2020).
Json part(const std::string& name, Json inside, double dropout) {
  Json layers{named("norm", layer("layer_norm"))};
  append(layers, inside);
  add_dropout(layers, dropout);
  return named(name, layer("residual", {{"layers", layers}}));
}

Json feed_forward(const Options& o) {
  return {
      named("up", layer("dense",
                        {{"units", ffn_width_of(o)}, {"activation", "gelu"}, {"init", "glorot"}})),
      named("down", layer("dense", {{"units", o.integer("width")}, {"init", "glorot"}}))};
}

Json embed(const Options& o, const char* name, int64_t vocab_size) {
  Json layers{
      named(name, layer("embedding", {{"entries", vocab_size}, {"width", o.integer("width")}})),
      named(std::string(name) + "_position", layer("position_embedding"))};
  add_dropout(layers, o.number("dropout"));
  return layers;
}

Json output(const Options& o, const char* tied_to, int64_t vocab_size) {
  Json dense = layer("dense", {{"units", vocab_size}, {"bias", false}, {"init", "glorot"}});
  if (o.boolean("tie_embeddings")) dense["tied_to"] = tied_to;
  return named("output", dense);
}

Json expand_decoder(const Options& o) {
  const double rate = o.number("dropout");
  Json layers = embed(o, "embedding", o.integer("vocab_size"));
  for (int64_t b = 1; b <= o.integer("blocks"); ++b) {
    layers.push_back(part(cat("block", b, ".attend"), Json::array({attention(o, true)}), rate));
    layers.push_back(part(cat("block", b, ".feed"), feed_forward(o), rate));
  }
  layers.push_back(named("norm", layer("layer_norm")));
  layers.push_back(output(o, "embedding", o.integer("vocab_size")));
  return {{"layers", layers}, {"inputs", "input"}, {"loss", {{"target", "target"}}}};
}

constexpr OptionSpec kTransformer[] = {
    {"vocab_size", OptionType::integer, nullptr,
     "size of the vocabulary, which source and target share", 1, 1 << 24, "", "", "symbols"},
    {"blocks", OptionType::integer, "6", "number of blocks in the encoder and in the decoder", 1,
     1000},
    {"width", OptionType::integer, "512", "features of each position", 4, 1 << 16},
    {"heads", OptionType::integer, "8", "attention heads", 1, 1024},
    kFfnWidth,
    kDropoutRate,
    {"tie_embeddings", OptionType::boolean, "true",
     "the output layer shares the decoder's embedding table as its weight", 0, 0, "", "", "tied"},
};

// Vaswani et al. 2017, with pre-normalisation. Reads "source" and "source_length"; the decoder
// reads "input" (the target shifted by one) and learns "target".
Json expand_transformer(const Options& o) {
  const double rate = o.number("dropout");
  const auto read = [](Json layers, const char* field) {
    layers[0]["input"] = field;
    return layers;
  };
  Json layers = read(embed(o, "encoder_embedding", o.integer("vocab_size")), "source");
  for (int64_t b = 1; b <= o.integer("blocks"); ++b) {
    Json attend = attention(o, false);
    attend["input"] = {"norm", "norm", "source_length"};
    layers.push_back(part(cat("encoder", b, ".attend"), Json::array({attend}), rate));
    layers.push_back(part(cat("encoder", b, ".feed"), feed_forward(o), rate));
  }
  layers.push_back(named("memory", layer("layer_norm")));
  append(layers, read(embed(o, "embedding", o.integer("vocab_size")), "input"));
  for (int64_t b = 1; b <= o.integer("blocks"); ++b) {
    layers.push_back(part(cat("decoder", b, ".attend"), Json::array({attention(o, true)}), rate));
    Json look = attention(o, false);
    look["input"] = {"norm", "memory", "source_length"};
    layers.push_back(part(cat("decoder", b, ".look"), Json::array({look}), rate));
    layers.push_back(part(cat("decoder", b, ".feed"), feed_forward(o), rate));
  }
  layers.push_back(named("norm", layer("layer_norm")));
  layers.push_back(output(o, "embedding", o.integer("vocab_size")));
  return {{"layers", layers},
          {"inputs", {"source", "source_length", "input"}},
          {"loss", {{"target", "target"}}}};
}

constexpr OptionSpec kLlama[] = {
    kVocabSize,
    {"blocks", OptionType::integer, "4", "number of blocks of attention and feed-forward layers", 1,
     1000},
    kWidth,
    kHeads,
    {"kv_heads", OptionType::integer, "0",
     "number of heads for keys and values, shared by groups of attention heads; 0: as many as "
     "heads",
     0, 1024},
    {"head_dim", OptionType::integer, "0", "features of a head; 0: width / heads", 0, 256, "", "",
     "head_width"},
    kFfnWidth,
    {"rotary_base", OptionType::number, "10000", "base of the rotary position embedding", 1, 1e12},
    {"rotary_scaling", OptionType::numbers, "[]",
     "as in the layer 'attention', for contexts longer than in the original training", 1e-6, 1e9},
    {"epsilon", OptionType::number, "1e-5", "added to the mean square in normalisations", 1e-12, 1},
    {"tie_embeddings", OptionType::boolean, "false",
     "the output layer shares the embedding's table as its weight", 0, 0, "", "", "tied"},
};

// Touvron et al. 2023: RMS norm in front of each part, rotary positions, a gated feed-forward
// layer (SwiGLU, Shazeer 2020), no biases.
Json expand_llama(const Options& o) {
  const auto norm = [&] { return layer("rms_norm", {{"epsilon", o.number("epsilon")}}); };
  const auto dense = [&](const char* name, int64_t units) {
    return named(name, layer("dense", {{"units", units}, {"bias", false}, {"init", "normal"}}));
  };
  const auto residual = [&](const std::string& name, Json inside) {
    Json layers{named("norm", norm())};
    append(layers, inside);
    return named(name, layer("residual", {{"layers", layers}}));
  };
  Json attend = layer("attention",
                      {{"causal", true}, {"bias", false}, {"separate", true}, {"init", "normal"}});
  for (const char* key : {"heads", "kv_heads", "head_dim"}) attend[key] = o.integer(key);
  attend["rotary_base"] = o.number("rotary_base");
  attend["rotary_scaling"] = o.numbers("rotary_scaling");
  Json up = dense("up", ffn_width_of(o));
  up["input"] = "norm";
  Json gated = named("gated", layer("multiply"));
  gated["input"] = {"activation", "up"};
  const Json feed{dense("gate", ffn_width_of(o)),
                  named("activation", layer("activation", {{"function", "silu"}})), up, gated,
                  dense("down", o.integer("width"))};
  Json layers{named("embedding", layer("embedding", {{"entries", o.integer("vocab_size")},
                                                     {"width", o.integer("width")}}))};
  for (int64_t b = 0; b < o.integer("blocks"); ++b) {  // numbered as in files of such models
    layers.push_back(
        residual(cat("layers.", b, ".attend"), Json::array({named("attention", attend)})));
    layers.push_back(residual(cat("layers.", b, ".feed"), feed));
  }
  layers.push_back(named("norm", norm()));
  layers.push_back(output(o, "embedding", o.integer("vocab_size")));
  return {{"layers", layers}, {"inputs", "input"}, {"loss", {{"target", "target"}}}};
}

// Detector ------------------------------------------------------------------------------------

constexpr OptionSpec kSsd[] = {
    {"classes", OptionType::integer, nullptr, "number of classes, not counting the background", 1,
     1 << 16},
    {"width", OptionType::integer, "32",
     "filters of the first level; each further level has twice as many", 1, 1 << 12},
    {"max_width", OptionType::integer, "256", "largest number of filters of a level", 1, 1 << 14,
     "", "", "most_width"},
    {"levels", OptionType::integer, "6", "how many times the image is halved", 1, 12},
    {"first_level", OptionType::integer, "3",
     "first level that predicts boxes; all further levels do, too", 1, 12, "", "", "first_head"},
    {"min_scale", OptionType::number, "0.2",
     "side length of the first level's anchors, as a fraction of the image", 0.001, 1, "", "",
     "smallest"},
    {"max_scale", OptionType::number, "0.9", "side length of the last level's anchors", 0.001, 2,
     "", "", "largest"},
    {"ratios", OptionType::numbers, "[1, 2, 0.5]", "aspect ratios (width / height) of the anchors",
     0.01, 100},
};

// Liu et al. 2016: each coarser map has anchors of the next size. The trunk is a residual network
// with one block per level, suited to training from scratch.
Json expand_ssd(const Options& o) {
  const int64_t levels = o.integer("levels"), first = o.integer("first_level");
  if (first > levels)
    fail(Code::invalid_argument, "model 'ssd': 'first_level' is ", first, ", but there are ", levels,
         " levels");
  const double min_scale = o.number("min_scale"), max_scale = o.number("max_scale");
  if (levels > first && min_scale > max_scale)
    fail(Code::invalid_argument, "model 'ssd': 'min_scale' is ", min_scale, " and 'max_scale' is ",
         max_scale, ", but anchors grow from level to level");
  const auto filters = [&](int64_t level) {
    return std::min(o.integer("width") << (level - 1), o.integer("max_width"));
  };
  const auto scale = [&](int64_t level) {
    const double step =
        levels > first ? (max_scale - min_scale) / static_cast<double>(levels - first) : 0;
    return min_scale + step * static_cast<double>(level - first);
  };
  Json layers{conv("conv1", filters(1), 3, 1, true), batch_norm("bn1", true)};
  for (int64_t level = 1; level <= levels; ++level)
    layers.push_back(block(cat("level", level), filters(level), 2, /*bottleneck=*/false,
                           /*project=*/true, /*norm=*/true));
  Json heads = Json::array();
  for (int64_t level = first; level <= levels; ++level) {
    Json head = named(cat("head", level),
                      layer("box_head", {{"classes", o.integer("classes")},
                                         {"scale", scale(level)},
                                         // Behind the last level, at most what the layer takes.
                                         {"next_scale", std::min(scale(level + 1), 2.0)},
                                         {"ratios", o.numbers("ratios")}}));
    heads.push_back(head["name"]);
    head["input"] = cat("level", level);
    layers.push_back(head);
  }
  if (heads.size() > 1) {
    Json joined = named("output", layer("concat", {{"axis", 1}}));
    joined["input"] = heads;
    layers.push_back(joined);
  }
  return {{"layers", layers}, {"loss", {{"loss", "multibox"}}}};
}

constexpr ModelSpec kModels[] = {
    {"mlp", "fully connected layers", kMlp, expand_mlp},
    {"simple_cnn", "two convolutions and a hidden layer (Shallue et al. 2018)", kSimpleCnn,
     expand_simple_cnn},
    {"cifar_resnet", "residual network for images of about 32 x 32 (He et al. 2016)", kCifarResnet,
     expand_cifar_resnet},
    {"resnet", "residual network for images of about 224 x 224 (He et al. 2016)", kResnet,
     expand_resnet},
    {"transformer_decoder",
     "decoder-only Transformer: i32 [N, positions] to [N, positions, vocab_size]", kDecoder,
     expand_decoder},
    {"transformer", "encoder-decoder Transformer (Vaswani et al. 2017)", kTransformer,
     expand_transformer},
    {"llama",
     "decoder of the Llama family (Touvron et al. 2023): i32 [N, positions] to [N, positions, "
     "vocab_size]",
     kLlama, expand_llama},
    {"ssd", "single-shot detector (Liu et al. 2016); its loss is 'multibox'", kSsd, expand_ssd},
};

}  // namespace

std::span<const ModelSpec* const> model_table() {
  static constexpr const ModelSpec* kTable[] = {&kModels[0], &kModels[1], &kModels[2], &kModels[3],
                                                &kModels[4], &kModels[5], &kModels[6], &kModels[7]};
  return kTable;
}

Json expand_model(const std::string& name, const Json& options) {
  const ModelSpec& model = find_in_table(model_table(), "model", name);
  return model.expand(Options(model.options, cat("model '", name, "'"), options));
}

}  // namespace etr::nn
