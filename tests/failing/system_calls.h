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
  // sockets and what they need, of the library, of libcurl and of OpenSSL; in a program that links
  // the library's objects, those of the whole program
  network,
};

// A host name that getaddrinfo() finds at 127.0.0.1. (libcurl resolves "localhost" itself.)
constexpr const char* kTestHost = "echotrain.test";
// How long it takes one that is slow, which is one of its failures.
constexpr int kSlowLookupSeconds = 12;
// The number of errors that libcurl's getaddrinfo() may give, the last of which is to be slow.
constexpr size_t kLookupErrors = 6;

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
