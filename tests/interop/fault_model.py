"""What a run directory must still hold after a start that faults disturbed: the checker's part.

A Look is the state of a run directory at one time. `find_losses` compares the look before a start
with the one after it; it knows nothing of weft but the contract: a committed checkpoint stays as it
is, or was moved (damaged, abandoned), or was pruned because enough newer ones exist.
"""

import hashlib
import json
import re
from dataclasses import dataclass, field

BEST = {"best", "best.old"}  # replaced by a better one; the second where that was interrupted
STEP = re.compile(r"step-(\d{8})")
TIMES = ("step_ms", "tokens_per_s", "mem_bytes", "time_s", "eval_tokens_per_s",
         "eval_time_s")  # of metrics: different in every start


def digest_folder(folder):
    """One hash over the names and bytes of a folder's files."""
    digest = hashlib.blake2b(digest_size=12)
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def complete_lines(path):
    """The lines of a file that end; a torn last one is skipped."""
    text = path.read_text(errors="replace") if path.exists() else ""
    return text.split("\n")[:-1]


def read_steps(path):
    """Lines of metrics.jsonl without the fields that differ in every run."""
    lines = [json.loads(line) for line in complete_lines(path)]
    return [{key: value for key, value in line.items() if key not in TIMES} for line in lines]


def last_step(run_dir):
    steps = [line["step"] for line in read_steps(run_dir / "metrics.jsonl") if "loss" in line]
    return max(steps, default=0)


@dataclass
class Look:
    committed: dict = field(default_factory=dict)  # step: digest
    moved: dict = field(default_factory=dict)      # other folders that hold a checkpoint: digest
    last_step: int = 0                             # of metrics.jsonl


def look_at(run_dir):
    look = Look(last_step=last_step(run_dir))
    for commit in sorted((run_dir / "checkpoints").glob("**/COMMITTED")):
        folder = commit.parent
        name = str(folder.relative_to(run_dir / "checkpoints"))
        if match := STEP.fullmatch(name):
            look.committed[int(match.group(1))] = digest_folder(folder)
        elif not name.endswith((".writing", ".removing")):  # not yet, or no longer, a checkpoint
            look.moved[name] = digest_folder(folder)
    return look


def find_losses(before, after, damaged, keep):
    """Complaints about checkpoints of `before` that are gone. `damaged`: digests that we damaged."""
    complaints = []
    for step, digest in before.committed.items():
        if after.committed.get(step) == digest:
            continue
        what = f"checkpoint {step} ({'damaged by us' if digest in damaged else 'sound'})"
        places = [name for name, found in after.moved.items()
                  if found == digest and name not in BEST]
        newer = [s for s in after.committed if s > step]
        sound_newer = [s for s in newer if after.committed[s] not in damaged]
        if places:
            if digest not in damaged and not any("abandoned" in place for place in places):
                complaints.append(f"{what} was set aside as {places}")
        elif step in after.committed:
            complaints.append(f"{what} was replaced")
        elif len(newer) < keep or not sound_newer:
            complaints.append(f"{what} is lost: keep {keep}, newer ones: {newer}, "
                              f"of them sound: {sound_newer}")
    has_best = bool(BEST & set(after.moved))
    for name, digest in before.moved.items():
        if not (name in BEST and has_best) and digest not in after.moved.values() and digest not in after.committed.values():
            complaints.append(f"checkpoints/{name} is gone")
    return complaints


def find_metric_faults(got, wanted):
    """Each step exactly once, with the bits of the undisturbed run."""
    if got == wanted:
        return []
    for place, (a, b) in enumerate(zip(got, wanted)):
        if a != b:
            return [f"metrics.jsonl:{place + 1}: got {a}, wanted {b}"]
    return [f"metrics.jsonl has {len(got)} lines, wanted {len(wanted)}"]


def control_checks(checks, folder):
    """Negative controls: the checker detects what it should."""
    run_dir = folder / "control"
    for step in (4, 8, 12):
        place = run_dir / f"checkpoints/step-{step:08}"
        place.mkdir(parents=True)
        (place / "COMMITTED").write_text("x")
        (place / "rank-00000.safetensors").write_text(f"bytes of {step}")
    before = look_at(run_dir)
    checks.equal(find_losses(before, look_at(run_dir), set(), 2), [], "control: nothing is lost")
    newest = run_dir / "checkpoints/step-00000012"
    damaged = {before.committed[12]}

    newest.rename(run_dir / "checkpoints/step-00000012.damaged")
    checks.that(find_losses(before, look_at(run_dir), set(), 2),
                "control: a sound checkpoint called damaged is noticed")
    checks.equal(find_losses(before, look_at(run_dir), damaged, 2), [],
                 "control: a damaged one may be")
    (run_dir / "checkpoints/step-00000012.damaged").rename(newest)

    (newest / "rank-00000.safetensors").write_text("other bytes")
    checks.that(find_losses(before, look_at(run_dir), set(), 2),
                "control: changed bytes are noticed")
    (newest / "rank-00000.safetensors").write_text("bytes of 12")

    (run_dir / "checkpoints/step-00000004/COMMITTED").unlink()
    checks.equal(find_losses(before, look_at(run_dir), set(), 2), [], "control: the oldest of 3 "
                 "may go where 2 are kept")
    checks.that(find_losses(before, look_at(run_dir), set(), 3),
                "control: but not where 3 are kept")
    checks.that(find_losses(before, look_at(run_dir), set(before.committed.values()) -
                            {before.committed[4]}, 2),
                "control: nor where the newer ones are damaged")
    best = run_dir / "checkpoints/best"
    best.mkdir()
    (best / "COMMITTED").write_text("x")
    with_best = look_at(run_dir)
    (best / "COMMITTED").write_text("a better one")
    checks.equal(find_losses(with_best, look_at(run_dir), set(), 2), [], "control: best/ may be "
                 "replaced")
    (best / "COMMITTED").unlink()
    checks.that(find_losses(with_best, look_at(run_dir), set(), 2), "control: but not be gone")
    (newest / "COMMITTED").unlink()
    checks.that(find_losses(before, look_at(run_dir), set(), 2),
                "control: a checkpoint removed by hand is noticed")
    checks.that(find_losses(before, look_at(run_dir), damaged, 2),
                "control: and a damaged one that was deleted")
    line = {"step": 1, "loss": 2.5}
    checks.that(find_metric_faults([line, line], [line]), "control: a duplicate step is detected")
    checks.that(find_metric_faults([{"step": 1, "loss": 2.5000000000000004}], [line]),
                "control: another bit of a loss is noticed")
