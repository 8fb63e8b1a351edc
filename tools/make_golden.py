#!/usr/bin/env python3
"""Makes the golden files: what PyTorch and transformers compute for four small models.

    make_golden.py --out DIR --seed N [--only NAME] [--full]

Each set is a folder DIR/NAME with model/ (a Hugging Face folder, written by save_pretrained) and
golden.safetensors (inputs, logits, losses, gradients, tables of AdamW steps). The format is told in
tests/golden/data/README.md. Everything is fp32 with transformers' own classes and eager attention;
where torch's own rounding matters, the same figure by another road of torch stands beside it.
"""

import argparse
import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config

FORMAT = "1"
SAMPLE_STRIDE = 61  # prime: coprime with every row width, so a sample walks over all columns
SAMPLE_MOST = 4096
ADAMW = {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}
CLIP = 1.0
STEP_RUNS = {"steps10": (10, 1e-4), "steps20": (20, 1e-3)}  # name: (steps, lr)
STEP_ROWS = 8
MICRO_PASSES = 4


@dataclass
class Golden:
    """One model and how it is stored."""

    name: str
    config: transformers.PretrainedConfig
    seq_length: int
    std: float  # of the random weights: large enough that attention and gates are far from linear
    rows: int = 4
    store_bf16: bool = False  # weights are bf16 values, kept in a BF16 file, used as fp32
    sample: bool = False  # store a sample of each gradient, and only the logits of the first row
    special_ids: list = field(default_factory=list)  # ids that must occur as real tokens


def golden_models():
    """The four models; each has something that the others lack."""
    common = {"max_position_embeddings": 512, "attention_dropout": 0.0, "bos_token_id": None}
    tiny_llama = LlamaConfig(
        vocab_size=257, hidden_size=64, intermediate_size=172, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=4, rms_norm_eps=1e-5, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        eos_token_id=256, **common)
    qwen2_gqa = Qwen2Config(
        vocab_size=1003, hidden_size=96, intermediate_size=120, num_hidden_layers=2,
        num_attention_heads=6, num_key_value_heads=2, rms_norm_eps=1e-6, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
        pad_token_id=17, eos_token_id=1002, use_sliding_window=False, **common)
    llama_rope = LlamaConfig(
        vocab_size=331, hidden_size=64, intermediate_size=160, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5, tie_word_embeddings=True,
        rope_parameters={"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0,
                         "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                         "original_max_position_embeddings": 64},
        eos_token_id=330, **common)
    llama_256 = LlamaConfig(
        vocab_size=320, hidden_size=256, intermediate_size=272, num_hidden_layers=4,
        num_attention_heads=8, num_key_value_heads=2, rms_norm_eps=1e-5, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        eos_token_id=319, **common)
    return [
        Golden("tiny_llama", tiny_llama, seq_length=32, std=0.12),
        Golden("qwen2_gqa", qwen2_gqa, seq_length=32, std=0.10, store_bf16=True,
               special_ids=[17]),
        Golden("llama_rope", llama_rope, seq_length=48, std=0.12),
        Golden("llama_256", llama_256, seq_length=128, std=0.06, rows=8, store_bf16=True,
               sample=True),
    ]


def check_rope_branches(config):
    """All three cases of llama3 scaling must occur: kept, blended, divided."""
    rope = config.rope_parameters
    head_dim = config.hidden_size // config.num_attention_heads
    old = rope["original_max_position_embeddings"]
    cases = set()
    for i in range(0, head_dim, 2):
        wavelength = 2 * torch.pi * rope["rope_theta"] ** (i / head_dim)
        cases.add("kept" if wavelength < old / rope["high_freq_factor"] else
                  "divided" if wavelength > old / rope["low_freq_factor"] else "blended")
    assert cases == {"kept", "blended", "divided"}, cases


def write_model(golden, folder, generator):
    """Random weights: matrices and biases around 0, norm weights around 1. Saved as a folder."""
    model = AutoModelForCausalLM.from_config(golden.config, dtype=torch.float32)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator) * golden.std
            parameter.copy_(1.0 + noise if "norm" in name else noise)
    if golden.store_bf16:
        model.to(torch.bfloat16)
    model.save_pretrained(folder)
    write_config_of_version_4(folder)


