#include "exchange/word.h"

#include <new>
#include <random>
#include <sstream>

namespace etr::exchange {

std::string new_word() {
  std::random_device random;
  std::ostringstream out;
  out.imbue(std::locale::classic());
  for (int i = 0; i < 4; ++i) out << std::hex << random();
  if (out.bad()) throw std::bad_alloc();  // streams keep it to themselves
  return out.str();
}

}  // namespace etr::exchange
