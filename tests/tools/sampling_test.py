"""tests/tools/sampling_test.py: a commit runs a sample; ten commits run all cases."""

import itertools
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/interop"))
import sampling  # noqa: E402

CASES = list(itertools.product(("qwen2", "llama"), ("fp32", "bf16"), ("none", "zero1", "zero3"), range(5)))


class Named:
    def __init__(self, name):
        self.name = name


def sampler(number, **environment):
    with unittest.mock.patch.object(sampling, "commit_number", lambda: number), \
            unittest.mock.patch.dict("os.environ", environment):
        if "FULL" not in environment:
            sampling.os.environ.pop("FULL", None)
        return sampling.Sampler()


class Slots(unittest.TestCase):
    def test_a_case_runs_at_every_kth_commit(self):
        for slots, first in itertools.product(range(1, 11), (0, 1, 977)):
            runs = [number for number in range(first, first + 40) if sampling.in_slot("a case", slots, number)]
            self.assertEqual({b - a for a, b in zip(runs, runs[1:])}, {slots})

    def test_ten_commits_in_a_row_run_everything(self):
        for slots, first in itertools.product(range(1, 11), (0, 7, 1234)):
            seen = set()
            for number in range(first, first + 10):
                seen |= set(sampler(number)(CASES, slots))
            self.assertEqual(len(seen), len(CASES), slots)

    def test_more_than_ten_slots_are_refused(self):
        for slots in (0, 11):
            with self.assertRaises(ValueError):
                sampling.in_slot("a case", slots, 1)
        with self.assertRaises(ValueError):
            sampler(1).one_of(2, ("a", "b", "c"))

    def test_the_same_commit_runs_the_same_and_another_others(self):
        self.assertEqual(sampler(5)(CASES), sampler(5)(CASES))
        self.assertNotEqual(sampler(5)(CASES), sampler(6)(CASES))

    def test_a_case_keeps_its_commits_when_another_is_added(self):
        self.assertEqual(sampler(5)(CASES), [case for case in sampler(5)([*CASES, ("t5",)]) if case != ("t5",)])

    def test_cases_stay_in_their_order(self):
        for number in range(20):
            chosen = sampler(number)(CASES, 3)
            self.assertEqual(chosen, sorted(chosen, key=CASES.index))

    def test_a_slot_without_a_case_runs_one(self):
        for number in range(20):
            self.assertEqual(len(sampler(number)(["alone"], 10)), 1)
        self.assertEqual(sampler(1)([], 4), [])

    def test_names_decide_where_a_case_has_one(self):
        for number in range(10):
            plain = sampler(number)([str(i) for i in range(40)], 4)
            self.assertEqual([case.name for case in sampler(number)([Named(str(i)) for i in range(40)], 4)], plain)

    def test_cases_that_are_equal_are_cases(self):
        self.assertEqual(len(sampler(3, FULL="1")(CASES * 2)), 2 * len(CASES))
        self.assertEqual(len(sampler(3)(CASES * 2)), 2 * len(sampler(3)(CASES)))


class Sampler(unittest.TestCase):
    def test_summary_counts_and_names_what_is_left(self):
        sample = sampler(4)
        taken = len(sample(range(30), 5)) + len(sample(["x", "y"], 2))
        summary = sample.summary()
        self.assertTrue(summary.startswith(f"sampled {taken} of 32 (FULL=1 runs all), left to other commits: "), summary)
        self.assertEqual(len(summary.split(": ", 1)[1].split("; ")), 32 - taken)
        many = sampler(4)
        left = 1000 - len(many(range(1000), 5))
        self.assertIn(f" and {left - 100} more", many.summary())

    def test_one_in(self):
        runs = [sampler(number).one_in(3, "corpus") for number in range(30)]
        self.assertEqual(sum(runs), 10)
        self.assertTrue(all(sampler(4, FULL="1").one_in(3, str(i)) for i in range(20)))

    def test_at_most_one_of_a_pool_and_each_within_its_slots(self):
        for first in (0, 13):
            found = [sampler(number).one_of(6, ("a", "b", "c")) for number in range(first, first + 6)]
            self.assertEqual(sorted(map(str, found)), sorted(["[]"] * 3 + ["['a']", "['b']", "['c']"]))
        self.assertEqual(sampler(3, FULL="1").one_of(6, ("a", "b", "c")), ["a", "b", "c"])

    def test_full_runs_all(self):
        sample = sampler(3, FULL="1")
        self.assertEqual(sample(range(80)), list(range(80)))
        self.assertEqual(sample.summary(), "")
        self.assertLess(len(sampler(3, FULL="0")(range(80))), 80)


class CommitNumber(unittest.TestCase):
    def test_of_a_checkout_and_of_none(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(sampling.commit_number(folder), 0)
            git = ["git", "-C", folder, "-c", "user.name=x", "-c", "user.email=x@localhost"]
            subprocess.run([*git, "init", "-q"], check=True)
            self.assertEqual(sampling.commit_number(Path(folder)), 0)  # nothing is committed yet
            for number in (1, 2):
                subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
                sampling.commit_number.cache_clear()
                self.assertEqual(sampling.commit_number(Path(folder)), number)
            for words in (["checkout", "-q", "-b", "side"], *[["commit", "-q", "--allow-empty", "-m", "x"]] * 2,
                          ["checkout", "-q", "-"], ["merge", "-q", "--no-ff", "-m", "x", "side"]):
                subprocess.run([*git, *words], check=True)
            sampling.commit_number.cache_clear()
            self.assertEqual(sampling.commit_number(Path(folder)), 3)
            inside = Path(folder) / "unpacked"
            inside.mkdir()
            self.assertEqual(sampling.commit_number(inside), 0)


if __name__ == "__main__":
    unittest.main()
