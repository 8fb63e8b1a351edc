#!/usr/bin/env python3
"""The program behind `make bench-gpu`: weft and torch.compile train one full-size model in turns.

    gpu_bench.py --weft build-cuda/weft --model qwen2.5-0.5b --out FILE.md [--turns N] [--steps N]
                 [--peers usual,no-mask]

Both start from the same weights where the model is small enough to write them (else each draws its
own), read the same rows, keep weights, gradients and states in bf16, and do not clip. The figure is
the median step without the first ones of each turn. Memory: of weft the arena (which holds the
libraries' workspaces), of PyTorch max_memory_allocated. A missed bar is marked, not an error.
PyTorch has two turns: called as transformers' users do, and told by hand that there is no mask
(gpu_peer.py), which is faster. The bars are held against both. Models that add a bias to the scores
(ALiBi, T5's table) always have one: the first turn only.
"""

import argparse
import dataclasses
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import gpu_workload
from report import list_of, run_facts

HERE = Path(__file__).resolve().parent
DROPPED = 5
LOSS_TOLERANCE = 2e-2  # relative, of the losses shown
PEERS = {"usual": ("torch.compile", []), "no-mask": ("torch.compile, no mask", ["--no-mask"])}


def read_lines(path):
    try:
        text = path.read_text(encoding="ascii")
    except OSError:
        return []
    lines = [json.loads(line) for line in text.split("\n")[:-1] if line]
    return [line for line in lines if "loss" in line]


def run_until(command, metrics, steps, log):
    """Starts a program and ends it as soon as its metrics have this many steps.

    Ends hard: a run of 7 billion parameters would write 60 GB at its end. Gives the lines and the
    seconds from the start to the first one.
    """
    begin = time.perf_counter()
    first = None
    with open(log, "ab") as out, subprocess.Popen(command, stdout=out, stderr=out,
                                                  start_new_session=True) as process:
        try:
            while True:
                lines = read_lines(metrics)
                if lines and first is None:
                    first = time.perf_counter() - begin
                if len(lines) >= steps:
                    break
                if process.poll() is not None:
                    if len(read_lines(metrics)) >= steps:
                        break
                    tail = log.read_text(errors="replace")[-3000:]
                    raise SystemExit(f"{command[0]} ended with {process.returncode}:\n{tail}")
                time.sleep(0.01)
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    return read_lines(metrics)[:steps], first


class Bench:
    def __init__(self, args, share_weights=True):
        self.args = args
        self.model = gpu_workload.MODELS[args.model]
        if not share_weights:
            self.model = dataclasses.replace(self.model, shares_weights=False)
        self.folder = Path(tempfile.mkdtemp(prefix="weft-gpu-"))
        self.rows = self.folder / "rows.txt"
        self.source = self.folder / "model"
        gpu_workload.write_folder(self.model, self.source)
        gpu_workload.write_rows(self.model, self.rows, args.steps)
        self.weights = "none"
        if self.model.shares_weights:
            self.make_weights()

    def make_weights(self):
        """weft's own initial weights as a Hugging Face folder, which both then read."""
        run = self.folder / "init.yaml"
        run.write_text(gpu_workload.run_file(self.model, self.source, self.rows, 0, "random",
                                             launch__device="cpu"))
        subprocess.run([self.args.weft, "train", run, "--run-dir", self.folder / "init", "--quiet"],
                       check=True, stdout=subprocess.DEVNULL)
        self.weights = str(self.folder / "init" / "final")

    def weft_command(self, turn, steps, **changes):
        """The command, and the folder of the run."""
        run, out = self.folder / f"weft{turn}.yaml", self.folder / f"weft{turn}"
        init = "pretrained" if self.model.shares_weights else "random"
        source = self.weights if self.model.shares_weights else self.source
        run.write_text(gpu_workload.run_file(self.model, source, self.rows, steps, init, **changes))
        return [self.args.weft, "train", run, "--run-dir", out], out

    def weft(self, turn, **changes):
        command, out = self.weft_command(turn, self.args.steps + 5, **changes)
        lines, first = run_until(command, out / "metrics.jsonl", self.args.steps,
                                 self.folder / "weft.log")
        started = json.loads((out / "events.jsonl").read_text().split("\n")[0])
        return {"lines": lines, "first": first, "memory": started["arena_bytes"]}

    def torch(self, turn, peer):
        metrics = self.folder / f"torch-{peer}{turn}.jsonl"
        command = [sys.executable, HERE / "gpu_peer.py", "--model", self.model.name, "--weights",
                   self.weights, "--rows", self.rows, "--metrics", metrics, "--steps",
                   str(self.args.steps)] + PEERS[peer][1]
        lines, first = run_until(command, metrics, self.args.steps, self.folder / "torch.log")
        return {"lines": lines, "first": first, "memory": lines[-1]["memory"]}


