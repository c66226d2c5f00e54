#include "exchange/word.h"

#include <random>
#include <sstream>

namespace etr::exchange {

std::string new_word() {
  std::random_device random;
  std::ostringstream out;
  out.imbue(std::locale::classic());
  out.exceptions(std::ios::badbit);  // otherwise a lack of memory would cut the word short
  for (int i = 0; i < 4; ++i) out << std::hex << random();
  return out.str();
}

}  // namespace etr::exchange
