# The floor plan as a test: reads the include lines of the runtime and fails on an edge that the table
# does not allow, and on a second door to oneTBB or Vulkan. Run: cmake -DROOT=... -P floor_plan.cmake

cmake_minimum_required(VERSION 3.22)

# What a room may include, with everything those reach. Change it when the design changes, in the same
# commit, saying why.
set(core_may "")
set(tensor_may core)
set(checkpoint_may tensor core)
set(io_may core)
set(exchange_may tensor core)
set(pipeline_may tensor checkpoint core)
set(sources_may pipeline io codec tensor checkpoint core)
set(stages_may pipeline codec tensor checkpoint core)
set(echo_may pipeline tensor checkpoint core)
set(explain_may core plot)
set(plot_may core)
set(codec_may tensor core)
set(spirv_may core)
set(gpu_may spirv core)
set(ops_may gpu tensor core)
set(graph_may ops checkpoint gpu tensor core)
set(nn_may graph ops checkpoint gpu tensor core)
set(optim_may graph ops checkpoint gpu tensor core)
set(server_may exchange tensor core)
set(parallel_may server optim graph exchange ops checkpoint gpu tensor core)
# A report draws the curves of its runs.
set(train_may plot core explain codec tensor checkpoint exchange server io pipeline sources stages echo gpu ops graph nn optim parallel)
# A study runs jobs, and draws what came of them.
set(study_may plot train core explain codec tensor checkpoint exchange server io pipeline sources stages echo gpu ops graph nn optim parallel)
set(rooms study core plot explain codec tensor checkpoint exchange server io pipeline sources stages echo spirv gpu ops graph nn optim parallel train)

# What runs on Windows: mingw-w64's standard library is known to lose a wake-up in its semaphores, latches and barriers (GCC 12 compares
# before it takes the lock, in bits/atomic_wait.h).
set(problems "")
file(GLOB_RECURSE files RELATIVE ${ROOT} ${ROOT}/runtime/*.h ${ROOT}/runtime/*.cpp ${ROOT}/capi/*.h ${ROOT}/capi/*.cpp ${ROOT}/capi/*.hpp
     ${ROOT}/tools/*.h ${ROOT}/tools/*.cpp ${ROOT}/samples/*.cpp ${ROOT}/tests/capi/*.h ${ROOT}/tests/capi/*.cpp)
foreach(file ${files})
  file(STRINGS ${ROOT}/${file} includes REGEX "^#include <(semaphore|latch|barrier)>")
  foreach(line ${includes})
    string(APPEND problems "\n  ${file}: ${line} may hang on Windows; use a condition variable or a std::promise")
  endforeach()
endforeach()

file(GLOB_RECURSE files RELATIVE ${ROOT}/runtime ${ROOT}/runtime/*.h ${ROOT}/runtime/*.cpp ${ROOT}/runtime/*.inc)
list(LENGTH files count)
if(count LESS 60)
  message(FATAL_ERROR "only ${count} files found below ${ROOT}/runtime: is this the right folder?")
endif()
foreach(file ${files})
  string(REGEX MATCH "^[a-z_]+" room ${file})
  if(NOT room IN_LIST rooms)
    string(APPEND problems "\n  ${file}: room '${room}' is not in the table")
    continue()
  endif()
  file(STRINGS ${ROOT}/runtime/${file} includes REGEX "^#include ")
  foreach(line ${includes})
    if(line MATCHES "^#include \"([a-z_]+)/")
      set(target ${CMAKE_MATCH_1})
      if(NOT target STREQUAL room AND NOT target IN_LIST ${room}_may)
        string(APPEND problems "\n  ${file}: ${room} may not include ${target} (${line})")
      endif()
    endif()
    # core takes oneTBB's memory allocator, nothing else of it.
    if(line MATCHES "oneapi/|<tbb/" AND NOT room STREQUAL pipeline AND
       NOT (room STREQUAL core AND line MATCHES "scalable_allocator"))
      string(APPEND problems "\n  ${file}: only pipeline may include oneTBB")
    endif()
    if(line MATCHES "<vulkan|vulkan_api\\.h|vulkan_device\\.h|vulkan_kernel\\.h" AND NOT room STREQUAL gpu)
      string(APPEND problems "\n  ${file}: only gpu may include Vulkan")
    endif()
    if(line MATCHES "<gloo/|<mpi\\.h>|<mpi-ext\\.h>" AND NOT file MATCHES "^exchange/engines/")
      string(APPEND problems "\n  ${file}: only the engines of exchange may include Gloo and MPI")
    endif()
    if(line MATCHES "\"exchange/engines/" AND NOT file MATCHES "^exchange/engines/")
      string(APPEND problems "\n  ${file}: engines are programs and libraries of their own")
    endif()
  endforeach()
endforeach()

# Tools, samples and bindings stand outside: they see the C API's header and nothing of the runtime. The command line has three
# headers more, which use nothing else of the runtime: it suggests names, knows launchers, and shows labels as the library does.
file(GLOB_RECURSE outside ${ROOT}/tools/*.cpp ${ROOT}/tools/*.h ${ROOT}/samples/*.cpp ${ROOT}/samples/*.c
     ${ROOT}/bindings/swig/*.h)
foreach(file ${outside})
  file(STRINGS ${file} includes REGEX "^#include \"")
  foreach(line ${includes})
    foreach(room ${rooms})
      if(line MATCHES "\"${room}/" AND NOT (file MATCHES "/tools/" AND line MATCHES "\"core/(nearest|launcher_variables|label_text)\\.h\""))
        string(APPEND problems "\n  ${file}: ${line}: use the C API")
      endif()
    endforeach()
  endforeach()
endforeach()

if(problems)
  message(FATAL_ERROR "the floor plan is broken:${problems}")
endif()
message(STATUS "${count} files keep the floor plan")
