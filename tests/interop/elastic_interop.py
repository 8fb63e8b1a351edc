#!/usr/bin/env python3
"""Runs that continue with fewer nodes: hosts are network namespaces on one bridge, made here.

    elastic_interop.py --weft build/weft

launch.elastic in exact mode, one rank per node: 4 -> 3 nodes with global_batch 12 (dp 3) and 8 (dp 2,
one node waits), from memory, since there is no checkpoint, and without snapshots from storage; two ranks
per node with tp 2, 4 -> 2 -> 4 nodes; fewer nodes at the start than asked for. Every run ends with the bits
of an undisturbed one, and metrics.jsonl has every step once. Fast mode: dp 3 where it divides the batch, else dp 2, with the losses of an undisturbed run within a
tolerance. A node that cannot start does not end a run that trained without it.
"""

import json
import os
import signal
import time

from common import Weft, read_metrics, run_program, write_run_file
from nodes_interop import Cluster, Network, become_root, training_of
from sampling import ROOT, Sampler

STEPS = 40
SNAPSHOT_EVERY = 3
FAST_DIFF = 1e-5  # of losses around 4; 1.5e-7 was measured
NODES = 4
CONSTANT = "train.schedule=constant"
ENDLESS = ("--set", "train.steps=100000", "--set", CONSTANT)  # stopped by the test, when it has seen enough


def write_inputs(folder, weft):
    weft.call("corpus", folder / "data", "--seed", 1, "--train", 800, "--test", 20)
    base = {"name": "run",
            "model": {"path": str(ROOT / "examples/quickstart/model"), "init": "random"},
            "data": {"train": [str(folder / "data/train.jsonl")], "source": "{question}\n",
                     "target": "{sql}", "tokenizer": "bytes", "seq_length": 64},
            "train": {"steps": STEPS, "micro_batch": 1, "lr": 1e-3, "schedule": "cosine",
                      "warmup_steps": 4},
            "checkpoint": {"every": 4, "keep": 100},
            "launch": {"threads": 1, "max_restarts": -1}}
    files = {}
    for mode in ("exact", "fast"):
        for batch in (12, 8):
            for tp in (1, 2):
                run = json.loads(json.dumps(base))
                run["train"]["global_batch"] = batch
                run["parallel"] = {"dp": NODES, "tp": tp, "shard": "zero3", "mode": mode}
                files[mode, batch, tp] = write_run_file(folder / f"{mode}-{batch}-{tp}.yaml", run)
    return files


class Elastic(Cluster):
    """A run on four nodes; its agents are started and killed by the test."""

    nodes = NODES

    def __init__(self, suite, name, kind, *words):
        super().__init__(suite.weft, suite.network, suite.folder, suite.files[kind], name, "--set",
                         "launch.elastic=true", *words)

    def kill(self, *hosts):
        for host in hosts:
            agent = self.agents.pop(host)
            agent.kill()
            agent.wait()

    def layouts(self):
        return [(event["from"], event["to"]) for event in self.events("layout")]

    def has_layouts(self, *layouts):
        return self.wait(lambda: self.layouts() == list(layouts))

    def status(self):
        return self.weft.json("status", self.dir)

    def shows(self, nodes, spares):
        def holds():
            layout = self.status()["layout"] or {}
            return (layout.get("nodes"), layout.get("spares")) == (nodes, spares)
        return self.wait(holds, 60)


def dp(count):
    return f"dp={count} on {count} node{'s' if count > 1 else ''}"


