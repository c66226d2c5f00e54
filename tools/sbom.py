#!/usr/bin/env python3
"""Writes the software bill of materials (SPDX 2.3, JSON) of a package: a wheel, a jar, a NuGet package, a Debian package, a .tar.zst
archive, the .zip archive for Windows, or a folder with an installed prefix.

    sbom.py PACKAGE [--sources DIRECTORY] [--out FILE]

It lists the files of the package with their checksums, EchoTrain's own version and licence, the libraries that the package's binaries are
linked with, and those that are compiled in or opened when they are needed. Versions and licences of these come from the
distribution's packages (dpkg) on the machine where it runs, so run it where the package was built. A library that lies in the
package itself, as oneTBB's does in a repaired wheel, is listed as contained in it. DIRECTORY is that of tools/portable.sh or
tools/windows.sh, whose packages have the libraries built there linked in.
No further modules are needed.
"""

import argparse
import datetime
import functools
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import uuid
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]

# What no binary names: headers and static libraries that are compiled in (packages for building), and libraries that are opened when they
# are needed. By Debian package.
HEADERS = {"nlohmann-json3-dev": "JSON", "libvulkan-dev": "Vulkan's headers", "spirv-headers": "SPIR-V's headers"}
COMPILED_IN = {**HEADERS, "glslang-dev": "the compiler of fused kernels", "spirv-tools": "which glslang uses"}
OPENED = {"libvulkan1": "the Vulkan loader", "libcurl4": "http, https and s3 addresses"}
WINDOWS_COMPILER = {"g++-mingw-w64-x86-64-posix": "the C++ library", "gcc-mingw-w64-x86-64-posix": "the compiler's library",
                    "mingw-w64-x86-64-dev": "what programs start with, and libwinpthread"}

# Licences as Debian's copyright files call them.
LICENCES = {"expat": "MIT", "mit": "MIT", "apache-2.0": "Apache-2.0", "apache-2": "Apache-2.0", "bsd-3-clause": "BSD-3-Clause", "bsd-2-clause": "BSD-2-Clause",
            "zlib": "Zlib", "libpng": "Libpng", "libpng-2.0": "libpng-2.0", "gpl-2": "GPL-2.0-only", "gpl-2+": "GPL-2.0-or-later", "gpl-3": "GPL-3.0-only",
            "gpl-3+": "GPL-3.0-or-later", "lgpl-2.1": "LGPL-2.1-only", "lgpl-2.1+": "LGPL-2.1-or-later", "curl": "curl", "boost-1.0": "BSL-1.0", "bsl-1.0": "BSL-1.0",
            "cc0-1.0": "CC0-1.0", "cc0": "CC0-1.0", "isc": "ISC"}
# By source package, where Debian's file is prose, or begins with the licence of other parts.
PROSE = {"glibc": "LGPL-2.1-or-later", "gcc-12": "GPL-3.0-or-later WITH GCC-exception-3.1", "gcc-13": "GPL-3.0-or-later WITH GCC-exception-3.1",
         "gcc-14": "GPL-3.0-or-later WITH GCC-exception-3.1", "gcc-mingw-w64": "GPL-3.0-or-later WITH GCC-exception-3.1",
         "mingw-w64": "ZPL-2.1 AND MIT AND BSD-3-Clause", "libjpeg-turbo": "IJG AND BSD-3-Clause AND Zlib", "zlib": "Zlib", "libpng1.6": "libpng-2.0",
         "libzstd": "BSD-3-Clause OR GPL-2.0-only", "onetbb": "Apache-2.0", "mpich": "mpich2", "openmpi": "BSD-3-Clause-Open-MPI",
         "rdma-core": "GPL-2.0-only OR Linux-OpenIB", "libnl3": "LGPL-2.1-only"}


def output(*words, may_fail=False):
    """What a command prints. If it may fail, "" says that it has."""
    try:
        result = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        sys.exit(f"sbom: the command {words[0]} is not installed; install it and try again")
    if result.returncode != 0:
        if may_fail:
            return ""
        sys.exit(f"sbom: '{' '.join(map(str, words))}' failed: {(result.stderr or result.stdout).strip()}")
    return result.stdout


def version():
    """The library's version, as CMake has it."""
    return re.search(r"project\(.*?VERSION\s+([\d.]+)", (ROOT / "CMakeLists.txt").read_text(), re.DOTALL).group(1)


def identifier(*parts):
    """Made of letters, digits, '.' and '-', and another one for another name, as job.py and _job.py are."""
    return "SPDXRef-" + "-".join(re.sub(r"[^A-Za-z0-9./]", lambda odd: f"-{ord(odd[0]):x}-", part).replace("/", "-") for part in parts)


