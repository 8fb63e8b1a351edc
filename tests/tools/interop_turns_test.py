"""tests/tools/interop_turns_test.py: which interop programs a commit starts, and until when."""

import contextlib
import io
import os
import sys
import unittest
import unittest.mock
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests/tools")]

import run_interop  # noqa: E402
from sampling_test import sampler  # noqa: E402

PROGRAMS = sorted((ROOT / "tests/interop").glob("*_interop.py"))


def names(programs):
    return [run_interop.name_of(program) for program in programs]


class Turns(unittest.TestCase):
    def test_those_of_every_commit_come_first_and_ten_commits_run_all(self):
        seen = set()
        for number in range(970, 980):
            order = names(run_interop.in_turn(PROGRAMS, sampler(number)))
            self.assertEqual(order[:len(run_interop.EVERY_TIME)], run_interop.EVERY_TIME)
            self.assertLess(len(order), len(PROGRAMS))
            seen |= set(order)
        self.assertEqual(sorted(seen), sorted(names(PROGRAMS)))

    def test_full_runs_all(self):
        self.assertEqual(sorted(names(run_interop.in_turn(PROGRAMS, sampler(3, FULL="1")))), sorted(names(PROGRAMS)))

    def test_names_of_programs_that_run_alone_exist(self):
        self.assertLessEqual(run_interop.ALONE, set(names(PROGRAMS)))


class Budget(unittest.TestCase):
    def run_all(self, *words, **environment):
        """(what was begun, what was printed); every program counts one check."""
        begun, output = [], io.StringIO()

        def run(python, program, say):
            begun.append(run_interop.name_of(program))
            return 1, 0, 0

        with unittest.mock.patch.object(run_interop, "run", run), \
                unittest.mock.patch.dict(os.environ, environment), \
                unittest.mock.patch.object(sys, "argv", ["run_interop.py", "python", *words]), \
                contextlib.redirect_stdout(output):
            with self.assertRaises(SystemExit) as end:
                run_interop.main()
        self.assertEqual(end.exception.code, 0 if begun else 1)
        return sorted(begun), output.getvalue()

    def setUp(self):
        patch = unittest.mock.patch.dict(os.environ)
        patch.start()
        self.addCleanup(patch.stop)
        os.environ.pop("INTEROP_LAST_S", None)
        os.environ.pop("FULL", None)
        full = unittest.mock.patch.object(run_interop, "IS_FULL", False)
        full.start()
        self.addCleanup(full.stop)

    def test_what_a_commit_leaves_out_is_named(self):
        begun, output = self.run_all()
        self.assertLessEqual(set(run_interop.EVERY_TIME), set(begun))
        left = next(line for line in output.splitlines() if "left to other commits" in line).split(": ")[-1].split("; ")
        self.assertEqual(sorted([*begun, *left]), sorted(names(PROGRAMS)))
        self.assertIn(f"{len(begun)} passed, 0 failed", output)

    def test_after_the_last_moment_none_begins_and_a_run_without_checks_has_failed(self):
        begun, output = self.run_all(INTEROP_LAST_S="0")
        self.assertEqual(begun, [])
        self.assertIn("exact", next(line for line in output.splitlines() if "not started before INTEROP_LAST_S" in line))

    def test_programs_that_were_asked_for_run(self):
        self.assertEqual(self.run_all("s3", INTEROP_LAST_S="0")[0], ["s3"])

    def test_with_full_all_run_however_long(self):
        with unittest.mock.patch.object(run_interop, "IS_FULL", True):
            self.assertEqual(self.run_all(INTEROP_LAST_S="0", FULL="1")[0], sorted(names(PROGRAMS)))


if __name__ == "__main__":
    unittest.main()
