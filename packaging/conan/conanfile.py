"""EchoTrain for Conan 2, built from the checkout that this file lies in: conan create packaging/conan (packaging/README.md)."""

import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.env import VirtualBuildEnv
from conan.tools.files import copy, load, rmdir
from conan.tools.gnu import PkgConfigDeps

# Those of one Vulkan SDK belong together: glslang needs the SPIRV-Tools of its own version, and these the headers of theirs.
VULKAN_SDK = "1.4.313.0"


class EchoTrain(ConanFile):
    name = "echotrain"
    description = "Keeps accelerators busy while they train"
    license = "Apache-2.0"
    topics = ("machine-learning", "training", "vulkan", "data-loading")
    package_type = "shared-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"tools": [True, False], "glsl": [True, False], "harden": [True, False]}
    default_options = {"tools": True, "glsl": True, "harden": False}

    def set_version(self):
        text = load(self, os.path.join(self.recipe_folder, "..", "..", "CMakeLists.txt"))
        self.version = re.search(r"project\(echotrain VERSION (\S+)", text).group(1)

    def export_sources(self):
        root = os.path.join(self.recipe_folder, "..", "..")
        for pattern in ("CMakeLists.txt", "LICENSE", "cmake/*", "capi/*", "runtime/*", "shaders/*", "tools/echotrain/*", "samples/jobs/*"):
            copy(self, pattern, root, self.export_sources_folder)

    def layout(self):
        self.folders.root = os.path.join("..", "..")
        cmake_layout(self, build_folder="build-conan")

    def requirements(self):
        self.requires("onetbb/[>=2021.8 <2024]")
        self.requires("libpng/[>=1.6 <2]")
        self.requires("zlib/[>=1.2.11 <2]")
        self.requires("zstd/[>=1.5 <1.6]")
        self.requires("libdeflate/[>=1.14 <2]")
        self.requires("libjpeg-turbo/[>=2.1.5 <4]")
        self.requires("nlohmann_json/[>=3.11 <4]", visible=False)
        self.requires(f"spirv-headers/{VULKAN_SDK}")
        self.requires(f"vulkan-headers/{VULKAN_SDK}", visible=False)
        # Its headers alone: the library is opened when an address is read, and is then the system's.
        self.requires("libcurl/[>=7.78 <9]", libs=False, run=False, visible=False)
        if self.options.glsl:
            self.requires(f"glslang/{VULKAN_SDK}")

    def build_requirements(self):
        self.tool_requires("cmake/[>=3.22 <5]")
        self.tool_requires(f"glslang/{VULKAN_SDK}")  # compiles the shaders
        if not self.conf.get("tools.gnu:pkg_config", check_type=str):
            self.tool_requires("pkgconf/[>=2.1 <3]")

    def validate(self):
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration("this recipe knows Linux only; docs/c.md says how EchoTrain is built for Windows")

    def package_id(self):
        # The library is always compiled as C++20, and shows a C API and a header.
        self.info.settings.rm_safe("compiler.cppstd")
        self.info.settings.rm_safe("compiler.cstd")

    def generate(self):
        VirtualBuildEnv(self).generate()
        toolchain = CMakeToolchain(self)
        toolchain.user_presets_path = False
        options = {"TOOLS": self.options.tools, "GLSL": self.options.glsl, "HARDEN": self.options.harden}
        # Gloo and MPI are not taken from the system, which nobody who gets the package may have.
        options.update(dict.fromkeys(("TESTS", "BENCH", "SAMPLES", "GLOO", "MPI"), False))
        for name, value in options.items():
            toolchain.cache_variables[f"ECHOTRAIN_{name}"] = bool(value)
        # The targets of Conan's SPIRV-Tools come with glslang's; the system's have the same names.
        for part in ("opt", "link"):
            toolchain.cache_variables[f"CMAKE_DISABLE_FIND_PACKAGE_SPIRV-Tools-{part}"] = True
        # The loader is opened at run time, so there is no target that these headers could come with.
        if "vulkan-headers" in self.dependencies:  # not if they are the platform's
            headers = self.dependencies["vulkan-headers"].cpp_info.components["vulkanheaders"].includedirs
            toolchain.variables["CMAKE_CXX_STANDARD_INCLUDE_DIRECTORIES"] = ";".join(path.replace("\\", "/") for path in headers)
        toolchain.generate()
        CMakeDeps(self).generate()
        PkgConfigDeps(self).generate()  # libzstd, libdeflate and libjpeg

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        for folder in (("lib", "cmake"), ("lib", "pkgconfig"), ("share", "doc")):  # Conan writes its own
            rmdir(self, os.path.join(self.package_folder, *folder))

    def package_info(self):
        self.cpp_info.libs = ["echotrain"]
        self.cpp_info.set_property("cmake_file_name", "echotrain")
        self.cpp_info.set_property("cmake_target_name", "echotrain::echotrain")
        self.cpp_info.set_property("pkg_config_name", "echotrain")
