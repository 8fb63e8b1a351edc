#!/usr/bin/env python3
"""Steps that `weft plan --cluster` predicts against measured ones: 1, 2 and 4 ranks on this machine.

    cluster_interop.py --weft build/weft [--only "dp 2"] [--wall]

Speeds are measured with one rank and three models: one mostly of products, one of attention, one of
memory-bound operations. What is predicted from them are two other models in six layouts of 1, 2
and 4 ranks that share the cores. A step is taken as the processor time of all ranks by the number of
cores, which programs of others do not change; --wall takes the clock, for a quiet machine. A virtual
machine's cores become slower and faster by a third within minutes, as its neighbours work: every
measurement stands between two short ones of the same model, the pace, and counts in units of them. Then two
nodes with a core each (network namespaces, made here), and one rank or two, whose link is so slow that
it matters: by the clock. Every prediction must be within 15 %. A third of the cases; all of them, also two
ranks per node, with FULL=1.
"""

import json
import os
import random
import resource
import statistics
import string
import subprocess
import time
from dataclasses import dataclass

from common import Weft, read_metrics, run_program, write_run_file
from nodes_interop import Network, become_root, call
from sampling import is_full

TOLERANCE = 0.15
SHARED_TOLERANCE = 0.5  # per commit, on whatever machine; FULL=1 and --only hold the promise
STEPS, WARM = 6, 2
TURNS = 3
NODES = 2  # behind a limited link
TOKENS = 1024
CORES = len(os.sched_getaffinity(0))
MODELS = {
    "small": {"hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 4, "num_attention_heads": 4,
              "num_key_value_heads": 2, "vocab_size": 4096},
    "wide": {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 3, "num_attention_heads": 8,
             "num_key_value_heads": 2, "vocab_size": 16384},
    # For measuring speeds.
    "products": {"hidden_size": 384, "intermediate_size": 1536, "num_hidden_layers": 3, "num_attention_heads": 6,
                 "num_key_value_heads": 2, "vocab_size": 8192},
    "attention": {"hidden_size": 128, "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 2,
                  "num_key_value_heads": 2, "vocab_size": 512},
    "memory": {"hidden_size": 32, "intermediate_size": 4096, "num_hidden_layers": 4, "num_attention_heads": 1,
               "num_key_value_heads": 1, "vocab_size": 512},
}
LENGTHS = {"attention": 1024}


@dataclass(frozen=True)
class Case:
    model: str
    precision: str
    dp: int = 1
    tp: int = 1
    shard: str = "none"
    link_mb_per_s: int = 0  # two nodes, each of which sends at this rate; 0: one node

    @property
    def name(self):
        link = f" at {self.link_mb_per_s} MB/s" if self.link_mb_per_s else ""
        return f"{self.model} {self.precision} dp {self.dp} tp {self.tp} {self.shard}{link}"

    def ranks(self):
        return self.dp * self.tp

    def length(self):
        return LENGTHS.get(self.model, 128)

    def rows(self):
        return TOKENS // self.length()


PACE = Case("small", "fp32")
LAYOUTS = [(1, 1, "none"), (2, 1, "none"), (2, 1, "zero3"), (1, 2, "none"), (4, 1, "zero1"), (2, 2, "none")]
CASES = [Case(model, precision, *layout)
         for model, precision in (("small", "fp32"), ("small", "bf16"), ("wide", "bf16"))
         for layout in LAYOUTS]
CASES += [Case("small", "fp32", 2, 1, "zero3", 40)]
# Hierarchical collectives, by two ranks that share a core: a machine with more of them measures it better.
TWO_BY_TWO = Case("small", "fp32", 4, 1, "zero3", 40)


