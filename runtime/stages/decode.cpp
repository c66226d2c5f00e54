// Compressed image -> field "image", u8 or u16 [H, W, C].
#include <algorithm>
#include <atomic>

#include "codec/image_codec.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "pipeline/stage.h"

namespace etr::stages {
namespace {

using namespace codec;
using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"field", OptionType::string, "\"\"",
     "field with the compressed image (case-insensitive); empty: png, jpg, jpeg or eti, whichever "
     "is present"},
    {"channels", OptionType::string, "\"as_stored\"", "convert to gray or RGB", 0, 0, "",
     "as_stored|gray|rgb"},
    {"min_side", OptionType::integer, "-1",
     "JPEGs may be decoded at 1/2, 1/4 or 1/8 of their size, as long as the shorter "
     "side has at least this many pixels then; this is faster before a stage that "
     "shrinks images; 0: always full size; -1: twice the size that a following "
     "'resize' or 'random_resized_crop' produces, otherwise full size",
     -1, 1e9, "pixels", "", "least_side"},
    {"max_pixels", OptionType::integer, "268435456", "larger images are an error", 1, 1 << 30,
     "pixels"},
    {"max_chunk_bytes", OptionType::integer, "2147483648", "PNGs with a larger chunk are an error",
     1, 2147483648.0, "bytes"},
    {"max_scans", OptionType::integer, "100", "JPEGs with more scans are an error", 1, 1 << 30,
     "scans"},
    {"orientation", OptionType::string, "\"exif\"",
     "exif: rotate and mirror JPEGs and PNGs as their EXIF data says, so that they are upright; "
     "stored: leave the pixels as they are in the file. Other fields, such as boxes, are not "
     "changed",
     0, 0, "", "exif|stored"},
    {"dtype", OptionType::string, "\"u8\"",
     "u8: 16-bit images are scaled to 8 bits; as_stored: they remain u16", 0, 0, "",
     "u8|as_stored"},
};

class Decode final : public MapStage {
 public:
  Decode(const Options& options, const StageContext& context)
      : field_(options.string("field")), min_side_(options.integer("min_side")) {
    const std::string channels = options.string("channels");
    image_.channels = channels == "gray"  ? Channels::gray
                      : channels == "rgb" ? Channels::rgb
                                          : Channels::as_stored;
    image_.keep_u16 = options.string("dtype") == "as_stored";
    image_.upright = options.string("orientation") == "exif";
    image_.max_pixels = options.integer("max_pixels");
    image_.max_chunk_bytes = options.integer("max_chunk_bytes");
    image_.max_scans = options.integer("max_scans");
    image_.min_side = std::max<int64_t>(min_side_, 0);
    if (context.interrupt)
      image_.cancelled = [interrupt = context.interrupt] { return interrupt->stopped(); };
    if (has_budget(context)) {
      // One image may take the whole budget; several at a time share half of it.
      const auto budget = static_cast<int64_t>(budget_bytes(context));
      memory_ = std::make_unique<ByteGate>(budget / 2, budget);
      image_.memory = memory_.get();
    }
  }

  void process(Item& item, uint64_t) const override {
    const std::string name = field_.empty() ? find_image(item) : name_there(item, field_);
    const Tensor& stored = require_field(item, name);
    if (name != "image" && item.find("image"))
      fail(Code::invalid_argument, "decode would replace the field 'image' by the decoded '", name,
           "'; a function in between can give one of them another name");
    std::string warning;
    Tensor image = decode_image(stored.bytes(), image_, &warning);
    if (!warning.empty()) warn(item, warning);
    item.remove(name);
    item.set("image", std::move(image));
  }

  void followed_by(const MapStage& next) override {
    if (min_side_ < 0) image_.min_side = next.sufficient_side().value_or(0);
  }

 private:
  // Returns the field's name as it is written: fields are named by extensions, which cameras write
  // in capitals. Returns `name` if there is no such field.
  static std::string name_there(const Item& item, const std::string& name) {
    if (item.find(name)) return name;
    for (const Field& field : item.fields)
      if (lower_case(field.name) == lower_case(name)) return field.name;
    return name;
  }

  static std::string find_image(const Item& item) {
    for (const char* name : {"png", "jpg", "jpeg", "eti"})
      if (item.find(name)) return name;
    for (const char* name : {"png", "jpg", "jpeg"})
      if (std::string there = name_there(item, name); item.find(there)) return there;
    require_field(item, "png, jpg, jpeg or eti");  // throws, listing the existing fields
    return "";
  }

  // Warns only once: a data set from one camera may have thousands of such images.
  void warn(const Item& item, const std::string& what) const {
    if (warned_.exchange(true)) return;
    const bool named = item.origin && item.origin->shard;
    log_line(LogLevel::warning,
             cat("decode: ",
                 named ? cat("'", *item.origin->shard, "', record '", item.origin->key, "': ") : "",
                 "the JPEG is damaged (", what,
                 ") and was decoded as far as its data go; others like it are not mentioned"));
  }

  const std::string field_;
  const int64_t min_side_;
  std::unique_ptr<ByteGate> memory_;
  ImageOptions image_;
  mutable std::atomic<bool> warned_{false};
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec decode_stage;
const StageSpec decode_stage{"decode",
                             "decodes PNG, JPEG or a fast shard's images to [H, W, C] of u8 or u16",
                             StageKind::map,
                             stages::kOptions,
                             make_stage<stages::Decode>,
                             /*random=*/false,
                             /*prepares=*/true};

}  // namespace etr::pipeline
