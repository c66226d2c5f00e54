#include "pipeline/decision_log.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "core/log.h"
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
    pipeline::read_decision_log(path_, "echo", "echoes", first_place_, known);
    return known;
  }
  TempDir dir_;
  const std::string path_ = dir_.path("log.jsonl");
  uint64_t first_place_ = 0;
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
  EXPECT_EQ(read(first + "{\"epoch\": 0, \"after\": 0, \"restored\": true}\n"
                         "{\"epoch\": 0, \"after\": 3, \"echoes\": 2, \"again\": true}\n"
                         "{\"epoch\": 0, \"after\": 3, \"echoes\": 8}\n"),
            (DecisionsByEpoch{{0, {{3, 8}}}}));
  EXPECT_EQ(read(first + "{\"epoch\": 1, \"after\": 0, \"restored\": true}\n"),
            (DecisionsByEpoch{{0, {{3, 2}, {7, 1}}}, {1, {}}}));
  for (const char* line : {"{\"epoch\": 0, \"after\": 5, \"echoes\": 8}\n",
                           "{\"epoch\": 0, \"after\": 5, \"echoes\": 8, \"restored\": false}\n"})
    EXPECT_EQ(read(line, {{0, {{1, 1}, {6, 6}}}, {1, {{2, 2}}}}),
              (DecisionsByEpoch{{0, {{1, 1}, {5, 8}}}}));
}

// Logs that are written and then read.
class WrittenLog : public DecisionLog {
 protected:
  pipeline::DecisionLog log() const { return {path_, "echo", "echoes"}; }
  DecisionsByEpoch known() const {
    DecisionsByEpoch out;
    pipeline::read_decision_log(path_, "echo", "echoes", 0, out);
    return out;
  }
};

TEST_F(WrittenLog, HasTheNewestDecisionForEachPlace) {
  {
    pipeline::DecisionLog log = this->log();
    log.begin(0, std::nullopt);
    EXPECT_EQ(known(), DecisionsByEpoch()) << "a run that decides nothing can be replayed";
    log.note(0, 3, 1, {{"factor", 1.5}});
    log.note(0, 3, 2, Json());
    EXPECT_EQ(known(), DecisionsByEpoch()) << "the decision may still be replaced";
    log.note(0, 7, 1, {{"factor", 1.5}});
    EXPECT_EQ(known(), (DecisionsByEpoch{{0, {{3, 2}}}}));
    log.complete();
    EXPECT_EQ(known(), (DecisionsByEpoch{{0, {{3, 2}, {7, 1}}}}));
    std::string lines;
    std::getline(std::ifstream(path_), lines, '\0');
    EXPECT_NE(lines.find(R"({"epoch":0,"after":7,"echoes":1,"factor":1.5})"), std::string::npos)
        << lines;
    log.note(1, 7, 4, Json());
  }
  EXPECT_EQ(known(), (DecisionsByEpoch{{0, {{3, 2}, {7, 1}}}, {1, {{7, 4}}}}));
}

TEST_F(WrittenLog, BeginsWithTheRun) {
  pipeline::DecisionLog copy = log(), none("", "echo", "echoes");
  copy.note(0, 3, 1, Json());
  copy.complete();
  none.begin(0, std::nullopt);
  none.note(0, 3, 1, Json());
  none.complete();
  EXPECT_FALSE(std::ifstream(path_).is_open()) << "a copy that only replays writes nothing";
}

// The killed run made decisions at places where the next run makes none.
TEST_F(WrittenLog, ForgetsWhatAnEarlierRunDecidedBeyondAPosition) {
  const auto killed = [&] {
    pipeline::DecisionLog log = this->log();
    log.begin(0, std::nullopt);
    for (const uint64_t after : {3, 7}) log.note(0, after, 1, Json());
    for (const uint64_t after : {2, 4, 6}) log.note(1, after, 5, Json());
  };
  const auto next = [&](uint64_t epoch, const std::optional<EpochDecisions>& made) {
    pipeline::DecisionLog log = this->log();
    log.begin(epoch, made);
    log.note(epoch, 9, 8, Json());
  };
  killed();
  next(1, EpochDecisions());  // restored at the beginning of epoch 1
  EXPECT_EQ(known(), (DecisionsByEpoch{{0, {{3, 1}, {7, 1}}}, {1, {{9, 8}}}}));
  next(1, EpochDecisions{{2, 5}});
  EXPECT_EQ(known(), (DecisionsByEpoch{{0, {{3, 1}, {7, 1}}}, {1, {{2, 5}, {9, 8}}}}));
  next(1, EpochDecisions{{2, 5}, {9, 4}});  // restored among the echoes after item 9
  EXPECT_EQ(known(), (DecisionsByEpoch{{0, {{3, 1}, {7, 1}}}, {1, {{2, 5}, {9, 8}}}}));
  next(0, std::nullopt);  // a new run, from the beginning
  EXPECT_EQ(known(), (DecisionsByEpoch{{0, {{9, 8}}}}));
}

TEST_F(WrittenLog, BeginsWithWhatARestoredRunHasDecided) {
  {
    pipeline::DecisionLog log = this->log();
    log.begin(1, EpochDecisions{{2, 5}});
  }
  EXPECT_EQ(known(), (DecisionsByEpoch{{1, {{2, 5}}}}));
}

TEST_F(WrittenLog, MayLieInTheWorkingFolder) {
  std::ofstream{path_};  // an empty log voids nothing
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(dir_.path(""));
  pipeline::DecisionLog log("log.jsonl", "echo", "echoes");
  const std::string said = error_text([&] { log.begin(0, std::nullopt); });
  std::filesystem::current_path(before);
  EXPECT_EQ(said, "");
  EXPECT_EQ(known(), DecisionsByEpoch());
}

