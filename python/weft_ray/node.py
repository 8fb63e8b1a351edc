"""weft_ray/node.py: the actor on a node: it starts `weft train` or `weft agent`, watches it, and reads the run's files.

This module is sent to nodes by value: they need Ray, and no weft. It uses the standard library and modules that are
sent with it.
"""

import collections
import contextlib
import ctypes
import glob
import io
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zipfile

from weft_ray.follow import RunFollower, all_metrics, summarize
from weft_ray.keep import Keeper
from weft_ray.libraries import with_cuda

# Of other launchers: Ray itself may have been started by one, and weft would take itself for its task.
FOREIGN = re.compile(r"(RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|MASTER_ADDR|MASTER_PORT|(OMPI|PMI|PMIX|SLURM|SLURMD|TORCHELASTIC)_.*)$")
ENDPOINT = re.compile(r"weft agent --join (\S+) --secret-file")
POLL_S, TAIL, MOST_LINES = 0.05, 60, 10_000
SIZES = "SIZES"  # of the files of an unpacked program
DRAFT, DRAFT_S = ".draft-", 3600  # of a program that is being unpacked, which takes seconds
UNUSED_S, USE_S = 30 * 86_400, 86_400  # after which a program is deleted, and how often it is noted that one is in use
REPORT_S = 10  # for the supervisor to hear of a lost node
LOOK_S = 0.5  # for a parent that has ended, where Python does not know pidfd_open
PR_SET_PDEATHSIG = 1  # prctl(2)


def cache_folder():
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(home, "weft", "programs")


def installed_program(digest):
    """The program of the weft_ray installed on this node, if it is of the same build."""
    for place in sys.path:
        package = os.path.join(place, "weft_ray")
        try:
            with open(os.path.join(package, "DIGEST"), encoding="utf-8") as file:
                if file.read().strip() == digest:
                    return os.path.join(package, "bin", "weft")
        except OSError:
            continue
    return None


def unpack(data, folder):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for entry in archive.infolist():
            os.chmod(archive.extract(entry, folder), 0o644 if entry.filename == "DIGEST" else 0o755)
        sizes = {entry.filename: entry.file_size for entry in archive.infolist()}
    with open(os.path.join(folder, SIZES), "w", encoding="utf-8") as file:
        json.dump(sizes, file)


def is_whole(folder):
    """Whether every file is there, with its size: a full disk or a clean-up may have left only some of them."""
    try:
        with open(os.path.join(folder, SIZES), encoding="utf-8") as file:
            return all(os.path.getsize(os.path.join(folder, name)) == size for name, size in json.load(file).items())
    except (OSError, ValueError):
        return False


def sweep(folder):
    """Deletes what a killed actor has left half unpacked, and programs that have not been used for a long time."""
    def is_older(path, seconds):
        with contextlib.suppress(OSError):  # another actor sweeps too
            return time.time() - os.path.getmtime(path) > seconds
        return False
    for program in glob.glob(os.path.join(glob.escape(folder), "*")):
        if is_older(program, UNUSED_S):
            with contextlib.suppress(OSError):
                os.rename(program, os.path.join(folder, f"{DRAFT}{os.path.basename(program)}"))
    for draft in glob.glob(os.path.join(glob.escape(folder), f"{DRAFT}*")):
        if is_older(draft, DRAFT_S):
            shutil.rmtree(draft, ignore_errors=True)


def clean_environment():
    return with_cuda({name: value for name, value in os.environ.items() if not FOREIGN.match(name)})


def end_with(parent):
    """Ends this process with its raylet: Ray gives the node up at once, but its workers notice only many seconds later. Python built with an old glibc lacks pidfd_open."""
    if hasattr(os, "pidfd_open"):
        try:
            watched = select.poll()
            watched.register(os.pidfd_open(parent), select.POLLIN)
        except OSError:  # the worker is in a container of its own
            return
        watched.poll()
    while not hasattr(os, "pidfd_open") and os.getppid() == parent:
        time.sleep(LOOK_S)
    os._exit(1)


