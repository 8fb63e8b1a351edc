#!/usr/bin/env python3
"""tests/tools/weft_ray_run_test.py: what python/weft_ray does when nodes, actors or agents fail, with a stand-in for Ray."""

import contextlib
import os
import sys
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent))

import stand_in_ray  # noqa: E402
from stand_in_nodes import FakeNode, WithNodes, make_settings  # noqa: E402

from weft_ray import place, placement, run  # noqa: E402

RayActorError, RayError, ControllerError = stand_in_ray.RayActorError, stand_in_ray.RayError, stand_in_ray.ControllerError


class Joining(WithNodes):
    def waits(self, one, times):
        """Seconds until each next try."""
        found = []
        for _ in range(times):
            one.join("here:1", "secret")
            one.join("here:1", "secret")
            found.append(one.join_at - self.now)
            self.now = max(self.now, one.join_at)
        return found

    def test_a_node_that_cannot_unpack_the_program_is_left_out(self):
        FakeNode.faults = {"install": [PermissionError("read-only home")] * 3}
        one = self.make_place()
        self.assertEqual(self.waits(one, 3), [1.0, 2.0, 4.0])
        self.assertIn("read-only home", self.said.getvalue())
        one.join("here:1", "secret")
        self.assertEqual((FakeNode.joined, one.is_joined), (1, True))

    def test_a_runtime_environment_that_fails(self):
        FakeNode.faults = {"describe": [RayError("no such package")]}
        one = self.make_place()
        self.assertEqual(self.waits(one, 1), [1.0])
        one.join("here:1", "secret")
        self.assertTrue(one.is_joined)

    def test_an_actor_that_is_out_of_reach_when_it_starts(self):
        FakeNode.faults = {"describe": [stand_in_ray.ActorUnavailableError("connection lost")]}
        one = self.make_place()
        self.assertEqual([one.is_open(), one.is_open()], [False, True])

    def test_an_agent_that_cannot_be_started(self):
        FakeNode.faults = {"join": [OSError("Exec format error")]}
        one = self.make_place()
        one.join("here:1", "secret")
        self.assertFalse(one.can_be_polled)  # not before its start has been answered
        one.join("here:1", "secret")
        self.assertEqual((FakeNode.joined, one.is_joined), (0, False))
        self.assertEqual(self.said.getvalue(), "warning: 10.0.0.2 has no agent; next try in 1 s: Exec format error\n")
        self.now += 1.0
        self.waits(one, 1)
        self.assertEqual((FakeNode.joined, one.can_be_polled), (1, True))

    def test_an_agent_that_has_lasted_is_started_again_soon(self):
        one = self.make_place()
        for _ in range(3):
            one.note_end(75, "error: no such run")
        self.assertEqual(one.join_at - self.now, 4.0)
        self.now = one.join_at + place.LONGEST_S + 1
        one.note_end(0, "")
        self.assertEqual(one.join_at - self.now, 1.0)
        self.assertEqual(self.said.getvalue().count("exited with 75\nerror: no such run"), 3)

    def test_gpus_of_two_nodes_are_not_those_of_one(self):
        FakeNode.addresses = ["10.0.0.2", "10.0.0.3"]
        with self.assertRaisesRegex(place.ApartError, "10.0.0.2 and 10.0.0.3"):
            self.make_place(uses_gpu=True).join("here:1", "secret")

    def test_workers_without_a_gpu_that_ray_has_moved_apart(self):
        alive = [{"NodeID": name, "Alive": name != "c"} for name in "abc"]
        for second, is_apart in (("a", False), ("b", True), ("c", False)):  # c is lost, and Ray is about to move its bundle
            with mock.patch.object(place, "placement_group_table", lambda _, second=second: {"bundles_to_node_id": {0: "a", 1: second}}), \
                    mock.patch.object(place.ray, "nodes", lambda: alive), self.assertRaisesRegex(place.ApartError, "a and b") if is_apart else contextlib.nullcontext():
                self.make_place().join("here:1", "secret")

    def test_calls_that_ray_could_not_deliver_are_made_again(self):
        for name in ("install", "join"):
            FakeNode.faults, FakeNode.numbers = {name: [stand_in_ray.ActorUnavailableError("connection lost")] * 2}, []
            one = self.make_place()
            for _ in range(5):
                one.join("here:1", "secret")
            self.assertTrue(one.can_be_polled, name)
            self.assertEqual((FakeNode.numbers, one.failed), ([1] * (3 if name == "join" else 1), 0))
        self.assertEqual(self.said.getvalue(), "")
        FakeNode.faults = {"install": [stand_in_ray.ActorUnavailableError("connection lost")] * 1000}
        one, begin = self.make_place(), self.now
        while not one.failed:
            one.join("here:1", "secret")
        self.assertAlmostEqual(self.now - begin, place.AWAY_S, delta=1.0)


