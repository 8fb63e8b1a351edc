#!/usr/bin/env python3
"""benchmarks/comm_table.py: the table of comm_bench with hardware, date and commit above it."""

import datetime
import os
import sys
from pathlib import Path

from report import cpu_name, output_of


def main():
    program, out = sys.argv[1:]
    table = output_of([program])
    if not table:
        sys.exit(f"{program} failed")
    load = os.getloadavg()[0]
    page = [
        "# Collectives of two ranks on one machine",
        "",
        f"{cpu_name()}, {os.cpu_count()} cores; {datetime.date.today()}; commit "
        f"{output_of(['git', 'rev-parse', '--short', 'HEAD'])}; `{os.path.basename(program)}`; "
        f"load {load:.1f} before" + (" (not quiet: read with care)" if load > 1 else ""),
        "",
        table,
        "",
        "memcpy: both ranks at once. shm columns: tensor in a shared arena, but for `not in arena`.",
        "gloo: over the loopback.",
    ]
    Path(out).write_text("\n".join(page) + "\n")
    print("\n".join(page))


if __name__ == "__main__":
    main()
