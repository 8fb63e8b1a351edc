#!/usr/bin/env python3
"""One rank of PyTorch or DeepSpeed that goes on from an export of weft: to_others_interop.py.

    to_others_peer.py RANK JOB.json

JOB: {"store", "size", "batch", "seq_length", "clip", "runs": [{"kind", "model", "rows", "from",
"steps", "train", "export", "out"}]}. Kinds: fsdp2, fsdp2_weights (without the optimizer's
states), zero1, zero2, zero3. The optimizers are made with wrong hyperparameters and the model with
the first weights: what makes the losses right is in the export. Rank 0 writes them to `out`.
"""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import transformers
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

import peer
import torch_mesh

WRONG = {"adamw": {"lr": 0.3, "weight_decay": 0.7, "betas": (0.5, 0.6), "eps": 1e-2},
         "sgd": {"lr": 0.3, "weight_decay": 0.7, "momentum": 0.1}}
MAKE = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


def optimizer_of(run):
    return run["train"].get("optimizer", "adamw")


def groups_of(model, run):
    if run["train"]["decay_all"]:
        return [{"params": list(model.parameters())}]
    return [{"params": [p for p in model.parameters() if p.dim() > 1]},
            {"params": [p for p in model.parameters() if p.dim() == 1]}]


class Fsdp2(torch_mesh.Trainer):
    def __init__(self, run, job):
        super().__init__("fsdp2", torch_mesh.load(run["model"]), lr=1.0, clip=job["clip"])
        name = optimizer_of(run)
        self.optimizer = MAKE[name](groups_of(self.model, run), **WRONG[name])
        weights, states = get_state_dict(self.model, self.optimizer)
        whole = run["kind"] == "fsdp2"
        wanted = {"model": weights, "optim": states, "step": 0} if whole else {"model": weights}
        dcp.load(wanted, checkpoint_id=run["export"])
        if whole:
            assert wanted["step"] == run["from"], f"step {wanted['step']}"
        else:  # the right hyperparameters, and moments that begin anew
            right = {key: run["train"][key] for key in ("lr", "momentum") if key in run["train"]}
            self.optimizer = MAKE[name](self.model.parameters(), **right, weight_decay=0.1)
        set_state_dict(self.model, self.optimizer if whole else [], model_state_dict=weights,
                       optim_state_dict=wanted.get("optim", {}))


class Zero:
    def __init__(self, run, job):
        import deepspeed  # late: slow
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # as in mesh_peer.py
        model = torch_mesh.load(run["model"])
        self.part = job["batch"] // job["size"]
        name = optimizer_of(run)
        optimizer = {"type": "SGD", "params": WRONG[name]} if name == "sgd" else \
            {"type": "AdamW", "params": {**WRONG[name], "torch_adam": True}}
        config = {"train_micro_batch_size_per_gpu": self.part, "gradient_accumulation_steps": 1,
                  "gradient_clipping": job["clip"], "steps_per_print": 10**9,
                  "optimizer": optimizer, "zero_allow_untested_optimizer": True,  # SGD
                  "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": run["train"]["lr"],
                                                               "warmup_num_steps": 2}},
                  "zero_optimization": {"stage": int(run["kind"][-1])},
                  "checkpoint": {"load_universal": True}}
        self.engine, *_ = deepspeed.initialize(
            model=model, config=config, model_parameters=groups_of(model, run))
        path, _ = self.engine.load_checkpoint(run["export"])
        assert path and self.engine.global_steps == run["from"], (path, self.engine.global_steps)
        self.size = job["size"]

    def rows(self, batch):
        return batch[dist.get_rank() * self.part:(dist.get_rank() + 1) * self.part]

    def step(self, ids, mask, num_targets):
        loss = torch_mesh.sum_of_losses(self.engine, ids, mask) / num_targets
        self.engine.backward(loss * self.size)  # it divides by the number of ranks
        self.engine.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        return mean.item()


def train(run, job):
    """Losses of the steps after the export; batches are consecutive rows of the file, as in weft."""
    trainer = (Fsdp2 if run["kind"].startswith("fsdp2") else Zero)(run, job)
    lines = Path(run["rows"]).read_bytes().split(b"\n")[:-1]
    rows = [list(line)[:job["seq_length"]] for line in lines]
    losses = []
    for step in range(run["from"], run["steps"]):
        batch = rows[step * job["batch"]:(step + 1) * job["batch"]]
        ids, mask, _ = peer.pad(trainer.rows(batch))
        losses.append(trainer.step(ids, mask, sum(len(row) - 1 for row in batch)))
    return losses


def main():
    rank, job = int(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    torch_mesh.join_group(rank, job["size"], job["store"])
    for run in job["runs"]:
        losses = train(run, job)
        if rank == 0:
            Path(run["out"]).write_text(json.dumps(losses))
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