def write_inputs(folder):
    dice = random.Random(1)
    letters = string.ascii_letters + string.digits + " "
    for length in {128, *LENGTHS.values()}:
        rows = ("".join(dice.choices(letters, k=length)) for _ in range(TOKENS // length * STEPS))
        (folder / f"rows{length}.txt").write_text("".join(row + "\n" for row in rows))
    for name, sizes in MODELS.items():
        (folder / name).mkdir()
        config = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_act": "silu",
                  "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "initializer_range": 0.02,
                  "rope_theta": 10000.0, "tie_word_embeddings": True, "eos_token_id": 256, **sizes}
        (folder / name / "config.json").write_text(json.dumps(config))


def write_run(folder, case):
    return write_run_file(folder / "run.yaml", {
        "name": "run", "storage": str(folder / "runs"),
        "model": {"path": str(folder / case.model), "init": "random"},
        "data": {"train": [str(folder / f"rows{case.length()}.txt")], "tokenizer": "bytes",
                 "seq_length": case.length()},
        "parallel": {"dp": case.dp, "tp": case.tp, "shard": case.shard},
        "train": {"precision": case.precision, "master_weights": False, "steps": STEPS,
                  "global_batch": case.rows(), "micro_batch": case.rows(), "clip_norm": 0},
        "checkpoint": {"every": 1000000}})


@dataclass
class Speeds:
    """Of all cores together, in one precision."""

    tflops: float = 0.1
    attention_tflops: float = 0.1
    copy_gb_per_s: float = 100.0


def write_cluster(folder, case, speeds, copy_gb_per_s):
    """Each rank has its share of the cores; the lane's thread shares the core with the computation."""
    n = case.ranks()
    limited = case.link_mb_per_s > 0
    kind = "fp32" if case.precision == "fp32" else "bf16"
    return write_run_file(folder / "cluster.yaml", {
        "name": "this machine", "nodes": NODES if limited else 1, "devices_per_node": n // NODES if limited else n,
        "device": {"kind": "cpu", "peak_tflops": speeds.tflops / n, f"tflops_{kind}": [speeds.tflops / n],
                   f"attention_tflops_{kind}": [speeds.attention_tflops / n],
                   "copy_gb_per_s": speeds.copy_gb_per_s / n, "node_us": 1,
                   "communication_share": 0.1 if limited else 1},
        # Of each frame of 1514 bytes, 1448 are data.
        "between": {"gb_per_s": max(1, case.link_mb_per_s) * 1e-3 * 1448 / 1514, "latency_us": 100},
        "inside": {"gb_per_s": copy_gb_per_s / n / 2, "latency_us": 1}})


def train_on_nodes(weft, words, run_dir, mb_per_s):
    """The same command on two hosts with a core each, whose cards send at that rate."""
    with Network(NODES) as network:
        for name in network.names:
            call("tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", f"{8 * mb_per_s}mbit",
                 "burst", "128kb", "latency", "100ms")
        log, cores, processes = run_dir.parent / "nodes.log", sorted(os.sched_getaffinity(0)), []
        log.unlink(missing_ok=True)
        try:
            processes.append(network.start(0, log, "taskset", "-c", cores[0], *words, "--nodes", NODES, "--set",
                                           "launch.interface=eth0", "--set", "launch.port=4711"))
            end = time.monotonic() + 60
            while not (run_dir / "secret").exists() and time.monotonic() < end:
                time.sleep(0.02)
            processes.append(network.start(1, log, "taskset", "-c", cores[-1], weft.path, "agent", "--join",
                                           "10.213.0.1:4711", "--secret-file", run_dir / "secret"))
            codes = [process.wait(300) for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()
    if codes != [0, 0]:
        raise RuntimeError(f"exit codes {codes}: {log.read_text(errors='replace')[-2000:]}")


class Machine:
    """What is measured here: steps in ms, of a machine that always has the pace at which it was met first."""

    def __init__(self, weft, folder, wall):
        self.weft, self.folder, self.wall = weft, folder, wall
        self.unit_ms = 1.0
        self.unit_ms = min(self.pace_ms() for _ in range(3))

    def words(self, case):
        run_dir = self.folder / "runs" / case.name.replace(" ", "_").replace("/", "_")
        return run_dir, [str(self.weft.path), "train", str(write_run(self.folder, case)), "--run-dir", str(run_dir), "--quiet", "--overwrite"]

    def processor_s(self, words, steps):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([*words, "--set", f"train.steps={steps}"], capture_output=True, text=True, timeout=300, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"exit {done.returncode}: {done.stderr[-2000:]}")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def step_ms(self, case):
        """The processor time by the number of cores; with --wall the median by the clock."""
        run_dir, words = self.words(case)
        if not self.wall:
            few = 2
            return 1e3 * (self.processor_s(words, STEPS) - self.processor_s(words, few)) / (STEPS - few) / CORES
        self.processor_s(words, STEPS)
        return median_step_ms(run_dir)

    def pace_ms(self):
        return self.step_ms(PACE)

    def measure(self, case):
        """The median of some measurements, each by the pace around it. On a slow link the wire decides: by the clock."""
        if case.link_mb_per_s:
            run_dir, words = self.words(case)
            train_on_nodes(self.weft, [*words, "--set", "launch.snapshot_every=0"], run_dir, case.link_mb_per_s)
            return median_step_ms(run_dir)
        parts, before = [], self.pace_ms()
        for _ in range(TURNS):
            step = self.step_ms(case)
            after = self.pace_ms()
            parts.append(step / statistics.fmean([before, after]))
            before = after
        return self.unit_ms * statistics.median(parts)


def median_step_ms(run_dir):
    steps, _ = read_metrics(run_dir)
    return statistics.median(step["step_ms"] for step in steps[WARM:])


def solve(rows, values):
    """Of linear equations, by elimination with pivots."""
    rows = [[*row, value] for row, value in zip(rows, values)]
    n = len(rows)
    for i in range(n):
        best = max(range(i, n), key=lambda r: abs(rows[r][i]))
        rows[i], rows[best] = rows[best], rows[i]
        for r in range(n):
            if r != i:
                factor = rows[r][i] / rows[i][i]
                rows[r] = [a - factor * b for a, b in zip(rows[r], rows[i])]
    return [rows[i][n] / rows[i][i] for i in range(n)]


def speed_cases(precision):
    return [Case(model, precision) for model in ("products", "attention", "memory")]


def find_speeds(weft, folder, cases, steps_ms):
    """Three speeds from the steps of three models: the parts of a step are linear in their inverses."""
    parts, values = [], []
    for case, step_ms in zip(cases, steps_ms):
        ms = weft.json("plan", write_run(folder, case), "--cluster",
                       write_cluster(folder, case, Speeds(), 100))["parts_ms"]
        parts.append([ms["products"], ms["attention"], ms["memory"]])
        values.append(step_ms - ms["between"])
    factors = solve(parts, values)
    print(f"factors {factors}, steps {values}", flush=True)
    if min(factors) <= 0:
        raise RuntimeError("the machine was too busy to measure its speeds")
    return Speeds(0.1 / factors[0], 0.1 / factors[1], 100 / factors[2])


def measure_speeds(machine, weft, folder, precision):
    cases = speed_cases(precision)
    for is_last in (False, False, True):
        try:
            return find_speeds(weft, folder, cases, [machine.measure(case) for case in cases])
        except RuntimeError:
            if is_last:
                raise


def compare(case, weft, folder, speeds, copy_gb_per_s, measured):
    """(by how much the prediction is off, the figures in words)."""
    plan = weft.json("plan", write_run(folder, case), "--cluster",
                     write_cluster(folder, case, speeds, copy_gb_per_s))
    off = plan["step_ms"] / measured - 1
    parts = ", ".join(f"{key} {value:.1f}" for key, value in plan["parts_ms"].items() if value >= 0.05)
    return off, f"{plan['step_ms']:.1f} ms against {measured:.1f} ({off:+.1%}); {parts}"


def check_case(case, checks, machine, weft, folder, speeds, copy_gb_per_s, args):
    """A measurement that was disturbed is repeated, with the speeds that the prediction rests on."""
    tolerance = TOLERANCE if is_full() or args.only else SHARED_TOLERANCE
    off, words = compare(case, weft, folder, speeds, copy_gb_per_s, machine.measure(case))
    if abs(off) > tolerance:
        print(f"{case.name}, again: {words}", flush=True)
        speeds = measure_speeds(machine, weft, folder, case.precision)
        off, words = compare(case, weft, folder, speeds, copy_gb_per_s, machine.measure(case))
    return checks.that(abs(off) <= tolerance, f"{case.name}: predicted within {tolerance:.0%}", words)


def body(args, checks, folder):
    weft = Weft(args.weft)
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    copy_gb_per_s = weft.json("doctor", "--measure")["speeds"]["copy_gb_per_s"]
    write_inputs(folder)
    machine = Machine(weft, folder, args.wall)
    all_cases = CASES + ([TWO_BY_TWO] if is_full() or args.only else [])
    cases = [case for case in all_cases if args.only in case.name]
    if not args.only:
        cases = checks.sample(cases, 4)
    for precision in sorted({case.precision for case in cases}):
        speeds = measure_speeds(machine, weft, folder, precision)
        print(f"{precision}: {speeds}, copy {copy_gb_per_s:.0f} GB/s", flush=True)
        for case in cases:
            if case.precision == precision:
                checks.section(check_case, case, machine, weft, folder, speeds, copy_gb_per_s, args)


def add_arguments(parser):
    parser.add_argument("--only", default="", help="cases whose name has this text")
    parser.add_argument("--wall", action="store_true", help="by the clock")


if __name__ == "__main__":
    become_root()
    run_program(__doc__, body, add_arguments)
