// Text that people read: errors and lines of the log.
#pragma once

#include <string>
#include <string_view>

namespace etr {

// Returns `text` as UTF-8 (see as_utf8). Of addresses in it, such as https://user:PASSWORD@host/
// file?X-Amz-Signature=..., the user and the secret values of the query become "***": messages are
// copied into bug reports, but whoever has a signed address can read the file. An address with a
// space or a quotation mark in it is recognised as a whole only if it stands in quotes.
std::string as_message(std::string_view text);

}  // namespace etr
