-- Questions of operators to the lake that flowgauge writes, of which plain columns know the answers.
-- Files are those of a variable, as in SET VARIABLE lake = 'lake/**/*.parquet'
-- Each statement begins with its number, by which test_engines.py knows it. Distinct flows of several windows are no plain numbers: `flowgauge merge`,
-- Spark and ClickHouse unite them.

CREATE OR REPLACE TEMP VIEW rows AS
SELECT * FROM read_parquet(getvariable('lake'), union_by_name = true, hive_partitioning = false)
-- A file that was copied twice counts once.
QUALIFY row_number() OVER (PARTITION BY host, run, source, direction, "window", start_ns) = 1;

-- 5: the heaviest flows of the fleet. Counts of one table have bounds; what a table did not admit is in `absent` of all flows together.
SELECT flow.flow AS flow, sum(flow.count) AS packets, sum(flow.count - flow.inherited) AS at_least, count(DISTINCT host) AS hosts
FROM (SELECT host, unnest(heavy) AS flow FROM rows WHERE heavy_unit = 'packets')
GROUP BY ALL ORDER BY packets DESC, flow LIMIT 20;

-- 6: round-trip delays by host and kind: the percentiles of what buckets weigh, in milliseconds.
WITH buckets AS (
    SELECT host, b.kind AS kind, b.high_ns AS high_ns, sum(b.weight) AS weight FROM (SELECT host, unnest(delay_buckets) AS b FROM rows)
    GROUP BY ALL
), shares AS (
    SELECT *, sum(weight) OVER (PARTITION BY host, kind ORDER BY high_ns) / sum(weight) OVER (PARTITION BY host, kind) AS share FROM buckets
)
SELECT host, kind, min(high_ns) FILTER (share >= 0.5) / 1e6 AS p50_ms, min(high_ns) FILTER (share >= 0.95) / 1e6 AS p95_ms,
    min(high_ns) FILTER (share >= 0.99) / 1e6 AS p99_ms
FROM shares GROUP BY host, kind ORDER BY host, kind;

-- 7: prefixes that send most segments out of order, of those with 300 segments and more.
SELECT p.prefix AS prefix, sum(p.out_of_order) AS out_of_order, sum(p.packets) AS packets, sum(p.out_of_order) / sum(p.packets) AS rate, sum(p.flows) AS flows
FROM (SELECT unnest(reorder) AS p FROM rows) GROUP BY ALL HAVING sum(p.packets) >= 300 ORDER BY rate DESC, prefix LIMIT 20;

-- 8: windows whose entropy is furthest below what is usual at their place, with the interval.
SELECT host, source, "window", start_ns, entropy, entropy_low, entropy_high, avg(entropy) OVER place - entropy AS below
FROM rows WHERE entropy IS NOT NULL WINDOW place AS (PARTITION BY host, source, direction) ORDER BY below DESC LIMIT 20;

-- 9a: packets lost, by host and cause.
SELECT host, d.cause AS cause, sum(d.packets) AS packets FROM (SELECT host, unnest(drops) AS d FROM rows) GROUP BY ALL ORDER BY packets DESC;

-- 9b: times of which a place has no window: an agent was away, or its files are on their way.
SELECT host, source, direction, end_ns AS from_ns, next_ns AS to_ns, (next_ns - end_ns) / 1e9 AS seconds
FROM (SELECT *, lead(start_ns) OVER (PARTITION BY host, source, direction ORDER BY start_ns) AS next_ns FROM rows)
WHERE next_ns - end_ns >= 1000000000 ORDER BY seconds DESC;

-- 9c: what each run could not write, and how old its last window is.
SELECT host, run, max(lost_rows) AS lost_rows, count(*) FILTER (NOT complete) AS incomplete, max(end_ns) AS last_ns FROM rows GROUP BY ALL ORDER BY last_ns;

-- 10: lengths of packets by hour: packets and bytes of each doubling.
SELECT time_bucket(INTERVAL 1 HOUR, make_timestamp(scheduled_start_ns // 1000)) AS hour, pow(2, floor(log2(greatest(l.low, 1))))::BIGINT AS from_bytes,
    sum(l.packets) AS packets, sum(l.packets * l.low + l.excess) AS bytes
FROM (SELECT scheduled_start_ns, unnest(lengths) AS l FROM rows) GROUP BY ALL ORDER BY ALL;
