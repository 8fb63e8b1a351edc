#!/usr/bin/env python3
"""weft and transformers continue prompts in turns on this machine's CPU, beside the memory's speed.

    generate_bench.py --weft build/weft --out FILE.md [--turns 3] [--batches 1,16] [--tiny]

Model S of workload.py with random weights, stored in fp32 and in bf16; both programs read the same files, use two
threads, and choose the likeliest token. A figure is the median over turns of
(seconds of the longer continuation - seconds of the shorter) / (difference of tokens), so that
neither start-up nor the prompt counts. In every turn the memory is read too: torch sums an array as
large as the weights, in two threads, and the fastest of some sums counts (fp32 or int64, whichever reads
faster). "of memory" is the weights and the cache that a step must read over its time, over that speed.
"""

import argparse
import json
import random
import statistics
import string
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import report
import workload

HERE = Path(__file__).resolve().parent
PROMPT = 32
LENGTHS = (32, 160)
SAME_TOKENS = 16  # of an fp32 continuation; later ones may part where two logits are nearly equal
BYTES = {"fp32": 4, "bf16": 2}


def write_models(work, folder):
    """Random weights by transformers' own rule, once in each precision."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, logging
    logging.disable_progress_bar()
    torch.manual_seed(1)
    config = workload.config_json(work) | {"eos_token_id": None}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config), dtype=torch.float32)
    model.save_pretrained(folder / "fp32")
    model.to(torch.bfloat16).save_pretrained(folder / "bf16")


def write_prompts(path, batch):
    letters = random.Random(batch)
    path.write_text("".join("".join(letters.choices(string.ascii_letters, k=PROMPT)) + "\n"
                            for _ in range(batch)))


def bytes_per_step(work, precision, batch):
    """Weights (the tied head once) and the cache's keys and values, at the mean length."""
    weights = sum(k * n for k, n in work.products())
    positions = PROMPT + sum(LENGTHS) / 2
    cache = 2 * work.num_layers * work.kv_size() * positions * batch
    return (weights + cache) * BYTES[precision]


def memory_speed(num_bytes):
    """Bytes per second that two threads of torch read."""
    import torch
    torch.set_num_threads(2)
    array = torch.ones(int(num_bytes) // 8, dtype=torch.int64)
    best = 1e9
    for view in (array, array.view(torch.float32)):
        for _ in range(8):
            begin = time.perf_counter()
            view.sum()
            best = min(best, time.perf_counter() - begin)
    return array.numel() * 8 / best


def run(command):
    begin = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    seconds = time.perf_counter() - begin
    if done.returncode != 0:
        raise SystemExit(f"exit {done.returncode}: {' '.join(command)}\n{done.stderr[-2000:]}")
    return seconds, done.stdout


def weft_turn(args, folder, precision, prompts):
    """Seconds per step, and the ids of the longer continuations."""
    seconds, ids = [], []
    for length in LENGTHS:
        took, out = run([str(args.weft), "generate", str(folder / precision), "--prompts",
                         str(prompts), "--max-new-tokens", str(length), "--json", "--tokenizer",
                         "bytes", "--threads", "2", "--device", "cpu"])
        seconds.append(took)
        ids = [json.loads(line)["ids"] for line in out.splitlines()]
        if any(len(row) != length for row in ids):
            raise SystemExit(f"weft ended a continuation before {length} tokens: choose other prompts")
    return (seconds[1] - seconds[0]) / (LENGTHS[1] - LENGTHS[0]), ids


def peer_turn(folder, precision, prompts):
    _, out = run([sys.executable, str(HERE / "peer_generate.py"), "--model", str(folder / precision),
                  "--prompts", str(prompts), "--lengths", ",".join(map(str, LENGTHS)), "--precision",
                  precision])
    result = json.loads(out.splitlines()[-1])
    shorter, longer = result["seconds"]
    return (longer - shorter) / (LENGTHS[1] - LENGTHS[0]), result["ids"]


def measure(args, folder, work, precision, batch):
    """(seconds per step of weft, of transformers, bytes per second, complaint)."""
    prompts = folder / f"prompts-{batch}.txt"
    write_prompts(prompts, batch)
    weft, peer, memory, complaint = [], [], [], ""
    for _ in range(args.turns):
        memory.append(memory_speed(bytes_per_step(work, precision, batch)))
        took, ids = weft_turn(args, folder, precision, prompts)
        weft.append(took)
        took, peer_ids = peer_turn(folder, precision, prompts)
        peer.append(took)
        same = all(a[:SAME_TOKENS] == b[:SAME_TOKENS] for a, b in zip(ids, peer_ids))
        if precision == "fp32" and not same:
            complaint = f"{precision}, batch {batch}: weft's tokens are not transformers'"
    return statistics.median(weft), statistics.median(peer), statistics.median(memory), complaint


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--weft", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--batches", type=lambda text: [int(n) for n in text.split(",")],
                        default=[1, 16])
    parser.add_argument("--tiny", action="store_true", help="a tiny model, to try the program out")
    args = parser.parse_args()
    args.weft = args.weft.resolve()
    work = workload.MODEL_TINY if args.tiny else workload.MODEL_S
    facts = report.machine_facts(HERE.parent)
    rows, complaints, fp32 = [], [], {}
    with tempfile.TemporaryDirectory(prefix="weft_generate_") as name:
        write_models(work, Path(name))
        for batch in args.batches:
            for precision in BYTES:
                weft, peer, memory, wrong = measure(args, Path(name), work, precision, batch)
                step_bytes = bytes_per_step(work, precision, batch)
                complaints += [wrong] if wrong else []
                fp32.setdefault(batch, weft)
                rows.append([batch, precision, f"{batch / weft:.0f}", f"{batch / peer:.0f}",
                             f"{peer / weft:.2f}", f"{fp32[batch] / weft:.2f}",
                             f"{step_bytes / 1e6:.1f}", f"{step_bytes / weft / 1e9:.1f}",
                             f"{memory / 1e9:.1f}", f"{step_bytes / weft / memory:.0%}"])
                print(*rows[-1], flush=True)
    text = "\n".join([
        "# Generation on a CPU, weft and transformers in turns", "", work.text() + ".", "",
        *(f"- {fact}: {value}" for fact, value in facts.items()), "",
        *report.table(["batch", "precision", "weft tok/s", "transformers tok/s", "weft / transformers",
                       "weft / weft fp32", "MB per step", "weft GB/s", "memory GB/s", "of memory"],
                      rows), *complaints, ""])
    return report.publish(text, args.out, complaints)


if __name__ == "__main__":
    sys.exit(main())
