"""Runs every command of the README's section "Train on your images", and every sample job made short by one key, on tiny
data; and resumes a run, which must give the uninterrupted one's weights bit for bit: readme.py ECHOTRAIN PAINTER WORK"""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import small_data

ROOT = pathlib.Path(__file__).resolve().parents[2]
ECHOTRAIN, PAINTER, WORK = (pathlib.Path(a).resolve() for a in sys.argv[1:])


def run(*words):
    words = [str(word) for word in words]
    # What tune-kernels finds is not kept for others.
    environment = dict(os.environ, XDG_CACHE_HOME=str(WORK / "cache")) if words[0] == "tune-kernels" else None
    done = subprocess.run([str(ECHOTRAIN)] + words, cwd=WORK, env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise SystemExit(f"echotrain {shlex.join(words)} failed:\n{done.stdout}")
    print("echotrain", shlex.join(words), flush=True)
    return done.stdout


def small(job):
    """Overrides that make a job's batches and buffers small, whatever its stages are; and one shard do."""
    spec = json.loads((WORK / job).read_text())
    out = ["--set", "last=000000"] if "last" in spec.get("vars", {}) else []
    for section, prefix in ((spec, ""), (spec.get("evaluation", {}), "evaluation.")):
        for i, stage in enumerate(section.get("pipeline", {}).get("stages", [])):
            for name, option in (("batch", "size"), ("shuffle", "buffer"), ("echo", "buffer")):
                if stage["stage"] == name:
                    out += ["--set", f"{prefix}pipeline.stages.{i}.{option}=8"]
    return out


def readme_commands():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = re.search(r"## Train on your images\n(.*?)\n## ", text, re.DOTALL).group(1)
    lines = [line for block in re.findall(r"```sh\n(.*?)```", section, re.DOTALL) for line in block.splitlines()]
    commands = [shlex.split(line, comments=True) for line in lines]
    commands = [words[1:] for words in commands if words and words[0] in ("$echotrain", "echotrain")]
    if len(commands) < 7:
        raise SystemExit(f"the README has {len(commands)} commands in '## Train on your images'")
    return commands


def run_readme():
    steps = 0
    for words in readme_commands():
        words = [re.sub(r"data=(/path/to/.*|\.\.\.)$", f"data={WORK}/data", word) for word in words]
        job = next((word for word in words[1:] if word.endswith(".json")), None)
        if words[0] in ("train", "eval", "profile", "tune-kernels", "export", "predict") and job:
            steps += 2 if words[0] == "train" else 0
            words += ["--set", f"train.steps={steps}"] + small(job)
        if words[0] == "tune-kernels":  # which takes minutes for a convolutional network
            words += ["--set", 'model={"layers": [{"layer": "flatten"}, {"layer": "dense", "units": 10}]}']
        run(*words)


def weights(run_folder):
    manifests = [(json.loads(path.read_text())["generation"], path.parent)
                 for path in run_folder.glob("checkpoints/step-*/manifest.json")]
    return (max(manifests)[1] / "weights.safetensors").read_bytes()


def train(job, folder, steps, *more):
    run("train", job, "--set", f"data={WORK}/data", "--set", f"out={WORK}/{folder}", "--set", f"train.steps={steps}",
        "--set", "output.checkpoint_every_steps=2", *small(job), *more)


def run_sample_jobs():
    """train.steps is the one key that shortens them."""
    for job in sorted((WORK / "samples/jobs").glob("*.json")):
        train(str(job.relative_to(WORK)), f"whole-{job.stem}", 4)


def resume_one():
    """planned_steps keeps both parts on the schedule of the whole run, which has been trained already."""
    job = "samples/jobs/cifar10_cnn.json"
    train(job, "parts", 2, "--set", "train.planned_steps=4")
    train(job, "parts", 4, "--resume")
    if weights(WORK / "parts") != weights(WORK / "whole-cifar10_cnn"):
        raise SystemExit(f"{job}: the resumed run's weights differ from the uninterrupted one's")


def main():
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    (WORK / "samples").symlink_to(ROOT / "samples")
    small_data.write(ECHOTRAIN, PAINTER, WORK, 100)
    run_readme()
    run_sample_jobs()
    resume_one()


if __name__ == "__main__":
    main()
