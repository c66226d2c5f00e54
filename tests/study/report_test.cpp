// The report of a study: its files and figures, also for unusual records.
#include "study/report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "core/error.h"
#include "core/parse_json.h"
#include "core/platform_files.h"
#include "study/figures.h"
#include "study/labels.h"
#include "study/summary.h"
#include "study/synthetic.h"
#include "support/error_text.h"
#include "support/temp_dir.h"
#include "support/xml.h"

namespace etr {
namespace {

namespace fs = std::filesystem;
using study::Record;
using study::Status;
using test::simple_record;
using test::xml_problem;

// Returns what is wrong with the page's body as XML; "" if nothing. The head is not XML, because
// its elements need no end tags.
std::string page_problem(const std::string& page) {
  const size_t begin = page.find("<body>"), end = page.find("</body>");
  if (begin == std::string::npos || end == std::string::npos) return "there is no body";
  return xml_problem(std::string_view(page).substr(begin, end + 7 - begin));
}

void put_records(const std::string& folder, const std::vector<Record>& records) {
  fs::create_directories(folder);
  std::ofstream file(folder + "/trials.jsonl");
  for (const Record& record : records) file << to_json(record).dump() << "\n";
}

struct Written {
  test::TempDir dir;
  std::string page;
  std::set<std::string> figures;

