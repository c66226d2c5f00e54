// Windows of a text for language models: "input" and "target", i32 [length], with the target
// shifted by one symbol. Symbols are bytes, or characters numbered by an alphabet.
#include <algorithm>
#include <filesystem>
#include <utility>

#include "core/error.h"
#include "core/utf8.h"
#include "io/byte_stream.h"
#include "io/pattern.h"
#include "sources/indexed_source.h"

namespace etr::sources {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"pattern", OptionType::string, nullptr,
     "path of the files, may contain globs and braces; the files are joined in order and held in "
     "memory, up to 16 GiB or 'budget_bytes'",
     0, 0, "path"},
    {"length", OptionType::integer, nullptr, "tokens in each window", 1, 1 << 24, "tokens"},
    {"stride", OptionType::integer, "0",
     "tokens between the starts of consecutive windows; 0: the window's length", 0, 1 << 24,
     "tokens"},
    {"tokens", OptionType::string, "\"bytes\"",
     "bytes: values 0 to 255; characters: UTF-8 characters, numbered by their position in the "
     "alphabet",
     0, 0, "", "bytes|characters", "symbols"},
    {"alphabet", OptionType::string, "\"\"",
     "the characters in order, each once; empty: those of the text, sorted. For "
     "validation, give the alphabet of the training text"},
    {"begin", OptionType::number, "0", "fraction of the text that is skipped at its beginning", 0,
     1},
    {"end", OptionType::number, "1",
     "fraction of the text at which the last window ends: 0.9 leaves a tenth for validation "
     "('begin' 0.9)",
     0, 1},
    kShuffleOption,
};

// Iterates over the characters of a text.
class Characters {
 public:
  explicit Characters(std::string_view text) : text_(text) {}

  bool ended() const { return at_ == text_.size(); }
  size_t at() const { return at_; }  // byte offset of the next character

  // The next character; empty if the text is not valid UTF-8 there.
  std::string_view next() {
    const std::string_view out = text_.substr(at_, character_length(text_.substr(at_)));
    at_ += out.size();
    return out;
  }

 private:
  const std::string_view text_;
  size_t at_ = 0;
};

// The code point of a UTF-8 character. Code points sort like their bytes.
uint32_t code_point(std::string_view character) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(character[i]); };
  if (character.size() == 1) return byte(0);
  uint32_t out = byte(0) & (0x7Fu >> character.size());
  for (size_t i = 1; i < character.size(); ++i) out = out << 6 | (byte(i) & 0x3Fu);
  return out;
}

class TextWindows final : public IndexedSource {
  static constexpr size_t kPiece = size_t{1} << 20;  // bytes that are read at a time

 public:
  TextWindows(const Options& options, const StageContext& context)
      : IndexedSource(options, context),
        pattern_(options.string("pattern")),
        length_(static_cast<size_t>(options.integer("length"))),
        stride_(options.integer("stride") ? static_cast<size_t>(options.integer("stride"))
                                          : length_),
        bytes_(options.string("tokens") == "bytes"),
        alphabet_(options.string("alphabet")),
        begin_(options.number("begin")),
        end_(options.number("end")) {
    if (begin_ >= end_)
      fail(Code::invalid_argument, "text_windows: 'begin' (", begin_, ") must lie before 'end' (",
           end_, ")");
  }

  double holds_bytes(double) override {
    return static_cast<double>(text_.size() + numbers_.size() * sizeof numbers_[0]);
  }

 protected:
  uint64_t count() override {
    if (symbols_in_share_ == 0) load();
    return (symbols_in_share_ - length_ - 1) / stride_ + 1;
  }

  std::vector<std::string> paths() const override { return paths_; }

  void read(uint64_t index, Item& item) override {
    item.origin =
        std::make_shared<Origin>(Origin{shard_, cat("symbol ", first_ + index * stride_)});
    size_t begin = index * stride_;
    for (const char* field : {"input", "target"}) {
      size_t from = begin++;
      Tensor out(DType::i32, {static_cast<int64_t>(length_)});
      for (int32_t& symbol : out.mutable_view<int32_t>()) symbol = this->symbol(from++);
      item.fields.push_back({field, std::move(out)});
    }
  }

