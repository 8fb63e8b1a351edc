#!/usr/bin/env python3
"""A run on two nodes whose storage is an object store: a mirror that both share, a server that only
the first node reaches (moto). Hosts are network namespaces, made here.

    nodes_s3_interop.py --weft build/weft [--only NAME ...]

A lost node, whose place a spare takes, and the first node's lost agent, both from memory; launch.elastic, 2 -> 1 -> 2 nodes; a
stop while a lost node is waited for: each time the mirror and the store have the bits of a calm run. Killed ranks, after which all go on from memory, and a stop after which the mirror is deleted: the same
command continues from the store, with the bits of a calm run on one machine. A mirror that is not shared is refused.
"""

import os
import shutil
import signal
import subprocess
import sys
import time

from common import Weft, die_with_parent, run_program
from kill_interop import children_of
from node_faults_interop import CONSTANT, ENDLESS, Nodes, Suite
from nodes_interop import Network, become_root
from s3_interop import KEYS
from sampling import Sampler

PORT, ADDRESS = 5099, "s3://bucket/runs/far"
SNAPSHOT_EVERY = 3


class Store:
    """moto's server on the loopback of the first host, and a client there."""

    def __init__(self, network):
        code = f"from moto.server import main; main(['-H', '127.0.0.1', '-p', '{PORT}'])"
        self.inside = ["ip", "netns", "exec", network.names[0]]
        self.env = {**os.environ, **KEYS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{PORT}"}
        self.server = subprocess.Popen([*self.inside, sys.executable, "-c", code], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL, preexec_fn=die_with_parent)

    def __enter__(self):
        make = f"import boto3; boto3.client('s3', endpoint_url='http://127.0.0.1:{PORT}').create_bucket(Bucket='bucket')"
        deadline = time.monotonic() + 120
        while self.call(sys.executable, "-c", make).returncode != 0:
            if time.monotonic() > deadline:
                raise RuntimeError("the server does not come up")
            time.sleep(0.2)
        return self

    def __exit__(self, *_):
        self.server.kill()
        self.server.wait()

    def call(self, *words):
        return subprocess.run([*self.inside, *map(str, words)], env=self.env, capture_output=True, text=True,
                              timeout=60, check=False)


class FarNodes(Nodes):
    """`dir` is the mirror: its name is known when it is there."""

    def __init__(self, suite, log, *words, address=ADDRESS):
        self.address = address
        self.mirrors = suite.folder / "mirrors"
        prefix = ["env", *(f"{key}={value}" for key, value in
                           {**KEYS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{PORT}"}.items())]
        super().__init__(suite, log, "mesh", 2, "--run-dir", address, "--set",
                         f"checkpoint.fallback={self.mirrors}", *words, prefix=prefix)

    def find_mirror(self):
        pattern = f"{self.address.rsplit('/', 1)[1]}-*/secret"
        self.wait(lambda: list(self.mirrors.glob(pattern)))
        self.dir = next(self.mirrors.glob(pattern)).parent
        return self.dir


def check_run(suite, store):
    checks = suite.checks
    with FarNodes(suite, "far", *ENDLESS) as run:
        mirror = run.find_mirror()
        run.join(1)
        run.has_steps(8)
        for number, host in enumerate((1, 0), 1):  # the second is rank 0, which holds the lock and uploads
            os.kill(run.ranks_of(host)[0], signal.SIGKILL)
            checks.that(run.wait(lambda number=number: len(run.events("recovered")) == number),
                        f"a killed rank of node {host} with the run in S3: it goes on from memory")
        checks.equal([event["rank"] for event in run.events("rank_died")], [2, 0], "whom events.jsonl names")
        checks.equal(len(run.events("started")), 1, "all others keep their processes")
        checks.that(run.has_steps(30), "it goes on")
        checks.equal(run.stop(), (143, {1: 143}), "SIGTERM: exit codes")
        stopped = run.steps()
    print(f"stopped at step {stopped}")
    shutil.rmtree(mirror)
    steps = stopped + 20
    with FarNodes(suite, "again", "--set", f"train.steps={steps}", "--set", CONSTANT) as run:
        run.find_mirror()
        run.join(1)
        suite.ends_calm(run, "a new mirror, from the store", "mesh", steps, "--set", CONSTANT)
        checks.equal(run.events("started")[-1]["step"], stopped, "a new mirror, from the store: from the step at which it was stopped")
    listed = store.call(suite.weft.path, "hash", f"{ADDRESS}/final").stdout
    checks.equal(listed, suite.weft.call("hash", run.dir / "final"), "the store has the model")
    names = store.call(sys.executable, "-c",
                       f"import boto3; s3 = boto3.client('s3', endpoint_url='http://127.0.0.1:{PORT}');"
                       "print([o['Key'] for o in s3.list_objects_v2(Bucket='bucket')['Contents']])").stdout
    checks.that("final/" in names and "secret" not in names and ".nodes" not in names,
                "neither the secret nor the marker is uploaded", names[:300])


def start_far(suite, name, *words):
    """A run whose only checkpoint will be that of its end."""
    return FarNodes(suite, name, *ENDLESS, "--set", "checkpoint.every=100000", "--set",
                    f"launch.snapshot_every={SNAPSHOT_EVERY}", *words, address=f"s3://bucket/runs/{name}")


def kill_agent(run, host):
    agent = run.agents.pop(host)
    agent.kill()
    agent.wait()


def store_has(suite, store, run, what):
    listed = store.call(suite.weft.path, "hash", run.address)
    suite.checks.that(listed.returncode == 0 and listed.stdout == suite.weft.call("hash", run.dir),
                      f"{what}: the store has the checkpoint", listed.stderr[-300:])


def check_lost(suite, store):
    """Node 1, then the agent of node 0, whose rank 0 holds the store's lock and uploads."""
    what = "lost nodes with the run in S3"
    with start_far(suite, "lost") as run:
        run.find_mirror()
        run.join(1)
        run.has_steps(4)
        run.join(2)
        run.has_spares(1)
        run.has_steps(8)
        kept = run.ranks_of(0)
        kill_agent(run, 1)
        suite.checks.that(run.wait(lambda: len(run.events("recovered")) == 1), f"{what}: a spare takes the place")
        suite.checks.equal(run.ranks_of(0), kept, f"{what}: the other node's processes stay")
        run.has_steps(run.steps() + 5)
        for agent in children_of(run.train.pid):
            os.kill(agent, signal.SIGKILL)
        suite.checks.that(run.wait(lambda: len(run.events("recovered")) == 2), f"{what}: the first node's next agent")
        suite.stops_calm(run, what)
        suite.checks.equal((len(run.events("node_lost")), len(run.events("started"))), (2, 1),
                           f"{what}: both are in events.jsonl, and storage was not read")
        store_has(suite, store, run, what)


def check_elastic(suite, store):
    what = "2 -> 1 -> 2 nodes with the run in S3"
    with start_far(suite, "elastic", "--set", "launch.elastic=true") as run:
        run.find_mirror()
        run.join(1)
        run.has_steps(8)
        kill_agent(run, 1)
        suite.checks.that(run.wait(lambda: len(run.events("layout")) == 1), f"{what}: it shrinks")
        suite.checks.that(all("in memory" in event["source"] for event in run.events("layout")), f"{what}: from memory",
                          str([event["source"] for event in run.events("layout")]))
        run.has_steps(run.steps() + 3)
        run.join(1)
        suite.checks.that(run.wait(lambda: len(run.events("layout")) == 2), f"{what}: it grows")
        suite.stops_calm(run, what)
        store_has(suite, store, run, what)


def check_missing(suite, store):
    """The node that is left has both nodes' state in memory, and saves it."""
    what = "a stop while a node is missing with the run in S3"
    with start_far(suite, "missing") as run:
        run.find_mirror()
        run.join(1)
        run.has_steps(8)
        kill_agent(run, 1)
        suite.checks.that(run.says("waiting for another node"), f"{what}: it waits", run.text()[-500:])
        before = run.steps()
        suite.checks.equal(run.stop(), (143, {}), f"{what}: exit codes")
        stopped = [event["step"] for event in run.events("stopped")]
        suite.checks.that(stopped and before - stopped[0] <= 2 * SNAPSHOT_EVERY, f"{what}: the newest step in memory", f"{stopped} of {before}")
        store_has(suite, store, run, what)
    suite.run_calm("mesh", run.steps(), "--set", CONSTANT)
    calm = suite.folder / "-".join(["calm", "mesh", str(run.steps()), "--set", CONSTANT])
    suite.checks.equal(suite.weft.call("hash", run.dir), suite.weft.call("hash", calm), f"{what}: the bits of a calm run")


def check_not_shared(suite, _store):
    with FarNodes(suite, "apart", "--overwrite") as run:
        mirror = run.find_mirror()
        copied = suite.folder / "copied"
        copied.write_bytes((mirror / "secret").read_bytes())
        copied.chmod(0o600)
        hidden = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs none "{mirror}" && exec "$@"', "sh"]
        run.join(1, *hidden, secret=copied)
        suite.checks.equal(run.end(), (2, {1: 2}), "a mirror that is not shared: exit codes")
        text = run.text()
        suite.checks.that("storage is not shared" in text and "checkpoint.fallback" in text,
                          "a mirror that is not shared: message", text.strip()[-400:])


def body(args, checks, folder):
    sample = Sampler()
    with Network(3) as network, Store(network) as store:
        suite = Suite(Weft(args.weft), checks, network, folder)
        losses = {"lost": check_lost, "elastic": check_elastic, "missing": check_missing}
        cases = {"run": check_run, "not_shared": check_not_shared, **losses}
        for name in args.only or ["run", "not_shared", *sample(losses, 3)]:
            begin = time.monotonic()
            cases[name](suite, store)
            print(f"{name}: {time.monotonic() - begin:.1f} s", flush=True)
    if sample.summary():
        print(sample.summary())


if __name__ == "__main__":
    become_root()
    run_program(__doc__, body, lambda p: p.add_argument("--only", nargs="*"), in_memory=True)
