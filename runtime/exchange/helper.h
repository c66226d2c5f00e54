// An engine that runs in a separate process, the helper, and works on shared memory.
//
// Gloo runs this way (engines/gloo). Its event loop has no try block: a stray connection while a
// group forms, a message of an unexpected length, or a socket error at the wrong moment ends the
// process, and its listening sockets accept any process that connects first. In a helper, that is
// only an error of the group. The helper also keeps Gloo, ibverbs and hiredis with their threads
// and signals out of the program, and makes it possible to tell a dead or frozen program from a
// broken network.
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
  std::string name;              // of the group; unique within the store
  int rank = 0, size = 1;
  std::string address;  // where the helper listens: a host, or the name of a network interface
  bool is_interface = false;
  double timeout_s = kDefaultTimeout;  // to form the group
};

// Forms the group, and retries until the time-out if an attempt fails. Throws RankLost, which names
// the ranks that did not come.
Group helper_group(const HelperPlace& place);

}  // namespace etr::exchange
