"""Which cases of a long matrix run at this commit: those of its slot, and all with FULL=1.

A case whose matrix has k slots runs at every k-th commit: where (hash of its name + number of commits)
is a multiple of k. k is at most ten, so ten commits in a row run everything. The same commit always runs
the same cases, so that a failure can be reproduced. What is left to other commits is printed.
"""

import functools
import hashlib
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST_SLOTS = 10


@functools.cache
def commit_number(root=ROOT):
    """The number of commits up to this one, a merge counted as one; 0 where this is not a checkout (a folder inside
    another does not count)."""
    try:
        done = subprocess.run(["git", "rev-parse", "--show-toplevel"], cwd=root, text=True,
                              capture_output=True, timeout=30, check=False)
        if done.returncode != 0 or Path(done.stdout.strip()).resolve() != Path(root).resolve():
            return 0
        done = subprocess.run(["git", "rev-list", "--count", "--first-parent", "HEAD"], cwd=root, text=True,
                              capture_output=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return int(done.stdout) if done.returncode == 0 else 0


def is_full():
    return os.environ.get("FULL", "") not in ("", "0")


def hash_of(text):
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def in_slot(name, slots, number):
    """Whether a case runs at this commit; number: that of the commits, None where everything runs."""
    if not 1 <= slots <= MOST_SLOTS:
        raise ValueError(f"{name}: {slots} slots, from 1 to {MOST_SLOTS} are possible")
    return number is None or (hash_of(name) + number) % slots == 0


def name_of(case):
    return case if isinstance(case, str) else getattr(case, "name", None) or repr(case)


def choose(names, slots, number):
    """The places of the names that run. An empty slot gets one of them, another for each commit."""
    chosen = [place for place, name in enumerate(names) if in_slot(name, slots, number)]
    if not chosen and names:
        chosen = [min(range(len(names)), key=lambda place: hash_of(f"{number} {names[place]}"))]
    return chosen


class Sampler:
    """Chooses for one program and records what it leaves out."""

    def __init__(self):
        self.number = None if is_full() else commit_number()
        self.taken, self.left = 0, []

    def __call__(self, cases, slots=4):
        cases = list(cases)
        names = [name_of(case) for case in cases]
        chosen = set(choose(names, slots, self.number))
        self.record(len(chosen), [name for place, name in enumerate(names) if place not in chosen])
        return [case for place, case in enumerate(cases) if place in chosen]

    def one_in(self, slots, name):
        """Whether a long check runs: at one of `slots` commits."""
        runs = in_slot(name, slots, self.number)
        self.record(runs, [] if runs else [name])
        return runs

    def one_of(self, slots, names):
        """At most one of several long checks, which together would take too long; each at one of `slots` commits."""
        names = list(names)
        if not len(names) <= slots <= MOST_SLOTS:
            raise ValueError(f"{names}: {len(names)} checks in {slots} slots")
        place = None if self.number is None else (hash_of(repr(names)) + self.number) % slots
        chosen = names if place is None else names[place:place + 1]
        self.record(len(chosen), [name for name in names if name not in chosen])
        return chosen

    def record(self, taken, left):
        self.taken += taken
        self.left += left

    def summary(self):
        """Nothing where no case was left out; cases beyond a hundred are only counted."""
        if not self.left:
            return ""
        shown = self.left[:100]
        more = f" and {len(self.left) - len(shown)} more" if len(self.left) > len(shown) else ""
        return (f"sampled {self.taken} of {self.taken + len(self.left)} (FULL=1 runs all), "
                f"left to other commits: {'; '.join(shown)}{more}")
