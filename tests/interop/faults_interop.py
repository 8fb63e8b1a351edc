#!/usr/bin/env python3
"""Hundreds of random faults over a small run that is started again and again: nothing sound is ever lost.

    faults_interop.py --weft build/weft [--faults 500] [--seed N] [--chain I]   (500 with FULL=1, else 300)

A chain is a fresh run directory. Its run (exact mode, one rank or dp 2 as it comes, or fast mode with
one rank; with an evaluation after each step, and so a best/, or without) is started until it is
finished, then with more steps, and each start is given a fault: system calls that fail (tests/faults),
a file of the run directory cut or changed, few file descriptors, kill -9 of the supervisor or a rank,
a signal; now and then the same command is started a second time meanwhile. After each start no sound checkpoint may be lost and what was newly
saved has the right bits; each end has the bits of an undisturbed run, and each step once in
metrics.jsonl. The seed is that of the commit; a chain depends on the seed and its number alone (but
for the times of kills).
"""

import contextlib
import json
import os
import re
import resource
import random
import shutil
import subprocess
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from common import ROOT, run_program, write_run_file
from fault_kinds import (choose_fault, copy_aside, damage_checkpoint, Fault, is_refusal, KINDS,
                         tear_last_line)
from fault_model import (BEST, complete_lines, control_checks, find_losses, find_metric_faults, look_at,
                         read_steps)
from kill_interop import CONFIG, children_of, end_process, is_ours
from sampling import is_full

STEPS, EVERY = 500, 6  # of the undisturbed run; between checkpoints
FIRST_STEPS = 30
DEADLINE_S, WORKERS = 60, 3
MODES = ["exact", "fast"]
MODEL = {**CONFIG, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1}


def write_inputs(folder):
    dice = random.Random(4)
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(MODEL))
    lines = ["".join(dice.choices("abcdefgh ", k=dice.randint(2, 40))) for _ in range(40)]
    (folder / "rows.txt").write_text("\n".join(lines) + "\n")
    (folder / "eval.txt").write_text("\n".join(lines[:4]) + "\n")
    return write_run_file(folder / "small.yaml", {
        "name": "run", "model": {"path": str(folder / "model"), "init": "random"},
        "data": {"train": [str(folder / "rows.txt")], "tokenizer": "bytes", "seq_length": 16},
        "train": {"eval_every": 1, "steps": STEPS, "global_batch": 8, "micro_batch": 4, "lr": 0.01},
        "checkpoint": {"every": EVERY}, "launch": {"threads": 1}})


class World:
    """Shared by all chains: the program, the run file, and the undisturbed run's bits."""

    def __init__(self, args, folder):
        self.weft, self.seed, self.folder = args.weft.resolve(), args.seed, folder
        self.library = self.weft.parent / "tests/libweft_fault_preload.so"
        self.file = write_inputs(folder)
        self.env = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
        self.env.pop("WEFT_TEST_FAULTS", None)
        with ThreadPoolExecutor(2) as pool:
            self.metrics = dict(zip(MODES, pool.map(self.run_whole, MODES)))
        self.hashes = {}

    def run_whole(self, mode):
        """The lines of the undisturbed run, which keeps each step."""
        whole = self.folder / f"whole-{mode}"
        words = ["--set", "checkpoint.every=1", "--set", f"checkpoint.keep={STEPS}",
                 *self.words_of(mode, True)]
        done = subprocess.run(self.command(whole, *words), env=self.env, capture_output=True,
                              text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"the undisturbed run exits {done.returncode}: {done.stderr}")
        return read_steps(whole / "metrics.jsonl")

    def words_of(self, mode, has_eval):
        words = ["--set", f"parallel.mode={mode}"]
        return words + (["--set", f"data.eval=[{self.folder / 'eval.txt'}]"] if has_eval else [])

    def command(self, run_dir, *words):
        return [str(self.weft), "train", str(self.file), "--run-dir", str(run_dir), "--quiet", *words]

    def hash(self, path):
        """The last lines of weft hash, or why there are none."""
        done = subprocess.run([str(self.weft), "hash", str(path)], env=self.env, text=True,
                              capture_output=True, timeout=DEADLINE_S, check=False)
        if done.returncode != 0:
            return f"exit {done.returncode}: {done.stderr.strip()[-300:]}"
        return [x for x in done.stdout.splitlines() if x.startswith(("weights ", "states "))]

    def bits_of(self, mode, step):
        """weft hash of the undisturbed run's checkpoint, computed once."""
        if (mode, step) not in self.hashes:
            place = self.folder / f"whole-{mode}/checkpoints/step-{step:08}"
            self.hashes[mode, step] = self.hash(place)
        return self.hashes[mode, step]

    def metrics_until(self, mode, has_eval, step):
        """The lines of a run that ends there: with the end of an epoch and the evaluation there."""
        lines = self.metrics[mode]
        count = next(i + 1 for i, line in enumerate(lines) if line.get("step") == step)
        while count < len(lines) and lines[count].get("step", step) == step:
            count += 1
        return [line for line in lines[:count] if has_eval or "eval_loss" not in line]