class Suite:
    def __init__(self, weft, checks, network, folder, files):
        self.weft, self.checks, self.network = weft, checks, network
        self.folder, self.files, self.calm = folder, files, {}

    def calm_of(self, kind):
        """The undisturbed run: on one machine, in the layout that was asked for."""
        if kind not in self.calm:
            folder = self.folder / f"calm-{'-'.join(map(str, kind))}"
            self.weft.train(self.files[kind], folder)
            self.calm[kind] = folder
        return self.calm[kind]

    def ends_well(self, run, what, kind):
        checks, calm = self.checks, self.calm_of(kind)
        code, agents = run.end()
        checks.that(code == 0 and not any(agents.values()), f"{what}: exit codes",
                    "" if code == 0 else f"{code}, {agents}\n{run.text()[-2000:]}")
        if code != 0:
            return
        lines = read_metrics(run.dir)[0]
        checks.equal([line["step"] for line in lines], list(range(1, STEPS + 1)),
                     f"{what}: every step once")
        wanted = read_metrics(calm)[0]
        checks.equal([line["lr"] for line in lines], [line["lr"] for line in wanted],
                     f"{what}: the same learning rates")
        if kind[0] == "exact":
            checks.that(training_of(self.weft, run.dir) == training_of(self.weft, calm),
                        f"{what}: the bits of an undisturbed run")
        else:
            far = max(abs(a["loss"] - b["loss"]) for a, b in zip(lines, wanted))
            checks.that(0 < far < FAST_DIFF, f"{what}: its losses, but not its bits", f"{far:.1e}")
        text = (run.dir / "run.yaml").read_text()
        checks.that(f"dp: {NODES}" in text and f"nodes: {NODES}" in text,
                    f"{what}: run.yaml is what was asked for")

    def stops_well(self, run, what, kind):
        """SIGTERM: all save and end. The undisturbed run ends at the same step."""
        run.train.send_signal(signal.SIGTERM)
        self.checks.equal(run.end(), (143, {host: 143 for host in run.agents}), f"{what}: exit codes")
        steps, calm = run.steps(), self.folder / f"calm-{run.dir.name}"
        self.weft.train(self.files[kind], calm, "--set", f"train.steps={steps}", "--set", CONSTANT)
        self.checks.equal([line["step"] for line in read_metrics(run.dir)[0]],
                          list(range(1, steps + 1)), f"{what}: every step once")
        got, wanted = ([self.weft.call("hash", path)] +
                       [(line["loss"], line["grad_norm"], line["lr"])
                        for line in read_metrics(path)[0]] for path in (run.dir, calm))
        self.checks.that(got == wanted, f"{what}: the bits of an undisturbed run", f"{steps} steps")

    def shrink(self, mode, batch, tp):
        """4 -> 3 nodes: dp 3 or, where that does not divide the batch, 2. There is no checkpoint: it goes on
        from a step that the other nodes have in memory."""
        left = 3 if batch == 12 else 2
        what = f"{mode}, batch {batch}, tp {tp}: 4 -> {left}"
        with Elastic(self, f"shrink-{mode}-{batch}-{tp}", (mode, batch, tp), "--set", "checkpoint.every=1000",
                     "--set", f"launch.snapshot_every={SNAPSHOT_EVERY}") as run:
            for host in range(1, NODES):
                run.join(host)
            run.has_steps(10)
            begin = time.monotonic()
            run.kill(2)
            self.checks.that(run.has_layouts((dp(4), dp(left))), f"{what}: the event",
                             f"{time.monotonic() - begin:.2f} s after the kill, {run.layouts()}")
            self.checks.equal(len(run.events("node_lost")), 1, f"{what}: node_lost")
            self.checks.that(run.shows(left, 3 - left), f"{what}: weft status",
                             json.dumps(run.status()["layout"]))
            source = run.events("layout")[0]["source"]
            self.checks.equal(run.status()["layout"]["source"], source, f"{what}: weft status has the source")
            self.ends_well(run, what, (mode, batch, tp))
            recovered = run.events("recovered")
            self.checks.equal([f"step {event['step']} in memory" for event in recovered], [source],
                              f"{what}: from memory, once")
            # The newest snapshot may not have been whole yet: then it is the one before.
            self.checks.that(all(event["lost_steps"] <= 2 * SNAPSHOT_EVERY for event in recovered),
                             f"{what}: what was repeated", str([event["lost_steps"] for event in recovered]))
            self.checks.equal(len(run.events("started")), 1, f"{what}: storage was not read")

    def shrink_from_storage(self):
        """The negative control: without snapshots it is the newest checkpoint."""
        kind, what = ("exact", 12, 1), "without snapshots"
        with Elastic(self, "storage", kind, "--set", "launch.snapshot_every=0") as run:
            for host in range(1, NODES):
                run.join(host)
            run.has_steps(6)
            run.kill(2)
            run.has_layouts((dp(4), dp(3)))
            self.checks.equal([event["source"] for event in run.events("layout")], ["storage"],
                              f"{what}: from storage")
            self.ends_well(run, what, kind)
            self.checks.equal((len(run.events("recovered")), len(run.events("started"))), (0, 2),
                              f"{what}: storage was read")

    def there_and_back(self, tp, kills=False):
        """4 -> 2 -> 4 nodes, two of them lost at once, two joining together; stopped after that, since
        nobody knows how many steps it takes. The calm run ends there. kills: a rank dies while the others
        save for the larger layout."""
        kind = ("exact", 8, tp)
        name = f"back-{tp}{'-killed' * kills}"
        what = f"4 -> 2 -> 4, tp {tp}{', a rank killed' * kills}"
        with Elastic(self, name, kind, "--set", f"launch.max_restarts={1 + kills}", *ENDLESS) as run:
            for host in range(1, NODES):
                run.join(host)
            run.has_steps(6)
            run.kill(2, 3)
            self.checks.that(run.has_layouts((dp(4), dp(2))), f"{what}: shrinks", str(run.layouts()))
            begin = time.monotonic()
            run.join(2)
            run.join(3)
            if kills:
                run.says("saving after this step")
                os.kill(run.ranks_of(1)[0], signal.SIGKILL)
            self.checks.that(run.has_layouts((dp(4), dp(2)), (dp(2), dp(4))), f"{what}: grows",
                             f"{time.monotonic() - begin:.2f} s after the nodes joined")
            # Events of layouts may come before those of their ranks; the first start is of step 0.
            run.wait(lambda: (last := run.events("started")[-1])["ranks"] == NODES * tp and last["step"] > 0)
            grown = run.events("started")[-1]
            self.checks.equal(grown["ranks"], NODES * tp, f"{what}: all ranks again")
            words = f"saved at step {grown['step']}, from which more nodes join"
            self.checks.that(kills or words in run.text(), f"{what}: {words}")
            run.has_steps(grown["step"] + 5)
            restarts = run.status()["restarts"]
            self.checks.that(restarts <= 1 + kills, f"{what}: growing costs no restart", str(restarts))
            self.stops_well(run, f"{what}, stopped {run.steps() - grown['step']} steps after it grew", kind)

    def missing_at_start(self):
        kind = ("exact", 8, 1)
        with Elastic(self, "missing", kind, "--set", "launch.join_timeout_s=10") as run:
            run.join(1)
            run.join(2)
            self.checks.that(run.says("3 of 4 nodes joined within 10 s: dp=2 on 2 nodes"),
                             "fewer nodes at the start: it says so", run.text()[-500:])
            self.checks.that(run.has_layouts((dp(4), dp(2))), "fewer nodes at the start: the event")
            self.ends_well(run, "fewer nodes at the start", kind)

    def fewest(self):
        """launch.min_nodes: no wait for the others at the start; with fewer it waits, and ends with 75."""
        kind = ("exact", 8, 1)
        begin = time.monotonic()
        with Elastic(self, "fewest", kind, "--set", "launch.min_nodes=2", "--set", "launch.join_timeout_s=60", "--set", "train.steps=100000") as run:
            run.join(1)
            self.checks.that(run.says("2 of 4 nodes joined: dp=2 on 2 nodes"), "min_nodes: starts with them", run.text()[-500:])
            self.checks.that(time.monotonic() - begin < 30, "min_nodes: does not wait for the others", f"{time.monotonic() - begin:.1f} s")
            run.has_steps(4)
            run.kill(1)
            run.wait(lambda: run.events("node_lost"))
            time.sleep(3)
            self.checks.equal(run.layouts(), [(dp(4), dp(2))], "min_nodes: not with fewer")
            run.join(2)
            run.has_steps(run.steps() + 4)
            self.checks.equal(run.layouts(), [(dp(4), dp(2))], "min_nodes: goes on with another")
            run.train.send_signal(signal.SIGTERM)
            self.checks.equal(run.end(), (143, {2: 143}), "min_nodes: exit codes")

    def left_out(self):
        """A node without the run's storage joins late: it waits to the end, and costs no restart."""
        kind = ("exact", 8, 1)
        with Elastic(self, "left-out", kind, "--set", "launch.join_timeout_s=10", *ENDLESS) as run:
            run.join(1)
            run.has_steps(2)
            copied = self.folder / "copied"
            copied.write_bytes((run.dir / "secret").read_bytes())
            copied.chmod(0o600)
            hidden = ["unshare", "-m", "sh", "-c",
                      f'mount -t tmpfs none "{run.dir}" && exec "$@"', "sh"]
            run.join(2, *hidden, secret=copied)
            run.says("has joined as a spare")
            run.kill(1)
            self.checks.that(run.says("it is left out until its agent is started again"),
                             "a node without the storage is left out", run.text()[-500:])
            self.checks.that(run.has_layouts((dp(4), dp(2)), (dp(2), dp(1))),
                             "a node that cannot start: dp 1 without it", str(run.layouts()))
            run.has_steps(run.steps() + 3)
            time.sleep(1.1)  # the status is written once a second
            self.checks.equal(run.status()["restarts"], 1, "a node that cannot start costs no restart")
            run.has_steps(run.steps() + 4)
            self.stops_well(run, "a node that cannot start", kind)


