// The folder of a study: which studies may use it, and records that cannot be written.
#include "study/folder.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>

#include "core/platform_files.h"
#include "study/small_study.h"
#include "study/synthetic.h"
#include "support/child.h"
#include "support/error_text.h"

namespace etr::test {
namespace {

namespace fs = std::filesystem;
using study::StudyFolder;
using study::trial_spec;

class Folders : public testing::Test {
 protected:
  std::string folder() const { return dir_.path("study"); }
  Record record(const Study& study, uint64_t trial) const {
    const auto spec = trial_spec(study, {0, 0, 0, trial}, Json());
    Record out = simple_record(study.workloads()[0].conditions[0].labels, 0, trial, 100, 0.5);
    out.workload = study.workloads()[0].name;
    out.digest = spec.digest;
    return out;
  }

  TempDir dir_;
  Json json_ = study_json(dir_);
};

// Writes record 0, then fails to write record 1 because of a limit on the file size, and then
// record 2 although there is room again. Returns 0 if all is as expected, else the number of the
// failed check. To be run in a child process, because it changes the limits of its process.
int fill_disk(const std::string& folder, const Study& study, const std::vector<Record>& records) {
  StudyFolder there(folder, study, false);
  there.write(records[0]);
  const auto size = static_cast<rlim_t>(fs::file_size(there.file(study::kRecordsFile)));
  const rlimit little{size + 50, RLIM_INFINITY}, any{RLIM_INFINITY, RLIM_INFINITY};
  if (setrlimit(RLIMIT_FSIZE, &little) != 0) return 1;
  const std::string full = error_text([&] { there.write(records[1]); });
  if (setrlimit(RLIMIT_FSIZE, &any) != 0) return 2;
  if (full.find("trials.jsonl") == std::string::npos) return 3;
  return error_text([&] { there.write(records[2]); }) == full ? 0
                                                              : 4;  // although there is room now
}

TEST_F(Folders, AfterARecordThatCouldNotBeWrittenNoneIs) {
  const Study study = parsed(json_);
  const std::vector<Record> records = {record(study, 0), record(study, 1), record(study, 2)};
  EXPECT_EQ(in_child([&] { return fill_disk(folder(), study, records); }), 0);
  EXPECT_EQ(records_in(folder()).size(), 1u);
  StudyFolder next(folder(), study, false);
  EXPECT_TRUE(next.earlier({0, 0, 0, 0}));
  EXPECT_FALSE(next.earlier({0, 0, 0, 2}));
  next.write(records[1]);
  EXPECT_EQ(records_in(folder()).size(), 2u);
}

TEST_F(Folders, StudiesAreNotMixed) {
  const Study study = parsed(json_);
  { StudyFolder(folder(), study, false).write(record(study, 0)); }
  json_["for"]["batch"].push_back(64);
  EXPECT_EQ(error_text([&] { StudyFolder(folder(), parsed(json_), false); }), "");
  json_["for"] = {{"size", {16, 32}}};
  json_["set"] = {"pipeline.stages.5.size=${size}"};
  const auto problem = [&] {
    return error_text([&] { StudyFolder(folder(), parsed(json_), false); });
  };
  EXPECT_NE(problem().find("holds another study, which has no condition of 'Bands'"),
            std::string::npos)
      << problem();
  std::ofstream(folder() + "/trials.jsonl") << "";  // no trial has finished
  EXPECT_NE(problem().find("holds another study"), std::string::npos) << problem();
  const std::string before = platform::read_file(folder() + "/study.json");
  std::ofstream(folder() + "/study.json") << "{";
  EXPECT_NE(problem().find("holds a study that cannot be read"), std::string::npos) << problem();
  std::ofstream(folder() + "/study.json") << before;
  EXPECT_EQ(error_text([&] { StudyFolder(folder(), parsed(json_), true); }), "");
  EXPECT_EQ(problem(), "") << "the folder now belongs to this study";
}

TEST_F(Folders, AStudyFileOfOnesOwnIsNotReplaced) {
  const std::string text = json_.dump(), file = folder() + "/" + study::kStudyFile;
  fs::create_directories(folder());
  std::ofstream(file) << text;
  const std::string refusal = error_text([&] { StudyFolder(folder(), Study::load(file), false); });
  EXPECT_NE(refusal.find(file), std::string::npos) << refusal;
  EXPECT_NE(refusal.find("it would be replaced"), std::string::npos) << refusal;
  EXPECT_EQ(platform::read_document(file), text);
}

TEST_F(Folders, OverwritingPutsAsideWhatWasThere) {
  const Study study = parsed(json_);
  { StudyFolder(folder(), study, false).write(record(study, 0)); }
  fs::create_directory(folder() + "/figures");
  for (const char* name : {"/figures/curves.svg", "/figures/mine.svg", "/report.html"})
    std::ofstream(folder() + name) << "x";
  std::ofstream(folder() + "/results.json") << R"({"figures": ["curves"]})";
  const StudyFolder again(folder(), study, true);
  EXPECT_FALSE(again.earlier({0, 0, 0, 0}));
  for (const char* name : {"/figures/curves.svg", "/report.html", "/results.json"})
    EXPECT_FALSE(fs::exists(folder() + name)) << name;
  EXPECT_TRUE(fs::exists(folder() + "/figures/mine.svg"));
  EXPECT_EQ(records_in(folder() + "/replaced").size(), 1u);
  for (const char* name : {"/study.json", "/report.html"})
    EXPECT_TRUE(fs::exists(folder() + "/replaced" + name)) << name;
}

TEST_F(Folders, OverwritingTwiceKeepsTheTrialsPutAside) {
  const Study study = parsed(json_);
  { StudyFolder(folder(), study, false).write(record(study, 0)); }
  { StudyFolder(folder(), study, true); }  // ended before its first trial
  { StudyFolder(folder(), study, true); }
  EXPECT_EQ(records_in(folder() + "/replaced").size(), 1u);
}

// It was killed during --overwrite, or while it wrote its first file.
TEST_F(Folders, AStudyThatWasKilledAsItBeganDoesNotBlockItsFolder) {
  fs::create_directories(folder() + "/replaced");
  std::ofstream(folder() + "/.echotrain-123-1.tmp") << "{";
  for (const bool overwrite : {false, true})
    EXPECT_EQ(error_text([&] { StudyFolder(folder(), parsed(json_), overwrite); }), "");
}

}  // namespace
}  // namespace etr::test
