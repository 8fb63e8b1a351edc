#!/usr/bin/env python3
"""A fresh machine: the README's two commands in a minimal Debian without ../shared, 12 and 13 in turn (FULL=1: both).

    fresh_interop.py --weft build/weft [--release trixie]

The machines that developers have carry more than a user's. Whole with FULL=1; else the set-up, a build of changed files
by that Debian's compiler without precompiled headers, and the tests that use programs or modules from outside the
repository.
"""

import re
import subprocess

from common import run_program
from debian import make_debian
from sampling import ROOT, commit_number, is_full

RELEASES = ("bookworm", "trixie")
MOST_FILES = 12  # changed files to compile


def clone(debian):
    """The last commit, as a newcomer has it after `git clone`."""
    subprocess.run(["git", "bundle", "create", "-q", debian.inside("weft.bundle"), "HEAD"], cwd=ROOT, check=True)
    return debian.run("git clone -q weft.bundle weft")


def changed_files():
    """C++ files that the last commit changed, as far as every build compiles them."""
    done = subprocess.run(["git", "diff", "--name-only", "--diff-filter=d", "HEAD~1", "--", "src/*.cpp", "tests/*.cpp"],
                          cwd=ROOT, capture_output=True, text=True, check=False)
    names = [name for name in done.stdout.split() if not re.search(r"/cuda/|fuzz/|no_gloo|no_cairo|plot_none", name)]
    return names[:MOST_FILES] or ["src/cmd/tokenize.cpp"]


def check_whole(checks, debian, release):
    for command in ("make quickstart", "make test"):
        done = debian.run(f"cd weft && bash -c 'time {command}'")
        last = "\n".join((done.stdout + done.stderr).splitlines()[-40:])
        counts = re.findall(r"^\d+ passed.*", done.stdout, re.M)
        times = ", ".join(f"{name} {minutes}:{seconds}" for name, minutes, seconds in re.findall(r"^(real|user|sys)\s+(\d+)m([\d.]+)s", done.stderr, re.M))
        checks.that(done.returncode == 0, f"{release}: {command}", " ".join([*counts, times]) if done.returncode == 0 else last)


def check_part(checks, debian, release):
    done = debian.run("cd weft && tools/setup.sh build")
    if not checks.that(done.returncode == 0, f"{release}: the set-up installs what it needs", done.stderr[-800:] if done.returncode else ""):
        return
    names = changed_files()
    done = debian.run("cd weft && cmake --preset release -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON && ninja -C build -j2 "
                      + " ".join(f"/weft/{name}^" for name in names))
    checks.that(done.returncode == 0, f"{release}: its compiler builds {len(names)} changed files", (done.stdout + done.stderr)[-1500:] if done.returncode else "")
    done = debian.run("cd weft && ctest --test-dir build -R '^tools$' --output-on-failure")
    checks.that(done.returncode == 0, f"{release}: the tools' tests pass", done.stdout[-1500:] if done.returncode else "")


def body(args, checks, folder):
    releases = [args.release] if args.release else RELEASES if is_full() else [RELEASES[commit_number() % 2]]
    for release in releases:
        debian = make_debian(release, folder / release, folder / f"{release}.cache")
        done = debian.run("apt-get -qq update && apt-get -qq install -y --no-install-recommends ca-certificates git make >/dev/null")
        checks.that(done.returncode == 0, f"{release}: git and make", done.stderr[-400:] if done.returncode else "")
        done = clone(debian)
        if checks.that(done.returncode == 0, f"{release}: cloned", done.stderr[-400:] if done.returncode else ""):
            (check_whole if is_full() else check_part)(checks, debian, release)


if __name__ == "__main__":
    run_program(__doc__, body, lambda parser: parser.add_argument("--release", choices=RELEASES))
