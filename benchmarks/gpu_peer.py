#!/usr/bin/env python3
"""PyTorch's turn on a GPU: torch.compile, fused AdamW, bf16 weights and states.

    gpu_peer.py --model NAME --weights DIR|none --rows FILE --metrics FILE --steps N [--eager|--module]

The first line of metrics is written after the first step; the last holds the peak of memory.
"""

import argparse
import json
import time
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

import gpu_workload


def make_model(name, weights):
    config = AutoConfig.for_model(**gpu_workload.MODELS[name].config)
    if weights != "none":
        return AutoModelForCausalLM.from_pretrained(weights, dtype=torch.bfloat16).cuda()
    torch.manual_seed(1)
    with torch.device("cuda"):
        torch.set_default_dtype(torch.bfloat16)
        model = AutoModelForCausalLM.from_config(config)
        torch.set_default_dtype(torch.float32)
    return model.to(torch.bfloat16)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--metrics", type=Path, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--module", action="store_true", help="compile the module, not a function")
    args = parser.parse_args()

    model = make_model(args.model, args.weights).train()
    model.config.use_cache = False
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.01, fused=True)

    def loss_of(ids):
        return model(input_ids=ids, labels=ids, use_cache=False).loss

    # The module or the function around it: whichever torch.compile makes faster here.
    call = loss_of
    if not args.eager:
        if args.module:
            compiled = torch.compile(model)
            call = lambda ids: compiled(input_ids=ids, labels=ids, use_cache=False).loss
        else:
            call = torch.compile(loss_of)
    begin = time.perf_counter()
    batch = gpu_workload.MODELS[args.model].batch
    with open(args.metrics, "w", encoding="ascii") as metrics:
        for step, rows in enumerate(gpu_workload.read_rows(args.rows, batch), start=1):
            ids = torch.tensor(rows, device="cuda")
            loss = call(ids)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            torch.cuda.synchronize()
            end = time.perf_counter()
            metrics.write(json.dumps({"step": step, "loss": loss.item(), "step_ms": 1000 * (end - begin),
                                      "memory": torch.cuda.max_memory_allocated()}) + "\n")
            metrics.flush()
            begin = end
            if step == args.steps:
                break


if __name__ == "__main__":
    main()