  Written(const study::Outline& study, const std::vector<Record>& records) {
    if (records.empty()) put_records(dir.path("out"), {});  // a study that has just begun
    study::write_study_report(study, records, dir.path("out"));
    page = platform::read_file(dir.path("out/report.html"));
    for (const auto& entry : fs::directory_iterator(dir.path("out/figures")))
      if (entry.path().extension() == ".svg") figures.insert(entry.path().stem().string());
  }
  std::string file(const std::string& name) const {
    return platform::read_file(dir.path("out/" + name));
  }
  void expect_well_formed() const {
    EXPECT_EQ(page_problem(page), "");
    for (const std::string& name : figures) {
      const std::string svg = file("figures/" + name + ".svg");
      EXPECT_EQ(xml_problem(svg), "") << name;
      EXPECT_EQ(svg.find("='nan"), std::string::npos) << name;
      EXPECT_EQ(svg.find("='inf"), std::string::npos) << name;
    }
  }
};

TEST(StudyReport, WritesFilesAndFiguresThatSuitTheLabels) {
  const Written echo(test::echo_study(), test::echo_study_records());
  echo.expect_well_formed();
  EXPECT_EQ(echo.figures,
            (std::set<std::string>{"best_metric", "curves", "rate", "spread", "to_target_fresh",
                                   "to_target_seconds", "to_target_steps", "trials"}));
  EXPECT_EQ(parse_json(echo.file("results.json"), "results")["conditions"].size(), 22u);
  EXPECT_EQ(echo.file("figures/rate.svg").find("linear rule"), std::string::npos)
      << "x is not the batch size";
  EXPECT_FALSE(echo.file("conditions.csv").empty());
  EXPECT_FALSE(echo.file("trials.csv").empty());
  EXPECT_NE(echo.page.find("Echo variants on CIFAR-10"), std::string::npos);
  EXPECT_NE(echo.page.find("synthetic device"), std::string::npos);

  const Written batch(test::batch_study(), test::batch_study_records());
  batch.expect_well_formed();
  EXPECT_TRUE(batch.figures.contains("scaling"));
  EXPECT_NE(batch.file("figures/rate.svg").find("linear rule"), std::string::npos);
  EXPECT_NE(batch.page.find("Perfect scaling up to"), std::string::npos);
}

// The page loads nothing. Its links lead to files beside it.
TEST(StudyReport, PagesAreSelfContained) {
  const Written written(test::echo_study(), test::echo_study_records());
  for (const char* outside : {"src=", "@import", "url(http", "<script", "<link", "href='http"})
    EXPECT_EQ(written.page.find(outside), std::string::npos) << outside;
}

TEST(StudyReport, IdsAreUniqueInThePage) {
  const Written written(test::echo_study(), test::echo_study_records());
  std::set<std::string> ids;
  size_t count = 0;
  for (size_t at = written.page.find(" id='"); at != std::string::npos;
       at = written.page.find(" id='", at + 1), ++count)
    ids.insert(written.page.substr(at + 5, written.page.find('\'', at + 5) - at - 5));
  EXPECT_GT(count, 20u);
  EXPECT_EQ(ids.size(), count);
}

TEST(StudyReport, HostileLabelsStayText) {
  const std::string hostile = "<script>alert('x')</script> & \"q\" \x01 ,\n";
  std::vector<Record> records;
  for (int i = 0; i < 3; ++i) {
    records.push_back(
        simple_record({{hostile, i}, {"other", cat(hostile, i % 2)}}, 0, 0, 100 + i, 1.2));
    records.back().point = {{hostile, 0.1 * (i + 1)}};
    records.back().device = records.back().version = records.back().workload = hostile;
  }
  records[2].status = Status::failed;
  records[2].error = hostile;
  study::Outline study = test::outline(hostile, 1.5);
  study.name = study.description = hostile;
  const Written written(study, records);
  written.expect_well_formed();
  EXPECT_EQ(written.page.find("<script"), std::string::npos);
  EXPECT_GT(written.figures.size(), 2u);
}

TEST(StudyReport, StrangeRecordsAreShown) {
  const double nan = std::nan("");
  std::vector<Record> bad;
  for (uint64_t i = 0; i < 4; ++i) {
    bad.push_back(simple_record({{"factor", i}}, 0, 0, {}, nan));
    bad.back().status = Status::diverged;
    bad.back().spent.seconds = nan;
    bad.back().curve[1].loss = INFINITY;
  }
  const study::Outline study = test::outline("w", 1.5);
  const Written none(study, bad);
  none.expect_well_formed();
  EXPECT_NE(none.page.find("no trial was feasible"), std::string::npos);

  const Written one(study, {simple_record(Json::object(), 0, 0, 100, 1.2)});
  one.expect_well_formed();
  EXPECT_TRUE(one.figures.contains("to_target_fresh"));

  const Written nothing(study, {});
  nothing.expect_well_formed();
  EXPECT_TRUE(nothing.figures.empty());
  EXPECT_NE(nothing.page.find("No trial has finished yet"), std::string::npos);

  const Written no_target(test::outline("w"), {simple_record({{"a", 1}}, 0, 0, {}, 1.2)});
  no_target.expect_well_formed();
  EXPECT_FALSE(no_target.figures.contains("to_target_fresh"));
}

TEST(StudyReport, HasRoomFor200Conditions) {
  std::vector<Record> records;
  for (int i = 0; i < 200; ++i)
    for (uint64_t trial = 0; trial < 3; ++trial)
      records.push_back(
          simple_record({{"case", cat("case ", i)}, {"kind", "a long name that is the same"}}, 0,
                        trial, 1000 + i, 1 + 0.001 * i));
  const Written written(test::outline("w", 1.5), records);
  written.expect_well_formed();
  EXPECT_EQ(parse_json(written.file("results.json"), "results")["conditions"].size(), 200u);
  EXPECT_NE(written.page.find("The best 60 of 200 conditions are shown."), std::string::npos);
  EXPECT_NE(written.page.find("case 199"), std::string::npos);  // in the table
}

TEST(StudyReport, AnotherReportReplacesTheFiguresOfTheLastOne) {
  test::TempDir dir;
  const std::string folder = dir.path("out");
  study::Outline study = test::echo_study();
  const auto records = test::echo_study_records();
  for (const Record& record : records)
    study.objectives[0].spaces[study::label_key(record.condition)] = {};
  put_records(folder, records);
  study.figures = {{{"kind", "curves"}}, {{"kind", "spread"}}};
  study::write_study_report(study, records, folder);
  std::ofstream(folder + "/figures/mine.svg") << "not of a report";
  study.figures = {{{"kind", "curves"}}, {{"kind", "rate"}}};
  study::write_study_report(study, records, folder);
  EXPECT_FALSE(fs::exists(folder + "/figures/spread.svg"));
  EXPECT_FALSE(fs::exists(folder + "/figures/spread.csv"));
  EXPECT_TRUE(fs::exists(folder + "/figures/curves.svg"));
  EXPECT_TRUE(fs::exists(folder + "/figures/rate.csv"));
  EXPECT_TRUE(fs::exists(folder + "/figures/mine.svg"));
  // Names that lead out of the folder are ignored.
  std::ofstream(folder + "/outside.svg") << "x";
  std::ofstream(folder + "/results.json") << R"({"figures": ["../outside", 3, ""]})";
  study::write_study_report(study, records, folder);
  EXPECT_TRUE(fs::exists(folder + "/outside.svg"));
  std::ofstream(folder + "/results.json") << "{";
  study::write_study_report(study, records, folder);
  EXPECT_TRUE(fs::exists(folder + "/figures/mine.svg"));
}

TEST(StudyReport, WritesIntoNoFolderOfOthers) {
  test::TempDir dir;
  const auto problem = [&](const std::string& name) -> std::string {
    study::Outline study = test::outline("w", 1.5);
    study.objectives[0].spaces[study::label_key({{"a", 1}})] = {};
    try {
      study::write_study_report(study, {}, dir.path(name));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::state);
      EXPECT_FALSE(fs::exists(dir.path(name + "/report.html")));
      return error.what();
    }
    return "";
  };
  fs::create_directories(dir.path("photos/figures"));
  std::ofstream(dir.path("photos/figures/photo.svg")) << "x";
  EXPECT_NE(problem("photos").find("holds no study, but 'figures'"), std::string::npos);
  EXPECT_TRUE(fs::exists(dir.path("photos/figures/photo.svg")));
  put_records(dir.path("other"), {simple_record({{"a", 2}}, 0, 0, 100, 1.2)});
  EXPECT_NE(problem("other").find("holds another study"), std::string::npos);
  put_records(dir.path("extended"), {simple_record({{"a", 2}}, 0, 0, 100, 1.2),
                                     simple_record({{"a", 1}}, 0, 0, 100, 1.2)});
  EXPECT_EQ(problem("extended"), "");
  put_records(dir.path("begun"), {});
  EXPECT_EQ(problem("begun"), "") << "no trial has finished yet";
}

TEST(StudyReport, IsOfAFolderThatHasAStudy) {
  test::TempDir dir;
  fs::create_directories(dir.path("empty"));
  for (const char* name : {"empty", "new"}) try {
      study::write_study_report(test::echo_study(), {}, dir.path(name));
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::not_found);
      EXPECT_NE(std::string(error.what()).find(cat("there is no study in '", dir.path(name))),
                std::string::npos)
          << error.what();
    }
  EXPECT_TRUE(fs::is_empty(dir.path("empty")));
  EXPECT_FALSE(fs::exists(dir.path("new")));
}

