#!/usr/bin/env python3
"""The Containerfile: its packages cover what the program needs, and (FULL=1) its steps run in folders made by debootstrap.

    container_interop.py --weft build/weft

No image can be fetched and no container engine is needed: FROM is a fresh Debian, RUN a command in it (chroot), COPY a
copy. At the end the program of the last stage trains a step.
"""

import fnmatch
import json
import os
import re
import shutil

from common import run_program
from debian import Debian, make_debian, run
from sampling import ROOT, is_full

RELEASE = "bookworm"
ALWAYS = {"libc6", "libgcc-s1", "libstdc++6"}  # in every Debian folder


def left_out(folder, names):
    """What .containerignore names, at the top of the repository."""
    patterns = (ROOT / ".containerignore").read_text().split()
    return [name for name in names if os.path.samefile(folder, ROOT) and any(fnmatch.fnmatch(name, p) for p in patterns)]


def instructions():
    """(word, rest) of every line; none goes on in the next."""
    lines = (ROOT / "Containerfile").read_text().splitlines()
    return [tuple(line.split(" ", 1)) for line in lines if line and not line.startswith("#")]


def packages_of(libraries):
    """The packages of these files; a file's own path where no package has it. Some list /lib, which is /usr/lib."""
    paths = {os.path.realpath(library) for library in libraries}
    lines = run("dpkg", "-S", *paths, *(path.removeprefix("/usr") for path in paths)).stdout.splitlines()
    owners = {os.path.realpath(line.split(": ", 1)[1]): line.split(":")[0] for line in lines}
    return {owners.get(path, path) for path in paths}


def check_packages(checks, weft, last_stage):
    named = set(re.search(r"--no-install-recommends (.*?) &&", last_stage).group(1).split())
    needed = set(re.findall(r"NEEDED.*\[(.*?)\]", run("readelf", "-d", weft).stdout))
    places = dict(re.findall(r"(\S+) => (/\S+)", run("ldd", weft).stdout))
    arrow = ("libarrow", "libparquet")  # copied from the first stage
    missing = packages_of(places[name] for name in needed if name in places and not name.startswith(arrow)) - named - ALWAYS
    checks.that(not missing, "Containerfile: it installs every library of the program", " ".join(missing))
    found = set(re.findall(r"^Package: (\S+)", run("apt-cache", "show", *named).stdout, re.M))
    checks.that(not named - found, "Containerfile: its packages exist", " ".join(named - found))


class Stage(Debian):
    """One stage: a Debian folder into which files are copied."""

    def copy(self, source, target):
        target = self.inside(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True, symlinks=True, ignore=left_out)
        else:
            shutil.copy2(source, target)


def build(checks, folder):
    stages, names = [], {}
    for word, rest in instructions():
        if word == "FROM":
            stages.append(Stage(make_debian(RELEASE, folder / f"stage{len(stages)}", folder / "debian").root))
            if " AS " in rest:
                names[rest.split(" AS ")[1]] = stages[-1]
        stage = stages[-1]
        if word == "RUN":
            done = stage.run(rest)
            if not checks.that(done.returncode == 0, f"RUN {rest[:60]}", (done.stdout + done.stderr)[-800:] if done.returncode else ""):
                return None
        elif word == "WORKDIR":
            stage.place = rest
            stage.inside(".").mkdir(parents=True, exist_ok=True)
        elif word == "ENV":
            stage.env.update([rest.split("=", 1)])
        elif word == "COPY":
            words = rest.split()
            origin = names[words.pop(0).split("=")[1]] if words[0].startswith("--from=") else None
            stage.copy(origin.root / words[0].lstrip("/") if origin else ROOT / words[0], words[1])
    return stages[-1]


def check_training(checks, stage):
    shutil.copytree(ROOT / "examples/quickstart/model", stage.root / "data/model")
    (stage.root / "data/rows.txt").write_text("a row of some length\n" * 20)
    (stage.root / "data/run.yaml").write_text(json.dumps({
        "name": "run", "model": {"path": "model", "init": "random"}, "train": {"steps": 1},
        "data": {"train": ["rows.txt"], "tokenizer": "bytes", "seq_length": 32}, "parallel": {"dp": 2}}))
    done = stage.run("cd /data && weft train run.yaml")
    checks.that(done.returncode == 0, "the program of the image trains", done.stderr[-800:] if done.returncode else "")


def body(args, checks, folder):
    known = {"FROM", "RUN", "COPY", "WORKDIR", "ENV", "ENTRYPOINT"}
    checks.equal([word for word, _ in instructions() if word not in known], [], "Containerfile: known instructions")
    last = next(rest for word, rest in reversed(instructions()) if word == "RUN" and "apt-get" in rest)
    check_packages(checks, args.weft, last)
    if not is_full():
        return
    stage = build(checks, folder)
    if stage:
        check_training(checks, stage)


if __name__ == "__main__":
    run_program(__doc__, body)
