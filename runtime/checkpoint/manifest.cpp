#include "checkpoint/manifest.h"

#include <filesystem>

#include "core/error.h"
#include "core/json.h"
#include "core/options.h"
#include "core/parse_json.h"
#include "core/platform.h"

namespace etr::checkpoint {
namespace {

namespace fs = std::filesystem;

// Nobody saves so often: a higher number is damage, and would leave no room for the next.
constexpr uint64_t kMostGenerations = uint64_t{1} << 52;

// Conversions of the JSON library would take -1 and 1.5 too.
uint64_t whole(const Json& object, const char* key) {
  const Json& value = object.at(key);
  if (!value.is_number_unsigned())
    fail(Code::corrupt_data, "'", key, "' is ", value.dump(), ", not a whole number");
  return value.get<uint64_t>();
}

Manifest parse(const std::string& text, const std::string& path) {
  Manifest out;
  const Json json = parse_json(text, path);
  out.step = whole(json, "step");
  if (json.contains("generation")) out.generation = whole(json, "generation");
  if (out.generation > kMostGenerations)
    fail(Code::corrupt_data, "it is of generation ", out.generation);
  for (const auto& [name, row] : json.at("files").items()) {
    if (fs::path(name).filename() != name || name == "." || name == "..")
      fail(Code::corrupt_data, "'", name, "' is not the name of a file beside it");
    out.files.push_back({name, whole(row, "bytes"), static_cast<uint32_t>(whole(row, "crc32c"))});
  }
  if (out.files.empty()) fail(Code::corrupt_data, "it names no files");
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
  const std::string text = platform::read_file(path);
  try {
    Manifest out = parse(text, path);
    out.folder = folder;
    return out;
  } catch (const nlohmann::json::exception& error) {
    fail(Code::corrupt_data, "'", path, "' is damaged: ", json_problem(error));
  } catch (const Error& error) {
    fail(Code::corrupt_data, "'", path, "' is damaged: ", error.what());
  }
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
