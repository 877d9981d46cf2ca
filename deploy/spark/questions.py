#!/usr/bin/env python3
"""Eleven questions of operators to the lake that flowgauge writes, answered by Spark: one JSON object
for each row of an answer.

../duckdb/README.md lists the questions. Rows whose hashes, keys, registers, headers or versions
differ are refused, as by distinct.py.
"""

import argparse
import json
import math
import sys
import time

from pyspark.sql import SparkSession

from distinct import ROW, Refused, check, lake

# Views that all questions ask. They stop a question whose rows must not be united, so that one that
# is copied out of this file is guarded as well.
GUARD = """(SELECT CASE
        WHEN count(*) != count_if(schema = 1)
            OR count(DISTINCT struct(hash, row_hash, inner)) > 1
            OR count(DISTINCT struct(distinct_key, registers))
                FILTER (WHERE distinct_key IS NOT NULL) > 1
        THEN raise_error(concat(
            'rows differ in hash, row_hash, inner, distinct_key or registers, ',
            'or are of another version'
        ))
        ELSE true END FROM flowgauge_selected)"""
VIEWS = (
    f"""CREATE OR REPLACE TEMPORARY VIEW flowgauge_rows AS
        SELECT * FROM flowgauge_once WHERE {GUARD}""",
    # A file that was copied twice changes no union.
    f"""CREATE OR REPLACE TEMPORARY VIEW flowgauge_sketches AS
        SELECT host, time, sketch FROM flowgauge_selected WHERE {GUARD} AND sketch IS NOT NULL""",
)
# How many windows have a measurement; stops if they have it by different settings.
MEASURED = """CASE
        WHEN {settings} > 1
        THEN raise_error(concat(
            'windows have this measurement by different keys or settings, ',
            'and no number can be made of them together'
        ))
        WHEN count(*) = 0 THEN 'no windows'
        WHEN count({column}) = 0 THEN 'not measured'
        ELSE concat(count({column}), ' of ', count(*), ' windows') END AS measured"""


def measured(column, *settings):
    """Returns a column: how many windows have a measurement, by the columns that it has."""
    columns = ", ".join([column, *settings])
    different = f"count(DISTINCT struct({columns})) FILTER (WHERE {column} IS NOT NULL)"
    return MEASURED.format(column=column, settings=different if settings else "1")


# Of distinct flows, which rows of sketches answer. Windows are counted without their sketches,
# which are wide. A union of nothing is 0 flows for Spark: it is not measured.
UNION = "CASE WHEN count(sketch) > 0 THEN hll_sketch_estimate(hll_union_agg(sketch, false)) END"
COVERED = f"count(distinct_key) AS known, {measured('distinct_key')} FROM flowgauge_rows"


def without(these, others):
    """Returns a question: sketches of all, and those without some; both must have been measured."""
    return f"""WITH these AS (SELECT {COVERED} WHERE {these}),
        others AS (SELECT {COVERED} WHERE {others}),
        united AS (
            SELECT {UNION} AS whole,
                hll_sketch_estimate(hll_union_agg(sketch, false) FILTER (WHERE {others})) AS others
            FROM flowgauge_sketches
        )
        SELECT if(these.known > 0 AND others.known > 0, united.whole, NULL) AS whole,
            if(these.known > 0 AND others.known > 0, united.others, NULL) AS others,
            these.measured AS measured, others.measured AS measured_OTHERS
        FROM these CROSS JOIN others CROSS JOIN united"""


