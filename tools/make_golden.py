#!/usr/bin/env python3
"""Makes the golden files: what PyTorch and transformers compute for small models of every family.

    make_golden.py --out DIR --seed N [--only NAME... | --from FOLDER] [--full]

Each set is a folder DIR/NAME with model/ (a Hugging Face folder, written by save_pretrained) and
golden.safetensors (inputs, logits, losses, gradients, tables of AdamW steps). The models are in
golden_models.py, the format is in tests/golden/data/README.md. Everything is fp32 with transformers'
own classes and eager attention; where torch's own rounding matters, the same figure by another road
of torch stands beside it.
"""

import argparse
import json
import shutil
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file

from golden_models import auto_class, golden_models, random_model, stored_model

FORMAT = "2"
SAMPLE_STRIDE = 61  # prime: coprime with every row width, so a sample walks over all columns
SAMPLE_MOST = 4096
ADAMW = {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}
CLIP = 1.0
STEP_RUNS = {"steps10": (10, 1e-4), "steps20": (20, 1e-3)}  # name: (steps, lr)
STEP_ROWS = 8
MICRO_PASSES = 4


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
    """The folder of a set: random weights, or a copy of what exists."""
    if golden.folder:
        shutil.copytree(golden.folder, folder, dirs_exist_ok=True)
        return
    model = random_model(golden, generator)
    if golden.store_bf16:
        model.to(torch.bfloat16)
    model.save_pretrained(folder)
    if "rope_type" in (getattr(golden.config, "rope_parameters", None) or {}):
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


def load_model(golden, folder, attention="eager", dtype=torch.float32):
    model = auto_class(golden.config).from_pretrained(folder, config=golden.config, dtype=dtype,
                                                      attn_implementation=attention)
    return model.train()


def random_rows(vocab_size, rows, T, shortest, generator):
    """Ids (rows, T) and lengths: one full row, the shortest possible one, the others anywhere.

    Ids beyond a row's length are arbitrary: padding is known by position, never by id.
    """
    ids = torch.randint(0, vocab_size, (rows, T), generator=generator)
    lengths = torch.randint(shortest + 1, T, (rows,), generator=generator)
    lengths[0], lengths[1] = T, shortest
    order = torch.randperm(rows - 1, generator=generator) + 1  # row 0 stays the full one
    lengths[1:] = lengths[order]
    return ids, lengths


def make_batch(golden, rows, generator):
    """What weft reads: ids, targets (-1: none) and lengths, and a source where the model has one."""
    vocab = golden.config.vocab_size
    ids, lengths = random_rows(vocab, rows, golden.seq_length, 2, generator)
    for place, token in enumerate(golden.special_ids):
        ids[0, 3 + 7 * place] = token
    inside = torch.arange(golden.seq_length) < lengths[:, None]
    if not golden.config.is_encoder_decoder:
        targets = torch.full_like(ids, -1)
        targets[:, :-1] = ids[:, 1:].masked_fill(~inside[:, 1:], -1)
        return {"input_ids": ids, "lengths": lengths, "targets": targets}
    targets = ids.masked_fill(~inside, -1)
    shifted = ids.roll(1, dims=1)
    shifted[:, 0] = golden.config.decoder_start_token_id
    source_ids, source_lengths = random_rows(vocab, rows, golden.source_length, 1, generator)
    # The longest source does not meet the longest target.
    source_ids, source_lengths = source_ids.flip(0), source_lengths.flip(0)
    return {"input_ids": shifted, "lengths": lengths, "targets": targets,
            "source_ids": source_ids, "source_lengths": source_lengths}


def model_inputs(batch):
    """The same as transformers reads it."""
    mask_of = lambda ids, lengths: (torch.arange(ids.shape[1]) < lengths[:, None]).long()
    ids, targets = batch["input_ids"], batch["targets"]
    if "source_ids" in batch:
        return {"input_ids": batch["source_ids"],
                "attention_mask": mask_of(batch["source_ids"], batch["source_lengths"]),
                "labels": targets.masked_fill(targets < 0, -100)}
    mask = mask_of(ids, batch["lengths"])
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


def num_targets(batch):
    return int((batch["targets"] >= 0).sum())


def token_losses(logits, batch):
    """Sum of the cross entropies of all targets, added up in float64."""
    losses = torch.nn.functional.cross_entropy(
        logits.float().transpose(1, 2), batch["targets"], reduction="none", ignore_index=-1)
    return losses.double().sum()


def gradients(model, batch):
    """Logits, mean loss and the gradient of the mean by name; a tied parameter is listed once."""
    model.zero_grad()
    out = model(**model_inputs(batch))
    out.loss.backward()
    return out.logits.detach(), out.loss.item(), {n: p.grad.clone() for n, p in
                                                  model.named_parameters()}


def relative(a, b):
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


def run_steps(golden, folder, batches, lr, passes=1, **options):
    """Losses and gradient norms (before clipping) of AdamW over the given batches."""
    model = load_model(golden, folder, **options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, **ADAMW)
    losses, norms = [], []
    for batch in batches:
        optimizer.zero_grad()
        count, total = num_targets(batch), 0.0
        chunks = {name: value.chunk(passes) for name, value in batch.items()}
        for i in range(passes):
            part = {name: values[i] for name, values in chunks.items()}
            mean = model(**model_inputs(part)).loss
            share = mean * (num_targets(part) / count) if passes > 1 else mean
            share.backward()
            total += share.item()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP).item())
        losses.append(total)
        optimizer.step()
    return torch.tensor(losses, dtype=torch.float64), torch.tensor(norms, dtype=torch.float64)


