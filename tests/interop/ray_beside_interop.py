#!/usr/bin/env python3
"""TorchTrainer beside WeftTrainer: the same model and rows in the same Ray cluster, TP 2 x DP 2, fp32.

    ray_beside_interop.py --weft build/weft [--only turns] [--turns 3] [--steps 9] [--attention sdpa|eager] [--out benchmarks/results/FILE.md]

turns: model S, from fit() to the first step, in a new cluster and again, and the step's time, both trainers in turns; PyTorch's speed is that of its
faster attention. fields: the fields of both Results mean the same, and so do errors (a tiny model).
recovery: kill -9 of a rank, of an actor, of a node's raylet, max_failures=-1 (ray_beside_recovery.py). One commit in three runs fields;
FULL=1 runs all and, since this program runs alone, holds times to what is promised. --out writes the tables.
"""

import json
import os
import statistics
import time
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import ray_beside as beside
from common import Weft, run_program
from ray_beside import KINDS, make_work
from ray_beside_page import Page, hold
from ray_beside_recovery import check_recovery
from ray_case import FIRST_STEP_S, Case, install_wheel
from ray_cluster import RayCluster, enter
from sampling import ROOT, is_full

import bench  # in benchmarks/, which torch_on_ray has put on the path
import report
import workload

SPEED = 1.2  # of TorchTrainer's


def step_of(checkpoint):
    """As the checkpoint itself says: weft's state.json, or what TorchTrainer's function has written."""
    with checkpoint.as_directory() as place:
        files = [Path(place) / name for name in ("state.json", "metadata.json")]
        return json.loads(next(file for file in files if file.exists()).read_text())["step"]


def steps_text(steps):
    return "steps " + ", ".join(str(step) for step in steps)


def values_of(name, result, storage):
    """{field: its meaning as a text}; four digits of the loss, since fp32 sums are made in another order."""
    best, under = result.best_checkpoints, str(storage / name)
    return {"(class)": f"{type(result).__module__}.{type(result).__name__}",
            "metrics": f"step {result.metrics['step']}, loss {result.metrics['loss']:.3f}",
            "checkpoint": f"step {step_of(result.checkpoint)}, {'in' if result.checkpoint.path.startswith(under) else 'not in'} the run's folder",
            "best_checkpoints": f"{steps_text(step_of(one) for one, _ in best)}; metrics of {steps_text(values['step'] for _, values in best)}",
            "get_best_checkpoint": f"step {step_of(result.get_best_checkpoint('loss', 'min'))}",
            "metrics_dataframe": steps_text(result.metrics_dataframe["step"]),
            "path": result.path.replace(under, "STORAGE_PATH/NAME"), "filesystem": type(result.filesystem).__name__, "error": str(result.error)}


def error_of(error):
    """Of a run of which a rank was killed, with max_failures=0."""
    named = "has" if beside.KILLED_RANK in getattr(error, "worker_failures", {}) else "has not"
    return f"{type(error).__name__}, a {type(error).__bases__[0].__name__}; worker_failures {named} the rank"


def check_fields(case, page, args):
    """Result and error of both, on a tiny model: steps of the two best checkpoints by loss, the newest, the path."""
    import ray.train
    work = make_work(case, workload.MODEL_TINY, 6, 2, args.attention)
    keep = ray.train.CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="loss", checkpoint_score_order="min")
    fits = {kind: beside.fit(kind, f"{kind}-fields", work, keep=keep) for kind in KINDS}
    for kind, fit in fits.items():
        case.checks.that(fit.error is None, f"{kind}: trains", str(fit.error or ""))
    losses = [fits[kind].losses() for kind in KINDS]
    case.checks.close(losses[1], losses[0], bench.LOSS_TOLERANCE["fp32"], "the losses of both are the same")
    theirs, ours = (values_of(f"{kind}-fields", fits[kind].result, case.storage) for kind in KINDS)
    for name, value in theirs.items():
        case.checks.equal(ours[name], value, f"Result.{name}")
    page.fields += [[name, value, ours[name]] for name, value in theirs.items()]
    if is_full():
        long = make_work(case, workload.MODEL_TINY, 4000, 4000, args.attention)
        dead = [error_of(beside.fit(kind, f"{kind}-dead", long, kill_at=3).error) for kind in KINDS]
        case.checks.equal(dead[1], dead[0], "a killed rank, max_failures=0: fit() raises the same")
        page.fields.append(["fit() raises", *dead])


