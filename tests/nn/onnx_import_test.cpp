// Models from ONNX files. Other frameworks' files: tests/golden/onnx_import_check.py.
#include "nn/onnx_import.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>

#include "core/error.h"
#include "core/json.h"
#include "core/protobuf.h"
#include "core/rng.h"
#include "nn/model.h"
#include "nn/onnx_file.h"
#include "nn/onnx_fold.h"
#include "nn/onnx_view.h"
#include "support/error_text.h"
#include "support/temp_dir.h"
#include "train/small_learner.h"

namespace etr::test {
namespace {

using train::Learner;

constexpr const char* kSgd = R"({"optimizer": "sgd"})";

Tensor drawn(const Shape& shape) {
  Tensor out(DType::f32, shape);
  Rng rng(5, 0);
  for (float& value : out.mutable_view<float>()) value = rng.uniform(-1, 1);
  return out;
}

pipeline::Item batch_of(const Shape& sample, int symbols_below = 0) {
  pipeline::Item batch;
  const Shape shape = with_batch(3, sample);
  if (symbols_below > 0) {
    Tensor ids(DType::i32, shape);
    for (int64_t i = 0; i < ids.count(); ++i)
      ids.mutable_view<int32_t>()[static_cast<size_t>(i)] = static_cast<int>(i * 5 % symbols_below);
    batch.set("image", ids);
  } else {
    batch.set("image", drawn(shape));
  }
  batch.set("label", symbols(3, 0, [](int64_t r, int64_t) { return static_cast<int>(r); }));
  return batch;
}

void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

nn::OnnxGraph parsed(const std::string& file) { return nn::parse_onnx(bytes_of(file), "'x.onnx'"); }

std::string problem(const std::string& file) {
  return error_text([&] { nn::import_onnx(parsed(file), ""); });
}

// A file with nodes that `build` adds, from a value "x" of this shape.
template <typename Build>
std::string file_of(const Shape& x, Build&& build) {
  nn::OnnxFile file;
  file.input("x", DType::f32, x);
  file.output(build(file), {1, 1});
  return file.data();
}

// Round trips -----------------------------------------------------------------------------------

struct RoundTrip {
  const char* layers;
  Shape sample;
  int symbols_below = 0;  // 0: real numbers
};

class OnnxRoundTrip : public testing::TestWithParam<RoundTrip> {};

TEST_P(OnnxRoundTrip, GivesTheSameOutputs) {
  const auto& [layers, sample, symbols_below] = GetParam();
  const pipeline::Item batch = batch_of(sample, symbols_below);
  Learner learner = make_learner(cat(R"({"layers": [)", layers, "]}"), kSgd);
  const std::vector<float> expected = values_of(learner.predict(batch));
  const TempDir dir;
  write(dir.path("a.onnx"), learner.onnx());
  Learner again = make_learner(Json{{"onnx", dir.path("a.onnx")}}.dump(), kSgd);
  const Tensor output = again.predict(batch);
  const std::vector<float> found = values_of(output);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], 1e-5);
  // And once more: what was imported can be exported.
  write(dir.path("b.onnx"), again.onnx());
  Learner third = make_learner(Json{{"onnx", dir.path("b.onnx")}}.dump(), kSgd);
  const std::vector<float> last = values_of(third.predict(batch));
  ASSERT_EQ(last.size(), expected.size());
  for (size_t i = 0; i < last.size(); ++i) ASSERT_NEAR(last[i], expected[i], 1e-5);
}

INSTANTIATE_TEST_SUITE_P(
    Layers, OnnxRoundTrip,
    testing::Values(
        RoundTrip{R"({"layer": "flatten"}, {"layer": "dense", "units": 5, "activation": "gelu"},
                     {"layer": "dense", "units": 3, "bias": false})",
                  {4, 3, 2}},
        RoundTrip{R"({"layer": "dense", "units": 1})", {6}},
        RoundTrip{R"({"layer": "conv2d", "filters": 4, "stride": 2, "bias": false},
                     {"layer": "batch_norm", "activation": "relu"}, {"layer": "max_pool"},
                     {"layer": "conv2d_transpose", "filters": 3, "stride": 2},
                     {"layer": "avg_pool", "window": 3, "stride": 1, "pad": 1})",
                  {9, 7, 6}},
        RoundTrip{R"({"layer": "conv2d", "filters": 6, "groups": 3, "dilation": 2},
                     {"layer": "group_norm", "groups": 3}, {"layer": "global_avg_pool"})",
                  {9, 7, 6}},
        RoundTrip{R"({"layer": "conv1d", "filters": 5, "kernel": 5, "stride": 2},
                     {"layer": "flatten"}, {"layer": "dense", "units": 2})",
                  {11, 4}},
        RoundTrip{R"({"layer": "conv1d", "filters": 3, "kernel": 80, "stride": 4},
                     {"layer": "conv1d", "filters": 3, "dilation": 128}, {"layer": "flatten"},
                     {"layer": "dense", "units": 2})",
                  {161, 2}},
        RoundTrip{R"({"layer": "embedding", "entries": 9, "width": 8, "name": "e"},
                     {"layer": "position_embedding"}, {"layer": "layer_norm"},
                     {"layer": "attention", "heads": 2, "causal": true}, {"layer": "rms_norm"},
                     {"layer": "dense", "units": 9, "tied_to": "e"})",
                  {5},
                  9},
        RoundTrip{R"({"layer": "dense", "units": 8, "name": "m"},
                     {"layer": "attention", "heads": 2, "bias": false, "input": ["image", "m"]},
                     {"layer": "softmax"})",
                  {5, 8}},
        RoundTrip{R"({"layer": "lstm", "units": 5}, {"layer": "gru", "units": 4, "reverse": true,
                      "output": "last"}, {"layer": "log_softmax"})",
                  {6, 3}},
        RoundTrip{R"({"layer": "embedding", "entries": 7, "width": 5, "name": "e"},
                     {"layer": "gather", "input": ["e", "image"]},
                     {"layer": "reduce", "axes": [1], "function": "max"})",
                  {7},
                  7},
        RoundTrip{R"({"layer": "residual", "layers": [{"layer": "dense", "units": 6}],
                      "shortcut": [{"layer": "dense", "units": 6}], "activation": "silu"},
                     {"layer": "permute", "axes": [0, 2, 1]}, {"layer": "reshape", "shape": [3, -1]},
                     {"layer": "slice", "axis": 1, "begin": 1, "length": 2})",
                  {5, 4}},
        RoundTrip{R"({"layer": "permute", "axes": [0, 2, 1]}, {"layer": "group_norm", "groups": 2},
                     {"layer": "flatten"}, {"layer": "dense", "units": 3})",
                  {4, 3}},
        // Functions of a product, of which a factor is their own.
        RoundTrip{R"({"layer": "dense", "units": 6, "activation": "sigmoid", "name": "gate"},
                     {"layer": "multiply", "input": ["image", "gate"]},
                     {"layer": "activation", "function": "gelu"},
                     {"layer": "parameter", "shape": [1], "value": 2, "name": "two"},
                     {"layer": "multiply", "input": ["activation_3", "two"]},
                     {"layer": "activation", "function": "gelu"},
                     {"layer": "activation", "function": "square"},
                     {"layer": "activation", "function": "gelu_tanh"},
                     {"layer": "activation", "function": "square"},
                     {"layer": "activation", "function": "silu"})",
                  {5, 6}},
        RoundTrip{R"({"layer": "parameter", "shape": [1, 4, 6], "value": 0.5, "name": "p"},
                     {"layer": "concat", "axis": 1, "input": ["p", "image"]},
                     {"layer": "parameter", "shape": [6], "value": 2, "name": "s"},
                     {"layer": "multiply", "input": ["concat_2", "s"]})",
                  {5, 6}},
        RoundTrip{R"({"layer": "box_head", "classes": 3, "scale": 0.3, "next_scale": 0.5})",
                  {5, 4, 6}},
        // Grouped queries, of one product and of several; one head of keys.
        RoundTrip{R"({"layer": "attention", "heads": 4, "kv_heads": 2, "causal": true})", {5, 16}},
        RoundTrip{R"({"layer": "attention", "heads": 3, "kv_heads": 1, "separate": true,
                      "bias": false})",
                  {5, 12}},
        RoundTrip{R"({"layer": "dense", "units": 6, "name": "m"},
                     {"layer": "attention", "heads": 6, "kv_heads": 3, "head_dim": 4,
                      "input": ["image", "m"]})",
                  {5, 8}},
        // Rotary positions.
        RoundTrip{R"({"layer": "attention", "heads": 2, "rotary_base": 10000})", {7, 16}},
        RoundTrip{R"({"layer": "attention", "heads": 4, "kv_heads": 2, "causal": true,
                      "rotary_base": 500000})",
                  {7, 32}},
        RoundTrip{R"({"layer": "attention", "heads": 2, "kv_heads": 1, "head_dim": 12,
                      "separate": true, "rotary_base": 100, "rotary_scaling": [8, 1, 4, 16]})",
                  {7, 20}}));

