// reduce, reshape, permute, concat, slice, embedding.
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "support/op_check.h"

namespace etr::test {
namespace {

struct Reduce {
  Shape x;
  std::string axes;
  size_t outer, length, inner;  // x around the axes
};

class ReduceOp : public testing::TestWithParam<Reduce> {};

TEST_P(ReduceOp, MatchesTheReference) {
  const Reduce& p = GetParam();
  for (const std::string function : {"sum", "mean", "max", "min"})
    check_op(
        {.op = "reduce",
         .options = "{\"function\": \"" + function + "\", \"axes\": " + p.axes + "}",
         .inputs = {p.x},
         .reference = [&](const auto& in) {
           Doubles y(p.outer * p.inner, function == "max" ? -1e9 : function == "min" ? 1e9 : 0);
           for (size_t i = 0; i < in[0].size(); ++i) {
             double& at = y[i / (p.length * p.inner) * p.inner + i % p.inner];
             if (function == "max") at = std::max(at, in[0][i]);
             if (function == "min") at = std::min(at, in[0][i]);
             if (function == "sum") at += in[0][i];
             if (function == "mean") at += in[0][i] / static_cast<double>(p.length);
           }
           return y;
         }});
}

INSTANTIATE_TEST_SUITE_P(Shapes, ReduceOp,
                         testing::Values(Reduce{{5, 7, 37}, "[-1]", 35, 37, 1},
                                         Reduce{{5, 7, 11}, "[1]", 5, 7, 11},
                                         Reduce{{3, 5, 7, 2}, "[1, 2]", 3, 35, 2},
                                         Reduce{{131, 3}, "[0]", 1, 131, 3},
                                         Reduce{{3, 5, 7}, "[0, 1, 2]", 1, 105, 1}));

TEST(ReduceShape, KeepsAxesWhereAsked) {
  const ops::OpSpec& op = ops::find_op("reduce");
  const Options options(op.options, "reduce", {{"axes", {1, 2}}, {"keep_dims", true}});
  EXPECT_EQ(op.shapes(options, {{2, 3, 4, 5}}).output, (Shape{2, 1, 1, 5}));
  EXPECT_THROW(op.shapes(Options(op.options, "reduce", {{"axes", {4}}}), {{2, 3}}), Error);
  EXPECT_THROW(op.shapes(Options(op.options, "reduce", {{"axes", {0, 2}}}), {{2, 3, 4}}), Error);
}

TEST(Reshape, IsAViewThatFillsInOneExtent) {
  const ops::OpSpec& op = ops::find_op("reshape");
  EXPECT_TRUE(op.view);
  const auto shape = [&](const Json& to) {
    return op.shapes(Options(op.options, "reshape", {{"shape", to}}), {{5, 6, 4}}).output;
  };
  EXPECT_EQ(shape({2, -1}), (Shape{5, 2, 12}));
  EXPECT_EQ(shape({24}), (Shape{5, 24}));
  EXPECT_THROW(shape({5, -1}), Error);
  EXPECT_THROW(shape({-1, -1}), Error);
}

TEST(Permute, MatchesTheReference) {
  check_op({.op = "permute",
            .options = R"({"axes": [0, 3, 1, 2]})",
            .inputs = {{3, 5, 7, 2}},
            .reference = [](const auto& in) {
              Doubles y;
              for (size_t n = 0; n < 3; ++n)
                for (size_t c = 0; c < 2; ++c)
                  for (size_t p = 0; p < 35; ++p) y.push_back(in[0][(n * 35 + p) * 2 + c]);
              return y;
            }});
  const ops::OpSpec& op = ops::find_op("permute");
  EXPECT_THROW(op.shapes(Options(op.options, "permute", {{"axes", {0, 1, 1}}}), {{2, 3, 4}}),
               Error);
}

TEST(Concat, JoinsOneSampleToAll) {
  const auto joined = [](const Doubles& a, size_t a_samples, const Doubles& b, size_t b_samples) {
    Doubles out;  // [3, 5, 2] with [3, 5, 4]
    for (size_t n = 0; n < 3; ++n)
      for (size_t r = 0; r < 5; ++r) {
        for (size_t i = 0; i < 2; ++i) out.push_back(a[((n % a_samples) * 5 + r) * 2 + i]);
        for (size_t i = 0; i < 4; ++i) out.push_back(b[((n % b_samples) * 5 + r) * 4 + i]);
      }
    return out;
  };
  check_op({.op = "concat", .inputs = {{3, 5, 2}, {1, 5, 4}}, .reference = [&](const auto& in) {
              return joined(in[0], 3, in[1], 1);
            }});
  check_op({.op = "concat", .inputs = {{1, 5, 2}, {3, 5, 4}}, .reference = [&](const auto& in) {
              return joined(in[0], 1, in[1], 3);
            }});
}

TEST(Concat, JoinsAlongAnAxis) {
  check_op({.op = "concat",
            .options = R"({"axis": 1})",
            .inputs = {{3, 2, 5}, {3, 7, 5}},
            .reference = [](const auto& in) {
              Doubles y;
              for (size_t n = 0; n < 3; ++n)
                for (size_t part = 0; part < 2; ++part) {
                  const size_t length = part ? 35 : 10;
                  const auto begin = in[part].begin() + static_cast<long>(n * length);
                  y.insert(y.end(), begin, begin + static_cast<long>(length));
                }
              return y;
            }});
  const ops::OpSpec& op = ops::find_op("concat");
  EXPECT_THROW(op.shapes(Options(op.options, "concat", nullptr), {{3, 2, 5}, {2, 2, 5}}), Error);
}

TEST(Slice, TakesARangeOfAnAxis) {
  check_op({.op = "slice",
            .options = R"({"axis": 2, "begin": -4, "length": 3})",
            .inputs = {{3, 5, 7}},
            .reference = [](const auto& in) {
              Doubles y;
              for (size_t r = 0; r < 15; ++r)
                for (size_t k = 3; k < 6; ++k) y.push_back(in[0][r * 7 + k]);
              return y;
            }});
  const ops::OpSpec& op = ops::find_op("slice");
  EXPECT_THROW(op.shapes(Options(op.options, "slice", {{"begin", 8}}), {{3, 7}}), Error);
}

TEST(Embedding, GathersRowsAndSumsTheirGradients) {
  check_op({.op = "embedding",
            .inputs = {{7, 19}, {5, 13}},
            .reference =
                [](const auto& in) {
                  Doubles y;
                  for (const double id : in[1])
                    for (size_t k = 0; k < 19; ++k)
                      y.push_back(in[0][static_cast<size_t>(id) * 19 + k]);
                  return y;
                },
            .label_input = 1,
            .classes = 7});
}

}  // namespace
}  // namespace etr::test
