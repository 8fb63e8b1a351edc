"""kill -9 of a rank, an actor and a node's raylet under TorchTrainer and WeftTrainer: how long each stands still.

WeftTrainer is held to what is promised; TorchTrainer's times are only reported. Its worker process is rank and actor in one.
"""

import ray_beside as beside
from common import events_of
from ray_beside_page import hold
from ray_recovery import NODE_S, RANK_S

import workload  # in benchmarks/, which ray_beside's torch_on_ray has put on the path

STEPS, EVERY = 12, 3  # a checkpoint every third
NODE_STEPS, NODE_EVERY = 100, 10  # so many that TorchTrainer still trains when Ray reports the node: its workers may outlive their raylet
NODES = 3  # two train
BARS = {"rank": RANK_S, "actor": NODE_S, "raylet": NODE_S}


def num_repeated(kind, work, name, fit):
    """weft removes the lines of lost steps."""
    if kind == "WeftTrainer":
        return sum(event["lost_steps"] for event in events_of(work.case.storage / name, "recovered"))
    return len(fit.lines) - work.steps


def check_kill(case, page, kind, target, work):
    """A step after the first checkpoint."""
    name, what = f"{kind}-{target}", f"{kind}: kill -9 of a{'n' if target == 'actor' else ''} {target}"
    one = beside.fit(kind, name, work, kill_at=work.every + 1, target=target, max_failures=-1)
    if not case.checks.that(one.error is None and one.again_s is not None, f"{what}: training goes on", str(one.error or "")):
        return
    if target == "raylet" and not case.checks.that(one.reported_s is not None, f"{what}: Ray has reported the node"):
        return
    took_s = one.again_s - one.step_s()
    since_s = took_s - (one.reported_s or 0)
    print(f"{what}: {took_s:.2f} s to the next step, less a step" + (f"; Ray's report after {one.reported_s:.2f} s" if one.reported_s else ""), flush=True)
    page.recoveries.append([target, kind, f"{one.again_s:.2f}", f"{took_s:.2f}", f"{since_s:.2f}" if one.reported_s else "",
                            num_repeated(kind, work, name, one)])
    case.checks.equal(len(one.losses()), work.steps, f"{what}: every step")
    if kind == "WeftTrainer":
        since = ", since Ray has reported the node," if one.reported_s else ""
        hold(case, page, f"{what}{since} to the next step, less a step", since_s, BARS[target], " s")


def check_recovery(case, page, args):
    """A rank: model S on one node. An actor, a raylet: a smaller model on two nodes of three."""
    small = beside.make_work(case, workload.MODEL_1M, NODE_STEPS, NODE_EVERY, args.attention, nodes=2)
    whole = beside.make_work(case, workload.MODEL_S, STEPS, EVERY, args.attention)
    for kind in beside.KINDS:
        check_kill(case, page, kind, "rank", whole)
    case.cluster.want_nodes(NODES)
    page.recoveries.append(["actor", "TorchTrainer", "a worker is rank and actor in one: see rank", "", "", ""])
    check_kill(case, page, "WeftTrainer", "actor", small)
    for kind in beside.KINDS:
        case.cluster.want_nodes(NODES)
        check_kill(case, page, kind, "raylet", small)