SKETCHED = {
    "1": f"""WITH covered AS (SELECT {COVERED}),
        united AS (SELECT {UNION} AS estimate FROM flowgauge_sketches)
        SELECT estimate, measured FROM united CROSS JOIN covered""",
    "2": f"""WITH covered AS (
            SELECT host, date_trunc('hour', time) AS hour, {COVERED} GROUP BY ALL
        ), united AS (
            SELECT host, date_trunc('hour', time) AS hour, {UNION} AS estimate
            FROM flowgauge_sketches GROUP BY ALL
        )
        SELECT host, hour, estimate, measured
        FROM covered LEFT JOIN united USING (host, hour) ORDER BY host, hour""",
    # Distinct flows of all rows minus those of the other rows: `flowgauge diff` has narrower intervals.
    "3": without("host = :site", "host != :site").replace("measured_OTHERS", "measured_elsewhere"),
    "4": without("time >= to_timestamp(:since)", "time < to_timestamp(:since)").replace(
        "measured_OTHERS", "measured_before"
    ),
}
# Of plain columns.
PLAIN = {
    "5": f"""WITH covered AS (
            SELECT count(heavy_key) AS known, any_value(heavy_unit, true) AS unit,
                {measured("heavy_key", "heavy_unit", "heavy_algorithm", "heavy_slots")}
            FROM flowgauge_rows
        ), flows AS (
            SELECT it.flow AS flow, sum(it.count) AS count,
                sum(it.count - it.inherited) AS at_least, count(DISTINCT host) AS hosts
            FROM (SELECT host, explode(heavy) AS it FROM flowgauge_rows) GROUP BY it.flow
        )
        SELECT flow, count, at_least, hosts, unit, measured FROM covered LEFT JOIN flows ON true
        WHERE flow IS NOT NULL OR known = 0 ORDER BY count DESC, flow LIMIT 20""",
    "6": f"""WITH settings AS (
            SELECT count(DISTINCT struct(
                delay_kinds, delay_algorithm, delay_auto, if(delay_auto, NULL, delay_admit_log2)
            )) FILTER (WHERE delay_kinds IS NOT NULL) AS settings FROM flowgauge_rows
        ), covered AS (
            SELECT host, count(delay_kinds) AS known,
                {MEASURED.format(column="delay_kinds", settings="any_value(settings)")}
            FROM flowgauge_rows CROSS JOIN settings GROUP BY host
        ), buckets AS (
            SELECT host, b.kind AS kind, b.high_ns AS high_ns, sum(b.weight) AS weight
            FROM (SELECT host, explode(delay_buckets) AS b FROM flowgauge_rows) GROUP BY ALL
        ), shares AS (
            SELECT *, sum(weight) OVER (PARTITION BY host, kind ORDER BY high_ns)
                / sum(weight) OVER (PARTITION BY host, kind) AS share
            FROM buckets
        ), delays AS (
            SELECT host, kind, min(high_ns) FILTER (WHERE share >= 0.5) / 1e6 AS p50_ms,
                min(high_ns) FILTER (WHERE share >= 0.95) / 1e6 AS p95_ms,
                min(high_ns) FILTER (WHERE share >= 0.99) / 1e6 AS p99_ms
            FROM shares GROUP BY host, kind
        )
        SELECT covered.host, kind, p50_ms, p95_ms, p99_ms, measured
        FROM covered LEFT JOIN delays ON delays.host = covered.host
        WHERE kind IS NOT NULL OR known = 0 ORDER BY covered.host, kind""",
    "7": f"""WITH covered AS (
            SELECT count(reorder_algorithm) AS known,
                {measured("reorder_algorithm", "reorder_ipv4_bits", "reorder_ipv6_bits")}
            FROM flowgauge_rows
        ), prefixes AS (
            SELECT p.prefix AS prefix, sum(p.out_of_order) AS out_of_order,
                sum(p.packets) AS packets, sum(p.out_of_order) / sum(p.packets) AS rate,
                sum(p.flows) AS flows
            FROM (SELECT explode(reorder) AS p FROM flowgauge_rows)
            GROUP BY p.prefix HAVING sum(p.packets) >= 300
        )
        SELECT prefix, out_of_order, packets, rate, flows, measured
        FROM covered LEFT JOIN prefixes ON true
        WHERE prefix IS NOT NULL OR known = 0 ORDER BY rate DESC, prefix LIMIT 20""",
    # The mean is that of windows with packets.
    "8": f"""WITH covered AS (
            SELECT count(entropy) AS known,
                {measured("entropy_key", "entropy_sketch", "entropy_rows", "entropy_columns")}
            FROM flowgauge_rows
        ), windows AS (
            SELECT host, source, window, start_ns, entropy, entropy_low, entropy_high,
                avg(entropy) OVER (PARTITION BY host, source, direction) - entropy AS below
            FROM flowgauge_rows WHERE entropy IS NOT NULL
        )
        SELECT host, source, window, start_ns, entropy, entropy_low, entropy_high, below, measured
        FROM covered LEFT JOIN windows ON true
        WHERE host IS NOT NULL OR known = 0 ORDER BY below DESC, host, source, start_ns LIMIT 20""",
    # No row: none of these windows lost any.
    "9a": """SELECT host, d.cause, sum(d.packets) AS packets
        FROM (SELECT host, explode(drops) AS d FROM flowgauge_rows)
        GROUP BY host, d.cause ORDER BY packets DESC, host, cause""",
    # Times without a window are no zeros. A replay writes none for windows without packets; the next
    # row has their number (`silent_windows`).
    "9b": """SELECT host, source, direction, end_ns AS from_ns, next_ns AS to_ns,
            (next_ns - end_ns) / 1e9 AS seconds, CASE
                WHEN next_run != run THEN 'between two runs'
                WHEN next_lost > lost_rows THEN 'rows that could not be written'
                WHEN next_silent IS NULL THEN 'no packets (replay), or a file that is not here'
                WHEN (next_silent + 0.5) * length_ns >= next_ns - end_ns THEN 'no packets'
                ELSE 'a file that is not here' END AS reason
        FROM (
            SELECT *, scheduled_end_ns - scheduled_start_ns AS length_ns,
                lead(start_ns) OVER place AS next_ns, lead(run) OVER place AS next_run,
                lead(lost_rows) OVER place AS next_lost,
                lead(silent_windows) OVER place AS next_silent
            FROM flowgauge_rows
            WINDOW place AS (PARTITION BY host, source, direction ORDER BY start_ns)
        )
        WHERE next_ns - end_ns >= least(1000000000, length_ns / 2)
        ORDER BY seconds DESC, host, source, direction, from_ns""",
    # `lost_rows` of a row counts from the start of its run: the sum of all runs is that of these
    # maxima, and never that of rows.
    "9c": """SELECT host, run, max(lost_rows) AS lost_rows, count_if(NOT complete) AS incomplete,
            max(end_ns) AS last_ns
        FROM flowgauge_rows GROUP BY host, run ORDER BY last_ns, host, run""",
    # An hour without a window has no row, and is no zero.
    "10": f"""WITH hours AS (
            SELECT date_trunc('hour', time) AS hour, lengths, lengths_full FROM flowgauge_rows
        ), covered AS (
            SELECT hour, count(lengths_full) AS known, {measured("lengths_full")}
            FROM hours GROUP BY hour
        ), lengths AS (
            SELECT hour, cast(pow(2, floor(log2(greatest(l.low, 1)))) AS long) AS from_bytes,
                sum(l.packets) AS packets, sum(l.packets * l.low + l.excess) AS bytes
            FROM (SELECT hour, explode(lengths) AS l FROM hours) GROUP BY ALL
        )
        SELECT covered.hour, from_bytes, packets, bytes, measured
        FROM covered LEFT JOIN lengths ON lengths.hour = covered.hour
        WHERE from_bytes IS NOT NULL OR known = 0 ORDER BY covered.hour, from_bytes""",
    # Others of several windows are no plain numbers: of each key it is the window with the most.
    "11": f"""WITH covered AS (
            SELECT count(spread_key) AS known, {measured("spread_key")} FROM flowgauge_rows
        ), keys AS (
            SELECT host, source, window, start_ns, spread_key, spread_of, explode(spread) AS it
            FROM flowgauge_rows
            UNION ALL
            SELECT host, source, window, start_ns, spread2_key, spread2_of, explode(spread2)
            FROM flowgauge_rows
        ), spreaders AS (
            SELECT *, row_number() OVER (
                PARTITION BY spread_key, spread_of, it.flow
                ORDER BY it.others DESC, host, source, start_ns
            ) AS nth FROM keys
        )
        SELECT host, source, window, start_ns, spread_key, spread_of, it.flow AS flow,
            it.others AS others, it.low AS low, it.high AS high, measured
        FROM covered LEFT JOIN spreaders ON nth = 1
        WHERE host IS NOT NULL OR known = 0
        ORDER BY others DESC, host, source, start_ns, spread_key, spread_of, flow LIMIT 20""",
}


