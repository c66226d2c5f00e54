// Engines in plug-in libraries: the MPI engines, and those of third parties.
#pragma once

#include "exchange/world.h"

namespace etr::exchange {

// Loads the plug-in that world.engine names, and joins the group with it.
Group open_plugin(const World& world);

}  // namespace etr::exchange
