#!/usr/bin/env python3
"""A real Ray places weft's ranks: WeftTrainer in place of TorchTrainer, on nodes that have Ray and no weft.

    ray_interop.py --weft build/weft [--only nodes,lost_node] [--wall]

Times are printed beside what is promised on a quiet machine: 4 s from fit() to the first step where the node has the program (4 s with it in a cached
runtime environment), 2 s for a killed rank, 10 s for an actor or after Ray has reported a node. --wall asserts them. Without it, and so in
tools/run_interop.py, with FULL=1 too, ten times as long is accepted, since another program runs at the same time; there ray_beside_interop.py, which runs
alone, asserts with FULL=1 the same bars for a first step, less a step, and for each of these kills.

Exact mode, dp 2 x tp 2 on one node: weights, states and metrics of WeftTrainer(...).fit() are those of `weft train` alone. Reports arrive
while the run goes on, the Result is Ray Train's own, the same name resumes, a killed rank is replaced or fails the run as
max_failures says, and everything that is not supported is refused by name. Ray runs in a network of its own.
"""

import argparse
import os
import signal
import time

import numpy

from common import Weft, read_metrics, run_program, write_run_file
from ray_case import (FIRST_STEP_S, KILLED, MORE_STEPS, STEPS, Case, differs, fails, install_wheel, kill_rank, make_recorder, parent_of, processes, processor_s, programs_sent, promised,
                      refused, same_run, sections)
from ray_cluster import HEAD, RayCluster, enter
from ray_edges import (DASHBOARD, check_environment, check_gpu_ids, check_interrupt, check_island, check_job, check_loopback, check_no_gpus, check_other_ray,
                       check_store, check_unwritable)
from ray_nodes import check_elastic, check_lost_first, check_lost_node, check_nodes, check_orphan
from ray_notebook import check_kernel, notebook_packages
from ray_proofs import check_budget, check_notebook, check_one, check_uneven
from ray_recovery import NODE_S, RANK_S, Recovery, check_recovery, check_survivors
from ray_use import check_client, check_command, check_datasets, check_examples, check_term, check_tune
from sampling import MOST_SLOTS, Sampler


class Pool:
    """Checks of which a commit runs at most one."""

    def __init__(self, *names):
        self.names = names


def check_run(case):
    """Bits, live reports, Result."""
    import ray.train
    run_dir, own, other = case.storage / "first", case.undisturbed, case.folder / "own/other-seed"
    recorder = make_recorder()()
    begin = time.monotonic()
    result = case.trainer("first", callbacks=[recorder]).fit()
    checks = case.checks
    took_s = recorder.times[0] - begin
    checks.that(took_s < 10 * FIRST_STEP_S, f"from fit() to the first step, the program sent to the node: {took_s:.1f} s (promised {FIRST_STEP_S:g} s where it is there, "
                f"at most {10 * FIRST_STEP_S:g} here)")
    same_run(case, run_dir, own, "fit()")
    case.weft.train(case.folder / "own.yaml", other, "--set", "seed=2")
    differs(case, run_dir, other, "another seed")
    checks.equal([r for r in recorder.reports if not r[3]], [("first", 4, step, False) for step in range(1, STEPS + 1)], "after_report: every step once")
    checks.equal([r[2] for r in recorder.reports if r[3]], [3, 6], "after_report: evaluations")
    checks.equal(recorder.checkpoints, [(str(run_dir / f"checkpoints/step-{s:08}"), s) for s in (3, 6)], "after_report: checkpoints")
    checks.that(type(result) is ray.train.Result and result.error is None, "the Result is Ray Train's own")
    last = {**read_metrics(own)[0][-1], **read_metrics(own)[1][-1]}
    checks.equal([result.metrics[k] for k in ("step", "loss", "eval_loss")], [last[k] for k in ("step", "loss", "eval_loss")], "Result.metrics")
    checks.equal((result.path, result.checkpoint.path), (str(run_dir), str(run_dir / "checkpoints/step-00000006")), "Result.path, checkpoint")
    with result.checkpoint.as_directory() as place:
        checks.that(os.path.exists(os.path.join(place, "COMMITTED")), "Result.checkpoint.as_directory()")
    checks.equal([m["step"] for _, m in result.best_checkpoints], [3, 6], "Result.best_checkpoints: all, by default")
    checks.equal(list(result.metrics_dataframe["step"]), [3, 6], "Result.metrics_dataframe")
    checks.equal(result.get_best_checkpoint("eval_loss", "min").path, result.checkpoint.path, "Result.get_best_checkpoint")
    checks.equal(programs_sent(case.cluster), {"head": 1}, "the program was sent to the node, which had none")


