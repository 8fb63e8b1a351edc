#!/usr/bin/env python3
"""Two nodes against one: model S, dp 2 zero3, one core per rank, over a link of a given rate.

    nodes_bench.py --weft build/weft [--out FILE.md] [--turns 3] [--steps 5] [--snapshot-steps 44]
                   [--links 2000 200] [--precisions fp32 bf16] [--only one weft serial snapshots fsdp2] [--tiny]

Nodes are network namespaces on one bridge; tbf limits what each of them sends (MB/s). Each has one
core of this machine, for its rank, its agent and the kernel's part of TCP alike. Programs: `one`, weft's two ranks on
one node (shared memory); `weft`, a rank on each node over Gloo; `serial`, the same without overlap
(WEFT_OVERLAP=off); `fsdp2`, PyTorch's FSDP2 over Gloo in the same namespaces. All take turns; every
turn is a fresh program, and the figure is the median step over all turns without the first two of
each; a bar is for the middle one of the ratios that the turns have. No snapshots are taken but by `snapshots`, which is `weft` with `launch.snapshot_every: auto`: each node also
keeps a copy of the other's. It runs for --snapshot-steps, of which those in which `auto` finds its number are left out;
what copies cost is the figure of snapshot_cost.py. Losses of weft's programs must be equal, PyTorch's close.

Each step of two nodes is also predicted: `weft plan --cluster` with the speeds of --cluster FILE (of one
core) and what one TCP connection carries here with a link that does not limit it: so much of a core
does a byte take, and no collective is faster.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import bench
import report
import workload
from snapshot_cost import SENT, chosen_interval, part_of_time
from turn import run_turn, step_lines

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "interop"))

from nodes_interop import Network, become_root, call  # noqa: E402

BARS = [  # what, over what, link MB/s, precision, at least
    ("weft", "one", 2000, "bf16", 0.9), ("weft", "one", 200, "fp32", 0.8),
    ("weft", "fsdp2", 2000, "fp32", 1.2), ("weft", "fsdp2", 2000, "bf16", 1.8),
    ("weft", "fsdp2", 200, "fp32", 1.2), ("weft", "fsdp2", 200, "bf16", 1.8)]
NAMES = {"one": "weft, two ranks on one node", "weft": "weft, two nodes",
         "serial": "weft, two nodes, no overlap", "snapshots": "weft, two nodes, snapshots",
         "fsdp2": "torch FSDP2, two nodes"}
DROPPED = 2  # first steps of a turn: caches, page faults
MOST = 0.02  # what `auto` may cost
DEADLINE_S, FREE = 300, 100_000
RATE_PROBE = """
import socket, sys, time
if sys.argv[1] == "to":
    s = socket.create_server(("10.213.0.1", 5001)); print("ready", flush=True); c, _ = s.accept(); n = 0; b = time.monotonic()
    while d := c.recv(1 << 20): n += len(d)
    print(n / (time.monotonic() - b) / 1e6)
else:
    c = socket.create_connection(("10.213.0.1", 5001)); d = bytes(1 << 20); e = time.monotonic() + 0.7
    while time.monotonic() < e: c.sendall(d)
