#include "checkpoint/store.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "core/crc32c.h"
#include "core/error.h"
#include "core/json.h"
#include "core/log.h"
#include "core/options.h"
#include "core/platform.h"

namespace etr::checkpoint {
namespace {

namespace fs = std::filesystem;

std::string name_of(uint64_t step) {
  char name[32];
  std::snprintf(name, sizeof name, "step-%012llu", static_cast<unsigned long long>(step));
  return name;
}

// Checkpoints in `directory`, oldest first.
std::vector<fs::path> list(const std::string& directory) {
  std::vector<fs::path> out;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error))
    if (it->path().filename().string().starts_with("step-") && it->path().extension() != ".tmp")
      out.push_back(it->path());
  std::sort(out.begin(), out.end());
  return out;
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

std::string Store::save(uint64_t step, const Files& files) const {
  const fs::path target = fs::path(directory_) / name_of(step);
  const fs::path temporary = target.string() + ".tmp";
  std::error_code error;
  fs::remove_all(temporary, error);
  fs::create_directories(temporary, error);
  if (error) fail(Code::io, "cannot create '", temporary.string(), "': ", error.message());
  Json manifest{{"step", step}, {"files", Json::object()}};
  for (const auto& [name, bytes] : files) {
    platform::write_file_synced((temporary / name).string(), bytes);
    manifest["files"][name] = {{"bytes", bytes.size()}, {"crc32c", crc32c(bytes)}};
  }
  platform::write_file_synced((temporary / "manifest.json").string(), bytes_of(manifest.dump(1)));
  platform::sync_directory(temporary.string());
  fs::remove_all(target, error);  // the same step saved again
  fs::rename(temporary, target, error);
  if (error) fail(Code::io, "cannot rename to '", target.string(), "': ", error.message());
  platform::sync_directory(directory_);
  const auto all = list(directory_);
  for (size_t i = 0; i + static_cast<size_t>(keep_) < all.size(); ++i)
    fs::remove_all(all[i], error);
  return target.string();
}

Loaded load_checkpoint(const std::string& path) {
  const std::string manifest_path = (fs::path(path) / "manifest.json").string();
  const Json manifest = parse_json(platform::read_file(manifest_path), manifest_path);
  Loaded out;
  out.path = path;
  try {
    out.step = manifest.at("step").get<uint64_t>();
    for (const auto& [name, row] : manifest.at("files").items()) {
      const std::string file = (fs::path(path) / name).string();
      const std::string text = platform::read_file(file);
      if (text.size() != row.at("bytes").get<size_t>() ||
          crc32c(bytes_of(text)) != row.at("crc32c").get<uint32_t>())
        fail(Code::corrupt_data, "'", file, "' does not match its checksum");
      const auto bytes = bytes_of(text);
      out.files[name].assign(bytes.begin(), bytes.end());
    }
  } catch (const nlohmann::json::exception& error) {
    fail(Code::corrupt_data, "'", manifest_path, "' is damaged: ", error.what());
  }
  return out;
}

std::optional<Loaded> Store::load_latest() const {
  const auto all = list(directory_);
  std::string problems;
  for (auto it = all.rbegin(); it != all.rend(); ++it) {
    try {
      return load_checkpoint(it->string());
    } catch (const Error& error) {
      log_line(LogLevel::warning, cat("checkpoint passed over: ", error.what()));
      problems += cat("\n  ", error.what());
    }
  }
  if (!problems.empty())
    fail(Code::corrupt_data, "every checkpoint in '", directory_, "' is damaged:", problems);
  return std::nullopt;
}

}  // namespace etr::checkpoint
