// Models from ONNX files. Other frameworks' files: tests/golden/onnx_import_check.py.
#include "nn/onnx_import.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "core/json.h"
#include "core/protobuf.h"
#include "core/rng.h"
#include "nn/model.h"
#include "nn/onnx_file.h"
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
        RoundTrip{R"({"layer": "parameter", "shape": [1, 4, 6], "value": 0.5, "name": "p"},
                     {"layer": "concat", "axis": 1, "input": ["p", "image"]},
                     {"layer": "parameter", "shape": [6], "value": 2, "name": "s"},
                     {"layer": "multiply", "input": ["concat_2", "s"]})",
                  {5, 6}},
        RoundTrip{R"({"layer": "box_head", "classes": 3, "scale": 0.3, "next_scale": 0.5})",
                  {5, 4, 6}}));

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
    const std::string flat = onnx.emit("Flatten", {"x"}, nn::OnnxAttributes().integer("axis", 1));
    return onnx.emit("MatMul", {flat, onnx.constant({6, 1}, {0, 1, 2, 10, 11, 12})});
  });
  nn::OnnxGraph graph = parsed(file);
  graph.producer = "another program";
  const nn::ImportedModel model = nn::import_onnx(graph, "", {"picture"});
  EXPECT_EQ(model.inputs, std::vector<std::string>{"picture"});
  ASSERT_EQ(model.weights.size(), 1u);
  EXPECT_EQ(values_of(model.weights.begin()->second), (std::vector<float>{0, 10, 1, 11, 2, 12}));
}

// Files of strangers ----------------------------------------------------------------------------

std::string small_file() {
  return file_of({1, 4}, [](nn::OnnxFile& onnx) {
    const std::string y =
        onnx.emit("MatMul", {"x", onnx.constant({4, 2}, std::vector<float>(8, 1))});
    return onnx.emit("Softmax", {onnx.reshape(y, {0, 2})},
                     nn::OnnxAttributes().integer("axis", -1));
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
  const std::string large = problem(file_of({1, 4}, [](auto& onnx) {
    const auto shape = onnx.integers({int64_t{1} << 40});
    return onnx.emit("Add", {"x", onnx.emit("ConstantOfShape", {shape})});
  }));
  EXPECT_NE(large.find("too much memory"), std::string::npos) << large;
}

// A model with a tensor whose values lie in another file.
std::string with_external(const std::string& location, uint64_t offset = 0) {
  Message entry, from, tensor;
  entry.bytes(1, "location").bytes(2, location);
  from.bytes(1, "offset").bytes(2, std::to_string(offset));
  tensor.integer(1, 4).integer(1, 1).integer(2, nn::kOnnxFloat).bytes(8, "w");
  tensor.message(13, entry).message(13, from).integer(14, 1);
  const std::string plain = file_of({1, 4}, [](auto& onnx) {
    return onnx.emit("MatMul", {"x", "w"});
  });
  Message graph;  // fields of a message that comes twice are joined by what reads it
  graph.message(5, tensor);
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
}

}  // namespace
}  // namespace etr::test
