"""A run in a bucket of a local S3 server, and a gate that cuts it off."""

import json
import os
import shutil
import socket
import subprocess
import threading
import time

from common import ROOT, write_run_file
from s3_interop import free_port, pump

BUCKET = "runs"


class Gate:
    """A proxy in front of the server; while it is closed, connections are cut and refused."""

    def __init__(self, target):
        self.target, self.pairs, self.listener = target, [], None
        self.port = free_port()
        self.open()

    def open(self):
        self.listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self.accept, args=(self.listener,), daemon=True).start()

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for end in self.pairs:
            end.close()
        self.pairs = []

    def accept(self, listener):
        while True:
            try:
                here, _ = listener.accept()
                there = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                return
            self.pairs += [here, there]
            for a, b in ((here, there), (there, here)):
                threading.Thread(target=pump, args=(a, b), daemon=True).start()


class Place:
    """A bucket, a mirror's cache folder and a run file."""

    def __init__(self, weft, server, folder, name, **train):
        self.port = None  # of a gate
        self.weft, self.server, self.folder, self.name = weft, server, folder, name
        self.cache = folder / f"cache-{name}"
        rows = folder / "rows.jsonl"
        if not rows.exists():
            rows.write_text("".join(json.dumps({"text": f"row {i} of a small corpus"}) + "\n"
                                    for i in range(400)))
        self.sections = {
            "name": name, "storage": f"s3://{BUCKET}/here",
            "model": {"path": str(ROOT / "examples/quickstart/model"), "init": "random"},
            "data": {"train": [str(rows)], "tokenizer": "bytes", "seq_length": 128},
            "parallel": {"mode": "exact"},
            "train": {"steps": 12, "global_batch": 8, "lr": 1e-3, **train},
            "checkpoint": {"every": 3, "keep": 2}}
        self.run = write_run_file(folder / f"{name}.yaml", self.sections)

    def env(self, **more):
        return {**os.environ, **self.server.env(self.port), "XDG_CACHE_HOME": str(self.cache),
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
