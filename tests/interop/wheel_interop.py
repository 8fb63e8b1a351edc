#!/usr/bin/env python3
"""The wheel: pip installs it into an empty environment, and its program trains there without other libraries.

    wheel_interop.py --weft build/weft

`make wheel` has made it, in build/wheel. auditwheel confirms its tag. Nothing is on the PATH but the new environment; the
run's weights, states and metrics have the bits of build/weft.
"""

import base64
import csv
import hashlib
import json
import re
import shutil
import subprocess
import sys
import zipfile

from common import Weft, read_metrics, run_program, write_run_file
from sampling import ROOT

MOST_BYTES = 60_000_000
# What a Linux of the tag has by itself.
OF_THE_MACHINE = re.compile(r"(ld-linux.*|linux-vdso|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s))\.so\.\d+$")


def call(*words, env=None):
    return subprocess.run([str(word) for word in words], text=True, capture_output=True, timeout=300, check=False, env=env)


def check_file(checks, wheel):
    """Tag, size, and every file as RECORD has it."""
    python = call(ROOT / "tools/setup.sh", "wheel").stdout.strip()
    found = json.loads(call(python, "-m", "auditwheel", "show", "--json", wheel).stdout)
    checks.equal(wheel.name.split("-")[-1], f"{found['overall_tag']}.whl", "auditwheel finds the tag of the name")
    checks.that(found["overall_tag"].startswith("manylinux_2_"), f"tag {found['overall_tag']}")
    size = wheel.stat().st_size
    checks.that(size < MOST_BYTES, f"{size / 1e6:.1f} MB, under {MOST_BYTES / 1e6:.0f}")
    with zipfile.ZipFile(wheel) as archive:
        record = next(name for name in archive.namelist() if name.endswith("/RECORD"))
        rows = list(csv.reader(archive.read(record).decode().splitlines()))
        bad = [name for name, digest, _ in rows if digest and digest != "sha256=" + base64.urlsafe_b64encode(
            hashlib.sha256(archive.read(name)).digest()).decode().rstrip("=")]
        checks.equal(sorted(row[0] for row in rows), sorted(archive.namelist()), "RECORD names every file")
        checks.equal(bad, [], "RECORD has every file's hash")
        requirements = re.findall(r"^Requires-Dist: .*", archive.read(record.replace("RECORD", "METADATA")).decode(), re.M)
        checks.equal([line for line in requirements if "extra ==" not in line], [], "no required Python package")


def install(checks, wheel, folder):
    """The new environment's bin/ and the folder of its package."""
    call(sys.executable, "-m", "venv", "--without-pip", folder)
    done = call(sys.executable, "-m", "pip", "--python", folder / "bin/python", "install", "-q", "--no-index",
                "--disable-pip-version-check", wheel)
    checks.that(done.returncode == 0, "pip installs it, without an index", done.stderr[-800:] if done.returncode else "")
    return folder / "bin", next((folder / "lib").glob("python3*")) / "site-packages/weft_ray"


def check_libraries(checks, package):
    """Every library is the package's own or the machine's by right; a control: without them it does not start."""
    program = package / "bin/weft"
    lines = call(program, env={"LD_TRACE_LOADED_OBJECTS": "1"}).stdout
    found = re.findall(r"^\s*(\S+) => (\S+)", lines, re.M)
    foreign = [path for name, path in found if not path.startswith(str(package)) and not OF_THE_MACHINE.match(name)]
    checks.that(len(found) > 10 and not foreign, "libraries: of the wheel, or of every Linux", " ".join(foreign))
    library = next((package / "lib").glob("libarrow.so.*"))
    shutil.move(library, package / library.name)
    checks.that(call(program, "--version", env={}).returncode == 127, "control: without one of them it does not start")
    shutil.move(package / library.name, library)


def check_training(checks, weft, bin_dir, folder):
    weft.call("corpus", folder / "data", "--seed", 1, "--train", 200, "--test", 10)
    file = write_run_file(folder / "run.yaml", {
        "name": "run", "model": {"path": str(ROOT / "examples/quickstart/model"), "init": "random"},
        "data": {"train": [str(folder / "data/train.jsonl")], "source": "{question}\n", "target": "{sql}",
                 "tokenizer": "bytes", "seq_length": 96},
        "parallel": {"dp": 2, "tp": 2, "mode": "exact"}, "launch": {"threads": 1},
        "train": {"steps": 3, "global_batch": 8, "micro_batch": 4, "lr": 1e-3}})
    env = {"PATH": str(bin_dir), "HOME": str(folder)}
    program = shutil.which("weft", path=env["PATH"])
    done = call(program, "train", file, "--run-dir", folder / "wheel-run", env=env)
    checks.that(done.returncode == 0, "weft on the PATH trains, dp 2 x tp 2", done.stderr[-800:] if done.returncode else "")
    weft.train(file, folder / "own-run")
    checks.equal(weft.call("hash", folder / "wheel-run"), weft.call("hash", folder / "own-run"), "weights and states")
    losses = [[line["loss"] for line in read_metrics(folder / name)[0]] for name in ("wheel-run", "own-run")]
    checks.equal(losses[0], losses[1], "losses")
    checks.equal(call(program, "train", folder / "missing.yaml", env=env).returncode, 2, "a missing run file: exit 2")


def body(args, checks, folder):
    wheels = list((args.weft.resolve().parent / "wheel").glob("weft_ray-*.whl"))
    if not checks.equal(len(wheels), 1, "make wheel has made one wheel"):
        return
    check_file(checks, wheels[0])
    bin_dir, package = install(checks, wheels[0], folder / "venv")
    check_libraries(checks, package)
    check_training(checks, Weft(args.weft), bin_dir, folder)


if __name__ == "__main__":
    run_program(__doc__, body)
