#include "core/error.h"
#include "support/op_check.h"

namespace etr::test {
namespace {

// Swish with a trained slope for each channel: y = x s(w x).
constexpr const char* kSwish = R"({"source":
  "float logistic(float v) { return 1.0 / (1.0 + exp(-v)); }\n
   float forward(uint i) { return x0[i] * logistic(x1[i % WIDTH] * x0[i]); }\n
   float gradient0(uint i) {\n
     const float w = x1[i % WIDTH], s = logistic(w * x0[i]);\n
     return dy[i] * (s + w * y[i] * (1.0 - s));\n
   }\n
   float gradient1(uint c) {\n
     float sum = 0.0;\n
     for (uint i = c; i < COUNT_x0; i += WIDTH) {\n
       const float s = logistic(x1[c] * x0[i]);\n
       sum += dy[i] * x0[i] * x0[i] * s * (1.0 - s);\n
     }\n
     return sum;\n
   }"})";

std::string one_line(std::string text) {
  std::erase(text, '\n');  // the line ends of this file; those of the source are written out
  return text;
}

TEST(GlslOp, MatchesTheReference) {
  check_op({.op = "glsl",
            .options = one_line(kSwish),
            .inputs = {{5, 3, 7}, {7}},
            .reference = [](const auto& in) {
              Doubles out;
              for (size_t i = 0; i < in[0].size(); ++i)
                out.push_back(in[0][i] / (1 + std::exp(-in[1][i % 7] * in[0][i])));
              return out;
            }});
}

TEST(GlslOp, MayGiveAnotherShape) {
  check_op({.op = "glsl",
            .options = R"({"shape": [2], "source":
              "float forward(uint i) { return x0[i / 2 * 3] + x0[i / 2 * 3 + 1 + i % 2]; } float gradient0(uint i) { const uint n = i / 3, k = i % 3; return k == 0 ? dy[2 * n] + dy[2 * n + 1] : dy[2 * n + k - 1]; }"})",
            .inputs = {{5, 3}},
            .reference = [](const auto& in) {
              Doubles out;
              for (size_t n = 0; n < 5; ++n)
                for (size_t k = 0; k < 2; ++k) out.push_back(in[0][3 * n] + in[0][3 * n + 1 + k]);
              return out;
            }});
}

TEST(GlslOp, MistakesHaveTheCompilersMessage) {
  const auto error = [](const std::string& source, bool gradient) -> std::string {
    try {
      check_op({.op = "glsl",
                .options = Json{{"source", source}}.dump(),
                .inputs = {{5}},
                .reference = [](const auto& in) { return in[0]; },
                .gradient = gradient});
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::invalid_argument);
      return e.what();
    }
    return "";
  };
  const std::string typo = error("float forward(uint i) {\n  return x0[i] +;\n}", false);
  EXPECT_NE(typo.find("does not compile"), std::string::npos) << typo;
  EXPECT_NE(typo.find(":2:"), std::string::npos) << "the line in the user's own text: " << typo;
  EXPECT_NE(
      error("float forward(uint i) { float a[500000000]; a[i] = x0[i]; return a[i + 1]; }", false)
          .find("a variable of 2000000000 bytes"),
      std::string::npos);
  EXPECT_NE(error("float forwards(uint i) { return x0[i]; }", false).find("forward"),
            std::string::npos);
  EXPECT_NE(
      error("float forward(uint i) { return x0[i]; }", true).find("no 'float gradient0(uint i)'"),
      std::string::npos);
}

}  // namespace
}  // namespace etr::test
