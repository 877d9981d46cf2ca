#!/usr/bin/env python3
"""Holds engines against `flowgauge merge` on small lakes. FLOWGAUGE names the program."""

import glob
import importlib
import json
import logging
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import zlib

FLOWGAUGE = os.environ.get("FLOWGAUGE", "flowgauge")
HERE = pathlib.Path(__file__).resolve().parent
SKETCH = "hll_src_p11_tabulated_790900f3_1"
# The traffic of two hosts.
USUAL = {
    host: f"zipf,flows=30k,packets=60000,rate=1k,seed={seed}" for host, seed in (("a", 1), ("b", 2))
}
# DataSketches' estimator and flowgauge's differ by this much at most on the same registers, from
# four flows a register on.
ESTIMATORS_APART = 0.002


def module(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def told(skipped):
    """Tells of a part that is skipped, as the tests in Rust do."""
    print(f"skipped: {skipped}", file=sys.stderr)
    if "TEST_SKIPS" in os.environ:
        with open(os.environ["TEST_SKIPS"], "a", encoding="utf-8") as skips:
            skips.write(f"deploy/spark/test_engines.py: {skipped}\n")


def needs(*names):
    missing = [name for name in names if module(name) is None]
    if missing and __name__ == "__main__":
        told(f"needs {', '.join(missing)} of pip")
    return unittest.skipIf(missing, f"needs {missing}")


def flowgauge(*arguments, **environment):
    run = subprocess.run(
        [FLOWGAUGE, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )
    if run.returncode != 0:
        raise AssertionError(f"{arguments}: {run.stderr}")
    return run.stdout


def replay(directory, lake, host, profile, *options, window="10s"):
    profile = profile or USUAL[host]
    capture = pathlib.Path(directory, f"{zlib.crc32(profile.encode()):08x}.pcap")
    if not capture.exists():
        flowgauge("generate", profile, "--to", capture)
    flowgauge(
        "replay",
        capture,
        "--host",
        host,
        "--lake",
        lake,
        "--align",
        "--window",
        window,
        *options,
        FLOWGAUGE_RUN=f"run-{host}",
    )


def files(lake):
    return sorted(glob.glob(f"{lake}/*/*/*.parquet"))


def united(lake, *options):
    return [
        json.loads(line)
        for line in flowgauge("merge", lake, "--format", "json", *options).splitlines()
    ]


def images(lake):
    parquet = module("pyarrow.parquet")
    tables = (parquet.read_table(file, columns=[SKETCH], partitioning=None) for file in files(lake))
    return [image for table in tables for image in table.column(SKETCH).to_pylist()]


def registers(lake):
    """The union, register by register."""
    return bytes(map(max, zip(*(image[40:] for image in images(lake)))))


def job(lake, output, *options):
    return subprocess.run(
        [sys.executable, HERE / "distinct.py", lake, output, *options],
        capture_output=True,
        text=True,
        check=False,
    )


def results(output):
    parquet = module("pyarrow.parquet")
    rows = [
        row
        for file in glob.glob(f"{output}/*/*.parquet")
        for row in parquet.read_table(file, partitioning=None).to_pylist()
    ]
    return sorted(rows, key=lambda row: (row["period"], row["site"], row["direction"]))


# All times; the scripts of ClickHouse require both limits.
ALWAYS = {"from": "1970-01-01", "to": "2100-01-01"}
QUESTIONS = ["1", "2", "3", "4", "5", "6", "7", "8", "9a", "9b", "9c", "10", "11"]
# Questions that DuckDB answers.
PLAIN = QUESTIONS[4:]
# All measurements that questions are about, with and without distinct flows.
EVERYTHING = "cardinality,entropy,heavy,spread,sizes,delay,reorder"
NO_DISTINCT = "entropy,heavy,spread,sizes,delay,reorder"
SITE, SINCE = "a", "1970-01-01 00:00:30"


class ClickHouse:
    """A session with the views of a lake. `chdb` has one at a time."""

    def __init__(self, lake, views=True, **parameters):
        self.session = module("chdb.session").Session()
        for name, value in {
            "lake": f"{lake}/*/*/*.parquet",
            "sketch": SKETCH,
            "site": SITE,
            "since": SINCE,
            **ALWAYS,
            **parameters,
        }.items():
            self.session.query(f"SET param_{name} = '{value}'")
        if views:
            for _, statement in script("clickhouse/rows.sql"):
                self.session.query(statement)

    def broken(self):
        *functions, (_, statement) = script("clickhouse/laws.sql")
        for _, function in functions:
            self.session.query(function)
        return self.ask(statement)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.session.close()

    def ask(self, statement):
        """Rows, each a dictionary; None is NULL."""
        lines = (
            self.session.query(statement, "JSONCompactEachRowWithNames")
            .bytes()
            .decode()
            .splitlines()
        )
        return (
            [dict(zip(json.loads(lines[0]), json.loads(line))) for line in lines[1:]]
            if lines
            else []
        )

    def answers(self, only=QUESTIONS):
        return {
            number: self.ask(statement)
            for number, statement in script("clickhouse/questions.sql")
            if number in only
        }


class Duck:
    """A connection with the views of a lake."""

    def __init__(self, lake, views=True, **variables):
        self.connection = module("duckdb").connect()
        for name, value in {"lake": f"{lake}/*/*/*.parquet", **variables}.items():
            self.connection.execute(f"SET VARIABLE \"{name}\" = '{value}'")
        if views:
            for number, statement in [*script("duckdb/rows.sql"), *script("duckdb/questions.sql")]:
                if number is None:
                    self.connection.execute(statement)

    def broken(self):
        *macros, (_, statement) = script("duckdb/laws.sql")
        for _, macro in macros:
            self.connection.execute(macro)
        return self.ask(statement)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()

    def ask(self, statement):
        found = self.connection.execute(statement)
        names = [column[0] for column in found.description]
        return [dict(zip(names, row)) for row in found.fetchall()]

    def answers(self, only=PLAIN):
        return {
            number: self.ask(statement)
            for number, statement in script("duckdb/questions.sql")
            if number in only
        }


class Spark:
    """The views of a lake in a session that all tests share."""

    def __init__(self, lake, begin=None, end=None, name=SKETCH):
        if str(HERE) not in sys.path:
            sys.path.insert(0, str(HERE))
        builder = (
            module("pyspark.sql")
            .SparkSession.builder.appName("test_engines")
            .config("spark.sql.session.timeZone", "UTC")
        )
        self.spark = (
            builder.config("spark.sql.shuffle.partitions", 2)
            .config("spark.ui.enabled", False)
            .getOrCreate()
        )
        self.spark.sparkContext.setLogLevel("OFF")
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
        self.lake, self.questions = lake, importlib.import_module("questions")
        self.questions.views(self.spark, lake, begin, end, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for view in ("flowgauge_rows", "flowgauge_sketches"):
            self.spark.catalog.dropTempView(view)

    def one(self, number):
        named = {"3": {"site": SITE}, "4": {"since": SINCE}}.get(number, {})
        return [
            row.asDict()
            for row in self.spark.sql(
                {**self.questions.SKETCHED, **self.questions.PLAIN}[number], args=named
            ).collect()
        ]

    def answers(self, only=QUESTIONS):
        return {number: self.one(number) for number in only}

    def broken(self):
        return importlib.import_module("laws").broken(self.spark, self.lake)


ENGINES = {
    "clickhouse": ("chdb", ClickHouse, QUESTIONS),
    "duckdb": ("duckdb", Duck, PLAIN),
    "spark": ("pyspark", Spark, QUESTIONS),
}


def engines():
    """Engines that are here, each with its questions; those that are not are named."""
    for name, (package, engine, questions) in ENGINES.items():
        if module(package) is None:
            told(f"{name} needs {package} of pip")
        else:
            yield name, engine, questions


def script(name):
    return statements((HERE.parent / name).read_text(encoding="utf-8"))


def statements(text):
    """Statements of a script, each with the number in its first comment."""
    for statement in text.split(";\n"):
        lines = [line for line in statement.splitlines() if line.strip()]
        if any(not line.startswith("--") for line in lines):
            yield next(
                (
                    line[3:].split(":")[0]
                    for line in lines
                    if line.startswith("--") and line[3:4].isdigit()
                ),
                None,
            ), statement


def cells(name, column, *values):
    """Returns a forgery of the first cells of a column in a table."""
    return lambda row: {
        name: [
            {**line, column: value} for line, value in zip(row[name], values)
        ] + row[name][len(values) :]
    }


def counter(name, index, more):
    """Returns a forgery of a counter of a sketch."""
    return lambda row: {
        name: [cell + more * (nth == index) for nth, cell in enumerate(row[name])]
    }


def first(name, **values):
    """Returns a forgery of the first line of a table."""
    return lambda row: {name: [{**row[name][0], **values}, *row[name][1:]]}


def spread(name):
    """Returns the law of a sketch's keys."""
    return f"keys of {name} have at most as many others as packets"


def shifted(buckets):
    """A bucket that begins within another one."""
    wide = max(buckets, key=lambda bucket: bucket["high_ns"] - bucket["low_ns"])
    ends = {name: wide[name] + 64 for name in ("low_ns", "high_ns")}
    return {"delay_buckets": [{**wide, **ends}]}


def repeated(name):
    return lambda row: {name: row[name] * 2}


def nullable(kind):
    """Returns a type of Parquet whose lists and lines may have NULL in them."""
    pyarrow = module("pyarrow")
    if pyarrow.types.is_list(kind):
        return pyarrow.list_(nullable(kind.value_type))
    if pyarrow.types.is_struct(kind):
        return pyarrow.struct([(field.name, nullable(field.type)) for field in kind])
    return kind


# A length in the place of a bucket of four.
FAR = {"low": 300, "high": 300}
HUGE, LEAST, NAN = 1 << 60, -(1 << 63), float("nan")
ORDER, COUNTS = "times and windows in order", "packets from 0 to 2^53, bytes to 2^58"
INTERVAL, DISTINCT = (
    "distinct flows within their interval",
    "at most as many distinct flows as packets",
)
SUPER = "super-packets begin with a packet"
HEAVY, LENGTHS = "heavy flows have at most all packets", "lengths of all packets"
REQUESTS = "requests of at most all packets"
DELAYS = "delays weigh at least 1, and packets give them"
REORDER = "reordered segments are at most all"
# Forged rows: the law that each breaks, and how.
FORGED = [
    ("names and a direction", {"direction": "sideways"}),
    ("names and a direction", {"direction": None}),
    ("names and a direction", {"run": "é" * 2049}),
    ("names and a direction", {"source": "s" * 65537}),
    (ORDER, {"start_ns": -1}),
    (ORDER, {"end_ns": 0}),
    (ORDER, {"late_ns": None}),
    (ORDER, {"scheduled_start_ns": -1}),
    (ORDER, {"scheduled_end_ns": 0}),
    (ORDER, {"window": -1, "last_window": -1, "silent_windows": None}),
    (ORDER, {"last_window": 2}),
    (ORDER, {"last_window": (1 << 62) + 1}),
    (ORDER, {"silent_windows": 4}),
    (COUNTS, {"late": (1 << 53) + 2}),
    (COUNTS, {"bytes": (1 << 58) + 1}),
    (COUNTS, {"lost_rows": LEAST}),
    (COUNTS, {"lost_rows": None}),
    ("packets are those of all kinds", {"packets": 200}),
    ("packets are those of all kinds", {"non_ip": 1}),
    ("drops of each cause once", {"dropped": 5}),
    (
        "drops of each cause once",
        {"dropped": 2, "drops": [{"cause": "full", "packets": packets} for packets in (1, 1)]},
    ),
    (
        "drops of each cause once",
        {"drops": [{"cause": f"{packets}", "packets": packets} for packets in (-1, 1)]},
    ),
    (INTERVAL, {"distinct_low": 1e6}),
    (INTERVAL, {"distinct_low": -1.0}),
    (INTERVAL, {"distinct_high": float("inf")}),
    (INTERVAL, {"distinct_high": NAN}),
    (INTERVAL, {"distinct_low": None}),
    (INTERVAL, {"distinct_key": None}),
    (DISTINCT, {"distinct": 1e9, "distinct_high": 2e9}),
    (DISTINCT, {"distinct": 0.0, "distinct_low": 0.0}),
    (DISTINCT, {"registers": 2047}),
    (DISTINCT, {"registers": 0}),
    (DISTINCT, {"registers": -(1 << 40)}),
    *(
        (f"{name} from 0 to log2(packets)", forgery)
        for name in ("entropy", "entropy2")
        for forgery in (
            {name: NAN},
            {f"{name}_low": -0.5},
            {f"{name}_low": 7.0},
            {f"{name}_high": 64.0},
            {f"{name}_sum": HUGE},
            {f"{name}_sum": -1},
            {name: None},
            {f"{name}_key": None},
        )
    ),
    *(
        (f"the sketch of {name} counts all packets", forgery)
        for name in ("entropy", "entropy2", "frequency")
        for forgery in (
            {f"{name}_rows": HUGE, f"{name}_columns": HUGE},
            {f"{name}_rows": -4},
            {f"{name}_sketch": "count"},
            {f"{name}_columns": -1},
            {f"{name}_columns": 0},
            {f"{name}_full": [256]},
            {f"{name}_full": [5, 5]},
            {f"{name}_cells": [0] * 255},
            counter(f"{name}_cells", 0, HUGE),
            counter(f"{name}_cells", 255, LEAST),
            counter(f"{name}_cells", 70, 1),
        )
    ),
    ("the sketch of frequency counts all packets", {"frequency_cells": [0] * 256}),
    (
        "the sketch of frequency counts all packets",
        lambda row: {"frequency_cells": [-cell for cell in row["frequency_cells"]]},
    ),
    ("a filter has a probability", {"membership_false_positive": 1.5}),
    ("a filter has a probability", {"membership_false_positive": NAN}),
    (HEAVY, {"heavy_total": HUGE}),
    (HEAVY, {"heavy_total": 20}),
    (HEAVY, {"heavy_packets": HUGE}),
    (HEAVY, {"heavy_least": HUGE}),
    (HEAVY, {"heavy_least": -1}),
    (HEAVY, lambda row: {"heavy_least_elsewhere": row["heavy_least"] + 1}),
    (HEAVY, {"heavy_least_elsewhere": -1}),
    (HEAVY, {"heavy_unit": "bytes", "heavy_total": HUGE}),
    (HEAVY, {"heavy_slots": 8}),
    (HEAVY, {"heavy_slots": 65}),
    (HEAVY, {"heavy_unit": "flows"}),
    (HEAVY, {"heavy_algorithm": None}),
    (HEAVY, cells("heavy", "count", HUGE)),
    (HEAVY, cells("heavy", "count", 1)),
    (HEAVY, cells("heavy", "inherited", HUGE)),
    (HEAVY, cells("heavy", "inherited", -1)),
    (HEAVY, first("heavy", count=151, inherited=151)),
    (HEAVY, cells("heavy", "count", 140, 140)),
    (HEAVY, lambda row: {"heavy": [{**row["heavy"][0], "count": 150, "inherited": 150}] * 5}),
    *(
        (spread(name), forgery)
        for name in ("spread", "spread2")
        for forgery in (
            {f"{name}_rows": 0},
            {f"{name}_rows": HUGE},
            {f"{name}_columns": 100},
            {f"{name}_registers": 512},
            {f"{name}_rest": -1.0},
            {f"{name}_rest": 1e12},
            {f"{name}_rest": NAN},
            {f"{name}_key": None},
            cells(name, "others", 1e12),
            cells(name, "others", NAN),
            cells(name, "low", -1.0),
            cells(name, "high", 0.0),
            first(name, others=0.0, low=0.0),
            lambda row, name=name: {name: [row[name][0]] * 2},
            {f"{name}_rows": 4, f"{name}_columns": 2048, f"{name}_registers": 16},
            {f"{name}_rows": 3, f"{name}_columns": 1024, f"{name}_registers": 256},
        )
    ),
    # Each fits alone.
    (
        "sketches of spread take at most 1 MiB",
        {
            f"{name}_{size}": number
            for name in ("spread", "spread2")
            for size, number in (("rows", 2), ("columns", 2048), ("registers", 128))
        },
    ),
    (LENGTHS, {"lengths_full": HUGE}),
    (LENGTHS, {"lengths_full": None}),
    (LENGTHS, {"lengths": []}),
    (LENGTHS, {"length_mean": float("inf")}),
    (LENGTHS, {"length_p50": -1.0}),
    (LENGTHS, cells("lengths", "packets", HUGE)),
    (LENGTHS, lambda row: {"complete": False, **cells("lengths", "packets", -5)(row)}),
    (LENGTHS, lambda row: {"complete": False, **cells("lengths", "packets", 120)(row)}),
    (LENGTHS, cells("lengths", "packets", 1)),
    (LENGTHS, cells("lengths", "excess", HUGE)),
    (LENGTHS, cells("lengths", "excess", 1)),
    (LENGTHS, cells("lengths", "excess", -1)),
    (LENGTHS, cells("lengths", "low", -3)),
    (LENGTHS, cells("lengths", "low", LEAST)),
    (LENGTHS, cells("lengths", "high", (1 << 63) - 1)),
    (LENGTHS, first("lengths", low=50, high=53)),
    (LENGTHS, lambda row: {"lengths": row["lengths"][:1] + [{**row["lengths"][1], **FAR}]}),
    (LENGTHS, lambda row: {"lengths": row["lengths"][::-1]}),
    (LENGTHS, lambda row: {"lengths": [{**row["lengths"][0], "packets": 75}] * 2}),
    (REQUESTS, {"delay_kinds": None, "delay_buckets": []}),
    (REQUESTS, {"delay_resolution_ns": HUGE}),
    (REQUESTS, repeated("delay")),
    (REQUESTS, cells("delay", "kind", "tcp")),
    (REQUESTS, cells("delay", "group_number", 256)),
    (REQUESTS, cells("delay", "admit_log2", 40)),
    (REQUESTS, cells("delay", "requests", 301)),
    (REQUESTS, cells("delay", "requests", -1)),
    *(
        (REQUESTS, cells("delay", name, 301))
        for name in ("admitted", "refused", "backward", "unsampled")
    ),
    (REQUESTS, cells("delay", "p50_ns", float("inf"))),
    (REQUESTS, lambda row: {"delay": [{**cell, "p99_ns": 0.0} for cell in row["delay"]]}),
    (DELAYS, {"delay_kinds": None, "delay": []}),
    (DELAYS, repeated("delay_buckets")),
    (DELAYS, cells("delay_buckets", "kind", "tcp")),
    (DELAYS, cells("delay_buckets", "group_number", -1)),
    (DELAYS, cells("delay_buckets", "fridge", 1)),
    (DELAYS, cells("delay_buckets", "low_ns", -64)),
    (DELAYS, cells("delay_buckets", "high_ns", (1 << 63) - 1)),
    (DELAYS, lambda row: shifted(row["delay_buckets"])),
    (DELAYS, first("delay_buckets", samples=0, weight=0, squares=0, beyond=0)),
    (DELAYS, cells("delay_buckets", "samples", LEAST)),
    (DELAYS, first("delay_buckets", samples=301, weight=1 << 21, squares=1 << 17)),
    (DELAYS, cells("delay_buckets", "weight", HUGE)),
    (DELAYS, cells("delay_buckets", "weight", 0)),
    (DELAYS, cells("delay_buckets", "squares", HUGE)),
    (DELAYS, cells("delay_buckets", "squares", 0)),
    (DELAYS, cells("delay_buckets", "beyond", 1 << 20)),
    (DELAYS, cells("delay_buckets", "beyond", -1)),
    (REORDER, {"reorder_algorithm": None}),
    (REORDER, {"reorder_unfollowed": HUGE}),
    (REORDER, {"reorder_unfollowed": 150}),
    (REORDER, {"reorder_crowded": -1}),
    (REORDER, {"reorder_ipv4_bits": HUGE}),
    (REORDER, {"reorder_ipv4_bits": 8}),
    (REORDER, {"reorder_ipv6_bits": LEAST}),
    (REORDER, repeated("reorder")),
    (REORDER, cells("reorder", "bits", 7)),
    (REORDER, cells("reorder", "bits", (1 << 62) + 256 + 4)),
    *(
        (REORDER, cells("reorder", name, HUGE))
        for name in ("packets", "out_of_order", "retransmitted", "gaps", "flows", "squares")
    ),
    (REORDER, cells("reorder", "retransmitted", 100)),
    (REORDER, cells("reorder", "packets", 0)),
    (REORDER, cells("reorder", "gaps", -1)),
    (REORDER, cells("reorder", "squares", 1)),
    # NULL where a value has to be: in a column, a list or a line of a table.
    ("names and a direction", {"run": None}),
    (ORDER, {"scheduled_start_ns": None}),
    ("drops of each cause once", {"drops": [{"cause": None, "packets": 0}]}),
    ("drops of each cause once", {"drops": [{"cause": "full", "packets": None}]}),
    (DISTINCT, {"registers": None}),
    ("the sketch of entropy counts all packets", {"entropy_columns": None}),
    ("the sketch of entropy counts all packets", {"entropy_full": [None]}),
    ("the sketch of frequency counts all packets", {"frequency_cells": None}),
    (
        "the sketch of frequency counts all packets",
        lambda row: {"frequency_cells": [cell or None for cell in row["frequency_cells"]]},
    ),
    (HEAVY, lambda row: {"heavy": [*row["heavy"], None]}),
    (spread("spread"), {"spread_columns": None}),
    (spread("spread"), {"spread_rest": None}),
    (spread("spread"), lambda row: {"spread": [*row["spread"], None]}),
    *(
        (law, cells(name, column, None))
        for law, name, columns in (
            (HEAVY, "heavy", ("count", "inherited")),
            (spread("spread"), "spread", ("others", "low", "high")),
            (LENGTHS, "lengths", ("low", "high", "packets", "excess")),
            (REQUESTS, "delay", ("kind", "leaves", "group_number", "requests", "admitted")),
            (REQUESTS, "delay", ("refused", "backward", "unsampled", "admit_log2")),
            (REQUESTS, "delay", ("p50_ns", "p95_ns", "p99_ns")),
            (DELAYS, "delay_buckets", ("kind", "leaves", "group_number", "fridge", "low_ns")),
            (DELAYS, "delay_buckets", ("high_ns", "samples", "weight", "squares", "beyond")),
            (REORDER, "reorder", ("packets", "out_of_order", "retransmitted", "gaps", "flows")),
            (REORDER, "reorder", ("squares", "bits")),
        )
        for column in columns
    ),
]


class Engines(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.lake = f"{cls.scratch.name}/lake"
        replay(cls.scratch.name, cls.lake, "a", "")
        replay(cls.scratch.name, cls.lake, "b", "")

    @needs("pyarrow", "datasketches")
    def test_datasketches_reads_every_image(self):
        datasketches = module("datasketches")
        union = datasketches.hll_union(11)
        for image in images(self.lake):
            union.update(datasketches.hll_sketch.deserialize(image))
        result = union.get_result(datasketches.tgt_hll_type.HLL_8)
        self.assertEqual(bytes(result.serialize_updatable())[40 : 40 + 2048], registers(self.lake))
        [record] = united(self.lake)
        ours = record["cardinality"]["estimate"]
        print(f"datasketches {result.get_estimate() / ours - 1:+.3%}")
        self.assertLess(abs(result.get_estimate() / ours - 1), ESTIMATORS_APART)

    @needs("pyarrow", "chdb")
    def test_clickhouse_has_the_same_registers_and_the_same_estimate(self):
        chdb = module("chdb")
        levels = f"reinterpret(substring(assumeNotNull({SKETCH}), 41), 'Array(UInt8)')"
        text = f"select maxForEach({levels}) from file('{self.lake}/*/*/*.parquet')"
        found = json.loads(chdb.query(text, "TabSeparated").bytes().decode())
        self.assertEqual(bytes(found), registers(self.lake))
        with ClickHouse(self.lake) as engine:
            [[_, distinct]], [[_, schema]] = list(script("clickhouse/distinct.sql")), list(
                script("clickhouse/schema.sql")
            )
            rows = engine.ask(distinct.replace("FORMAT TabSeparatedWithNames", ""))
            schema = engine.ask(schema.replace("FORMAT TabSeparatedWithNames", ""))
        of_hosts = {record["interface"]: record for record in united(self.lake, "--by", "host")}
        [of_all] = united(self.lake)
        self.assertEqual(len(rows), 3)
        for row in rows:
            record = of_hosts.get(row["host"], of_all)
            self.assertEqual(int(row["packets"]), record["packets"])
            self.assertAlmostEqual(
                float(row["estimate"]) / record["cardinality"]["estimate"], 1, places=9
            )
        self.assertEqual(
            [(row["hash"], row["sketch"]) for row in schema], [("tabulated_790900f3_1", SKETCH)]
        )

    @needs("pyarrow", "pyspark")
    def test_spark_has_the_same_registers(self):
        output, sites = f"{self.scratch.name}/out", pathlib.Path(self.scratch.name, "sites.csv")
        sites.write_text("host,site\na,north\nb,north\n", encoding="utf-8")
        run = job(self.lake, output, "--sites", sites)
        self.assertEqual(run.returncode, 0, run.stderr)
        [row] = results(output)
        [record] = united(self.lake)
        # Spark's union is an image of its own type; DataSketches knows them all.
        datasketches = module("datasketches")
        if datasketches is not None:
            union = datasketches.hll_union(11)
            union.update(datasketches.hll_sketch.deserialize(row["sketch"]))
            image = bytes(union.get_result(datasketches.tgt_hll_type.HLL_8).serialize_updatable())
            self.assertEqual(image[40 : 40 + 2048], registers(self.lake))
        self.assertEqual(
            (row["site"], row["hosts"], row["windows"], row["packets"]),
            ("north", 2, 12, record["packets"]),
        )
        ours = record["cardinality"]["estimate"]
        print(f"spark {row['estimate'] / ours - 1:+.3%}")
        self.assertLess(abs(row["estimate"] / ours - 1), ESTIMATORS_APART)

    @needs("pyarrow", "pyspark")
    def test_windows_that_arrive_late_change_their_day_alone(self):
        lake, output = f"{self.scratch.name}/late", f"{self.scratch.name}/late-out"
        # One packet in 100 seconds: 2,000 of them come in three days.
        replay(
            self.scratch.name,
            lake,
            "slow",
            "unique,packets=2000,rate=0.01",
            "--measure",
            "cardinality",
            window="1h",
        )
        self.assertEqual(job(lake, output, "--by", "day").returncode, 0)
        before = {row["period"]: row for row in results(output)}
        self.assertGreater(len(before), 2)

        def written():
            return {file: os.stat(file).st_mtime_ns for file in glob.glob(f"{output}/*/*.parquet")}

        kept = written()
        # Another host's windows of the first hours come long after, with times of files that are
        # older than all others.
        replay(
            self.scratch.name,
            lake,
            "tardy",
            "unique,packets=100,rate=0.01,seed=5",
            "--measure",
            "cardinality",
            window="1h",
        )
        for file in (file for file in files(lake) if "tardy-" in file):
            os.utime(file, (1, 1))
        run = job(lake, output, "--by", "day", "--unread")
        self.assertEqual(run.returncode, 0, run.stderr)
        after = results(output)
        self.assertEqual({row["period"] for row in after}, set(before))
        self.assertEqual(sum(row["packets"] for row in after), 2100)
        again = written()
        self.assertEqual(len(set(kept.items()) & set(again.items())), len(before) - 1)
        lists = sorted(os.listdir(f"{output}/_flowgauge_files"))
        self.assertEqual(
            [name for name in lists if name.startswith("date=")],
            sorted({f"date={row['period']:%Y-%m-%d}" for row in after}),
        )
        # There is nothing else to read.
        run = job(lake, output, "--by", "day", "--unread")
        self.assertEqual((run.returncode, written()), (0, again), run.stderr)
        self.assertIn("nothing new", run.stderr)

    @needs("pyarrow", "pyspark")
    def test_lost_rows_are_counted_once(self):
        lake = f"{self.scratch.name}/lossy"
        replay(
            self.scratch.name,
            lake,
            "slow",
            "unique,packets=2000,rate=0.01",
            "--measure",
            "cardinality",
            window="1h",
        )
        # From the fourth window on, each row says that five could not be written before.
        self.rewrite(lake, lost_rows=lambda row: 5 if row["window"] >= 3 else 0)
        for options in ((), ("--from", "1970-01-02")):
            output = f"{self.scratch.name}/lossy-out{len(options)}"
            run = job(lake, output, *options)
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertEqual(sum(row["lost_rows"] for row in results(output)), 0 if options else 5)

    def rewrite(self, lake, **columns):
        """Has columns of all rows of a lake computed from the rows."""
        parquet, pyarrow = module("pyarrow.parquet"), module("pyarrow")
        for file in files(lake):
            table = parquet.read_table(file, partitioning=None)
            rows = table.to_pylist()
            for name, value in columns.items():
                index = table.schema.get_field_index(name)
                table = table.set_column(
                    index,
                    name,
                    pyarrow.array([value(row) for row in rows], table.schema.field(index).type),
                )
            parquet.write_table(table, file)

    @needs("pyarrow")
    def test_no_statement_gives_a_number_of_rows_that_cannot_be_united(self):
        measure, secret = ("--measure", EVERYTHING), pathlib.Path(self.scratch.name, "secret")
        secret.write_bytes(bytes(range(32)))
        secret.chmod(0o600)
        for name, options in [
            ("seed", ("--seed", "2")),
            ("polynomial", ("--hash", "crc32")),
            ("fingerprint", ("--hash-key", secret)),
            ("registers", ("--registers", "4096")),
            ("inner", ("--inner",)),
            ("version", None),
        ]:
            lake, output = (
                f"{self.scratch.name}/mixed-{name}",
                f"{self.scratch.name}/mixed-{name}-out",
            )
            replay(self.scratch.name, lake, "a", "", *measure, *(options or ()))
            if options is None:
                self.rewrite(lake, schema=lambda row: 2)
            replay(self.scratch.name, lake, "b", "", *measure)
            merged = subprocess.run(
                [FLOWGAUGE, "merge", lake], capture_output=True, text=True, check=False
            )
            self.assertEqual((merged.returncode, merged.stdout), (1, ""), name)
            refusal = "differ|another version|this view does not know|in another column"
            for engine, start, questions in engines():
                with start(lake) as asked:
                    for number in questions:
                        with self.assertRaisesRegex(
                            Exception, refusal, msg=f"{engine}, {name}, question {number}"
                        ):
                            asked.answers([number])
                    if engine == "clickhouse":
                        for _, statement in script("clickhouse/distinct.sql"):
                            with self.assertRaisesRegex(
                                Exception, refusal, msg=f"{name}: distinct.sql"
                            ):
                                asked.ask(statement)
            if module("pyspark") is None:
                continue
            run = job(lake, output)
            self.assertEqual(
                (run.returncode, os.path.exists(output)), (1, False), f"{name}: {run.stderr}"
            )
            line = next(
                (line for line in run.stderr.splitlines() if line.startswith("distinct.py:")),
                run.stderr,
            )
            self.assertIn("a-run_a-000000.parquet", line)

    @needs("chdb")
    def test_each_side_of_a_new_key_can_be_asked(self):
        lake, names = f"{self.scratch.name}/rotated", []
        profile = "unique,packets=2000,rate=0.01"
        # The first day with one key, all others with the next.
        for number in (1, 2):
            secret, one = (
                pathlib.Path(self.scratch.name, f"secret{number}"),
                f"{self.scratch.name}/key{number}",
            )
            secret.write_bytes(bytes([number]) * 32)
            secret.chmod(0o600)
            replay(
                self.scratch.name,
                one,
                "slow",
                profile,
                "--measure",
                "cardinality",
                "--hash-key",
                secret,
                window="1h",
            )
            for file in files(one):
                if ("date=1970-01-01" in file) == (number == 1):
                    wanted = pathlib.Path(file.replace(one, lake))
                    wanted.parent.mkdir(parents=True, exist_ok=True)
                    os.rename(file, wanted.with_name(f"{number}-{wanted.name}"))
            with ClickHouse(one) as engine:
                [[_, statement]] = script("clickhouse/schema.sql")
                names.append(
                    engine.ask(statement.replace("FORMAT TabSeparatedWithNames", ""))[0]["sketch"]
                )
        self.assertRegex(
            " ".join(names), "^hll_src_p11_keyed_[0-9a-f]{16} hll_src_p11_keyed_[0-9a-f]{16}$"
        )
        self.assertNotEqual(*names)
        rotation = "1970-01-02"
        for name, options, times in [
            (names[0], ("--to", f"{rotation}T00:00"), {"to": rotation}),
            (names[1], ("--from", rotation), {"from": rotation}),
        ]:
            [record] = united(lake, *options)
            with ClickHouse(lake, sketch=name, **times) as engine:
                [[row]] = engine.answers(["1"]).values()
            self.assertAlmostEqual(row["estimate"] / record["cardinality"]["estimate"], 1, places=9)
        for name in names:
            with ClickHouse(lake, sketch=name) as engine, self.assertRaisesRegex(
                Exception, "differ|another column"
            ):
                engine.answers(["1"])
            with ClickHouse(lake, sketch=name, to=rotation) as engine:
                if name == names[1]:
                    with self.assertRaisesRegex(Exception, "another column"):
                        engine.answers(["1"])

    @needs("pyarrow")
    def test_no_statement_gives_a_number_without_the_views_that_guard_it(self):
        for engine, start, questions in engines():
            if engine == "spark":
                with start(self.lake) as asked:
                    pass
            else:
                asked = start(self.lake, views=False)
            for number in questions:
                with self.assertRaisesRegex(
                    Exception,
                    "flowgauge_(rows|sketches|measured)",
                    msg=f"{engine}, question {number}",
                ):
                    asked.answers([number])
            if engine != "spark":
                asked.__exit__()

    @needs("pyarrow")
    def test_measurements_by_different_settings_are_refused_where_they_matter(self):
        lake = f"{self.scratch.name}/settings"
        other = (
            "--key",
            "heavy=dst",
            "--sketch",
            "entropy=3x512",
            "--delay-admit",
            "1/2",
            "--reorder-algorithm",
            "sampling",
        )
        # Traffic of which each question has an answer.
        for host, profile in [
            ("talks", "delay,shape=conversations,requests=300,seed=2"),
            ("late", "reorder,packets=5000,prefixes=8,heavy=2,share=0.5,rate=1k"),
        ]:
            replay(self.scratch.name, lake, host, profile, "--measure", EVERYTHING)
            replay(self.scratch.name, lake, f"{host}2", profile, "--measure", EVERYTHING, *other)
        for engine, start, questions in engines():
            with start(lake) as asked:
                for number in questions:
                    if number in ("5", "6", "7", "8"):
                        with self.assertRaisesRegex(
                            Exception,
                            "different keys or settings",
                            msg=f"{engine}, question {number}",
                        ):
                            asked.answers([number])
                    else:
                        asked.answers([number])

    def assert_broken(self, lake, expected):
        """All engines list the same rows: name of the file, host, source, window and law."""
        for engine, start, _ in engines():
            with start(lake, name=None) if engine == "spark" else start(lake) as asked:
                rows = [tuple(row.values()) for row in asked.broken()]
            found = [
                (" ".join(map(os.path.basename, names.split())), *row)
                for names, *row in rows
            ]
            missed, more = set(expected) - set(found), set(found) - set(expected)
            self.assertEqual((missed, more, len(found)), (set(), set(), len(expected)), engine)

    @needs("pyarrow")
    def test_rows_of_all_algorithms_break_no_law(self):
        lake, all_of_it = f"{self.scratch.name}/honest", f"{EVERYTHING},frequency,membership"
        talks = "delay,shape=conversations,requests=300,loss=0.05,timestamps,seed=2"
        late = "reorder,packets=5000,prefixes=8,heavy=2,share=0.5,loss=0.01,rate=1k"
        timestamps = "--delay", "tcp-data,tcp-timestamps,quic-spin,tcp-duration"
        for number, (profile, window, options) in enumerate(
            [
                (talks, "100ms", ()),
                (late, "1s", ()),
                (talks, "200ms", ("--by", "bytes", "--delay-algorithm", "multi-fridge")),
                (talks, "200ms", ("--sketch", "entropy=count-min:3x128", *timestamps)),
                (talks, "200ms", ("--algorithm", "space-saving", "--delay-admit", "auto")),
                (talks, "200ms", ("--algorithm", "hashpipe", "--delay-algorithm", "expiry")),
                (late, "300ms", ("--algorithm", "precision", "--reorder-algorithm", "sampling")),
                (late, "1s", ("--hash", "crc32", "--registers", "16", "--slots", "16")),
                ("unique,packets=20000,rate=1k", "5s", ("--registers", "65536")),
            ]
        ):
            replay(
                self.scratch.name,
                lake,
                f"host{number}",
                profile,
                *("--measure", all_of_it, "--key", "entropy=src+dst", "--filter", "4x4096"),
                *options,
                window=window,
            )
        # A file that was copied breaks none.
        copied = pathlib.Path(lake, "date=1970-01-01", "hour=01", "copied.parquet")
        copied.parent.mkdir()
        copied.write_bytes(pathlib.Path(files(lake)[0]).read_bytes())
        self.assert_broken(lake, [])

    @needs("pyarrow")
    def test_engines_find_rows_that_no_window_can_have_counted(self):
        lake, parquet, pyarrow = f"{self.scratch.name}/forged", *map(
            module, ("pyarrow.parquet", "pyarrow")
        )
        replay(
            self.scratch.name,
            lake,
            "honest",
            "delay,shape=conversations,requests=300,loss=0.05,timestamps,seed=2",
            *("--measure", f"{EVERYTHING},frequency,membership", "--key", "entropy=src+dst"),
            *("--sketch", "entropy=count-sketch:4x64", "--sketch", "frequency=count-min:4x64"),
            *("--filter", "4x4096", "--slots", "64"),
            *("--spread", "by=dst,of=src", "--spread", "by=src,of=dst"),
            window="100ms",
        )
        [file] = files(lake)
        table = parquet.read_table(file, partitioning=None)
        schema, (first, _, _, honest, *_) = table.schema, table.to_pylist()
        # Keys with many others are in the first window alone.
        honest |= {name: first[name] for name in ("spread", "spread2")}
        schema = pyarrow.schema(
            [(field.name, nullable(field.type)) for field in schema]
            + [(name, pyarrow.int64()) for name in ("unmatched", "unmatched_bytes", "merged")]
        )
        rows, expected = [], []
        for number, (law, forge) in enumerate(FORGED):
            forged = forge if isinstance(forge, dict) else forge(honest)
            self.assertTrue(any(honest[name] != value for name, value in forged.items()), law)
            row = {**honest, "host": f"forged{number}", **forged}
            rows.append(row)
            expected.append(("forged.parquet", row["host"], row["source"], row["window"], law))
        # Bytes of no packets, in rows of no measurement.
        measured = (
            "distinct|registers|hll|entropy|frequency|membership|heavy|spread|length|delay|reorder"
        )
        empty = {name: value for name, value in honest.items() if not re.match(measured, name)}
        empty |= {name: [] for name, value in honest.items() if isinstance(value, list)}
        empty |= {"packets": 0, "ipv4_packets": 0}
        rows += [
            {**empty, "host": "empty"},
            {**empty, "host": "matched", "bytes": 0, "unmatched": 0, "unmatched_bytes": 100},
            # Super-packets of more packets than there are, and of all but one.
            {**empty, "host": "merged", "bytes": 0, "merged": 1},
            {**honest, "host": "merged less", "merged": -1},
            {**honest, "host": "merged all", "merged": honest["packets"]},
            {**honest, "host": "one super-packet", "merged": honest["packets"] - 1},
            # Different rows of one window, one of windows that others have, and a copy.
            {**honest, "bytes": honest["bytes"] + 1},
            {**honest, "window": 6, "last_window": 8},
            first,
        ]
        forged = os.path.join(os.path.dirname(file), "forged.parquet")
        parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), forged)
        both, source = f"forged.parquet {os.path.basename(file)}", honest["source"]
        expected += [
            ("forged.parquet", "empty", source, 3, "no bytes without a packet"),
            ("forged.parquet", "matched", source, 3, "no bytes without a packet"),
            ("forged.parquet", "merged", source, 3, SUPER),
            ("forged.parquet", "merged less", source, 3, COUNTS),
            ("forged.parquet", "merged all", source, 3, SUPER),
            (both, "honest", source, 3, "one row of a window"),
            (both, "honest", source, 6, "one row of a window"),
        ]
        laws = (HERE.parent / "duckdb" / "laws.sql").read_text(encoding="utf-8")
        stated = re.findall("law: '([^']+)'", laws)
        self.assertEqual({law for *_, law in expected}, {*stated, "one row of a window"})
        self.assert_broken(lake, expected)

    @needs("pyarrow")
    def test_only_files_of_wanted_hours_are_opened(self):
        lake = f"{self.scratch.name}/pruned"
        replay(
            self.scratch.name,
            lake,
            "slow",
            "unique,packets=300,rate=0.01",
            "--measure",
            EVERYTHING,
            window="1h",
        )
        wanted = {"1970-01-01/hour=02", "1970-01-01/hour=03"}
        for file in files(lake):
            # An engine that opens a file of another hour fails.
            if not any(f"date={hour}/" in file for hour in wanted):
                pathlib.Path(file).write_bytes(b"no Parquet at all")
        begin, end = "1970-01-01 02:00:00", "1970-01-01 04:00:00"
        for engine, start, questions in engines():
            with (
                start(lake, begin, end)
                if engine == "spark"
                else start(lake, **{"from": begin, "to": end})
            ) as asked:
                answers = asked.answers(questions)
                self.assertEqual(
                    [row["measured"] for row in answers["5"]][:1], ["2 of 2 windows"], engine
                )
                self.assertEqual(sum(int(row["packets"]) for row in answers["10"]), 72, engine)
            with start(lake) as asked, self.assertRaises(Exception, msg=engine):
                asked.answers(["5"])

    @needs("pyarrow")
    def test_a_time_without_windows_is_no_zero(self):
        lake = f"{self.scratch.name}/silent"
        # A packet in 28 hours: windows of an hour between them are silent, and get no row.
        replay(
            self.scratch.name,
            lake,
            "rare",
            "unique,packets=4,rate=0.00001",
            "--measure",
            EVERYTHING,
            window="1h",
        )
        for engine, start, questions in engines():
            with start(lake) as asked:
                answers = asked.answers(questions)
            self.assertEqual(
                {row["reason"] for row in answers["9b"]},
                {"no packets"},
                engine,
            )
            hours = {str(row["hour"]) for row in answers["10"]}
            self.assertEqual(len(hours), len(answers["9b"]) + 1, engine)
            self.assertNotIn("0", [str(row["packets"]) for row in answers["10"]], engine)
        missing = files(lake)[1]
        pathlib.Path(missing).rename(f"{self.scratch.name}/aside.parquet")
        for engine, start, questions in engines():
            with start(lake) as asked:
                reasons = {row["reason"] for row in asked.answers(["9b"])["9b"]}
            self.assertEqual(reasons, {"no packets", "a file that is not here"}, engine)
        pathlib.Path(f"{self.scratch.name}/aside.parquet").rename(missing)
        self.rewrite(lake, lost_rows=lambda row: 5 if row["window"] > 40 else 0)
        for engine, start, questions in engines():
            with start(lake) as asked:
                answers = asked.answers(["9b", "9c"])
            self.assertIn(
                "rows that could not be written", {row["reason"] for row in answers["9b"]}, engine
            )
            self.assertEqual(
                [
                    int(next(value for name, value in row.items() if name.startswith("lost")))
                    for row in answers["9c"]
                ],
                [5],
                engine,
            )

    def fleet(self, **measure):
        """A lake of hosts that measure different things, of the same conversations."""
        lake = f"{self.scratch.name}/fleet-{'-'.join(measure)}"
        if not os.path.exists(lake):
            profile = "delay,shape=conversations,requests=300,loss=0.05,timestamps,seed=2"
            for host, measured in measure.items():
                replay(
                    self.scratch.name, lake, host, profile, "--measure", measured, window="100ms"
                )
        return lake

    @needs("pyarrow")
    def test_agents_that_measure_different_things_can_be_asked_together(self):
        lake = self.fleet(a=EVERYTHING, flows="cardinality", plain=NO_DISTINCT)
        [of_all] = united(lake)
        by_host = {record["interface"]: record for record in united(lake, "--by", "host")}
        rows, partial = of_all["united"]["rows"], of_all["united"]["partial"]
        for engine, start, questions in engines():
            apart = 0.008 if engine == "spark" else 1e-9
            with start(lake) as asked:
                answers = asked.answers(questions)

            def about(number, **wanted):
                return [
                    row
                    for row in answers[number]
                    if all(row[name] == value for name, value in wanted.items())
                ]

            def measured(name, of=of_all):
                rows = of["united"]["rows"]
                return f"{of['united'].get('partial', {}).get(name, rows)} of {rows} windows"

            if "1" in questions:
                [row] = answers["1"]
                self.assertLess(
                    abs(float(row["estimate"]) / of_all["cardinality"]["estimate"] - 1), apart
                )
                self.assertEqual(row["measured"], measured("cardinality"), engine)
                for host, record in by_host.items():
                    [row] = about("2", host=host)
                    if host == "plain":
                        self.assertEqual(
                            (row["estimate"], row["measured"]), (None, "not measured"), engine
                        )
                    else:
                        self.assertLess(
                            abs(float(row["estimate"]) / record["cardinality"]["estimate"] - 1),
                            apart,
                        )
                        self.assertEqual(row["measured"], measured("cardinality", record), engine)
                [row] = answers["3"]
                self.assertEqual(
                    (row["measured"], row["measured_elsewhere"]),
                    ("11 of 11 windows", "11 of 22 windows"),
                    engine,
                )
                # All windows are before the time of question 4.
                [row] = answers["4"]
                self.assertEqual((row["whole"], row["measured"]), (None, "no windows"), engine)
            heaviest = of_all["heavy"]["flows"]
            told = [(row["flow"], int(row["count"]), int(row["at_least"])) for row in answers["5"]]
            self.assertEqual(
                sorted(told[:5]),
                sorted((flow["flow"], flow["count"], flow["low"]) for flow in heaviest[:5]),
                engine,
            )
            self.assertEqual({row["measured"] for row in answers["5"]}, {measured("heavy")}, engine)
            [row] = about("6", host="flows")
            self.assertEqual(
                (row["kind"], row["p50_ms"], row["measured"]), (None, None, "not measured"), engine
            )
            for host in ("a", "plain"):
                kinds = {row["kind"]: row for row in about("6", host=host)}
                self.assertEqual(
                    set(kinds), {delay["kind"] for delay in by_host[host]["delay"]}, engine
                )
                self.assertEqual(
                    {row["measured"] for row in kinds.values()},
                    {measured("delay", by_host[host])},
                    engine,
                )
            self.assertEqual(answers["7"], [], engine)
            self.assertEqual(
                {(row["host"], row["measured"]) for row in answers["8"]},
                {(host, measured("entropy")) for host in ("a", "plain")},
                engine,
            )
            self.assertEqual(
                (answers["9a"], answers["9b"], len(answers["9c"])), ([], [], 3), engine
            )
            self.assertEqual(
                sum(int(row["packets"]) for row in answers["10"]),
                of_all["sizes"]["packets"],
                engine,
            )
            self.assertEqual(
                {row["measured"] for row in answers["10"]}, {measured("sizes")}, engine
            )
        self.assertEqual((rows, partial["cardinality"]), (33, 22))

    @needs("pyarrow")
    def test_what_no_agent_measures_is_called_so(self):
        for lake, there in [
            (self.fleet(flows="cardinality"), QUESTIONS[:4]),
            (self.fleet(plain=NO_DISTINCT), ["5", "6", "8", "10", "11"]),
        ]:
            for engine, start, questions in engines():
                # Spark's job asks for a column of sketches if there is one.
                with (
                    start(lake, name=SKETCH if "1" in there else None)
                    if engine == "spark"
                    else start(lake)
                ) as asked:
                    answers = asked.answers(questions)
                for number in questions:
                    told = [row["measured"] for row in answers[number] if "measured" in row]
                    if number in ("3", "4"):
                        # There is no host of that name, and no window after that time.
                        self.assertEqual(
                            (told, answers[number][0]["whole"]),
                            (["no windows"], None),
                            f"{engine} {number}",
                        )
                    elif number.startswith("9"):
                        self.assertEqual(told, [])
                    elif number in there:
                        self.assertEqual(set(told), {"11 of 11 windows"}, f"{engine} {number}")
                    elif number == "7" and "5" in there:
                        # No prefix has enough segments.
                        self.assertEqual(told, [], f"{engine} {number}")
                    else:
                        self.assertEqual(told, ["not measured"], f"{engine} {number}")
                        values = [
                            value
                            for name, value in answers[number][0].items()
                            if name not in ("host", "hour", "measured")
                        ]
                        self.assertEqual(set(values), {None}, f"{engine} {number}")

    def added(self, kind, *arguments):
        run = subprocess.run(
            [sys.executable, HERE.parent / "tables" / f"{kind}.py", *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stdout

    def assert_table(self, kind, read, *more):
        """A table of some files of a lake takes further ones, once, and new columns with them."""
        lake, waiting = f"{self.scratch.name}/table-{kind}", f"{self.scratch.name}/waiting-{kind}"
        replay(self.scratch.name, lake, "a", "", "--measure", "cardinality")
        replay(self.scratch.name, waiting, "b", "", "--measure", NO_DISTINCT)
        self.assertIn("1 files added", self.added(kind, lake, *more))
        for file in files(waiting):
            os.rename(file, file.replace(waiting, lake))
        self.assertIn("1 files added", self.added(kind, lake, *more))
        self.assertIn("nothing new", self.added(kind, lake, *more))
        rows = read(lake)
        self.assertEqual(rows.num_rows, united(lake)[0]["united"]["rows"])
        measured = {
            (row["host"], row[SKETCH] is not None, row["heavy_key"] is not None)
            for row in rows.to_pylist()
        }
        self.assertEqual(measured, {("a", True, False), ("b", False, True)})

    @needs("pyarrow", "duckdb", "polars", "chdb")
    def test_files_that_engines_wrote_say_the_same(self):
        measures = "cardinality,entropy,frequency,membership,heavy,spread,sizes,delay,reorder"
        with tempfile.TemporaryDirectory() as directory:
            lake, profile = pathlib.Path(directory, "lake"), "zipf,flows=3000,packets=20000,rate=1k"
            replay(directory, lake, "a", profile, "--measure", measures, "--filter", "4x4096", window="5s")
            replay(directory, lake, "b", profile, "--measure", "cardinality", window="5s")
            right, sources = united(lake), files(lake)
            parquet, arrow, duckdb, polars, chdb = map(
                module, ("pyarrow.parquet", "pyarrow", "duckdb", "polars", "chdb")
            )
            joined = pathlib.Path(directory, "joined.parquet")
            for codec in ("snappy", "zstd", "gzip", "lz4_raw"):
                rows = f"read_parquet({sources!r}, union_by_name=true, hive_partitioning=false)"
                duckdb.sql(f"COPY (FROM {rows}) TO '{joined}' (FORMAT parquet, COMPRESSION '{codec}')")
                self.assertEqual(united(joined), right, f"duckdb, {codec}")
            tables = [parquet.read_table(source, partitioning=None) for source in sources]
            table = arrow.concat_tables(tables, promote_options="default")
            for codec in ("snappy", "gzip", "lz4", "zstd", "none"):
                for version in ("1.0", "2.0"):
                    parquet.write_table(table, joined, compression=codec, data_page_version=version)
                    self.assertEqual(united(joined), right, f"pyarrow, {codec}, pages {version}")
            frames = [polars.read_parquet(source, hive_partitioning=False) for source in sources]
            polars.concat(frames, how="diagonal_relaxed").write_parquet(joined)
            self.assertEqual(united(joined), right, "polars")
            joined.unlink()
            chdb.query(
                f"SELECT * FROM file('{lake}/*/*/*.parquet', Parquet) INTO OUTFILE '{joined}' FORMAT Parquet"
                " SETTINGS use_hive_partitioning = 0, schema_inference_mode = 'union'"
            )
            self.assertEqual(united(joined), right, "clickhouse")

    @needs("pyarrow", "pyspark")
    def test_files_that_spark_wrote_say_the_same(self):
        with tempfile.TemporaryDirectory() as directory:
            lake, profile = pathlib.Path(directory, "lake"), "zipf,flows=3000,packets=20000,rate=1k"
            replay(directory, lake, "a", profile, "--measure", "cardinality,heavy,sizes", window="5s")
            session = module("pyspark.sql").SparkSession.builder.master("local[1]").getOrCreate()
            session.sparkContext.setLogLevel("ERROR")
            joined = pathlib.Path(directory, "joined")
            session.read.parquet(str(lake)).drop("date", "hour").coalesce(1).write.parquet(str(joined))
            self.assertEqual(united(joined), united(lake))

    @needs("pyarrow", "pyiceberg")
    def test_a_lake_is_an_iceberg_table(self):
        warehouse = f"{self.scratch.name}/warehouse"

        def read(_):
            catalog = module("pyiceberg.catalog.sql").SqlCatalog(
                "flowgauge", uri=f"sqlite:///{warehouse}/catalog.db"
            )
            return (
                catalog.load_table("flowgauge.rows")
                .scan(selected_fields=("host", "heavy_key", SKETCH))
                .to_arrow()
            )

        self.assert_table("iceberg", read, warehouse)

    @needs("pyarrow", "deltalake")
    def test_a_lake_is_a_delta_table(self):
        self.assert_table(
            "delta",
            lambda lake: module("deltalake")
            .DeltaTable(lake)
            .to_pyarrow_table(columns=["host", "heavy_key", SKETCH]),
        )

    def plain(self):
        """A lake of everything that is measured, of two hosts."""
        lake = f"{self.scratch.name}/plain"
        if not os.path.exists(lake):
            measure = ("--measure", EVERYTHING)
            replay(
                self.scratch.name,
                lake,
                "talks",
                "delay,shape=conversations,requests=300,loss=0.05,timestamps,seed=2",
                *measure,
                window="100ms",
            )
            replay(
                self.scratch.name,
                lake,
                "late",
                "reorder,packets=5000,prefixes=8,heavy=2,share=0.5,loss=0.01,rate=1k",
                *measure,
                window="1s",
            )
        return lake

    def assert_answers(self, lake, answers):
        """Answers to the plain questions are what flowgauge says."""
        by_host = {record["interface"]: record for record in united(lake, "--by", "host")}
        [of_all] = united(lake)
        # Heavy hitters of all hosts: no table was full, so that counts are exact.
        row, heaviest = answers["5"][0], of_all["heavy"]["flows"][0]
        self.assertEqual(
            (row["flow"], int(row["count"]), int(row["at_least"])),
            (heaviest["flow"], heaviest["count"], heaviest["low"]),
        )
        # Percentiles are ends of buckets, which are 3 % wide.
        delays = {(row["host"], row["kind"]): row for row in answers["6"]}
        for delay in by_host["talks"]["delay"]:
            for name in ("p50", "p95"):
                told, corrected = (
                    float(delays[("talks", delay["kind"])][f"{name}_ms"]),
                    delay["corrected"][name],
                )
                self.assertTrue(
                    corrected["low"] * 0.96 <= told * 1e6 <= corrected["high"] * 1.04,
                    (delay["kind"], name, told, corrected),
                )
        # The prefixes of flowgauge with enough segments, by their rates.
        rates = {row["prefix"]: float(row["rate"]) for row in answers["7"]}
        for prefix in of_all["reorder"]["prefixes"]:
            if prefix["packets"] >= 300:
                self.assertAlmostEqual(rates[prefix["prefix"]], prefix["rate"]["value"], places=2)
        self.assertTrue(answers["8"])
        self.assertEqual((answers["9a"], answers["9b"]), ([], []))
        self.assertEqual({row["host"] for row in answers["9c"]}, {"talks", "late"})
        self.assertEqual(
            sum(int(row["packets"]) for row in answers["10"]), of_all["sizes"]["packets"]
        )
        self.assertEqual(sum(int(row["bytes"]) for row in answers["10"]), of_all["sizes"]["bytes"])
        # The key with the most others of any window, with its interval.
        most = max(
            (flow["others"], flow["low"], flow["high"])
            for host in by_host
            for record in united(lake, "--host", host, "--by", "window")
            for sketch in record["spread"]
            for flow in sketch["flows"]
        )
        told = [float(answers["11"][0][name]) for name in ("others", "low", "high")]
        for ours, theirs in zip(most, told):
            self.assertAlmostEqual(ours / theirs, 1, places=9)

    def assert_distinct(self, lake, answers, apart):
        """Answers to the questions of distinct flows are what flowgauge says."""
        [of_all] = united(lake)
        hosts = {
            record["interface"]: record["cardinality"]["estimate"]
            for record in united(lake, "--by", "host")
        }
        [whole], [only], [new] = (
            [
                {name: float(row[name]) for name in ("estimate", "low", "high")}
                for row in answers[it]
            ]
            for it in ("1", "3", "4")
        )
        self.assertLess(abs(whole["estimate"] / of_all["cardinality"]["estimate"] - 1), apart)
        # All windows of a host are in one hour.
        by_hour = {row["host"]: float(row["estimate"]) for row in answers["2"]}
        self.assertEqual(set(by_hour), set(hosts))
        for host, estimate in by_hour.items():
            self.assertLess(abs(estimate / hosts[host] - 1), apart)
        part = json.loads(
            flowgauge("diff", f"{lake},host=a", f"{lake},host=b", "--format", "json")
        )["only_a"]["value"]
        for answer in (whole, only, new):
            self.assertTrue(answer["low"] <= answer["estimate"] <= answer["high"], answer)
        self.assertTrue(only["low"] <= part <= only["high"], (only, part))
        self.assertGreater(new["low"], 0)

    @needs("duckdb")
    def test_duckdb_answers_the_plain_questions(self):
        with Duck(self.plain()) as engine:
            answers = engine.answers()
        self.assertEqual(sorted(answers), sorted(PLAIN))
        self.assert_answers(self.plain(), answers)

    @needs("chdb")
    def test_clickhouse_answers_eleven_questions(self):
        with ClickHouse(self.plain()) as engine:
            answers = engine.answers()
        self.assertEqual(sorted(answers), sorted(QUESTIONS))
        self.assert_answers(self.plain(), answers)
        with ClickHouse(self.lake) as engine:
            self.assert_distinct(self.lake, engine.answers(QUESTIONS[:4]), 1e-9)

    @needs("pyarrow", "pyspark")
    def test_spark_answers_eleven_questions(self):
        def ask(lake, *arguments):
            run = subprocess.run(
                [sys.executable, HERE / "questions.py", lake, *arguments],
                capture_output=True,
                text=True,
                check=False,
            )
            self.assertEqual(run.returncode, 0, run.stderr)
            found = {number: [] for number in QUESTIONS}
            for row in map(json.loads, run.stdout.splitlines()):
                found[row.pop("question")].append(row)
            return found

        self.assert_answers(self.plain(), ask(self.plain()))
        answers = ask(
            self.lake, "--only", "1,2,3,4", "--site", SITE, "--since", SINCE.replace(" ", "T") + "Z"
        )
        self.assert_distinct(self.lake, answers, 0.008)

    @needs("chdb")
    def test_the_dashboard_of_a_fleet_can_be_asked(self):
        dashboard = json.loads((HERE.parent / "grafana" / "fleet.json").read_text(encoding="utf-8"))
        lake = self.fleet(a=EVERYTHING, flows="cardinality", plain=NO_DISTINCT)
        [of_all] = united(lake)
        # As Grafana does.
        values = {
            "lake": f"{lake}/*/*/*.parquet",
            "sketch": SKETCH,
            "__from:date:iso": "1970-01-01T00:00:00.000Z",
            "__to:date:iso": "1970-01-02T00:00:00.000Z",
            "host:singlequote": "'a','flows','plain'",
        }
        answers = {}
        with ClickHouse(lake) as engine:

            def ask(query):
                for name, value in values.items():
                    query = query.replace(f"${{{name}}}", value)
                self.assertNotIn("${", query)
                return engine.ask(query)

            [hosts] = [
                it["query"] for it in dashboard["templating"]["list"] if it["name"] == "host"
            ]
            self.assertEqual([row["host"] for row in ask(hosts)], ["a", "flows", "plain"])
            for panel in dashboard["panels"]:
                for target in panel["targets"]:
                    answers[panel["title"]] = ask(target["rawSql"])
                    if panel["type"] == "timeseries":
                        self.assertIn("time", answers[panel["title"]][0], panel["title"])
        [whole] = answers["Distinct flows of all hosts by hour"]
        self.assertAlmostEqual(
            float(whole["estimate"]) / of_all["cardinality"]["estimate"], 1, places=9
        )
        coverage = {
            row["host"]: (row["windows"], row["distinct_flows"], row["heavy_hitters"])
            for row in answers["Windows with each measurement, by host"]
        }
        self.assertEqual(coverage, {"a": (11, 11, 11), "flows": (11, 11, 0), "plain": (11, 0, 11)})
        empty = {title for title, rows in answers.items() if not rows}
        self.assertEqual(
            empty,
            {
                "Times without a window",
                "Packets lost by host and cause",
                "Prefixes with most segments out of order",
            },
        )


if __name__ == "__main__":
    unittest.main(verbosity=2)
