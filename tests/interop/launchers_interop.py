#!/usr/bin/env python3
"""The real torchrun and mpirun start `weft train`, one process per rank: the bits of weft's own ranks.

    launchers_interop.py --weft build/weft

Exact mode, dp 2 and dp 2 x tp 2 with zero3: weights, states and metrics are those of a run whose
ranks weft starts itself. With torchrun, a rank is killed on the way: the others end with 75, torchrun
starts all again, they resume, and the end is the same. Two torchruns on two hosts (network namespaces), which
meet at --master-addr, make one run; without the network's name they are refused. mpirun ends with the code of the rank that was wrong. The secret by which
ranks know each other is in a file of mode 600 until all have met, and in no command line, environment or log.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time

from common import Weft, die_with_parent, read_metrics, run_program, write_run_file
from exposure import listens_on, shows_secret
from nodes_interop import Network, become_root, call
from sampling import ROOT, is_full

DEADLINE_S = 240
TWO = {"dp": 2, "mode": "exact"}
FOUR = {"dp": 2, "tp": 2, "shard": "zero3", "mode": "exact"}


def write_file(folder, name, parallel, steps):
    return write_run_file(folder / f"{name}.yaml", {
        "name": name,
        "model": {"path": str(ROOT / "examples/quickstart/model"), "init": "random"},
        "data": {"train": [str(folder / "data/train.jsonl")], "source": "{question}\n",
                 "target": "{sql}", "tokenizer": "bytes", "seq_length": 96},
        "parallel": parallel,
        "train": {"steps": steps, "global_batch": 8, "micro_batch": 4, "lr": 1e-3},
        "checkpoint": {"every": 4, "keep": 100}, "launch": {"threads": 1}})


def torchrun(ranks, *words, meeting=("--standalone",)):
    return [sys.executable, "-m", "torch.distributed.run", "--no-python", *meeting,
            "--nproc-per-node", str(ranks), *words]


def mpirun(ranks, *words):
    return ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", str(ranks), *words]


def start(command, weft, file, run_dir, log, *more):
    words = [*command, str(weft.path), "train", str(file), "--run-dir", str(run_dir), *more]
    with open(log, "wb") as out:
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                env={**os.environ, "OMP_NUM_THREADS": "1"}, preexec_fn=die_with_parent)


def finish(process):
    try:
        return process.wait(DEADLINE_S)
    finally:
        if process.poll() is None:
            process.kill()


def same_run(checks, weft, run_dir, own, what):
    checks.equal(weft.call("hash", run_dir), weft.call("hash", own), f"{what}: weights and states")
    keys = ("step", "loss", "grad_norm", "lr", "tokens")
    lines = [[{k: line[k] for k in keys} for line in read_metrics(d)[0]] for d in (run_dir, own)]
    checks.equal(lines[0], lines[1], f"{what}: metrics")
    checks.that(not list(run_dir.parent.glob(".*rendezvous*")), f"{what}: the rendezvous file is gone")


def launch(checks, weft, folder, case, command):
    name, file, own = case
    run_dir, log = folder / f"runs/{name}", folder / f"{name}.log"
    code = finish(start(command, weft, file, run_dir, log))
    if checks.that(code == 0, f"{name}: exit 0", "" if code == 0 else log.read_text(errors="replace")[-1500:]):
        same_run(checks, weft, run_dir, own, name)


def start_on_hosts(network, weft, file, run_dir, *more):
    """A torchrun of two ranks on each of two hosts; their exit codes and what they printed."""
    logs = [run_dir.parent / f"{run_dir.name}-{host}.log" for host in range(2)]
    run_dir.parent.mkdir(parents=True, exist_ok=True)
    meetings = [("--nnodes", "2", "--node-rank", str(host), "--master-addr", "10.213.0.1", "--master-port", "29500")
                for host in range(2)]
    runs = [network.start(host, logs[host], "env", "OMP_NUM_THREADS=1", *torchrun(2, meeting=meetings[host]),
                          weft.path, "train", file, "--run-dir", run_dir, *more) for host in range(2)]
    codes = [finish(run) for run in runs]
    return codes, [log.read_text(errors="replace") for log in logs]


def two_hosts(checks, weft, folder, file, own):
    name = "torchrun on two hosts, 2 + 2 ranks"
    with Network(2) as network:
        run_dir = folder / "hosts/run"
        codes, texts = start_on_hosts(network, weft, file, run_dir, "--set", "launch.interface=eth0")
        if checks.that(codes == [0, 0], f"{name}: exit 0", "" if codes == [0, 0] else f"{codes}\n{texts}"[-2000:]):
            same_run(checks, weft, run_dir, own, name)
        codes, texts = start_on_hosts(network, weft, file, folder / "hosts/refused")
        wanted = ("error: launch.interface is lo, which other machines cannot reach, but launch.nodes is 2: name the "
                  "interface or address of the network between the nodes")
        is_said = all(wanted in text for text in texts)
        checks.that(is_said, f"{name}, no launch.interface: the message", "" if is_said else f"{texts}"[-2000:])
        ends = [re.findall(r"exitcode\s*: (-?\d+)", text) for text in texts]
        checks.equal([set(end) for end in ends], [{"2"}, {"2"}], f"{name}, no launch.interface: exit codes of ranks")


def find_rank(file, rank):
    """The process of a rank: by its command line and environment."""
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            words = open(f"{entry.path}/cmdline", "rb").read().split(b"\0")
            env = open(f"{entry.path}/environ", "rb").read().split(b"\0")
        except OSError:
            continue
        if str(file).encode() in words and words[0].endswith(b"weft") and f"RANK={rank}".encode() in env:
            return int(entry.name)
    return None


def killed(checks, weft, folder, file, own):
    name = "torchrun, 4 ranks, one killed"
    run_dir, log = folder / "runs/killed", folder / "killed.log"
    process = start(torchrun(4, "--max-restarts", "1", "--monitor-interval", "0.2"), weft, file, run_dir, log)
    deadline = time.monotonic() + DEADLINE_S
    while process.poll() is None and time.monotonic() < deadline:
        if (run_dir / "checkpoints/step-00000004/COMMITTED").exists():
            break
        time.sleep(0.02)
    pid = find_rank(file, 2)
    if checks.that(pid is not None, f"{name}: the rank is found"):
        os.kill(pid, signal.SIGKILL)
    code = finish(process)
    text = log.read_text(errors="replace")
    checks.that(code == 0, f"{name}: torchrun ends well", "" if code == 0 else text[-1500:])
    checks.that("resumed from" in text, f"{name}: it resumes")
    same_run(checks, weft, run_dir, own, name)


def hidden(checks, weft, folder, file):
    """The second rank waits until the secret was read where the first keeps it for the others."""
    name, run_dir, log, go = "torchrun, the secret", folder / "hidden/run", folder / "hidden/log", folder / "hidden-go"
    log.parent.mkdir()
    script = f'while test "$RANK" != 0 && ! test -e {go}; do sleep 0.02; done; exec "$@"'
    process = start(torchrun(2, "sh", "-c", script, "sh"), weft, file, run_dir, log, "--set", "train.steps=100000")
    meeting = run_dir.parent / ".run.rendezvous"
    wait_for(process, meeting.exists)
    secret = json.loads(meeting.read_text())["secret"]
    checks.equal((len(secret) >= 32, oct(meeting.stat().st_mode & 0o777)), (True, "0o600"), f"{name}: the file's mode")
    go.touch()
    metrics = run_dir / "metrics.jsonl"
    wait_for(process, lambda: metrics.exists() and metrics.stat().st_size > 0)
    checks.that(not meeting.exists(), f"{name}: the file is gone when all have met")
    checks.equal(shows_secret(secret, run_dir.parent), [], f"{name}: in no command line, environment, log or file")
    ranks = [find_rank(file, rank) for rank in range(2)]
    checks.that(None not in ranks, f"{name}: both ranks are found")
    checks.equal(listens_on([rank for rank in ranks if rank]), {"127.0.0.1"}, f"{name}: addresses on which ranks listen")
    process.send_signal(signal.SIGTERM)
    finish(process)
    checks.equal([find_rank(file, rank) for rank in range(2)], [None, None], f"{name}: SIGTERM ends both ranks")


def wait_for(process, holds):
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"it did not happen; exit code {process.poll()}")
        time.sleep(0.005)


def wrong_size(checks, weft, folder, file):
    code = finish(start(mpirun(3), weft, file, folder / "runs/wrong", folder / "wrong.log"))
    text = (folder / "wrong.log").read_text(errors="replace")
    wanted = "mpirun has started 3 ranks (OMPI_COMM_WORLD_SIZE), but parallel.dp=2 x parallel.tp=1 needs 2"
    checks.equal(code, 2, "mpirun, 3 ranks for dp 2: exit 2")
    checks.that(wanted in text, "mpirun, 3 ranks for dp 2: the message", "" if wanted in text else text[-800:])


def body(args, checks, folder):
    weft = Weft(args.weft)
    weft.call("corpus", folder / "data", "--seed", 1, "--train", 400, "--test", 10)
    two, four = write_file(folder, "two", TWO, 6), write_file(folder, "four", FOUR, 16)
    own_two, own_four = folder / "own/two", folder / "own/four"
    weft.train(two, own_two)
    weft.train(four, own_four)
    launch(checks, weft, folder, ("mpirun, 2 ranks", two, own_two), mpirun(2))
    wrong_size(checks, weft, folder, two)
    hidden(checks, weft, folder, two)
    launch(checks, weft, folder, ("torchrun, 2 ranks", two, own_two), torchrun(2))
    killed(checks, weft, folder, four, own_four)
    two_hosts(checks, weft, folder, four, own_four)
    if is_full():
        launch(checks, weft, folder, ("mpirun, 4 ranks", four, own_four), mpirun(4))
        launch(checks, weft, folder, ("torchrun, 4 ranks", four, own_four), torchrun(4))


if __name__ == "__main__":
    become_root()
    call("ip", "link", "set", "lo", "up")  # it is down in a network of our own
    run_program(__doc__, body, in_memory=True)
