#!/usr/bin/env python3
"""Runs on several nodes: hosts are network namespaces on one bridge, made here.

    nodes_interop.py --weft build/weft

Two nodes of two ranks train the bits that four ranks of one machine train, in exact mode, with
shared memory and Gloo in one group (dp 4 zero3) and in two (dp 2 x tp 2). kill -9 of ranks of either
node at random times, some while others are being replaced: all go on from memory within 2 s (median 1 s; from the
kill to the first completed step, less one median step), with the bits, metrics and checkpoints of a calm run. kill -9 of an
agent and of the first node's agent (a spare or its next one takes the place, from the partner's memory), of the supervisor; a link that goes down
and comes back; SIGTERM at the supervisor and at an agent; a wrong secret, a missing node, storage
that is not shared, other rows on the second node, a port that is taken; 200 agents at once. The secret is in no command line, environment, log or further
file; processes listen on the address of launch.interface alone, those of a run on one machine on 127.0.0.1 alone; no process, shared memory or socket is left.
"""

import datetime
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time

from common import Weft, die_with_parent, events_of, read_metrics, run_program, write_run_file
from exposed_nodes import check_exposed
from exposure import Sockets
from kill_interop import children_of, left_behind, shared_maps
from sampling import ROOT, is_full
from survive_interop import hashes, intervals_of, num_lines, without_times

DEADLINE_S = 60
FIRST_STEP_S = 2.5
JOIN_WAIT_S = 30  # of agents, for the supervisor
CROWD, CROWD_S = 200, 5.0 if is_full() else 15.0  # most of it is the start of 200 processes on two cores
TRIAL_STEPS = 8  # between snapshots, at most, while `auto` looks for its number
MOST_S, MEDIAN_S = 2.0, 1.0  # of a recovery


def call(*words):
    subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True)


class Network:
    """`count` hosts with the addresses 10.213.0.1, .2 ..., all on one bridge."""

    def __init__(self, count):
        self.names = [f"weft{os.getpid()}n{i}" for i in range(count)]
        self.switch = f"weft{os.getpid()}sw"

    def __enter__(self):
        call("ip", "netns", "add", self.switch)
        call("ip", "-n", self.switch, "link", "add", "br0", "type", "bridge")
        call("ip", "-n", self.switch, "link", "set", "br0", "up")
        for i, name in enumerate(self.names):
            call("ip", "netns", "add", name)
            call("ip", "link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", f"p{i}",
                 "netns", self.switch)
            call("ip", "-n", self.switch, "link", "set", f"p{i}", "master", "br0", "up")
            call("ip", "-n", name, "addr", "add", f"10.213.0.{i + 1}/24", "dev", "eth0")
            call("ip", "-n", name, "link", "set", "eth0", "up")
            call("ip", "-n", name, "link", "set", "lo", "up")
        return self

    def __exit__(self, *_):
        for name in [*self.names, self.switch]:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def set_link(self, host, up):
        call("ip", "-n", self.switch, "link", "set", f"p{host}", "up" if up else "down")

    def processes_of(self, host):
        done = subprocess.run(["ip", "netns", "pids", self.names[host]], check=True, capture_output=True, text=True)
        return [int(pid) for pid in done.stdout.split()]

    def start(self, host, log, *words):
        """A process on that host, which dies with us; its output is in `log`."""
        command = ["ip", "netns", "exec", self.names[host], *(str(word) for word in words)]
        with open(log, "ab") as out:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                    preexec_fn=die_with_parent)


