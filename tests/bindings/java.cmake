# Runs Behaviour.java on a folder of drawn digits. Variables: JAVA (command, commas between words), PAINTER,
# WORK.
file(REMOVE_RECURSE ${WORK})
include(${CMAKE_CURRENT_LIST_DIR}/../support/run.cmake)
run(${PAINTER} ${WORK}/png 64 1)
string(REPLACE "," ";" java "${JAVA}")
run(${java} Behaviour ${WORK}/png)
message(STATUS "${last_output}")
