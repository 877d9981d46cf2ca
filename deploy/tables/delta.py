#!/usr/bin/env python3
"""Makes a lake a Delta table where it is, without copying files, and adds those that came since.

Usage: delta.py LAKE; the log is LAKE/_delta_log. Needs pip's deltalake and pyarrow.
"""

import json
import pathlib
import sys

import pyarrow
import pyarrow.parquet
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType
from deltalake.transaction import AddAction

PARTITIONS = ["date", "hour"]


def action(lake, file):
    """Returns the action of the log that adds a file."""
    name, status = file.relative_to(lake), file.stat()
    return AddAction(
        path=str(name),
        size=status.st_size,
        partition_values=dict(part.split("=", maxsplit=1) for part in name.parts[:-1]),
        modification_time=int(status.st_mtime * 1000),
        data_change=True,
        stats=json.dumps({"numRecords": pyarrow.parquet.read_metadata(file).num_rows}),
    )


def main():
    [lake] = (pathlib.Path(it) for it in sys.argv[1:]) if len(sys.argv) == 2 else sys.exit(__doc__)
    if not DeltaTable.is_deltatable(str(lake)):
        # A column that a file does not have is NULL.
        files = sorted(lake.glob("date=*/hour=*/*.parquet"))
        schema = pyarrow.unify_schemas([pyarrow.parquet.read_schema(file) for file in files])
        fields = Schema.from_arrow(
            pyarrow.schema([field.with_nullable(True) for field in schema])
        ).fields
        schema = Schema(fields + [Field(name, PrimitiveType("string")) for name in PARTITIONS])
        DeltaTable.create(str(lake), schema, partition_by=PARTITIONS)
    table = DeltaTable(str(lake))
    known = (
        set(table.get_add_actions(flatten=True).column("path").to_pylist())
        if table.version() > 0
        else set()
    )
    files = [
        file
        for file in sorted(lake.glob("date=*/hour=*/*.parquet"))
        if str(file.relative_to(lake)) not in known
    ]
    if not files:
        print("nothing new")
        return
    have = {field.name for field in table.schema().fields}
    schema = pyarrow.unify_schemas([pyarrow.parquet.read_schema(file) for file in files])
    new = Schema.from_arrow(
        pyarrow.schema([field.with_nullable(True) for field in schema if field.name not in have])
    ).fields
    if new:
        table.alter.add_columns(new)
        table = DeltaTable(str(lake))
    table.create_write_transaction(
        [action(lake, file) for file in files], "append", table.schema(), PARTITIONS
    )
    print(f"{len(files)} files added: version {DeltaTable(str(lake)).version()}")


if __name__ == "__main__":
    main()
