// Expands a pattern to file names.
#pragma once

#include <string>
#include <vector>

#include "io/http.h"

namespace etr::io {

// Expands braces, then globs: "d/train-{000..009}.tar.zst", "d/{train,extra}-*.tar", "d/x.tar".
// Numeric ranges keep leading zeros. The result keeps the order of the braces; the matches of each
// glob are sorted and exclude folders. Throws Error(invalid_argument) for an unbalanced brace or a
// range that is too long, Error(not_found) that names the part without a match, and Error(io) that
// names a folder that cannot be listed. Addresses (https://, s3://) may contain braces; s3
// addresses also globs.
std::vector<std::string> expand_pattern(const std::string& pattern,
                                        const RemoteOptions& remote = {});

}  // namespace etr::io
