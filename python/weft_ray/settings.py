"""weft_ray/settings.py: what Ray Train's configuration means for a run file, and what is refused."""

import hashlib
import json
import os
from dataclasses import MISSING, dataclass, fields
from pathlib import Path

import yaml
from ray.train import FailureConfig, LoggingConfig, ScalingConfig, UserCallback

from weft_ray import program
from weft_ray.hints import OWNED
from weft_ray.rows import check_dataset, template_columns
from weft_ray.waits import warn_while_waiting

BEST = {"eval_loss": "min", "exact_match": "max", "sql_match": "max"}  # checkpoint.best, and which value is better
SCORES = (*BEST, "loss", "grad_norm", "step", "tokens")  # what checkpoints may be ranked by
ALL = 1_000_000_000  # checkpoints to keep: checkpoint.keep has no word for all of them
JOIN_TIMEOUT_S = 604_800  # the longest that weft accepts


@dataclass(frozen=True)
class Settings:
    """A run, before it is placed."""

    name: str
    storage: str
    text: str          # of the run file
    ranks: int         # all, where their number may change
    fewest: int
    tp: int
    bundle: dict       # resources of one rank
    strategy: str
    labels: list       # selector per bundle, or None
    uses_gpu: bool
    keys: dict         # run file keys that differ from the text
    max_failures: int
    score: tuple       # (metric, min or max), or None
    keep: tuple        # (how many of the best, score), or None
    fallback: str      # folder for the local copy of a run in an object store, or None
    datasets: dict     # {train or eval: (dataset, its columns)}

    @property
    def is_remote(self):
        return "://" in self.storage

    @property
    def run_dir(self):
        """A folder, or an address."""
        base, sign, query = self.storage.partition("?") if self.is_remote else (self.storage, "", "")
        return f"{base.rstrip('/')}/{self.name}{sign}{query}"

    @property
    def place(self):
        """(folder, "") or, of a run in an object store, (folder or "", name of a folder in it): without one the first node has its own."""
        tag = hashlib.sha256(self.run_dir.encode()).hexdigest()[:16]
        return (self.fallback, f"ray-{tag}") if self.is_remote else (self.run_dir, "")

    @property
    def rows_folder(self):
        folder, name = self.place
        return os.path.join(folder, f"{name}-rows") if self.is_remote else os.path.join(folder, "rows")  # the copy of a run in an object store has a folder to itself

    def check_nodes(self, nodes):
        if self.is_remote and nodes > 1 and not self.fallback:
            raise ValueError(f"RunConfig(storage_path={self.storage!r}) on {nodes} nodes: the run's local copy must be in a folder that every node sees; "
                             "set checkpoint.fallback to one")


def refuse(field, value, why):
    raise ValueError(f"{field}={value!r} is not supported by WeftTrainer: {why}")


def refuse_changed(config, default, names, why):
    """Fields that must keep their default; an older Ray does not have all of them."""
    owner = type(config).__name__
    for name in names:
        if hasattr(default, name) and getattr(config, name) != getattr(default, name):
            refuse(f"{owner}({name})", getattr(config, name), why)


def refuse_unknown(config, known):
    """A newer Ray may have fields that mean something: one that was set is refused."""
    for field in fields(config):
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if field.name not in known and getattr(config, field.name) != default:
            refuse(f"{type(config).__name__}({field.name})", getattr(config, field.name), "this version of weft does not know it")


def parse_yaml(what, text):
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"{what} is not YAML: {error}") from error


def check_whole(key, value, least):
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{key}={value!r}: expected a whole number of at least {least}")
    return value


def check_text(key, value):
    if not isinstance(value, str):
        raise ValueError(f"{key}={value!r}: expected text")
    return value


def plain(what, value):
    """The value as JSON has it; numbers of numpy, such as Tune's, become Python's."""
    def number(one):
        if getattr(one, "ndim", None) == 0 and hasattr(one, "item"):
            return one.item()
        raise TypeError(f"{one!r} has the type {type(one).__name__}")
    try:
        return json.loads(json.dumps(value, default=number))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what}: {error}; expected text, numbers, true, false, null or lists of them") from error


def read_run(run):
    """(text, sections) of a run file or a dict of the same form."""
    if isinstance(run, dict):
        run = {name: {key: plain(f"{name}.{key}", value) for key, value in part.items()} if isinstance(part, dict) else plain(name, part) for name, part in run.items()}
        return json.dumps(run, indent=1) + "\n", run
    try:
        text = Path(run).read_text(encoding="utf-8")
    except TypeError as error:
        raise ValueError(f"{run!r} is not a run file: expected a path, or a dict with its keys") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{run} is not a run file: it is not UTF-8 text") from error
    except OSError as error:
        raise type(error)(f"the run file {os.path.abspath(run)} cannot be read: {error.strerror}") from None
    sections = parse_yaml(run, text)
    if not isinstance(sections, dict):
        raise ValueError(f"{run} is not a run file: expected sections (docs/keys.md)")
    return text, sections


