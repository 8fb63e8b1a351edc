#!/usr/bin/env python3
"""A real Ray places weft's ranks: WeftTrainer in place of TorchTrainer, on nodes that have Ray and no weft.

    ray_interop.py --weft build/weft

Exact mode, dp 2 x tp 2 on one node: weights, states and metrics of WeftTrainer(...).fit() are those of `weft train` alone. Reports arrive
while the run goes on, the Result is Ray Train's own, the same name resumes, a killed rank is replaced or fails the run as
max_failures says, and everything that is not supported is refused by name. Ray runs in a network of its own.
"""

import json
import os
import signal
import subprocess
import sys
import time

from common import Weft, read_metrics, run_program, write_run_file
from ray_cluster import RayCluster, enter
from sampling import ROOT, is_full

FIRST_STEP_S = 40  # the promise is 4 on a quiet machine
STEPS, MORE_STEPS, NODE_STEPS = 6, 8, 40
KILLED = {"steps": 40, "every": 10}


def sections(folder, every=3, **train):
    return {"model": {"path": str(ROOT / "examples/quickstart/model"), "init": "random"},
            "data": {"train": [str(folder / "data/train.jsonl")], "eval": [str(folder / "data/test.jsonl")], "source": "{question}\n",
                     "target": "{sql}", "tokenizer": "bytes", "seq_length": 96},
            "parallel": {"dp": 2, "tp": 2, "mode": "exact"},
            "train": {"steps": STEPS, "global_batch": 8, "micro_batch": 4, "lr": 1e-3, "eval_every": every, **train},
            "checkpoint": {"every": every}, "launch": {"threads": 1, "hang_timeout_s": 300}}


class Case:
    """What every check needs."""

    def __init__(self, checks, weft, folder, cluster):
        self.checks, self.weft, self.folder, self.cluster = checks, weft, folder, cluster
        self.storage = folder / "storage"

    def own(self, name, **train):
        """The same run without Ray."""
        file = write_run_file(self.folder / f"{name}.yaml", {"name": name, **sections(self.folder, **train)})
        self.weft.train(file, self.folder / "own" / name)
        return self.folder / "own" / name

    def trainer(self, name, run=None, config=None, workers=4, max_failures=0, callbacks=(), **more):
        import ray.train
        from weft_ray import WeftTrainer
        return WeftTrainer(
            run or sections(self.folder), train_loop_config=config, scaling_config=ray.train.ScalingConfig(num_workers=workers),
            run_config=ray.train.RunConfig(name=name, storage_path=str(self.storage), callbacks=list(callbacks),
                                           failure_config=ray.train.FailureConfig(max_failures=max_failures), **more))


def same_run(case, run_dir, own, what):
    case.checks.equal(case.weft.call("hash", run_dir), case.weft.call("hash", own), f"{what}: weights and states")
    keys = ("step", "loss", "grad_norm", "lr", "tokens")
    lines = [[{k: line[k] for k in keys} for line in read_metrics(d)[0]] for d in (run_dir, own)]
    case.checks.equal(lines[0], lines[1], f"{what}: metrics")


def make_recorder():
    """A UserCallback that remembers; the class exists only once Ray is imported."""
    import ray.train

    class Recorder(ray.train.UserCallback):
        def __init__(self, at_step=None):
            self.reports, self.checkpoints, self.exceptions, self.at_step, self.times = [], [], [], at_step, []

        def after_report(self, run_context, metrics, checkpoint):
            self.times.append(time.monotonic())
            if checkpoint:
                self.checkpoints.append((checkpoint.path, metrics[0]["step"]))
            else:
                self.reports.append((run_context.run_config.name, len(metrics), metrics[0]["step"], "eval_loss" in metrics[0]))
            if self.at_step:
                self.at_step(metrics[0]["step"])

        def after_exception(self, run_context, worker_exceptions):
            self.exceptions.append(worker_exceptions)

    return Recorder


