// Compressed image -> field "image", u8 [H, W, C].
#include <algorithm>

#include "codec/image_codec.h"
#include "core/error.h"
#include "pipeline/stage.h"

namespace etr::stages {
namespace {

using namespace codec;
using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"field", OptionType::string, "\"\"",
     "field with the compressed image; empty takes png, jpg, jpeg or eti, whichever is there"},
    {"channels", OptionType::string, "\"as_stored\"", "convert to gray or RGB", 0, 0, "",
     "as_stored|gray|rgb"},
    {"least_side", OptionType::integer, "-1",
     "JPEGs may come out at 1/2, 1/4 or 1/8 of their size while the shorter side keeps so many "
     "pixels, which is quicker in front of a stage that shrinks; 0: in full; -1: twice what a "
     "'resize' or 'random_resized_crop' that comes next makes of it, else in full",
     -1, 1e9, "pixels"},
    {"max_pixels", OptionType::integer, "268435456", "larger images are an error", 1, 1 << 30,
     "pixels"},
    {"max_chunk_bytes", OptionType::integer, "2147483648", "PNGs with a larger chunk are an error",
     1, 2147483648.0, "bytes"},
};

class Decode final : public MapStage {
 public:
  Decode(const Options& options, const StageContext&)
      : field_(options.string("field")),
        max_pixels_(options.integer("max_pixels")),
        max_chunk_bytes_(options.integer("max_chunk_bytes")),
        least_side_(options.integer("least_side")) {
    const std::string channels = options.string("channels");
    channels_ = channels == "gray"  ? Channels::gray
                : channels == "rgb" ? Channels::rgb
                                    : Channels::as_stored;
  }

  void process(Item& item, uint64_t) const override {
    const std::string name = field_.empty() ? find_image(item) : field_;
    Tensor image = decode_image(require_field(item, name).bytes(), channels_, max_pixels_,
                                max_chunk_bytes_, std::max<int64_t>(least_side_, 0));
    item.remove(name);
    item.set("image", std::move(image));
  }

  void followed_by(const MapStage& next) override {
    if (least_side_ < 0) least_side_ = next.sufficient_side().value_or(0);
  }

 private:
  static std::string find_image(const Item& item) {
    for (const char* name : {"png", "jpg", "jpeg", "eti"})
      if (item.find(name)) return name;
    require_field(item, "png, jpg, jpeg or eti");  // throws, listing what there is
    return "";
  }

  const std::string field_;
  const int64_t max_pixels_, max_chunk_bytes_;
  int64_t least_side_;
  Channels channels_;
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec decode_stage;
const StageSpec decode_stage{"decode", "PNG, JPEG or a fast shard's image to [H, W, C] of u8",
                             StageKind::map, stages::kOptions, make_stage<stages::Decode>};

}  // namespace etr::pipeline
