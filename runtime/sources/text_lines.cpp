// Lines of text files, plain, .gz or .zst, as the field "text": u8 [bytes].
#include "core/text.h"
#include "sources/line_source.h"

namespace etr::sources {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"pattern", OptionType::string, nullptr, "path of the files, may contain globs and braces", 0,
     0, "path"},
    {"skip_empty", OptionType::boolean, "true", "skip lines that contain only spaces"},
    kShuffleShardsOption,
    kMaxRatioOption,
    kMaxLineOption,
};

class TextLines final : public LineSource {
 public:
  TextLines(const Options& options, const StageContext& context)
      : LineSource(options, context), skip_empty_(options.boolean("skip_empty")) {}

 protected:
  bool read(Item& item) override {
    do
      if (!next_line(line_)) return false;
    while (skip_empty_ && trim(line_).empty());
    item.fields.clear();
    item.fields.push_back({"text", Tensor::text(line_)});
    item.origin = origin(current_key());
    return true;
  }

 private:
  const bool skip_empty_;
  std::string line_;
};

}  // namespace
}  // namespace etr::sources

namespace etr::pipeline {

extern const StageSpec text_lines_stage;
const StageSpec text_lines_stage{"text_lines", "lines of text files", StageKind::source,
                                 sources::kOptions, make_stage<sources::TextLines>};

}  // namespace etr::pipeline
