#!/usr/bin/env python3
"""tools/run_interop.py: runs every tests/interop/*_interop.py and sums their counts.

    tools/run_interop.py PYTHON [name]...

PYTHON is the interpreter of the pinned environment. A program prints its checks, ends with a line
"N passed, M failed", and exits 0 where all passed. Long matrices run in part, chosen by the commit's
hash (tests/interop/sampling.py), whole with FULL=1 in the environment.
"""

import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEADLINE_S = 1200


def run(python, program):
    """(passed, failed) of one program; one that dies, hangs or does not count has failed."""
    command = [python, program, "--weft", ROOT / "build/weft"]
    count = (0, 0)
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace") as child:
        timer = threading.Timer(DEADLINE_S, child.terminate)  # also where no line comes any more
        timer.start()
        for line in child.stdout:
            print(line, end="", flush=True)
            if match := re.match(r"(\d+) passed, (\d+) failed", line):
                count = int(match.group(1)), int(match.group(2))
        code = child.wait()
        timer.cancel()
        if code in (143, -signal.SIGTERM):
            print(f"interop: {program.name} took longer than {DEADLINE_S} s", flush=True)
    passed, failed = count
    if code != 0 and failed == 0 or passed + failed == 0:
        print(f"interop: {program.name} exited with {code} and counted {passed} + {failed}")
        failed += 1
    return passed, failed


def main():
    python, names = sys.argv[1], sys.argv[2:]
    programs = sorted((ROOT / "tests/interop").glob("*_interop.py"))
    programs = [p for p in programs if not names or p.name.removesuffix("_interop.py") in names]
    passed = failed = 0
    for program in programs:
        start = time.monotonic()
        print(f"interop: {program.name}", flush=True)
        good, bad = run(python, program)
        passed, failed = passed + good, failed + bad
        print(f"interop: {program.name} {time.monotonic() - start:.0f} s", flush=True)
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
