#!/usr/bin/env python3
"""Data on S3: a local server (moto) holds the files, weft lists, reads and writes them.

    python3 tests/interop/s3_interop.py --weft build/weft

Also: a missing bucket, keys that the server rejects, a missing server, and one whose
connections break at first.
"""

import gzip
import io
import json
import os
import socket
import subprocess
import sys
import threading
import time

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
from common import ROOT, Weft, read_metrics, run_program, write_run_file

KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true"}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """moto's server in a separate process."""

    def __init__(self, **env):
        self.port = free_port()
        code = f"from moto.server import main; main(['-H', '127.0.0.1', '-p', '{self.port}'])"
        self.process = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, **env},
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(300):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.1)
        raise RuntimeError("the server does not come up")

    def env(self, port=None):
        return {**KEYS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port or self.port}"}

    def client(self):
        return boto3.client("s3", endpoint_url=f"http://127.0.0.1:{self.port}", aws_access_key_id="key",
                            aws_secret_access_key="secret", region_name="us-east-1")

    def stop(self):
        self.process.kill()
        self.process.wait()


def pump(a, b):
    """Forwards one direction of a connection until it ends."""
    try:
        while data := a.recv(65536):
            b.sendall(data)
        b.shutdown(socket.SHUT_WR)
    except OSError:
        pass


class Breaking(threading.Thread):
    """A proxy that drops the first connections, then forwards everything."""

    def __init__(self, target, num_broken):
        super().__init__(daemon=True)
        self.target, self.left, self.broken = target, num_broken, 0
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]

    def run(self):
        while True:
            here, _ = self.socket.accept()
            if self.left > 0:
                self.left -= 1
                self.broken += 1
                here.close()
                continue
            there = socket.create_connection(("127.0.0.1", self.target))
            for a, b in ((here, there), (there, here)):
                threading.Thread(target=pump, args=(a, b), daemon=True).start()


def refused(weft, env, *words):
    start = time.monotonic()
    done = subprocess.run([weft.path, *words], capture_output=True, text=True, timeout=120, check=False,
                          env={**os.environ, **env})
    return done.returncode, done.stderr, time.monotonic() - start


def check_good(checks, weft, server):
    client = server.client()
    client.create_bucket(Bucket="bucket")
    rows = [{"text": f"row {i}", "n": str(i)} for i in range(500)]
    table = pa.table({"text": [r["text"] for r in rows], "n": [int(r["n"]) for r in rows]})
    for name, part in (("a", table.slice(0, 200)), ("b", table.slice(200))):
        sink = io.BytesIO()
        pq.write_table(part, sink, row_group_size=100)
        client.put_object(Bucket="bucket", Key=f"set/{name}.parquet", Body=sink.getvalue())
    lines = "".join(json.dumps(r) + "\n" for r in rows).encode()
    client.put_object(Bucket="bucket", Key="lines/x.jsonl", Body=lines)
    client.put_object(Bucket="bucket", Key="lines/x.jsonl.gz", Body=gzip.compress(lines))
    for path in ("set/*.parquet", "set", "lines/x.jsonl", "lines/x.jsonl.gz"):
        out = weft.json("inspect", f"s3://bucket/{path}", "--rows", 10000, env=server.env())
        checks.equal(out["sample"], rows, f"s3://bucket/{path}")
    weft.call("corpus", "s3://bucket/made", "--train", "30", "--test", "5", env=server.env())
    body = client.get_object(Bucket="bucket", Key="made/train.jsonl")["Body"].read()
    checks.equal(len(body.splitlines()), 30, "a file written to S3")


def check_training(checks, weft, server, folder):
    """A run with rows on S3 has the losses of one with local rows."""
    server.client().download_file("bucket", "set/a.parquet", str(folder / "a.parquet"))
    losses = []
    for name, path in (("far", "s3://bucket/set/a.parquet"), ("near", str(folder / "a.parquet"))):
        run = write_run_file(folder / f"{name}.yaml", {
            "name": name, "storage": str(folder / "runs"),
            "model": {"path": str(ROOT / "examples/quickstart/model"), "init": "random"},
            "data": {"train": [path], "tokenizer": "bytes", "seq_length": 32}, "train": {"steps": 3}})
        env = {**server.env(), "WEFT_CACHE": str(folder / "cache")}
        weft.call("train", run, env=env)
        losses.append([line["loss"] for line in read_metrics(folder / "runs" / name)[0]])
    checks.equal(losses[0], losses[1], "losses of a run that reads from S3")
    checks.equal(len(losses[0]), 3, "steps of it")


def check_bad(checks, weft, server):
    code, text, _ = refused(weft, server.env(), "inspect", "s3://nowhere/x.parquet")
    checks.that(code == 2 and "s3://nowhere" in text, "a missing bucket", text.strip()[:200])
    code, text, _ = refused(weft, server.env(), "inspect", "s3://bucket/none.parquet")
    checks.that(code == 2 and "s3://bucket/none.parquet" in text, "a missing file", text.strip()[:200])
    code, text, seconds = refused(weft, server.env(free_port()), "inspect", "s3://bucket/lines/x.jsonl")
    checks.that(code == 2 and seconds < 60, "a missing server", f"{seconds:.1f} s: {text.strip()[:200]}")
    proxy = Breaking(server.port, 3)
    proxy.start()
    out = weft.json("inspect", "s3://bucket/lines/x.jsonl", env=server.env(proxy.port))
    checks.equal((out["rows"], proxy.broken), (500, 3), "three broken connections, then all rows")
    strict = Server(INITIAL_NO_AUTH_ACTION_COUNT="0")
    try:
        code, text, seconds = refused(weft, strict.env(), "inspect", "s3://bucket/lines/x.jsonl")
        checks.that(code == 2 and "s3://bucket" in text and seconds < 30, "keys that the server rejects",
                    f"{seconds:.1f} s: {text.strip()[:300]}")
    finally:
        strict.stop()


def body(args, checks, folder):
    weft = Weft(args.weft)
    server = Server()
    try:
        check_good(checks, weft, server)
        check_training(checks, weft, server, folder)
        check_bad(checks, weft, server)
    finally:
        server.stop()


if __name__ == "__main__":
    run_program(__doc__, body)
