"""The logits of models that weft wrote: transformers' at every position, compared by the golden tests."""

import dataclasses
import os
import subprocess
import sys

from safetensors.torch import load_file, save_file

from common import DEADLINE_S, ROOT

sys.path.insert(0, str(ROOT / "tools"))
from golden_models import stored_model  # noqa: E402
from make_golden import make_logits  # noqa: E402

SEED = 5
FAULT = 2e-4  # twice the tests' tolerance


def run_golden(weft, goldens, names, tests):
    """The names of the tests that passed, and the end of the output. `tests`: patterns without the set."""
    env = {**os.environ, "WEFT_GOLDEN_DIR": str(goldens), "WEFT_GOLDEN_SETS": ",".join(names)}
    level = weft.json("doctor")["cpu"]["levels"][-1]
    only = ":".join(f"*{test}*/{name}_{level}" for test in tests for name in names)
    done = subprocess.run([str(weft.path.parent / "tests/test_golden"), f"--gtest_filter={only}"],
                          env=env, cwd=ROOT, text=True, capture_output=True, timeout=DEADLINE_S,
                          check=False)
    passed = [line for line in done.stdout.splitlines() if line.startswith("[       OK ]")]
    return passed, done.stdout[-1500:]


def check_golden(weft, checks, goldens, names, tests):
    """One check per set and test."""
    passed, tail = run_golden(weft, goldens, names, tests)
    for name in names:
        for test in tests:
            good = any(test in line and f"/{name}_" in line for line in passed)
            checks.that(good, f"{name}: {test}", "" if good else tail)


def check_final_logits(weft, checks, goldens, finals):
    """`finals`: name to folder. Also that a difference of twice the tolerance is found."""
    names = sorted(finals)
    for name in names:
        make_logits(dataclasses.replace(stored_model(finals[name]), name=name), goldens, SEED)
    check_golden(weft, checks, goldens, names, ["GoldenLogits.OfEveryPosition"])
    path = goldens / names[0] / "golden.safetensors"
    tensors = load_file(path)
    tensors["logits"][0, 0, 0] += FAULT  # row 0 has no padding
    save_file(tensors, path)
    passed, tail = run_golden(weft, goldens, names[:1], ["GoldenLogits.OfEveryPosition"])
    checks.that(not passed and "[  FAILED  ]" in tail, f"{names[0]}: a logit off by {FAULT:g} is detected")
