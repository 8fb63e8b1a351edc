#!/usr/bin/env python3
"""What snapshots in memory (launch.snapshot_every) cost the steps of a full-size model.

    snapshot_table.py --weft build-gpu/weft [--model qwen2.5-0.5b] [--device cuda] [--dp 2]
                      [--shard zero1] [--every 0,auto,1,2,5,10] [--turns 2] [--steps 40] [--out FILE.md]

bf16 with fp32 masters, ranks that share one GPU where the device is cuda. Each setting trains from
the same start, in turns. The first 15 steps (which pin memory, and in which `auto` finds its number) are
left out. The cost is that of snapshot_cost.py; means are printed beside it. `--model s --device cpu` is for
a machine without a GPU, `--model tiny` for trying out the program. Where `auto` costs more than it promises
the exit code is 1.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import gpu_workload
import workload
from gpu_bench import run_until
from report import list_of, run_facts
from snapshot_cost import chosen_interval, part_of_time

DROPPED = 15
MOST = 0.02  # what `auto` may cost
TINY = gpu_workload.GpuModel("tiny", {
    **gpu_workload.QWEN_05B, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2,
    "num_attention_heads": 4, "vocab_size": 8192}, 8, 64, 0, 0)
MODEL_S = gpu_workload.GpuModel("s", workload.config_json(workload.MODEL_S), workload.MODEL_S.batch,
                                workload.MODEL_S.seq_length, 0, 0)
MODELS = {"tiny": TINY, "s": MODEL_S, **gpu_workload.MODELS}


class Table:
    def __init__(self, args):
        self.args = args
        self.model = MODELS[args.model]
        self.folder = Path(tempfile.mkdtemp(prefix="weft-snapshots-"))
        self.rows = self.folder / "rows.txt"
        gpu_workload.write_folder(self.model, self.folder / "model")
        gpu_workload.write_rows(self.model, self.rows, args.steps + 5)

    def run(self, every):
        """({step: ms}, the steps between two snapshots, or 0)"""
        args, out, run = self.args, self.folder / "run", self.folder / "run.yaml"
        run.write_text(gpu_workload.run_file(
            self.model, self.folder / "model", self.rows, args.steps + 5, "random",
            parallel__dp=args.dp, parallel__shard=args.shard, train__master_weights=True,
            train__micro_batch=self.model.batch // args.dp, launch__device=args.device,
            launch__snapshot_every=every))
        log = self.folder / f"log-{every}"
        lines, _ = run_until([args.weft, "train", run, "--run-dir", out], out / "metrics.jsonl",
                             args.steps, log)
        chosen = chosen_interval(log)
        log.unlink()
        if every == "auto" and (not chosen or chosen[1] > DROPPED):
            raise RuntimeError(f"`auto` has chosen no number in {DROPPED} steps")
        shutil.rmtree(out)
        return ({line["step"]: line["step_ms"] for line in lines[DROPPED:]},
                chosen[0] if every == "auto" else int(every))

    def state_bytes(self):
        """Of rank 0: without snapshots there is one copy, for checkpoints."""
        plan = self.weft_json("plan", self.folder / "run.yaml", "--set", "launch.snapshot_every=0")
        return plan["snapshot"]

    def weft_json(self, *words):
        return json.loads(subprocess.run([self.args.weft, *words, "--json"], check=True,
                                         capture_output=True, text=True).stdout)


def all_ms(turns):
    return [ms for times, _ in turns for ms in times.values()]


def cost_of(turns, calm):
    """Of all turns of a setting, the middle one; None: too few steps."""
    found = [part_of_time(times, every, all_ms(calm)) for times, every in turns if every > 0]
    return statistics.median(found) if found and None not in found else None


def page(table, facts, turns, size):
    args, calm = table.args, turns.get("0", [])
    text = [f"# What snapshots cost: {table.model.name} on {args.device}", "", *list_of(facts), "",
            f"bf16, masters in fp32, dp {args.dp} {args.shard}, batch {table.model.batch} x "
            f"{table.model.seq}; a rank copies {size / 1e9:.2f} GB. What copies cost: by how much steps with one, and those "
            "after them, are longer than the others of the same run; where each step has one, than those without (medians).", "",
            "| `launch.snapshot_every` | copies cost | median step | mean | longest |", "|---|---|---|---|---|"]
    for setting, runs in turns.items():
        times, cost = all_ms(runs), cost_of(runs, calm)
        chosen = ", ".join(str(every) for every in sorted({every for _, every in runs}))
        text.append(f"| {setting}{f' ({chosen})' if setting == 'auto' else ''} | {'' if cost is None else f'{100 * cost:.1f} %'} | "
                    f"{statistics.median(times):.1f} ms | {statistics.fmean(times):.1f} ms | {max(times):.1f} ms |")
    return "\n".join(text) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--weft", type=Path, required=True)
    parser.add_argument("--model", default="qwen2.5-0.5b", choices=MODELS)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--dp", type=int, default=2)
    parser.add_argument("--shard", default="zero1")
    parser.add_argument("--every", default="0,auto,1,2,5,10")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    args.weft = args.weft.resolve()
    if args.device == "cuda":
        os.environ["WEFT_COMM"] = "cuda_ipc"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # run_until then kills its run
    settings = args.every.split(",")
    turns = {every: [] for every in settings}
    facts = run_facts(Path(__file__).resolve().parents[1], args.device)
    table = Table(args)
    try:
        table.run(settings[0])  # libraries choose their algorithms, and keep the choice
        for _ in range(args.turns):
            for setting in settings:
                turns[setting].append(table.run(setting))
                times, every = turns[setting][-1]
                print(f"{setting} ({every}): {' '.join(f'{ms:.0f}' for ms in times.values())}", flush=True)
        text = page(table, facts, turns, table.state_bytes())
    finally:
        shutil.rmtree(table.folder)
    print(text)
    if args.out:
        args.out.write_text(text)
    cost = cost_of(turns.get("auto", []), turns.get("0", []))
    if "auto" in turns and (cost is None or cost > MOST):
        sys.exit("snapshot_table: " + (f"`auto` costs more than {MOST:.0%}" if cost else "too few steps to tell what `auto` costs"))


if __name__ == "__main__":
    main()
