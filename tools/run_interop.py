#!/usr/bin/env python3
"""tools/run_interop.py: runs every tests/interop/*_interop.py and sums their counts.

    tools/run_interop.py PYTHON [name]...

PYTHON is the interpreter of the pinned environment. A program prints its checks, ends with a line
"N passed, M failed", with ", K skipped" where reference data are absent, and exits 0 where none
failed. Long matrices run in part, chosen by the commit's hash (tests/interop/sampling.py), whole with
FULL=1 in the environment. Two programs run at a time, since each leaves a core idle while Python
starts or one rank waits; those that promise a time run alone (slurm promises one with FULL=1 only).

INTEROP_BUDGET_S (.ci/run sets it; not with FULL=1) is the time after which no more programs begin but those of
EVERY_TIME, and INTEROP_LAST_S that after which none does: a slow machine must end in time too. Those of EVERY_TIME
come first, the others in an order shuffled by the commit: what one commit leaves out, which is printed, others run.
"""

import concurrent.futures
import functools
import hashlib
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
TOGETHER_SHARE = 0.65  # of the budget; the programs that run alone have the rest

sys.path.insert(0, str(ROOT / "tests/interop"))

from sampling import commit_hash  # noqa: E402


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


def in_turn(programs, commit):
    """Those of EVERY_TIME, in its order, then the others, in an order of this commit's."""
    def place(program):
        name = name_of(program)
        if name in EVERY_TIME:
            return EVERY_TIME.index(name), ""
        return len(EVERY_TIME), hashlib.sha256(f"{commit} {name}".encode()).hexdigest()
    return sorted(programs, key=place)


def run_timed(python, program, together, deadline=float("inf"), last=float("inf")):
    """The same; what a program that runs beside another prints is shown when it ends. None: it was not begun,
    since the deadline is over, or for those of EVERY_TIME the last moment."""
    if time.monotonic() >= (last if name_of(program) in EVERY_TIME else min(deadline, last)):
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
    programs = in_turn((ROOT / "tests/interop").glob("*_interop.py"), commit_hash())
    unknown = set(names) - {name_of(p) for p in programs}
    if unknown:
        sys.exit(f"interop: no program is called {', '.join(sorted(unknown))}")
    programs = [p for p in programs if not names or name_of(p) in names]
    budget_s, last_s = (float("inf") if IS_FULL or names else float(os.environ.get(name, "inf"))
                        for name in ("INTEROP_BUDGET_S", "INTEROP_LAST_S"))
    begin = time.monotonic()
    together, alone = ([p for p in programs if (name_of(p) in ALONE) == is_alone] for is_alone in (False, True))
    with concurrent.futures.ThreadPoolExecutor(TOGETHER) as pool:
        run_beside = functools.partial(run_timed, python, together=True, deadline=begin + TOGETHER_SHARE * budget_s, last=begin + last_s)
        counts = list(pool.map(run_beside, together))
    counts += [run_timed(python, p, together=False, deadline=begin + budget_s, last=begin + last_s) for p in alone]
    left = sorted(name_of(p) for p, count in zip(together + alone, counts) if count is None)
    if left:
        print(f"interop: {budget_s:.0f} s are over; left to other commits: {', '.join(left)} (FULL=1 runs all)")
    counts = [count for count in counts if count is not None]
    passed, failed, skipped = (sum(numbers) for numbers in zip((0, 0, 0), *counts))
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