class Chain:
    """One run directory, from its first start to its checked end."""

    def __init__(self, world, index):
        self.world, self.index = world, index
        self.dice = random.Random(f"{world.seed}:{index}")
        self.folder = world.folder / f"chain-{index}"
        self.run_dir = self.folder / "run"
        self.run_dir.parent.mkdir()
        self.keep = self.dice.choice([2, 3])
        self.mode = self.dice.choice(["exact", "exact", "exact", "fast"])
        self.has_eval = self.dice.random() < 0.5
        self.planned = self.dice.randint(5, 14)  # faults
        self.story, self.complaints, self.given = [], [], Counter()
        self.damaged = set()  # digests of folders that we damaged
        self.copies = {}      # step: a sound copy of what we damaged
        self.steps, self.is_finished, self.had_checkpoint = FIRST_STEPS, False, False
        self.has_torn_events = False  # a start may then not know that --resume went back before an end
        self.second = None    # the exit code of a second start, where there was one

    # ---------------------------------------------------------------- the chain
    def run(self):
        try:
            while not self.complaints and self.num_given() < self.planned:
                if self.is_finished and self.dice.random() < 0.85:
                    self.steps = min(self.steps + self.dice.randint(8, 40), STEPS)
                if self.dice.random() < 0.35:
                    self.damage_files()
                self.start(choose_fault(self.dice, self.run_dir), *self.choose_resume())
            self.is_finished = False
            for _ in range(3):  # undisturbed; more than one where a user must help
                if not self.is_finished and not self.complaints:
                    self.start(None)
            if not self.complaints:
                self.complain(not self.is_finished, "an undisturbed start does not finish the run")
        except Exception as error:  # of the loop itself: reported with its history
            self.complaints.append(f"{type(error).__name__}: {error}")
        if not self.complaints:
            shutil.rmtree(self.folder)
        return self

    def num_given(self):
        return sum(self.given.values())

    def complain(self, bad, what):
        if bad:
            self.complaints.append(what)

    # ---------------------------------------------------------------- between starts
    def damage_files(self):
        look = look_at(self.run_dir)
        target = self.dice.choice(["newest", "newest", "any", "all", "events.jsonl",
                                   "metrics.jsonl"])
        if target.endswith(".jsonl"):
            path = self.run_dir / target
            if path.exists():
                self.has_torn_events |= target == "events.jsonl"
                self.tell("torn line", tear_last_line(self.dice, path, self.lines_kept(path, look)))
            return
        steps = sorted(look.committed)
        if not steps:
            return
        chosen = {"newest": steps[-1:], "any": [self.dice.choice(steps)], "all": steps}[target]
        texts = []
        for step in chosen:
            folder = self.run_dir / f"checkpoints/step-{step:08}"
            if look.committed[step] not in self.damaged:
                copy_aside(folder, self.folder / f"copy-{step}")
                self.copies[step] = self.folder / f"copy-{step}"
            texts.append(damage_checkpoint(self.dice, folder))
        self.tell("damaged checkpoint", "; ".join(texts))  # one fault, of however many
        after = look_at(self.run_dir)
        self.damaged |= {after.committed[s] for s in chosen if s in after.committed
                         and after.committed[s] != look.committed[s]}

    def lines_kept(self, path, look):
        """Lines that a start could not recreate: those up to the checkpoint that it resumes from."""
        newest = max(look.committed, default=self.best_step())
        if path.name == "events.jsonl":
            return max(len(complete_lines(path)) - 1, 0)
        steps = [json.loads(line).get("step", 0) for line in complete_lines(path)]
        return max((i + 1 for i, step in enumerate(steps) if step <= newest), default=0)

    def best_step(self):
        """Of best/, from which a run resumes that has saved nothing else; 0: there is none."""
        state = self.run_dir / "checkpoints/best/state.json"
        return json.loads(state.read_text())["step"] if state.exists() else 0

    def tell(self, kind, text):
        self.given[kind] += 1
        self.story.append(f"  {kind}: {text}")

    def choose_resume(self):
        """Now and then a user goes back: later checkpoints are then moved to abandoned/."""
        look = look_at(self.run_dir)
        sound = [step for step, digest in look.committed.items() if digest not in self.damaged]
        if len(sound) < 2 or self.dice.random() > 0.05:
            return []
        step = self.dice.choice(sorted(sound)[:-1])
        return ["--resume", str(self.run_dir / f"checkpoints/step-{step:08}")]

    # ---------------------------------------------------------------- one start
    def start(self, fault, *words):
        fault = fault or Fault("none", "undisturbed", codes={0})
        ranks = self.dice.choice([1, 2]) if self.mode == "exact" else 1
        before = look_at(self.run_dir)
        self.had_checkpoint |= bool(before.committed)
        words = ["--set", f"train.steps={self.steps}", "--set", f"parallel.dp={ranks}", "--set",
                 f"checkpoint.keep={self.keep}", *self.world.words_of(self.mode, self.has_eval), *words]
        code, text = self.run_weft(fault, ranks, words)
        if fault.is_given:
            self.given[fault.kind] += 1
        back = f", --resume {words[-1][-8:]}" if "--resume" in words else ""
        self.story.append(f"  to {self.steps}, dp {ranks}{back}, {fault.text}{'' if fault.is_given else ' (no effect)'}: "
                          f"exit {code}, {before.last_step} -> ")
        after = look_at(self.run_dir)
        self.story[-1] += f"{after.last_step}, checkpoints {sorted(after.committed)}"
        if "--overwrite" not in words:
            self.complaints += find_losses(before, after, self.damaged, self.keep)
        for step, digest in after.committed.items():
            if digest in before.committed.values() or digest in self.damaged:
                continue
            self.check_bits(step, self.run_dir / f"checkpoints/step-{step:08}")
        self.check_best(before, after)
        self.judge(fault, code, text, before, after, words)

    @staticmethod
    def names_pruned(words, text):
        """Of two starts with the same --resume the later one may find it pruned by the other."""
        return "--resume" in words and "there is no complete checkpoint" in text

    def check_bits(self, step, folder):
        got, wanted = self.world.hash(folder), self.world.bits_of(self.mode, step)
        self.complain(got != wanted, f"step {step} was saved in {folder.name} with other bits: {got}, "
                      f"wanted {wanted}")

    def check_best(self, before, after):
        for name in BEST & set(after.moved):
            folder = self.run_dir / "checkpoints" / name
            if after.moved[name] not in before.moved.values():
                self.check_bits(json.loads((folder / "state.json").read_text())["step"], folder)

    def judge(self, fault, code, text, before, after, words):
        no_sound = all(digest in self.damaged for digest in before.committed.values())
        # A start that could save nothing may still have written final/, which is not replaced.
        had_work = self.had_checkpoint or (self.run_dir / "final").exists()
        is_refused = code == 2 and no_sound and had_work and "--overwrite" in text
        newest = before.committed.get(max(before.committed, default=0))
        is_older = (code == 2 and (newest in self.damaged or self.is_finished or self.has_torn_events) and
                    "newest sound checkpoint is of step" in text)
        codes = fault.codes if fault.is_given or fault.signal == 0 else fault.codes | {0}
        may_refuse = fault.rules or fault.second_after_s >= 0
        is_pruned = code == 2 and self.second == 0 and self.names_pruned(words, text)
        self.complain(code not in codes and not is_refused and not is_older and not is_pruned and
                      not (code == 2 and may_refuse and is_refusal(text)),
                      f"exit {code}, wanted one of {sorted(codes)}: {text[-1500:]}")
        if code > 128:
            saved = max(after.committed, default=0)
            moved = after.last_step != before.last_step
            self.complain(moved and after.last_step > saved, f"exit {code}, but step "
                          f"{after.last_step} is not saved: the newest is {saved}")
        if code == 0 or self.second == 0:
            self.check_end(after, no_sound)
        if is_older and not self.complaints:  # as the hint says
            self.start(None, "--resume", re.search(r"--resume (\S+);", text).group(1))
        elif is_refused and not self.complaints:
            self.help_as_a_user(after)

    def check_end(self, look, had_no_sound):
        self.is_finished = True
        self.complaints += find_metric_faults(read_steps(self.run_dir / "metrics.jsonl"),
                                              self.world.metrics_until(self.mode, self.has_eval, self.steps))
        wanted = self.world.bits_of(self.mode, self.steps)[:1]  # weights alone
        final = self.world.hash(self.run_dir / "final")
        self.complain(final != wanted, f"final/ has other bits: {final}, wanted {wanted}")
        # Damaged, or moved by a start that went back and failed: final/ alone is enough.
        is_elsewhere = (had_no_sound or self.steps in self.copies or
                        (self.run_dir / f"checkpoints/abandoned/step-{self.steps:08}").exists())
        self.complain(self.steps not in look.committed and not is_elsewhere,
                      f"exit 0 without a checkpoint of step {self.steps}")

    def help_as_a_user(self, look):
        """No sound checkpoint is left: one is copied back, or everything is discarded."""
        usable = [step for step in self.copies if step <= look.last_step]
        if usable and self.dice.random() < 0.7:
            step = max(usable)
            place = self.run_dir / f"checkpoints/step-{step:08}"
            if place.exists():
                shutil.rmtree(place)
            shutil.copytree(self.copies[step], place)
            self.story.append(f"  a copy of step {step} was put back")
            return
        self.damaged.clear()
        self.copies.clear()
        self.story.append("  everything is discarded")
        self.start(None, "--overwrite")

    # ---------------------------------------------------------------- the process
    def run_weft(self, fault, ranks, words):
        """(exit code, standard error) of one start under a fault."""
        command = self.world.command(self.run_dir, *words)
        if fault.descriptors:
            command = ["sh", "-c", f'ulimit -n {fault.descriptors}; exec "$@"', "sh", *command]
        env, log = dict(self.world.env), self.folder / "faults.log"
        log.unlink(missing_ok=True)
        if fault.rules:
            env |= {"LD_PRELOAD": str(self.world.library), "WEFT_TEST_FAULTS": fault.rules,
                    "WEFT_TEST_FAULTS_LOG": str(log)}
        error = self.folder / "stderr"
        with open(error, "wb") as output, subprocess.Popen(
                command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=output) as process:
            try:
                with self.second_start(fault, words):
                    pids = self.send(fault, process, ranks) if fault.signal else []
                    code = process.wait(DEADLINE_S)
            except subprocess.TimeoutExpired:
                pids = children_of(process.pid)
                code = f"none within {DEADLINE_S} s"
            finally:
                if process.poll() is None:
                    process.kill()
        self.wait_for_ranks(pids)
        if fault.rules:
            fault.is_given = log.exists()
            shown = log.read_text().splitlines()[:3] if fault.is_given else []
            fault.text += "".join(f"\n      {line}" for line in shown) + ("\n   " if shown else "")
        if fault.descriptors:
            fault.is_given = code != 0
        return code, error.read_text(errors="replace")

    @contextlib.contextmanager
    def second_start(self, fault, words):
        """The same command once more, undisturbed: rejected, or it finishes what the first left."""
        self.second = None
        if fault.second_after_s < 0:
            yield
            return

        def run():
            time.sleep(fault.second_after_s)
            return subprocess.run(self.world.command(self.run_dir, *words), env=self.world.env,
                                  timeout=DEADLINE_S, capture_output=True, text=True, check=False)

        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(run)
            yield
            done = done.result()
        self.second = done.returncode
        self.tell("second start", f"exit {self.second}: {done.stderr.strip()[-100:]}")
        self.complain(self.second != 0 and not (self.second == 2 and (
            is_refusal(done.stderr) or self.names_pruned(words, done.stderr) or
            "--overwrite" in done.stderr)),
            f"a second start exits {self.second}: {done.stderr[-1500:]}")

    def send(self, fault, process, ranks):
        """Waits for the time and sends the signal; the ranks that were there."""
        begin = time.monotonic()
        metrics = self.run_dir / "metrics.jsonl"
        before = len(complete_lines(metrics))
        while process.poll() is None and time.monotonic() < begin + DEADLINE_S:
            is_time = time.monotonic() - begin >= fault.after_s
            if is_time and (not fault.after_step or
                            len(complete_lines(metrics)) >= before + fault.after_step):
                break
            time.sleep(0.002)
        pids = children_of(process.pid)
        victims = pids if fault.victim == "rank" and ranks > 1 else [process.pid]
        if process.poll() is None and victims:
            os.kill(self.dice.choice(victims), fault.signal)
            fault.is_given = True
            if fault.victim == "rank" and ranks == 1:
                fault.codes.add(-fault.signal)
        return pids

    def wait_for_ranks(self, pids):
        """Ranks end by themselves where their supervisor is gone; before the next start."""
        deadline = time.monotonic() + 15
        left = list(pids)
        while left and time.monotonic() < deadline:
            left = [pid for pid in left if is_ours(pid, self.run_dir)]
            time.sleep(0.002 if left else 0)
        self.complain(left, f"processes {left} outlive their supervisor by 15 s")
        for pid in left:
            end_process(pid)


