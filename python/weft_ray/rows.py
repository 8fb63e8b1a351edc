"""weft_ray/rows.py: a ray.data.Dataset becomes a file of the run, and from then on has weft's order and position.

write_rows is sent to a node by value: it uses the standard library and what Ray Data needs itself.
"""

import contextlib
import filecmp
import glob
import hashlib
import itertools
import os
import re
import shutil
import tempfile
import time

ROWS = 8192  # of a batch, which is one row group: the same rows give the same bytes
FIRST_ROWS = 1000  # that show the types of a column of pandas
PIECE_BYTES = 1 << 20
DRAFT_S = 86_400  # since something was last written: its task was killed


def template_columns(texts):
    """The columns that templates name, in order."""
    found = [name for text in texts for name in re.findall(r"\{(\w+)\}", text.replace("{{", "").replace("}}", ""))]
    return list(dict.fromkeys(found))


def check_dataset(name, dataset, columns, any_type):
    """Raises a ValueError unless the Dataset has the columns, with text or numbers in them; any_type: a column that may hold anything (chat messages)."""
    import pyarrow
    with failing_as(ValueError, name):
        schema = dataset.schema()
    if schema is None:
        raise ValueError(f"datasets[{name!r}] has no rows")
    types = dict(zip(schema.names, schema.types))
    missing = [column for column in columns if column not in types]
    if missing:
        raise ValueError(f"datasets[{name!r}] has no column {', '.join(missing)}, which the run file's template names; "
                         f"it has {', '.join(schema.names)}")
    of_text = (pyarrow.types.is_string, pyarrow.types.is_large_string, is_string_view, pyarrow.types.is_integer, pyarrow.types.is_floating,
               pyarrow.types.is_boolean)
    unknown = [column for column in columns if column != any_type and not isinstance(types[column], pyarrow.DataType)]
    if unknown:  # columns of pandas hold objects, of which their first rows show what they are
        with failing_as(ValueError, name):
            first = dataset.select_columns(unknown).take_batch(FIRST_ROWS, batch_format="pyarrow")
        types.update(zip(first.schema.names, first.schema.types))
    for column in columns:
        kind = types[column]
        if column != any_type and not (isinstance(kind, pyarrow.DataType) and any(test(kind) for test in of_text)):
            raise ValueError(f"datasets[{name!r}]: column {column} has the type {kind}; text and numbers are supported")


def is_string_view(kind):
    """A type that older versions of Arrow do not have."""
    import pyarrow
    return getattr(pyarrow.types, "is_string_view", lambda _: False)(kind)


def failure_text(error):
    """Without tracebacks. The cause of a function's failure, which Ray Data wraps, reaches this process only as text."""
    cause = getattr(error, "cause", None) or error
    first, sign, _ = str(error).partition("\n\nThe above exception was the direct cause")
    return "\n".join([*first.splitlines()[-1:]] * bool(sign) + [str(cause).strip() or type(cause).__name__])


@contextlib.contextmanager
def failing_as(kind, name):
    """What is called in here may execute the Dataset: whatever fails is the Dataset's failure, not, for example, that of the file that its rows are written to."""
    try:
        yield
    except Exception as error:
        raise kind(f"datasets[{name!r}] cannot be read: {failure_text(error)}") from None


def read_batches(dataset, columns, name):
    with failing_as(RuntimeError, name):
        dataset.context.execution_options.preserve_order = True
        yield from dataset.select_columns(columns).iter_batches(batch_size=ROWS, batch_format="pyarrow")


def write_draft(dataset, columns, name, draft):
    import pyarrow.parquet
    writer = None
    for batch in read_batches(dataset, columns, name):
        batch = batch.select(columns).replace_schema_metadata(None).combine_chunks()
        writer = writer or pyarrow.parquet.ParquetWriter(draft, pyarrow.schema(
            [field.with_type(pyarrow.string()) if is_string_view(field.type) else field for field in batch.schema]))
        writer.write_table(batch.cast(writer.schema), row_group_size=ROWS)
    if writer is None:
        raise ValueError(f"datasets[{name!r}] has no rows")
    writer.close()


def put_new(draft, path):
    """False: the file exists already. A link, unlike a rename, does not replace one that was made in the meantime."""
    if os.path.exists(path):
        return False
    try:
        os.link(draft, path)
        os.remove(draft)
    except FileExistsError:
        return False
    except OSError:  # a file system without links
        os.rename(draft, path)
    return True


def has_same_rows(one, other):
    """Another version of Arrow writes other bytes."""
    import pyarrow.parquet
    files = [pyarrow.parquet.ParquetFile(path) for path in (one, other)]
    if not files[0].schema_arrow.equals(files[1].schema_arrow) or files[0].metadata.num_rows != files[1].metadata.num_rows:
        return False
    pairs = itertools.zip_longest(*(file.iter_batches(batch_size=ROWS) for file in files))
    return all(a is not None and b is not None and (a.equals(b) or a.serialize().equals(b.serialize())) for a, b in pairs)  # equals() finds NaN unequal


def sweep(folder, name):
    """Deletes drafts of tasks that were killed."""
    for place in glob.glob(os.path.join(glob.escape(folder), f".{name}-*")):
        with contextlib.suppress(OSError):
            if time.time() - max(os.path.getmtime(path) for path in (place, *glob.glob(os.path.join(glob.escape(place), "*")))) > DRAFT_S:
                shutil.rmtree(place)


def place_rows(draft, folder, name):
    """(path, whether it is a new file next to an existing one). A file is never replaced: a run may be reading it.

    Rows that differ from those of the existing file get a name of their own, by which weft recognizes and refuses them.
    """
    digest = hashlib.sha256()
    with open(draft, "rb") as file:
        while piece := file.read(PIECE_BYTES):
            digest.update(piece)
    names = (f"{name}.parquet", f"{name}-{digest.hexdigest()[:12]}.parquet")
    for number, path in enumerate(os.path.join(folder, one) for one in names):
        if put_new(draft, path):
            return path, number > 0
        if filecmp.cmp(path, draft, shallow=False) or has_same_rows(path, draft):
            return path, False
    raise RuntimeError(f"{path} exists, but does not hold the rows that its name stands for; remove it")


def write_rows(dataset, columns, folder, name):
    """As place_rows. An existing file with the same rows is left alone: a run that resumes finds the file that it started with."""
    os.makedirs(folder, exist_ok=True)
    sweep(folder, name)
    with tempfile.TemporaryDirectory(dir=folder, prefix=f".{name}-") as place:
        draft = os.path.join(place, "rows")
        write_draft(dataset, columns, name, draft)
        return place_rows(draft, folder, name)


def remove_rows(paths):
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)