"""


@dataclass(frozen=True)
class Program:
    name: str  # a key of NAMES
    precision: str
    link: int = 0  # MB/s; 0: one node

    def text(self):
        return f"{NAMES[self.name]}, {self.precision}" + (f", {self.link} MB/s" if self.link else "")


@dataclass
class Turn:
    steps_ms: list
    losses: list
    every: int = 0  # the steps between two snapshots that `auto` has chosen
    chosen_at: int = 0  # step

    def kept_ms(self):
        return self.steps_ms[max(DROPPED, self.chosen_at):] or self.steps_ms[-1:]

    def cost(self, calm_ms):
        """The part of the time that copies take; None: too few steps."""
        after = self.chosen_at + SENT + 1  # a snapshot is taken at once
        return part_of_time(dict(enumerate(self.steps_ms[after:], after + 1)), self.every, calm_ms, is_sent=True)


def middle_ms(turns):
    return statistics.median(ms for turn in turns for ms in turn.kept_ms())


def set_rate(network, mb_per_s):
    for name in network.names:
        call("tc", "-n", name, "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", f"{8 * mb_per_s}mbit",
             "burst", f"{max(256, mb_per_s)}kb", "latency", "50ms")


def on_core(network, host, *words):
    return ["ip", "netns", "exec", network.names[host], "taskset", "-c", str(host), *map(str, words)]


def measured_rate(network):
    """MB/s that one TCP connection gets."""
    to = subprocess.Popen(on_core(network, 0, sys.executable, "-c", RATE_PROBE, "to"), stdout=subprocess.PIPE, text=True)
    to.stdout.readline()
    subprocess.run(on_core(network, 1, sys.executable, "-c", RATE_PROBE, "from"), check=True)
    return float(to.communicate(timeout=30)[0])


def cluster_text(base, link, free_rate):
    """A cluster of two such nodes with one core each; rates in MB/s."""
    lines = [line for line in base.splitlines() if line.split(":")[0].strip() not in ("nodes", "devices_per_node")]
    rate = min(link * 1448 / 1514, free_rate)  # data of a frame
    share = [line.split(":")[0] + f": {rate / free_rate:.3f}" if "communication_share" in line else line
             for line in lines]
    return "\n".join([*share, "nodes: 2", "devices_per_node: 1", "between:", f"  gb_per_s: {rate / 1000:.3f}",
                      "  latency_us: 100", ""])


class Bench:
    def __init__(self, args, folder, network):
        self.args, self.folder, self.network = args, folder, network
        self.work = workload.MODEL_TINY if args.tiny else workload.MODEL_S
        self.model, self.rows = folder / "model", folder / "rows.txt"
        bench.write_model(self.work, self.model)
        workload.write_rows(self.work, self.rows, args.steps)
        self.more_rows = folder / "more_rows.txt"  # the same first
        workload.write_rows(self.work, self.more_rows, args.snapshot_steps)

    def run_file(self, precision, has_snapshots=False):
        file = self.folder / "run.yaml"
        rows, steps = ((self.more_rows, self.args.snapshot_steps) if has_snapshots else (self.rows, self.args.steps))
        file.write_text(workload.run_file(self.work, self.model, rows, steps, precision,
                                          parallel={"dp": 2, "shard": "zero3"}, threads=1))
        return file

    def train_words(self, program, run_dir):
        has_snapshots = program.name == "snapshots"
        words = [self.args.weft, "train", self.run_file(program.precision, has_snapshots), "--run-dir", run_dir]
        return words + (["--set", "launch.snapshot_every=auto"] if has_snapshots else
                        ["--quiet", "--set", "launch.snapshot_every=0"])

    def take_turn(self, program):
        run_dir, log = self.folder / "run", self.folder / "turn.log"
        shutil.rmtree(run_dir, ignore_errors=True)
        metrics = self.folder / "metrics.jsonl" if program.name == "fsdp2" else run_dir / "metrics.jsonl"
        metrics.unlink(missing_ok=True)
        if program.name == "one":
            run_turn([str(word) for word in self.train_words(program, run_dir)], metrics, log)
        elif program.name == "fsdp2":
            self.run_all([lambda host=host: self.fsdp2_words(program, host, metrics) for host in (0, 1)], log,
                         {"GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"})
        else:
            self.run_all([lambda: self.supervisor_words(program, run_dir), lambda: self.agent_words(run_dir)], log,
                         {"WEFT_OVERLAP": "off" if program.name == "serial" else "on"})
        lines = step_lines(metrics)
        turn = Turn([line["step_ms"] for line in lines], [line["loss"] for line in lines])
        if program.name == "snapshots":
            if not (chosen := chosen_interval(log)):
                raise RuntimeError(f"`auto` has chosen no number: more --snapshot-steps?\n{log.read_text(errors='replace')[-2000:]}")
            turn.every, turn.chosen_at = chosen
        return turn

    def supervisor_words(self, program, run_dir):
        return on_core(self.network, 0, *self.train_words(program, run_dir), "--nodes", 2, "--set",
                       "launch.interface=eth0", "--set", "launch.port=4711")

    def agent_words(self, run_dir):
        end = time.monotonic() + 30
        while not (run_dir / "secret").exists() and time.monotonic() < end:
            time.sleep(0.02)
        return on_core(self.network, 1, self.args.weft, "agent", "--join", "10.213.0.1:4711", "--secret-file",
                       run_dir / "secret")

    def fsdp2_words(self, program, host, metrics):
        return on_core(self.network, host, sys.executable, HERE / "peer_mesh.py", "--kind", "fsdp2", "--model", self.model,
                       "--rows", self.rows, "--metrics", metrics, "--precision", program.precision, "--batch",
                       self.work.batch, "--attention", self.args.attention, "--rank", host, "--store",
                       self.folder / "store")

    def run_all(self, commands, log, env):
        (self.folder / "store").unlink(missing_ok=True)
        processes = []
        with open(log, "wb") as out:
            try:
                for words in commands:
                    processes.append(subprocess.Popen(words(), stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                                      env={**os.environ, **env}))
                codes = [process.wait(DEADLINE_S) for process in processes]
            finally:
                for process in processes:
                    if process.poll() is None:
                        process.kill()
                    process.wait()
        if any(codes):
            raise RuntimeError(f"exit codes {codes}\n{log.read_text(errors='replace')[-3000:]}")

    def predicted_ms(self, program, free_rate):
        file = self.folder / "cluster.yaml"
        file.write_text(cluster_text(self.args.cluster.read_text(), program.link, free_rate))
        done = subprocess.run([self.args.weft, "plan", self.run_file(program.precision), "--cluster", file, "--json"],
                              capture_output=True, text=True, check=True)
        return json.loads(done.stdout)["step_ms"]

    def predict(self, turns):
        set_rate(self.network, FREE)
        free_rate = statistics.median(measured_rate(self.network) for _ in range(3))
        print(f"a link that does not limit carries {free_rate:.0f} MB/s", flush=True)
        return free_rate, {p: self.predicted_ms(p, free_rate) for p in turns if p.name == "weft"}

    def programs(self):
        wanted = [Program("one", precision) for precision in self.args.precisions]
        wanted += [Program(name, precision, link) for link in self.args.links for precision in self.args.precisions
                   for name in ("weft", "serial", "snapshots", "fsdp2")]
        return [program for program in wanted if program.name in self.args.only]

    def take_turns(self):
        turns, rates, link = read_turns(self.args.turns_file), {}, 0
        for number in range(self.args.turns):
            for program in self.programs():
                if program.link not in (0, link):
                    link = program.link
                    set_rate(self.network, link)
                    rates[link] = measured_rate(self.network)
                    print(f"a link of {link} MB/s carries {rates[link]:.0f}", flush=True)
                turn = self.take_turn(program)
                turns[program].append(turn)
                write_turns(self.args.turns_file, turns)
                print(f"turn {number + 1}, {program.text()}: {middle_ms([turn]):.0f} ms "
                      f"({' '.join(f'{ms:.0f}' for ms in turn.steps_ms)})", flush=True)
        return turns, rates


def step_of(turns, program):
    return middle_ms(turns[program]) if turns.get(program) else None


def snapshot_costs(turns):
    """Of each program with snapshots: the middle of its turns; None: too few steps in each."""
    costs = {}
    for program, runs in turns.items():
        if program.name != "snapshots":
            continue
        calm = [ms for turn in turns.get(Program("weft", program.precision, program.link), []) for ms in turn.kept_ms()]
        found = [cost for turn in runs if (cost := turn.cost(calm)) is not None]
        costs[program] = statistics.median(found) if found else None
    return costs


def cost_text(cost):
    return "?" if cost is None else f"{100 * cost:.1f} %"


def cost_bars(turns):
    return [(f"{program.precision}, {program.link} MB/s: snapshots and their copies on the other node cost", cost_text(cost),
             f"<= {MOST:.0%}", "**too few steps**" if cost is None else "pass" if cost <= MOST else "**short**") for program, cost in snapshot_costs(turns).items()]


def check_losses(turns):
    """What differs: weft's programs must have the same bits, whatever carries them."""
    found = []
    for program, runs in turns.items():
        base = turns.get(Program("one", program.precision))
        if not base:
            continue
        worst = max(abs(a - b) / abs(b) for a, b in zip(runs[0].losses, base[0].losses))
        most = bench.LOSS_TOLERANCE[program.precision] if program.name == "fsdp2" else 0
        if worst > most:
            found.append(f"{program.text()}: loss is {worst:.1e} from one node's, at most {most:g}")
    return found


