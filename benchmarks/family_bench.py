#!/usr/bin/env python3
"""weft and PyTorch (eager) train a T5 and a BLOOM in turns on this machine's CPU; a table of ratios.

    family_bench.py --weft build/weft --out FILE.md [--families t5,bloom] [--turns 3] [--steps 8]

Both read the same weights and rows, use two threads, and are started afresh for every turn. The figure
is the median step over all turns without the first three of each; memory is VmHWM. Losses that
differ are an error.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

import family_workload
import report
from turn import run_turn

HERE = Path(__file__).resolve().parent
LOSS_TOLERANCE = {"fp32": 1e-4, "bf16": 3e-2}  # relative; T5's loss in bf16 is a bf16 number


def write_model(family, folder):
    """Random weights by transformers' own rule."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, logging
    logging.disable_progress_bar()
    torch.manual_seed(1)
    auto = AutoModelForSeq2SeqLM if family.target_length else AutoModelForCausalLM
    auto.from_config(AutoConfig.for_model(**family.config), dtype=torch.float32).save_pretrained(
        folder)


def take_turn(args, folder, family, program, precision, turn):
    model, rows, log = folder / family.name, folder / f"{family.name}.jsonl", folder / "turn.log"
    if program == "weft":
        run, out = folder / "run.yaml", folder / f"run-{family.name}-{precision}-{turn}"
        run.write_text(family_workload.run_file(family, model, rows, args.steps, precision))
        return run_turn([str(args.weft), "train", str(run), "--run-dir", str(out), "--quiet"],
                        out / "metrics.jsonl", log)
    metrics = folder / "metrics.jsonl"
    return run_turn([sys.executable, str(HERE / "peer_family.py"), "--family", family.name, "--model",
                     str(model), "--rows", str(rows), "--metrics", str(metrics), "--precision",
                     precision], metrics, log)


def measure(args, folder, family):
    """Lines of the table, and complaints about losses."""
    write_model(family, folder / family.name)
    family_workload.write_rows(family, folder / f"{family.name}.jsonl", args.steps)
    lines, complaints = [], []
    for precision, tolerance in LOSS_TOLERANCE.items():
        turns = {"weft": [], "eager": []}
        for turn in range(args.turns):
            for program, taken in turns.items():
                taken.append(take_turn(args, folder, family, program, precision, turn))
        ms = {program: statistics.median(x for t in taken for x in t.kept_ms())
              for program, taken in turns.items()}
        peak = {program: taken[0].peak_bytes / 2**30 for program, taken in turns.items()}
        lines.append(f"| {family.name} | {precision} | {ms['weft']:.0f} | {ms['eager']:.0f} | "
                     f"{ms['eager'] / ms['weft']:.2f} | {peak['weft']:.2f} | {peak['eager']:.2f} |")
        print(lines[-1], flush=True)
        for step, (a, b) in enumerate(zip(turns["weft"][0].losses, turns["eager"][0].losses), 1):
            if not abs(a - b) <= tolerance * abs(b):
                complaints.append(f"{family.name} {precision} step {step}: weft's loss {a} is not "
                                  f"PyTorch's {b} (within {tolerance:g} relative)")
    return lines, complaints


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--weft", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--families", type=lambda text: text.split(","), default=["t5", "bloom"])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    args = parser.parse_args()
    args.weft = args.weft.resolve()
    lines, complaints = [], []
    with tempfile.TemporaryDirectory(prefix="weft_family_") as name:
        for family in args.families:
            made, wrong = measure(args, Path(name), family_workload.FAMILIES[family])
            lines += made
            complaints += wrong
    facts = report.machine_facts(HERE.parent)
    text = "\n".join([
        "# T5 and BLOOM on a CPU, weft and PyTorch in turns", "",
        *(f"- {fact}: {value}" for fact, value in facts.items()), "",
        f"`{' '.join(sys.argv)}`", "",
        "| model | precision | weft ms | eager ms | eager / weft | weft GiB | eager GiB |",
        "|---|---|---|---|---|---|---|", *lines, "", *complaints, ""])
    return report.publish(text, args.out, complaints)


if __name__ == "__main__":
    sys.exit(main())
