"""weft_ray/place.py: the actors on one node, and the program there."""

import itertools
import time

import ray
from ray import cloudpickle
from ray.exceptions import ActorUnavailableError, RayError
from ray.util.placement_group import placement_group_table
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from weft_ray import follow, keep, libraries, node, program
from weft_ray.waits import warn

AGAIN_S, LONGEST_S = 1.0, 60.0  # before an agent that has ended is restarted: doubled each time, until one has run for LONGEST_S
AWAY_S, AWAY_POLL_S = 60.0, 0.5  # how long an actor may be out of reach before it counts as lost, and how often it is asked meanwhile

for module in (follow, keep, libraries, node):  # nodes do not have them
    cloudpickle.register_pickle_by_value(module)


def reason(error):
    """What went wrong, without the traceback that Ray adds to what an actor raises."""
    cause = getattr(error, "cause", None) or error
    return str(cause).strip() or type(cause).__name__


def alive_nodes():
    return {node["NodeID"] for node in ray.nodes() if node["Alive"]}


class ApartError(Exception):
    """Ray has moved the bundles of one node to several nodes."""


class Asking:
    """A call of the first actor that may be made again: Ray could not deliver it, or its answer."""

    def __init__(self, place, call):
        self.place, self.call, self.answer = place, call, None
        self.made = call(place.first)

    def has_answer(self, wait_s):
        """RayError: what the actor has raised, or it is lost."""
        if not ray.wait([self.made], timeout=wait_s)[0]:
            return False
        try:
            self.answer, self.place.away_since = ray.get(self.made), None
            return True
        except ActorUnavailableError as error:
            self.place.wait_for_return(error)
            self.made = self.call(self.place.first)
            return False


class Place:
    """The first actor starts a child. The others only hold GPUs, whose ids Ray hands out to actors."""

    def __init__(self, placement, at, runtime_env):
        self.placement, self.node, self.runtime_env = placement, at, runtime_env
        self.pause_s, self.join_at, self.address = AGAIN_S, 0.0, ""
        self.numbers = itertools.count(1)  # of calls of train() and join(): one that is made again has the same
        self.failed, self.last_error = 0, None  # starts of an agent that came to nothing
        self.open()

    def open(self):
        settings, bundle = self.placement.settings, self.placement.settings.bundle
        more = {name: value for name, value in bundle.items() if name not in ("CPU", "GPU", "memory")}
        self.actors = [ray.remote(node.WeftNode).options(
            num_cpus=bundle.get("CPU", 0), num_gpus=bundle.get("GPU", 0), memory=bundle.get("memory"), resources=more,
            max_concurrency=4, runtime_env=self.runtime_env or None,
            scheduling_strategy=PlacementGroupSchedulingStrategy(self.node.group, index)).remote()
            for index in (self.node.bundles if settings.uses_gpu else self.node.bundles[:1])]
        self.first = self.actors[0]
        self.opening = self.describe()
        self.installing = self.joining = self.polling = None  # Asking, Asking, the answer to poll()
        self.heard, self.away_since = 0, None  # answers of poll(); since when the actor is out of reach
        self.gpus, self.directory, self.is_joined, self.agent = [], None, False, None  # directory: the job's own; agent: (host, process id)

    def describe(self):
        return [actor.describe.remote(program.digest()) for actor in self.actors]

    def is_open(self, wait_s=0.0):
        """Whether actors and program are there. RayError: they could not be started."""
        if self.opening:
            ready, _ = ray.wait(self.opening, num_returns=len(self.opening), timeout=wait_s)
            if len(ready) < len(self.opening):
                return False
            try:
                found, self.opening, self.away_since = ray.get(self.opening), [], None
            except ActorUnavailableError as error:
                self.wait_for_return(error)
                self.opening = self.describe()
                return False
            self.address = found[0]["address"]
            self.check_together(sorted({one["address"] for one in found}))
            self.directory = found[0]["directory"]
            self.gpus = sorted((gpu for one in found for gpu in one["gpus"]), key=lambda gpu: (len(gpu), gpu))
            if not found[0]["has_program"]:
                archive = self.placement.archive.get()
                self.installing = Asking(self, lambda actor: actor.install.remote(program.digest(), archive))
        if self.installing is not None:
            if not self.installing.has_answer(wait_s):
                return False
            self.installing = None
        return True

    def check_together(self, addresses):
        """Ray gives the bundles of a lost node to whatever nodes have space. Those without an actor are known by the placement group's table."""
        if len(addresses) == 1 and len(self.node.bundles) > 1:
            where = placement_group_table(self.node.group)["bundles_to_node_id"]
            addresses = sorted({where.get(bundle) for bundle in self.node.bundles} & alive_nodes())  # one that is lost is about to be replaced
        if len(addresses) > 1:
            raise ApartError(f"Ray has moved the workers of one node to {' and '.join(addresses)}")

    def join(self, endpoint, secret):
        """Starts an agent, unless there is one, or one has just ended. A node where none can be started does not end the run."""
        try:
            if self.joining is not None and self.joining.has_answer(0):
                self.agent, self.joining = self.joining.answer, None
            if not self.is_joined and time.monotonic() >= self.join_at and self.is_open():
                number = next(self.numbers)
                self.joining, self.is_joined = Asking(self, lambda actor: actor.join.remote(number, endpoint, secret, self.gpus)), True
        except RayError as error:
            self.open_again(error)

    @property
    def can_be_polled(self):
        """The agent has been started: before that its actor would report the end of the one before."""
        return self.is_joined and self.joining is None

    def news(self):
        """What poll() has answered, or None while the actor is out of reach; it then repeats what was not received."""
        polling, self.polling = self.polling, None
        try:
            answer = ray.get(polling)
        except ActorUnavailableError as error:
            self.wait_for_return(error)
            return None
        self.heard, self.away_since = self.heard + 1, None
        return answer

    def ask(self, call):
        """The answer of a call that may be made twice."""
        while True:
            try:
                answer = ray.get(call(self.first))
                self.away_since = None
                return answer
            except ActorUnavailableError as error:
                self.wait_for_return(error)

    def wait_for_return(self, error):
        """A connection may break for a moment; Ray names an actor that is dead."""
        now = time.monotonic()
        self.away_since = self.away_since or now
        if now > self.away_since + AWAY_S:
            raise error
        time.sleep(AWAY_POLL_S)

    def open_again(self, error):
        """In the same bundles; where the node is lost, Ray moves them to another."""
        self.kill()
        self.open()
        self.failed, self.last_error = self.failed + 1, error
        self.wait_longer()
        warn(f"{self.address or 'a node'} has no agent; next try in {self.join_at - time.monotonic():.0f} s: {reason(error)}")

    def note_end(self, code, error):
        """The agent has ended. If the run goes on without it, it is needed again."""
        self.is_joined = False
        self.wait_longer()
        if code:
            self.failed, self.last_error = self.failed + 1, RuntimeError(error)
            warn(f"the agent on {self.address} exited with {code}\n{error}")

    def wait_longer(self):
        now = time.monotonic()
        self.pause_s = AGAIN_S if now > self.join_at + LONGEST_S else self.pause_s
        self.join_at, self.pause_s = now + self.pause_s, min(2 * self.pause_s, LONGEST_S)

    def kill(self):
        for actor in self.actors:
            ray.kill(actor)
