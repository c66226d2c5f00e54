#include "sources/data_files.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "core/crc32c.h"
#include "core/error.h"
#include "core/json.h"
#include "core/platform_files.h"
#include "core/sha256.h"
#include "core/utf8.h"
#include "io/remote_file.h"

namespace etr::sources {
namespace {

constexpr size_t kListed = 256;  // maximum number of files listed by name, to keep positions small

// The length of the common folder of all paths, including the last slash.
size_t common_folder(std::span<const std::string> paths) {
  if (paths.empty()) return 0;
  size_t shared = paths[0].rfind('/') + 1;  // 0 if there is no slash
  for (const std::string& path : paths) {
    const size_t most = std::min(shared, path.size());
    const auto differ =
        std::mismatch(path.begin(), path.begin() + static_cast<ptrdiff_t>(most), paths[0].begin());
    shared = static_cast<size_t>(differ.first - path.begin());
    shared = shared == 0 ? 0 : path.rfind('/', shared - 1) + 1;
  }
  return shared;
}

constexpr int64_t kUnknown = -1;

int64_t size_of(const std::string& path) {
  if (io::is_remote(path)) return kUnknown;
  std::error_code error;
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(path, error));
  return error ? kUnknown : bytes;
}

}  // namespace

Json describe_files(std::span<const std::string> paths, bool sizes) {
  const size_t folder = common_folder(paths);
  Json files = Json::array();
  int64_t total = 0;
  uint32_t digest = 0;
  for (const std::string& path : paths) {
    const int64_t bytes = sizes ? size_of(path) : kUnknown;
    total += std::max<int64_t>(bytes, 0);
    const std::string line = path.substr(folder) + "\n" + std::to_string(bytes) + "\n";
    digest = crc32c(std::as_bytes(std::span(line)), digest);
    if (paths.size() <= kListed)
      files.push_back(
          {as_utf8(path.substr(folder)), bytes == kUnknown ? Json(nullptr) : Json(bytes)});
  }
  Json out{{"count", paths.size()}, {"bytes", total}, {"digest", digest}};
  if (paths.size() <= kListed) out["files"] = std::move(files);
  return out;
}

Json times_of(std::span<const std::string> paths) {
  Json times = Json::array();
  uint32_t digest = 0;
  for (const std::string& path : paths) {
    const auto state = io::is_remote(path) ? std::nullopt : platform::state_of(path);
    const int64_t time = state ? state->changed_ns : 0;
    digest = crc32c(std::as_bytes(std::span(&time, 1)), digest);
    if (paths.size() <= kListed) times.push_back(time);
  }
  return paths.size() <= kListed ? times : Json(digest);
}

uint64_t stamp_of(const std::string& path, std::string_view more) {
  const auto state = platform::state_of(path).value_or(platform::FileState{});
  const std::string hash = sha256(cat(state.bytes, "\n", state.changed_ns, "\n", more));
  uint64_t stamp = 0;
  std::memcpy(&stamp, hash.data(), sizeof stamp);
  return std::max<uint64_t>(stamp, 1);
}

}  // namespace etr::sources
