#!/usr/bin/env python3
"""tests/tools/weft_ray_node_test.py: what an actor of python/weft_ray leaves and mends on its node, with a stand-in for Ray."""

import contextlib
import io
import os
import shutil
import sys
import tempfile
import time
import unittest
import zipfile
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import stand_in_ray  # noqa: E402

stand_in_ray.install()

from weft_ray import node, rows, run, settings, trainer  # noqa: E402


def archive():
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as out:
        for name in ("DIGEST", "bin/weft", "lib/libarrow.so"):
            out.writestr(name, f"of {name}")
    return data.getvalue()


class Folder(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.folder = Path(place.name)


class Programs(Folder):
    def setUp(self):
        super().setUp()
        patch = mock.patch.object(node, "cache_folder", lambda: str(self.folder))
        patch.start()
        self.addCleanup(patch.stop)

    def test_a_damaged_program_is_replaced(self):
        one, place = node.WeftNode(), self.folder / "d1"
        self.assertFalse(one.find_program("d1"))
        one.install("d1", archive())

        def cut():
            (place / "lib/libarrow.so").write_text("")
        for damage in (lambda: (place / "lib/libarrow.so").unlink(), cut, lambda: shutil.rmtree(place / "bin"), lambda: (place / node.SIZES).unlink()):
            self.assertTrue(one.find_program("d1"))
            damage()
            self.assertFalse(one.find_program("d1"))
            one.install("d1", archive())
        self.assertEqual(one.program, str(place / "bin/weft"))
        self.assertEqual((place / "lib/libarrow.so").read_text(), "of lib/libarrow.so")

    def test_a_whole_one_is_left_alone(self):
        one = node.WeftNode()
        one.install("d1", archive())
        before = (self.folder / "d1/bin/weft").stat().st_ino
        one.install("d1", archive())
        self.assertEqual((self.folder / "d1/bin/weft").stat().st_ino, before)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["d1"])

    def test_programs_that_nobody_uses(self):
        one = node.WeftNode()
        for name in ("d1", "d2"):
            one.install(name, archive())
        month = time.time() - node.UNUSED_S - 60
        for name in ("d1", "d2"):
            os.utime(self.folder / name, (month, month))
        self.assertTrue(one.find_program("d2"))
        one.look()  # it is in use
        one.install("d3", archive())
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["d2", "d3"])


class Actors(Folder):
    def test_one_secret_at_a_time(self):
        one, found = node.WeftNode(), []

        def start(words, *_):
            one.child = SimpleNamespace(pid=1)
            found.append(Path(words[-1]).read_text())
        one.start = start
        before = len(os.listdir("/proc/self/fd"))
        for number, secret in enumerate(("first", "second", "third"), 1):
            one.join(number, "here:1", secret, [])
        one.join(number, "here:1", secret, [])  # Ray could not deliver the answer
        self.assertEqual((found, len(os.listdir("/proc/self/fd")) - before), (["first", "second", "third"], 1))
        os.close(one.secret_fd)

    def test_a_secret_where_python_has_no_memfd(self):
        kept = os.memfd_create
        del os.memfd_create
        try:
            before = os.listdir("/dev/shm")
            file = node.memory_file("a secret")
        finally:
            os.memfd_create = kept
        path = f"/proc/{os.getpid()}/fd/{file}"
        self.assertEqual((Path(path).read_text(), oct(os.stat(path).st_mode & 0o777), os.stat(path).st_nlink), ("a secret", "0o600", 0))
        self.assertEqual([name for name in os.listdir("/dev/shm") if name not in before and "weft_secret" in name], [])
        os.close(file)

    def test_a_start_that_failed_is_tried_again(self):
        one, ends = node.WeftNode(), [OSError("no memory"), None, None]

        def start(*_):
            if error := ends.pop(0):
                raise error
            one.child = SimpleNamespace(pid=len(ends))
        one.start = start
        with self.assertRaises(OSError):
            one.join(1, "here:1", "secret", [])
        self.assertEqual([one.join(number, "here:1", "secret", [])[1] for number in (1, 1, 2)], [1, 1, 0])
        os.close(one.secret_fd)

    def test_losses_that_the_status_has_not_heard_of(self):
        one = node.WeftNode()
        one.run_dir, one.child = str(self.folder), SimpleNamespace(pid=7)
        one.follower, status = node.RunFollower(str(self.folder)), self.folder / ".status.json"
        self.assertEqual(one.restarts(), 0)

        def happen(*names):
            for name in names:
                one.follower.deaths.add(name)
            return one.restarts()
        self.assertEqual(happen("started", "rank_died"), 1)
        status.write_text('{"restarts": 3, "pid": 7}')
        self.assertEqual(one.restarts(), 3)
        status.write_text('{"restarts": 3, "pid": 6}')
        self.assertEqual([happen("recovered"), happen("node_lost"), happen("node_lost", "rank_died"), happen("recovered", "node_lost", "failed"),
                          happen("node_lost", "layout", "started")], [1, 2, 2, 2, 3])

    def test_checkpoints_that_cannot_be_deleted(self):
        def prune(_):
            raise OSError("read-only")
        one, said = node.WeftNode(), io.StringIO()
        one.keeper, one.follower = SimpleNamespace(prune=prune), SimpleNamespace(read=lambda: ([({"step": 1}, "/c/1")], []), recent={}, step=1, eval_step=0, size=None)
        with contextlib.redirect_stderr(said):
            lines, deadline = one.look()["lines"], time.monotonic() + 10
            one.follower.read = lambda: ([], [])
            while not lines and time.monotonic() < deadline:
                lines = one.look()["lines"]
        self.assertEqual([is_error for _, is_error in lines], [True])
        self.assertIn("could not be deleted: read-only", lines[0][0])
        self.assertEqual(said.getvalue(), lines[0][0])