TEST(OnnxImport, RotaryPositionsKeepTheirOptions) {
  const struct {
    int64_t width;
    Json options;
  } kCases[] = {
      {16, {{"heads", 2}, {"rotary_base", 10000}}},
      {32, {{"heads", 4}, {"kv_heads", 2}, {"causal", true}, {"rotary_base", 500000}}},
      {20,
       {{"heads", 2},
        {"kv_heads", 1},
        {"head_dim", 12},
        {"rotary_base", 100},
        {"rotary_scaling", {8, 1, 4, 16}},
        {"separate", true}}},
  };
  for (const auto& [width, options] : kCases) {
    Json layer = options;
    layer["bias"] = true;
    layer["layer"] = "attention";
    layer["name"] = "a";
    Learner learner = make_learner(Json{{"layers", {layer}}}.dump(), kSgd);
    learner.predict(batch_of({7, width}));
    const nn::ImportedModel model = nn::import_onnx(parsed(learner.onnx()), "");
    ASSERT_EQ(model.layers.size(), 1u) << model.layers.dump();
    EXPECT_EQ(model.layers[0], layer);
  }
}

// Fine-tuning -----------------------------------------------------------------------------------

constexpr const char* kNetwork =
    R"({"layers": [{"layer": "conv2d", "filters": 4, "name": "stem"}, {"layer": "relu"},
                   {"layer": "conv2d", "filters": 4, "name": "body"},
                   {"layer": "flatten"}, {"layer": "dense", "units": 9, "name": "old"}]})";

TEST(OnnxImport, BeginsWithTheFilesWeightsUnderANewHead) {
  const pipeline::Item batch = batch_of({4, 5, 2});
  Learner learner = make_learner(kNetwork, kSgd);
  learner.predict(batch);
  const TempDir dir;
  write(dir.path("a.onnx"), learner.onnx());
  const Json spec{{"onnx", dir.path("a.onnx")},
                  {"until", "body"},
                  {"frozen", "stem.*"},
                  {"layers", {{{"layer", "global_avg_pool"}}, {{"layer", "dense"}, {"units", 3}}}}};
  const nn::Model model(spec);
  const Json& layers = model.json()["layers"];
  ASSERT_EQ(layers.size(), 5u) << layers.dump();
  EXPECT_EQ(layers[4]["name"], "dense_5");
  Learner tuned = make_learner(spec.dump(), kSgd, 0.1);
  EXPECT_EQ(tuned.predict(batch).shape(), (Shape{3, 3}));
  const auto read = [](Learner& of, const char* name) {
    return values_of(of.weights(name)[0].tensor);
  };
  for (const char* name : {"stem.weight", "stem.bias", "body.weight", "body.bias"})
    EXPECT_EQ(read(tuned, name), read(learner, name));
  tuned.step(batch);
  tuned.take_metrics(true);
  EXPECT_EQ(read(tuned, "stem.weight"), read(learner, "stem.weight"));
  EXPECT_NE(read(tuned, "body.weight"), read(learner, "body.weight"));
  // The checkpoint needs the layers, not the file.
  checkpoint::Files files;
  tuned.save(files);
  std::filesystem::remove(dir.path("a.onnx"));
  Learner loaded = make_learner(model.json().dump(), kSgd);
  loaded.load(files);
  EXPECT_EQ(values_of(loaded.predict(batch)), values_of(tuned.predict(batch)));
}

