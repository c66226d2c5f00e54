"""Builds a program against the package and runs it, and the package's command."""

import os

from conan import ConanFile
from conan.tools.build import can_run
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout


class EchoTrainTest(ConanFile):
    settings = "os", "arch", "compiler", "build_type"
    generators = "CMakeDeps", "VirtualRunEnv"

    def layout(self):
        cmake_layout(self)

    def requirements(self):
        self.requires(self.tested_reference_str, run=True)  # also the command

    def build_requirements(self):
        self.tool_requires("cmake/[>=3.22 <5]")

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.user_presets_path = False  # nothing in the checkout
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def test(self):
        if not can_run(self):
            return
        self.run(os.path.join(self.cpp.build.bindirs[0], "numbers"), env="conanrun")
        if self.dependencies["echotrain"].options.tools:
            self.run("echotrain version", env="conanrun")
