"""weft_ray/elastic.py: num_workers=(min, max): one placement group per node; those that Ray cannot place yet wait, and join when it can."""

import time

import ray
import ray.util.client
from ray._private.state import available_resources_per_node  # as ray.util.tpu does: there is no public name for it
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group

from weft_ray.place import alive_nodes, warn
from weft_ray.placement import Archive, Node
from weft_ray.waits import TIMEOUT_VARIABLE, amount, cluster_text, timeout_s

POLL_S, SETTLE_S = 0.2, 2.0


def fitting(resources, bundle):
    """How many bundles a node can hold."""
    counts = [int(resources.get(name, 0.0) // value) for name, value in bundle.items() if value > 0]
    return min(counts, default=0)


def meets(value, condition):
    """Whether a node's label, or None, meets one of Ray's selectors: x, !x, in(x, y), !in(x, y)."""
    is_other, rest = condition.startswith("!"), condition.removeprefix("!")
    names = rest[3:-1].split(",") if rest.startswith("in(") and rest.endswith(")") else [rest]
    return (value in [name.strip() for name in names]) != is_other


def free_resources():
    """{node id: what it has free}. Ray's client cannot ask for it, but a task can."""
    if ray.util.client.ray.is_connected():
        return ray.get(ray.remote(num_cpus=0)(available_resources_per_node).remote())
    return available_resources_per_node()


def allowed_nodes(settings):
    """Those on which label selectors allow a worker."""
    selectors = settings.labels or [{}]
    return [node for node in ray.nodes() if node["Alive"] and
            any(all(meets(node.get("Labels", {}).get(name), text) for name, text in selector.items()) for selector in selectors)]


def possible_nodes(settings):
    """[(what it has free, what it has)] of the nodes that a worker may be placed on."""
    free = free_resources()
    return [(free.get(node["NodeID"], {}), node["Resources"]) for node in allowed_nodes(settings)]


def num_fitting(settings):
    """How many workers the nodes hold when all they have is free."""
    return sum(fitting(node["Resources"], settings.bundle) for node in allowed_nodes(settings))


def fitting_node(settings):
    """The id of a node that is large enough for a worker, or None."""
    return next((node["NodeID"] for node in allowed_nodes(settings) if not settings.bundle or fitting(node["Resources"], settings.bundle) > 0), None)


def rounded(settings, part):
    """The fewest workers, in whole parts."""
    return -(-settings.fewest // part) * part


def workers_per_node(settings, nodes):
    """The largest divisor of max_workers with which the nodes hold the most workers and the run stays elastic; the smallest where none fits yet: nodes to come may be small.

    Whole nodes join and leave, and hold whole tensor-parallel groups. A minimum that is rounded up to them is accepted only where the nodes hold that many.
    """
    parts = [part for part in range(settings.tp, settings.ranks, settings.tp) if settings.ranks % part == 0]
    placed = {part: min(settings.ranks, sum(part * (fitting(one, settings.bundle) // part) for one in nodes)) for part in parts}
    if not any(placed.values()):
        return settings.tp
    fewest = {part: rounded(settings, part) for part in parts}
    return max(parts, key=lambda part: (fewest[part] < settings.ranks, placed[part], fewest[part] == settings.fewest or fewest[part] <= placed[part], part))


def choose_workers_per_node(settings):
    """By what is free. Ray needs a moment to count what has just been released."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        nodes = possible_nodes(settings)
        free, all_of_it = ([node[i] for node in nodes] for i in range(2))
        part = workers_per_node(settings, free)
        if part == workers_per_node(settings, all_of_it) or time.monotonic() > deadline:
            return part
        time.sleep(POLL_S)


class ElasticPlacement:
    """As Placement; more() has the nodes that have come since."""

    def __init__(self, settings):
        self.settings, self.archive = settings, Archive()
        self.part = choose_workers_per_node(settings)
        self.num_nodes = settings.ranks // self.part
        self.min_nodes = rounded(settings, self.part) // self.part
        if self.min_nodes * self.part > settings.fewest:
            warn(f"num_workers=({settings.fewest}, {settings.ranks}): whole nodes of {self.part} workers join and leave, so at least {self.min_nodes * self.part} workers train")
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
        alive, found = alive_nodes(), {}
        for number, group in enumerate(self.groups):
            table = placement_group_table(group)
            nodes = set(table["bundles_to_node_id"].values())
            if table["state"] == "CREATED" and nodes <= alive:
                found[number] = Node(nodes.pop(), group, tuple(range(self.part)))
        return found

    def wait(self):
        """The nodes that are placed, as soon as there are enough of them."""
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
                f"Add nodes, request fewer workers or resources, or wait longer ({TIMEOUT_VARIABLE})")
