"""weft_ray/waits.py: how long the trainer waits for Ray, and what it prints meanwhile."""

import contextlib
import os
import sys
import threading
import time

import ray

TIMEOUT_VARIABLE, TIMEOUT_S = "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", 60.0  # Ray Train's own
JOIN_S = 5.0  # for a thread that may be inside a call of Ray


def warn(text):
    print(f"warning: {text}", file=sys.stderr, flush=True)


def timeout_s():
    return float(os.environ.get(TIMEOUT_VARIABLE, TIMEOUT_S))


def amount(resources):
    return ", ".join(f"{name} {value:g}" for name, value in sorted(resources.items())) or "nothing"


def cluster_text(names):
    """What the cluster has of these resources, and how much of it is free."""
    there, free = ray.cluster_resources(), ray.available_resources()
    return (f"the cluster has {amount({name: there.get(name, 0.0) for name in names})}, "
            f"of which {amount({name: free.get(name, 0.0) for name in names})} is free")


@contextlib.contextmanager
def warn_while_waiting(what):
    """Ray Data waits silently, and without end, where others hold every CPU: they may finish, so that this is not an error. A long execution looks the same from here."""
    is_done, begin = threading.Event(), time.monotonic()

    def warn_again(pause_s):
        while not is_done.wait(pause_s):
            pause_s *= 2
            with contextlib.suppress(Exception):  # Ray, which the other thread may be starting or ending
                warn(f"{what} after {time.monotonic() - begin:.0f} s; if Ray Data does not advance, it waits for a free CPU: {cluster_text(['CPU'])}. "
                     "If none becomes free, stop other jobs or add nodes; in a Tune trial leave CPUs for Ray Data")
    thread = threading.Thread(target=warn_again, args=(timeout_s() or TIMEOUT_S,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_done.set()
        thread.join(JOIN_S)
