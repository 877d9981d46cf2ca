#!/usr/bin/env python3
"""Distinct flows of a fleet: unites the windows of a lake by period, site and direction.

The result is a table of Parquet files, partitioned by day: estimate, 95 % interval, the united
sketch (an image of Apache DataSketches), and what it rests on. A day is written as a whole, so the
job may run again when windows arrive late. Beside its output it keeps, for each day, the list of
files that the day was made of; with --unread it computes the days of which there are other files,
and leaves the rest alone.

Rows whose hashes, keys, registers, headers or versions differ are refused: Spark could merge them,
and the number would be wrong.
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
# Columns of which jobs make use. One that a file does not have is NULL there: agents that measure
# less break no job, and no file is opened for its schema alone. `date` and `hour` are of
# directories.
COLUMNS = """
    schema BIGINT, host STRING, run STRING, source STRING, direction STRING, time TIMESTAMP,
    window BIGINT, last_window BIGINT, silent_windows BIGINT, start_ns BIGINT, end_ns BIGINT,
    scheduled_start_ns BIGINT, scheduled_end_ns BIGINT, complete BOOLEAN, late_ns BIGINT,
    inner BOOLEAN, checksum BIGINT, packets BIGINT, bytes BIGINT, ipv4_packets BIGINT,
    ipv6_packets BIGINT, non_ip BIGINT, truncated BIGINT, bad_header BIGINT, late BIGINT,
    unmatched BIGINT, unmatched_bytes BIGINT, merged BIGINT, dropped BIGINT,
    drops ARRAY<STRUCT<cause: STRING, packets: BIGINT>>, lost_rows BIGINT,
    hash STRING, row_hash STRING, distinct_key STRING, registers BIGINT, distinct DOUBLE,
    distinct_low DOUBLE, distinct_high DOUBLE, entropy DOUBLE, entropy_low DOUBLE,
    entropy_high DOUBLE, entropy_sum BIGINT, entropy_key STRING, entropy_sketch STRING,
    entropy_rows BIGINT, entropy_columns BIGINT, entropy_cells ARRAY<BIGINT>,
    entropy_full ARRAY<BIGINT>, entropy2 DOUBLE, entropy2_low DOUBLE, entropy2_high DOUBLE,
    entropy2_sum BIGINT, entropy2_key STRING, entropy2_sketch STRING, entropy2_rows BIGINT,
    entropy2_columns BIGINT, entropy2_cells ARRAY<BIGINT>, entropy2_full ARRAY<BIGINT>,
    frequency_key STRING, frequency_sketch STRING, frequency_rows BIGINT,
    frequency_columns BIGINT, frequency_cells ARRAY<BIGINT>, frequency_full ARRAY<BIGINT>,
    membership_key STRING, membership_false_positive DOUBLE, heavy_key STRING, heavy_unit STRING,
    heavy_algorithm STRING, heavy_slots BIGINT, heavy_total BIGINT, heavy_packets BIGINT,
    heavy_least BIGINT, heavy_least_elsewhere BIGINT,
    heavy ARRAY<STRUCT<flow: STRING, count: BIGINT, inherited: BIGINT>>,
    spread_key STRING, spread_of STRING, spread_rows BIGINT, spread_columns BIGINT,
    spread_registers BIGINT, spread_rest DOUBLE,
    spread ARRAY<STRUCT<flow: STRING, others: DOUBLE, low: DOUBLE, high: DOUBLE>>,
    spread2_key STRING, spread2_of STRING, spread2_rows BIGINT, spread2_columns BIGINT,
    spread2_registers BIGINT, spread2_rest DOUBLE,
    spread2 ARRAY<STRUCT<flow: STRING, others: DOUBLE, low: DOUBLE, high: DOUBLE>>,
    length_mean DOUBLE, length_p50 DOUBLE, lengths_full BIGINT,
    lengths ARRAY<STRUCT<low: BIGINT, high: BIGINT, packets: BIGINT, excess: BIGINT>>,
    delay_kinds STRING, delay_algorithm STRING, delay_admit_log2 BIGINT, delay_auto BOOLEAN,
    delay_resolution_ns BIGINT,
    delay ARRAY<STRUCT<kind: STRING, leaves: BIGINT, group_number: BIGINT, requests: BIGINT,
        admitted: BIGINT, refused: BIGINT, backward: BIGINT, unsampled: BIGINT,
        admit_log2: BIGINT, p50_ns: DOUBLE, p95_ns: DOUBLE, p99_ns: DOUBLE>>,
    delay_buckets ARRAY<STRUCT<kind: STRING, leaves: BIGINT, group_number: BIGINT,
        fridge: BIGINT, low_ns: BIGINT, high_ns: BIGINT, samples: BIGINT, weight: BIGINT,
        squares: BIGINT, beyond: BIGINT>>,
    reorder_algorithm STRING, reorder_ipv4_bits BIGINT, reorder_ipv6_bits BIGINT,
    reorder_unfollowed BIGINT, reorder_contended BIGINT, reorder_crowded BIGINT,
    reorder ARRAY<STRUCT<prefix: STRING, packets: BIGINT, out_of_order: BIGINT,
        retransmitted: BIGINT, gaps: BIGINT, flows: BIGINT, squares: BIGINT, bits: BIGINT>>,
    date DATE, hour INT"""
# Columns that must be equal in all merged rows, and in all merged rows with distinct flows.
IDENTITY = ["schema", "hash", "row_hash", "inner"]
DISTINCT = ["distinct_key", "registers"]
# Columns that identify a row.
ROW = ["host", "run", "source", "direction", "window", "start_ns"]
PERIODS = {"hour": "hour", "day": "day", "minute": "minute"}
# Lists of files, below the output. Engines pass over names that begin so.
LISTS = "_flowgauge_files"
DAY = datetime.timedelta(days=1)


class Refused(Exception):
    """Rows that no number can be made of together, or none at all."""


def options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("lake", help="directory or URL that agents write to")
    parser.add_argument("output", help="directory or URL of the result")
    parser.add_argument(
        "--by", choices=sorted(PERIODS), default="hour", help="length of a period [default: hour]"
    )
    parser.add_argument(
        "--sites",
        metavar="FILE",
        help="CSV with the columns host and site [default: each host is a site]",
    )
    parser.add_argument(
        "--from",
        dest="begin",
        metavar="DAY",
        type=datetime.date.fromisoformat,
        help="first day, UTC",
    )
    parser.add_argument(
        "--to", dest="end", metavar="DAY", type=datetime.date.fromisoformat, help="last day, UTC"
    )
    parser.add_argument(
        "--unread",
        action="store_true",
        help="only days of which there are files that this output is not made of",
    )
    return parser.parse_args()


def lake(spark, path, *more):
    """Returns all rows, of files with and without some columns, with further columns (in DDL).

    Filters of `date` and `hour` decide which files are opened.
    """
    try:
        return spark.read.schema(", ".join([COLUMNS, *more])).option("basePath", path).parquet(path)
    except AnalysisException as error:
        raise Refused(f"cannot read {path}: {str(error).splitlines()[0]}") from error


def check(rows):
    """Refuses what cannot be united.

    Returns the name of the column of sketches and the number of registers, or nothing if no row
    has any.
    """
    found = (
        rows.groupBy(*IDENTITY, *DISTINCT)
        .agg(F.min("_metadata.file_path").alias("file"))
        .orderBy("file")
        .collect()
    )
    if not found:
        raise Refused("there are no rows (of this time)")

    def listed(names, some):
        return [
            f"{row.file} has " + " ".join(f"{name}={row[name]}" for name in names) for row in some
        ]

    unknown = [row for row in found if row.schema != SCHEMA]
    if unknown:
        raise Refused(
            f"this job knows version {SCHEMA} of the columns: "
            + "; ".join(listed(IDENTITY, unknown))
        )
    measured = [row for row in found if row.distinct_key is not None]
    if len({tuple(row[name] for name in IDENTITY) for row in found}) > 1 or len(measured) > 1:
        raise Refused(
            "rows that cannot be united: " + "; ".join(listed(IDENTITY + DISTINCT, found))
        )
    if not measured:
        return None
    [row] = measured
    return (
        f"hll_{row.distinct_key.replace('-', '_')}_p{int(math.log2(row.registers))}_{row.hash}",
        row.registers,
    )


def newly_lost(rows, keys):
    """Returns the rows that could not be written, by the period of the next one that could.

    `lost_rows` of a row counts from the start of its run: what is new is what no earlier row of the
    run knows.
    """
    earlier = (
        Window.partitionBy("host", "run")
        .orderBy("window")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    fresh = F.greatest(
        F.col("lost_rows") - F.coalesce(F.max("lost_rows").over(earlier), F.lit(0)), F.lit(0)
    )
    return (
        rows.withColumn("lost_rows", fresh)
        .groupBy(*keys)
        .agg(F.sum("lost_rows").alias("lost_rows"))
    )


def unite(rows, before, sketches, registers):
    """Returns a row for each period, site and direction.

    `before` are the rows by which lost ones are counted, of one more day.
    """
    keys = ["period", "site", "direction"]
    united = rows.groupBy(*keys).agg(
        # Without `true` other numbers of registers are an error.
        F.expr(f"hll_union_agg(`{sketches}`, false)").alias("sketch"),
        F.count("*").alias("windows"),
        F.countDistinct("host").alias("hosts"),
        F.countDistinct("host", "source").alias("sources"),
        F.sum((~F.col("complete")).cast("long")).alias("incomplete"),
        F.sum("packets").alias("packets"),
        F.sum("bytes").alias("bytes"),
        F.sum("dropped").alias("dropped"),
        F.min("start_ns").alias("start_ns"),
        F.max("end_ns").alias("end_ns"),
    )
    united = united.join(newly_lost(before, keys), keys, "left")
    # DataSketches' estimate of sketches that were united, whose relative error is that of
    # HyperLogLog.
    error = 1.96 * 1.04 / math.sqrt(registers)
    estimate = F.expr("hll_sketch_estimate(sketch)")
    return (
        united.withColumn("estimate", estimate)
        .withColumn("low", F.col("estimate") / (1 + error))
        .withColumn("high", F.col("estimate") / (1 - error))
        .withColumn("day", F.to_date("period"))
    )


class Lists:
    """Per day, the files that the output was made of: a list that is replaced as a whole."""

    def __init__(self, spark, output):
        self.jvm, self.gateway = spark.sparkContext._jvm, spark.sparkContext._gateway
        self.configuration = spark.sparkContext._jsc.hadoopConfiguration()
        self.root = f"{output}/{LISTS}"

    def path(self, name):
        return self.jvm.org.apache.hadoop.fs.Path(f"{self.root}/{name}")

    def read(self, day):
        path = self.path(f"date={day}")
        system = path.getFileSystem(self.configuration)
        if not system.exists(path):
            return set()
        stream = system.open(path)
        try:
            return set(
                self.jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8").splitlines()
            )
        finally:
            stream.close()

    def write(self, day, files):
        path, unfinished = self.path(f"date={day}"), self.path(f".date={day}")
        stream = path.getFileSystem(self.configuration).create(unfinished, True)
        stream.write("".join(f"{file}\n" for file in sorted(files)).encode())
        stream.close()
        overwrite = self.gateway.new_array(
            getattr(self.jvm.org.apache.hadoop.fs, "Options$Rename"), 1
        )
        overwrite[0] = getattr(self.jvm.org.apache.hadoop.fs, "Options$Rename").OVERWRITE
        self.jvm.org.apache.hadoop.fs.FileContext.getFileContext(
            path.toUri(), self.configuration
        ).rename(unfinished, path, overwrite)


def files_by_day(rows, begin, end):
    """Returns the names of all files of wanted days, by day."""
    found = {}
    for file in rows.inputFiles():
        name = file[file.rfind("/date=") + 1 :]
        try:
            day = datetime.date.fromisoformat(name[5:15])
        except ValueError:
            raise Refused(f"{file} is below no directory date=YYYY-MM-DD") from None
        if (begin is None or begin <= day) and (end is None or day <= end):
            found.setdefault(day, set()).add(name)
    return found


def run(spark, arguments):
    rows, lists = lake(spark, arguments.lake), Lists(spark, arguments.output)
    # Files that come while the job runs are in no list, so that the next job reads their days.
    days = files_by_day(rows, arguments.begin, arguments.end)
    if arguments.unread:
        days = {day: files for day, files in days.items() if files - lists.read(day)}
        if not days:
            print("distinct.py: nothing new", file=sys.stderr)
            return
    wanted = F.col("date").isin(list(days))
    found = check(rows.where(wanted))
    if found is None:
        raise Refused("no row has distinct flows")
    sketches, registers = found
    # Times of a day before tell which lost rows are known already.
    around = rows.where(F.col("date").isin(list(days | {day - DAY: None for day in days})))
    selected = lake(spark, arguments.lake, f"`{sketches}` BINARY").where(
        wanted & F.col("distinct_key").isNotNull()
    )
    if arguments.sites:
        sites = F.broadcast(spark.read.csv(arguments.sites, header=True).select("host", "site"))

    def placed(rows):
        # A file that was copied twice counts once.
        rows = rows.dropDuplicates(ROW).withColumn(
            "period", F.date_trunc(PERIODS[arguments.by], F.col("time"))
        )
        if not arguments.sites:
            return rows.withColumn("site", F.col("host"))
        return rows.join(sites, "host", "left").withColumn(
            "site", F.coalesce("site", F.lit("unknown"))
        )

    result = unite(placed(selected), placed(around), sketches, registers)
    result.write.mode("overwrite").partitionBy("day").parquet(arguments.output)
    for day, files in days.items():
        lists.write(day, files)


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
