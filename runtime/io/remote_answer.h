// What a server's answers to requests for parts of a file say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "io/http_response.h"

namespace etr::io {

// What a server says about a file.
struct RemoteState {
  uint64_t bytes = 0;
  std::string version;  // entity tag and time
};

std::string version_of(const HttpResponse& answer);
// Returns whether the server gives an entity tag or a time.
bool has_version(const RemoteState& state);

// The state that an answer 200, 206 or 416 gives. Throws Error(io), which names the address.
RemoteState state_of(const HttpResponse& answer, const std::string& address);

// Returns the body of an answer 200, 206 or 416 to a request for bytes [begin, begin + size) of a
// file of this state: those bytes, fewer at the end, or with 200 the whole file. Throws Error(io),
// which names the address, if it is another part.
std::vector<std::byte> part_of(HttpResponse answer, const std::string& address,
                               const RemoteState& state, uint64_t begin, uint64_t size);

}  // namespace etr::io
