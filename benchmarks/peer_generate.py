#!/usr/bin/env python3
"""transformers' turn at generation: greedy continuations, and how long they took.

    peer_generate.py --model DIR --prompts FILE --lengths 32,160 --precision fp32|bf16

Prints one JSON line: seconds per length, after a short run to warm up, and the ids of the longest. What else
a user would set is left as it is: a dynamic cache, the attention that transformers chooses.
"""

import argparse
import json
import time
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--lengths", type=lambda text: [int(n) for n in text.split(",")],
                        required=True)
    parser.add_argument("--precision", choices=["fp32", "bf16"], required=True)
    args = parser.parse_args()

    torch.set_num_threads(2)
    dtype = torch.float32 if args.precision == "fp32" else torch.bfloat16
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=dtype).eval()
    ids = torch.tensor([list(line) for line in args.prompts.read_bytes().splitlines()])

    def generate(length):
        begin = time.perf_counter()
        with torch.inference_mode():
            made = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False,
                                  max_new_tokens=length, min_new_tokens=length, pad_token_id=0)
        return time.perf_counter() - begin, made[:, ids.shape[1]:].tolist()

    generate(8)
    runs = [generate(length) for length in args.lengths]
    print(json.dumps({"seconds": [seconds for seconds, _ in runs], "ids": runs[-1][1]}))


if __name__ == "__main__":
    main()