# Files ----------------------------------------------------------------------------------------------


def unpack(package, folder):
    """The folder with the package's files."""
    if package.is_dir():
        return package
    if package.suffix == ".deb":
        output("dpkg-deb", "-x", package, folder)
        return folder
    if package.name.endswith(".tar.zst"):
        output("tar", "--zstd", "-xf", package, "-C", folder)
        return folder
    with zipfile.ZipFile(package) as archive:
        archive.extractall(folder)
    return folder


def files_of(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def file_entry(path, name):
    data = path.read_bytes()
    kind = "BINARY" if data[:4] == b"\x7fELF" or path.suffix in (".dll", ".exe", ".pyd") else "SOURCE" if path.suffix in (".py", ".pyi", ".h", ".hpp") else "OTHER"
    return {"SPDXID": identifier("File", name), "fileName": f"./{name}", "fileTypes": [kind],
            "checksums": [{"algorithm": algorithm, "checksumValue": hashlib.new(algorithm.lower(), data).hexdigest()} for algorithm in ("SHA1", "SHA256")],
            "licenseConcluded": "NOASSERTION", "licenseInfoInFiles": ["NOASSERTION"], "copyrightText": "NOASSERTION"}


def verification_code(entries):
    """As SPDX 2.3, section 7.9, defines it."""
    sums = sorted(entry["checksums"][0]["checksumValue"] for entry in entries)
    return hashlib.sha1("".join(sums).encode()).hexdigest()


# Dependencies ---------------------------------------------------------------------------------------


def is_binary(path):
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def needed_by(path):
    """Names of the libraries that a binary is linked with."""
    return re.findall(r"\(NEEDED\).*\[(.+)\]", output("readelf", "-d", path))


def places(path):
    """Where the loader finds a binary's libraries, by name. Empty for a binary of another processor, whose libraries have the same names."""
    return dict(re.findall(r"^\s*(\S+) => (/\S+)", output("ldd", path, may_fail=True), re.MULTILINE))


@functools.cache
def origins():
    """Where the system has each library, by the name that it is linked by and by that of its file: auditwheel gives copies either."""
    out = {}
    for name, place in re.findall(r"^\s*(\S+) .*=> (/\S+)", output("ldconfig", "-p"), re.MULTILINE):
        out.setdefault(name, place)
        out.setdefault(pathlib.Path(place).resolve().name, place)
    return out


def package_of(path):
    """The Debian package of a file; "" if there is none."""
    for name in dict.fromkeys((path, os.path.realpath(path), path.removeprefix("/usr"), "/usr" + path)):
        found = output("dpkg-query", "-S", name, may_fail=True)
        if found:
            return found.split(": ")[0].split(",")[0].split(":")[0]
    return ""


def licence_of(package):
    return licence_in(pathlib.Path("/usr/share/doc") / package / "copyright")


def licence_in(path):
    """The licence of most of a package's files, and all that its copyright file names, as that calls them."""
    if not path.exists():
        return "NOASSERTION", ""
    names = [name.strip() for name in re.findall(r"^License:[ \t]*(\S.*)$", path.read_text(errors="replace"), re.MULTILINE)]
    main = LICENCES.get(names[0].lower(), "NOASSERTION") if names else "NOASSERTION"
    return main, ", ".join(dict.fromkeys(names))


def dependency(package, for_all):
    """A package of this distribution; `for_all`: in which what we describe is for other ones and other processors, too."""
    fields = output("dpkg-query", "-W", "-f", "${Version}\t${source:Package}\t${Homepage}\t${Architecture}", package)
    number, source, homepage, architecture = fields.split("\t")
    licence, names = licence_of(package)
    licence = PROSE.get(source, licence)
    distribution = dict(re.findall(r'^(\w+)="?([^"\n]*)', pathlib.Path("/etc/os-release").read_text(), re.MULTILINE)).get("ID", "debian")
    out = {"SPDXID": identifier("Package", package), "name": package, "versionInfo": number, "supplier": "NOASSERTION", "downloadLocation": "NOASSERTION",
           "filesAnalyzed": False, "licenseConcluded": "NOASSERTION", "licenseDeclared": licence, "copyrightText": "NOASSERTION", "sourceInfo": f"built from the source package {source}",
           "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                             "referenceLocator": f"pkg:deb/{distribution}/{package}@{number.replace(':', '%3A').replace('+', '%2B')}" + ("" if for_all else f"?arch={architecture}")}]}
    if homepage:
        out["homepage"] = homepage
    if names:
        out["licenseComments"] = f"licences that /usr/share/doc/{package}/copyright names: {names}"
    return out


def source_dependency(built):
    """A library of a source package that tools/portable.sh has built; `built` is its NAME.done."""
    name, number = built.stem, built.read_text().strip()
    licence, names = licence_in(built.parent / "licences" / name)
    out = {"SPDXID": identifier("Source", name), "name": name, "versionInfo": number, "supplier": "NOASSERTION", "downloadLocation": "NOASSERTION",
           "filesAnalyzed": False, "licenseConcluded": "NOASSERTION", "licenseDeclared": PROSE.get(name, licence), "copyrightText": "NOASSERTION",
           "sourceInfo": f"built from the source package {name}",
           "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                             "referenceLocator": f"pkg:deb/debian/{name}@{number.replace(':', '%3A').replace('+', '%2B')}?arch=source"}]}
    if names:
        out["licenseComments"] = f"licences that its copyright file names: {names}"
    return out


def is_windows(path):
    """A program or library for Windows; the assembly of .NET is neither."""
    return path.suffix in (".exe", ".pyd") or (path.suffix == ".dll" and path.name.startswith(("libechotrain", "echotrain_", "libtbb")))


def add_windows(document, binaries, headers):
    """What a package for Windows needs beside what its script has built."""
    for package, why in {**WINDOWS_COMPILER, **headers}.items():
        document["packages"].append(dependency(package, True))
        document["relationships"].append(relation("SPDXRef-Package", "STATIC_LINK", identifier("Package", package), why))
    needed = set()
    for binary in binaries:
        needed.update(re.findall(r"^\tDLL Name: (\S+)", output("objdump", "-p", binary), re.MULTILINE))
    systems = [name for name in sorted(needed) if not name.startswith(("libechotrain", "libtbb", "python3"))]
    document["packages"].append({**unknown_entry("Windows"), "versionInfo": "10"})
    document["relationships"].append(relation("SPDXRef-Package", "DYNAMIC_LINK", identifier("Library", "Windows"), ", ".join(systems)))


def other_entry(name, number, licence):
    """A part that is of no Debian package."""
    return {"SPDXID": identifier("Part", name), "name": name, "versionInfo": number, "supplier": "NOASSERTION", "downloadLocation": "NOASSERTION",
            "filesAnalyzed": False, "licenseConcluded": "NOASSERTION", "licenseDeclared": licence, "copyrightText": "NOASSERTION"}


def compiler_entries(sources):
    """The C++ library and its parts, which tools/portable.sh links in: LLVM's, as Zig's compiler brings them."""
    number = f"of Zig {(sources / 'zig').read_text().strip()}"
    return [other_entry(name, number, "Apache-2.0 WITH LLVM-exception") for name in ("libc++", "libc++abi", "libunwind")]


def add_scripts(document, files):
    """What javadoc puts beside the pages: jQuery, for the search."""
    for path in files:
        found = re.fullmatch(r"(jquery(?:-ui)?)(?:-([\d.]+))?\.min\.js", path.name)
        if found:
            number = found.group(2) or re.search(r"v(\d[\d.]*)", path.read_text(errors="replace")).group(1)
            entry = other_entry(found.group(1), number, "MIT")
            document["packages"].append(entry)
            document["relationships"].append(relation("SPDXRef-Package", "CONTAINS", entry["SPDXID"]))


def linked(folder, binaries):
    """By Debian package: the names of its libraries that the binaries are linked with, but for those that lie in the package and have no origin."""
    inside = {path.name for path in binaries}
    out, unknown = {}, set()
    for binary in binaries:
        where = places(binary)
        for name in needed_by(binary):
            # A repaired wheel has libraries under names with a part of their checksum.
            plain = re.sub(r"-[0-9a-f]{8}(?=\.so)", "", name)
            if plain.startswith(("libechotrain", "_native", "ld-linux")) or (name in inside and plain == name):
                continue
            place = where.get(plain) if where and name not in inside else origins().get(plain)
            package = package_of(place) if place else ""
            if package:
                out.setdefault(package, set()).add(name)
            else:
                unknown.add(name)
    if unknown:
        print(f"sbom: {folder}: no package of this distribution has {', '.join(sorted(unknown))}", file=sys.stderr)
    return out, unknown


# The document ---------------------------------------------------------------------------------------


def own_entry(package, entries):
    return {"SPDXID": "SPDXRef-Package", "name": "echotrain", "versionInfo": version(), "packageFileName": package.name, "supplier": "NOASSERTION",
            "downloadLocation": "NOASSERTION", "filesAnalyzed": True, "packageVerificationCode": {"packageVerificationCodeValue": verification_code(entries)},
            "licenseConcluded": "Apache-2.0", "licenseDeclared": "Apache-2.0", "licenseInfoFromFiles": ["NOASSERTION"], "copyrightText": "NOASSERTION", "primaryPackagePurpose": "LIBRARY",
            **({} if package.is_dir() else {"checksums": [{"algorithm": "SHA256", "checksumValue": hashlib.sha256(package.read_bytes()).hexdigest()}]})}


def unknown_entry(name):
    return {"SPDXID": identifier("Library", name), "name": name, "downloadLocation": "NOASSERTION", "filesAnalyzed": False, "licenseConcluded": "NOASSERTION",
            "licenseDeclared": "NOASSERTION", "copyrightText": "NOASSERTION", "supplier": "NOASSERTION"}


def relation(one, kind, other, comment=""):
    return {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other, **({"comment": comment} if comment else {})}


def add_dependencies(document, folder, files, sources):
    windows = [path for path in files if is_windows(path)]
    binaries = [path for path in files if is_binary(path)]
    if windows:
        add_windows(document, windows, {} if binaries else HEADERS)
    names_inside = {path.name for path in binaries}
    packages, unknown = linked(folder, binaries)
    found = {package: ("DYNAMIC_LINK", ", ".join(sorted(names))) for package, names in packages.items()}
    if binaries:
        found.update({package: ("STATIC_LINK", why) for package, why in (HEADERS if sources else COMPILED_IN).items()})
        found.update({package: ("OPTIONAL_DEPENDENCY_OF", why) for package, why in OPENED.items() if package not in packages})
    for package, (kind, comment) in sorted(found.items()):
        entry = dependency(package, bool(sources))
        document["packages"].append(entry)
        ends = (entry["SPDXID"], "SPDXRef-Package") if kind.endswith("_OF") else ("SPDXRef-Package", entry["SPDXID"])
        document["relationships"].append(relation(ends[0], kind, ends[1], comment))
        if packages.get(package, set()) & names_inside:
            document["relationships"].append(relation("SPDXRef-Package", "CONTAINS", entry["SPDXID"]))
    # Of Python there are headers alone.
    built = [done for done in sorted(sources.glob("*.done")) if not done.name.startswith("python")] if sources and (binaries or windows) else []
    linked_in = [source_dependency(done) for done in built]
    if linked_in and (sources / "zig").exists():
        linked_in += compiler_entries(sources)
    for entry in linked_in:
        document["packages"].append(entry)
        kinds = ["STATIC_LINK"]
        if entry["name"] == "onetbb" and windows:  # DLLs there; a package for all systems has both
            kinds = ["DYNAMIC_LINK", "CONTAINS"] + kinds * bool(binaries)
        for kind in kinds:
            document["relationships"].append(relation("SPDXRef-Package", kind, entry["SPDXID"]))
    add_scripts(document, files)
    for name in sorted(unknown):
        document["packages"].append(unknown_entry(name))
        document["relationships"].append(relation("SPDXRef-Package", "DYNAMIC_LINK", identifier("Library", name)))


def document_of(package, sources):
    with tempfile.TemporaryDirectory() as temporary:
        folder = unpack(package, pathlib.Path(temporary))
        files = files_of(folder)
        entries = [file_entry(path, path.relative_to(folder).as_posix()) for path in files]
        seconds = int(os.environ.get("SOURCE_DATE_EPOCH", 0)) or int(datetime.datetime.now().timestamp())
        created = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        content = uuid.uuid5(uuid.NAMESPACE_URL, verification_code(entries) + created)
        document = {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": package.name,
                    "documentNamespace": f"urn:uuid:{content}", "creationInfo": {"created": created, "creators": ["Tool: echotrain-sbom"]},
                    "packages": [own_entry(package, entries)], "files": entries,
                    "relationships": [relation("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-Package")] +
                                     [relation("SPDXRef-Package", "CONTAINS", entry["SPDXID"]) for entry in entries]}
        add_dependencies(document, folder, files, sources)
        return document


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("package", type=pathlib.Path)
    parser.add_argument("--sources", type=pathlib.Path, help="where tools/portable.sh or tools/windows.sh has built the package's dependencies")
    parser.add_argument("--out", type=pathlib.Path, help="without it, the bill is printed")
    options = parser.parse_args()
    if not options.package.exists():
        sys.exit(f"sbom: there is no '{options.package}'")
    text = json.dumps(document_of(options.package.resolve(), options.sources), indent=1) + "\n"
    if options.out:
        options.out.write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
