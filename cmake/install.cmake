# A relocatable prefix: library, header, command, CMake package, pkg-config file.
include(CMakePackageConfigHelpers)

install(TARGETS echotrain EXPORT echotrainTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})  # on Windows
if(ECHOTRAIN_TOOLS)
  install(TARGETS echotrain_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(TARGET echotrain_texts)
  set(texts ${PROJECT_BINARY_DIR}/tools/echotrain)
  install(FILES ${texts}/echotrain.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES ${texts}/echotrain.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME echotrain)
  install(FILES ${texts}/_echotrain DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(FILES ${texts}/echotrain.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/capi/include/echotrain
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/samples/jobs
        DESTINATION ${CMAKE_INSTALL_DATADIR}/echotrain)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/echotrain)
install(EXPORT echotrainTargets NAMESPACE echotrain:: DESTINATION ${package})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/echotrainConfig.cmake.in
  ${PROJECT_BINARY_DIR}/echotrainConfig.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/echotrainConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/echotrainConfig.cmake
        ${PROJECT_BINARY_DIR}/echotrainConfigVersion.cmake DESTINATION ${package})

# The .pc file finds the prefix from its own place, so that the prefix may be moved.
file(RELATIVE_PATH ECHOTRAIN_PC_PREFIX /p/${CMAKE_INSTALL_LIBDIR}/pkgconfig /p)
string(REGEX REPLACE "/$" "" ECHOTRAIN_PC_PREFIX "${ECHOTRAIN_PC_PREFIX}")
configure_file(${PROJECT_SOURCE_DIR}/cmake/echotrain.pc.in ${PROJECT_BINARY_DIR}/echotrain.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/echotrain.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
