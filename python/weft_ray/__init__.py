"""weft_ray: weft on Ray (WeftTrainer), and the program itself (weft_ray.program).

The trainer is imported on first use: the command `weft` needs no Ray.
"""

OLDEST, MAJOR = (2, 57), 2  # tested with 2.60; what is used of Ray Train is that of 2.57 and later


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


def __getattr__(name):
    if name not in ("WeftTrainer", "WeftError"):
        raise AttributeError(f"module weft_ray has no attribute {name}")
    check_ray()
    from weft_ray import trainer
    return getattr(trainer, name)
