-- Distinct flows of a fleet, from the lake that flowgauge writes: by hour, host and direction, and of all together.
--
-- Set the files and the column of sketches, whose name says key, precision and hash; `schema.sql` shows it:
--   clickhouse-local --param_lake='lake/**/*.parquet' --param_sketch='^hll_src_p11_tabulated_790900f3_1$' \
--       --queries-file estimate.sql distinct.sql
--
-- Registers begin at byte 41 of the image. Their maximum, register by register, is the union, exactly.

-- Rows that must not be united give no number.
WITH identities AS (
    SELECT DISTINCT schema, hash, distinct_key, registers, inner FROM file({lake:String}, Parquet) WHERE distinct_key IS NOT NULL
)
SELECT throwIf(
    count() != 1 OR any(schema) != 1,
    'rows of this lake differ in schema, hash, distinct_key, registers or inner, or are of another version; schema.sql shows which files have which'
) FROM identities FORMAT Null;

WITH rows AS (
    -- A file that was copied twice counts once.
    SELECT host, run, source, direction, window, start_ns, any(time) AS begin, any(packets) AS packets, any(bytes) AS bytes, any(dropped) AS dropped,
        any(complete) AS complete, any(reinterpret(substring(assumeNotNull(COLUMNS({sketch:String})), 41), 'Array(UInt8)')) AS levels
    FROM file({lake:String}, Parquet)
    WHERE distinct_key IS NOT NULL
    GROUP BY host, run, source, direction, window, start_ns
),
united AS (
    SELECT toStartOfHour(begin) AS hour, host, direction, count() AS windows, countIf(NOT complete) AS incomplete, sum(packets) AS packets,
        sum(bytes) AS bytes, sum(dropped) AS dropped, maxForEach(levels) AS registers
    FROM rows
    GROUP BY GROUPING SETS ((hour, host, direction), ())
)
SELECT hour, host, direction, windows, incomplete, packets, bytes, dropped, flowgauge_distinct(registers) AS estimate,
    estimate / (1 + flowgauge_error(registers)) AS low, estimate / (1 - flowgauge_error(registers)) AS high
FROM united
ORDER BY hour, host, direction
FORMAT TabSeparatedWithNames;
