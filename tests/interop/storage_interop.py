#!/usr/bin/env python3
"""Runs whose storage is S3: a local server (moto) holds checkpoints, metrics, events and final/.

    python3 tests/interop/storage_interop.py --weft build/weft

Killed and resumed from an empty mirror, in the same and in another layout, to the bits of a run in
a local folder; ranks that are killed and go on from memory; two processes at once; missing buckets and keys; a server that is away for a while
or for good. Some of these per commit, all with FULL=1.
"""

import json
import os
import random
import signal
import socket
import subprocess
import threading
import time

from common import Weft, events_of, read_metrics, run_program, write_run_file
from kill_interop import children_of
from s3_interop import Server, free_port
from storage_place import BUCKET, Gate, Place


def shown(checks, good, what, detail=""):
    """A check whose detail, often long, is printed only where it fails."""
    checks.that(good, what, "" if good else detail)


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
        shown(checks, name in names, f"{name} is in the store")
    checks.equal([name for name in names if name.endswith(".writing") or ".writing/" in name], [], "leftovers")
    checks.equal(bits(weft, place.copy()), truth, "bits of a run in the store and of a local one")
    checks.equal(json.loads(place.read("lock"))["held"], False, "the lock is released")
    place.forget_mirror()
    text = place.train()
    shown(checks, "is finished at step 12" in text, "a finished run, from an empty mirror", text[-300:])
    place.train("--set", "train.steps=15")
    checks.equal(place.steps(), [12, 15], "continued")
    keys = [entry["Key"] for entry in server.client().list_objects_v2(Bucket=BUCKET, Prefix="here/whole/")["Contents"]]
    checks.equal([key for key in keys if "/step-" in key and key.endswith("/")
                  and "step-00000012" not in key and "step-00000015" not in key], [], "removed checkpoints leave no empty objects")


def check_commands(checks, weft, server, folder, truth):
    """What the other commands read from the store is what they read from a copy. After check_whole."""
    place = Place(weft, server, folder, "whole")
    copy, env = place.copy(), place.env()
    address = f"s3://{BUCKET}/here/whole"
    last = f"checkpoints/step-{place.steps()[-1]:08}"
    for what in ("", f"/{last}", "/final", "/final/model.safetensors"):
        checks.equal(weft.call("hash", address + what, env=env), weft.call("hash", str(copy) + what), f"hash {address}{what}")
    shown(checks, "identical" in weft.call("diff", address, copy, env=env), "diff")
    weft.call("export", f"{address}/{last}", folder / "exported", env=env)
    shown(checks, "identical" in weft.call("diff", folder / "exported", copy / "final"), "export")
    seen, wanted = weft.json("inspect", f"{address}/{last}", env=env), weft.json("inspect", copy / last)
    checks.equal({**seen, "path": 0}, {**wanted, "path": 0}, "inspect")
    curves = [weft.call("plot", path, env=env).splitlines()[1:] for path in (address, copy)]  # without the title
    checks.equal(curves[0], curves[1], "plot")
    words = ("--prompt", "row 1", "--max-new-tokens", "4", "--tokenizer", "bytes")
    checks.equal(weft.call("generate", address, *words, env=env), weft.call("generate", copy, *words), "generate")
    checks.equal(weft.call("generate", address, *words, "--set", "parallel.tp=2", env=env),
                 weft.call("generate", copy, *words, "--set", "parallel.tp=2"), "generate with two ranks")
    evaluate = ("eval", place.run, "--set", f"data.eval={folder / 'rows.jsonl'}")
    losses = [weft.json(*evaluate, *more, env=env)["eval_loss"]
              for more in ((), ("--model", address), ("--model", copy), ("--set", "parallel.dp=2"),
                           ("--model", address, "--set", "parallel.dp=2"))]
    checks.equal(losses, losses[:1] * 5, "eval")
    checked = weft.json("inspect", "--verify", address, env=env)["checkpoint"]
    checks.that(all(one["sound"] for one in checked), "inspect --verify")
    shown(checks, checked[-1]["path"].startswith(f"{address}/checkpoints/"), "names the store's paths", str(checked))
    for what, words, part in (("nothing there", ("hash", f"s3://{BUCKET}/here/none"), "here/none"),
                              ("an export goes to a folder", ("export", address, f"s3://{BUCKET}/out"), "folder of this machine")):
        start = time.monotonic()
        done = subprocess.run([str(weft.path), *words], capture_output=True, text=True, env=env, check=False)
        shown(checks, done.returncode == 2 and part in done.stderr and time.monotonic() - start < 20, what,
              f"exit {done.returncode}: {done.stderr[-300:]}")
    other = Place(weft, server, folder, "other")
    text = other.train("--resume", f"{address}/{last}", "--set", "train.steps=16")
    shown(checks, "resumed from" in text, "--resume of another run in the store", text[-300:])
    checks.equal(other.steps()[-1], 16, "its last step")


