// Remote files: https://, http:// and s3:// addresses.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "io/byte_stream.h"
#include "io/http.h"

namespace etr::io {

bool is_remote(const std::string& path);

class Pieces;

// Reads `address` front to back with several concurrent range requests, through the disk cache if
// `options` name one. A cached file is validated against the server's entity tag and then read from
// the disk. If the cache cannot be written, the log says so once. Throws Error(io),
// Error(not_found) or Error(cancelled), which name the address.
std::unique_ptr<Pieces> open_remote(const std::string& address, const RemoteOptions& options);

// The size of these files together, of which nothing is read. Throws as open_remote() does.
uint64_t remote_bytes(std::span<const std::string> addresses, const RemoteOptions& options);

// Downloads `address` into the disk cache and returns the path, for formats that need random
// access. Requires a cache that can be written.
std::string fetch_remote(const std::string& address, const RemoteOptions& options);

}  // namespace etr::io