def default_seed():
    """Derived from the commit: different for each, and reproducible."""
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True,
                          check=False)
    return int(done.stdout[:8], 16) if done.returncode == 0 else 1


def report(chain, checks):
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(chain.given.items()))
    good = checks.that(not chain.complaints, f"chain {chain.index}: {chain.mode}, keep {chain.keep}, "
                       f"{chain.num_given()} faults ({kinds}), {len(chain.story)} lines")
    if good:
        return
    print("\n".join(chain.story))
    print("\n".join(f"  COMPLAINT {text}" for text in chain.complaints))
    kept = tempfile.mkdtemp(prefix=f"weft_faults_{chain.world.seed}_{chain.index}_")
    shutil.copytree(chain.folder, kept, dirs_exist_ok=True)
    print(f"  again: --seed {chain.world.seed} --chain {chain.index}; the folder: {kept}", flush=True)


def run_chains(args, checks, world):
    """Chains until enough faults were given."""
    total, lock, numbers = Counter(), threading.Lock(), iter(range(1 << 30))

    def work():
        while True:
            with lock:
                if sum(total.values()) >= args.faults or checks.failed > 5:
                    return
                index = next(numbers)
            chain = Chain(world, index).run()
            with lock:
                total.update(chain.given)
                report(chain, checks)

    with ThreadPoolExecutor(WORKERS) as pool:
        for done in [pool.submit(work) for _ in range(WORKERS)]:
            done.result()
    return total


def body(args, checks, folder):
    print(f"seed {args.seed}")
    control_checks(checks, folder)
    world = World(args, folder)
    checks.that(world.library.exists(), "the preloaded library is built", world.library)
    begin = time.monotonic()
    if args.chain is not None:
        report(Chain(world, args.chain).run(), checks)
        return
    total = run_chains(args, checks, world)
    for kind, count in sorted(total.items()):
        print(f"     {count:4} {kind}")
    if args.faults >= 500:
        checks.equal([kind for kind in KINDS if not total[kind]], [], "each kind of fault was given")
    checks.that(sum(total.values()) >= args.faults, f"{sum(total.values())} faults in "
                f"{time.monotonic() - begin:.0f} s, {cpu_seconds():.0f} s of CPU")


def cpu_seconds():
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def add_arguments(parser):
    parser.add_argument("--faults", type=int, default=500 if is_full() else 300)
    parser.add_argument("--seed", type=int, default=default_seed())
    parser.add_argument("--chain", type=int, help="this chain alone")


if __name__ == "__main__":
    run_program(__doc__, body, add_arguments, in_memory=True)
