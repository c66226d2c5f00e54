#!/usr/bin/env python3
"""Draws the figures of docs/evidence again from the committed records: a report has to give them as they are.

    evidence.py ECHOTRAIN WORK [--update]

ECHOTRAIN is the program. For each docs/evidence/STUDY/trials.jsonl.zst, `echotrain study samples/studies/STUDY.json --report` is
run on those records in the folder WORK, without any data. Each SVG of docs/evidence/STUDY and its trials.csv have to be among
what the report writes, byte for byte. --update copies what differs to docs/evidence.
"""

import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def report(program, study, work):
    """Pairs of a committed file and the one that a report of the committed records writes."""
    kept = ROOT / "docs/evidence" / study
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    subprocess.run(["zstd", "-q", "-d", kept / "trials.jsonl.zst", "-o", work / "trials.jsonl"], check=True)
    subprocess.run([program, "study", ROOT / f"samples/studies/{study}.json", "--set", "data=none", "--out", work, "--report"],
                   check=True, stdout=subprocess.DEVNULL)
    return [(kept / "trials.csv", work / "trials.csv"), *((figure, work / "figures" / figure.name) for figure in kept.glob("*.svg"))]


def main():
    program, work, update = sys.argv[1], pathlib.Path(sys.argv[2]), "--update" in sys.argv[3:]
    studies = sorted(path.parent.name for path in ROOT.glob("docs/evidence/*/trials.jsonl.zst"))
    assert studies, "no records in docs/evidence"
    failed = False
    for study in studies:
        pairs = report(program, study, work / study)
        wrong = [(was, now) for was, now in pairs if not now.exists() or was.read_bytes() != now.read_bytes()]
        print(f"{study}: {len(pairs)} files compared, {len(wrong)} differ")
        for was, now in wrong:
            print(f"  {was.relative_to(ROOT)} is not {now}")
            if update:
                shutil.copyfile(now, was)
        failed = failed or (bool(wrong) and not update)
    return failed


if __name__ == "__main__":
    sys.exit(main())
