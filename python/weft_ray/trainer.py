"""weft_ray/trainer.py: WeftTrainer, in place of Ray Train's trainers."""

import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.v2.api.exceptions import WorkerGroupError

from weft_ray.placement import Placement
from weft_ray.run import Run, SupervisorLost, WeftError
from weft_ray.settings import read_settings

__all__ = ["WeftError", "WeftTrainer"]


class WeftTrainer:
    """Trains what a run file describes on a Ray cluster.

    run: path of a run file, or a dict of the same form.
    train_loop_config: keys that replace those of the run file: {"train.lr": 1e-4}.
    scaling_config, run_config: Ray Train's own. A field that is not supported raises a ValueError that names it.
    """

    def __init__(self, run, *, train_loop_config=None, scaling_config=None, run_config=None, datasets=None):
        self.scaling_config = scaling_config or ScalingConfig()
        self.run_config = run_config or RunConfig()
        self.train_loop_config = train_loop_config
        self.settings = read_settings(run, train_loop_config, self.scaling_config, self.run_config, datasets)

    def fit(self):
        """Ray Train's Result, or its TrainingFailedError. The same name and storage_path resume."""
        if not ray.is_initialized():
            ray.init()
        limit, failures = self.settings.max_failures, 0
        with Placement(self.settings) as placement:
            while True:
                run = Run(self, placement, failures)
                try:
                    return run.train()
                except SupervisorLost as lost:
                    failures = run.failures + 1
                    run.report_failures([(0, str(lost))])
                    if 0 <= limit < failures:
                        raise WorkerGroupError(f"{lost}; FailureConfig(max_failures={limit})", run.worker_failures(75, "")) from lost
                finally:
                    run.close()
