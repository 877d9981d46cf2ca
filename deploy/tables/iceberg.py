#!/usr/bin/env python3
"""Makes the files of a lake an Iceberg table, without copying them, and adds those that came since.

Usage: iceberg.py LAKE WAREHOUSE; the catalogue is WAREHOUSE/catalog.db, the table flowgauge.rows.
Needs pip's pyiceberg[sql-sqlite,pyarrow].
"""

import pathlib
import sys

import pyarrow
import pyarrow.parquet
from pyiceberg.catalog.sql import SqlCatalog

TABLE = "flowgauge.rows"


def main():
    lake, warehouse = (
        (pathlib.Path(it).resolve() for it in sys.argv[1:3])
        if len(sys.argv) == 3
        else sys.exit(__doc__)
    )
    warehouse.mkdir(parents=True, exist_ok=True)
    catalog = SqlCatalog(
        "flowgauge", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=warehouse.as_uri()
    )
    catalog.create_namespace_if_not_exists("flowgauge")
    table = catalog.load_table(TABLE) if catalog.table_exists(TABLE) else None
    known = set(table.inspect.files().column("file_path").to_pylist()) if table else set()
    files = [
        str(file) for file in sorted(lake.glob("date=*/hour=*/*.parquet")) if str(file) not in known
    ]
    if not files:
        print("nothing new")
        return
    # A column that a file does not have is NULL.
    schema = pyarrow.unify_schemas([pyarrow.parquet.read_schema(file) for file in files])
    schema = pyarrow.schema([field.with_nullable(True) for field in schema])
    if table is None:
        table = catalog.create_table(TABLE, schema=schema)
    else:
        with table.update_schema() as update:
            update.union_by_name(schema)
    table.add_files(files)
    print(f"{len(files)} files added to {TABLE}: {table.metadata_location}")


if __name__ == "__main__":
    main()
