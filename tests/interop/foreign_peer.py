#!/usr/bin/env python3
"""One rank of DeepSpeed and of PyTorch that trains a little and saves: foreign_interop.py reads it.

    foreign_peer.py RANK JOB.json

JOB: {"store", "size", "model", "out"}. Writes out/zeroN (DeepSpeed), out/fsdp2 and out/tp
(torch.distributed.checkpoint), and for each NAME.pt: the whole weights, Adam's moments as name#m and
name#v, as the program itself gathers them.
"""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import transformers
from torch.distributed.checkpoint.state_dict import get_state_dict

import torch_mesh

STEPS, LR = 2, 1e-3


def batch():
    return torch.arange(12).reshape(2, 6) * 7 % 50 + dist.get_rank()


def save_gathered(tensors, path):
    if dist.get_rank() == 0:
        torch.save({name: t.detach().clone().contiguous() for name, t in tensors.items()}, path)


def groups_of(model):
    """Two groups, and one tensor that is not trained at all."""
    model.model.layers[0].mlp.up_proj.weight.requires_grad = False
    trained = [p for p in model.parameters() if p.requires_grad]
    return [{"params": [p for p in trained if p.dim() > 1], "weight_decay": 0.1},
            {"params": [p for p in trained if p.dim() == 1], "weight_decay": 0.0}]


def run_deepspeed(stage, precision, job):
    import deepspeed  # late: slow
    from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # as in mesh_peer.py
    model = torch_mesh.load(job["model"], dtype=getattr(torch, precision))
    config = {"train_micro_batch_size_per_gpu": 2, "steps_per_print": 10**9,
              "bf16": {"enabled": precision == "bfloat16"},
              "optimizer": {"type": "AdamW", "params": {"lr": LR, "torch_adam": True}},
              # A small sub-group: ZeRO 3 then keeps several flat buffers.
              "zero_optimization": {"stage": stage, "sub_group_size": 20000,
                                    "stage3_param_persistence_threshold": 200}}
    engine, *_ = deepspeed.initialize(model=model, config=config, model_parameters=groups_of(model))
    for _ in range(STEPS):
        ids = batch()
        engine.backward(torch_mesh.sum_of_losses(engine, ids, None) / 10)
        engine.step()
    name = f"zero{stage}_{precision}"
    engine.save_checkpoint(f"{job['out']}/{name}")
    gathered = {}
    for key, parameter in engine.module.named_parameters():
        if not parameter.requires_grad:
            continue
        gathered[key] = safe_get_full_fp32_param(parameter)
        if stage == 3:  # the others do not link torch's AdamW: foreign_interop.py joins them
            gathered[key + "#m"] = safe_get_full_optimizer_state(parameter, "exp_avg")
            gathered[key + "#v"] = safe_get_full_optimizer_state(parameter, "exp_avg_sq")
    save_gathered(gathered, f"{job['out']}/{name}.pt")


def run_torch(kind, job):
    trainer = torch_mesh.Trainer(kind, torch_mesh.load(job["model"]), LR)
    for _ in range(STEPS):
        trainer.step(batch(), None, 10)
    model, optimizer = trainer.model, trainer.optimizer
    weights, states = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optim": states, "step": STEPS}, checkpoint_id=f"{job['out']}/{kind}")
    gathered = {key: torch_mesh.whole(t) for key, t in weights.items()}
    for key, values in states["state"].items():
        gathered[key + "#m"] = torch_mesh.whole(values["exp_avg"])
        gathered[key + "#v"] = torch_mesh.whole(values["exp_avg_sq"])
    save_gathered(gathered, f"{job['out']}/{kind}.pt")


def main():
    rank, job = int(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    torch_mesh.join_group(rank, job["size"], job["store"])
    for kind in ("fsdp2", "tp"):
        run_torch(kind, job)
    for stage, precision in job["zero"]:
        run_deepspeed(stage, precision, job)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
