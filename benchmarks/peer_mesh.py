#!/usr/bin/env python3
"""PyTorch's turn on several ranks of one thread: DDP, FSDP2 or DTensor tensor parallel, over gloo.

    peer_mesh.py --kind ddp|fsdp2|tp --model DIR --rows FILE --metrics FILE --precision fp32|bf16

Starts its ranks and waits for them; where one fails or the starter is ended, all end. How the model
is cut and stepped is tests/interop/torch_mesh.py, whose losses are held against weft's there. bf16
is model.to(bfloat16): weights, gradients, what is reduced, and AdamW's states in bf16.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import workload

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "interop"))
from common import die_with_parent  # noqa: E402


def run_rank(args):
    import torch
    import torch_mesh
    torch.set_num_threads(1)
    torch_mesh.join_group(args.rank, args.ranks, args.store)
    dtype = torch.bfloat16 if args.precision == "bf16" else torch.float32
    model = torch_mesh.load(args.model, args.attention, dtype)
    trainer = torch_mesh.Trainer(args.kind, model, lr=1e-4)
    begin = time.perf_counter()
    with open(args.metrics if args.rank == 0 else os.devnull, "w", encoding="ascii") as metrics:
        for step, rows in enumerate(workload.read_rows(args.rows, args.batch), start=1):
            ids = torch.tensor(trainer.rows(rows))
            loss = trainer.step(ids, None, len(rows) * (len(rows[0]) - 1))
            end = time.perf_counter()
            metrics.write(json.dumps({"step": step, "loss": loss,
                                      "step_ms": 1000 * (end - begin)}) + "\n")
            metrics.flush()
            begin = end
    torch.distributed.destroy_process_group()


def start_ranks(args):
    """Exit code of the job: 0 where all ranks succeeded."""
    with tempfile.TemporaryDirectory(prefix="weft_peer_") as folder:
        ranks = []
        try:
            for rank in range(args.ranks):
                command = [sys.executable, *sys.argv, "--rank", str(rank), "--store",
                           f"{folder}/store"]
                ranks.append(subprocess.Popen(command, preexec_fn=die_with_parent,
                                              env={**os.environ, "OMP_NUM_THREADS": "1"}))
            while any(rank.poll() is None for rank in ranks):
                if any(rank.returncode for rank in ranks):
                    return 1
                time.sleep(0.05)
            return 1 if any(rank.returncode for rank in ranks) else 0
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kind", choices=["ddp", "fsdp2", "tp"], required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--metrics", type=Path, required=True)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--attention", choices=["sdpa", "eager"], default="eager")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rank", type=int, help="set by the starter")
    parser.add_argument("--store", help="set by the starter")
    args = parser.parse_args()
    if args.rank is None:
        sys.exit(start_ranks(args))
    run_rank(args)


if __name__ == "__main__":
    main()
