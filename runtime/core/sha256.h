// SHA-256 (FIPS 180-4) and HMAC (RFC 2104), for signatures and names of cached files.
#pragma once

#include <string>
#include <string_view>

namespace etr {

// 32 bytes each. Our own, so that no cryptographic library is linked into the host process; nothing secret
// depends on its timing but the caller's own key.
std::string sha256(std::string_view text);
std::string hmac_sha256(std::string_view key, std::string_view text);

std::string to_hex(std::string_view bytes);

}  // namespace etr