def other_roads(golden):
    """Other ways of torch to the same figures. Not every family has sdpa."""
    model_class = type(auto_class(golden.config).from_config(golden.config))
    other = {"sdpa": {"attention": "sdpa"}} if model_class._supports_sdpa else {
        "fp64": {"dtype": torch.float64}}
    return other | {"accum4": {"passes": MICRO_PASSES}}


def step_tables(golden, folder, generator):
    """Tables of both runs, and how far torch is from itself by other roads in each."""
    tensors, spreads = {}, {}
    for run, (steps, lr) in STEP_RUNS.items():
        batches = [make_batch(golden, STEP_ROWS, generator) for _ in range(steps)]
        losses, norms = run_steps(golden, folder, batches, lr)
        beta1, beta2 = ADAMW["betas"]
        tensors |= {f"{run}.{name}": torch.stack([b[name] for b in batches]).int()
                    for name in batches[0]}
        tensors |= {
            f"{run}.losses": losses, f"{run}.grad_norms": norms,
            f"{run}.hyper": torch.tensor([lr, beta1, beta2, ADAMW["eps"], ADAMW["weight_decay"],
                                          CLIP], dtype=torch.float64)}
        for road, options in other_roads(golden).items():
            other_losses, other_norms = run_steps(golden, folder, batches, lr, **options)
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


def without_padding(logits, batch):
    padding = torch.arange(logits.shape[1]) >= batch["lengths"][:, None]
    return logits.masked_fill(padding[:, :, None], 0.0)


def begin_set(golden, out, seed):
    """(folder of the set, which has the model, and the generator of what follows)."""
    folder = out / golden.name
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "model").mkdir(parents=True)
    generator = torch.Generator().manual_seed(seed * 1000 + sum(golden.name.encode()))
    write_model(golden, folder / "model", generator)
    return folder, generator


def make_logits(golden, out, seed):
    """A set of a batch and its logits only: enough for test_golden's GoldenLogits."""
    folder, generator = begin_set(golden, out, seed)
    batch = make_batch(golden, golden.rows, generator)
    with torch.no_grad():
        logits = load_model(golden, folder / "model").eval()(**model_inputs(batch)).logits
    tensors = {name: value.int() for name, value in batch.items()}
    save_file(tensors | {"logits": without_padding(logits, batch)}, folder / "golden.safetensors",
              {"format": FORMAT, "name": golden.name, "seed": str(seed)})


def make_set(golden, out, seed, full):
    """Writes one set and prints how far torch in fp32 is from torch in float64."""
    folder, generator = begin_set(golden, out, seed)
    model_folder = folder / "model"
    batch = make_batch(golden, golden.rows, generator)
    logits, mean, grads = gradients(load_model(golden, model_folder), batch)
    _, _, exact = gradients(load_model(golden, model_folder, dtype=torch.float64), batch)
    spreads = {"grad_fp64": max(relative(grads[n], exact[n]) for n in grads)}
    with torch.no_grad():
        # Two ways to a bf16 model: .to() rounds the rope frequencies too, from_pretrained does not.
        # T5's own loss is a bf16 number then: the mean is taken here.
        mean_of = lambda model: (token_losses(model(**model_inputs(batch)).logits, batch).item() /
                                 num_targets(batch))
        bf16 = mean_of(load_model(golden, model_folder).to(torch.bfloat16))
        bf16_loaded = mean_of(load_model(golden, model_folder, dtype=torch.bfloat16))

    sample = golden.sample and not full
    logits = without_padding(logits, batch)
    float64 = lambda value: torch.tensor([value], dtype=torch.float64)
    tensors = {name: value.int() for name, value in batch.items()}
    tensors |= {
        "logits": logits[:1].clone() if sample else logits,
        "num_targets": torch.tensor([num_targets(batch)], dtype=torch.int32),
        "loss_sum": token_losses(logits, batch).reshape(1), "loss_mean": float64(mean),
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
    parser.add_argument("--only", metavar="NAME", nargs="+", help="make only these sets")
    parser.add_argument("--from", dest="folder", type=Path, metavar="FOLDER",
                        help="instead: a set of this model, called as its folder")
    parser.add_argument("--full", action="store_true", help="store whole gradients and logits")
    args = parser.parse_args()
    torch.set_num_threads(2)
    transformers.utils.logging.disable_progress_bar()
    models = {m.name: m for m in golden_models()}
    if unknown := set(args.only or []) - set(models):
        parser.error(f"no set is called {', '.join(sorted(unknown))}: there are {', '.join(models)}")
    models = [stored_model(args.folder)] if args.folder else [models[name] for name in args.only or models]
    for golden in models:
        if golden.name == "llama_rope":
            check_rope_branches(golden.config)
        make_set(golden, args.out, args.seed, args.full)


if __name__ == "__main__":
    main()
