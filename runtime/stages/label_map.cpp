// Maps class names to class numbers: "cat" -> label 0, "dog" -> label 1.
#include <map>

#include "core/error.h"
#include "core/text.h"
#include "pipeline/stage.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"names", OptionType::string, nullptr,
     "class names in the order of their numbers: 'cat,dog,bird'"},
    {"field", OptionType::string, "\"cls\"", "field with the class name as text"},
};

class LabelMap final : public MapStage {
 public:
  LabelMap(const Options& options, const StageContext&) : field_(options.string("field")) {
    const std::string names = options.string("names");
    for (const std::string_view part : split(names, ',')) {
      const std::string name(trim(part));
      if (!numbers_.emplace(name, static_cast<int32_t>(names_.size())).second)
        fail(Code::invalid_argument, "label_map: '", name, "' stands twice among the names");
      names_.push_back(name);
    }
  }

  void process(Item& item, uint64_t) const override {
    const auto text = require_field(item, field_).view<char>();
    const std::string name(trim({text.data(), text.size()}));
    const auto found = numbers_.find(name);
    if (found == numbers_.end())
      fail(Code::corrupt_data, "'", name, "' is not among the names", suggestion(name, names_));
    item.remove(field_);
    item.set("label", Tensor::scalar(DType::i32, found->second));
  }

 private:
  const std::string field_;
  std::vector<std::string> names_;
  std::map<std::string, int32_t> numbers_;
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec label_map_stage;
const StageSpec label_map_stage{"label_map", "converts class names to class numbers",
                                StageKind::map, stages::kOptions, make_stage<stages::LabelMap>};

}  // namespace etr::pipeline
