// MNIST's IDX files, plain, .gz or .zst: images u8 [N, H, W] or [N, H, W, C], labels u8 [N]. Sample
// i has image i and label i. Format: http://yann.lecun.com/exdb/mnist
#include <memory>

#include "core/error.h"
#include "io/record_file.h"
#include "sources/indexed_source.h"

namespace etr::sources {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"images", OptionType::string, nullptr,
     "IDX file with the images: u8 [N, H, W] or [N, H, W, C]", 0, 0, "path"},
    {"labels", OptionType::string, "\"\"", "IDX file with the labels: u8 [N]; empty: no labels", 0,
     0, "path"},
    kShuffleOption,
};

struct IdxFile {
  Shape shape;  // including the leading N
  std::unique_ptr<const io::RecordFile> file;
  uint64_t header_bytes = 0, sample_bytes = 0;

  std::shared_ptr<const std::byte> sample(uint64_t index) const {
    return file->read(header_bytes + index * sample_bytes, static_cast<size_t>(sample_bytes));
  }
};

uint32_t big_endian(const std::byte* p) {
  uint32_t out = 0;
  for (int i = 0; i < 4; ++i) out = out << 8 | std::to_integer<uint32_t>(p[i]);
  return out;
}

IdxFile open_idx(const std::string& path, const io::ReadOptions& reading) {
  constexpr int kU8 = 8;
  IdxFile out;
  out.file = std::make_unique<io::RecordFile>(path, reading);
  const uint64_t size = out.file->size();
  const auto bad = [&](const auto&... why) { fail(Code::corrupt_data, "'", path, "': ", why...); };
  if (size < 4) bad("not an IDX file (it has ", size, " bytes)");
  const auto magic = out.file->read(0, 4);
  if (magic.get()[0] != std::byte{0} || magic.get()[1] != std::byte{0})
    bad("not an IDX file (it begins with other bytes than 0 0)");
  const int type = std::to_integer<int>(magic.get()[2]),
            rank = std::to_integer<int>(magic.get()[3]);
  if (type != kU8)
    fail(Code::unsupported, "'", path, "': IDX type ", type, "; only u8 (8) is read");
  if (rank < 1 || rank > 4) bad("an array of ", rank, " axes; expected 1 to 4");
  const size_t extents = 4 * static_cast<size_t>(rank);
  out.header_bytes = 4 + extents;
  if (size < out.header_bytes) bad("the file ends in its header");
  const auto header = out.file->read(4, extents);
  out.sample_bytes = 1;
  for (size_t i = 0; i < extents; i += 4) {
    const uint32_t extent = big_endian(header.get() + i);
    out.shape.push_back(extent);
    if (i > 0 && extent == 0) bad("an axis of length 0");
    if (i > 0 && __builtin_mul_overflow(out.sample_bytes, extent, &out.sample_bytes))
      bad("an array of more than 2^64 bytes");
  }
  const uint64_t there = size - out.header_bytes, samples = static_cast<uint64_t>(out.shape[0]);
  if (samples > there / out.sample_bytes)
    bad("it has ", there, " bytes after the header, but ", shape_text(out.shape),
        " needs more; the file is truncated");
  if (there > samples * out.sample_bytes)
    bad("it has ", there, " bytes after the header, but ", shape_text(out.shape), " takes ",
        samples * out.sample_bytes, "; the number of samples or the file is wrong");
  return out;
}

class Idx final : public IndexedSource {
 public:
  Idx(const Options& options, const StageContext& context)
      : IndexedSource(options, context),
        images_path_(options.string("images")),
        labels_path_(options.string("labels")) {}

  double holds_bytes(double) override {
    size_t sum = 0;
    for (const IdxFile* idx : {&images_, &labels_})
      if (idx->file) sum += idx->file->held_bytes();
    return static_cast<double>(sum);
  }

 protected:
  uint64_t count() override {
    if (!images_.file) open();
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
    if (labels_.file)
      item.fields.push_back(
          {"label",
           Tensor::scalar(DType::i32, std::to_integer<int32_t>(*labels_.sample(index).get()))});
  }

 private:
  void open() {
    IdxFile images = open_idx(images_path_, reading());
    check_record(images_path_, images.sample_bytes);
    if (images.shape.size() < 3)
      fail(Code::invalid_argument, "'", images_path_, "' holds ", shape_text(images.shape),
           "; images are [N, H, W] or [N, H, W, C]. Are labels and images swapped?");
    if (!labels_path_.empty()) {
      labels_ = open_idx(labels_path_, reading());
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
const StageSpec idx_stage{"idx", "reads images and labels from MNIST's IDX files",
                          StageKind::source, sources::kOptions, make_stage<sources::Idx>};

}  // namespace etr::pipeline
