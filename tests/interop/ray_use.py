"""weft on Ray as people use it: Ray Data, a shell, the examples, Tune."""

import json
import os
import shutil
import subprocess
import sys

import yaml

from common import read_metrics, write_run_file
from ray_case import MORE_STEPS, STEPS, differs, fails, program_cache, programs_sent, refused, same_run, sections
from ray_cluster import HEAD
from sampling import ROOT


def write_numbers(source, parquet, digits=17):
    """The rows with a column of whole numbers and one of others, in which a value is missing. Returns the path."""
    import pyarrow
    import pyarrow.json
    import pyarrow.parquet
    table = pyarrow.json.read_json(source)
    shares = [None if row == 2 else round(row / 7, digits) for row in range(len(table))]
    table = table.append_column("count", pyarrow.array(range(len(table)), pyarrow.int64())).append_column("share", pyarrow.array(shares, pyarrow.float64()))
    pyarrow.parquet.write_table(table, parquet, row_group_size=50)
    return parquet


def check_datasets(case):
    """Rows through Ray Data have the bits of the same rows from a file; a second fit() knows them again."""
    import numpy
    import pyarrow.parquet
    import ray.data
    import ray.train
    from weft_ray import WeftTrainer
    ray.data.DataContext.get_current().enable_progress_bars = False
    parquet, held_out = (write_numbers(case.folder / f"data/{name}.jsonl", case.folder / f"rows-{name}.parquet") for name in ("train", "test"))
    run = sections(case.folder)
    run["data"] |= {"train": [str(parquet)], "eval": [str(held_out)], "source": "{count} {share} {question}\n"}
    case.weft.train(write_run_file(case.folder / "parquet.yaml", {"name": "parquet", **run}), case.folder / "own/parquet", "--set", f"train.steps={MORE_STEPS}")
    del run["data"]["train"]
    config = ray.train.RunConfig(name="rows", storage_path=str(case.storage))
    scaling = ray.train.ScalingConfig(num_workers=4)

    def trainer(dataset, **keys):
        return WeftTrainer(run, train_loop_config=keys, scaling_config=scaling, run_config=config, datasets={"train": dataset})
    dataset = ray.data.read_parquet(str(parquet))
    trainer(dataset).fit()
    trainer(dataset, **{"train.steps": MORE_STEPS}).fit()
    same_run(case, case.storage / "rows", case.folder / "own/parquet", "rows of Ray Data with numbers, resumed")
    rounded = case.folder / "own/rounded"
    write_numbers(case.folder / "data/train.jsonl", case.folder / "rounded.parquet", digits=2)
    case.weft.train(case.folder / "parquet.yaml", rounded, "--set", f"train.steps={MORE_STEPS}", "--set", f"data.train=[{case.folder / 'rounded.parquet'}]")
    differs(case, case.storage / "rows", rounded, "a column of rounded numbers")
    folder, others = case.storage / "rows/rows", dataset.limit(200)
    before = (folder / "train.parquet").read_bytes()
    fails(case, "other rows under the same name", "data.train: ", trainer(others))
    case.checks.equal([path.name for path in folder.iterdir()], ["train.parquet"], "other rows under the same name: those of the run are left, and no others")
    case.checks.that((folder / "train.parquet").read_bytes() == before, "other rows under the same name: those of the run have their bytes")
    check_same_rows(case, parquet)
    check_pandas(case, trainer, pyarrow.parquet.read_table(parquet))
    numbers = {"count": 1, "share": 0.5}
    refused(case, "a column that is missing", "datasets['train'] has no column sql", lambda: trainer(dataset.drop_columns(["sql"])))
    refused(case, "a column of another type", "column question has the type", lambda: trainer(
        ray.data.from_items([{**numbers, "question": [1, 2], "sql": "select"}])))
    refused(case, "a column of bytes", "column question has the type binary", lambda: trainer(ray.data.from_items([{**numbers, "question": b"a", "sql": "select"}])))
    refused(case, "a column of tensors", "column question has the type", lambda: trainer(
        ray.data.from_items([{**numbers, "question": numpy.zeros((2, 3)), "sql": "select"}])))
    refused(case, "rows twice", "datasets['eval'] and data.eval are both given", lambda: WeftTrainer(
        run, scaling_config=scaling, datasets={"train": dataset, "eval": dataset}))
    fails(case, "fewer rows than a batch", "global_batch", WeftTrainer(
        run, scaling_config=scaling, run_config=ray.train.RunConfig(name="few", storage_path=str(case.storage)), datasets={"train": dataset.limit(3)}))