TEST(OnnxImport, MistakesInTheSpecAreTold) {
  Learner learner = make_learner(kNetwork, kSgd);
  learner.predict(batch_of({4, 5, 2}));
  const TempDir dir;
  write(dir.path("a.onnx"), learner.onnx());
  const auto text = [&](Json spec) {
    if (!spec.contains("onnx")) spec["onnx"] = dir.path("a.onnx");
    return error_text([&] { nn::Model model(spec); });
  };
  EXPECT_NE(text({{"until", "boddy"}}).find("did you mean 'body'"), std::string::npos)
      << text({{"until", "boddy"}});
  EXPECT_NE(text({{"untill", "body"}}).find("did you mean 'until'"), std::string::npos);
  EXPECT_NE(text({{"onnx", 3}}).find("'onnx' must be text"), std::string::npos);
  EXPECT_NE(text({{"inputs", {"a", "b"}}}).find("names 2 fields"), std::string::npos);
  EXPECT_NE(text({{"onnx", dir.path("b.onnx")}}).find("b.onnx"), std::string::npos);
  // Samples of another size than the file's.
  Learner other = make_learner(Json{{"onnx", dir.path("a.onnx")}}.dump(), kSgd);
  const std::string shape = error_text([&] { other.predict(batch_of({4, 6, 2})); });
  EXPECT_NE(shape.find("'old.weight'"), std::string::npos) << shape;
}

// In the file [N, C, H, W] is flattened by channel, here by place.
TEST(OnnxImport, ImagesGetTheirChannelsLast) {
  const std::string file = file_of({1, 2, 3, 1}, [](nn::OnnxFile& onnx) {
    const std::string flat = onnx.emit("Flatten", {"x"}, ops::OnnxAttributes().integer("axis", 1));
    return onnx.emit("MatMul", {flat, onnx.constant({6, 1}, {0, 1, 2, 10, 11, 12})});
  });
  nn::OnnxGraph graph = parsed(file);
  graph.producer = "another program";
  const nn::ImportedModel model = nn::import_onnx(graph, "", {"picture"});
  EXPECT_EQ(model.inputs, std::vector<std::string>{"picture"});
  ASSERT_EQ(model.weights.size(), 1u);
  EXPECT_EQ(values_of(model.weights.begin()->second), (std::vector<float>{0, 10, 1, 11, 2, 12}));
}

// A split gives later atoms new numbers, also in axes that are already made.
TEST(OnnxView, SplitsAnAxisBehindOneThatItWasTransposedWith) {
  const nn::OnnxView x = nn::OnnxView::of(0, {{{3, false}}, {{4}}, {{2}}}, {0, 1, 2});
  const auto y = x.transposed({0, 2, 1}).reshaped({3, 2, 2, 2});
  ASSERT_TRUE(y);
  EXPECT_EQ(y->axes, (std::vector<nn::OnnxView::Axis>{{0}, {3}, {1}, {2}}));
  const auto joined = x.transposed({0, 2, 1}).reshaped({3, 4, 2});
  ASSERT_TRUE(joined);
  EXPECT_EQ(joined->axes, (std::vector<nn::OnnxView::Axis>{{0}, {3, 1}, {2}}));
}

// Over several axes that do not lie side by side in the layer.
TEST(OnnxImport, NormalisesOverAxesThatWereMoved) {
  const TempDir dir;
  write(dir.path("a.onnx"), file_of({1, 2, 3, 4}, [](nn::OnnxFile& onnx) {
          return onnx.emit(
              "LayerNormalization",
              {onnx.transpose("x", {0, 2, 1, 3}), onnx.constant({2, 4}, std::vector<float>(8, 1))},
              ops::OnnxAttributes().integer("axis", -2));
        }));
  const Json spec{{"onnx", dir.path("a.onnx")}, {"inputs", {"image"}}, {"loss", {{"loss", "mse"}}}};
  const Tensor output = make_learner(spec.dump(), kSgd).predict(batch_of({2, 3, 4}));
  ASSERT_EQ(output.shape(), (Shape{3, 3, 2, 4}));
  const std::vector<float> values = values_of(output);
  for (size_t i = 0; i < values.size(); i += 8) {
    float sum = 0, squares = 0;
    for (size_t k = i; k < i + 8; ++k) {
      sum += values[k];
      squares += values[k] * values[k];
    }
    EXPECT_NEAR(sum, 0, 1e-4);
    EXPECT_NEAR(squares, 8, 1e-2);
  }
}

// Files of strangers ----------------------------------------------------------------------------

std::string small_file() {
  return file_of({1, 4}, [](nn::OnnxFile& onnx) {
    const std::string y =
        onnx.emit("MatMul", {"x", onnx.constant({4, 2}, std::vector<float>(8, 1))});
    return onnx.emit("Softmax", {onnx.reshape(y, {0, 2})},
                     ops::OnnxAttributes().integer("axis", -1));
  });
}

TEST(OnnxImport, AFileThatEndsEarlyIsAnError) {
  const std::string file = small_file();
  EXPECT_EQ(nn::import_onnx(parsed(file), "").layers.size(), 2u);
  // The last field, the opset, is not needed; without it, all else is there.
  for (size_t size = 0; size + 8 < file.size(); ++size)
    EXPECT_NE(problem(file.substr(0, size)), "") << size;
}

TEST(OnnxImport, NoByteDoesHarm) {
  const std::string file = small_file();
  for (size_t i = 0; i < file.size(); ++i)
    for (const int change : {1, 0x80, 0x7F, 0xFF}) {
      std::string changed = file;
      changed[i] = static_cast<char>(changed[i] ^ change);
      try {
        nn::import_onnx(parsed(changed), "");
      } catch (const Error&) {
      }
    }
}

