// Jobs on the images of data.h.
#pragma once

#include <string>

#include "soak/scenario.h"

namespace soak {

// A job of 12 steps that writes into the round's folder. `echo` are stages after decoding, each
// with a comma behind it; `more` are sections, each with a comma before it.
std::string job_text(const Round& round, const std::string& echo, const std::string& more = "");

}  // namespace soak
