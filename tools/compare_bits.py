#!/usr/bin/env python3
"""tools/compare_bits.py: a change that must not change a bit, tried on twelve small runs.

    tools/compare_bits.py OLD NEW        two commits, or two programs that are built already

Builds both (below build-compare/), runs each with the same files, and compares the text of every loss,
norm and evaluation and `weft hash` of the run and of its final/. Bits differ between kinds of
processors, so both always run on one machine. The control: another seed has other bits.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
QWEN2 = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 64,
         "intermediate_size": 136, "num_attention_heads": 8, "num_key_value_heads": 2,
         "vocab_size": 600, "tie_word_embeddings": True}
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 48,
         "intermediate_size": 104, "num_attention_heads": 4, "num_key_value_heads": 4,
         "vocab_size": 601, "tie_word_embeddings": False}
COMMON = {"num_hidden_layers": 3, "max_position_embeddings": 128, "rms_norm_eps": 1e-6,
          "initializer_range": 0.08, "hidden_act": "silu", "eos_token_id": 256, "bos_token_id": 256}
STEPS = 12
EXACT = ["parallel.mode=exact"]
RUNS = {  # name: model, sets, resumed
    "qwen2 fp32": (QWEN2, [], False),
    "qwen2 bf16": (QWEN2, ["train.precision=bf16"], False),
    "qwen2 dp 2": (QWEN2, ["parallel.dp=2"], False),
    "qwen2 tp 2 bf16": (QWEN2, ["parallel.tp=2", "train.precision=bf16"], False),
    "qwen2 2 x 2 zero3": (QWEN2, ["parallel.dp=2", "parallel.tp=2", "parallel.shard=zero3"], False),
    "qwen2 exact 2 x 2 zero3 bf16": (
        QWEN2, EXACT + ["parallel.dp=2", "parallel.tp=2", "parallel.shard=zero3",
                        "train.precision=bf16"], False),
    "qwen2 packed": (QWEN2, ["data.layout=pack"], False),
    "qwen2 frozen, resumed": (QWEN2, ["model.freeze=['*embed_tokens*']"], True),
    "llama dropout": (LLAMA | {"attention_dropout": 0.2}, [], False),
    "llama exact, packed, resumed": (LLAMA, EXACT + ["data.layout=pack", "parallel.dp=2"], True),
    "llama exact tp 2": (LLAMA, EXACT + ["parallel.tp=2"], False),
    "llama zero2 dynamic, several passes": (
        LLAMA, ["parallel.dp=2", "parallel.shard=zero2", "data.layout=dynamic",
                "train.micro_batch=1"], False),
}


def build(what):
    """The program of a commit; or `what` itself where it is a program."""
    if os.access(what, os.X_OK) and Path(what).is_file():
        return Path(what).resolve()
    commit = subprocess.run(["git", "rev-parse", "--short", f"{what}^{{commit}}"], cwd=ROOT, text=True,
                            check=True, stdout=subprocess.PIPE).stdout.strip()
    tree = ROOT / "build-compare" / commit
    if not tree.is_dir():
        tree.parent.mkdir(exist_ok=True)
        subprocess.run(["git", "clone", "-q", ROOT, tree], check=True)
    subprocess.run(["git", "checkout", "-q", "--detach", commit], cwd=tree, check=True)
    print(f"building {commit}", flush=True)
    subprocess.run(["make", "build"], cwd=tree, check=True, stdout=subprocess.DEVNULL)
    return tree / "build/weft"


def write_files(folder):
    folder.mkdir(parents=True)
    for name, sizes in (("train", range(160)), ("eval", range(1000, 1012))):
        rows = [{"text": " ".join(f"w{(i * k * 7919) % 613}" for k in range(2 + i * 5 % 17))}
                for i in sizes]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))


def run(weft, folder, model, sets, resumed, seed=3):
    shutil.rmtree(folder, ignore_errors=True)
    write_files(folder)
    (folder / "model").mkdir()
    (folder / "model/config.json").write_text(json.dumps(COMMON | model))
    run_file = {"name": "run", "storage": str(folder / "runs"), "seed": seed,
                "model": {"path": str(folder / "model"), "init": "random"},
                "data": {"train": [str(folder / "train.jsonl")], "eval": [str(folder / "eval.jsonl")],
                         "text": "{text}", "tokenizer": "bytes", "seq_length": 64},
                "train": {"steps": STEPS, "global_batch": 8, "micro_batch": 2, "lr": 3e-3,
                          "warmup_steps": 2, "clip_norm": 0.5, "eval_every": 4},
                "checkpoint": {"every": 5}}
    (folder / "run.yaml").write_text(json.dumps(run_file))
    changes = [word for s in sets for word in ("--set", s)]

    def train(*more):
        command = [weft, "train", folder / "run.yaml", "--quiet", *changes, *more]
        done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env={**os.environ, "XDG_CACHE_HOME": str(folder / "cache")})
        if done.returncode != 0:
            sys.exit(f"{weft} failed in {folder}:\n{done.stdout}")

    if resumed:
        train("--set", "train.steps=5")
    train()
    out = folder / "runs/run"
    kept = ("step", "loss", "eval_loss", "grad_norm")
    metrics = [{k: v for k, v in json.loads(line).items() if k in kept}
               for line in (out / "metrics.jsonl").read_text().splitlines()]
    hashes = [subprocess.run([weft, "hash", path], text=True, check=True, stdout=subprocess.PIPE).stdout
              for path in (out, out / "final")]
    return metrics, hashes


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--work", default=str(ROOT / "build-compare/runs"))
    args = parser.parse_args()
    old, new = build(args.old), build(args.new)
    work, bad = Path(args.work), 0
    for name, (model, sets, resumed) in RUNS.items():
        # In the same folder, one after the other: paths are recorded in what is hashed.
        before = run(old, work / "run", model, sets, resumed)
        after = run(new, work / "run", model, sets, resumed)
        same = before == after and len(before[0]) >= STEPS
        bad += not same
        print(f"{'same' if same else 'DIFFERENT'}  {name}  ({len(before[0])} lines of metrics)",
              flush=True)
    model, sets, resumed = RUNS["qwen2 fp32"]
    if run(old, work / "run", model, sets, resumed) == run(new, work / "run", model, sets, resumed, 4):
        sys.exit("compare_bits: another seed has the same bits: the comparison sees nothing")
    print(f"{len(RUNS) - bad} of {len(RUNS)} runs have the same bits")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
