#!/usr/bin/env python3
"""tests/tools/weft_ray_settings_test.py: what python/weft_ray makes of a configuration, with a stand-in for Ray."""

import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import stand_in_ray  # noqa: E402

stand_in_ray.install()

from weft_ray import elastic, settings  # noqa: E402


def make_settings(fewest, most, tp=1, bundle=None, labels=None):
    return SimpleNamespace(fewest=fewest, ranks=most, tp=tp, bundle=bundle or {"GPU": 1.0}, labels=labels)


def scaling(workers, strategy="PACK"):
    return SimpleNamespace(num_workers=workers, placement_strategy=strategy)


class Elastic(unittest.TestCase):
    def part(self, fewest, most, free, **more):
        return elastic.workers_per_node(make_settings(fewest, most, **more), [{"GPU": float(one)} for one in free])

    def test_as_many_as_nodes_hold(self):
        self.assertEqual(self.part(1, 8, [4, 4]), 4)
        self.assertEqual(self.part(1, 8, [4, 3]), 1)  # seven, in place of four or six
        self.assertEqual(self.part(2, 8, [4, 2], tp=2), 2)

    def test_the_smallest_where_nothing_fits_yet(self):
        self.assertEqual(self.part(1, 8, []), 1)
        self.assertEqual(self.part(1, 8, [0, 0], tp=2), 2)

    def test_it_stays_elastic(self):
        self.assertEqual(self.part(3, 4, [4]), 1)
        self.assertEqual(self.part(6, 8, [4, 4]), 2)
        self.assertEqual(self.part(3, 4, [4], tp=2), 2)  # no part does

    def test_a_minimum_is_rounded_up_only_where_it_is_there(self):
        self.assertEqual(self.part(5, 8, [4, 4]), 2)
        self.assertEqual(self.part(5, 8, [4]), 1)

    def test_nodes_that_selectors_allow_and_what_they_have_free(self):
        nodes = [{"NodeID": name, "Alive": name != "c", "Resources": {"GPU": 8.0}, "Labels": {"kind": kind}} for name, kind in zip("abc", "xyx")]
        nodes.append({"NodeID": "d", "Alive": True, "Resources": {"GPU": 8.0}})
        free = {"a": {"GPU": 1.0}, "b": {"GPU": 2.0}, "c": {"GPU": 3.0}}
        with mock.patch.object(elastic.ray, "nodes", lambda: nodes, create=True), mock.patch.object(elastic, "free_resources", lambda: free):
            for labels, wanted in ((None, [{"GPU": 1.0}, {"GPU": 2.0}, {}]), ([{"kind": "x"}], [{"GPU": 1.0}]), ([{"kind": "!x"}], [{"GPU": 2.0}, {}]),
                                   ([{"kind": "in(x, y)"}], [{"GPU": 1.0}, {"GPU": 2.0}]), ([{"kind": "!in(x,y)"}], [{}]),
                                   ([{"kind": "x"}, {"kind": "y"}], [{"GPU": 1.0}, {"GPU": 2.0}])):
                found = elastic.possible_nodes(make_settings(1, 8, labels=labels))
                self.assertEqual(found, [(one, {"GPU": 8.0}) for one in wanted], labels)

    def test_rows_are_written_where_workers_can_be(self):
        nodes = [{"NodeID": name, "Alive": name != "b", "Resources": resources, "Labels": {"kind": name}}
                 for name, resources in (("head", {}), ("a", {"CPU": 1.0}), ("b", {"CPU": 8.0}), ("c", {"CPU": 4.0}))]
        with mock.patch.object(elastic.ray, "nodes", lambda: nodes, create=True):
            for bundle, labels, wanted in (({"CPU": 1}, None, "a"), ({"CPU": 2}, None, "c"), ({"CPU": 1}, [{"kind": "in(b,c)"}], "c"), ({"GPU": 1}, None, None), ({}, None, "head")):
                self.assertEqual(elastic.fitting_node(SimpleNamespace(bundle=bundle, labels=labels)), wanted)

    def test_resources_that_were_given_back_just_now(self):
        def choose(*answers):
            answers = list(answers)
            with mock.patch.object(elastic, "possible_nodes", lambda _: [({"GPU": answers.pop(0) if len(answers) > 1 else answers[0]}, {"GPU": 4.0})]), \
                    mock.patch.object(elastic, "POLL_S", 0.0), mock.patch.object(elastic, "SETTLE_S", 0.01 if len(answers) == 1 else 10.0):
                return elastic.choose_workers_per_node(make_settings(1, 8))
        self.assertEqual([choose(4.0), choose(0.0, 1.0, 4.0), choose(2.0)], [4, 4, 2])

    def test_a_minimum_that_is_rounded_up_is_said(self):
        for fewest, wanted in ((1, "at least 4 workers train"), (4, "")):
            said = io.StringIO()
            with mock.patch.object(elastic, "possible_nodes", lambda _: [({"GPU": 4.0},) * 2]), mock.patch.object(elastic, "placement_group", lambda *_, **__: None), \
                    contextlib.redirect_stderr(said):
                placed = elastic.ElasticPlacement(make_settings(fewest, 8))
            self.assertEqual((placed.part, placed.min_nodes, placed.num_nodes), (4, 1, 2))
            self.assertTrue(wanted in said.getvalue() if wanted else not said.getvalue(), said.getvalue())

    def test_what_cannot_be_elastic_is_refused_without_a_cluster(self):
        run = {"parallel": {"dp": 2, "tp": 2}}
        self.assertEqual(settings.check_ranks(scaling((2, 4)), run, {}), (4, 2, 2))
        for one, sections, wanted in ((scaling((2, 4), "SPREAD"), run, r"placement_strategy\)='SPREAD'"), (scaling((2, 4)), {"parallel": {"tp": 4}}, "there is no smaller number")):
            with self.assertRaisesRegex(ValueError, wanted):
                settings.check_ranks(one, sections, {})
        self.assertEqual(settings.check_ranks(scaling(4, "SPREAD"), run, {}), (4, 4, 2))


