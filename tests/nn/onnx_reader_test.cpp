// What is read of an ONNX file: every type of element in every place, attributes, inputs.
#include "nn/onnx_reader.h"

#include <gtest/gtest.h>

#include <fstream>
#include <limits>

#include "core/error.h"
#include "core/protobuf.h"
#include "nn/onnx_file.h"
#include "support/error_text.h"
#include "support/temp_dir.h"
#include "tensor/tensor.h"

namespace etr::test {
namespace {

nn::OnnxGraph graph_of(const std::string& file) {
  return nn::parse_onnx(std::as_bytes(std::span(file)), "'x.onnx'");
}

// A value's name, and a shape of free and fixed extents.
Message value_info(const std::string& name, const Message& shape = {}) {
  return Message().bytes(1, name).message(2, Message().message(1, Message().message(2, shape)));
}

// A model with this graph, which gets an output.
std::string onnx_of(Message graph) {
  return Message().message(7, graph.message(12, value_info("y"))).data();
}

nn::OnnxTensor tensor_of(const Message& tensor) {
  return *graph_of(onnx_of(Message().message(5, tensor))).initializers.begin()->second;
}

std::string read_error(const Message& tensor) {
  return error_text([&] { tensor_of(tensor); });
}

Message tensor(uint64_t type, std::initializer_list<int64_t> dims) {
  Message out;
  for (const int64_t dim : dims) out.integer(1, static_cast<uint64_t>(dim));
  return out.integer(2, type).bytes(8, "w");
}

template <typename T>
std::string raw(std::initializer_list<T> values) {
  return {reinterpret_cast<const char*>(std::data(values)), values.size() * sizeof(T)};
}

template <typename T>
void expect_integers(uint64_t type, std::initializer_list<T> values) {
  const auto dim = static_cast<int64_t>(values.size());
  const nn::OnnxTensor read = tensor_of(tensor(type, {dim}).bytes(9, raw(values)));
  EXPECT_FALSE(read.is_real) << type;
  EXPECT_EQ(read.dims, std::vector<int64_t>{dim});
  EXPECT_EQ(read.integers, std::vector<int64_t>(values.begin(), values.end())) << type;
}

TEST(OnnxReader, ReadsEveryTypeOfInteger) {
  expect_integers<uint8_t>(2, {0, 1, 200});
  expect_integers<int8_t>(3, {0, -1, 100});
  expect_integers<uint16_t>(4, {0, 1, 60'000});
  expect_integers<int16_t>(5, {0, -2, 30'000});
  expect_integers<int32_t>(6, {0, -3, 2'000'000'000});
  expect_integers<int64_t>(7, {0, -4, int64_t{1} << 60});
  expect_integers<uint8_t>(9, {0, 1, 1});
  expect_integers<uint32_t>(12, {0, 5, 4'000'000'000});
  expect_integers<uint64_t>(13, {0, 6, uint64_t{1} << 60});
  for (const uint64_t type : {0, 8, 14, 15, 17})
    EXPECT_EQ(read_error(tensor(type, {1})),
              cat("the ONNX file 'x.onnx': tensor 'w' has elements of type ", type,
                  " (TensorProto.DataType), which are not read"));
  for (int64_t type = 0; type < 20; ++type)
    EXPECT_EQ(nn::onnx_is_real(type), type == 1 || type == 10 || type == 11 || type == 16) << type;
}

TEST(OnnxReader, ReadsEveryTypeOfReal) {
  const std::vector<float> expected{0, 1.5f, -2};
  const std::pair<uint64_t, std::string> types[] = {{1, raw<float>({0, 1.5f, -2})},
                                                    {10, raw<uint16_t>({0, 0x3E00, 0xC000})},
                                                    {11, raw<double>({0, 1.5, -2})},
                                                    {16, raw<uint16_t>({0, 0x3FC0, 0xC000})}};
  for (const auto& [type, bytes] : types) {
    const nn::OnnxTensor read = tensor_of(tensor(type, {3, 1}).bytes(9, bytes));
    EXPECT_TRUE(read.is_real && read.integers.empty()) << type;
    EXPECT_EQ(read.reals, expected) << type;
    EXPECT_NE(read_error(tensor(type, {4}).bytes(9, bytes))
                  .find(cat("'w' has 4 elements of ", bytes.size() / 3,
                            " bytes by its shape, and data for ", bytes.size(), " bytes")),
              std::string::npos);
  }
}

// In the field of its type, packed or one by one.
TEST(OnnxReader, ReadsElementsFromTheirFields) {
  EXPECT_EQ(tensor_of(tensor(1, {2}).bytes(4, raw<float>({1, 2}))).reals,
            (std::vector<float>{1, 2}));
  EXPECT_EQ(tensor_of(tensor(1, {2}).real(4, 1.0f).real(4, 2.0f)).reals,
            (std::vector<float>{1, 2}));
  EXPECT_EQ(tensor_of(tensor(11, {2}).bytes(10, raw<double>({1, 2}))).reals,
            (std::vector<float>{1, 2}));
  EXPECT_EQ(tensor_of(tensor(11, {2}).real(10, 1.0).real(10, 2.0)).reals,
            (std::vector<float>{1, 2}));
  EXPECT_EQ(tensor_of(tensor(10, {2}).integer(5, 0x3C00).integer(5, 0x4000)).reals,
            (std::vector<float>{1, 2}));
  EXPECT_EQ(tensor_of(tensor(16, {1}).integer(5, 0x3FC0)).reals, std::vector<float>{1.5f});
  for (const auto& [type, field] : {std::pair(6, 5), {7, 7}, {13, 11}, {2, 5}}) {
    const auto of = static_cast<uint64_t>(type);
    EXPECT_EQ(tensor_of(tensor(of, {3}).bytes(field, "\x05\xac\x02\x07")).integers,
              (std::vector<int64_t>{5, 300, 7}));
    EXPECT_EQ(tensor_of(tensor(of, {2}).integer(field, 5).integer(field, 300)).integers,
              (std::vector<int64_t>{5, 300}));
    EXPECT_NE(read_error(tensor(of, {2}).integer(field, 5)).find("data for 1 elements"),
              std::string::npos);
  }
  for (const auto& [type, field] : {std::pair(1, 10), {11, 4}, {10, 4}})
    EXPECT_NE(read_error(tensor(static_cast<uint64_t>(type), {1}).bytes(field, raw<double>({1})))
                  .find("data for 0 elements"),
              std::string::npos);
}

TEST(OnnxReader, TensorsHaveAtMostSoManyAxes) {
  Message most = tensor(6, {});
  for (size_t i = 0; i < Shape::kMaxRank; ++i) most.integer(1, 1);
  EXPECT_EQ(tensor_of(Message(most).integer(5, 3)).dims.size(), Shape::kMaxRank);
  EXPECT_EQ(read_error(Message(most).integer(1, 1).integer(5, 3)),
            cat("the ONNX file 'x.onnx': tensor 'w' has ", Shape::kMaxRank + 1, " axes; at most ",
                Shape::kMaxRank, " are read"));
  EXPECT_EQ(tensor_of(tensor(6, {}).integer(5, 3)).integers, std::vector<int64_t>{3});
}

TEST(OnnxReader, CountsWithoutOverflow) {
  constexpr int64_t kLargest = int64_t{1} << 48;
  EXPECT_EQ(nn::onnx_count({}), 1u);
  EXPECT_EQ(nn::onnx_count({2, 3}), 6u);
  EXPECT_EQ(nn::onnx_count({kLargest}), static_cast<size_t>(kLargest));
  EXPECT_EQ(nn::onnx_count({kLargest, 0}), 0u);
  EXPECT_EQ(nn::onnx_count({1, 0, 1}), 0u);
  for (const std::vector<int64_t>& dims :
       std::initializer_list<std::vector<int64_t>>{{-1},
                                                   {2, -1},
                                                   {0, -1},
                                                   {kLargest + 1},
                                                   {kLargest, 2, 0},
                                                   {0, kLargest, 2},
                                                   {std::numeric_limits<int64_t>::max(), 4},
                                                   {int64_t{1} << 40, int64_t{1} << 40}})
    EXPECT_EQ(nn::onnx_count(dims), std::nullopt);
}

TEST(OnnxReader, ReadsAttributes) {
  Message node;
  node.bytes(1, "a").bytes(1, "").bytes(2, "y").bytes(3, "n").bytes(4, "Op").bytes(7, "ai.onnx");
  const auto add = [&](const char* name, Message value) { node.message(5, value.bytes(1, name)); };
  add("real", Message().real(2, 1e-5f));
  add("integer", Message().integer(3, static_cast<uint64_t>(-7)));
  add("text", Message().bytes(4, "hello\xff"));
  add("tensor", Message().message(5, tensor(6, {2}).bytes(9, raw<int32_t>({8, 9}))));
  add("reals", Message().bytes(7, raw<float>({1, 2})).real(7, 3.0f));
  add("integers", Message().bytes(8, "\x05\x06").integer(8, 7));
  const nn::OnnxNode read = graph_of(onnx_of(Message().message(1, node))).nodes.at(0);
  EXPECT_EQ(read.inputs, (std::vector<std::string>{"a", ""}));
  EXPECT_EQ(read.outputs, std::vector<std::string>{"y"});
  EXPECT_TRUE(read.has_input(0) && !read.has_input(1) && !read.has_input(2));
  EXPECT_EQ(read.name + read.op + read.domain, "nOp");
  EXPECT_EQ(read.real("real", 1), 1e-5) << "and not 9.99999974738e-06";
  EXPECT_EQ(read.real("none", 2), 2);
  EXPECT_EQ(read.integer("integer", 1), -7);
  EXPECT_EQ(read.integer("none", 2), 2);
  EXPECT_EQ(read.text("text", "x"), "hello\\xFF");
  EXPECT_EQ(read.text("none", "x"), "x");
  EXPECT_EQ(read.integers("integers"), (std::vector<int64_t>{5, 6, 7}));
  EXPECT_TRUE(read.integers("none").empty());
  EXPECT_EQ(read.attributes.at("reals").reals, (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(read.attributes.at("tensor").tensor->integers, (std::vector<int64_t>{8, 9}));
}

TEST(OnnxReader, OtherDomainsAreKept) {
  const Message node = Message().bytes(4, "Op").bytes(7, "com.other");
  EXPECT_EQ(graph_of(onnx_of(Message().message(1, node))).nodes.at(0).domain, "com.other");
}

TEST(OnnxReader, ExtentsMayBePacked) {
  const Message packed = Message().bytes(1, "\x02\x03").integer(2, 2).bytes(9, "abcdef");
  EXPECT_EQ(tensor_of(packed).dims, (std::vector<int64_t>{2, 3}));
}

// The place of values in another file, which this one in memory does not have.
TEST(OnnxReader, PlacesAreNumbers) {
  const auto said = [](const char* offset) {
    return read_error(
        tensor(1, {1}).integer(14, 1).message(13, Message().bytes(1, "offset").bytes(2, offset)));
  };
  for (const char* offset : {"", "0", "1029384756", "72057594037927936"})
    EXPECT_NE(said(offset).find("lies in another file"), std::string::npos) << offset;
  for (const char* offset : {"-1", "1/", "1:", " 1", "99999999999999999999"})
    EXPECT_NE(said(offset).find(cat("its offset is '", offset, "'")), std::string::npos) << offset;
}

TEST(OnnxReader, ValuesElsewhereLieWithinTheirFile) {
  const TempDir dir;
  std::ofstream(dir.path("w"), std::ios::binary) << raw<float>({0, 1, 2, 3, 4});
  const auto read = [&](const std::map<std::string, std::string>& place, int64_t count) {
    Message t = tensor(1, {count}).integer(14, 1);
    for (const auto& [key, value] : place) t.message(13, Message().bytes(1, key).bytes(2, value));
    std::ofstream(dir.path("m.onnx"), std::ios::binary) << onnx_of(Message().message(5, t));
    return nn::read_onnx(dir.path("m.onnx")).initializers.begin()->second->reals;
  };
  EXPECT_EQ(read({{"location", "w"}}, 5), (std::vector<float>{0, 1, 2, 3, 4}));
  EXPECT_EQ(read({{"location", "w"}, {"offset", "8"}, {"length", "4"}}, 1), std::vector<float>{2});
  EXPECT_TRUE(read({{"location", "w"}, {"offset", "20"}, {"length", "0"}}, 0).empty());
  EXPECT_EQ(read({{"location", "w"}, {"offset", "12"}, {"length", "8"}}, 2),
            (std::vector<float>{3, 4}));
  for (const auto& [offset, length] :
       {std::pair("21", "0"), {"0", "21"}, {"16", "8"}, {"20", "1"}, {"4", "72057594037927936"}})
    EXPECT_NE(error_text([&, o = offset, l = length] {
                read({{"location", "w"}, {"offset", o}, {"length", l}}, 2);
              }).find("tensor 'w' lies behind the 20 bytes of 'w'"),
              std::string::npos)
        << offset << " " << length;
  for (const std::string& location : {std::string("w\0x", 3), std::string("x/../w"), dir.path("w"),
                                      std::string(5000, 'w'), std::string()})
    EXPECT_NE(error_text([&] {
                read({{"location", location}}, 5);
              }).find("outside the model's folder"),
              std::string::npos)
        << location;
}

TEST(OnnxReader, ReadsTheHeadOfWhatWeWrite) {
  nn::OnnxFile file;
  file.input("x", DType::i32, {1, 4});
  file.output("x", {1, 4});
  const nn::OnnxGraph graph = graph_of(file.data());
  EXPECT_EQ(graph.producer, "EchoTrain");
  EXPECT_EQ(graph.opset, 17);
  EXPECT_EQ(graph.inputs.at(0).dims, (std::vector<int64_t>{-1, 4}));
  EXPECT_EQ(graph.outputs, std::vector<std::string>{"output"});
  EXPECT_EQ(graph.nodes.at(0).op, "Identity");
}

TEST(OnnxReader, NamesHaveALimit) {
  for (const int field : {1, 2, 3, 4}) {
    const auto said = [&](size_t bytes) {
      const Message node = Message().bytes(field, std::string(bytes, 'n'));
      return error_text([&] { graph_of(onnx_of(Message().message(1, node))); });
    };
    EXPECT_EQ(said(4096), "");
    EXPECT_NE(said(4097).find("a name of 4097 bytes; at most 4096 are read"), std::string::npos);
  }
}

TEST(OnnxReader, ReadsInputsWithoutConstants) {
  Message shape;
  for (const Message& m :
       {Message().integer(1, 5), Message().bytes(2, "N"), Message(), Message().integer(1, 0),
        Message().integer(1, 1), Message().integer(1, static_cast<uint64_t>(-3))})
    shape.message(1, m);
  Message graph;
  graph.message(11, value_info("x", shape)).message(11, value_info("w"));
  graph.message(5, tensor(6, {1}).integer(5, 3));
  const nn::OnnxGraph read = graph_of(onnx_of(graph));
  ASSERT_EQ(read.inputs.size(), 1u);
  EXPECT_EQ(read.inputs[0].name, "x");
  EXPECT_EQ(read.inputs[0].dims, (std::vector<int64_t>{5, -1, -1, -1, 1, -1}));
  EXPECT_EQ(read.inputs[0].symbols, (std::vector<std::string>{"", "N", "", "", "", ""}));
  EXPECT_EQ(read.outputs, std::vector<std::string>{"y"});
}

TEST(OnnxReader, TheOpsetIsThatOfOnnxsOwnOperators) {
  const auto set = [](const char* domain, uint64_t version) {
    return Message().message(8, Message().bytes(1, domain).integer(2, version)).data();
  };
  const std::string model = onnx_of(Message()) + Message().bytes(2, "maker").data();
  EXPECT_EQ(graph_of(model + set("", 12) + set("other", 3)).opset, 12);
  EXPECT_EQ(graph_of(model + set("ai.onnx", 13)).opset, 13);
  EXPECT_EQ(graph_of(model + set("other", 3)).opset, 0);
  EXPECT_EQ(graph_of(model).producer, "maker");
}

TEST(OnnxReader, RefusesWhatItDoesNotRead) {
  const auto said = [](const std::string& file) { return error_text([&] { graph_of(file); }); };
  for (const std::string& none :
       {std::string(), Message().bytes(2, "maker").data(), Message().message(7, Message()).data()})
    EXPECT_EQ(said(none),
              "the ONNX file 'x.onnx' holds no graph with an output; is it an ONNX model?");
  EXPECT_EQ(said(onnx_of(Message().message(15, Message()))),
            "the ONNX file 'x.onnx' has sparse initializers, which are not read");
  EXPECT_EQ(read_error(tensor(1, {1}).integer(14, 1)),
            "the ONNX file 'x.onnx': tensor 'w' lies in another file, and this one was given in "
            "memory");
  EXPECT_EQ(tensor_of(tensor(6, {1}).integer(5, 3).integer(14, 0)).integers,
            std::vector<int64_t>{3});
  EXPECT_NE(read_error(tensor(1, {-1})).find("a size that cannot be"), std::string::npos);
  EXPECT_NE(read_error(tensor(6, {1}).integer(14, 1).message(
                           13, Message().bytes(1, "offset").bytes(2, "1x")))
                .find("its offset is '1x'"),
            std::string::npos);
}

}  // namespace
}  // namespace etr::test