TEST(OnnxImport, ErrorsNameTheNodeAndItsOperator) {
  EXPECT_NE(problem(file_of({1, 4}, [](auto& onnx) { return onnx.emit("Frobnicate", {"x"}); }))
                .find("node 'Frobnicate_1' (Frobnicate): this operator is not supported"),
            std::string::npos);
  EXPECT_NE(problem(file_of({1, 4},
                            [](auto& onnx) {
                              onnx.emit("Relu", {"Relu_2"});
                              return onnx.emit("Relu", {"Relu_1"});
                            }))
                .find("'Relu_2', which is computed after it"),
            std::string::npos);
  EXPECT_NE(problem(file_of({1, 4}, [](auto& onnx) { return onnx.emit("Relu", {"y"}); }))
                .find("'y', which nothing writes"),
            std::string::npos);
  const std::string sizes = problem(file_of({1, 4}, [](auto& onnx) {
    return onnx.emit("Add", {"x", onnx.constant({3}, {1, 2})});
  }));
  EXPECT_NE(sizes.find("has 3 elements of 4 bytes"), std::string::npos) << sizes;
  const std::string features = problem(file_of({1, 4}, [](auto& onnx) {
    return onnx.emit("MatMul", {"x", onnx.constant({3, 1}, {1, 2, 3})});
  }));
  EXPECT_NE(features.find("its weight is for 3 features, and its input has 4"), std::string::npos);
  const std::string step = problem(file_of({1, 8}, [](auto& onnx) {
    return onnx.emit("Slice", {"x", onnx.integers({0}), onnx.integers({8}), onnx.integers({1}),
                               onnx.integers({2})});
  }));
  EXPECT_NE(step.find("(Slice): its step is 2; only 1 is supported"), std::string::npos) << step;
  const std::string states = problem(file_of({1, 5, 3}, [](auto& onnx) {
    const auto zeros = [](size_t count) { return std::vector<float>(count); };
    return onnx.emit(
        "LSTM",
        {onnx.transpose("x", {1, 0, 2}), onnx.constant({1, 8, 3}, zeros(24)),
         onnx.constant({1, 8, 2}, zeros(16)), "", "", onnx.constant({1, 1, 2}, {0, 1})},
        ops::OnnxAttributes().integer("hidden_size", 2));
  }));
  EXPECT_NE(states.find("lengths, and initial states other than 0, are not supported"),
            std::string::npos)
      << states;
  const std::string window = problem(file_of({1, 2, 200, 200}, [](auto& onnx) {
    return onnx.emit("MaxPool", {"x"}, ops::OnnxAttributes().integers("kernel_shape", {100, 100}));
  }));
  EXPECT_NE(window.find("node 'MaxPool_1' (MaxPool): layer 'max_pool': option 'window'"),
            std::string::npos)
      << window;
  const std::string large = problem(file_of({1, 4}, [](auto& onnx) {
    const auto shape = onnx.integers({int64_t{1} << 40});
    return onnx.emit("Add", {"x", onnx.emit("ConstantOfShape", {shape})});
  }));
  EXPECT_NE(large.find("too much memory"), std::string::npos) << large;
}

// A model with a tensor whose values lie in another file.
std::string with_external(const std::string& location, uint64_t offset = 0, int unused = 0) {
  Message entry, from, tensor;
  entry.bytes(1, "location").bytes(2, location);
  from.bytes(1, "offset").bytes(2, std::to_string(offset));
  tensor.integer(1, 4).integer(1, 1).integer(2, ops::kOnnxFloat).bytes(8, "w");
  tensor.message(13, entry).message(13, from).integer(14, 1);
  const std::string plain = file_of({1, 4}, [](auto& onnx) {
    return onnx.emit("MatMul", {"x", "w"});
  });
  Message graph;  // fields of a message that comes twice are joined by what reads it
  graph.message(5, tensor);
  for (int i = 0; i < unused; ++i)  // that lie in the same bytes
    graph.message(5, Message(tensor).bytes(8, cat("w", i)));
  return plain + Message().message(7, graph).data();
}

TEST(OnnxImport, ValuesInOtherFilesStayInTheFolder) {
  const TempDir dir;
  std::filesystem::create_directory(dir.path("model"));
  const std::vector<float> values{9, 1, 2, 3, 4};
  const std::string raw(reinterpret_cast<const char*>(values.data()), 20);
  write(dir.path("outside"), raw);
  write(dir.path("model/weights"), raw);
  std::filesystem::create_symlink(dir.path("outside"), dir.path("model/link"));
  const std::string path = dir.path("model/m.onnx");
  const auto tried = [&](const std::string& location, uint64_t offset = 4) {
    write(path, with_external(location, offset));
    return error_text([&] {
      const nn::ImportedModel model = nn::import_onnx(nn::read_onnx(path), "");
      EXPECT_EQ(values_of(model.weights.begin()->second), (std::vector<float>{1, 2, 3, 4}));
    });
  };
  EXPECT_EQ(tried("weights"), "");
  for (const std::string& location :
       {std::string("../outside"), dir.path("outside"), std::string("link"),
        std::string("x/../../outside"), std::string()})
    EXPECT_NE(tried(location).find("outside the model's folder"), std::string::npos)
        << location << ": " << tried(location);
  EXPECT_NE(tried("weights", 21).find("lies behind the 20 bytes"), std::string::npos);
  EXPECT_NE(tried("weights", 8).find("has 4 elements"), std::string::npos);
  EXPECT_NE(tried("missing"), "");
  // Two tensors may lie in the same bytes; a file's bytes are not multiplied.
  write(path, with_external("weights", 4, 1));
  EXPECT_NO_THROW(nn::read_onnx(path));
  write(path, with_external("weights", 4, 2));
  const std::string again = error_text([&] { nn::read_onnx(path); });
  EXPECT_NE(again.find("again and again"), std::string::npos) << again;
}

nn::OnnxConstant integers_of(std::vector<int64_t> dims, std::vector<int64_t> values) {
  auto out = std::make_shared<nn::OnnxTensor>();
  out->dims = std::move(dims);
  out->integers = std::move(values);
  return out;
}

// Returns the value that a node is folded to, or throws its error.
std::vector<int64_t> folded(const char* op, const std::vector<nn::OnnxConstant>& inputs,
                            std::map<std::string, nn::OnnxAttribute> attributes = {}) {
  const nn::OnnxNode node{.name = "n", .op = op, .attributes = std::move(attributes)};
  nn::FoldBudget budget(1000);
  return (*nn::fold(node, inputs, 1, budget))[0]->integers;
}

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

