// Remote files: https://, http:// and s3:// addresses.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/byte_stream.h"
#include "io/http.h"
#include "io/remote_answer.h"

namespace etr::io {

bool is_remote(const std::string& path);

class Pieces;

// Reads `address` front to back with several concurrent range requests, through the disk cache if
// `options` name one. A cached file is validated against the server's entity tag and then read from
// the disk. If the cache cannot be written, the log says so once. Throws Error(io),
// Error(not_found) or Error(cancelled), which name the address.
std::unique_ptr<Pieces> open_remote(const std::string& address, const RemoteOptions& options);

// Asks for the states of those of `paths` that are remote, with one request for each and up to
// `options.connections` at a time. Reads none of the files. There is no state for a local path, nor
// for a file whose server does not say how long it is. Throws as open_remote() does.
std::vector<std::optional<RemoteState>> ask_remote(std::span<const std::string> paths,
                                                   const RemoteOptions& options);

// Downloads `address` into the disk cache and returns the path, for formats that need random
// access. Requires a cache that can be written. `known`: what ask_remote() has returned for it; a
// file that is in the cache then needs no request.
std::string fetch_remote(const std::string& address, const RemoteOptions& options,
                         const std::optional<RemoteState>& known = std::nullopt);

}  // namespace etr::io