 private:
  int32_t symbol(size_t i) const {
    return bytes_ ? static_cast<unsigned char>(text_[first_ + i]) : numbers_[i];
  }

  void load() {
    read_text();
    const size_t symbols = bytes_ ? text_.size() : count_characters();
    const auto place = [&](double share) {
      return static_cast<size_t>(share * static_cast<double>(symbols));
    };
    first_ = place(begin_);
    const size_t size = place(end_) - first_;
    if (size < length_ + 1)
      fail(Code::invalid_argument, "'", pattern_, "' holds ", size, " tokens",
           begin_ > 0 || end_ < 1 ? " there" : "", "; a window of ", length_,
           " and its target need ", length_ + 1);
    if (!bytes_) number_characters(size);
    symbols_in_share_ = size;
  }

  // Concatenates the files. Each character later takes 4 bytes for its number in addition to its
  // own bytes.
  void read_text() {
    const io::SizeLimit memory(io::kWholeFileLimit, "16 GiB", reading().budget_bytes);
    const uint64_t most = memory.bytes / (bytes_ ? 1 : 5);
    paths_ = io::expand_pattern(pattern_, remote());
    ends_.clear();
    for (const std::string& path : paths_) io::require_sized(path);
    if (paths_.size() == 1) {
      only_ = whole(paths_[0], most, memory.name);
      text_ = text_in(only_);
      ends_ = {text_.size()};
      return;
    }
    if (!join(most, memory.name))
      fail(Code::unsupported, "'", pattern_, "' holds more than ", most,
           " bytes of text; its memory would go beyond ", memory.bytes, " bytes (", memory.name,
           ")");
    text_ = joined_;
  }

  // `limit` is the name of what `most` is a part of.
  io::Block whole(const std::string& path, uint64_t most, const char* limit,
                  const char* left = "") const {
    const std::string room = cat("the room for text ", left, "in ", limit,
                                 bytes_ ? "" : ", at 5 bytes of memory for each");
    return io::read_whole(path, reading(), {most, room.c_str()});
  }

  static std::string_view text_in(const io::Block& block) {
    return {reinterpret_cast<const char*>(block.data.get()), block.size};
  }

  // Reads the files into joined_. Returns false beyond `most` bytes. Those whose size is not known
  // are read first, so that joined_ gets its memory at once: it would be there twice if it grew.
  bool join(uint64_t most, const char* limit) {
    std::vector<io::Block> read(paths_.size());
    uint64_t total = 0;
    for (size_t i = 0; i < paths_.size() && total <= most; ++i) {
      std::error_code unknown;  // of an address, or of a file that cannot be opened either
      const auto size = std::filesystem::file_size(paths_[i], unknown);
      const bool known = !unknown && !io::is_compressed(paths_[i]);
      if (!known) read[i] = whole(paths_[i], most - total, limit, "that is left ");
      total += known ? size : read[i].size;
    }
    if (total > most) return false;
    joined_.clear();
    joined_.reserve(total + kPiece);
    for (size_t i = 0; i < paths_.size(); ++i) {
      if (!read[i].data && !append(paths_[i], most)) return false;
      joined_ += text_in(std::exchange(read[i], {}));
      ends_.push_back(joined_.size());
    }
    return joined_.size() <= most;
  }

  // Appends a file to joined_. Returns false beyond `most` bytes.
  bool append(const std::string& path, uint64_t most) {
    const auto stream = io::open_stream(path, reading());
    for (size_t got = kPiece; got == kPiece;) {
      const size_t before = joined_.size();
      joined_.resize(before + kPiece);
      got = stream->read(std::as_writable_bytes(std::span(joined_)).subspan(before));
      joined_.resize(before + got);
      if (joined_.size() > most) return false;
    }
    return true;
  }

