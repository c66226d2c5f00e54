// An engine that runs in a process of its own, the helper, and works on memory that both see.
//
// So Gloo runs (engines/gloo). Its event loop has no try block: a stray connection while a group forms, a message of an unexpected
// length, or an error of a socket at the wrong moment end the process, and its listening sockets take whoever connects first. In a
// helper that is an error of the group. It also keeps Gloo, ibverbs and hiredis, their threads and their signals out of the
// program, and lets a dead or frozen program be told from a network that is gone.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "exchange/group.h"
#include "exchange/store.h"

namespace etr::exchange {

struct HelperPlace {
  std::string program;           // the helper's path
  std::shared_ptr<Store> store;  // where the ranks find each other
  std::string name;              // of the group: others in the same store have other names
  int rank = 0, size = 1;
  std::string address;  // where the helper listens: a host, or the name of a network interface
  bool is_interface = false;
  double timeout_s = kDefaultTimeout;  // to form the group
};

// Forms the group, trying again where an attempt fails before the time-out. Throws RankLost that names who did not come.
Group helper_group(const HelperPlace& place);

}  // namespace etr::exchange
