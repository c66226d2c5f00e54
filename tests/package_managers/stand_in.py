"""Stands for any of the Conan Center packages that EchoTrain requires. The files are links to the system's; the names of targets and of
pkg-config modules are those that Conan Center's recipes give (as of August 2026), so that packaging/conan can be tried with what
CMakeDeps and PkgConfigDeps make of them:

    conan create stand_in.py --name zlib --version 1.3.2
"""

import os
import pathlib

from conan import ConanFile

# The name of the CMake package, then for each target what it is called, the pkg-config module or None, and the libraries.
PACKAGES = {
    "onetbb": ("TBB", [("TBB::tbb", None, "tbb"), ("TBB::tbbmalloc", None, "tbbmalloc")]),
    "libpng": ("PNG", [("PNG::PNG", "libpng", "png")]),
    "zlib": ("ZLIB", [("ZLIB::ZLIB", "zlib", "z")]),
    "zstd": ("zstd", [("zstd::libzstd_static", "libzstd", "zstd")]),
    "libdeflate": ("libdeflate", [("libdeflate::libdeflate_static", "libdeflate", "deflate")]),
    "libjpeg-turbo": ("libjpeg-turbo", [("libjpeg-turbo::jpeg-static", "libjpeg", "jpeg")]),
    "nlohmann_json": ("nlohmann_json", [("nlohmann_json::nlohmann_json", "nlohmann_json", "")]),
    "spirv-headers": ("SPIRV-Headers", [("SPIRV-Headers::SPIRV-Headers", "SPIRV-Headers", "")]),
    "vulkan-headers": ("VulkanHeaders", [("Vulkan::Headers", None, "")]),
    "libcurl": ("CURL", [("CURL::libcurl", "libcurl", "curl")]),
    "glslang": ("glslang", [("glslang::glslang", None, "glslang MachineIndependent GenericCodeGen OSDependent OGLCompiler"),
                            ("glslang::SPIRV", None, "SPIRV SPIRV-Tools-opt SPIRV-Tools"),
                            ("glslang::glslang-default-resource-limits", None, "glslang-default-resource-limits")]),
}
COMPONENTS = {"Vulkan::Headers": "vulkanheaders"}  # which EchoTrain's recipe names
HEADERS = {
    "onetbb": "tbb oneapi", "libpng": "png.h pngconf.h pnglibconf.h", "zlib": "zlib.h zconf.h", "zstd": "zstd.h zdict.h zstd_errors.h",
    "libdeflate": "libdeflate.h", "libjpeg-turbo": "jpeglib.h jmorecfg.h jerror.h jconfig.h", "nlohmann_json": "nlohmann",
    "spirv-headers": "spirv", "vulkan-headers": "vulkan vk_video", "libcurl": "curl", "glslang": "glslang",
}


def links(folder, names, places, **suffixes):
    """Links in `folder` to the first of each name that one of the places has."""
    os.makedirs(folder, exist_ok=True)
    for name in names.split():
        candidates = [place / f"{name}" for place in places]
        if suffixes:
            candidates = [place / f"lib{name}{suffix}" for suffix in suffixes["suffixes"] for place in places]
        found = next((path for path in candidates if path.exists()), None)
        if not found:
            raise SystemExit(f"the system has none of {', '.join(map(str, candidates))}: run tests/setup.sh")
        os.symlink(found, os.path.join(folder, found.name))


class StandIn(ConanFile):
    package_type = "static-library"
    settings = "os", "arch", "compiler", "build_type"

    def package(self):
        multiarch = next(pathlib.Path("/usr/include").glob("*-linux-gnu")).name
        links(os.path.join(self.package_folder, "include"), HEADERS[self.name], [pathlib.Path("/usr/include"), pathlib.Path("/usr/include") / multiarch])
        libraries = " ".join(names for _, _, names in PACKAGES[self.name][1])
        links(os.path.join(self.package_folder, "lib"), libraries, [pathlib.Path("/usr/lib") / multiarch], suffixes=(".so", ".a"))
        if self.name == "glslang":
            links(os.path.join(self.package_folder, "bin"), "glslangValidator", [pathlib.Path("/usr/bin")])

    def package_info(self):
        file, targets = PACKAGES[self.name]
        self.cpp_info.set_property("cmake_file_name", file)
        if file in ("PNG", "ZLIB", "CURL"):
            self.cpp_info.set_property("cmake_find_mode", "both")
        for target, module, libraries in targets:
            component = self.cpp_info.components[COMPONENTS.get(target, target.split("::")[1].lower())]
            component.set_property("cmake_target_name", target)
            if module:
                component.set_property("pkg_config_name", module)
            component.libs = libraries.split()
