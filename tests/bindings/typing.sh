#!/usr/bin/env bash
# Whether the Python package's types are complete and right: mypy, pyright and stubtest, in a virtual environment of their own, over the
# package, over a program, and over mistakes that they must report. Arguments: the build folder, a folder to work in.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
venv_sees=
. "$here/../support/venv.sh"
unset PYTHONPATH  # the package is checked where it is copied to
PATH=$venv/bin:$PATH
export PYRIGHT_PYTHON_IGNORE_WARNINGS=1  # about newer versions
pip install -q --disable-pip-version-check mypy==2.4.1 'pyright[nodejs]==1.1.414' numpy==2.4.6
cp "$here"/typing/* "$work"
cp -r "$build/bindings/python/echotrain" "$work"
cp -r "$work/echotrain" "$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"  # --verifytypes looks there
cd "$work"

mypy -p echotrain
mypy program.py mistakes.py
pyright
pyright --verifytypes echotrain --ignoreexternal > complete.txt || { cat complete.txt; exit 1; }
grep 'Type completeness' complete.txt
# Names and parameters of the stubs, compared with the modules, whose library lies elsewhere.
LD_LIBRARY_PATH=$build/capi stubtest --allowlist stubtest.txt --ignore-unused-allowlist echotrain.{native,stages,layers,models,optimizers,_job}
