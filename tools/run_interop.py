#!/usr/bin/env python3
"""tools/run_interop.py: runs every tests/interop/*_interop.py and sums their counts.

    tools/run_interop.py PYTHON [name]...

PYTHON is the interpreter of the pinned environment. A program prints its checks, ends with a line
"N passed, M failed", with ", K skipped" where reference data are absent, and exits 0 where none
failed. Each commit runs a sample of the long matrices (tests/interop/sampling.py); FULL=1 in the environment runs all
of them. Programs in EVERY_TIME run on every commit, the others on one of SLOTS commits. Two programs run at a time, since each leaves a core idle while Python
starts or one rank waits; those that promise a time run alone (slurm promises one with FULL=1 only).

INTEROP_LAST_S (set by .ci/run; ignored with FULL=1) is the time in seconds after which no program is started, so
that a slow machine finishes in time. The programs that did not run are printed with the reason.
"""

import concurrent.futures
import functools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IS_FULL = os.environ.get("FULL", "") not in ("", "0")
DEADLINE_S = 3600 if IS_FULL else 1800  # of a program, beside another
TOGETHER = 2
ALONE = {"cluster", "kill", "node_faults", "nodes", "ray_beside", "stop", "survive", "t5"} | ({"slurm"} if IS_FULL else set())
EVERY_TIME = ["exact", "golden", "models", "ray", "faults", "roundtrip", "survive", "nodes"]  # the long ones begin first
SLOTS = 5  # number of slots for all other programs

sys.path.insert(0, str(ROOT / "tests/interop"))

from sampling import Sampler  # noqa: E402


def run(python, program, say):
    """(passed, failed, skipped) of one program; one that dies, hangs or does not count has failed."""
    command = [python, program, "--weft", ROOT / "build/weft"]
    count = (0, 0, 0)
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace") as child:
        timer = threading.Timer(DEADLINE_S, child.terminate)  # also where no line comes any more
        timer.start()
        for line in child.stdout:
            say(line.rstrip("\n"))
            if match := re.match(r"(\d+) passed, (\d+) failed(?:, (\d+) skipped)?", line):
                count = tuple(int(number or 0) for number in match.groups())
        _, status, used = os.wait4(child.pid, 0)
        code = child.returncode = os.waitstatus_to_exitcode(status)
        timer.cancel()
        say(f"interop: {program.name} used {used.ru_utime + used.ru_stime:.0f} s of the processors")
        if code in (143, -signal.SIGTERM):
            say(f"interop: {program.name} took longer than {DEADLINE_S} s")
    passed, failed, skipped = count
    if code != 0 and failed == 0 or sum(count) == 0:
        say(f"interop: {program.name} exited with {code} and counted {passed} + {failed} + {skipped}")
        failed += 1
    return passed, failed, skipped


def name_of(program):
    return program.name.removesuffix("_interop.py")


def in_turn(programs, sample):
    """Programs in EVERY_TIME, in that order, then the other programs of this commit's slot."""
    every = [p for p in programs if name_of(p) in EVERY_TIME]
    return (sorted(every, key=lambda p: EVERY_TIME.index(name_of(p)))
            + [p for p in programs if p not in every and sample.one_in(SLOTS, name_of(p))])


def run_timed(python, program, together, last=float("inf")):
    """Runs one program. Output of a concurrent program is shown when the program ends. None: not started in time."""
    if time.monotonic() >= last:
        return None
    lines = []
    say = lines.append if together else lambda line: print(line, flush=True)
    say(f"interop: {program.name}")
    begin = time.monotonic()
    count = run(python, program, say)
    say(f"interop: {program.name} {time.monotonic() - begin:.0f} s")
    if lines:
        print("\n".join(lines), flush=True)
    return count


def main():
    python, names = sys.argv[1], sys.argv[2:]
    programs, sample = sorted((ROOT / "tests/interop").glob("*_interop.py")), Sampler()
    unknown = set(names) - {name_of(p) for p in programs}
    if unknown:
        sys.exit(f"interop: no program is called {', '.join(sorted(unknown))}")
    programs = [p for p in programs if name_of(p) in names] if names else in_turn(programs, sample)
    if sample.summary():
        print(f"interop: {sample.summary()}", flush=True)
    last = float("inf") if IS_FULL or names else time.monotonic() + float(os.environ.get("INTEROP_LAST_S", "inf"))
    together, alone = ([p for p in programs if (name_of(p) in ALONE) == is_alone] for is_alone in (False, True))
    with concurrent.futures.ThreadPoolExecutor(TOGETHER) as pool:
        counts = list(pool.map(functools.partial(run_timed, python, together=True, last=last), together))
    counts += [run_timed(python, p, together=False, last=last) for p in alone]
    left = sorted(name_of(p) for p, count in zip(together + alone, counts) if count is None)
    if left:
        print(f"interop: not started before INTEROP_LAST_S: {', '.join(left)} (FULL=1 runs all)")
    counts = [count for count in counts if count is not None]
    passed, failed, skipped = (sum(numbers) for numbers in zip((0, 0, 0), *counts))
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
