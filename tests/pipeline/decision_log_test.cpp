#include "pipeline/decision_log.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "core/json.h"
#include "core/packed.h"
#include "support/error_text.h"
#include "support/temp_dir.h"

namespace etr::test {
namespace {

using pipeline::DecisionsByEpoch;
using pipeline::EpochDecisions;

class DecisionLog : public testing::Test {
 protected:
  DecisionsByEpoch read(const std::string& lines, DecisionsByEpoch known = {}) const {
    std::ofstream(path_) << lines;
    pipeline::read_decision_log(path_, "echo", "echoes", known);
    return known;
  }
  TempDir dir_;
  const std::string path_ = dir_.path("log.jsonl");
};

TEST_F(DecisionLog, HasANumberForEachPlace) {
  const DecisionsByEpoch found = read(
      "{\"epoch\": 0, \"after\": 3, \"echoes\": 2, \"factor\": 1.5}\n"
      "{\"epoch\": 0, \"after\": 7, \"echoes\": 1}\n"
      "{\"epoch\": 2, \"after\": 0, \"echoes\": 9}\n");
  EXPECT_EQ(found, (DecisionsByEpoch{{0, {{3, 2}, {7, 1}}}, {2, {{0, 9}}}}));
}

TEST_F(DecisionLog, ALineRemovesWhatItsRunHasReplaced) {
  const std::string first =
      "{\"epoch\": 0, \"after\": 3, \"echoes\": 2}\n{\"epoch\": 0, \"after\": 7, \"echoes\": 1}\n"
      "{\"epoch\": 1, \"after\": 4, \"echoes\": 5}\n";
  EXPECT_EQ(read(first + "{\"epoch\": 0, \"after\": 5, \"echoes\": 8}\n"),
            (DecisionsByEpoch{{0, {{3, 2}, {5, 8}}}}));
  EXPECT_EQ(read(first + "{\"epoch\": 1, \"after\": 0, \"restored\": true}\n"),
            (DecisionsByEpoch{{0, {{3, 2}, {7, 1}}}, {1, {}}}));
  EXPECT_EQ(
      read("{\"epoch\": 0, \"after\": 5, \"echoes\": 8}\n", {{0, {{1, 1}, {6, 6}}}, {1, {{2, 2}}}}),
      (DecisionsByEpoch{{0, {{1, 1}, {5, 8}}}}));
}

TEST_F(DecisionLog, ErrorsNameFileLineAndKey) {
  const std::string good = "{\"epoch\": 0, \"after\": 1, \"echoes\": 2}\n";
  for (const auto& [line, part] :
       {std::pair("nonsense", "line 2"),
        {"[1]", "is not a decision of the stage 'echo'"},
        {R"({"after": 1, "echoes": 2})", "it has no 'epoch'"},
        {R"({"epoch": 0, "after": 1, "sample": 2})", "no 'echoes'"},
        {R"({"epoch": -1, "after": 1, "echoes": 2})", "'epoch' is -1"},
        {R"({"epoch": 0, "after": 1.5, "echoes": 2})", "'after' is 1.5"}}) {
    const std::string text =
        error_text([&, text = std::string(line)] { read(good + text + "\n"); });
    EXPECT_NE(text.find(part), std::string::npos) << text;
    EXPECT_NE(text.find(path_), std::string::npos) << text;
    EXPECT_NE(text.find("line 2"), std::string::npos) << text;
  }
  DecisionsByEpoch none;
  const std::string text =
      error_text([&] { pipeline::read_decision_log("/no/such", "echo", "echoes", none); });
  EXPECT_NE(text.find("'/no/such'"), std::string::npos) << text;
}

TEST_F(DecisionLog, SavedOnesAreStepsAndNumbers) {
  const std::vector<uint64_t> numbers = {3, 2, 4, 1};
  EXPECT_EQ(pipeline::unpack_decisions(pack_numbers(numbers), "echo"),
            (EpochDecisions{{3, 2}, {7, 1}}));
  const std::vector<uint64_t> odd = {3};
  for (const Json& damaged : {Json(pack_numbers(odd)), Json(7), Json("?")})
    EXPECT_NE(error_text([&, json = damaged] {
                pipeline::unpack_decisions(json, "echo");
              }).find("damaged"),
              std::string::npos);
}

}  // namespace
}  // namespace etr::test
