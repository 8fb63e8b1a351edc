"""weft on Ray at its edges: jobs, runtime environments, object stores, GPUs that are handed out or absent, storage that one node does not see or that none
can write, a cluster of one machine, Ctrl-C, another Ray."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

from common import read_metrics, write_run_file
from ray_case import FIRST_STEP_S, STEPS, fails, make_recorder, processes, program_cache, programs_sent, promised, refused, same_run, sections
from ray_cluster import HEAD, call
from s3_interop import Server

DASHBOARD, LEAVE_S = 8265, 240
STAND_IN = """#!/bin/sh
echo "$CUDA_VISIBLE_DEVICES $*" >> {log}
echo "error: a stand-in of this test" >&2
exit 2
"""


def check_other_ray(case):
    """Another major version of Ray, and none."""
    import ray
    import weft_ray
    version = ray.__version__
    try:
        ray.__version__ = "3.1.0"
        case.checks.that(False, "Ray 3: refused", str(weft_ray.WeftTrainer))
    except ImportError as error:
        case.checks.that("Ray 3.1.0 is installed" in str(error) and "ray[default,train]>=2.57,<3" in str(error), "Ray 3: refused, with what to install", str(error))
    finally:
        ray.__version__ = version
    case.checks.equal(weft_ray.WeftTrainer.__name__, "WeftTrainer", f"control: Ray {version} is not refused")
    code = "import sys; sys.modules['ray'] = None; from weft_ray.program import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "train", "run.yaml", "--engine", "ray"], text=True, capture_output=True, timeout=60, check=False,
                          env={**os.environ, "PYTHONPATH": str(case.folder / "driver")})
    case.checks.that(done.returncode == 2 and "Ray, which is not installed" in done.stderr, "without Ray: exit 2 and what to install", done.stderr[-300:])


@contextlib.contextmanager
def marked(case):
    """The installed wheel says that it has CUDA."""
    mark = case.folder / "driver/weft_ray/CUDA"
    mark.write_text("13\n")
    yield
    mark.unlink()


def check_no_gpus(case):
    import ray.train
    from weft_ray import WeftTrainer

    def trainer():
        return WeftTrainer(sections(case.folder), scaling_config=ray.train.ScalingConfig(num_workers=4, use_gpu=True),
                           run_config=ray.train.RunConfig(name="gpus", storage_path=str(case.storage)))
    refused(case, "GPUs with a wheel without CUDA", "make wheel CUDA=1", trainer)
    os.environ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] = "1"
    with marked(case):
        fails(case, "GPUs asked for, and none there", "they need GPU 4, GPU 1 each; the cluster has GPU 0", trainer())
    del os.environ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"]


def check_interrupt(case):
    """Ctrl-C in fit(): the step is completed and saved, nothing is left running, and the same fit() goes on."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    name, done = "interrupted", []

    def at_step(step):
        if step >= 3 and not done:
            done.append(step)
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    run = sections(case.folder, steps=100_000, every=1000, schedule="constant", global_batch=32)  # slower steps: fewer until the signal has arrived
    try:
        case.trainer(name, run, callbacks=[make_recorder()(at_step)]).fit()
        case.checks.that(False, "Ctrl-C: fit() raises KeyboardInterrupt")
    except KeyboardInterrupt:
        case.checks.that(True, "Ctrl-C: fit() raises KeyboardInterrupt")
    steps = len(read_metrics(case.storage / name)[0])
    saved = [path.name for path in (case.storage / name / "checkpoints").glob("step-*")]
    case.checks.equal(saved, [f"step-{steps:08}"], "Ctrl-C: the last step is saved")
    case.checks.equal(processes("train"), {}, "Ctrl-C: no process is left")
    case.trainer(name, run, {"train.steps": steps + 2}).fit()
    file = write_run_file(case.folder / "interrupted.yaml", {"name": name, **run})
    case.weft.train(file, case.folder / "own/interrupted", "--set", f"train.steps={steps + 2}")
    same_run(case, case.storage / name, case.folder / "own/interrupted", "Ctrl-C, resumed")