class Attempts(WithNodes):
    """Of a run: the first, and those after a loss."""

    def make_run(self, waits, is_first, **more):
        def wait():
            answer = waits.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        self.placed = []
        where = SimpleNamespace(settings=make_settings(**more), archive=SimpleNamespace(get=lambda: b""), num_nodes=2, min_nodes=2, wait=wait, keys={}, more=list,
                                place_again=lambda: self.placed.append("again"))
        config = SimpleNamespace(worker_runtime_env=None, callbacks=[])
        owner = SimpleNamespace(settings=where.settings, run_config=config, train_loop_config=None, scaling_config=SimpleNamespace(num_workers=(1, 2)), output=None, storage=None, words=[], run_context="context")
        return run.Run(owner, where, 0, [], (0, 0), is_first)

    nodes = [placement.Node("a" * 20, None, (0,)), placement.Node("b" * 20, None, (1,))]

    def test_nodes_that_are_missing(self):
        with self.assertRaises(ControllerError):
            self.make_run([TimeoutError("too small")], True).open()
        again = self.make_run([TimeoutError("too small"), TimeoutError("too small"), self.nodes], False)
        again.open()
        self.assertEqual(len(again.places), 2)
        self.assertEqual(self.said.getvalue().count("too small"), 2)

    def test_workers_that_are_not_equally_many_are_placed_again(self):
        for is_first in (True, False):
            self.make_run([ValueError("1, 2 workers"), ValueError("1, 2 workers"), self.nodes], is_first).open()
            self.assertEqual(self.placed, ["again", "again"])
            with self.assertRaises(ControllerError):
                self.make_run([ValueError("1, 2 workers")] * 3, is_first).open()

    def test_nodes_that_only_one_machine_can_reach(self):
        for addresses, wanted in ((["127.0.0.1", "127.0.0.1"], r"num_workers=\(1, 2\)\) needs 2 nodes, .*127\.0\.0\.1.*--node-ip-address"), (["10.0.0.2", "10.0.0.3"], None),
                                  (["head.example.org", "10.0.0.3"], None)):
            FakeNode.addresses = addresses
            with self.assertRaisesRegex(ControllerError, wanted) if wanted else contextlib.nullcontext():
                self.make_run([self.nodes], True).open()

    def test_storage_that_cannot_be_written(self):
        for error, wanted in ((PermissionError(13, "Permission denied", "/r/x"), r"10\.0\.0\.2 cannot write /r/x: .*Permission denied.*storage_path"),
                              (ConnectionError(104, "reset by peer"), r"cannot write /r/x: .*reset by peer"),
                              (RuntimeError("no program"), "controller: 10.0.0.2: no program"), (RuntimeError(), "10.0.0.2: RuntimeError")):
            one = self.make_run([self.nodes], True, text="", place=("/r/x", ""), keys={}, keep=None)
            FakeNode.faults = {"train": [error]}
            with self.assertRaisesRegex(ControllerError, wanted) as caught:
                one.train()
            self.assertNotIn("traceback", str(caught.exception))
            kinds = (ConnectionError, OSError, RuntimeError)
            self.assertEqual([isinstance(caught.exception.controller_failure, kind) for kind in kinds], [isinstance(error, kind) for kind in kinds])

    def test_a_result_that_cannot_be_read(self):
        one = self.ready()
        one.open()
        FakeNode.faults = {"summary": [OSError(5, "Input/output error", "/r/x/metrics.jsonl")]}
        with self.assertRaisesRegex(ControllerError, r"^controller: training is complete, but /r/x cannot be read: \[Errno 5\] Input/output error: '/r/x/metrics\.jsonl'\. Calling fit\(\) again") as caught:
            one.result()
        self.assertTrue(caught.exception.__suppress_context__)

    def test_a_full_disk_keeps_its_number(self):
        for error, wanted in ((OSError(28, "No space left on device"), 28), (OSError(122, "Disk quota exceeded"), 122), (OSError("no number"), None)):
            failure = run.remote_error(stand_in_ray.RayTaskError(error).as_instanceof_cause(), "10.0.0.2").controller_failure
            self.assertEqual((failure.errno, str(failure)), (wanted, f"10.0.0.2: {error}"))

    def test_hints_in_the_words_of_python(self):
        for words, wanted in (([], True), (["--resume", "auto"], False)):
            one = self.make_run([self.nodes], True, text="", place=("/r/x", ""), keys={}, keep=None)
            one.trainer.words = words
            FakeNode.codes = [(2, "error: another model\n  hint: give the run another name, or start over with --overwrite")]
            with self.assertRaises(stand_in_ray.WorkerGroupError) as caught:
                one.train()
            self.assertEqual("from Python: --overwrite is another RunConfig(name)" in str(caught.exception), wanted)

    def test_actors_that_cannot_be_started(self):
        for is_first, expected in ((True, ControllerError), (False, run.SupervisorLost)):
            FakeNode.faults = {"describe": [RayActorError("node lost")]}
            with self.assertRaises(expected):
                self.make_run([self.nodes], is_first).open()
        for name, where in (("install", "10.0.0.2"), ("describe", "node aaaaaaaaaaaa")):
            for is_first in (True, False):
                FakeNode.faults = {name: [PermissionError("read-only home")]}
                with self.assertRaisesRegex(ControllerError, f"controller: {where}: read-only home") as caught:
                    self.make_run([self.nodes], is_first).open()
                self.assertIsInstance(caught.exception.controller_failure, OSError)
                self.assertTrue(caught.exception.__suppress_context__)  # of Ray's error, which has the traceback

    def test_actors_that_never_start(self):
        one = self.make_run([self.nodes], True)

        def is_open(_, wait_s):
            self.now += wait_s
            return False
        with mock.patch.object(place.Place, "is_open", is_open), self.assertRaisesRegex(ControllerError, "within 600 s"):
            one.open()

    def test_an_interrupt_while_actors_are_lost(self):
        one = self.make_run([self.nodes], True)
        one.open()
        FakeNode.faults = {"poll": [KeyboardInterrupt(), RayActorError("node lost")]}
        with mock.patch.object(stand_in_ray.Call, "remote", call_through_interrupts), self.assertRaises(KeyboardInterrupt):
            one.follow()
        self.assertIn("may not be saved: node lost", self.said.getvalue())

    def test_the_supervisor_hears_of_a_lost_node(self):
        one = self.make_run([self.nodes], True)
        one.open()
        one.endpoint, one.secret = "here:1", "secret"
        for _ in range(2):  # the agent is started, and has answered
            one.join_others()
        FakeNode.faults = {"poll": [RayActorError("node lost")]}
        place_ = one.places[1]
        place_.polling = place_.first.poll.remote(0, 0)
        one.hear_agent(place_)
        self.assertEqual((FakeNode.dropped, place_.agent, place_.is_joined), ([("n2", 4711)], None, False))
        self.assertEqual(self.said.getvalue(), "warning: 10.0.0.2 has no agent; next try in 1 s: node lost\n")  # it had one

    def test_keys_of_one_rank_and_of_more(self):
        for ranks, wanted in ((1, {}), (2, {"launch.max_restarts": 3, "launch.restart_reset_steps": 0})):
            self.assertEqual(self.make_run([self.nodes], True, ranks=ranks).restart_keys(), wanted)

    def test_an_actor_that_is_out_of_reach_for_a_moment(self):
        one = self.make_run([self.nodes], True)
        one.open()
        one.places, FakeNode.codes = one.places[:1], [0]
        FakeNode.faults = {"poll": [stand_in_ray.ActorUnavailableError("connection lost")] * 2, "secret": [stand_in_ray.ActorUnavailableError("connection lost")]}
        self.assertEqual(one.follow(), (0, "error: agent"))
        self.assertEqual(FakeNode.heard, [0, 0, 0])  # the answer that was not heard is asked for again
        self.assertEqual(one.head.ask(lambda actor: actor.secret.remote()), "secret")
        FakeNode.faults = {"poll": [stand_in_ray.ActorUnavailableError("connection lost")] * 1000}
        begin = self.now
        with self.assertRaises(stand_in_ray.ActorUnavailableError):
            one.follow()
        self.assertAlmostEqual(self.now - begin, place.AWAY_S, delta=1.0)

    def ready(self, is_first=True, **more):
        return self.make_run([self.nodes], is_first, keys={}, place=("/r/x", ""), text="", keep=None, **more)

    def test_a_start_that_was_not_heard_is_asked_for_again(self):
        one, FakeNode.codes = self.ready(), [0]
        FakeNode.faults = {"train": [stand_in_ray.ActorUnavailableError("connection lost")] * 2}
        with mock.patch.object(run.Run, "result", lambda self: "Result"):
            self.assertEqual(one.train(), "Result")
        self.assertEqual(FakeNode.numbers, [1, 1, 1])

    def test_a_lock_that_is_still_held(self):
        for text in ("error: another process is training in /r/x: process 7 on n1", "error: /r/x is held: process 7 on n1 is training there"):
            one, FakeNode.codes, FakeNode.numbers = self.ready(False), [(2, text), (2, text), 0], []
            with mock.patch.object(run.Run, "result", lambda self: "Result"):
                self.assertEqual((one.train(), one.failures, FakeNode.numbers), ("Result", 0, [1, 2, 3]))
            begin, one, FakeNode.codes = self.now, self.ready(False), [(2, text)] * 1000
            with self.assertRaisesRegex(stand_in_ray.WorkerGroupError, "exited with 2\nerror: .* training"):
                one.train()
            self.assertAlmostEqual(self.now - begin, run.HELD_S, delta=2 * run.HELD_PAUSE_S)
        for is_first, end in ((True, (2, text)), (False, (2, "error: model.path")), (False, (75, text))):  # no retry
            one, FakeNode.codes, FakeNode.numbers = self.ready(is_first), [end], []
            with self.assertRaises(stand_in_ray.WorkerGroupError):
                one.train()
            self.assertEqual(FakeNode.numbers, [1])

    def test_a_kill_before_the_first_step(self):
        for is_first, has_reported, wanted in ((True, False, stand_in_ray.WorkerGroupError), (True, True, run.SupervisorLost), (False, False, run.SupervisorLost)):
            one, FakeNode.codes = self.ready(is_first), [-9]
            one.has_reported = has_reported
            with self.assertRaisesRegex(wanted, "killed by signal 9"):
                one.train()

    def test_an_agent_that_can_never_be_started(self):
        def begin(**more):
            FakeNode.faults = {"join": [OSError("no memfd")] * 1000}
            one = self.ready(**more)
            one.open()
            one.endpoint, one.secret = "here:1", "secret"

            def look():
                for _ in range(20):
                    one.join_others()
                    one.check_agents()
                    self.now += 5.0
            return one, look
        one, look = begin()
        with self.assertRaisesRegex(ControllerError, "10.0.0.2 has no agent after 3 attempts: no memfd"):
            look()
        for change in ({"is_first": False}, {"has_reported": True}):
            one, look = begin(**{name: value for name, value in change.items() if name == "is_first"})
            one.has_reported = change.get("has_reported", False)
            look()
            self.assertGreater(one.places[1].failed, run.STARTS)
        one, look = begin()
        one.placement.min_nodes = 1  # an elastic run goes on with the others
        look()
        self.assertGreater(one.places[1].failed, run.STARTS)

    def test_an_agent_that_ends_before_anything_is_trained(self):
        one = self.ready()
        one.open()
        for _ in range(3):
            one.check_agents()
            one.places[1].note_end(2, "error: no such model")
        with self.assertRaisesRegex(ControllerError, "no such model"):
            one.check_agents()

    def test_where_weft_starts(self):
        for job, blind, more, wanted, asked in ((None, [], {}, os.getcwd(), 2), ("/jobs/1", [], {}, "/jobs/1", 2), (None, [True, False], {}, None, 2), (None, [], {"fewest": 1}, None, 0)):
            FakeNode.directory, FakeNode.blind, FakeNode.entered = job, list(blind), []
            one = self.ready(**more)
            one.open()
            if more:
                one.wait_for(one.head)
            self.assertEqual((one.directory(), len(FakeNode.entered)), (wanted, asked))

    def test_other_errors_of_ray_cost_a_failure(self):
        for error, expected in ((RayError("the node was out of memory"), run.SupervisorLost), (RayActorError("died"), run.SupervisorLost),
                                (PermissionError("read-only"), ControllerError)):
            one = self.make_run([self.nodes], True, keys={}, place=("/r/x", ""), text="", keep=None)
            FakeNode.faults = {"train": [error]}
            with self.assertRaises(expected):
                one.train()

    def test_callbacks_get_arguments_by_name_and_a_dict_for_every_worker(self):
        heard = []

        class Callback:
            def after_report(self, metrics, *, checkpoint, run_context):
                heard.append((metrics, checkpoint, run_context))

            def after_exception(self, worker_exceptions, *, run_context):
                heard.append((sorted(worker_exceptions), run_context))
        one = self.make_run([self.nodes], True, ranks=4, tp=2)
        one.trainer.run_config.callbacks = [Callback()]
        news = {"endpoint": None, "restarts": 0, "size": None, "reported": None, "lines": [], "reports": [({"step": 1}, None)], "failures": [], "code": None}
        one.hear_head(news)
        one.hear_head({**news, "size": ("dp", 1), "failures": [([0, 1], "node 0 was lost")]})
        self.assertEqual(heard, [([{"step": 1}] * 4, None, "context"), ([{"step": 1}] * 2, None, "context"), ([0, 1], "context")])

    def test_ranks_of_the_first_node(self):
        one = self.make_run([[placement.Node("a" * 20, None, (0, 1)), placement.Node("b" * 20, None, (2, 3))]], True)
        self.assertEqual(one.head_ranks, [0])
        one.open()
        self.assertEqual(one.head_ranks, [0, 1])

    def test_a_cause_that_is_over(self):
        one = self.make_run([self.nodes], True)
        one.report_failures([([1], "rank 1 was killed")])
        self.assertEqual(list(one.worker_failures(75, "other")), [1])
        one.report({"step": 5}, None)
        self.assertEqual({rank: str(error) for rank, error in one.worker_failures(75, "other").items()}, {0: "other"})

    def test_the_ranks_of_a_lost_node(self):
        one, heard = self.make_run([self.nodes], True), []
        one.call_back = lambda name, worker_exceptions: heard.append((name, sorted(worker_exceptions)))
        one.report_failures([([2, 3], "node 1 was lost"), ([], "node 1 was lost: all restarts are used")])
        self.assertEqual(heard, [("after_exception", [2, 3])])
        self.assertEqual(sorted(one.worker_failures(75, "other")), [2, 3])
        one.report({"step": 5}, None)
        one.report_failures([([], "1 of 2 nodes joined")])
        self.assertEqual(sorted(one.worker_failures(75, "other")), [0])

    def test_storage_is_not_opened_for_checkpoints_that_nobody_asks_for(self):
        one = self.make_run([self.nodes], True, is_remote=True)
        one.report({"step": 5}, "/r/x/checkpoints/step-00000005")  # without a storage
        self.assertTrue(one.has_saved)


def call_through_interrupts(call, *arguments):
    """A KeyboardInterrupt is the driver's own."""
    try:
        call.answer = call.method(*arguments)
    except Exception as error:
        call.error = error
    return call


if __name__ == "__main__":
    unittest.main()
