#!/usr/bin/env python3
"""Regenerates the golden sets with the installed torch, and runs weft's golden tests on them.

    golden_interop.py --weft build/weft [--test build/tests/test_golden] [--seed N]

The seed is the date unless given. Gradients are whole in every set; a third of the sets is made, all
with FULL=1. The tests, whose names end in
the level, run for the reference kernels and for every CPU level of this machine, and once more on
goldens with a small fault, which they must find.
"""

import datetime
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import load_file, save_file

from common import ROOT, Weft, run_program

sys.path.insert(0, str(ROOT / "tools"))
from golden_models import golden_models  # noqa: E402

REFERENCE = "ref"  # separate kernels, not a CPU level
DEADLINE_S = 1800


def today():
    return int(datetime.date.today().strftime("%Y%m%d"))


def run_tests(program, goldens, level, only):
    """(exit code, tests that ran, tests skipped, tail of the output)."""
    env = {**os.environ, "WEFT_GOLDEN_DIR": str(goldens)}
    if level != REFERENCE:
        env["WEFT_CPU_LEVEL"] = level
    done = subprocess.run([str(program), f"--gtest_filter={only}"], env=env, cwd=ROOT, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=DEADLINE_S,
                          check=False)
    ran = re.search(r"\[=+\] (\d+) tests? from .* ran\.", done.stdout)
    skipped = re.search(r"\[  SKIPPED \] (\d+) test", done.stdout)
    return (done.returncode, int(ran.group(1)) if ran else 0,
            int(skipped.group(1)) if skipped else 0, done.stdout[-3000:])


def spoil(goldens, copy):
    """A copy in which one gradient is 0.01 % too large: five times the tests' tolerance."""
    shutil.copytree(goldens, copy)
    path = copy / "tiny_llama" / "golden.safetensors"
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    tensors = load_file(path)
    tensors["grad.model.layers.1.mlp.up_proj.weight"] *= 1.0001
    save_file(tensors, path, metadata)
    return copy


def body(args, checks, folder):
    weft = Weft(args.weft)
    program = args.test or weft.path.parent / "tests" / "test_golden"
    if not checks.that(os.access(program, os.X_OK), "the golden test program is built",
                       os.path.basename(program)):
        return
    goldens = folder / "golden"
    names = [golden.name for golden in golden_models()]
    sets = ["tiny_llama", *checks.sample([n for n in names if n != "tiny_llama"], 3)]
    maker = [sys.executable, str(ROOT / "tools" / "make_golden.py"), "--out", str(goldens),
             "--seed", str(args.seed), "--full", "--only", *sets]
    made = subprocess.run(maker, text=True, timeout=DEADLINE_S, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, check=False)
    print(made.stdout, end="")
    if not checks.that(made.returncode == 0, f"goldens made from seed {args.seed}",
                       made.stderr[-2000:] if made.returncode else ""):
        return
    for name in sets:
        checks.that((goldens / name / "golden.safetensors").exists(), f"set {name} exists")
    levels = weft.json("doctor")["cpu"]["levels"]
    checks.that(levels, f"levels of this machine: {', '.join(levels)}")
    for level in [REFERENCE] + levels:
        only = ":".join(f"*/{name}_{level}" for name in sets)
        code, ran, skipped, tail = run_tests(program, goldens, level, only)
        good = code == 0 and ran > 0 and skipped == 0
        checks.that(good, f"level {level}: {ran} golden tests, {skipped} skipped",
                    "" if good else f"exit {code}\n{tail}")
    code, ran, _, tail = run_tests(program, spoil(goldens, folder / "spoilt"), levels[-1],
                                   f"*EveryGradient/tiny_llama_{levels[-1]}")
    checks.that(code == 1 and "tiny_llama" in tail, "a gradient 0.01 % too large is detected",
                f"exit {code} after {ran} tests")


def add_arguments(parser):
    parser.add_argument("--test", type=Path, help="golden test program; default: next to weft")
    parser.add_argument("--seed", type=int, default=today())


if __name__ == "__main__":
    run_program(__doc__, body, add_arguments)
