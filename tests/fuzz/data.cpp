// Fuzz targets for everything that reads what others wrote. One program a target: ETR_FUZZ_TARGET
// is its function. libFuzzer finds crashes, hangs and runaway memory.
//
//   build-fuzz/tests/fuzz/fuzz_tar tests/fuzz/corpus/tar -max_total_time=60
#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors.h"
#include "codec/image_codec.h"
#include "core/error.h"
#include "core/json.h"
#include "core/parse_json.h"
#include "core/text.h"
#include "core/utf8.h"
#include "fuzz/target.h"
#include "io/byte_stream.h"
#include "io/fast_shard.h"
#include "io/http_response.h"
#include "io/remote_answer.h"
#include "io/s3.h"
#include "io/tar_reader.h"
#include "pipeline/pipeline.h"
#include "pipeline/stage.h"
#ifdef ETR_FUZZ_TRAINING  // the targets that link both wings
#include "nn/model.h"
#include "nn/onnx_import.h"
#include "train/job.h"
#endif

namespace etr::fuzz {
namespace {

void tar(Bytes bytes) {
  const std::string path = as_file(bytes, ".tar");
  io::TarReader reader(io::open_stream(path), path, {{1 << 20, "max_member_bytes"}, 1 << 10, 1000});
  size_t total = 0;
  for (bool more = true; more;) {
    io::TarMember member;
    try {
      more = reader.next(member);
      for (const std::byte b : member.data.bytes()) total += std::to_integer<size_t>(b);
    } catch (const Error&) {
      more = reader.can_go_on();
    }
  }
  if (total == 1) std::fputs("", stderr);  // the bytes were really read
}

void decompress(Bytes bytes, const char* ending) {
  const auto stream = io::open_stream(as_file(bytes, ending), {.max_ratio = 100});
  std::vector<std::byte> out(1 << 16);
  for (int i = 0; i < 64 && stream->read(out) == out.size(); ++i) continue;
}
void zstd(Bytes bytes) { decompress(bytes, ".zst"); }
void gzip(Bytes bytes) { decompress(bytes, ".gz"); }

void image(Bytes bytes) {
  constexpr codec::Channels kChannels[] = {codec::Channels::as_stored, codec::Channels::gray,
                                           codec::Channels::rgb};
  if (bytes.empty()) return;
  // Behind an image's end there may be anything: the last byte says how to decode it.
  const auto how = std::to_integer<unsigned>(bytes.back());
  ByteGate memory(1 << 20, 1 << 20);
  codec::decode_image(bytes, {.channels = kChannels[how % 3],
                              .keep_u16 = (how & 4) != 0,
                              .upright = (how & 8) == 0,
                              .max_pixels = 1 << 16,
                              .max_chunk_bytes = 1 << 20,
                              .max_scans = 10,
                              .min_side = how & 16 ? 8 : 0,
                              .memory = &memory});
}

void fast_shard(Bytes bytes) {
  const io::FastShard shard(as_file(bytes, ".ets"));
  for (uint64_t i = 0; i < std::min<uint64_t>(shard.size(), 100); ++i)
    for (const auto& field : shard.record(i).fields) {
      if (!field.frame.data || field.name != "eti") continue;
      try {
        codec::decode_image(field.frame.bytes(),
                            {.channels = codec::Channels::rgb, .max_pixels = 1 << 16});
      } catch (const Error&) {
      }
    }
}

// All records of a source stage.
void source(Bytes bytes, const char* stage, const char* ending, Json options, const char* key) {
  options[key] = as_file(bytes, ending);
  if (key == std::string("arrays")) options[key] = "x=" + options[key].get<std::string>();
  const pipeline::StageSpec& spec = pipeline::find_stage(stage);
  const auto made = spec.make(Options(spec.options, stage, options), {});
  auto& reader = *pipeline::source_of(made);
  reader.start_pass(0, 0);
  for (int i = 0; i < 1000; ++i) {
    pipeline::Item item;
    try {
      if (!reader.next(item)) return;
      for (const pipeline::Field& field : item.fields) require(is_utf8(field.name));
    } catch (const Error& error) {  // goes on after a bad record, where it can
      require(is_utf8(error.what()));
    }
  }
}
void tfrecord(Bytes bytes) {
  source(bytes, "tfrecord", ".tfrecord", {{"max_record_bytes", 1 << 20}}, "pattern");
}
void idx(Bytes bytes) { source(bytes, "idx", ".idx", Json::object(), "images"); }
void npy(Bytes bytes) { source(bytes, "npy", ".npy", Json::object(), "arrays"); }
void csv(Bytes bytes) {
  source(bytes, "csv", ".csv", {{"columns", "a:f32,b:i32,c:text"}, {"max_line_bytes", 1 << 12}},
         "pattern");
}
// The first byte says in which symbols; an alphabet may be given, whose characters the text's end
// names.
void text_windows(Bytes bytes) {
  if (bytes.empty()) return;
  Json options{{"length", 3}, {"tokens", "characters"}};
  const auto how = std::to_integer<unsigned>(bytes[0]);
  if (how & 1) options["tokens"] = "bytes";
  if (how & 2)
    options["alphabet"] =
        std::string(reinterpret_cast<const char*>(bytes.data()) + bytes.size() / 2,
                    bytes.size() - bytes.size() / 2);
  source(bytes.subspan(1), "text_windows", ".utf8", options, "pattern");
}
// Of one column, where blank rows count.
void csv_text(Bytes bytes) {
  source(bytes, "csv", ".csv", {{"columns", "a:text=0,b:f32=1"}, {"header", false}}, "pattern");
}
void cifar(Bytes bytes) { source(bytes, "cifar", ".gz", Json::object(), "pattern"); }
void text(Bytes bytes) { source(bytes, "text_lines", ".txt", {{"max_line_bytes", 64}}, "pattern"); }
void webdataset(Bytes bytes) {
  source(bytes, "webdataset", ".tar", {{"max_member_bytes", 1 << 20}, {"max_name_bytes", 1 << 10}},
         "pattern");
}
void jsonl(Bytes bytes) {
  source(bytes, "jsonl", ".jsonl", {{"columns", "a:f32,b:i32=c.d,t:text"}}, "pattern");
}

// The answer to a request for a part of a file: the lines of its head, an empty one, and its body.
// The first byte says which part was asked for.
void http(Bytes bytes) {
  Choices choose(bytes.first(std::min<size_t>(bytes.size(), 1)));
  const uint64_t begin = 4 * choose.below(3), size = 4;
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  text.remove_prefix(std::min<size_t>(text.size(), 1));
  const std::string url = "https://host/a.tar.gz";
  io::HttpResponse answer;
  for (bool more = true; more && !text.empty();) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    more = !trim(line).empty();
    answer.take_line(line);
  }
  const Bytes body = std::as_bytes(std::span(text));
  answer.body.assign(body.begin(), body.end());
  require(answer.asked_pause() >= 0);
  for (const std::string& shown : {answer.header_text("content-range"), answer.body_text()})
    require(std::ranges::all_of(shown, [](char c) { return c >= ' ' && c <= '~'; }));
  answer.check_told_length(url);
  answer.check_coding(url);
  if (answer.status != 200 && answer.status != 206 && answer.status != 416) return;
  const io::RemoteState state = io::state_of(answer, url);
  if (answer.status != 200) {
    const std::string range = answer.header("content-range");
    require(std::stoull(range.substr(range.find('/') + 1)) == state.bytes);
  }
  if (begin > 0 && begin >= state.bytes) return;  // is not asked for
  const size_t got = io::part_of(answer, url, state, begin, size).size();
  if (answer.status == 200) require(begin == 0 && got == state.bytes);
  if (answer.status == 206) require(got == std::min(size, state.bytes - begin));
  if (answer.status == 416) require(got == 0 && state.bytes == 0);
}

// A page of a list of objects, which is the same when it is written again.
void s3_list(Bytes bytes) {
  const auto page_of = [](Bytes body) {
    return io::s3_page_of({200, {}, {body.begin(), body.end()}}, {}, "s3://bucket/*");
  };
  const auto element = [](const std::string& name, const std::string& text) {
    std::string out = "<" + name + ">";
    for (const char c : text) out += c == '&' ? "&amp;" : c == '<' ? "&#60;" : std::string(1, c);
    return out + "</" + name + ">";
  };
  const io::S3Page page = page_of(bytes);
  std::string xml = "<ListBucketResult>";
  for (const std::string& key : page.keys) xml += element("Key", key);
  if (!page.next.empty()) xml += element("NextContinuationToken", page.next);
  xml += "</ListBucketResult>";
  require_no_error([&] {
    const io::S3Page again = page_of(std::as_bytes(std::span(xml)));
    require(again.keys == page.keys && again.next == page.next);
  });
}

constexpr const char* kTypes[] = {"\"F32\"", "\"F16\"", "\"BF16\"", "\"F64\"", "\"I64\"",
                                  "\"I32\"", "\"U8\"",  "\"BOOL\"", "7",       "[[[[]]]]"};

// One tensor of a header. Half of them are as they should be, which moves `offset` on.
std::string header_row(Choices& choose, size_t& offset) {
  if (choose.below(2) == 0) {
    const size_t begin = offset;
    offset += choose.below(3) * 8;
    return cat("\"U8\",\"shape\":[", offset - begin, "],\"data_offsets\":[", begin, ",", offset,
               "]}");
  }
  std::string row = cat(choose.of(kTypes), ",\"shape\":[");
  const size_t rank = choose.below(8);
  for (size_t i = 0; i < rank; ++i) row += cat(i ? "," : "", choose.of(kNumbers));
  return cat(row, "],\"data_offsets\":[", choose.of(kNumbers), ",", choose.of(kNumbers), "]}");
}

// A file whose header is whole, with the numbers at which sums and products go wrong.
std::vector<std::byte> safetensors_file(Bytes bytes) {
  Choices choose(bytes);
  const size_t data_bytes = choose.below(64);
  std::string header = "{";
  for (size_t offset = 0; choose.left() && header.size() < 4096;) {
    const std::string name = choose.below(8) == 0 ? "same" : cat("t", header.size());
    header +=
        cat(header.size() > 1 ? "," : "", "\"", name, "\":{\"dtype\":", header_row(choose, offset));
  }
  header += "}";
  std::vector<std::byte> file(8 + header.size() + data_bytes);
  const uint64_t length = header.size();
  std::memcpy(file.data(), &length, 8);
  std::memcpy(file.data() + 8, header.data(), header.size());
  return file;
}

void read_tensors(Bytes file) {
  size_t total = 0;
  for (const auto& [name, tensor] : checkpoint::read_safetensors(file, "fuzz"))
    for (const std::byte b : tensor.bytes()) total += std::to_integer<size_t>(b);
  if (total == 1) std::fputs("", stderr);  // the bytes were really read
}
void safetensors(Bytes bytes) { read_tensors(bytes); }
void safetensors_header(Bytes bytes) { read_tensors(safetensors_file(bytes)); }

template <size_t count>
std::string pieced(Bytes bytes, const char* const (&pieces)[count]) {
  Choices choose(bytes);
  std::string text;
  while (choose.left()) text += choose.of(pieces);
  return text;
}

// What is taken is what nlohmann's own parser gives, and can be copied, compared and written.
void check_json(const std::string& text) {
  try {
    const Json value = parse_json(text, "fuzz");
    const Json copy = value;
    if (copy != Json::parse(text, nullptr, true, true) || parse_json(copy.dump(), "again") != value)
      std::abort();
  } catch (const Error&) {
  }
}

// As it is, and each byte a piece of JSON, some of them many brackets: depth comes quickly.
void json(Bytes bytes) {
  constexpr const char* kPieces[] = {"[",
                                     "]",
                                     "{",
                                     "}",
                                     "\"a\":",
                                     "\"b\":",
                                     ",",
                                     "1",
                                     "null",
                                     "[[[[[[[[[[[[[[[[",
                                     "]]]]]]]]]]]]]]]]",
                                     R"({"a":{"a":{"a":{"a":)",
                                     "}}}}",
                                     "// x\n",
                                     "1e999",
                                     R"("\u00e9")"};
  check_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  check_json(pieced(bytes, kPieces));
}

#ifdef ETR_FUZZ_TRAINING
// Layers in layers.
void model(Bytes bytes) {
  constexpr const char* kPieces[] = {R"({"layer":"residual","layers":[)",
                                     R"({"layer":"repeat","times":1000,"layers":[)",
                                     R"({"layer":"dense","units":4},)",
                                     R"({"layer":"dense","units":4,"name":"a"},)",
                                     R"({"layer":"add","input":["a","a"]},)",
                                     R"({"layer":"relu"}]},)",
                                     R"({"layer":"relu"}],"shortcut":[{"layer":"relu"}]},)"};
  const std::string text = "{\"layers\":[" + pieced(bytes, kPieces) + "{\"layer\":\"relu\"}]}";
  nn::Model(parse_json(text, "fuzz")).build(2, {{"image", {DType::f32, {4}}}});
}

void onnx(Bytes bytes) { nn::import_onnx(nn::parse_onnx(bytes, "fuzz"), ""); }

void job(Bytes bytes) {
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const train::Job parsed = train::Job::parse(text, "fuzz");
  const pipeline::Pipeline built(parsed.pipeline());
}
#endif

}  // namespace
}  // namespace etr::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return etr::fuzz::run(etr::fuzz::ETR_FUZZ_TARGET, data, size);
}
