"""weft_ray/program.py: the program of this package, as a command and as an archive for nodes that do not have it."""

import io
import os
import sys
import zipfile
from pathlib import Path

from weft_ray.libraries import with_cuda

PACKAGE = Path(__file__).resolve().parent
PROGRAM = PACKAGE / "bin/weft"


def main():
    """Replaces this process by the program, so that signals, exit code and terminal are its own; only --engine ray needs Python."""
    words = sys.argv[1:]
    if words[:1] == ["train"] and ("--engine=ray" in words or ("--engine", "ray") in zip(words, words[1:])):
        from weft_ray import command
        sys.exit(command.main(words[1:]))
    os.execve(PROGRAM, ["weft", *words], with_cuda(os.environ))


def digest():
    """A hash of program and libraries, written when the wheel was made."""
    path = PACKAGE / "DIGEST"
    if not path.exists():
        raise FileNotFoundError(f"{PACKAGE} has no program: install the wheel that `make wheel` builds")
    return path.read_text().strip()


def has_cuda():
    """Whether the wheel was made by `make wheel CUDA=1`, which marks it."""
    return (PACKAGE / "CUDA").exists()


def archive():
    """Program and libraries as a zip file, uncompressed: it goes through Ray's object store, and is unpacked once per node."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_STORED) as out:
        for path in [PACKAGE / "DIGEST", *sorted(PACKAGE.glob("bin/*")), *sorted(PACKAGE.glob("lib/*"))]:
            out.write(path, path.relative_to(PACKAGE))
    return data.getvalue()
