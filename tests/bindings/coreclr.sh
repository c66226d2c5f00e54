#!/usr/bin/env bash
# The C# behaviour suite and the sample on .NET itself (CoreCLR), with the assembly and the native libraries of
# the NuGet package. The runtime is the one that PyPI has (dotnetcore2: .NET Core 3.1).
#
#   coreclr.sh BUILD_FOLDER
set -euo pipefail
build=$(realpath "$1")
work=$build/coreclr
rm -rf "$work"
mkdir -p "$work/app"

python3 -m venv "$work/venv"
PIP_NO_CACHE_DIR=1 "$work/venv/bin/pip" install -q --disable-pip-version-check --no-deps --target "$work/runtime" dotnetcore2==3.1.23
dotnet=$work/runtime/dotnetcore2/bin/dotnet
chmod +x "$dotnet"

cd "$work/app"
cmake -E tar xf "$build"/bindings/csharp/EchoTrain.*.nupkg
cp lib/netstandard2.0/EchoTrain.dll "$build/tests/bindings/csharp/Behaviour.exe" .
mcs -nologo -r:EchoTrain.dll -out:Train.exe "$build/../samples/csharp/Train.cs"
for program in Behaviour Train; do
  cp "$build/../tests/bindings/csharp/runtimeconfig.json" $program.runtimeconfig.json
done

"$build/samples/draw" "$work/png" 64 1
export ECHOTRAIN_ENGINES=$build/capi/echotrain  # the package holds none
"$dotnet" Behaviour.exe "$work/png" | tee behaviour.log
grep -qE '^[1-9][0-9]* passed, 0 failed$' behaviour.log
"$dotnet" Train.exe "$work/png" | tee train.log
grep -q 'epoch 3: loss' train.log

# The library of the folder that is named, although there is another beside the assembly.
cc -shared -fPIC -xc - -o libechotrain_csharp.so <<<'#include <unistd.h>
__attribute__((constructor)) static void loaded(void) { _exit(3); }'
ECHOTRAIN_LIBRARY_PATH=$(realpath runtimes/*/native) "$dotnet" Train.exe "$work/png" | tee named.log
cmp train.log named.log
