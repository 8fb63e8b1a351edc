"""weft_ray/place.py: the actors on one node, and the program there."""

import time

import ray
from ray import cloudpickle
from ray.exceptions import RayActorError
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from weft_ray import follow, keep, node, program

AGAIN_S = 1.0  # before an agent that has ended is started again

for module in (follow, keep, node):  # nodes do not have them
    cloudpickle.register_pickle_by_value(module)


class Place:
    """The first actor starts a child. The others hold GPUs: Ray hands out their ids to actors."""

    def __init__(self, placement, at, runtime_env):
        self.placement, self.node, self.runtime_env = placement, at, runtime_env
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
        self.opening = [actor.describe.remote(program.digest()) for actor in self.actors]
        self.installing = self.polling = None
        self.address, self.gpus, self.is_joined, self.join_at = "", [], False, 0.0

    def is_open(self, wait_s=0.0):
        """Whether actors and program are there. RayActorError: they could not be started."""
        if self.opening:
            ready, _ = ray.wait(self.opening, num_returns=len(self.opening), timeout=wait_s)
            if len(ready) < len(self.opening):
                return False
            found, self.opening = ray.get(self.opening), []
            self.address = found[0]["address"]
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
        """An agent, unless there is one, or one has just ended."""
        try:
            if not self.is_joined and self.is_open() and time.monotonic() >= self.join_at:
                self.first.join.remote(endpoint, secret, self.gpus)
                self.is_joined = True
        except RayActorError:
            self.open_again()

    def open_again(self):
        """In the same bundles; where the node is lost, Ray moves them to another."""
        self.kill()
        self.open()
        self.join_at = time.monotonic() + AGAIN_S

    def note_end(self):
        """The agent has ended. If the run goes on without it, it is needed again."""
        self.is_joined, self.join_at = False, time.monotonic() + AGAIN_S

    def kill(self):
        for actor in self.actors:
            ray.kill(actor)