def check_run(case, own):
    """Bits, live reports, Result."""
    import ray.train
    run_dir, ended = case.storage / "first", []
    recorder = make_recorder()(lambda step: ended.append((run_dir / "final").exists()) if step == 1 else None)
    begin = time.monotonic()
    result = case.trainer("first", callbacks=[recorder]).fit()
    checks = case.checks
    took_s = recorder.times[0] - begin
    checks.that(took_s < FIRST_STEP_S, f"from fit() to the first step: {took_s:.1f} s, the program sent to the node (promised: 4 when it has it)")
    same_run(case, run_dir, own, "fit()")
    checks.equal([r for r in recorder.reports if not r[3]], [("first", 4, step, False) for step in range(1, STEPS + 1)], "after_report: every step once")
    checks.equal([r[2] for r in recorder.reports if r[3]], [3, 6], "after_report: evaluations")
    checks.equal(ended, [False], "the first report comes while the run goes on")
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
    programs = list((case.cluster.home / ".cache/weft/programs").glob("*/bin/weft"))
    checks.equal(len(programs), 1, "the program was sent to the node, which had none")


def check_resume(case):
    """The same name goes on, with a run file and changed keys; what is there and finished is not trained again."""
    file = write_run_file(case.folder / "run.yaml", {"name": "other", "storage": "/nowhere", **sections(case.folder)})
    recorder = make_recorder()()
    begin = time.monotonic()
    config = {"train.steps": MORE_STEPS}
    result = case.trainer("first", str(file), config, callbacks=[recorder]).fit()
    case.checks.that(True, f"from fit() to the first step, the program there: {recorder.times[0] - begin:.1f} s")
    case.checks.equal([r[2] for r in recorder.reports if not r[3]], list(range(STEPS + 1, MORE_STEPS + 1)), "resume: only the new steps")
    case.checks.equal([m["step"] for _, m in result.best_checkpoints], [3, 6, 8], "resume: checkpoints of both")
    same_run(case, case.storage / "first", case.own("more", steps=MORE_STEPS), "resume")


def kill_rank(case, name, rank):
    """Once: rank processes are children of weft train; found by the status that it writes."""
    status = json.loads((case.storage / name / ".status.json").read_text())
    os.kill(status["ranks"][rank]["pid"], signal.SIGKILL)


def killer(case, name):
    """Kills rank 2 at the fourth step."""
    done = []

    def at_step(step):
        if step >= 4 and not done:
            done.append(step)
            kill_rank(case, name, 2)
    return at_step


def check_failures(case):
    """max_failures: 0 fails with the rank, 1 goes on."""
    import ray.train
    run = sections(case.folder, **KILLED)
    recorder = make_recorder()(killer(case, "fails"))
    try:
        case.trainer("fails", run, callbacks=[recorder]).fit()
        case.checks.that(False, "max_failures=0, a killed rank: fit() raises")
    except ray.train.TrainingFailedError as error:
        case.checks.equal(list(error.worker_failures), [2], "max_failures=0, a killed rank: its number in the error")
        case.checks.that("rank 2" in str(error), "max_failures=0: the message", "" if "rank 2" in str(error) else str(error)[-400:])
        case.checks.equal([list(one) for one in recorder.exceptions], [[2]], "after_exception")
    recorder = make_recorder()(killer(case, "survives"))
    case.trainer("survives", run, max_failures=1, callbacks=[recorder]).fit()
    case.checks.equal([list(one) for one in recorder.exceptions], [[2]], "max_failures=1, a killed rank: reported, and the run goes on")
    case.checks.equal([r[2] for r in recorder.reports if not r[3]], list(range(1, KILLED["steps"] + 1)), "max_failures=1: every step once")
    same_run(case, case.storage / "survives", case.own("killed", **KILLED), "max_failures=1")


def node_sections(folder, steps):
    run = sections(folder, every=10, steps=steps, global_batch=12)
    return {**run, "parallel": {"dp": 3, "shard": "zero3", "mode": "exact"}}


