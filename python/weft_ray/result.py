"""weft_ray/result.py: Ray Train's Result, from what a run has left."""

import os

import pandas
import pyarrow.fs
from ray.train import Checkpoint, Result


def open_storage(settings):
    """(file system, the run directory in it)"""
    if not settings.is_remote:
        return pyarrow.fs.LocalFileSystem(), settings.run_dir
    return pyarrow.fs.FileSystem.from_uri(settings.run_dir)


def stored_steps(settings):
    """Of the complete checkpoints in the object store, or None: the first node has them all."""
    if not settings.is_remote:
        return None
    filesystem, path = open_storage(settings)
    names = [info.path.split("/")[-2:] for info in filesystem.get_file_info(pyarrow.fs.FileSelector(f"{path}/checkpoints", recursive=True, allow_not_found=True))]
    return sorted(int(folder.removeprefix("step-")) for folder, name in names if name == "COMMITTED" and folder.startswith("step-") and folder[5:].isdigit())


def make_checkpoint(settings, folder):
    """folder: on the node; a run in an object store has it there under the same name."""
    if not settings.is_remote:
        return Checkpoint(folder)
    filesystem, path = open_storage(settings)
    return Checkpoint(f"{path}/checkpoints/{os.path.basename(folder)}", filesystem)


def make_result(settings, metrics, checkpoints):
    """checkpoints: [(folder, metrics)], oldest first; with a score the best one is last, as Ray orders them."""
    if settings.score:
        name, order = settings.score
        worst = float("inf") if order == "min" else float("-inf")
        ranked = sorted(checkpoints, key=lambda one: one[1].get(name, worst), reverse=order == "min")
    else:
        ranked = checkpoints
    best = [(make_checkpoint(settings, folder), values) for folder, values in ranked]
    filesystem, path = open_storage(settings)
    return Result(metrics=metrics, checkpoint=make_checkpoint(settings, checkpoints[-1][0]) if checkpoints else None, error=None, path=path,
                  best_checkpoints=best, metrics_dataframe=pandas.DataFrame([values for _, values in best]) if best else None,
                  _storage_filesystem=filesystem)