def check_pandas(case, trainer, table):
    """Text in blocks of pandas, which hold objects, and as Arrow's views: the same rows. A missing number is NaN there, and missing in what is written."""
    import pyarrow
    import ray.data
    from weft_ray import rows
    views = table.cast(pyarrow.schema([field.with_type(pyarrow.string_view()) if field.type == pyarrow.string() else field for field in table.schema]))
    objects = {name: object for name in table.column_names if name != "share"}  # Ray pickles a column of objects with a NaN among them, which is refused
    with_objects = ray.data.from_arrow(table).map_batches(lambda batch: batch.astype(objects), batch_format="pandas")
    for what, dataset in (("a table of pandas", ray.data.from_pandas(table.to_pandas().astype(objects))), ("batches of pandas", with_objects), ("views", ray.data.from_arrow(views))):
        columns = trainer(dataset).settings.datasets["train"][1]
        found = rows.write_rows(dataset, columns, str(case.storage / "rows/rows"), "train")
        case.checks.equal(found, (str(case.storage / "rows/rows/train.parquet"), False), f"{what}: the rows of the run")
    refused(case, "objects that are lists", "column question has the type list", lambda: trainer(
        ray.data.from_pandas(table.to_pandas().assign(question=[[1, 2]] * len(table)))))


def check_same_rows(case, parquet):
    """Rows are known by what they are; the bytes of their file are Arrow's."""
    import pyarrow
    import pyarrow.parquet
    from weft_ray import rows
    table, folder = pyarrow.parquet.read_table(parquet), case.folder / "same"
    numbers = [float("nan"), *map(float, range(1, len(table)))]
    table, found = table.append_column("n", pyarrow.array(numbers)), []
    folder.mkdir()
    for part, words in ((table, {}), (table, {"compression": "zstd", "row_group_size": 60}), (table.slice(1), {}), (table.set_column(
            table.num_columns - 1, "n", pyarrow.array([1.0, *numbers[1:]])), {})):
        pyarrow.parquet.write_table(part, folder / "draft", **words)
        path, is_strange = rows.place_rows(str(folder / "draft"), str(folder), "train")
        found.append((os.path.basename(path) == "train.parquet", is_strange))
    case.checks.equal(found, [(True, False), (True, False), (False, True), (False, True)], "the same rows in other bytes are the same, others are not")


CLIENT = """
import sys, ray, ray.train
from weft_ray import WeftTrainer
ray.init(address="ray://{head}:10001", log_to_driver=False)
result = WeftTrainer({run!r}, scaling_config=ray.train.ScalingConfig(num_workers=4),
                     run_config=ray.train.RunConfig(name="client", storage_path={storage!r})).fit()
print("step", result.metrics["step"], result.checkpoint.path)
"""


def check_client(case):
    """A driver that is not on a node: Ray's client (ray://)."""
    code = CLIENT.format(head=HEAD, run=sections(case.folder), storage=str(case.storage))
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(case.folder / "driver")}, text=True, capture_output=True, timeout=300, check=False)
    case.checks.that(f"step {STEPS} {case.storage}/client/checkpoints" in done.stdout, "ray://: fit() returns the Result", (done.stdout + done.stderr)[-1500:] if done.returncode else "")
    same_run(case, case.storage / "client", case.undisturbed, "ray://")