def bar_rows(turns):
    """Of each turn its own ratio, and of these the middle one."""
    bars = []
    for name, over, link, precision, least in BARS:
        ratios = [middle_ms([base]) / middle_ms([turn]) for turn, base in
                  zip(turns.get(Program(name, precision, link), []), turns.get(Program(over, precision, 0 if over == "one" else link), []))]
        if ratios:
            got = statistics.median(ratios)
            bars.append((f"{precision}, {link} MB/s: {NAMES[name]} / {NAMES[over]}",
                         f"{got:.2f}x ({' '.join(f'{ratio:.2f}' for ratio in sorted(ratios))})", f">= {least}x", "pass" if got >= least else "**short**"))
    return bars


def page(turns, rates, facts, work, free_rate, predictions):
    lines = ["# Model S on two nodes", "", work.text() + ". dp 2 zero3, a core per rank.", "",
             *(f"- {key}: {value}" for key, value in facts.items()),
             *(f"- a link of {link} MB/s carries {rate:.0f} MB/s over one TCP connection" for link, rate in rates.items()),
             ""]
    lines += report.table(["what", "got", "bar", "mark"], bar_rows(turns) + cost_bars(turns))
    rows = []
    for program, runs in turns.items():
        kept = [ms for turn in runs for ms in turn.kept_ms()]
        one = step_of(turns, Program("one", program.precision))
        step = middle_ms(runs)
        rows.append((NAMES[program.name], program.link or "", program.precision, f"{step:.0f}",
                     f"{min(kept):.0f}-{max(kept):.0f}", f"{one / step:.2f}x" if one else ""))
    lines += report.table(["program", "link, MB/s", "precision", "step ms", "range", "speed of one node's"], rows)
    if costs := snapshot_costs(turns):
        lines += ["## Snapshots, with a copy on the other node", "", "`launch.snapshot_every: auto`. Their cost: by how much steps "
                  "with a copy, and those after them, are longer than the others of the same run (medians).", ""]
        lines += report.table(["link, MB/s", "precision", "every so many steps", "cost"],
                              [(p.link, p.precision, ", ".join(str(turn.every) for turn in turns[p]), cost_text(cost))
                               for p, cost in costs.items()])
    lines += ["## Predicted by `weft plan --cluster`", "", f"One TCP connection carries {free_rate:.0f} MB/s where no "
              "link limits it: both cores are busy with it.", ""]
    rows = [(program.link, program.precision, f"{ms:.0f}", f"{step_of(turns, program):.0f}",
             f"{100 * (ms / step_of(turns, program) - 1):+.0f} %") for program, ms in predictions.items()]
    lines += report.table(["link, MB/s", "precision", "predicted ms", "measured ms", ""], rows)
    return "\n".join(lines) + "\n"


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--weft", type=lambda p: Path(p).resolve(), required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--snapshot-steps", type=int, default=44, help="of the program that takes snapshots")
    parser.add_argument("--links", type=int, nargs="+", default=[2000, 200])
    parser.add_argument("--precisions", nargs="+", default=["fp32", "bf16"])
    parser.add_argument("--only", nargs="+", default=list(NAMES), choices=list(NAMES))
    parser.add_argument("--attention", default="eager", choices=["sdpa", "eager"], help="PyTorch's")
    parser.add_argument("--cluster", type=Path, default=HERE.parent / "examples/clusters/2-cores.yaml")
    parser.add_argument("--tiny", action="store_true", help="a tiny model: tries the programs")
    parser.add_argument("--turns-file", type=Path, help="adds this call's turns to those of earlier calls")
    return parser.parse_args(argv)


