#!/usr/bin/env python3
"""Rows as weft reads them, compared with pyarrow, datasets and Python's own readers.

    python3 tests/interop/data_interop.py --weft build/weft

Parquet of every codec and encoding that pyarrow writes, the files of parquet-testing whose columns are
strings or numbers, data sets that the Hugging Face package saved, CSV, packed JSON lines. Every file of
parquet-testing/bad_data must end in an error. Of the codecs and of the good files a part is read, chosen by
the commit, all with FULL=1.
"""

import csv
import gzip
import itertools
import json
import math
import random
import subprocess

import pyarrow as pa
import pyarrow.parquet as pq
from common import Weft, run_program, shared_folder

ALL = 10 ** 9


def weft_rows(weft, path):
    return weft.json("inspect", path, "--rows", ALL)["sample"]


def shown(value):
    """A cell as weft shows it: text, or None."""
    if value is None or isinstance(value, (list, dict)):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    return str(value)


def same(ours, theirs):
    """Equal text; floats as numbers, since the shortest digits of a float32 are not those of a float64."""
    if isinstance(theirs, float):
        if ours is None:
            return False
        value = float(ours)
        return math.isnan(theirs) and math.isnan(value) or math.isclose(value, theirs, rel_tol=1e-6)
    return ours == shown(theirs)


def compare(checks, weft, path, table, what):
    rows = weft_rows(weft, path)
    theirs = table.to_pylist()
    if not checks.equal(len(rows), len(theirs), f"{what}: number of rows"):
        return
    for i, (a, b) in enumerate(zip(rows, theirs)):
        for name, value in b.items():
            if not same(a[name], value):
                checks.that(False, f"{what}: row {i}, column {name}", f"got {a[name]!r}, wanted {value!r}")
                return
    checks.that(True, f"{what}: {len(rows)} rows of {len(table.column_names)} columns")


def made_table(rng, num_rows):
    words = ["weft", "warp", "é", "日本", "", "a\nb", "\U0001F9F5"]
    return pa.table({
        "text": pa.array([None if rng.random() < 0.1 else " ".join(rng.choices(words, k=rng.randrange(9)))
                          for _ in range(num_rows)], pa.string()),
        "label": pa.array([rng.choice(["neg", "pos", None]) for _ in range(num_rows)]).dictionary_encode(),
        "n": pa.array([rng.randrange(-2 ** 40, 2 ** 40) for _ in range(num_rows)], pa.int64()),
        "x": pa.array([None if rng.random() < 0.1 else rng.gauss(0, 1) for _ in range(num_rows)], pa.float64()),
        "y": pa.array([rng.gauss(0, 1) for _ in range(num_rows)], pa.float32()),
        "large": pa.array([str(i) for i in range(num_rows)], pa.large_string()),
        "b": pa.array([rng.random() < 0.5 for _ in range(num_rows)]),
        "messages": pa.array([[{"role": "user", "content": str(i)}] * rng.randrange(3) for i in range(num_rows)]),
    })