TEST(OnnxImport, ArithmeticOfConstantsDoesNotOverflow) {
  const auto one = [](int64_t value) { return integers_of({1}, {value}); };
  EXPECT_EQ(folded("Mod", {one(kMost - 1), one(kMost)}), std::vector<int64_t>{kMost - 1});
  EXPECT_EQ(folded("Mod", {one(-1), one(kMost)}), std::vector<int64_t>{kMost - 1});
  EXPECT_EQ(folded("Mod", {one(5), one(-3)}), std::vector<int64_t>{-1});
  auto half = std::make_shared<nn::OnnxTensor>();
  half->is_real = true;
  half->dims = {3};
  half->reals = {0.5f, 0, -2};
  EXPECT_EQ(folded("Cast", {half}, {{"to", {.integer = 9}}}), (std::vector<int64_t>{1, 0, 1}));
  // Extents beside one of 0.
  const nn::OnnxConstant none = integers_of({0}, {});
  const auto empty = integers_of({int64_t{1} << 24, int64_t{1} << 24, 0}, {});
  EXPECT_EQ(folded("Flatten", {empty}), std::vector<int64_t>{});
  EXPECT_EQ(folded("Slice", {integers_of({0, int64_t{1} << 40}, {}), one(kMost), one(-kMost),
                             one(1), one(-(int64_t{1} << 40))}),
            std::vector<int64_t>{});
  const std::string large = error_text([&] {
    folded("Reshape", {none, integers_of({3}, {0, int64_t{1} << 40, int64_t{1} << 40})},
           {{"allowzero", {.integer = 1}}});
  });
  EXPECT_NE(large.find("negative or too large"), std::string::npos) << large;
  const auto ones = [](int64_t rows, int64_t columns) {
    auto out = std::make_shared<nn::OnnxTensor>();
    out->is_real = true;
    out->dims = {rows, columns};
    out->reals.resize(static_cast<size_t>(rows * columns), 1);
    return out;
  };
  const std::string misfit = error_text([&] { folded("MatMul", {ones(2, 3), ones(2, 3)}); });
  EXPECT_NE(misfit.find("do not fit each other"), std::string::npos) << misfit;
  const std::string long_time = error_text([&] { folded("MatMul", {ones(10, 10), ones(10, 10)}); });
  EXPECT_NE(long_time.find("too much memory"), std::string::npos) << long_time;
  const std::vector<int64_t> nine{0, 1, 2, 3, 4, 5, 6, 7};
  const std::string rank = error_text([&] {
    folded("Unsqueeze", {one(1), integers_of({8}, nine)});
  });
  EXPECT_NE(rank.find("9 axes; at most 8"), std::string::npos) << rank;
}

using Build = std::string (*)(nn::OnnxFile&);

TEST(OnnxImport, HostileGraphsAreErrors) {
  const struct {
    const char* says;
    Build build;
  } kCases[] = {
      {"input 0 is missing",
       [](nn::OnnxFile& f) {
         const auto axes = ops::OnnxAttributes().integers("axes", {-1});
         const auto x = f.emit("Sub", {"x", f.emit("ReduceMean", {}, axes)});
         const auto mean = f.emit("ReduceMean", {f.emit("Mul", {x, x})}, axes);
         return f.emit("Div", {x, f.emit("Sqrt", {f.emit("Add", {mean, f.number(1e-5)})})});
       }},
      {"it has no inputs",
       [](nn::OnnxFile& f) {
         return f.emit("Concat", {}, ops::OnnxAttributes().integer("axis", 0));
       }},
      {"a size that cannot be",
       [](nn::OnnxFile& f) {
         return f.emit("LSTM",
                       {"x", f.constant({1, 0, 4}, {}), f.constant({1, 0, int64_t{1} << 62}, {})});
       }},
      {"wrong shape",
       [](nn::OnnxFile& f) {
         const auto x = f.transpose(f.reshape("x", {0, 2, 2}), {1, 0, 2});
         return f.emit("LSTM",
                       {x, f.constant({1, 0, 2}, {}), f.constant({1, 0, int64_t{1} << 46}, {})});
       }},
      {"it pads by other than 0",
       [](nn::OnnxFile& f) {
         return f.emit("Pad", {"x", f.integers({0, 0, 0, 1})});
       }},
      {"outside an axis",
       [](nn::OnnxFile& f) {
         return f.emit("Gather", {"x", f.integers({kMost})},
                       ops::OnnxAttributes().integer("axis", 1));
       }},
      {"outside an axis",
       [](nn::OnnxFile& f) {
         return f.emit("Gather", {"x", f.integers({kMost, -kMost - 1})},
                       ops::OnnxAttributes().integer("axis", 1));
       }},
      {"10 axes; at most 8",
       [](nn::OnnxFile& f) {
         return f.emit("Unsqueeze", {"x", f.integers({1, 2, 3, 4, 5, 6, 7, 8})});
       }},
      {"a name of 5000 bytes",
       [](nn::OnnxFile& f) { return f.emit("Relu", {std::string(5000, 'x')}); }},
      {"its alpha is -0.5",
       [](nn::OnnxFile& f) {
         return f.emit("LeakyRelu", {"x"}, ops::OnnxAttributes().real("alpha", -0.5));
       }},
      {"not of real numbers",
       [](nn::OnnxFile& f) {
         return f.emit("LayerNormalization", {"x", f.integers({0, 0, 0, 0})});
       }},
      {"it converts computed values to integers or booleans",
       [](nn::OnnxFile& f) {
         const auto to = ops::OnnxAttributes().integer("to", ops::kOnnxInt64);
         return f.emit("Cast", {f.emit("Relu", {"x"})}, to);
       }},
      {"it converts computed values to integers or booleans",
       [](nn::OnnxFile& f) {
         const auto to = ops::OnnxAttributes().integer("to", ops::kOnnxInt64);
         return f.emit("Relu", {f.emit("Cast", {"x"}, to)});
       }},
  };
  for (const auto& [says, build] : kCases) {
    const std::string text = error_text([&, build = build] {
      nn::import_onnx(parsed(file_of({1, 4}, build)), "");
    });
    EXPECT_NE(text.find(says), std::string::npos) << says << ": " << text;
  }
}

TEST(OnnxImport, ABudgetBoundsEveryLayersWeights) {
  const std::string copies = problem(file_of({1, 4}, [](auto& onnx) {
    const auto w = onnx.constant({4, 60000}, std::vector<float>(240000, 1));
    std::string y = onnx.emit("MatMul", {"x", w});
    for (int i = 0; i < 90; ++i) y = onnx.emit("Add", {y, onnx.emit("MatMul", {"x", w})});
    return y;
  }));
  EXPECT_NE(copies.find("too much memory"), std::string::npos) << copies;
  // Constants that are broadcast.
  const std::string spread = problem(file_of({1, 4000000}, [](auto& onnx) {
    std::string y = onnx.reshape("x", {0, 2000, 2000});
    const auto c = onnx.constant({2000, 1}, std::vector<float>(2000, 1));
    for (int i = 0; i < 6; ++i) y = onnx.emit("Mul", {y, c});
    return y;
  }));
  EXPECT_NE(spread.find("too much memory"), std::string::npos) << spread;
  const std::string layers = problem(file_of({1, 4}, [](auto& onnx) {
    std::string y = "x";
    for (size_t i = 0; i <= 4 * nn::kMaxLayers; ++i) y = onnx.emit("Relu", {y});
    return y;
  }));
  EXPECT_NE(layers.find("more than 20000 layers"), std::string::npos) << layers;
}

