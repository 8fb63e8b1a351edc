"""PyTorch's ways to train on several ranks: DDP, FSDP2 and DTensor tensor parallel, over gloo.

Used by the interop check (mesh_peer.py) and by the benchmark (benchmarks/peer_mesh.py): what is
measured is what was compared. A `Trainer` takes its rank's part of a batch and makes one step.
"""

import contextlib
import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel, loss_parallel,
                                               parallelize_module)
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModelForCausalLM

IGNORED = -100  # label of non-targets


def join_group(rank, size, store):
    """gloo on loopback (or GLOO_SOCKET_IFNAME), rendezvous through a file; the variables are those
    that DeepSpeed reads."""
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size),
                      LOCAL_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT="29500")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)


def load(folder, attention="eager", dtype=torch.float32):
    """The weights are read in fp32 and then rounded, as weft does."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                 attn_implementation=attention)
    return model.train().to(dtype)


def cut_model(model, size):
    """Megatron's cut as a DTensor plan: heads, feed-forward width, vocabulary of both ends."""
    mesh = init_device_mesh("cpu", (size,))
    column, row = ColwiseParallel, RowwiseParallel
    for layer in model.model.layers:
        parallelize_module(layer, mesh, {
            "self_attn.q_proj": column(), "self_attn.k_proj": column(),
            "self_attn.v_proj": column(), "self_attn.o_proj": row(),
            "mlp.gate_proj": column(), "mlp.up_proj": column(), "mlp.down_proj": row()})
    tied = model.lm_head.weight is model.model.embed_tokens.weight
    parallelize_module(model, mesh, {
        "model.embed_tokens": row(input_layouts=Replicate()),
        "lm_head": column(output_layouts=Shard(-1), use_local_output=False)})
    if tied:  # both ends were cut in the same way, but into two parameters
        model.lm_head.weight = model.model.embed_tokens.weight
    return model


def shard_model(model):
    for layer in model.model.layers:
        fully_shard(layer)
    return fully_shard(model)


def sum_of_losses(model, ids, mask):
    """Summed over the targets of these rows. A mask of None: every position is a token."""
    logits = model(input_ids=ids, attention_mask=mask).logits
    labels = ids[:, 1:]
    if mask is not None:
        labels = labels.masked_fill(mask[:, 1:] == 0, IGNORED)
    # Padding with an ignored label keeps the logits whole: no copy of all but the last position.
    labels = torch.nn.functional.pad(labels, (0, 1), value=IGNORED)
    return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten(),
                                             ignore_index=IGNORED, reduction="sum")


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def clip_gradients(parameters, clip):
    """torch's own rule, clip / (norm + 1e-6), for plain tensors next to DTensors too."""
    grads = [p.grad for p in parameters if p.grad is not None]
    norm = sum(whole(g).double().square().sum().item() for g in grads) ** 0.5
    for grad in grads:
        grad.mul_(min(1.0, clip / (norm + 1e-6)))
    return norm


class Trainer:
    """One rank of `kind`: ddp, fsdp2 or tp. clip 0 is off."""

    def __init__(self, kind, model, lr, clip=0.0, weight_decay=0.01):
        self.kind, self.clip, self.size = kind, clip, dist.get_world_size()
        make = {"ddp": lambda m: DistributedDataParallel(m, gradient_as_bucket_view=True),
                "fsdp2": shard_model, "tp": lambda m: cut_model(m, self.size)}
        self.model = make[kind](model)
        # foreach lists cannot mix plain tensors and DTensors.
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr,
                                           weight_decay=weight_decay,
                                           foreach=False if kind == "tp" else None)

    def rows(self, batch):
        """This rank's rows: all of them under tp, else its part."""
        if self.kind == "tp":
            return batch
        part = len(batch) // self.size
        return batch[dist.get_rank() * part:(dist.get_rank() + 1) * part]

    def step(self, ids, mask, num_targets):
        """One update with the mean over num_targets, the global count; returns that mean."""
        tp = self.kind == "tp"
        with loss_parallel() if tp else contextlib.nullcontext():
            loss = sum_of_losses(self.model, ids, mask) / num_targets
            # DDP and FSDP2 divide by the number of ranks.
            (loss if tp else loss * self.size).backward()
        if self.clip:
            clip_gradients(self.model.parameters(), self.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        mean = whole(loss.detach())
        if not tp:
            dist.all_reduce(mean)
        return mean.item()
