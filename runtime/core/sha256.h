// SHA-256 (FIPS 180-4) and HMAC (RFC 2104), for signatures and cache file names.
#pragma once

#include <string>
#include <string_view>

namespace etr {

// Return 32 bytes. Implemented here so that no cryptographic library is linked into the host
// process. Not hardened against timing attacks: the only secret is the caller's own key.
std::string sha256(std::string_view text);
std::string hmac_sha256(std::string_view key, std::string_view text);

std::string to_hex(std::string_view bytes);

}  // namespace etr
