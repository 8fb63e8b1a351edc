"""The peer of the round trip: the same rows, loss, AdamW and evaluation in plain PyTorch."""

import math
from dataclasses import dataclass

import torch
from transformers import AutoModelForCausalLM


def save_random_model(config, folder, seed, std=0.05, **options):
    """Random weights large enough to give gradients, biases included, as a Hugging Face folder."""
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator) * std
            parameter.copy_(1.0 + noise if "norm" in name else noise)
    model.save_pretrained(folder, **options)


def load(folder, dtype=torch.float32, attention="eager"):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation=attention)


def weights(model):
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def token_rows(texts, encode, seq_length):
    """Rows as weft uses them: cut on the right, those of one token or less dropped."""
    rows = [encode(text)[:seq_length] for text in texts]
    return [row for row in rows if len(row) > 1]


def pad(rows):
    """ids, attention mask, labels; padding is never a label."""
    length = max(len(row) for row in rows)
    ids = torch.zeros(len(rows), length, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for i, row in enumerate(rows):
        ids[i, :len(row)] = torch.tensor(row)
        mask[i, :len(row)] = 1
    return ids, mask, ids.masked_fill(mask == 0, -100)


def mean_loss(model, rows):
    """Mean over all targets of all rows, summed in float64, and the number of targets."""
    ids, mask, _ = pad(rows)
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=mask).logits.float()
    losses = torch.nn.functional.cross_entropy(logits[:, :-1].transpose(1, 2), ids[:, 1:],
                                               reduction="none")
    wanted = mask[:, 1:] == 1
    return losses[wanted].double().mean().item(), int(wanted.sum())


@dataclass
class Trained:
    losses: list
    grad_norms: list
    target_tokens: list
    model: torch.nn.Module


def clip_gradients(model, clip):
    """As clip_grad_norm_, but the norm is summed in float64.

    torch adds in fp32, and is 1.5e-5 off over the five million elements of Qwen2's embedding.
    """
    grads = [p.grad for p in model.parameters()]
    norm = sum(g.double().square().sum().item() for g in grads) ** 0.5
    for grad in grads:
        grad.mul_(min(1.0, clip / (norm + 1e-6)))
    return norm


def train(folder, rows, steps, batch, lr, clip, weight_decay=0.01, momentum=None):
    """AdamW (with a momentum: SGD) over consecutive batches in file order, from the weights of `folder`."""
    model = load(folder).train()
    if momentum is None:
        optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=weight_decay)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=lr, weight_decay=weight_decay, momentum=momentum)
    result = Trained([], [], [], model)
    for step in range(steps):
        ids, mask, labels = pad(rows[step * batch:(step + 1) * batch])
        optimizer.zero_grad()
        loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
        loss.backward()
        norm = clip_gradients(model, clip)
        optimizer.step()
        result.losses.append(loss.item())
        result.grad_norms.append(norm)
        result.target_tokens.append(int(mask[:, 1:].sum()))
    model.eval()
    return result


def train_half(folder, rows, steps, batch, lr, clip, weight_decay=0.01, scale=65536.0):
    """As train(), with weights and activations in float16: fp32 masters, loss times a scale, as GradScaler does."""
    model, masters = load(folder, torch.float16).train(), load(folder)
    optimizer = torch.optim.AdamW(masters.parameters(), lr=lr, weight_decay=weight_decay)
    result = Trained([], [], [], masters)
    for step in range(steps):
        ids, mask, labels = pad(rows[step * batch:(step + 1) * batch])
        model.zero_grad()
        logits = model(input_ids=ids, attention_mask=mask).logits.float()
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].transpose(1, 2), labels[:, 1:])
        (loss * scale).backward()
        for master, half in zip(masters.parameters(), model.parameters()):
            master.grad = half.grad.float() / scale
        norm = clip_gradients(masters, clip)
        assert math.isfinite(norm), "PyTorch's fp16 overflowed"
        optimizer.step()
        with torch.no_grad():
            for master, half in zip(masters.parameters(), model.parameters()):
                half.copy_(master)
        result.losses.append(loss.item())
        result.grad_norms.append(norm)
        result.target_tokens.append(int(mask[:, 1:].sum()))
    return result


def train_on_padding(folder, batches, lr, clip, weight_decay=0.01):
    """As train(), over rows that are padded already (ids, length), every id a label. As people run it, with sdpa: there a row
    that is nothing but padding attends to nothing, where eager would look at all of it, also ahead."""
    model = load(folder, attention="sdpa").train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=weight_decay)
    result = Trained([], [], [], model)
    for rows in batches:
        ids = torch.tensor([row["ids"] for row in rows])
        mask = (torch.arange(ids.shape[1])[None] < torch.tensor([row["length"] for row in rows])[:, None]).long()
        optimizer.zero_grad()
        loss = model(input_ids=ids, attention_mask=mask, labels=ids).loss
        loss.backward()
        norm = clip_gradients(model, clip)
        optimizer.step()
        result.losses.append(loss.item())
        result.grad_norms.append(norm)
        result.target_tokens.append(ids[:, 1:].numel())
    model.eval()
    return result


def block_mask(segments, blocks=True):
    """(B, 1, T, T), added to the scores: 0 inside a segment up to the query, else a very low number."""
    segments = torch.tensor(segments)
    length = segments.shape[1]
    seen = torch.ones(length, length, dtype=torch.bool).tril()[None].expand(len(segments), -1, -1)
    if blocks:
        seen = seen & (segments[:, :, None] == segments[:, None, :])
    return torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)[:, None]


def packed_loss(model, rows, blocks=True):
    """Mean loss of packed rows (ids, targets, segments, position_ids), and the number of targets."""
    ids, targets = (torch.tensor([row[key] for row in rows]) for key in ("ids", "targets"))
    segments = [row["segments"] for row in rows]
    positions = torch.tensor([row["position_ids"] for row in rows])
    logits = model(input_ids=ids, position_ids=positions,
                   attention_mask=block_mask(segments, blocks)).logits.float()
    loss = torch.nn.functional.cross_entropy(logits.transpose(1, 2), targets, ignore_index=-1)
    return loss, int((targets >= 0).sum())


def train_packed(folder, batches, lr, clip, weight_decay=0.01):
    """As train(), over batches of packed rows."""
    model = load(folder).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=weight_decay)
    result = Trained([], [], [], model)
    for rows in batches:
        optimizer.zero_grad()
        loss, targets = packed_loss(model, rows)
        loss.backward()
        norm = clip_gradients(model, clip)
        optimizer.step()
        result.losses.append(loss.item())
        result.grad_norms.append(norm)
        result.target_tokens.append(targets)
    model.eval()
    return result


def greedy_shortfall(model, prompt, ids):
    """How far each of the ids is below the largest logit at its position; 0 is greedy decoding."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([prompt + ids])).logits[0].float()
    at = logits[len(prompt) - 1:len(prompt) - 1 + len(ids)]
    chosen = at.gather(1, torch.tensor(ids)[:, None])[:, 0]
    return (at.max(dim=1).values - chosen).max().item()