  // Counts the characters and numbers the distinct ones in `places_`. Uses the whole text, so that
  // the alphabet is the same for all shares.
  size_t count_characters() {
    std::vector<bool> there;  // by code point
    size_t count = 0;
    for (Characters text(text_); !text.ended(); ++count) {
      const size_t at = text.at();
      const std::string_view character = text.next();
      if (character.empty()) refuse_byte(at);
      const uint32_t code = code_point(character);
      if (code >= there.size()) there.resize(code + 1);
      there[code] = true;
    }
    places_ = alphabet_.empty() ? sorted(there) : places_of_alphabet();
    for (uint32_t code = 0; code < there.size(); ++code)
      if (there[code] && (code >= places_.size() || places_[code] < 0)) refuse_character(code);
    return count;
  }

  static std::vector<int32_t> sorted(const std::vector<bool>& there) {
    std::vector<int32_t> places(there.size(), -1);
    int32_t next = 0;
    for (size_t code = 0; code < there.size(); ++code)
      if (there[code]) places[code] = next++;
    return places;
  }

  std::vector<int32_t> places_of_alphabet() const {
    std::vector<int32_t> places;
    int32_t next = 0;
    for (Characters all(alphabet_); !all.ended();) {
      const std::string_view character = all.next();
      if (character.empty())
        fail(Code::invalid_argument, "text_windows: 'alphabet' is not UTF-8 at byte ", all.at());
      const uint32_t code = code_point(character);
      if (code >= places.size()) places.resize(code + 1, -1);
      int32_t& place = places[code];
      if (place >= 0)
        fail(Code::invalid_argument, "text_windows: 'alphabet' holds the character '", character,
             "' twice, at places ", place, " and ", next);
      place = next++;
    }
    return places;
  }

  void number_characters(size_t size) {
    numbers_.reserve(size);
    size_t number = 0;
    for (Characters text(text_); numbers_.size() < size; ++number) {
      const std::string_view character = text.next();
      if (number >= first_) numbers_.push_back(places_[code_point(character)]);
    }
    text_ = {};
    only_ = {};  // frees the memory
    std::string().swap(joined_);
    std::vector<int32_t>().swap(places_);
  }

  [[noreturn]] void refuse_byte(size_t at) const {
    const auto file =
        static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), at) - ends_.begin());
    fail(Code::corrupt_data, "'", paths_[file], "' is not UTF-8 at byte ",
         at - (file == 0 ? 0 : ends_[file - 1]),
         "; convert the text, or set 'tokens' to 'bytes', which accepts any bytes");
  }

  [[noreturn]] void refuse_character(uint32_t code) const {
    for (Characters text(text_); !text.ended();) {
      const std::string_view character = text.next();
      if (code_point(character) == code)
        fail(Code::invalid_argument, "'", pattern_, "' holds the character '", character,
             "', which is not in the alphabet");
    }
    fail(Code::internal, "text_windows: character ", code);
  }

  const std::string pattern_;
  const std::shared_ptr<const std::string> shard_ = std::make_shared<std::string>(pattern_);
  const size_t length_, stride_;
  const bool bytes_;
  const std::string alphabet_;
  const double begin_, end_;
  std::vector<std::string> paths_;
  std::string_view text_;        // of all files; characters are kept only until they are numbered
  io::Block only_;               // memory of text_ if there is one file
  std::string joined_;           // memory of text_ if there are several
  std::vector<size_t> ends_;     // of each file, in text_
  std::vector<int32_t> places_;  // index in the alphabet by code point; -1: not in it
  size_t first_ = 0;             // first symbol of the share, in the text
  size_t symbols_in_share_ = 0;
  std::vector<int32_t> numbers_;  // of the share's characters
};

}  // namespace
}  // namespace etr::sources

namespace etr::pipeline {

extern const StageSpec text_windows_stage;
const StageSpec text_windows_stage{"text_windows", "windows of a text, for language models",
                                   StageKind::source, sources::kOptions,
                                   make_stage<sources::TextWindows>};

}  // namespace etr::pipeline