class Losses(unittest.TestCase):
    def make_run(self, **more):
        one = run.Run.__new__(run.Run)
        one.settings = SimpleNamespace(ranks=2, tp=1, **more)
        one.trainer = SimpleNamespace(output=None, run_config=SimpleNamespace(callbacks=[]))
        one.earlier = one.failures = 1
        one.endpoint, one.reported, one.died = None, (0, 0), {}
        return one

    def test_failures_are_never_taken_back(self):
        one, seen = self.make_run(), []
        for restarts in (0, 2, 0, 3):
            one.hear_head({"endpoint": None, "restarts": restarts, "size": None, "reported": None, "lines": [], "reports": [], "failures": [], "code": None})
            seen.append(one.failures)
        self.assertEqual(seen, [1, 3, 3, 4])

    def test_nobody_waits_for_actors_that_are_not_there(self):
        closed, killed = [], []

        def place(name, opening):
            return SimpleNamespace(opening=opening, first=SimpleNamespace(close=SimpleNamespace(remote=lambda: closed.append(name))), kill=lambda: killed.append(name))
        one = self.make_run()
        one.places = [place("there", []), place("pending", ["describe"])]
        one.close()
        self.assertEqual((closed, killed), (["there"], ["there", "pending"]))

    def test_rows_that_the_first_node_does_not_see(self):
        one = self.make_run(datasets={"train": None}, keys={"data.train": ["/r/x/rows/train.parquet"]})
        for sees in (True, False):
            one.places = [SimpleNamespace(address="10.0.0.1", ask=lambda call, sees=sees: sees)]
            with contextlib.nullcontext() if sees else self.assertRaisesRegex(stand_in_ray.ControllerError, "10.0.0.1 cannot see /r/x/rows/train.parquet"):
                one.check_rows()


class Rows(Folder):
    def test_rows_never_replace_others(self):
        folder = self.folder
        with mock.patch.object(rows, "has_same_rows", lambda one, other: Path(one).read_text().split() == Path(other).read_text().split()):
            def put(text):
                draft = folder / "draft"
                draft.write_text(text)
                path, is_strange = rows.place_rows(draft, folder, "train")
                return os.path.basename(path), is_strange
            self.assertEqual(put("rows"), ("train.parquet", False))
            self.assertEqual(put("rows"), ("train.parquet", False))
            self.assertEqual(put("rows  "), ("train.parquet", False))  # written by another version of Arrow
            other = put("other rows")
            self.assertRegex(other[0], "train-[0-9a-f]{12}.parquet")
            self.assertTrue(other[1])
            self.assertEqual(put("other rows"), (other[0], False))  # known since
            self.assertEqual((folder / "train.parquet").read_text(), "rows")
            (folder / other[0]).write_text("neither")
            with self.assertRaisesRegex(RuntimeError, other[0]):
                put("other rows")

    def test_drafts_of_killed_tasks(self):
        for name, ages in ((".train-old", (9e4, 9e4)), (".train-long", (9e4, 10)), (".train-new", (10, 10)), (".eval-old", (9e4, 9e4))):
            (self.folder / name).mkdir()
            (self.folder / name / "rows").write_text("")
            for path, age in zip((self.folder / name / "rows", self.folder / name), reversed(ages)):
                os.utime(path, (time.time() - age,) * 2)
        rows.sweep(str(self.folder), "train")
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), [".eval-old", ".train-long", ".train-new"])

    def test_an_interrupt_cancels_the_task_that_writes(self):
        one, cancelled = trainer.WeftTrainer.__new__(trainer.WeftTrainer), []
        one.settings = SimpleNamespace(datasets={"train": (None, ["text"])}, rows_folder="/r/x/rows", keys={}, labels=None, bundle={"CPU": 1})
        with mock.patch.object(trainer.ray, "remote", lambda **_: lambda task: SimpleNamespace(remote=lambda *_: "task")), \
                mock.patch.object(trainer.ray, "get", side_effect=KeyboardInterrupt), mock.patch.object(trainer.ray, "cancel", cancelled.append, create=True), \
                self.assertRaises(KeyboardInterrupt):
            one.write_datasets()
        self.assertEqual(cancelled, ["task"])

    def test_a_refusal_is_not_hidden(self):
        rows.remove_rows([str(self.folder / "missing")])
        one, said = trainer.WeftTrainer.__new__(trainer.WeftTrainer), io.StringIO()
        one.strange_rows, one.settings = ["/r/x/rows/train-1.parquet"], SimpleNamespace(labels=None, bundle={"CPU": 1})
        with mock.patch.object(trainer.ray, "remote", lambda **_: lambda task: SimpleNamespace(remote=lambda *_: None)), \
                mock.patch.object(trainer.ray, "get", side_effect=stand_in_ray.RayTaskError(PermissionError("read-only"))), contextlib.redirect_stderr(said):
            one.drop_refused_rows({0: run.WeftError(2, "other rows")})
        self.assertIn("could not be removed: read-only", said.getvalue())

    def test_runs_of_one_name_in_two_stores_have_rows_of_their_own(self):
        def folder(storage, fallback="/shared"):
            values = dict.fromkeys(settings.Settings.__dataclass_fields__)
            return settings.Settings(**{**values, "name": "x", "storage": storage, "fallback": fallback}).rows_folder
        self.assertEqual(folder("/runs", None), "/runs/x/rows")
        self.assertNotEqual(folder("s3://a/runs"), folder("s3://b/runs"))
        self.assertRegex(folder("s3://a/runs"), r"^/shared/ray-[0-9a-f]{16}-rows$")


if __name__ == "__main__":
    unittest.main()
