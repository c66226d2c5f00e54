// MNIST's IDX files, plain, .gz or .zst: images u8 [N, H, W] or [N, H, W, C], labels u8 [N]. Sample
// i of both belongs together. Format: http://yann.lecun.com/exdb/mnist
#include <cstring>

#include "core/error.h"
#include "io/byte_stream.h"
#include "sources/indexed_source.h"

namespace etr::sources {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"images", OptionType::string, nullptr,
     "IDX file with the images: u8 [N, H, W] or [N, H, W, C]", 0, 0, "path"},
    {"labels", OptionType::string, "\"\"", "IDX file with the labels: u8 [N]; empty for none", 0, 0,
     "path"},
    kShuffleOption,
};

constexpr uint64_t kMostBytes = uint64_t{1} << 36;  // of an array; a guard against overflow

struct IdxFile {
  Shape shape;  // with the leading N
  io::Block file;
  size_t header_bytes = 0;

  size_t sample_bytes() const {
    return shape[0] > 0 ? static_cast<size_t>(element_count(shape) / shape[0]) : 0;
  }
  std::shared_ptr<const std::byte> sample(uint64_t index) const {
    return {file.data, file.data.get() + header_bytes + index * sample_bytes()};
  }
};

uint32_t big_endian(const std::byte* p) {
  uint32_t out = 0;
  for (int i = 0; i < 4; ++i) out = out << 8 | std::to_integer<uint32_t>(p[i]);
  return out;
}

IdxFile open_idx(const std::string& path, const io::RemoteOptions& remote) {
  constexpr int kU8 = 8;
  IdxFile out;
  out.file = io::read_whole(path, io::kWholeFileLimit, remote);
  const auto bytes = out.file.bytes();
  const auto bad = [&](const auto&... why) { fail(Code::corrupt_data, "'", path, "': ", why...); };
  if (bytes.size() < 4 || bytes[0] != std::byte{0} || bytes[1] != std::byte{0})
    bad("not an IDX file (it begins with other bytes than 0 0)");
  const int type = std::to_integer<int>(bytes[2]), rank = std::to_integer<int>(bytes[3]);
  if (type != kU8)
    fail(Code::unsupported, "'", path, "': IDX type ", type, "; only u8 (8) is read");
  if (rank < 1 || rank > 4) bad("an array of ", rank, " axes; expected 1 to 4");
  out.header_bytes = 4 + 4 * static_cast<size_t>(rank);
  if (bytes.size() < out.header_bytes) bad("the file ends in its header");
  uint64_t needed = out.header_bytes, elements = 1;
  for (int i = 0; i < rank; ++i) {
    const uint32_t extent = big_endian(bytes.data() + 4 + 4 * i);
    out.shape.push_back(extent);
    elements *= extent;
    if (elements > kMostBytes) bad("an array of more than ", kMostBytes, " bytes");
  }
  needed += elements;
  if (bytes.size() < needed)
    bad("it has ", bytes.size(), " bytes, but ", shape_text(out.shape), " needs ", needed,
        "; the file is truncated");
  return out;
}

class Idx final : public IndexedSource {
 public:
  Idx(const Options& options, const StageContext& context)
      : IndexedSource(options, context),
        images_path_(options.string("images")),
        labels_path_(options.string("labels")) {}

 protected:
  uint64_t count() override {
    if (!images_.file.data) open();
    return static_cast<uint64_t>(images_.shape[0]);
  }

  std::vector<std::string> paths() const override {
    if (labels_path_.empty()) return {images_path_};
    return {images_path_, labels_path_};
  }

  void read(uint64_t index, Item& item) override {
    item.origin = std::make_shared<Origin>(Origin{shard_, std::to_string(index)});
    const Shape& shape = images_.shape;
    const Shape sample{shape[1], shape[2], shape.size() == 4 ? shape[3] : 1};
    item.fields.push_back({"image", Tensor(DType::u8, sample, images_.sample(index))});
    if (labels_.file.data)
      item.fields.push_back(
          {"label", Tensor::scalar(DType::i32, std::to_integer<int32_t>(*labels_.sample(index)))});
  }

 private:
  void open() {
    IdxFile images = open_idx(images_path_, remote());
    if (images.shape.size() < 3)
      fail(Code::invalid_argument, "'", images_path_, "' holds ", shape_text(images.shape),
           "; images are [N, H, W] or [N, H, W, C]. Are labels and images swapped?");
    if (!labels_path_.empty()) {
      labels_ = open_idx(labels_path_, remote());
      if (labels_.shape.size() != 1 || labels_.shape[0] != images.shape[0])
        fail(Code::invalid_argument, "'", labels_path_, "' holds ", shape_text(labels_.shape),
             "; the ", images.shape[0], " images of '", images_path_, "' need [", images.shape[0],
             "]");
    }
    images_ = std::move(images);
  }

  const std::string images_path_, labels_path_;
  const std::shared_ptr<const std::string> shard_ = std::make_shared<std::string>(images_path_);
  IdxFile images_, labels_;
};

}  // namespace
}  // namespace etr::sources

namespace etr::pipeline {

extern const StageSpec idx_stage;
const StageSpec idx_stage{"idx", "images and labels from MNIST's IDX files", StageKind::source,
                          sources::kOptions, make_stage<sources::Idx>};

}  // namespace etr::pipeline
