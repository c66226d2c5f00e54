// What the figures of a study show, and which figures its file can request.
#include "study/figures.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "core/error.h"
#include "study/labels.h"
#include "study/small_study.h"
#include "study/summary.h"
#include "study/synthetic.h"
#include "support/error_text.h"
#include "support/temp_dir.h"

namespace etr {
namespace {

using study::Record;
using study::Status;
using test::simple_record;

// Returns the figures of these records, by default those that suit their labels.
std::vector<study::StudyFigure> figures_of(const study::Outline& study,
                                           const std::vector<Record>& records) {
  return study::study_figures(study, study::summarize(study, records), records);
}

study::Outline with_figure(const Json& figure, std::optional<double> target = 1.5) {
  study::Outline out = test::outline("w", target);
  out.figures = Json::array({figure});
  return out;
}

TEST(StudyFigures, CrowdedScalingFiguresHaveNoNotes) {
  std::vector<Record> records;
  for (const char* optimizer : {"a", "b", "c", "d"})
    for (const int batch : {16, 64, 256})
      records.push_back(
          simple_record({{"optimizer", optimizer}, {"batch", batch}}, 0, 0, 1000, 1.4));
  const auto figures = figures_of(with_figure({{"kind", "scaling"}}), records);
  ASSERT_EQ(figures.size(), 1u);
  EXPECT_EQ(figures[0].figure.panels.at(0).series.size(), 4u);
  EXPECT_TRUE(figures[0].figure.panels[0].notes.empty());
}

// Returns a trial with this learning rate, and with this momentum if it is searched.
Record tuned(const Json& labels, double rate, std::optional<double> momentum = {}) {
  Record out = simple_record(labels, 0, 0, 100, 1.4);
  out.point = {{"schedule.learning_rate", rate}};
  if (momentum) out.point["optimizer.momentum"] = *momentum;
  return out;
}

TEST(StudyFigures, FiguresShowTheResults) {
  const auto records = test::echo_study_records();
  const auto summary = study::summarize(test::echo_study(), records);
  const auto figures = study::study_figures(test::echo_study(), summary, records);
  const plot::Figure& fresh = figures[0].figure;
  ASSERT_EQ(figures[0].name, "to_target_fresh");
  ASSERT_EQ(fresh.panels.size(), 2u);
  size_t points = 0;
  for (const plot::Panel& panel : fresh.panels)
    for (const plot::Series& series : panel.series)
      for (const plot::Point& point : series.points) {
        ++points;
        bool found = false;
        for (const auto& condition : summary.conditions)
          found = found || (condition.labels["variant"] == series.name &&
                            condition.labels["factor"] == point.x &&
                            condition.to_target[0].median == point.y &&
                            condition.to_target[0].low == point.low &&
                            condition.to_target[0].high == point.high);
        EXPECT_TRUE(found) << series.name << " at " << point.x;
      }
  EXPECT_EQ(points, summary.conditions.size());
  EXPECT_EQ(figures.back().name, "trials");
  EXPECT_EQ(figures.back().figure.panels.size(), 9u);
}

// The first reference is the baseline's median; the second is that median over the factor.
TEST(StudyFigures, TheIdealIsTheBaselineOverTheFactor) {
  const auto records = test::echo_study_records();
  const auto summary = study::summarize(test::echo_study(), records);
  const auto figures = study::study_figures(test::echo_study(), summary, records);
  const plot::Panel& panel = figures[0].figure.panels[0];
  ASSERT_EQ(panel.references.size(), 2u);
  const double base = panel.references[0].line.front().second;
  EXPECT_EQ(base, summary.conditions[0].to_target[0].median);
  for (const auto& [x, y] : panel.references[1].line) EXPECT_NEAR(y, base / x, 1e-6 * base);
}

TEST(StudyFigures, ABaselineWithoutAPlaceAlongXIsALevel) {
  std::vector<Record> records{simple_record({{"echo", "none"}}, 0, 0, 200, 1.4)};
  for (const int buffer : {128, 512})
    records.push_back(simple_record({{"echo", "4 times"}, {"buffer", buffer}}, 0, 0, 100, 1.4));
  study::Outline study = with_figure({{"kind", "to_target"}, {"x", "buffer"}});
  study.baseline = {{"echo", "none"}};
  const plot::Panel panel = figures_of(study, records).at(0).figure.panels.at(0);
  ASSERT_EQ(panel.series.size(), 1u);
  EXPECT_EQ(panel.series[0].name, "4 times");
  EXPECT_EQ(panel.series[0].points.size(), 2u);
  ASSERT_EQ(panel.references.size(), 1u);
  EXPECT_EQ(panel.references[0].name, "baseline");
  EXPECT_EQ(panel.references[0].line,
            (std::vector<std::pair<double, double>>{{128, 200}, {512, 200}}));
}

TEST(StudyFigures, AFigureShowsOnlyTheConditionsThatItNames) {
  std::vector<Record> records;
  for (const char* echo : {"none", "e = 2", "auto"})
    for (const int ratio : {1, 4})
      records.push_back(simple_record({{"echo", echo}, {"R", ratio}}, 0, 0, 100, 1.4));
  const auto names = [&](const Json& only) {
    std::vector<std::string> out;
    for (const auto& made : figures_of(
             with_figure({{"kind", "to_target"}, {"x", "R"}, {"series", "echo"}, {"only", only}}),
             records))
      for (const plot::Series& series : made.figure.panels.at(0).series) out.push_back(series.name);
    return out;
  };
  EXPECT_EQ(names(Json::array()), (std::vector<std::string>{"none", "e = 2", "auto"}));
  EXPECT_EQ(names({{{"echo", "none"}}, {{"echo", "auto"}}}),
            (std::vector<std::string>{"none", "auto"}));
  EXPECT_TRUE(names({{{"echo", "not yet run"}}}).empty());
}

TEST(StudyFigures, ScalingFiguresMarkWhereItEnds) {
  const auto records = test::batch_study_records();
  const auto summary = study::summarize(test::batch_study(), records);
  ASSERT_EQ(summary.scaling.size(), 2u);
  const auto figures = study::study_figures(test::batch_study(), summary, records);
  ASSERT_EQ(figures[0].name, "scaling");
  std::set<std::string> notes;
  for (const plot::Note& note : figures[0].figure.panels[0].notes) notes.insert(note.text);
  EXPECT_EQ(notes.size(), 4u - (notes.contains("useful to ≥ 8,192") ? 1 : 0));
  EXPECT_EQ(figures[0].figure.panels[0].x.scale, plot::Scale::log2);
  EXPECT_EQ(figures[0].figure.panels[0].y.scale, plot::Scale::log2);
}

TEST(StudyFigures, NothingIsKnownBeyondTheLargestBatchThatReachedTheTarget) {
  std::vector<Record> records = test::batch_study_records();
  for (Record& record : records)
    if (record.condition["batch"] > 1024) {
      record.status = Status::missed;
      record.to_target.reset();
    }
  const auto figures = figures_of(test::batch_study(), records);
  ASSERT_EQ(figures[0].name, "scaling");
  std::set<std::string> useful;
  for (const plot::Note& note : figures[0].figure.panels[0].notes)
    if (note.text.find("useful") != std::string::npos) useful.insert(note.text);
  EXPECT_TRUE(useful.contains("useful to ≥ 1,024")) << useful.size();
}

TEST(StudyFigures, ScoresOfTrialsThatWereStoppedAreNotMadeUp) {
  std::vector<Record> records;
  for (uint64_t i = 0; i < 4; ++i)
    records.push_back(
        simple_record({{"a", 1}}, 0, i, i < 2 ? std::optional(100.0) : std::nullopt, 1.4));
  records[2].status = Status::slower;  // records[3] missed the target
  study::Outline study = test::outline("w", 1.5);
  study.figures = {{{"kind", "spread"}, {"clock", "fresh"}}};
  const auto figures = study::study_figures(study, study::summarize(study, records), records);
  ASSERT_EQ(figures.size(), 1u);
  EXPECT_EQ(figures[0].figure.panels[0].series[0].points.size(), 3u);
  EXPECT_NE(figures[0].caption.find("stopped early"), std::string::npos);
}

// Each rule has a condition with a factor of 1, which is its baseline.
TEST(StudyFigures, SeriesWithBaselinesOfTheirOwnLookDifferent) {
  std::vector<Record> records;
  for (const char* rule : {"tuned", "linear"})
    for (const int factor : {1, 2})
      records.push_back(
          simple_record({{"rule", rule}, {"factor", factor}}, 0, 0, 100.0 / factor, 1.4));
  study::Outline study = test::outline("w", 1.5);
  study.figures = {{{"kind", "to_target"}, {"x", "factor"}, {"series", "rule"}}};
  const auto figures = study::study_figures(study, study::summarize(study, records), records);
  ASSERT_EQ(figures.size(), 1u);
  const plot::Panel& panel = figures[0].figure.panels[0];
  ASSERT_EQ(panel.series.size(), 2u);
  EXPECT_NE(panel.series[0].style, panel.series[1].style);
}

TEST(StudyFigures, WithoutXThereIsAColumnForEachPanel) {
  study::Outline study = test::echo_study();
  study.figures = {{{"kind", "to_target"}, {"x", ""}, {"panel", "batch"}},
                   {{"kind", "spread"}, {"panel", "batch"}}};
  const auto records = test::echo_study_records();
  const auto summary = study::summarize(study, records);
  for (const auto& made : study::study_figures(study, summary, records)) {
    const auto& panels = made.figure.panels;
    ASSERT_EQ(panels.size(), 2u) << made.name;
    EXPECT_EQ(panels[0].title, "batch 128");
    EXPECT_EQ(panels[1].title, "batch 1024");
    EXPECT_EQ(panels[0].y.categories.size() + panels[1].y.categories.size(),
              summary.conditions.size());
    for (const std::string& row : panels[0].y.categories)
      EXPECT_EQ(row.find("128"), std::string::npos) << row;
  }
}

TEST(StudyFigures, AxesSayWhatTheTargetIs) {
  const auto records = test::echo_study_records();
  const auto summary = study::summarize(test::echo_study(), records);
  const auto figures = study::study_figures(test::echo_study(), summary, records);
  EXPECT_EQ(figures[0].figure.panels[0].y.label, "Fresh examples to loss < 1.55");
  EXPECT_EQ(figures[0].figure.panels[0].x.label, "Echo factor");
}

TEST(StudyFigures, FiguresAreCheckedBeforeThereAreRecords) {
  const std::vector<study::WorkloadLabels> workloads = {{"w", {{{"factor", 2}}, {{"factor", 4}}}}};
  const auto check = [&](const Json& figure) {
    study::Outline study;
    study.figures = Json::array({figure});
    study::check_figures(study, workloads);
  };
  EXPECT_NO_THROW(study::check_figures(study::Outline(), workloads));
  EXPECT_NO_THROW(check({{"kind", "to_target"}, {"x", "factor"}, {"clock", "steps"}}));
  EXPECT_NO_THROW(check({{"kind", "rate"}, {"workload", "w"}}));
  EXPECT_THROW(check({{"kind", "to_target"}, {"x", "batch"}}), Error);
  EXPECT_NE(test::error_text([&] {
              check({{"kind", "best_metric"}, {"series", "facto"}});
            }).find("no condition has a label 'facto' (did you mean 'factor'?)"),
            std::string::npos);
  EXPECT_THROW(check({{"kind", "ratio"}}), Error);
  EXPECT_THROW(check({{"kind", "rate"}, {"workload", "v"}}), Error);
  EXPECT_THROW(check({{"kind", "rate"}, {"baseline", {{"factor", 3}}}}), Error);
  EXPECT_THROW(check({{"kind", "rate"}, {"baseline", "none"}}), Error);
  EXPECT_NO_THROW(check({{"kind", "rate"}, {"baseline", {{"factor", 4}}}}));
}

TEST(StudyFigures, TheStudysBaselineIsCheckedBeforeThereAreRecords) {
  const std::vector<study::WorkloadLabels> workloads = {
      {"v", {{{"variant", "none"}, {"factor", 1}}, {{"variant", "echo"}, {"factor", 2}}}},
      {"w", {{{"variant", "plain"}}}}};
  const auto problem = [&](const Json& baseline) {
    study::Outline study;
    study.baseline = baseline;
    return test::error_text([&] { study::check_figures(study, workloads); });
  };
  const auto expect = [&](const Json& baseline, const char* part) {
    EXPECT_NE(problem(baseline).find(part), std::string::npos) << problem(baseline);
  };
  EXPECT_EQ(problem({{"variant", "none"}}), "");
  EXPECT_EQ(problem({{"variant", "plain"}}), "") << "one workload has it";
  expect({{"varient", "none"}}, "no condition has a label 'varient' (did you mean 'variant'?)");
  expect({{"variant", "non"}}, "no condition has the label variant=non (did you mean 'none'?)");
  expect({{"variant", "none"}, {"factor", 2}}, "has all of the labels variant=none, factor=2");
  expect("none", "'baseline' is \"none\"; it takes an object");
  expect(Json::object(), "it takes an object");
}

TEST(StudyFigures, AMisspeltConditionOfAFigureIsAnError) {
  const std::vector<study::WorkloadLabels> workloads = {
      {"w", {{{"echo", "none"}, {"R", 1}}, {{"echo", "auto"}, {"R", 1}}}}};
  const auto problem = [&](const Json& only) {
    study::Outline study = with_figure({{"kind", "curves"}, {"only", only}});
    return test::error_text([&] { study::check_figures(study, workloads); });
  };
  EXPECT_EQ(problem({{{"echo", "auto"}}}), "");
  EXPECT_EQ(problem({{{"echo", "auto"}}, {{"echo", "atuo"}}}),
            "figures[0]: 'only[1]': no condition has the label echo=atuo (did you mean 'auto'?)");
  EXPECT_NE(problem({{"echo", "auto"}}).find("not a list of objects with labels"),
            std::string::npos);
}

// Medians are over the best trials of the searches, since most trials of a search are worse than
// its best one.
TEST(StudyFigures, MediansOfSpreadsAreThoseOfTheSearches) {
  std::vector<Record> records;
  for (uint64_t search = 0; search < 3; ++search)
    for (uint64_t trial = 0; trial < 4; ++trial)
      records.push_back(simple_record({{"a", 1}}, search, trial,
                                      100.0 + 10 * double(search) + 1000 * double(trial),
                                      1 + 0.1 * double(trial) + 0.01 * double(search)));
  for (const bool score : {true, false}) {
    Json figure{{"kind", "spread"}};
    if (score) figure["clock"] = "fresh";
    const auto figures = figures_of(with_figure(figure), records);
    ASSERT_EQ(figures.size(), 1u);
    const plot::Panel& panel = figures[0].figure.panels[0];
    EXPECT_EQ(panel.series[0].points.size(), 12u);
    ASSERT_EQ(panel.series[1].points.size(), 1u);
    EXPECT_DOUBLE_EQ(panel.series[1].points[0].x, score ? 110 : 1.01);
    EXPECT_NE(figures[0].caption.find("medians over searches"), std::string::npos);
  }
}

TEST(StudyFigures, ScalingNeedsBatchSizesOrOtherNumbers) {
  const auto problem = [&](const Json& figure, const Json& first, const Json& second) {
    study::Outline study;
    study.figures = Json::array({figure});
    const std::vector<study::WorkloadLabels> workloads = {{"w", {first, second}}};
    return test::error_text([&] { study::check_figures(study, workloads); });
  };
  const Json factors[] = {{{"factor", 1}, {"case", "a"}}, {{"factor", 2}, {"case", "b"}}};
  EXPECT_NE(
      problem({{"kind", "scaling"}}, factors[0], factors[1])
          .find("figures[0]: a figure of kind 'scaling' needs a numeric label with 'batch' in "
                "its name"),
      std::string::npos);
  EXPECT_NE(problem({{"kind", "scaling"}, {"x", "case"}}, factors[0], factors[1]), "");
  EXPECT_EQ(problem({{"kind", "scaling"}, {"x", "factor"}}, factors[0], factors[1]), "");
  EXPECT_EQ(problem({{"kind", "scaling"}}, {{"batch_size", 8}}, {{"batch_size", 16}}), "");
  EXPECT_NE(problem({{"kind", "scaling"}}, {{"batch", "small"}}, {{"batch", "large"}}), "");
}

TEST(StudyFigures, ScalingSaysAgainstWhat) {
  std::vector<Record> records;
  for (const int factor : {1, 2, 4})
    records.push_back(simple_record({{"factor", factor}}, 0, 0, 1000.0 / factor, 1.4));
  EXPECT_TRUE(figures_of(with_figure({{"kind", "scaling"}}), records).empty());
  const auto figures = figures_of(with_figure({{"kind", "scaling"}, {"x", "factor"}}), records);
  ASSERT_EQ(figures.size(), 1u);
  EXPECT_EQ(figures[0].figure.title, "Steps to target against factor");
  EXPECT_NE(figures[0].caption.find("twice the factor halves the steps"), std::string::npos);
  EXPECT_EQ(figures[0].caption.find("batch"), std::string::npos);
}

TEST(StudyFigures, EffectiveRatesNeedTheMomentum) {
  const Json searched{{"kind", "searched"}, {"factor", 1}}, fixed{{"kind", "fixed"}, {"factor", 1}},
      plain{{"kind", "plain"}, {"factor", 1}}, unknown{{"kind", "unknown"}, {"factor", 1}};
  std::vector<Record> records = {tuned(searched, 0.1, 0.5), tuned(fixed, 0.1), tuned(plain, 0.1),
                                 tuned(unknown, 0.1)};
  records[3].point["model.layers.1.momentum"] = 0.9;  // of batch normalization
  study::Outline study = with_figure({{"kind", "rate"}, {"x", "factor"}});
  study.objectives[0].momenta = {{study::label_key(fixed), 0.9}, {study::label_key(plain), 0}};
  const auto figures = figures_of(study, records);
  ASSERT_EQ(figures.size(), 1u);
  const auto& panels = figures[0].figure.panels;
  ASSERT_EQ(panels.size(), 2u);
  EXPECT_EQ(panels[0].title, "");
  EXPECT_EQ(panels[0].y.label, "Learning rate");
  EXPECT_EQ(panels[1].y.label, "Learning rate / (1 − momentum)");
  std::map<std::string, std::vector<double>> shown;
  for (const plot::Panel& panel : panels)
    for (const plot::Series& series : panel.series)
      for (const plot::Point& point : series.points) shown[series.name].push_back(point.y);
  ASSERT_EQ(shown["searched"].size(), 2u);
  EXPECT_DOUBLE_EQ(shown["searched"][1], 0.2);
  ASSERT_EQ(shown["fixed"].size(), 2u);
  EXPECT_DOUBLE_EQ(shown["fixed"][1], 1);
  ASSERT_EQ(shown["plain"].size(), 2u);
  EXPECT_DOUBLE_EQ(shown["plain"][1], 0.1);
  EXPECT_EQ(shown["unknown"].size(), 1u);
  EXPECT_NE(figures[0].caption.find("whose momentum is not known"), std::string::npos);
}

// If all conditions have the same momentum, effective rates would show nothing new.
TEST(StudyFigures, OneMomentumForAllNeedsNoEffectiveRate) {
  std::vector<Record> records = {tuned({{"factor", 1}}, 0.1), tuned({{"factor", 2}}, 0.2)};
  study::Outline study = with_figure({{"kind", "rate"}});
  for (const Record& record : records)
    study.objectives[0].momenta[study::label_key(record.condition)] = 0.9;
  EXPECT_EQ(figures_of(study, records)[0].figure.panels.size(), 1u);
}

TEST(StudyFigures, TheMomentumIsThatOfTheConditionsJob) {
  test::TempDir dir;
  Json json = test::study_json(dir);
  const Json none{{"optimizer.momentum", nullptr}};
  json["job"]["vars"]["friction"] = 0.3;
  const Json drawn{{"optimizer.momentum", nullptr}, {"friction", {{"from", 0.1}, {"to", 0.9}}}};
  json["conditions"] = {
      {{"labels", {{"kind", "searched"}}}},
      {{"labels", {{"kind", "set"}}}, {"set", {"optimizer.momentum=0.5"}}, {"space", none}},
      {{"labels", {{"kind", "default"}}},
       {"set", {R"(optimizer={"optimizer": "sgd"})"}},
       {"space", none}},
      {{"labels", {{"kind", "none"}}},
       {"set", {R"(optimizer={"optimizer": "adam"})"}},
       {"space", none}},
      {{"labels", {{"kind", "variable"}}},
       {"set", {"optimizer.momentum=${friction}"}},
       {"space", drawn}}};
  json["for"] = {{"batch", {16}}};
  const study::Outline outline = study::outline_of(test::parsed(json));
  const auto momentum = [&](const char* kind) -> std::optional<double> {
    const auto& momenta = outline.objectives[0].momenta;
    const auto found = momenta.find(study::label_key({{"kind", kind}, {"batch", 16}}));
    return found == momenta.end() ? std::nullopt : std::optional(found->second);
  };
  EXPECT_EQ(momentum("searched"), std::nullopt);
  EXPECT_EQ(momentum("set"), 0.5);
  EXPECT_EQ(momentum("default"), 0.0);
  EXPECT_EQ(momentum("none"), std::nullopt);
  EXPECT_EQ(momentum("variable"), std::nullopt);
}

// A study's first conditions may lack a label that later ones have.
TEST(StudyFigures, LabelsThatNoConditionHasYetAreLeftOut) {
  const std::vector<Record> begun = {simple_record({{"variant", "none"}}, 0, 0, 100, 1.4)};
  study::Outline study = test::outline("w", 1.5);
  study.figures = {{{"kind", "to_target"}, {"x", "factor"}}, {{"kind", "spread"}}};
  const auto figures = figures_of(study, begun);
  ASSERT_EQ(figures.size(), 1u);
  EXPECT_EQ(figures[0].name, "spread");
  std::vector<Record> later = begun;
  later.push_back(simple_record({{"variant", "echo"}, {"factor", 2}}, 0, 0, 60, 1.4));
  EXPECT_EQ(figures_of(study, later).size(), 2u);
}

TEST(StudyFigures, TheBaselineLooksTheSameInAllFigures) {
  std::vector<Record> records;
  for (const int factor : {2, 4, 1})  // the baseline comes last
    records.push_back(
        simple_record({{"case", cat("case ", factor)}, {"factor", factor}}, 0, 0, 100, 1.4));
  study::Outline study = test::outline("w", 1.5);
  study.baseline = {{"factor", 1}};
  study.figures = {{{"kind", "to_target"}, {"x", "factor"}}, {{"kind", "curves"}}};
  const auto figures = figures_of(study, records);
  ASSERT_EQ(figures.size(), 2u);
  for (const auto& made : figures)
    for (const plot::Panel& panel : made.figure.panels)
      for (const plot::Series& series : panel.series)
        EXPECT_EQ(series.style == 0, series.name.find("case 1") != std::string::npos)
            << made.name << ": " << series.name;
}

TEST(StudyFigures, ANameLooksTheSameInTheFiguresOfAllWorkloads) {
  study::Outline study = test::outline("w", 1.5);
  study.objectives.push_back(test::outline("v", 1.5).objectives[0]);
  std::vector<Record> records;
  const auto add = [&](const char* workload, const char* variant) {
    for (const int factor : {2, 4}) {
      records.push_back(simple_record({{"variant", variant}, {"factor", factor}}, 0, 0, 100, 1.4));
      records.back().workload = workload;
    }
  };
  for (const char* variant : {"examples", "windows", "batches"}) add("w", variant);
  for (const char* variant : {"batches", "sentences"}) add("v", variant);
  for (const char* workload : {"w", "v"})
    study.figures.push_back({{"kind", "to_target"}, {"x", "factor"}, {"workload", workload}});
  const auto figures = figures_of(study, records);
  ASSERT_EQ(figures.size(), 2u);
  std::map<std::string, std::set<int>> styles;
  std::set<int> all;
  for (const auto& made : figures)
    for (const plot::Panel& panel : made.figure.panels)
      for (const plot::Series& series : panel.series)
        if (!series.points.empty())
          styles[series.name].insert(series.style), all.insert(series.style);
  EXPECT_EQ(styles.size(), 4u);
  EXPECT_EQ(styles["batches"].size(), 1u);
  EXPECT_EQ(all.size(), 4u) << "four names, four styles";
}

TEST(StudyFigures, LinearCostsBeginAtZero) {
  std::vector<Record> records;
  for (const int factor : {1, 2, 4})
    records.push_back(simple_record({{"factor", factor}}, 0, 0, 1000 - factor, 1.4));
  for (const char* x : {"factor", ""}) {
    const auto figures = figures_of(with_figure({{"kind", "to_target"}, {"x", x}}), records);
    ASSERT_EQ(figures.size(), 1u);
    const plot::Panel& panel = figures[0].figure.panels[0];
    EXPECT_EQ((*x ? panel.y : panel.x).from, 0) << x;
  }
  records.push_back(simple_record({{"factor", 8}}, 0, 0, 50, 1.4));
  const auto wide = figures_of(with_figure({{"kind", "to_target"}, {"x", "factor"}}), records);
  EXPECT_EQ(wide[0].figure.panels[0].y.scale, plot::Scale::log10);
  EXPECT_TRUE(std::isnan(wide[0].figure.panels[0].y.from));
}

TEST(StudyFigures, RowsShowTheBaseline) {
  std::vector<Record> records;
  for (uint64_t search = 0; search < 2; ++search)
    for (const int factor : {1, 2})
      records.push_back(simple_record({{"factor", factor}}, search, 0,
                                      100.0 / factor + double(search), 1.4 - 0.1 * double(search)));
  const auto cost = figures_of(with_figure({{"kind", "to_target"}, {"x", ""}}), records);
  ASSERT_EQ(cost[0].figure.panels[0].references.size(), 1u);
  EXPECT_EQ(cost[0].figure.panels[0].references[0].name, "baseline");
  for (const auto& [x, y] : cost[0].figure.panels[0].references[0].line) EXPECT_EQ(x, 100.5);
  const auto metric = figures_of(with_figure({{"kind", "best_metric"}, {"x", ""}}), records);
  ASSERT_EQ(metric[0].figure.panels[0].ranges.size(), 1u);
  EXPECT_TRUE(metric[0].figure.panels[0].ranges[0].of_x);
  EXPECT_DOUBLE_EQ(metric[0].figure.panels[0].ranges[0].low, 1.3);
}

TEST(StudyFigures, AccuraciesOfTrialsAreInPercent) {
  std::vector<Record> records = {tuned({{"a", 1}}, 0.1), tuned({{"a", 1}}, 0.2)};
  records[1].trial = 1;
  for (Record& record : records) record.best_metric = 0.4321;
  study::Outline study = with_figure({{"kind", "trials"}}, 0.4);
  study.objectives[0].accuracy = true;
  const auto figures = figures_of(study, records);
  ASSERT_EQ(figures.size(), 1u);
  const plot::Panel& panel = figures[0].figure.panels[0];
  EXPECT_TRUE(panel.y.percent);
  EXPECT_NE(panel.series[0].points[0].text.find("best accuracy 43.21 %"), std::string::npos);
}

TEST(StudyFigures, CaptionsExplainWhatWasNeverReached) {
  std::vector<Record> records = {simple_record({{"factor", 1}}, 0, 0, 100, 1.4),
                                 simple_record({{"factor", 2}}, 0, 0, {}, 1.6)};
  const Json figure{{"kind", "to_target"}, {"x", "factor"}};
  const Json others[] = {{{"kind", "scaling"}, {"x", "factor"}},
                         {{"kind", "spread"}, {"clock", "fresh"}}};
  for (const Json& other : {figure, others[0], others[1]})
    EXPECT_NE(figures_of(with_figure(other), records)[0].caption.find("“never”"), std::string::npos)
        << other;
  records.pop_back();
  EXPECT_EQ(figures_of(with_figure(figure), records)[0].caption.find("“never”"), std::string::npos);
}

}  // namespace
}  // namespace etr
