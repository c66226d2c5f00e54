// The image files given to 'predict'.
#pragma once

#include <string>
#include <vector>

namespace cli {

// Returns the files, with folders replaced by the images below them, sorted by name. Does not
// follow links to folders. Throws Failure for a folder that has no images or cannot be listed.
std::vector<std::string> image_files(const std::vector<std::string>& operands, size_t first);

// Returns the bytes of a file. Throws Failure with only the reason if it cannot be read, is not a
// regular file (reading a pipe would wait, and a device never ends), or is larger than any image.
std::string image_bytes(const std::string& path);

}  // namespace cli
