// Combines one sample of each source into a sample, for example an image and a mask.
#include <algorithm>

#include "core/error.h"
#include "core/json.h"
#include "core/text.h"
#include "pipeline/rest_lost.h"
#include "sources/branch.h"

namespace etr::sources {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    kSourcesOption,
    {"prefixes", OptionType::string, "\"\"",
     "comma-separated prefixes for the field names of each source: ',mask_'"},
    {"equal_lengths", OptionType::boolean, "true",
     "sources of different lengths are an error; otherwise the shortest source ends the pass"},
};

class Zip final : public Source {
 public:
  Zip(const Options& options, const StageContext& context)
      : branches_(make_branches(options, "zip", context)),
        equal_lengths_(options.boolean("equal_lengths")) {
    const std::string prefixes = options.string("prefixes");
    for (const std::string_view prefix : split(prefixes, ',')) prefixes_.emplace_back(prefix);
    if (prefixes.empty()) prefixes_.assign(branches_.size(), "");
    if (prefixes_.size() != branches_.size())
      fail(Code::invalid_argument, "stage 'zip': ", counted(prefixes_.size(), "prefix", "prefixes"),
           " for ", counted(branches_.size(), "source"));
  }

  Json data() override { return data_of(branches_); }
  double holds_bytes(double sample_bytes) override {
    return holds_bytes_of(branches_, sample_bytes);
  }

  std::optional<uint64_t> samples() override {
    uint64_t least = UINT64_MAX;
    for (Branch& branch : branches_) {
      const auto n = branch.samples();
      if (!n) return std::nullopt;
      least = std::min(least, *n);
    }
    return least;
  }

  void start_pass(uint64_t epoch, uint64_t pass) override {
    index_ = 0;
    over_ = false;
    for (Branch& branch : branches_) branch.start_pass(epoch, pass);
  }

  bool next(Item& item) override {
    std::vector<Item> parts(branches_.size(), item);
    if (!step([&](size_t i) { return branches_[i].next(parts[i]); })) return false;
    item.origin = parts[0].origin;
    for (size_t i = 0; i < parts.size(); ++i) {
      for (Field& field : parts[i].fields) {
        const std::string name = prefixes_[i] + field.name;
        if (item.find(name))
          fail(Code::invalid_argument, "zip: two sources give a field '", name,
               "'; tell them apart by 'prefixes', or rename or drop one");
        item.fields.push_back({name, std::move(field.tensor)});
      }
    }
    return true;
  }
  bool skip() override {
    return step([&](size_t i) { return branches_[i].skip(); });
  }

 private:
  // Advances all sources by one, even if one has a bad record, so that they stay aligned. Ends the
  // pass if one has lost more than that: what belongs together is then unknown.
  template <typename Take>
  bool step(Take&& take) {
    if (over_) return false;
    std::exception_ptr bad;
    size_t ended = 0, which = 0;
    for (size_t i = 0; i < branches_.size(); ++i) {
      try {
        if (take(i)) continue;
        ++ended;
        which = i;
      } catch (const Error& error) {
        if (!bad) bad = std::current_exception();
        if (dynamic_cast<const RestLost*>(&error)) {
          over_ = true;
          throw RestLost(Error(error.code(),
                               cat(error.what(), " (zip ends its pass here: it cannot know which ",
                                   "samples belong together after the lost ones)")));
        }
      }
    }
    over_ = ended > 0;
    if (ended > 0 && ended < branches_.size() && equal_lengths_)
      fail(Code::invalid_argument, "zip: source ", which + 1, " ends after ",
           counted(index_, "sample"),
           ", and others do not; set equal_lengths to false to end there");
    if (ended > 0) return false;
    ++index_;
    if (bad) std::rethrow_exception(bad);
    return true;
  }

  std::vector<Branch> branches_;
  std::vector<std::string> prefixes_;
  const bool equal_lengths_;
  uint64_t index_ = 0;
  bool over_ = false;  // a source has ended or lost records
};

}  // namespace
}  // namespace etr::sources

namespace etr::pipeline {

extern const StageSpec zip_stage;
const StageSpec zip_stage{"zip", "joins samples of several sources into one", StageKind::source,
                          sources::kOptions, make_stage<sources::Zip>};

}  // namespace etr::pipeline
