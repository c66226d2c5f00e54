#!/usr/bin/env bash
# LoRA adapters beside Hugging Face's PEFT (samples/python/lora.py --peft), also on quantised weights, in a virtual environment of its own
# with a current PyTorch. Arguments: the build folder, a folder to work in.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
venv_sees=
. "$here/../support/venv.sh"
"$venv/bin/pip" install -q --disable-pip-version-check numpy torch transformers peft
for bits in 0 8 4; do
  "$venv/bin/python" "$here/../../samples/python/lora.py" --steps 90 --peft --quantize "$bits"
done
