#!/usr/bin/env python3
"""Runs whose storage is S3: a local server (moto) holds checkpoints, metrics, events and final/.

    python3 tests/interop/storage_interop.py --weft build/weft

Killed and resumed from an empty mirror, in the same and in another layout, to the bits of a run in
a local folder; two processes at once; missing buckets and keys; a server that is away for a while
or for good.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

from common import ROOT, Weft, read_metrics, run_program, write_run_file
from s3_interop import KEYS, Server, free_port

BUCKET = "runs"


class Place:
    """A bucket, a mirror's cache folder and a run file."""

    def __init__(self, weft, server, folder, name, **train):
        self.weft, self.server, self.folder, self.name = weft, server, folder, name
        self.cache = folder / f"cache-{name}"
        rows = folder / "rows.jsonl"
        if not rows.exists():
            rows.write_text("".join(json.dumps({"text": f"row {i} of a small corpus"}) + "\n"
                                    for i in range(400)))
        self.sections = {
            "name": name, "storage": f"s3://{BUCKET}/here",
            "model": {"path": str(ROOT / "examples/quickstart/model"), "init": "random"},
            "data": {"train": [str(rows)], "tokenizer": "bytes", "seq_length": 32},
            "parallel": {"mode": "exact"},
            "train": {"steps": 12, "global_batch": 8, "lr": 1e-3, **train},
            "checkpoint": {"every": 3, "keep": 2}}
        self.run = write_run_file(folder / f"{name}.yaml", self.sections)

    def env(self, **more):
        return {**os.environ, **self.server.env(), "XDG_CACHE_HOME": str(self.cache),
                "WEFT_CACHE": str(self.folder / "tokens"), "WEFT_STORAGE_RETRY_S": "60", **more}

    def command(self, *words):
        return [str(self.weft.path), "train", str(self.run), *words]

    def start(self, *words, **env):
        return subprocess.Popen(self.command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, env=self.env(**env))

    def train(self, *words, wanted=0, **env):
        done = subprocess.run(self.command(*words), capture_output=True, text=True, timeout=300,
                              env=self.env(**env), check=False)
        if done.returncode != wanted:
            raise RuntimeError(f"exit {done.returncode}, wanted {wanted}:\n{done.stderr[-3000:]}")
        return done.stderr

    def names(self):
        """The objects of the run, without the markers of folders."""
        prefix = f"here/{self.name}/"
        pages = self.server.client().get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        keys = [entry["Key"][len(prefix):] for page in pages for entry in page.get("Contents", [])]
        return sorted(key for key in keys if key and not key.endswith("/"))

    def read(self, name):
        return self.server.client().get_object(Bucket=BUCKET, Key=f"here/{self.name}/{name}")["Body"].read()

    def steps(self):
        """Steps of complete checkpoints."""
        return [int(name.split("/")[1][5:]) for name in self.names()
                if name.startswith("checkpoints/step-") and name.endswith("/COMMITTED")]

    def copy(self):
        """The store's files in a local folder."""
        to = self.folder / f"copy-{self.name}"
        shutil.rmtree(to, ignore_errors=True)
        for name in self.names():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            (to / name).write_bytes(self.read(name))
        return to

    def forget_mirror(self):
        shutil.rmtree(self.cache, ignore_errors=True)

    def mirror(self):
        return next(path for path in (self.cache / "weft/runs").iterdir() if path.is_dir())

    def wait_for(self, process, good, what, seconds=120):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if good():
                return
            if process.poll() is not None:
                raise RuntimeError(f"{what}: ended with {process.returncode}: {process.stderr.read()[-2000:]}")
            time.sleep(0.1)
        process.kill()
        raise RuntimeError(f"{what} did not happen in {seconds} s")


def bits(weft, run_dir):
    """Losses, and the hash of the last checkpoint and of final/."""
    last = sorted((run_dir / "checkpoints").glob("step-*"))[-1]
    losses = {line["step"]: line["loss"] for line in read_metrics(run_dir)[0]}
    hashes = [weft.call("hash", path) for path in (last, run_dir / "final")]
    return losses, hashes


def local_truth(weft, folder):
    place = Place(weft, None, folder, "truth")
    place.sections["storage"] = str(folder / "local")
    run = write_run_file(folder / "truth.yaml", place.sections)
    weft.call("train", run, "--quiet", env={"WEFT_CACHE": str(folder / "tokens")})
    return bits(weft, folder / "local/truth")


def check_whole(checks, weft, server, folder, truth):
    place = Place(weft, server, folder, "whole")
    place.train()
    checks.equal(place.steps(), [9, 12], "checkpoints in the store, by checkpoint.keep")
    names = place.names()
    for name in ("run.yaml", "metrics.jsonl", "events.jsonl", "final/config.json", "final/model.safetensors"):
        checks.that(name in names, f"{name} is in the store")
    checks.equal([name for name in names if name.endswith(".writing") or ".writing/" in name], [], "leftovers")
    checks.equal(bits(weft, place.copy()), truth, "bits of a run in the store and of a local one")
    checks.equal(json.loads(place.read("lock"))["held"], False, "the lock is given back")
    place.forget_mirror()
    text = place.train()
    checks.that("is finished at step 12" in text, "a finished run, from an empty mirror", text[-300:])
    place.train("--set", "train.steps=15")
    checks.equal(place.steps(), [12, 15], "continued")


def check_kill(checks, weft, server, folder, truth):
    """Killed twice, once inside a push or near it; then with two ranks; always from an empty mirror."""
    place = Place(weft, server, folder, "killed")
    for at, words in ((3, ()), (6, ("--set", "parallel.dp=2"))):
        process = place.start(*words)
        place.wait_for(process, lambda at=at: at in place.steps(), f"step {at} in the store")
        process.send_signal(signal.SIGKILL)
        process.communicate()
        place.forget_mirror()
    text = place.train()
    checks.that("which is gone" in text, "the lock of a killed process of this machine is taken over", text[-500:])
    checks.that("resumed from" in text, "resumed", text[-500:])
    checks.equal(bits(weft, place.copy()), truth, "bits after kill -9, in other layouts, from empty mirrors")
    # A push that was cut short.
    client = server.client()
    client.put_object(Bucket=BUCKET, Key=f"here/{place.name}/checkpoints/step-00000013/index.json", Body=b"{")
    place.train("--set", "train.steps=14")
    checks.that(not any("step-00000013" in name for name in place.names()), "a cut push is removed")
    checks.equal(place.steps()[-1], 14, "and ignored")


def body(args, checks, folder):
    weft = Weft(args.weft)
    server = Server()
    try:
        server.client().create_bucket(Bucket=BUCKET)
        truth = local_truth(weft, folder)
        check_whole(checks, weft, server, folder, truth)
        check_kill(checks, weft, server, folder, truth)
    finally:
        server.stop()


if __name__ == "__main__":
    run_program(__doc__, body)
