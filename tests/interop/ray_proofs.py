"""Smaller promises of weft on Ray: one budget for all kinds of failures, a notebook's loop, both datasets, threads of a worker's CPUs."""

import asyncio
import contextlib
import io
import os
import signal

import yaml

from common import read_metrics, write_run_file
from ray_case import fails, kill_rank, make_recorder, parent_of, processes, same_run, sections


def check_budget(case):
    """An actor and then a rank are killed: two failures, of which max_failures=1 allows one."""
    done = []

    def at_step(step):
        if step >= 11 and not done:
            done.append("actor")
            os.kill(parent_of(min(processes("train"))), signal.SIGKILL)
        elif step >= 30 and len(done) == 1:
            done.append("rank")
            kill_rank(case, "budget", 1)
    recorder = make_recorder()(at_step)
    fails(case, "one budget: an actor, then a rank", "rank 1", case.trainer(
        "budget", sections(case.folder, every=10, steps=2000, eval_every=1000), max_failures=1, callbacks=[recorder]))
    case.checks.equal((done, len(recorder.exceptions)), (["actor", "rank"], 2), "one budget: both were killed and reported")


def check_one(case):
    """One worker, which has no supervisor: its kill costs a failure, the run resumes, and nothing is said of keys that nobody has set."""
    steps = 30
    run = {**sections(case.folder, every=10, steps=steps, global_batch=4), "parallel": {"dp": 1, "mode": "exact"}}
    own, done, said = case.folder / "own/one", [], io.StringIO()
    case.weft.train(write_run_file(case.folder / "one.yaml", {"name": "one", **run}), own)
    run["launch"] = {"threads": 1}

    def at_step(step):
        if step >= 12 and not done:
            done.append(step)
            os.kill(min(processes("train")), signal.SIGKILL)
    recorder = make_recorder()(at_step)
    trainer = case.trainer("one", run, workers=1, max_failures=1, callbacks=[recorder])
    trainer.output = said
    with contextlib.redirect_stderr(said):
        trainer.fit()
    same_run(case, case.storage / "one", own, "one worker, killed")
    case.checks.equal([list(one) for one in recorder.exceptions], [[0]], "one worker, killed: after_exception")
    case.checks.equal([r[2:] for r in recorder.reports if not r[3]], [(step, False) for step in range(1, steps + 1)], "one worker, killed: every step once")
    case.checks.that("killed by signal 9" in said.getvalue(), "one worker, killed: said")
    case.checks.that("has no effect" not in said.getvalue(), "one worker: no warning of keys that nobody has set",
                     "".join(line for line in said.getvalue().splitlines(True) if "has no effect" in line))


def check_notebook(case):
    """fit() in a running event loop, as in a cell; rows to train and to evaluate with; the newest two checkpoints; two CPUs for each worker."""
    import ray.data
    import ray.train
    from weft_ray import WeftTrainer
    ray.data.DataContext.get_current().enable_progress_bars = False
    run = {**sections(case.folder, every=2), "parallel": {"dp": 2, "mode": "exact"}, "launch": {"hang_timeout_s": 300}}
    own, files = case.folder / "own/notebook", {name: run["data"][name] for name in ("train", "eval")}
    case.weft.train(write_run_file(case.folder / "notebook.yaml", {"name": "notebook", **run}), own, "--set", "launch.threads=1")
    rows = {name: ray.data.read_json(files[name]) for name in files}
    run["data"] = {key: value for key, value in run["data"].items() if key not in files}
    trainer = WeftTrainer(run, scaling_config=ray.train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 2}), datasets=rows,
                          run_config=ray.train.RunConfig(name="notebook", storage_path=str(case.storage),
                                                         checkpoint_config=ray.train.CheckpointConfig(num_to_keep=2)))

    async def cell():
        return trainer.fit()
    result = asyncio.run(cell())
    same_run(case, case.storage / "notebook", own, "fit() in an event loop")
    losses = [[line["eval_loss"] for line in read_metrics(place)[1]] for place in (case.storage / "notebook", own)]
    case.checks.equal((len(losses[0]), losses[0]), (3, losses[1]), "datasets train and eval: every eval_loss")
    case.checks.equal([values["step"] for _, values in result.best_checkpoints], [4, 6], "num_to_keep=2 alone: the newest two")
    folders = sorted(path.name for path in (case.storage / "notebook/checkpoints").glob("step-*"))
    case.checks.equal(folders, ["step-00000004", "step-00000006"], "num_to_keep=2 alone: the others are deleted")
    threads = yaml.safe_load((case.storage / "notebook/run.yaml").read_text())["launch"]["threads"]
    case.checks.equal(threads, 2, "resources_per_worker={\"CPU\": 2}: launch.threads")


def check_uneven(case):
    """PACK fills the head's four CPUs first and puts the fifth worker elsewhere."""
    case.cluster.want_nodes(2)
    run = {**sections(case.folder, global_batch=10, micro_batch=2), "parallel": {"dp": 5}}
    fails(case, "workers that do not divide over nodes", "Ray has placed 4, 1 workers on 2 nodes, but weft needs the same number on each node", case.trainer("uneven", run, workers=5))
