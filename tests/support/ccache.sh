# Sourced by scripts that build the library more than once: its objects come from the folder build-ccache. The base directory makes the paths
# of two build folders' generated files the same.
export CMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER:-"env;CCACHE_DIR=$PWD/build-ccache;CCACHE_BASEDIR=$PWD;CCACHE_DEPEND=1;ccache"}
