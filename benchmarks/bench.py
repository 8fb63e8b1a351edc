#!/usr/bin/env python3
"""The program behind `make bench`: weft and PyTorch train model S in turns; a table of ratios.

    bench.py --weft build/weft --out benchmarks/results/FILE.md [--quick] [--peers-only]

Both programs read the same weights and the same rows, use two threads, and are started afresh for
every turn: weft, eager, compiled, weft, ... The figure is the median step over all turns without
the first three of each. Memory and the time to the first step are taken from outside. The floor,
all products with weights alone by torch.mm, is measured between the turns. PyTorch runs with the
attention that is the faster one here, sdpa or eager, found by a probe; its memory is the smaller of
the two. Losses that differ are an error; a bar that is missed is marked, not an error, because the
machine may be busy.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import report
import workload
from turn import TurnFailed, run_turn

HERE = Path(__file__).resolve().parent
LOSS_TOLERANCE = {"fp32": 1e-4, "bf16": 1e-2}  # relative, each of the first steps
LOSSES_SHOWN = 6
PROBE_STEPS = 2
STEP_CLAIM_TOLERANCE = 0.05  # between a program's own step_ms and our clock


@dataclass(frozen=True)
class Program:
    """Who runs, and how: weft, eager, compiled or floor, in one precision."""

    name: str
    precision: str

    def text(self):
        return f"{self.name} {self.precision}"


@dataclass
class Options:
    weft: Path | None
    steps: int
    turns: int
    folder: Path  # everything that is written
    quick: bool
    attention: dict = field(default_factory=dict)  # PyTorch's, by precision


def write_model(work, folder, seed=1):
    """Random weights by transformers' own rule, saved as a Hugging Face folder."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, logging
    logging.disable_progress_bar()
    torch.manual_seed(seed)
    workload.write_config(work, folder)
    config = AutoConfig.from_pretrained(folder)
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)


def weft_command(options, work, model, rows, steps, precision, run_dir, init="pretrained"):
    run_file = options.folder / "run.yaml"
    run_file.write_text(workload.run_file(work, model, rows, steps, precision, init))
    return [str(options.weft), "train", str(run_file), "--run-dir", str(run_dir), "--quiet"]


def take_turn(options, program, work, model, rows, steps, init="pretrained"):
    """One fresh process of the program; what it wrote is removed afterwards."""
    log = options.folder / "turn.log"
    if program.name == "weft":
        run_dir = options.folder / "run"
        shutil.rmtree(run_dir, ignore_errors=True)
        command = weft_command(options, work, model, rows, steps, program.precision, run_dir, init)
        turn = run_turn(command, run_dir / "metrics.jsonl", log)
        shutil.rmtree(run_dir, ignore_errors=True)
        return turn
    metrics = options.folder / "metrics.jsonl"
    common = ["--metrics", str(metrics), "--precision", program.precision]
    if program.name == "floor":
        command = [sys.executable, str(HERE / "floor_torch.py"), "--steps", str(steps)]
    else:
        command = [sys.executable, str(HERE / "peer_torch.py"), "--model", str(model),
                   "--rows", str(rows), "--batch", str(work.batch),
                   "--attention", options.attention.get(program.precision, "sdpa")]
        if program.name == "compiled":
            command.append("--compile")
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(options.folder / "inductor"),
             "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    return run_turn(command + common, metrics, log, env=cache)


def probe_attention(options, model):
    """Sets options.attention to the faster choice; returns every probe {(precision, kind): Turn}."""
    work, rows, probes = workload.MODEL_S, options.folder / "rows_probe.txt", {}
    workload.write_rows(work, rows, PROBE_STEPS)
    for precision in LOSS_TOLERANCE:
        for kind in ("sdpa", "eager"):
            options.attention[precision] = kind
            turn = take_turn(options, Program("eager", precision), work, model, rows, PROBE_STEPS)
            probes[precision, kind] = turn
            print(f"probe, eager {precision} with {kind} attention: {turn.median_ms():.0f} ms, "
                  f"{turn.peak_bytes / 2**30:.2f} GiB", flush=True)
        options.attention[precision] = min(
            ("sdpa", "eager"), key=lambda kind: probes[precision, kind].median_ms())
    return probes


def turn_order(options):
    """The programs of one round. Compiled bf16 is reported without a bar, so it runs once."""
    programs = []
    for precision in ("fp32", "bf16"):
        if options.weft:
            programs.append(Program("weft", precision))
        programs += [Program(name, precision) for name in ("eager", "compiled", "floor")]
    return programs


