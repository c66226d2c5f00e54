#include <cmath>

#include "support/op_check.h"

namespace etr::test {
namespace {

struct Cell {
  std::string kind;
  size_t batch, steps, features, width;
  bool reverse = false;
};

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

// By the formulas of the papers, one sample and position after the other.
Doubles run_cell(const Cell& cell, const std::vector<Doubles>& in) {
  const size_t h = cell.width, gates = (cell.kind == "lstm" ? 4 : 3) * h;
  Doubles out(cell.batch * cell.steps * h);
  for (size_t n = 0; n < cell.batch; ++n) {
    Doubles state(h), memory(h);
    for (size_t place = 0; place < cell.steps; ++place) {
      const size_t t = cell.reverse ? cell.steps - 1 - place : place;
      Doubles a = in[2], b = in[4];
      for (size_t g = 0; g < gates; ++g) {
        for (size_t i = 0; i < cell.features; ++i)
          a[g] += in[0][(n * cell.steps + t) * cell.features + i] * in[1][i * gates + g];
        for (size_t i = 0; i < h; ++i) b[g] += state[i] * in[3][i * gates + g];
      }
      for (size_t k = 0; k < h; ++k) {
        if (cell.kind == "lstm") {
          memory[k] = logistic(a[h + k] + b[h + k]) * memory[k] +
                      logistic(a[k] + b[k]) * std::tanh(a[2 * h + k] + b[2 * h + k]);
          state[k] = logistic(a[3 * h + k] + b[3 * h + k]) * std::tanh(memory[k]);
        } else {
          const double z = logistic(a[h + k] + b[h + k]);
          const double candidate = std::tanh(a[2 * h + k] + logistic(a[k] + b[k]) * b[2 * h + k]);
          state[k] = (1 - z) * candidate + z * state[k];
        }
        out[(n * cell.steps + t) * h + k] = state[k];
      }
    }
  }
  return out;
}

class RecurrentOp : public testing::TestWithParam<Cell> {};

TEST_P(RecurrentOp, MatchesTheReference) {
  const Cell& c = GetParam();
  const auto s = [](size_t v) { return static_cast<int64_t>(v); };
  const int64_t gates = s(c.width) * (c.kind == "lstm" ? 4 : 3);
  check_op({.op = "recurrent",
            .options = "{\"cell\": \"" + c.kind +
                       "\", \"reverse\": " + (c.reverse ? "true" : "false") + "}",
            .inputs = {{s(c.batch), s(c.steps), s(c.features)},
                       {s(c.features), gates},
                       {gates},
                       {s(c.width), gates},
                       {gates}},
            .reference = [&](const auto& in) { return run_cell(c, in); }});
}

INSTANTIATE_TEST_SUITE_P(Cells, RecurrentOp,
                         testing::Values(Cell{"lstm", 3, 5, 7, 3}, Cell{"gru", 3, 5, 7, 3},
                                         Cell{"lstm", 1, 1, 1, 1}, Cell{"gru", 1, 1, 1, 1},
                                         Cell{"lstm", 2, 4, 3, 5, true},
                                         Cell{"gru", 2, 4, 3, 5, true}, Cell{"lstm", 5, 2, 2, 19},
                                         Cell{"gru", 5, 2, 2, 19}));

// Some rows twice, some never.
TEST(GatherOp, MatchesTheReference) {
  check_op({.op = "gather",
            .inputs = {{3, 5, 7}, {3, 4}},
            .reference =
                [](const auto& in) {
                  Doubles out;
                  for (size_t r = 0; r < 12; ++r)
                    for (size_t c = 0; c < 7; ++c)
                      out.push_back(in[0][(r / 4 * 5 + static_cast<size_t>(in[1][r])) * 7 + c]);
                  return out;
                },
            .label_input = 1,
            .classes = 5});
}

}  // namespace
}  // namespace etr::test
