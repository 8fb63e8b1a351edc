"""benchmarks/snapshot_cost.py: how much longer a run takes with snapshots.

Machines have slow seconds, and a mean takes all of them for the cost of snapshots. Copies come at known steps: what
they cost is by how much these, and those after them while a copy is being sent, are usually longer than the others
of the same run. Where every step has a copy, the steps of a run without are the others.
"""

import statistics

SENT = 3  # steps, at most, in which a copy is made and sent: of the others only the noise would be added

def part_of_time(steps, every, calm_ms=None):
    """The part of the time that copies take, over that without; None: nothing to compare with.

    steps: {step: ms}; the first that has a copy is step 1, and then each `every`th. calm_ms: the steps of a run without.
    """
    if every < 2:
        return statistics.median(steps.values()) / statistics.median(calm_ms) - 1 if calm_ms else None
    at = [[ms for step, ms in steps.items() if (step - 1) % every == offset] for offset in range(every)]
    if not all(at):
        return None
    longer = min((every + 1) // 2, SENT)
    base = statistics.median(ms for found in at[longer:] for ms in found)
    return sum(statistics.median(found) - base for found in at[:longer]) / (every * base)
