"""How long a run on Ray stands still after a death, and which ranks keep their processes.

Promised on a quiet machine: from kill -9 of a rank to the first new step, less one median step, under 2 s; of an actor likewise, or from when
Ray reports a node dead, under 10 s. Elsewhere `case.slack` times as much.
"""

import json
import statistics
import threading
import time

from common import events_of, read_metrics

RANK_S, NODE_S = 2.0, 10.0
LOOK_S, NODES_S, STATUS_S, LIMIT_S = 0.005, 0.05, 10.0, 240.0


def read_status(run_dir):
    """What the supervisor writes once a second: a short run may have made its first steps before."""
    file, end = run_dir / ".status.json", time.monotonic() + STATUS_S
    while not file.exists() and time.monotonic() < end:
        time.sleep(LOOK_S)
    return json.loads(file.read_text())


def num_steps(run_dir):
    try:
        return (run_dir / "metrics.jsonl").read_bytes().count(b'"step_ms"')
    except OSError:
        return 0


def dead_nodes():
    import ray
    return {node["NodeID"] for node in ray.nodes() if not node["Alive"]}


class NodeWatch(threading.Thread):
    """Make it right before the kill of a raylet. reported: when Ray has said that a node is dead."""

    def __init__(self):
        super().__init__(daemon=True)
        self.dead, self.end, self.reported = dead_nodes(), time.monotonic() + LIMIT_S, None
        self.start()

    def run(self):
        while self.reported is None and time.monotonic() < self.end:
            if dead_nodes() - self.dead:
                self.reported = time.monotonic()
            time.sleep(NODES_S)


class Recovery(threading.Thread):
    """Make it right before the kill. event: that of the run by which it goes on; of_node: Ray will report a node dead."""

    def __init__(self, run_dir, event="recovered", of_node=False):
        super().__init__(daemon=True)
        self.run_dir, self.event, self.num_events = run_dir, event, len(events_of(run_dir, event))
        self.nodes = NodeWatch() if of_node else None
        self.before, self.after, self.stepped = read_status(run_dir), None, None
        self.killed = time.monotonic()
        self.start()

    def wait(self, holds):
        while time.monotonic() < self.killed + LIMIT_S:
            if holds():
                return time.monotonic()
            time.sleep(LOOK_S)
        return None

    def run(self):
        if self.wait(lambda: len(events_of(self.run_dir, self.event)) > self.num_events) is None:
            return
        steps = num_steps(self.run_dir)
        self.wait(lambda: self.look(steps))

    def look(self, steps):
        """Whether a step is complete, and the status shows all ranks; it is written up to a second later, and has none after the end."""
        if self.stepped is None and num_steps(self.run_dir) > steps:
            self.stepped = time.monotonic()
        try:
            status = read_status(self.run_dir)
        except OSError:  # a new supervisor's is not there yet
            return False
        if self.after is None and status["generation"] > self.before["generation"] and all(rank["pid"] for rank in status["ranks"]):
            self.after = status
        return self.stepped and (self.after or status["exit_code"] is not None)

    def kept(self):
        """Ranks with the process that they had."""
        pids = [[rank["pid"] for rank in status["ranks"]] for status in (self.before, self.after)]
        return [rank for rank, (old, new) in enumerate(zip(*pids)) if old == new]

    def seconds(self, since=None):
        step_s = statistics.median(line["step_ms"] for line in read_metrics(self.run_dir)[0]) / 1000
        return self.stepped - (since or self.killed) - step_s


def check_recovery(case, recovery, what, most_s):
    recovery.join(LIMIT_S)
    if not case.checks.that(recovery.stepped is not None, f"{what}: a new step was seen"):
        return
    if recovery.nodes and not case.checks.that(recovery.nodes.reported is not None, f"{what}: Ray has reported the node"):
        return
    took_s, whole_s = recovery.seconds(recovery.nodes and recovery.nodes.reported), recovery.seconds()
    limit_s = most_s * case.slack
    case.checks.that(took_s < limit_s, f"{what}: {took_s:.2f} s to a new step{' since Ray has reported the node' if recovery.nodes else ''}, less a step "
                     f"({whole_s:.2f} s since the kill; promised {most_s:g} s, at most {limit_s:g} here)")


def check_survivors(case, recovery, what):
    """All ranks but one keep their processes."""
    if case.checks.that(recovery.after is not None, f"{what}: the status shows all ranks again"):
        ranks = len(recovery.before["ranks"])
        case.checks.equal(len(recovery.kept()), ranks - 1, f"{what}: {ranks - 1} of {ranks} ranks keep their processes")
