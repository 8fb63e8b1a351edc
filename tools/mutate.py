#!/usr/bin/env python3
"""tools/mutate.py: how many one-line bugs, put into a room one at a time, its tests find.

    tools/mutate.py ROOM [N] [--seed 1] [--here] [--skip-slow]

Takes N mutations of src/ROOM/**.cpp (tools/mutations.py), chosen by the seed. Each is put into a
scratch copy (build-mutate/), built, and tried by the room's tests, then by those of the rooms that
stand on it, the cheapest first, until one fails. One that does not compile, or gives the same object
file, is not counted. A test that takes ten times as long as it did without a mutation has found it
(a loop without end); one that fails and then passes has not.

--here works in this checkout and its build/ instead of the copy: for a checkout that nobody edits
meanwhile. --skip-slow leaves out e2e and dist, so that survivors are found quickly.
"""

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import mutations

ROOT = Path(__file__).resolve().parent.parent
SLOW = ("e2e", "dist")
# The test programs of a room and of those above it, the cheapest first.
TESTS = {"checkpoint": "checkpoint train cmd e2e dist",
         "comm": "comm allocation train dist e2e",
         "data": "data train cmd e2e dist",
         "exec": "exec planning allocation golden train e2e dist",
         "generate": "generate train cmd e2e",
         "parallel": "parallel train dist e2e",
         "text": "text data generate cmd e2e",
         "train": "train cmd golden e2e dist"}
ABOVE = "train cmd golden e2e dist"  # of a room that has no list
LEAST_S = 60  # of a time limit


class Scratch:
    """A tree whose sources may be changed, and its build."""

    def __init__(self, root, jobs):
        self.root, self.build, self.jobs = root, root / "build", jobs

    def make(self, *targets):
        """Whether it could be built."""
        done = subprocess.run(["cmake", "--build", self.build, "-j", str(self.jobs), "--target", *targets],
                              capture_output=True, text=True, check=False)
        return done.returncode == 0

    def configure(self):
        done = subprocess.run(["cmake", "--preset", "release"], cwd=self.root, capture_output=True, text=True,
                              check=False)
        if done.returncode != 0:
            sys.exit(f"mutate: cmake failed in {self.root}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")

    def objects(self, file):
        """Of a source src/ROOM/x.cpp: the files that the compiler makes of it."""
        place = Path(file).relative_to("src")
        return sorted(path for path in (self.build / "src").rglob(f"{place.name}.o")
                      if str(path).endswith(f"/{place}.o"))

    def run(self, test, limit_s, names="*"):
        """(passed | failed | too long, names of failed tests, seconds)."""
        command = [self.build / "tests" / f"test_{test}", f"--gtest_filter={names}", "--gtest_fail_fast"]
        begin = time.monotonic()
        with subprocess.Popen(command, cwd=self.root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.DEVNULL, errors="replace", start_new_session=True) as child:
            try:
                text, _ = child.communicate(timeout=limit_s)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)  # its own group: with the processes that it started
                child.communicate()
                return "too long", [], limit_s
        failed = sorted(set(re.findall(r"^\[  FAILED  \] ([\w/]+\.[\w/]+)", text, re.MULTILINE)))
        return "passed" if child.returncode == 0 else "failed", failed, time.monotonic() - begin


def remove_others(tree, names):
    """A source that the checkout no longer has would still be built: the build finds sources by pattern."""
    wanted = {tree / name for name in names if (ROOT / name).is_file()}
    for path in [*(tree / "src").rglob("*"), *(tree / "tests").rglob("*")]:
        if path.is_file() and path not in wanted:
            path.unlink()


def make_copy():
    """build-mutate/tree: the files of this checkout and no other; what did not change keeps its time."""
    tree = ROOT / "build-mutate" / "tree"
    tree.mkdir(parents=True, exist_ok=True)
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True,
                            check=True)
    names = listed.stdout.splitlines()
    remove_others(tree, names)
    for name in names:
        source, target = ROOT / name, tree / name
        if source.is_file() and not (target.exists() and target.read_bytes() == source.read_bytes()):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)  # with the time of now: its object may be newer than the change
    shared, link = ROOT.parent / "shared", tree.parent / "shared"
    if shared.exists() and not link.exists():
        link.symlink_to(shared)
    return tree


