"""weft on several nodes of Ray: bits, the secret, a killed actor, a lost node."""

import contextlib
import fcntl
import io
import itertools
import json
import os
import signal
import threading
import time

from common import events_of, read_metrics, write_run_file
from ray_case import NODE_STEPS, make_recorder, network_of, parent_of, processes, programs_sent, raylet_beside, same_run, sections
from ray_cluster import call
from ray_recovery import LIMIT_S, NODE_S, Recovery, check_recovery, check_survivors

ENDLESS = 100_000  # steps
SLOT = '{"slot": 1}'  # a resource that only the nodes of the elastic run have


def node_sections(folder, steps):
    run = sections(folder, every=10, steps=steps, global_batch=12)
    return {**run, "parallel": {"dp": 3, "shard": "zero3", "mode": "exact"}}


def secret_is_hidden(case, name):
    """Neither a command line nor an environment of any process has it; its copies are files of mode 600 in memory."""
    secret = (case.storage / name / "secret").read_text().strip().encode()
    seen = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for kind in ("cmdline", "environ"):
            try:
                seen += [f"{pid} {kind}"] if secret in open(f"/proc/{pid}/{kind}", "rb").read() else []
            except OSError:
                continue
    case.checks.equal(seen, [], "several nodes: the secret is in no command line or environment")
    files = [words[words.index(b"--secret-file") + 1] for words in processes("agent").values()]
    modes = {oct(os.stat(path).st_mode & 0o777) for path in files}
    case.checks.equal((len(files), modes), (3, {"0o600"}), "several nodes: three agents, their files have mode 600")
    links = sorted(os.readlink(path).partition(b"weft_secret")[0] for path in files if os.path.islink(path) and os.readlink(path).endswith(b" (deleted)"))
    case.checks.equal(links, [b"/dev/shm/", b"/memfd:"], "several nodes: the copies of the other nodes are in memory, that of an old Python in a file without a name")


def check_nodes(case):
    """Three nodes of one rank; the actor of one is killed, and another takes its place."""
    import ray.train
    from weft_ray import WeftTrainer
    case.cluster.want_nodes(3)
    before = programs_sent(case.cluster)
    own = case.folder / "own/nodes"
    case.weft.train(write_run_file(case.folder / "nodes.yaml", {"name": "nodes", **node_sections(case.folder, NODE_STEPS)}), own)
    done = []

    def at_step(step):
        if step >= 4 and not done:
            secret_is_hidden(case, "nodes")
            agent = max(processes("agent"))
            done.append(Recovery(case.storage / "nodes"))
            os.kill(parent_of(agent), signal.SIGKILL)  # the actor
    recorder = make_recorder()(at_step)
    result = WeftTrainer(
        node_sections(case.folder, NODE_STEPS), scaling_config=ray.train.ScalingConfig(num_workers=3, placement_strategy="STRICT_SPREAD"),
        run_config=ray.train.RunConfig(name="nodes", storage_path=str(case.storage), callbacks=[recorder],
                                       failure_config=ray.train.FailureConfig(max_failures=1))).fit()
    case.checks.equal(result.metrics["step"], NODE_STEPS, "several nodes: an actor was killed, and the run has finished")
    case.checks.equal([r[2] for r in recorder.reports if not r[3]], list(range(1, NODE_STEPS + 1)), "several nodes: every step once")
    same_run(case, case.storage / "nodes", own, "several nodes")
    case.checks.equal(len(recorder.exceptions), 1, "an agent's killed actor: after_exception")
    check_recovery(case, done[0], "an agent's killed actor", NODE_S)
    check_survivors(case, done[0], "an agent's killed actor")
    sent = {name: count for name, count in programs_sent(case.cluster).items() if count}
    case.checks.that(len(sent) >= 3 and set(sent.values()) == {1}, "several nodes: each has got the program, once", f"{before} before, {sent} after")


@contextlib.contextmanager
def unseen_directory(case):
    """This program works in a folder that only the driver's node has. Call it with the nodes there."""
    before, place = os.getcwd(), case.folder / "unseen"
    place.mkdir(exist_ok=True)
    call("mount", "-t", "tmpfs", "none", place)
    (place / "here").mkdir()
    os.chdir(place / "here")
    try:
        yield
    finally:
        os.chdir(before)
        call("umount", place)


