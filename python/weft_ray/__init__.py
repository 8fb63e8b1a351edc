"""weft_ray: weft on Ray (WeftTrainer), and the program itself (weft_ray.program).

The trainer is imported on first use: the command `weft` needs no Ray.
"""

import os

OLDEST, MAJOR, TESTED = (2, 57), 2, "2.60"  # what is used of Ray Train is that of 2.57 and later
SWITCH = "RAY_TRAIN_V2_ENABLED"


def check_ray():
    """Ray of a version that the trainer knows, or an ImportError that says which."""
    wanted = f"pip install 'ray[default,train]>={OLDEST[0]}.{OLDEST[1]},<{MAJOR + 1}'"
    try:
        import ray
    except ImportError as error:
        raise ImportError(f"WeftTrainer needs Ray, which is not installed: {wanted}") from error
    found = tuple(int(part) for part in ray.__version__.split(".")[:2])
    if found[0] != MAJOR or found < OLDEST:
        raise ImportError(f"WeftTrainer knows Ray {OLDEST[0]}.{OLDEST[1]} and newer releases of Ray {MAJOR}, "
                          f"but Ray {ray.__version__} is installed: {wanted}")
    if os.environ.get(SWITCH, "1").lower() not in ("1", "true"):  # as Ray reads it
        raise ImportError(f"WeftTrainer is in place of Ray Train V2, which {SWITCH}={os.environ[SWITCH]} turns off: unset it")


def other_ray(error):
    """What to say where a name of Ray is not as the trainer knows it."""
    import ray
    return f"Ray {ray.__version__} is not as WeftTrainer knows it, which was tested with Ray {TESTED}: {error}"


def __getattr__(name):
    if name not in ("WeftTrainer", "WeftError"):
        raise AttributeError(f"module weft_ray has no attribute {name}")
    check_ray()
    try:
        from weft_ray import trainer
    except ImportError as error:
        raise ImportError(other_ray(error)) from error
    return getattr(trainer, name)
