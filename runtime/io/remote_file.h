// Files that are read over the network: https://, http:// and s3:// addresses.
#pragma once

#include <memory>
#include <string>

#include "io/byte_stream.h"
#include "io/http.h"

namespace etr::io {

bool is_remote(const std::string& path);

class Pieces;

// Reads `address` front to back by ranges, several of them in flight, and through the disk cache where
// `options` name one. What the cache has is checked with the server (its entity tag) and read from the disk.
// Throws Error(io), Error(not_found), Error(cancelled), all with the address.
std::unique_ptr<Pieces> open_remote(const std::string& address, const RemoteOptions& options);

// The whole of `address` as a file in the disk cache, for formats that are read by position. Needs a cache.
std::string fetch_remote(const std::string& address, const RemoteOptions& options);

}  // namespace etr::io
