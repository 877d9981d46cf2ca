-- Ten questions of operators to the lake that flowgauge writes. Each statement begins with the question's number (../duckdb/README.md lists them).
--   clickhouse-local --param_lake='lake/**/*.parquet' --param_sketch='^hll_src_p11_tabulated_790900f3_1$' --param_site=paris \
--       --param_since='2026-11-23 00:00:00' --queries-file estimate.sql questions.sql
-- `site` is the host that question 3 asks about; `since` is the time (UTC) from which on question 4 looks for new sources.
-- A column that no file has is an error; --measure says what a lake holds. A file that was copied twice counts once (LIMIT 1 BY).

SET schema_inference_mode = 'union';

-- 0: stops if rows must not be united.
SELECT throwIf(
    count() != 1 OR any(schema) != 1,
    'rows of this lake differ in schema, hash, distinct_key, registers or inner, or are of another version; schema.sql shows which files have which'
) FROM (SELECT DISTINCT schema, hash, distinct_key, registers, inner FROM file({lake:String}, Parquet) WHERE distinct_key IS NOT NULL) FORMAT Null;

-- 1: distinct sources of all links.
WITH united AS (
    SELECT maxForEach(reinterpret(substring(assumeNotNull(COLUMNS({sketch:String})), 41), 'Array(UInt8)')) AS registers
    FROM file({lake:String}, Parquet) WHERE distinct_key IS NOT NULL
)
SELECT flowgauge_distinct(registers) AS estimate,
    estimate / (1 + flowgauge_error(registers)) AS low, estimate / (1 - flowgauge_error(registers)) AS high
FROM united;

-- 2: the same by host and hour.
WITH united AS (
    SELECT host, toStartOfHour(time) AS hour,
        maxForEach(reinterpret(substring(assumeNotNull(COLUMNS({sketch:String})), 41), 'Array(UInt8)')) AS registers
    FROM file({lake:String}, Parquet) WHERE distinct_key IS NOT NULL GROUP BY host, hour
)
SELECT host, hour, flowgauge_distinct(registers) AS estimate,
    estimate / (1 + flowgauge_error(registers)) AS low, estimate / (1 - flowgauge_error(registers)) AS high
FROM united ORDER BY host, hour;

-- 3: sources only at one site: those of all less those of all others. `flowgauge diff` has narrower intervals.
WITH united AS (
    SELECT maxForEach(levels) AS everywhere, maxForEachIf(levels, host != {site:String}) AS elsewhere FROM (
        SELECT host, reinterpret(substring(assumeNotNull(COLUMNS({sketch:String})), 41), 'Array(UInt8)') AS levels
        FROM file({lake:String}, Parquet) WHERE distinct_key IS NOT NULL
    )
)
SELECT flowgauge_distinct(everywhere) AS whole, flowgauge_distinct(elsewhere) AS others, whole - others AS estimate,
    flowgauge_error(everywhere) * sqrt(whole * whole + others * others) AS error, greatest(estimate - error, 0) AS low, estimate + error AS high
FROM united;

-- 4: sources that are new: those of all less those before.
WITH united AS (
    SELECT maxForEach(levels) AS everywhere, maxForEachIf(levels, time < toDateTime64({since:String}, 6, 'UTC')) AS before FROM (
        SELECT time, reinterpret(substring(assumeNotNull(COLUMNS({sketch:String})), 41), 'Array(UInt8)') AS levels
        FROM file({lake:String}, Parquet) WHERE distinct_key IS NOT NULL
    )
)
SELECT flowgauge_distinct(everywhere) AS whole, flowgauge_distinct(before) AS others, whole - others AS estimate,
    flowgauge_error(everywhere) * sqrt(whole * whole + others * others) AS error, greatest(estimate - error, 0) AS low, estimate + error AS high
FROM united;

-- 5: the heaviest flows of the fleet. Counts of one table have bounds.
SELECT tupleElement(flow, 'flow') AS flow_name, sum(tupleElement(flow, 'count')) AS packets,
    sum(tupleElement(flow, 'count') - tupleElement(flow, 'inherited')) AS at_least, uniqExact(host) AS hosts
FROM (
    SELECT host, arrayJoin(heavy) AS flow FROM (
        SELECT host, heavy FROM file({lake:String}, Parquet) WHERE heavy_unit = 'packets' LIMIT 1 BY host, run, source, direction, window, start_ns
    )
)
GROUP BY flow_name ORDER BY packets DESC, flow_name LIMIT 20;

