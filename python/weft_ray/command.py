"""weft_ray/command.py: `weft train RUN.yaml --engine ray`: the run file decides, Ray places (RAY_ADDRESS)."""

import argparse
import errno
import os
import signal
import socket
import sys

from weft_ray import check_ray

CONNECT_S = 10
FAILED, USAGE, LOST = 1, 2, 75  # exit codes (docs/contract.md)
DEVICES = ("auto", "cpu", "cuda")
KEPT, RESTARTS = 2, 2  # defaults of checkpoint.keep and launch.max_restarts
READ = {"name", "storage", "launch.device", "launch.max_restarts"}  # keys that Ray's configuration decides, and that are taken from the run file here


def parse(words):
    parser = argparse.ArgumentParser(prog="weft train", description="trains on a Ray cluster (RAY_ADDRESS)", allow_abbrev=False)
    parser.add_argument("RUN", help="run file (YAML)")
    parser.add_argument("--engine", choices=["ray"])
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="section.key=value, overrides the run file")
    parser.add_argument("--resume", default="auto", help="auto | never | CHECKPOINT | RUN_DIR")
    for name in ("--overwrite", "--convert-states", "--force", "--quiet"):
        parser.add_argument(name, action="store_true", help="as without Ray")
    return parser.parse_args(words)


def read_sets(words):
    sets = {}
    for word in words:
        key, sign, value = word.partition("=")
        if not sign:
            raise ValueError(f"--set {word}: expected section.key=value")
        sets[key] = value
    return sets


def check_device(device, is_quiet):
    """auto cannot look at the nodes, which are known only once Ray has placed the ranks."""
    if device not in DEVICES:
        raise ValueError(f"launch.device={device!r}: expected {', '.join(DEVICES)}")
    if device == "auto" and not is_quiet:
        print("launch.device: auto is cpu on Ray; cuda takes a GPU per rank", flush=True)
    return device


def make_trainer(args):
    """A WeftTrainer whose configuration is the run file's."""
    from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig

    from weft_ray import WeftTrainer
    from weft_ray.settings import check_whole, find_key, parse_yaml, read_run
    _, sections = read_run(args.RUN)
    sets = read_sets(args.set)

    def value(key, default):
        found = parse_yaml(f"--set {key}", sets[key]) if key in sets else find_key(sections, key)
        return default if found is None else found

    def number(key, default, least):
        return check_whole(key, value(key, default), least)

    name = value("name", None)
    if name is None:
        raise ValueError(f"{args.RUN} has no name")
    sizes = {key: number(key, 1, 1) for key in ("parallel.dp", "parallel.tp")}
    ranks = sizes["parallel.dp"] * sizes["parallel.tp"]
    config = {**{key: text for key, text in sets.items() if key not in READ}, **sizes}
    cpus = number("launch.threads", 0, 0) or 1
    uses_gpu = check_device(value("launch.device", "auto"), args.quiet) == "cuda"
    trainer = WeftTrainer(
        args.RUN, train_loop_config=config,
        scaling_config=ScalingConfig(num_workers=ranks, use_gpu=uses_gpu, resources_per_worker={"CPU": cpus, **({"GPU": 1} if uses_gpu else {})}),
        run_config=RunConfig(name=str(name), storage_path=str(value("storage", "runs")),
                             failure_config=FailureConfig(max_failures=number("launch.max_restarts", RESTARTS, -1)),
                             checkpoint_config=CheckpointConfig() if value("checkpoint.keep", None) else CheckpointConfig(num_to_keep=KEPT)))
    flags = [f"--{name}" for name in ("overwrite", "convert-states", "force") if getattr(args, name.replace("-", "_"))]
    trainer.words = [*flags, "--resume", args.resume]
    trainer.output = None if args.quiet else sys.stdout  # the program itself is never quiet: it prints where it listens
    return trainer


def connect():
    """Checks first that something listens there: Ray itself retries for minutes."""
    import ray
    address = os.environ.get("RAY_ADDRESS", "")
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        if host and port.isdigit():
            socket.create_connection((host, int(port)), CONNECT_S).close()
        ray.init(address="auto", log_to_driver=False, logging_level="error")
    except OSError as error:  # Ray's ConnectionError is one
        raise ValueError(f"there is no Ray cluster{' at ' + address if address else ''} ({error}): set RAY_ADDRESS, or run `ray start --head`; if the cluster requires a token, set RAY_AUTH_MODE=token") from error


def catch_term():
    """`ray job stop` and Kubernetes send SIGTERM: the first one raises KeyboardInterrupt. Returns a list that will hold the signals; Ray passes on only the exception."""
    caught = []

    def note(number, _):
        caught.append(number)
        if len(caught) == 1:
            raise KeyboardInterrupt
    signal.signal(signal.SIGTERM, note)
    return caught


def interrupted_code(stop_code, number):
    """The signal's if weft has saved, or had not started; otherwise weft's own."""
    return 128 + number if stop_code in (None, 128 + signal.SIGTERM) else stop_code


def train(args):
    from ray.train import TrainingFailedError
    trainer = make_trainer(args)
    connect()
    caught = catch_term()  # only now: Ray has set a handler of its own
    try:
        trainer.fit()
        return 0
    except KeyboardInterrupt:
        return interrupted_code(trainer.stop_code, caught[0] if caught else signal.SIGINT)
    except TrainingFailedError as error:
        failures = getattr(error, "worker_failures", {})
        if not failures or args.quiet or error.__cause__:  # else weft's own lines have reported it
            print(f"error: {error}", file=sys.stderr)
        return next((one.exit_code for one in failures.values()), controller_code(error))


def controller_code(error):
    """1: a full disk; 2: wrong input, or storage that cannot be written; 75: something that may be there next time."""
    cause = getattr(error, "controller_failure", None)
    if getattr(cause, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
        return FAILED
    is_usage = isinstance(cause, (ValueError, OSError)) and not isinstance(cause, (TimeoutError, ConnectionError))
    return USAGE if is_usage else LOST


def main(words):
    args = parse(words)
    try:
        check_ray()
        return train(args)
    except (ValueError, ImportError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE
