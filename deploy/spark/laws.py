#!/usr/bin/env python3
"""Rows of a lake that no window can have counted, and windows of which there are different rows:
one JSON object for each, with the law that it breaks. No row is the good answer.

Whoever can write to a lake can forge both. `flowgauge merge` refuses them; distinct.py and
questions.py do not. Laws of registers' images, of filters' bits, and of names of flows and causes
are not here: for those, `flowgauge merge lake > /dev/null`.
"""

import argparse
import json
import sys

from pyspark.sql import SparkSession

from distinct import Refused, lake

# Numbers are compared as DOUBLE, which is exact up to 2^53, the most packets that a law allows. Sums
# of forged ones then overflow nothing. Sums of 4,096 numbers of bytes are rounded by less than 1e-12.
# A condition on an unknown value does not hold.


def count(*numbers, most=1 << 53):
    return f"forall(array({', '.join(numbers)}), number -> number BETWEEN 0 AND {most})"


def count_bytes(*numbers):
    return count(*numbers, most=1 << 58)


def ascending(numbers, most):
    """Whether numbers are from 0 to `most`, and in order. NaN is the largest."""
    return f"""(forall({numbers}, number -> number BETWEEN 0 AND {most})
        AND array_sort({numbers}) = {numbers})"""


def total(numbers):
    return f"aggregate({numbers}, 0D, (sum, number) -> sum + number)"


def unique(numbers):
    return f"size(array_distinct({numbers})) = size({numbers})"


def is_power(number):
    return f"({number} >= 1 AND pow(2, round(log2(greatest({number}, 1)))) = {number})"


def is_bucket(low, high, tick, least):
    """Whether a histogram has a bucket from `low` to below `high`: `least` of the width `tick`,
    then half as many in each doubling."""
    low, high = f"double({low})", f"double({high})"
    width = f"({high} - {low})"
    return f"""({low} >= 0 AND {is_power(f"({width} / {tick})")}
        AND {low} % greatest({width}, 1) = 0 AND {high} <= {least} * {width}
        AND ({width} = {tick} OR 2 * {low} >= {least} * {width}))"""


def is_sketch(name):
    """Whether each row of a sketch counts all packets, or at most those if some are missing. A
    packet counts up in count-min, up or down in count-sketch."""
    rows, columns, full = f"{name}_rows", f"{name}_columns", f"{name}_full"
    cells = f"slice({name}_cells, nth * int({columns}) + 1, int({columns}))"
    changes = total(f"transform({cells}, it -> abs(double(it)))")
    return f"""{name}_key IS NULL OR CASE
        WHEN {rows} BETWEEN 1 AND 8 AND {columns} BETWEEN 16 AND 65536
            AND size({name}_cells) = double({rows}) * {columns}
        THEN forall({full}, it -> it BETWEEN 0 AND {rows} * {columns} - 1)
            AND array_sort(array_distinct({full})) = {full}
            AND ({name}_sketch = 'count-sketch'
                OR {name}_sketch = 'count-min' AND array_min({name}_cells) >= 0)
            AND forall(
                transform(filter(sequence(0, 7), nth -> nth < {rows}), nth -> {changes}),
                changes -> changes <= flow_packets AND (
                    size({full}) > 0 OR NOT complete OR if(
                        {name}_sketch = 'count-min', flow_packets - changes,
                        (flow_packets - changes) % 2
                    ) = 0
                )
            )
        ELSE false END"""


def is_entropy(name):
    """34242 is the most that a packet adds."""
    return f"""CASE WHEN {name}_key IS NULL THEN {name} IS NULL
        ELSE {ascending(f"array({name}_low, {name}, {name}_high)", "most_bits")}
            AND {name}_sum BETWEEN 0 AND 34242 * flow_packets END"""


def spread_cells(name):
    """Returns the cells of a sketch in memory: three rows take as much as four."""
    return f"if({name}_rows = 3, 4D, double({name}_rows)) * {name}_columns"


def spread_fits(name):
    """Whether a sketch is not too large by itself."""
    cells = spread_cells(name)
    return f"({cells} <= 4096 AND {cells} * {name}_registers <= 524288)"


def spread_bytes(name):
    """Returns the memory of a sketch: a byte for each register, and 64 for each cell. 0 if it is too
    large by itself."""
    return f"""if(
        {spread_fits(name)}, {spread_cells(name)} * (double({name}_registers) + 64), 0D
    )"""


