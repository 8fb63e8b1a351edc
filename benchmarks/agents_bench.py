#!/usr/bin/env python3
"""What each agent costs the supervisor of a run on several nodes: memory, processor time, bytes.

    agents_bench.py --weft build/weft [--agents 0 50 100 200] [--swarm build/benchmarks/agent_swarm
                    1000 5000 10000] [--seconds 30] [--out FILE]

A run on two nodes with a rank on each, which are stopped (SIGSTOP) after the first step, and as many
further agents, which wait as spares on a second host (a network namespace): the first one's
interface counts their bytes, frame headers included. Joining is timed from the first agent's start
to the last one's welcome, and contains the start of as many processes. --swarm: further numbers, of
agents that are all one process.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "interop"))

from common import write_run_file  # noqa: E402
from kill_interop import children_of  # noqa: E402
from nodes_interop import Network, become_root  # noqa: E402


def write_run(folder):
    (folder / "rows.txt").write_text("a row\n" * 64)
    return write_run_file(folder / "run.yaml", {
        "name": "run", "model": {"path": str(ROOT / "examples/quickstart/model"), "init": "random"},
        "data": {"train": [str(folder / "rows.txt")], "tokenizer": "bytes", "seq_length": 16},
        "parallel": {"dp": 2}, "train": {"steps": 1000000, "global_batch": 2, "micro_batch": 1},
        "launch": {"interface": "eth0", "port": 4711, "threads": 1, "hang_timeout_s": 86400}})


def cpu_s(pid):
    """Of all threads (proc(5), schedstat): finer than clock ticks."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) * 1e-9


def status_kib(pid, key):
    line = next(x for x in Path(f"/proc/{pid}/status").read_text().splitlines() if x.startswith(key + ":"))
    return int(line.split()[1])


def num_descriptors(pid):
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def network_bytes(pid):
    """Received and sent by eth0 of the host on which the process is."""
    line = next(x for x in Path(f"/proc/{pid}/net/dev").read_text().splitlines() if "eth0:" in x)
    words = line.split(":")[1].split()
    return int(words[0]), int(words[8])


def wait_for(holds, what, seconds=60):
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise RuntimeError(f"{what}: not within {seconds} s")
        time.sleep(0.005)


def stop_ranks(train, agent, run_dir):
    metrics = run_dir / "metrics.jsonl"
    wait_for(lambda: metrics.exists() and metrics.stat().st_size > 0, "the first step")
    ranks = [rank for parent in [*children_of(train.pid), agent.pid] for rank in children_of(parent)]
    if len(ranks) != 2:
        raise RuntimeError(f"{len(ranks)} ranks, wanted 2")
    for rank in ranks:
        os.kill(rank, signal.SIGSTOP)


def start_spares(network, folder, join, count):
    """As processes of their own; (processes, seconds until all have joined)."""
    log, begin = folder / "agents", time.monotonic()
    started = [network.start(1, log, *join) for _ in range(count)]
    wait_for(lambda: count == 0 or log.read_text().count("joined the run") >= count, "all have joined")
    return started, time.monotonic() - begin


def start_swarm(network, folder, program, commit, run_dir, count, seconds):
    log = folder / "agents"
    started = [network.start(1, log, program, "10.213.0.1:4711", run_dir / "secret", count, seconds + 60, commit)]
    wait_for(lambda: "joined" in log.read_text() or started[0].poll() is not None, "all have joined")
    if started[0].poll() is not None:
        raise RuntimeError(log.read_text())
    return started, float(log.read_text().split()[2])


def measure(network, weft, folder, count, seconds, swarm):
    folder.mkdir()
    log, run_dir = folder / "log", folder / "run"
    train = network.start(0, log, weft, "train", write_run(folder), "--run-dir", run_dir, "--nodes", 2,
                          "--quiet")
    agents = []
    try:
        wait_for((run_dir / "secret").exists, "the supervisor's secret")
        join = [weft, "agent", "--join", "10.213.0.1:4711", "--secret-file", run_dir / "secret"]
        agents.append(network.start(1, folder / "agent", *join))
        stop_ranks(train, agents[0], run_dir)
        if swarm:
            commit = subprocess.run([weft, "--version"], check=True, capture_output=True,
                                    text=True).stdout.splitlines()[1].split()[1]
            more, joined_s = start_swarm(network, folder, swarm, commit, run_dir, count, seconds)
        else:
            more, joined_s = start_spares(network, folder, join, count)
        agents += more
        time.sleep(3)
        cpu, (received, sent), begin = cpu_s(train.pid), network_bytes(train.pid), time.monotonic()
        time.sleep(seconds)
        took = time.monotonic() - begin
        now = network_bytes(train.pid)
        return {"agents": count, "joined_s": joined_s, "rss_kib": status_kib(train.pid, "VmRSS"),
                "anon_kib": status_kib(train.pid, "RssAnon"), "cpu": (cpu_s(train.pid) - cpu) / took,
                "received": (now[0] - received) / took, "sent": (now[1] - sent) / took,
                "descriptors": num_descriptors(train.pid),
                "agent_kib": status_kib(agents[0].pid, "RssAnon")}
    finally:
        for process in [train, *agents]:
            process.kill()
            process.wait()


def report(rows):
    lines = ["| spares | joined, s | memory, KiB (private) | CPU s per minute | received, B/s | sent, B/s | descriptors |",
             "|---|---|---|---|---|---|---|"]
    for r in rows:
        lines.append(f"| {r['agents']} | {r['joined_s']:.2f} | {r['rss_kib']} ({r['anon_kib']}) | {60 * r['cpu']:.2f} | "
                     f"{r['received']:.0f} | {r['sent']:.0f} | {r['descriptors']} |")
    first, last = rows[0], rows[-1]
    n = last["agents"] - first["agents"]
    per = {key: (last[key] - first[key]) / n for key in ("anon_kib", "cpu", "received", "sent", "descriptors")}
    lines += ["", f"Per agent: {per['anon_kib']:.1f} KiB, {1e6 * per['cpu']:.0f} us of CPU per second, "
              f"{per['received']:.0f} B/s received, {per['sent']:.0f} B/s sent, {per['descriptors']:.0f} descriptor. "
              f"An agent itself: {last['agent_kib']} KiB of private memory."]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--weft", type=Path, required=True)
    parser.add_argument("--agents", type=int, nargs="+", default=[0, 50, 100, 200])
    parser.add_argument("--swarm", nargs="+", default=[])
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    weft = args.weft.resolve()
    with tempfile.TemporaryDirectory(prefix="weft_agents_") as folder, Network(2) as network:
        rows = [measure(network, weft, Path(folder) / f"agents{count}", count, args.seconds, None)
                for count in args.agents]
        rows += [measure(network, weft, Path(folder) / f"swarm{count}", int(count), args.seconds,
                         Path(args.swarm[0]).resolve()) for count in args.swarm[1:]]
    text = report(rows)
    print(text, end="")
    if args.out:
        args.out.write_text(text)


if __name__ == "__main__":
    become_root()
    main()
