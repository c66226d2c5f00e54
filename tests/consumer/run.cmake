# Installs into a prefix, moves it, and builds and runs the C sample against it twice: through the CMake
# package and through pkg-config. Variables: BUILD, ROOT, WORK, CC, LIBDIR.
file(REMOVE_RECURSE ${WORK})
include(${CMAKE_CURRENT_LIST_DIR}/../support/run.cmake)

run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/before)
file(RENAME ${WORK}/before ${WORK}/moved)

# The sample's data: two classes of tiny images, written by the quickstart's painter.
run(${PAINTER} ${WORK}/data 64)

run(${CMAKE_COMMAND} -S ${ROOT}/tests/consumer -B ${WORK}/cmake -DCMAKE_PREFIX_PATH=${WORK}/moved -DCMAKE_C_COMPILER=${CC})
run(${CMAKE_COMMAND} --build ${WORK}/cmake)
run(${WORK}/cmake/train ${WORK}/data)
if(NOT last_output MATCHES "epoch 3 step [0-9]+ loss [0-9.]+")
  message(FATAL_ERROR "unexpected output of the sample: ${last_output}")
endif()

# It ends where a step is not finite: its model has ten classes.
file(GLOB images ${WORK}/data/*/*)
list(SUBLIST images 0 4 few)
foreach(class RANGE 10)
  file(COPY ${few} DESTINATION ${WORK}/eleven/${class})
endforeach()
execute_process(COMMAND ${WORK}/cmake/train ${WORK}/eleven RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE out)
if(NOT code EQUAL 1 OR NOT out MATCHES "label 10, but the model has 10 classes")
  message(FATAL_ERROR "a label that is no class, and the sample ended with ${code}: ${out}")
endif()

# As the documentation says.
run(${PYTHON} ${ROOT}/tests/docs/compile.py ${WORK}/moved ${LIBDIR} ${WORK}/docs)
set(ENV{PKG_CONFIG_PATH} ${WORK}/moved/${LIBDIR}/pkgconfig)
run(${WORK}/docs/train ${WORK}/data)
run(${WORK}/docs/own_device)
run(${WORK}/docs/gan_c 10)
run(${WORK}/docs/gan 10)
# The sample that feeds a trainer of its own: it learns, and says what limits the pipeline.
run(${PAINTER} ${WORK}/more 1600)
run(${WORK}/docs/feed ${WORK}/more)
if(NOT last_output MATCHES "epoch 3: 50 steps, loss [01][.]" OR NOT last_output MATCHES "bottleneck: ")
  message(FATAL_ERROR "unexpected output of the sample: ${last_output}")
endif()
message(STATUS "${last_output}")
run(${WORK}/moved/bin/echotrain version)
foreach(file share/doc/echotrain/LICENSE share/man/man1/echotrain.1 share/bash-completion/completions/echotrain
             share/zsh/site-functions/_echotrain share/fish/vendor_completions.d/echotrain.fish)
  if(NOT EXISTS ${WORK}/moved/${file})
    message(FATAL_ERROR "the prefix has no ${file}")
  endif()
endforeach()

# The header alone, as C99 and as C++17.
file(WRITE ${WORK}/header.c "#include <echotrain/echotrain.h>\nint main(void) { return etr_version() == 0; }\n")
run(${CC} -std=c99 -Wall -Wextra -Werror -pedantic -I${WORK}/moved/include -c ${WORK}/header.c -o ${WORK}/header.o)
run(${CC} -x c++ -std=c++17 -Wall -Wextra -Werror -pedantic -I${WORK}/moved/include -c ${WORK}/header.c -o ${WORK}/header.o)

# The C++ wrapper, as C++17.
run(sh -c "c++ -std=c++17 -Wall -Wextra -Wshadow -Werror -pedantic ${ROOT}/tests/bindings/scenario.cpp $(pkg-config --cflags --libs echotrain) -Wl,-rpath,${WORK}/moved/${LIBDIR} -o ${WORK}/scenario")

# What programs compiled earlier rely on: sizes and numbers, and exactly the symbols of the ABI's baseline, all of this version.
run(${CC} -std=c99 -Wall -Wextra -Werror -pedantic -I${WORK}/moved/include -c ${ROOT}/tests/capi/abi.c -o ${WORK}/abi.o)
run(sh -c "sed -n \"s/.*<elf-symbol name='\\([^']*\\)'.*/\\1/p\" ${ROOT}/capi/echotrain.abi | LC_ALL=C sort > ${WORK}/baseline.txt")
run(sh -c "nm -D --defined-only ${WORK}/moved/${LIBDIR}/libechotrain.so | awk '$2 != \"A\" {print $3}' | sed 's/@@ECHOTRAIN_${ABI}$//' | LC_ALL=C sort | diff ${WORK}/baseline.txt - || true")
string(STRIP "${last_output}" difference)
if(difference)
  message(FATAL_ERROR "the exported symbols are not those of capi/echotrain.abi. A missing one (<) breaks programs; "
                      "for a new one (>) take a new baseline (tests/capi/abi.cmake):\n${difference}")
endif()
