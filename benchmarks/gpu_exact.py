#!/usr/bin/env python3
"""Exact mode on a GPU compared with fast mode: a table over exact_rows, exact_dp and exact_tp.

    gpu_exact.py --weft build-cuda/weft --out FILE.md [--model qwen2.5-0.5b] [--steps N]

One rank, in turns: fast with this many rows per pass, then the exact settings with them. An exact
setting serves up to exact_dp x exact_tp ranks with the same bits; for one rank alone there is no
need of it. Bar: the best setting that serves at least two, at no less than 0.85x of fast.
"""

import argparse
import sys
from pathlib import Path

import gpu_bench
import gpu_workload

BAR = 0.85
# Rows per pass (exact_rows) and the (exact_dp, exact_tp) that are run with them.
SETTINGS = [(8, [(1, 1), (1, 2)]), (4, [(2, 1), (2, 2)]), (2, [(4, 1), (4, 2)]), (1, [(8, 2)])]


def run_settings(bench):
    """One row per run: its constants (None in fast mode), milliseconds, bytes."""
    for rows, constants in SETTINGS:
        yield rows, None, bench.weft(f"fast{rows}", train__micro_batch=rows)
        for dp, tp in constants:
            yield rows, (dp, tp), bench.weft(
                f"exact{rows}-{dp}-{tp}", parallel__mode="exact", parallel__exact_rows=rows,
                parallel__exact_dp=dp, parallel__exact_tp=tp)
    yield SETTINGS[0][0], None, bench.weft("fast-again")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--weft", type=Path, required=True)
    parser.add_argument("--model", choices=gpu_workload.MODELS, default="qwen2.5-0.5b")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=12)
    args = parser.parse_args()
    bench = gpu_bench.Bench(args)
    text = [f"# Exact mode, {bench.model.name}, {bench.model.batch} x {bench.model.seq}, one GPU", "",
            f"`{' '.join(str(a) for a in sys.argv)}`, one turn of {args.steps} steps each, median "
            f"without the first {gpu_bench.DROPPED}", "",
            "| rows per pass | mode | up to | ms per step | of fast | of fast, as many rows per pass "
            "| memory GiB | first step s |",
            "|---|---|---|---|---|---|---|---|"]
    fast, best = {}, 0.0
    for rows, constants, turn in run_settings(bench):
        ms = gpu_bench.median_ms([turn])
        if constants is None:
            fast.setdefault(rows, ms)
            mode, serves = "fast", ""
        else:
            dp, tp = constants
            mode, serves = f"exact_dp {dp}, exact_tp {tp}", f"dp {dp} x tp {tp}"
            if dp * tp > 1:
                best = max(best, fast[SETTINGS[0][0]] / ms)
        text.append(f"| {rows} | {mode} | {serves} | {ms:.2f} | {fast[SETTINGS[0][0]] / ms:.3f} | "
                    f"{fast[rows] / ms:.3f} | {turn['memory'] / (1 << 30):.2f} | {turn['first']:.2f} |")
        print(text[-1], flush=True)
    text += ["", f"Best for two ranks or more: {best:.3f}x of fast (bar {BAR}, "
             f"{'holds' if best >= BAR else '**short**'})."]
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text("\n".join(text) + "\n")
    print(text[-1])
    return 0


if __name__ == "__main__":
    sys.exit(main())
