"""weft_ray/result.py: Ray Train's Result, from what a run has left."""

import pandas
import pyarrow.fs
from ray.train import Checkpoint, Result


def make_result(settings, metrics, checkpoints):
    """checkpoints: [(folder, metrics)], oldest first; with a score the best one is last, as Ray orders them."""
    if settings.score:
        name, order = settings.score
        worst = float("inf") if order == "min" else float("-inf")
        ranked = sorted(checkpoints, key=lambda one: one[1].get(name, worst), reverse=order == "min")
    else:
        ranked = checkpoints
    best = [(Checkpoint(folder), values) for folder, values in ranked]
    return Result(metrics=metrics, checkpoint=Checkpoint(checkpoints[-1][0]) if checkpoints else None, error=None, path=settings.run_dir,
                  best_checkpoints=best, metrics_dataframe=pandas.DataFrame([values for _, values in best]) if best else None,
                  _storage_filesystem=pyarrow.fs.LocalFileSystem())