class Scalar:
    """As numpy's are."""

    ndim = 0

    def __init__(self, value):
        self.value = value

    def item(self):
        return self.value


class Values(unittest.TestCase):
    def test_numbers_of_numpy(self):
        self.assertEqual(settings.plain("key", [Scalar(1e-4), {"a": Scalar(3)}, "x", None, True]), [1e-4, {"a": 3}, "x", None, True])
        text, sections = settings.read_run({"name": "x", "train": {"lr": Scalar(1e-4)}})
        self.assertEqual((sections["train"], '"lr": 0.0001' in text), ({"lr": 1e-4}, True))

    def test_other_values_are_refused_by_the_name_of_their_key(self):
        for make in (lambda: settings.read_run({"train": {"lr": {1, 2}}}), lambda: settings.plain("train.lr", Path("x")), lambda: settings.plain("train.lr", object())):
            with self.assertRaisesRegex(ValueError, r"train\.lr: .* has the type (set|PosixPath|object); expected text, numbers"):
                make()

    def test_nested_keys(self):
        with self.assertRaisesRegex(ValueError, r'train_loop_config: .*with dots, not nested: \{"parallel\.dp": 2, "parallel\.tp": 1\}'):
            settings.check_keys({"train.lr": 1e-3, "parallel": {"dp": 2, "tp": 1}})
        with self.assertRaisesRegex(ValueError, r"train_loop_config=\['train\.lr'\]: expected a dict"):
            settings.check_keys(["train.lr"])
        for key in (1, ""):
            with self.assertRaisesRegex(ValueError, f"train_loop_config: {key!r} is not a key of a run file"):
                settings.check_keys({key: {"dp": 2}})

    def test_keys_whose_values_are_dicts(self):
        settings.check_keys({"launch.env": {"HF_HOME": "/x"}, "launch.slurm": {"partition": "gpu"}})
        with self.assertRaisesRegex(ValueError, r'not nested: \{"launch\.env": \{\.\.\.\}\}'):
            settings.check_keys({"launch": {"env": {"HF_HOME": "/x"}}})

    def test_run_files_that_cannot_be_read(self):
        with tempfile.TemporaryDirectory() as folder:
            (binary := Path(folder, "binary.yaml")).write_bytes(b"\xff\xfe\x00")
            for run, kind, wanted in ((f"{folder}/none.yaml", FileNotFoundError, f"the run file {folder}/none.yaml cannot be read: No such file"),
                                      (folder, IsADirectoryError, "cannot be read: Is a directory"), (str(binary), ValueError, "is not UTF-8 text"),
                                      (7, ValueError, "7 is not a run file: expected a path, or a dict")):
                with self.assertRaisesRegex(kind, wanted):
                    settings.read_run(run)

    def test_gpus_need_a_wheel_with_cuda(self):
        gpus = SimpleNamespace(use_gpu=True, num_cpus_per_worker=1, num_gpus_per_worker=1, additional_resources_per_worker={})
        with mock.patch.object(settings, "refuse_unknown", lambda *_: None):
            with self.assertRaisesRegex(ValueError, "make wheel CUDA=1"):
                settings.read_scaling(gpus, {}, {})
            with mock.patch.object(settings.program, "has_cuda", lambda: True):
                self.assertEqual(settings.read_scaling(gpus, {}, {})[0], {"CPU": 1, "GPU": 1})


if __name__ == "__main__":
    unittest.main()
