"""Strangers at every port of a run on two nodes that trains meanwhile; a part of node_faults_interop.py."""

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from common import die_with_parent
from exposure import tcp_listeners
from nodes_interop import call
from sampling import is_full
from stranger_client import ANSWER_BYTES, CHALLENGE_BYTES, KINDS, MAGIC

CLIENT = Path(__file__).with_name("stranger_client.py")
# 10 s for a handshake (src/net/handshake.h), and a second until a port's thread looks; a busy machine has more.
CLOSED_S = 12 if is_full() else 25
MBIT = 16  # node 1's link is slow, which leaves fewer steps for the calm run
AT = 3  # the host of strangers
NEWS = ("started", "recovered", "rank_died", "node_lost")


def faults_of(visits):
    """Connections to one port that did not end as they must: [what, ...]."""
    found = []
    for one in visits:
        got, closed_s = bytes.fromhex(one["got"]), one["closed_s"]
        if closed_s is None:
            found.append(f"{one['kind']}: not closed{one['error'] and ', ' + one['error']}")
        elif closed_s > CLOSED_S:
            found.append(f"{one['kind']}: closed after {closed_s:.1f} s")
        elif len(got) > CHALLENGE_BYTES or not got.startswith(MAGIC[:len(got)]):
            found.append(f"{one['kind']}: got {got.hex()}")
        elif one["is_patient"] and len(got) < CHALLENGE_BYTES:
            found.append(f"{one['kind']}: no challenge, only {len(got)} bytes")
    return found


class Recording:
    """What clients that know the secret send over one link of the switch."""

    def __init__(self, network, device):
        self.process = subprocess.Popen(["ip", "netns", "exec", network.switch, sys.executable, str(CLIENT), "record", device],
                                        stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
        self.process.stdout.readline()  # it has begun

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def end(self):
        self.process.terminate()
        return json.loads(self.process.communicate(timeout=30)[0])


def start_strangers(network, run, endpoints):
    """On a host of their own, where the run's directory is hidden."""
    hidden = f'mount -t tmpfs none "{run.dir}" && [ ! -e "{run.dir}/secret" ] && exec "$@"'
    return subprocess.Popen(["ip", "netns", "exec", network.names[AT], "unshare", "-m", "sh", "-c", hidden, "sh",
                             sys.executable, str(CLIENT), "visit", *endpoints],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent)


def limit_link(network, host):
    """Of what the host sends: strangers' bytes are not in the same queue."""
    call("ip", "netns", "exec", network.names[host], "tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate",
         f"{MBIT}mbit", "burst", "64kb", "latency", "200ms")


def lift_limit(network, host):
    call("ip", "netns", "exec", network.names[host], "tc", "qdisc", "del", "dev", "eth0", "root")


def ports_of(checks, run):
    """Of all processes but the ranks: theirs are Gloo's own, which know no secret."""
    ranks = run.ranks_of(0) + run.ranks_of(1)
    by_process = {pid: tcp_listeners([pid]) for pid in [*run.processes_of(0), *run.processes_of(1), run.agents[2].pid] if pid not in ranks}
    checks.equal(sorted(map(len, by_process.values())), [1, 1, 1, 2],
                 "strangers: the supervisor listens for agents and as the store, every agent for readers of its slots")
    return sorted(f"{address}:{port}" for found in by_process.values() for address, port in found)


def check_visits(checks, ports, visits):
    total = sum(count for _, count, _, _ in KINDS)
    for port in ports:
        mine = [one for one in visits if one["endpoint"] == port]
        checks.equal(len(mine), total, f"strangers: {port}: connections")
        found, seconds = faults_of(mine), [one["closed_s"] or 99 for one in mine]
        checks.that(not found, f"strangers: {port}: all are closed, with nothing but a challenge",
                    f"after {min(seconds):.2f} to {max(seconds):.2f} s" if not found else f"{len(found)} not: {found[:5]}")
        waiting = [one["closed_s"] or 0 for one in mine if one["kind"] == "silent"]
        checks.that(min(waiting) > 5, f"strangers: {port}: it was the time-out that closed silent ones", f"{min(waiting):.1f} s")
    check_controls(checks, visits)


def check_controls(checks, visits):
    """Ports that are not weft's, and must be found."""
    mine = [one for one in visits if one["endpoint"] == "keeps open"]
    checks.equal(len(faults_of(mine)), len(mine), "strangers: a port that closes nothing is found, by every connection")
    mine = [one for one in visits if one["endpoint"] == "lets in" and one["is_patient"]]
    found = Counter(text.split(":")[0] for text in faults_of(mine))
    checks.that(found["a replayed handshake"] == 2 and found["a forged proof"] == 2,
                "strangers: a port that lets everyone in is found", f"{dict(found)}")


def check_strangers(suite, run):
    checks, network = suite.checks, suite.network
    limit_link(network, 1)
    with Recording(network, "p1") as recording:
        run.join(1)
        run.has_steps(3)
        recorded = recording.end()
    run.join(2)
    checks.that(run.has_spares(1), "strangers: there is a spare")
    ports = ports_of(checks, run)
    real = [port for port in ports if not port.startswith("10.213.0.3:")]  # nobody reads slots of a spare
    checks.equal(sorted(set(recorded) & set(ports)), real, "strangers: a handshake was recorded at every port of the nodes")
    checks.that(min(map(len, recorded.values()), default=0) > 2 * ANSWER_BYTES, "strangers: with messages that follow it")
    processes = [*run.processes_of(0), *run.processes_of(1), run.agents[2].pid]
    before, begin = run.steps(), time.monotonic()
    strangers = start_strangers(network, run, ports)
    strangers.stdin.write(json.dumps(recorded))
    strangers.stdin.close()
    run.wait(lambda: time.monotonic() > begin + 2)
    run.join(4)
    checks.that(run.has_spares(2, CLOSED_S), "strangers: who knows the secret is let in meanwhile")
    visits = json.loads(strangers.stdout.read())
    checks.equal(strangers.wait(), 0, "strangers: their exit code")
    check_visits(checks, ports, visits)
    checks.that(before < run.steps() and run.train.poll() is None, "strangers: it has trained meanwhile",
                f"steps {before} to {run.steps()}, {time.monotonic() - begin:.1f} s")
    checks.equal([*run.processes_of(0), *run.processes_of(1), run.agents[2].pid], processes, "strangers: all processes are the same")
    status = suite.weft.json("status", run.dir)
    checks.equal((status["state"], status["restarts"], status["deaths"]), ("running", 0, 0), "strangers: no restart is counted")
    lift_limit(network, 1)
    suite.stops_calm(run, "strangers")
    checks.equal([len(run.events(name)) for name in NEWS], [1, 0, 0, 0], "strangers: a start is all that events.jsonl has")
    checks.that("a connection was refused" in run.text() and "does not know this run's secret" in run.text(),
                "strangers: the supervisor tells of them")
