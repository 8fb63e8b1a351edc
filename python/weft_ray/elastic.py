"""weft_ray/elastic.py: num_workers=(min, max): one placement group per node; those that Ray cannot place yet wait, and join when it can."""

import time

import ray
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group

from weft_ray.placement import TIMEOUT_VARIABLE, Archive, Node, amount, cluster_text, timeout_s

POLL_S = 0.2


def fitting(resources, bundle):
    """How many bundles a node can hold."""
    counts = [int(resources.get(name, 0.0) // value) for name, value in bundle.items() if value > 0]
    return min(counts, default=0)


def workers_per_node(settings, nodes):
    """The largest part of max_workers with which the present nodes hold the most. Whole nodes come and go, and hold whole tensor-parallel groups."""
    parts = [part for part in range(settings.tp, settings.ranks, settings.tp) if settings.ranks % part == 0]
    if not parts:
        raise ValueError(f"ScalingConfig(num_workers=({settings.fewest}, {settings.ranks})): with parallel.tp={settings.tp} there is no smaller "
                         "number of nodes with equally many workers; use one number")
    placed = {part: min(settings.ranks, sum(part * (fitting(one, settings.bundle) // part) for one in nodes)) for part in parts}
    return max(parts, key=lambda part: (placed[part], part))


class ElasticPlacement:
    """As Placement; more() has the nodes that have come since."""

    def __init__(self, settings):
        self.settings, self.archive = settings, Archive()
        self.part = workers_per_node(settings, [node["Resources"] for node in ray.nodes() if node["Alive"]])
        self.num_nodes = settings.ranks // self.part
        self.min_nodes = -(-settings.fewest // self.part)
        self.groups = [self.make_group(number) for number in range(self.num_nodes)]
        self.taken = set()  # numbers of groups that have been handed out as nodes

    def make_group(self, number):
        labels = self.settings.labels and self.settings.labels[number * self.part:(number + 1) * self.part]
        return placement_group([dict(self.settings.bundle)] * self.part, strategy="STRICT_PACK", **({"bundle_label_selector": labels} if labels else {}))

    def place_again(self):
        self.__exit__()
        self.groups = [self.make_group(number) for number in range(self.num_nodes)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for group in self.groups:
            remove_placement_group(group)

    @property
    def keys(self):
        is_elastic = self.min_nodes < self.num_nodes
        return {"launch.nodes": self.num_nodes, "launch.elastic": is_elastic, "launch.min_nodes": self.min_nodes if is_elastic else 0}

    def placed(self):
        """{number of the group: its node}"""
        alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
        found = {}
        for number, group in enumerate(self.groups):
            table = placement_group_table(group)
            nodes = set(table["bundles_to_node_id"].values())
            if table["state"] == "CREATED" and nodes <= alive:
                found[number] = Node(nodes.pop(), group, tuple(range(self.part)))
        return found

    def wait(self):
        """The nodes that are there, as soon as they are enough."""
        deadline = time.monotonic() + timeout_s()
        while len(found := self.placed()) < self.min_nodes:
            if time.monotonic() > deadline:
                raise TimeoutError(self.missing(len(found)))
            time.sleep(POLL_S)
        self.taken = set(found)
        return list(found.values())

    def more(self):
        found = {number: node for number, node in self.placed().items() if number not in self.taken}
        self.taken |= set(found)
        return list(found.values())

    def missing(self, there):
        return (f"Ray has placed {there} of at least {self.min_nodes} nodes with {self.part} workers each within {timeout_s():g} s "
                f"(num_workers=({self.settings.fewest}, {self.settings.ranks}), {amount(self.settings.bundle)} each); {cluster_text(self.settings.bundle)}. "
                f"Add nodes, ask for less, or wait longer ({TIMEOUT_VARIABLE})")
