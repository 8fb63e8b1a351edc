"""weft_ray/trainer.py: WeftTrainer, which replaces Ray Train's trainers."""

import time

import ray
from ray import cloudpickle
from ray.exceptions import RayError, RayTaskError
from ray.train import RunConfig, ScalingConfig
from ray.train.v2.api.exceptions import ControllerError, WorkerGroupError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from weft_ray import program, rows
from weft_ray.elastic import ElasticPlacement, fitting_node, num_fitting
from weft_ray.place import reason, warn
from weft_ray.placement import Placement
from weft_ray.result import open_storage
from weft_ray.run import LOST, USAGE, Run, SupervisorLost, WeftError, make_context, remote_error
from weft_ray.settings import read_settings
from weft_ray.waits import TIMEOUT_VARIABLE, amount, cluster_text, timeout_s, warn_while_waiting

__all__ = ["WeftError", "WeftTrainer"]

cloudpickle.register_pickle_by_value(rows)  # nodes do not have it
AGAIN_S, LONGEST_S = 1.0, 60.0  # before another attempt after one without a step: doubled each time
LASTING = ("--convert-states", "--force")  # words of the command line that hold for every attempt, also after the first checkpoint
# Arguments of TorchTrainer that have no counterpart here, and what takes their place.
OF_TORCH = {"train_loop_per_worker": "pass a run file, or a dict with its keys, in place of a training function",
            "torch_config": "weft communicates by itself (launch.* in the run file)",
            "dataset_config": "every rank finds its own rows of the Dataset",
            "resume_from_checkpoint": "the same name and storage_path resume; to start from another run's weights set model.path",
            "validation_config": "set train.eval_every, and data.eval or datasets[\"eval\"]",
            "backend_config": "weft communicates by itself (launch.* in the run file)", "metadata": "weft's checkpoints have no such field"}


def refuse_others(arguments):
    for name in arguments:
        if name not in OF_TORCH:
            raise TypeError(f"WeftTrainer has no argument {name}; it has run, train_loop_config, scaling_config, run_config and datasets")
        raise ValueError(f"{name} is not supported by WeftTrainer: {OF_TORCH[name]}")


def of_type(name, value, kind):
    """The default where nothing was given."""
    if value is not None and not isinstance(value, kind):
        raise ValueError(f"{name}={value!r}: expected a ray.train.{kind.__name__}")
    return value or kind()


class WeftTrainer:
    """Trains what a run file describes on a Ray cluster.

    run: path of a run file, or a dict of the same form.
    train_loop_config: keys that replace those of the run file: {"train.lr": 1e-4}.
    scaling_config, run_config: Ray Train's own. A field that is not supported raises a ValueError that names it.
    datasets: {"train": ray.data.Dataset, "eval": ...}, in place of the run file's data.train and data.eval.
    """

    def __init__(self, run=None, *, train_loop_config=None, scaling_config=None, run_config=None, datasets=None, **others):
        refuse_others(others)
        if run is None or callable(run):
            raise ValueError(f"WeftTrainer(run): {OF_TORCH['train_loop_per_worker']}")
        program.digest()  # an installation without a program fails here, not on the nodes
        self.scaling_config = of_type("scaling_config", scaling_config, ScalingConfig)
        self.run_config = of_type("run_config", run_config, RunConfig)
        self.train_loop_config = train_loop_config
        self.settings = read_settings(run, train_loop_config, self.scaling_config, self.run_config, datasets)
        self.run_context = make_context(self)  # one, with one run_id, as Ray Train's trainers have
        self.words, self.output = [], None  # for the command line: further arguments, and where lines are shown
        self.strange_rows = []  # files with other rows than the run of this name has
        self.storage = None  # (file system, the run directory in it)
        self.stop_code = None  # exit code of weft train after an interrupt

    def rows_task(self, function):
        """A task on a node that a worker may be placed on, if there is one yet: the driver's node, or a head without CPUs, need not see the storage."""
        node = fitting_node(self.settings)
        place = {"scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=True)} if node else {}
        return ray.remote(num_cpus=0, **place)(function)

    def write_datasets(self):
        """Before workers take their CPUs, some of which Ray Data needs."""
        self.strange_rows = []
        if self.settings.datasets:
            self.warn_of_a_small_cluster()
        for name, (dataset, columns) in self.settings.datasets.items():
            write = self.rows_task(rows.write_rows).remote(dataset, columns, self.settings.rows_folder, name)
            try:
                with warn_while_waiting(f"the rows of datasets[{name!r}] are still being written"):
                    path, is_strange = ray.get(write)
            except RayTaskError as error:
                raise remote_error(error, "", self.settings.rows_folder) from None
            except RayError as error:  # Ray has tried again where a node was lost
                raise ControllerError(error) from error
            except KeyboardInterrupt:
                ray.cancel(write)  # which removes its draft
                raise
            self.settings.keys[f"data.{name}"] = [path]
            self.strange_rows += [path] if is_strange else []

    def warn_of_a_small_cluster(self):
        """Writing a large Dataset only to find that the workers do not fit takes long; it is no error, since an autoscaler may add nodes."""
        settings = self.settings
        if settings.bundle and (there := num_fitting(settings)) < settings.fewest:
            needed = {name: value * settings.fewest for name, value in settings.bundle.items()}
            warn(f"num_workers={settings.fewest} needs {amount(needed)}, {amount(settings.bundle)} each, but the cluster's nodes have room for {there}; {cluster_text(needed)}. "
                 f"The rows are written first; nodes must be added no later than {timeout_s():g} s after that ({TIMEOUT_VARIABLE})")

    def drop_refused_rows(self, failures):
        """Removes rows that weft has refused to train with, since they are not those of the run."""
        if self.strange_rows and any(failure.exit_code == USAGE for failure in failures.values()):
            try:
                ray.get(self.rows_task(rows.remove_rows).remote(self.strange_rows))
            except RayError as error:  # the user needs to see weft's refusal, not this
                warn(f"{', '.join(self.strange_rows)} is no longer needed, but could not be removed: {reason(error)}")

    def fit(self):
        """Ray Train's Result, or its TrainingFailedError. The same name and storage_path resume."""
        try:
            self.storage = open_storage(self.settings)
        except ValueError as error:
            raise ControllerError(error) from error
        if not ray.is_initialized():
            ray.init()
        self.write_datasets()
        limit, failures, words, reported, is_first, pause_s = self.settings.max_failures, 0, self.words, (0, 0), True, 0.0
        with (Placement if self.settings.fewest == self.settings.ranks else ElasticPlacement)(self.settings) as placement:
            while True:
                run = Run(self, placement, failures, words, reported, is_first)
                try:
                    return run.train()
                except SupervisorLost as lost:
                    failures, reported, is_first = run.failures + 1, run.reported, False
                    if run.has_saved:
                        words = [word for word in words if word in LASTING]
                    run.report_failures([(run.head_ranks, str(lost))])
                    if 0 <= limit < failures:
                        raise WorkerGroupError(f"{lost}; FailureConfig(max_failures={limit})", run.worker_failures(LOST, "")) from lost
                    warn(f"{lost}; restarting all ranks")
                    run.close()
                    if lost.is_apart:
                        placement.place_again()
                    pause_s = 0.0 if run.has_reported else min(max(2 * pause_s, AGAIN_S), LONGEST_S)
                    time.sleep(pause_s)
                except WorkerGroupError as error:
                    self.drop_refused_rows(error.worker_failures)
                    raise
                finally:
                    run.close()
