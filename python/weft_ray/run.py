"""weft_ray/run.py: one attempt of a run on the nodes that Ray has placed, and what is heard of it."""

import hashlib
import os
import signal
import sys
import time

import ray
from ray.exceptions import RayActorError, RayTaskError
from ray.train import BackendConfig, DataConfig
from ray.train.v2._internal.execution.context import TrainRunContext
from ray.train.v2.api.exceptions import ControllerError, WorkerGroupError

from weft_ray.place import Place
from weft_ray.result import make_checkpoint, make_result, stored_steps

POLL_S, LOOK_S, SAVE_S, CLOSE_S = 0.5, 1.0, 120.0, 10.0


class WeftError(RuntimeError):
    """How a rank or the program ended: weft's message and exit code (docs/contract.md)."""

    def __init__(self, exit_code, message):
        super().__init__(message)
        self.exit_code = exit_code

    def __reduce__(self):
        return type(self), (self.exit_code, str(self))


class SupervisorLost(Exception):
    """The actor of the first node, or `weft train` in it, was killed: the run may be started again."""


class Run:
    """From actors to a Result, an error, or SupervisorLost."""

    def __init__(self, trainer, placement, failures, words, reported):
        self.trainer, self.settings, self.placement = trainer, trainer.settings, placement
        self.earlier = self.failures = failures  # of earlier attempts; all
        self.places, self.died, self.words = [], {}, words
        self.is_started = False  # ranks have begun: what --overwrite and --resume asked for is done
        self.reported = reported  # steps, also of earlier attempts
        self.endpoint = self.secret = None
        self.look_at = 0.0  # for more nodes
        self.context = TrainRunContext(run_config=trainer.run_config, train_loop_config=trainer.train_loop_config,
                                       scaling_config=trainer.scaling_config, backend_config=BackendConfig(), dataset_config=DataConfig())

    @property
    def head(self):
        return self.places[0]

    # ---------------------------------------------------------------- start

    def open(self):
        """What fails here would fail again: no worker has run yet."""
        try:
            nodes = self.placement.wait()
            self.settings.check_nodes(self.placement.num_nodes)
            self.places = [Place(self.placement, at, self.trainer.run_config.worker_runtime_env) for at in nodes]
            for place in self.places if self.settings.fewest == self.settings.ranks else self.places[:1]:  # else they join when they can
                while not place.is_open(wait_s=1.0):
                    pass
        except (TimeoutError, ValueError, RayActorError, RayTaskError) as error:
            raise ControllerError(error) from error

    def keys(self):
        limit = self.settings.max_failures
        return {**self.settings.keys, **self.placement.keys, "launch.ranks_per_node": 0, "launch.port": 0,
                "launch.interface": self.head.address if self.placement.num_nodes > 1 else "lo",
                "launch.max_restarts": limit if limit < 0 else limit - self.earlier}

    def train(self):
        self.open()
        name = f"ray-{hashlib.sha256(self.settings.text.encode()).hexdigest()[:8]}.yaml"
        try:
            path = ray.get(self.head.first.train.remote(self.settings.place, name, self.settings.text, self.keys(), self.words,
                                               os.getcwd(), self.head.gpus, self.reported, self.settings.keep))
            self.check_storage(path)
            code, error = self.follow()
            if code < 0:
                raise SupervisorLost(f"weft train was killed by signal {-code}")
            if code > 0:
                raise WorkerGroupError(f"weft train exited with {code}\n{error}", self.worker_failures(code, error))
            return make_result(self.settings, *ray.get(self.head.first.summary.remote(stored_steps(self.settings))))
        except RayActorError as lost:
            raise SupervisorLost(f"the actor of the first node is lost: {lost}") from lost
        except RayTaskError as error:  # of the actor's own code: storage that cannot be written
            raise ControllerError(error) from error

    def check_storage(self, path):
        """Nodes that join later are checked by weft itself."""
        others = [place for place in self.places[1:] if not place.opening and place.installing is None]
        seen = ray.get([place.first.sees.remote(path) for place in others])
        blind = [place.address for place, sees in zip(others, seen) if not sees]
        if blind:
            raise ControllerError(ValueError(f"{', '.join(blind)} cannot see {path}, which the first node, {self.head.address}, has written: the storage is not "
                                             f"shared. Use a storage_path (or checkpoint.fallback, with s3://) that all nodes see"))

    def worker_failures(self, code, error):
        return {rank: WeftError(code, message) for rank, message in self.died.items()} or {0: WeftError(code, error)}

    # ---------------------------------------------------------------- watch

    def follow(self):
        """Waits for the end of the supervisor: (exit code, error)."""
        try:
            return self.watch()
        except KeyboardInterrupt:  # Ctrl-C, or a notebook's stop button: the step is completed and saved
            self.head.first.stop.remote(signal.SIGTERM)
            self.watch(time.monotonic() + SAVE_S)
            raise

    def watch(self, deadline=float("inf")):
        while time.monotonic() < deadline:
            for place in self.places:
                if place.polling is None and (place is self.head or place.is_joined):
                    place.polling = place.first.poll.remote(POLL_S)
            ready, _ = ray.wait([place.polling for place in self.places if place.polling is not None], timeout=2 * POLL_S)
            for place in [place for place in self.places if place.polling in ready]:
                polling, place.polling = place.polling, None
                if place is not self.head:
                    self.hear_agent(place, polling)
                elif (news := self.hear_head(ray.get(polling)))["code"] is not None:
                    return news["code"], news["error"]
            if self.endpoint is not None:
                self.take_more()
                self.join_others()
        return -signal.SIGKILL, "it did not end in time"

    def hear_head(self, news):
        self.endpoint = self.endpoint or news["endpoint"]
        self.failures = self.earlier + news["restarts"]
        if news["reported"] is not None:
            self.is_started, self.reported = True, news["reported"]
        for line, is_error in news["lines"] if self.trainer.output else []:
            print(line, end="", file=sys.stderr if is_error else self.trainer.output, flush=True)
        for metrics, folder in news["reports"]:
            self.report(metrics, folder)
        self.report_failures(news["failures"])
        return news

    def hear_agent(self, place, polling):
        try:
            if ray.get(polling)["code"] is not None:
                place.note_end()
        except RayActorError:
            place.open_again()

    def take_more(self):
        """Nodes that Ray has found since, of an elastic run."""
        if time.monotonic() < self.look_at:
            return
        self.look_at = time.monotonic() + LOOK_S
        self.places += [Place(self.placement, at, self.trainer.run_config.worker_runtime_env) for at in self.placement.more()]

    def join_others(self):
        """Agents of the other nodes, once the supervisor has said where it listens."""
        if self.secret is None:
            self.secret = ray.get(self.head.first.secret.remote())
        for place in self.places[1:]:
            place.join(self.endpoint, self.secret)

    # ---------------------------------------------------------------- callbacks

    def call_back(self, name, *arguments):
        """A callback that fails ends the run, as in Ray Train."""
        for callback in self.trainer.run_config.callbacks:
            try:
                getattr(callback, name)(self.context, *arguments)
            except Exception as error:
                raise ControllerError(error) from error

    def report(self, metrics, folder):
        self.call_back("after_report", [dict(metrics) for _ in range(self.settings.ranks)],
                       make_checkpoint(self.settings, folder) if folder else None)

    def report_failures(self, failures):
        for rank, message in failures:
            self.died = {max(rank, 0): message}
            self.call_back("after_exception", self.worker_failures(75, message))

    def close(self):
        """Children end with their actors."""
        closing = [place.first.close.remote() for place in self.places]
        if closing:
            ray.wait(closing, num_returns=len(closing), timeout=CLOSE_S)
        for place in self.places:
            place.kill()
        self.places = []
