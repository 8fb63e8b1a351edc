#!/usr/bin/env python3
"""examples/ray/qwen_tp_dp.py: workloads 1 and 2 on Ray: Qwen on wikitext, tensor parallel x data parallel.

    python examples/ray/qwen_tp_dp.py --storage-path /shared/runs --dataset /shared/wikitext2.parquet --tp-size 2 --dp-size 2 --use-gpu
    python examples/ray/qwen_tp_dp.py --storage-path /shared/runs --run-file examples/workloads/2-qwen-tutorial.yaml --model-name Qwen/Qwen2.5-0.5B --use-gpu

The options are those of the Ray Train program; one that is given becomes a key of the run file. Run it from the root of the repository.
--resume-from NAME continues that run at its exact step; --name NAME sets the name of a new run.
"""

import argparse
import time
from pathlib import Path

import pyarrow.fs
import ray.data
import yaml
from ray.train import FailureConfig, RunConfig, ScalingConfig
from weft_ray import WeftTrainer

SHARDS = {0: "none", 1: "zero1", 2: "zero2", 3: "zero3"}


def parse():
    """An option that is not given leaves the run file as it is."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--run-file", default="examples/workloads/1-qwen-tp-dp.yaml")
    parser.add_argument("--model-name", help="Qwen/Qwen2.5-0.5B, Qwen/Qwen2-7B, or a folder, with its weights and tokenizer")
    parser.add_argument("--init-weights", help="a folder whose weights to begin with; the tokenizer stays the run file's")
    parser.add_argument("--dataset", help="Parquet with the columns of the run file (text), through Ray Data")
    parser.add_argument("--tp-size", type=int)
    parser.add_argument("--dp-size", type=int)
    parser.add_argument("--use-gpu", action="store_true")
    parser.add_argument("--batch-size", type=int, help="rows per rank and pass, of which a step has one")
    parser.add_argument("--seq-length", type=int)
    parser.add_argument("--num-epochs", type=int)
    parser.add_argument("--learning-rate", type=float)
    parser.add_argument("--zero-stage", type=int, choices=SHARDS)
    parser.add_argument("--dataset-percentage", type=float)
    parser.add_argument("--num-layers", type=int, help="only the first layers of the model")
    parser.add_argument("--debug-steps", type=int, help="end after this many steps; 0 writes the initial weights to final/")
    parser.add_argument("--log-interval", type=int)
    parser.add_argument("--storage-path", required=True)
    parser.add_argument("--name", help="name of a new run (default: the name in the run file and the time)")
    parser.add_argument("--resume-from", help="name of a run below --storage-path, which must exist")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any other key of the run file")
    return parser.parse_args()


def name_of(args, run):
    """Name of the new run, or of the run to continue."""
    if not args.resume_from:
        return args.name or f"{run['name']}-{time.strftime('%Y%m%d-%H%M%S')}"
    storage, folder = pyarrow.fs.FileSystem.from_uri(args.storage_path if "://" in args.storage_path else str(Path(args.storage_path).resolve()))
    if storage.get_file_info(f"{folder}/{args.resume_from}").type != pyarrow.fs.FileType.Directory:
        found = sorted(entry.base_name for entry in storage.get_file_info(pyarrow.fs.FileSelector(folder, allow_not_found=True)))
        raise SystemExit(f"error: --resume-from: {args.storage_path} has no run {args.resume_from}\n"
                         f"  hint: {'found runs: ' + ', '.join(found) if found else 'the folder has no runs'}; --name starts a new run")
    return args.resume_from


def keys_of(args, run):
    """Of the options that were given."""
    dp = args.dp_size or run["parallel"]["dp"]
    micro = args.batch_size or run["train"]["micro_batch"]
    keys = {"parallel.tp": args.tp_size, "parallel.dp": args.dp_size, "parallel.shard": SHARDS.get(args.zero_stage), "train.micro_batch": args.batch_size,
            "train.global_batch": micro * dp if args.batch_size or args.dp_size else None, "data.seq_length": args.seq_length,
            "train.epochs": args.num_epochs, "train.steps": args.debug_steps, "train.lr": args.learning_rate, "train.log_every": args.log_interval,
            "data.fraction": args.dataset_percentage and args.dataset_percentage / 100, "model.num_layers": args.num_layers}
    if args.model_name:
        keys |= {"model.path": args.model_name, "model.init": "pretrained", "data.tokenizer": "auto"}
    if args.init_weights:
        keys |= {"model.path": args.init_weights, "model.init": "pretrained"}
    return {key: value for key, value in keys.items() if value is not None} | dict(word.split("=", 1) for word in args.set)


def main():
    args = parse()
    run = yaml.safe_load(Path(args.run_file).read_text())
    keys = keys_of(args, run)
    tp, dp = args.tp_size or run["parallel"]["tp"], args.dp_size or run["parallel"]["dp"]
    if args.debug_steps is not None:
        del run["train"]["epochs"]  # only one of them
    datasets = {}
    if args.dataset:
        datasets["train"] = ray.data.read_parquet(args.dataset)
        del run["data"]["train"]
    result = WeftTrainer(
        run, train_loop_config=keys, datasets=datasets, scaling_config=ScalingConfig(num_workers=tp * dp, use_gpu=args.use_gpu),
        run_config=RunConfig(name=name_of(args, run), storage_path=args.storage_path,
                             failure_config=FailureConfig(max_failures=2))).fit()
    if result.metrics:  # none of no steps
        print(f"step {result.metrics['step']}: loss {result.metrics['loss']:.4f}")
        print(f"checkpoint: {result.checkpoint.path}")


if __name__ == "__main__":
    main()