def check_command(case):
    """`weft train --engine ray` from a shell: bits, output, exit codes, messages."""
    env = {**os.environ, "RAY_ADDRESS": case.cluster.address, "PYTHONPATH": str(case.folder / "driver")}

    def weft(*words, **more):
        done = subprocess.run([sys.executable, "-c", "from weft_ray.program import main; main()", *map(str, words)], env={**env, **more}, text=True,
                              capture_output=True, timeout=300, check=False, cwd=case.folder)
        return done.returncode, done.stdout, done.stderr

    file = write_run_file(case.folder / "command.yaml", {"name": "command", "storage": "storage", **sections(case.folder), "train": {
        **sections(case.folder)["train"], "lr": 0.5}})
    code, out, err = weft("train", file, "--engine", "ray", "--set", "train.lr=1e-3")
    case.checks.that(code == 0, "--engine ray: exit 0", (out + err)[-600:] if code else "")
    case.checks.that(f"step {STEPS}/{STEPS}" in err, "--engine ray: shows the run's lines where weft train shows them", err[-300:] if code else "")
    same_run(case, case.storage / "command", case.undisturbed, "--engine ray")
    code, _, err = weft("train", file, "--engine=ray", "--set", "train.learning_rate=1")
    case.checks.that(code == 2 and "train.learning_rate" in err, "--engine ray, an unknown key: exit 2", "" if code == 2 else err[-300:])
    code, _, err = weft("train", file, "--engine", "ray", "--set", "launch.nodes=2")
    case.checks.that(code == 2 and "launch.nodes is decided by the placement group" in err, "--engine ray --set launch.nodes: exit 2", "" if code == 2 else err[-300:])
    code, _, err = weft("train", file, "--engine", "ray", RAY_ADDRESS=f"{HEAD}:1")
    case.checks.that(code == 2 and "there is no Ray cluster" in err, "--engine ray without a cluster: exit 2", "" if code == 2 else err[-300:])
    code, out, _ = weft("--version")
    case.checks.that(code == 0 and out.startswith("weft "), "without Ray's engine the program itself answers")


def check_term(case):
    """SIGTERM, which `ray job stop` and Kubernetes send: the step is completed and saved, exit 143."""
    run = sections(case.folder, steps=100_000, every=1000, schedule="constant")
    file = write_run_file(case.folder / "term.yaml", {"name": "term", "storage": str(case.storage), **run})
    words = [sys.executable, "-c", "from weft_ray.program import main; main()", "train", str(file), "--engine", "ray"]
    env = {**os.environ, "RAY_ADDRESS": case.cluster.address, "PYTHONPATH": str(case.folder / "driver")}
    with subprocess.Popen(words, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=case.folder) as command:
        for line in command.stdout:
            if "step " in line and "/100000" in line:
                break
        command.terminate()
        out = command.stdout.read()
    case.checks.that(command.returncode == 143, "--engine ray, SIGTERM: exit 143", "" if command.returncode == 143 else f"{command.returncode}: {out[-600:]}")
    steps = len(read_metrics(case.storage / "term")[0])
    saved = [path.name for path in (case.storage / "term/checkpoints").glob("step-*")]
    case.checks.equal(saved, [f"step-{steps:08}"], "--engine ray, SIGTERM: the last step is saved")


def example(case, name, *words, code=0):
    """Runs a program of examples/ray on the cluster, from the root of the repository."""
    env = {**os.environ, "RAY_ADDRESS": case.cluster.address, "PYTHONPATH": str(case.folder / "driver")}
    done = subprocess.run([sys.executable, ROOT / "examples/ray" / name, "--storage-path", case.storage, *map(str, words)], env=env, text=True,
                          capture_output=True, timeout=600, check=False, cwd=ROOT)
    errors = "\n".join(line for line in (done.stdout + done.stderr).splitlines() if "rror" in line or "warning" in line)  # among Ray's progress bars
    case.checks.that(done.returncode == code, f"examples/ray/{name}: exit {code}", errors[-1500:] if done.returncode != code else "")
    return done.stdout if code == 0 else done.stderr


def write_tables(case):
    """Parquet of workload 1's and 2's lines, and of workload 4's rows: (train, eval, rows)."""
    import pyarrow
    import pyarrow.parquet
    paths = [case.folder / f"{name}.parquet" for name in ("wiki", "wiki-eval", "sql")]
    for path, source in zip(paths, ("train", "test", "train")):
        rows = [json.loads(line) for line in (case.folder / f"data/{source}.jsonl").read_text().splitlines()]
        table = ([{"instruction": "Answer in SQL.", "input": row["question"], "output": row["sql"]} for row in rows] if path.stem == "sql" else
                 [{"text": f"{row['question']} {row['sql']}"} for row in rows])
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(table), path, row_group_size=64)
    return paths


