#include "image_files.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "cli.h"

namespace cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostBytes = size_t{1} << 30;
constexpr size_t kMostImages = 10'000'000;

bool names_image(const fs::path& path) {
  std::string ending = path.extension().string();
  for (char& c : ending) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return ending == ".png" || ending == ".jpg" || ending == ".jpeg";
}

// Adds the images of one folder to `images` and its subfolders to `folders`. Ignores what cannot be
// examined, such as a link to itself. Returns whether the folder contains anything.
bool list_folder(const fs::path& folder, std::vector<std::string>& images,
                 std::vector<fs::path>& folders) {
  std::error_code error, unknown;
  bool any = false;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    any = true;
    if (it->is_directory(unknown) && !it->is_symlink(unknown)) folders.push_back(it->path());
    if (names_image(it->path()) && it->is_regular_file(unknown))
      images.push_back(it->path().string());
  }
  if (error) throw Failure("cannot list '" + folder.string() + "': " + error.message());
  return any;
}

// Skips subfolders that cannot be listed, with a warning.
std::vector<std::string> images_below(const std::string& folder) {
  std::vector<std::string> out;
  std::vector<fs::path> waiting;
  const bool is_empty = !list_folder(folder, out, waiting);
  while (!waiting.empty()) {
    const fs::path next = std::move(waiting.back());
    waiting.pop_back();
    try {
      list_folder(next, out, waiting);
    } catch (const Failure& failure) {
      std::fprintf(stderr, "echotrain: %s; the images in it are left out\n", failure.what());
    }
    if (out.size() > kMostImages)
      throw Failure("'" + folder + "' has more than " + std::to_string(kMostImages) +
                    " images in it and below; name a folder further down");
  }
  if (out.empty())
    throw Failure("'" + folder + "' " +
                  (is_empty ? "is an empty folder" : "has no PNG or JPEG images in it or below"));
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

std::vector<std::string> image_files(const std::vector<std::string>& operands, size_t first) {
  std::vector<std::string> out;
  for (size_t i = first; i < operands.size(); ++i) {
    std::error_code error;
    if (!fs::is_directory(operands[i], error)) {
      out.push_back(operands[i]);
      continue;
    }
    const std::vector<std::string> below = images_below(operands[i]);
    out.insert(out.end(), below.begin(), below.end());
  }
  return out;
}

std::string image_bytes(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (error) throw Failure("cannot be read: " + error.message());
  if (!fs::is_regular_file(status)) throw Failure("cannot be read: it is not a regular file");
  const uintmax_t size = fs::file_size(path, error);
  std::ifstream file(fs::path(path), std::ios::binary);
  if (error || !file) throw Failure(std::string("cannot be read: ") + std::strerror(errno));
  if (size == 0) throw Failure("cannot be read: it is empty");
  if (size > kMostBytes)
    throw Failure("has " + std::to_string(size) + " bytes, more than an image can have here (" +
                  std::to_string(kMostBytes) + ")");
  std::string out(static_cast<size_t>(size), '\0');
  if (!file.read(out.data(), static_cast<std::streamsize>(size)))
    throw Failure("was shortened while it was read");
  return out;
}

}  // namespace cli
