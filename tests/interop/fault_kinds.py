"""The faults that faults_interop.py gives to a run: which there are, and how one is chosen."""

import math
import shutil
import signal
from dataclasses import dataclass, field

FAILED = {0, 1, 75}  # exit codes of a run in which something failed; 0: it did not matter
# Exit code 2 (wrong input) is allowed only with these messages.
REFUSALS = [("cannot write into", "Permission denied"), ("cannot write into", "Read-only file system"),
            ("another process is training in",), ("another process has trained in",)]
SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2]

# Errors that such a call can really return.
CALLS = {
    "open": ["EACCES", "EROFS", "EMFILE", "EIO", "ESTALE"], "opendir": ["EACCES", "EIO", "EMFILE"],
    "readdir": ["EIO"], "stat": ["EACCES", "EIO"], "mkdir": ["EACCES", "EROFS", "ENOSPC", "EIO"],
    "rename": ["EACCES", "EIO", "ENOSPC"], "unlink": ["EACCES", "EIO"],
    "write": ["ENOSPC", "EIO", "EDQUOT"], "fsync": ["EIO", "ENOSPC"], "truncate": ["EIO"],
    "mmap": ["ENOMEM"], "read": ["EIO", "ESTALE"], "close": ["EIO"],
}
PLACES = ["/run", "/run", "/checkpoints", "/checkpoints/step-", "index.json", "state.json",
          "COMMITTED", ".safetensors", "metrics.jsonl", "events.jsonl", "/final", "run.yaml", "/log/"]


KINDS = ["failing call", "random calls", "full disk", "short reads or writes", "few descriptors",
         "kill -9 at a call", "kill -9", "damaged checkpoint", "torn line", "second start",
         *(number.name for number in SIGNALS)]


@dataclass
class Fault:
    kind: str
    text: str
    rules: str = ""             # of the preloaded library
    codes: set = field(default_factory=lambda: set(FAILED))
    descriptors: int = 0        # that the process may open; 0: unlimited
    signal: int = 0
    victim: str = "supervisor"  # or rank
    after_s: float = 0.0        # when the signal is sent: both must have passed
    after_step: int = 0
    is_given: bool = False      # it had an effect and is counted
    second_after_s: float = -1  # when the same command is started once more; negative: not


def is_refusal(text):
    """Whether what a start with exit code 2 says is one of REFUSALS."""
    return any(all(part in text for part in parts) for parts in REFUSALS)


def small_number(dice, most):
    """1 to most, small ones more often."""
    return int(math.exp(dice.uniform(0, math.log(most + 0.99))))


def failing_call(dice, _):
    call = dice.choice(list(CALLS))
    nth, count = small_number(dice, 30), dice.choice([0, 1, 1, 3])
    rule = f"{call}:{dice.choice(CALLS[call])}:{dice.choice(PLACES)}:{nth}:{count}"
    return Fault("failing call", rule, rules=rule)


def random_calls(dice, run_dir):
    chance = dice.choice([0.002, 0.01, 0.05, 0.3])
    rule = f"random:{dice.randrange(1 << 30)}:{chance}:{run_dir}:{dice.choice([1, 2, 5, 0])}"
    return Fault("random calls", rule, rules=rule)


def full_disk(dice, run_dir):
    rule = f"space:{int(10 ** dice.uniform(2, 6.5))}:{run_dir}"
    return Fault("full disk", rule, rules=rule)


def short_transfers(dice, run_dir):
    rule = f"{dice.choice(['write', 'read'])}:short:{run_dir}:{small_number(dice, 20)}"
    return Fault("short reads or writes", rule, rules=rule)


def kill_at_call(dice, _):
    call = dice.choice(["rename", "write", "fsync", "unlink", "mkdir", "open", "truncate"])
    rule = f"{call}:KILL:{dice.choice(PLACES)}:{small_number(dice, 60)}"
    return Fault("kill -9 at a call", rule, rules=rule, codes=FAILED | {-signal.SIGKILL})


def few_descriptors(dice, _):
    count = dice.randint(4, 9)
    return Fault("few descriptors", f"ulimit -n {count}", descriptors=count)


def moment(dice, fault):
    """At a time after the start, or after some steps."""
    if dice.random() < 0.4:
        fault.after_s = dice.uniform(0, 0.25)
    else:
        fault.after_step = dice.randint(1, 30)
    when = f"step {fault.after_step}" if fault.after_step else f"{fault.after_s:.3f} s"
    fault.text = f"{fault.text} at {when}"
    return fault


def kill_process(dice, _):
    victim = dice.choice(["supervisor", "rank"])
    codes = {0, 75} if victim == "rank" else {0, -signal.SIGKILL}
    return moment(dice, Fault("kill -9", f"kill -9 of the {victim}", codes=codes,
                              signal=signal.SIGKILL, victim=victim))


def send_signal(dice, _):
    number = dice.choice(SIGNALS)
    # Before the program has set its handlers the signal's own action ends it.
    return moment(dice, Fault(signal.Signals(number).name, signal.Signals(number).name,
                              codes={0, 128 + number, -number}, signal=number))


def choose_fault(dice, run_dir):
    """A fault of the coming start. (The files are damaged between starts: damage_files.)"""
    makers = [failing_call] * 6 + [random_calls] * 4 + [full_disk, short_transfers, few_descriptors]
    makers += [kill_at_call] * 3 + [kill_process] * 4 + [send_signal] * 5
    fault = dice.choice(makers)(dice, run_dir)
    if dice.random() < 0.06:
        fault.second_after_s = dice.uniform(0, 0.2)
        fault.text += f", and a second start after {fault.second_after_s:.3f} s"
    return fault


# --- between starts ---


def cut(dice, path):
    size = path.stat().st_size
    left = dice.choice([0, size // 2, max(size - 1, 0), dice.randrange(size) if size else 0])
    with open(path, "r+b") as file:
        file.truncate(left)
    return f"cut to {left} of {size} bytes"


def flip(dice, path):
    data = bytearray(path.read_bytes())
    if not data:
        return "flipped nothing: it is empty"
    at = dice.randrange(len(data))
    data[at] ^= 1 << dice.randrange(8)
    path.write_bytes(data)
    return f"bit flipped in byte {at} of {len(data)}"


def damage_checkpoint(dice, folder):
    files = sorted(p for p in folder.iterdir() if p.suffix == ".safetensors" or
                   p.name in ("index.json", "state.json", "COMMITTED"))
    path = dice.choice(files)
    return f"{folder.name}/{path.name}: {dice.choice([cut, flip])(dice, path)}"


def tear_last_line(dice, path, lines_kept):
    """As left by a process that dies while writing; the first lines stay unchanged."""
    lines = path.read_text().split("\n")
    if len(lines) - 1 <= lines_kept:
        with open(path, "a") as file:
            file.write('{"step": 1, "loss": 2.')
        return f"{path.name}: half a line added"
    kept = dice.randint(lines_kept, len(lines) - 2)
    text = "\n".join(lines[:kept] + [lines[kept][:dice.randint(0, len(lines[kept]) - 1)]])
    path.write_text(text)
    return f"{path.name}: cut in line {kept + 1} of {len(lines) - 1}"


def copy_aside(folder, place):
    if place.exists():
        shutil.rmtree(place)
    shutil.copytree(folder, place)
