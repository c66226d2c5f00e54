# A virtual environment that sees the system's packages, of the Python that the build found. Sourced with the arguments of the script:
# the build folder, and a folder to work in, which is emptied. Sets build, work and venv; the binding is on PYTHONPATH. With venv_sees=
# before it, the environment has only what is installed into it.
export PIP_NO_CACHE_DIR=1  # nothing is left outside the tree
build=$(cd "$1" && pwd)
mkdir -p "$2"
work=$(cd "$2" && pwd)
rm -rf "${work:?}"/*
venv=$work/venv
"$(sed -n 's/^_Python_EXECUTABLE:INTERNAL=//p' "$build/CMakeCache.txt")" -m venv ${venv_sees---system-site-packages} "$venv"
export PYTHONPATH=$build/bindings/python
