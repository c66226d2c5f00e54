# Compiles shaders/*.comp with glslangValidator and embeds the SPIR-V in one generated C++ file.
#
# A shader names its variants in its own head, one line each:
#   //! variant NAME [-DMACRO=VALUE ...]
# A shader without such a line is one variant, named like its file. A shader that includes
# interface.glsl is compiled a second time as NAME_address, taking its buffers by device address,
# unless it requires GL_EXT_buffer_reference itself: then it takes no descriptors at all.

# Adds the rule for one module; appends to `modules` and `entries` of the caller.
macro(echotrain_compile_shader name source by_address)
  add_custom_command(
    OUTPUT ${out}/${name}.spv
    COMMAND ${GLSLANG} -V --target-env vulkan1.1 --quiet -I${PROJECT_SOURCE_DIR}/shaders ${ARGN}
            -o ${out}/${name}.spv ${source}
    DEPENDS ${source} ${includes}
    COMMENT "Compiling shader ${name}"
    VERBATIM)
  list(APPEND modules ${out}/${name}.spv)
  list(APPEND entries "${name}:${by_address}")
endmacro()

function(echotrain_embed_shaders target)
  find_program(GLSLANG NAMES glslangValidator glslang REQUIRED)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/shaders/*.comp)
  file(GLOB includes CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/shaders/*.glsl)
  set(out ${PROJECT_BINARY_DIR}/shaders)
  file(MAKE_DIRECTORY ${out})
  set(entries "")
  set(modules "")
  foreach(source ${sources})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
    file(STRINGS ${source} variants REGEX "^//! variant ")
    file(STRINGS ${source} by_address REGEX "GL_EXT_buffer_reference")
    file(STRINGS ${source} both_ways REGEX "include \"interface.glsl\"")
    if(NOT variants)
      get_filename_component(stem ${source} NAME_WE)
      set(variants "//! variant ${stem}")
    endif()
    foreach(variant ${variants})
      string(REGEX REPLACE "^//! variant +" "" variant "${variant}")
      separate_arguments(words UNIX_COMMAND "${variant}")
      list(POP_FRONT words name)
      if(by_address)
        echotrain_compile_shader(${name} ${source} 1 ${words})
      else()
        echotrain_compile_shader(${name} ${source} 0 ${words})
      endif()
      if(both_ways AND NOT by_address)
        echotrain_compile_shader(${name}_address ${source} 1 ${words} -DBY_ADDRESS)
      endif()
    endforeach()
  endforeach()
  # Kernels for matrix units come compiled: see shaders/matrix/compile.sh.
  set(matrix ${PROJECT_SOURCE_DIR}/shaders/matrix)
  set(text "")
  file(STRINGS ${matrix}/gemm_matrix.comp includes REGEX "^#include ")
  list(TRANSFORM includes REPLACE "^#include \"(.*)\"$" "\\1")
  foreach(source gemm_matrix.comp ${includes})
    get_filename_component(source ${source} ABSOLUTE BASE_DIR ${matrix})
    file(READ ${source} part)
    string(APPEND text "${part}")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
  endforeach()
  string(SHA256 now "${text}")
  file(STRINGS ${matrix}/prebuilt/sources.sha256 then)
  if(NOT now STREQUAL then)
    message(FATAL_ERROR "shaders/matrix/prebuilt is older than its sources: run shaders/matrix/compile.sh")
  endif()
  file(STRINGS ${matrix}/gemm_matrix.comp variants REGEX "^//! variant ")
  foreach(variant ${variants})
    string(REGEX REPLACE "^//! variant +([a-z0-9_]+).*" "\\1" name "${variant}")
    configure_file(${matrix}/prebuilt/${name}.spv ${out}/${name}.spv COPYONLY)
    list(APPEND modules ${out}/${name}.spv)
    list(APPEND entries "${name}:0")
  endforeach()
  string(REPLACE ";" "," entries "${entries}")
  add_custom_command(
    OUTPUT ${out}/shader_table.cpp
    COMMAND ${CMAKE_COMMAND} -DOUT=${out}/shader_table.cpp -DDIR=${out} "-DENTRIES=${entries}"
            -DSHADERS=${PROJECT_SOURCE_DIR}/shaders -P ${PROJECT_SOURCE_DIR}/cmake/write_shader_table.cmake
    DEPENDS ${modules} ${PROJECT_SOURCE_DIR}/cmake/write_shader_table.cmake
            ${PROJECT_SOURCE_DIR}/cmake/kernel_checksums.cmake
    COMMENT "Embedding shaders"
    VERBATIM)
  target_sources(${target} PRIVATE ${out}/shader_table.cpp)
  # Formulas that kernels made while the program runs share with the compiled ones.
  set(ELEMENTWISE_GLSL "")
  foreach(source finite elementwise)
    file(READ ${PROJECT_SOURCE_DIR}/shaders/${source}.glsl part)
    string(APPEND ELEMENTWISE_GLSL "${part}")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/shaders/${source}.glsl)
  endforeach()
  file(READ ${PROJECT_SOURCE_DIR}/shaders/pair.glsl PAIR_GLSL)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/shaders/pair.glsl)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/shader_text.cpp.in ${out}/shader_text.cpp @ONLY)
  target_sources(${target} PRIVATE ${out}/shader_text.cpp)
endfunction()