class Cluster:
    """A run on the first nodes of the network; agents may be started and ended."""

    nodes = 2

    def __init__(self, weft, network, folder, file, name, *words):
        self.weft, self.network, self.folder, self.dir = weft, network, folder, folder / name
        self.log = folder / f"{name}.log"
        self.agents, self.begin = {}, time.monotonic()
        self.command = [weft.path, "train", file, "--run-dir", self.dir, "--nodes", self.nodes,
                        "--set", "launch.interface=eth0", "--set", "launch.port=4711", *words]
        self.train = network.start(0, self.log, *self.command)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in [self.train, *self.agents.values()]:
            if process.poll() is None:
                process.kill()
            process.wait()

    def agent_log(self, host):
        return self.folder / f"{self.dir.name}-agent{host}.log"

    def join(self, host, *prefix, secret=None):
        secret = secret or self.dir / "secret"
        self.wait(secret.exists)
        self.agents[host] = self.network.start(host, self.agent_log(host), *prefix, self.weft.path,
                                               "agent", "--join", "10.213.0.1:4711",
                                               "--secret-file", secret, "--wait", JOIN_WAIT_S)
        return self.agents[host]

    def wait(self, holds, seconds=DEADLINE_S):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if holds():
                return True
            if self.train.poll() is not None:
                return bool(holds())
            time.sleep(0.005)
        return False

    def text(self):
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def says(self, words, seconds=DEADLINE_S):
        return self.wait(lambda: words in self.text(), seconds)

    def steps(self):
        try:
            return (self.dir / "metrics.jsonl").read_bytes().count(b'"step_ms"')
        except OSError:
            return 0

    def has_steps(self, count):
        return self.wait(lambda: self.steps() >= count)

    def events(self, name):
        return events_of(self.dir, name)

    def ranks_of(self, host):
        if host == 0:
            return [rank for agent in children_of(self.train.pid) for rank in children_of(agent)]
        return children_of(self.agents[host].pid)

    def processes_of(self, host):
        above = [self.train.pid, *children_of(self.train.pid)] if host == 0 else [self.agents[host].pid]
        return above + self.ranks_of(host)

    def end(self):
        """Exit codes: of the run, and of every agent that was not killed."""
        code = self.train.wait(2 * DEADLINE_S)
        return code, {host: agent.wait(15) for host, agent in self.agents.items()}


def write_inputs(folder, weft):
    weft.call("corpus", folder / "data", "--seed", 1, "--train", 800, "--test", 20)
    base = {"name": "run",
            "model": {"path": str(ROOT / "examples/quickstart/model"), "init": "random"},
            "data": {"train": [str(folder / "data/train.jsonl")], "source": "{question}\n",
                     "target": "{sql}", "tokenizer": "bytes", "seq_length": 96},
            "train": {"steps": 24, "global_batch": 8, "micro_batch": 2, "lr": 1e-3},
            "checkpoint": {"every": 6, "keep": 100}, "launch": {"threads": 1}}
    layouts = {"mesh": {"dp": 2, "tp": 2, "mode": "exact"},
               "zero3": {"dp": 4, "shard": "zero3", "mode": "exact"},
               "spread": {"dp": 4, "shard": "none", "mode": "fast"}}
    return {name: write_run_file(folder / f"{name}.yaml", {**base, "parallel": layout})
            for name, layout in layouts.items()}


def training_of(weft, run_dir):
    """What a run has computed: the weights' hashes, and losses and norms of every step."""
    steps = [(line["step"], line["loss"], line["grad_norm"]) for line in read_metrics(run_dir)[0]]
    return weft.call("hash", run_dir / "final"), weft.call("hash", run_dir), steps


