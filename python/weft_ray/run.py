"""weft_ray/run.py: one attempt of a run on the nodes that Ray has placed, and what it reports."""

import hashlib
import ipaddress
import os
import re
import signal
import sys
import time

import ray
from ray.exceptions import RayError, RayTaskError
from ray.train import BackendConfig, DataConfig
from ray.train.v2._internal.execution.context import TrainRunContext
from ray.train.v2.api.exceptions import ControllerError, WorkerGroupError

from weft_ray import other_ray
from weft_ray.hints import with_python_words
from weft_ray.place import ApartError, Place, reason, warn
from weft_ray.result import make_checkpoint, make_result, stored_steps
from weft_ray.waits import TIMEOUT_VARIABLE, timeout_s

POLL_S, LOOK_S, SAVE_S, CLOSE_S = 0.5, 1.0, 120.0, 10.0
USAGE, LOST = 2, 75  # exit codes: wrong input; the same command resumes (docs/contract.md)
HELD, HELD_S, HELD_PAUSE_S = re.compile(r"another process is training in |is held: .* is training there"), 120.0, 2.0  # the run's lock, or its lease
STARTS = 3  # of an agent, before a node is given up on which none was ever there
PLACINGS, PLACE_S = 3, 1.0
KINDS = (TimeoutError, ConnectionError, OSError, ValueError)  # of errors on a node, as the driver raises them: exit codes depend on them
OPENINGS = 10  # times timeout_s(), for actors and their runtime environment


class WeftError(RuntimeError):
    """How a rank or the program ended: weft's message and exit code (docs/contract.md)."""

    def __init__(self, exit_code, message):
        super().__init__(message)
        self.exit_code = exit_code

    def __reduce__(self):
        return type(self), (self.exit_code, str(self))


class SupervisorLost(Exception):
    """The actor of the first node, or `weft train` in it, was killed: the run may be started again."""

    is_apart = False  # whether Ray must place all workers again


def make_context(trainer):
    """What callbacks get: a class of Ray's inside, which may change."""
    try:
        return TrainRunContext(run_config=trainer.run_config, train_loop_config=trainer.train_loop_config, scaling_config=trainer.scaling_config,
                               backend_config=BackendConfig(), dataset_config=DataConfig())
    except (TypeError, ValueError) as error:
        raise ImportError(other_ray(error)) from error


def remote_error(error, where, folder=None):
    """A ControllerError in place of the traceback of a task or an actor. folder: what it writes, which an OSError then is about."""
    cause = getattr(error, "cause", None) or error
    text = f"{where}: {reason(error)}" if where else reason(error)
    if folder and isinstance(cause, OSError):
        text = (f"{where or 'a task on Ray'} cannot write {folder}: {reason(error)}. Set RunConfig(storage_path) (with s3://: checkpoint.fallback) to a folder that "
                "every node can write to")
    failure = next((kind for kind in KINDS if isinstance(cause, kind)), RuntimeError)(text)
    if isinstance(cause, OSError):
        failure.errno = cause.errno  # a full disk has an exit code of its own
    return ControllerError(failure)


