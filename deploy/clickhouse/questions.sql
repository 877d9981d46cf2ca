-- Eleven questions of operators to the lake that flowgauge writes. Each statement begins with the
-- question's number (../duckdb/README.md lists them).
--
--   clickhouse-local --param_lake='lake/*/*/*.parquet' \
--       --param_from='2026-11-23 00:00:00' --param_to='2026-11-24 00:00:00' \
--       --param_sketch=hll_src_p11_tabulated_790900f3_1 --param_site=paris \
--       --param_since='2026-11-23 12:00:00' --queries-file rows.sql questions.sql
--
-- `site` is the host that question 3 asks about; `since` is the time (UTC) from which on question 4
-- looks for new sources.
--
-- The views of rows.sql carry the guards: they open files of the wanted hours alone, and stop a
-- statement whose rows must not be united. The column `measured` says how many of the windows have
-- the measurement: '12 of 18 windows', 'not measured', or 'no windows'. Of a time without a window
-- nothing is known: it is no zero (9b lists such times).

-- 1: distinct sources of all links.
WITH united AS (
    SELECT count() AS windows, countIf(is_measured) AS some, maxForEach(levels) AS registers
    FROM flowgauge_sketches(
        lake = {lake:String}, sketch = {sketch:String}, from = {from:String}, to = {to:String}
    )
)
SELECT if(some = 0, NULL, flowgauge_distinct(registers)) AS estimate,
    estimate / (1 + flowgauge_error(registers)) AS low,
    estimate / (1 - flowgauge_error(registers)) AS high,
    flowgauge_measured(windows, some, 1) AS measured
FROM united;

-- 2: the same by host and hour.
WITH united AS (
    SELECT host, toStartOfHour(time) AS hour, count() AS windows, countIf(is_measured) AS some,
        maxForEach(levels) AS registers
    FROM flowgauge_sketches(
        lake = {lake:String}, sketch = {sketch:String}, from = {from:String}, to = {to:String}
    )
    GROUP BY host, hour
)
SELECT host, hour, if(some = 0, NULL, flowgauge_distinct(registers)) AS estimate,
    estimate / (1 + flowgauge_error(registers)) AS low,
    estimate / (1 - flowgauge_error(registers)) AS high,
    flowgauge_measured(windows, some, 1) AS measured
FROM united ORDER BY host, hour;

-- 3: sources only at one site: those of all less those of all others. `flowgauge diff` has narrower
-- intervals. Both sides must have been measured.
WITH united AS (
    SELECT countIf(is_here) AS here_windows, countIf(is_here AND is_measured) AS here,
        countIf(NOT is_here) AS elsewhere_windows,
        countIf(NOT is_here AND is_measured) AS elsewhere,
        maxForEach(levels) AS all_registers, maxForEachIf(levels, NOT is_here) AS other_registers
    FROM (
        SELECT *, host = {site:String} AS is_here FROM flowgauge_sketches(
            lake = {lake:String}, sketch = {sketch:String}, from = {from:String}, to = {to:String}
        )
    )
)
SELECT if(here = 0 OR elsewhere = 0, NULL, flowgauge_distinct(all_registers)) AS whole,
    if(here = 0 OR elsewhere = 0, NULL, flowgauge_distinct(other_registers)) AS others,
    whole - others AS estimate,
    flowgauge_error(all_registers) * sqrt(whole * whole + others * others) AS error,
    if(isNull(estimate), NULL, greatest(estimate - error, 0)) AS low, estimate + error AS high,
    flowgauge_measured(here_windows, here, 1) AS measured,
    flowgauge_measured(elsewhere_windows, elsewhere, 1) AS measured_elsewhere
FROM united;

