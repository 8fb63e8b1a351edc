"""tests/tools/interop_turns_test.py: which programs of tests/interop run within a time budget."""

import contextlib
import io
import os
import sys
import unittest
import unittest.mock
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import run_interop  # noqa: E402

PROGRAMS = sorted((ROOT / "tests/interop").glob("*_interop.py"))


def names(programs):
    return [run_interop.name_of(program) for program in programs]


class Turns(unittest.TestCase):
    def test_every_program_has_a_place_and_those_of_every_commit_come_first(self):
        for commit in ("a", "b"):
            order = names(run_interop.in_turn(PROGRAMS, commit))
            self.assertEqual(sorted(order), sorted(names(PROGRAMS)))
            self.assertEqual(order[:len(run_interop.EVERY_TIME)], run_interop.EVERY_TIME)

    def test_another_commit_has_another_order(self):
        orders = [names(run_interop.in_turn(PROGRAMS, commit)) for commit in ("a", "b", "a")]
        self.assertNotEqual(orders[0], orders[1])
        self.assertEqual(orders[0], orders[2])

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
        os.environ.pop("INTEROP_BUDGET_S", None)
        os.environ.pop("INTEROP_LAST_S", None)
        full = unittest.mock.patch.object(run_interop, "IS_FULL", False)
        full.start()
        self.addCleanup(full.stop)

    def test_without_one_all_programs_run(self):
        begun, output = self.run_all()
        self.assertEqual(begun, sorted(names(PROGRAMS)))
        self.assertNotIn("left to other commits", output)

    def test_when_it_is_over_only_those_of_every_commit_run_and_the_others_are_named(self):
        begun, output = self.run_all(INTEROP_BUDGET_S="0")
        self.assertEqual(begun, sorted(run_interop.EVERY_TIME))
        left = next(line for line in output.splitlines() if "left to other commits" in line)
        for name in set(names(PROGRAMS)) - set(begun):
            self.assertIn(name, left)
        self.assertIn(f"{len(begun)} passed, 0 failed", output)

    def test_after_the_last_moment_none_begins_and_a_run_without_checks_has_failed(self):
        begun, output = self.run_all(INTEROP_BUDGET_S="1000", INTEROP_LAST_S="0")
        self.assertEqual(begun, [])
        self.assertIn("exact", next(line for line in output.splitlines() if "left to other commits" in line))

    def test_programs_that_were_asked_for_run(self):
        self.assertEqual(self.run_all("s3", INTEROP_BUDGET_S="0")[0], ["s3"])

    def test_with_full_it_does_not_count(self):
        with unittest.mock.patch.object(run_interop, "IS_FULL", True):
            self.assertEqual(self.run_all(INTEROP_BUDGET_S="0")[0], sorted(names(PROGRAMS)))


if __name__ == "__main__":
    unittest.main()
