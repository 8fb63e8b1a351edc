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
# By the file of its rule. Those that passes put themselves (collectives, sums, updates), products,
# which passes stack, and the head are known to more.
OPERATIONS = {"swiglu": "Swiglu", "rmsnorm": "RmsNorm", "rope": "Rope", "embedding": "Embedding",
              "layernorm": "LayerNorm", "gelu": "Gelu", "relu": "Relu", "scale": "Scale",
              "dropout": "Dropout"}


# Optimizers' updates: their declaration is one more place, and their kernel over all parameters is in the list of a
# GPU's kernels. The run file's words name them. By the file of their rule: names that may not appear elsewhere.
UPDATES = {"adamw": r"(?i:adamw)(?!8bit)", "sgd": r"\bSgd|\bkSgd|(?i:\bsgd\b|\bsgd_)"}
UPDATE_PLACES = PLACES + ("src/optim/", "src/kernel/update_args.h", "src/kernel/device_kernels.h")
NAMED_IN = ("src/config/run_config.cpp", "src/optim/optimizer_config.h", "src/kernel/optimizer_scalars.h")


NOT_COUNTED = ("src/model/", "src/train/numerics.cpp")


def files():
    for folder in ("src", "tests"):
        for path in sorted((ROOT / folder).rglob("*")):
            name = str(path.relative_to(ROOT))
            if path.suffix in (".h", ".cpp", ".cu") and not name.startswith(NOT_COUNTED):
                yield name, path.read_text()


class Operations(unittest.TestCase):
    def test_places(self):
        texts = list(files())
        found = 0
        for file, name in OPERATIONS.items():
            if not (ROOT / f"src/graph/ops/{file}.h").exists():
                continue
            types = re.compile(rf"\bk?{name}(Backward|Grad|Inverse|Apply)?(Op|Attr|Args)\b"
                               rf"|(\.|->){file}(_backward)?\((?!\))")
            used = [path for path, text in texts if types.search(text)]
            elsewhere = [path for path in used if not path.startswith(PLACES)]
            self.assertEqual(elsewhere, [], f"{file} is in more places than {PLACES}")
            missing = [place for place in PLACES if not any(p.startswith(place) for p in used)]
            self.assertEqual(missing, [], f"{file} is not whole")
            found += 1
        self.assertGreaterEqual(found, 4)

    def test_updates(self):
        texts = list(files())
        found = 0
        for file, names in UPDATES.items():
            if not (ROOT / f"src/graph/ops/{file}.h").exists():
                continue
            used = [path for path, text in texts if re.search(names, text)]
            elsewhere = [path for path in used if not path.startswith(UPDATE_PLACES) and path not in NAMED_IN]
            self.assertEqual(elsewhere, [], f"{file} is in more places than {UPDATE_PLACES}")
            missing = [place for place in UPDATE_PLACES if not any(p.startswith(place) for p in used)]
            self.assertEqual(missing, [], f"{file} is not whole")
            found += 1
        self.assertGreaterEqual(found, 1)


if __name__ == "__main__":
    unittest.main()