def check_codecs(checks, weft, folder):
    rng = random.Random(1)
    table = made_table(rng, 700)
    codecs = ("none", "snappy", "gzip", "brotli", "zstd", "lz4")
    cases = itertools.product(codecs, ("dictionary", "plain"), ("1.0", "2.0"))
    for codec, values, version in checks.sample(cases, 4):
        path = folder / f"{codec}.parquet"
        pq.write_table(table, path, compression=codec, use_dictionary=values == "dictionary", row_group_size=150,
                       data_page_version=version, data_page_size=2000)
        compare(checks, weft, path, table, f"Parquet, {codec}, {values}, pages {version}")
    for encoding in ("DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"):
        path = folder / "encoded.parquet"
        pq.write_table(table.select(["text", "large"]), path, use_dictionary=False,
                       column_encoding={"text": encoding, "large": encoding})
        compare(checks, weft, path, table.select(["text", "large"]), f"Parquet, {encoding}")
    for codec in (None, "lz4", "zstd"):
        path = folder / "t.arrow"
        with pa.OSFile(str(path), "wb") as out, pa.ipc.new_file(
                out, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as file:
            file.write_table(table, max_chunksize=200)
        compare(checks, weft, path, table, f"Arrow file, {codec}")


def is_simple(field):
    t = field.type
    return (pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_binary(t) or pa.types.is_integer(t)
            or pa.types.is_floating(t) or pa.types.is_boolean(t) or pa.types.is_fixed_size_binary(t))


def check_parquet_testing(checks, weft, folder):
    root = shared_folder("data", "vectors")
    if not root:
        checks.without_data("parquet-testing")
        return
    compared = 0
    files = [path.relative_to(root) for place in ("parquet-testing/data", "duckdb-parquet")
             for path in sorted((root / place).glob("*.parquet"))]
    chosen = checks.sample(files, 4)
    for path in (root / path for path in chosen):
        try:
            table = pq.read_table(path, page_checksum_verification=True)
        except (pa.ArrowException, OSError):
            # What pyarrow rejects may be rejected, but cleanly.
            done = subprocess.run([weft.path, "inspect", path, "--rows", str(ALL)], capture_output=True, timeout=60,
                                  check=False)
            checks.that(done.returncode in (0, 2), f"{path.name}: refused by pyarrow", f"exit {done.returncode}")
            continue
        simple = [f.name for f in table.schema if is_simple(f)]
        if not simple or not table.num_rows or len(set(table.column_names)) < len(table.column_names):
            continue
        compare(checks, weft, path, table.select(simple), path.name)
        compared += 1
    least = 30 if chosen == files else 5
    checks.that(compared >= least, f"{compared} files of parquet-testing and duckdb compared")
    for path in sorted((root / "parquet-testing/bad_data").glob("*.parquet")):
        # ARROW-GH-43605 has indices of no bits, which Arrow now treats as a dictionary of one value.
        if path.stem == "ARROW-GH-43605":
            compare(checks, weft, path, pq.read_table(path), f"bad {path.name}, which Arrow reads")
            continue
        done = subprocess.run([weft.path, "inspect", path, "--rows", str(ALL)], capture_output=True, text=True,
                              timeout=60, check=False)
        checks.that(done.returncode == 2 and path.name in done.stderr, f"bad {path.name} is refused",
                    f"exit {done.returncode}: {done.stderr[:200].strip()}")


def check_datasets(checks, weft, folder):
    import datasets
    data = datasets.Dataset.from_list([{"text": f"row {i}", "n": i} for i in range(2500)])
    data.save_to_disk(str(folder / "saved"), num_shards=3)
    compare(checks, weft, folder / "saved", data.data.table, "datasets, saved to disk in three shards")


def check_csv(checks, weft, folder):
    rng = random.Random(2)
    pieces = ["a", ",", '"', "\n", " ", "é", "\t", "x y", ""]
    rows = [["".join(rng.choices(pieces, k=rng.randrange(6))) for _ in range(3)] for _ in range(500)]
    rows = [[first + "|", *rest] for first, *rest in rows]  # no row is blank
    for name, dialect in (("t.csv", "excel"), ("u.csv", "unix"), ("t.tsv", "excel-tab")):
        with open(folder / name, "w", newline="", encoding="utf-8") as out:
            writer = csv.writer(out, dialect)
            writer.writerows([["one", "two", "three"], *rows])
        got = [list(row.values()) for row in weft_rows(weft, folder / name)]
        checks.equal(got, rows, f"CSV, {dialect}")
    with gzip.open(folder / "t.csv.gz", "wb") as out:
        out.write((folder / "t.csv").read_bytes())
    checks.equal([list(row.values()) for row in weft_rows(weft, folder / "t.csv.gz")], rows, "CSV in gzip")


def check_packed(checks, weft, folder):
    rows = [{"text": f"zeile {i} " + "ü" * (i % 50)} for i in range(20000)]
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    (folder / "t.jsonl.gz").write_bytes(gzip.compress(lines))
    with pa.CompressedOutputStream(str(folder / "t.jsonl.zst"), "zstd") as out:
        out.write(lines)
    for name in ("t.jsonl.gz", "t.jsonl.zst"):
        checks.equal(weft_rows(weft, folder / name), rows, f"{name}: 20,000 rows")


def body(args, checks, folder):
    weft = Weft(args.weft)
    for part in (check_codecs, check_parquet_testing, check_datasets, check_csv, check_packed):
        part(checks, weft, folder)


if __name__ == "__main__":
    run_program(__doc__, body)
