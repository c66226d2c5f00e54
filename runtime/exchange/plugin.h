// Engines in libraries of their own: MPI's, and those of others.
#pragma once

#include "exchange/world.h"

namespace etr::exchange {

// Loads the plug-in that world.engine names, and has it join the group.
Group open_plugin(const World& world);

}  // namespace etr::exchange
