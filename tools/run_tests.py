#!/usr/bin/env python3
"""tools/run_tests.py: runs ctest, then counts single tests and rejects skips that are not allowed.

A skipped or disabled test counts as failed, except the names in tests/needs_shared.txt on a machine
that has ../shared/data neither there nor in the repository.
"""

import argparse
import json
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def read_names(path):
    """The names of a list, one per line; # begins a comment."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {line.split("#")[0].strip() for line in lines} - {""}


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
    code = subprocess.run(command, stdin=subprocess.DEVNULL).returncode
    if not junit.exists():
        sys.exit("ctest left no report")
    print_failures(junit)
    may_skip = read_names(ROOT / "tests/needs_shared.txt")
    has_shared = any((folder / "shared/data").exists() for folder in (ROOT.parent, ROOT))
    verdicts = collect(results, junit)
    passed, failed, skipped = judge(verdicts, may_skip, has_shared)
    for name in () if args.R else sorted(may_skip - {name for name, _ in verdicts}):
        print(f"tests/needs_shared.txt names a test that does not exist: {name}")
        failed.append(name)
    for name in sorted(failed):
        print(f"failed: {name}")
    print(f"{len(passed)} passed, {len(failed)} failed, {len(skipped)} skipped", flush=True)
    sys.exit(1 if failed or code else 0)


if __name__ == "__main__":
    main()
