# Writes shader_table.cpp from the compiled modules (see shaders.cmake).
include(${CMAKE_CURRENT_LIST_DIR}/kernel_checksums.cmake)
echotrain_checksums_of_products(of_cpus of_gpus ${SHADERS})
string(REPLACE "," ";" entries "${ENTRIES}")
set(arrays "")
set(rows "")
foreach(entry ${entries})
  string(REGEX MATCH "^([^:]+):([01])$" _ "${entry}")
  set(name ${CMAKE_MATCH_1})
  set(by_address ${CMAKE_MATCH_2})
  file(READ ${DIR}/${name}.spv hex HEX)
  # SPIR-V is little-endian words: turn the bytes "03022307" into 0x07230203.
  string(REGEX REPLACE "(..)(..)(..)(..)" "0x\\4\\3\\2\\1," hex "${hex}")
  string(APPEND arrays "constexpr uint32_t k_${name}[] = {${hex}};\n")
  string(APPEND rows "    {\"${name}\", k_${name}, ${by_address} != 0},\n")
endforeach()
file(WRITE ${OUT} "// Generated from shaders/*.comp; do not edit.
#include \"gpu/shader_table.h\"

namespace etr::gpu {
namespace {
${arrays}
constexpr ShaderCode kTable[] = {
${rows}};
}  // namespace

std::span<const ShaderCode> shader_table() { return kTable; }

std::string_view checksum_of_products(bool of_cpus) { return of_cpus ? \"${of_cpus}\" : \"${of_gpus}\"; }

}  // namespace etr::gpu
")
