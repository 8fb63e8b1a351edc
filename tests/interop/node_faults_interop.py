#!/usr/bin/env python3
"""What may go wrong around a run on several nodes; hosts are network namespaces, made here.

    node_faults_interop.py --weft build/weft [--only NAME ...]

A node that is cut off for 30 s and returns: its ranks are dead before others take their place, it
touches no file of the run, and it is the spare that the next loss needs. A node that is cut off until
the run has ended: its agent ends by itself, with 75. Two nodes lost at once, with
spares and without. A network on which everything is 50 ms late, frames are lost and connections
break (slow_wire.py). Ranks that hang, also on other nodes. An agent and the supervisor that stand still. Clocks that differ by hours. No memory for copies of the state. Clients without
the secret at every port, who send nothing, anything, or what they have recorded (strangers.py). Exact mode:
whatever happened, the bits are those of a calm run on one machine.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from common import Weft, die_with_parent, read_metrics, run_program, write_run_file
from kill_interop import children_of, write_model_and_rows
from nodes_interop import JOIN_WAIT_S, Cluster, Network, become_root, call, training_of
from strangers import check_strangers

CUT_S, SILENCE_S, LOST_S = 30, 10, 12
HOURS = 3600
CONSTANT = "train.schedule=constant"
ENDLESS = ("--set", "train.steps=100000", "--set", CONSTANT)  # stopped by the test, when it has seen enough
WIRE = Path(__file__).with_name("slow_wire.py")
CLOCK_SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
static time_t offset(void) { const char* s = getenv("CLOCK_OFFSET_S"); return s ? atol(s) : 0; }
int clock_gettime(clockid_t id, struct timespec* t) {
  int (*next)(clockid_t, struct timespec*) = dlsym(RTLD_NEXT, "clock_gettime");
  int code = next(id, t);
  if (code == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) t->tv_sec += offset();
  return code;
}
int gettimeofday(struct timeval* t, void* zone) {
  struct timespec now;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
  t->tv_sec = now.tv_sec, t->tv_usec = now.tv_nsec / 1000;
  return 0;
}
time_t time(time_t* out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
"""


def write_inputs(folder):
    write_model_and_rows(folder)
    base = {"name": "run", "model": {"path": str(folder / "model"), "init": "random"},
            "data": {"train": [str(folder / "rows.txt")], "tokenizer": "bytes", "seq_length": 32},
            "train": {"steps": 40, "global_batch": 8, "micro_batch": 2},
            "checkpoint": {"every": 5, "keep": 2}, "launch": {"threads": 1, "max_restarts": -1}}
    layouts = {"mesh": {"dp": 2, "tp": 2, "mode": "exact"},
               "wide": {"dp": 4, "shard": "zero3", "mode": "exact"}}
    return {name: write_run_file(folder / f"{name}.yaml", {**base, "parallel": layout})
            for name, layout in layouts.items()}


class Nodes(Cluster):
    """A run on any number of nodes, with a prefix for the command of the first."""

    def __init__(self, suite, name, layout, nodes, *words, prefix=()):
        self.weft, self.network, self.folder = suite.weft, suite.network, suite.folder
        self.dir, self.log = self.folder / name, self.folder / f"{name}.log"
        self.agents, self.begin = {}, time.monotonic()
        place = [] if "--run-dir" in words else ["--run-dir", self.dir]
        self.command = [*prefix, self.weft.path, "train", suite.files[layout], *place, "--nodes", nodes,
                        "--set", "launch.interface=eth0", "--set", "launch.port=4711", *words]
        self.train = self.network.start(0, self.log, *self.command)

    def join_all(self, hosts):
        for host in hosts:
            self.join(host)

    def has_spares(self, count, seconds=60):
        return self.wait(lambda: self.text().count("joined as a spare") >= count, seconds)

    def stop(self):
        """SIGTERM, after which all save and end; the exit codes."""
        self.train.send_signal(signal.SIGTERM)
        return self.end()


