# Runs a program on a folder of drawn digits: a language's Behaviour, or a sample whose output EXPECT matches.
# Variables: PROGRAM (commas between words), PAINTER, WORK, EXPECT (optional).
file(REMOVE_RECURSE ${WORK})
include(${CMAKE_CURRENT_LIST_DIR}/../support/run.cmake)
run(${PAINTER} ${WORK}/png 64 1)
string(REPLACE "," ";" program "${PROGRAM}")
run(${program} ${WORK}/png)
message(STATUS "${last_output}")
if(NOT DEFINED EXPECT)
  set(EXPECT "[1-9][0-9]* passed, 0 failed")
endif()
if(NOT last_output MATCHES "${EXPECT}")
  message(FATAL_ERROR "the output does not say '${EXPECT}'")
endif()
