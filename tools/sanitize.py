#!/usr/bin/env python3
"""tools/sanitize.py: fuzzers and tests under the sanitizers; any finding fails.

The readers of foreign bytes are fuzzed with ASan and UBSan, together for a minute; the tests of
their rooms run under ASan and UBSan; those of the threads under TSan. Rooms that read neither foreign
bytes nor the network run on some commits only (tests/interop/sampling.py); FULL=1 runs all.
"""

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from run_tests import read_gtest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/interop"))

from sampling import Sampler  # noqa: E402

# A GPU's products are planned calls, done by plain loops in the tests: the large ones take minutes
# under ASan, and smaller ones run the same code.
ASAN_RUNS = [(["base", "io", "checkpoint", "net", "launch", "text", "data", "comm"], None)]
ASAN_IN_TURN = [
    (["exec", "generate"], None),
    (["kernel"], "*Attention*"),
    (["kernel"], "-*Attention*:*SeveralBlocks/planned:*WorkspaceSuffices*/planned:*DependOnly*/planned"),
]
# Rooms, and the names of their tests (all where there are none). libgloo is not instrumented: TSan
# sees its locks but not its reference counts, and reports false races; its thread ranks run
# under ASan. Of dist those tests that train over ranks as threads in every strategy, few steps each.
TSAN_RUNS = [(["base", "net", "comm"], "-*gloo*:*Gloo*:*nodes*:Death.*")]
TSAN_IN_TURN = [
    (["exec", "dist"], "Lane.*:DeviceLane.*:Exact.GroupsOfSeveralLeaves:Exact.NoRank*:ExactControl.FastModeDiffers"),
]
# Of clang's fuzzers only: g++'s code never frees a frame of ASan's fake stack. Ten thousand
# calls later there is none left to take, and every call searches them all, in 6 us instead of 6 ns.
FUZZ_ASAN = "detect_stack_use_after_return=1:strict_string_checks=1"
ENV = {
    **os.environ,
    "ASAN_OPTIONS": "strict_string_checks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
}


def say(text):
    print(f"sanitize: {text}", flush=True)


def build(preset, targets, jobs):
    """Configures and builds; the tools' output is shown only on failure."""
    say(f"building {preset}: {' '.join(targets)}")
    configure = ["cmake", "--preset", preset]
    compile_ = ["cmake", "--build", ROOT / f"build-{preset}", "-j", str(jobs), "--target", *targets]
    for command in (configure, compile_):
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              stdin=subprocess.DEVNULL, text=True, errors="replace")
        if done.returncode != 0:
            print(done.stdout[-8000:])
            sys.exit(f"sanitize: the {preset} build failed")


def fuzz(name, seconds):
    """One target, from the committed seeds and what earlier runs have found."""
    folder = ROOT / "build-fuzz"
    corpus = folder / "corpus" / name
    corpus.mkdir(parents=True, exist_ok=True)
    (folder / "findings").mkdir(exist_ok=True)
    seeds = ROOT / "tests/fuzz/corpus" / name
    # A second of silence is not a hang on a busy machine; a reader that needs 30 for 4 KiB is.
    command = [folder / f"tests/fuzz/fuzz_{name}", f"-max_total_time={seconds}", "-max_len=4096",
               "-timeout=30", "-rss_limit_mb=2048", "-print_final_stats=1",
               f"-artifact_prefix={folder}/findings/{name}-", corpus]
    command += [seeds] if seeds.is_dir() else []
    try:
        done = subprocess.run(command, cwd=ROOT, env={**ENV, "ASAN_OPTIONS": FUZZ_ASAN}, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace",
                              stdin=subprocess.DEVNULL, timeout=seconds + 300)
    except subprocess.TimeoutExpired:
        say(f"FAILED fuzz_{name}: does not end")
        return False
    if done.returncode != 0:
        print(done.stdout[-6000:])
        say(f"FAILED fuzz_{name}; the input is in build-fuzz/findings")
        return False
    runs = [line.split()[-1] for line in done.stdout.splitlines() if "executed_units" in line]
    say(f"ok fuzz_{name}: {runs[0] if runs else 0} inputs in {seconds} s")
    return True


def run_fuzzers(seconds, jobs):
    names = sorted(p.name.removesuffix("_fuzz.cpp") for p in (ROOT / "tests/fuzz").glob("*_fuzz.cpp"))
    build("fuzz", [f"fuzz_{name}" for name in names], jobs)
    share = max(5, seconds * jobs // len(names))
    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(lambda name: fuzz(name, share), names))


def with_tests(rooms):
    return [room for room in rooms if list((ROOT / "tests" / room).glob("**/*_test.cpp"))]


def build_rooms(preset, runs, jobs):
    rooms = [room for run, _ in runs for room in with_tests(run)]
    build(preset, [f"test_{room}" for room in dict.fromkeys(rooms)], jobs)


def test_rooms(preset, rooms, jobs, only):
    """The tests of some rooms (only: of these names) in a sanitized build; they print their counts."""
    rooms = with_tests(rooms)
    pattern = f"^({'|'.join(rooms)})$"
    command = [ROOT / "tools/run_tests.py", ROOT / f"build-{preset}", "-j", str(jobs), "-R", pattern]
    env = {**ENV, "GTEST_FILTER": only} if only else ENV
    ok = subprocess.run(command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL).returncode == 0
    for room in rooms:
        report = ROOT / f"build-{preset}/results/{room}.json"
        if ok and not read_gtest(report):  # names that no longer match a test
            ok = False
            say(f"no test of {room} has run")
    say(f"{'ok' if ok else 'FAILED'} {preset}: {' '.join(rooms)} {only or ''}")
    return ok


def run_presets(presets, jobs):
    """Builds one after the other; a preset's tests run while the next one is built, because the
    longest of them are one program, which does not use all cores."""
    with ThreadPoolExecutor(1) as pool:
        waiting = []
        for preset, runs in presets:
            build_rooms(preset, runs, jobs)
            waiting += [pool.submit(test_rooms, preset, rooms, jobs, only) for rooms, only in runs]
        return [run.result() for run in waiting]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-j", type=int, default=2)
    parser.add_argument("--fuzz-seconds", type=int, default=60, help="of wall time, for all together")
    parser.add_argument("--only", choices=["fuzz", "asan", "tsan"])
    args = parser.parse_args()
    start = time.monotonic()
    good = []
    if args.only in (None, "fuzz"):
        good += run_fuzzers(args.fuzz_seconds, args.j)
    sample = Sampler()
    presets = [("asan", ASAN_RUNS + sample(ASAN_IN_TURN, 3)),
               ("tsan", TSAN_RUNS + [run for run in TSAN_IN_TURN if sample.one_in(2, run[1])])]
    if sample.summary():
        say(sample.summary())
    good += run_presets([p for p in presets if args.only in (None, p[0])], args.j)
    say(f"{time.monotonic() - start:.0f} s")
    print(f"{sum(good)} passed, {len(good) - sum(good)} failed")
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
