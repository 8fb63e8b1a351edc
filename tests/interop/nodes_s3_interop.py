#!/usr/bin/env python3
"""A run on two nodes whose storage is an object store: a mirror that both share, a server that only
the first node reaches (moto). Hosts are network namespaces, made here.

    nodes_s3_interop.py --weft build/weft

Killed ranks, after which all go on from memory, and a stop after which the mirror is deleted: the same
command continues from the store, with the bits of a calm run on one machine. A mirror that is not shared is refused.
"""

import os
import shutil
import signal
import subprocess
import sys
import time

from common import Weft, die_with_parent, run_program
from node_faults_interop import CONSTANT, ENDLESS, Nodes, Suite
from nodes_interop import Network, become_root
from s3_interop import KEYS

PORT, ADDRESS = 5099, "s3://bucket/runs/far"


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

    def __init__(self, suite, log, *words):
        self.mirrors = suite.folder / "mirrors"
        prefix = ["env", *(f"{key}={value}" for key, value in
                           {**KEYS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{PORT}"}.items())]
        super().__init__(suite, log, "mesh", 2, "--run-dir", ADDRESS, "--set",
                         f"checkpoint.fallback={self.mirrors}", *words, prefix=prefix)

    def find_mirror(self):
        self.wait(lambda: list(self.mirrors.glob("far-*/secret")))
        self.dir = next(self.mirrors.glob("far-*/secret")).parent
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


def check_not_shared(suite):
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
    with Network(2) as network, Store(network) as store:
        suite = Suite(Weft(args.weft), checks, network, folder)
        check_run(suite, store)
        check_not_shared(suite)


if __name__ == "__main__":
    become_root()
    run_program(__doc__, body, in_memory=True)
