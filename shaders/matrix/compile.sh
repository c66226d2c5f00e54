#!/usr/bin/env bash
# Compiles the kernels for matrix units into prebuilt/. Needs glslang 15.3 or later (GL_KHR_cooperative_matrix,
# GL_EXT_bfloat16) and spirv-opt. Most distributions have an older glslang, so the results are stored with the sources.
# Run it after a change to gemm_matrix.comp or to a file that it includes, and commit both. Otherwise the build fails.
set -euo pipefail
cd "$(dirname "$0")"
GLSLANG=${GLSLANG:-glslangValidator}
mkdir -p prebuilt
grep '^//! variant ' gemm_matrix.comp | while read -r _ _ name defines; do
  # shellcheck disable=SC2086  # several words
  "$GLSLANG" -V --target-env vulkan1.1 --quiet -I.. $defines -o "prebuilt/$name.spv" gemm_matrix.comp
  spirv-opt --strip-debug "prebuilt/$name.spv" -o "prebuilt/$name.spv"
  spirv-val --target-env vulkan1.3 "prebuilt/$name.spv"
done
readarray -t includes < <(sed -n 's/^#include "\(.*\)"$/\1/p' gemm_matrix.comp)
cat gemm_matrix.comp "${includes[@]}" | sha256sum | cut -d' ' -f1 > prebuilt/sources.sha256  # as in cmake/shaders.cmake
