#!/usr/bin/env python3
"""tools/run_interop.py: runs every tests/interop/*_interop.py and sums their counts.

    tools/run_interop.py PYTHON [name]...

PYTHON is the interpreter of the pinned environment. A program prints its checks, ends with a line
"N passed, M failed", with ", K skipped" where reference data are absent, and exits 0 where none
failed. Long matrices run in part, chosen by the commit's hash (tests/interop/sampling.py), whole with
FULL=1 in the environment. Two programs run at a time, since each leaves a core idle while Python
starts or one rank waits; those that promise a time run alone (slurm promises one with FULL=1 only).
"""

import concurrent.futures
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
LONG = {"exact", "fast", "golden", "peers"}  # begin first


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


def run_timed(python, program, together):
    """The same; what a program that runs beside another prints is shown when it ends."""
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
    programs = sorted((ROOT / "tests/interop").glob("*_interop.py"), key=lambda p: (name_of(p) not in LONG, p))
    programs = [p for p in programs if not names or name_of(p) in names]
    unknown = set(names) - {name_of(p) for p in programs}
    if unknown:
        sys.exit(f"interop: no program is called {', '.join(sorted(unknown))}")
    with concurrent.futures.ThreadPoolExecutor(TOGETHER) as pool:
        counts = list(pool.map(lambda p: run_timed(python, p, True), [p for p in programs if name_of(p) not in ALONE]))
    counts += [run_timed(python, p, False) for p in programs if name_of(p) in ALONE]
    passed, failed, skipped = (sum(numbers) for numbers in zip(*counts))
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
