#include "data_set.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>

#include "cli.h"

namespace cli {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kValidationNames = {"validation", "valid", "val", "test"};
const std::string kTraining = "train", kTrainingSuffix = "-train";

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (it->path().filename().string()[0] != '.') out.push_back(it->path());
  if (error) throw Failure("cannot list '" + folder.string() + "': " + error.message());
  std::sort(out.begin(), out.end());
  return out;
}

bool is_folder(const fs::path& path) {
  std::error_code error;  // a link to itself is not a folder
  return fs::is_directory(path, error);
}

std::vector<std::string> folder_names(const fs::path& folder) {
  std::vector<std::string> out;
  for (const fs::path& path : entries(folder))
    if (is_folder(path)) out.push_back(path.filename().string());
  return out;
}

// Splits "train-000003.tar.zst" into "train" and ".tar.zst"; returns nothing for other names.
std::optional<std::pair<std::string, std::string>> shard_parts(const std::string& name) {
  for (const std::string ending : {".ets", ".tar.zst", ".tar.gz", ".tar"}) {
    if (name.size() == ending.size() || !name.ends_with(ending)) continue;
    std::string stem = name.substr(0, name.size() - ending.size());
    while (!stem.empty() && std::isdigit(static_cast<unsigned char>(stem.back()))) stem.pop_back();
    if (!stem.empty() && stem.back() == '-')
      return std::pair{stem.substr(0, stem.size() - 1), ending};
  }
  return std::nullopt;
}

using ShardSets = std::map<std::string, std::string>;  // endings by prefix

// Returns the stage that reads a set's shards. If another set's prefix continues this one ("train"
// and "train-extra"), the pattern must not match that set's files.
Json shard_source(const std::string& prefix, const ShardSets& sets) {
  const std::string& ending = sets.at(prefix);
  const bool is_common = std::any_of(sets.begin(), sets.end(), [&](const auto& set) {
    return set.first.starts_with(prefix + "-");
  });
  return {{"stage", ending == ".ets" ? "fast_shard" : "webdataset"},
          {"pattern", kDataVariable + "/" + prefix + (is_common ? "-[0-9]*" : "-*") + ending}};
}

Json folder_source(const std::string& root) { return {{"stage", "folder"}, {"root", root}}; }

std::vector<std::string> read_lines(const fs::path& path) {
  std::vector<std::string> out;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (line.ends_with('\r')) line.pop_back();
    out.push_back(line);
  }
  return out;
}

// "3 folders (cat, dog, ...)"
std::string listed(const std::vector<std::string>& names, const char* one) {
  constexpr size_t kShown = 3;
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) out += (i ? ", " : "") + names[i];
  return counted(static_cast<int64_t>(names.size()), one) + " (" + out +
         (names.size() > kShown ? ", ...)" : ")");
}

// Returns whether any class has two files, one of which could be held out.
bool has_pair(const fs::path& folder, const std::vector<std::string>& classes) {
  return std::any_of(classes.begin(), classes.end(), [&](const std::string& name) {
    const auto all = entries(folder / name);
    const auto is_file = [](const fs::path& path) {
      std::error_code error;
      return fs::is_regular_file(path, error);
    };
    return std::count_if(all.begin(), all.end(), is_file) > 1;
  });
}

// Returns the set to train on: 'train', or else the only NAME-train, or else the only set that is
// not named like a validation set.
std::string training_set(const fs::path& folder, const ShardSets& sets) {
  if (sets.count(kTraining)) return kTraining;
  std::vector<std::string> named, others;
  for (const auto& [prefix, ending] : sets) {
    if (prefix.ends_with(kTrainingSuffix)) named.push_back(prefix);
    if (std::find(kValidationNames.begin(), kValidationNames.end(), prefix) ==
        kValidationNames.end())
      others.push_back(prefix);
  }
  if (named.empty()) named = others;
  if (named.size() == 1) return named[0];
  throw Failure("'" + folder.string() + "' holds " +
                (named.empty() ? "no set of shards to train on"
                               : listed(named, "set") + " of shards, each of which could be the "
                                                        "one to train on") +
                "; shards to train on are named train-* or NAME-train-*, and those to evaluate on "
                "validation-*, valid-*, val-* or test-*, also with that NAME- in front");
}

