#!/usr/bin/env python3
"""tests/tools/weft_ray_test.py: what python/weft_ray reads of a run, without Ray."""

import errno
import json
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

from weft_ray.follow import LineFollower, RunFollower, summarize  # noqa: E402


def step(number, **more):
    return json.dumps({"step": number, "loss": 1.0 / number, "step_ms": 1.0, **more}) + "\n"


def evaluation(number):
    return json.dumps({"step": number, "eval_loss": 2.0 / number}) + "\n"


def event(name, time="2020-02-02T12:00:00.000Z", **more):
    return json.dumps({"time": time, "event": name, "rank": 0, **more}) + "\n"


class Folder(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.folder = Path(place.name)

    def add(self, name, text):
        with open(self.folder / name, "a", encoding="utf-8") as file:
            file.write(text)


class Lines(Folder):
    def test_complete_lines_once(self):
        lines = LineFollower(self.folder / "x")
        self.assertEqual(lines.read(), [])
        self.add("x", "one\ntw")
        self.assertEqual(lines.read(), [b"one"])
        self.add("x", "o\nthree\n")
        self.assertEqual(lines.read(), [b"two", b"three"])
        self.assertEqual(lines.read(), [])

    def test_a_file_that_is_cut_or_replaced_is_read_again(self):
        lines = LineFollower(self.folder / "x")
        self.add("x", "one\ntwo\n")
        lines.read()
        (self.folder / "x").write_text("one\n")
        self.assertEqual(lines.read(), [b"one"])
        (self.folder / "x").write_text("other\nlines, more of them than before\n")
        self.assertEqual(lines.read(), [b"other", b"lines, more of them than before"])

    def test_storage_that_fails_for_a_moment(self):
        lines = LineFollower(self.folder / "x")
        self.add("x", "one\n")
        lines.read()
        self.add("x", "two\n")
        with mock.patch("builtins.open", side_effect=OSError(errno.ESTALE, "stale file handle")):
            self.assertEqual(lines.read(), [])
        self.assertEqual(lines.read(), [b"two"])

    def test_from_the_end(self):
        self.add("x", "old\n")
        lines = LineFollower(self.folder / "x", at_end=True)
        self.add("x", "new\n")
        self.assertEqual(lines.read(), [b"new"])


class Run(Folder):
    def test_reports(self):
        self.add("metrics.jsonl", step(1) + step(2) + step(3))
        self.add("events.jsonl", event("started", step=0) + event("finished"))
        run = RunFollower(self.folder)
        self.assertEqual(run.read(), ([], []))  # an earlier start is none of ours
        self.add("events.jsonl", event("started", step=2))
        self.assertEqual([metrics["step"] for metrics, _ in run.read()[0]], [3])
        self.add("metrics.jsonl", step(4) + evaluation(4))
        self.add("events.jsonl", event("checkpoint", step=4, path="/r/checkpoints/best") +
                 event("checkpoint", step=4, path="/r/checkpoints/step-00000004"))
        reports, _ = run.read()
        self.assertEqual([(m["step"], "eval_loss" in m, path) for m, path in reports],
                         [(4, False, None), (4, True, None), (4, True, "/r/checkpoints/step-00000004")])

    def test_a_step_is_reported_once(self):
        run = RunFollower(self.folder)
        self.add("events.jsonl", event("started", step=0))
        self.add("metrics.jsonl", step(1) + step(2) + step(3))
        self.assertEqual(len(run.read()[0]), 3)
        (self.folder / "metrics.jsonl").write_text(step(1))  # the run went back to step 1
        self.add("events.jsonl", event("rank_died", message="rank 2 was killed"))
        self.assertEqual(run.read(), ([], [([0], "rank 2 was killed")]))
        self.add("events.jsonl", event("node_lost", message="node 1 was lost", ranks=[2, 3]) + event("rank failed", message="the end", ranks=[]))
        self.assertEqual(run.read(), ([], [([2, 3], "node 1 was lost"), ([], "the end")]))
        self.add("metrics.jsonl", step(2) + step(3) + step(4))
        self.assertEqual([metrics["step"] for metrics, _ in run.read()[0]], [4])

    def test_how_many_train(self):
        run = RunFollower(self.folder)
        self.assertIsNone(run.size)
        for line, size in ((event("started", step=0, ranks=2), ("ranks", 2)), (event("layout", to="dp=1 on 1 node"), ("dp", 1)),
                           (event("layout", to="dp=12 on 3 nodes"), ("dp", 12)), (event("started", step=4, ranks=3), ("ranks", 3))):
            self.add("events.jsonl", line)
            run.read()
            self.assertEqual(run.size, size)

    def test_events_before_a_time_are_of_earlier_starts(self):
        run = RunFollower(self.folder, since="2020-02-02T12:00:00")
        self.add("events.jsonl", event("rank_died", time="2020-02-02T11:59:59.999Z", message="long ago"))
        self.add("events.jsonl", event("rank_died", message="now"))
        self.assertEqual(run.read(), ([], [([0], "now")]))

    def test_summary(self):
        for name, number, is_whole in (("step-00000002", 2, True), ("step-00000004", 4, True), ("best", 2, True), ("step-00000005", 5, False)):
            place = self.folder / "checkpoints" / name
            place.mkdir(parents=True)
            (place / "state.json").write_text(json.dumps({"step": number}))
            if is_whole:
                (place / "COMMITTED").write_text("")
        self.add("metrics.jsonl", step(1) + step(2) + evaluation(2) + step(3) + step(4) + "{torn")
        last, checkpoints = summarize(str(self.folder))
        self.assertEqual(last["step"], 4)
        self.assertEqual([(Path(path).name, m["step"], m.get("eval_loss")) for path, m in checkpoints],
                         [("step-00000002", 2, 1.0), ("step-00000004", 4, None)])


if __name__ == "__main__":
    unittest.main()
