#!/usr/bin/env python3
"""Every family of decoders goes from transformers to weft and back.

    decoders_interop.py --weft build/weft

The models are those of the golden sets. weft continues a prompt as transformers' generate does; it
trains for a few steps, and transformers reads its final/: the same tensors under the same names,
the same loss on the evaluation rows, the same continuation. Files without the base model's prefix
are read, too.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file

import peer
from common import Weft, read_metrics, run_program, write_run_file
from sampling import ROOT

NAMES = ["qwen2_window", "qwen3", "mistral", "gpt2", "gemma3", "bloom"]
NEW_TOKENS = 48  # GPT-2's set has 64 positions
LOGIT_TOLERANCE, LOSS_TOLERANCE = 1e-4, 5e-6
BYTES_EOS = 256
PROMPTS = ["The weft is", "SELECT x"]


@dataclass
class Case:
    name: str
    weft: Weft
    folder: Path
    source: Path


def rows_of(texts):
    return peer.token_rows(texts, lambda text: list(text.encode()), 40)


def check_generate(case, checks, model_folder, what):
    model = peer.load(model_folder).eval()
    for prompt in PROMPTS:
        ids = list(prompt.encode())
        words = ["generate", model_folder, "--prompt", prompt, "--tokenizer", "bytes",
                 "--max-new-tokens", NEW_TOKENS, "--temperature", 0]
        answer = case.weft.json(*words)["ids"]
        checks.equal(case.weft.json(*words, "--set", "parallel.tp=2")["ids"], answer,
                     f"{case.name}: ids of {what} by two ranks after {prompt!r}")
        with torch.no_grad():
            wanted = model.generate(torch.tensor([ids]), max_new_tokens=NEW_TOKENS, do_sample=False,
                                    pad_token_id=0)[0, len(ids):].tolist()
        below = peer.greedy_shortfall(model, ids, answer)
        checks.that(below <= LOGIT_TOLERANCE, f"{case.name}: greedy ids of {what} after {prompt!r}",
                    f"{below:.1e} below the largest logit, at most {LOGIT_TOLERANCE:g}")
        # The tokenizer of bytes ends a text, too.
        ended = answer[-1:] in ([model.config.eos_token_id], [BYTES_EOS])
        checks.that(ended or len(answer) == NEW_TOKENS, f"{case.name}: {len(answer)} new tokens")
        checks.equal(answer, wanted[:len(answer)],
                     f"{case.name}: transformers' own ids of {what} after {prompt!r}")


def write_run(case, name, source):
    return write_run_file(case.folder / f"{name}.yaml", {
        "name": name, "storage": str(case.folder / "runs"), "seed": 7,
        "model": {"path": str(source)},
        "data": {"train": [str(case.folder / "train.txt")], "eval": [str(case.folder / "eval.txt")],
                 "tokenizer": "bytes", "seq_length": 40, "shuffle": False},
        "train": {"steps": 3, "global_batch": 4, "micro_batch": 2, "lr": 1e-3},
        "launch": {"threads": 2}})


def check_final(case, checks):
    run_dir = case.folder / "runs/run"
    _, evals = case.weft.train(write_run(case, "run", case.source), run_dir)
    final = run_dir / "final"
    before = load_file(case.source / "model.safetensors")
    after = load_file(final / "model.safetensors")
    checks.equal({k: tuple(v.shape) for k, v in after.items()},
                 {k: tuple(v.shape) for k, v in before.items()}, f"{case.name}: tensors of final/")
    checks.that(not torch.equal(after[min(after)], before[min(before)]), f"{case.name}: it learned")
    model = peer.load(final).eval()
    loss, _ = peer.mean_loss(model, rows_of((case.folder / "eval.txt").read_text().splitlines()))
    # BLOOM's set is a BF16 file, and so is its final/: rounded after the run's last evaluation.
    tolerance = LOSS_TOLERANCE if after[min(after)].dtype == torch.float32 else 2e-3
    checks.close(evals[-1]["eval_loss"], loss, tolerance, f"{case.name}: eval loss of final/")
    check_generate(case, checks, final, "final/")


def check_prefix(case, checks):
    """Published GPT-2 files have h.0. for transformer.h.0., and the masks of attention."""
    bare = case.folder / "bare"
    shutil.copytree(case.source, bare)
    tensors = load_file(case.source / "model.safetensors")
    tensors = {name.removeprefix("transformer."): value for name, value in tensors.items()}
    tensors["h.0.attn.bias"] = torch.ones(1, 1, 64, 64)
    save_file(tensors, bare / "model.safetensors", {"format": "pt"})
    runs = case.folder / "runs"
    case.weft.train(write_run(case, "bare", bare), runs / "bare")
    losses = [[line["loss"] for line in read_metrics(runs / name)[0]] for name in ("run", "bare")]
    checks.equal(losses[1], losses[0], f"{case.name}: losses from files without the prefix")
    names = set(load_file(runs / "bare/final/model.safetensors"))
    checks.equal(names, set(load_file(runs / "run/final/model.safetensors")),
                 f"{case.name}: final/ has transformers' names")


def body(args, checks, folder):
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    texts = [f"{i}: the weft crosses the warp {i * i} times" for i in range(24)]
    for name in NAMES:
        place = folder / name
        place.mkdir()
        (place / "train.txt").write_text("\n".join(texts) + "\n")
        (place / "eval.txt").write_text("\n".join(t[::-1] for t in texts[:9]) + "\n")
        case = Case(name, Weft(args.weft), place, ROOT / "tests/golden/data" / name / "model")
        checks.section(check_generate, case, case.source, "the folder")
        checks.section(check_final, case)
        if name == "gpt2":
            checks.section(check_prefix, case)


if __name__ == "__main__":
    run_program(__doc__, body)
