#include "sources/data_files.h"

#include <algorithm>
#include <filesystem>

#include "core/crc32c.h"
#include "core/json.h"
#include "io/remote_file.h"

namespace etr::sources {
namespace {

constexpr size_t kListed = 256;  // files by name: positions stay small

// Characters up to and with the last slash that all paths share.
size_t common_folder(std::span<const std::string> paths) {
  if (paths.empty()) return 0;
  size_t shared = paths[0].rfind('/') + 1;  // 0 where there is none
  for (const std::string& path : paths) {
    const size_t most = std::min(shared, path.size());
    const auto differ =
        std::mismatch(path.begin(), path.begin() + static_cast<ptrdiff_t>(most), paths[0].begin());
    shared = static_cast<size_t>(differ.first - path.begin());
    shared = shared == 0 ? 0 : path.rfind('/', shared - 1) + 1;
  }
  return shared;
}

Json size_of(const std::string& path) {
  if (io::is_remote(path)) return nullptr;
  std::error_code error;
  const uint64_t bytes = std::filesystem::file_size(path, error);
  return error ? Json(nullptr) : Json(bytes);
}

}  // namespace

Json describe_files(std::span<const std::string> paths, bool sizes) {
  const size_t folder = common_folder(paths);
  Json files = Json::array();
  uint64_t total = 0;
  uint32_t digest = 0;
  for (const std::string& path : paths) {
    const Json bytes = sizes ? size_of(path) : Json(nullptr);
    if (!bytes.is_null()) total += bytes.get<uint64_t>();
    const std::string line = path.substr(folder) + "\n" + bytes.dump() + "\n";
    digest = crc32c(std::as_bytes(std::span(line)), digest);
    if (paths.size() <= kListed) files.push_back({path.substr(folder), bytes});
  }
  Json out{{"count", paths.size()}, {"bytes", total}, {"digest", digest}};
  if (paths.size() <= kListed) out["files"] = std::move(files);
  return out;
}

}  // namespace etr::sources