class Suite:
    def __init__(self, weft, checks, network, folder, files, seed):
        self.weft, self.checks, self.network, self.seed = weft, checks, network, seed
        self.folder, self.files, self.calm = folder, files, {}

    def cluster(self, name, layout="mesh", *words):
        return Cluster(self.weft, self.network, self.folder, self.files[layout], name, *words)

    def run_calm(self):
        for layout, file in self.files.items():
            self.weft.train(file, self.folder / f"calm-{layout}")
            self.calm[layout] = training_of(self.weft, self.folder / f"calm-{layout}")

    def is_calm(self, run, what, layout="mesh", codes=(0, {1: 0})):
        got = run.end()
        self.checks.that(got == codes, f"{what}: exit codes",
                         "" if got == codes else f"{got}, not {codes}\n{run.text()[-2000:]}")
        if got[0] == 0:
            self.checks.that(training_of(self.weft, run.dir) == self.calm[layout],
                             f"{what}: the bits of four ranks on one machine")

    def equal_bits(self):
        for layout in self.files:
            with self.cluster(f"equal-{layout}", layout) as run:
                run.join(1)  # as soon as the run's secret is there
                run.has_steps(1)
                seconds = time.monotonic() - run.begin
                self.checks.that(seconds < FIRST_STEP_S, f"{layout}: first step of 2 x 2 ranks",
                                 f"{seconds:.2f} s after the start of the run, wanted {FIRST_STEP_S}")
                self.is_calm(run, f"{layout} on two nodes", layout)
                self.checks.that(not (run.dir / ".nodes").exists(), "the marker is removed")
                mode = (run.dir / "secret").stat().st_mode & 0o777
                self.checks.equal(oct(mode), oct(0o600), "the secret's mode")

    def exposed(self):
        check_exposed(self)

    def killed_ranks(self):
        dice = random.Random(self.seed)
        for layout in ("mesh", "zero3", "spread"):
            self.kill_ranks_of(layout, 34 if is_full() else 4, dice)

    def kill_ranks_of(self, layout, moments, dice):
        words = ["--set", f"train.steps={24 + 8 * moments}", "--set", "checkpoint.every=15",
                 "--set", "launch.max_restarts=-1"]
        calm = self.folder / f"calm-{layout}-kills"
        self.weft.train(self.files[layout], calm, *words)
        step_s = statistics.median(line["step_ms"] for line in read_metrics(calm)[0]) / 1000
        times, maps, sockets, what = [], {}, Sockets(), f"{layout}, kill -9 of ranks"
        with self.cluster(f"killed-{layout}", layout, *words) as run:
            run.join(1)
            run.has_steps(2)
            while len(times) < moments:
                time.sleep(dice.uniform(0, 0.8))
                maps.update(shared_maps(run.ranks_of(0) + run.ranks_of(1), run.dir))
                sockets.look(run.processes_of(0) + run.processes_of(1))
                took_s = self.kill_one(run, dice, is_twice=len(times) % 4 == 3)
                if took_s is None:
                    break
                times.append(max(0.0, took_s - step_s))
            self.checks.equal(run.end(), (0, {1: 0}), f"{what}: exit codes")
            wanted = moments if is_full() else moments // 2  # beside another program a run may end before the last of them
            self.checks.that(len(times) >= wanted, f"{what}: enough of them", f"{len(times)}")
            self.checks.equal(len(run.events("started")), 1, f"{what}: storage was not read")
            self.checks.equal(without_times(run.dir), without_times(calm), f"{what}: metrics.jsonl")
            self.checks.equal(hashes(self.weft, run.dir), hashes(self.weft, calm),
                              f"{what}: model and checkpoints")
            lost = [event["lost_steps"] for event in run.events("recovered")]
            every = intervals_of(run.text(), run.events("recovered"), TRIAL_STEPS)
            if self.checks.equal(len(every), len(lost), f"{what}: each recovery was printed"):
                pairs = sorted(set(zip(lost, every)))
                self.checks.that(all(steps <= most for steps, most in pairs), f"{what}: at most as many steps repeated as are between snapshots",
                                 f"(repeated, between snapshots): {pairs}")
            self.checks.that(len(sockets.seen) > 0, f"{what}: {len(sockets.seen)} sockets were seen")
            self.checks.equal(left_behind(self.files[layout], maps, self.folder, sockets), [],
                              f"{what}: nothing is left")
        took = sorted(times) or [99.0]
        self.checks.that(statistics.median(took) < MEDIAN_S and took[-1] < MOST_S,
                         f"{what}: {len(times)} times", f"to the next step less one ({step_s:.2f} s): "
                         f"median {statistics.median(took):.2f} s, most {took[-1]:.2f} s")

    def kill_one(self, run, dice, is_twice):
        """Kills a random rank of a random node, and perhaps another while the first is being replaced;
        the seconds from the last kill until a step is complete again, or None at the run's end."""
        before = len(run.events("recovered"))
        ranks = run.ranks_of(dice.randrange(2))
        if run.train.poll() is not None or not ranks:
            return None
        os.kill(dice.choice(ranks), signal.SIGKILL)
        begin = time.monotonic()
        if is_twice:
            time.sleep(dice.uniform(0, 0.3))
            before = len(run.events("recovered"))
            ranks = run.ranks_of(dice.randrange(2))
            if ranks:
                os.kill(dice.choice(ranks), signal.SIGKILL)
                begin = time.monotonic()
        if not run.wait(lambda: len(run.events("recovered")) > before):
            return None
        lines = num_lines(run.dir)
        return time.monotonic() - begin if run.wait(lambda: num_lines(run.dir) > lines) else None

    def killed_agents(self):
        """Whose slots the next node keeps: nothing is read from storage, and the others keep their processes."""
        for layout in ("mesh", "zero3", "spread"):
            self.kill_agents_of(layout)

    def kill_agents_of(self, layout):
        what = f"{layout}, kill -9 of agents"
        with self.cluster(f"agents-{layout}", layout, "--set", "train.steps=60") as run:
            run.join(1)
            run.has_steps(3)
            run.join(2)
            self.checks.that(run.says("joined as a spare"), f"{what}: a third agent is a spare")
            run.has_steps(8)
            kept = run.ranks_of(0)
            lost = run.agents.pop(1)
            ranks = children_of(lost.pid)
            begin = time.monotonic()
            lost.kill()
            lost.wait()
            run.wait(lambda: len(run.events("recovered")) == 1)
            lines = num_lines(run.dir)
            run.wait(lambda: num_lines(run.dir) > lines)
            print(f"{what}: a spare's first step after {time.monotonic() - begin:.2f} s")
            self.checks.equal(run.ranks_of(0), kept, f"{what}: the other node's processes stay")
            gone = run.wait(lambda: not any(os.path.exists(f"/proc/{r}") for r in ranks))
            self.checks.that(gone, f"{what}: the ranks of a killed agent are gone")
            run.has_steps(20)
            first = children_of(run.train.pid)
            if self.checks.equal(len(first), 1, f"{what}: the supervisor has one child"):
                os.kill(first[0], signal.SIGKILL)
            self.checks.equal(run.end(), (0, {2: 0}), f"{what}: exit codes")
            self.checks.equal(len(run.events("node_lost")), 2, f"{what}: both losses are in events.jsonl")
            self.checks.equal(len(run.events("recovered")), 2, f"{what}: both are recovered from")
            self.checks.equal(len(run.events("started")), 1, f"{what}: storage was not read")
            calm = self.folder / f"calm-{layout}-agents"
            self.weft.train(self.files[layout], calm, "--set", "train.steps=60")
            self.checks.equal(hashes(self.weft, run.dir), hashes(self.weft, calm),
                              f"{what}: model and checkpoints")
            self.checks.equal(without_times(run.dir), without_times(calm), f"{what}: metrics.jsonl")

    def cut_off(self):
        with self.cluster("cut", "mesh", "--set", "train.steps=400",
                          "--set", "checkpoint.every=5") as run:
            run.join(1)
            run.has_steps(6)
            run.join(2)
            run.says("joined as a spare")
            ranks = run.ranks_of(1)
            self.network.set_link(1, False)
            begin = time.monotonic()
            gone = run.wait(lambda: not any(os.path.exists(f"/proc/{r}") for r in ranks), 30)
            self.checks.that(gone, "a node that is cut off ends its ranks",
                             f"{time.monotonic() - begin:.1f} s")
            self.checks.that(run.wait(lambda: run.events("node_lost"), 30), "a spare takes over",
                             f"{time.monotonic() - begin:.1f} s")
            self.network.set_link(1, True)
            self.checks.that(run.wait(lambda: run.text().count("joined as a spare") > 1, 30),
                             "the node comes back as a spare")
            run.train.send_signal(signal.SIGTERM)
            self.checks.equal(run.end(), (143, {1: 143, 2: 143}), "exit codes after a cut and a stop")

    def killed_supervisor(self):
        with self.cluster("killed-supervisor") as run:
            run.join(1)
            run.has_steps(8)
            ranks = run.ranks_of(0) + run.ranks_of(1)
            run.train.kill()
            run.train.wait()
            self.checks.equal(len(ranks), 4, "all ranks are there")
            end = time.monotonic() + 10
            while time.monotonic() < end and any(os.path.exists(f"/proc/{r}") for r in ranks):
                time.sleep(0.01)
            self.checks.that(not any(os.path.exists(f"/proc/{r}") for r in ranks),
                             "kill -9 of the supervisor: all ranks are gone",
                             f"{time.monotonic() - end + 10:.2f} s")
            run.train = self.network.start(0, run.log, *run.command)
            self.is_calm(run, "the same command again, with the agent that waited")

    def stopped(self):
        with self.cluster("stopped") as run:
            run.join(1)
            run.has_steps(3)
            run.train.send_signal(signal.SIGTERM)
            self.checks.equal(run.end(), (143, {1: 143}), "SIGTERM at the supervisor")
            done = run.steps()
            self.checks.that(3 <= done < 24, "it has stopped before the end", f"step {done}")
        with self.cluster("stopped") as run:
            run.join(1)
            run.has_steps(done + 3)
            run.agents[1].send_signal(signal.SIGUSR1)
            self.checks.equal(run.end(), (138, {1: 138}), "SIGUSR1 at an agent")
        with self.cluster("stopped") as run:
            run.join(1)
            self.is_calm(run, "stopped twice, resumed twice")

    def ranks_by_status(self, run):
        status = self.weft.json("status", run.dir)
        return status["state"], [(rank["rank"], (rank["pid"] or 0) > 0) for rank in status["ranks"]]

    def crowd(self):
        """Many agents at once, as spares. The run's ranks are stopped meanwhile: they would train on all cores."""
        words = ["--set", "train.steps=100000", "--set", "launch.hang_timeout_s=600"]
        with self.cluster("crowd", "mesh", *words) as run:
            run.join(1)
            run.has_steps(1)
            ranks = run.ranks_of(0) + run.ranks_of(1)
            for rank in ranks:
                os.kill(rank, signal.SIGSTOP)
            begin = time.monotonic()
            crowd = [self.network.start(1 + i % 2, self.folder / "crowd-agents.log", self.weft.path,
                                        "agent", "--join", "10.213.0.1:4711", "--secret-file",
                                        run.dir / "secret") for i in range(CROWD)]
            try:
                run.wait(lambda: run.text().count("joined as a spare") >= CROWD, 60)
                seconds = time.monotonic() - begin
                for rank in ranks:
                    os.kill(rank, signal.SIGCONT)
                self.checks.that(seconds < CROWD_S, f"{CROWD} agents have joined",
                                 f"{seconds:.2f} s, wanted {CROWD_S}")
                run.has_steps(run.steps() + 1)
                wanted = ("running", [(r, True) for r in range(4)])
                run.wait(lambda: self.ranks_by_status(run) == wanted, 10)  # agents report every second
                self.checks.equal(self.ranks_by_status(run), wanted, "weft status knows the ranks of both nodes")
                run.train.send_signal(signal.SIGTERM)
                self.checks.equal(run.end(), (143, {1: 143}), "a run with many spares ends")
                codes = {agent.wait(20) for agent in crowd}
                self.checks.equal(codes, {143}, "so do they")
            finally:
                for agent in crowd:
                    agent.kill()
                    agent.wait()

    def refused(self):
        checks = self.checks
        wrong = self.folder / "wrong"
        wrong.write_text("0123456789abcdef0123456789abcdef\n")
        wrong.chmod(0o600)
        with self.cluster("refused") as run:
            stranger = run.join(1, secret=wrong)
            checks.equal(stranger.wait(20), 2, "a wrong secret: the agent's exit code")
            text = run.agent_log(1).read_text()
            checks.that("secret" in text, "a wrong secret: message", text.strip()[-200:])
            checks.that(run.says("does not know this run's secret", 5), "the supervisor says so")
            hidden = ["unshare", "-m", "sh", "-c",
                      f'mount -t tmpfs none "{run.dir}" && exec "$@"', "sh"]
            copied = self.folder / "copied"
            copied.write_bytes((run.dir / "secret").read_bytes())
            copied.chmod(0o600)
            run.join(1, *hidden, secret=copied)
            checks.equal(run.end(), (2, {1: 2}), "storage that is not shared: exit codes")
            checks.that("storage is not shared" in run.text(), "storage that is not shared: message",
                        run.text().strip()[-300:])
        other = self.folder / "other-data"
        shutil.copytree(self.folder / "data", other)
        rows = (other / "train.jsonl").read_text().splitlines(keepends=True)
        (other / "train.jsonl").write_text("".join(reversed(rows)))  # of the same size
        with self.cluster("other-rows", "zero3") as run:
            run.join(1, "unshare", "-m", "sh", "-c", f'mount --bind "{other}" "{self.folder / "data"}" && exec "$@"', "sh")
            checks.equal(run.end(), (2, {1: 2}), "other rows on the second node: exit codes")
            checks.that("does not match rank 0 on node 0 (" in run.text() and "): data file" in run.text() and "train.jsonl" in run.text(),
                        "other rows on the second node: message", run.text().strip()[-400:])
        with self.cluster("missing", "mesh", "--set", "launch.join_timeout_s=1") as run:
            checks.equal(run.train.wait(20), 75, "a missing node: exit code")
            checks.that("1 of 2 nodes joined within 1 s" in run.text(), "a missing node: message",
                        run.text().strip()[-300:])
        with self.cluster("busy") as run:
            run.wait((run.dir / "secret").exists)
            run.says("weft agent --join")
            with self.cluster("busy2") as second:
                checks.equal(second.train.wait(20), 2, "a port that is taken: exit code")
                checks.that("cannot listen on 10.213.0.1:4711" in second.text(),
                            "a port that is taken: message", second.text().strip()[-200:])
        nowhere = subprocess.run(
            ["ip", "netns", "exec", self.network.names[1], str(self.weft.path), "agent", "--join",
             "10.213.0.77:4711", "--secret-file", str(wrong), "--wait", "1"],
            capture_output=True, text=True, timeout=30, check=False)
        checks.equal(nowhere.returncode, 75, "a host that is not there: exit code")
        checks.that("10.213.0.77:4711 cannot be reached within 1 s" in nowhere.stderr,
                    "a host that is not there: message", nowhere.stderr.strip()[-300:])


