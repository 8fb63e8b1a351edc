"""What the interop programs share: counted checks, calls of weft, run files, small models."""

import argparse
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from sampling import ROOT, Sampler

DEADLINE_S = 300

# Children get the default, even where these programs were started by nohup.
signal.signal(signal.SIGHUP, signal.SIG_DFL)


class Checks:
    """Prints every check and counts; the last line has both counts.

    `sample` chooses which cases of a long matrix are checked (sampling.py).
    """

    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.sample = Sampler()

    def that(self, good, what, detail=""):
        """Records one check. The detail (what was got, what was wanted) is shown where it fails."""
        if good:
            self.passed += 1
        else:
            self.failed += 1
        print(f"{'ok  ' if good else 'FAIL'} {what}" + (f": {detail}" if detail else ""),
              flush=True)
        return bool(good)

    def without_data(self, what):
        """Checks whose reference data are absent: skipped where there are none at all, else failed."""
        if shared_folder("data"):
            return self.that(False, what, "its part of the reference data is missing")
        self.skipped += 1
        print(f"skip {what}: there is no reference data", flush=True)
        return False

    def equal(self, got, wanted, what):
        detail = "" if got == wanted else f"got {shorten(got)}, wanted {shorten(wanted)}"
        return self.that(got == wanted, what, detail)

    def close(self, got, wanted, tolerance, what):
        """Relative difference; `got` and `wanted` are numbers or lists of numbers."""
        gots, wants = as_list(got), as_list(wanted)
        if len(gots) != len(wants) or not gots:
            return self.that(False, what, f"{len(gots)} numbers, wanted {len(wants)}")
        worst = max(abs(a - b) / max(abs(b), 1e-30) for a, b in zip(gots, wants))
        return self.that(worst <= tolerance, what, f"{worst:.1e} relative, at most {tolerance:g}")

    def section(self, function, case, *rest):
        """Runs function(case, checks, *rest); an exception is one failure, and the others continue."""
        try:
            return function(case, self, *rest)
        except Exception as error:
            self.that(False, f"{case.name}: {function.__name__} came to its end", str(error))
            return None

    def finish(self):
        if summary := self.sample.summary():
            print(summary)
        print(f"{self.passed} passed, {self.failed} failed" + (f", {self.skipped} skipped" if self.skipped else ""))
        return 1 if self.failed or not self.passed + self.skipped else 0


def as_list(value):
    return list(value) if isinstance(value, (list, tuple)) else [value]


def shorten(value, most=300):
    text = repr(value)
    return text if len(text) <= most else text[:most] + " ..."


class Weft:
    """The built program."""

    def __init__(self, path, deadline_s=DEADLINE_S):
        self.path = Path(path).resolve()
        self.deadline_s = deadline_s

    def call(self, *words, env=None, wanted=0):
        """Runs a command and returns its standard output; another exit code is an exception."""
        command = [str(self.path), *(str(word) for word in words)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=self.deadline_s,
                              env={**os.environ, **(env or {})}, check=False)
        if done.returncode != wanted:
            raise RuntimeError(f"exit {done.returncode}, wanted {wanted}: weft "
                               f"{' '.join(command[1:])}\n{done.stderr[-3000:]}")
        return done.stdout

    def json(self, *words, env=None):
        return json.loads(self.call(*words, "--json", env=env))

    def train(self, run_file, run_dir, *words):
        self.call("train", run_file, "--run-dir", run_dir, "--quiet", *words)
        return read_metrics(run_dir)


def read_metrics(run_dir):
    """Lines of metrics.jsonl: (those of optimizer steps, those of evaluations). Also while a run writes them: the last line may not be complete yet."""
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().split("\n")[:-1]]
    return [x for x in lines if "step_ms" in x], [x for x in lines if "eval_loss" in x]


def write_run_file(path, sections):
    """Sections of scalars and lists; each value is written as JSON, which YAML reads."""
    lines = []
    for key, value in sections.items():
        if isinstance(value, dict):
            lines += [f"{key}:"] + [f"  {k}: {json.dumps(v)}" for k, v in value.items()]
        else:
            lines.append(f"{key}: {json.dumps(value)}")
    path.write_text("\n".join(lines) + "\n")
    return path


def die_with_parent():
    """For a child, before exec: SIGKILL when we end, however that happens (PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def run_ranks(commands, log, deadline_s, env=None):
    """Runs one process per rank to the end. One that fails, or the deadline, ends all, by pid."""
    with open(log, "wb") as output:
        ranks = [subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL,
                                  stdout=output, stderr=output, env={**os.environ, **(env or {})},
                                  preexec_fn=die_with_parent)
                 for command in commands]
        deadline = time.monotonic() + deadline_s
        try:
            while any(rank.poll() is None for rank in ranks):
                if time.monotonic() > deadline or any(rank.returncode for rank in ranks):
                    break
                time.sleep(0.05)
            codes = [rank.poll() for rank in ranks]
        finally:
            for rank in ranks:
                if rank.poll() is None:
                    rank.kill()
                rank.wait()
    if any(code != 0 for code in codes):
        tail = Path(log).read_text(errors="replace")[-3000:]
        raise RuntimeError(f"exit codes {codes} (None: did not end in {deadline_s} s, or was ended "
                           f"because another failed):\n{tail}")


def shared_folder(*parts):
    """A folder of the reference data, next to the repository or in it; None where it is absent."""
    paths = [place.joinpath("shared", *parts) for place in (ROOT.parent, ROOT)]
    return next((path for path in paths if path.exists()), None)


def memory_folder():
    """A folder in memory with space for small runs, or None: runs sync their files to disk."""
    place = Path("/dev/shm")
    return place if place.is_dir() and shutil.disk_usage(place).free > 2 << 30 else None


def events_of(run_dir, name):
    """The events of this name, also while a run writes them: the last line may not be complete yet."""
    try:
        lines = (Path(run_dir) / "events.jsonl").read_text().split("\n")[:-1]
    except OSError:
        return []
    return [event for event in map(json.loads, lines) if event["event"] == name]


def run_program(doc, body, add_arguments=None, in_memory=False):
    """The frame of an interop program: arguments, a temporary folder, counts, exit code.

    `body(args, checks, folder)` raises only for what nobody expected; that is a failure too. The
    folder is in memory on request: for programs with many small runs.
    """
    parser = argparse.ArgumentParser(description=doc.split("\n")[0])
    parser.add_argument("--weft", type=Path, required=True, help="the built program")
    if add_arguments:
        add_arguments(parser)
    args = parser.parse_args()
    if not os.access(args.weft, os.X_OK):
        parser.error(f"{args.weft} is not a program; build it first")
    checks = Checks()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # folders and children are cleaned up
    where = memory_folder() if in_memory else None
    with tempfile.TemporaryDirectory(prefix="weft_interop_", dir=where) as folder:
        try:
            body(args, checks, Path(folder))
        except Exception:  # the count must be printed whatever happened
            traceback.print_exc()
            checks.that(False, "the program finished")
    sys.exit(checks.finish())
