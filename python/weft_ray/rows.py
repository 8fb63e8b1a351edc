"""weft_ray/rows.py: a ray.data.Dataset becomes a file of the run, and from then on has weft's order and position.

write_rows is sent to a node by value: it uses the standard library and what Ray Data needs itself.
"""

import filecmp
import os
import re

ROWS = 8192  # of a batch, which is one row group: the same rows give the same bytes


def template_columns(texts):
    """The columns that templates name, in order."""
    found = [name for text in texts for name in re.findall(r"\{(\w+)\}", text.replace("{{", "").replace("}}", ""))]
    return list(dict.fromkeys(found))


def check_dataset(name, dataset, columns, any_type):
    """It has the columns, with text or numbers in them; any_type: a column that may hold anything (chat messages)."""
    import pyarrow
    schema = dataset.schema()
    if schema is None:
        raise ValueError(f"datasets[{name!r}] has no rows")
    types = dict(zip(schema.names, schema.types))
    missing = [column for column in columns if column not in types]
    if missing:
        raise ValueError(f"datasets[{name!r}] has no column {', '.join(missing)}, which the run file's template names; "
                         f"it has {', '.join(schema.names)}")
    of_text = (pyarrow.types.is_string, pyarrow.types.is_large_string, pyarrow.types.is_integer, pyarrow.types.is_floating,
               pyarrow.types.is_boolean)
    for column in columns:
        kind = types[column]
        if column != any_type and not (isinstance(kind, pyarrow.DataType) and any(test(kind) for test in of_text)):
            raise ValueError(f"datasets[{name!r}]: column {column} has the type {kind}; text and numbers are supported")


def write_rows(dataset, columns, folder, name):
    """The path of the file. One that is there and the same is left alone: a run that resumes finds the file that it knows."""
    import pyarrow.parquet
    os.makedirs(folder, exist_ok=True)
    path, draft = os.path.join(folder, f"{name}.parquet"), os.path.join(folder, f".{name}.writing")
    dataset.context.execution_options.preserve_order = True
    writer = None
    for batch in dataset.select_columns(columns).iter_batches(batch_size=ROWS, batch_format="pyarrow"):
        batch = batch.select(columns).replace_schema_metadata(None).combine_chunks()
        writer = writer or pyarrow.parquet.ParquetWriter(draft, batch.schema)
        writer.write_table(batch.cast(writer.schema), row_group_size=ROWS)
    if writer is None:
        raise ValueError(f"datasets[{name!r}] has no rows")
    writer.close()
    if os.path.exists(path) and filecmp.cmp(path, draft, shallow=False):
        os.remove(draft)
    else:
        os.replace(draft, path)
    return path
