"""weft_ray/result.py: Ray Train's Result, from what a run has left."""

import os

import pandas
import pyarrow.fs
from ray.train import Checkpoint, Result

from weft_ray.keep import rank


def open_storage(settings):
    """(file system, the run directory in it). ValueError: the Result could not be made, which is checked before training."""
    if not settings.is_remote:
        return pyarrow.fs.LocalFileSystem(), settings.run_dir
    try:
        filesystem, path = pyarrow.fs.FileSystem.from_uri(settings.run_dir)
        filesystem.get_file_info(path)
        return filesystem, path
    except OSError as error:
        raise ValueError(f"{settings.run_dir} cannot be read here ({error}): the program that calls fit() also needs the keys and the endpoint of the "
                         "object store (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL)") from error


def stored_steps(settings, storage):
    """Of the complete checkpoints in the object store, or None: the first node has them all."""
    if not settings.is_remote:
        return None
    filesystem, path = storage
    names = [info.path.split("/")[-2:] for info in filesystem.get_file_info(pyarrow.fs.FileSelector(f"{path}/checkpoints", recursive=True, allow_not_found=True))]
    return sorted(int(folder.removeprefix("step-")) for folder, name in names if name == "COMMITTED" and folder.startswith("step-") and folder[5:].isdigit())


def make_checkpoint(settings, storage, folder):
    """folder: on the node; a run in an object store has it there under the same name."""
    if not settings.is_remote:
        return Checkpoint(folder)
    filesystem, path = storage
    return Checkpoint(f"{path}/checkpoints/{os.path.basename(folder)}", filesystem)


def make_result(settings, storage, metrics, checkpoints):
    """checkpoints: [(folder, metrics)], oldest first; with a score the best one is last, as Ray orders them."""
    ranked = sorted(checkpoints, key=lambda one: rank(one[1], settings.score)) if settings.score else checkpoints
    best = [(make_checkpoint(settings, storage, folder), values) for folder, values in ranked]
    filesystem, path = storage
    return Result(metrics=metrics, checkpoint=make_checkpoint(settings, storage, checkpoints[-1][0]) if checkpoints else None, error=None, path=path,
                  best_checkpoints=best, metrics_dataframe=pandas.DataFrame([values for _, values in best]) if best else None,
                  _storage_filesystem=filesystem)
