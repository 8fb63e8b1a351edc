"""One turn: starts a program that writes metrics.jsonl, and watches it from outside."""

import json
import os
import signal
import statistics
import subprocess
import time
from dataclasses import dataclass

DROPPED = 3  # first steps of a turn: caches, page faults, compilation


@dataclass
class Turn:
    """What one program did. Times as its metrics say; memory, first line and load from outside.

    A program may be a supervisor with one process per rank: memory is of the largest of them, the load
    of all.
    """

    losses: list
    steps_ms: list
    first_line_s: float  # from exec to the first line of metrics
    peak_bytes: int  # VmHWM
    busy_cores: float  # cpu time over wall time between the first and the last line
    outside_ms: float  # mean step between the first and the last line, by our clock

    def kept_ms(self):
        return self.steps_ms[DROPPED:] or self.steps_ms[-1:]

    def median_ms(self):
        return statistics.median(self.kept_ms())

    def to_first_step_s(self):
        return self.first_line_s - self.median_ms() / 1000


class TurnFailed(Exception):
    pass


def read_peak_bytes(pid):
    """VmHWM of a process, 0 when it is gone."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def read_cpu_seconds(pid):
    """User and system time of a process and its threads, 0 when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError):
        return 0.0


def family(pid):
    """A process and all below it."""
    pids = [pid]
    for parent in pids:  # grows while it is read
        try:
            for task in os.listdir(f"/proc/{parent}/task"):
                with open(f"/proc/{parent}/task/{task}/children", encoding="ascii") as file:
                    pids += [int(word) for word in file.read().split()]
        except OSError:
            pass
    return pids


def count_steps(path):
    """Whole lines of optimizer steps so far."""
    try:
        whole = path.read_bytes().rpartition(b"\n")[0]
        return whole.count(b'"step_ms"')
    except OSError:
        return 0


def step_lines(path):
    """Lines of optimizer steps; lines of epochs and evaluations have no step_ms."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in lines if "step_ms" in line]


def end_family(process):
    """Kills what still runs of a program: its ranks too."""
    if process.poll() is None:
        for pid in family(process.pid)[::-1]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it ended meanwhile
        process.wait()


def watch(process, metrics, begin, deadline_s):
    """Polls until the process ends. Returns marks [(time, cpu, lines)] and the peak memory."""
    marks, peak = [], 0
    while process.poll() is None:
        if time.perf_counter() - begin > deadline_s:
            raise TurnFailed(f"no end after {deadline_s} s: {' '.join(process.args)}")
        pids = family(process.pid)
        peak = max(peak, *(read_peak_bytes(pid) for pid in pids))
        lines = count_steps(metrics)
        if lines and (not marks or lines > marks[-1][2]):
            cpu_s = sum(read_cpu_seconds(pid) for pid in pids)
            marks.append((time.perf_counter(), cpu_s, lines))
        time.sleep(0.02 if marks else 0.003)
    return marks, peak


def run_turn(command, metrics, log, env=None, deadline_s=900):
    """Runs one program to its end; its output goes to the file `log`."""
    metrics.unlink(missing_ok=True)
    with open(log, "wb") as output:
        begin = time.perf_counter()
        process = subprocess.Popen(command, stdout=output, stderr=output,
                                   env={**os.environ, **(env or {})})
        try:
            marks, peak = watch(process, metrics, begin, deadline_s)
        finally:
            end_family(process)
    if process.returncode != 0:
        tail = log.read_text(errors="replace")[-2000:]
        raise TurnFailed(f"exit {process.returncode}: {' '.join(command)}\n{tail}")
    lines = step_lines(metrics)
    if not lines:
        raise TurnFailed(f"no step in {metrics}: {' '.join(command)}")
    if not marks:  # it ended between two polls
        marks = [(time.perf_counter(), 0.0, len(lines))]
    (first, first_cpu, first_lines), (last, last_cpu, last_lines) = marks[0], marks[-1]
    wall = max(last - first, 1e-9)
    return Turn(losses=[line["loss"] for line in lines],
                steps_ms=[line["step_ms"] for line in lines],
                first_line_s=first - begin, peak_bytes=peak,
                busy_cores=(last_cpu - first_cpu) / wall,
                outside_ms=1000 * wall / max(last_lines - first_lines, 1))
