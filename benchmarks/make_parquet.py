#!/usr/bin/env python3
"""benchmarks/make_parquet.py OUT MEGABYTES TEXT_FILE: a Parquet file of that much text, for data_bench.

Rows are stretches of the text file (wikitext), shuffled, 1,000 to 3,000 characters each; row groups of
20,000 rows, zstd; a second column that nobody asks for.
"""

import random
import sys

import pyarrow as pa
import pyarrow.parquet as pq

out, megabytes, source = sys.argv[1], int(sys.argv[2]), sys.argv[3]
text = open(source, encoding="utf-8").read()
rng = random.Random(1)
schema = pa.schema([("text", pa.string()), ("noise", pa.string())])
written = 0
with pq.ParquetWriter(out, schema, compression="zstd") as writer:
    while written < megabytes * 10 ** 6:
        rows = []
        for _ in range(20000):
            at = rng.randrange(len(text) - 3000)
            rows.append(text[at:at + rng.randrange(1000, 3000)])
        written += sum(len(row.encode()) for row in rows)
        noise = [str(rng.random()) * 3 for _ in rows]
        writer.write_table(pa.table({"text": rows, "noise": noise}, schema=schema), row_group_size=20000)
print(f"{written} bytes of text")