def options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("lake", help="directory or URL that agents write to")
    parser.add_argument(
        "--site",
        default="",
        metavar="HOST",
        help="question 3: sources that only this host saw [default: question 3 is left out]",
    )
    parser.add_argument(
        "--since",
        default="",
        metavar="TIME",
        help="question 4: sources that are new since then, such as 2026-11-23T00:00:00Z",
    )
    parser.add_argument(
        "--from",
        dest="begin",
        metavar="TIME",
        help="windows that begin then or later, such as 2026-11-23T00:00:00Z [default: all]",
    )
    parser.add_argument(
        "--to", dest="end", metavar="TIME", help="windows that end then or earlier [default: all]"
    )
    parser.add_argument("--only", metavar="NUMBER,...", help="these questions [default: all]")
    return parser.parse_args()


def selected(rows, begin, end):
    """Returns rows of a range of times. The hours of directories decide which files are opened."""
    hour = "CAST(date AS TIMESTAMP) + make_dt_interval(0, hour)"
    if begin:
        wanted = f"date IS NULL OR {hour} > timestamp'{begin}' - INTERVAL 1 HOUR"
        rows = rows.where(wanted).where(f"time >= timestamp'{begin}'")
    if end:
        rows = rows.where(f"date IS NULL OR {hour} < timestamp'{end}'")
        rows = rows.where(f"scheduled_end_ns <= unix_micros(timestamp'{end}') * 1000")
    return rows


