# Checksums by which a tuning file says with which kernels its choices were measured
# (runtime/gpu/tuning.cpp).
cmake_policy(VERSION 3.22)

# Sets `out` to the checksum of these sources and of all that they include, without comments.
# Another compiler of shaders does not change it.
function(echotrain_checksum_of out)
  set(files ${ARGN})
  set(seen ${files})
  set(text "")
  while(files)
    list(POP_FRONT files file)
    file(READ ${file} part)
    string(REGEX REPLACE "//[^!\n][^\n]*" "" part "${part}")  # "//!" names variants and their macros
    string(REGEX REPLACE "[ \n]*\n" "\n" part "${part}")
    string(APPEND text "${part}")
    get_filename_component(dir ${file} DIRECTORY)
    string(REGEX MATCHALL "#include \"[^\"]+\"" includes "${part}")
    foreach(include ${includes})
      string(REGEX REPLACE "^#include \"(.*)\"$" "\\1" include "${include}")
      get_filename_component(include ${include} ABSOLUTE BASE_DIR ${dir})
      if(NOT include IN_LIST seen)
        list(APPEND files ${include})
        list(APPEND seen ${include})
      endif()
    endforeach()
  endwhile()
  string(SHA256 sum "${text}")
  string(SUBSTRING ${sum} 0 8 sum)
  set(${out} ${sum} PARENT_SCOPE)
endfunction()

# Sets `of_cpus` and `of_gpus` to those of the kernels of products and convolutions. CPU devices
# choose among all.
function(echotrain_checksums_of_products of_cpus of_gpus shaders)
  file(GLOB all ${shaders}/gemm_*.comp ${shaders}/conv_*.comp ${shaders}/winograd.comp
       ${shaders}/line_filter.comp ${shaders}/matrix/*.comp)
  echotrain_checksum_of(cpus ${all})
  list(FILTER all EXCLUDE REGEX "/(gemm_cpu|conv_line|line_filter)[^/]*$")
  echotrain_checksum_of(gpus ${all})
  set(${of_cpus} ${cpus} PARENT_SCOPE)
  set(${of_gpus} ${gpus} PARENT_SCOPE)
endfunction()
