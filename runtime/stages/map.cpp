// Calls a function of the program on each item: a sample, or, after `batch`, a whole batch.
#include "core/error.h"
#include "pipeline/stage.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"function", OptionType::string, nullptr,
     "name under which your program registered the function with this pipeline"},
};

class Map final : public MapStage {
 public:
  Map(const Options& options, const StageContext& context) {
    const std::string name = options.string("function");
    if (!context.functions || !context.functions->contains(name))
      fail(Code::not_found, "map: this program registered no function '", name,
           "' with the pipeline; a job file alone cannot provide one");
    function_ = context.functions->at(name);
  }

  void process(Item& item, uint64_t epoch) const override { function_(item, epoch); }

 private:
  MapFunction function_;
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec map_stage;
const StageSpec map_stage{"map", "calls a function of your program for each item", StageKind::map,
                          stages::kOptions, make_stage<stages::Map>};

}  // namespace etr::pipeline
