#!/usr/bin/env python3
"""tools/run_tests.py: runs ctest, then counts single tests and rejects skips that are not allowed.

Tests named in tests/slots.txt run on some commits only (tests/interop/sampling.py). The tests that are left to
other commits are printed. FULL=1 runs all tests.
A skipped or disabled test counts as failed, except the names in tests/needs_shared.txt on a machine
that has ../shared/data neither there nor in the repository.
"""

import argparse
import fnmatch
import json
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/interop"))

from sampling import commit_number, in_slot, is_full  # noqa: E402


def read_names(path):
    """The names of a list, one per line; # begins a comment."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {line.split("#")[0].strip() for line in lines} - {""}


def read_slots(path):
    """Reads [(pattern, slots)] from tests/slots.txt."""
    lines = (line.split("#")[0].split() for line in path.read_text().splitlines())
    return [(pattern, int(slots)) for pattern, slots in filter(None, lines)]


def list_tests(program):
    """Lists every Suite.Test of a GoogleTest program."""
    done = subprocess.run([program, "--gtest_list_tests"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    names, suite = [], ""
    for line in done.stdout.splitlines():
        name = line.split("#")[0].strip()
        if line.startswith("  "):
            names.append(suite + name)
        elif name.endswith("."):
            suite = name
    return names


def programs_of(build, pattern):
    """The GoogleTest programs that ctest starts with -R `pattern`."""
    listed = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1", *(["-R", pattern] if pattern else [])],
                            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    commands = [test["command"] for test in json.loads(listed.stdout)["tests"] if "command" in test]
    return [command[0] for command in commands if Path(command[0]).name.startswith("test_")]


def left_out(names, slots, number):
    """{pattern: (names left to other commits, number of matching names)}; the first matching pattern applies."""
    found = {pattern: ([], []) for pattern, _ in slots}
    for name in names:
        for pattern, count in slots:
            if fnmatch.fnmatchcase(name, pattern):
                left, all_of_it = found[pattern]
                all_of_it.append(name)
                if not in_slot(name, count, number):
                    left.append(name)
                break
    return {pattern: (left, len(all_of_it)) for pattern, (left, all_of_it) in found.items()}


def with_left_out(only, left):
    """A GTEST_FILTER: `only` (may be empty) without the names in `left`."""
    return only if not left else f"{only}{':' if '-' in only else '-'}{':'.join(left)}"


def print_left_out(found):
    for pattern, (left, count) in found.items():
        if left:
            shown = ", ".join(name.removeprefix(pattern.rstrip("*")) for name in left)
            print(f"left to other commits: {len(left)} of {count} tests of {pattern}: {shown}")
    print(f"{sum(len(left) for left, _ in found.values())} tests are left to other commits; FULL=1 runs all", flush=True)


def read_gtest(path):
    """{Suite.Test: passed | failed | skipped} of one program's report."""
    found = {}
    for suite in json.loads(path.read_text())["testsuites"]:
        for case in suite["testsuite"]:
            name = f'{suite["name"]}.{case["name"]}'
            if case.get("failures"):
                found[name] = "failed"
            elif case.get("result") == "COMPLETED":
                found[name] = "passed"
            else:
                found[name] = "skipped"
    return found


def collect(results, junit):
    """[(name, verdict)] of all single tests; a program that failed beyond its tests is one more."""
    verdicts = []
    for case in ET.parse(junit).getroot().iter("testcase"):
        program, ok = case.get("name"), case.get("status") == "run"
        report = results / f"{program}.json"
        try:
            found = read_gtest(report) if report.exists() else {}
        except ValueError:  # half written: the program died
            found = {}
        if not found or (not ok and "failed" not in found.values()):
            found[f"program {program}"] = "passed" if ok else "failed"
        verdicts += found.items()
    return verdicts


def without_passed(output):
    """What a program printed, without the tests that passed."""
    kept, test = [], []
    for line in output.splitlines():
        if line.startswith("[ RUN      ]"):
            kept, test = kept + test, [line]
        elif line.startswith("[       OK ]"):
            test = []
        elif test:
            test.append(line)
        elif not line.startswith(("[-----", "[=====", "Running main()")):
            kept.append(line)
    return "\n".join(kept + test).strip()


def print_failures(junit):
    for case in ET.parse(junit).getroot().iter("testcase"):
        if case.get("status") != "run":
            output = without_passed(case.findtext("system-out") or "")
            print(f"--- {case.get('name')} failed; it printed, passed tests left out:\n{output}", flush=True)


def judge(verdicts, may_skip, has_shared):
    """(passed, failed, skipped) names; a skip that is not allowed has failed."""
    passed = [name for name, verdict in verdicts if verdict == "passed"]
    failed = [name for name, verdict in verdicts if verdict == "failed"]
    skipped = [name for name, verdict in verdicts if verdict == "skipped"]
    bad = [name for name in skipped if has_shared or name not in may_skip]
    for name in bad:
        why = "its data are here" if name in may_skip else "it is not on tests/needs_shared.txt"
        print(f"skipped, but {why}: {name}")
    return passed, failed + bad, [name for name in skipped if name not in bad]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("-j", type=int, default=1)
    parser.add_argument("-R", default="", help="only the programs that match")
    args = parser.parse_args()
    results = args.build.resolve() / "results"
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir()
    junit = results / "ctest.xml"
    command = ["ctest", "--test-dir", args.build, "-j", str(args.j)]
    command += ["--test-output-size-failed", str(16 << 20), "--no-tests=error", "--output-junit", junit] + (["-R", args.R] if args.R else [])
    names = [name for program in programs_of(args.build, args.R) for name in list_tests(program)]
    found = left_out(names, read_slots(ROOT / "tests/slots.txt"), None if is_full() else commit_number())
    only = with_left_out(os.environ.get("GTEST_FILTER", ""), [name for left, _ in found.values() for name in left])
    code = subprocess.run(command, stdin=subprocess.DEVNULL, env={**os.environ, "GTEST_FILTER": only or "*"}).returncode
    if not junit.exists():
        sys.exit("ctest left no report")
    print_failures(junit)
    may_skip = read_names(ROOT / "tests/needs_shared.txt")
    has_shared = any((folder / "shared/data").exists() for folder in (ROOT.parent, ROOT))
    verdicts = collect(results, junit)
    passed, failed, skipped = judge(verdicts, may_skip, has_shared)
    for name in () if args.R else sorted(may_skip - set(names)):
        print(f"tests/needs_shared.txt names a test that does not exist: {name}")
        failed.append(name)
    for pattern in () if args.R else [pattern for pattern, (_, count) in found.items() if not count]:
        print(f"tests/slots.txt names a test that does not exist: {pattern}")
        failed.append(pattern)
    print_left_out(found)
    for name in sorted(failed):
        print(f"failed: {name}")
    print(f"{len(passed)} passed, {len(failed)} failed, {len(skipped)} skipped", flush=True)
    sys.exit(1 if failed or code else 0)


if __name__ == "__main__":
    main()
