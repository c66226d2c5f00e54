// A pair of sequences for an encoder-decoder (the model 'transformer'), with a fixed size for all
// samples:
//
//   source         i32 [source_positions]   padded with the end symbol
//   source_length  i32                      number of valid symbols
//   input          i32 [target_positions]   the begin symbol, then the target: the decoder's input
//   target         i32 [target_positions]   the target, the end symbol, then -1: what to predict
#include <algorithm>

#include "core/error.h"
#include "pipeline/stage.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr int64_t kMost = 1 << 24;
constexpr int32_t kIgnored = -1;  // default of the losses

constexpr OptionSpec kOptions[] = {
    {"source", OptionType::string, "\"source\"",
     "field with the tokens of the source: i32 [n], or u8 [n] (text, one token per byte)"},
    {"target", OptionType::string, "\"target\"", "field with the tokens of the target"},
    {"source_positions", OptionType::integer, nullptr, "length to which the source is padded", 1,
     kMost, "tokens"},
    {"target_positions", OptionType::integer, nullptr,
     "length to which input and target are padded; must hold the longest target and the end token",
     1, kMost, "tokens"},
    {"begin_token", OptionType::integer, "0", "token with which the decoder's input begins", 0,
     kMost, "", "", "begin"},
    {"end_token", OptionType::integer, "1", "token with which the target ends", 0, kMost, "", "",
     "end"},
    {"too_long", OptionType::string, "\"error\"",
     "what happens to a sequence that does not fit: error: it is a bad record; cut: it is "
     "truncated",
     0, 0, "", "error|cut"},
};

class SequencePair final : public MapStage {
 public:
  SequencePair(const Options& options, const StageContext&)
      : source_(options.string("source")),
        target_(options.string("target")),
        source_positions_(static_cast<size_t>(options.integer("source_positions"))),
        target_positions_(static_cast<size_t>(options.integer("target_positions"))),
        begin_(static_cast<int32_t>(options.integer("begin_token"))),
        end_(static_cast<int32_t>(options.integer("end_token"))),
        cuts_(options.string("too_long") == "cut") {
    if (source_ == target_)
      fail(Code::invalid_argument, "sequence_pair: 'source' and 'target' are both the field '",
           source_, "'");
  }

  void process(Item& item, uint64_t) const override {
    const std::vector<int32_t> source = symbols(item, source_, source_positions_, 0);
    if (source.empty())
      fail(Code::corrupt_data, "field '", source_, "' is empty; there is nothing to attend to");
    const std::vector<int32_t> target = symbols(item, target_, target_positions_, 1);
    item.remove(source_);
    item.remove(target_);
    Tensor length(DType::i32, {});
    length.mutable_view<int32_t>()[0] = static_cast<int32_t>(source.size());
    std::vector<int32_t> input{begin_}, wanted = target;
    input.insert(input.end(), target.begin(), target.end());
    wanted.push_back(end_);
    item.set("source", filled_up(source, source_positions_, end_));
    item.set("source_length", std::move(length));
    item.set("input", filled_up(input, target_positions_, end_));
    item.set("target", filled_up(wanted, target_positions_, kIgnored));
  }

 private:
  // Reads the symbols of a field, cut if needed so that `more` fit after them.
  std::vector<int32_t> symbols(const Item& item, const std::string& name, size_t positions,
                               size_t more) const {
    const Tensor& from = require_field(item, name);
    const bool bytes = from.dtype() == DType::u8;
    if (from.shape().size() != 1 || !(bytes || from.dtype() == DType::i32))
      fail(Code::invalid_argument, "field '", name, "' is ", dtype_name(from.dtype()), " ",
           shape_text(from.shape()), "; a sequence is i32 or u8 [n]");
    const auto n = static_cast<size_t>(from.count());
    if (n + more > positions && !cuts_)
      fail(Code::invalid_argument, "field '", name, "' has ", n, " tokens",
           more ? " and an end" : "", "; '", more ? "target" : "source", "_positions' is ",
           positions, ": raise it, or cut with \"too_long\": \"cut\"");
    const auto kept = static_cast<std::ptrdiff_t>(std::min(n, positions - more));
    std::vector<int32_t> out;
    if (bytes)
      out.assign(from.view<uint8_t>().begin(), from.view<uint8_t>().begin() + kept);
    else
      out.assign(from.view<int32_t>().begin(), from.view<int32_t>().begin() + kept);
    for (const int32_t symbol : out)
      if (symbol < 0)
        fail(Code::corrupt_data, "field '", name, "' has the token ", symbol,
             "; tokens are numbers from 0");
    return out;
  }

  static Tensor filled_up(const std::vector<int32_t>& from, size_t positions, int32_t value) {
    Tensor out(DType::i32, {static_cast<int64_t>(positions)});
    const auto to = out.mutable_view<int32_t>();
    std::fill(std::copy(from.begin(), from.end(), to.begin()), to.end(), value);
    return out;
  }

  const std::string source_, target_;
  const size_t source_positions_, target_positions_;
  const int32_t begin_, end_;
  const bool cuts_;
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec sequence_pair_stage;
const StageSpec sequence_pair_stage{
    "sequence_pair", "prepares pairs of sequences for an encoder-decoder", StageKind::map,
    stages::kOptions, make_stage<stages::SequencePair>};

}  // namespace etr::pipeline
