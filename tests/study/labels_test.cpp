#include "study/labels.h"

#include <gtest/gtest.h>

#include "core/label_text.h"
#include "study/small_study.h"
#include "study/summary.h"
#include "study/synthetic.h"

namespace etr::test {
namespace {

TEST(Labels, AreWrittenAsTheFileHasThem) {
  for (const char* text :
       {"1", "100000", "1000000000000", "-3", "0.1", "1e-05", "0.30000000000000004"})
    EXPECT_EQ(label_text(Json::parse(text)), text);
  EXPECT_EQ(label_text("before augmentation"), "before augmentation");
  EXPECT_EQ(label_text(Json()), "null");
  EXPECT_EQ(labels_text({{"variant", "none"}, {"batch", 100000}}), "variant=none, batch=100000");
}

TEST(Labels, NameAConditionTheSameInStudyAndReport) {
  TempDir dir;
  Json json = study_json(dir);
  json["for"] = {{"batch", {16}}, {"fresh", {100000}}, {"rate", {1e-5, 0.5}}};
  json["set"].push_back("name=n${fresh}");
  const Study study = parsed(json);
  for (const study::Condition& condition : study.workloads()[0].conditions) {
    std::vector<Record> records = {simple_record(condition.labels, 0, 0, 500, 1)};
    records[0].workload = "bands";
    EXPECT_EQ(study::summarize(study::outline_of(study), records).conditions[0].name,
              condition.name);
    EXPECT_EQ(condition.set.back(), "name=n100000");
  }
  EXPECT_EQ(study.workloads()[0].conditions[0].name, "batch=16, fresh=100000, rate=1e-05");
}

TEST(Labels, HaveOneKeyInAnyOrder) {
  const Json one = {{"a", 1}, {"b", "x"}}, other = {{"b", "x"}, {"a", 1}};
  EXPECT_EQ(study::label_key(one), study::label_key(other));
  EXPECT_NE(study::label_key(one), study::label_key({{"a", 1}, {"b", "y"}}));
  EXPECT_TRUE(study::has_labels(one, {{"b", "x"}}));
  EXPECT_FALSE(study::has_labels(one, {{"b", "x"}, {"c", 1}}));
}

}  // namespace
}  // namespace etr::test
