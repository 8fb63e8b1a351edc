"""tests/tools/sampling_test.py: which cases of interop's long matrices are run."""

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
COMMITS = [f"{i:040x}" for i in range(40)]


def choose(commit, cases=CASES, share=0.25):
    return sampling.choose(cases, lambda case: {case[:2], case[2]}, share, commit)


class Choose(unittest.TestCase):
    def test_the_same_commit_runs_the_same_and_another_others(self):
        self.assertEqual(choose("abc"), choose("abc"))
        self.assertEqual(len(choose("abc")), 15)
        self.assertGreater(len({tuple(choose(commit)) for commit in COMMITS}), 35)

    def test_cases_stay_in_their_order_and_are_taken_once(self):
        for commit in COMMITS:
            chosen = choose(commit)
            self.assertEqual(chosen, sorted(set(chosen), key=CASES.index))

    def test_no_kind_is_left_out_even_where_the_share_is_too_small(self):
        for commit, share in itertools.product(COMMITS, (0.25, 0.0)):
            chosen = choose(commit, share=share)
            self.assertEqual({case[:2] for case in chosen}, {case[:2] for case in CASES})
            self.assertEqual({case[2] for case in chosen}, {"none", "zero1", "zero3"})

    def test_no_case_hides_for_long(self):
        missing = set(CASES)
        for commit in COMMITS:
            missing -= set(choose(commit))
        self.assertEqual(missing, set())

    def test_a_case_added_moves_no_other_choice_by_hash(self):
        """Where kinds do not matter: the order of the hashes is all there is."""
        before = sampling.choose(CASES, lambda _: set(), 0.25, "abc")
        after = sampling.choose([*CASES, ("t5",)], lambda _: set(), 0.25, "abc")
        self.assertLessEqual(len(set(before) - set(after)), 1)

    def test_without_a_commit_all_run(self):
        self.assertEqual(choose(None), CASES)

    def test_cases_that_are_equal_are_cases(self):
        self.assertEqual(len(choose(None, CASES * 2)), 2 * len(CASES))
        self.assertEqual(len(choose("abc", CASES * 2)), 30)


class Sampler(unittest.TestCase):
    def sampler(self, commit, **environment):
        with unittest.mock.patch.object(sampling, "commit_hash", lambda: commit), \
                unittest.mock.patch.dict("os.environ", environment):
            if "FULL" not in environment:
                sampling.os.environ.pop("FULL", None)
            return sampling.Sampler()

    def test_summary_counts_all_matrices(self):
        sample = self.sampler("abc")
        self.assertEqual(len(sample(iter(range(80)), lambda _: set())), 20)
        self.assertEqual(len(sample(range(25), lambda _: set(), share=0.16)), 4)
        self.assertEqual(sample.summary(), "sampled 24 of 105 (FULL=1 runs all)")

    def test_a_long_check_runs_by_about_one_of_three_commits(self):
        samples = [self.sampler(f"{i:040x}") for i in range(300)]
        runs = [sample.one_in(3, "corpus") for sample in samples]
        self.assertTrue(75 < sum(runs) < 125, sum(runs))
        self.assertEqual(runs, [self.sampler(f"{i:040x}").one_in(3, "corpus") for i in range(300)])
        self.assertNotEqual(runs, [sample.one_in(3, "another") for sample in samples])
        self.assertEqual(samples[runs.index(False)].all, 2)
        for sample in (self.sampler("abc", FULL="1"), self.sampler(None)):
            self.assertTrue(all(sample.one_in(3, str(i)) for i in range(20)))

    def test_at_most_one_of_a_pool(self):
        sampler, found = sampling.Sampler(), []
        for number in range(600):
            sampler.commit = str(number)
            found.append(sampler.one_of(6, ("a", "b", "c")))
        self.assertEqual(max(map(len, found)), 1)
        for name in ("a", "b", "c"):
            self.assertTrue(60 < found.count([name]) < 140, found.count([name]))
        sampler.commit = None
        self.assertEqual(sampler.one_of(6, ("a", "b", "c")), ["a", "b", "c"])

    def test_full_and_no_checkout_run_all(self):
        for sample in (self.sampler("abc", FULL="1"), self.sampler(None)):
            self.assertEqual(sample(range(80), lambda _: set()), list(range(80)))
            self.assertEqual(sample.summary(), "")
        self.assertEqual(len(self.sampler("abc", FULL="0")(range(80), lambda _: set())), 20)


class CommitHash(unittest.TestCase):
    def test_of_a_checkout_and_of_none(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertIsNone(sampling.commit_hash(folder))
            git = ["git", "-C", folder, "-c", "user.name=x", "-c", "user.email=x@localhost"]
            subprocess.run([*git, "init", "-q"], check=True)
            self.assertIsNone(sampling.commit_hash(Path(folder)))  # nothing is committed yet
            subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
            commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
            sampling.commit_hash.cache_clear()
            self.assertEqual(sampling.commit_hash(Path(folder)), commit.stdout.strip())
            inside = Path(folder) / "unpacked"
            inside.mkdir()
            self.assertIsNone(sampling.commit_hash(inside))


if __name__ == "__main__":
    unittest.main()
