#!/usr/bin/env python3
"""PyTorch's turn on a GPU: torch.compile, fused AdamW, bf16 weights and states.

    gpu_peer.py --model NAME --weights DIR|none --rows FILE --metrics FILE --steps N [--no-mask]
                [--eager]

The first line of metrics is written after the first step, the others at the end: the host is not
held up in between, since weft's is not either. A step's time is from the end of the one before to
its own on the device.
"""

import argparse
import itertools
import json
import time
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM

import gpu_workload

# Called as its users call it, transformers makes a mask while torch.compile traces it, and PyTorch's
# fast attention, which handles causality itself, accepts none. This passes none.
NO_MASK = {"full_attention": None}


def make_model(model, weights):
    auto = AutoModelForSeq2SeqLM if model.target else AutoModelForCausalLM
    if weights != "none":
        return auto.from_pretrained(weights, dtype=torch.bfloat16).cuda()
    torch.manual_seed(1)
    with torch.device("cuda"):
        torch.set_default_dtype(torch.bfloat16)
        made = auto.from_config(AutoConfig.for_model(**model.config))
        torch.set_default_dtype(torch.float32)
    return made.to(torch.bfloat16)


def write_line(metrics, step, loss, step_ms):
    metrics.write(json.dumps({"step": step, "loss": loss.item(), "step_ms": step_ms,
                              "memory": torch.cuda.max_memory_allocated()}) + "\n")
    metrics.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--metrics", type=Path, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--no-mask", action="store_true")
    parser.add_argument("--eager", action="store_true")
    args = parser.parse_args()

    torch.backends.cuda.matmul.allow_tf32 = False
    work = gpu_workload.MODELS[args.model]
    model = make_model(work, args.weights).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.01, fused=True)
    call = model if args.eager else torch.compile(model)
    rows = itertools.islice(gpu_workload.read_rows(work, args.rows), args.steps)
    batches = [{name: torch.tensor(ids, device="cuda") for name, ids in batch.items()}
               for batch in rows]

    mask = {"attention_mask": NO_MASK} if args.no_mask else {}

    def run_step(inputs):
        loss = call(**inputs, use_cache=False, **mask).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        end = torch.cuda.Event(enable_timing=True)
        end.record()
        return loss.detach(), end

    with open(args.metrics, "w", encoding="ascii") as metrics:
        begin = time.perf_counter()
        loss, before = run_step(batches[0])
        torch.cuda.synchronize()
        write_line(metrics, 1, loss, 1000 * (time.perf_counter() - begin))
        steps = [run_step(inputs) for inputs in batches[1:]]
        torch.cuda.synchronize()
        for number, (loss, end) in enumerate(steps, start=2):
            write_line(metrics, number, loss, before.elapsed_time(end))
            before = end


if __name__ == "__main__":
    main()