def views(spark, path, begin=None, end=None, name=None):
    """Makes the views that all questions ask; `name` is that of the column of sketches."""
    more = [f"`{name}` BINARY"] if name else []
    rows = selected(lake(spark, path, *more), begin, end).selectExpr(
        "*", f"`{name}` AS sketch" if name else "CAST(NULL AS BINARY) AS sketch"
    )
    rows.createOrReplaceTempView("flowgauge_selected")
    # A file that was copied twice counts once.
    rows.dropDuplicates(ROW).createOrReplaceTempView("flowgauge_once")
    for view in VIEWS:
        spark.sql(view)


def answers(spark, arguments):
    """Each question that can be asked of this lake, and what answers it."""
    # Its message names files; that of the views does not.
    name, registers = check(
        selected(lake(spark, arguments.lake), arguments.begin, arguments.end)
    ) or (None, 1)
    views(spark, arguments.lake, arguments.begin, arguments.end, name)
    wanted = arguments.only.split(",") if arguments.only else [*SKETCHED, *PLAIN]
    given = {"3": arguments.site, "4": arguments.since}
    for number in wanted:
        if number not in SKETCHED and number not in PLAIN:
            raise Refused(
                f"there is no question {number}; there are {', '.join([*SKETCHED, *PLAIN])}"
            )
        if given.get(number, "given"):
            yield number, registers
        else:
            print(
                f"questions.py: question {number} is left out: it takes --site or --since",
                file=sys.stderr,
            )


def bounded(answer, registers):
    """An estimate with its 95 % interval, from HyperLogLog's standard error."""
    error = 1.96 * 1.04 / math.sqrt(registers)
    if None in (answer.get("estimate", 0), answer.get("whole", 0), answer.get("others", 0)):
        return {**answer, "estimate": None, "low": None, "high": None}
    if "others" in answer:
        answer["estimate"] = answer["whole"] - answer["others"]
        width = error * math.hypot(answer["whole"], answer["others"])
        return {
            **answer,
            "low": max(answer["estimate"] - width, 0),
            "high": answer["estimate"] + width,
        }
    return {
        **answer,
        "low": answer["estimate"] / (1 + error),
        "high": answer["estimate"] / (1 - error),
    }


def run(spark, arguments):
    for number, registers in answers(spark, arguments):
        began = time.monotonic()
        if number in SKETCHED:
            named = {"3": {"site": arguments.site}, "4": {"since": arguments.since}}.get(number, {})
            found = [
                bounded(row.asDict(), registers)
                for row in spark.sql(SKETCHED[number], args=named).collect()
            ]
        else:
            found = [row.asDict() for row in spark.sql(PLAIN[number]).collect()]
        for answer in found:
            print(json.dumps({"question": number, **answer}, default=str))
        print(
            f"questions.py: question {number} took {time.monotonic() - began:.1f} s",
            file=sys.stderr,
        )


def main():
    spark = (
        SparkSession.builder.appName("flowgauge-questions")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    try:
        run(spark, options())
    except Refused as refused:
        sys.exit(f"questions.py: {refused}")
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
