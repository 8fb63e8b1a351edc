#!/usr/bin/env python3
"""Attention dropout against transformers: the same mask in its eager attention, the same training.

    dropout_interop.py --weft build/weft

The mask is made here a second time, by the rule of docs/kernels/attention_dropout.md alone, and
given to transformers in place of what torch.nn.functional.dropout would draw. Losses and gradient
norms of every step and the weights at the end must agree, for padded and for packed rows, over the
end of an epoch. Controls: another seed, the mask of another layer, and no mask at all are found.
"""

import contextlib
import random

import numpy as np
import torch
from transformers import LlamaConfig, Qwen2Config

import peer
from common import Weft, run_program, write_run_file

STEPS, BATCH, SEQ_LENGTH, NUM_ROWS, RATE, LR, SEED = 8, 4, 40, 20, 0.15, 1e-3, 7
TOLERANCE = 2e-6  # of losses in fp32; five times that of gradient norms
SIZES = {"hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 3,
         "num_attention_heads": 6, "num_key_value_heads": 2, "vocab_size": 300,
         "max_position_embeddings": 64, "tie_word_embeddings": False, "bos_token_id": None,
         "eos_token_id": 256, "attention_dropout": RATE}
MODELS = {"qwen2": Qwen2Config, "llama": LlamaConfig}


def philox(counter, key, rounds):
    """Philox 4x32 on arrays of uint64 that hold 32 bits."""
    low = np.uint64(0xFFFFFFFF)
    a, b, c, d = (np.asarray(x, dtype=np.uint64) & low for x in counter)
    k, m = (np.uint64(x) for x in key)
    for _ in range(rounds):
        p, q = np.uint64(0xD2511F53) * a, np.uint64(0xCD9E8D57) * c
        a, b, c, d = (q >> np.uint64(32)) ^ b ^ k, q & low, (p >> np.uint64(32)) ^ d ^ m, p & low
        k, m = (k + np.uint64(0x9E3779B9)) & low, (m + np.uint64(0xBB67AE85)) & low
    return a, b, c, d


def head_mask(seed, epoch, row, layer, head, length):
    """(T, T): 0 or 1 / (1 - rate)."""
    seed ^= 0x64726F706F7574
    k0, k1, s0, s1 = philox((row, row >> 32, layer << 16 | head, epoch), (seed & 0xFFFFFFFF, seed >> 32), 10)
    at = np.arange(length)
    line, half = at // 16 * 8 + at % 8, at // 8 % 2
    query, key = np.meshgrid(line, line, indexing="ij")
    words = np.stack(philox((query, key, s0, s1), (k0, k1), 7))
    which = half[:, None] * 2 + half[None, :]
    word = np.take_along_axis(words, which[None], axis=0)[0]
    return np.where(word >= int(RATE * 2**32 + 0.5), 1 / (1 - RATE), 0).astype(np.float32)


@contextlib.contextmanager
def our_mask(numbers, layers, seed=SEED, change_layer=lambda layer: layer, drops=True):
    """numbers: per step, the (epoch, index) of its rows. Layers call in order."""
    original, calls = torch.nn.functional.dropout, 0

    def dropout(weights, p=0.5, training=True, inplace=False):
        nonlocal calls
        if weights.dim() != 4 or not training:
            return original(weights, p, training, inplace)
        step, layer = divmod(calls, layers)
        calls += 1
        assert p == RATE
        masks = [[head_mask(seed, epoch, row, change_layer(layer), head, weights.shape[2])
                  for head in range(weights.shape[1])] for epoch, row in numbers[step]]
        return weights * torch.tensor(np.array(masks)) if drops else weights

    torch.nn.functional.dropout = dropout
    try:
        yield
    finally:
        torch.nn.functional.dropout = original


def run_file(folder, layout):
    return write_run_file(folder / "run.yaml", {
        "name": "run", "seed": SEED, "model": {"path": str(folder / "model")},
        "data": {"train": [str(folder / "train.txt")], "tokenizer": "bytes", "shuffle": False,
                 "seq_length": SEQ_LENGTH, "layout": layout},
        "train": {"steps": STEPS, "global_batch": BATCH, "micro_batch": 2, "lr": LR},
        "launch": {"threads": 1}})


def close(checks, got, wanted, what):
    steps, _ = got
    checks.close([step["loss"] for step in steps], wanted.losses, TOLERANCE, f"{what}: losses")
    checks.close([step["grad_norm"] for step in steps], wanted.grad_norms, 5 * TOLERANCE,
                 f"{what}: gradient norms")


def check_weights(checks, folder, model, what):
    ours, theirs = peer.weights(peer.load(folder)), peer.weights(model)
    worst = max(float((ours[n] - theirs[n]).abs().max()) for n in theirs)
    # Where a gradient is only rounding noise (the bias of k), AdamW steps by its sign.
    checks.that(worst < LR / 10, f"{what}: weights after {STEPS} steps", f"{worst:.1e} apart")


def check_model(checks, weft, folder, name):
    layers = SIZES["num_hidden_layers"]
    peer.save_random_model(MODELS[name](**SIZES), folder / "model", 3, std=0.1)
    rows = [list(line.encode()) for line in (folder / "train.txt").read_text().splitlines()]
    got = weft.train(run_file(folder, "pad"), folder / name)
    order = [(1 + i // NUM_ROWS, i % NUM_ROWS) for i in range(STEPS * BATCH)]
    numbers = [order[s * BATCH:(s + 1) * BATCH] for s in range(STEPS)]
    train = [folder / "model", [rows[i % NUM_ROWS] for i in range(STEPS * BATCH)], STEPS, BATCH, LR, 1.0]
    with our_mask(numbers, layers):
        wanted = peer.train(*train)
    close(checks, got, wanted, f"{name} padded")
    check_weights(checks, folder / name / "final", wanted.model, f"{name} padded")
    losses = [step["loss"] for step in got[0]]
    for what, options in {"another seed": {"seed": SEED + 1}, "no mask": {"drops": False},
                          "the mask of another layer": {"change_layer": lambda i: (i + 1) % layers}}.items():
        with our_mask(numbers, layers, **options):
            other = peer.train(*train)
        apart = abs(other.losses[0] - losses[0]) / losses[0]
        checks.that(apart > 10 * TOLERANCE, f"{name}: control, {what} is detected", f"{apart:.1e} relative")


def check_packed(checks, weft, folder, name):
    file = run_file(folder, "pack")
    steps = 3  # of one epoch
    words = ["--set", f"train.steps={steps}"]
    got = weft.train(file, folder / f"{name}-packed", *words)
    batches = [x["rows"] for x in weft.json("inspect", file, "--batches", steps)["batches"]]
    numbers = [[(1, s * BATCH + b) for b in range(BATCH)] for s in range(steps)]
    with our_mask(numbers, SIZES["num_hidden_layers"]):
        wanted = peer.train_packed(folder / "model", batches, LR, 1.0)
    checks.that(any(max(row["segments"]) > 1 for row in batches[0]), f"{name}: rows hold segments")
    close(checks, got, wanted, f"{name} packed")


def body(args, checks, folder):
    weft = Weft(args.weft)
    dice = random.Random(5)
    lengths = [dice.choice((5, 17, 30, SEQ_LENGTH)) for _ in range(NUM_ROWS)]
    (folder / "train.txt").write_text("".join("".join(dice.choices("abcdefgh ", k=n)) + "\n" for n in lengths))
    for name in MODELS:
        check_model(checks, weft, folder, name)
        check_packed(checks, weft, folder, name)


if __name__ == "__main__":
    run_program(__doc__, body, in_memory=True)
