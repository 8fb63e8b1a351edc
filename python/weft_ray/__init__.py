"""weft_ray: weft on Ray (WeftTrainer), and the program itself (weft_ray.program).

The trainer is imported on first use: the command `weft` needs no Ray.
"""

import os

OLDEST, MAJOR, TESTED = (2, 57), 2, "2.60"  # what is used of Ray Train is that of 2.57 and later
SWITCH = "RAY_TRAIN_V2_ENABLED"


def check_ray():
    """Raises an ImportError, with what to install, unless Ray is there in a version that the trainer supports."""
    wanted = f"pip install 'ray[default,train]>={OLDEST[0]}.{OLDEST[1]},<{MAJOR + 1}'"
    try:
        import ray
    except ImportError as error:
        raise ImportError(f"WeftTrainer needs Ray, which is not installed: {wanted}") from error
    found = tuple(int(part) for part in ray.__version__.split(".")[:2])
    if found[0] != MAJOR or found < OLDEST:
        raise ImportError(f"WeftTrainer supports Ray {OLDEST[0]}.{OLDEST[1]} and newer releases of Ray {MAJOR}, "
                          f"but Ray {ray.__version__} is installed: {wanted}")
    if os.environ.get(SWITCH, "1").lower() not in ("1", "true"):  # as Ray reads it
        raise ImportError(f"WeftTrainer requires Ray Train V2, but {SWITCH}={os.environ[SWITCH]} disables it; unset it")


def other_ray(error):
    """The message for a name of Ray that has moved or changed."""
    import ray
    return f"WeftTrainer, which was tested with Ray {TESTED}, does not work with Ray {ray.__version__}: {error}"


def __getattr__(name):
    if name not in ("WeftTrainer", "WeftError"):
        raise AttributeError(f"module weft_ray has no attribute {name}")
    check_ray()
    try:
        from weft_ray import trainer
    except ImportError as error:
        raise ImportError(other_ray(error)) from error
    return getattr(trainer, name)
