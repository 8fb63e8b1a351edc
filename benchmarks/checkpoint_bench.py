#!/usr/bin/env python3
"""What a checkpoint costs: weft beside training and between steps, torch.distributed.checkpoint, dd.

    checkpoint_bench.py --weft build/weft --out FILE.md [--folder DIR] [--sizes 400,3000]

A model whose weights and AdamW states have that many megabytes trains on the CPU with two threads: without
saves, with synchronous ones, with asynchronous ones, in turns. Blocked: how long the loop waits for a save.
Added: wall clock of the run with saves less that of the run without, per save. DCP saves and loads a state
of the same size (sync and async_save), and dd writes as many bytes with fsync, in the same folder. Loading:
the run is resumed for a step, dd and DCP read as many bytes, all with files that the page cache does not have.
Memory: the most that the process held, less that of the run whose only save is the last one. At the end the
checkpoint is exported, in each format, by a process whose private memory is limited to 300 MB (RLIMIT_DATA).
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import report
from page_cache import drop_cached
from workload import yaml_text

HERE = Path(__file__).resolve().parent
STEPS, EVERY = 16, 4  # saves after steps 4, 8 and 12; the last one, after 16, is in every run
EXPORT_LIMIT = 300 * 10**6
WIDTHS = {400: (512, 8), 3000: (1024, 15)}  # megabytes: hidden size, layers


def write_model(folder, megabytes):
    hidden, layers = WIDTHS[megabytes]
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden,
        "intermediate_size": 4 * hidden, "num_hidden_layers": layers, "num_attention_heads": 8,
        "num_key_value_heads": 8, "vocab_size": 320, "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "hidden_act": "silu"}))


def run_measured(command, limit=None):
    """The most memory in bytes that the process held at a time; private memory above `limit` is denied."""
    deny = (lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))) if limit else None
    with subprocess.Popen([str(word) for word in command], preexec_fn=deny) as child:
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"exit {child.returncode}: {command}")
    return usage.ru_maxrss * 1024


def write_run(folder, model, kind, steps):
    every = EVERY if kind != "none" else 10 * STEPS
    file = folder / "run.yaml"
    file.write_text(yaml_text({
        "name": "bench", "seed": 1, "model": {"path": str(model), "init": "random"},
        "data": {"train": [str(folder / "rows.txt")], "tokenizer": "bytes", "seq_length": 64,
                 "shuffle": False},
        "parallel": {"dp": 1},
        "train": {"steps": steps, "global_batch": 2, "micro_batch": 2, "lr": 1.0e-4},
        "checkpoint": {"every": every, "async": kind == "async", "keep": 1},
        "launch": {"threads": 2}}))
    return file


def run_weft(args, folder, model, kind):
    """(seconds from the first step's end to the last one's, checkpoint events but the last, bytes held)."""
    run_dir = folder / "run"
    subprocess.run(["rm", "-rf", run_dir], check=True)
    file = write_run(folder, model, kind, STEPS)
    held = run_measured([args.weft, "train", file, "--run-dir", run_dir, "--quiet"])
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    lines = [line for line in lines if "step_ms" in line]
    events = [json.loads(line) for line in (run_dir / "events.jsonl").read_text().splitlines()]
    saves = [event for event in events if event["event"] == "checkpoint"]
    return lines[-1]["time_s"] - lines[0]["time_s"], saves[:-1], held


def time_dd(folder, megabytes):
    target = folder / "dd"
    start = time.monotonic()
    subprocess.run(["dd", "if=/dev/zero", f"of={target}", "bs=1M", f"count={megabytes}", "conv=fsync"],
                   check=True, capture_output=True)
    seconds = time.monotonic() - start
    target.unlink()
    return seconds


def load_weft(args, folder, model):
    """(seconds, bytes) of reading the checkpoint that run_weft has left."""
    run_dir = folder / "run"
    file = write_run(folder, model, "sync", STEPS + 1)
    drop_cached(run_dir)
    run_measured([args.weft, "train", file, "--run-dir", run_dir, "--quiet"])
    events = [json.loads(line) for line in (run_dir / "events.jsonl").read_text().splitlines()]
    last = [event for event in events if event["event"] == "started"][-1]
    if last["step"] != STEPS:
        sys.exit(f"resumed at step {last['step']}, wanted {STEPS}")
    return last["read_s"], last["read_bytes"]


def time_dd_read(folder, megabytes):
    target = folder / "dd"
    subprocess.run(["dd", "if=/dev/zero", f"of={target}", "bs=1M", f"count={megabytes}", "conv=fsync"],
                   check=True, capture_output=True)
    drop_cached(folder)
    start = time.monotonic()
    subprocess.run(["dd", f"if={target}", "of=/dev/null", "bs=1M"], check=True, capture_output=True)
    seconds = time.monotonic() - start
    target.unlink()
    return seconds


def run_peer(folder, megabytes):
    done = subprocess.run([sys.executable, str(HERE / "peer_checkpoint.py"), str(folder / "dcp"),
                           str(megabytes)], check=True, capture_output=True, text=True)
    subprocess.run(["rm", "-rf", folder / "dcp"], check=True)
    return json.loads(done.stdout.splitlines()[-1])


def measure(args, folder, megabytes):
    model = folder / f"model-{megabytes}"
    write_model(model, megabytes)
    (folder / "rows.txt").write_text("\n".join("a row of some letters " * 3 for _ in range(200)) + "\n")
    walls, saves = {"none": [], "sync": [], "async": []}, {"sync": [], "async": []}
    dd, peers, memory = [], [], {"none": [], "sync": [], "async": []}
    loads, dd_reads = [], []
    for _ in range(args.turns):
        for kind, wall in walls.items():
            seconds, events, held = run_weft(args, folder, model, kind)
            wall.append(seconds)
            memory[kind].append(held)
            if kind != "none":
                saves[kind] += events
        loads.append(load_weft(args, folder, model))
        dd.append(time_dd(folder, megabytes))
        dd_reads.append(time_dd_read(folder, megabytes))
        peers.append(run_peer(folder, megabytes))
    exported = {}
    for form in ["hf", "dcp", "deepspeed"]:
        exported[form] = run_measured(
            [args.weft, "export", folder / "run", folder / "exported", "--format", form], EXPORT_LIMIT)
        subprocess.run(["rm", "-rf", folder / "exported"], check=True)
    median = statistics.median
    num_saves = (STEPS - 1) // EVERY
    blocked = {kind: median(e["blocked_s"] for e in events) for kind, events in saves.items()}
    added = {kind: (median(walls[kind]) - median(walls["none"])) / num_saves for kind in saves}
    bytes_ = saves["sync"][0]["rank_bytes"]
    peer = {key: median(p[key] for p in peers) for key in peers[0]}
    dd_s = median(dd)
    load = median(count / seconds for seconds, count in loads) / 1e6
    dd_read = megabytes * (1 << 20) / 1e6 / median(dd_reads)
    dcp_load = megabytes / peer["load_s"]
    more = {kind: (median(memory[kind]) - median(memory["none"])) / 1e6 for kind in saves}
    largest = 4e-6 * 4 * WIDTHS[megabytes][0] ** 2  # MB of a feed-forward matrix in fp32
    lines = [f"## {bytes_ / 1e6:.0f} MB", ""]
    lines += report.table(["", "seconds"], [
        ["weft, synchronous: written", f"{blocked['sync']:.3f}"],
        ["weft, asynchronous: blocked", f"{blocked['async']:.3f}"],
        ["weft, synchronous: added to the wall clock per save", f"{added['sync']:.3f}"],
        ["weft, asynchronous: added to the wall clock per save", f"{added['async']:.3f}"],
        ["dd with fsync", f"{dd_s:.3f}"],
        ["DCP save", f"{peer['save_s']:.3f}"],
        ["DCP async_save: blocked", f"{peer['async_blocked_s']:.3f}"],
        ["DCP async_save: until written", f"{peer['async_s']:.3f}"]])
    lines += report.table(["ratio", "measured", "wanted"], [
        ["blocked, asynchronous / synchronous", f"{blocked['async'] / blocked['sync']:.3f}", "< 0.05"],
        ["added, asynchronous / synchronous", f"{added['async'] / added['sync']:.2f}", "< 0.40"],
        ["bandwidth of a synchronous save / dd", f"{dd_s / blocked['sync']:.2f}", ">= 0.8"],
        ["DCP save / weft's synchronous save", f"{peer['save_s'] / blocked['sync']:.2f}", ">= 2"]])
    lines += report.table(["loading, not cached", "MB/s", "weft / it", "wanted"], [
        ["weft, checksums compared", f"{load:.0f}", "1.00", ""],
        ["dd", f"{dd_read:.0f}", f"{load / dd_read:.2f}", ">= 0.8"],
        ["DCP load", f"{dcp_load:.0f}", f"{load / dcp_load:.2f}", ">= 2, or the disk's limit"]])
    lines += report.table(["memory, MB", "measured", "wanted"], [
        ["synchronous saves above training", f"{more['sync']:.0f}", f"<= {largest + 64:.0f}"],
        ["asynchronous saves above training", f"{more['async']:.0f}", f"<= {bytes_ / 1e6 + 64:.0f}"],
        *([f"export --format {form}, limited to 300", f"{held / 1e6:.0f}", f"<= {largest + 64:.0f}"]
          for form, held in exported.items())])
    print("\n".join(lines), flush=True)
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--weft", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--folder", type=Path, help="on the disk to measure; default: the temporary folder's")
    parser.add_argument("--sizes", type=lambda text: [int(n) for n in text.split(",")], default=[400, 3000])
    parser.add_argument("--turns", type=int, default=3)
    args = parser.parse_args()
    args.weft = args.weft.resolve()
    lines = []
    with tempfile.TemporaryDirectory(prefix="weft_checkpoint_", dir=args.folder) as name:
        for megabytes in args.sizes:
            lines += measure(args, Path(name), megabytes)
    facts = report.machine_facts(HERE.parent)
    text = "\n".join(["# What a checkpoint costs", "", *(f"- {fact}: {value}" for fact, value in facts.items()),
                      "", *lines])
    return report.publish(text, args.out, [])


if __name__ == "__main__":
    sys.exit(main())
