"""What the checks of weft on Ray share: run files, trainers, a recording callback, processes."""

import os
import signal
import subprocess
import sys
import time

from common import read_metrics, write_run_file
from ray_recovery import read_status
from sampling import ROOT


FIRST_STEP_S = 4.0  # promised on a quiet machine, from fit() on a node that has the program
STEPS, MORE_STEPS, NODE_STEPS = 6, 8, 100
KILLED = {"steps": 80, "every": 10}  # so many that the run still goes on when a callback kills at step 4 or 12


def sections(folder, every=3, **train):
    return {"model": {"path": str(ROOT / "examples/quickstart/model"), "init": "random"},
            "data": {"train": [str(folder / "data/train.jsonl")], "eval": [str(folder / "data/test.jsonl")], "source": "{question}\n",
                     "target": "{sql}", "tokenizer": "bytes", "seq_length": 96},
            "parallel": {"dp": 2, "tp": 2, "mode": "exact"},
            "train": {"steps": STEPS, "global_batch": 8, "micro_batch": 4, "lr": 1e-3, "eval_every": every, **train},
            "checkpoint": {"every": every}, "launch": {"threads": 1, "hang_timeout_s": 300}}


class Case:
    """What every check needs."""

    def __init__(self, checks, weft, folder):
        self.checks, self.weft, self.folder, self.cluster = checks, weft, folder, None
        self.storage, self.wheel = folder / "storage", find_wheel(weft)
        self.undisturbed = None  # run directory of the same run without Ray
        self.slack = 10  # times a promised time is what a machine with other work may take

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


def differs(case, run_dir, other, what):
    """A control of same_run: what it compares is not the same for all runs."""
    case.checks.that(case.weft.call("hash", run_dir) != case.weft.call("hash", other), f"control, {what}: other weights and states")
    losses = [[line["loss"] for line in read_metrics(d)[0]] for d in (run_dir, other)]
    case.checks.that(losses[0] != losses[1], f"control, {what}: other losses")


def promised(case, seconds, took_s):
    """(whether it is held here, what is printed)"""
    limit_s = seconds * case.slack
    return took_s < limit_s, f"{took_s:.1f} s (promised {seconds:g} s, at most {limit_s:g} here)"


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


def refused(case, what, wanted, make):
    try:
        make()
        case.checks.that(False, f"{what}: refused")
    except ValueError as error:
        case.checks.that(wanted in str(error), f"{what}: refused by name", "" if wanted in str(error) else str(error))


def fails(case, what, wanted, trainer):
    import ray.train
    try:
        trainer.fit()
        case.checks.that(False, f"{what}: fit() raises")
    except ray.train.TrainingFailedError as error:
        case.checks.that(wanted in str(error), f"{what}: TrainingFailedError", "" if wanted in str(error) else str(error)[-600:])


def program_cache(home):
    return home / ".cache/weft/programs"


def programs_sent(cluster):
    """{node: how many programs it was sent}"""
    return {name: len(list(program_cache(home).glob("*/bin/weft"))) for name, home in cluster.homes.items()}


def parent_of(pid):
    return int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1])


def name_of(pid):
    try:
        return open(f"/proc/{pid}/comm").read().strip()
    except OSError:
        return ""


def network_of(pid):
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:  # it has ended, and may be a zombie
        return ""


def raylet_beside(pids):
    """Of the node of one of these processes that is not this program's node."""
    homes = {network_of(pid) for pid in pids} - {network_of("self"), ""}
    return next(int(pid) for pid in filter(str.isdigit, os.listdir("/proc")) if name_of(pid) == "raylet" and network_of(pid) in homes)


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


def processor_s():
    """Of every process in this program's namespace, and those that have ended as its children."""
    ticks = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            ticks += sum(map(int, open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[11:15]))
        except OSError:
            continue
    return ticks / os.sysconf("SC_CLK_TCK")


def find_wheel(weft):
    return next((weft.path.parent / "wheel").glob("weft_ray-*.whl"))


def install_wheel(checks, wheel, folder):
    """For this program alone: Ray's nodes do not see it."""
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--disable-pip-version-check", "--target", folder, wheel],
                   check=True)
    sys.path.append(str(folder))
    checks.that(os.access(folder / "weft_ray/bin/weft", os.X_OK), f"{wheel.name} is installed for the driver, with the program")


def kill_rank(case, name, rank):
    """Once: rank processes are children of weft train; found by the status that it writes."""
    os.kill(read_status(case.storage / name)["ranks"][rank]["pid"], signal.SIGKILL)
