#!/usr/bin/env python3
"""examples/ray/t5_text_to_sql.py: workload 4 on Ray: T5 learns SQL, ZeRO stage 3, rows through Ray Data.

    python examples/ray/t5_text_to_sql.py --rows /shared/wikisql --storage-path /shared/runs --num-workers 3 --use-gpu --model-name google-t5/t5-3b

--rows: Parquet or JSON lines with the columns instruction, input, output. From a folder, only files of the training split are read: those with `train`
in their names. Run it from the root of the repository. The last tenth of the rows is held out: evaluations are on it, and at the end the trained model answers
a few of it.
"""

import argparse
import re
import subprocess
from pathlib import Path

import pyarrow.fs
import ray.data
import yaml
from ray.train import RunConfig, ScalingConfig
from weft_ray import WeftTrainer
from weft_ray.program import PROGRAM

HELD_OUT = 0.1


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--run-file", default="examples/workloads/4-t5-text-to-sql.yaml")
    parser.add_argument("--rows", required=True)
    parser.add_argument("--model-name", help="google-t5/t5-3b, google-t5/t5-11b, or a folder; default: the small model of the run file")
    parser.add_argument("--num-workers", type=int, default=3)
    parser.add_argument("--use-gpu", action="store_true")
    parser.add_argument("--batch-size", type=int, default=8, help="rows per rank and pass")
    parser.add_argument("--first-rows", type=int, default=1000)
    parser.add_argument("--debug-steps", type=int, help="end after this many steps")
    parser.add_argument("--answers", type=int, default=3, help="held-out rows that are answered at the end")
    parser.add_argument("--storage-path", required=True)
    parser.add_argument("--name", default="t5-text-to-sql")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any other key of the run file")
    return parser.parse_args()


def keys_of(args):
    keys = {"parallel.dp": args.num_workers, "train.micro_batch": args.batch_size, "train.global_batch": args.batch_size * args.num_workers}
    if args.debug_steps:
        keys["train.steps"] = args.debug_steps
    if args.model_name:
        keys |= {"model.path": args.model_name, "model.init": "pretrained", "data.tokenizer": "auto"}
    return {**keys, **dict(word.split("=", 1) for word in args.set)}


def files_of(rows):
    """The file system and the paths to read: one file, or the training split of a folder."""
    storage, path = pyarrow.fs.FileSystem.from_uri(rows if "://" in rows else str(Path(rows).resolve()))
    if storage.get_file_info(path).type != pyarrow.fs.FileType.Directory:
        return storage, [path]
    found = sorted(entry.path for entry in storage.get_file_info(pyarrow.fs.FileSelector(path, recursive=True))
                   if entry.path.endswith((".parquet", ".json", ".jsonl")))
    train = [name for name in found if "train" in re.split("[^a-z]", name.removeprefix(path).lower())]
    if not train and len(found) != 1:
        raise SystemExit(f"error: --rows: {rows} has {len(found)} data files and none has `train` in its name\n  hint: give the path of one file")
    return storage, train or found


def answer(run, checkpoint, rows):
    """Greedy answers of the checkpoint, next to what was expected."""
    for row in rows:
        prompt = run["data"]["source"].format(**row)
        done = subprocess.run([PROGRAM, "generate", checkpoint, "--prompt", prompt, "--max-new-tokens", "64", "--temperature", "0"], check=True, text=True,
                              stdout=subprocess.PIPE)
        print(f"expected: {row['output']}\nanswered: {done.stdout.strip()}")


def main():
    args = parse()
    run = yaml.safe_load(Path(args.run_file).read_text())
    del run["data"]["train"], run["data"]["limit"], run["data"]["eval_fraction"]  # rows come through Ray Data, and are split there
    if args.debug_steps:
        del run["train"]["epochs"]
    storage, files = files_of(args.rows)
    read = ray.data.read_parquet if files[0].endswith(".parquet") else ray.data.read_json
    ray.data.DataContext.get_current().execution_options.preserve_order = True  # the same split every time
    rows, held_out = read(files, filesystem=storage).limit(args.first_rows).train_test_split(HELD_OUT)
    result = WeftTrainer(run, train_loop_config=keys_of(args), datasets={"train": rows, "eval": held_out},
                         scaling_config=ScalingConfig(num_workers=args.num_workers, use_gpu=args.use_gpu, placement_strategy="SPREAD"),
                         run_config=RunConfig(name=args.name, storage_path=args.storage_path)).fit()
    print(f"step {result.metrics['step']}: loss {result.metrics['loss']:.4f}")
    answer(run, result.checkpoint.path, held_out.take(args.answers))


if __name__ == "__main__":
    main()