def check_resume(case):
    """The same name goes on, with a run file and changed keys; what is there and finished is not trained again."""
    file = write_run_file(case.folder / "run.yaml", {"name": "other", "storage": "/nowhere", **sections(case.folder)})
    recorder = make_recorder()()
    begin = time.monotonic()
    config = {"train.steps": numpy.int64(MORE_STEPS)}  # as a sweep of Tune may have it
    result = case.trainer("first", str(file), config, callbacks=[recorder]).fit()
    is_held, text = promised(case, FIRST_STEP_S, recorder.times[0] - begin)
    case.checks.that(is_held, f"from fit() to the first step, the program there: {text}")
    case.checks.equal([r[2] for r in recorder.reports if not r[3]], list(range(STEPS + 1, MORE_STEPS + 1)), "resume: only the new steps")
    case.checks.equal([m["step"] for _, m in result.best_checkpoints], [3, 6, 8], "resume: checkpoints of both")
    same_run(case, case.storage / "first", case.own("more", steps=MORE_STEPS), "resume")


def killer(case, name, done, watch=lambda run_dir: None):
    """Kills rank 2 at the fourth step; `done` gets what watches it."""
    def at_step(step):
        if step >= 4 and not done:
            done.append(watch(case.storage / name))
            kill_rank(case, name, 2)
    return at_step


def check_failures(case):
    """max_failures: 0 fails with the rank, 1 goes on."""
    import ray.train
    run = sections(case.folder, **KILLED)
    recorder = make_recorder()(killer(case, "fails", []))
    try:
        case.trainer("fails", run, callbacks=[recorder]).fit()
        case.checks.that(False, "max_failures=0, a killed rank: fit() raises")
    except ray.train.TrainingFailedError as error:
        case.checks.equal(list(error.worker_failures), [2], "max_failures=0, a killed rank: its number in the error")
        case.checks.that("rank 2" in str(error), "max_failures=0: the message", "" if "rank 2" in str(error) else str(error)[-400:])
        case.checks.equal([list(one) for one in recorder.exceptions], [[2]], "after_exception")
    done, ended = [], []
    kill = killer(case, "survives", done, Recovery)

    def at_step(step):
        ended.append((case.storage / "survives/final").exists())
        kill(step)
    recorder = make_recorder()(at_step)
    case.trainer("survives", run, max_failures=1, callbacks=[recorder]).fit()
    case.checks.equal((ended[0], (case.storage / "survives/final").exists()), (False, True), "the first report came while the run went on")
    case.checks.equal([list(one) for one in recorder.exceptions], [[2]], "max_failures=1, a killed rank: reported, and the run goes on")
    case.checks.equal([r[2] for r in recorder.reports if not r[3]], list(range(1, KILLED["steps"] + 1)), "max_failures=1: every step once")
    same_run(case, case.storage / "survives", case.own("killed", **KILLED), "max_failures=1")
    check_recovery(case, done[0], "a killed rank", RANK_S)
    check_survivors(case, done[0], "a killed rank")


def check_actor(case):
    """kill -9 of the actor with the supervisor: all is started again and resumes. The two best checkpoints are kept, and the newest."""
    import ray.train
    done = []

    def at_step(step):
        if step >= 12 and not done:
            done.append(Recovery(case.storage / "actor", event="started"))
            os.kill(parent_of(min(processes("train"))), signal.SIGKILL)
    recorder = make_recorder()(at_step)
    keep = ray.train.CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="grad_norm", checkpoint_score_order="max")
    result = case.trainer("actor", sections(case.folder, **KILLED), max_failures=1, callbacks=[recorder], checkpoint_config=keep).fit()
    case.checks.equal([r[2] for r in recorder.reports if not r[3]], list(range(1, KILLED["steps"] + 1)), "a killed actor: every step once")
    case.checks.equal(len(recorder.exceptions), 1, "a killed actor: after_exception")
    check_recovery(case, done[0], "a killed actor with the supervisor", NODE_S)
    same_run(case, case.storage / "actor", case.folder / "own/killed", "a killed actor")
    norms = {line["step"]: line["grad_norm"] for line in read_metrics(case.storage / "actor")[0] if line["step"] % KILLED["every"] == 0}
    ranked = sorted(norms, key=norms.get)
    kept = [step for step in ranked if step in {*ranked[-2:], KILLED["steps"]}]
    case.checks.equal([m["step"] for _, m in result.best_checkpoints], kept, "num_to_keep=2 with a score: the two best, the best last, and the newest")
    folders = sorted(path.name for path in (case.storage / "actor/checkpoints").glob("step-*"))
    case.checks.equal(folders, [f"step-{step:08}" for step in sorted(kept)], "num_to_keep=2 with a score: the others are deleted")
    case.checks.equal(result.checkpoint.path, str(case.storage / "actor/checkpoints" / folders[-1]), "num_to_keep=2 with a score: Result.checkpoint is the newest")
    case.checks.equal(processes("train"), {}, "no process is left")


