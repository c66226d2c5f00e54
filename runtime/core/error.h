// The one error type of the runtime.
//
// Inside the library a failure is an exception of type etr::Error; the C API turns it into a status
// code and a message, and pipeline bodies turn it into a message that travels to the consumer.
// Nothing else is ever thrown on purpose. (core/json_assert.h throws std::logic_error for a mistake
// of ours, which becomes Code::internal.)
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace etr {

// One list of status codes: C++ (Code), C (ETR_*) and the printed names all come from it.
// Values are part of the ABI: append only.
#define ETR_STATUS_LIST(X)                             \
  X(ok, 0, "ok")                                       \
  X(end, 1, "end of data")                             \
  X(invalid_argument, -1, "invalid argument")          \
  X(not_found, -2, "not found")                        \
  X(io, -3, "input/output error")                      \
  X(corrupt_data, -4, "corrupt data")                  \
  X(out_of_memory, -5, "out of memory")                \
  X(no_device, -6, "no Vulkan device")                 \
  X(device, -7, "device error")                        \
  X(device_lost, -8, "device lost")                    \
  X(cancelled, -9, "cancelled")                        \
  X(state, -10, "wrong state")                         \
  X(unsupported, -11, "unsupported")                   \
  X(internal, -12, "internal error")                   \
  X(callback, -13, "a function of the program failed") \
  X(not_finite, -14, "no finite number")               \
  X(rank_lost, -15, "a rank is lost")

enum class Code : int {
#define X(name, value, text) name = value,
  ETR_STATUS_LIST(X)
#undef X
};

const char* code_name(Code code);

class Error : public std::runtime_error {
 public:
  // Paths and names in files may contain any bytes; the stored message is UTF-8. Except for that of
  // a function of the program, it shows no secrets of addresses (see as_message).
  Error(Code code, const std::string& message);
  Code code() const { return code_; }

 private:
  Code code_;
};

// Concatenates its arguments with stream formatting: cat("shard ", path, " has ", n, " records").
template <typename... Parts>
std::string cat(const Parts&... parts) {
  std::ostringstream out;
  out.imbue(std::locale::classic());  // the program's may group the digits of a number
  (out << ... << parts);
  if (out.bad()) throw std::bad_alloc();  // streams keep it to themselves
  return out.str();
}

template <typename... Parts>
[[noreturn]] void fail(Code code, const Parts&... parts) {
  throw Error(code, cat(parts...));
}

}  // namespace etr
