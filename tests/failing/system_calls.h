// System calls that fail. The test program's own pthread_create(), open(), read(), connect() and so
// on take the place of the C library's. They count the calls that the library makes, or libraries
// on its behalf, and make one of them fail.
#pragma once

#include <string>

#include "failures.h"

namespace etr::failing {

enum class Calls {
  threads,  // pthread_create
  files,    // what opens, reads and lists files and folders below one folder
  // sockets, of the library and of libcurl; in a program that links the library's objects,
  network,
            // those of the whole program
};

// One at a time. Errors are those that the manual pages list; beside them a read, a receipt and a
// sending may be short or interrupted, which is no error.
class SystemCalls final : public Injector {
 public:
  explicit SystemCalls(Calls kind, std::string folder = "");
  ~SystemCalls() override;
  void arm(int64_t call, size_t error) override;
  void disarm() override;
  int64_t calls() const override;
  size_t errors_of(int64_t call) const override;
  std::string failed_call() const override;
  std::string left_behind() const override;  // open files, sockets and threads of the library
};

}  // namespace etr::failing
