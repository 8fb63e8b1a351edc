#!/usr/bin/env python3
"""tests/tools/weft_ray_fit_test.py: attempts, budget and exit codes of python/weft_ray, and its smaller parts, with a stand-in for Ray."""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
import unittest
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent))

import stand_in_ray  # noqa: E402
from stand_in_nodes import WithNodes, make_settings  # noqa: E402

from weft_ray import command, elastic, keep, node, placement, result, run, settings, trainer  # noqa: E402

RayActorError, ControllerError = stand_in_ray.RayActorError, stand_in_ray.ControllerError


class Fit(WithNodes):
    """WeftTrainer.fit: attempts, words, budget."""

    def fit(self, ends, **more):
        """ends: (has saved, what the attempt ends with). The words of every attempt."""
        seen = []

        class Attempt:
            head_ranks, has_reported = [0, 1], False

            def __init__(self, owner, placement_, failures, words, reported, is_first):
                self.failures, self.words, self.reported, self.has_saved = failures, words, reported, False
                seen.append((words, is_first))

            def train(self):
                self.has_saved, end = ends.pop(0)
                self.has_reported = self.has_saved
                if isinstance(end, Exception):
                    raise end
                return end

            def report_failures(self, failures):
                Fit.reported = failures

            def worker_failures(self, code, error):
                return {0: run.WeftError(code, error)}

            def close(self):
                return None
        one = trainer.WeftTrainer.__new__(trainer.WeftTrainer)
        one.settings, one.words = make_settings(**more), ["--overwrite", "--force", "--resume", "other", "--convert-states"]
        with mock.patch.object(trainer, "Run", Attempt), mock.patch.object(trainer, "Placement", self.Where):
            return one.fit(), seen

    class Where:
        placed = []

        def __init__(self, _):
            Fit.Where.placed = []

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

        def place_again(self):
            self.placed.append("again")

    def test_words_hold_until_something_is_saved(self):
        lost = run.SupervisorLost("killed")
        _, seen = self.fit([(False, lost), (True, lost), (False, "Result")])
        every = ["--overwrite", "--force", "--resume", "other", "--convert-states"]
        self.assertEqual(seen, [(every, True), (every, False), (["--force", "--convert-states"], False)])
        self.assertEqual(self.said.getvalue().count("killed; restarting all ranks"), 2)

    def test_workers_apart_are_placed_again(self):
        apart = run.SupervisorLost("moved")
        apart.is_apart = True
        self.fit([(True, apart), (True, "Result")])
        self.assertEqual(self.Where.placed, ["again"])

    def test_pauses_grow_until_a_step_is_made(self):
        lost, begin = run.SupervisorLost("killed"), self.now
        self.fit([(False, lost)] * 8 + [(True, "Result")], max_failures=-1)
        self.assertEqual(self.now - begin, 1 + 2 + 4 + 8 + 16 + 32 + 60 + 60)
        begin = self.now
        self.fit([(True, lost)] * 8 + [(False, lost), (True, "Result")], max_failures=-1)
        self.assertEqual(self.now - begin, 1)

    def test_budget(self):
        with self.assertRaises(stand_in_ray.WorkerGroupError) as found:
            self.fit([(True, run.SupervisorLost("killed"))] * 2, max_failures=1)
        self.assertIn("killed; FailureConfig(max_failures=1)", str(found.exception))
        self.assertEqual(Fit.reported, [([0, 1], "killed")])


class ExitCodes(WithNodes):
    def end(self, error):
        def fit():
            raise error
        with mock.patch.object(command, "make_trainer", lambda args: SimpleNamespace(fit=fit)), mock.patch.object(command, "connect", lambda: None):
            return command.train(SimpleNamespace(quiet=False))

    def test_codes_and_what_is_said(self):
        lost = stand_in_ray.WorkerGroupError("the actor is lost; max_failures", {0: run.WeftError(75, "")})
        lost.__cause__ = run.SupervisorLost("the actor is lost")
        for error, code, text in (
                (ControllerError(ValueError("not shared")), 2, "not shared"), (ControllerError(PermissionError("read-only")), 2, "read-only"),
                (run.remote_error(stand_in_ray.RayTaskError(OSError(28, "No space left on device")).as_instanceof_cause(), "n1"), 1, "n1: [Errno 28] No space left on device"),
                (run.remote_error(stand_in_ray.RayTaskError(OSError(122, "Disk quota exceeded")).as_instanceof_cause(), "", "/r/x"), 1, "cannot write /r/x: [Errno 122] Disk quota exceeded"),
                (ControllerError(TimeoutError("too small")), 75, "too small"), (ControllerError(RayActorError("lost")), 75, "lost"), (lost, 75, "the actor is lost"),
                (stand_in_ray.WorkerGroupError("exited with 3", {0: run.WeftError(3, "error: shown already")}), 3, "")):
            before = len(self.said.getvalue())
            self.assertEqual(self.end(error), code, str(error))
            said = self.said.getvalue()[before:]
            self.assertTrue(text in said if text else not said, said)


