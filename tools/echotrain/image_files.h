// The image files that 'predict' is given.
#pragma once

#include <string>
#include <vector>

namespace cli {

// The files, with folders replaced by the images below them, in the order of their names. Links to folders are not followed.
// Throws Failure for a folder that holds none or cannot be listed.
std::vector<std::string> image_files(const std::vector<std::string>& operands, size_t first);

// The bytes of a file; throws Failure with the reason alone where it cannot be read, is no regular file (a pipe would be
// waited for, a device never ends), or is larger than any image.
std::string image_bytes(const std::string& path);

}  // namespace cli
