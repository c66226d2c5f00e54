# Configures subproject/CMakeLists.txt, without a cache in which an earlier default would last. Variables: ROOT, WORK, GENERATOR, CC, CXX.
include(${CMAKE_CURRENT_LIST_DIR}/../../support/run.cmake)
file(REMOVE_RECURSE ${WORK})
run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR} -B ${WORK} -G ${GENERATOR} -DECHOTRAIN_SOURCE=${ROOT}
    -DCMAKE_C_COMPILER=${CC} -DCMAKE_CXX_COMPILER=${CXX})