@contextlib.contextmanager
def without(module, name):
    kept = getattr(module, name)
    delattr(module, name)
    try:
        yield
    finally:
        setattr(module, name, kept)


class Arguments(unittest.TestCase):
    def test_those_of_other_trainers(self):
        for arguments, kind, wanted in (({"train_loop_per_worker": print}, ValueError, "train_loop_per_worker is not supported .*a run file, or a dict"),
                                        ({"run": print}, ValueError, "a run file, or a dict"), ({}, ValueError, r"WeftTrainer\(run\): pass a run file"),
                                        ({"run": "a.yaml", "resume_from_checkpoint": 1}, ValueError, "the same name and storage_path resume"),
                                        ({"run": "a.yaml", "dataset": {}}, TypeError, "no argument dataset; it has run, .* datasets")):
            with self.assertRaisesRegex(kind, wanted):
                trainer.WeftTrainer(**arguments)
        with mock.patch.object(trainer.program, "digest", lambda: "d"), self.assertRaisesRegex(ValueError, r"scaling_config=\{'num_workers': 2\}: expected a ray.train.ScalingConfig"):
            trainer.WeftTrainer("a.yaml", scaling_config={"num_workers": 2})


class Contexts(WithNodes):
    def test_one_run_id_for_all_attempts(self):
        made = []

        def context(**fields):
            made.append(fields)
            return SimpleNamespace(run_id=len(made))
        with mock.patch.object(trainer.program, "digest", lambda: "d"), mock.patch.object(trainer, "read_settings", lambda *_: make_settings()), \
                mock.patch.object(run, "TrainRunContext", context):
            one = trainer.WeftTrainer("a.yaml", train_loop_config={"train.lr": 1})
            for is_first in (True, False):
                run.Run(one, SimpleNamespace(settings=one.settings), 0, [], (0, 0), is_first)
        self.assertEqual((one.run_context.run_id, len(made), made[0]["train_loop_config"]), (1, 1, {"train.lr": 1}))


