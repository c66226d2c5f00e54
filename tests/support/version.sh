# Sets version, as CMakeLists.txt has it. Sourced.
version=$(sed -nE 's/^project\(echotrain VERSION ([0-9.]+).*/\1/p' "$(dirname "${BASH_SOURCE[0]}")/../../CMakeLists.txt")