class Loss:
    """Two ranks on two nodes train until one node was lost and the run goes on, however long Ray needs to notice it. Then Ctrl-C.

    kill: called at the fourth step, it returns a Recovery; is_over(recovery): whether the run goes on.
    """

    def __init__(self, case, name, kill, is_over):
        self.case, self.name, self.kill, self.is_over, self.recovery = case, name, kill, is_over, None
        self.recorder = make_recorder()(self.at_step)
        self.run = {**sections(case.folder, every=50, steps=ENDLESS, schedule="constant", global_batch=32), "parallel": {"dp": 2, "mode": "exact"}}

    def at_step(self, step):
        if step >= 4 and not self.recovery:
            self.recovery = self.kill()
            threading.Thread(target=self.end, daemon=True).start()

    def end(self):
        deadline = time.monotonic() + LIMIT_S
        while not self.is_over(self.recovery) and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    def train(self, selectors, max_failures):
        """And compares it with the same run without Ray."""
        import ray.train
        from weft_ray import WeftTrainer
        signal.signal(signal.SIGINT, signal.default_int_handler)
        case, name = self.case, self.name
        what = name.replace("_", " ")
        try:
            with unseen_directory(case):
                WeftTrainer(self.run, scaling_config=ray.train.ScalingConfig(num_workers=2, placement_strategy="STRICT_SPREAD", label_selector=selectors),
                            run_config=ray.train.RunConfig(name=name, storage_path=str(case.storage), callbacks=[self.recorder],
                                                           failure_config=ray.train.FailureConfig(max_failures=max_failures))).fit()
            case.checks.that(False, f"{what}: Ctrl-C ends fit()")
        except KeyboardInterrupt:
            case.checks.that(True, f"{what}: the run has gone on until Ctrl-C")
        check_recovery(case, self.recovery, what, NODE_S)
        steps = len(read_metrics(case.storage / name)[0])
        case.weft.train(write_run_file(case.folder / f"{name}.yaml", {"name": name, **self.run}), case.folder / "own" / name, "--set", f"train.steps={steps}")
        same_run(case, case.storage / name, case.folder / "own" / name, f"{what}, {steps} steps")
        case.checks.equal(processes("train"), {}, f"{what}: no process is left")
        return what


def lose_node(case, name, before_kill):
    """kill -9 of a node's raylet: Ray moves its bundle to the third node, and the run goes on there. The first rank is on the head's node.

    before_kill: gets the process id of the agent that was there.
    """
    import ray
    case.cluster.want_nodes(3)
    head, agents = ray.get_runtime_context().get_node_id(), []

    def kill():
        raylet = raylet_beside(processes("agent"))
        agents.append(next(pid for pid in processes("agent") if network_of(pid) == network_of(raylet)))
        before_kill(agents[0])
        case.checks.equal(os.readlink(f"/proc/{min(processes('train'))}/cwd"), str(case.storage / name), "a directory that one node does not see: weft starts in the run's")
        recovery = Recovery(case.storage / name, of_node=True)
        os.kill(raylet, signal.SIGKILL)
        return recovery
    loss = Loss(case, name, kill, lambda recovery: not recovery.is_alive())
    what = loss.train([{"ray.io/node-id": head}, {"ray.io/node-id": f"!{head}"}], max_failures=-1)
    case.checks.equal([event["ranks"] for event in events_of(case.storage / name, "node_lost")], [[1]], f"{what}: node_lost has its ranks")
    case.checks.equal([sorted(one) for one in loss.recorder.exceptions], [[1]], f"{what}: after_exception gets its ranks")
    check_survivors(case, loss.recovery, what)
    case.checks.that(agents[0] not in processes("agent"), f"{what}: its agent has ended")


def check_lost_node(case):
    """The actor ends with its raylet, and the agent with the actor."""
    lose_node(case, "a_lost_node", lambda agent: None)


def check_orphan(case):
    """The agent outlives its raylet, since the actor stands still: the trainer reports the node to the supervisor."""
    actors = []

    def stop(agent):
        actors.append(parent_of(agent))
        os.kill(actors[0], signal.SIGSTOP)
    lose_node(case, "a_lost_node_with_an_agent", stop)
    events = (case.storage / "a_lost_node_with_an_agent/events.jsonl").read_text()
    case.checks.that("its node was reported as lost" in events, "a lost node with an agent: by Ray's report")
    os.kill(actors[0], signal.SIGKILL)


