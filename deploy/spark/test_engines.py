#!/usr/bin/env python3
"""Holds engines against `flowgauge merge` on small lakes. FLOWGAUGE names the program."""

import glob
import importlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

FLOWGAUGE = os.environ.get("FLOWGAUGE", "flowgauge")
HERE = pathlib.Path(__file__).resolve().parent
SKETCH = "hll_src_p11_tabulated_790900f3_1"
# DataSketches' estimator and flowgauge's differ by this much at most on the same registers, from four flows a register on.
ESTIMATORS_APART = 0.002


def module(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def needs(*names):
    missing = [name for name in names if module(name) is None]
    if missing:
        skipped = f"needs {', '.join(missing)} of pip"
        print(f"skipped: {skipped}", file=sys.stderr)
        # As the tests in Rust do.
        if "FLOWGAUGE_SKIPS" in os.environ:
            with open(os.environ["FLOWGAUGE_SKIPS"], "a", encoding="utf-8") as skips:
                skips.write(f"deploy/spark/test_engines.py: {skipped}\n")
    return unittest.skipIf(missing, f"needs {missing}")


def flowgauge(*arguments, **environment):
    run = subprocess.run([FLOWGAUGE, *map(str, arguments)], capture_output=True, text=True, env={**os.environ, **environment}, check=False)
    if run.returncode != 0:
        raise AssertionError(f"{arguments}: {run.stderr}")
    return run.stdout


def replay(directory, lake, host, profile, *options, window="10s"):
    capture = pathlib.Path(directory, f"{host}.pcap")
    if not capture.exists():
        flowgauge("generate", profile, "--to", capture)
    flowgauge("replay", capture, "--host", host, "--lake", lake, "--align", "--window", window, *options, FLOWGAUGE_RUN=f"run-{host}")


def files(lake):
    return sorted(glob.glob(f"{lake}/*/*/*.parquet"))


def united(lake, *options):
    return [json.loads(line) for line in flowgauge("merge", lake, "--format", "json", *options).splitlines()]


def images(lake):
    parquet = module("pyarrow.parquet")
    tables = (parquet.read_table(file, columns=[SKETCH], partitioning=None) for file in files(lake))
    return [image for table in tables for image in table.column(SKETCH).to_pylist()]


def registers(lake):
    """The union, register by register."""
    return bytes(map(max, zip(*(image[40:] for image in images(lake)))))


def job(lake, output, *options):
    return subprocess.run([sys.executable, HERE / "distinct.py", lake, output, *options], capture_output=True, text=True, check=False)


def results(output):
    parquet = module("pyarrow.parquet")
    rows = [row for file in glob.glob(f"{output}/*/*.parquet") for row in parquet.read_table(file, partitioning=None).to_pylist()]
    return sorted(rows, key=lambda row: (row["period"], row["site"], row["direction"]))


def clickhouse(script, lake, only=None, **parameters):
    """The answers of a script's statements, by the number that each begins with, or by its place; of numbered ones only some, if they are given."""
    session = module("chdb.session").Session()
    parameters = {"lake": f"{lake}/*/*/*.parquet", "sketch": f"^{SKETCH}$", **parameters}
    answers = {}
    try:
        for text in ((HERE.parent / "clickhouse" / name).read_text(encoding="utf-8") for name in ("estimate.sql", script)):
            for name, value in parameters.items():
                text = text.replace(f"{{{name}:String}}", f"'{value}'")
            for number, statement in statements(text):
                if only and number and number not in only:
                    continue
                answers[number or len(answers)] = session.query(statement, "TabSeparatedWithNames").bytes().decode()
    finally:
        session.close()
    return answers


def statements(text):
    """Statements of a script, each with the number in its first comment."""
    for statement in text.split(";\n"):
        lines = [line for line in statement.splitlines() if line.strip()]
        if any(not line.startswith("--") for line in lines):
            yield next((line[3:].split(":")[0] for line in lines if line.startswith("--") and line[3:4].isdigit()), None), statement


def table(text):
    """Rows of an answer of ClickHouse, each as a dictionary of texts."""
    names, *rows = (line.split("\t") for line in text.splitlines())
    return [dict(zip(names, row)) for row in rows]


class Engines(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.lake = f"{cls.scratch.name}/lake"
        replay(cls.scratch.name, cls.lake, "a", "zipf,flows=30k,packets=60000,rate=1k,seed=1")
        replay(cls.scratch.name, cls.lake, "b", "zipf,flows=30k,packets=60000,rate=1k,seed=2")

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
        text = f"select maxForEach(reinterpret(substring(assumeNotNull({SKETCH}), 41), 'Array(UInt8)')) from file('{self.lake}/*/*/*.parquet')"
        found = json.loads(chdb.query(text, "TabSeparated").bytes().decode())
        self.assertEqual(bytes(found), registers(self.lake))
        *_, answer = clickhouse("distinct.sql", self.lake).values()
        rows = table(answer)
        of_hosts = {record["interface"]: record for record in united(self.lake, "--by", "host")}
        [of_all] = united(self.lake)
        self.assertEqual(len(rows), 3)
        for row in rows:
            record = of_hosts.get(row["host"], of_all)
            self.assertEqual(int(row["packets"]), record["packets"])
            self.assertAlmostEqual(float(row["estimate"]) / record["cardinality"]["estimate"], 1, places=9)
        *_, schema = clickhouse("schema.sql", self.lake).values()
        self.assertIn("tabulated_790900f3_1", schema)

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
        self.assertEqual((row["site"], row["hosts"], row["windows"], row["packets"]), ("north", 2, 12, record["packets"]))
        ours = record["cardinality"]["estimate"]
        print(f"spark {row['estimate'] / ours - 1:+.3%}")
        self.assertLess(abs(row["estimate"] / ours - 1), ESTIMATORS_APART)

    @needs("pyarrow", "pyspark")
    def test_windows_that_arrive_late_change_their_day_alone(self):
        lake, output = f"{self.scratch.name}/late", f"{self.scratch.name}/late-out"
        # One packet in 100 seconds: 2,000 of them come in three days.
        replay(self.scratch.name, lake, "slow", "unique,packets=2000,rate=0.01", "--measure", "cardinality", window="1h")
        self.assertEqual(job(lake, output, "--by", "day").returncode, 0)
        before = {row["period"]: row for row in results(output)}
        kept = {file: os.stat(file).st_mtime_ns for file in glob.glob(f"{output}/*/*.parquet")}
        self.assertGreater(len(before), 2)
        # Another host's windows of the first hours come long after.
        replay(self.scratch.name, lake, "tardy", "unique,packets=100,rate=0.01,seed=5", "--measure", "cardinality", window="1h")
        late = [file for file in files(lake) if "tardy-" in file]
        since = "2100-01-01T00:00:00Z"
        for file in late:
            os.utime(file, (4102444800, 4102444800))
        run = job(lake, output, "--by", "day", "--changed-since", since)
        self.assertEqual(run.returncode, 0, run.stderr)
        after = results(output)
        self.assertEqual({row["period"] for row in after}, set(before))
        self.assertEqual(sum(row["packets"] for row in after), 2100)
        again = {file: os.stat(file).st_mtime_ns for file in glob.glob(f"{output}/*/*.parquet")}
        self.assertEqual(len(set(kept.items()) & set(again.items())), len(before) - 1)

    @needs("pyarrow", "pyspark")
    def test_what_cannot_be_united_gives_no_number(self):
        parquet, pyarrow = module("pyarrow.parquet"), module("pyarrow")
        first = files(self.lake)[0]

        def version(lake):
            table = parquet.read_table(first, partitioning=None)
            index = table.schema.get_field_index("schema")
            table = table.set_column(index, "schema", pyarrow.array([2] * table.num_rows))
            os.makedirs(f"{lake}/date=1970-01-01/hour=00", exist_ok=True)
            parquet.write_table(table, f"{lake}/date=1970-01-01/hour=00/other.parquet")

        def counted(*options):
            return lambda lake: replay(self.scratch.name, lake, "a", "", *options)

        for name, other, told in [
            ("seed", counted("--seed", "2"), "tabulated_790900f3_2"),
            ("polynomial", counted("--hash", "crc32"), "crc32_790900f3"),
            ("registers", counted("--registers", "4096"), "registers=4096"),
            ("version", version, "schema=2"),
        ]:
            lake, output = f"{self.scratch.name}/mixed-{name}", f"{self.scratch.name}/mixed-{name}-out"
            other(lake)
            replay(self.scratch.name, lake, "b", "")
            run = job(lake, output)
            self.assertEqual((run.returncode, os.path.exists(output)), (1, False), f"{name}: {run.stderr}")
            line = next((line for line in run.stderr.splitlines() if line.startswith("distinct.py:")), run.stderr)
            self.assertIn(told, line)
            self.assertIn("b-run_b-000000.parquet", line)
            merged = subprocess.run([FLOWGAUGE, "merge", lake], capture_output=True, text=True, check=False)
            self.assertEqual((merged.returncode, merged.stdout), (1, ""), name)
            if module("chdb") is not None:
                for script in ("distinct.sql", "questions.sql"):
                        with self.assertRaisesRegex(Exception, "differ in schema|no such|[Ss]ize|UNKNOWN|does not|[Cc]olumn", msg=f"{name}: {script}"):
                            clickhouse(script, lake, site="a", since="1970-01-01 00:00:30")

    def plain(self):
        """A lake of everything that is measured, of two hosts."""
        lake = f"{self.scratch.name}/plain"
        if not os.path.exists(lake):
            measure = ("--measure", "cardinality,entropy,heavy,sizes,delay,reorder")
            replay(self.scratch.name, lake, "talks", "delay,shape=conversations,requests=300,loss=0.05,timestamps,seed=2", *measure, window="100ms")
            replay(self.scratch.name, lake, "late", "reorder,packets=5000,prefixes=8,heavy=2,share=0.5,loss=0.01,rate=1k", *measure, window="1s")
        return lake

    def assert_answers(self, lake, answers):
        """Rows of answers to the plain questions, each a list of values, are what flowgauge says."""
        by_host = {record["interface"]: record for record in united(lake, "--by", "host")}
        [of_all] = united(lake)
        # Heavy hitters of all hosts: no table was full, so that counts are exact.
        flow, packets, at_least, _ = answers["5"][0]
        heaviest = of_all["heavy"]["flows"][0]
        self.assertEqual((flow, int(packets), int(at_least)), (heaviest["flow"], heaviest["count"], heaviest["low"]))
        # Percentiles are ends of buckets, which are 3 % wide.
        delays = {(host, kind): row for host, kind, *row in answers["6"]}
        for delay in by_host["talks"]["delay"]:
            p50, p95, _ = delays[("talks", delay["kind"])]
            for told, name in ((p50, "p50"), (p95, "p95")):
                corrected = delay["corrected"][name]
                self.assertTrue(corrected["low"] * 0.96 <= float(told) * 1e6 <= corrected["high"] * 1.04, (delay["kind"], name, told, corrected))
        # The prefixes of flowgauge with enough segments, by their rates.
        told = {row[0]: row for row in answers["7"]}
        for prefix in of_all["reorder"]["prefixes"]:
            if prefix["packets"] >= 300:
                self.assertAlmostEqual(float(told[prefix["prefix"]][3]), prefix["rate"]["value"], places=2)
        self.assertTrue(answers["8"])
        self.assertEqual((answers["9a"], answers["9b"]), ([], []))
        self.assertEqual({row[0] for row in answers["9c"]}, {"talks", "late"})
        self.assertEqual(sum(int(row[2]) for row in answers["10"]), of_all["sizes"]["packets"])
        self.assertEqual(sum(int(row[3]) for row in answers["10"]), of_all["sizes"]["bytes"])

    def assert_distinct(self, lake, whole, by_hour, only, new, apart):
        """Answers to the questions of distinct flows are what flowgauge says."""
        [of_all] = united(lake)
        hosts = {record["interface"]: record["cardinality"]["estimate"] for record in united(lake, "--by", "host")}
        self.assertLess(abs(whole / of_all["cardinality"]["estimate"] - 1), apart)
        # All windows of a host are in one hour.
        self.assertEqual(set(by_hour), set(hosts))
        for host, estimate in by_hour.items():
            self.assertLess(abs(estimate / hosts[host] - 1), apart)
        flowgauges = json.loads(flowgauge("diff", f"{lake},host=a", f"{lake},host=b", "--format", "json"))
        for answer, part in ((only, flowgauges["only_a"]["value"]), (new, None)):
            self.assertTrue(answer["low"] <= answer["estimate"] <= answer["high"], answer)
            if part is not None:
                self.assertTrue(answer["low"] <= part <= answer["high"], (answer, part))
        self.assertGreater(new["low"], 0)

    @needs("duckdb")
    def test_duckdb_answers_the_plain_questions(self):
        lake = self.plain()
        connection = module("duckdb").connect()
        connection.execute(f"SET VARIABLE lake = '{lake}/*/*/*.parquet'")
        answers = {}
        for number, statement in statements((HERE.parent / "duckdb" / "questions.sql").read_text(encoding="utf-8")):
            answers[number] = connection.execute(statement).fetchall()
        self.assertEqual(sorted(number for number in answers if number), ["10", "5", "6", "7", "8", "9a", "9b", "9c"])
        self.assert_answers(lake, answers)

    @needs("pyarrow", "chdb")
    def test_clickhouse_answers_ten_questions(self):
        parameters = {"site": "talks", "since": "1970-01-01 00:00:03"}
        answers = {number: [list(row.values()) for row in table(text)] for number, text in clickhouse("questions.sql", self.plain(), **parameters).items() if text}
        self.assert_answers(self.plain(), answers)
        answers = clickhouse("questions.sql", self.lake, only=("1", "2", "3", "4"), site="a", since="1970-01-01 00:00:30")
        number = lambda row: {name: float(value) for name, value in row.items() if name not in ("host", "hour")}
        [whole], [only], [new] = (list(map(number, table(answers[it]))) for it in ("1", "3", "4"))
        by_hour = {row["host"]: float(row["estimate"]) for row in table(answers["2"])}
        self.assert_distinct(self.lake, whole["estimate"], by_hour, only, new, 1e-9)

    @needs("pyarrow", "pyspark")
    def test_spark_answers_ten_questions(self):
        def ask(lake, *arguments):
            run = subprocess.run([sys.executable, HERE / "questions.py", lake, *arguments], capture_output=True, text=True, check=False)
            self.assertEqual(run.returncode, 0, run.stderr)
            found = {}
            for row in map(json.loads, run.stdout.splitlines()):
                found.setdefault(row.pop("question"), []).append(row)
            return found

        plain = {number: [list(row.values()) for row in rows] for number, rows in ask(self.plain()).items()}
        self.assert_answers(self.plain(), {"9a": [], "9b": [], **plain})
        answers = ask(self.lake, "--only", "1,2,3,4", "--site", "a", "--since", "1970-01-01T00:00:30Z")
        by_hour = {row["host"]: row["estimate"] for row in answers["2"]}
        self.assert_distinct(self.lake, answers["1"][0]["estimate"], by_hour, answers["3"][0], answers["4"][0], 0.008)


if __name__ == "__main__":
    unittest.main(verbosity=2)
