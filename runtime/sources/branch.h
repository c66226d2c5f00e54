// Inner sources: the branches of mix, zip and interleave.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/json_fwd.h"
#include "pipeline/stage.h"

namespace etr::sources {

// A source followed by map stages, which run on the reading thread.
class Branch {
 public:
  // `spec`: {"stage": "folder", ...}, or a list of such a source and map stages. `place`: the
  // branch's index in the stage `owner`. Throws Error(invalid_argument) that names both.
  Branch(const Json& spec, const std::string& owner, size_t place,
         const pipeline::StageContext& context);

  void start_pass(uint64_t epoch, uint64_t pass);
  bool next(pipeline::Item& item);
  Json data();
  Json changed();
  uint64_t stamp(uint64_t record) { return source_->stamp(record); }
  bool skip() { return source_->skip(); }
  std::optional<uint64_t> samples() { return source_->samples(); }
  // Records are not numbered if a stage is random, because a record then differs each time.
  bool numbers_records() const { return source_->numbers_records() && !random_; }
  std::optional<uint64_t> upcoming() { return source_->upcoming(); }
  uint64_t record() const { return source_->record(); }
  double holds_bytes(double sample_bytes) { return source_->holds_bytes(sample_bytes); }

 private:
  std::unique_ptr<pipeline::Source> source_;
  std::vector<std::unique_ptr<pipeline::MapStage>> maps_;
  bool random_ = false;
  uint64_t epoch_ = 0;
};

// The data of the branches' sources, as a list.
Json data_of(std::vector<Branch>& branches);

double holds_bytes_of(std::vector<Branch>& branches, double sample_bytes);

// Creates the branches of the option "sources".
std::vector<Branch> make_branches(const Options& options, const std::string& owner,
                                  const pipeline::StageContext& context);

constexpr OptionSpec kSourcesOption = {
    "sources", OptionType::stages, nullptr,
    "the sources; each is a source, or a list of a source and the stages that process its samples"};

}  // namespace etr::sources
