"""What this machine is, and how its Vulkan driver is found."""

import ctypes
import glob
import json
import os
import pathlib
import platform
import shutil

import process

SMI_FIELDS = ("index,name,uuid,driver_version,pstate,temperature.gpu,power.draw,clocks.sm,clocks.mem,clocks.max.sm,utilization.gpu,"
              "memory.used,memory.total,persistence_mode")
LIBRARY_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib",
                   "/usr/lib/x86_64-linux-gnu/nvidia/current", "/usr/lib/wsl/lib", "/run/opengl-driver/lib")
MANIFESTS = ("/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/usr/local/nvidia/share/vulkan/icd.d",
             "/run/opengl-driver/share/vulkan/icd.d", "/opt/*/share/vulkan/icd.d")
EGL_VENDORS = ("/usr/share/glvnd/egl_vendor.d", "/etc/glvnd/egl_vendor.d", "/usr/local/nvidia/share/glvnd/egl_vendor.d")


def nvidia_smi():
    """Its state now, field by field and as people read it; never changes any."""
    program = shutil.which("nvidia-smi") or "/usr/local/nvidia/bin/nvidia-smi"
    shown = process.run([program], 20)
    if shown.status != "ok":
        return {"reason": f"nvidia-smi {shown.status}: {shown.output[-300:]}"}
    table = process.run([program, f"--query-gpu={SMI_FIELDS}", "--format=csv"], 20)
    details = process.run([program, "-q", "-d", "CLOCK,PERFORMANCE,POWER,TEMPERATURE"], 20)
    return {"query": table.output[-3000:], "shown": shown.output[-5000:], "details": details.output[-8000:]}


def describe():
    cpu = "?"
    try:
        with open("/proc/cpuinfo") as file:
            cpu = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), cpu)
    except OSError:
        pass
    release = pathlib.Path("/etc/os-release")
    system = dict(line.split("=", 1) for line in release.read_text().splitlines() if "=" in line) if release.exists() else {}
    return {"system": system.get("PRETTY_NAME", "?").strip('"'), "kernel": platform.release(), "cpu": cpu,
            "cores": len(os.sched_getaffinity(0)), "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
            "glibc": " ".join(platform.libc_ver()), "python": platform.python_version(),
            "driver_file": _read("/proc/driver/nvidia/version"),
            "devices": sorted(glob.glob("/dev/nvidia*") + glob.glob("/dev/dri/*"))}


def _read(path):
    try:
        return pathlib.Path(path).read_text().strip()
    except OSError as error:
        return f"{path}: {error.strerror}"


def loads(library):
    try:
        ctypes.CDLL(library)
        return True
    except OSError:
        return False


class Vulkan:
    """Finds an environment in which the programs see the GPU: the system's own, then with more and more of what bare
    machines lack (the loader, a driver's manifest, X and GLVND libraries)."""

    def __init__(self, kit, scratch, rehearsal):
        self.kit, self.scratch, self.rehearsal = kit, scratch, rehearsal
        self.attempts, self.environment, self.found = [], {}, None
        self.libraries = scratch / "libraries"
        self.libraries.mkdir()
        self.linked = self._link_missing()

    def _link_missing(self):
        """Puts those of the kit's spare libraries in reach that this system has not got; in a rehearsal all, to try them."""
        linked = [spare.name for spare in sorted((self.kit / "spare").iterdir()) if self.rehearsal or not loads(spare.name)]
        for name in linked:
            (self.libraries / name).symlink_to(self.kit / "spare" / name)
        return linked

    def _replace(self, *names):
        """Puts spares before libraries that are there, but too old."""
        for name in names:
            if name not in self.linked:
                (self.libraries / name).symlink_to(self.kit / "spare" / name)
                self.linked.append(name)

    def _candidates(self):
        """What to try, with the system's loader and then with the kit's: pairs of words and variables."""
        yield "the system's own", {}
        if self.rehearsal:
            return
        yield from self._with_manifests("")
        if "libvulkan.so.1" not in self.linked:
            self._replace("libvulkan.so.1")
            yield "the kit's loader", {}
            yield from self._with_manifests("the kit's loader, ")

    def _with_manifests(self, words):
        """Manifests of NVIDIA's that the loader does not look for, and the kit's own for where the driver's libraries lie."""
        libraries = [path for name in ("libGLX_nvidia.so.0", "libEGL_nvidia.so.0") for folder in LIBRARY_FOLDERS
                     for path in glob.glob(os.path.join(folder, name))]
        vendors = [path for folder in EGL_VENDORS for path in glob.glob(folder + "/*nvidia*.json")]
        common = {"GPU_DAY_DRIVER": os.path.dirname(libraries[0])} if libraries else {}
        if vendors:
            common["__EGL_VENDOR_LIBRARY_FILENAMES"] = vendors[0]
        for path in (path for folder in MANIFESTS for path in sorted(glob.glob(folder + "/*nvidia*.json"))):
            yield f"{words}manifest {path}", {**common, "VK_DRIVER_FILES": path, "VK_ICD_FILENAMES": path}
        for library in ["libGLX_nvidia.so.0", "libEGL_nvidia.so.0", *libraries]:
            path = str(self.scratch / f"icd{len(self.attempts)}.json")
            pathlib.Path(path).write_text(json.dumps({"file_format_version": "1.0.0",
                                                      "ICD": {"library_path": library, "api_version": "1.3.0"}}))
            folder = {"GPU_DAY_DRIVER": os.path.dirname(library)} if os.sep in library else {}
            manifest = {"VK_DRIVER_FILES": path, "VK_ICD_FILENAMES": path}
            yield f"{words}a manifest of the kit's for {library}", {**common, **folder, **manifest}

    def with_libraries(self, variables):
        """The process's environment with these variables, as the kit's programs and what starts them need it."""
        driver = variables.get("GPU_DAY_DRIVER")
        out = {**os.environ, **variables, "GPU_DAY_LIBRARIES": ":".join(filter(None, [str(self.libraries), driver]))}
        out.setdefault("HOME", str(self.scratch))
        # Nothing of this machine's earlier days, unless it is asked for.
        out["XDG_CACHE_HOME"] = os.environ.get("GPU_DAY_CACHE", str(self.scratch / "cache"))
        out["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        return out

    def find(self, selector):
        """Tries until a GPU is there (in a rehearsal: any device). False where there is none: `attempts` say why."""
        program = str(self.kit / "bin" / "echotrain")
        for what, variables in self._candidates():
            ended = process.run([program, "devices"], 60, self.with_libraries(variables))
            if "GLIBCXX" in ended.output or "CXXABI" in ended.output:
                self._replace("libstdc++.so.6", "libgcc_s.so.1")
                ended = process.run([program, "devices"], 60, self.with_libraries(variables))
            self.attempts.append({"what": what, "variables": variables, **ended.as_json()})
            if ended.status == "ok" and (self.rehearsal or "discrete GPU" in ended.output or "virtual GPU" in ended.output):
                self.environment, self.found = variables, what
                self.attempts[-1].pop("tail")
                self.listed = ended.output
                break
        else:
            variables = {"VK_LOADER_DEBUG": "all"}
            ended = process.run([program, "devices"], 60, self.with_libraries(variables))
            self.attempts.append({"what": "the loader's own words", **ended.as_json()})
            return False
        self.environment["ECHOTRAIN_TEST_DEVICE"] = str(selector)
        self.environment["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", str(selector))
        return True

    def as_json(self):
        return {"found": self.found, "spare_libraries": self.linked, "attempts": self.attempts,
                "devices": getattr(self, "listed", "")}


