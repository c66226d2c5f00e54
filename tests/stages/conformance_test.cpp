// One set of checks for every stage of the table: a stage that is added is covered as soon as it
// has a row in kCases, and fails here until it has one.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <thread>

#include "core/error.h"
#include "support/data.h"

namespace etr::test {
namespace {

using pipeline::Item;
using pipeline::Pipeline;

struct Case {
  const char* stage;
  const char* options;  // JSON of a typical use
  const char* before;   // stages in front of it, as JSON with a trailing comma
};

constexpr const char* kDecode = R"({"stage": "decode"},)";

constexpr const char* kBatch =
    R"({"stage": "decode"}, {"stage": "label", "classes": 10, "one_hot": true},
       {"stage": "keep", "fields": "image,label"}, {"stage": "batch", "size": 4},)";

const std::vector<Case> kCases = {
    {"boxes", R"("field": "xywh")", R"({"stage": "map", "function": "box"},)"},
    {"cast", R"("to": "f32", "scale": true)", kDecode},
    {"center_crop", R"("height": 5, "width": 11)", kDecode},
    {"color_jitter", R"("brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1)",
     kDecode},
    {"cutmix", R"("alpha": 1)", kBatch},
    {"filter", R"("field": "label", "max": 6)", R"({"stage": "label"},)"},
    {"gaussian_blur", R"("probability": 0.7)", kDecode},
    {"grayscale", R"("probability": 0.5)", kDecode},
    {"keep", R"("fields": "cls,png")", ""},
    {"label_map", R"("names": "0,1,2,3,4,5,6,7,8,9")", ""},
    {"mixup", R"("alpha": 0.4)", kBatch},
    {"pad", R"("pixels": [1, 2, 3, 4], "fill": 0.5)", kDecode},
    {"padded_batch", R"("size": 7)", ""},
    {"rand_augment", R"("num_ops": 3)", kDecode},
    {"random_affine",
     R"("degrees": 20, "translate": 0.1, "scale_min": 0.8, "scale_max": 1.2, "shear": 10)",
     kDecode},
    {"random_erasing", R"("filling": "noise")", kDecode},
    {"random_resized_crop", R"("height": 6, "width": 9)", kDecode},
    {"random_window", R"("fields": "png", "length": 20)", ""},
    {"resize", R"("height": 5, "width": 12)", kDecode},
    {"sequence_pair",
     R"("source": "txt", "target": "cls", "source_positions": 9, "target_positions": 3)", ""},
    {"skip", R"("count": 13)", ""},
    {"bucket", R"("field": "png", "boundaries": [75, 80, 85], "size": 4)", ""},
    {"cache", R"("bytes": 5000)", kDecode},
    {"pack_sequences", R"("field": "txt", "length": 7, "open_rows": 3)", ""},
    {"overtake", R"("replay": "/dev/null")", kDecode},  // in order; overtake_test has the others
    {"prefetch", R"("items": 7)", ""},
    {"batch", R"("size": 4)", R"({"stage": "decode"}, {"stage": "label", "field": "txt"},)"},
    {"brightness_contrast", R"("brightness": 0.3)", kDecode},
    {"decode", R"("channels": "gray")", ""},
    {"delay", R"("milliseconds": 0.1)", ""},
    {"echo", R"("factor": 2.5, "buffer": 20)", ""},
    {"flip", R"("probability": 0.5)", kDecode},
    {"label", R"("classes": 10)", ""},
    {"map", R"("function": "invert")", kDecode},
    {"normalize", R"("mean": [0.5], "std": [0.5])", kDecode},
    {"random_crop", R"("pad": 2)", kDecode},
    {"repeat", R"("count": 2)", ""},
    {"shuffle", R"("buffer": 16, "initial": 5)", ""},
    {"take", R"("count": 30)", ""},
};

// What a program might register.
pipeline::MapFunctions functions() {
  return {{"invert",
           [](Item& item, uint64_t) {
             Tensor image = item.take_writable("image");
             for (uint8_t& v : image.mutable_view<uint8_t>()) v = static_cast<uint8_t>(255 - v);
             item.set("image", std::move(image));
           }},
          {"box", [](Item& item, uint64_t) {
             Tensor box(DType::f32, {1, 5});
             const float values[] = {static_cast<float>(item.ordinal % 7), 0.25f, 0, 1, 0.5f};
             std::copy(std::begin(values), std::end(values), box.mutable_view<float>().begin());
             item.set("xywh", std::move(box));
           }}};
}

class StageConformance : public testing::TestWithParam<Case> {
 protected:
  Json spec(int threads = 2, int seed = 1) {
    const Case& c = GetParam();
    const std::string pattern = make_shards(dir_, 2, 30, 8);
    Json out{{"threads", threads}, {"seed", seed}, {"epochs", 3}};
    out["stages"] =
        parse_json(R"([{"stage": "webdataset", "pattern": ")" + pattern + "\"}, " + c.before +
                       R"({"stage": ")" + c.stage + "\", " + c.options + "}]",
                   "case");
    return out;
  }
  TempDir dir_;
};