def check_refusals(case):
    """Before a cluster is asked for anything."""
    import pyarrow.fs
    from ray.train import CheckpointConfig, FailureConfig, LoggingConfig, RunConfig, ScalingConfig
    from weft_ray import WeftTrainer
    run = sections(case.folder)

    def scaling(**fields):
        return lambda: WeftTrainer(run, scaling_config=ScalingConfig(**{"num_workers": 4, **fields}))

    def config(**fields):
        return lambda: WeftTrainer(run, scaling_config=ScalingConfig(num_workers=4), run_config=RunConfig(**fields))

    def checkpoints(**fields):
        return config(checkpoint_config=CheckpointConfig(**fields))

    refused(case, "a training function", "in place of a training function", lambda: WeftTrainer(refused, scaling_config=ScalingConfig(num_workers=4)))
    refused(case, "workers", "num_workers=3), but parallel.dp=2 x parallel.tp=2 needs 4", scaling(num_workers=3))
    refused(case, "elastic workers", "num_workers=(2, 8)), but parallel.dp=2 x parallel.tp=2 needs 4", scaling(num_workers=(2, 8)))
    refused(case, "elastic on one node", "ScalingConfig(placement_strategy)='STRICT_PACK'", scaling(num_workers=(2, 4), placement_strategy="STRICT_PACK"))
    refused(case, "elastic and spread", "ScalingConfig(placement_strategy)='SPREAD'", scaling(num_workers=(2, 4), placement_strategy="SPREAD"))
    refused(case, "elastic with one tensor-parallel group", "ScalingConfig(num_workers)=(2, 4)", lambda: WeftTrainer(
        {**run, "parallel": {"tp": 4}}, scaling_config=ScalingConfig(num_workers=(2, 4))))
    refused(case, "local mode", "ScalingConfig(num_workers)=0", scaling(num_workers=0))
    refused(case, "two GPUs per rank", "a rank has one GPU", scaling(use_gpu=True, resources_per_worker={"GPU": 2}))
    refused(case, "topology", "ScalingConfig(topology)", scaling(topology="4x4"))
    refused(case, "TPUs", "ScalingConfig(use_tpu)=True", lambda: WeftTrainer({**run, "parallel": {}}, scaling_config=ScalingConfig(num_workers=1, use_tpu=True)))
    refused(case, "resize interval", "elastic_resize_monitor_interval_s", scaling(elastic_resize_monitor_interval_s=5))
    refused(case, "object store", "RunConfig(storage_path)='gs://bucket/x'", config(storage_path="gs://bucket/x"))
    refused(case, "another file system", "RunConfig(storage_filesystem)", config(storage_filesystem=pyarrow.fs.LocalFileSystem()))
    refused(case, "a name that is a path", "RunConfig(name)='a/b'", config(name="a/b"))
    refused(case, "log level", "RunConfig(logging_config)", config(logging_config=LoggingConfig(log_level="ERROR")))
    refused(case, "controller", "FailureConfig(controller_failure_limit)", config(failure_config=FailureConfig(controller_failure_limit=3)))
    refused(case, "preemption", "FailureConfig(max_preemption_failures)", config(failure_config=FailureConfig(max_preemption_failures=3)))
    for field, value in (("relax_collectives_on_preemption", True), ("preemption_grace_s", 5.0)):
        refused(case, field, f"FailureConfig({field})={value}", config(failure_config=FailureConfig(**{field: value})))
    refused(case, "score", "weft scores checkpoints by eval_loss", checkpoints(checkpoint_score_attribute="accuracy"))
    best = CheckpointConfig(checkpoint_score_attribute="eval_loss", checkpoint_score_order="min", num_to_keep=2)
    refused(case, "the best two in an object store", "RunConfig(storage_path)='s3://bucket/x'", config(storage_path="s3://bucket/x", checkpoint_config=best))
    refused(case, "datasets that are none", "expected a ray.data.Dataset",
            lambda: WeftTrainer(run, scaling_config=ScalingConfig(num_workers=4), datasets={"train": 1}))
    refused(case, "a dataset of another name", "datasets='test'",
            lambda: WeftTrainer(run, scaling_config=ScalingConfig(num_workers=4), datasets={"test": 1}))
    refused(case, "a value that no run file can have", "train_loop_config: train.lr: ", lambda: WeftTrainer(
        run, train_loop_config={"train.lr": {1e-3}}, scaling_config=ScalingConfig(num_workers=4)))
    refused(case, "a key that Ray decides", "launch.nodes is decided by the placement group",
            lambda: WeftTrainer(run, train_loop_config={"launch.nodes": 2}, scaling_config=ScalingConfig(num_workers=4)))


