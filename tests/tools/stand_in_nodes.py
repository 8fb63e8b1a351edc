"""tests/tools/stand_in_nodes.py: actors that fail as often as a test says, and a clock that only sleep() moves."""

import contextlib
import io
import sys
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

import stand_in_ray  # noqa: E402

stand_in_ray.install()

from weft_ray import node, place, placement, program  # noqa: E402


class FakeNode:
    """An actor that fails as often as its class says."""

    faults, joined, codes, addresses, dropped, heard = {}, 0, [], [], [], []
    directory, entered, blind, numbers = None, [], [], []

    def fail(self, name):
        if self.faults.get(name):
            raise self.faults[name].pop(0)

    def describe(self, _):
        self.fail("describe")
        return {"address": FakeNode.addresses.pop(0) if FakeNode.addresses else "10.0.0.2", "gpus": ["0"], "has_program": False, "directory": FakeNode.directory}

    def enters(self, folder):
        FakeNode.entered.append(folder)
        return FakeNode.blind.pop(0) if FakeNode.blind else True

    def sees(self, _):
        return True

    def train(self, number, *arguments):
        FakeNode.numbers.append(number)
        self.fail("train")
        return "/r/x/run.yaml"

    def install(self, *_):
        self.fail("install")

    def join(self, number, *_):
        FakeNode.numbers.append(number)
        self.fail("join")
        FakeNode.joined += 1
        return "n2", 4711

    def drop(self, host, pid):
        FakeNode.dropped.append((host, pid))

    def poll(self, _, heard):
        FakeNode.heard.append(heard)
        self.fail("poll")
        code, error = FakeNode.codes.pop(0) if FakeNode.codes else None, "error: agent"
        if isinstance(code, tuple):
            code, error = code
        return {"code": code, "error": error, "reports": [], "failures": [], "lines": [], "reported": None, "restarts": 0, "size": None, "endpoint": None}

    def secret(self):
        self.fail("secret")
        return "secret"

    def summary(self, _):
        self.fail("summary")
        return {}, []

    def stop(self, _):
        return None

    def close(self):
        return None


def make_settings(**more):
    return SimpleNamespace(**{"bundle": {"CPU": 1}, "uses_gpu": False, "ranks": 2, "fewest": 2, "max_failures": 3, "is_remote": False, "run_dir": "/r/x",
                              "datasets": {}, "tp": 1, "check_nodes": lambda nodes: None, "score": None, "labels": None, **more})


class WithNodes(unittest.TestCase):
    def setUp(self):
        FakeNode.faults, FakeNode.joined, FakeNode.codes, FakeNode.addresses, FakeNode.dropped, FakeNode.heard = {}, 0, [], [], [], []
        FakeNode.directory, FakeNode.entered, FakeNode.blind, FakeNode.numbers = None, [], [], []
        self.now = 1000.0
        for target, name, value in ((node, "WeftNode", FakeNode), (program, "digest", lambda: "d"), (place.time, "monotonic", lambda: self.now), (place.time, "sleep", self.sleep)):
            patch = mock.patch.object(target, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        self.said, hearing = io.StringIO(), contextlib.ExitStack()
        hearing.enter_context(contextlib.redirect_stderr(self.said))
        self.addCleanup(hearing.close)

    def sleep(self, seconds):
        self.now += seconds

    def make_place(self, **more):
        where = SimpleNamespace(settings=make_settings(**more), archive=SimpleNamespace(get=lambda: b""), num_nodes=2)
        return place.Place(where, placement.Node("n" * 20, None, (0, 1)), None)
