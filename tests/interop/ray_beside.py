"""Ray Train's TorchTrainer and WeftTrainer do the same work: what ray_beside_interop.py starts, follows and compares.

TorchTrainer's function is in torch_on_ray.py. Both programs read the same weights and rows and append a line per step to a metrics.jsonl,
which is what is timed.
"""

import json
import os
import signal
import statistics
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from ray_case import make_recorder, network_of, parent_of, processes, raylet_beside
from ray_recovery import NodeWatch, Recovery, num_steps, read_status
from torch_on_ray import train_function

import bench  # in benchmarks/, which torch_on_ray has put on the path
import workload

DP, TP, RANKS, LR = 2, 2, 4, 1e-4
KILLED_RANK = 2
DROPPED = 3  # first steps of a run: caches, page faults
LOOK_S, LIMIT_S = 0.005, 900.0


@dataclass
class Work:
    """What both train. every: steps of a checkpoint; nodes: 1, with all ranks, or 2 of one rank."""

    case: object
    size: workload.Workload
    model: Path
    rows: Path
    steps: int
    every: int
    attention: str = "sdpa"
    nodes: int = 1

    def tp(self):
        return TP // self.nodes

    def scaling(self):
        """Of two nodes the first is this program's: its raylet must live."""
        import ray.train
        if self.nodes == 1:
            return ray.train.ScalingConfig(num_workers=RANKS)
        here = ray.get_runtime_context().get_node_id()
        return ray.train.ScalingConfig(num_workers=DP, placement_strategy="STRICT_SPREAD",
                                       label_selector=[{"ray.io/node-id": here}, {"ray.io/node-id": f"!{here}"}])


def make_work(case, size, steps, every, attention, nodes=1):
    model, rows = case.folder / f"model-{size.hidden_size}", case.folder / f"rows-{size.hidden_size}-{steps}.txt"
    if not model.exists():
        bench.write_model(size, model)
    workload.write_rows(size, rows, steps)
    return Work(case, size, model, rows, steps, every, attention, nodes)


@dataclass
class Fit:
    """One fit(), timed from outside."""

    result: object = None
    error: object = None
    first_s: float = None         # from fit() to the first completed step
    again_s: float = None         # from the kill to the first step completed by other processes
    reported_s: float = None      # from the kill of a raylet to Ray's report that the node is dead
    lines: list = field(default_factory=list)  # of metrics.jsonl

    def step_s(self):
        kept = [line["step_ms"] for line in self.lines][DROPPED:] or [self.lines[-1]["step_ms"]]
        return statistics.median(kept) / 1000

    def losses(self):
        """Of every step, the last where it was repeated."""
        return list({line["step"]: line["loss"] for line in self.lines}.values())


def storage_config(name, work, max_failures, keep, callbacks=()):
    import ray.train
    return ray.train.RunConfig(name=name, storage_path=str(work.case.storage), failure_config=ray.train.FailureConfig(max_failures=max_failures),
                               checkpoint_config=keep or ray.train.CheckpointConfig(), callbacks=list(callbacks))


def torch_trainer(name, work, max_failures, keep):
    from ray.train.torch import TorchConfig, TorchTrainer
    folder = work.case.folder / "torch" / name
    folder.mkdir(parents=True)
    config = {"model": str(work.model), "rows": str(work.rows), "batch": work.size.batch, "steps": work.steps, "every": work.every, "folder": str(folder),
              "attention": work.attention, "tp": work.tp(), "lr": LR}
    return folder, TorchTrainer(train_function, train_loop_config=config, torch_config=TorchConfig(backend="gloo"),
                                scaling_config=work.scaling(), run_config=storage_config(name, work, max_failures, keep))


def weft_sections(work):
    """FSDP2 is zero3 in weft's words."""
    return {"seed": 1, "model": {"path": str(work.model)},
            "data": {"train": [str(work.rows)], "format": "text", "tokenizer": "bytes", "seq_length": work.size.seq_length, "shuffle": False},
            "parallel": {"dp": DP, "tp": work.tp(), "shard": "zero3"},
            "train": {"precision": "fp32", "steps": work.steps, "global_batch": work.size.batch, "micro_batch": work.size.batch // DP, "lr": LR,
                      "weight_decay": 0.01, "clip_norm": 0},
            "checkpoint": {"every": work.every}, "launch": {"threads": 1, "hang_timeout_s": 300}}


def weft_trainer(name, work, max_failures, keep):
    from weft_ray import WeftTrainer
    config = storage_config(name, work, max_failures, keep, [make_recorder()()])  # every step is reported while it runs
    return work.case.storage / name, WeftTrainer(weft_sections(work), scaling_config=work.scaling(), run_config=config)


TRAINERS = {"TorchTrainer": torch_trainer, "WeftTrainer": weft_trainer}
KINDS = tuple(TRAINERS)


def rank_pid(kind, folder, rank):
    if kind == "TorchTrainer":
        return int((folder / f"rank-{rank}").read_text())
    return read_status(folder)["ranks"][rank]["pid"]


def pid_of(kind, folder, target):
    """What is killed: a rank, or the raylet or the actor of the node that is not this program's."""
    if target == "rank":
        return rank_pid(kind, folder, KILLED_RANK)
    if target == "raylet":
        return raylet_beside(processes("agent") if kind == "WeftTrainer" else [rank_pid(kind, folder, rank) for rank in range(DP)])
    return parent_of(next(agent for agent in processes("agent") if network_of(agent) != network_of("self")))


def read_lines(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().split("\n")[:-1]]
    return [line for line in lines if "step_ms" in line]


class Follower(threading.Thread):
    """Times the first step and, where asked for, kills `target` after `kill_at` steps and times the next one."""

    def __init__(self, kind, folder, fit, kill_at, target):
        super().__init__(daemon=True)
        self.kind, self.folder, self.fit, self.kill_at, self.target, self.begin = kind, folder, fit, kill_at, target, time.monotonic()
        self.is_over = False

    def wait(self, holds):
        while not holds():
            if self.is_over:
                sys.exit()  # this thread alone
            if time.monotonic() > self.begin + LIMIT_S:
                raise TimeoutError(f"{self.folder}: nothing new")
            time.sleep(LOOK_S)
        return time.monotonic()

    def run(self):
        self.fit.first_s = self.wait(lambda: num_steps(self.folder) > 0) - self.begin
        if not self.kill_at:
            return
        self.wait(lambda: num_steps(self.folder) >= self.kill_at)
        pid, nodes = pid_of(self.kind, self.folder, self.target), NodeWatch() if self.target == "raylet" else None
        recovery = Recovery(self.folder) if self.kind == "WeftTrainer" else None
        os.kill(pid, signal.SIGKILL)
        killed = time.monotonic()
        if recovery:
            recovery.join(LIMIT_S)
            stepped = recovery.stepped
        else:  # all workers are started again, rank 0 too
            stepped = self.wait(lambda: len({line["process"] for line in read_lines(self.folder)}) > 1)
        self.fit.reported_s = nodes and nodes.reported and nodes.reported - killed
        self.fit.again_s = stepped and stepped - killed


def fit(kind, name, work, kill_at=0, target="rank", max_failures=0, keep=None):
    """Trains to the end, or to the error."""
    import ray.train
    folder, trainer = TRAINERS[kind](name, work, max_failures, keep)
    done = Fit()
    follower = Follower(kind, folder, done, kill_at, target)
    follower.start()
    try:
        done.result = trainer.fit()
    except ray.train.TrainingFailedError as error:
        done.error = error
    follower.join(10)
    follower.is_over = True
    done.lines = read_lines(folder)
    return done