def is_spread(name):
    """Whether keys with the most others are those of a sketch, and none has more than packets."""
    rows, columns, registers = f"{name}_rows", f"{name}_columns", f"{name}_registers"
    return f"""CASE WHEN {name}_key IS NULL THEN size({name}) = 0
        ELSE {rows} BETWEEN 1 AND 4
            AND {columns} BETWEEN 16 AND 4096 AND {is_power(columns)}
            AND {registers} BETWEEN 16 AND 256 AND {is_power(registers)}
            AND {spread_fits(name)}
            AND {name}_rest BETWEEN 0 AND flow_packets AND size({name}) <= double({rows}) * {columns}
            AND forall(
                {name}, it -> {ascending("array(it.low, it.others, it.high)", "flow_packets")}
            )
            AND sort_array({name}.others, false) = {name}.others AND {unique(f"{name}.flow")}
        END"""


LAWS = {
    "names and a direction": """octet_length(host) <= 4096 AND octet_length(run) <= 4096
        AND octet_length(source) <= 65536 AND direction IN ('ingress', 'egress', 'both')""",
    "times and windows in order": """start_ns BETWEEN 0 AND end_ns AND late_ns >= 0
        AND scheduled_start_ns BETWEEN 0 AND scheduled_end_ns
        AND window BETWEEN 0 AND last AND last <= 4611686018427387904
        AND coalesce(silent_windows, 0) BETWEEN 0 AND window""",
    "packets from 0 to 2^53, bytes to 2^58": count(
        *("packets", "ipv4_packets", "ipv6_packets", "non_ip", "truncated", "bad_header", "late"),
        *("dropped", "lost_rows", "coalesce(unmatched, 0)", "coalesce(merged, 0)"),
    )
    + " AND "
    + count_bytes("bytes", "coalesce(unmatched_bytes, 0)"),
    "packets are those of all kinds": """packets
        = flow_packets + double(non_ip) + double(truncated) + double(bad_header)""",
    "no bytes without a packet": """(bytes = 0 OR packets > 0)
        AND (coalesce(unmatched_bytes, 0) = 0 OR unmatched > 0)""",
    "super-packets begin with a packet": """coalesce(merged, 0) = 0
        OR merged < double(packets) + coalesce(unmatched, 0)""",
    "drops of each cause once": f"""{unique("drops.cause")}
        AND forall(drops, it -> it.cause IS NOT NULL AND {count("it.packets")})
        AND dropped = {total("drops.packets")}""",
    "distinct flows within their interval": f"""CASE
        WHEN distinct_key IS NULL THEN distinct IS NULL
        ELSE {ascending("array(distinct_low, distinct, distinct_high)", "18446744073709551616D")}
        END""",
    # Estimators differ by a quarter at most.
    "at most as many distinct flows as packets": f"""distinct_key IS NULL
        OR registers BETWEEN 16 AND 65536 AND {is_power("registers")}
        AND (hash LIKE 'crc32%'
            OR distinct <= flow_packets * distinct_error * greatest(distinct_error, 1.25D))
        AND (distinct > 0 OR flow_packets = 0 OR NOT complete)""",
    "entropy from 0 to log2(packets)": is_entropy("entropy"),
    "entropy2 from 0 to log2(packets)": is_entropy("entropy2"),
    "the sketch of entropy counts all packets": is_sketch("entropy"),
    "the sketch of entropy2 counts all packets": is_sketch("entropy2"),
    "the sketch of frequency counts all packets": is_sketch("frequency"),
    "a filter has a probability": """membership_key IS NULL
        OR membership_false_positive BETWEEN 0 AND 1""",
    "heavy flows have at most all packets": f"""CASE
        WHEN heavy_algorithm IS NULL THEN size(heavy) = 0
        ELSE heavy_packets BETWEEN 0 AND flow_packets AND heavy_total >= 0
            AND (heavy_unit = 'bytes' AND heavy_total <= bytes
                OR heavy_unit = 'packets' AND heavy_total <= flow_packets)
            AND {is_power("heavy_slots")} AND size(heavy) <= heavy_slots
            AND forall(
                heavy, it -> it.inherited BETWEEN 0 AND it.count AND it.count <= heavy_total
            )
            AND sort_array(heavy.count, false) = heavy.count
            AND {total("heavy.count")} <= 4 * double(heavy_total)
            AND {total("transform(heavy, it -> double(it.count) - it.inherited)")}
                <= double(heavy_total) * (1 + 1e-12D)
            AND coalesce(heavy_least, 0) BETWEEN 0 AND 16 * double(heavy_total)
            AND coalesce(heavy_least_elsewhere, 0) BETWEEN 0 AND coalesce(heavy_least, 0)
        END""",
    "keys of spread have at most as many others as packets": is_spread("spread"),
    "keys of spread2 have at most as many others as packets": is_spread("spread2"),
    "sketches of spread take at most 1 MiB":
        f"{spread_bytes('spread')} + {spread_bytes('spread2')} <= 1048576",
    "lengths of all packets": f"""CASE
        WHEN lengths_full IS NULL THEN size(lengths) = 0
        ELSE lengths_full BETWEEN 0 AND 1441792
            AND coalesce(length_mean, 0) BETWEEN 0 AND 65535
            AND coalesce(length_p50, 0) BETWEEN 0 AND 65535
            AND {unique("lengths.low")} AND array_sort(lengths.low) = lengths.low
            AND forall(
                lengths, it -> {count("it.packets")} AND {count_bytes("it.excess")}
                    AND it.high < 65536
                    AND {is_bucket("it.low", "double(it.high) + 1", 1, 128)}
                    AND it.excess <= it.packets * (double(it.high) - it.low)
            )
            AND {total("lengths.packets")} <= flow_packets
            AND ({total("lengths.packets")} = flow_packets OR lengths_full > 0 OR NOT complete)
        END""",
    # A packet is a request and an answer in each direction at most.
    "requests of at most all packets": f"""CASE
        WHEN delay_kinds IS NULL THEN size(delay) = 0
        ELSE delay_resolution_ns BETWEEN 0 AND 1000000000
            AND {unique("transform(delay, it -> struct(it.kind, it.leaves != 0, it.group_number))")}
            AND forall(
                delay, it -> array_contains(kinds, it.kind) AND it.leaves IS NOT NULL
                    AND it.group_number BETWEEN 0 AND 255 AND it.admit_log2 BETWEEN -1 AND 16
                    AND it.requests BETWEEN 0 AND 2 * flow_packets * if(
                        delay_auto AND it.kind IN ('tcp-timestamps', 'quic-spin'), 65536, 1
                    )
                    AND forall(
                        array(it.admitted, it.refused, it.backward, it.unsampled),
                        number -> number BETWEEN 0 AND 2 * flow_packets
                    )
                    AND {ascending(
                        "filter(array(it.p50_ns, it.p95_ns, it.p99_ns), ns -> NOT isnan(ns))",
                        "281474976710656"
                    )}
            )
        END""",
    "delays weigh at least 1, and packets give them": f"""CASE
        WHEN delay_kinds IS NULL THEN size(delay_buckets) = 0
        ELSE {unique('''transform(delay_buckets, it -> struct(
                it.kind, it.leaves != 0, it.group_number, it.fridge, it.low_ns
            ))''')}
            AND forall(
                delay_buckets, it -> array_contains(kinds, it.kind) AND it.leaves IS NOT NULL
                    AND it.group_number BETWEEN 0 AND 255
                    AND {is_bucket("it.low_ns", "it.high_ns",
                        "if(it.kind = 'tcp-duration', 4096, 64)", 64)}
                    AND it.fridge BETWEEN 0 AND if(delay_algorithm = 'multi-fridge', 3, 0)
                    AND it.samples BETWEEN 1 AND 4294967295 AND it.beyond BETWEEN 0 AND it.samples
                    AND it.weight BETWEEN 4096 * double(it.samples)
                        AND 4096 * double(it.samples) * heaviest
                    AND it.squares BETWEEN 256 * double(it.samples)
                        AND 256 * double(it.samples) * heaviest * heaviest
            )
            AND forall(
                kinds, wanted -> {total("filter(delay_buckets, it -> it.kind = wanted).samples")}
                    <= 2 * flow_packets
            )
        END""",
    "reordered segments are at most all": f"""CASE
        WHEN reorder_algorithm IS NULL THEN size(reorder) = 0
        ELSE reorder_ipv4_bits BETWEEN 2 AND 64 AND reorder_ipv6_bits BETWEEN 2 AND 64
            AND {count("reorder_unfollowed", "reorder_contended", "reorder_crowded")}
            AND {unique("reorder.bits")} AND size(reorder) <= 16384
            AND forall(
                reorder, it -> {count(
                    "it.packets", "it.out_of_order", "it.retransmitted", "it.gaps", "it.flows",
                    "it.squares"
                )}
                    AND double(it.out_of_order) + it.retransmitted + it.gaps <= it.packets
                    AND it.flows <= it.packets
                    AND it.squares <= double(it.out_of_order) * it.out_of_order
                    -- The lowest eight bits are the version, the highest ones the prefix.
                    AND (it.bits - (it.bits & 255))
                        % CASE it.bits & 255 WHEN 4 THEN ipv4_unit WHEN 6 THEN ipv6_unit END = 0
            )
            AND {total("reorder.packets")} + reorder_unfollowed + reorder_contended
                + reorder_crowded <= flow_packets
        END""",
}
LISTS = [
    *("drops", "heavy", "spread", "spread2", "lengths", "delay", "delay_buckets", "reorder"),
    *("entropy_full", "entropy2_full", "frequency_full"),
]
PLACE = "PARTITION BY host, run, source, direction ORDER BY window, last"
COUNTED = """SELECT *, coalesce(last_window, window) AS last,
        double(ipv4_packets) + ipv6_packets AS flow_packets,
        log2(greatest(flow_packets, 1)) + 1e-9D AS most_bits,
        -- Eight standard errors.
        exp(8 * 1.04D / sqrt(greatest(registers, 16))) AS distinct_error,
        split(delay_kinds, ',') AS kinds,
        -- Weights are below e^8 if delays have any, and raised by up to 16 doublings.
        if(delay_algorithm IN ('fridge', 'multi-fridge'), 4096D, 1D) * if(delay_auto, 65536, 1)
            AS heaviest,
        shiftleft(1L, int(64 - least(greatest(reorder_ipv4_bits, 2), 64))) AS ipv4_unit,
        shiftleft(1L, int(64 - least(greatest(reorder_ipv6_bits, 2), 64))) AS ipv6_unit
    FROM flowgauge_files"""
