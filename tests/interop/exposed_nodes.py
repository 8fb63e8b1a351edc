"""What runs on two nodes and on one machine show to others; a part of nodes_interop.py."""

import contextlib
import json
import signal
import socket
import time

from exposure import listens_on, read_bytes, shows_secret
from kill_interop import children_of
from survive_interop import num_lines

DEADLINE_S = 60
LONG = ("--set", "train.steps=100000")
FLAG, KEY = {"NODES_FLAG": "a b"}, {"NODES_API_KEY": "k3y-of-no-store"}  # launch.env; a key's value is in no file, and is not sent
OTHER_HOST = "other-host"


def check_exposed(suite):
    """Where the secret can be read, and who listens where."""
    checks = suite.checks
    suite.files["exposed"] = suite.folder / "exposed.yaml"
    text = suite.files["mesh"].read_text().replace("launch:\n", f"launch:\n  env: {json.dumps({**FLAG, **KEY})}\n")
    suite.files["exposed"].write_text(text)
    with suite.cluster("exposed", "exposed", *LONG) as run:
        run.join(1, "unshare", "--uts", "sh", "-c", f'hostname {OTHER_HOST} && exec "$@"', "sh")
        run.has_steps(1)
        secret = (run.dir / "secret").read_text().strip()
        checks.equal(shows_secret(secret, suite.folder), ["exposed/secret"],
                     "two nodes: the secret is in its file, and in no command line, environment or log")
        for host in (0, 1):
            checks.equal(listens_on(run.processes_of(host)), {f"10.213.0.{host + 1}"},
                         f"two nodes: addresses on which processes of node {host} listen")
        check_environments(checks, run)
        check_status(suite, run)
        run.train.send_signal(signal.SIGTERM)
        checks.equal(run.end(), (143, {1: 143}), "two nodes: SIGTERM after a look at them")
    check_one_machine(suite, "shm", set())
    check_one_machine(suite, "gloo", {"127.0.0.1"})


def environment_of(pid):
    """{name: value}, as the process was started."""
    return dict(word.split("=", 1) for word in read_bytes(f"/proc/{pid}/environ").decode().split("\0") if "=" in word)


def has_in_memory(pid, text):
    """Whether it is anywhere in what the process may write: also in what it has added to its environment."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in read_bytes(f"/proc/{pid}/maps").decode().splitlines():
            place, rights, *_, name = [*line.split(maxsplit=5), ""][:6]
            begin, end = (int(word, 16) for word in place.split("-"))
            if rights.startswith("rw") and name.strip() in ("", "[heap]", "[stack]"):
                with contextlib.suppress(OSError):  # it is no longer mapped
                    memory.seek(begin)
                    if text.encode() in memory.read(end - begin):
                        return True
    return False


def check_environments(checks, run):
    """launch.env is the ranks', on every node; the second one's agent was started without it."""
    both = {**FLAG, **KEY}
    wanted = [both, both, FLAG, FLAG]
    ranks = run.ranks_of(0) + run.ranks_of(1)
    found = [{name: value for name, value in environment_of(pid).items() if name in both} for pid in ranks]
    checks.equal(found, wanted, "two nodes: ranks are started with launch.env, on another node with what is no secret")
    words = [f"{name}={value}\0" for name, value in both.items()]
    checks.equal([[has_in_memory(pid, word) for word in words] for pid in ranks], [[True, True]] * 4, "two nodes: all ranks have all of launch.env")
    checks.equal(sorted(set(both) & set(environment_of(run.agents[1].pid))), [], "two nodes: the other node's agent was started without launch.env")
    found = [str(path) for path in run.dir.rglob("*") if path.is_file() and KEY["NODES_API_KEY"].encode() in read_bytes(path)]
    checks.equal(found, [], "two nodes: a key of launch.env is in no file of the run")


def check_status(suite, run):
    """Every field that `weft status` has of two nodes with different names, as JSON and as text."""
    checks, ranks, here = suite.checks, run.ranks_of(0) + run.ranks_of(1), socket.gethostname()
    hosts, now = [here, here, OTHER_HOST, OTHER_HOST], {"ranks": []}

    def is_complete():  # agents report every second
        now.update(suite.weft.json("status", run.dir))
        has_steps = now["steps_per_s"] and all(rank["step"] > 0 for rank in now["ranks"])
        return has_steps and now["last_event"] and sorted(rank["pid"] or 0 for rank in now["ranks"]) == sorted(ranks)

    checks.that(run.wait(is_complete, DEADLINE_S), "two nodes: weft status is complete", f"{now['state']}")
    checks.equal([(rank["rank"], rank["host"]) for rank in now["ranks"]], list(enumerate(hosts)), "two nodes: weft status has every rank's host")
    checks.equal([rank["pid"] for rank in now["ranks"][2:]], run.ranks_of(1), "two nodes: weft status has processes of the other host")
    checks.that(all(rank["memory_bytes"] > 0 and rank["age_s"] < 30 for rank in now["ranks"]),
                "two nodes: weft status has memory and last sign of every rank", f"{now['ranks']}")
    checks.equal([now[key] for key in ("state", "total_steps", "restarts", "deaths", "max_restarts", "host", "pid")],
                 ["running", int(LONG[1].split("=")[1]), 0, 0, 2, here, run.train.pid], "two nodes: weft status, the run as a whole")
    checks.that(now["step"] > 0 and now["steps_per_s"] > 0 and now["memory_bytes"] > 0, "two nodes: weft status, step, speed and memory")
    text = suite.weft.call("status", run.dir)
    rows = [line.split()[:3] for line in text.splitlines() if line.split()[:1] and line.split()[0].isdigit()]
    checks.equal(rows, [[str(r), hosts[r], str(now["ranks"][r]["pid"])] for r in range(4)], "two nodes: weft status as text has a line for each rank")
    missing = [label for label in (": running, step ", "speed", "memory", "restarts", "last event") if label not in text]
    checks.equal(missing, [], "two nodes: weft status as text has the rest")


def check_one_machine(suite, comm, wanted):
    checks, run_dir = suite.checks, suite.folder / f"exposed-{comm}"
    train = suite.network.start(0, suite.folder / f"{run_dir.name}.log", "env", f"WEFT_COMM={comm}", suite.weft.path, "train",
                                suite.files["mesh"], "--run-dir", run_dir, *LONG)
    try:
        deadline = time.monotonic() + DEADLINE_S
        while num_lines(run_dir) < 1 and train.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        ranks = children_of(train.pid)
        checks.equal(len(ranks), 4, f"one machine, {comm}: four ranks")
        checks.equal(listens_on([train.pid, *ranks]), wanted, f"one machine, {comm}: addresses on which it listens")
        train.send_signal(signal.SIGTERM)
        checks.equal(train.wait(DEADLINE_S), 143, f"one machine, {comm}: SIGTERM after a look at it")
    finally:
        train.kill()
        train.wait()