def find_key(sections, key):
    """The value of section.key as it is written, or None."""
    value = sections
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def check_keys(config):
    if not isinstance(config, dict):
        raise ValueError(f"train_loop_config={config!r}: expected a dict, like {{\"train.lr\": 1e-5}}")
    for key, value in config.items():
        if not isinstance(key, str) or not key:
            raise ValueError(f"train_loop_config: {key!r} is not a key of a run file, like \"train.lr\"")
        if isinstance(value, dict) and "." not in key:  # a section; launch.env and launch.slurm are dicts themselves
            names = ", ".join(f'"{key}.{name}": {"{...}" if isinstance(one, dict) else repr(one)}' for name, one in value.items())  # launch.env may hold secrets
            raise ValueError(f"train_loop_config: keys are written with dots, not nested: {{{names}}}")
        if key in OWNED:
            raise ValueError(f"train_loop_config: {key} is decided by {OWNED[key]}; remove it")


def check_ranks(scaling, sections, config):
    """(num_workers, the fewest, tp); num_workers, or the larger of two, must be dp x tp."""
    fewest, most = scaling.num_workers if isinstance(scaling.num_workers, tuple) else (scaling.num_workers, scaling.num_workers)
    if fewest < most and scaling.placement_strategy != "PACK":
        refuse("ScalingConfig(placement_strategy)", scaling.placement_strategy, "num_workers=(min, max) requires \"PACK\": as many workers per node as fit")
    if fewest == 0:
        refuse("ScalingConfig(num_workers)", 0, "there is no local mode; `weft train` runs without Ray")
    sizes = {}
    for key in ("parallel.dp", "parallel.tp"):
        written = config.get(key, find_key(sections, key))
        sizes[key] = check_whole(key, 1 if written is None else written, 1)
    wanted = sizes["parallel.dp"] * sizes["parallel.tp"]
    if most != wanted:
        raise ValueError(f"ScalingConfig(num_workers={scaling.num_workers}), but parallel.dp={sizes['parallel.dp']} x "
                         f"parallel.tp={sizes['parallel.tp']} needs {wanted}: one worker is one rank")
    if fewest < most and sizes["parallel.dp"] == 1:
        refuse("ScalingConfig(num_workers)", scaling.num_workers, f"with parallel.dp=1 and parallel.tp={wanted} there is no smaller number of workers; give a single one")
    return wanted, fewest, sizes["parallel.tp"]


def read_scaling(scaling, sections, config):
    """(bundle, keys)"""
    refuse_changed(scaling, ScalingConfig(), ("use_tpu", "topology"), "weft has no TPU back end")
    refuse_changed(scaling, ScalingConfig(), ("elastic_resize_monitor_interval_s",), "nodes join as soon as Ray has placed them")
    refuse_unknown(scaling, {"num_workers", "use_gpu", "resources_per_worker", "placement_strategy", "label_selector",
                             "accelerator_type", "use_tpu", "topology", "elastic_resize_monitor_interval_s", "trainer_resources"})
    cpus, gpus = scaling.num_cpus_per_worker, scaling.num_gpus_per_worker
    if gpus != (1 if scaling.use_gpu else 0):
        refuse("ScalingConfig(resources_per_worker)", scaling.resources_per_worker, "a rank has one GPU with use_gpu=True, and otherwise none")
    if scaling.use_gpu and not program.has_cuda():
        refuse("ScalingConfig(use_gpu)", True, "this weft_ray was built without CUDA; install the wheel that `make wheel CUDA=1` builds")
    bundle = {**scaling.additional_resources_per_worker, **({"CPU": cpus} if cpus else {}), **({"GPU": gpus} if gpus else {})}
    keys = {"launch.device": "cuda" if scaling.use_gpu else "cpu"}
    if find_key(sections, "launch.threads") is None and "launch.threads" not in config and cpus:
        keys["launch.threads"] = max(1, int(cpus))
    return bundle, keys


def read_checkpoints(checkpoints, sections, config):
    """(score, keys)"""
    refuse_unknown(checkpoints, {"num_to_keep", "checkpoint_score_attribute", "checkpoint_score_order"})
    keys, score, metric = {}, None, checkpoints.checkpoint_score_attribute
    keep, order = checkpoints.num_to_keep, checkpoints.checkpoint_score_order
    if metric is not None:
        if metric not in SCORES:
            refuse("CheckpointConfig(checkpoint_score_attribute)", metric, f"weft scores checkpoints by {', '.join(SCORES)}")
        score = (metric, order)
        if BEST.get(metric) == order:
            keys["checkpoint.best"] = metric
    given = "checkpoint.keep" in config or find_key(sections, "checkpoint.keep") is not None
    if keep is not None or not given:
        keys["checkpoint.keep"] = ALL if keep is None or score else keep  # with a score the actor deletes them (keep.py)
    for key, field in (("checkpoint.keep", keep), ("checkpoint.best", metric)):
        if field is not None and key in config:
            raise ValueError(f"train_loop_config: {key} is decided by CheckpointConfig; remove one of them")
    return score, keys


