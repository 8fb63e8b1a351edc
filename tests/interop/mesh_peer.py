#!/usr/bin/env python3
"""One rank of a peer: trains by PyTorch or DeepSpeed what peers_interop.py trains by weft.

    mesh_peer.py RANK JOB.json

JOB: {"store", "size", "steps", "batch", "seq_length", "lr", "clip", "runs": [{"kind", "model",
"rows", "out"}]}. Kinds: ddp, fsdp2, tp, fsdp2_tp, zero1, zero2, zero3, and mean_of_means, which is DDP as it
is often written: each rank takes the mean over its own targets. Rank 0 writes the losses to `out`.
"""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import transformers

import peer
import torch_mesh


class DeepSpeedTrainer:
    """ZeRO of one stage, DeepSpeed's own clipping and its engine around torch's AdamW."""

    def __init__(self, stage, model, job):
        import deepspeed  # late: slow, and not needed by the others
        # Its own shared-memory collectives would be compiled at the first start, for a minute, and
        # a killed compilation leaves a lock on which the next start waits forever. gloo will do.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        part = job["batch"] // job["size"]
        config = {
            "train_micro_batch_size_per_gpu": part, "gradient_accumulation_steps": 1,
            "gradient_clipping": job["clip"],
            "optimizer": {"type": "AdamW", "params": {"lr": job["lr"], "weight_decay": 0.01,
                                                      "torch_adam": True}},
            "zero_optimization": {"stage": stage}, "steps_per_print": 10**9}
        self.engine, *_ = deepspeed.initialize(model=model, config=config,
                                               model_parameters=model.parameters())
        self.size, self.part = job["size"], part

    def rows(self, batch):
        return batch[dist.get_rank() * self.part:(dist.get_rank() + 1) * self.part]

    def step(self, ids, mask, num_targets):
        loss = torch_mesh.sum_of_losses(self.engine, ids, mask) / num_targets
        self.engine.backward(loss * self.size)  # it divides by the number of ranks
        self.engine.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        return mean.item()


class MeanOfMeans(torch_mesh.Trainer):
    """The common mistake: right only where all rows are of one length."""

    def __init__(self, model, job):
        super().__init__("ddp", model, job["lr"], job["clip"])

    def step(self, ids, mask, num_targets):
        return super().step(ids, mask, int(mask[:, 1:].sum()) * self.dp)


def make_trainer(kind, model, job):
    if kind.startswith("zero"):
        return DeepSpeedTrainer(int(kind[-1]), model, job)
    if kind == "mean_of_means":
        return MeanOfMeans(model, job)
    return torch_mesh.Trainer(kind, model, job["lr"], job["clip"])


def train(run, job):
    """Losses of every step; batches are consecutive rows of the file, as in weft."""
    trainer = make_trainer(run["kind"], torch_mesh.load(run["model"]), job)
    lines = Path(run["rows"]).read_bytes().split(b"\n")[:-1]
    rows = [list(line)[:job["seq_length"]] for line in lines]
    losses = []
    for step in range(job["steps"]):
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
