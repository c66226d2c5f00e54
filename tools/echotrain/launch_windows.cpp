#include "arguments.h"
#include "cli.h"

namespace cli {

int command_launch(const Arguments&) {
  throw Failure(
      "launch starts ranks as processes, which Windows does not support yet; several devices of "
      "one process: echotrain train --set 'parallel.devices=[\"0\", \"1\"]'");
}

}  // namespace cli
