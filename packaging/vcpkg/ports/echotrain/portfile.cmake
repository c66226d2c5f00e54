# Builds the checkout that this port lies in (packaging/README.md). A copy of the port in a registry gets a release instead, by
# vcpkg_from_git or vcpkg_download_distfile and vcpkg_extract_source_archive, which sets SOURCE_PATH.
get_filename_component(SOURCE_PATH "${CURRENT_PORT_DIR}/../../../.." ABSOLUTE)
if(NOT EXISTS "${SOURCE_PATH}/capi/include/echotrain/echotrain.h")
  message(FATAL_ERROR "${SOURCE_PATH} is no checkout of EchoTrain: use the port where it lies, as --overlay-ports=CHECKOUT/packaging/vcpkg/ports")
endif()

vcpkg_check_linkage(ONLY_DYNAMIC_LIBRARY)
vcpkg_check_features(OUT_FEATURE_OPTIONS features FEATURES
  glsl ECHOTRAIN_GLSL
  tools ECHOTRAIN_TOOLS
)
vcpkg_find_acquire_program(PKGCONFIG)
vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS
    ${features}
    -DECHOTRAIN_TESTS=OFF
    -DECHOTRAIN_BENCH=OFF
    -DECHOTRAIN_SAMPLES=OFF
    # Not from the system, whose packages are no dependencies of a port.
    -DECHOTRAIN_GLOO=OFF
    -DECHOTRAIN_MPI=OFF
    "-DGLSLANG=${CURRENT_HOST_INSTALLED_DIR}/tools/glslang/glslangValidator${VCPKG_HOST_EXECUTABLE_SUFFIX}"
    "-DPKG_CONFIG_EXECUTABLE=${PKGCONFIG}"
)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/echotrain)
vcpkg_fixup_pkgconfig()
if("tools" IN_LIST FEATURES)
  vcpkg_copy_tools(TOOL_NAMES echotrain AUTO_CLEAN)
  # Where a shell looks for them they would have to be in the system's folders.
  file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/share/bash-completion" "${CURRENT_PACKAGES_DIR}/share/fish" "${CURRENT_PACKAGES_DIR}/share/zsh")
endif()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share" "${CURRENT_PACKAGES_DIR}/share/doc")
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
