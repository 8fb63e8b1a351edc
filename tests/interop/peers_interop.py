#!/usr/bin/env python3
"""weft's meshes against PyTorch's and DeepSpeed's: the same weights and batches, the same losses.

    peers_interop.py --weft build/weft

A Qwen2 and a Llama, fp32, two ranks or four, 20 steps with clipping, rows of very unequal length, the loss
normalised by the count of the whole batch. Each layout of weft is held against the peer that means
the same: DDP, FSDP2, DTensor tensor parallel, both of these (dp 2 x tp 2), DeepSpeed's ZeRO 1 to 3. Two controls must be found:
a peer that reads one byte otherwise, and one that takes the mean of its ranks' means.
"""

import json
import random
import sys
from pathlib import Path

import transformers
from transformers import LlamaConfig, Qwen2Config

import peer
from common import Weft, run_program, run_ranks, write_run_file

HERE = Path(__file__).resolve().parent
STEPS, BATCH, SEQ_LENGTH, LR, CLIP = 20, 8, 40, 1e-3, 0.5
TOLERANCE = 1e-5  # relative, of every step's loss: fp32 sums in another order
PEER_DEADLINE_S = 600
CHANGED_STEP = 7  # of the first control, from 0
LAYOUTS = {"ddp": "dp=2", "fsdp2": "dp=2,shard=zero3", "tp": "tp=2", "zero1": "dp=2,shard=zero1",
           "zero2": "dp=2,shard=zero2", "zero3": "dp=2,shard=zero3", "fsdp2_tp": "dp=2,tp=2,shard=zero3"}
RANKS = {"torch": 2, "torch4": 4, "deepspeed": 2}


def write_models(folder):
    common = {"max_position_embeddings": 64, "bos_token_id": None, "eos_token_id": 256,
              "pad_token_id": None, "num_hidden_layers": 2}
    configs = {
        "qwen2": Qwen2Config(vocab_size=264, hidden_size=96, intermediate_size=176,
                             num_attention_heads=12, num_key_value_heads=4,
                             tie_word_embeddings=True, **common),
        "llama": LlamaConfig(vocab_size=1003, hidden_size=72, intermediate_size=100,
                             num_attention_heads=6, num_key_value_heads=2,
                             tie_word_embeddings=False, **common)}
    for seed, (name, config) in enumerate(configs.items()):
        peer.save_random_model(config, folder / name, seed=21 + seed)
    return list(configs)


def write_rows(folder):
    """Letters, 2 to 40 per row, in which short rows crowd in the first half of a batch."""
    dice = random.Random(3)
    rows = []
    for i in range(STEPS * BATCH):
        length = dice.randint(2, 9) if i % BATCH < BATCH // 2 else dice.randint(2, SEQ_LENGTH)
        rows.append("".join(dice.choices("abcdefgh ", k=length)))
    (folder / "rows.txt").write_text("\n".join(rows) + "\n")
    at = CHANGED_STEP * BATCH + BATCH - 1
    rows[at] = rows[at][:-1] + "z"
    (folder / "changed.txt").write_text("\n".join(rows) + "\n")


def weft_losses(weft, folder, model, layout):
    run_file = write_run_file(folder / "run.yaml", {
        "name": "run", "model": {"path": str(folder / model)},
        "data": {"train": [str(folder / "rows.txt")], "tokenizer": "bytes",
                 "seq_length": SEQ_LENGTH, "shuffle": False},
        "train": {"steps": STEPS, "global_batch": BATCH, "micro_batch": 2, "lr": LR,
                  "clip_norm": CLIP},
        "launch": {"threads": 1}})
    run_dir = folder / f"{model}_{layout}"
    sets = [word for key in layout.split(",") for word in ("--set", f"parallel.{key}")]
    steps, _ = weft.train(run_file, run_dir, *sets)
    return [line["loss"] for line in steps]


def peer_losses(folder, name, kinds, models):
    """{(kind, model): losses} of processes that run all of them, one after the other."""
    runs = [{"kind": kind.removesuffix("_changed"), "model": str(folder / model),
             "rows": str(folder / ("changed.txt" if kind.endswith("_changed") else "rows.txt")),
             "out": str(folder / f"{kind}_{model}.json")} for kind in kinds for model in models]
    job = {"store": str(folder / f"store_{name}"), "size": RANKS[name], "steps": STEPS, "batch": BATCH,
           "seq_length": SEQ_LENGTH, "lr": LR, "clip": CLIP, "runs": runs}
    path = folder / f"{name}.json"
    path.write_text(json.dumps(job))
    env = {"DS_ACCELERATOR": "cpu", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false",
           "OMP_NUM_THREADS": "1", "TORCH_EXTENSIONS_DIR": str(folder / "extensions")}
    run_ranks([[sys.executable, HERE / "mesh_peer.py", rank, path] for rank in range(RANKS[name])],
              folder / f"{name}.log", PEER_DEADLINE_S, env)
    return {(kind, model): json.loads((folder / f"{kind}_{model}.json").read_text())
            for kind in kinds for model in models}


def differences(got, wanted):
    return [abs(a - b) / abs(b) for a, b in zip(got, wanted)]


def check_controls(checks, mine, theirs, model):
    changed = differences(theirs["ddp_changed", model], mine["dp=2", model])
    checks.that(max(changed[:CHANGED_STEP]) <= TOLERANCE and changed[CHANGED_STEP] > TOLERANCE,
                f"{model}: control, one byte changed at step {CHANGED_STEP + 1} shows from there",
                f"{max(changed[:CHANGED_STEP]):.1e} before, {changed[CHANGED_STEP]:.1e} there")
    means = max(differences(theirs["mean_of_means", model], mine["dp=2", model]))
    checks.that(means > 100 * TOLERANCE, f"{model}: control, a mean of means differs",
                f"{means:.1e}")


def check_family(checks, weft, folder, name, kinds, controls=()):
    models = ["qwen2", "llama"]
    theirs = peer_losses(folder, name, [*kinds, *controls], models)
    mine = {}
    for model in models:
        for kind in kinds:
            layout = LAYOUTS[kind]
            mine[layout, model] = losses = weft_losses(weft, folder, model, layout)
            checks.that(len(losses) == STEPS and losses[-1] < losses[0],
                        f"{model}: weft {layout} learns", f"{losses[0]:.3f} to {losses[-1]:.3f}")
            checks.close(losses, theirs[kind, model], TOLERANCE,
                         f"{model}: weft {layout} against {kind}, every step's loss")
        if controls:
            check_controls(checks, mine, theirs, model)


def body(args, checks, folder):
    transformers.utils.logging.disable_progress_bar()
    weft = Weft(args.weft)
    write_models(folder)
    write_rows(folder)
    for name, kinds, controls in (
            ("torch", ["ddp", "fsdp2", "tp"], ["ddp_changed", "mean_of_means"]),
            ("torch4", ["fsdp2_tp"], []),
            ("deepspeed", ["zero1", "zero2", "zero3"], [])):
        if name == "torch4" and not checks.sample.one_in(2, name):
            continue
        try:
            place = folder / name
            place.mkdir()
            for made in ("qwen2", "llama", "rows.txt", "changed.txt"):
                (place / made).symlink_to(folder / made)
            check_family(checks, weft, place, name, kinds, controls)
        except Exception as error:
            checks.that(False, f"{name} finished", str(error))


if __name__ == "__main__":
    run_program(__doc__, body)
