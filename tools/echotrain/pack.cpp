// echotrain pack.
#include <algorithm>
#include <cstdio>

#include "console.h"
#include "job.h"

namespace cli {
namespace {

Json packing_options(const Arguments& arguments) {
  Json out = Json::object();
  for (const char* option : {"format", "orientation"})
    if (const std::string value = arguments.value(option); !value.empty()) out[option] = value;
  const std::pair<const char*, const char*> numbers[] = {
      {"per-shard", "per_shard"}, {"level", "level"}, {"seed", "seed"}};
  for (const auto& [argument, option] : numbers)
    if (const auto value = arguments.integer(argument)) out[option] = *value;
  out["validation"] = arguments.number("validation", 0);
  out["overwrite"] = arguments.flag("overwrite");
  return out;
}

// Prints the files that are in no shard, and the classes without an image, which keep their
// numbers.
void print_skipped(const Json& result) {
  const Json& classes = result["classes"];
  std::vector<LeftOut> files;
  std::string empty;
  for (const Json& entry : result["skipped"]) {
    const std::string name = entry["file"];
    if (std::find(classes.begin(), classes.end(), name) == classes.end())
      files.push_back({name, entry["reason"]});
    else
      empty += (empty.empty() ? "'" : ", '") + name + "'";
  }
  print_left_out(files);
  if (!empty.empty())
    std::printf(
        "note: no image is of class %s, which keeps its number; remove its folder and pack again "
        "if it should not\n",
        empty.c_str());
}

struct Shown {
  ProgressLine line;
  double began = now_seconds();
};

int32_t show_packing(void* user_data, int64_t done, int64_t total) {
  auto& shown = *static_cast<Shown*>(user_data);
  shown.line.show(progress_text("packing", done, total, now_seconds() - shown.began));
  return interrupted() == 0;
}

}  // namespace

int command_pack(const Arguments& arguments) {
  PackingOptions options;
  check(etr_options_create_from_json(packing_options(arguments).dump().c_str(), options.out()));
  Shown shown;
  char* text = nullptr;
  const InterruptGuard guard;
  const int32_t status = etr_pack(arguments.operand(0).c_str(), arguments.operand(1).c_str(),
                                  options.get(), show_packing, &shown, &text);
  shown.line.finish();
  if (status == ETR_CANCELLED) throw Interrupted{"no shard was kept"};
  check(status);
  const Json result = Json::parse(take_string(text));
  const auto size = [&](const char* key) { return static_cast<int64_t>(result[key].size()); };
  std::printf("%s of %s in %s, %s of images as %s\n", counted(result["samples"], "sample").c_str(),
              counted(size("classes"), "class", "classes").c_str(),
              counted(size("shards"), "shard").c_str(), bytes_text(result["bytes"]).c_str(),
              bytes_text(result["packed_bytes"]).c_str());
  if (const int64_t aside = result["validation_samples"]; aside > 0)
    std::printf("%s set aside for validation\n",
                counted(aside, "of them is", "of them are").c_str());
  print_skipped(result);
  std::printf("the classes' names are in %s\n", result["classes_file"].get<std::string>().c_str());
  return 0;
}

}  // namespace cli
