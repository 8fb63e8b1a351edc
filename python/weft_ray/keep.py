"""weft_ray/keep.py: which checkpoints stay, by Ray Train's rule: the best by a metric, and always the newest.

This module is sent to nodes by value and uses only the standard library and follow.py.
"""

import glob
import os
import shutil
import threading

from weft_ray.follow import all_metrics

REMOVING = ".removing-"


def step_folders(run_dir):
    """{step: folder} of complete checkpoints."""
    folder, found = os.path.join(run_dir, "checkpoints"), {}
    for name in os.listdir(folder) if os.path.isdir(folder) else []:
        number = name.removeprefix("step-")
        if number != name and number.isdigit() and os.path.exists(os.path.join(folder, name, "COMMITTED")):
            found[int(number)] = os.path.join(folder, name)
    return found


def rank(metrics, score):
    """A key that sorts from the worst to the best: a missing number is the worst, and of equals the newer one is better."""
    name, order = score
    value = metrics.get(name)
    is_number = isinstance(value, (int, float)) and value == value
    return (is_number, (-value if order == "min" else value) if is_number else 0, metrics["step"])


class Keeper:
    """Deletes checkpoints that are neither among the best `keep` nor the newest. It remembers the metrics of checkpoints: a file of millions of lines is read once."""

    def __init__(self, run_dir, keep, score):
        self.run_dir, self.keep, self.score, self.known, self.lock = run_dir, keep, score, {}, threading.Lock()
        for left in glob.glob(os.path.join(glob.escape(run_dir), f"{REMOVING}*")):  # by an earlier actor that was killed
            shutil.rmtree(left, ignore_errors=True)

    def prune(self, recent):
        """recent: {step: metrics} of the last steps."""
        with self.lock:
            self.prune_now(recent)

    def prune_now(self, recent):
        folders = step_folders(self.run_dir)
        unknown = [step for step in folders if step not in recent and step not in self.known]
        read = all_metrics(self.run_dir, unknown)[0] if unknown else {}
        self.known = {step: {"step": step, **self.known.get(step, {}), **read.get(step, {}), **recent.get(step, {})} for step in folders}
        best = sorted(folders, key=lambda step: rank(self.known[step], self.score))[-self.keep:]
        for step in set(folders) - set(best) - {max(folders, default=0)}:
            self.remove(folders[step])

    def remove(self, folder):
        """Hidden from weft at once, by a rename; whoever is reading it gets an error, as in Ray Train."""
        away = os.path.join(self.run_dir, f"{REMOVING}{os.path.basename(folder)}")
        shutil.rmtree(away, ignore_errors=True)
        try:
            os.rename(folder, away)
        except FileNotFoundError:
            return
        shutil.rmtree(away, ignore_errors=True)
