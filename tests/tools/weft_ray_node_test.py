#!/usr/bin/env python3
"""tests/tools/weft_ray_node_test.py: what an actor of python/weft_ray leaves and mends on its node, with a stand-in for Ray."""

import contextlib
import io
import os
import shutil
import sys
import tempfile
import threading
import time
import types
import unittest
import zipfile
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import stand_in_ray  # noqa: E402

stand_in_ray.install()

from weft_ray import node, placement, rows, run, settings, trainer, waits  # noqa: E402


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

    def test_a_full_disk(self):
        def full(*_):
            raise OSError(28, "No space left on device")
        with mock.patch.object(node, "unpack", full), self.assertRaisesRegex(OSError, f"could not be unpacked into {self.folder}, which needs 0 MiB: No space left"):
            node.WeftNode().install("d1", archive())
        self.assertEqual(list(self.folder.iterdir()), [])

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
        one.settings = SimpleNamespace(datasets={"train": (None, ["text"])}, rows_folder="/r/x/rows", keys={}, labels=None, bundle={"CPU": 1}, fewest=0)
        with mock.patch.object(trainer.ray, "remote", lambda **_: lambda task: SimpleNamespace(remote=lambda *_: "task")), \
                mock.patch.object(trainer.ray, "get", side_effect=KeyboardInterrupt), mock.patch.object(trainer.ray, "cancel", cancelled.append, create=True), \
                self.assertRaises(KeyboardInterrupt):
            one.write_datasets()
        self.assertEqual(cancelled, ["task"])

    def write(self, nodes=(), ends=None, fewest=2):
        """WeftTrainer.write_datasets: the keys that it sets, and what it prints. nodes: CPUs of each."""
        one, said = trainer.WeftTrainer.__new__(trainer.WeftTrainer), io.StringIO()
        one.settings = SimpleNamespace(datasets={"train": (None, ["text"])}, rows_folder="/r/x/rows", keys={}, labels=None, bundle={"CPU": 1.0}, fewest=fewest)
        alive = [{"NodeID": str(number), "Alive": True, "Resources": {"CPU": float(cpus)}} for number, cpus in enumerate(nodes)]
        with mock.patch.object(trainer.ray, "remote", lambda **_: lambda task: SimpleNamespace(remote=lambda *_: "task")), \
                mock.patch.object(trainer.ray, "get", side_effect=ends or [("/r/x/rows/train.parquet", False)]), mock.patch.object(trainer.ray, "nodes", lambda: alive), \
                mock.patch.object(trainer.ray, "cluster_resources", lambda: {"CPU": float(sum(nodes))}, create=True), \
                mock.patch.object(trainer.ray, "available_resources", dict, create=True), contextlib.redirect_stderr(said):
            one.write_datasets()
        return one.settings.keys, said.getvalue()

    def test_a_cluster_that_is_too_small_is_no_surprise_after_the_rows(self):
        keys = {"data.train": ["/r/x/rows/train.parquet"]}
        for nodes, fewest, wanted in (([1.5, 1.5], 2, ""), ([2], 2, ""), ([1.5, 0.5], 2, "num_workers=2 needs CPU 2, CPU 1 each, but the cluster's nodes have room for 1; the cluster has CPU 2, of which CPU 0 is free"),
                                      ([], 1, "num_workers=1 needs CPU 1, CPU 1 each, but the cluster's nodes have room for 0; ")):
            got, said = self.write(nodes=nodes, fewest=fewest)
            self.assertEqual(got, keys)  # an autoscaler may add nodes
            self.assertTrue(wanted in said if wanted else not said, said)

    def test_rows_that_wait_for_a_cpu(self):
        looks, before = threading.Semaphore(0), threading.active_count()

        def look(_):
            looks.release()
            return "the cluster has CPU 2, of which CPU 0 is free"

        def get(_):
            for _ in range(3):  # the third look comes after two warnings
                self.assertTrue(looks.acquire(timeout=60))
            return "/r/x/rows/train.parquet", False
        with mock.patch.object(waits, "cluster_text", look), mock.patch.object(waits, "JOIN_S", 60):
            with mock.patch.dict(os.environ, {waits.TIMEOUT_VARIABLE: "0.01"}):
                _, said = self.write([2], ends=get)
            self.assertLessEqual(threading.active_count(), before)  # the one that warns has ended
            with mock.patch.dict(os.environ, {waits.TIMEOUT_VARIABLE: "600"}):
                self.assertEqual(self.write([2])[1], "")
        self.assertRegex(said, r"^(warning: the rows of datasets\['train'\] are still being written after \d+ s; if Ray Data does not advance, it waits for a free CPU: "
                               r"the cluster has CPU 2, of which CPU 0 is free\. .*\n){2}")

    def test_warnings_of_a_wait_become_rare(self):
        pauses, said = [], io.StringIO()

        def wait(seconds):
            pauses.append(seconds)
            return len(pauses) == 4
        names = SimpleNamespace(Thread=threading.Thread, Event=lambda: SimpleNamespace(wait=wait, set=lambda: None))
        with mock.patch.object(waits, "threading", names), mock.patch.object(waits, "cluster_text", lambda _: ""), mock.patch.object(waits, "JOIN_S", 60), \
                mock.patch.dict(os.environ), contextlib.redirect_stderr(said):
            os.environ.pop(waits.TIMEOUT_VARIABLE, None)
            with waits.warn_while_waiting("rows"):
                pass
        self.assertEqual((pauses, said.getvalue().count("warning: rows after ")), ([60, 120, 240, 480], 3))

    def test_whose_failure_it_was(self):
        for cause, kind, wanted in ((PermissionError(13, "denied"), OSError, r"a task on Ray cannot write /r/x/rows: .*denied\. Set RunConfig\(storage_path\)"),
                                    (RuntimeError("datasets['train'] cannot be read: no file"), RuntimeError, r"controller: datasets\['train'\] cannot be read: no file")):
            with self.assertRaisesRegex(stand_in_ray.ControllerError, wanted) as caught:
                self.write(nodes=[2], ends=stand_in_ray.RayTaskError(cause).as_instanceof_cause())
            self.assertIsInstance(caught.exception.controller_failure, kind)
            self.assertNotIn("traceback", str(caught.exception))

    def test_a_function_that_fails_in_a_dataset(self):
        error = stand_in_ray.RayTaskError(RuntimeError("UDF failed to process a data block."))
        error.args = ("  File x.py, line 3\nValueError: bad row 7\n\nThe above exception was the direct cause of the following exception:\n\n  File y.py\nUDF failed",)
        self.assertEqual(rows.failure_text(error), "ValueError: bad row 7\nUDF failed to process a data block.")

    def test_a_dataset_that_cannot_be_read(self):
        class Batch:
            schema = ()

            def __getattr__(self, name):
                return lambda *_: self

        class Dataset:
            context = SimpleNamespace(execution_options=SimpleNamespace())

            def __init__(self, error):
                self.error = error

            def select_columns(self, _):
                return self

            def iter_batches(self, **_):
                yield Batch()
                if self.error:
                    raise self.error

        def full(*_, **__):
            raise OSError(28, "No space left on device")
        parquet = types.ModuleType("pyarrow.parquet")
        parquet.ParquetWriter = lambda *_: SimpleNamespace(schema=None, write_table=full if is_full else lambda *_, **__: None, close=lambda: None)
        with mock.patch.dict(sys.modules, {"pyarrow.parquet": parquet}), mock.patch.object(sys.modules["pyarrow"], "parquet", parquet, create=True):
            for error, is_full, kind, wanted in (
                    (stand_in_ray.RayTaskError(FileNotFoundError(2, "No such file", "/d/1.parquet")).as_instanceof_cause(), False, RuntimeError, r"^datasets\['train'\] cannot be read: .*No such file.*/d/1\.parquet"),
                    (TimeoutError(), False, RuntimeError, "cannot be read: TimeoutError"), (None, True, OSError, "No space left"), (None, False, None, "")):
                with self.assertRaisesRegex(kind, wanted) if kind else contextlib.nullcontext():
                    rows.write_draft(Dataset(error), ["text"], "train", str(self.folder / "draft"))

    def test_a_dataset_that_cannot_be_read_in_the_constructor(self):
        lost = stand_in_ray.RayTaskError(FileNotFoundError(2, "No such file", "/d/1.parquet")).as_instanceof_cause()

        def fail(*_, **__):
            raise lost
        objects = SimpleNamespace(names=["text"], types=[object])  # as pandas has them
        for dataset in (SimpleNamespace(schema=fail), SimpleNamespace(schema=lambda: objects, select_columns=lambda _: SimpleNamespace(take_batch=fail))):
            with mock.patch.object(sys.modules["pyarrow"], "types", mock.MagicMock(), create=True), \
                    self.assertRaisesRegex(ValueError, r"^datasets\['train'\] cannot be read: \[Errno 2\] No such file: '/d/1\.parquet'$") as caught:
                rows.check_dataset("train", dataset, ["text"], "")
            self.assertTrue(caught.exception.__suppress_context__)
        with self.assertRaisesRegex(ValueError, r"^datasets\['train'\] has no rows$"):
            rows.check_dataset("train", SimpleNamespace(schema=lambda: None), ["text"], "")

    def test_a_refusal_is_not_hidden(self):
        rows.remove_rows([str(self.folder / "missing")])
        one, said = trainer.WeftTrainer.__new__(trainer.WeftTrainer), io.StringIO()
        one.strange_rows, one.settings = ["/r/x/rows/train-1.parquet"], SimpleNamespace(labels=None, bundle={"CPU": 1})
        with mock.patch.object(trainer.ray, "remote", lambda **_: lambda task: SimpleNamespace(remote=lambda *_: None)), \
                mock.patch.object(trainer.ray, "get", side_effect=stand_in_ray.RayTaskError(PermissionError("read-only")).as_instanceof_cause()), contextlib.redirect_stderr(said):
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
