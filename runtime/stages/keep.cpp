// Keeps only the named fields, to drop those that batch cannot stack or nobody needs.
#include <algorithm>

#include "core/text.h"
#include "pipeline/names.h"
#include "pipeline/stage.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"fields", OptionType::string, nullptr, "fields to keep: 'image,label'"},
};

class Keep final : public MapStage {
 public:
  Keep(const Options& options, const StageContext&) {
    const std::string fields = options.string("fields");
    for (const std::string_view name : split(fields, ',')) {
      fields_.emplace_back(trim(name));
      check_name(fields_.back(), "a field");
    }
  }

  void process(Item& item, uint64_t) const override {
    for (const std::string& name : fields_) require_field(item, name);
    std::erase_if(item.fields, [&](const Field& field) {
      return std::find(fields_.begin(), fields_.end(), field.name) == fields_.end();
    });
  }

 private:
  std::vector<std::string> fields_;
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec keep_stage;
const StageSpec keep_stage{"keep", "keeps only the named fields", StageKind::map, stages::kOptions,
                           make_stage<stages::Keep>};

}  // namespace etr::pipeline
