// Windows of a text for language models: "input" and "target", i32 [length], the target one symbol
// further. Symbols are bytes, or characters numbered by an alphabet.
#include <algorithm>
#include <map>
#include <set>

#include "core/error.h"
#include "io/byte_stream.h"
#include "io/pattern.h"
#include "sources/indexed_source.h"

namespace etr::sources {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"pattern", OptionType::string, nullptr,
     "the files, joined in order: a path with globs and braces", 0, 0, "path"},
    {"length", OptionType::integer, nullptr, "symbols in a window", 1, 1 << 24, "symbols"},
    {"stride", OptionType::integer, "0",
     "symbols between the beginnings of two windows; 0: the length", 0, 1 << 24, "symbols"},
    {"symbols", OptionType::string, "\"bytes\"",
     "bytes (0 to 255), or UTF-8 characters numbered by their place in the alphabet", 0, 0, "",
     "bytes|characters"},
    {"alphabet", OptionType::string, "\"\"",
     "the characters in order; empty: those of the text, sorted. Give validation the training's"},
    {"begin", OptionType::number, "0", "share of the text that is left out at its begin", 0, 1},
    {"end", OptionType::number, "1",
     "share of the text at which windows end: 0.9 leaves a tenth for validation ('begin' 0.9)", 0,
     1},
    kShuffleOption,
};

// Splits UTF-8; a byte that is not part of a valid character is one by itself.
std::vector<std::string> characters(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const auto first = static_cast<unsigned char>(text[0]);
    size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC0 ? 2 : 1;
    for (size_t i = 1; i < length; ++i)
      if (i >= text.size() || (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) length = 1;
    out.emplace_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  return out;
}

class TextWindows final : public IndexedSource {
 public:
  TextWindows(const Options& options, const StageContext& context)
      : IndexedSource(options, context),
        pattern_(options.string("pattern")),
        length_(static_cast<size_t>(options.integer("length"))),
        stride_(options.integer("stride") ? static_cast<size_t>(options.integer("stride"))
                                          : length_),
        bytes_(options.string("symbols") == "bytes"),
        alphabet_(options.string("alphabet")),
        begin_(options.number("begin")),
        end_(options.number("end")) {
    if (begin_ >= end_)
      fail(Code::invalid_argument, "text_windows: 'begin' (", begin_, ") must lie before 'end' (",
           end_, ")");
  }

 protected:
  uint64_t count() override {
    if (symbols_.empty()) load();
    return (symbols_.size() - length_ - 1) / stride_ + 1;
  }

  std::vector<std::string> paths() const override { return paths_; }

  void read(uint64_t index, Item& item) override {
    item.origin =
        std::make_shared<Origin>(Origin{shard_, cat("symbol ", first_ + index * stride_)});
    const int32_t* from = symbols_.data() + index * stride_;
    for (const char* field : {"input", "target"}) {
      Tensor out(DType::i32, {static_cast<int64_t>(length_)});
      std::copy(from, from + length_, out.mutable_view<int32_t>().begin());
      item.fields.push_back({field, std::move(out)});
      ++from;
    }
  }

 private:
  void load() {
    std::string text;
    paths_ = io::expand_pattern(pattern_, remote());
    for (const std::string& path : paths_) {
      const io::Block block = io::read_whole(path, reading());
      text.append(reinterpret_cast<const char*>(block.data.get()), block.size);
    }
    std::vector<int32_t> symbols;
    if (bytes_)
      for (const char c : text) symbols.push_back(static_cast<unsigned char>(c));
    else
      symbols = number(characters(text));
    // The alphabet is that of the whole text, so that all shares of it agree.
    const auto place = [&](double share) {
      return symbols.begin() + static_cast<ptrdiff_t>(share * static_cast<double>(symbols.size()));
    };
    first_ = static_cast<size_t>(place(begin_) - symbols.begin());
    symbols_.assign(place(begin_), place(end_));
    if (symbols_.size() < length_ + 1)
      fail(Code::invalid_argument, "'", pattern_, "' holds ", symbols_.size(), " symbols",
           begin_ > 0 || end_ < 1 ? " there" : "", "; a window of ", length_,
           " and its target need ", length_ + 1);
  }

  std::vector<int32_t> number(const std::vector<std::string>& text) const {
    std::map<std::string, int32_t> places;
    if (alphabet_.empty())
      for (const std::string& c : std::set<std::string>(text.begin(), text.end()))
        places.emplace(c, static_cast<int32_t>(places.size()));
    else
      for (const std::string& c : characters(alphabet_))
        places.emplace(c, static_cast<int32_t>(places.size()));
    std::vector<int32_t> out;
    out.reserve(text.size());
    for (const std::string& c : text) {
      const auto found = places.find(c);
      if (found == places.end())
        fail(Code::invalid_argument, "'", pattern_, "' holds the character '", c,
             "', which is not in the alphabet");
      out.push_back(found->second);
    }
    return out;
  }

  const std::string pattern_;
  const std::shared_ptr<const std::string> shard_ = std::make_shared<std::string>(pattern_);
  const size_t length_, stride_;
  const bool bytes_;
  const std::string alphabet_;
  const double begin_, end_;
  std::vector<std::string> paths_;
  size_t first_ = 0;  // of the share, in the text
  std::vector<int32_t> symbols_;
};

}  // namespace
}  // namespace etr::sources

namespace etr::pipeline {

extern const StageSpec text_windows_stage;
const StageSpec text_windows_stage{"text_windows", "windows of a text for language models",
                                   StageKind::source, sources::kOptions,
                                   make_stage<sources::TextWindows>};

}  // namespace etr::pipeline
