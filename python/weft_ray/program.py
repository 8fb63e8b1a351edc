"""weft_ray/program.py: where the program of this package is, and the command `weft`."""

import os
import sys
from pathlib import Path

PROGRAM = Path(__file__).resolve().parent / "bin/weft"


def main():
    """Becomes the program: same process, so that signals, exit code and terminal are its own."""
    os.execv(PROGRAM, ["weft", *sys.argv[1:]])
