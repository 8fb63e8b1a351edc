#!/usr/bin/env python3
"""The floor: all products with weights of one step of model S, and nothing else, by torch.mm.

    floor_torch.py --metrics FILE --precision fp32|bf16 [--steps N]

Forward x W^T, input gradient dy W, weight gradient dy^T x of every layer and of the head, into
buffers made before; every layer has its own weights, as in the model.
"""

import argparse
import json
import time
from pathlib import Path

import torch

from workload import MODEL_S


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--metrics", type=Path, required=True)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[args.precision]

    M = MODEL_S.tokens()
    weights = [(torch.randn(n, k) * 0.02).to(dtype) for k, n in MODEL_S.products()]
    grads = [torch.empty_like(w) for w in weights]
    sizes = {size for shape in MODEL_S.products() for size in shape}
    inputs = {size: torch.randn(M, size).to(dtype) for size in sizes}
    outputs = {size: torch.empty(M, size, dtype=dtype) for size in sizes}

    with open(args.metrics, "w", encoding="ascii") as metrics:
        for step in range(1, args.steps + 1):
            begin, begin_cpu = time.perf_counter(), time.process_time()
            for w in weights:
                torch.mm(inputs[w.shape[1]], w.T, out=outputs[w.shape[0]])
            for w, dw in zip(reversed(weights), reversed(grads)):
                dy = inputs[w.shape[0]]
                torch.mm(dy, w, out=outputs[w.shape[1]])
                torch.mm(dy.T, inputs[w.shape[1]], out=dw)
            line = {"step": step, "loss": None,
                    "step_ms": 1000 * (time.perf_counter() - begin),
                    "cpu_ms": 1000 * (time.process_time() - begin_cpu)}
            metrics.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