def read_run_config(run):
    refuse_changed(run, type(run)(name=run.name), ("storage_filesystem",), "set storage_path to a folder that every node sees")
    if run.logging_config != LoggingConfig():
        refuse("RunConfig(logging_config)", run.logging_config, "weft's lines have no levels")
    for callback in run.callbacks:
        if not isinstance(callback, UserCallback):
            refuse("RunConfig(callbacks)", callback, "it is not a ray.train.UserCallback")
    if "/" in run.name or run.name in (".", ".."):
        refuse("RunConfig(name)", run.name, "it must be the name of a folder")
    refuse_unknown(run, {"name", "storage_path", "storage_filesystem", "failure_config", "checkpoint_config", "callbacks",
                         "worker_runtime_env", "logging_config"})
    failure = run.failure_config
    refuse_changed(failure, FailureConfig(), ("max_preemption_failures",), "a preempted node counts towards max_failures, like any other lost node")
    refuse_changed(failure, FailureConfig(), ("controller_failure_limit", "relax_collectives_on_preemption", "preemption_grace_s"),
                   "weft has a single budget, max_failures, and saves on its own when asked to stop")
    refuse_unknown(failure, {"max_failures", "controller_failure_limit", "max_preemption_failures",
                             "relax_collectives_on_preemption", "preemption_grace_s", "fail_fast"})
    if failure.max_failures < -1:
        refuse("FailureConfig(max_failures)", failure.max_failures, "it is at least 0, or -1 for no limit")


def read_storage(path, sections, config):
    """(folder or address, checkpoint.fallback of an address: "" where it is not given, None for a folder)"""
    if "://" not in path:
        return os.path.abspath(os.path.expanduser(path)), None
    if not path.startswith("s3://"):
        refuse("RunConfig(storage_path)", path, "expected a folder that every node sees, or s3://bucket/prefix")
    return path, check_text("checkpoint.fallback", config.get("checkpoint.fallback", find_key(sections, "checkpoint.fallback")) or "")


def read_labels(selector, ranks):
    """One selector per bundle, or None."""
    return [dict(selector)] * ranks if isinstance(selector, dict) else selector


def read_datasets(datasets, sections, config):
    """{name: (dataset, the columns that the run file's templates name)}"""
    *texts, messages = (check_text(key, config.get(key, find_key(sections, key)) or "") for key in ("data.text", "data.source", "data.target", "data.messages"))
    texts = [text for text in texts if text] or ([] if messages else ["{text}"])
    columns = template_columns(texts) + ([messages] if messages else [])
    for name, dataset in datasets.items():
        if name not in ("train", "eval"):
            refuse("datasets", name, "its keys are train and eval")
        if not hasattr(dataset, "iter_batches") or not hasattr(dataset, "select_columns"):
            refuse(f"datasets[{name!r}]", dataset, "expected a ray.data.Dataset")
        if find_key(sections, f"data.{name}") or f"data.{name}" in config:
            raise ValueError(f"datasets[{name!r}] and data.{name} are both given; remove one of them")
        with warn_while_waiting(f"the columns of datasets[{name!r}] are still being determined"):
            check_dataset(name, dataset, columns, messages)
    return {name: (dataset, columns) for name, dataset in datasets.items()}


def launch_keys(sections, config):
    """Like Ray Train, weft waits for a replacement of a lost node as long as it takes, unless the run file sets a limit."""
    given = "launch.join_timeout_s" in config or find_key(sections, "launch.join_timeout_s") is not None
    return {} if given else {"launch.join_timeout_s": JOIN_TIMEOUT_S}


def read_settings(run, config, scaling, run_config, datasets):
    """Everything that can be refused without a cluster."""
    text, sections = read_run(run)
    check_keys(config := config or {})
    config = {key: plain(f"train_loop_config: {key}", value) for key, value in config.items()}
    read_run_config(run_config)
    ranks, fewest, tp = check_ranks(scaling, sections, config)
    bundle, scaling_keys = read_scaling(scaling, sections, config)
    score, checkpoint_keys = read_checkpoints(run_config.checkpoint_config, sections, config)
    storage, fallback = read_storage(run_config.storage_path, sections, config)
    kept = run_config.checkpoint_config.num_to_keep
    if fallback == "" and datasets:
        refuse("RunConfig(storage_path)", storage, "with datasets, set checkpoint.fallback to a folder that every node sees, for their rows")
    if fallback is not None and score and kept:
        refuse("RunConfig(storage_path)", storage, "checkpoint_score_attribute with num_to_keep requires a folder; leave one of the two out")
    keys = {**config, **scaling_keys, **checkpoint_keys, **launch_keys(sections, config), "name": run_config.name, "storage": storage}
    return Settings(run_config.name, storage, text, ranks, fewest, tp, bundle, scaling.placement_strategy,
                    read_labels(scaling.label_selector, ranks), scaling.use_gpu, keys, run_config.failure_config.max_failures, score,
                    (kept, score) if score and kept else None, fallback,
                    read_datasets(datasets or {}, sections, config))