def body(args, checks, folder):
    weft, sample = Weft(args.weft), Sampler()
    with Network(NODES) as network:
        suite = Suite(weft, checks, network, folder, write_inputs(folder, weft))
        shrinks = [(mode, batch, tp) for mode in ("exact", "fast") for batch in (12, 8)
                   for tp in (1, 2) if (mode, tp) != ("fast", 2)]
        cases = [(f"shrink-{mode}-{batch}-{tp}", lambda k=(mode, batch, tp): suite.shrink(*k))
                 for mode, batch, tp in sample(shrinks, 3)]
        cases += [(name, getattr(suite, name)) for name in
                  sample(["missing_at_start", "fewest", "left_out", "shrink_from_storage"], 3)]
        cases += [(f"back-{tp}{'-killed' * kills}", lambda k=(tp, kills): suite.there_and_back(*k))
                  for tp, kills in sample([(1, False), (2, False), (1, True), (2, True)], 2)]
        for name, part in cases:
            if args.only and name not in args.only:
                continue
            begin = time.monotonic()
            part()
            print(f"{name}: {time.monotonic() - begin:.1f} s", flush=True)
    if sample.summary():
        print(sample.summary())


if __name__ == "__main__":
    become_root()
    run_program(__doc__, body, lambda p: p.add_argument("--only", nargs="*"), in_memory=True)
