"""weft_ray/hints.py: what the command line and the run file call by other names than Ray's configuration."""

import re

# Decided by ScalingConfig, RunConfig and the placement. In a run file they are for other engines, and replaced.
OWNED = {"name": "RunConfig(name)", "storage": "RunConfig(storage_path)", "launch.nodes": "the placement group",
         "launch.ranks_per_node": "the placement group", "launch.min_nodes": "ScalingConfig(num_workers)", "launch.elastic": "ScalingConfig(num_workers)",
         "launch.device": "ScalingConfig(use_gpu)",
         "launch.interface": "Ray's node addresses", "launch.port": "weft", "launch.max_restarts": "FailureConfig(max_failures)",
         "launch.restart_reset_steps": "FailureConfig(max_failures)"}
WORDS = {"--overwrite": "another RunConfig(name), or remove this run's directory", "--set": "train_loop_config",
         **{key: field for key, field in OWNED.items() if key.startswith("launch.") and "Config" in field}}
COMMAND_ONLY = ("--resume", "--force", "--convert-states")  # `weft train RUN.yaml --engine ray` has them


def with_python_words(message):
    """weft's message, and what its hints mean where fit() was called."""
    found = [f"{word} is {meaning}" for word, meaning in WORDS.items() if re.search(rf"(?<![\w.-]){re.escape(word)}\b", message)]
    only = [word for word in COMMAND_ONLY if re.search(rf"{word}\b", message)]
    if only:
        found.append(f"{' and '.join(only)}: options of `weft train RUN.yaml --engine ray` alone")
    return "\n".join([message, f"  from Python: {'; '.join(found)}"]) if found else message