def check_kill(checks, weft, server, folder, truth):
    """Killed twice, then finished by two ranks, always from an empty mirror."""
    place = Place(weft, server, folder, "killed")
    for at in (3, 6):
        process = place.start()
        place.wait_for(process, lambda at=at: at in place.steps(), f"step {at} in the store")
        process.send_signal(signal.SIGKILL)
        process.communicate()
        place.forget_mirror()
    text = place.train("--set", "parallel.dp=2")
    shown(checks, "which is gone" in text, "the lock of a killed process of this machine is taken over", text[:500])
    shown(checks, "resumed from" in text, "resumed", text[:500])
    checks.equal(bits(weft, place.copy()), truth, "bits after kill -9, in other layouts, from empty mirrors")
    # A push that was cut short.
    client = server.client()
    client.put_object(Bucket=BUCKET, Key=f"here/{place.name}/checkpoints/step-00000013/index.json", Body=b"{")
    place.train("--set", "train.steps=14")
    shown(checks, not any("step-00000013" in name for name in place.names()), "a cut push is removed")
    checks.equal(place.steps()[-1], 14, "and ignored")


def check_second(checks, weft, server, folder):
    """Two processes; SIGTERM waits for the push."""
    place = Place(weft, server, folder, "second", steps=5000)
    first = place.start()
    place.wait_for(first, lambda: place.steps(), "a checkpoint in the store")
    for what, env in (("with the same mirror", {}), ("with another mirror", {"XDG_CACHE_HOME": str(folder / "else")})):
        start = time.monotonic()
        text = place.train(wanted=2, **env)
        seconds = time.monotonic() - start
        shown(checks, f"process {first.pid} on {socket.gethostname()}" in text and seconds < 30,
                    f"a second process {what} is refused with host and pid", f"{seconds:.1f} s: {text[-300:]}")
    address, elsewhere = f"s3://{BUCKET}/here/second", place.env(XDG_CACHE_HOME=str(folder / "else"))
    here, there = weft.json("status", address, env=place.env()), weft.json("status", address, env=elsewhere)
    checks.equal((here["state"], here["live"], here["pid"]), ("running", True, first.pid), "status where it is trained")
    checks.equal((there["state"], there["live"], there["ranks"]), ("unknown", False, []), "status elsewhere")
    shown(checks, there["step"] and there["note"] and there["checkpoint"], "says what the store has", str(there))
    first.send_signal(signal.SIGTERM)
    _, text = first.communicate(timeout=120)
    checks.equal(first.returncode, 143, "SIGTERM")
    checks.equal([weft.json("status", address, env=env)["state"] for env in (place.env(), elsewhere)], ["stopped"] * 2,
                 "status after the signal")
    events = [json.loads(line) for line in place.read("events.jsonl").splitlines()]
    checks.equal(events[-1]["event"], "stopped", "the last event in the store")
    checks.equal(place.steps()[-1], events[-1]["step"], "the step of the signal is in the store")


def check_lease(checks, weft, server, folder, truth):
    """A lock of another machine that is no longer renewed; two ranks wait for it."""
    place = Place(weft, server, folder, "lease")
    lock = {"host": "far", "pid": 7, "machine": "other", "token": "t", "beat": 3, "lease_s": 8, "held": True}
    server.client().put_object(Bucket=BUCKET, Key="here/lease/lock", Body=json.dumps(lock).encode())
    start = time.monotonic()
    text = place.train("--set", "parallel.tp=2")
    shown(checks, "process 7 on far" in text and time.monotonic() - start > 8,
                "an expired lock is taken over after its time", text[:500])
    checks.equal(bits(weft, place.copy()), truth, "bits with tp 2")