def is_loopback(address):
    """Ray may also have been given the name of a host, which other machines can resolve."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


class Run:
    """From actors to a Result, an error, or SupervisorLost."""

    def __init__(self, trainer, placement, failures, words, reported, is_first=True):
        self.trainer, self.settings, self.placement, self.is_first = trainer, trainer.settings, placement, is_first
        self.earlier = self.failures = failures  # of earlier attempts; all
        self.places, self.died, self.words = [], {}, words
        self.has_reported = False  # a step: what fails before that would fail again
        self.has_saved = False  # a checkpoint: what --overwrite and --resume asked for is done
        self.reported = reported  # steps, also of earlier attempts
        self.endpoint = self.secret = None
        self.look_at = 0.0  # for more nodes
        self.workers = self.settings.ranks  # that train now: an elastic run may have fewer

    @property
    def head(self):
        return self.places[0]

    @property
    def head_ranks(self):
        """The ranks of the first node."""
        return list(range(len(self.head.node.bundles))) if self.places else [0]

    # ---------------------------------------------------------------- start

    def open(self):
        """At the first attempt what fails here would fail again: no worker has run yet. Later a node may be missing or be lost."""
        try:
            nodes = self.wait_for_nodes()
            self.settings.check_nodes(self.placement.num_nodes)
            self.places = [Place(self.placement, at, self.trainer.run_config.worker_runtime_env) for at in nodes]
            for place in self.places if self.settings.fewest == self.settings.ranks else self.places[:1]:  # else they join when they can
                self.wait_for(place)
            self.check_address()
        except (TimeoutError, ValueError, RayError, ApartError) as error:
            if not self.is_first and isinstance(error, (TimeoutError, RayError, ApartError)):
                raise self.lost(f"the actors could not be started: {reason(error)}", error) from error
            raise ControllerError(error) from error

    def check_address(self):
        """Of the first node, which the others must be able to reach."""
        if self.placement.num_nodes > 1 and is_loopback(self.head.address):
            raise ValueError(f"ScalingConfig(num_workers={self.trainer.scaling_config.num_workers}) needs {self.placement.num_nodes} nodes, but this cluster's addresses "
                             f"({self.head.address}) cannot be reached from other machines: start it with `ray start --head --node-ip-address=ADDRESS`, an address of the "
                             "network, or set num_workers to a single number that this machine can hold")

    def wait_for_nodes(self):
        tries = PLACINGS
        while True:
            try:
                return self.placement.wait()
            except TimeoutError as error:
                if self.is_first:
                    raise
                warn(f"{error}. The run continues as soon as they are there")
            except ValueError as error:  # Ray has moved the workers of a lost node, or not yet counted what tasks of Ray Data have released
                tries -= 1
                if tries == 0:
                    raise
                warn(f"{error}. Placing them again")
                time.sleep(PLACE_S)
                self.placement.place_again()

    def wait_for(self, place):
        begin = time.monotonic()
        for count in range(1, OPENINGS + 1):
            while time.monotonic() < begin + count * timeout_s():
                try:
                    if place.is_open(wait_s=1.0):
                        return
                except RayTaskError as error:  # raised by the actor's own code: a full disk, a home that cannot be written
                    raise remote_error(error, place.address or f"node {place.node.id[:12]}") from None
            warn(f"Ray has not started the actors on node {place.node.id[:12]} within {count * timeout_s():g} s")
        raise TimeoutError(f"Ray has not started the actors on node {place.node.id[:12]}, or they have not unpacked weft, within {OPENINGS * timeout_s():g} s. "
                           f"Look at that node, or wait longer ({TIMEOUT_VARIABLE})")

    def lost(self, text, error):
        lost = SupervisorLost(text)
        lost.is_apart = isinstance(error, ApartError)
        return lost

    def keys(self):
        return {**self.settings.keys, **self.placement.keys, "launch.ranks_per_node": 0, "launch.port": 0,
                "launch.interface": self.head.address if self.placement.num_nodes > 1 else "lo", **self.restart_keys()}

    def restart_keys(self):
        """What is left of the budget. A single rank has no supervisor, and weft would warn that these keys have no effect."""
        limit = self.settings.max_failures
        return {"launch.max_restarts": limit if limit < 0 else limit - self.earlier, "launch.restart_reset_steps": 0} if self.settings.ranks > 1 else {}

    def directory(self):
        """Where weft starts: the job's working directory, as Ray has sent it to the nodes, else the driver's, if all nodes have it. None: the run's folder."""
        if self.settings.fewest < self.settings.ranks:
            return None  # nodes that come later have that one
        directory = self.head.directory or os.getcwd()
        answers = [(place, place.first.enters.remote(directory)) for place in self.places]
        return directory if all([self.is_seen(*pair) for pair in answers]) else None

    def start(self):
        """weft train, in the first node's actor."""
        name, number = f"ray-{hashlib.sha256(self.settings.text.encode()).hexdigest()[:8]}.yaml", next(self.head.numbers)
        arguments = (self.settings.place, name, self.settings.text, self.keys(), self.words, self.directory(), self.head.gpus, self.reported, self.settings.keep)
        self.endpoint = self.secret = None
        try:
            path = self.head.ask(lambda actor: actor.train.remote(number, *arguments))
        except RayTaskError as error:
            raise remote_error(error, self.head.address, self.settings.place[0] or "its cache folder") from None
        self.check_storage(path)

    def run_program(self):
        """(exit code, error) of weft train. After a loss the previous one may hold the run's lock for a while: it is still alive, or its node's storage has not noticed."""
        deadline = time.monotonic() + HELD_S
        while True:
            self.start()
            code, error = self.follow()
            if self.is_first or code != USAGE or not HELD.search(error) or time.monotonic() > deadline:
                return code, error
            warn(f"the run's directory is not free yet; starting weft train again\n{error}")
            time.sleep(HELD_PAUSE_S)

    def train(self):
        self.open()
        try:
            self.check_rows()
            code, error = self.run_program()
            if code < 0:
                self.report_kill(f"weft train was killed by signal {-code}")
            if code > 0:
                error = error if self.trainer.words else with_python_words(error)  # words: given on the command line
                raise WorkerGroupError(f"weft train exited with {code}\n{error}", self.worker_failures(code, error))
            return self.result()
        except ApartError as error:
            raise self.lost(str(error), error) from error
        except RayTaskError as error:  # raised by the actor's own code: storage that cannot be read
            raise remote_error(error, self.head.address) from None
        except RayError as lost:  # its death, the node's memory, an object lost with a node: Ray has many names for it
            raise SupervisorLost(f"the actor of the first node is lost: {lost}") from lost

    def report_kill(self, text):
        lost = SupervisorLost(text)
        if self.is_first and not self.has_reported:
            raise WorkerGroupError(f"{text}, before its first step", self.worker_failures(LOST, text)) from lost
        raise lost

    def result(self):
        storage = self.trainer.storage
        try:
            steps = stored_steps(self.settings, storage)
            return make_result(self.settings, storage, *self.head.ask(lambda actor: actor.summary.remote(steps)))
        except OSError as error:  # also the actor's, since Ray's RayTaskError is then an OSError too
            raise ControllerError(RuntimeError(f"training is complete, but {self.settings.run_dir} cannot be read: {reason(error)}. Calling fit() again returns its Result")) from None

    def check_storage(self, path):
        """Nodes that join later are checked by weft itself, and so is one whose actor is lost meanwhile."""
        others = [place for place in self.places[1:] if not place.opening and place.installing is None]
        seen = [(place, place.first.sees.remote(path)) for place in others]
        blind = [place.address for place, sees in seen if not self.is_seen(place, sees)]
        if blind:
            raise ControllerError(ValueError(f"{', '.join(blind)} cannot see {path}, which the first node, {self.head.address}, has written: the storage is not "
                                             f"shared. Set RunConfig(storage_path) (with s3://: checkpoint.fallback) to a folder that every node sees"))

    def check_rows(self):
        """They were written by a task, which may have run on any node."""
        for name in self.settings.datasets:
            path, = self.settings.keys[f"data.{name}"]
            if not self.head.ask(lambda actor, path=path: actor.sees.remote(path)):
                raise ControllerError(ValueError(f"{self.head.address} cannot see {path}, which was written on another node: the storage is not "
                                                 f"shared. Set RunConfig(storage_path) (with s3://: checkpoint.fallback) to a folder that every node sees"))

    def is_seen(self, place, answer):
        try:
            return ray.get(answer)
        except RayTaskError as error:
            raise remote_error(error, place.address) from None
        except RayError:
            return True

    def worker_failures(self, code, error):
        return {rank: WeftError(code, message) for rank, message in self.died.items()} or {0: WeftError(code, error)}

    # ---------------------------------------------------------------- watch

    def follow(self):
        """Waits for the supervisor to end: (exit code, error)."""
        try:
            return self.watch()
        except KeyboardInterrupt:  # Ctrl-C, or a notebook's stop button: the step is completed and saved
            self.save()
            raise

    def save(self):
        """Sets trainer.stop_code: how weft train ended, 75 where that is not known."""
        self.trainer.stop_code = LOST
        try:
            self.head.first.stop.remote(signal.SIGTERM)
            if end := self.watch(time.monotonic() + SAVE_S):
                self.trainer.stop_code = end[0] if end[0] >= 0 else LOST
            else:
                warn(f"weft train has not ended within {SAVE_S:g} s and will be killed: the last step may not be saved")
        except (RayError, ApartError) as error:
            warn(f"the last step may not be saved: {reason(error)}")

    def watch(self, deadline=float("inf")):
        """(exit code, error) of the supervisor; None: the deadline has passed."""
        while time.monotonic() < deadline:
            for place in self.places:
                if place.polling is None and (place is self.head or place.can_be_polled):
                    place.polling = place.first.poll.remote(POLL_S, place.heard)
            ready, _ = ray.wait([place.polling for place in self.places if place.polling is not None], timeout=2 * POLL_S)
            for place in [place for place in self.places if place.polling in ready]:
                if place is not self.head:
                    self.hear_agent(place)
                elif (news := self.hear_head(place.news()))["code"] is not None:
                    return news["code"], news["error"]
            if self.endpoint is not None:
                self.take_more()
                self.join_others()
                self.check_agents()
        return None

    def hear_head(self, news):
        if news is None:
            return {"code": None}
        self.endpoint = self.endpoint or news["endpoint"]
        self.failures = max(self.failures, self.earlier + news["restarts"])  # a status file that cannot be read just now takes none back
        if news["size"]:
            kind, count = news["size"]
            self.workers = count * (self.settings.tp if kind == "dp" else 1)
        if news["reported"] is not None:
            self.reported = news["reported"]
        for line, is_error in news["lines"] if self.trainer.output else []:
            print(line, end="", file=sys.stderr if is_error else self.trainer.output, flush=True)
        for metrics, folder in news["reports"]:
            self.report(metrics, folder)
        self.report_failures(news["failures"])
        return news

    def hear_agent(self, place):
        try:
            news = place.news()
            if news and news["code"] is not None:
                place.note_end(news["code"], news["error"])
        except RayError as error:
            self.head.first.drop.remote(*place.agent)  # Ray decides: the agent may still be alive, but its node is no longer needed
            place.open_again(error)

    def take_more(self):
        """Nodes that Ray has found since, for an elastic run."""
        if time.monotonic() < self.look_at:
            return
        self.look_at = time.monotonic() + LOOK_S
        self.places += [Place(self.placement, at, self.trainer.run_config.worker_runtime_env) for at in self.placement.more()]

    def join_others(self):
        """Starts the agents of the other nodes, once the supervisor has printed where it listens."""
        if self.secret is None:
            self.secret = self.head.ask(lambda actor: actor.secret.remote())
        for place in self.places[1:]:
            place.join(self.endpoint, self.secret)

    def check_agents(self):
        """Before the first step the run would wait forever for a node where no agent can be started; later the others go on, or wait for it."""
        if not self.is_first or self.has_reported:
            return
        without = [place for place in self.places[1:] if place.failed >= STARTS]
        if len(self.places) - len(without) < self.placement.min_nodes and without:
            place = without[0]
            raise ControllerError(RuntimeError(f"{place.address or place.node.id[:12]} has no agent after {place.failed} attempts: "
                                               f"{reason(place.last_error)}")) from place.last_error

    # ---------------------------------------------------------------- callbacks

    def call_back(self, name, **arguments):
        """By the arguments' names, as Ray Train does. A callback that fails ends the run, as there."""
        for callback in self.trainer.run_config.callbacks:
            try:
                getattr(callback, name)(run_context=self.trainer.run_context, **arguments)
            except Exception as error:
                raise ControllerError(error) from error

    def report(self, metrics, folder):
        """A new step after a death shows that it did not end the run."""
        self.has_reported = True
        if folder:
            self.has_saved = True
        else:
            self.died = {}
        if self.trainer.run_config.callbacks:
            self.call_back("after_report", metrics=[dict(metrics) for _ in range(self.workers)],
                           checkpoint=make_checkpoint(self.settings, self.trainer.storage, folder) if folder else None)

    def report_failures(self, failures):
        for ranks, message in failures:
            if not ranks and self.died:  # the run has ended because no node has replaced one whose loss was reported
                continue
            self.died = dict.fromkeys(ranks or [0], message)
            self.call_back("after_exception", worker_exceptions=self.worker_failures(LOST, message))

    def close(self):
        """Children end with their actors."""
        closing = [place.first.close.remote() for place in self.places if not place.opening]  # the others would not answer
        if closing:
            ray.wait(closing, num_returns=len(closing), timeout=CLOSE_S)
        for place in self.places:
            place.kill()
        self.places = []