class Parts(unittest.TestCase):
    def test_fields_of_other_rays(self):
        @dataclass
        class Config:
            old: int = 1
            new: dict = field(default_factory=dict)
        settings.refuse_changed(Config(), Config(), ("old", "only_in_a_newer_ray"), "why")
        settings.refuse_unknown(Config(), {"old"})
        with self.assertRaisesRegex(ValueError, "Config\\(new\\)"):
            settings.refuse_unknown(Config(new={"x": 1}), {"old"})
        with self.assertRaisesRegex(ValueError, "Config\\(old\\)=2"):
            settings.refuse_changed(Config(old=2), Config(), ("old",), "why")

    def test_another_node_is_waited_for_unless_the_run_file_says_how_long(self):
        self.assertEqual(settings.launch_keys({"launch": {"threads": 1}}, {}), {"launch.join_timeout_s": 604_800})
        self.assertEqual(settings.launch_keys({"launch": {"join_timeout_s": 5}}, {}), {})
        self.assertEqual(settings.launch_keys({}, {"launch.join_timeout_s": 5}), {})

    def test_a_result_whose_metric_is_null(self):
        checkpoints = [("/c/1", {"step": 1, "loss": 2.0}), ("/c/2", {"step": 2, "loss": None}), ("/c/3", {"step": 3, "loss": 1.0}), ("/c/4", {"step": 4})]
        for order, wanted in (("min", [2, 4, 1, 3]), ("max", [2, 4, 3, 1])):
            made = result.make_result(make_settings(score=("loss", order)), (None, "/r/x"), {}, checkpoints)
            self.assertEqual([values["step"] for _, values in made.best_checkpoints], wanted)

    def test_an_object_store_that_the_driver_cannot_read(self):
        def from_uri(_):
            raise OSError("no endpoint")
        with mock.patch.object(result.pyarrow.fs, "FileSystem", SimpleNamespace(from_uri=from_uri), create=True), \
                self.assertRaisesRegex(ValueError, "AWS_ENDPOINT_URL"):
            result.open_storage(make_settings(is_remote=True, run_dir="s3://b/x"))

    def test_keys_of_other_engines_are_replaced(self):
        fixed = placement.Placement.__new__(placement.Placement)
        fixed.num_nodes = 1
        self.assertEqual(fixed.keys, {"launch.nodes": 1, "launch.elastic": False, "launch.min_nodes": 0})
        changing = elastic.ElasticPlacement.__new__(elastic.ElasticPlacement)
        changing.num_nodes, changing.min_nodes = 4, 4
        self.assertEqual(changing.keys, {"launch.nodes": 4, "launch.elastic": False, "launch.min_nodes": 0})
        changing.min_nodes = 2
        self.assertEqual(changing.keys, {"launch.nodes": 4, "launch.elastic": True, "launch.min_nodes": 2})
        with self.assertRaisesRegex(ValueError, "launch.elastic is decided by"):
            settings.check_keys({"launch.elastic": True})

    def test_news_that_was_not_heard_is_said_again(self):
        one, seen = node.WeftNode(), iter(range(10))
        one.look = lambda: {"reports": [next(seen)], "failures": [], "lines": [], "code": None}
        self.assertEqual([one.poll(0, heard)["reports"] for heard in (0, 0, 1, 2, 2)], [[0], [0], [1], [2], [2]])

    def test_a_program_that_is_none(self):
        with tempfile.TemporaryDirectory() as folder:
            one = node.WeftNode()
            one.program = os.path.join(folder, "weft")
            Path(one.program).write_bytes(b"\x7fELF, but of no machine")
            os.chmod(one.program, 0o755)
            with self.assertRaisesRegex(RuntimeError, "Exec format error"):
                one.start(["train"], folder, [])

    def test_an_actor_ends_with_its_raylet_where_python_has_no_pidfd(self):
        reading, writing = os.pipe()
        raylet = os.fork()
        if raylet == 0:
            if os.fork() == 0:  # the actor
                with without(os, "pidfd_open"), mock.patch.object(node, "LOOK_S", 0.01):
                    node.end_with(raylet := os.getppid())
                os.write(writing, f"{raylet} lives".encode())
            time.sleep(60)
        os.close(writing)
        os.kill(raylet, 9)
        os.waitpid(raylet, 0)
        self.assertEqual(os.read(reading, 100), b"")  # the last writer has ended
        os.close(reading)

    def test_tensor_parallel_groups_that_do_not_fit_on_a_node(self):
        fixed = placement.Placement.__new__(placement.Placement)
        for tp, nodes, wanted in ((2, "ab", r"1 workers on each of 2 nodes.*parallel\.tp=2 does not divide 1: use placement_strategy=\"PACK\""), (2, "aabb", None), (1, "ab", None),
                                  (1, "aab", "Ray has placed 2, 1 workers on 2 nodes, but weft needs the same number on each node")):
            fixed.settings, fixed.group = make_settings(tp=tp), None
            with mock.patch.object(placement, "placement_group_table", lambda _, nodes=nodes: {"bundles_to_node_id": dict(enumerate(nodes))}), \
                    self.assertRaisesRegex(ValueError, wanted) if wanted else contextlib.nullcontext():
                self.assertEqual([node.bundles for node in fixed.nodes()], [(0, 1), (2, 3)] if tp == 2 else [(0,), (1,)])

    def test_a_signal_is_heard_while_workers_are_placed(self):
        fixed, waits = placement.Placement.__new__(placement.Placement), []

        def wait(seconds):
            waits.append(seconds)
            if len(waits) == 3:
                raise KeyboardInterrupt
        fixed.group = SimpleNamespace(wait=wait)
        with self.assertRaises(KeyboardInterrupt):
            fixed.wait()
        self.assertEqual(waits, [1, 1, 1])

    def test_an_actor_ends_with_its_raylet(self):
        with subprocess.Popen(["sleep", "60"]) as raylet:
            actor = os.fork()
            if actor == 0:
                node.end_with(raylet.pid)
                os._exit(0)
            raylet.kill()
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(actor, 0)[1]), 1)

    def test_leftovers_of_killed_actors(self):
        with tempfile.TemporaryDirectory() as folder:
            old, new, half = (Path(folder) / name for name in (".draft-old", ".draft-new", ".removing-step-00000003"))
            for path in (old, new, half):
                path.mkdir()
            os.utime(old, (0, 0))
            node.sweep(folder)
            keep.Keeper(folder, 1, ("loss", "min"))
            self.assertEqual([path.exists() for path in (old, new, half)], [False, True, False])


if __name__ == "__main__":
    unittest.main()
