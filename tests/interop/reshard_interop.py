#!/usr/bin/env python3
"""A checkpoint of any layout is resumed in any other: the bits of a run that never stopped.

    reshard_interop.py --weft build/weft

Exact mode, 40 steps with a checkpoint at step 20, for a Llama in bf16 with master weights and a T5 in
fp32. Each layout saves; each then continues from each other's checkpoint in a run directory of its own,
and the text of its 20 losses and norms, and `weft hash` of its weights and states, are those of one rank
that was never stopped. Of the 36 pairs of each model a quarter is run, chosen by the commit, all with
FULL=1; every layout saves and loads. Six pairs more have their checkpoint in S3 (moto's server), resumed without a
mirror of it. The control: a checkpoint of another seed ends with other bits.
"""

import json
import random
import shutil

from common import Weft, run_program, write_run_file
from exact_interop import texts_of
from s3_interop import Server

STEPS, SAVED = 40, 20
LAYOUTS = {"1 rank": (1, 1, "none"), "dp 4": (4, 1, "none"), "dp 4 zero3": (4, 1, "zero3"), "tp 2": (1, 2, "none"),
           "dp 2 tp 2 zero1": (2, 2, "zero1"), "dp 2 tp 2 zero3": (2, 2, "zero3")}
COMMON = {"vocab_size": 300, "eos_token_id": 256, "initializer_range": 0.1}
MODELS = {
    "llama": ({**COMMON, "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 36,
               "intermediate_size": 50, "num_attention_heads": 6, "num_key_value_heads": 2, "num_hidden_layers": 2,
               "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "hidden_act": "silu",
               "tie_word_embeddings": False}, "bf16"),
    "t5": ({**COMMON, "architectures": ["T5ForConditionalGeneration"], "model_type": "t5", "d_model": 32, "d_kv": 12,
            "d_ff": 56, "num_heads": 4, "num_layers": 2, "dropout_rate": 0.1, "pad_token_id": 0}, "fp32")}


def write_rows(path):
    dice = random.Random(5)
    rows = [{"q": "".join(dice.choices("abcdefgh ", k=dice.choice((1, 7, 20)))),
             "a": "".join(dice.choices("abcdefgh ", k=dice.choice((2, 9, 24))))} for _ in range(90)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def run_file(folder, model):
    config, precision = MODELS[model]
    (folder / model).mkdir()
    (folder / model / "config.json").write_text(json.dumps(config))
    lengths = {"source": "{q}", "target": "{a}", "seq_length": 32}
    if config["model_type"] == "t5":
        lengths["target_length"] = 24
    return write_run_file(folder / f"{model}.yaml", {
        "name": "run", "seed": 3, "model": {"path": str(folder / model), "init": "random"},
        "data": {"tokenizer": "bytes", "train": [str(folder / "rows.jsonl")], **lengths},
        "parallel": {"mode": "exact", "exact_tp": 2, "exact_dp": 4},
        "train": {"steps": STEPS, "global_batch": 8, "lr": 3e-3, "clip_norm": 0.5, "precision": precision},
        "checkpoint": {"every": SAVED}, "launch": {"threads": 1}})


class Runs:
    """The runs of one model."""

    def __init__(self, weft, folder, model):
        self.weft, self.folder = weft, folder
        self.file = run_file(folder, model)
        self.sources = {}

    def call(self, layout, *words, env=None):
        dp, tp, shard = LAYOUTS[layout]
        sets = [f"parallel.dp={dp}", f"parallel.tp={tp}", f"parallel.shard={shard}"]
        self.weft.call("train", self.file, "--quiet", *(word for item in sets for word in ("--set", item)), *words,
                       env=env)

    def train(self, name, layout, *words, env=None):
        run_dir = self.folder / name
        self.call(layout, "--run-dir", run_dir, *words, env=env)
        return run_dir

    def checkpoint_of(self, layout):
        """Of a run in that layout, made once."""
        if layout not in self.sources:
            run_dir = self.train(f"from {layout}", layout)
            self.sources[layout] = run_dir / "checkpoints" / f"step-{SAVED:08}"
        return self.sources[layout]

    def results(self, run_dir):
        """Of the last 20 steps."""
        found = {key: texts_of(run_dir, key)[-(STEPS - SAVED):] for key in ("loss", "grad_norm", "lr")}
        return found | {"hash": self.weft.call("hash", run_dir).splitlines()}


def check_same(checks, runs, whole, run_dir, what):
    found = runs.results(run_dir)
    different = [key for key in whole if found[key] != whole[key]]
    checks.that(not different and len(texts_of(run_dir, "loss")) == STEPS - SAVED, what, ", ".join(different))
    shutil.rmtree(run_dir)


def check_from_s3(checks, runs, whole):
    """Each layout saves into a bucket, and the next one continues from there."""
    server, names = Server(), list(LAYOUTS)
    try:
        server.client().create_bucket(Bucket="runs")
        for i, (saved, resumed) in enumerate(zip(names, names[1:] + names[:1])):
            def env(who):
                return {**server.env(), "XDG_CACHE_HOME": str(runs.folder / f"cache-{who}")}
            runs.call(saved, "--set", "storage=s3://runs/here", "--set", f"name=run-{i}", env=env("saving"))
            shutil.rmtree(runs.folder / "cache-saving")
            run_dir = runs.train("resumed", resumed, "--resume",
                                 f"s3://runs/here/run-{i}/checkpoints/step-{SAVED:08}", env=env("resuming"))
            check_same(checks, runs, whole, run_dir, f"saved in S3 by {saved}, resumed by {resumed}")
    finally:
        server.stop()


def check_model(checks, weft, folder, model, pairs):
    runs = Runs(weft, folder, model)
    whole = runs.results(runs.train("whole", "1 rank"))
    checks.that(len(whole["loss"]) == STEPS - SAVED and len(whole["hash"]) > 1, f"{model}: a run that never stopped")
    for _, saved, resumed in pairs:
        run_dir = runs.train("resumed", resumed, "--resume", runs.checkpoint_of(saved))
        check_same(checks, runs, whole, run_dir, f"{model}: saved by {saved}, resumed by {resumed}")
    if model == "llama":
        check_from_s3(checks, runs, whole)
    other = runs.train("other seed", "1 rank", "--set", "seed=4")
    checks.that(runs.results(other)["hash"] != whole["hash"], f"{model}: control, another seed differs")
    for run_dir in [folder / "whole", other, *(path.parents[1] for path in runs.sources.values())]:
        shutil.rmtree(run_dir)


def body(args, checks, folder):
    weft = Weft(args.weft)
    write_rows(folder / "rows.jsonl")
    cases = checks.sample([(model, saved, resumed) for model in MODELS for saved in LAYOUTS for resumed in LAYOUTS], 4)
    for model in MODELS:
        check_model(checks, weft, folder, model, [case for case in cases if case[0] == model])


if __name__ == "__main__":
    run_program(__doc__, body, in_memory=True)