def processes(name):
    """{pid: command line} of `weft NAME` here."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = open(f"/proc/{pid}/cmdline", "rb").read().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"weft") and words[1:2] == [name.encode()]:
            found[int(pid)] = words
    return found


def secret_is_hidden(case, name):
    """Neither a command line nor an environment of any process has it; its copies are files of mode 600 in memory."""
    secret = (case.storage / name / "secret").read_text().strip().encode()
    seen = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for kind in ("cmdline", "environ"):
            try:
                seen += [f"{pid} {kind}"] if secret in open(f"/proc/{pid}/{kind}", "rb").read() else []
            except OSError:
                continue
    case.checks.equal(seen, [], "several nodes: the secret is in no command line or environment")
    files = [words[words.index(b"--secret-file") + 1] for words in processes("agent").values()]
    modes = {oct(os.stat(path).st_mode & 0o777) for path in files}
    case.checks.equal((len(files), modes), (3, {"0o600"}), "several nodes: three agents, their files have mode 600")
    in_memory = [path for path in files if os.path.islink(path) and os.readlink(path).startswith(b"/memfd:")]
    case.checks.equal(len(in_memory), 2, "several nodes: the copies of the other nodes are in memory")


def check_nodes(case):
    """Three nodes of one rank; the actor of one is killed, and another takes its place."""
    import ray.train
    from weft_ray import WeftTrainer
    for _ in range(2):
        case.cluster.add_node(cpus=1)
    own = case.folder / "own/nodes"
    case.weft.train(write_run_file(case.folder / "nodes.yaml", {"name": "nodes", **node_sections(case.folder, NODE_STEPS)}), own)
    done = []

    def at_step(step):
        if step >= 4 and not done:
            done.append(step)
            secret_is_hidden(case, "nodes")
            agent = max(processes("agent"))
            os.kill(int(open(f"/proc/{agent}/stat").read().split()[3]), signal.SIGKILL)  # its parent: the actor
    recorder = make_recorder()(at_step)
    result = WeftTrainer(
        node_sections(case.folder, NODE_STEPS), scaling_config=ray.train.ScalingConfig(num_workers=3, placement_strategy="STRICT_SPREAD"),
        run_config=ray.train.RunConfig(name="nodes", storage_path=str(case.storage), callbacks=[recorder],
                                       failure_config=ray.train.FailureConfig(max_failures=1))).fit()
    case.checks.equal(result.metrics["step"], NODE_STEPS, "several nodes: an actor was killed, and the run has finished")
    case.checks.equal([r[2] for r in recorder.reports if not r[3]], list(range(1, NODE_STEPS + 1)), "several nodes: every step once")
    same_run(case, case.storage / "nodes", own, "several nodes")


def refused(case, what, wanted, make):
    try:
        make()
        case.checks.that(False, f"{what}: refused")
    except ValueError as error:
        case.checks.that(wanted in str(error), f"{what}: refused by name", "" if wanted in str(error) else str(error))


def check_refusals(case):
    """Before a cluster is asked for anything."""
    from ray.train import CheckpointConfig, FailureConfig, LoggingConfig, RunConfig, ScalingConfig
    from weft_ray import WeftTrainer
    run = sections(case.folder)

    def scaling(**fields):
        return lambda: WeftTrainer(run, scaling_config=ScalingConfig(**{"num_workers": 4, **fields}))

    def config(**fields):
        return lambda: WeftTrainer(run, scaling_config=ScalingConfig(num_workers=4), run_config=RunConfig(**fields))

    def checkpoints(**fields):
        return config(checkpoint_config=CheckpointConfig(**fields))

    refused(case, "workers", "num_workers=3), but parallel.dp=2 x parallel.tp=2 needs 4", scaling(num_workers=3))
    refused(case, "elastic", "ScalingConfig(num_workers)=(2, 4)", scaling(num_workers=(2, 4)))
    refused(case, "local mode", "ScalingConfig(num_workers)=0", scaling(num_workers=0))
    refused(case, "two GPUs per rank", "a rank has one GPU", scaling(use_gpu=True, resources_per_worker={"GPU": 2}))
    refused(case, "topology", "ScalingConfig(topology)", scaling(topology="4x4"))
    refused(case, "resize interval", "elastic_resize_monitor_interval_s", scaling(elastic_resize_monitor_interval_s=5))
    refused(case, "object store", "RunConfig(storage_path)='s3://bucket/x'", config(storage_path="s3://bucket/x"))
    refused(case, "log level", "RunConfig(logging_config)", config(logging_config=LoggingConfig(log_level="ERROR")))
    refused(case, "controller", "FailureConfig(controller_failure_limit)", config(failure_config=FailureConfig(controller_failure_limit=3)))
    refused(case, "preemption", "FailureConfig(max_preemption_failures)", config(failure_config=FailureConfig(max_preemption_failures=3)))
    refused(case, "score", "weft scores checkpoints by eval_loss", checkpoints(checkpoint_score_attribute="accuracy"))
    refused(case, "score order", "for eval_loss it is \"min\"", checkpoints(checkpoint_score_attribute="eval_loss"))
    refused(case, "the best two", "CheckpointConfig(num_to_keep)=2",
            checkpoints(checkpoint_score_attribute="eval_loss", checkpoint_score_order="min", num_to_keep=2))
    refused(case, "datasets", "datasets=['train']", lambda: WeftTrainer(run, scaling_config=ScalingConfig(num_workers=4), datasets={"train": 1}))
    refused(case, "a key that Ray decides", "launch.nodes is decided by the placement group",
            lambda: WeftTrainer(run, train_loop_config={"launch.nodes": 2}, scaling_config=ScalingConfig(num_workers=4)))


def fails(case, what, wanted, trainer):
    import ray.train
    try:
        trainer.fit()
        case.checks.that(False, f"{what}: fit() raises")
    except ray.train.TrainingFailedError as error:
        case.checks.that(wanted in str(error), f"{what}: TrainingFailedError", "" if wanted in str(error) else str(error)[-600:])


def check_bad_runs(case):
    """What only the cluster or the program can know."""
    fails(case, "the same name, another model", "give the run another name", case.trainer("first", config={"model.num_layers": 1, "train.steps": 9}))
    fails(case, "an unknown key", "train.learning_rate", case.trainer("unknown", config={"train.learning_rate": 1}))
    os.environ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] = "1"
    eight = {**sections(case.folder), "parallel": {"dp": 4, "tp": 2}}
    fails(case, "a cluster that is too small", "they need CPU 8, CPU 1 each; the cluster has CPU 4", case.trainer("small", eight, workers=8))
    del os.environ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"]


def processor_s():
    """Of every process in this program's namespace, and those that have ended as its children."""
    ticks = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            ticks += sum(map(int, open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[11:15]))
        except OSError:
            continue
    return ticks / os.sysconf("SC_CLK_TCK")


def install_wheel(checks, weft, folder):
    """For this program alone: Ray's nodes do not see it."""
    wheel = next((weft.path.parent / "wheel").glob("weft_ray-*.whl"))
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--disable-pip-version-check", "--target", folder, wheel],
                   check=True)
    sys.path.append(str(folder))
    checks.that(wheel.stat().st_size > 0, f"{wheel.name} is installed for the driver")


def body(args, checks, folder):
    weft = Weft(args.weft)
    weft.call("corpus", folder / "data", "--seed", 1, "--train", 400, "--test", 16)
    install_wheel(checks, weft, folder / "driver")
    with RayCluster(folder / "cluster", cpus=4) as cluster:
        import ray
        ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
        case = Case(checks, weft, folder, cluster)
        check_refusals(case)
        check_run(case, case.own("own"))
        check_resume(case)
        check_failures(case)
        check_bad_runs(case)
        if is_full():
            check_nodes(case)
        print(f"with Ray's daemons: {processor_s():.0f} s of the processors")
        ray.shutdown()


if __name__ == "__main__":
    enter()
    run_program(__doc__, body, in_memory=True)
