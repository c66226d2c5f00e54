# Sourced by scripts that build the library more than once: its objects come from the folder build-ccache.
export CMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER:-"env;CCACHE_DIR=$PWD/build-ccache;CCACHE_DEPEND=1;ccache"}
