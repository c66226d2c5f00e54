#!/usr/bin/env python3
"""Compares a bill of materials with the package: every file with its checksum, every library that its binaries name, all with
versions and licences.

    sbom_check.py PACKAGE BILL
"""

import hashlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile


def contents(package, folder):
    if package.is_dir():
        return package
    if package.suffix == ".deb":
        subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
    elif package.name.endswith(".tar.zst"):
        subprocess.run(["tar", "--zstd", "-xf", package, "-C", folder], check=True)
    else:
        zipfile.ZipFile(package).extractall(folder)
    return folder


def needed_by(path):
    """Names of the libraries that a binary is linked with; none of another file, nor of an assembly of .NET."""
    start = path.read_bytes()[:4]
    if start == b"\x7fELF":
        return re.findall(r"\(NEEDED\).*\[(.+)\]", subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout)
    if start[:2] == b"MZ":
        text = subprocess.run(["objdump", "-p", path], capture_output=True, text=True, check=True).stdout
        return [name for name in re.findall(r"^\tDLL Name: (\S+)", text, re.MULTILINE) if name != "mscoree.dll"]
    return []


def main():
    package, bill = pathlib.Path(sys.argv[1]), json.loads(pathlib.Path(sys.argv[2]).read_text())
    listed = {entry["fileName"].removeprefix("./"): entry for entry in bill["files"]}
    libraries = {name for relation in bill["relationships"] for name in relation.get("comment", "").split(", ")}
    with tempfile.TemporaryDirectory() as temporary:
        folder = contents(package, pathlib.Path(temporary))
        files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
        assert files and len(files) == len(listed), f"{len(files)} files in the package, {len(listed)} in the bill"
        binaries = 0
        for path in files:
            name = path.relative_to(folder).as_posix()
            sums = {each["algorithm"]: each["checksumValue"] for each in listed[name]["checksums"]}
            assert sums["SHA256"] == hashlib.sha256(path.read_bytes()).hexdigest(), name
            needed = needed_by(path)
            binaries += bool(needed)
            for library in needed:
                known = library in libraries or library.startswith(("libechotrain", "ld-linux", "python3."))
                assert known or any(other.name == library for other in files), f"'{name}' needs {library}, which the bill does not have"
    others = [entry for entry in bill["packages"] if entry["SPDXID"] not in ("SPDXRef-Package", "SPDXRef-Library-Windows")]
    for entry in others:
        assert entry.get("versionInfo"), f"{entry['name']} has no version"
        assert entry["licenseDeclared"] != "NOASSERTION", f"{entry['name']} has no licence: {entry.get('licenseComments', '')}"
    names = {entry["name"] for entry in others}
    has_library = any(re.search(r"libechotrain(\.so|-[\d.]+\.dll)", name) for name in listed)
    assert not has_library or any(re.match(r"libtbb\d+$|onetbb$", name) for name in names), f"oneTBB is missing: {sorted(names)}"
    print(f"sbom: {package.name}: {len(files)} files, {binaries} binaries, {len(others)} dependencies")


if __name__ == "__main__":
    main()