def state_of(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return ""


def is_alive(pid):
    return state_of(pid) not in ("", "Z")


def processes_below(pid):
    return [pid] + [p for child in children_of(pid) for p in processes_below(child)]


def open_files(pid, folder):
    """Files of the folder that a process has open for writing."""
    found = []
    for entry in Path(f"/proc/{pid}/fd").glob("*"):
        try:
            path = os.readlink(entry)
            flags = int(re.search(r"flags:\s*(\d+)", Path(f"/proc/{pid}/fdinfo/{entry.name}").read_text())[1], 8)
        except (OSError, TypeError):
            continue
        if path.startswith(f"{folder}/") and flags & os.O_ACCMODE != os.O_RDONLY:
            found.append(path)
    return found


class Suite:
    def __init__(self, weft, checks, network, folder):
        self.weft, self.checks, self.network, self.folder = weft, checks, network, folder
        self.files, self.calm = write_inputs(folder), {}

    def run_calm(self, layout, steps, *words):
        if (layout, steps, *words) not in self.calm:
            place = self.folder / "-".join(["calm", layout, str(steps), *words])
            self.weft.train(self.files[layout], place, "--set", f"train.steps={steps}", *words)
            self.calm[layout, steps, *words] = training_of(self.weft, place)
        return self.calm[layout, steps, *words]

    def ends_calm(self, run, what, layout="mesh", steps=40, *words):
        """The run and all agents that are left end well, with the bits of a calm run."""
        got = run.end()
        wanted = (0, {host: 0 for host in run.agents})
        if self.checks.that(got == wanted, f"{what}: exit codes",
                            "" if got == wanted else f"{got}\n{run.text()[-2000:]}"):
            self.checks.that(training_of(self.weft, run.dir) == self.run_calm(layout, steps, *words),
                             f"{what}: the bits of a calm run")

    def stops_calm(self, run, what, layout="mesh"):
        """After some more steps all save and end, with the bits of a calm run that ends there."""
        before = run.steps()
        run.wait(lambda: run.steps() > before + 4)
        got = run.stop()
        wanted = (143, {host: 143 for host in run.agents})
        if self.checks.that(got == wanted, f"{what}: exit codes of a stop",
                            "" if got == wanted else f"{got}\n{run.text()[-2000:]}"):
            calm = self.folder / f"{run.dir.name}-calm"
            self.weft.train(self.files[layout], calm, "--set", f"train.steps={run.steps()}", "--set", CONSTANT)
            found = [(self.weft.call("hash", place), [(line["step"], line["loss"], line["grad_norm"]) for line in read_metrics(place)[0]])
                     for place in (run.dir, calm)]
            self.checks.that(found[0] == found[1], f"{what}: the bits of a calm run", f"{run.steps()} steps")

    def limit(self, host, mbit):
        call("tc", "-n", self.network.switch, "qdisc", "replace", "dev", f"p{host}", "root", "tbf", "rate",
             f"{mbit}mbit", "burst", "64kb", "latency", "200ms")

    def lift_limit(self, host):
        call("tc", "-n", self.network.switch, "qdisc", "del", "dev", f"p{host}", "root")

    def returns(self):
        """Node 1 is cut off for 30 s; host 2 takes over; its link is slow, which leaves fewer steps for the calm run."""
        checks = self.checks
        self.limit(2, 16)
        with Nodes(self, "returns", "mesh", 2, *ENDLESS) as run:
            run.join(1)
            run.has_steps(6)
            run.join(2)
            run.has_spares(1)
            ranks = run.ranks_of(1)
            checks.equal(len(ranks), 2, "returns: node 1 has its ranks")
            self.network.set_link(1, False)
            cut = time.monotonic()
            died = replaced = None
            while replaced is None and time.monotonic() < cut + CUT_S:
                new = run.ranks_of(2)
                if died is None and not any(map(is_alive, ranks)):
                    died = time.monotonic()
                if new:
                    replaced = time.monotonic()
            checks.that(died and replaced and died <= replaced, "returns: its ranks are dead before others start",
                        f"{(died or 0) - cut:.1f} s, {(replaced or 0) - cut:.1f} s after the cut")
            touched = set()
            while time.monotonic() < cut + CUT_S:
                touched |= {f for pid in processes_below(run.agents[1].pid) for f in open_files(pid, run.dir)}
                time.sleep(0.05)
            checks.equal(sorted(touched), [], "returns: a node that is cut off has no file of the run open")
            checks.that(run.train.poll() is None, "returns: the run goes on", f"step {run.steps()}")
            self.network.set_link(1, True)
            checks.that(run.has_spares(2, 30), "returns: the node is a spare",
                        f"{time.monotonic() - cut - CUT_S:.1f} s after the link was up")
            before = run.steps()
            run.wait(lambda: run.steps() > before + 2)
            lost = run.agents.pop(2)
            lost.kill()
            lost.wait()
            checks.that(run.wait(lambda: run.ranks_of(1)), "returns: the next loss is its turn")
            self.stops_calm(run, "returns")
            checks.equal(len(run.events("node_lost")), 2, "returns: both losses are in events.jsonl")
        self.lift_limit(2)

    def stays_cut(self):
        """Node 1 is cut off and does not return: a spare brings the run to its end, the agent gives up."""
        checks, what, steps = self.checks, "cut off for good", 400
        with Nodes(self, "cut", "mesh", 2, "--set", f"train.steps={steps}") as run:
            agent = run.join(1)
            run.has_steps(6)
            run.join(2)
            checks.that(run.has_spares(1), f"{what}: there is a spare")
            before = self.network.processes_of(1)
            checks.equal(len(before), 3, f"{what}: node 1 has an agent and two ranks")
            self.network.set_link(1, False)
            cut = time.monotonic()
            del run.agents[1]
            try:
                self.ends_calm(run, what, "mesh", steps)
                checks.equal(len(run.events("node_lost")), 1, f"{what}: the loss is in events.jsonl")
                checks.equal(len(run.events("started")), 1, f"{what}: storage was not read")
                checks.that(agent.poll() is None, f"{what}: the agent still waits when the run has ended")
                checks.equal(agent.wait(2 * (SILENCE_S + JOIN_WAIT_S)), 75, f"{what}: the agent's exit code")
                text = run.agent_log(1).read_text(errors="replace")
                checks.that(f"cannot be reached within {JOIN_WAIT_S} s" in text, f"{what}: what the agent says",
                            f"{time.monotonic() - cut:.0f} s after the cut: {text.strip()[-300:]}")
                checks.equal((self.network.processes_of(1), [pid for pid in before if is_alive(pid)]), ([], []),
                             f"{what}: no process is left on the node")
            finally:
                self.network.set_link(1, True)
                agent.kill()
                agent.wait()

    def two_lost(self):
        """Nodes 1 and 2 of four are cut off in the same moment; hosts 4 and 5 are spares."""
        with Nodes(self, "two", "wide", 4, *ENDLESS) as run:
            run.join_all([1, 2, 3])
            run.has_steps(6)
            run.join_all([4, 5])
            self.checks.that(run.has_spares(2), "two nodes at once: two spares")
            begin = time.monotonic()
            for host in (1, 2):
                self.network.set_link(host, False)
            self.checks.that(run.wait(lambda: len(run.ranks_of(4)) + len(run.ranks_of(5)) == 2, LOST_S + 10),
                             "two nodes at once: both are replaced", f"{time.monotonic() - begin:.1f} s")
            for host in (1, 2):
                self.network.set_link(host, True)
            run.has_spares(4)
            self.stops_calm(run, "two nodes at once", "wide")
            self.checks.equal(len(run.events("node_lost")), 2, "two nodes at once: both are in events.jsonl")
            restarts = len(run.events("started")) + len(run.events("recovered"))
            self.checks.that(restarts <= 3, "two nodes at once: one or two restarts", f"{restarts - 1}")

    @staticmethod
    def host_of(run, node):
        return int(re.search(rf"node {node} is \S+ \(10\.213\.0\.(\d+):", run.text())[1]) - 1

    def two_apart(self):
        """Nodes 1 and 3 of four, whose slots nodes 2 and 0 keep: both come back from memory."""
        with Nodes(self, "apart", "wide", 4, *ENDLESS) as run:
            run.join_all([1, 2, 3])
            run.has_steps(6)
            run.join_all([4, 5])
            self.checks.that(run.has_spares(2), "two nodes apart: two spares")
            hosts = [self.host_of(run, node) for node in (1, 3)]  # agents are numbered as they come
            for host in hosts:
                run.agents[host].kill()
            for host in hosts:
                run.agents.pop(host).wait()
            run.wait(lambda: len(run.events("node_lost")) == 2)
            self.stops_calm(run, "two nodes apart", "wide")
            self.checks.equal(len(run.events("node_lost")), 2, "two nodes apart: both are in events.jsonl")
            self.checks.equal(len(run.events("started")), 1, "two nodes apart: storage was not read")

    def two_lost_alone(self):
        """The same by kill -9 and without spares: 75, and what to do."""
        with Nodes(self, "alone", "wide", 4, "--set", "train.steps=100000", "--set", "launch.join_timeout_s=10") as run:
            run.join_all([1, 2, 3])
            run.has_steps(6)
            for host in (1, 2):
                run.agents[host].kill()
            for host in (1, 2):
                run.agents.pop(host).wait()
            self.checks.equal(run.end(), (75, {3: 75}), "two nodes lost, no spare: exit codes")
            text = run.text()
            error = text[text.rfind("error: "):]
            cause, advice = error.find("was lost"), error.find("weft agent --join 10.213.0.1:4711")
            self.checks.that(0 <= cause < advice, "two nodes lost, no spare: the cause first, then what to do", error)
            self.checks.that("resumes from the newest checkpoint" in text, "two nodes lost, no spare: how it continues")

    def hung(self):
        """A rank of another node, then all ranks of both, stopped by SIGSTOP: found, shown with a stack, replaced."""
        cases = [("a rank that hangs", [1], "auto"), ("all ranks hang", [0, 1], "auto"),
                 ("a rank that hangs, no snapshots", [1], 0), ("all ranks hang, no snapshots", [0, 1], 0)]
        for what, hosts, every in cases:
            name = what.replace(" ", "-").replace(",", "")
            with Nodes(self, name, "mesh", 2, *ENDLESS, "--set", "launch.hang_timeout_s=4",
                       "--set", f"launch.snapshot_every={every}") as run:
                run.join(1)
                run.has_steps(12)
                ranks = {number: pid for host in hosts for number, pid in enumerate(run.ranks_of(host), 2 * host)}
                stopped = [2] if hosts == [1] else sorted(ranks)
                begin = time.monotonic()
                for number in stopped:
                    os.kill(ranks[number], signal.SIGSTOP)
                self.checks.that(run.wait(lambda: run.events("rank_hung"), 40), f"{what}: found",
                                 f"{time.monotonic() - begin:.1f} s")
                self.stops_calm(run, what)
                hung = {event["rank"]: event for event in run.events("rank_hung")}
                self.checks.equal(sorted(hung), stopped, f"{what}: who, in events.jsonl")
                logs = {number: (run.dir / f"log/rank-{number:05}.log").read_text() for number in stopped}
                for number in stopped:
                    event = hung.get(number, {"stack": "", "last": ""})
                    good = all("thread " in text and "weft::" in text for text in (logs[number], event["stack"]))
                    self.checks.that(good and "; last collective: " in event["last"],
                                     f"{what}: what rank {number} did, and its stack",
                                     event["last"] if good else logs[number][-800:])

    def standing_still(self):
        """SIGSTOP of an agent: its ranks end before a spare has its place. Of the supervisor: ranks wait for it."""
        checks = self.checks
        with Nodes(self, "still", "mesh", 2, "--set", "train.steps=1000000", "--set", "launch.hang_timeout_s=60") as run:
            run.join(1)
            run.has_steps(6)
            ranks = run.ranks_of(0) + run.ranks_of(1)
            run.train.send_signal(signal.SIGSTOP)
            time.sleep(LOST_S + 4)
            before = run.steps()
            checks.equal({state_of(rank) for rank in ranks}, {"T"}, "the supervisor stands still: ranks wait")
            run.train.send_signal(signal.SIGCONT)
            checks.that(run.wait(lambda: run.steps() > before + 2), "the supervisor runs again: they go on")
            checks.equal(run.ranks_of(0) + run.ranks_of(1), ranks, "with the same processes")
            checks.equal((run.events("node_lost"), run.events("rank_died")), ([], []), "and nobody was lost")
            run.join(2)
            run.has_spares(1)
            old = run.ranks_of(1)
            run.agents[1].send_signal(signal.SIGSTOP)
            begin = time.monotonic()
            run.wait(lambda: run.ranks_of(2), 2 * LOST_S)
            checks.that(not any(map(is_alive, old)), "an agent stands still: its ranks end before others start",
                        f"{time.monotonic() - begin:.1f} s")
            checks.that(run.wait(lambda: run.events("node_lost")), "an agent stands still: its node is lost")
            run.agents[1].send_signal(signal.SIGCONT)
            checks.that(run.has_spares(2), "an agent that runs again is a spare")
            checks.equal(run.stop(), (143, {1: 143, 2: 143}), "processes that stand still: exit codes of a stop")

    def slow_network(self):
        """Everything between node 1 and the others is late; now and then a connection breaks."""
        network, count = self.network, self.folder / "wire.json"
        steps = 20
        self.insert_wire(1)
        wire = subprocess.Popen(["ip", "netns", "exec", network.switch, sys.executable, str(WIRE), "p1", "w1",
                                 "--delay-ms", "50", "--loss", "0.002", "--reset-every", "18", "--seed", "3",
                                 "--count", str(count)], preexec_fn=die_with_parent)
        try:
            begin = time.monotonic()
            with Nodes(self, "slow", "mesh", 2, "--set", f"train.steps={steps}", "--set", "checkpoint.every=2",
                       "--set", "launch.join_timeout_s=60") as run:
                run.join(1)
                run.wait(lambda: False, 240)  # until it ends
                self.ends_calm(run, "a slow, lossy network", steps=steps)
                starts = len(run.events("started")) + len(run.events("recovered"))
            seconds = time.monotonic() - begin
        finally:
            wire.terminate()
            wire.wait()
            self.remove_wire(1)
        counts = json.loads(count.read_text())
        # A reset ends a connection of Gloo's, and a generation with it, or one of an agent, which connects again.
        self.checks.that(counts["resets"] > 0 and counts["lost"] > 0,
                         "a slow, lossy network: there were faults", f"{counts}, {starts - 1} restarts, {seconds:.0f} s")

    def insert_wire(self, host):
        switch = self.network.switch
        call("ip", "-n", switch, "link", "add", "w0", "type", "veth", "peer", "name", "w1")
        for words in (["w0", "master", "br0", "up"], ["w1", "up"], [f"p{host}", "nomaster"]):
            call("ip", "-n", switch, "link", "set", *words)
        # Whole frames also from the hosts' cards.
        for name in (switch, *self.network.names):
            device = "w0" if name == switch else "eth0"
            call("ip", "netns", "exec", name, sys.executable, WIRE, device)

    def remove_wire(self, host):
        call("ip", "-n", self.network.switch, "link", "del", "w0")
        call("ip", "-n", self.network.switch, "link", "set", f"p{host}", "master", "br0")

    def clocks(self):
        """The supervisor's clock is 7 hours slow, node 1's 5 hours fast, and it has been up for a year more."""
        shim = self.folder / "clock.so"
        (self.folder / "clock.c").write_text(CLOCK_SHIM)
        call("gcc", "-shared", "-fPIC", "-O1", "-o", shim, self.folder / "clock.c", "-ldl")
        slow = ["env", f"LD_PRELOAD={shim}", f"CLOCK_OFFSET_S={-7 * HOURS}"]
        year = 365 * 24 * HOURS
        fast = ["unshare", "--time", "--monotonic", year, "--boottime", year, "--fork", "--kill-child",
                "env", f"LD_PRELOAD={shim}", f"CLOCK_OFFSET_S={5 * HOURS}"]
        show = [sys.executable, "-c", "import time; print(time.time(), time.monotonic())"]
        shown = [[float(word) for word in subprocess.run([str(w) for w in [*prefix, *show]], check=True, text=True,
                                                         capture_output=True).stdout.split()]
                 for prefix in (slow, fast)]
        self.checks.that(shown[1][0] - shown[0][0] > 11.9 * HOURS and shown[1][1] - shown[0][1] > 0.9 * year,
                         "clocks: they differ", f"{shown}")
        with Nodes(self, "clocks", "mesh", 2, *ENDLESS, prefix=slow) as run:
            run.join(1, *fast)
            run.has_steps(12)
            first = [pid for pid in run.ranks_of(0) if is_alive(pid)]
            if self.checks.equal(len(first), 2, "clocks: node 0 has its ranks"):
                os.kill(first[1], signal.SIGKILL)
            run.wait(lambda: run.events("rank_died"))
            self.stops_calm(run, "clocks that differ by 12 hours, and a killed rank")

    def no_memory(self):
        """A machine with memory for the ranks but not for copies of their state: said, and it goes on."""
        plan = self.weft.json("plan", self.files["mesh"])
        kib = (plan["resident_total"] - plan["host"]["code"] + plan["snapshot"]) >> 10
        meminfo = self.folder / "meminfo"
        meminfo.write_text(re.sub(r"(MemAvailable:\s*)\d+", rf"\g<1>{kib}", Path("/proc/meminfo").read_text()))
        command = ["unshare", "-m", "sh", "-c", f'mount --bind "{meminfo}" /proc/meminfo && exec "$@"', "sh",
                   self.weft.path, "train", self.files["mesh"], "--run-dir", self.folder / "poor", "--set",
                   "train.steps=200"]
        log = self.folder / "poor.log"
        with open(log, "wb") as out, subprocess.Popen([str(w) for w in command], stdin=subprocess.DEVNULL, stdout=out,
                                                      stderr=out, preexec_fn=die_with_parent) as run:
            metrics = self.folder / "poor" / "metrics.jsonl"
            end = time.monotonic() + 60
            while time.monotonic() < end and run.poll() is None:
                if metrics.exists() and metrics.read_bytes().count(b'"step_ms"') > 12:
                    break
                time.sleep(0.01)
            ranks = children_of(run.pid)
            if self.checks.equal(len(ranks), 4, "no memory for copies: it trains"):
                os.kill(ranks[2], signal.SIGKILL)
            self.checks.equal(run.wait(120), 0, "no memory for copies: exit code after a killed rank")
        text = log.read_text(errors="replace")
        said = re.search(r"warning: a run continues after the death of a rank from copies.*checkpoint", text)
        self.checks.that(said, "no memory for copies: said at the start", said[0] if said else text[:800])
        self.checks.that("continuing from the newest checkpoint" in text, "no memory for copies: it goes on from the checkpoint")
        self.checks.that(training_of(self.weft, self.folder / "poor") == self.run_calm("mesh", 200),
                         "no memory for copies: the bits of a calm run")

    def strangers(self):
        with Nodes(self, "strangers", "mesh", 2, *ENDLESS) as run:
            check_strangers(self, run)


def body(args, checks, folder):
    with Network(6) as network:
        suite = Suite(Weft(args.weft), checks, network, folder)
        parts = [suite.two_apart, suite.two_lost_alone, suite.no_memory, suite.clocks, suite.hung, suite.strangers, suite.slow_network,
                 suite.standing_still, suite.two_lost, suite.stays_cut, suite.returns]
        if args.only:
            parts = [part for part in parts if part.__name__ in args.only]
        else:
            long = ["slow_network", "standing_still", "two_lost", "stays_cut", "returns"]
            short = [part.__name__ for part in parts if part.__name__ not in long]
            names = checks.sample(short, 2) + checks.sample(long, 4)
            parts = [part for part in parts if part.__name__ in names]
        for part in parts:
            begin = time.monotonic()
            part()
            print(f"{part.__name__}: {time.monotonic() - begin:.1f} s", flush=True)


if __name__ == "__main__":
    become_root()
    run_program(__doc__, body, lambda p: p.add_argument("--only", nargs="*"), in_memory=True)
