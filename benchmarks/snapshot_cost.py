"""benchmarks/snapshot_cost.py: how much longer a run takes with snapshots.

Machines have slow seconds, and a mean takes all of them for the cost of snapshots. Copies come at known steps: what
they cost is by how much these, and those after them while a copy is being sent, are usually longer than the others
of the same run. Where no step is without a copy, the steps of a run without snapshots are the others.
"""

import re
import statistics

SENT = 3  # steps, at most, in which a copy is made and sent: later ones would only add noise
FEWEST = 2  # copies, for a median


def part_of_time(steps, every, calm_ms=(), is_sent=False):
    """What copies cost, as a fraction of the time without them; None: too few steps.

    steps: {step: ms}; the first that has a copy is step 1, and then each `every`th. calm_ms: the steps of a run
    without. is_sent: to another node.
    """
    if every < (2 * SENT if is_sent else 2):
        if not calm_ms:
            return None
        return statistics.fmean(statistics.median(found) for found in after_copies(steps, every)) / statistics.median(calm_ms) - 1
    at = after_copies(steps, every)
    longer = min((every + 1) // 2, SENT)
    if min(len(found) for found in at[:longer]) < FEWEST or not all(at):
        return None
    base = statistics.median(ms for found in at[longer:] for ms in found)
    return sum(statistics.median(found) - base for found in at[:longer]) / (every * base)


def after_copies(steps, every):
    """Times of the steps with a copy, of those after them, and so on."""
    return [[ms for step, ms in steps.items() if (step - 1) % every == offset] for offset in range(every)]


def chosen_interval(log):
    """(steps between two snapshots, the step from which on) of `auto`, by the line that rank 0 prints; None: none yet."""
    found = re.findall(r"a snapshot in memory every (?:(\d+) )?steps?, from step (\d+) on", log.read_text(errors="replace"))
    return (int(found[-1][0] or 1), int(found[-1][1])) if found else None