def sets(words):
    small = ("data.tokenizer=bytes", "parallel.mode=exact", "launch.threads=1", "launch.hang_timeout_s=300")
    return [part for word in (*small, *words) for part in ("--set", word)]


def own_workload(case, number, name, *words):
    """The same run file and keys without Ray. A number of steps replaces its epochs."""
    run = yaml.safe_load(next((ROOT / "examples/workloads").glob(f"{number}-*.yaml")).read_text())
    del run["train"]["epochs"]
    file = write_run_file(case.folder / f"{name}.yaml", run)
    case.weft.call("train", file, "--run-dir", case.folder / "own" / name, "--quiet", *sets(words))
    same_run(case, case.storage / name, case.folder / "own" / name, f"workload {number}")


def check_examples(case):
    """Workload 1 and 2 in TP 2 x DP 2 on one node, workload 4 in dp 3 zero3 on three; Parquet through Ray Data: the bits of weft train alone."""
    import pyarrow.parquet
    wiki, held_out, table = write_tables(case)
    out = example(case, "qwen_tp_dp.py", "--name", "example1", "--dataset", wiki, "--debug-steps", 4, "--seq-length", 64, *sets(()))
    case.checks.that("step 4: loss" in out, "workload 1: the result is shown", out)
    own_workload(case, 1, "example1", "train.steps=4", "data.seq_length=64", f"data.train=[{wiki}]")
    missing = example(case, "qwen_tp_dp.py", "--resume-from", "exampel1", "--dataset", wiki, code=1)
    case.checks.that("has no run exampel1" in missing and "example1" in missing, "workload 1: a misspelt --resume-from is refused", missing[-400:])
    weights, more = case.folder / "own/example1/final", [f"data.eval=[{held_out}]"]
    example(case, "qwen_tp_dp.py", "--run-file", "examples/workloads/2-qwen-tutorial.yaml", "--name", "example2", "--dataset", wiki,
            "--init-weights", weights, "--debug-steps", 4, *sets(more))
    run = yaml.safe_load((case.storage / "example2/run.yaml").read_text())
    case.checks.equal([run["data"]["seq_length"], run["data"]["fraction"], run["checkpoint"]["every"], run["train"]["weight_decay"]], [512, 0.05, 0, 0.01],
                      "workload 2: the run file's own values stay")
    own_workload(case, 2, "example2", "train.steps=4", f"model.path={weights}", "model.init=pretrained", f"data.train=[{wiki}]", *more)
    case.cluster.want_nodes(3)
    folder = case.folder / "sql_splits"  # the training split is found by its name
    folder.mkdir()
    pyarrow.parquet.write_table(pyarrow.parquet.read_table(table).slice(0, 3), folder / "test-00000.parquet")
    shutil.copy(table, folder / "train-00000.parquet")
    out = example(case, "t5_text_to_sql.py", "--rows", folder, "--name", "example4", "--batch-size", 4, "--debug-steps", 4, *sets(()))
    case.checks.equal(out.count("answered: "), 3, "workload 4: the trained model answers")
    rows = pyarrow.parquet.read_table(table)
    parts = {"train": rows.slice(0, len(rows) - len(rows) // 10), "eval": rows.slice(len(rows) - len(rows) // 10)}
    wanted = [f"expected: {text}" for text in parts["eval"]["output"].to_pylist()[:3]]
    case.checks.equal([line for line in out.splitlines() if line.startswith("expected: ")], wanted, "workload 4: it answers rows that it was not trained with")
    for name, part in parts.items():
        pyarrow.parquet.write_table(part, case.folder / f"sql-{name}.parquet", row_group_size=64)
    run = yaml.safe_load((case.storage / "example4/run.yaml").read_text())
    case.checks.equal((run["launch"]["nodes"], run["train"]["precision"]), (3, "bf16"), "workload 4: on three nodes, in bf16")
    sent = [name for name, count in programs_sent(case.cluster).items() if count == 1]
    case.checks.that(len(sent) >= 3, "workload 4: the program was sent to each", str(sent))
    own_workload(case, 4, "example4", "parallel.dp=3", "train.global_batch=12", "train.micro_batch=4", "train.steps=4",
                 "data.eval_fraction=0", *(f"data.{name}=[{case.folder}/sql-{name}.parquet]" for name in parts))


def check_tune_rows(case, run_dir, table):
    """Ray's TuneReportCallback gives Tune a row per report while the trial runs: of a step, of its evaluation, of its checkpoint."""
    steps, evaluations = read_metrics(run_dir)
    saved = [str(path) for path in sorted((run_dir / "checkpoints").glob("step-*"))]
    has_path, has_loss = (table[name].notna() for name in ("checkpoint_path", "eval_loss"))
    case.checks.equal(list(table[~has_path & ~has_loss][["step", "loss"]].itertuples(index=False, name=None)), [(line["step"], line["loss"]) for line in steps],
                      "Tune, TuneReportCallback: a row per step, with its loss")
    case.checks.equal(list(table[~has_path & has_loss]["eval_loss"]), [line["eval_loss"] for line in evaluations], "Tune, TuneReportCallback: a row per evaluation")
    case.checks.equal(list(table[has_path]["checkpoint_path"]), saved, "Tune, TuneReportCallback: a row per checkpoint, with its path")


def check_tune(case):
    """A sweep over train.lr; trials have weft_ray from a runtime environment with the wheel, without a network, and rows from its working_dir."""
    import ray
    from ray import tune
    for home in case.cluster.homes.values():
        shutil.rmtree(program_cache(home), ignore_errors=True)
    ray.shutdown()
    ray.init(address=case.cluster.address, log_to_driver=False, logging_level="error",
             runtime_env={"py_modules": [str(case.wheel)], "working_dir": str(case.folder / "data")})
    run = {**sections(case.folder, steps=2), "parallel": {"dp": 2, "mode": "exact"}}
    run["data"] = {**run["data"], "train": ["train.jsonl"], "eval": ["test.jsonl"]}  # Tune gives a trial a directory of its own
    storage, live = str(case.storage), 1e-2

    def trial(config):
        import ray.train
        from ray.tune.integration.ray_train import TuneReportCallback
        from weft_ray import WeftTrainer
        callbacks = [TuneReportCallback()] if config["lr"] == live else []
        result = WeftTrainer(run, train_loop_config={"train.lr": config["lr"]}, scaling_config=ray.train.ScalingConfig(num_workers=2),
                             run_config=ray.train.RunConfig(name=f"tune-{config['lr']}", storage_path=storage, callbacks=callbacks)).fit()
        if not callbacks:
            tune.report({"loss": result.metrics["loss"]})
    rates = [live, 1e-3, 1e-4, 1e-5]
    grid = tune.Tuner(tune.with_resources(trial, {"cpu": 0.01}), param_space={"lr": tune.grid_search(rates)},
                      tune_config=tune.TuneConfig(metric="loss", mode="min", max_concurrent_trials=2),
                      run_config=tune.RunConfig(name="sweep", storage_path=storage, verbose=0)).fit()
    case.checks.equal((len(grid), grid.num_errors), (4, 0), "Tune: four trials")
    own = {rate: read_metrics(case.storage / f"tune-{rate}")[0][-1]["loss"] for rate in rates}
    case.checks.equal(grid.get_best_result().config["lr"], min(own, key=own.get), "Tune: the best rate is that of the runs' own metrics")
    check_tune_rows(case, case.storage / f"tune-{live}", next(one for one in grid if one.config["lr"] == live).metrics_dataframe)
    case.checks.equal([len(one.metrics_dataframe) for one in grid if one.config["lr"] != live], [1] * 3, "Tune: the others have the one row that they report themselves")
    case.checks.equal(set(programs_sent(case.cluster).values()), {0}, "Tune: the wheel of the runtime environment is used as it is")
