#!/usr/bin/env python3
"""examples/ray/qwen_tp_dp.py: workload 1 on Ray: Qwen on wikitext, tensor parallel x data parallel.

    python examples/ray/qwen_tp_dp.py --storage-path /shared/runs --tp-size 2 --dp-size 2 --use-gpu

The options are those of the Ray Train program; each becomes a key of the run file. Run it from the root of the repository.
--resume-from NAME continues that run, at its exact step.
"""

import argparse
import time
from pathlib import Path

import yaml
from ray.train import FailureConfig, RunConfig, ScalingConfig
from weft_ray import WeftTrainer

SHARDS = {0: "none", 1: "zero1", 2: "zero2", 3: "zero3"}


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--run-file", default="examples/workloads/1-qwen-tp-dp.yaml")
    parser.add_argument("--model-name", help="Qwen/Qwen2.5-0.5B, Qwen/Qwen2-7B, or a folder; default: the small model of the run file")
    parser.add_argument("--tp-size", type=int, default=2)
    parser.add_argument("--dp-size", type=int, default=2)
    parser.add_argument("--use-gpu", action="store_true")
    parser.add_argument("--batch-size", type=int, default=2, help="rows per rank and pass")
    parser.add_argument("--seq-length", type=int, default=2048)
    parser.add_argument("--num-epochs", type=int, default=3)
    parser.add_argument("--learning-rate", type=float, default=1e-5)
    parser.add_argument("--zero-stage", type=int, choices=SHARDS, default=1)
    parser.add_argument("--dataset-percentage", type=float, default=100.0)
    parser.add_argument("--num-layers", type=int, help="only the first layers of the model")
    parser.add_argument("--debug-steps", type=int, help="end after this many steps")
    parser.add_argument("--log-interval", type=int, default=1)
    parser.add_argument("--storage-path", required=True)
    parser.add_argument("--resume-from", help="name of a run")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any other key of the run file")
    return parser.parse_args()


def keys_of(args):
    keys = {"parallel.tp": args.tp_size, "parallel.dp": args.dp_size, "parallel.shard": SHARDS[args.zero_stage],
            "train.micro_batch": args.batch_size, "train.global_batch": args.batch_size * args.dp_size, "data.seq_length": args.seq_length,
            "train.lr": args.learning_rate, "train.log_every": args.log_interval, "data.fraction": args.dataset_percentage / 100}
    keys |= {"train.steps": args.debug_steps} if args.debug_steps else {"train.epochs": args.num_epochs}  # only one of them
    if args.model_name:
        keys |= {"model.path": args.model_name, "model.init": "pretrained", "data.tokenizer": "auto"}
    if args.num_layers:
        keys["model.num_layers"] = args.num_layers
    return {**keys, **dict(word.split("=", 1) for word in args.set)}


def main():
    args = parse()
    run = yaml.safe_load(Path(args.run_file).read_text())
    del run["train"]["epochs"]
    result = WeftTrainer(
        run, train_loop_config=keys_of(args),
        scaling_config=ScalingConfig(num_workers=args.tp_size * args.dp_size, use_gpu=args.use_gpu),
        run_config=RunConfig(name=args.resume_from or f"qwen-tp{args.tp_size}-dp{args.dp_size}-{time.strftime('%Y%m%d-%H%M%S')}",
                             storage_path=args.storage_path, failure_config=FailureConfig(max_failures=2))).fit()
    print(f"step {result.metrics['step']}: loss {result.metrics['loss']:.4f}")
    print(f"checkpoint: {result.checkpoint.path}")


if __name__ == "__main__":
    main()
