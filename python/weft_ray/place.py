"""weft_ray/place.py: the actors on one node, and the program there."""

import sys
import time

import ray
from ray import cloudpickle
from ray.exceptions import ActorUnavailableError, RayError
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from weft_ray import follow, keep, libraries, node, program

AGAIN_S, LONGEST_S = 1.0, 60.0  # before an agent that has ended is started again: twice as long each time, until one has lasted for LONGEST_S
AWAY_S, AWAY_POLL_S = 60.0, 0.5  # how long an actor may be out of reach before it counts as lost, and how often it is asked meanwhile

for module in (follow, keep, libraries, node):  # nodes do not have them
    cloudpickle.register_pickle_by_value(module)


def warn(text):
    print(f"warning: {text}", file=sys.stderr, flush=True)


def reason(error):
    """What went wrong, without the traceback that Ray adds to what an actor raises."""
    return str(getattr(error, "cause", None) or error).strip()


class ApartError(Exception):
    """Ray has moved the bundles of one node to several."""


class Place:
    """The first actor starts a child. The others hold GPUs: Ray hands out their ids to actors."""

    def __init__(self, placement, at, runtime_env):
        self.placement, self.node, self.runtime_env = placement, at, runtime_env
        self.pause_s, self.join_at, self.address = AGAIN_S, 0.0, ""
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
        self.installing = self.joining = self.polling = None
        self.heard, self.away_since = 0, None  # answers of poll(); since when the actor is out of reach
        self.gpus, self.is_joined, self.agent = [], False, None  # agent: (host, process id)

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
            if len(addresses := sorted({one["address"] for one in found})) > 1:
                raise ApartError(f"Ray has moved the workers of one node to {' and '.join(addresses)}")
            self.gpus = sorted((gpu for one in found for gpu in one["gpus"]), key=lambda gpu: (len(gpu), gpu))
            if not found[0]["has_program"]:
                self.installing = self.first.install.remote(program.digest(), self.placement.archive.get())
        if self.installing is not None:
            if not ray.wait([self.installing], timeout=wait_s)[0]:
                return False
            installing, self.installing = self.installing, None
            ray.get(installing)
        return True

    def join(self, endpoint, secret):
        """An agent, unless there is one, or one has just ended. A node that cannot have one is no reason to end the run."""
        try:
            if self.joining is not None and ray.wait([self.joining], timeout=0)[0]:
                joining, self.joining = self.joining, None
                self.agent = ray.get(joining)
            if not self.is_joined and time.monotonic() >= self.join_at and self.is_open():
                self.joining, self.is_joined = self.first.join.remote(endpoint, secret, self.gpus), True
        except RayError as error:
            self.open_again(error)

    @property
    def can_be_polled(self):
        """The agent has been started: before that its actor would report the end of the one before."""
        return self.is_joined and self.joining is None

    def news(self):
        """What poll() has answered, or None: the actor is out of reach for a moment. It says again what was not heard."""
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
        self.wait_longer()
        warn(f"{self.address or 'a node'} has no agent, and is tried again in {self.join_at - time.monotonic():.0f} s: {reason(error)}")

    def note_end(self, code, error):
        """The agent has ended. If the run goes on without it, it is needed again."""
        self.is_joined = False
        self.wait_longer()
        if code:
            warn(f"the agent on {self.address} has ended with {code}\n{error}")

    def wait_longer(self):
        now = time.monotonic()
        self.pause_s = AGAIN_S if now > self.join_at + LONGEST_S else self.pause_s
        self.join_at, self.pause_s = now + self.pause_s, min(2 * self.pause_s, LONGEST_S)

    def kill(self):
        for actor in self.actors:
            ray.kill(actor)
