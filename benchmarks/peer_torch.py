#!/usr/bin/env python3
"""PyTorch's turn: trains transformers' Qwen2 on the given rows, one line of metrics per step.

    peer_torch.py --model DIR --rows FILE --metrics FILE --precision fp32|bf16 [--compile]

bf16 is model.to(bfloat16): weights, gradients and AdamW's states in bf16. Attention is sdpa, which
transformers chooses by itself, or eager: torch has CPUs on which its bf16 sdpa is much the slower.
"""

import argparse
import json
import time
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

import workload


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--metrics", type=Path, required=True)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--attention", choices=["sdpa", "eager"], default="sdpa")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32,
                                                 attn_implementation=args.attention).train()
    if args.precision == "bf16":
        model.to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01)
    call = torch.compile(model) if args.compile else model

    begin, begin_cpu = time.perf_counter(), time.process_time()
    with open(args.metrics, "w", encoding="ascii") as metrics:
        for step, rows in enumerate(workload.read_rows(args.rows, args.batch), start=1):
            ids = torch.tensor(rows)
            loss = call(input_ids=ids, labels=ids).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            end, end_cpu = time.perf_counter(), time.process_time()
            line = {"step": step, "loss": loss.item(), "step_ms": 1000 * (end - begin),
                    "cpu_ms": 1000 * (end_cpu - begin_cpu)}
            metrics.write(json.dumps(line) + "\n")
            metrics.flush()
            begin, begin_cpu = end, end_cpu


if __name__ == "__main__":
    main()