def check_tiny_starts(case, page, args):
    """Nothing is taken off: its step is short. The node has the program from model S."""
    work = make_work(case, workload.MODEL_TINY, 6, 6, args.attention)
    fits = [beside.fit("WeftTrainer", f"WeftTrainer-tiny-{turn}", work) for turn in range(args.turns)]
    first_s, step_s = (statistics.median(of) for of in ([one.first_s for one in fits], [one.step_s() for one in fits]))
    page.starts.append(["WeftTrainer, tiny model", "", f"{first_s:.2f}", f"{first_s - step_s:.2f}"])
    hold(case, page, "WeftTrainer, tiny model: from fit() to the first step, nothing taken off, the program there", first_s, FIRST_STEP_S, " s")


def check_turns(case, page, args):
    """First steps and step times of model S; first steps of a tiny model."""
    work = make_work(case, workload.MODEL_S, args.steps, args.steps, args.attention)
    fits = {kind: [] for kind in KINDS}
    for turn in range(args.turns):
        for kind in KINDS:
            fits[kind].append(one := beside.fit(kind, f"{kind}-{turn}", work))
            print(f"turn {turn + 1}, {kind}: first step after {one.first_s:.2f} s, then {one.step_s():.3f} s per step", flush=True)
    losses = [fits[kind][0].losses() for kind in KINDS]
    case.checks.close(losses[1], losses[0], bench.LOSS_TOLERANCE["fp32"], "model S: the losses of both are the same")
    step_s = {kind: statistics.median(one.step_s() for one in fits[kind]) for kind in KINDS}
    other = "eager" if args.attention == "sdpa" else "sdpa"
    other_s = beside.fit("TorchTrainer", f"TorchTrainer-{other}", replace(work, attention=other)).step_s()
    again_s = {kind: statistics.median(one.first_s for one in fits[kind][1:] or fits[kind]) for kind in KINDS}
    for kind in KINDS:
        page.add_step(kind, step_s[kind])
        page.starts.append([kind, f"{fits[kind][0].first_s:.2f}", f"{again_s[kind]:.2f}", f"{again_s[kind] - step_s[kind]:.2f}"])
    page.add_step(f"TorchTrainer, {other} attention, one turn", other_s)
    speed, start_s = min(step_s["TorchTrainer"], other_s) / step_s["WeftTrainer"], again_s["WeftTrainer"] - step_s["WeftTrainer"]
    hold(case, page, "speed of WeftTrainer beside TorchTrainer's", speed, SPEED, "x", least=True)
    hold(case, page, "WeftTrainer: from fit() to the first step, less the step, the program there", start_s, FIRST_STEP_S, " s")
    check_tiny_starts(case, page, args)


CHECKS = {"turns": check_turns, "fields": check_fields, "recovery": check_recovery}  # a new cluster's first fit() is timed; the last one adds nodes


def choose(args, checks):
    if args.only:
        return [CHECKS[name] for name in args.only.split(",")]
    return list(CHECKS.values()) if is_full() else [check_fields] if checks.sample.one_in(3, "fields") else []


def body(args, checks, folder):
    import ray
    case, page = Case(checks, Weft(args.weft), folder), Page()
    facts = report.machine_facts(ROOT, f"gloo, 4 workers of 1 thread, {args.attention} attention, Ray {metadata.version('ray')}")
    case.slack = 1 if is_full() and not args.loose else 10
    install_wheel(checks, case.wheel, folder / "driver")
    if not (chosen := choose(args, checks)):
        return
    os.environ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] = "300"  # of four workers that import torch on a busy machine
    with RayCluster(folder / "cluster", beside.RANKS) as cluster:
        ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
        case.cluster = cluster
        for check in chosen:
            begin = time.monotonic()
            check(case, page, args)
            print(f"{check.__name__}: {time.monotonic() - begin:.1f} s", flush=True)
        ray.shutdown()
    report.publish(page.text(facts), args.out, [])


def add_arguments(parser):
    parser.add_argument("--only", help="some of turns,fields,recovery")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--attention", choices=["sdpa", "eager"], default="sdpa", help="of TorchTrainer's model")
    parser.add_argument("--loose", action="store_true", help="the machine is not quiet: times may be ten times as long, also with FULL=1")
    parser.add_argument("--out", type=Path, help="markdown file to write")


if __name__ == "__main__":
    enter()
    run_program(__doc__, body, add_arguments, in_memory=True)
