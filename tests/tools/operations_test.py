"""tests/tools/operations_test.py: an operation appears in seven places, and nowhere else.

Rule, binding, arguments, ref, cpu, cuda, test (docs/design/0010-operations.md). Model code, which uses
operations, is not counted; nor is the probe of a machine's numerics, which calls some kernels.
"""

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLACES = ("src/graph/ops/", "src/exec/ops/", "src/kernel/kernels.h", "src/kernel/ref/", "src/kernel/cpu/",
          "src/kernel/cuda/", "tests/")
# Included by kernels.h, which lists the kernels.
MORE_ARGUMENTS = ("src/kernel/attention_args.h", "src/kernel/norm_args.h")
# By the file of its rule, the prefix of its types.
OPERATIONS = {"swiglu": "Swiglu", "rmsnorm": "RmsNorm", "rope": "Rope", "embedding": "Embedding",
              "layernorm": "LayerNorm", "gelu": "Gelu", "relu": "Relu", "scale": "Scale",
              "dropout": "Dropout", "cached_attention": "CachedAttention", "fill_cache": "FillCache",
              "geglu": "Geglu", "qk_norm": "QkNorm"}

# Not counted: those that passes insert themselves (collectives, sums, the norm), products, which passes
# stack, the head, and attention, whose cost is predicted by a model of its own.
KNOWN_TO_MORE = {"add", "attention", "collectives", "grad_norm", "head", "linear", "loss_sum"}

# Optimizers' updates: their declaration is one more place, and their kernel over all parameters is in the list of a
# GPU's kernels. The run file's words name them. By the file of their rule: names that may not appear elsewhere.
UPDATES = {"adamw": r"(?i:adamw)(?!8bit)", "sgd": r"\bSgd|\bkSgd|(?i:\bsgd\b|\bsgd_)"}
UPDATE_PLACES = PLACES + ("src/optim/", "src/kernel/update_args.h", "src/kernel/device_kernels.h")
NAMED_IN = ("src/config/run_config.cpp", "src/optim/optimizer_config.h", "src/kernel/optimizer_scalars.h",
            "src/config/run_changes.cpp", "src/checkpoint/torch_groups.cpp")


NOT_COUNTED = ("src/model/", "src/train/numerics.cpp")


def files():
    for folder in ("src", "tests"):
        for path in sorted((ROOT / folder).rglob("*")):
            name = str(path.relative_to(ROOT))
            if path.suffix in (".h", ".cpp", ".cu") and not name.startswith(NOT_COUNTED):
                yield name, path.read_text()


class Operations(unittest.TestCase):
    def test_every_rule_is_listed(self):
        rules = {path.stem for path in (ROOT / "src/graph/ops").glob("*.h")}
        self.assertEqual(sorted(rules - OPERATIONS.keys() - UPDATES.keys() - KNOWN_TO_MORE), [],
                         "src/graph/ops has rules that this file does not list: add them to OPERATIONS or UPDATES")
        self.assertEqual(sorted((OPERATIONS.keys() | UPDATES.keys() | KNOWN_TO_MORE) - rules), [],
                         "this file lists operations without a header in src/graph/ops")

    def test_places(self):
        texts = list(files())
        for file, name in OPERATIONS.items():
            types = re.compile(rf"\bk?{name}(Backward|Grad|Inverse|Apply)?(Op|Attr|Args)\b"
                               rf"|(\.|->){file}(_backward)?\((?!\))")
            used = [path for path, text in texts if types.search(text)]
            elsewhere = [path for path in used if not path.startswith(PLACES + MORE_ARGUMENTS)]
            self.assertEqual(elsewhere, [], f"{file} is in more places than {PLACES}")
            missing = [place for place in PLACES if not any(p.startswith(place) for p in used)]
            self.assertEqual(missing, [], f"{file} is not whole")

    def test_updates(self):
        texts = list(files())
        for file, names in UPDATES.items():
            used = [path for path, text in texts if re.search(names, text)]
            elsewhere = [path for path in used if not path.startswith(UPDATE_PLACES) and path not in NAMED_IN]
            self.assertEqual(elsewhere, [], f"{file} is in more places than {UPDATE_PLACES}")
            missing = [place for place in UPDATE_PLACES if not any(p.startswith(place) for p in used)]
            self.assertEqual(missing, [], f"{file} is not whole")


if __name__ == "__main__":
    unittest.main()
