#!/usr/bin/env python3
"""Distinct flows of a fleet: unites the windows of a lake by period, site and direction.

The result is a table of Parquet files, partitioned by day: estimate, 95 % interval, the united sketch (an image of Apache DataSketches), and what it
rests on. A day is written as a whole, so the job may run again when windows arrive late: with --changed-since it recomputes the days that files which
came since then belong to, and leaves the others alone.

Rows whose hashes, keys, registers, headers or versions differ are refused: Spark could unite them, and the number would be wrong.
"""

import argparse
import datetime
import math
import sys

from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.utils import AnalysisException

# Version of the columns that this job knows.
SCHEMA = 1
# What must be the same in all rows that are united.
IDENTITY = ["schema", "hash", "distinct_key", "registers", "inner"]
# What tells a row from all others.
ROW = ["host", "run", "source", "direction", "window", "start_ns"]
PERIODS = {"hour": "hour", "day": "day", "minute": "minute"}


class Refused(Exception):
    """Rows that no number can be made of together, or none at all."""


def options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("lake", help="directory or URL that agents write to")
    parser.add_argument("output", help="directory or URL of the result")
    parser.add_argument("--by", choices=sorted(PERIODS), default="hour", help="length of a period [default: hour]")
    parser.add_argument("--sites", metavar="FILE", help="CSV with the columns host and site [default: each host is a site]")
    parser.add_argument("--from", dest="begin", metavar="DAY", type=datetime.date.fromisoformat, help="first day, UTC")
    parser.add_argument("--to", dest="end", metavar="DAY", type=datetime.date.fromisoformat, help="last day, UTC")
    parser.add_argument("--changed-since", metavar="TIME", help="only days of which files came since then, such as 2026-11-23T14:00:00Z")
    return parser.parse_args()


def lake(spark, path):
    """All rows, of files with and without some columns."""
    try:
        # Days and hours of directories are those of `time`, which rows have themselves.
        return spark.read.option("mergeSchema", True).option("recursiveFileLookup", True).parquet(path)
    except AnalysisException as error:
        raise Refused(f"cannot read {path}: {str(error).splitlines()[0]}") from error


def check(rows):
    """Refuses what cannot be united, and gives the name of the column of sketches."""
    missing = [name for name in IDENTITY + ROW + ["time"] if name not in rows.columns]
    if missing:
        raise Refused(f"no lake of flowgauge's with distinct flows: the columns {', '.join(missing)} are missing")
    rows = rows.where(F.col("distinct_key").isNotNull() | (F.col("schema") != SCHEMA))
    found = rows.groupBy(*IDENTITY).agg(F.min("_metadata.file_path").alias("file")).orderBy("file").collect()
    if not found:
        raise Refused("no row has distinct flows")
    told = [f"{row.file} has " + " ".join(f"{name}={row[name]}" for name in IDENTITY) for row in found]
    if len(found) > 1:
        raise Refused("rows that cannot be united: " + "; ".join(told))
    [row] = found
    if row.schema != SCHEMA:
        raise Refused(f"this job knows version {SCHEMA} of the columns: {told[0]}")
    name = f"hll_{row.distinct_key.replace('-', '_')}_p{int(math.log2(row.registers))}_{row.hash}"
    if name not in rows.columns:
        raise Refused(f"the column {name} is missing: {told[0]}")
    return name, row.registers


def unite(rows, sketches, registers, period):
    """One row for each period, site and direction."""
    # A file that was copied twice counts once.
    rows = rows.dropDuplicates(ROW)
    rows = rows.withColumn("period", F.date_trunc(period, F.col("time")))
    keys = ["period", "site", "direction"]
    # Of a run, `lost_rows` only grows.
    run = Window.partitionBy("host", "run").orderBy("window").rowsBetween(Window.unboundedPreceding, -1)
    rows = rows.withColumn("newly_lost", F.col("lost_rows") - F.coalesce(F.max("lost_rows").over(run), F.lit(0)))
    united = rows.groupBy(*keys).agg(
        # Without `true` other numbers of registers are an error.
        F.expr(f"hll_union_agg(`{sketches}`, false)").alias("sketch"),
        F.count("*").alias("windows"),
        F.countDistinct("host").alias("hosts"),
        F.countDistinct("host", "source").alias("sources"),
        F.sum((~F.col("complete")).cast("long")).alias("incomplete"),
        F.sum("newly_lost").alias("lost_rows"),
        F.sum("packets").alias("packets"),
        F.sum("bytes").alias("bytes"),
        F.sum("dropped").alias("dropped"),
        F.min("start_ns").alias("start_ns"),
        F.max("end_ns").alias("end_ns"),
    )
    # DataSketches' estimate of sketches that were united, whose relative error is that of HyperLogLog.
    error = 1.96 * 1.04 / math.sqrt(registers)
    estimate = F.expr("hll_sketch_estimate(sketch)")
    return (
        united.withColumn("estimate", estimate)
        .withColumn("low", F.col("estimate") / (1 + error))
        .withColumn("high", F.col("estimate") / (1 - error))
        .withColumn("day", F.to_date("period"))
    )


def run(spark, arguments):
    rows = lake(spark, arguments.lake)
    sketches, registers = check(rows)
    rows = rows.where(F.col("distinct_key").isNotNull())
    day = F.to_date("time")
    if arguments.changed_since:
        since = F.to_timestamp(F.lit(arguments.changed_since))
        days = [row.day for row in rows.where(F.col("_metadata.file_modification_time") >= since).select(day.alias("day")).distinct().collect()]
        rows = rows.where(day.isin(days)) if days else rows.limit(0)
    if arguments.begin:
        rows = rows.where(day >= F.lit(arguments.begin))
    if arguments.end:
        rows = rows.where(day <= F.lit(arguments.end))
    if arguments.sites:
        sites = spark.read.csv(arguments.sites, header=True)
        rows = rows.join(F.broadcast(sites.select("host", "site")), "host", "left")
        rows = rows.withColumn("site", F.coalesce("site", F.lit("unknown")))
    else:
        rows = rows.withColumn("site", F.col("host"))
    result = unite(rows, sketches, registers, PERIODS[arguments.by])
    result.write.mode("overwrite").partitionBy("day").parquet(arguments.output)


def main():
    spark = (
        SparkSession.builder.appName("flowgauge-distinct")
        .config("spark.sql.session.timeZone", "UTC")
        # Only days that are written are replaced.
        .config("spark.sql.sources.partitionOverwriteMode", "dynamic")
        .getOrCreate()
    )
    try:
        run(spark, options())
    except Refused as refused:
        sys.exit(f"distinct.py: {refused}")
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