def median_ms(turns):
    return statistics.median(line["step_ms"] for t in turns for line in t["lines"][DROPPED:])


def show_steps(turns):
    return " ".join(f"{line['step_ms']:.1f}" for line in turns[0]["lines"])


def compare(model, weft, torch, name):
    """A line on one peer: ratios, and whether the bars hold."""
    mark = lambda ok: "holds" if ok else "**short**"
    speed = median_ms(torch) / median_ms(weft)
    memory = weft[0]["memory"] / torch[0]["memory"]
    return (f"Against {name}: speed {speed:.3f}x (bar {model.speed_bar}, "
            f"{mark(speed >= model.speed_bar)}); memory {memory:.3f}x (bar {model.memory_bar}, "
            f"{mark(memory <= model.memory_bar)}).")


def page(bench, facts, weft, peers):
    """The page, and the largest relative difference of the losses shown."""
    model = bench.model
    programs = {"weft": weft} | {PEERS[peer][0]: turns for peer, turns in peers.items()}
    rows = [
        f"# {model.name}, {model.batch} x {model.seq}, one GPU, bf16 weights and states",
        "",
        *list_of(facts),
        "",
        f"{bench.args.turns} turn(s) of {bench.args.steps} steps, median without the first {DROPPED}.",
        "",
        "| program | ms per step | tokens/s | memory GiB | first step s |",
        "|---|---|---|---|---|",
    ]
    for name, turns in programs.items():
        ms = median_ms(turns)
        rows.append(f"| {name} | {ms:.2f} | {model.tokens() / ms * 1000:,.0f} | "
                    f"{turns[0]['memory'] / (1 << 30):.2f} | {turns[-1]['first']:.2f} |")
    rows.append("")
    rows += [compare(model, weft, turns, PEERS[peer][0]) for peer, turns in peers.items()]
    rows += ["", "Steps, ms:", ""]
    rows += [f"- {name}: {show_steps(turns)}" for name, turns in programs.items()]
    rows += ["", f"Losses, step by step ({' | '.join(programs)}):", ""]
    worst = 0.0
    for step in (1, 2, 3, 5, 10, bench.args.steps):
        losses = [turns[0]["lines"][step - 1]["loss"] for turns in programs.values()]
        worst = max(worst, *(abs(losses[0] - other) / abs(other) for other in losses[1:]))
        rows.append(f"- {step}: {' | '.join(f'{loss:.5f}' for loss in losses)}")
    if model.target:
        rows.append("\nA peer's loss is that of bf16 logits, in bf16: steps of 1/16 between 8 and 16, "
                    "of 1/32 between 4 and 8. weft's is summed in fp32.")
    if model.shares_weights and worst > LOSS_TOLERANCE:
        rows.append(f"\n**The losses differ by {worst:.1e}.**")
    return "\n".join(rows) + "\n", worst


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--weft", type=Path, required=True)
    parser.add_argument("--model", choices=gpu_workload.MODELS, default="qwen2.5-0.5b")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--peers", type=lambda text: text.split(","))
    args = parser.parse_args()
    possible = ["usual"] if gpu_workload.MODELS[args.model].has_bias else list(PEERS)
    args.peers = args.peers or possible
    if unknown := set(args.peers) - set(possible):
        parser.error(f"no peer {', '.join(unknown)} of {args.model}; there are {', '.join(possible)}")
    facts = run_facts(HERE.parent, "cuda")
    bench = Bench(args)
    weft, peers = [], {peer: [] for peer in args.peers}
    for turn in range(args.turns):
        weft.append(bench.weft(turn))
        for peer, turns in peers.items():
            turns.append(bench.torch(turn, peer))
    text, worst = page(bench, facts, weft, peers)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(text)
    print(text)
    return 1 if bench.model.shares_weights and worst > LOSS_TOLERANCE else 0


if __name__ == "__main__":
    sys.exit(main())