TEST(StudyReport, SaysWhereOnlyTheConditionReachedTheTarget) {
  std::vector<Record> records;
  for (uint64_t search = 0; search < 3; ++search) {
    records.push_back(simple_record({{"variant", "none"}}, search, 0, {}, 1.9));
    records.push_back(simple_record({{"variant", "slow"}}, search, 0, 200, 1.4));
    records.push_back(simple_record({{"variant", "fast"}}, search, 0,
                                    search < 2 ? std::optional(100.0) : std::nullopt, 1.4));
  }
  const Written written(test::outline("w", 1.5), records);
  written.expect_well_formed();
  EXPECT_NE(written.page.find("<b>fast</b> reached the target in 2 of 3 searches, its baseline, "
                              "none, in 0."),
            std::string::npos);
  EXPECT_NE(written.page.find("Speed-up over baseline'><span>∞"), std::string::npos);
  EXPECT_EQ(written.page.find("inf<"), std::string::npos);
}

// If all trials end at the target, best metrics say little more than that it was reached.
TEST(StudyReport, TrialsThatEndAtTheTargetAreShownByTheirScores) {
  auto records = test::echo_study_records();
  for (Record& record : records)
    if (record.to_target) record.spent = *record.to_target;
  const Written written(test::echo_study(), records);
  written.expect_well_formed();
  EXPECT_FALSE(written.figures.contains("best_metric"));
  EXPECT_TRUE(written.figures.contains("spread_fresh"));
  EXPECT_NE(written.page.find("where a trial ends"), std::string::npos);
}

TEST(StudyReport, FiguresCanBeNamed) {
  study::Outline study = test::echo_study();
  study.figures = {{{"kind", "to_target"}, {"x", "variant"}, {"panel", "batch"}, {"name", "bars"}},
                   {{"kind", "spread"}, {"clock", "steps"}},
                   {{"kind", "curves"}, {"workload", "another"}}};
  const Written written(study, test::echo_study_records());
  written.expect_well_formed();
  EXPECT_EQ(written.figures, (std::set<std::string>{"bars", "spread_steps"}));
}

TEST(StudyReport, MistakesInFiguresAreNamedBeforeAnythingIsWritten) {
  const auto records = test::echo_study_records();
  const auto message = [&](const Json& figures) -> std::string {
    test::TempDir dir;
    study::Outline study = test::echo_study();
    study.figures = figures;
    try {
      study::write_study_report(study, records, dir.path("out"));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid_argument);
      EXPECT_FALSE(fs::exists(dir.path("out")));
      return error.what();
    }
    return "no error";
  };
  const auto expect = [&](const Json& figure, const char* part) {
    EXPECT_NE(message(Json::array({figure})).find(part), std::string::npos)
        << message(Json::array({figure}));
  };
  expect({{"kind", "to_taget"}}, "to_target");
  expect({{"kind", "to_target"}, {"clocks", "fresh"}}, "has no key 'clocks'");
  expect({{"kind", "curves"}, {"panel", "factor"}},
         "figures[0]: a figure of kind 'curves' has no key 'panel'");
  expect({{"kind", "rate"}, {"clock", "steps"}}, "has no key 'clock'");
  expect({{"kind", "to_target"}, {"clock", "freh"}}, "fresh");
  expect({{"kind", 3}}, "'kind' is 3");
  expect(7, "figures[0] is 7");
  EXPECT_NE(message("x").find("not a list"), std::string::npos);
}

}  // namespace
}  // namespace etr
