"""weft_ray/placement.py: a placement group with one bundle per rank, and the nodes that Ray chose for it."""

import time
from dataclasses import dataclass

import ray
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group

from weft_ray import program
from weft_ray.place import alive_nodes
from weft_ray.waits import TIMEOUT_VARIABLE, amount, cluster_text, timeout_s

WAIT_S = 1


@dataclass(frozen=True)
class Node:
    """A machine and its bundles of a placement group, in their order."""

    id: str
    group: object
    bundles: tuple


class Archive:
    """The program for nodes that lack it: Ray stores it once, when the first one asks."""

    def __init__(self):
        self.stored = None

    def get(self):
        if self.stored is None:
            self.stored = ray.put(program.archive())
        return self.stored


class Placement:
    """A context manager, which releases the resources at its end."""

    def __init__(self, settings):
        self.settings, self.archive, self.num_nodes = settings, Archive(), 0
        self.group = self.make_group()

    def make_group(self):
        labels = {"bundle_label_selector": self.settings.labels} if self.settings.labels else {}
        return placement_group([dict(self.settings.bundle)] * self.settings.ranks, strategy=self.settings.strategy, **labels)

    def place_again(self):
        """Places all bundles anew, by the strategy, after Ray has moved some of them."""
        remove_placement_group(self.group)
        self.group = self.make_group()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        remove_placement_group(self.group)

    def wait(self):
        """The nodes, that of bundle 0 first. TimeoutError: what was requested, and what the cluster has."""
        deadline = time.monotonic() + timeout_s()
        while not self.group.wait(WAIT_S):  # no signal is heard meanwhile
            if time.monotonic() >= deadline:
                raise TimeoutError(self.missing())
        while not self.is_placed():
            if time.monotonic() > deadline:
                raise TimeoutError(self.missing())
            time.sleep(0.1)
        return self.nodes()

    def is_placed(self):
        """False while a bundle's node is lost and Ray has found no other."""
        return alive_nodes().issuperset(placement_group_table(self.group)["bundles_to_node_id"].values())

    def missing(self):
        all_of_it = {name: value * self.settings.ranks for name, value in self.settings.bundle.items()}
        return (f"Ray has not placed {self.settings.ranks} workers ({self.settings.strategy}) within {timeout_s():g} s: they need "
                f"{amount(all_of_it)}, {amount(self.settings.bundle)} each; {cluster_text(all_of_it)}. "
                f"Add nodes, request fewer workers or resources, or wait longer ({TIMEOUT_VARIABLE})")

    def nodes(self):
        places = {}
        for bundle, node in sorted(placement_group_table(self.group)["bundles_to_node_id"].items()):
            places.setdefault(node, []).append(bundle)
        sizes = sorted({len(bundles) for bundles in places.values()})
        if len(sizes) > 1:
            raise ValueError(f"Ray has placed {', '.join(str(len(b)) for b in places.values())} workers on {len(places)} nodes, but weft needs "
                             "the same number on each node: use placement_strategy=\"STRICT_PACK\", \"SPREAD\" or \"STRICT_SPREAD\", or "
                             "resources_per_worker of which a node holds a number that divides num_workers")
        if sizes[0] % self.settings.tp:
            raise ValueError(f"Ray has placed {sizes[0]} workers on each of {len(places)} nodes, but weft needs whole tensor-parallel groups on a node, and "
                             f"parallel.tp={self.settings.tp} does not divide {sizes[0]}: use placement_strategy=\"PACK\" or \"STRICT_PACK\", a smaller "
                             "parallel.tp, or resources_per_worker of which a node holds a multiple of parallel.tp")
        self.num_nodes = len(places)
        return [Node(node, self.group, tuple(bundles)) for node, bundles in places.items()]

    @property
    def min_nodes(self):
        """All are needed."""
        return self.num_nodes

    @property
    def keys(self):
        return {"launch.nodes": self.num_nodes, "launch.elastic": False, "launch.min_nodes": 0}

    def more(self):
        return []
