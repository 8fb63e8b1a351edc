#!/usr/bin/env python3
"""PyTorch and DeepSpeed go on from weft's exports with the losses that weft itself goes on with.

    to_others_interop.py --weft build/weft

A tied Qwen2 and an untied Llama by AdamW, and a Qwen2 by SGD with momentum, train on four ranks under ZeRO 3; the checkpoint in the middle is
exported. FSDP2 (two ranks, gloo) loads the torch.distributed.checkpoint folder, DeepSpeed's ZeRO 1 to
3 the universal checkpoint, both with the optimizer's states; every later loss must be weft's. Control:
without the states it is not. weft reads its own exports to the bit, also as model.path.
"""

import json
import random
import sys
import zipfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from transformers import LlamaConfig, Qwen2Config

import peer
from common import Weft, run_program, run_ranks, write_run_file

HERE = Path(__file__).resolve().parent
STEPS, SAVED, BATCH, SEQ_LENGTH, LR, CLIP = 14, 7, 8, 32, 1e-3, 0.5
TOLERANCE = 1e-5  # relative, of every step's loss: fp32 sums in another order
PEER_DEADLINE_S = 600
KINDS = {"fsdp2": "dcp", "fsdp2_weights": "dcp", "zero1": "deepspeed", "zero2": "deepspeed",
         "zero3": "deepspeed"}
TRAIN = {"qwen2": {"decay_all": True, "lr": LR},
         "llama": {"decay_all": False, "lr": LR},  # two groups of parameters
         "sgd": {"decay_all": True, "lr": 0.05, "optimizer": "sgd", "momentum": 0.9}}


def kinds_of(model):
    """DeepSpeed's loader of ZeRO 3 knows AdamW only, and gives all groups the hyperparameters of the first."""
    return [kind for kind in KINDS if model == "qwen2" or kind != "zero3"]


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
    configs["sgd"] = configs["qwen2"]
    for seed, (name, config) in enumerate(configs.items()):
        peer.save_random_model(config, folder / name, seed=31 + seed)


def write_rows(folder):
    dice = random.Random(4)
    rows = ["".join(dice.choices("abcdefgh ", k=dice.randint(2, SEQ_LENGTH))) for _ in range(STEPS * BATCH)]
    (folder / "rows.txt").write_text("\n".join(rows) + "\n")


def run_file(folder, model, **train):
    return write_run_file(folder / "run.yaml", {
        "name": "run", "model": {"path": str(model)},
        "data": {"train": [str(folder / "rows.txt")], "tokenizer": "bytes",
                 "seq_length": SEQ_LENGTH, "shuffle": False},
        "train": {"global_batch": BATCH, "micro_batch": 2, "clip_norm": CLIP, "weight_decay": 0.1,
                  **train},
        "checkpoint": {"every": SAVED, "keep": 5},
        "launch": {"threads": 1}})


def export(weft, checks, folder, model):
    """Trains, exports the checkpoint in the middle; returns weft's losses after it."""
    run_dir = folder / f"{model}_run"
    steps, _ = weft.train(run_file(folder, folder / model, steps=STEPS, **TRAIN[model]), run_dir,
                          "--set", "parallel.dp=4", "--set", "parallel.shard=zero3")
    saved = run_dir / "checkpoints" / f"step-{SAVED:08}"
    for kind, words in (("dcp", ["--max-shard-size", "100KB"]), ("deepspeed", []), ("hf", [])):
        out = folder / f"{model}_{kind}"
        said = weft.call("export", saved, out, "--format", kind, *words)
        checks.that(kind == "hf" or f"after {SAVED} updates" in said, f"{model}: export {kind}", said.strip())
        if kind != "hf":
            said = weft.call("diff", saved, out)
            checks.that(said.startswith("identical"), f"{model}: weft reads its {kind} export to the bit",
                        said.strip())
    checks.equal(weft.json("inspect", folder / f"{model}_deepspeed")["step"], SAVED, f"{model}: step of the export")
    return [line["loss"] for line in steps][SAVED:]


