// Calls a function of the program for each sample.
#include "core/error.h"
#include "core/json.h"
#include "pipeline/stage.h"

namespace etr::sources {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"function", OptionType::string, nullptr,
     "name under which your program registered the function with this pipeline"},
};

// The function learns the requested sample and pass from item.ordinal. It ends the pass by leaving
// the item without fields.
class FunctionSource final : public Source {
 public:
  FunctionSource(const Options& options, const StageContext& context) {
    const std::string name = options.string("function");
    if (!context.functions || !context.functions->contains(name))
      fail(Code::not_found, "source: this program registered no function '", name,
           "' with the pipeline; a job file alone cannot provide one");
    function_ = context.functions->at(name);
    shard_ = std::make_shared<std::string>(name);
  }

  Json data() override { return nullptr; }

  void start_pass(uint64_t epoch, uint64_t pass) override {
    epoch_ = epoch;
    pass_ = pass;
    index_ = 0;
  }

  bool next(Item& item) override {
    item.ordinal = pass_ << kPassShift | index_;
    item.origin = std::make_shared<Origin>(Origin{shard_, std::to_string(index_++)});
    const uint64_t ordinal = item.ordinal;
    const auto origin = item.origin;
    function_(item, epoch_);
    item.ordinal = ordinal;
    item.origin = origin;
    return !item.fields.empty();
  }

 private:
  MapFunction function_;
  std::shared_ptr<const std::string> shard_;
  uint64_t epoch_ = 0, pass_ = 0, index_ = 0;
};

}  // namespace
}  // namespace etr::sources

namespace etr::pipeline {

extern const StageSpec source_stage;
const StageSpec source_stage{"source", "calls a function of your program to produce each sample",
                             StageKind::source, sources::kOptions,
                             make_stage<sources::FunctionSource>};

}  // namespace etr::pipeline
