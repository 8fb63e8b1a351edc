#!/usr/bin/env python3
"""kill -9 of a rank at random times: the others end within a second and leave nothing behind.

    kill_interop.py --weft build/weft [--moments 20] [--seed N]

Four ranks, dp 2 x tp 2, in all shards, saving every few steps. A random rank is killed at a random
time after the ranks were started (the first half second of set-up included). Then the supervisor
must exit 75 within one second, no process of the job may live, and neither shared memory that a rank had
mapped nor a socket that a process of the job had open may be held by anybody or have a name.
"""

import datetime
import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

from common import run_program, write_run_file
from exposure import Sockets, all_pids

PROMISE_S, DEADLINE_S = 1.0, 30.0
RANKS, LONGEST_WAIT_S = 4, 1.5
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
          "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
          "num_key_value_heads": 2, "vocab_size": 260, "max_position_embeddings": 64,
          "rms_norm_eps": 1e-5, "tie_word_embeddings": True, "initializer_range": 0.05,
          "hidden_act": "silu", "eos_token_id": 256}


def write_model_and_rows(folder):
    dice = random.Random(4)
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(CONFIG))
    lines = ["".join(dice.choices("abcdefgh ", k=dice.randint(2, 40))) for _ in range(64)]
    (folder / "rows.txt").write_text("\n".join(lines) + "\n")


def write_inputs(folder):
    write_model_and_rows(folder)
    return write_run_file(folder / "run.yaml", {
        "name": "run", "model": {"path": str(folder / "model"), "init": "random"},
        "data": {"train": [str(folder / "rows.txt")], "tokenizer": "bytes", "seq_length": 32},
        "parallel": {"dp": 2, "tp": 2},
        "train": {"steps": 1000000, "global_batch": 8, "micro_batch": 2},
        "checkpoint": {"every": 7, "keep": 1}, "launch": {"threads": 1}})


def children_of(pid):
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            found += [int(word) for word in (task / "children").read_text().split()]
        except OSError:
            pass  # the thread ended
    return sorted(found)


def wait_for_ranks(supervisor):
    deadline = time.monotonic() + DEADLINE_S
    while supervisor.poll() is None and time.monotonic() < deadline:
        if len(ranks := children_of(supervisor.pid)) == RANKS:
            return ranks
        time.sleep(0.001)
    raise RuntimeError(f"{RANKS} ranks did not start; exit code {supervisor.poll()}")


def shared_maps(pids, folder):
    """{(device, inode): path} of the shared memory that these processes have mapped."""
    found = {}
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            _, mode, _, device, inode, *path = line.split(maxsplit=5)
            path = path[0] if path else ""
            in_memory = path.startswith(("/memfd:", "/dev/shm/", "/SYSV"))
            if mode.endswith("s") and in_memory and not path.startswith(str(folder)):
                found[device, inode] = path
    return found


def is_ours(pid, file):
    """Whether a process with this pid works on our run: pids are reused."""
    try:
        return str(file).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def left_behind(file, maps, folder, sockets):
    """What remains of the job: processes, shared memory by mapping or by name, sockets."""
    pids = all_pids()
    found = [f"process {pid}" for pid in pids if is_ours(pid, file)]
    held = shared_maps(pids, folder)
    found += [f"mapping of {maps[key]}" for key in maps if key in held]
    found += [path for path in maps.values() if path.startswith("/dev/shm/") and
              Path(path.removesuffix(" (deleted)")).exists()]
    return found + sockets.left()


def kill_once(args, checks, folder, file, dice, moment):
    shard = ("none", "zero1", "zero2", "zero3")[moment % 4]
    command = [str(args.weft.resolve()), "train", str(file), "--run-dir", str(folder / f"{moment}"),
               "--quiet", "--set", f"parallel.shard={shard}", "--set", "launch.max_restarts=0"]
    with open(folder / "log", "w+b") as log, subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log) as supervisor:
        ranks = []
        try:
            ranks = wait_for_ranks(supervisor)
            wait_s = dice.uniform(0, LONGEST_WAIT_S)
            time.sleep(wait_s)
            maps, sockets = shared_maps(ranks, folder), Sockets()
            sockets.look([supervisor.pid, *ranks])
            victim = dice.randrange(RANKS)
            os.kill(ranks[victim], signal.SIGKILL)
            begin = time.monotonic()
            code = supervisor.wait(DEADLINE_S)
            took_s = time.monotonic() - begin
            left = left_behind(file, maps, folder, sockets)
        finally:
            for pid in [supervisor.pid, *ranks]:
                if is_ours(pid, file):
                    end_process(pid)
        text = (folder / "log").read_text(errors="replace")
    what = f"{shard}, process {victim} of {RANKS} killed after {wait_s:.2f} s"
    checks.that(code == 75 and "SIGKILL" in text, f"{what}: exit 75, the cause named",
                "" if code == 75 else f"exit {code}: {text[-800:]}")
    checks.that(took_s < PROMISE_S, f"{what}: the others end within {PROMISE_S:g} s",
                f"{1000 * took_s:.0f} ms")
    checks.equal(left, [], f"{what}: nothing is left ({len(maps)} shared mappings seen)")
    return took_s, len(maps)


def end_process(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def body(args, checks, folder):
    dice = random.Random(args.seed)
    print(f"seed {args.seed}")
    file = write_inputs(folder)
    results = [kill_once(args, checks, folder, file, dice, i) for i in range(args.moments)]
    times = sorted(1000 * took_s for took_s, _ in results)
    print(f"end after the kill: median {times[len(times) // 2]:.0f} ms, most {times[-1]:.0f} ms")
    checks.that(any(count for _, count in results), "some ranks had shared memory to leave behind")
    logs = sum((folder / f"{i}" / "metrics.jsonl").exists() and
               (folder / f"{i}" / "metrics.jsonl").stat().st_size > 0 for i in range(args.moments))
    checks.that(logs > 0, "some were killed after steps had been taken",
                f"{logs} of {args.moments}")


def add_arguments(parser):
    parser.add_argument("--moments", type=int, default=20)
    parser.add_argument("--seed", type=int, default=datetime.date.today().toordinal())


if __name__ == "__main__":
    run_program(__doc__, body, add_arguments, in_memory=True)
