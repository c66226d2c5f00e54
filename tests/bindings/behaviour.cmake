# Runs a language's Behaviour program on a folder of drawn digits. Variables: PROGRAM (commas between words),
# PAINTER, WORK.
file(REMOVE_RECURSE ${WORK})
include(${CMAKE_CURRENT_LIST_DIR}/../support/run.cmake)
run(${PAINTER} ${WORK}/png 64 1)
string(REPLACE "," ";" program "${PROGRAM}")
run(${program} ${WORK}/png)
message(STATUS "${last_output}")
if(NOT last_output MATCHES "[1-9][0-9]* passed, 0 failed")
  message(FATAL_ERROR "no test was run")
endif()