def check_lost(checks, weft, server, folder, truth):
    """Another machine has taken the run over while this one was cut off: this one ends and stores nothing more."""
    for name, layout in (("lost", []), ("lost4", ["--set", "parallel.dp=2", "--set", "parallel.tp=2"])):
        place = Place(weft, server, folder, name, steps=100000)
        process = place.start(*layout)
        place.wait_for(process, lambda: place.steps(), "a checkpoint in the store")
        lock = {"host": "far", "pid": 7, "machine": "other", "token": "t", "beat": 3, "lease_s": 25, "held": True}
        server.client().put_object(Bucket=BUCKET, Key=f"here/{name}/lock", Body=json.dumps(lock).encode())
        start = time.monotonic()
        _, text = process.communicate(timeout=60)
        shown(checks, process.returncode == 1 and time.monotonic() - start < 30,
              "a run that was taken over ends", f"exit {process.returncode}: {text[-500:]}")
        shown(checks, "taken over by process 7 on far" in text, "and says by whom", text[-800:])
        checks.equal(json.loads(place.read("lock")), lock, "the other one's lock is left alone")


class LockWatch(threading.Thread):
    """Reads the run's lock as often as it can."""

    def __init__(self, place):
        super().__init__(daemon=True)
        self.place, self.seen, self.is_done = place, [], False

    def run(self):
        while not self.is_done:
            lock = json.loads(self.place.read("lock"))
            self.seen.append((lock["token"], lock["held"], lock["pid"]))

    def end(self):
        self.is_done = True
        self.join()
        return {(token, held) for token, held, _ in self.seen}, {pid for _, _, pid in self.seen}


def check_survive(checks, weft, server, folder, truth):
    """kill -9 of rank 0, which holds the lock and uploads, then of another: both go on from memory."""
    place = Place(weft, server, folder, "survive", steps=30)
    place.sections |= {"name": "calm", "storage": str(folder / "local")}
    calm = write_run_file(folder / "calm.yaml", place.sections)
    weft.call("train", calm, "--quiet", env={"WEFT_CACHE": str(folder / "tokens")})
    process = place.start("--set", "parallel.dp=2", "--set", "parallel.tp=2", "--set", "launch.snapshot_every=1")
    place.wait_for(process, lambda: place.steps(), "a checkpoint in the store")
    mirror, watch = place.mirror(), LockWatch(place)
    watch.start()
    ranks = children_of(process.pid)
    for number, victim in enumerate(ranks[:2], 1):  # ranks start in their order
        os.kill(victim, signal.SIGKILL)
        place.wait_for(process, lambda number=number: len(events_of(mirror, "recovered")) == number, f"recovery {number}")
        place.wait_for(process, lambda: watch.seen[-1][2] in children_of(process.pid), "the lock is of a rank that lives")
    locks, holders = watch.end()
    _, text = process.communicate(timeout=200)
    shown(checks, process.returncode == 0, "two ranks of a run in the store are killed", text[-1500:])
    checks.equal([event["rank"] for event in events_of(mirror, "rank_died")], [0, 1], "whom events.jsonl names")
    lost = [event["lost_steps"] for event in events_of(mirror, "recovered")]
    checks.that(len(lost) == 2 and max(lost) <= 1, "from memory: steps that are repeated", str(lost))
    checks.equal(len(events_of(mirror, "started")), 1, "all others keep their processes")
    checks.equal(([held for _, held in locks], len(holders)), ([True], 2), "the lock has one token, and is never free")
    copy = place.copy()
    checks.equal([line["step"] for line in read_metrics(copy)[0]], list(range(1, 31)), "metrics.jsonl without a gap")
    checks.equal(bits(weft, copy), bits(weft, folder / "local/calm"), "bits of a run on one rank")
    checks.equal(json.loads(place.read("lock"))["held"], False, "the lock is released at the end")


def check_random_kills(checks, weft, server, folder, truth):
    place = Place(weft, server, folder, "random")
    moments = random.Random(5)
    layouts = [(), ("parallel.dp=2",), ("parallel.dp=2", "parallel.shard=zero3"), ("parallel.tp=2",),
               ("parallel.dp=2", "parallel.tp=2", "parallel.shard=zero1"), ()]
    seen, num_running = [], 0
    for target, layout in zip((1, 2, 4, 6, 8, 9), layouts):
        keys = (*layout, "checkpoint.every=1")  # most of the time a push is going on
        process = place.start(*(word for key in keys for word in ("--set", key)))
        place.wait_for(process, lambda target=target: place.steps()[-1:] >= [target], f"step {target}")
        time.sleep(0.4 * moments.random())
        num_running += process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.communicate()
        seen.append(place.steps()[-1:])
        place.forget_mirror()
    checks.equal(num_running, 6, "six runs that were killed")
    place.train()
    checks.equal(bits(weft, place.copy()), truth, f"bits after kills in six layouts, at {seen}")