// Returns the set to evaluate on: the one whose name comes first in kValidationNames; "" if there
// is none.
std::string validation_set(const std::string& training, const ShardSets& sets) {
  const std::string common = training.ends_with(kTrainingSuffix)
                                 ? training.substr(0, training.size() - kTraining.size())
                                 : "";
  for (const std::string& name : kValidationNames)
    for (const std::string& prefix : {common + name, name})
      if (sets.count(prefix)) return prefix;
  return "";
}

// Describes the shards of a folder.
DataSet shards(const fs::path& folder, const ShardSets& sets) {
  DataSet out;
  const std::string training = training_set(folder, sets);
  const std::string validation = validation_set(training, sets);
  if (!validation.empty()) out.validation = shard_source(validation, sets);
  out.train = shard_source(training, sets);
  out.in_order = sets.at(training) != ".ets";
  if (fs::exists(folder / "classes.txt")) out.classes = read_lines(folder / "classes.txt");
  std::vector<std::string> unused;
  for (const auto& [prefix, ending] : sets)
    if (prefix != training && prefix != validation) unused.push_back(prefix + "-*" + ending);
  if (!unused.empty()) out.notes.push_back("not used: shards of " + listed(unused, "other set"));
  if (const auto folders = folder_names(folder); !folders.empty())
    out.notes.push_back("the shards " + training + "-* are used, not the " +
                        listed(folders, "folder") + " beside them");
  return out;
}

DataSet held_out_folders(const fs::path& folder, const std::vector<std::string>& names) {
  DataSet out;
  out.classes = names;
  out.train = folder_source(kDataVariable);
  if (!has_pair(folder, names)) return out;
  out.train["validation_every"] = 10;
  out.validation = out.train;
  out.validation["validation_only"] = true;
  return out;
}

DataSet split_folders(const fs::path& folder, const std::vector<std::string>& names) {
  DataSet out;
  out.classes = folder_names(folder / "train");
  out.train = folder_source(kDataVariable + "/train");
  std::string used;
  for (const std::string& name : kValidationNames) {
    if (std::find(names.begin(), names.end(), name) == names.end()) continue;
    if (folder_names(folder / name) != out.classes)
      throw Failure("'" + (folder / name).string() + "' has other class folders than '" +
                    (folder / "train").string() + "', so their numbers would differ");
    out.validation = folder_source(kDataVariable + "/" + name);
    used = name;
    break;
  }
  std::vector<std::string> unused;
  for (const std::string& name : names)
    if (name != "train" && name != used) unused.push_back(name);
  if (!unused.empty()) out.notes.push_back("not used: " + listed(unused, "folder"));
  return out;
}

DataSet class_folders(const fs::path& folder, const std::vector<std::string>& names) {
  const bool split = std::find(names.begin(), names.end(), "train") != names.end();
  DataSet out = split ? split_folders(folder, names) : held_out_folders(folder, names);
  std::vector<std::string> files;
  for (const fs::path& path : entries(folder))
    if (!is_folder(path)) files.push_back(path.filename().string());
  if (!files.empty())
    out.notes.push_back("not used: " + listed(files, "file") + " outside of the class folders");
  return out;
}

}  // namespace

DataSet find_data_set(const std::string& folder) {
  if (folder.find_first_of("{}[]*?$") != std::string::npos)
    throw Failure("'" + folder + "' cannot be written into a job: patterns give {}[]*?$ a meaning");
  std::map<std::string, std::string> sets;
  for (const fs::path& path : entries(folder))
    if (const auto parts = shard_parts(path.filename().string())) sets.insert(*parts);
  if (!sets.empty()) return shards(folder, sets);
  const std::vector<std::string> names = folder_names(folder);
  if (names.empty())
    throw Failure("'" + folder + "' has neither class folders (" + folder +
                  "/cat/1.jpg) nor shards that 'pack' wrote");
  return class_folders(folder, names);
}

}  // namespace cli