def write_config_of_version_4(folder):
    """The same config in transformers 4's spelling, next to config.json."""
    config = json.loads((folder / "config.json").read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    config["torch_dtype"] = config.pop("dtype")
    config["transformers_version"] = "4.57.0"
    (folder / "config_v4.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def load_model(folder, attention="eager", dtype=torch.float32):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation=attention)
    return model.train()


def make_batch(golden, rows, generator):
    """Ids (rows, T) and lengths: one full row, the shortest possible one, the others anywhere.

    Ids beyond a row's length are arbitrary: padding is known by position, never by id.
    """
    T = golden.seq_length
    ids = torch.randint(0, golden.config.vocab_size, (rows, T), generator=generator)
    lengths = torch.randint(3, T, (rows,), generator=generator)
    lengths[0], lengths[1] = T, 2
    order = torch.randperm(rows - 1, generator=generator) + 1  # row 0 stays the full one
    lengths[1:] = lengths[order]
    for place, token in enumerate(golden.special_ids):
        ids[0, 3 + 7 * place] = token
    return ids, lengths


def model_inputs(ids, lengths):
    mask = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
    return {"input_ids": ids, "attention_mask": mask,
            "labels": ids.masked_fill(mask == 0, -100)}


def num_targets(lengths):
    return int((lengths - 1).sum())


def token_losses(logits, ids, lengths):
    """Sum of the cross entropies of all targets, added up in float64."""
    losses = torch.nn.functional.cross_entropy(
        logits[:, :-1].float().transpose(1, 2), ids[:, 1:], reduction="none")
    wanted = torch.arange(1, ids.shape[1]) < lengths[:, None]
    return losses[wanted].double().sum()


def gradients(model, ids, lengths):
    """Logits, mean loss and the gradient of the mean by name; a tied parameter is listed once."""
    model.zero_grad()
    out = model(**model_inputs(ids, lengths))
    out.loss.backward()
    return out.logits.detach(), out.loss.item(), {n: p.grad.clone() for n, p in
                                                  model.named_parameters()}


def relative(a, b):
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


def run_steps(folder, ids, lengths, lr, attention="eager", passes=1):
    """Losses and gradient norms (before clipping) of AdamW over the given batches."""
    model = load_model(folder, attention)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, **ADAMW)
    losses, norms = [], []
    for step_ids, step_lengths in zip(ids, lengths):
        optimizer.zero_grad()
        count, total = num_targets(step_lengths), 0.0
        for part, part_lengths in zip(step_ids.chunk(passes), step_lengths.chunk(passes)):
            mean = model(**model_inputs(part, part_lengths)).loss
            share = mean * (num_targets(part_lengths) / count) if passes > 1 else mean
            share.backward()
            total += share.item()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP).item())
        losses.append(total)
        optimizer.step()
    return torch.tensor(losses, dtype=torch.float64), torch.tensor(norms, dtype=torch.float64)


def step_tables(golden, folder, generator):
    """Tables of both runs, and how far torch is from itself (sdpa, four passes) in each."""
    tensors, spreads = {}, {}
    for run, (steps, lr) in STEP_RUNS.items():
        batches = [make_batch(golden, STEP_ROWS, generator) for _ in range(steps)]
        ids = torch.stack([b[0] for b in batches])
        lengths = torch.stack([b[1] for b in batches])
        losses, norms = run_steps(folder, ids, lengths, lr)
        beta1, beta2 = ADAMW["betas"]
        tensors |= {
            f"{run}.input_ids": ids.int(), f"{run}.lengths": lengths.int(),
            f"{run}.losses": losses, f"{run}.grad_norms": norms,
            f"{run}.hyper": torch.tensor([lr, beta1, beta2, ADAMW["eps"], ADAMW["weight_decay"],
                                          CLIP], dtype=torch.float64)}
        for road, options in {"sdpa": {"attention": "sdpa"},
                              "accum4": {"passes": MICRO_PASSES}}.items():
            other_losses, other_norms = run_steps(folder, ids, lengths, lr, **options)
            tensors[f"{run}.losses_{road}"] = other_losses
            tensors[f"{run}.grad_norms_{road}"] = other_norms
            spreads[f"{run}.losses_{road}"] = ((other_losses - losses) / losses).abs().max()
            spreads[f"{run}.grad_norms_{road}"] = ((other_norms - norms) / norms).abs().max()
    return tensors, spreads