def memory_file(text):
    """A descriptor of a file, mode 600, that is on no disk and disappears with this process. Python built with an old glibc lacks memfd_create."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("weft_secret")
        os.fchmod(file, 0o600)
    else:
        file, path = tempfile.mkstemp(dir="/dev/shm", prefix="weft_secret_")  # mode 600
        os.unlink(path)
    os.write(file, text.encode())
    return file


class WeftNode:
    """Runs one child at a time; poll() returns what is new."""

    def __init__(self):
        self.program = self.child = self.follower = self.keeper = self.folder = self.run_dir = self.endpoint = self.secret_fd = None
        self.tail, self.lines = collections.deque(maxlen=TAIL), collections.deque(maxlen=MOST_LINES)
        self.readers, self.why = [], ""  # why: no child could be started
        self.polling, self.said, self.num_said = threading.Lock(), None, 0
        self.starting, self.number, self.answer = threading.Lock(), 0, None  # the last train() or join()
        self.note_at = 0.0
        threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()

    def describe(self, digest):
        """What the driver needs to know about this node; the GPU ids are those of this actor."""
        import ray
        context = ray.get_runtime_context()
        ids = context.get_accelerator_ids().get("GPU", [])
        return {"address": ray.util.get_node_ip_address(), "gpus": [str(one) for one in ids], "has_program": self.find_program(digest),
                "directory": os.getcwd() if context.runtime_env.get("working_dir") else None}  # the job's own, which Ray has sent here

    def find_program(self, digest):
        folder = os.path.join(cache_folder(), digest)
        self.program = installed_program(digest) or (os.path.join(folder, "bin", "weft") if is_whole(folder) else None)
        return self.program is not None

    def install(self, digest, data):
        """Unpacks the program into the cache, where the next run finds it, completely or not at all."""
        draft = ""
        try:
            os.makedirs(cache_folder(), mode=0o700, exist_ok=True)
            sweep(cache_folder())
            draft = tempfile.mkdtemp(dir=cache_folder(), prefix=DRAFT)
            unpack(data, draft)
        except OSError as error:
            shutil.rmtree(draft, ignore_errors=True)
            raise OSError(error.errno, f"weft's program could not be unpacked into {cache_folder()}, which needs {len(data) >> 20} MiB: {error.strerror}") from None
        self.replace(draft, os.path.join(cache_folder(), digest))
        if not self.find_program(digest):
            raise RuntimeError(f"weft's program could not be unpacked into {cache_folder()}")

    def replace(self, draft, folder):
        """A damaged one makes way; a whole one comes from a run that was faster."""
        if os.path.exists(folder) and not is_whole(folder):
            with contextlib.suppress(OSError):
                os.rename(folder, os.path.join(tempfile.mkdtemp(dir=cache_folder(), prefix=DRAFT), "damaged"))
        try:
            os.rename(draft, folder)
        except OSError:
            shutil.rmtree(draft)

    def note_use(self):
        if time.monotonic() >= self.note_at and self.program.startswith(cache_folder()):
            self.note_at = time.monotonic() + USE_S
            with contextlib.suppress(OSError):
                os.utime(os.path.dirname(os.path.dirname(self.program)))

    def once(self, number, make):
        """What make() has returned for the call with this number: the driver repeats a call whose answer Ray could not deliver."""
        with self.starting:
            if number != self.number:
                self.answer, self.number = make(), number
            return self.answer

    def start(self, words, directory, gpus):
        self.child = self.endpoint = None
        self.tail.clear()
        env = clean_environment()
        if gpus:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
        is_started = threading.Event()
        threading.Thread(target=self.keep_child, args=([self.program, *words], directory, env, is_started), daemon=True).start()
        is_started.wait()
        if self.child is None:
            raise RuntimeError(f"{self.program} could not be started in {directory or os.getcwd()}: {self.why}")
        self.readers = [threading.Thread(target=self.pass_on, args=pair, daemon=True)
                        for pair in ((self.child.stdout, sys.stdout, None), (self.child.stderr, sys.stderr, self.tail))]
        for reader in self.readers:
            reader.start()

    def keep_child(self, words, directory, env, is_started):
        """Runs on a thread that lasts as long as the child, which the kernel kills together with the thread that started it."""
        parent, prctl = os.getpid(), ctypes.CDLL(None).prctl

        def begin():
            os.setpgid(0, 0)  # Ray ends an actor's process group with SIGTERM first, by which an agent would ask the whole run to stop
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(127)
        try:
            self.child = subprocess.Popen(words, cwd=directory, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                          stderr=subprocess.PIPE, text=True, errors="replace", preexec_fn=begin)
        except (OSError, subprocess.SubprocessError) as error:
            self.why = str(error)
            return
        finally:
            is_started.set()
        self.child.wait()

    def pass_on(self, source, target, tail):
        """Copies the child's lines to the actor's output, which Ray shows to the driver."""
        for line in source:
            target.write(line)
            target.flush()
            self.lines.append((line, tail is not None))
            if tail is not None:
                tail.append(line.rstrip("\n"))
            if match := ENDPOINT.search(line):
                self.endpoint = match.group(1)

    def train(self, number, *arguments):
        """Starts `weft train`; returns the path of the run file."""
        return self.once(number, lambda: self.start_train(*arguments))

    def start_train(self, place, file_name, text, keys, words, directory, gpus, reported, keep):
        """The run file goes into a folder that all nodes must see under the same path.

        place: (the run directory, ""), or (a folder, name of a folder in it for the copy of a run in an object store). keep: (how many, score), or None.
        directory: where weft starts, if it exists here; None: in that folder.
        """
        (folder, self.remote_name), self.reported, self.keep, self.since = place, reported, keep, ""
        if self.remote_name:
            folder = os.path.join(folder or os.path.dirname(cache_folder()), self.remote_name)
            self.since = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())  # as events have it
        self.folder = folder
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, file_name)
        with tempfile.NamedTemporaryFile("w", dir=folder, prefix=".ray-", delete=False) as file:
            file.write(text)
        os.rename(file.name, path)
        if self.remote_name:
            keys = {**keys, "checkpoint.fallback": folder}
        self.find_run()
        sets = [word for key, value in keys.items() for word in ("--set", f"{key}={value if isinstance(value, str) else json.dumps(value)}")]
        self.start(["train", path, *sets, *words], directory if directory and self.enters(directory) else folder, gpus)
        return path

    def sees(self, path):
        return os.path.exists(path)

    def enters(self, folder):
        return os.path.isdir(folder) and os.access(folder, os.X_OK)

    def find_run(self):
        """The run directory: the folder, or where weft has made it below the folder, the copy of the one in the object store."""
        if self.run_dir:
            return
        found = glob.glob(os.path.join(glob.escape(self.folder), "*/")) if self.remote_name else [self.folder]
        if found:
            self.run_dir = found[0].rstrip("/")
            self.follower = RunFollower(self.run_dir, self.reported, self.since)
            self.keeper = Keeper(self.run_dir, *self.keep) if self.keep else None

    def secret(self):
        with open(os.path.join(self.run_dir, "secret"), encoding="utf-8") as file:
            return file.read()

    def join(self, number, *arguments):
        """Starts an agent; returns its (host, process id)."""
        return self.once(number, lambda: self.start_agent(*arguments))

    def start_agent(self, endpoint, secret, gpus):
        """The secret is a file in the actor's memory, and disappears with the actor."""
        if self.secret_fd is not None:  # of the agent before this one
            os.close(self.secret_fd)
        self.secret_fd = memory_file(secret)
        self.start(["agent", "--join", endpoint, "--secret-file", f"/proc/{os.getpid()}/fd/{self.secret_fd}"], None, gpus)
        return socket.gethostname(), self.child.pid

    def drop(self, host, pid):
        """Reports to the supervisor that an agent's node is lost, in case the agent is still alive."""
        subprocess.run([self.program, "agent", "--join", self.endpoint, "--secret-file", os.path.join(self.run_dir, "secret"), "--wait", str(REPORT_S),
                        "--lost", f"{host}:{pid}"], env=clean_environment(), stdin=subprocess.DEVNULL, capture_output=True, timeout=2 * REPORT_S, check=False)

    def poll(self, wait_s, heard):
        """What is new, as soon as something is, or after wait_s seconds. heard: how many answers the driver has received; the last one is repeated if it was not among them."""
        with self.polling:
            if heard == self.num_said:
                self.said, self.num_said = self.wait_for_news(time.monotonic() + wait_s), self.num_said + 1
            return self.said

    def wait_for_news(self, deadline):
        while True:
            news = self.look()
            if news["reports"] or news["failures"] or news["lines"] or news["code"] is not None or time.monotonic() > deadline:
                return news
            time.sleep(POLL_S)

    def look(self):
        code = self.child.poll() if self.child else None
        if self.program:
            self.note_use()
        if code is not None:
            for reader in self.readers:
                reader.join(5)
        if self.folder:
            self.find_run()
        reports, failures = self.follower.read() if self.follower else ([], [])
        if self.keeper and any(folder for _, folder in reports):
            threading.Thread(target=self.prune, args=(dict(self.follower.recent),), daemon=True).start()
        lines = [self.lines.popleft() for _ in range(len(self.lines))]
        is_started = self.follower is not None and self.follower.step is not None
        reported = (self.follower.step, self.follower.eval_step) if is_started else None
        return {"reports": reports, "failures": failures, "lines": lines, "reported": reported, "restarts": self.restarts(),
                "size": self.follower and self.follower.size, "endpoint": self.endpoint, "code": code, "error": self.error() if code else ""}

    def prune(self, recent):
        """Runs on a thread. What could not be deleted is tried again at the next checkpoint."""
        try:
            self.keeper.prune(recent)
        except Exception as error:
            line = f"warning: checkpoints that are not among the best could not be deleted: {error}\n"
            sys.stderr.write(line)
            self.lines.append((line, True))

    def restarts(self):
        """How many the supervisor has used, by its status, which it writes once a second, or by the deaths that it has recorded since."""
        if not self.run_dir or not self.child:
            return 0
        deaths = self.follower.deaths.count
        try:
            with open(os.path.join(self.run_dir, ".status.json"), encoding="utf-8") as file:
                status = json.load(file)
            return max(deaths, status["restarts"] if status["pid"] == self.child.pid else 0)
        except (OSError, ValueError, KeyError):
            return deaths

    def error(self):
        """The child's last error and what follows it, or else its last lines."""
        lines = list(self.tail)
        begins = [i for i, line in enumerate(lines) if line.startswith("error:")]
        return "\n".join(lines[begins[-1]:] if begins else lines[-10:])

    def summary(self, steps=None):
        """steps: of the checkpoints in an object store, of which this node need not have all."""
        if steps is not None:
            metrics, last = all_metrics(self.run_dir, steps)
            return last, [(f"step-{step:08}", metrics.get(step, {"step": step})) for step in steps]
        if not self.keeper:
            return summarize(self.run_dir)
        self.keeper.prune(dict(self.follower.recent))
        return summarize(self.run_dir, ("step-",))

    def stop(self, number):
        if self.child and self.child.poll() is None:
            self.child.send_signal(number)

    def close(self, wait_s=5):
        """Ends the child if it is still running."""
        self.stop(signal.SIGTERM)
        try:
            if self.child:
                self.child.wait(wait_s)
        except subprocess.TimeoutExpired:
            self.child.kill()