TEST(OnnxImport, ANameStandsForOneValue) {
  const std::string file = file_of({1, 4}, [](auto& onnx) {
    return onnx.emit("Add", {onnx.emit("Identity", {"x"}), onnx.constant({4}, {1, 2, 3, 4})});
  });
  for (const std::string& name : {std::string("x"), parsed(file).initializers.begin()->first}) {
    nn::OnnxGraph graph = parsed(file);
    graph.nodes[0].inputs = graph.nodes[0].outputs = graph.nodes[1].inputs = {name, name};
    graph.nodes[0].inputs.resize(1);
    graph.nodes[0].outputs.resize(1);
    const std::string text = error_text([&] { nn::import_onnx(graph, ""); });
    EXPECT_NE(text.find("the name of another value"), std::string::npos) << text;
  }
}

TEST(OnnxImport, ManyNodesOfOneNameAreNumbered) {
  nn::OnnxGraph graph = parsed(file_of({1, 4}, [](auto& onnx) {
    std::string y = "x";
    for (int i = 0; i < 15000; ++i) y = onnx.emit("Relu", {y});
    return y;
  }));
  for (nn::OnnxNode& node : graph.nodes) node.name = "/block/Relu";
  const nn::ImportedModel model = nn::import_onnx(graph, "");
  EXPECT_EQ(model.layers.back()["name"], "block.relu_15000") << model.layers.back();
}

TEST(OnnxImport, InputsOfImpossibleSizeAreRefused) {
  nn::OnnxGraph graph = parsed(file_of({1, 4, 4}, [](auto& onnx) {
    return onnx.emit("Flatten", {"x"}, ops::OnnxAttributes().integer("axis", 3));
  }));
  graph.inputs[0].dims = {-1, int64_t{1} << 31, 120000};
  const std::string text = error_text([&] { nn::import_onnx(graph, ""); });
  EXPECT_NE(text.find("is too large"), std::string::npos) << text;
}

// Free lengths ----------------------------------------------------------------------------------

// The graph with axis 1 of its input left free.
template <typename F>
nn::OnnxGraph with_free_length(const Shape& x, F&& build) {
  nn::OnnxGraph graph = parsed(file_of(x, build));
  graph.producer = "another program";
  graph.inputs[0].dims.at(x.size() == 4 ? 2 : 1) = -1;
  return graph;
}

// A value over the size of axis `axis`, or over its root.
std::string over_size(nn::OnnxFile& onnx, int64_t axis, bool root) {
  const auto y = onnx.emit("ReduceSum", {"x", onnx.integers({1})});
  const auto size = onnx.emit("Gather", {onnx.emit("Shape", {"x"}), onnx.integers({axis})});
  const auto to = ops::OnnxAttributes().integer("to", ops::kOnnxFloat);
  const auto by = onnx.emit("Cast", {size}, to);
  return onnx.emit("Div", {y, root ? onnx.emit("Sqrt", {by}) : by});
}

TEST(OnnxImport, NoModelDependsOnTheStandInsForFreeLengths) {
  const Shape shape{1, 6, 4};
  for (const auto& [axis, says] :
       {std::pair<int64_t, const char*>{0, "export the model with fixed lengths"},
        {1, "export the model with fixed lengths"},
        {2, ""}}) {
    const auto build = [&, axis = axis](auto& onnx) { return over_size(onnx, axis, true); };
    const std::string text =
        error_text([&] { nn::import_onnx(with_free_length(shape, build), ""); });
    EXPECT_EQ(text.empty(), axis == 2) << text;
    EXPECT_NE(text.find(says), std::string::npos) << text;
    // With that length in the file.
    const std::string fixed =
        error_text([&] { nn::import_onnx(parsed(file_of(shape, build)), ""); });
    EXPECT_EQ(fixed.find("a fixed batch") != std::string::npos, axis == 0) << fixed;
  }
}

TEST(OnnxImport, PaddingOfFreeLengthsIsRefused) {
  const auto conv = [](const char* op, int64_t stride) {
    return with_free_length({1, 2, 6, 6}, [=](auto& onnx) {
      const auto window = ops::OnnxAttributes()
                              .text("auto_pad", "SAME_UPPER")
                              .integers("kernel_shape", {3, 3})
                              .integers("strides", {stride, stride});
      return onnx.emit(op, {"x", onnx.constant({2, 2, 3, 3}, std::vector<float>(36, 1))}, window);
    });
  };
  EXPECT_EQ(nn::import_onnx(conv("Conv", 1), "").layers[0]["pad"], 1);
  for (const auto& [op, stride] : {std::pair("Conv", 2), {"ConvTranspose", 1}}) {
    const std::string text =
        error_text([&, op = op, stride = stride] { nn::import_onnx(conv(op, stride), ""); });
    EXPECT_NE(text.find("auto_pad"), std::string::npos) << text;
  }
}

TEST(OnnxImport, TheEndOfAFreeAxisIsCountedFromThere) {
  const auto last = [](int64_t begin, int64_t end) {
    return with_free_length({1, 6, 4}, [=](auto& onnx) {
      return onnx.emit("Slice",
                       {"x", onnx.integers({begin}), onnx.integers({end}), onnx.integers({1})});
    });
  };
  EXPECT_EQ(nn::import_onnx(last(-3, kMost), "").layers[0]["begin"], -3);
  EXPECT_EQ(nn::import_onnx(last(2, kMost), "").layers[0]["begin"], 2);
  EXPECT_NE(error_text([&] { nn::import_onnx(last(0, -1), ""); }).find("free"), std::string::npos);
  // The same row by its number.
  EXPECT_NE(error_text([&] { nn::import_onnx(last(30010, 30011), ""); }), "");
  const auto state = with_free_length({1, 6, 2}, [](auto& onnx) {
    const auto w = onnx.constant({1, 4, 2}, std::vector<float>(8, 1));
    const auto r = onnx.constant({1, 4, 1}, std::vector<float>(4, 1));
    return onnx.emit("LSTM", {onnx.transpose("x", {1, 0, 2}), w, r},
                     ops::OnnxAttributes().integer("hidden_size", 1), 2) +
           ".1";
  });
  EXPECT_EQ(nn::import_onnx(state, "").layers[1]["begin"], -1);
}