-- 4: sources that are new: those of all less those before. Both times must have been measured.
WITH united AS (
    SELECT countIf(NOT is_old) AS new_windows, countIf(NOT is_old AND is_measured) AS new,
        countIf(is_old) AS old_windows, countIf(is_old AND is_measured) AS old,
        maxForEach(levels) AS all_registers, maxForEachIf(levels, is_old) AS old_registers
    FROM (
        SELECT *, time < parseDateTime64BestEffort({since:String}, 6, 'UTC') AS is_old
        FROM flowgauge_sketches(
            lake = {lake:String}, sketch = {sketch:String}, from = {from:String}, to = {to:String}
        )
    )
)
SELECT if(old = 0 OR new = 0, NULL, flowgauge_distinct(all_registers)) AS whole,
    if(old = 0 OR new = 0, NULL, flowgauge_distinct(old_registers)) AS others,
    whole - others AS estimate,
    flowgauge_error(all_registers) * sqrt(whole * whole + others * others) AS error,
    if(isNull(estimate), NULL, greatest(estimate - error, 0)) AS low, estimate + error AS high,
    flowgauge_measured(new_windows, new, 1) AS measured,
    flowgauge_measured(old_windows, old, 1) AS measured_before
FROM united;

-- 5: the heaviest flows of the fleet. Counts of one table have bounds.
WITH covered AS (
    SELECT count(heavy_key) AS some, any(heavy_unit) AS unit, flowgauge_measured(
        count(), count(heavy_key),
        uniqExactIf((heavy_key, heavy_unit, heavy_algorithm, heavy_slots), heavy_key IS NOT NULL)
    ) AS measured
    FROM flowgauge_rows(lake = {lake:String}, from = {from:String}, to = {to:String})
), flows AS (
    SELECT toNullable(tupleElement(it, 'flow')) AS flow,
        toNullable(sum(tupleElement(it, 'count'))) AS packets,
        toNullable(sum(tupleElement(it, 'count') - tupleElement(it, 'inherited'))) AS at_least,
        toNullable(uniqExact(host)) AS hosts
    FROM (
        SELECT host, arrayJoin(heavy) AS it
        FROM flowgauge_rows(lake = {lake:String}, from = {from:String}, to = {to:String})
    )
    GROUP BY flow
)
SELECT flow, packets AS count, at_least, hosts, unit, measured
FROM covered LEFT JOIN flows ON 1 = 1
WHERE flow IS NOT NULL OR some = 0 ORDER BY count DESC, flow LIMIT 20;

-- 6: round-trip delays by host and kind: the percentiles of what buckets weigh, in milliseconds.
-- A window without answers adds no weight.
WITH (
    SELECT uniqExactIf(
        (delay_kinds, delay_algorithm, delay_auto, if(delay_auto, NULL, delay_admit_log2)),
        delay_kinds IS NOT NULL
    ) FROM flowgauge_rows(lake = {lake:String}, from = {from:String}, to = {to:String})
) AS settings, covered AS (
    SELECT host, count(delay_kinds) AS some,
        flowgauge_measured(count(), count(delay_kinds), settings) AS measured
    FROM flowgauge_rows(lake = {lake:String}, from = {from:String}, to = {to:String})
    GROUP BY host
), buckets AS (
    SELECT host, tupleElement(it, 'kind') AS kind, tupleElement(it, 'high_ns') AS high_ns,
        sum(tupleElement(it, 'weight')) AS weight
    FROM (
        SELECT host, arrayJoin(delay_buckets) AS it
        FROM flowgauge_rows(lake = {lake:String}, from = {from:String}, to = {to:String})
    )
    GROUP BY host, kind, high_ns
), shares AS (
    SELECT *, sum(weight) OVER (PARTITION BY host, kind ORDER BY high_ns)
        / sum(weight) OVER (PARTITION BY host, kind) AS share
    FROM buckets
), delays AS (
    SELECT host, toNullable(kind) AS kind,
        toNullable(minIf(high_ns, share >= 0.5) / 1e6) AS p50_ms,
        toNullable(minIf(high_ns, share >= 0.95) / 1e6) AS p95_ms,
        toNullable(minIf(high_ns, share >= 0.99) / 1e6) AS p99_ms
    FROM shares GROUP BY host, kind
)
SELECT covered.host AS host, kind, p50_ms, p95_ms, p99_ms, measured
FROM covered LEFT JOIN delays ON delays.host = covered.host
WHERE kind IS NOT NULL OR some = 0 ORDER BY host, kind;

