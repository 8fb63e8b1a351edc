#!/usr/bin/env python3
"""tests/tools/weft_ray_command_test.py: `weft train --engine ray`: signals, run files that are wrong, other versions of Ray."""

import contextlib
import io
import os
import signal
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

import weft_ray  # noqa: E402
from weft_ray import command, hints, run  # noqa: E402


class Signals(unittest.TestCase):
    def end(self, number, stop_code):
        """Exit code after a signal in fit(); stop_code: how weft train has ended."""
        one = SimpleNamespace(stop_code=None)

        def fit():
            try:
                os.kill(os.getpid(), number)
                signal.pause()
            except KeyboardInterrupt:
                os.kill(os.getpid(), signal.SIGTERM)  # the second one does not disturb the save
                one.stop_code = stop_code
                raise
        one.fit = fit
        before = [signal.signal(each, handler) for each, handler in ((signal.SIGTERM, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler))]
        try:
            with mock.patch.object(command, "make_trainer", lambda args: one), mock.patch.object(command, "connect", lambda: None):
                return command.train(SimpleNamespace(quiet=False))
        finally:
            for each, handler in zip((signal.SIGTERM, signal.SIGINT), before):
                signal.signal(each, handler)

    def test_codes(self):
        for stop_code, wanted in ((143, 143), (None, 143), (75, 75), (0, 0), (1, 1)):
            self.assertEqual(self.end(signal.SIGTERM, stop_code), wanted, stop_code)

    def test_how_weft_has_ended(self):
        for end, wanted in (((143, ""), 143), ((-9, ""), 75), (None, 75), (stand_in_ray.RayActorError("lost"), 75)):
            one = run.Run.__new__(run.Run)
            one.trainer = SimpleNamespace(stop_code=None)
            one.places = [SimpleNamespace(first=SimpleNamespace(stop=SimpleNamespace(remote=lambda number: None)))]
            with mock.patch.object(run.Run, "watch", side_effect=[end]), contextlib.redirect_stderr(io.StringIO()):
                one.save()
            self.assertEqual(one.trainer.stop_code, wanted, end)


class RunFiles(unittest.TestCase):
    def refused(self, text, *sets):
        said = io.StringIO()
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            path = Path(folder) / "run.yaml"
            path.write_text(text)
            self.assertEqual(command.main([str(path), *(word for one in sets for word in ("--set", one))]), 2)
        return said.getvalue()

    def test_what_is_wrong_is_said(self):
        for text, sets, wanted in (("name: [x\n", (), "is not YAML"), ("5\n", (), "expected sections"), ("parallel: {dp: 2}\n", (), "has no name"),
                                   ("name: x\nparallel: {dp: '2'}\n", (), "parallel.dp='2': expected a whole number of at least 1"),
                                   ("name: x\nparallel: {tp: '2'}\n", (), "parallel.tp='2'"), ("name: x\nlaunch: {max_restarts: three}\n", (), "launch.max_restarts='three'"),
                                   ("name: x\nlaunch: {threads: many}\n", (), "launch.threads='many'"), ("name: x\nlaunch: {device: gpu}\n", (), "launch.device='gpu': expected auto, cpu, cuda"), ("name: x\n", ("parallel.dp=[2",), "--set parallel.dp is not YAML"),
                                   ("name: x\n", ("parallel.dp",), "expected section.key=value")):
            self.assertIn(wanted, self.refused(text, *sets))


class Devices(unittest.TestCase):
    def test_the_choice_of_auto_is_printed(self):
        for device, is_quiet, wanted in (("auto", False, "launch.device: auto is cpu on Ray; cuda takes a GPU per rank\n"), ("auto", True, ""), ("cpu", False, ""), ("cuda", False, "")):
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                self.assertEqual(command.check_device(device, is_quiet), device)
            self.assertEqual(said.getvalue(), wanted)


class Hints(unittest.TestCase):
    def test_every_key_that_ray_decides(self):
        for key, field in hints.OWNED.items():
            got = hints.with_python_words(f"error: too few ranks\n  hint: start 8 with --set {key}=8")
            self.assertEqual(got.splitlines()[2:], [f"  from Python: {key} is decided by {field}"])
        self.assertEqual(hints.with_python_words("error: set launch.nodes to one of 1, 2").splitlines()[1], "  from Python: launch.nodes is decided by the placement group (ScalingConfig)")

    def test_other_words(self):
        both = hints.with_python_words("error: x\n  hint: --set name=NEW --set train.lr=1 or --resume")
        self.assertEqual(both.splitlines()[2], "  from Python: --set is train_loop_config; name is decided by RunConfig(name); only `weft train RUN.yaml --engine ray` has --resume")
        for plain in ("error: the name of a storage", "error: launch.portal", "error: xlaunch.port"):
            self.assertEqual(hints.with_python_words(plain), plain)


class OtherRays(unittest.TestCase):
    def test_the_older_ray_train(self):
        with mock.patch.dict(os.environ, {"RAY_TRAIN_V2_ENABLED": "0"}), self.assertRaisesRegex(ImportError, "requires Ray Train V2, but RAY_TRAIN_V2_ENABLED=0 disables it; unset it"):
            weft_ray.check_ray()
        with mock.patch.dict(os.environ, {"RAY_TRAIN_V2_ENABLED": "true"}):
            weft_ray.check_ray()

    def test_a_context_that_is_made_in_another_way(self):
        def other(**_):
            raise TypeError("missing 1 required argument: 'node'")
        owner = SimpleNamespace(run_config=None, train_loop_config=None, scaling_config=None)
        with mock.patch.object(run, "TrainRunContext", other), self.assertRaisesRegex(ImportError, "tested with Ray 2.60, does not work with Ray 2.60.0: missing 1 required"):
            run.make_context(owner)


if __name__ == "__main__":
    unittest.main()