def check_island(case):
    """A node that does not see the storage is named, and nothing is trained. It leaves the cluster afterwards."""
    import ray
    from weft_ray import WeftTrainer
    case.storage.mkdir(exist_ok=True)
    hide = ["unshare", "-m", "sh", "-c", f"mount -t tmpfs none '{case.storage}' && exec \"$@\"", "sh"]
    daemon = case.cluster.add_node(1, before=hide)
    head = ray.get_runtime_context().get_node_id()
    run = {**sections(case.folder), "parallel": {"dp": 2, "mode": "exact"}}
    fails(case, "storage that one node does not see", "10.213.0.2 cannot see", WeftTrainer(
        run, scaling_config=ray.train.ScalingConfig(num_workers=2, placement_strategy="STRICT_SPREAD", label_selector=[
            {"ray.io/node-id": head}, {"ray.io/node-id": f"!{head}"}]),
        run_config=ray.train.RunConfig(name="island", storage_path=str(case.storage))))
    daemon.terminate()
    deadline = time.monotonic() + LEAVE_S
    while sum(node["Alive"] for node in ray.nodes()) > 1:
        if time.monotonic() > deadline:
            raise TimeoutError(f"Ray does not notice within {LEAVE_S} s that a node has left")
        time.sleep(0.1)


def check_unwritable(case):
    """A file system that is mounted read-only, and a file in place of the folder: named without a traceback, by the actor and by the task that writes rows."""
    import ray.data
    import ray.train
    from weft_ray import WeftTrainer
    ray.data.DataContext.get_current().enable_progress_bars = False
    sealed, file = case.folder / "sealed", case.folder / "file"
    sealed.mkdir()
    file.touch()
    run = sections(case.folder)
    rows = {"train": ray.data.read_json(run["data"]["train"])}
    without = {**run, "data": {key: value for key, value in run["data"].items() if key != "train"}}
    call("mount", "-t", "tmpfs", "-o", "ro", "none", sealed)
    try:
        for what, place, why in (("read-only", sealed, "Read-only file system"), ("a file", file, "Not a directory")):
            for who, sections_of, datasets in (("the actor", run, None), ("the task with rows", without, rows)):
                try:
                    WeftTrainer(sections_of, scaling_config=ray.train.ScalingConfig(num_workers=4), datasets=datasets,
                                run_config=ray.train.RunConfig(name="unwritable", storage_path=str(place))).fit()
                    case.checks.that(False, f"storage_path is {what}, {who}: fit() raises")
                except ray.train.TrainingFailedError as error:
                    text = str(error)
                    is_good = why in text and f"cannot write {place / 'unwritable'}" in text and "ray::" not in text  # as lines of Ray's traceback have
                    case.checks.that(is_good, f"storage_path is {what}, {who}: TrainingFailedError names it", "" if is_good else text[-1500:])
    finally:
        call("umount", sealed)
    case.checks.equal(processes("train"), {}, "storage that cannot be written: no process is left")


ALONE = """
import ray, ray.train
from weft_ray import WeftTrainer
ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="error", _temp_dir={temp!r})
print("address", ray.util.get_node_ip_address())
for workers in (2, 4), 4:
    try:
        result = WeftTrainer({run!r}, scaling_config=ray.train.ScalingConfig(num_workers=workers),
                             run_config=ray.train.RunConfig(name="alone", storage_path={storage!r})).fit()
        print("step", result.metrics["step"])
    except ray.train.TrainingFailedError as error:
        print(type(error).__name__, error)
"""


