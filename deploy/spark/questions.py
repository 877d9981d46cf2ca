#!/usr/bin/env python3
"""Ten questions of operators to the lake that flowgauge writes, answered by Spark: one JSON object for each row of an answer.

../duckdb/README.md lists the questions. Rows whose hashes, keys, registers, headers or versions differ are refused, as by distinct.py.
"""

import argparse
import json
import math
import sys
import time

from pyspark.sql import SparkSession

from distinct import ROW, Refused, check, lake

# Of distinct flows, which rows of sketches answer.
SKETCHED = {
    "1": "SELECT hll_sketch_estimate(hll_union_agg(sketch, false)) AS estimate FROM sketches",
    "2": """SELECT host, date_trunc('hour', time) AS hour, hll_sketch_estimate(hll_union_agg(sketch, false)) AS estimate
        FROM sketches GROUP BY ALL ORDER BY host, hour""",
    # Those of all less those of all others: `flowgauge diff` has narrower intervals.
    "3": """SELECT hll_sketch_estimate(hll_union_agg(sketch, false)) AS whole,
        coalesce(hll_sketch_estimate(hll_union_agg(sketch, false) FILTER (WHERE host != :site)), 0) AS others FROM sketches""",
    "4": """SELECT hll_sketch_estimate(hll_union_agg(sketch, false)) AS whole,
        coalesce(hll_sketch_estimate(hll_union_agg(sketch, false) FILTER (WHERE time < to_timestamp(:since))), 0) AS others FROM sketches""",
}
# Of plain columns, each with the column that it needs.
PLAIN = {
    "5": (
        "heavy",
        """SELECT flow.flow, sum(flow.count) AS packets, sum(flow.count - flow.inherited) AS at_least, count(DISTINCT host) AS hosts
        FROM (SELECT host, explode(heavy) AS flow FROM rows WHERE heavy_unit = 'packets')
        GROUP BY flow.flow ORDER BY packets DESC, flow LIMIT 20""",
    ),
    "6": (
        "delay_buckets",
        """WITH buckets AS (
            SELECT host, b.kind AS kind, b.high_ns AS high_ns, sum(b.weight) AS weight
            FROM (SELECT host, explode(delay_buckets) AS b FROM rows) GROUP BY ALL
        ), shares AS (
            SELECT *, sum(weight) OVER (PARTITION BY host, kind ORDER BY high_ns) / sum(weight) OVER (PARTITION BY host, kind) AS share FROM buckets
        )
        SELECT host, kind, min(high_ns) FILTER (WHERE share >= 0.5) / 1e6 AS p50_ms, min(high_ns) FILTER (WHERE share >= 0.95) / 1e6 AS p95_ms,
            min(high_ns) FILTER (WHERE share >= 0.99) / 1e6 AS p99_ms
        FROM shares GROUP BY host, kind ORDER BY host, kind""",
    ),
    "7": (
        "reorder",
        """SELECT p.prefix, sum(p.out_of_order) AS out_of_order, sum(p.packets) AS packets, sum(p.out_of_order) / sum(p.packets) AS rate,
            sum(p.flows) AS flows
        FROM (SELECT explode(reorder) AS p FROM rows) GROUP BY p.prefix HAVING sum(p.packets) >= 300 ORDER BY rate DESC, prefix LIMIT 20""",
    ),
    "8": (
        "entropy",
        """SELECT host, source, window, start_ns, entropy, entropy_low, entropy_high,
            avg(entropy) OVER (PARTITION BY host, source, direction) - entropy AS below
        FROM rows WHERE entropy IS NOT NULL ORDER BY below DESC LIMIT 20""",
    ),
    "9a": (
        "drops",
        """SELECT host, d.cause, sum(d.packets) AS packets FROM (SELECT host, explode(drops) AS d FROM rows)
        GROUP BY host, d.cause ORDER BY packets DESC""",
    ),
    "9b": (
        "start_ns",
        """SELECT host, source, direction, end_ns AS from_ns, next_ns AS to_ns, (next_ns - end_ns) / 1e9 AS seconds
        FROM (SELECT *, lead(start_ns) OVER (PARTITION BY host, source, direction ORDER BY start_ns) AS next_ns FROM rows)
        WHERE next_ns - end_ns >= 1000000000 ORDER BY seconds DESC""",
    ),
    "9c": (
        "lost_rows",
        """SELECT host, run, max(lost_rows) AS lost_rows, count_if(NOT complete) AS incomplete, max(end_ns) AS last_ns
        FROM rows GROUP BY host, run ORDER BY last_ns""",
    ),
    "10": (
        "lengths",
        """SELECT hour, cast(pow(2, floor(log2(greatest(l.low, 1)))) AS long) AS from_bytes, sum(l.packets) AS packets,
            sum(l.packets * l.low + l.excess) AS bytes
        FROM (SELECT date_trunc('hour', time) AS hour, explode(lengths) AS l FROM rows) GROUP BY ALL ORDER BY hour, from_bytes""",
    ),
}