def gradient_tensors(grads, sample):
    """Whole gradients as grad.NAME, or their norm and every 61st element, at most 4096."""
    if not sample:
        return {f"grad.{name}": grad for name, grad in grads.items()}
    tensors = {}
    for name, grad in grads.items():
        tensors[f"grad_norm.{name}"] = grad.double().norm().reshape(1)
        tensors[f"grad_sample.{name}"] = grad.flatten()[::SAMPLE_STRIDE][:SAMPLE_MOST].clone()
    return tensors


def make_set(golden, out, seed, full):
    """Writes one set and prints how far torch in fp32 is from torch in float64."""
    folder = out / golden.name
    shutil.rmtree(folder, ignore_errors=True)
    model_folder = folder / "model"
    model_folder.mkdir(parents=True)
    generator = torch.Generator().manual_seed(seed * 1000 + sum(golden.name.encode()))
    write_model(golden, model_folder, generator)

    ids, lengths = make_batch(golden, golden.rows, generator)
    logits, mean, grads = gradients(load_model(model_folder), ids, lengths)
    _, _, exact = gradients(load_model(model_folder, dtype=torch.float64), ids, lengths)
    spreads = {"grad_fp64": max(relative(grads[n], exact[n]) for n in grads)}
    with torch.no_grad():
        # Two ways to a bf16 model: .to() rounds the rope frequencies too, from_pretrained does not.
        cast = load_model(model_folder).to(torch.bfloat16)
        bf16 = cast(**model_inputs(ids, lengths)).loss.item()
        loaded = load_model(model_folder, dtype=torch.bfloat16)
        bf16_loaded = loaded(**model_inputs(ids, lengths)).loss.item()

    sample = golden.sample and not full
    padding = torch.arange(golden.seq_length) >= lengths[:, None]
    logits = logits.masked_fill(padding[:, :, None], 0.0)
    float64 = lambda value: torch.tensor([value], dtype=torch.float64)
    tensors = {
        "input_ids": ids.int(), "lengths": lengths.int(),
        "logits": logits[:1].clone() if sample else logits,
        "num_targets": torch.tensor([num_targets(lengths)], dtype=torch.int32),
        "loss_sum": token_losses(logits, ids, lengths).reshape(1), "loss_mean": float64(mean),
        "loss_bf16": float64(bf16), "loss_bf16_loaded": float64(bf16_loaded)}
    tensors |= gradient_tensors(grads, sample)
    tables, table_spreads = step_tables(golden, model_folder, generator)
    spreads |= table_spreads
    metadata = {"format": FORMAT, "name": golden.name, "seed": str(seed),
                "torch": torch.__version__, "transformers": transformers.__version__,
                "sample_stride": str(SAMPLE_STRIDE), "sample_most": str(SAMPLE_MOST)}
    metadata |= {f"spread.{key}": f"{float(value):.3e}" for key, value in spreads.items()}
    save_file(tensors | tables, folder / "golden.safetensors", metadata)

    size = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
    print(f"{golden.name}: loss {mean:.6f} (bf16 {bf16:.6f}, {bf16_loaded:.6f}), {size} bytes")
    for key, value in spreads.items():
        print(f"  torch against itself, {key}: {float(value):.2e}")
    for run in STEP_RUNS:
        losses, norms = tables[f"{run}.losses"], tables[f"{run}.grad_norms"]
        print(f"  {run}: loss {losses[0]:.4f} -> {losses[-1]:.4f}, "
              f"norm {norms.min():.3f} .. {norms.max():.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--only", metavar="NAME", help="make only this set")
    parser.add_argument("--full", action="store_true", help="store whole gradients and logits")
    args = parser.parse_args()
    torch.set_num_threads(2)
    transformers.utils.logging.disable_progress_bar()
    models = [m for m in golden_models() if args.only in (None, m.name)]
    if not models:
        parser.error(f"no set is called {args.only}: "
                     f"there are {', '.join(m.name for m in golden_models())}")
    for golden in models:
        if golden.config.rope_parameters["rope_type"] == "llama3":
            check_rope_branches(golden.config)
        make_set(golden, args.out, args.seed, args.full)


if __name__ == "__main__":
    main()