-- 7: prefixes that send most segments out of order, of those with 300 segments and more.
WITH covered AS (
    SELECT count(reorder_algorithm) AS some, flowgauge_measured(
        count(), count(reorder_algorithm),
        uniqExactIf(
            (reorder_algorithm, reorder_ipv4_bits, reorder_ipv6_bits), reorder_algorithm IS NOT NULL
        )
    ) AS measured
    FROM flowgauge_rows(lake = {lake:String}, from = {from:String}, to = {to:String})
), prefixes AS (
    SELECT toNullable(tupleElement(it, 'prefix')) AS prefix,
        toNullable(sum(tupleElement(it, 'out_of_order'))) AS late,
        toNullable(sum(tupleElement(it, 'packets'))) AS segments, late / segments AS rate,
        toNullable(sum(tupleElement(it, 'flows'))) AS flows
    FROM (
        SELECT arrayJoin(reorder) AS it
        FROM flowgauge_rows(lake = {lake:String}, from = {from:String}, to = {to:String})
    )
    GROUP BY prefix HAVING segments >= 300
)
SELECT prefix, late AS out_of_order, segments AS packets, rate, flows, measured
FROM covered LEFT JOIN prefixes ON 1 = 1
WHERE prefix IS NOT NULL OR some = 0 ORDER BY rate DESC, prefix LIMIT 20;

-- 8: windows whose entropy is furthest below what is usual at their place, with the interval.
-- The mean is that of windows with packets.
WITH covered AS (
    SELECT count(entropy) AS some, flowgauge_measured(
        count(), count(entropy_key),
        uniqExactIf(
            (entropy_key, entropy_sketch, entropy_rows, entropy_columns), entropy_key IS NOT NULL
        )
    ) AS measured
    FROM flowgauge_rows(lake = {lake:String}, from = {from:String}, to = {to:String})
), windows AS (
    SELECT toNullable(host) AS host, toNullable(source) AS source, toNullable(window) AS window,
        toNullable(start_ns) AS start_ns, entropy, entropy_low, entropy_high,
        avg(entropy) OVER (PARTITION BY host, source, direction) - entropy AS below
    FROM flowgauge_rows(lake = {lake:String}, from = {from:String}, to = {to:String})
    WHERE entropy IS NOT NULL
)
SELECT host, source, window, start_ns, entropy, entropy_low, entropy_high, below, measured
FROM covered LEFT JOIN windows ON 1 = 1
WHERE host IS NOT NULL OR some = 0 ORDER BY below DESC, host, source, start_ns LIMIT 20;

-- 9a: packets lost, by host and cause. No row: none of these windows lost any.
SELECT host, tupleElement(it, 'cause') AS cause, sum(tupleElement(it, 'packets')) AS lost
FROM (
    SELECT host, arrayJoin(drops) AS it
    FROM flowgauge_rows(lake = {lake:String}, from = {from:String}, to = {to:String})
)
GROUP BY host, cause ORDER BY lost DESC, host, cause;

-- 9b: times of which a place has no window, and why as far as rows know. A replay writes none for
-- windows without packets; the next row has their number (`silent_windows`).
SELECT host, source, direction, end_ns AS from_ns, next_ns AS to_ns,
    (next_ns - end_ns) / 1e9 AS seconds, multiIf(
        next_run != run, 'between two runs',
        next_lost > lost_rows, 'rows that could not be written',
        next_silent IS NULL, 'no packets (replay), or a file that is not here',
        (next_silent + 0.5) * length_ns >= next_ns - end_ns, 'no packets',
        'a file that is not here'
    ) AS reason