def check_files(checks, folder, model):
    """Python's own readers: every archive's checksums, torch.load, and the whole DCP folder as one dict."""
    faults = [str(path) for path in (folder / f"{model}_deepspeed").rglob("*.pt")
              if zipfile.ZipFile(path).testzip() is not None]
    checks.that(not faults, f"{model}: checksums of the archives", ", ".join(faults))
    weights = load_file(folder / f"{model}_hf" / "model.safetensors")
    dcp_to_torch_save(folder / f"{model}_dcp", folder / "whole.pt")
    whole = torch.load(folder / "whole.pt", weights_only=False)
    checks.that(len(weights) > 20 and all(torch.equal(whole["model"][k], t) for k, t in weights.items()),
                f"{model}: dcp_to_torch_save has the weights", f"{len(whole['model'])} tensors")
    names = set(peer.load(folder / model).state_dict())
    checks.equal(set(whole["model"]), names, f"{model}: names of transformers' state_dict()")
    checks.that(list((folder / f"{model}_dcp").glob("__0_3.distcp")), f"{model}: several files")
    path = folder / f"{model}_deepspeed" / f"global_step{SAVED}" / "zero" / "model.norm.weight"
    loaded = torch.load(path / "fp32.pt", weights_only=True)["param"]
    states = {file.stem for file in path.glob("*.pt")}
    wanted = {"momentum_buffer"} if model == "sgd" else {"exp_avg", "exp_avg_sq", "step"}
    checks.that(torch.equal(loaded, weights["model.norm.weight"]) and states == {"fp32", *wanted}
                and (model == "sgd" or torch.load(path / "step.pt", weights_only=True).item() == SAVED),
                f"{model}: torch.load", ", ".join(sorted(states)))


def check_model_path(weft, checks, folder, model):
    ends = {}
    for kind in ("hf", "dcp", "deepspeed"):
        run_dir = folder / f"{model}_from_{kind}"
        weft.train(run_file(folder, folder / f"{model}_{kind}", steps=2, lr=LR), run_dir)
        ends[kind] = weft.call("hash", run_dir)
    for kind in ("dcp", "deepspeed"):
        checks.equal(ends[kind], ends["hf"], f"{model}: model.path of the {kind} export trains the same")


def run_peer(folder, models):
    runs = [{"kind": kind, "model": str(folder / model), "rows": str(folder / "rows.txt"), "from": SAVED,
             "steps": STEPS, "train": TRAIN[model],
             "export": str(folder / f"{model}_{KINDS[kind]}"), "out": str(folder / f"{kind}_{model}.json")}
            for model in models for kind in kinds_of(model)]
    job = {"store": str(folder / "store"), "size": 2, "batch": BATCH, "seq_length": SEQ_LENGTH, "clip": CLIP,
           "runs": runs}
    (folder / "job.json").write_text(json.dumps(job))
    env = {"DS_ACCELERATOR": "cpu", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1",
           "TORCH_EXTENSIONS_DIR": str(folder / "extensions")}
    run_ranks([[sys.executable, HERE / "to_others_peer.py", rank, folder / "job.json"] for rank in range(2)],
              folder / "peer.log", PEER_DEADLINE_S, env)


def check_losses(checks, folder, model, mine):
    for kind in kinds_of(model):
        theirs = json.loads((folder / f"{kind}_{model}.json").read_text())
        if kind != "fsdp2_weights":
            checks.close(theirs, mine, TOLERANCE, f"{model}: {kind} goes on from the export, every step's loss")
            continue
        worst = max(abs(a - b) / abs(b) for a, b in zip(theirs, mine))
        checks.that(worst > 100 * TOLERANCE, f"{model}: control, without the states it differs", f"{worst:.1e}")


def body(args, checks, folder):
    transformers.utils.logging.disable_progress_bar()
    weft = Weft(args.weft)
    write_models(folder)
    write_rows(folder)
    losses = {model: export(weft, checks, folder, model) for model in TRAIN}
    for model in TRAIN:
        check_files(checks, folder, model)
        check_model_path(weft, checks, folder, model)
    run_peer(folder, list(TRAIN))
    for model, mine in losses.items():
        check_losses(checks, folder, model, mine)


if __name__ == "__main__":
    run_program(__doc__, body, in_memory=True)
