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

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (it->path().filename().string()[0] != '.') out.push_back(it->path());
  if (error) throw Failure("cannot list '" + folder.string() + "': " + error.message());
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<std::string> folder_names(const fs::path& folder) {
  std::vector<std::string> out;
  for (const fs::path& path : entries(folder))
    if (fs::is_directory(path)) out.push_back(path.filename().string());
  return out;
}

// "train" and ".tar.zst" of "train-000003.tar.zst"; nothing for what is no shard.
std::optional<std::pair<std::string, std::string>> shard_parts(const std::string& name) {
  for (const std::string ending : {".ets", ".tar.zst", ".tar.gz", ".tar"}) {
    if (name.size() <= ending.size() ||
        name.compare(name.size() - ending.size(), ending.size(), ending) != 0)
      continue;
    std::string stem = name.substr(0, name.size() - ending.size());
    while (!stem.empty() && std::isdigit(static_cast<unsigned char>(stem.back()))) stem.pop_back();
    if (!stem.empty() && stem.back() == '-')
      return std::pair{stem.substr(0, stem.size() - 1), ending};
  }
  return std::nullopt;
}

Json shard_source(const std::string& prefix, const std::string& ending) {
  return {{"stage", ending == ".ets" ? "fast_shard" : "webdataset"},
          {"pattern", "${data}/" + prefix + "-*" + ending}};
}

std::vector<std::string> read_lines(const fs::path& path) {
  std::vector<std::string> out;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (line.ends_with('\r')) line.pop_back();
    out.push_back(line);
  }
  return out;
}

// The shards of a folder by their prefix; empty where there are none.
DataSet shards(const fs::path& folder, const std::map<std::string, std::string>& sets) {
  DataSet out;
  for (const std::string& name : kValidationNames)
    if (out.validation.is_null() && sets.count(name))
      out.validation = shard_source(name, sets.at(name));
  std::vector<std::string> others;
  for (const auto& [prefix, ending] : sets)
    if (std::find(kValidationNames.begin(), kValidationNames.end(), prefix) ==
        kValidationNames.end())
      others.push_back(prefix);
  if (sets.count("train")) others = {"train"};
  if (others.size() != 1)
    throw Failure("'" + folder.string() + "' holds " +
                  counted(static_cast<int64_t>(others.size()), "set") +
                  " of shards to train on; name the one that is meant train-*");
  out.train = shard_source(others[0], sets.at(others[0]));
  out.in_order = sets.at(others[0]) != ".ets";
  if (fs::exists(folder / "classes.txt")) out.classes = read_lines(folder / "classes.txt");
  return out;
}

DataSet class_folders(const fs::path& folder, const std::vector<std::string>& names) {
  DataSet out;
  const auto source = [](const std::string& root) {
    return Json{{"stage", "folder"}, {"root", root}};
  };
  const bool split = std::find(names.begin(), names.end(), "train") != names.end();
  if (!split) {
    out.classes = names;
    out.train = source("${data}");
    out.train["hold_out"] = 10;
    out.validation = out.train;
    out.validation["held_out"] = true;
    return out;
  }
  out.classes = folder_names(folder / "train");
  out.train = source("${data}/train");
  for (const std::string& name : kValidationNames) {
    if (std::find(names.begin(), names.end(), name) == names.end()) continue;
    if (folder_names(folder / name) != out.classes)
      throw Failure("'" + (folder / name).string() + "' has other class folders than '" +
                    (folder / "train").string() + "', so their numbers would differ");
    out.validation = source("${data}/" + name);
    break;
  }
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
