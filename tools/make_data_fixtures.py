#!/usr/bin/env python3
"""tools/make_data_fixtures.py: small tables and packed files for the tests of src/data.

    python3 tools/make_data_fixtures.py tests/data/data      (pyarrow 26)
"""

import gzip
import json
import sys
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

NUM_ROWS = 1000


def rows():
    """Every kind of cell that a template may see; the tests compute the same values."""
    for i in range(NUM_ROWS):
        yield {
            "text": None if i % 7 == 3 else f"row {i} " + "é" * (i % 5),
            "id": i,
            "score": i / 4,
            "flag": i % 2 == 0,
            "label": ["low", "middle", "high"][i % 3],
            "messages": [{"role": "user", "content": f"q{i}"}, {"role": "assistant", "content": f"a{i}"}],
        }


def made_types():
    """Types whose values have no plain text in Arrow."""
    ids = [uuid.UUID(int=i << 64 | i).bytes for i in range(3)]
    return pa.table({
        "view": pa.array([["a", "b"], None, []], pa.list_view(pa.string())),
        "runs": pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["x", None])),
        "uuid": pa.ExtensionArray.from_storage(pa.uuid(), pa.array(ids, pa.binary(16))),
        "wait": pa.array([5, None, 7], pa.duration("ms")),
        "zone": pa.array([0, 1700000000, None], pa.timestamp("s", "Europe/Berlin")),
        "bare": pa.array([0, 1700000000, None], pa.timestamp("s")),
        "large": pa.array([2 ** 64 - 1, 1, None], pa.uint64()),
        "larges": pa.array([[2 ** 64 - 1], [1], None], pa.list_(pa.uint64())),
    })


def write_arrow(table, path):
    with pa.OSFile(str(path), "wb") as out, pa.ipc.new_file(out, table.schema) as file:
        file.write_table(table)


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(list(rows()))
    table = table.set_column(4, "label", table["label"].combine_chunks().dictionary_encode())
    pq.write_table(table, folder / "rows.parquet", row_group_size=300, compression="zstd",
                   write_page_checksum=True)
    with pa.OSFile(str(folder / "rows.arrow"), "wb") as out, pa.ipc.new_file(out, table.schema) as file:
        file.write_table(table, max_chunksize=256)
    with pa.OSFile(str(folder / "stream.arrow"), "wb") as out, pa.ipc.new_stream(out, table.schema) as file:
        file.write_table(table, max_chunksize=400)
    write_arrow(made_types(), folder / "types.arrow")
    # Periods as pandas writes them: numbers with the name of an extension type that Arrow does not know.
    period = pa.field("when", pa.int64(), metadata={"ARROW:extension:name": "pandas.period"})
    write_arrow(pa.table([pa.array([648])], pa.schema([period])), folder / "period.arrow")
    whole = (folder / "rows.parquet").read_bytes()
    (folder / "cut.parquet").write_bytes(whole[:len(whole) // 2])
    # One byte of a page changed: its checksum reveals it.
    bad = bytearray(whole)
    bad[200] ^= 0xFF
    (folder / "flipped.parquet").write_bytes(bad)
    lines = "".join(json.dumps({"text": row["text"], "id": row["id"]}, ensure_ascii=False) + "\n"
                    for row in rows()).encode()
    half = lines.index(b"\n", len(lines) // 2) + 1
    # Two members, two frames: tools that append make such files.
    packed = [gzip.compress(part, mtime=0) for part in (lines[:half], lines[half:])]
    (folder / "rows.jsonl.gz").write_bytes(b"".join(packed))
    (folder / "cut.jsonl.gz").write_bytes(b"".join(packed)[:-20])
    codec = pa.Codec("zstd")
    frames = [codec.compress(part, asbytes=True) for part in (lines[:half], lines[half:])]
    (folder / "rows.jsonl.zst").write_bytes(b"".join(frames))
    (folder / "cut.jsonl.zst").write_bytes(b"".join(frames)[:-20])
    open_quote = b'a,b\n1,"x\ny"\n2,"never closed\n3,z\n'
    (folder / "open_quote.csv.gz").write_bytes(gzip.compress(open_quote, mtime=0))
    (folder / "open_quote.csv.zst").write_bytes(codec.compress(open_quote, asbytes=True))
    print(f"{sum(p.stat().st_size for p in folder.iterdir())} bytes")


if __name__ == "__main__":
    main()