CHECKED = f"""SELECT filename, host, source, window, explode(array({', '.join(
        f"struct('{law}' AS law, ({holds}) AS holds)" for law, holds in LAWS.items()
    )})) AS it
    FROM counted"""
BROKEN = f"""WITH counted AS ({COUNTED}), checked AS ({CHECKED}), numbered AS (
        -- Rows of one run and place whose windows overlap have one number: the frame of the sum
        -- ends with all rows of a window. Rows of one checksum and other values can be made: all
        -- values are compared that are read.
        SELECT *, sum(begins) OVER ({PLACE}) AS number
        FROM (
            SELECT filename, host, run, source, direction, window, last, digest, if(
                    window <= max(last) OVER (
                        {PLACE} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
                    ), 0, 1
                ) AS begins
            FROM counted
        )
    )
    SELECT filename, host, source, window, it.law FROM checked WHERE it.holds IS NOT TRUE
    UNION ALL
    SELECT array_join(array_sort(collect_set(filename)), ' ') AS filename, host, source,
        min(window) AS window, 'one row of a window' AS law
    FROM numbered
    GROUP BY host, run, source, direction, number HAVING count(DISTINCT digest) > 1
    ORDER BY filename, host, source, window, law"""


def broken(spark, path):
    """Returns the rows that break a law, and the windows of different rows."""
    rows = lake(spark, path).selectExpr(
        "_metadata.file_path AS filename",
        # A list that is not there is empty.
        f"* EXCEPT ({', '.join(['date', 'hour', *LISTS])})",
        *(f"coalesce({name}, array()) AS {name}" for name in LISTS),
    )
    digest = "sha2(to_json(struct(* EXCEPT (filename))), 256) AS digest"
    rows.selectExpr("*", digest).createOrReplaceTempView("flowgauge_files")
    return [row.asDict() for row in spark.sql(BROKEN).collect()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(":", maxsplit=1)[0])
    parser.add_argument("lake", help="directory or URL that agents write to")
    arguments = parser.parse_args()
    spark = SparkSession.builder.appName("flowgauge-laws").getOrCreate()
    try:
        for row in broken(spark, arguments.lake):
            print(json.dumps(row))
    except Refused as refused:
        sys.exit(f"laws.py: {refused}")
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
