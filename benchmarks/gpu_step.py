#!/usr/bin/env python3
"""A training step on a GPU, kernel by kernel, as it ran: a table from benchmarks/gpu_trace.cpp.

    gpu_step.py --weft build-cuda/weft --trace build-cuda/benchmarks/libgpu_trace.so --out FILE.md
                [--model qwen2.5-0.5b] [--steps N]

A step ends with its AdamW kernel. The figures are means over the last steps, where the GPU's clock
has settled at its power limit, and beside them those of the second step, when it had not. What is
not inside a kernel is a row of its own.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

import gpu_bench
import gpu_workload

UPDATE = r"update_(list_)?kernel"  # a step ends with it
# The first that fits names the part. A product's kernels carry the library's names.
PARTS = [
    ("AdamW", UPDATE),
    ("norm of the gradients", r"squares|::norm_kernel"),
    ("cross entropy", r"cross_entropy|kept_kernel|softmax_(stats|gradient)|target_logit|local_targets"),
    ("attention, backward", r"sdpa.*bprop|bprop.*sdpa|attention_d(q|kv)|tensor_d(q|kv)|kept_dq|attention_delta|raise_padding|fmha.*bwd|table_gradient"),
    ("attention, forward", r"sdpa|attention_(tensor_)?kernel|zero_padding|fmha"),
    ("around attention", r"segment_mask|cudnn|cunn|dot_do_o|convert_dq"),
    ("products", r"nvjet|gemm|cutlass|xmma|splitk|cublas"),
    ("activation, backward", r"(swiglu|geglu|gelu|relu)_backward"),
    ("activation, forward", r"swiglu|geglu|gelu|relu"),
    ("norms, backward", r"(rms|layer)norm_backward"),
    ("norms, forward", r"(rms|layer)norm"),
    ("dropout: attention's masks", r"draw_mask"),
    ("dropout", r"dropout"),
    ("rope", r"rope"),
    ("embedding, its gradient", r"embedding|count_kernel|offset_kernel|list_kernel|normalize_kernel"),
    ("sums over ranks", r"::reduce_kernel"),
    ("sums of columns, additions", r"add_|partials|columns|bias|sum"),
]


def part_of(name):
    for part, pattern in PARTS:
        if re.search(pattern, name, re.IGNORECASE):
            return part
    return f"other: {name[:60]}"


def name_parts(step):
    """The part of each kernel; the head's products are the one before a cross entropy, two after."""
    parts = [part_of(name) for _, _, name in step]
    products = [i for i, part in enumerate(parts) if part == "products"]
    heads = set()
    for i in (i for i, part in enumerate(parts) if part == "cross entropy"):
        heads.update([p for p in products if p < i][-1:] + [p for p in products if p > i][:2])
    for p in products:
        parts[p] = f"products of the {'head' if p in heads else 'layers'}"
    return parts


def read_steps(path):
    """Lists of (begin, end, name), one per step."""
    kernels = []
    for line in path.read_text().splitlines():
        begin, end, name = line.split(" ", 2)
        kernels.append((int(begin), int(end), name))
    kernels.sort()
    steps, step = [], []
    for kernel in kernels:
        step.append(kernel)
        if re.search(UPDATE, kernel[2]):
            steps.append(step)
            step = []
    return steps


def find_parts(step, before):
    """Milliseconds and kernels of each part of a step that began when `before` ended."""
    parts = {}
    busy_until, idle = before, 0
    for (begin, end, _), part in zip(step, name_parts(step)):
        ms, count = parts.get(part, (0.0, 0))
        parts[part] = (ms + (end - max(begin, busy_until)) / 1e6 if end > busy_until else ms, count + 1)
        idle += max(0, begin - busy_until)
        busy_until = max(busy_until, end)
    parts["between kernels"] = (idle / 1e6, 0)
    parts["step"] = ((step[-1][1] - before) / 1e6, len(step))
    return parts


def mean_parts(steps, first):
    """Means over the steps from `first` on."""
    each = [find_parts(steps[i], steps[i - 1][-1][1]) for i in range(first, len(steps))]
    names = sorted({name for parts in each for name in parts},
                   key=lambda n: -statistics.mean(p.get(n, (0, 0))[0] for p in each))
    return {n: (statistics.mean(p.get(n, (0, 0))[0] for p in each), each[-1].get(n, (0, 0))[1])
            for n in names}


def run_traced(bench):
    """The steps traced, and the lines of the run's own metrics."""
    command, out = bench.weft_command("traced", bench.args.steps)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=os.environ | {
        "CUDA_INJECTION64_PATH": str(bench.args.trace.resolve()),
        "GPU_TRACE": str(bench.folder / "trace")})
    traces = [read_steps(path) for path in bench.folder.glob("trace.*")]  # one per process
    return max(traces, key=len), gpu_bench.read_lines(out / "metrics.jsonl")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--weft", type=Path, required=True)
    parser.add_argument("--trace", type=Path, required=True)
    parser.add_argument("--model", choices=gpu_workload.MODELS, default="qwen2.5-0.5b")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=24)
    args = parser.parse_args()
    bench = gpu_bench.Bench(args, share_weights=False)  # no peer: each run draws its own
    bench.weft("choices")  # of products: the traced run reuses them
    steps, lines = run_traced(bench)
    late, early = mean_parts(steps, len(steps) // 2), find_parts(steps[1], steps[0][-1][1])
    text = [f"# A step of {bench.model.name}, {bench.model.batch} x {bench.model.seq}, kernel by kernel", "",
            f"`{' '.join(str(a) for a in sys.argv)}`: means over the last {len(steps) - len(steps) // 2} "
            f"of {len(steps)} steps as traced; the same run's own median is "
            f"{gpu_bench.median_ms([{'lines': lines}]):.2f} ms per step", "",
            "| part | kernels | ms | ms in the second step |", "|---|---|---|---|"]
    for name, (ms, count) in late.items():
        text.append(f"| {name} | {count or ''} | {ms:.2f} | {early.get(name, (0, 0))[0]:.2f} |")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text("\n".join(text) + "\n")
    print("\n".join(text))


if __name__ == "__main__":
    main()
