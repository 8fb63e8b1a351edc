"""weft on Ray in a notebook: cells run in a real kernel (IPython's), in whose main thread an event loop runs."""

import json
import os
import subprocess
import sys
from pathlib import Path

from common import read_metrics
from ray_case import STEPS, processes, same_run, sections
from sampling import ROOT

CELL_S = 300
START = "import sys; sys.path += {folders!r}; from ipykernel.kernelapp import launch_new_instance; launch_new_instance()"
CONNECT = """
import asyncio, ray
from ray.train import FailureConfig, RunConfig, ScalingConfig, UserCallback
from weft_ray import WeftTrainer
ray.init(address={address!r}, log_to_driver=False, logging_level="error")
"""
FIT = """
asyncio.get_running_loop()
result = WeftTrainer({run!r}, scaling_config=ScalingConfig(num_workers=4), run_config=RunConfig(name={name!r}, storage_path={storage!r})).fit()
print(result.metrics["step"], result.checkpoint.path)
"""
SHOWN_FIT = """
class Show(UserCallback):
    def after_report(self, run_context, metrics, checkpoint):
        print("step", metrics[0]["step"], flush=True)

WeftTrainer({run!r}, scaling_config=ScalingConfig(num_workers=4),
            run_config=RunConfig(name={name!r}, storage_path={storage!r}, callbacks=[Show()])).fit()
"""


def notebook_packages():
    """The folder of a notebook's kernel; fetched where it is not there yet."""
    python = subprocess.run([ROOT / "tools/setup.sh", "notebook"], text=True, stdout=subprocess.PIPE, check=True).stdout.strip()
    return str(next(Path(python).parent.parent.glob("lib/python3*/site-packages")))


class Kernel:
    """Use it in a `with`. It has Ray of this program's environment, and weft_ray where the driver has it."""

    def __init__(self, case):
        self.folder = case.folder / "notebook"
        packages = notebook_packages()
        place = self.folder / "kernels/weft"
        place.mkdir(parents=True)
        command = [sys.executable, "-c", START.format(folders=[packages, str(case.folder / "driver")]), "-f", "{connection_file}"]
        (place / "kernel.json").write_text(json.dumps({"argv": command, "display_name": "weft", "language": "python"}))
        sys.path.append(packages)

    def __enter__(self):
        os.environ["JUPYTER_PATH"], os.environ["JUPYTER_RUNTIME_DIR"] = str(self.folder), str(self.folder / "run")
        from jupyter_client.manager import start_new_kernel
        self.manager, self.client = start_new_kernel(kernel_name="weft", startup_timeout=CELL_S)
        return self

    def __exit__(self, *_):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)

    def run(self, cell, stop_at=None):
        """("" or the name of the exception, all that was printed). stop_at: words at which the stop button is pressed."""
        said = []

        def hear(message):
            said.append(message["content"].get("text", ""))
            if stop_at and stop_at in said[-1]:
                self.manager.interrupt_kernel()
        reply = self.client.execute_interactive(cell, output_hook=hear, timeout=CELL_S)["content"]
        return reply.get("ename", ""), "".join(said) + reply.get("evalue", "")


def check_kernel(case):
    """fit() in a cell has the bits of `weft train`; the stop button saves, and the next cell goes on from there."""
    def cell(text, name, **train):
        return text.format(run=sections(case.folder, **train), name=name, storage=str(case.storage))
    long = {"steps": 5000, "every": 1000, "schedule": "constant"}
    with Kernel(case) as kernel:
        case.checks.equal(kernel.run(CONNECT.format(address=case.cluster.address))[0], "", "a notebook: a cell connects to Ray")
        place = case.storage / "notebook_cell"
        case.checks.equal(kernel.run(cell(FIT, place.name)), ("", f"{STEPS} {place}/checkpoints/step-{STEPS:08}\n"), "a notebook: fit() in a cell")
        same_run(case, place, case.undisturbed, "a notebook")
        error, said = kernel.run(cell(SHOWN_FIT, "notebook_stopped", **long), stop_at="step 3\n")
        case.checks.equal(error, "KeyboardInterrupt", "a notebook: its stop button ends the cell")
        case.checks.that("step 3\n" in said, "a notebook: a callback prints into the cell")
        last = read_metrics(case.storage / "notebook_stopped")[0][-1]["step"]
        saved = case.storage / f"notebook_stopped/checkpoints/step-{last:08}"
        case.checks.that((saved / "COMMITTED").exists(), "a notebook: the last step before the stop is saved", "" if saved.exists() else f"step {last}")
        answer = kernel.run(cell(FIT, "notebook_stopped", **{**long, "steps": last + 2}))
        case.checks.equal(answer[1].split()[:1], [str(last + 2)], "a notebook: the next cell goes on from there")
    case.checks.equal(processes("train"), {}, "a notebook: no process is left")