def check_lost_first(case):
    """The first rank's node is lost, which is not the driver's. The run's lock is held for a while longer, as by a storage that has not noticed: that costs no failure."""
    import ray
    case.cluster.want_nodes(4)
    head, said = ray.get_runtime_context().get_node_id(), io.StringIO()
    run_dir = case.storage / "a_lost_first_node"

    def hold():
        """The lock, as soon as its holder has ended, until it was in the way."""
        with open(run_dir / ".lock", "r+b") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            deadline = time.monotonic() + LIMIT_S
            while "not free yet" not in said.getvalue() and time.monotonic() < deadline:
                time.sleep(0.05)

    def kill():
        recovery = Recovery(run_dir, event="started", of_node=True)
        os.kill(raylet_beside([min(processes("train"))]), signal.SIGKILL)  # ranks are weft train too
        threading.Thread(target=hold, daemon=True).start()
        return recovery
    loss = Loss(case, run_dir.name, kill, lambda recovery: recovery.stepped)
    with contextlib.redirect_stderr(said):
        what = loss.train([{"ray.io/node-id": f"!{head}"}] * 2, max_failures=1)
    case.checks.that("another process is training in" in said.getvalue(), f"{what}: its lock was in the way", said.getvalue()[-600:] if "not free" not in said.getvalue() else "")
    case.checks.equal([sorted(one) for one in loss.recorder.exceptions], [[0]], f"{what}: after_exception gets its ranks")
    steps = [report[2] for report in loss.recorder.reports if not report[3]]
    case.checks.that(steps == sorted(set(steps)), f"{what}: no step twice")


def layouts_of(run_dir):
    path = run_dir / "events.jsonl"
    events = [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []  # the last one may be incomplete
    return [(event["from"], event["to"]) for event in events if event["event"] == "layout"]


class Growth(threading.Thread):
    """Nodes of Ray come and go while fit() runs in the main thread, which is interrupted at the end."""

    def __init__(self, case, run_dir):
        super().__init__(daemon=True)
        self.case, self.run_dir, self.seen, self.error = case, run_dir, [], None

    def wait_for(self, what, limit_s=240):
        deadline = time.monotonic() + limit_s
        while not any(to == what for _, to in layouts_of(self.run_dir)[len(self.seen):]):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what}: not in {layouts_of(self.run_dir)}")
            time.sleep(0.1)
        self.seen = layouts_of(self.run_dir)

    def wait_for_steps(self, count, limit_s=240):
        begin, deadline = len(read_metrics(self.run_dir)[0]), time.monotonic() + limit_s
        while len(read_metrics(self.run_dir)[0]) < begin + count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{count} steps after step {begin}: not within {limit_s} s")
            time.sleep(0.1)

    def run(self):
        try:
            self.wait_for("dp=1 on 1 node")
            second = self.case.cluster.add_node(1, "--resources", SLOT)
            self.wait_for("dp=2 on 2 nodes")
            self.wait_for_steps(4)
            os.kill(raylet_beside([second.pid]), signal.SIGKILL)
            self.wait_for("dp=1 on 1 node")
            self.wait_for_steps(4)
        except Exception as error:
            self.error = error
        os.kill(os.getpid(), signal.SIGINT)


def check_elastic(case):
    """num_workers=(1, 2): starts with the node that is there, grows when Ray has another, goes on when it is lost. Ctrl-C leaves a checkpoint."""
    import ray.train
    from weft_ray import WeftTrainer
    signal.signal(signal.SIGINT, signal.default_int_handler)
    run = {**sections(case.folder, every=10, steps=ENDLESS, global_batch=12, micro_batch=1, schedule="constant", eval_every=1000),
           "parallel": {"dp": 2, "shard": "zero3", "mode": "exact"}}
    case.cluster.add_node(1, "--resources", SLOT)
    growth = Growth(case, case.storage / "elastic")
    growth.start()
    recorder = make_recorder()()
    try:
        WeftTrainer(run, scaling_config=ray.train.ScalingConfig(num_workers=(1, 2), resources_per_worker={"CPU": 1, "slot": 1}),
                    run_config=ray.train.RunConfig(name="elastic", storage_path=str(case.storage), callbacks=[recorder],
                                                   failure_config=ray.train.FailureConfig(max_failures=-1))).fit()
        case.checks.that(False, "elastic: Ctrl-C ends fit()")
    except KeyboardInterrupt:
        case.checks.that(growth.error is None, "elastic: 1 -> 2 -> 1 nodes", str(growth.error or layouts_of(case.storage / "elastic")))
    workers = [number for number, _ in itertools.groupby(report[1] for report in recorder.reports)]
    case.checks.equal(workers, [1, 2, 1], "elastic: after_report has the metrics of as many workers as train")
    lines = read_metrics(case.storage / "elastic")[0]
    case.checks.equal([line["step"] for line in lines], list(range(1, len(lines) + 1)), "elastic: every step once")
    file = write_run_file(case.folder / "elastic.yaml", {"name": "elastic", **run})
    case.weft.train(file, case.folder / "own/elastic", "--set", f"train.steps={len(lines)}", "--set", "parallel.dp=1")
    same_run(case, case.storage / "elastic", case.folder / "own/elastic", "elastic, interrupted")
    case.checks.equal({**processes("train"), **processes("agent")}, {}, "elastic, interrupted: no process is left")