def read_turns(path):
    """Of earlier calls: a machine that is seldom quiet collects its figures one by one."""
    turns = defaultdict(list)
    if path and path.exists():
        for name, precision, link, *turn in json.loads(path.read_text()):
            turns[Program(name, precision, link)].append(Turn(*turn))
    return turns


def write_turns(path, turns):
    if path:
        path.write_text(json.dumps([[p.name, p.precision, p.link, t.steps_ms, t.losses, t.every, t.chosen_at]
                                    for p, all_turns in turns.items() for t in all_turns]))


def main():
    args = parse(sys.argv[1:])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # stops and cleans up
    with tempfile.TemporaryDirectory(prefix="weft_nodes_") as folder, Network(2) as network:
        facts = report.machine_facts(HERE.parent, "gloo, a rank of 1 thread on each node")
        both = Bench(args, Path(folder), network)
        turns, rates = both.take_turns()
        free_rate, predictions = both.predict(turns)
    complaints = check_losses(turns)
    text = page(turns, rates, facts, both.work, free_rate, predictions) + "".join(f"- {complaint}\n" for complaint in complaints)
    short = [what for what, *_, mark in bar_rows(turns) + cost_bars(turns) if mark != "pass"]
    return report.publish(text, args.out, complaints + short)


if __name__ == "__main__":
    become_root()
    sys.exit(main())
