"""PyTorch's ways to train on several ranks: DDP, FSDP2, DTensor tensor parallel, and both of these, over gloo.

Used by the interop checks (mesh_peer.py, ray_beside.py) and by the benchmark (benchmarks/peer_mesh.py): what
is measured is what was compared. A `Trainer` takes its rank's part of a batch and makes one step.
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


def cut_model(model, mesh):
    """Megatron's cut as a DTensor plan: heads, feed-forward width, vocabulary of both ends."""
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


def shard_model(model, mesh):
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


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
    """One rank of `kind`: ddp, fsdp2, tp, or fsdp2_tp, whose tensor-parallel groups have `tp` ranks. clip 0 is off."""

    def __init__(self, kind, model, lr, clip=0.0, weight_decay=0.01, tp=2):
        size = dist.get_world_size()
        self.tp = {"tp": size, "fsdp2_tp": tp}.get(kind, 1)
        self.dp, self.clip = size // self.tp, clip
        self.mesh = init_device_mesh("cpu", (self.dp, self.tp), mesh_dim_names=("dp", "tp"))
        if self.tp > 1:
            model = cut_model(model, self.mesh["tp"])
        if kind.startswith("fsdp2"):
            model = shard_model(model, self.mesh["dp"])
        self.model = DistributedDataParallel(model, gradient_as_bucket_view=True) if kind == "ddp" else model
        # foreach lists can mix neither plain tensors and DTensors nor DTensors of two meshes.
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr,
                                           weight_decay=weight_decay,
                                           foreach=False if self.tp > 1 else None)

    def rows(self, batch):
        """Those of this rank's tensor-parallel group."""
        part, place = len(batch) // self.dp, self.mesh.get_local_rank("dp")
        return batch[place * part:(place + 1) * part]

    def step(self, ids, mask, num_targets):
        """One update with the mean over num_targets, the global count; returns that mean."""
        with loss_parallel() if self.tp > 1 else contextlib.nullcontext():
            loss = sum_of_losses(self.model, ids, mask) / num_targets
            (loss * self.dp).backward()  # DDP and FSDP2 divide by the number of replicas
        if self.clip:
            clip_gradients(self.model.parameters(), self.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        mean = whole(loss.detach())
        if self.dp > 1:
            dist.all_reduce(mean, group=self.mesh["dp"].get_group())
        return mean.item()
