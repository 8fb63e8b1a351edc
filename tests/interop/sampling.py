"""Which cases of a long matrix are run: all with FULL=1, else some, chosen by the commit's hash.

A change of the code brings another hash and so other cases: what one commit leaves out, later ones
run. The same commit always runs the same, so that a failure can be run again. Outside of a git
checkout there is no hash, and everything runs.
"""

import functools
import hashlib
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def commit_hash(root=ROOT):
    """The commit of this checkout; None where it is not one (a folder inside another does not count)."""
    try:
        done = subprocess.run(["git", "rev-parse", "--show-toplevel", "HEAD"], cwd=root, text=True,
                              capture_output=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = done.stdout.split("\n")
    is_ours = done.returncode == 0 and len(lines) > 1 and Path(lines[0]).resolve() == Path(root).resolve()
    return lines[1] if is_ours else None


def is_full():
    return os.environ.get("FULL", "") not in ("", "0") or commit_hash() is None


def choose(cases, kinds, share, commit):
    """About `share` of the cases, in their order, and at least one of every kind.

    `kinds(case)` names the kinds that a case belongs to; none of them is left without a case. Cases are
    taken in the order of a hash of the commit and the case's text, first those with a kind that is
    still missing, then any.
    """
    if commit is None:
        return list(cases)
    order = sorted(range(len(cases)), key=lambda i: hashlib.sha256(f"{commit} {cases[i]!r}".encode()).digest())
    first, rest, seen = [], [], set()
    for i in order:
        is_new = not seen.issuperset(kinds(cases[i]))
        (first if is_new else rest).append(i)
        seen.update(kinds(cases[i]))
    return [cases[i] for i in sorted(first + rest[:max(0, round(share * len(cases)) - len(first))])]


class Sampler:
    """Chooses for one program and keeps count."""

    def __init__(self):
        self.commit = None if is_full() else commit_hash()
        self.taken = self.all = 0

    def __call__(self, cases, kinds, share=0.25):
        cases = list(cases)
        chosen = choose(cases, kinds, share, self.commit)
        self.taken, self.all = self.taken + len(chosen), self.all + len(cases)
        return chosen

    def one_in(self, count, name):
        """Whether a long check runs: by about one of `count` commits, and always where all run."""
        digest = hashlib.sha256(f"{self.commit} {name}".encode()).digest()
        runs = self.commit is None or int.from_bytes(digest[:8], "big") % count == 0
        self.taken, self.all = self.taken + runs, self.all + 1
        return runs

    def one_of(self, slots, names):
        """At most one of several long checks, which together would take too long; each by about one of `slots` commits. All where all run."""
        number = int.from_bytes(hashlib.sha256(f"{self.commit} {list(names)}".encode()).digest()[:8], "big") % slots
        chosen = list(names) if self.commit is None else list(names)[number:number + 1]
        self.taken, self.all = self.taken + len(chosen), self.all + len(names)
        return chosen

    def summary(self):
        """Nothing where no case was skipped."""
        return f"sampled {self.taken} of {self.all} (FULL=1 runs all)" if self.taken < self.all else ""
