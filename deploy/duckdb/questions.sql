-- Questions of operators to the lake that flowgauge writes, as far as plain columns answer them.
-- Distinct flows of several windows are no plain numbers: `flowgauge merge`, Spark and ClickHouse
-- merge them.
--
--   SET VARIABLE lake = 'lake/*/*/*.parquet';      -- files
--   SET VARIABLE "from" = '2026-11-23';            -- windows that begin then or later (UTC)
--   SET VARIABLE "to" = '2026-11-24';              -- windows that end then or earlier (UTC)
--
-- Load rows.sql first. Without `from` or `to` there is no bound. The view `flowgauge_rows` is the
-- only access to files. It opens those of the wanted hours alone, and stops each question whose
-- rows must not be united. So a statement that is copied out of this file is guarded as well:
-- without the view it does not run.
--
-- Each statement begins with its number, by which test_engines.py knows it. The column `measured`
-- says how many of the windows have the measurement: '12 of 18 windows', 'not measured', or
-- 'no windows'. Of a time without a window nothing is known: it is no zero (9b lists such times).

CREATE OR REPLACE TEMP VIEW flowgauge_rows AS
WITH selected AS NOT MATERIALIZED (
    SELECT * FROM flowgauge_files
    -- A path without an hour is read in any case. Names alone decide first, so that other files are
    -- not opened.
    WHERE coalesce(
            try_strptime(
                regexp_extract(filename, 'date=[-0-9]{10}.hour=[0-9]{2}'), 'date=%Y-%m-%d/hour=%H'
            ) > coalesce(getvariable('from')::TIMESTAMP - INTERVAL 1 HOUR, '-infinity'::TIMESTAMP),
            true
        )
        AND coalesce(
            try_strptime(
                regexp_extract(filename, 'date=[-0-9]{10}.hour=[0-9]{2}'), 'date=%Y-%m-%d/hour=%H'
            ) < coalesce(getvariable('to')::TIMESTAMP, 'infinity'::TIMESTAMP),
            true
        )
        AND make_timestamp(scheduled_start_ns // 1000)
            >= coalesce(getvariable('from')::TIMESTAMP, '-infinity'::TIMESTAMP)
        AND make_timestamp(scheduled_end_ns // 1000)
            <= coalesce(getvariable('to')::TIMESTAMP, 'infinity'::TIMESTAMP)
), guard AS (
    SELECT CASE
        WHEN max(schema) > 1 OR count(*) != count(schema)
        THEN error('rows are of a version of the columns that this view does not know')
        WHEN count(DISTINCT (hash, row_hash, "inner")) > 1
            OR count(DISTINCT (distinct_key, registers)) FILTER (distinct_key IS NOT NULL) > 1
        THEN error(
            'rows differ in hash, row_hash, inner, distinct_key or registers, and no number can be '
            || 'made of them together; `flowgauge merge` names the files'
        )
        ELSE true END AS passed
    FROM selected
)
SELECT * FROM selected WHERE (SELECT passed FROM guard)
-- A file that was copied twice counts once.
QUALIFY row_number() OVER (
    PARTITION BY host, run, source, direction, "window", start_ns
) = 1;

-- How many windows have a measurement; stops if they have it by different settings.
CREATE OR REPLACE TEMP MACRO flowgauge_measured(windows, measured, settings) AS CASE
    WHEN settings > 1
    THEN error(
        'windows have this measurement by different keys or settings, and no number can be made of '
        || 'them together'
    )
    WHEN windows = 0 THEN 'no windows'
    WHEN measured = 0 THEN 'not measured'
    ELSE measured || ' of ' || windows || ' windows' END;

-- 5: the heaviest flows of the fleet. Counts of one table have bounds; what a table did not admit
-- is in `absent` of all flows together.
WITH covered AS (
    SELECT count(heavy_key) AS known, any_value(heavy_unit) AS unit, flowgauge_measured(
        count(*), count(heavy_key),
        count(DISTINCT (heavy_key, heavy_unit, heavy_algorithm, heavy_slots))
            FILTER (heavy_key IS NOT NULL)
    ) AS measured
    FROM flowgauge_rows
), flows AS (
    SELECT it.flow AS flow, sum(it.count) AS count, sum(it.count - it.inherited) AS at_least,
        count(DISTINCT host) AS hosts
    FROM (SELECT host, unnest(heavy) AS it FROM flowgauge_rows) GROUP BY it.flow
)
SELECT flow, count, at_least, hosts, unit, measured FROM covered LEFT JOIN flows ON true
WHERE flow IS NOT NULL OR known = 0 ORDER BY count DESC, flow LIMIT 20;

-- 6: round-trip delays by host and kind: the percentiles of what buckets weigh, in milliseconds. A
-- window without answers adds no weight.
WITH settings AS (
    SELECT count(DISTINCT (
        delay_kinds, delay_algorithm, delay_auto,
        CASE WHEN NOT delay_auto THEN delay_admit_log2 END
    )) FILTER (delay_kinds IS NOT NULL) AS settings
    FROM flowgauge_rows
), covered AS (
    SELECT host, count(delay_kinds) AS known,
        flowgauge_measured(count(*), count(delay_kinds), any_value(settings)) AS measured
    FROM flowgauge_rows, settings GROUP BY host
), buckets AS (
    SELECT host, b.kind AS kind, b.high_ns AS high_ns, sum(b.weight) AS weight
    FROM (SELECT host, unnest(delay_buckets) AS b FROM flowgauge_rows) GROUP BY ALL
), shares AS (
    SELECT *, sum(weight) OVER (PARTITION BY host, kind ORDER BY high_ns)
        / sum(weight) OVER (PARTITION BY host, kind) AS share
    FROM buckets
), delays AS (
    SELECT host, kind, min(high_ns) FILTER (share >= 0.5) / 1e6 AS p50_ms,
        min(high_ns) FILTER (share >= 0.95) / 1e6 AS p95_ms,
        min(high_ns) FILTER (share >= 0.99) / 1e6 AS p99_ms
    FROM shares GROUP BY host, kind
)
SELECT covered.host, kind, p50_ms, p95_ms, p99_ms, measured
FROM covered LEFT JOIN delays ON delays.host = covered.host
WHERE kind IS NOT NULL OR known = 0 ORDER BY covered.host, kind;

-- 7: prefixes that send most segments out of order, of those with 300 segments and more.
WITH covered AS (
    SELECT count(reorder_algorithm) AS known, flowgauge_measured(
        count(*), count(reorder_algorithm),
        count(DISTINCT (reorder_algorithm, reorder_ipv4_bits, reorder_ipv6_bits))
            FILTER (reorder_algorithm IS NOT NULL)
    ) AS measured
    FROM flowgauge_rows
), prefixes AS (
    SELECT p.prefix AS prefix, sum(p.out_of_order) AS out_of_order, sum(p.packets) AS packets,
        sum(p.out_of_order) / sum(p.packets) AS rate, sum(p.flows) AS flows
    FROM (SELECT unnest(reorder) AS p FROM flowgauge_rows)
    GROUP BY p.prefix HAVING sum(p.packets) >= 300
)
SELECT prefix, out_of_order, packets, rate, flows, measured
FROM covered LEFT JOIN prefixes ON true
WHERE prefix IS NOT NULL OR known = 0 ORDER BY rate DESC, prefix LIMIT 20;

-- 8: windows whose entropy is furthest below what is usual at their place, with the interval. The
-- mean is that of windows with packets.
WITH covered AS (
    SELECT count(entropy) AS known, flowgauge_measured(
        count(*), count(entropy_key),
        count(DISTINCT (entropy_key, entropy_sketch, entropy_rows, entropy_columns))
            FILTER (entropy_key IS NOT NULL)
    ) AS measured
    FROM flowgauge_rows
), windows AS (
    SELECT host, source, "window", start_ns, entropy, entropy_low, entropy_high,
        avg(entropy) OVER (PARTITION BY host, source, direction) - entropy AS below
    FROM flowgauge_rows WHERE entropy IS NOT NULL
)
SELECT host, source, "window", start_ns, entropy, entropy_low, entropy_high, below, measured
FROM covered LEFT JOIN windows ON true
WHERE host IS NOT NULL OR known = 0 ORDER BY below DESC, host, source, start_ns LIMIT 20;

-- 9a: packets lost, by host and cause. No row: none of these windows lost any.
SELECT host, d.cause AS cause, sum(d.packets) AS packets
FROM (SELECT host, unnest(drops) AS d FROM flowgauge_rows)
GROUP BY host, d.cause ORDER BY packets DESC, host, cause;

-- 9b: times of which a place has no window, and why as far as rows know. A replay writes none for
-- windows without packets; the next row has their number (`silent_windows`).
SELECT host, source, direction, end_ns AS from_ns, next_ns AS to_ns,
    (next_ns - end_ns) / 1e9 AS seconds, CASE
        WHEN next_run != run THEN 'between two runs'
        WHEN next_lost > lost_rows THEN 'rows that could not be written'
        WHEN next_silent IS NULL THEN 'no packets (replay), or a file that is not here'
        WHEN (next_silent + 0.5) * length_ns >= next_ns - end_ns THEN 'no packets'
        ELSE 'a file that is not here' END AS reason
FROM (
    SELECT *, scheduled_end_ns - scheduled_start_ns AS length_ns,
        lead(start_ns) OVER place AS next_ns, lead(run) OVER place AS next_run,
        lead(lost_rows) OVER place AS next_lost, lead(silent_windows) OVER place AS next_silent
    FROM flowgauge_rows WINDOW place AS (PARTITION BY host, source, direction ORDER BY start_ns)
)
WHERE next_ns - end_ns >= least(1000000000, length_ns / 2)
ORDER BY seconds DESC, host, source, direction, from_ns;

-- 9c: what each run could not write until its last window here, and how old that is. `lost_rows` of
-- a row counts from the start of its run: the sum of all runs is that of these maxima, and never
-- that of rows. No row: no windows at all.
SELECT host, run, max(lost_rows) AS lost_rows, count(*) FILTER (NOT complete) AS incomplete,
    max(end_ns) AS last_ns
FROM flowgauge_rows GROUP BY host, run ORDER BY last_ns, host, run;

-- 10: lengths of packets by hour: packets and bytes of each doubling. An hour without a window has
-- no row, and is no zero.
WITH hours AS (
    SELECT time_bucket(INTERVAL 1 HOUR, make_timestamp(scheduled_start_ns // 1000)) AS hour,
        lengths, lengths_full
    FROM flowgauge_rows
), covered AS (
    SELECT hour, count(lengths_full) AS known,
        flowgauge_measured(count(*), count(lengths_full), 1) AS measured
    FROM hours GROUP BY hour
), lengths AS (
    SELECT hour, pow(2, floor(log2(greatest(l.low, 1))))::BIGINT AS from_bytes,
        sum(l.packets) AS packets, sum(l.packets * l.low + l.excess) AS bytes
    FROM (SELECT hour, unnest(lengths) AS l FROM hours) GROUP BY ALL
)
SELECT covered.hour, from_bytes, packets, bytes, measured
FROM covered LEFT JOIN lengths ON lengths.hour = covered.hour
WHERE from_bytes IS NOT NULL OR known = 0 ORDER BY covered.hour, from_bytes;

-- 11: keys with the most distinct others, of both sketches: victims of floods, and scanners. Others
-- of several windows are no plain numbers: of each key it is the window with the most.
WITH covered AS (
    SELECT count(spread_key) AS known,
        flowgauge_measured(count(*), count(spread_key), 1) AS measured
    FROM flowgauge_rows
), keys AS (
    SELECT host, source, "window", start_ns, spread_key, spread_of, unnest(spread) AS it
    FROM flowgauge_rows
    UNION ALL
    SELECT host, source, "window", start_ns, spread2_key, spread2_of, unnest(spread2)
    FROM flowgauge_rows
), spreaders AS (
    SELECT * EXCLUDE (it), it.flow AS flow, it.others AS others, it.low AS low, it.high AS high
    FROM keys
    QUALIFY row_number() OVER (
        PARTITION BY spread_key, spread_of, it.flow ORDER BY it.others DESC, host, source, start_ns
    ) = 1
)
SELECT host, source, "window", start_ns, spread_key, spread_of, flow, others, low, high, measured
FROM covered LEFT JOIN spreaders ON true
WHERE host IS NOT NULL OR known = 0
ORDER BY others DESC, host, source, start_ns, spread_key, spread_of, flow LIMIT 20;
