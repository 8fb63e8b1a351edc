"""weft_ray/hints.py: what weft's options and keys are called in Ray's configuration."""

import re

# Keys that WeftTrainer sets, and what decides them. In a run file they are for other engines, and are replaced.
PLACED = "the placement group (ScalingConfig)"
OWNED = {"name": "RunConfig(name)", "storage": "RunConfig(storage_path)", "launch.nodes": PLACED,
         "launch.ranks_per_node": PLACED, "launch.min_nodes": "ScalingConfig(num_workers)", "launch.elastic": "ScalingConfig(num_workers)",
         "launch.device": "ScalingConfig(use_gpu)",
         "launch.interface": "Ray's node addresses", "launch.port": "weft", "launch.max_restarts": "FailureConfig(max_failures)",
         "launch.restart_reset_steps": "FailureConfig(max_failures)"}
OF_OWNED = "|".join(map(re.escape, OWNED))
WORDS = {r"--overwrite\b": "--overwrite is another RunConfig(name), or remove this run's directory",
         rf"--set\b(?! +(?:{OF_OWNED})=)": "--set is train_loop_config",
         **{rf"--set +{key}=" if "." not in key else rf"{re.escape(key)}\b": f"{key} is decided by {field}" for key, field in OWNED.items()}}
COMMAND_ONLY = ("--resume", "--force", "--convert-states")  # `weft train RUN.yaml --engine ray` has them


def with_python_words(message):
    """weft's message, and how to follow its hints from Python."""
    found = [meaning for pattern, meaning in WORDS.items() if re.search(rf"(?<![\w.-]){pattern}", message)]
    only = [word for word in COMMAND_ONLY if re.search(rf"{word}\b", message)]
    if only:
        found.append(f"only `weft train RUN.yaml --engine ray` has {' and '.join(only)}")
    return "\n".join([message, f"  from Python: {'; '.join(found)}"]) if found else message