def check_bad_runs(case):
    """What only the cluster or the program can know."""
    fails(case, "the same name, another model", "give the run another name", case.trainer("first", config={"model.num_layers": 1, "train.steps": 9}))
    fails(case, "an unknown key", "train.learning_rate", case.trainer("unknown", config={"train.learning_rate": 1}))
    os.environ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] = "1"
    eight = {**sections(case.folder), "parallel": {"dp": 4, "tp": 2}}
    fails(case, "a cluster that is too small", "they need CPU 8, CPU 1 each; the cluster has CPU 4", case.trainer("small", eight, workers=8))
    fails(case, "a cluster that is too small, elastic", "of at least 3 nodes with 2 workers each within 1 s (num_workers=(6, 8), CPU 1 each); the cluster has CPU 4",
          case.trainer("small", eight, workers=(6, 8)))
    del os.environ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"]


# (check, one commit in how many runs it; a pool: at most one of it). Nodes that one adds serve the next; check_resume needs check_run, check_actor check_failures.
# Those with a wheel in their runtime environment come before any that adds a node: nodes of one machine share the folder into which Ray installs it, and one removes the wheel that another reads.
LONG = Pool("lost_node", "orphan", "lost_first", "store", "examples", "uneven", "nodes", "elastic")
EDGES = Pool("island", "gpu_ids", "tune", "job", "client", "loopback", "environment")
FIRST = ((check_refusals, 1), (check_run, 1), (check_resume, 1), (check_failures, 1), (check_actor, 1), (check_bad_runs, 1), (check_no_gpus, 1),
         (check_other_ray, 1), (check_datasets, 4), (check_command, 4), (check_term, 4), (check_interrupt, 4), (check_budget, 4), (check_one, 4), (check_notebook, 4), (check_kernel, 6), (check_store, LONG), (check_unwritable, 4),
         (check_client, EDGES), (check_loopback, EDGES), (check_environment, EDGES), (check_tune, EDGES), (check_island, EDGES), (check_examples, LONG), (check_uneven, LONG), (check_nodes, LONG), (check_lost_node, LONG), (check_orphan, LONG),
         (check_lost_first, LONG), (check_elastic, LONG), (check_gpu_ids, EDGES))
SECOND = ((check_job, EDGES),)  # a head with a job server


def name_of(part):
    return part.__name__.removeprefix("check_")


def choose(args, sample):
    """(of the first cluster, of the second)"""
    names = args.only.split(",") if args.only else [name for pool in (LONG, EDGES) for name in sample.one_of(MOST_SLOTS, pool.names)]

    def runs(part, count):
        if args.only or isinstance(count, Pool):
            return name_of(part) in names
        return count == 1 or sample.one_in(count, name_of(part))
    return [[part for part, count in parts if runs(part, count)] for parts in (FIRST, SECOND)]


def run_parts(parts, cluster, case):
    import ray
    with cluster:
        ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
        case.cluster = cluster
        for part in parts:
            begin = time.monotonic()
            part(case)
            print(f"{part.__name__}: {time.monotonic() - begin:.1f} s", flush=True)
        ray.shutdown()


def body(args, checks, folder):
    weft = Weft(args.weft)
    weft.call("corpus", folder / "data", "--seed", 1, "--train", 400, "--test", 16)
    case = Case(checks, weft, folder)
    case.slack = 1 if args.wall else case.slack
    install_wheel(checks, case.wheel, folder / "driver")
    case.undisturbed = case.own("own")
    first, second = choose(args, checks.sample)
    if first:
        run_parts(first, RayCluster(folder / "cluster", 4), case)
    if second:
        run_parts(second, RayCluster(folder / "second", 4, "--dashboard-host", HEAD, "--dashboard-port", DASHBOARD), case)
    print(f"with Ray's daemons: {processor_s():.0f} s of the processors")


def add_arguments(parser):
    parser.add_argument("--only", help="checks by name, with commas: nodes,elastic")
    parser.add_argument("--wall", action="store_true", help="times are held to what is promised: for a quiet machine")


def fetch_packages():
    """What checks need of a package index, which no network of our own reaches."""
    parser = argparse.ArgumentParser(add_help=False)
    add_arguments(parser)
    if check_kernel in choose(parser.parse_known_args()[0], Sampler())[0]:
        notebook_packages()


if __name__ == "__main__":
    enter(before=fetch_packages)
    run_program(__doc__, body, add_arguments, in_memory=True)