TEST(OnnxImport, ConstantsThatDoNotFitFreeLengthsAreNotTheFilesFault) {
  const auto text = [](auto&& build) {
    return error_text([&] { nn::import_onnx(with_free_length({1, 6, 4}, build), ""); });
  };
  for (const std::string& told :
       {text([](auto& onnx) {
          return onnx.emit("Add", {"x", onnx.constant({1, 6, 4}, std::vector<float>(24, 1))});
        }),
        text([](auto& onnx) {
          return onnx.emit("Gather", {"x", onnx.integers({50000})},
                           ops::OnnxAttributes().integer("axis", 1));
        }),
        text([](auto& onnx) {
          const auto length =
              onnx.emit("Gather", {onnx.emit("Shape", {"x"}), onnx.integers({1, 1})});
          return onnx.emit("Add", {"x", onnx.emit("ConstantOfShape", {length})});
        })})
    EXPECT_NE(told.find("only the batch may be free"), std::string::npos) << told;
}

// Attention -------------------------------------------------------------------------------------

using Step = std::function<std::string(nn::OnnxFile&, const std::string&)>;

std::string unchanged(nn::OnnxFile&, const std::string& x) { return x; }

// Attention of 4 heads, as PyTorch's models have it: [N, heads, 5, 4], on which the steps follow.
std::string attention_file(int64_t kv_heads, const Step& queries, const Step& keys,
                           const Step& values, const Step& shares = unchanged) {
  return file_of({1, 5, 8}, [&](nn::OnnxFile& f) {
    const auto heads = [&](const char* name, int64_t count) {
      f.parameter(name, drawn({8, count * 4}));
      const auto x = f.reshape(f.emit("MatMul", {"x", name}), {0, 0, count, 4});
      return f.transpose(x, {0, 2, 1, 3});
    };
    const auto q = queries(f, heads("a.query.weight", 4)),
               k = keys(f, heads("a.key.weight", kv_heads)),
               v = values(f, heads("a.value.weight", kv_heads));
    const auto p = f.emit("Softmax", {f.emit("MatMul", {f.emit("Mul", {q, f.number(0.5)}), k})},
                          ops::OnnxAttributes().integer("axis", -1));
    const auto mixed =
        f.transpose(f.reshape(f.emit("MatMul", {shares(f, p), v}), {0, 4, 5, 4}), {0, 2, 1, 3});
    f.parameter("a.output.weight", drawn({16, 8}));
    return f.emit("MatMul", {f.reshape(mixed, {0, 0, 16}), "a.output.weight"});
  });
}

Step turned(const std::vector<int64_t>& axes, const Step& before) {
  return [=](nn::OnnxFile& f, const std::string& x) { return f.transpose(before(f, x), axes); };
}

// `axis`: 2 for heads that are repeated side by side.
Step repeated(int64_t axis) {
  return [=](nn::OnnxFile& f, const std::string& x) {
    std::vector<int64_t> shape(5, 1);
    shape[static_cast<size_t>(axis)] = 2;
    const auto apart = f.emit("Unsqueeze", {x, f.integers({axis})});
    return f.reshape(f.emit("Expand", {apart, f.integers(shape)}), {0, 4, 5, 4});
  };
}

TEST(OnnxImport, HeadsOfKeysAreShared) {
  const auto groups = [](const std::vector<int64_t>& shape) {
    return [=](nn::OnnxFile& f, const std::string& x) { return f.reshape(x, shape); };
  };
  const struct {
    int64_t kv_heads;
    std::string file;
  } kCases[] = {
      {2, attention_file(2, unchanged, turned({0, 1, 3, 2}, repeated(2)), repeated(2))},
      {2,
       attention_file(2, groups({0, 2, 2, 5, 4}), turned({0, 1, 2, 4, 3}, groups({0, 2, 1, 5, 4})),
                      groups({0, 2, 1, 5, 4}))},
      {1, attention_file(1, unchanged, turned({0, 1, 3, 2}, unchanged), unchanged)},
  };
  for (const auto& [kv_heads, file] : kCases) {
    const nn::ImportedModel model = nn::import_onnx(parsed(file), "");
    ASSERT_EQ(model.layers.size(), 1u) << model.layers.dump();
    EXPECT_EQ(model.layers[0], (Json{{"heads", 4},
                                     {"kv_heads", kv_heads},
                                     {"head_dim", 4},
                                     {"separate", true},
                                     {"bias", false},
                                     {"layer", "attention"},
                                     {"name", "a"}}));
    EXPECT_EQ(values_of(model.weights.at("a.key.weight")), values_of(drawn({8, kv_heads * 4})));
  }
}

// x cos + (-b, a) sin, as PyTorch's models have it: the table is a product of positions and
// frequencies, each of these twice.
Step rotated(const std::vector<float>& frequencies, const std::vector<float>& positions) {
  return [=](nn::OnnxFile& f, const std::string& x) {
    const auto along = [](int64_t axis) { return ops::OnnxAttributes().integer("axis", axis); };
    const auto count = static_cast<int64_t>(positions.size()),
               half = static_cast<int64_t>(frequencies.size());
    const auto once = f.emit(
        "MatMul", {f.constant({1, count, 1}, positions), f.constant({1, 1, half}, frequencies)});
    const auto angles =
        f.emit("Unsqueeze", {f.emit("Concat", {once, once}, along(-1)), f.integers({1})});
    const auto part = [&](int64_t begin, int64_t end) {
      return f.emit("Slice",
                    {x, f.integers({begin}), f.integers({end}), f.integers({3}), f.integers({1})});
    };
    const auto turned =
        f.emit("Concat", {f.emit("Neg", {part(half, kMost)}), part(0, half)}, along(-1));
    return f.emit("Add", {f.emit("Mul", {x, f.emit("Cos", {angles})}),
                          f.emit("Mul", {turned, f.emit("Sin", {angles})})});
  };
}

const std::vector<float> kPositions{0, 1, 2, 3, 4};