def options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("lake", help="directory or URL that agents write to")
    parser.add_argument("--site", default="", metavar="HOST", help="question 3: sources that only this host saw [default: question 3 is left out]")
    parser.add_argument("--since", default="", metavar="TIME", help="question 4: sources that are new since then, such as 2026-11-23T00:00:00Z")
    parser.add_argument("--only", metavar="NUMBER,...", help="these questions [default: all whose columns the lake has]")
    return parser.parse_args()


def answers(spark, arguments):
    """Each question that can be asked of this lake, and what answers it."""
    rows = lake(spark, arguments.lake)
    name, registers = check(rows)
    rows = rows.dropDuplicates(ROW)
    rows.createOrReplaceTempView("rows")
    # A file that was copied twice changes no union.
    lake(spark, arguments.lake).where("distinct_key IS NOT NULL").selectExpr("host", "time", f"`{name}` AS sketch").createOrReplaceTempView("sketches")
    wanted = arguments.only.split(",") if arguments.only else [*SKETCHED, *PLAIN]
    given = {"3": arguments.site, "4": arguments.since}
    for number in wanted:
        if number not in SKETCHED and number not in PLAIN:
            raise Refused(f"there is no question {number}; there are {', '.join([*SKETCHED, *PLAIN])}")
        column = PLAIN[number][0] if number in PLAIN else name
        if column in rows.columns and given.get(number, "given"):
            yield number, registers
        else:
            missing = f"no row has {column}" if column not in rows.columns else "it takes --site or --since"
            print(f"questions.py: question {number} is left out: {missing}", file=sys.stderr)


def bounded(answer, registers):
    """An estimate with its 95 % interval, from HyperLogLog's standard error."""
    error = 1.96 * 1.04 / math.sqrt(registers)
    if "others" in answer:
        answer["estimate"] = answer["whole"] - answer["others"]
        width = error * math.hypot(answer["whole"], answer["others"])
        return {**answer, "low": max(answer["estimate"] - width, 0), "high": answer["estimate"] + width}
    return {**answer, "low": answer["estimate"] / (1 + error), "high": answer["estimate"] / (1 - error)}


def run(spark, arguments):
    for number, registers in answers(spark, arguments):
        began = time.monotonic()
        if number in SKETCHED:
            named = {"3": {"site": arguments.site}, "4": {"since": arguments.since}}.get(number, {})
            found = [bounded(row.asDict(), registers) for row in spark.sql(SKETCHED[number], args=named).collect()]
        else:
            found = [row.asDict() for row in spark.sql(PLAIN[number][1]).collect()]
        for answer in found:
            print(json.dumps({"question": number, **answer}, default=str))
        print(f"questions.py: question {number} took {time.monotonic() - began:.1f} s", file=sys.stderr)


def main():
    spark = SparkSession.builder.appName("flowgauge-questions").config("spark.sql.session.timeZone", "UTC").getOrCreate()
    try:
        run(spark, options())
    except Refused as refused:
        sys.exit(f"questions.py: {refused}")
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
