#!/usr/bin/env python3
"""Ranks compared with PyTorch's: model S on two ranks of one thread, weft and torch in turns.

    mesh_bench.py --weft build/weft --out benchmarks/results/FILE.md [--quick] [--tiny]
                  [--only peers,exact,four]

peers: weft with dp 2, dp 2 zero3 and tp 2 against DDP, FSDP2 and DTensor tensor parallel (gloo),
and one rank with two threads beside; fp32, and bf16 with weights and states in bf16. exact: exact
mode against fast, over exact_tp, exact_dp and exact_rows. four: four ranks on the same cores against
two. Every turn is a fresh program; the figure is the median step over all turns without the first
three of each. PyTorch runs with the attention that a probe finds faster. Losses that differ are an
error; a bar that is missed is marked, because the machine may be busy.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import bench
import mesh_report
import report
import workload
from turn import TurnFailed, run_turn

HERE = Path(__file__).resolve().parent
PRECISIONS = ("fp32", "bf16")
PROBE_STEPS = 2
LAYOUTS = {"dp 2": {"dp": 2}, "dp 2 zero3": {"dp": 2, "shard": "zero3"}, "tp 2": {"tp": 2}}
PEERS = {"dp 2": "ddp", "dp 2 zero3": "fsdp2", "tp 2": "tp"}
FOUR = {"dp 4": ({"dp": 4}, "dp 2"), "dp 4 zero3": ({"dp": 4, "shard": "zero3"}, "dp 2 zero3"),
        "dp 2 tp 2": ({"dp": 2, "tp": 2}, "dp 2")}
# (exact_tp, exact_dp, exact_rows); the first are the defaults for 8 rows and 2 key/value heads.
CONSTANTS = {"dp 2": [(2, 8, 1), (1, 8, 1), (2, 4, 1), (2, 2, 1), (2, 4, 2), (2, 2, 4), (1, 2, 4)],
             "tp 2": [(2, 8, 1), (2, 1, 1), (2, 4, 2), (2, 2, 4), (2, 1, 8)]}


@dataclass(frozen=True)
class Program:
    """Who runs, and how. `constants`: of exact mode; none is fast mode."""

    name: str  # weft, ddp, fsdp2, tp
    precision: str
    layout: str = ""  # of weft: a key of LAYOUTS or FOUR, or "one rank, 2 threads"
    constants: tuple = ()

    def text(self):
        words = [self.name, self.layout, self.precision]
        if self.constants:
            words.append("exact_tp {} exact_dp {} exact_rows {}".format(*self.constants))
        return " ".join(word for word in words if word)


ONE_RANK = "one rank, 2 threads"


@dataclass
class Options:
    weft: Path
    folder: Path
    work: workload.Workload
    steps: int
    turns: int
    exact_turns: int
    only: list
    attention: dict = field(default_factory=dict)


def parallel_of(program):
    """The section `parallel` of the run file, and the threads per rank."""
    if program.layout == ONE_RANK:
        return {"dp": 1}, 2
    parallel = dict(LAYOUTS.get(program.layout) or FOUR[program.layout][0])
    if program.constants:
        names = ("exact_tp", "exact_dp", "exact_rows")
        parallel |= {"mode": "exact", **dict(zip(names, program.constants))}
    return parallel, 1


def take_turn(options, program, model, rows, steps):
    log = options.folder / "turn.log"
    if program.name == "weft":
        run_dir, file = options.folder / "run", options.folder / "run.yaml"
        shutil.rmtree(run_dir, ignore_errors=True)
        parallel, threads = parallel_of(program)
        file.write_text(workload.run_file(options.work, model, rows, steps, program.precision,
                                          parallel=parallel, threads=threads))
        turn = run_turn([str(options.weft), "train", str(file), "--run-dir", str(run_dir),
                         "--quiet"], run_dir / "metrics.jsonl", log)
        shutil.rmtree(run_dir, ignore_errors=True)
        return turn
    metrics = options.folder / "metrics.jsonl"
    command = [sys.executable, str(HERE / "peer_mesh.py"), "--kind", program.name,
               "--model", str(model), "--rows", str(rows), "--metrics", str(metrics),
               "--precision", program.precision, "--batch", str(options.work.batch),
               "--attention", options.attention[program.precision]]
    quiet = {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    return run_turn(command, metrics, log, env=quiet)


def probe_attention(options, model):
    """Sets options.attention to the faster choice for DDP; {(precision, kind): Turn}."""
    rows, probes = options.folder / "rows_probe.txt", {}
    workload.write_rows(options.work, rows, PROBE_STEPS)
    for precision in PRECISIONS:
        for kind in ("sdpa", "eager"):
            options.attention[precision] = kind
            turn = take_turn(options, Program("ddp", precision), model, rows, PROBE_STEPS)
            probes[precision, kind] = turn
            print(f"probe, ddp {precision} with {kind} attention: {turn.median_ms():.0f} ms",
                  flush=True)
        options.attention[precision] = min(
            ("sdpa", "eager"), key=lambda kind: probes[precision, kind].median_ms())
    return probes


def take_rounds(options, programs, turns, model, may_fail=lambda program: False):
    """Every program once per round: {program: [Turn]}. An allowed failure is reported and omitted."""
    rows, results, failed = options.folder / "rows.txt", defaultdict(list), {}
    for number in range(turns):
        for program in programs:
            if program in failed:
                continue
            try:
                turn = take_turn(options, program, model, rows, options.steps)
            except TurnFailed as error:
                if not may_fail(program):
                    raise
                print(f"{program.text()} failed: {error}", flush=True)
                failed[program] = str(error)
                continue
            results[program].append(turn)
            print(f"turn {number + 1}, {program.text()}: {turn.median_ms():.0f} ms, "
                  f"{1000 * options.work.tokens() / turn.median_ms():.0f} tok/s, "
                  f"{turn.busy_cores:.2f} cores busy", flush=True)
    return results


def measure_peers(options, model):
    programs = []
    for precision in PRECISIONS:
        programs.append(Program("weft", precision, ONE_RANK))
        for layout, peer in PEERS.items():
            programs += [Program("weft", precision, layout), Program(peer, precision)]
    return take_rounds(options, programs, options.turns, model, lambda p: p.name != "weft")


def measure_exact(options, model):
    programs = []
    for precision in PRECISIONS:
        for layout, constants in CONSTANTS.items():
            programs.append(Program("weft", precision, layout))
            programs += [Program("weft", precision, layout, c) for c in constants]
    return take_rounds(options, programs, options.exact_turns, model)


def measure_four(options, model):
    layouts = [name for name in LAYOUTS if any(two == name for _, two in FOUR.values())]
    programs = [Program("weft", precision, layout) for precision in PRECISIONS
                for layout in (*layouts, *FOUR)]
    return take_rounds(options, programs, options.turns, model)


def compare_losses(turns):
    """(precision, who, largest relative difference to one rank of weft, tolerance) of each."""
    found = []
    for program, runs in turns.items():
        base = turns.get(Program("weft", program.precision, ONE_RANK))
        if base and program.layout != ONE_RANK:
            pairs = zip(runs[0].losses[:bench.LOSSES_SHOWN], base[0].losses)
            worst = max(abs(a - b) / abs(b) for a, b in pairs)
            found.append((program, worst, bench.LOSS_TOLERANCE[program.precision]))
    return found


def parse_options(argv, folder):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--weft", type=Path, required=True, help="the built program")
    parser.add_argument("--out", type=Path, help="markdown file to write")
    parser.add_argument("--quick", action="store_true", help="one turn of five steps each")
    parser.add_argument("--tiny", action="store_true", help="a tiny model: tries the programs")
    parser.add_argument("--only", default="peers,exact,four", help="parts, with commas")
    parser.add_argument("--attention", choices=["sdpa", "eager"], help="PyTorch's; no probe")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--steps", type=int, default=9)
    args = parser.parse_args(argv)
    if not os.access(args.weft, os.X_OK):
        parser.error(f"{args.weft} is not a program; build it first")
    only = args.only.split(",")
    if unknown := set(only) - {"peers", "exact", "four"}:
        parser.error(f"--only {','.join(unknown)}: wanted some of peers,exact,four")
    turns = 1 if args.quick else args.turns
    options = Options(weft=args.weft.resolve(), folder=folder,
                      work=workload.MODEL_TINY if args.tiny else workload.MODEL_S,
                      steps=5 if args.quick else args.steps, turns=turns,
                      exact_turns=max(1, turns // 2), only=only)
    if args.attention:
        options.attention = {precision: args.attention for precision in PRECISIONS}
    return args, options


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # stops and cleans up
    with tempfile.TemporaryDirectory(prefix="weft_bench_") as name:
        args, options = parse_options(sys.argv[1:], Path(name))
        facts = report.machine_facts(HERE.parent, "gloo, 2 ranks of 1 thread")
        model = options.folder / "model"
        bench.write_model(options.work, model)
        workload.write_rows(options.work, options.folder / "rows.txt", options.steps)
        page = mesh_report.Page("A tiny model" if args.tiny else "Model S", options.work, facts)
        complaints = []
        if "peers" in options.only:
            probes = {} if options.attention else probe_attention(options, model)
            turns = measure_peers(options, model)
            losses = compare_losses(turns)
            complaints = [f"{p.text()}: loss is {worst:.1e} from one rank's, at most {most:g}"
                          for p, worst, most in losses if not worst <= most]
            page.add_peers(turns, PEERS, ONE_RANK, probes, options.attention, losses)
        if "exact" in options.only:
            page.add_exact(measure_exact(options, model))
        if "four" in options.only:
            page.add_four(measure_four(options, model), FOUR)
    text = page.text(complaints)
    return report.publish(text, args.out, complaints)


if __name__ == "__main__":
    sys.exit(main())
