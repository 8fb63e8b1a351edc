#!/usr/bin/env python3
"""benchmarks/tokenizer_table.py: weft's tokenizers and the `tokenizers` package, in one run, as a table.

    PYTHON benchmarks/tokenizer_table.py build/benchmarks/tokenizer_bench OUT.md [--rounds 5]

Both encode the lines of wikitext-2's test split, special tokens included, in turns; the table has medians. MB/s is
bytes of text by CPU time of the process, so that other programs on the machine take nothing away; wall time is told
beside it. The package runs on one thread (TOKENIZERS_PARALLELISM=false), once with its cache of words off and once with
it warm. weft has no cache. Threads: two of them on one tokenizer, each with every other line.
"""

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_HUB_OFFLINE"] = "1"
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/interop"))

import tokenizer_interop as made  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402


def folders(data, place, lines):
    """name -> (folder for weft, the package's tokenizer)."""
    files = data / "tokenizers"
    qwen2 = made.byte_level(str(files / "qwen2/vocab.json"), str(files / "qwen2/merges.txt"), True,
                            ["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    gpt2 = made.byte_level(str(files / "gpt2/vocab.json"), str(files / "gpt2/merges.txt"), False, ["<|endoftext|>"])
    t5 = Tokenizer.from_file(str(files / "t5-small/tokenizer.json"))
    bloom = Tokenizer.from_file(str(data / "weights/tiny_BloomForCausalLM/tokenizer.json"))
    found = {"Qwen2": (files / "qwen2", qwen2), "GPT-2": (files / "gpt2", gpt2), "T5": (files / "t5-small", t5),
             "BLOOM (tiny)": (data / "weights/tiny_BloomForCausalLM", bloom)}
    digits = made.byte_level(str(files / "gpt2/vocab.json"), str(files / "gpt2/merges.txt"), True,
                             ["<|im_start|>", "<|im_end|>"])
    for name, make in (("Llama 3 style", lambda at: made.made_up(at, digits, "llama3")),
                       ("Llama 2 style", lambda at: made.llama2(lines[:1500], True, True))):
        at = place / name.replace(" ", "_")
        at.mkdir()
        tokenizer = make(str(at))
        tokenizer.save(str(at / "tokenizer.json"))
        found[name] = (at, tokenizer)
    return found


def package_round(tokenizers, lines, num_bytes):
    """MB/s of CPU time of each, and the number of ids."""
    speeds = []
    for tokenizer in tokenizers:
        start = time.process_time()
        rows = tokenizer.encode_batch_fast(lines)
        speeds.append(num_bytes / 1e6 / (time.process_time() - start))
    return speeds, sum(len(row.ids) for row in rows)


def weft_round(program, text, folder, threads):
    out = subprocess.run([program, text, folder, "--threads", str(threads)], capture_output=True, text=True, check=True)
    return json.loads(out.stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("out")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    data = ROOT.parent / "shared/data"
    text = data / "wikitext2/wiki.test.raw"
    lines = text.read_text(encoding="utf-8").split("\n")[:-1]
    num_bytes = text.stat().st_size
    rows = []
    with tempfile.TemporaryDirectory() as place:
        for name, (folder, tokenizer) in folders(data, Path(place), lines).items():
            cold, warm, one, two, wall = [], [], [], [], []
            plain = Tokenizer.from_str(tokenizer.to_str())
            plain.model._resize_cache(0)
            tokenizer.encode_batch_fast(lines)
            for _ in range(args.rounds):
                speeds, num_ids = package_round((plain, tokenizer), lines, num_bytes)
                cold.append(speeds[0])
                warm.append(speeds[1])
                single = weft_round(args.program, text, folder, 1)
                double = weft_round(args.program, text, folder, 2)
                if {single["ids"], double["ids"]} != {num_ids}:
                    sys.exit(f"{name}: {single['ids']} and {double['ids']} ids, the package has {num_ids}")
                one.append(single["mb_per_cpu_s"])
                two.append(double["mb_per_cpu_s"])
                wall.append(single["wall_s"] / double["wall_s"])
            m = statistics.median
            rows.append((name, num_ids, m(cold), m(warm), m(one), m(one) / m(cold), m(two) / m(one), m(wall)))
            print(rows[-1], flush=True)
    write(args, rows)


def write(args, rows):
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT,
                            check=False).stdout.strip()
    import tokenizers
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")),
               platform.machine())
    load = os.getloadavg()
    lines = ["# Tokenizers", "",
             f"wikitext-2 test split (1.3 MB), row by row, beside `tokenizers` {tokenizers.__version__} (encode_batch_fast), in "
             f"turns, medians of {args.rounds}.", "",
             f"Machine: {os.cpu_count()} cores, {cpu}, busy (load {load[0]:.1f}). Date: {datetime.date.today()}. Commit: {commit}.",
             f"Command: `benchmarks/tokenizer_table.py {args.program} {args.out} --rounds {args.rounds}`.", "",
             "MB/s of CPU time, one thread. *x* is weft against the package without its cache (weft has none). *2 threads*:",
             "MB/s per CPU second of each of two threads on one tokenizer, against one thread alone: 1 is linear scaling, whatever else",
             "runs on the machine. *wall*: how much sooner two threads were done, other programs included.", "",
             "| tokenizer | ids | package, no cache | package, warm cache | weft | x | 2 threads | wall |",
             "|---|---|---|---|---|---|---|---|"]
    for name, ids, cold, warm, one, times, share, wall in rows:
        lines.append(f"| {name} | {ids} | {cold:.1f} | {warm:.1f} | {one:.1f} | {times:.1f} | {share:.2f} | {wall:.2f} |")
    Path(args.out).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