FROM (
    SELECT *, scheduled_end_ns - scheduled_start_ns AS length_ns,
        leadInFrame(start_ns) OVER place AS next_ns, leadInFrame(run) OVER place AS next_run,
        leadInFrame(lost_rows) OVER place AS next_lost,
        leadInFrame(silent_windows) OVER place AS next_silent
    FROM flowgauge_rows(lake = {lake:String}, from = {from:String}, to = {to:String})
    WINDOW place AS (
        PARTITION BY host, source, direction ORDER BY start_ns
        ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING
    )
)
WHERE next_ns - end_ns >= least(1000000000, length_ns / 2) ORDER BY seconds DESC, host, source, direction, from_ns;

-- 9c: what each run could not write until its last window here, and how old that is. `lost_rows` of
-- a row counts from the start of its run: the sum of all runs is that of these maxima, and never
-- that of rows. No row: no windows at all.
SELECT host, run, max(lost_rows) AS lost, countIf(NOT complete) AS incomplete,
    max(end_ns) AS last_ns
FROM flowgauge_rows(lake = {lake:String}, from = {from:String}, to = {to:String})
GROUP BY host, run ORDER BY last_ns, host, run;

-- 10: lengths of packets by hour: packets and bytes of each doubling. An hour without a window has
-- no row, and is no zero.
WITH covered AS (
    SELECT toStartOfHour(time) AS hour, count(lengths_full) AS some,
        flowgauge_measured(count(), count(lengths_full), 1) AS measured
    FROM flowgauge_rows(lake = {lake:String}, from = {from:String}, to = {to:String})
    GROUP BY hour
), doublings AS (
    SELECT hour,
        toNullable(toUInt64(pow(2, floor(log2(greatest(tupleElement(it, 'low'), 1))))))
            AS from_bytes,
        toNullable(sum(tupleElement(it, 'packets'))) AS packets,
        toNullable(
            sum(tupleElement(it, 'packets') * tupleElement(it, 'low') + tupleElement(it, 'excess'))
        ) AS bytes
    FROM (
        SELECT toStartOfHour(time) AS hour, arrayJoin(lengths) AS it
        FROM flowgauge_rows(lake = {lake:String}, from = {from:String}, to = {to:String})
    )
    GROUP BY hour, from_bytes
)
SELECT covered.hour AS hour, from_bytes, packets, bytes, measured
FROM covered LEFT JOIN doublings ON doublings.hour = covered.hour
WHERE from_bytes IS NOT NULL OR some = 0 ORDER BY hour, from_bytes;

-- 11: keys with the most distinct others, of both sketches: victims of floods, and scanners. Others
-- of several windows are no plain numbers: of each key it is the window with the most.
WITH covered AS (
    SELECT count(spread_key) AS some,
        flowgauge_measured(count(), count(spread_key), 1) AS measured
    FROM flowgauge_rows(lake = {lake:String}, from = {from:String}, to = {to:String})
), spreaders AS (
    SELECT toNullable(host) AS host, toNullable(source) AS source, toNullable(window) AS window,
        toNullable(start_ns) AS start_ns, spread_key, spread_of, tupleElement(it, 'flow') AS flow,
        tupleElement(it, 'others') AS others, tupleElement(it, 'low') AS low,
        tupleElement(it, 'high') AS high
    FROM (
        SELECT host, source, window, start_ns, spread_key, spread_of, arrayJoin(spread) AS it
        FROM flowgauge_rows(lake = {lake:String}, from = {from:String}, to = {to:String})
        UNION ALL
        SELECT host, source, window, start_ns, spread2_key, spread2_of, arrayJoin(spread2)
        FROM flowgauge_rows(lake = {lake:String}, from = {from:String}, to = {to:String})
    )
    ORDER BY others DESC, host, source, start_ns LIMIT 1 BY spread_key, spread_of, flow
)
SELECT host, source, window, start_ns, spread_key, spread_of, flow, others, low, high, measured
FROM covered LEFT JOIN spreaders ON 1 = 1
WHERE host IS NOT NULL OR some = 0
ORDER BY others DESC, host, source, start_ns, spread_key, spread_of, flow LIMIT 20;
