#include "arguments.h"
#include "cli.h"

namespace cli {

int command_launch(const Arguments&) {
  throw Failure(
      "launch starts ranks as processes, which is supported on Linux only; several devices of "
      "one process: echotrain train --set 'parallel.devices=[\"0\", \"1\"]'");
}

}  // namespace cli
