"""Two ranks over mpi4py, with each MPI that is here, and over Ray: the losses of two ranks over Gloo, to the bit.

    transports_check.py BUILD WORK
"""

import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys

BUILD, WORK = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
SAMPLES = pathlib.Path(__file__).resolve().parents[2] / "samples" / "python"
# Open MPI does not run as root, nor more ranks than cores, unless it is told to.
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "OMPI_MCA_rmaps_base_oversubscribe": "1", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
               "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}
# The MPI that the wheel of mpi4py is to load: it is compiled for both. MPICH's library is looked for by the name that it has where it is
# a system's only MPI, and Debian has it under another.
MPIS = {"mpirun.openmpi": {"MPI4PY_MPIABI": "openmpi"},
        "mpirun.mpich": {"MPI4PY_MPIABI": "mpich", "LD_LIBRARY_PATH": str(WORK / "mpich")}}


def run(*words, **more):
    result = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=300, cwd=WORK,
                            env={**ENVIRONMENT, **more})
    if result.returncode:
        raise SystemExit(f"{' '.join(map(str, words))}: {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout


def losses(folder):
    rows = map(json.loads, (WORK / folder / "metrics.jsonl").read_text().splitlines())
    return [row["loss"] for row in rows if row["kind"] == "step"]


def link_mpich():
    (WORK / "mpich").mkdir(exist_ok=True)
    for library in pathlib.Path("/usr/lib").glob("*/libmpich.so.12"):
        (WORK / "mpich/libmpi.so.12").unlink(missing_ok=True)
        (WORK / "mpich/libmpi.so.12").symlink_to(library)


def write_job():
    run(BUILD / "samples/draw", WORK / "png", 64, 1)
    job = {"seed": 3, "pipeline": {"stages": [
        {"stage": "folder", "root": str(WORK / "png")}, {"stage": "label"}, {"stage": "decode"},
        {"stage": "batch", "size": 8}, {"stage": "normalize"}]},
        "model": {"layers": [{"layer": "conv2d", "filters": 8, "activation": "relu"}, {"layer": "max_pool"},
                             {"layer": "flatten"}, {"layer": "dense", "units": 10}]},
        "optimizer": {"optimizer": "sgd", "momentum": 0.9}, "schedule": {"learning_rate": 0.02},
        "train": {"steps": 20}, "output": {"tensorboard": False, "checkpoint_every_steps": 10}}
    (WORK / "job.json").write_text(json.dumps(job))


def main():
    write_job()
    link_mpich()
    run(BUILD / "tools/echotrain/echotrain", "launch", "-n", 2, "--overwrite", WORK / "job.json", "--set", "output.dir=gloo")
    expected = losses("gloo")
    assert len(expected) == 20 and expected[-1] < expected[0], expected
    compared = []

    def compare(name, told):
        assert "2 ranks: 20 steps, 320 examples" in told, told
        assert losses(name) == expected, f"{name}: {losses(name)}, Gloo: {expected}"
        compared.append(name)

    def skipped(name, why):
        print(f"transports: {name} is SKIPPED: {why}", file=sys.stderr)

    for launcher, more in MPIS.items():
        if importlib.util.find_spec("mpi4py") is None:
            skipped(launcher, "there is no mpi4py")
        elif shutil.which(launcher) is None:
            skipped(launcher, "it is not installed")
        else:
            compare(launcher, run(launcher, "-n", 2, sys.executable, "-m", "mpi4py", SAMPLES / "over_mpi.py",
                                  WORK / "job.json", f"output.dir={launcher}", **more))
    if importlib.util.find_spec("ray") is None:
        skipped("ray", "there is no Ray")
    else:
        compare("ray", run(sys.executable, SAMPLES / "over_ray.py", WORK / "job.json", "--set", f"output.dir={WORK}/ray"))
    print(f"transports: {', '.join(compared) or 'nothing'} trained as Gloo does, to the bit")


if __name__ == "__main__":
    main()
