# Configures subproject/CMakeLists.txt, and a project with the lines that docs/c.md gives, without a cache in which an earlier default would
# last. Variables: ROOT, WORK, GENERATOR, CC, CXX.
include(${CMAKE_CURRENT_LIST_DIR}/../../support/run.cmake)
file(REMOVE_RECURSE ${WORK})
set(options -G ${GENERATOR} -DCMAKE_C_COMPILER=${CC} -DCMAKE_CXX_COMPILER=${CXX})
run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR} -B ${WORK}/build ${options} -DECHOTRAIN_SOURCE=${ROOT})

file(READ ${ROOT}/docs/c.md page)
if(NOT page MATCHES "```cmake\n(include\\(FetchContent\\)[^`]*)```")
  message(FATAL_ERROR "docs/c.md does not show FetchContent any more")
endif()
set(lines "${CMAKE_MATCH_1}")
file(MAKE_DIRECTORY ${WORK}/app)
file(CREATE_LINK ${ROOT} ${WORK}/echotrain SYMBOLIC)
file(COPY ${ROOT}/samples/c/feed.c DESTINATION ${WORK}/app)
file(WRITE ${WORK}/app/CMakeLists.txt "cmake_minimum_required(VERSION 3.22)\nproject(app)\nadd_executable(app feed.c)\n${lines}")
run(${CMAKE_COMMAND} -S ${WORK}/app -B ${WORK}/app/build ${options})
