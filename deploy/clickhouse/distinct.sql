-- Distinct flows of a fleet, from the lake that flowgauge writes: by hour, host and direction, and of all together.
--
-- Set the files and the column of sketches, whose name says key, precision and hash; `schema.sql` shows it:
--   clickhouse-local --param_lake='lake/**/*.parquet' --param_sketch='^hll_src_p11_tabulated_790900f3_1$' --queries-file distinct.sql
--
-- Registers begin at byte 41 of the image. Their maximum, register by register, is the union, exactly. The estimate is Ertl's improved raw
-- estimator (2017, algorithm 6), as flowgauge's own.

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
),
counted AS (
    SELECT *, length(registers) AS m, 33 - toUInt8(log2(m)) AS last,
        arrayMap(level -> countEqual(registers, toUInt8(level)), range(0, last + 1)) AS levels
    FROM united
),
terms AS (
    SELECT *,
        levels[1] / m AS zeros,
        1 - levels[last + 1] / m AS below,
        zeros + arraySum(k -> pow(zeros, pow(2, k)) * pow(2, k - 1), range(1, 64)) AS sigma,
        if(below = 0 OR below = 1, 0,
            (1 - below - arraySum(k -> pow(1 - pow(below, pow(2, -k)), 2) * pow(2, -k), range(1, 64))) / 3) AS tau,
        m * tau * pow(2, 1 - last) + arraySum(k -> levels[k + 1] * pow(2, -k), range(1, last)) + m * sigma AS z
    FROM counted
)
SELECT hour, host, direction, windows, incomplete, packets, bytes, dropped,
    if(zeros = 1, 0, m * m / (2 * ln(2) * z)) AS estimate,
    estimate / (1 + 1.96 * 1.04 / sqrt(m)) AS low,
    estimate / (1 - 1.96 * 1.04 / sqrt(m)) AS high
FROM terms
ORDER BY hour, host, direction
FORMAT TabSeparatedWithNames;
