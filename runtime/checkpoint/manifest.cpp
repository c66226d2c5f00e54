#include "checkpoint/manifest.h"

#include <filesystem>

#include "core/error.h"
#include "core/json.h"
#include "core/json_members.h"
#include "core/parse_json.h"
#include "core/platform.h"

namespace etr::checkpoint {
namespace {

namespace fs = std::filesystem;

// A higher number can only be damage, and would leave no room for the next generation.
constexpr uint64_t kMostGenerations = uint64_t{1} << 52;

Manifest parse(const Json& json, const std::string& damaged) {
  Manifest out;
  const JsonMembers members(json, damaged, Code::corrupt_data);
  out.step = members.whole("step");
  if (members.has("generation")) out.generation = members.whole("generation", kMostGenerations);
  for (const auto& [name, row] : members.object("files").items()) {
    if (fs::path(name).filename() != name || name == "." || name == "..")
      fail(Code::corrupt_data, damaged, ": '", name, "' is not the name of a file beside it");
    const JsonMembers file(row, cat(damaged, ": '", name, "'"), Code::corrupt_data);
    out.files.push_back(
        {name, file.whole("bytes"), static_cast<uint32_t>(file.whole("crc32c", UINT32_MAX))});
  }
  if (out.files.empty()) fail(Code::corrupt_data, damaged, ": it names no files");
  return out;
}

}  // namespace

Json manifest_json(const Manifest& manifest) {
  Json files = Json::object();
  for (const ManifestFile& file : manifest.files)
    files[file.name] = {{"bytes", file.bytes}, {"crc32c", file.crc32c}};
  return {
      {"step", manifest.step}, {"generation", manifest.generation}, {"files", std::move(files)}};
}

Manifest read_manifest(const std::string& folder) {
  const std::string path = (fs::path(folder) / kManifestName).string();
  const std::string text = platform::read_document(path);
  const std::string damaged = cat("'", path, "' is damaged");
  Manifest out = parse(parse_json(text, damaged + ": it", {.code = Code::corrupt_data}), damaged);
  out.folder = folder;
  return out;
}

std::string missing_of(const Manifest& manifest) {
  for (const ManifestFile& file : manifest.files) {
    const fs::path path = fs::path(manifest.folder) / file.name;
    std::error_code error;
    const uint64_t bytes = fs::file_size(path, error);
    if (error) return cat("'", path.string(), "': ", error.message());
    if (bytes != file.bytes)
      return cat("'", path.string(), "' has ", bytes, " bytes, not ", file.bytes);
  }
  return "";
}

}  // namespace etr::checkpoint