TEST(OnnxImport, RotaryPositionsAreFoundAsPyTorchHasThem) {
  const Step rotary = rotated({1, 0.01f}, kPositions);
  const std::string file = attention_file(
      2, rotary,
      turned({0, 1, 3, 2}, [&](auto& f, auto& x) { return repeated(2)(f, rotary(f, x)); }),
      repeated(2));
  const nn::ImportedModel model = nn::import_onnx(parsed(file), "");
  ASSERT_EQ(model.layers.size(), 1u) << model.layers.dump();
  EXPECT_EQ(model.layers[0], (Json{{"heads", 4},
                                   {"kv_heads", 2},
                                   {"head_dim", 4},
                                   {"rotary_base", 10000},
                                   {"separate", true},
                                   {"bias", false},
                                   {"layer", "attention"},
                                   {"name", "a"}}));
}

TEST(OnnxImport, OtherRotaryPositionsAreRefused) {
  const auto told = [](const Step& queries, const Step& keys, const Step& values) {
    return problem(attention_file(4, queries, turned({0, 1, 3, 2}, keys), values));
  };
  const auto both = [&](const Step& step) { return told(step, step, unchanged); };
  const Step usual = rotated({1, 0.01f}, kPositions);
  constexpr const char* kTable = "not those of the layer 'attention'";
  constexpr const char* kAlike = "rotate queries and keys alike";
  const struct {
    const char* says;
    std::string text;
  } kCases[] = {
      {kTable, both(rotated({1, 0.01f}, {0, 1, 2, 3, 5}))},
      {kTable, both(rotated({1, 0.01f}, {1, 2, 3, 4, 5}))},
      {kTable, both(rotated({0.01f, 1}, kPositions))},
      {kTable, both(rotated({1, -0.01f}, kPositions))},
      {kTable, both(rotated({1, std::nanf("")}, kPositions))},
      {"from which their base cannot be derived", both(rotated({1, 0.01f}, {0}))},
      {kAlike, told(usual, unchanged, unchanged)},
      {kAlike, told(usual, rotated({1, 0.1f}, kPositions), unchanged)},
      {kAlike, told(usual, usual, usual)},
      {"parts of attention",
       problem(file_of({1, 3, 5, 4}, [&](auto& f) { return usual(f, "x"); }))},
  };
  for (const auto& [says, text] : kCases) EXPECT_NE(text.find(says), std::string::npos) << text;
}

// PyTorch's newer exporter writes it, in case a position attends to nothing.
TEST(OnnxImport, SharesThatAreNoNumbersMayBecomeZero) {
  const auto file = [](float instead) {
    const Step shares = [=](nn::OnnxFile& f, const std::string& p) {
      return f.emit("Where", {f.emit("IsNaN", {p}), f.number(instead), p});
    };
    return attention_file(4, unchanged, turned({0, 1, 3, 2}, unchanged), unchanged, shares);
  };
  EXPECT_EQ(nn::import_onnx(parsed(file(0)), "").layers.size(), 1u);
  EXPECT_NE(problem(file(1)).find("(IsNaN): it changes scores"), std::string::npos);
}

TEST(OnnxImport, OnlyHeadsAreRepeated) {
  const Step relu = [](nn::OnnxFile& f, const std::string& x) { return f.emit("Relu", {x}); };
  const std::string in_turn =
      problem(attention_file(2, unchanged, turned({0, 1, 3, 2}, repeated(1)), repeated(1)));
  EXPECT_NE(in_turn.find("must lie side by side"), std::string::npos) << in_turn;
  const std::string elsewhere = problem(file_of({1, 5, 1}, [&](auto& f) {
    return relu(f, f.emit("Expand", {"x", f.integers({1, 1, 3})}));
  }));
  EXPECT_NE(elsewhere.find("(Relu): it reads values that are repeated"), std::string::npos)
      << elsewhere;
  const std::string misfit = problem(file_of({1, 5, 2}, [&](auto& f) {
    return f.emit("Expand", {"x", f.integers({1, 1, 3})});
  }));
  EXPECT_NE(misfit.find("(Expand): its shape does not fit"), std::string::npos) << misfit;
}

// Tables and casts ------------------------------------------------------------------------------

TEST(OnnxImport, OnlyEqualTablesAreTied) {
  // How many of the layers are tied.
  const auto tied = [](auto&& build) {
    const nn::ImportedModel model = nn::import_onnx(parsed(file_of({1, 3}, build)), "");
    return std::count_if(model.layers.begin(), model.layers.end(),
                         [](const Json& layer) { return layer.contains("tied_to"); });
  };
  const auto table = [](auto& onnx, std::vector<int64_t> dims) {
    std::vector<float> values(16);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    return onnx.constant(dims, values);
  };
  const auto to = ops::OnnxAttributes().integer("to", ops::kOnnxInt64);
  EXPECT_EQ(
      tied([&](auto& onnx) {
        const auto e = table(onnx, {8, 2}), ids = onnx.emit("Cast", {"x"}, to);
        return onnx.emit("MatMul", {onnx.emit("Gather", {e, ids}), onnx.transpose(e, {1, 0})});
      }),
      1);
  EXPECT_EQ(tied([&](auto& onnx) {
              const auto e = table(onnx, {4, 4}), turned = onnx.transpose(e, {1, 0});
              return onnx.emit("MatMul", {onnx.emit("Gather", {turned, "x"}), turned});
            }),
            0);
  EXPECT_EQ(tied([&](auto& onnx) {
              const auto e = table(onnx, {8, 2});
              const auto rows = onnx.emit("Gather", {onnx.reshape(e, {4, 4}), "x"});
              return onnx.emit("MatMul", {rows, onnx.reshape(onnx.transpose(e, {1, 0}), {4, 4})});
            }),
            0);
}

TEST(OnnxImport, SoftmaxHadAnotherAxisBeforeOpset13) {
  nn::OnnxGraph graph = parsed(file_of({1, 5, 4}, [](auto& onnx) {
    const auto w = onnx.constant({4, 4}, std::vector<float>(16, 1));
    const auto q = onnx.emit("MatMul", {"x", w}), k = onnx.emit("MatMul", {"x", w});
    const auto scores = onnx.emit("MatMul", {q, onnx.transpose(k, {0, 2, 1})});
    return onnx.emit("MatMul", {onnx.emit("Softmax", {scores}), onnx.emit("MatMul", {"x", w})});
  }));
  graph.opset = 12;
  const std::string text = error_text([&] { nn::import_onnx(graph, ""); });
  EXPECT_NE(text.find("over the keys"), std::string::npos) << text;
}

}  // namespace
}  // namespace etr::test