TEST_F(WrittenLog, AFileThatCannotBeWrittenIsNamed) {
  pipeline::DecisionLog log(dir_.path("none/log.jsonl"), "echo", "echoes");
  const std::string text = error_text([&] { log.begin(0, std::nullopt); });
  EXPECT_NE(text.find("echo: 'log' is '" + dir_.path("none/log.jsonl")), std::string::npos) << text;
  EXPECT_NE(text.find("make the folder"), std::string::npos) << text;
}

TEST_F(DecisionLog, ErrorsNameFileLineAndKey) {
  const std::string good = "{\"epoch\": 0, \"after\": 0, \"echoes\": 2}\n";
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
      error_text([&] { pipeline::read_decision_log("/no/such", "echo", "echoes", 0, none); });
  EXPECT_NE(text.find("'/no/such'"), std::string::npos) << text;
}

#ifdef __linux__
TEST_F(DecisionLog, ThatCannotBeReadToItsEndSaysSo) {
  const std::string path = "/proc/self/mem";  // a regular file, of which the beginning is not there
  DecisionsByEpoch none;
  EXPECT_EQ(error_text([&] { pipeline::read_decision_log(path, "echo", "echoes", 0, none); }),
            "echo: 'replay' cannot be read to its end, '" + path + "', line 1");
}
#endif

// A folder would be read as an empty log. Reading or writing a pipe or a device might never end.
TEST_F(WrittenLog, IsARegularFile) {
  ASSERT_EQ(mkfifo(dir_.path("pipe").c_str(), 0600), 0);
  for (const std::string& path : {dir_.path(""), dir_.path("pipe"), std::string("/dev/zero")}) {
    DecisionsByEpoch none;
    EXPECT_EQ(error_text([&] { pipeline::read_decision_log(path, "overtake", "sample", 0, none); }),
              "overtake: 'replay': '" + path +
                  "' is not a regular file: name the file that a run has written as its 'log'");
    pipeline::DecisionLog log(path, "echo", "echoes");
    EXPECT_EQ(
        error_text([&] { log.begin(0, std::nullopt); }),
        "echo: 'log': '" + path + "' is not a regular file: name a file that the run may write");
  }
}

TEST_F(WrittenLog, AnUnfinishedLineOfAnEarlierRunIsCutOff) {
  const std::string line = "{\"epoch\":0,\"after\":3,\"echoes\":2}\n",
                    spaced = "{ \"epoch\": 0, \"after\": 3, \"echoes\": 2}\n";
  for (const std::string& left :
       {line + "{\"epoch\":0,\"afte", line, spaced, std::string("{\"epo"), std::string()}) {
    std::ofstream(path_) << left;
    {
      pipeline::DecisionLog log = this->log();
      log.begin(0, std::nullopt);
      log.note(0, 9, 8, Json());
    }
    EXPECT_EQ(known(), (DecisionsByEpoch{{0, {{9, 8}}}})) << left;
  }
}

TEST_F(WrittenLog, AFileOfAnotherKindIsLeftAlone) {
  for (const std::string content : {"{\n \"seed\": 1}", "{\"epochs\": 3", "some notes"}) {
    std::ofstream(path_) << content;
    pipeline::DecisionLog log = this->log();
    const std::string text = error_text([&] { log.begin(0, std::nullopt); });
    EXPECT_NE(text.find("echo: 'log': '" + path_ + "' has other content"), std::string::npos)
        << text;
    std::string left;
    std::getline(std::ifstream(path_), left, '\0');
    EXPECT_EQ(left, content);
  }
}

TEST_F(DecisionLog, PlacesRise) {
  const auto line = [](int epoch, int after) {
    return cat("{\"epoch\": ", epoch, ", \"after\": ", after, ", \"echoes\": 1}\n");
  };
  first_place_ = 1;
  EXPECT_EQ(read(line(0, 5) + line(1, 2)), (DecisionsByEpoch{{0, {{5, 1}}}, {1, {{2, 1}}}}));
  for (const auto& [lines, number, part] :
       {std::tuple(line(0, 5) + line(0, 2), 2, "after 2 of epoch 0 stands behind a later one"),
        {line(0, 1) + line(0, 5) + line(0, 5), 3, "one for the same place"},
        {line(1, 3) + line(0, 7), 2, "after 7 of epoch 0"},
        {"{\"epoch\": 0, \"after\": 5, \"echoes\": 1, \"again\": false}\n" + line(0, 5), 2,
         "one for the same place"},
        {line(0, 0), 1, "'after' is 0, and nothing can be decided in front of 1"}}) {
    const std::string text = error_text([&, given = lines] { read(given); });
    EXPECT_NE(text.find(cat("'", path_, "', line ", number, ": ")), std::string::npos) << text;
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

TEST_F(DecisionLog, WarnsWhereItEnds) {
  static std::string warned;
  set_log_hook([](LogLevel, const char* message) { warned += message; });
  const DecisionsByEpoch two = {{0, {{3, 2}}}, {2, {{1, 1}}}};
  for (const uint64_t epoch : {0, 1, 2})  // epoch 1 has no decisions, but epoch 2 has
    EXPECT_FALSE(pipeline::warn_where_log_ends(path_, "echo", epoch, two)) << epoch;
  EXPECT_EQ(warned, "");
  EXPECT_TRUE(pipeline::warn_where_log_ends(path_, "echo", 3, two));
  set_log_hook(nullptr);
  EXPECT_NE(warned.find(cat("'", path_, "' has no decisions from epoch 3 on")), std::string::npos)
      << warned;
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
