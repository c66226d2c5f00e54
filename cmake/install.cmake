# A relocatable prefix: library, header, command, CMake package, pkg-config file. The components are Debian packages
# (cmake/package.cmake).
include(CMakePackageConfigHelpers)

install(TARGETS echotrain EXPORT echotrainTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development  # on Windows
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT library)     # on Windows
if(ECHOTRAIN_TOOLS)
  install(TARGETS echotrain_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT command)
endif()
if(TARGET echotrain_texts)
  set(texts ${PROJECT_BINARY_DIR}/tools/echotrain)
  install(FILES ${texts}/echotrain.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT command)
  install(FILES ${texts}/echotrain.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME echotrain
          COMPONENT command)
  install(FILES ${texts}/_echotrain DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT command)
  install(FILES ${texts}/echotrain.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT command)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/capi/include/echotrain
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
if(ECHOTRAIN_LINKED_LICENCES)
  install(DIRECTORY ${ECHOTRAIN_LINKED_LICENCES}/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/linked COMPONENT development)
endif()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT development)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/samples/jobs
        DESTINATION ${CMAKE_INSTALL_DATADIR}/echotrain COMPONENT command)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/echotrain)
install(EXPORT echotrainTargets NAMESPACE echotrain:: DESTINATION ${package} COMPONENT development)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/echotrainConfig.cmake.in
  ${PROJECT_BINARY_DIR}/echotrainConfig.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/echotrainConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/echotrainConfig.cmake
        ${PROJECT_BINARY_DIR}/echotrainConfigVersion.cmake DESTINATION ${package} COMPONENT development)

# The .pc file finds the prefix from its own place, so that the prefix may be moved.
file(RELATIVE_PATH ECHOTRAIN_PC_PREFIX /p/${CMAKE_INSTALL_LIBDIR}/pkgconfig /p)
string(REGEX REPLACE "/$" "" ECHOTRAIN_PC_PREFIX "${ECHOTRAIN_PC_PREFIX}")
configure_file(${PROJECT_SOURCE_DIR}/cmake/echotrain.pc.in ${PROJECT_BINARY_DIR}/echotrain.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/echotrain.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