-- 6: round-trip delays by host and kind: the percentiles of what buckets weigh, in milliseconds.
WITH buckets AS (
    SELECT host, tupleElement(bucket, 'kind') AS kind, tupleElement(bucket, 'high_ns') AS high_ns, sum(tupleElement(bucket, 'weight')) AS weight
    FROM (
        SELECT host, arrayJoin(delay_buckets) AS bucket FROM (
            SELECT host, delay_buckets FROM file({lake:String}, Parquet) LIMIT 1 BY host, run, source, direction, window, start_ns
        )
    )
    GROUP BY host, kind, high_ns
), shares AS (
    SELECT *, sum(weight) OVER (PARTITION BY host, kind ORDER BY high_ns) / sum(weight) OVER (PARTITION BY host, kind) AS share FROM buckets
)
SELECT host, kind, minIf(high_ns, share >= 0.5) / 1e6 AS p50_ms, minIf(high_ns, share >= 0.95) / 1e6 AS p95_ms,
    minIf(high_ns, share >= 0.99) / 1e6 AS p99_ms
FROM shares GROUP BY host, kind ORDER BY host, kind;

-- 7: prefixes that send most segments out of order, of those with 300 segments and more.
SELECT tupleElement(it, 'prefix') AS prefix, sum(tupleElement(it, 'out_of_order')) AS late, sum(tupleElement(it, 'packets')) AS segments,
    late / segments AS rate, sum(tupleElement(it, 'flows')) AS flows
FROM (
    SELECT arrayJoin(reorder) AS it FROM (
        SELECT reorder FROM file({lake:String}, Parquet) LIMIT 1 BY host, run, source, direction, window, start_ns
    )
)
GROUP BY prefix HAVING segments >= 300 ORDER BY rate DESC, prefix LIMIT 20;

-- 8: windows whose entropy is furthest below what is usual at their place, with the interval.
SELECT host, source, window, start_ns, entropy, entropy_low, entropy_high, avg(entropy) OVER (PARTITION BY host, source, direction) - entropy AS below
FROM (
    SELECT host, source, direction, window, start_ns, entropy, entropy_low, entropy_high FROM file({lake:String}, Parquet)
    WHERE entropy IS NOT NULL LIMIT 1 BY host, run, source, direction, window, start_ns
)
ORDER BY below DESC LIMIT 20;

-- 9a: packets lost, by host and cause.
SELECT host, tupleElement(loss, 'cause') AS cause, sum(tupleElement(loss, 'packets')) AS lost FROM (
    SELECT host, arrayJoin(drops) AS loss FROM (
        SELECT host, drops FROM file({lake:String}, Parquet) LIMIT 1 BY host, run, source, direction, window, start_ns
    )
)
GROUP BY host, cause ORDER BY lost DESC;

-- 9b: times of which a place has no window: an agent was away, or its files are on their way.
SELECT host, source, direction, end_ns AS from_ns, next_ns AS to_ns, (next_ns - end_ns) / 1e9 AS seconds FROM (
    SELECT *, leadInFrame(start_ns) OVER (
        PARTITION BY host, source, direction ORDER BY start_ns ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING
    ) AS next_ns
    FROM (
        SELECT host, source, direction, start_ns, end_ns FROM file({lake:String}, Parquet)
        LIMIT 1 BY host, run, source, direction, window, start_ns
    )
)
WHERE next_ns - end_ns >= 1000000000 ORDER BY seconds DESC;

-- 9c: what each run could not write, and how old its last window is.
SELECT host, run, max(lost_rows) AS lost, countIf(NOT complete) AS incomplete, max(end_ns) AS last_ns FROM (
    SELECT host, run, lost_rows, complete, end_ns FROM file({lake:String}, Parquet) LIMIT 1 BY host, run, source, direction, window, start_ns
)
GROUP BY host, run ORDER BY last_ns;

-- 10: lengths of packets by hour: packets and bytes of each doubling.
SELECT hour, toUInt64(pow(2, floor(log2(greatest(tupleElement(it, 'low'), 1))))) AS from_bytes, sum(tupleElement(it, 'packets')) AS packets,
    sum(tupleElement(it, 'packets') * tupleElement(it, 'low') + tupleElement(it, 'excess')) AS bytes
FROM (
    SELECT toStartOfHour(time) AS hour, arrayJoin(lengths) AS it FROM (
        SELECT time, lengths FROM file({lake:String}, Parquet) LIMIT 1 BY host, run, source, direction, window, start_ns
    )
)
GROUP BY hour, from_bytes ORDER BY hour, from_bytes;
