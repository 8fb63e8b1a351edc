"""The training function of Ray Train's TorchTrainer for ray_beside.py: FSDP2 over dp and DTensor over tp, torch.distributed.checkpoint.

Workers import this module, in a thread: it imports nothing of the test programs but torch_mesh.py.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))


def train_function(config):
    """Of each worker. config: model, rows, batch, steps, every (steps of a checkpoint), folder (metrics, pids), attention, tp, lr."""
    os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")  # read by what torch_mesh imports
    import ray.train
    import torch
    import torch.distributed.checkpoint as dcp
    import torch_mesh
    import workload
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    torch.set_num_threads(1)
    rank, folder = ray.train.get_context().get_world_rank(), Path(config["folder"])
    (folder / f"rank-{rank}").write_text(str(os.getpid()))
    trainer = torch_mesh.Trainer("fsdp2_tp", torch_mesh.load(config["model"], config["attention"]), lr=config["lr"], tp=config["tp"])

    def state():
        weights, states = get_state_dict(trainer.model, trainer.optimizer)
        return {"model": weights, "optimizer": states}

    first = 0
    if checkpoint := ray.train.get_checkpoint():
        with checkpoint.as_directory() as place:
            loaded = state()
            dcp.load(loaded, checkpoint_id=place)
            set_state_dict(trainer.model, trainer.optimizer, model_state_dict=loaded["model"], optim_state_dict=loaded["optimizer"])
            first = json.loads((Path(place) / "metadata.json").read_text())["step"]
    batches = workload.read_rows(Path(config["rows"]), config["batch"])
    begin = time.perf_counter()
    for step in range(first + 1, config["steps"] + 1):
        batch = batches[step - 1]
        loss = trainer.step(torch.tensor(trainer.rows(batch)), None, len(batch) * (len(batch[0]) - 1))
        end = time.perf_counter()
        if rank == 0:
            with open(folder / "metrics.jsonl", "a", encoding="ascii") as file:
                file.write(json.dumps({"step": step, "loss": loss, "step_ms": 1000 * (end - begin), "process": os.getpid()}) + "\n")
        if step % config["every"] == 0 or step == config["steps"]:
            with tempfile.TemporaryDirectory(dir=folder) as place:
                dcp.save(state(), checkpoint_id=place)
                if rank == 0:
                    (Path(place) / "metadata.json").write_text(json.dumps({"step": step}))
                ray.train.report({"step": step, "loss": loss}, checkpoint=ray.train.Checkpoint.from_directory(place))
        begin = time.perf_counter()