def measure(scratch, tests):
    """{test: time limit}; a test that fails without a mutation cannot judge one."""
    limits = {}
    for test in tests:
        if not scratch.make(f"test_{test}"):
            sys.exit(f"mutate: test_{test} cannot be built in {scratch.root}")
        verdict, failed, took_s = scratch.run(test, 3600)
        if verdict != "passed":
            verdict, failed, took_s = scratch.run(test, 3600)
        if verdict != "passed":
            sys.exit(f"mutate: test_{test} fails without a mutation: {' '.join(failed)}")
        limits[test] = LEAST_S + 10 * took_s
        print(f"mutate: test_{test} takes {took_s:.0f} s", flush=True)
    return limits


def judge(scratch, limits):
    """Which test found the mutation in the tree; None where none did."""
    for test, limit_s in limits.items():
        if not scratch.make(f"test_{test}"):
            return f"test_{test} does not link"
        verdict, failed, _ = scratch.run(test, limit_s)
        if verdict == "failed" and failed:  # once more: a busy machine fails tests that measure time
            again, failed_again, _ = scratch.run(test, limit_s, ":".join(failed))
            verdict, failed = again, failed_again or failed
        if verdict != "passed":
            return f"test_{test} {failed[0] if failed else verdict}"
    return ""


def try_one(scratch, limits, file, mutation):
    """The verdict of one mutation; restores the file afterwards."""
    path, source = scratch.root / file, (scratch.root / file).read_text()
    objects = scratch.objects(file)
    targets = [str(o.relative_to(scratch.build)) for o in objects]
    before = [o.read_bytes() for o in objects]
    try:
        path.write_text(mutation.apply(source))
        if not objects or not scratch.make(*targets):
            return "does not compile"
        if [o.read_bytes() for o in objects] == before:
            return "same object"
        found_by = judge(scratch, limits)
        return f"killed by {found_by}" if found_by else "SURVIVED"
    finally:
        path.write_text(source)
        scratch.make(*targets)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("room")
    parser.add_argument("num", type=int, nargs="?", default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--here", action="store_true")
    parser.add_argument("--skip-slow", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    args = parser.parse_args()
    files = [path for path in sorted((ROOT / "src" / args.room).rglob("*.cpp")) if "unicode_tables" not in path.name]
    if not files:
        parser.error(f"src/{args.room} has no .cpp files")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # restores the source
    if args.here and subprocess.run(["git", "diff", "--quiet", "--", "src"], cwd=ROOT, check=False).returncode != 0:
        parser.error("src/ has changes that are not committed")
    scratch = Scratch(ROOT if args.here else make_copy(), args.jobs)
    if not args.here:
        scratch.configure()
    own = [args.room] if (ROOT / "tests" / args.room).is_dir() else []
    tests = TESTS[args.room].split() if args.room in TESTS else own + [t for t in ABOVE.split() if t not in own]
    limits = measure(scratch, [t for t in tests if not (args.skip_slow and t in SLOW)])
    by_file = {str(path.relative_to(ROOT)): mutations.mutations_of(path.read_text()) for path in files}
    counted, killed, left_out = 0, 0, 0
    for file, mutation in mutations.pick(by_file, random.Random(f"{args.room} {args.seed}")):
        if counted == args.num:
            break
        begin = time.monotonic()
        verdict = try_one(scratch, limits, file, mutation)
        took_s = time.monotonic() - begin
        print(f"{file}:{mutation.line}: {mutation.kind}: {mutation.change}: {verdict} ({took_s:.0f} s)", flush=True)
        is_counted = verdict == "SURVIVED" or verdict.startswith("killed")
        counted, left_out = counted + is_counted, left_out + (not is_counted)
        killed += verdict.startswith("killed")
    print(f"{args.room}: {killed} of {counted} killed, {100 * killed / max(counted, 1):.0f} % ({left_out} not counted, "
          f"seed {args.seed})")


if __name__ == "__main__":
    main()