def check_bad(checks, weft, server, folder):
    place = Place(weft, server, folder, "bad")
    quick = {"WEFT_STORAGE_RETRY_S": "3"}
    for what, words, code, parts, env in (
            ("a missing bucket", ("--set", "storage=s3://nowhere/x"), 2, ("nowhere", "create the bucket"), {}),
            ("an address without a bucket", ("--set", "storage=s3:///x"), 2, ("names no bucket",), {}),
            ("another scheme", ("--set", "storage=gs://bucket/x"), 2, ("s3://bucket/prefix",), {}),
            ("no server", (), 1, ("AWS_ENDPOINT_URL",),
             {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{free_port()}", **quick})):
        start = time.monotonic()
        text = place.train(*words, wanted=code, **env)
        shown(checks, all(part in text for part in parts) and time.monotonic() - start < 60, what,
                    f"{time.monotonic() - start:.1f} s: {text[-400:]}")
    strict = Server(INITIAL_NO_AUTH_ACTION_COUNT="0")
    try:
        place.port = strict.port
        for what, env in (("keys that the server rejects", {}),
                          ("no keys", {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "HOME": str(folder)})):
            start = time.monotonic()
            text = place.train(wanted=2, **env)
            shown(checks, "AWS_ACCESS_KEY_ID" in text and time.monotonic() - start < 60, what,
                        f"{time.monotonic() - start:.1f} s: {text[-400:]}")
    finally:
        strict.stop()


def check_away(checks, weft, server, folder, truth):
    """A server that is away during a run, for longer than ranks wait for each other in a step."""
    place = Place(weft, server, folder, "away")
    gate = Gate(server.port)
    place.port = gate.port
    process = place.start("--set", "parallel.dp=2")
    place.wait_for(process, lambda: place.steps(), "a checkpoint in the store")
    gate.close()
    time.sleep(35)
    gate.open()
    _, text = process.communicate(timeout=200)
    checks.equal(process.returncode, 0, "a run whose server was away for 35 s")
    checks.equal(bits(weft, place.copy()), truth, "its bits")


def check_gone(checks, weft, server, folder, truth):
    """Gone for good: trained to the end into checkpoint.fallback, uploaded by the next start."""
    place = Place(weft, server, folder, "gone")
    gate = Gate(server.port)
    place.port = gate.port
    words = ("--set", f"checkpoint.fallback={folder / 'fallback'}")
    process = place.start(*words, WEFT_STORAGE_RETRY_S="2")
    place.wait_for(process, lambda: place.steps(), "a checkpoint in the store")
    gate.close()
    _, text = process.communicate(timeout=280)
    checks.equal(process.returncode, 1, "the server is gone for good")
    mirror = next(path for path in (folder / "fallback").iterdir() if path.name.startswith("gone-"))
    shown(checks, str(mirror) in text and "the same command" in text, "the mirror is named", text[-600:])
    events = [json.loads(line) for line in (mirror / "events.jsonl").read_text().splitlines()]
    errors = [event["message"] for event in events if event["event"] == "error"]
    shown(checks, errors and all("storage s3://" in message for message in errors), "error events", str(errors)[:300])
    checks.equal(bits(weft, mirror), truth, "bits in the mirror")
    shown(checks, 12 not in place.steps(), "the store lacks the last step", str(place.steps()))
    gate.open()
    text = place.train(*words)
    shown(checks, "; uploading " in text and "is finished at step 12" in text, "uploaded by the next start", text[-600:])
    checks.equal(bits(weft, place.copy()), truth, "bits in the store then")


CHECKS = {"whole": check_whole, "commands": check_commands, "kill": check_kill, "lease": check_lease, "lost": check_lost,
          "survive": check_survive, "random": check_random_kills, "away": check_away, "gone": check_gone}


def body(args, checks, folder):
    weft = Weft(args.weft)
    server = Server()
    try:
        server.client().create_bucket(Bucket=BUCKET)
        if not args.only:
            check_bad(checks, weft, server, folder)
        truth = local_truth(weft, folder)
        always = ["whole", "survive"]
        names = [n for n in CHECKS if args.only in (n, "")]
        for name in names if args.only else always + checks.sample([n for n in names if n not in always], 3):
            CHECKS[name](checks, weft, server, folder, truth)
        if not args.only:
            check_second(checks, weft, server, folder)
    finally:
        server.stop()


def add_arguments(parser):
    parser.add_argument("--only", default="", choices=["", *CHECKS], help="one of them")


if __name__ == "__main__":
    run_program(__doc__, body, add_arguments)
