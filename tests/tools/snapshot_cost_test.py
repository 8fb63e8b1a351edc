"""tests/tools/snapshot_cost_test.py: what snapshots cost, from the times of steps."""

import random
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
from snapshot_cost import chosen_interval, part_of_time  # noqa: E402


def run(every, longer, first=14, last=80, slow=()):
    """Steps of about 100 ms; those after a copy are longer by `longer`, and the slow ones take twice as long."""
    dice = random.Random(1)
    times = {step: 100 + dice.uniform(-1, 1) for step in range(first, last + 1)}
    for step in times:
        if every and (step - 1) % every < len(longer):
            times[step] += longer[(step - 1) % every]
        if step in slow:
            times[step] *= 2
    return times


class SnapshotCost(unittest.TestCase):
    def test_longer_steps_are_the_cost(self):
        self.assertAlmostEqual(part_of_time(run(10, [15]), 10), 0.015, delta=0.002)
        self.assertAlmostEqual(part_of_time(run(10, [15, 10]), 10), 0.025, delta=0.002)
        self.assertAlmostEqual(part_of_time(run(2, [8]), 2), 0.04, delta=0.01)
        self.assertAlmostEqual(part_of_time(run(10, []), 10), 0, delta=0.002)

    def test_slow_seconds_are_not(self):
        self.assertAlmostEqual(part_of_time(run(10, [15], slow=(18, 19, 40, 41, 66)), 10), 0.015, delta=0.002)

    def test_a_copy_at_each_step(self):
        self.assertAlmostEqual(part_of_time(run(1, [3]), 1, list(run(0, []).values())), 0.03, delta=0.01)
        self.assertIsNone(part_of_time(run(1, [3]), 1))

    def test_a_copy_that_is_always_on_the_wire(self):
        calm = list(run(0, []).values())
        self.assertAlmostEqual(part_of_time(run(4, [20] * 4), 4, calm, is_sent=True), 0.2, delta=0.01)
        self.assertAlmostEqual(part_of_time(run(4, [20]), 4, calm, is_sent=True), 0.05, delta=0.01)
        self.assertIsNone(part_of_time(run(4, [20]), 4, is_sent=True))

    def test_too_few_steps(self):
        self.assertIsNone(part_of_time(run(30, [15], first=14, last=40), 30))
        self.assertIsNone(part_of_time(run(30, [15], first=14, last=59), 30))
        self.assertIsNotNone(part_of_time(run(30, [15], first=14, last=80), 30))

    def test_what_auto_has_chosen(self):
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "log"
            for text, wanted in (("step 1\n", None), ("a snapshot in memory every step, from step 5 on\n", (1, 5)),
                                 ("x\na snapshot in memory every 13 steps, from step 9 on\n", (13, 9))):
                log.write_text(text)
                self.assertEqual(chosen_interval(log), wanted)


if __name__ == "__main__":
    unittest.main()
