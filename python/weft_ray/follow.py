"""weft_ray/follow.py: what a run has written since the last look: steps, evaluations, checkpoints, deaths.

This module is sent to nodes by value and uses only the standard library.
"""

import json
import os
import re
from collections import OrderedDict

RECENT = 2000    # steps whose metrics are kept, for checkpoints that are committed later
PROOF_BYTES = 64  # before the position, compared with what was read there


class LineFollower:
    """New complete lines of a file that grows, and that may be truncated or replaced (then all of its lines, again)."""

    def __init__(self, path, at_end=False):
        self.path, self.position, self.proof = path, 0, b""
        if at_end and os.path.exists(path):
            with open(path, "rb") as file:
                self.take(file.read())

    def take(self, data):
        """The complete lines of what follows the position."""
        end = data.rfind(b"\n") + 1
        self.position += end
        self.proof = (self.proof + data[:end])[-PROOF_BYTES:]
        return data[:end].splitlines()

    def read(self):
        try:
            with open(self.path, "rb") as file:
                file.seek(self.position - len(self.proof))
                data = file.read()
                if not data.startswith(self.proof):
                    file.seek(0)
                    self.position, self.proof, data = 0, b"", file.read()
        except OSError:  # not there yet, or the storage fails for a moment (EIO, ESTALE), which weft handles itself
            return []
        return self.take(data[len(self.proof):])


def parse(lines):
    for line in lines:
        try:
            yield json.loads(line)
        except ValueError:  # a torn line, which the next start of the run removes
            continue


class DeathCount:
    """As weft counts them (train/run_tail.cpp): a node and ranks that are lost together are one death; a loss counts when the run has gone on, or as long as it waits."""

    def __init__(self):
        self.ended, self.is_node_lost = 0, False

    def add(self, event):
        goes_on = event in ("recovered", "started", "layout", "finished", "stopped")
        self.ended += event == "rank_died" or self.is_node_lost and goes_on
        if event == "node_lost" or event in ("rank_died", "rank failed", "failed") or goes_on:
            self.is_node_lost = event == "node_lost"

    @property
    def count(self):
        return self.ended + self.is_node_lost


class RunFollower:
    """Reports of one run. A step is reported once, also if the run goes back and repeats it.

    reported: (step, step of the evaluation) that an earlier follower of the same run came to.
    """

    def __init__(self, run_dir, reported=(0, 0), since=""):
        self.reported, self.since = reported, since  # since: older events are of earlier runs; the files may yet be fetched from a store
        self.events = LineFollower(os.path.join(run_dir, "events.jsonl"), at_end=not since)
        self.metrics = LineFollower(os.path.join(run_dir, "metrics.jsonl"))
        self.step = self.eval_step = None  # the last reported; None: not started
        self.size = None  # ("ranks" or "dp", how many): with which it trains, as far as the run has said it
        self.recent, self.deaths = OrderedDict(), DeathCount()

    def read(self):
        """(reports, failures): [(metrics, checkpoint folder or None)], [(ranks, message)]."""
        saved, failures = [], []
        for event in parse(self.events.read()):
            if event["time"] < self.since:
                continue
            self.deaths.add(event["event"])
            if event["event"] == "started" and "ranks" in event:
                self.size = ("ranks", event["ranks"])
            if event["event"] == "started" and self.step is None:
                self.step, self.eval_step = (max(event["step"], one) for one in self.reported)
            elif event["event"] == "checkpoint" and os.path.basename(event["path"]).startswith("step-"):
                saved.append((event["step"], event["path"]))
            elif event["event"] == "layout" and (match := re.match(r"dp=(\d+)", event["to"])):
                self.size = ("dp", int(match.group(1)))
            elif event["event"] in ("rank_died", "node_lost", "rank failed"):
                failures.append((event.get("ranks", [event["rank"]]), event["message"]))
        if self.step is None:
            return [], failures
        reports = [(line, None) for line in self.read_metrics()]
        return reports + [(self.recent.get(step, {"step": step}), path) for step, path in saved], failures

    def read_metrics(self):
        for line in parse(self.metrics.read()):
            step = line.get("step")
            if "step_ms" in line and step > self.step:
                self.step = step
                self.remember(step, line)
                yield line
            elif "eval_loss" in line and step > self.eval_step:
                self.eval_step = step
                self.remember(step, {**self.recent.get(step, {}), **line})
                yield self.recent[step]

    def remember(self, step, metrics):
        self.recent[step] = metrics
        while len(self.recent) > RECENT:
            self.recent.popitem(last=False)


def all_metrics(run_dir, steps):
    """({step: its metrics with its evaluation}, those of the last step)."""
    wanted, found, last = set(steps), {}, None
    path = os.path.join(run_dir, "metrics.jsonl")
    if not os.path.exists(path):
        return found, last
    with open(path, "rb") as file:
        for line in parse(file):
            step = line.get("step")
            if step is None:
                continue
            last = {**(last if last and last["step"] == step else {}), **line}
            if step in wanted:
                found[step] = last
    return found, last


def summarize(run_dir, names=("step-", "best")):
    """(metrics of the last step, [(folder, metrics) of every checkpoint, oldest first])."""
    folder, steps = os.path.join(run_dir, "checkpoints"), {}
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        path = os.path.join(folder, name)
        if not os.path.exists(os.path.join(path, "COMMITTED")) or not name.startswith(names):
            continue
        with open(os.path.join(path, "state.json"), encoding="utf-8") as file:
            steps[json.load(file)["step"]] = path  # "best" sorts first: a checkpoint of the same step replaces it
    metrics, last = all_metrics(run_dir, steps)
    return last, [(steps[step], metrics.get(step, {"step": step})) for step in sorted(steps)]
