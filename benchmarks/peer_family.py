#!/usr/bin/env python3
"""PyTorch's turn: trains transformers' T5 or BLOOM on the given rows, one line of metrics per step.

    peer_family.py --family t5|bloom --model DIR --rows FILE --metrics FILE --precision fp32|bf16

bf16 is model.to(bfloat16), as in peer_torch.py. Attention is the one transformers chooses by itself.
"""

import argparse
import json
import time
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

import family_workload


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--family", choices=family_workload.FAMILIES, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--metrics", type=Path, required=True)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    args = parser.parse_args()

    torch.set_num_threads(2)
    family = family_workload.FAMILIES[args.family]
    auto = AutoModelForSeq2SeqLM if family.target_length else AutoModelForCausalLM
    model = auto.from_pretrained(args.model, dtype=torch.float32).train()
    if args.precision == "bf16":
        model.to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01)

    begin = time.perf_counter()
    with open(args.metrics, "w", encoding="ascii") as metrics:
        for step, batch in enumerate(family_workload.read_rows(family, args.rows), start=1):
            loss = model(**{name: torch.tensor(ids) for name, ids in batch.items()}).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            end = time.perf_counter()
            metrics.write(json.dumps({"step": step, "loss": loss.item(),
                                      "step_ms": 1000 * (end - begin)}) + "\n")
            metrics.flush()
            begin = end


if __name__ == "__main__":
    main()
