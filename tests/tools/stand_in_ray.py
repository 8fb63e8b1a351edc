"""tests/tools/stand_in_ray.py: as many of Ray's names as python/weft_ray imports; actors are objects here, and a call is done at once.

What Ray itself does is the matter of tests/interop/ray_interop.py.
"""

import sys
import types


class RayError(Exception):
    pass


class RayActorError(RayError):
    pass


class ActorUnavailableError(RayActorError):
    pass


class RayTaskError(RayError):
    def __init__(self, cause):
        super().__init__(f"a traceback\n{cause}")
        self.cause = cause

    def as_instanceof_cause(self):
        """What ray.get() raises: an exception of the cause's type too, which has the traceback as its text, and no errno."""
        text = str(self)

        class Both(RayTaskError, type(self.cause)):
            def __init__(self, cause):
                self.cause = cause

            def __str__(self):
                return text
        return Both(self.cause)


class TrainingFailedError(Exception):
    pass


class ControllerError(TrainingFailedError):
    def __init__(self, failure):
        super().__init__(f"controller: {failure}")
        self.controller_failure = failure


class WorkerGroupError(TrainingFailedError):
    def __init__(self, message, failures):
        super().__init__(message)
        self.worker_failures = failures


class Record:
    """Any other class: it keeps what it is given."""

    def __init__(self, *arguments, **fields):
        self.arguments = arguments
        self.__dict__.update(fields)


class Call:
    """A method of an actor, and its answer."""

    def __init__(self, method):
        self.method, self.answer, self.error = method, None, None

    def remote(self, *arguments):
        try:
            self.answer = self.method(*arguments)
        except RayError as error:
            self.error = error
        except Exception as error:
            self.error = RayTaskError(error).as_instanceof_cause()
        return self


class Actor:
    def __init__(self, inside):
        self.inside = inside

    def __getattr__(self, name):
        return Call(getattr(self.inside, name))


class Factory:
    def __init__(self, make):
        self.make = make

    def options(self, **_):
        return self

    def remote(self):
        return Actor(self.make())


def get(calls):
    for call in calls if isinstance(calls, list) else [calls]:
        if call.error:
            raise call.error
    return [call.answer for call in calls] if isinstance(calls, list) else calls.answer


def add_module(name, **names):
    module = types.ModuleType(name)
    module.__dict__.update(names)
    module.__getattr__ = lambda wanted: type(wanted, (Record,), {})
    sys.modules[name] = module
    parent, _, last = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], last, module)


def install():
    """In place of Ray, and of what only a driver has. Once a process: modules of weft_ray imported later must see the same Ray as those before."""
    if getattr(sys.modules.get("ray"), "remote", None) is Factory:
        return
    add_module("ray", get=get, wait=lambda calls, **_: (list(calls), []), kill=lambda actor: None, remote=Factory, is_initialized=lambda: True, nodes=list, __version__="2.60.0")
    add_module("ray.cloudpickle", register_pickle_by_value=lambda module: None)
    add_module("ray.exceptions", RayError=RayError, RayActorError=RayActorError, ActorUnavailableError=ActorUnavailableError, RayTaskError=RayTaskError)
    for name in ("ray._private", "ray._private.state", "ray.util", "ray.util.client", "ray.util.placement_group", "ray.util.scheduling_strategies", "ray.train.v2", "ray.train.v2._internal",
                 "ray.train.v2._internal.execution", "ray.train.v2._internal.execution.context", "ray.train.v2.api", "pandas", "pyarrow", "pyarrow.fs"):
        if name == "ray.train.v2":
            add_module("ray.train", TrainingFailedError=TrainingFailedError)
        add_module(name, **({"placement_group_table": lambda group: {"bundles_to_node_id": {}}} if name == "ray.util.placement_group" else {}))
    add_module("ray.train.v2.api.exceptions", ControllerError=ControllerError, WorkerGroupError=WorkerGroupError)