def check_loopback(case):
    """ray.init() on a machine without a network: several nodes, as an elastic run has them, are refused; one node trains."""
    call("ip", "netns", "add", "alone")
    call("ip", "-n", "alone", "link", "set", "lo", "up")
    place = case.folder / "alone"
    place.mkdir()
    code = ALONE.format(run=sections(case.folder), storage=str(case.storage), temp=str(place / "ray"))
    done = subprocess.run(["ip", "netns", "exec", "alone", sys.executable, "-c", code], text=True, capture_output=True, timeout=400, check=False,
                          env={**os.environ, "PYTHONPATH": str(case.folder / "driver"), "HOME": str(place)})
    out = done.stdout
    case.checks.that("address 127.0.0.1\n" in out, "loopback: ray.init() has made a cluster of one machine alone", "" if "address 127" in out else (out + done.stderr)[-1500:])
    wanted = ("ControllerError", "ScalingConfig(num_workers=(2, 4))", "2 nodes", "(127.0.0.1)")
    is_refused = all(text in out for text in wanted)
    case.checks.that(is_refused, "loopback, elastic: refused with the address", "" if is_refused else (out + done.stderr)[-1500:])
    case.checks.equal(out.count(f"step {STEPS}\n"), 1, "loopback, one number of workers: trains, and only this")
    same_run(case, case.storage / "alone", case.undisturbed, "loopback")


def check_environment(case):
    """The wheel in a runtime environment: a first driver, for which the node unpacks it, and a second one, for which it is there."""
    import ray
    for home in case.cluster.homes.values():
        shutil.rmtree(program_cache(home), ignore_errors=True)
    took, texts = {}, []
    try:
        for name in ("cold", "cached"):
            ray.shutdown()
            begin, recorder = time.monotonic(), make_recorder()()
            ray.init(address=case.cluster.address, log_to_driver=False, logging_level="error", runtime_env={"py_modules": [str(case.wheel)]})
            fitted = time.monotonic()
            case.trainer(f"environment-{name}", callbacks=[recorder]).fit()
            took[name] = recorder.times[0] - fitted
            texts.append(f"{name}: ray.init() {fitted - begin:.1f} s, then {took[name]:.1f} s from fit() to the first step")
            same_run(case, case.storage / f"environment-{name}", case.undisturbed, f"runtime environment, {name}")
    finally:
        ray.shutdown()
        ray.init(address=case.cluster.address, log_to_driver=False, logging_level="error")
    print("runtime environment with the wheel, " + "; ".join(texts), flush=True)
    is_held, text = promised(case, FIRST_STEP_S, took["cached"])
    case.checks.that(is_held, f"runtime environment, cached, from fit() to the first step: {text}; cold: {took['cold']:.1f} s")
    case.checks.equal(set(programs_sent(case.cluster).values()), {0}, "runtime environment: its wheel is used as it is")


def check_gpu_ids(case):
    """Ray hands out GPUs of a node that has none; a program in weft's place shows what it is given, weft itself refuses."""
    import ray.train
    from weft_ray import WeftTrainer, node, program
    case.cluster.add_node(1, "--num-gpus", 4)
    home = list(case.cluster.homes.values())[-1]
    place, log = program_cache(home) / program.digest(), case.folder / "ids"
    shutil.rmtree(place, ignore_errors=True)  # the next run has the program sent again
    (place / "bin").mkdir(parents=True)
    (place / "bin/weft").write_text(STAND_IN.format(log=log))
    (place / "bin/weft").chmod(0o755)
    (place / node.SIZES).write_text(json.dumps({"bin/weft": (place / "bin/weft").stat().st_size}))

    def trainer():
        return WeftTrainer({**sections(case.folder), "parallel": {"dp": 3}}, scaling_config=ray.train.ScalingConfig(num_workers=3, use_gpu=True),
                           run_config=ray.train.RunConfig(name="gpu", storage_path=str(case.storage)))
    with marked(case):
        fails(case, "GPU ids: the stand-in", "a stand-in of this test", trainer())
    ids, _, words = log.read_text().partition(" ")
    case.checks.that(len(set(ids.split(","))) == 3 and set(ids.split(",")) < {"0", "1", "2", "3"}, "GPU ids: those of the three workers together", ids)
    case.checks.that("launch.device=cuda" in words and "launch.nodes=1" in words, "GPU ids: launch.device is cuda", words[:400])
    shutil.rmtree(place)
    with marked(case):
        fails(case, "GPU ids: a program without CUDA says so", "launch.device", trainer())


