// Names of many files in one string.
#pragma once

#include <string>
#include <vector>

#include "io/http.h"

namespace etr::io {

// Expands braces, then globs: "d/train-{000..009}.tar.zst", "d/{train,extra}-*.tar", "d/x.tar".
// Numeric ranges keep leading zeros. The result keeps the order of the braces; each glob's matches
// are sorted, and folders among them passed over. Throws Error(invalid_argument) for an unbalanced brace or a range too long,
// Error(not_found) naming the part that matches no file, and Error(io) naming a folder that may not be listed.
// Addresses (https://, s3://) may have braces; those of s3 also globs.
std::vector<std::string> expand_pattern(const std::string& pattern,
                                        const RemoteOptions& remote = {});

}  // namespace etr::io
