"""Imports the native module; if that fails, the error says where it was looked for."""

import glob
import os

_HERE = os.path.dirname(os.path.abspath(__file__))

try:
    from . import native  # noqa: F401  # pyright: ignore[reportUnusedImport]
except ImportError as error:
    found = sorted(glob.glob(os.path.join(_HERE, "_native*"))) + sorted(
        glob.glob(os.path.join(_HERE, "libechotrain*")))
    raise ImportError(
        f"EchoTrain's native library did not load: {error}\n"
        f"  looked in {_HERE}, which holds: {', '.join(map(os.path.basename, found)) or 'neither _native nor libechotrain'}\n"
        "  libraries it needs beside it (oneTBB, libpng, zstd, libjpeg) come from the wheel or the system"
        + ("" if os.name == "nt" else ";\n  'ldd' on _native shows which one is missing")) from error
