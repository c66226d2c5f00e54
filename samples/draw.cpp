// draw FOLDER COUNT [SEED]: writes COUNT digit images into FOLDER/0 ... FOLDER/9.
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "digits.h"

int main(int argc, char** argv) {
  if (argc < 3 || argc > 4) {
    std::fprintf(stderr, "usage: draw FOLDER COUNT [SEED]\n");
    return 2;
  }
  try {
    digits::draw(argv[1], std::atoi(argv[2]),
                 argc > 3 ? static_cast<uint32_t>(std::atoi(argv[3])) : 1, [](int) {});
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "draw: %s\n", error.what());
    return 1;
  }
}
