# Compares the C ABI of the header with the committed baseline. Every difference fails, also a new function: a function that is not in
# the baseline would not be compared.
# Variables: ROOT, ABI, PYTHON, CC, ABIDW, ABIDIFF, WORK. To accept a deliberate change: copy WORK/current.abi to
# capi/echotrain.abi.
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
include(${CMAKE_CURRENT_LIST_DIR}/../support/run.cmake)
run(sh -c "'${PYTHON}' '${ROOT}/tests/capi/abi_stub.py' '${ROOT}/capi/include/echotrain/echotrain.h' > '${WORK}/stub.c'")
run(sh -c "cd '${WORK}' && '${CC}' -g -std=c99 -shared -fPIC -Wl,-soname,libechotrain.so.${ABI} -I'${ROOT}/capi/include' stub.c -o libechotrain.so.${ABI}")
run(${ABIDW} --no-corpus-path --no-comp-dir-path --no-show-locs --out-file ${WORK}/current.abi ${WORK}/libechotrain.so.${ABI})
execute_process(COMMAND ${ABIDIFF} ${ROOT}/capi/echotrain.abi ${WORK}/current.abi
                RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE out)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "the C ABI differs from capi/echotrain.abi (${code}). If functions are new or structs grew at their ends, "
                      "accept it as the head of this file says; anything else breaks programs:\n${out}")
endif()
