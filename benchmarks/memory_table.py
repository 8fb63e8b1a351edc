#!/usr/bin/env python3
"""Memory per rank, plan against measured: dp 4 with accumulation in none, zero1, zero2, zero3.

What a rank holds is its anonymous pages (RssAnon), those of mapped files (RssFile: the program and its
libraries) and the pages of its own arena. The arenas of all
ranks are in one memfd, and every rank maps its peers' too: RssShmem counts a page once for each rank
that has touched it. So a page of an arena is counted here for its owner alone: /proc/PID/smaps has
the mappings apart, and rank r's arenas begin at offset (r + 1) << 44 of the memfd
(src/net/shm_world.cpp). Its pages are never released, so that the largest value seen is the peak.
"""

import argparse
import json
import os
import random
import string
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import report

MIB = 2**20
PARTS = ["parameters", "gradients", "states", "activations", "communication", "other"]
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 512,
    "intermediate_size": 1408, "num_hidden_layers": 8, "num_attention_heads": 8,
    "num_key_value_heads": 2, "vocab_size": 4096, "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5, "tie_word_embeddings": True, "initializer_range": 0.02,
    "hidden_act": "silu"}
RUN = """name: {name}
storage: {folder}/runs
model: {{path: {folder}/model, init: random}}
data: {{train: [{folder}/train.txt], tokenizer: bytes, seq_length: 64}}
parallel: {{dp: {dp}, shard: {shard}}}
train: {{steps: 3, global_batch: {batch}, micro_batch: 2, lr: 1.0e-4, precision: {precision}}}
launch: {{threads: 1}}
"""


def read(path):
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def rank_of(pid):
    for entry in read(f"/proc/{pid}/environ").split("\0"):
        if entry.startswith("WEFT_RANK="):
            return int(entry.split("=")[1])
    return None


def beside_bytes(pid):
    """Anonymous pages and those of files."""
    total = 0
    for line in read(f"/proc/{pid}/status").splitlines():
        if line.startswith(("RssAnon:", "RssFile:")):
            total += int(line.split()[1]) * 1024
    return total


def own_arena_bytes(pid, rank):
    total, is_own = 0, False
    for line in read(f"/proc/{pid}/smaps").splitlines():
        words = line.split()
        if "-" in words[0] and not words[0].endswith(":"):
            is_own = "memfd:weft" in line and int(words[2], 16) >> 44 == rank + 1
        elif is_own and words[0] == "Rss:":
            total += int(words[1]) * 1024
    return total


def watch(process):
    """Peaks by rank: (anonymous and files, own arena)."""
    peaks = {}
    while process.poll() is None:
        for pid in read(f"/proc/{process.pid}/task/{process.pid}/children").split():
            rank = rank_of(pid)
            if rank is None:
                continue
            before = peaks.get(rank, (0, 0))
            now = beside_bytes(pid), own_arena_bytes(pid, rank)
            peaks[rank] = tuple(map(max, before, now))
        time.sleep(0.002)
    return peaks


def write_inputs(folder):
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(CONFIG))
    pick = random.Random(1)
    rows = ["".join(pick.choices(string.ascii_letters, k=pick.randint(20, 90))) for _ in range(200)]
    (folder / "train.txt").write_text("\n".join(rows) + "\n")


def measure(weft, folder, shard, args):
    name = f"{shard}-{args.precision}"
    run = folder / f"{name}.yaml"
    run.write_text(RUN.format(name=name, folder=folder, dp=args.dp, shard=shard,
                              batch=args.dp * 4, precision=args.precision))
    plan = json.loads(subprocess.run([weft, "plan", run, "--json"], capture_output=True, check=True,
                                     text=True).stdout)
    with open(folder / "err", "w", encoding="utf-8") as err:
        process = subprocess.Popen([weft, "train", run, "--quiet"], stdout=err, stderr=err)
        peaks = watch(process)
    if process.returncode != 0:
        sys.exit(read(folder / "err"))
    events = [json.loads(line) for line in read(folder / "runs" / name / "events.jsonl").splitlines()]
    arenas = next(e for e in events if e["event"] == "started")["arenas"]
    return plan, arenas, peaks


def judge(plan, arenas, peaks):
    """(arenas are exact, largest difference of memory, whether all are within the limit)"""
    exact = arenas == [rank["total"] for rank in plan["per_rank"]]
    worst, good = 0, len(peaks) == len(arenas)
    for rank, (beside, arena) in peaks.items():
        wanted = plan["per_rank"][rank]["resident"]
        difference = beside + arena - wanted
        good &= abs(difference) <= max(0.05 * wanted, 48 * MIB)
        worst = max(worst, difference, key=abs)
    return exact, worst, good


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weft", default="build/weft")
    parser.add_argument("--out", help="a markdown file; default: standard output")
    parser.add_argument("--dp", type=int, default=4)
    parser.add_argument("--precision", default="fp32", choices=["fp32", "bf16"])
    args = parser.parse_args()
    weft = os.path.abspath(args.weft)
    root = str(Path(__file__).resolve().parent.parent)
    rows, ok = [], True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_inputs(folder)
        for shard in ["none", "zero1", "zero2", "zero3"]:
            plan, arenas, peaks = measure(weft, folder, shard, args)
            exact, worst, good = judge(plan, arenas, peaks)
            ok &= exact and good
            first, peak = plan["per_rank"][0], max(peaks.values(), key=sum)
            rows.append([shard] + [f"{first[part] / MIB:.1f}" for part in PARTS] + [
                f"{first['total']:,}", f"{arenas[0]:,}", "yes" if exact else "NO",
                f"{plan['resident'] / MIB:.0f}",
                f"{sum(peak) / MIB:.0f} ({peak[1] / MIB:.0f} + {peak[0] / MIB:.0f})",
                f"{worst / MIB:+.1f}", "pass" if good else "FAIL"])
    lines = ["# Memory per rank: plan against measured", "",
             f"hidden {CONFIG['hidden_size']}, feed-forward {CONFIG['intermediate_size']}, "
             f"{CONFIG['num_hidden_layers']} layers, vocabulary {CONFIG['vocab_size']}, tied; "
             f"dp {args.dp}, micro_batch 2, 2 passes a step, {args.precision}. "
             "MiB, and bytes where there are commas; parts, arena and plan of rank 0, memory of the "
             "largest rank (own arena + memory besides it), difference of the rank that is furthest off.",
             "Bar: arena to the byte on every rank; memory within the larger of 5 % and 48 MiB.", ""]
    lines += [f"- {key}: {value}" for key, value in report.run_facts(root).items()]
    lines += [""] + report.table(
        ["shard"] + PARTS + ["arena planned", "arena of the run", "all ranks exact", "memory planned",
                             "measured", "difference", "mark"], rows)
    lines += ["How it is measured: see the head of benchmarks/memory_table.py.", ""]
    text = "\n".join(lines)
    if args.out:
        Path(args.out).write_text(text)
    print(text)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
