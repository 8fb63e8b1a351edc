#!/usr/bin/env python3
"""Exact mode on a GPU beside fast mode: a table over exact_rows, exact_dp and exact_tp.

    gpu_exact.py --weft build-cuda/weft --out FILE.md [--model qwen2.5-0.5b] [--steps N]

One rank, in turns: fast, the settings one after the other, fast again. Bar: the best setting at no
less than 0.85x of fast.
"""

import argparse
import sys
from pathlib import Path

import gpu_bench
import gpu_workload

BAR = 0.85
# exact_rows, exact_dp, exact_tp; 0: as chosen by weft
SETTINGS = [(8, 0, 0), (1, 0, 0), (8, 0, 1), (2, 0, 0), (4, 1, 1)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--weft", type=Path, required=True)
    parser.add_argument("--model", choices=gpu_workload.MODELS, default="qwen2.5-0.5b")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=10)
    args = parser.parse_args()
    bench = gpu_bench.Bench(args)
    fast = [bench.weft("fast0")]
    rows = []
    for i, (exact_rows, exact_dp, exact_tp) in enumerate(SETTINGS):
        turn = bench.weft(f"exact{i}", parallel__mode="exact", parallel__exact_rows=exact_rows,
                          parallel__exact_dp=exact_dp, parallel__exact_tp=exact_tp)
        print(f"exact_rows {exact_rows}, exact_dp {exact_dp}, exact_tp {exact_tp}: "
              f"{gpu_bench.median_ms([turn]):.2f} ms", flush=True)
        rows.append((exact_rows, exact_dp, exact_tp, gpu_bench.median_ms([turn]), turn["memory"]))
    fast.append(bench.weft("fast1"))
    ms = gpu_bench.median_ms(fast)
    text = [f"# Exact mode, {bench.model.name}, {bench.model.batch} x {bench.model.seq}, one GPU", "",
            f"`{' '.join(str(a) for a in sys.argv)}`; 0 means: as chosen", "",
            "| exact_rows | exact_dp | exact_tp | ms a step | of fast | memory GiB |",
            "|---|---|---|---|---|---|",
            f"| fast | | | {ms:.2f} | 1 | {fast[0]['memory'] / (1 << 30):.2f} |"]
    for exact_rows, exact_dp, exact_tp, took, memory in rows:
        text.append(f"| {exact_rows} | {exact_dp} | {exact_tp} | {took:.2f} | {ms / took:.3f} | "
                    f"{memory / (1 << 30):.2f} |")
    best = max(ms / took for *_, took, _ in rows)
    text += ["", f"Best {best:.3f}x of fast (bar {BAR}, {'holds' if best >= BAR else '**short**'})."]
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text("\n".join(text) + "\n")
    print("\n".join(text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