TEST_P(StageConformance, EndsEveryEpochAndTheRun) {
  Pipeline p(spec(), functions());
  Item item;
  for (int epoch = 0; epoch < 3; ++epoch) {
    const auto length = p.length();
    // Shards are counted when they are read to the end, which take need not do.
    const std::string stage = GetParam().stage;
    if (stage == "filter" || stage == "bucket" || stage == "pack_sequences") {
      EXPECT_FALSE(length);
    } else if (epoch == 0 || stage != "take") {
      EXPECT_EQ(length.has_value(), epoch > 0);
    }
    uint64_t items = 0;
    while (p.next(item) == Pipeline::Next::item) ++items;
    EXPECT_GT(items, 0u);
    EXPECT_EQ(length.value_or(items), items);
  }
  EXPECT_EQ(p.next(item), Pipeline::Next::end_of_epoch);
}

TEST_P(StageConformance, SameSeedSameBytesAtAnyThreadCount) {
  Pipeline one(spec(1), functions()), four(spec(4), functions());
  for (int epoch = 0; epoch < 2; ++epoch) EXPECT_EQ(digest_of_epoch(one), digest_of_epoch(four));
}

TEST_P(StageConformance, RestoredMidEpochGivesTheSameTail) {
  Pipeline original(spec(), functions());
  digest_of_epoch(original, 5);
  Pipeline restored(spec(), functions());
  restored.restore(parse_json(original.save().dump(), "state"));
  for (int epoch = 0; epoch < 3; ++epoch)
    EXPECT_EQ(digest_of_epoch(original), digest_of_epoch(restored));
}

TEST_P(StageConformance, QueuesStayBounded) {
  Json tight = spec();
  tight["queue_items"] = 4;
  tight["prefetch"] = 1;
  Pipeline p(tight, functions());
  Item item;
  while (p.next(item) == Pipeline::Next::item) {
    std::this_thread::yield();  // now and then upstream gets ahead
    const Json stats = p.stats();
    for (const Json& stage : stats["stages"])
      if (stage.contains("queue_items")) {
        ASSERT_LE(stage["queue_items"].get<int>(), stage["queue_limit_items"].get<int>() + 1);
        ASSERT_LE(stage["queue_limit_items"].get<int>(), 7) << "the largest is that of prefetch";
      }
  }
}

TEST_P(StageConformance, UpstreamErrorsSurfaceInOrder) {
  Json broken = spec();
  const std::string shard = dir_.path("shard-1.tar.zst");
  std::filesystem::resize_file(shard, std::filesystem::file_size(shard) / 3);
  Pipeline p(broken, functions());
  Item item;
  EXPECT_THROW(for (int i = 0; i < 10000; ++i) p.next(item), Error);
  EXPECT_THROW(p.next(item), Error) << "the error stays";
}

TEST_P(StageConformance, StopsHalfWay) {
  for (int items = 0; items < 4; ++items) {
    Pipeline p(spec(), functions());
    Item item;
    for (int i = 0; i < items; ++i) p.next(item);
  }
}

TEST_P(StageConformance, UnknownOptionsAreRefused) {
  Json wrong = spec();
  wrong["stages"].back()["no_such_option"] = 1;
  EXPECT_THROW(Pipeline{wrong}, Error);
}

TEST_P(StageConformance, IsOfTheKindThatItsSpecNames) {
  const pipeline::StageSpec& found = pipeline::find_stage(GetParam().stage);
  Json options = parse_json(std::string("{") + GetParam().options + "}", "options");
  const pipeline::MapFunctions own = functions();
  pipeline::StageContext context;
  context.functions = &own;
  const auto made = found.make(Options(found.options, found.name, options), context);
  EXPECT_EQ(made.index(), static_cast<size_t>(found.kind));
}

std::string name_of(const testing::TestParamInfo<Case>& info) { return info.param.stage; }
INSTANTIATE_TEST_SUITE_P(Stages, StageConformance, testing::ValuesIn(kCases), name_of);

// Options are arguments in Python, Java and C#.
bool reserved(const std::string& name) {
  static const std::set<std::string> words = {
      "and",    "as",    "assert", "async",  "await",  "break", "class",  "continue",
      "def",    "del",   "elif",   "else",   "except", "final", "for",    "from",
      "global", "if",    "import", "in",     "int",    "is",    "lambda", "new",
      "not",    "or",    "pass",   "raise",  "return", "try",   "void",   "while",
      "with",   "yield", "static", "switch", "this",   "throw", "double", "float"};
  return words.contains(name);
}

TEST(StageTable, EveryStageIsCoveredAndDocumented) {
  for (const pipeline::StageSpec* stage : pipeline::stage_table()) {
    EXPECT_GT(std::string(stage->doc).size(), 10u) << stage->name;
    for (const OptionSpec& option : stage->options) {
      EXPECT_GT(std::string(option.sentence).size(), 5u) << stage->name << "." << option.name;
      EXPECT_FALSE(reserved(option.name)) << stage->name << "." << option.name;
      if (option.default_json) parse_json(option.default_json, stage->name);
    }
    if (stage->kind == pipeline::StageKind::source) continue;  // every case has a source
    const bool covered = std::any_of(kCases.begin(), kCases.end(), [&](const Case& c) {
      return std::string(c.stage) == stage->name;
    });
    EXPECT_TRUE(covered) << "stage '" << stage->name << "' has no row in kCases";
  }
}

}  // namespace
}  // namespace etr::test
