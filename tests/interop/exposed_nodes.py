"""What runs on two nodes and on one machine show to others; a part of nodes_interop.py."""

import signal
import time

from exposure import listens_on, shows_secret
from kill_interop import children_of
from survive_interop import num_lines

DEADLINE_S = 60
LONG = ("--set", "train.steps=100000")


def check_exposed(suite):
    """Where the secret can be read, and who listens where."""
    checks = suite.checks
    with suite.cluster("exposed", "mesh", *LONG) as run:
        run.join(1)
        run.has_steps(1)
        secret = (run.dir / "secret").read_text().strip()
        checks.equal(shows_secret(secret, suite.folder), ["exposed/secret"],
                     "two nodes: the secret is in its file, and in no command line, environment or log")
        for host in (0, 1):
            checks.equal(listens_on(run.processes_of(host)), {f"10.213.0.{host + 1}"},
                         f"two nodes: addresses on which processes of node {host} listen")
        run.train.send_signal(signal.SIGTERM)
        checks.equal(run.end(), (143, {1: 143}), "two nodes: SIGTERM after a look at them")
    check_one_machine(suite, "shm", set())
    check_one_machine(suite, "gloo", {"127.0.0.1"})


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