def measure_turns(options, model):
    """All turns of model S: {program: [Turn]}; a peer that fails is reported and omitted."""
    work, turns, failed = workload.MODEL_S, defaultdict(list), set()
    rows = options.folder / "rows.txt"
    workload.write_rows(work, rows, options.steps)
    for round_number in range(options.turns):
        for program in turn_order(options):
            if program in failed or (round_number and program == Program("compiled", "bf16")):
                continue
            steps = min(options.steps, 6) if program.name == "floor" else options.steps
            try:
                turn = take_turn(options, program, work, model, rows, steps)
            except TurnFailed as error:
                if program.name == "weft":
                    raise
                print(f"{program.text()} failed: {error}", flush=True)
                failed.add(program)
                continue
            turns[program].append(turn)
            print(f"turn {round_number + 1}, {program.text()}: "
                  f"{1000 * work.tokens() / turn.median_ms():.0f} tok/s, "
                  f"{turn.peak_bytes / 2**30:.2f} GiB, {turn.busy_cores:.2f} cores busy",
                  flush=True)
    return turns


def compare_losses(turns):
    """Rows of the table of losses, and complaints where weft differs from eager."""
    rows, complaints = [], []
    for precision, tolerance in LOSS_TOLERANCE.items():
        mine, theirs = turns[Program("weft", precision)], turns[Program("eager", precision)]
        if not mine or not theirs:
            continue
        pairs = list(zip(mine[0].losses, theirs[0].losses))[:LOSSES_SHOWN]
        for step, (a, b) in enumerate(pairs, start=1):
            difference = abs(a - b) / abs(b)
            rows.append((precision, step, a, b, difference))
            if not difference <= tolerance:
                complaints.append(f"{precision} step {step}: weft's loss {a} is not PyTorch's {b} "
                                  f"(within {tolerance:g} relative)")
    return rows, complaints


def check_claims(turns):
    """weft's own step_ms must be what our clock says between the first and the last line."""
    complaints = []
    for program, runs in turns.items():
        for turn in runs if program.name == "weft" else []:
            claimed = statistics.mean(turn.steps_ms[1:] or turn.steps_ms)
            if abs(claimed - turn.outside_ms) > STEP_CLAIM_TOLERANCE * turn.outside_ms + 25:
                complaints.append(f"{program.text()}: metrics say {claimed:.0f} ms per step, "
                                  f"our clock {turn.outside_ms:.0f}")
    return complaints


def measure_small(options):
    """The model of 1 M parameters: seconds from exec to the first line, the step included."""
    work, model = workload.MODEL_1M, options.folder / "model_1m"
    write_model(work, model)
    rows = options.folder / "rows_1m.txt"
    workload.write_rows(work, rows, 5)
    names = (["weft"] if options.weft else []) + ["eager"]
    seconds = {}
    for name in names:
        turns = [take_turn(options, Program(name, "fp32"), work, model, rows, 5)
                 for _ in range(1 if options.quick else 3)]
        seconds[name] = statistics.median(turn.first_line_s for turn in turns)
    return seconds


def measure_growth(options):
    """weft alone, fp32: step time and memory at 1x, 2x and 4x of each size."""
    cases = [("as it is", 1, workload.MODEL_S)]
    cases += [(size, factor, work) for factor in (2, 4)
              for size, work in workload.grown(factor).items()]
    steps = 4 if options.quick else 5
    results = []
    for size, factor, work in cases:
        model, rows = options.folder / "grown", options.folder / "rows_grown.txt"
        workload.write_config(work, model)
        workload.write_rows(work, rows, steps)
        turn = take_turn(options, Program("weft", "fp32"), work, model, rows, steps, init="random")
        results.append((size, factor, statistics.median(turn.steps_ms[1:]), turn.peak_bytes))
        print(f"growth, {size} {factor}x: {results[-1][2]:.0f} ms, "
              f"{turn.peak_bytes / 2**30:.2f} GiB", flush=True)
    return results


def parse_options(argv, folder):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--weft", type=Path, help="the built program")
    parser.add_argument("--out", type=Path, help="markdown file to write")
    parser.add_argument("--quick", action="store_true", help="one turn of six steps, no growth")
    parser.add_argument("--peers-only", action="store_true", help="only PyTorch and the floor")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    args = parser.parse_args(argv)
    if args.peers_only == bool(args.weft):
        parser.error("give --weft PATH, or --peers-only")
    if args.weft and not os.access(args.weft, os.X_OK):
        parser.error(f"{args.weft} is not a program; build it first")
    options = Options(weft=args.weft and args.weft.resolve(), folder=folder, quick=args.quick,
                      steps=6 if args.quick else args.steps, turns=1 if args.quick else args.turns)
    return args, options


def main():
    with tempfile.TemporaryDirectory(prefix="weft_bench_") as name:
        args, options = parse_options(sys.argv[1:], Path(name))
        facts = report.machine_facts(HERE.parent)
        model = options.folder / "model_s"
        write_model(workload.MODEL_S, model)
        probes = probe_attention(options, model)
        turns = measure_turns(options, model)
        small = measure_small(options)
        growth = measure_growth(options) if options.weft and not options.quick else []
    losses, complaints = compare_losses(turns)
    complaints += check_claims(turns)
    text = report.markdown(facts, turns, probes, small, growth, losses, complaints)
    return report.publish(text, args.out, complaints)


if __name__ == "__main__":
    sys.exit(main())