def submit(case, name, environment, *command):
    """Runs `ray job submit` to its end."""
    file = write_run_file(case.folder / f"{name}.yaml", {"name": name, "storage": str(case.storage), **sections(case.folder)})
    begin = time.monotonic()
    done = subprocess.run([sys.executable, "-m", "ray.scripts.scripts", "job", "submit", "--address", f"http://{HEAD}:{DASHBOARD}",
                           "--runtime-env-json", json.dumps(environment), "--", *command, "train", str(file), "--engine", "ray"],
                          text=True, capture_output=True, timeout=400, check=False)
    out = done.stdout + done.stderr
    case.checks.that(done.returncode == 0 and "succeeded" in out, f"{name}: succeeds, {time.monotonic() - begin:.1f} s", "" if done.returncode == 0 else out[-2500:])
    case.checks.that("step 6/6" in out, f"{name}: shows the run's lines", "" if "step 6/6" in out else out[-800:])
    same_run(case, case.storage / name, case.undisturbed, name)


def check_job(case):
    """ray job submit, where the head has weft on its PATH, and where it gets the wheel with the job."""
    place = case.folder / "driver"
    submit(case, "job-installed", {"env_vars": {"PATH": f"{place}/bin:{os.path.dirname(sys.executable)}:/usr/bin:/bin", "PYTHONPATH": str(place)}}, "weft")
    submit(case, "job-with-wheel", {"py_modules": [str(case.wheel)]}, sys.executable, "-m", "weft_ray")


def check_store(case):
    """storage_path in an object store: bits, Result with its file system, a second fit() that resumes without the local copy."""
    import ray.train
    from weft_ray import WeftTrainer
    server = Server()
    server.client().create_bucket(Bucket="bucket")
    os.environ.update(server.env())

    def fit(**config):
        return WeftTrainer(sections(case.folder), train_loop_config=config, scaling_config=ray.train.ScalingConfig(num_workers=4),
                           run_config=ray.train.RunConfig(name="far", storage_path="s3://bucket/runs", worker_runtime_env={"env_vars": server.env()})).fit()
    result = fit()
    case.checks.equal((result.path, type(result.filesystem).__name__), ("bucket/runs/far", "S3FileSystem"), "s3: Result.path, filesystem")
    place = result.checkpoint.to_directory(str(case.folder / "fetched"))
    case.checks.equal(case.weft.call("hash", place), case.weft.call("hash", case.undisturbed / "checkpoints/step-00000006"), "s3: Result.checkpoint is there, with the bits")
    shutil.rmtree(case.cluster.homes["head"] / ".cache/weft")
    again = fit(**{"train.steps": 8})
    case.checks.equal([values["step"] for _, values in again.best_checkpoints], [3, 6, 8], "s3: resumes from the store, without the local copy")
    wanted = case.own("far", steps=8)
    got = case.weft.call("hash", again.checkpoint.to_directory(str(case.folder / "fetched8")))
    case.checks.equal(got, case.weft.call("hash", wanted / "checkpoints/step-00000008"), "s3: resumed, the bits")
    server.stop()
    for name in server.env():
        del os.environ[name]
    refused(case, "another store", "RunConfig(storage_path)='gs://bucket/x'", lambda: WeftTrainer(
        sections(case.folder), scaling_config=ray.train.ScalingConfig(num_workers=4), run_config=ray.train.RunConfig(storage_path="gs://bucket/x")))