def body(args, checks, folder):
    weft = Weft(args.weft)
    with Network(3) as network:
        suite = Suite(weft, checks, network, folder, write_inputs(folder, weft), args.seed)
        suite.run_calm()
        parts = [suite.equal_bits, suite.exposed, suite.killed_ranks, suite.killed_agents, suite.killed_supervisor,
                 suite.stopped, suite.crowd, suite.refused, suite.cut_off]
        if args.only:
            parts = [part for part in parts if part.__name__ in args.only]
        else:
            short = ["equal_bits", "exposed", "stopped", "refused"]
            long = [part.__name__ for part in parts if part.__name__ not in short]
            names = short + checks.sample(long, 3)
            parts = [part for part in parts if part.__name__ in names]
        for part in parts:
            begin = time.monotonic()
            part()
            print(f"{part.__name__}: {time.monotonic() - begin:.1f} s", flush=True)


def add_arguments(parser):
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--seed", type=int, default=datetime.date.today().toordinal())


def become_root():
    """Namespaces need root: without it, in a user namespace of our own."""
    if os.geteuid() == 0:
        return
    os.execvp("unshare", ["unshare", "--map-root-user", "--net", "--mount", "sh", "-c",
                          'mount -t tmpfs none /run && exec "$@"', "sh", sys.executable, *sys.argv])


if __name__ == "__main__":
    become_root()
    run_program(__doc__, body, add_arguments, in_memory=True)
