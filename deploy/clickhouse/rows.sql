-- What queries of this folder have in common: access to files, which is guarded, and the number of
-- distinct flows that united registers stand for. Load it first
-- (clickhouse-local --queries-file rows.sql questions.sql; on a server once, see README.md).
--
-- A view takes `lake` (files), `from` and `to` (UTC; windows that begin at `from` or later and end
-- at `to` or earlier). That of sketches also takes `sketch`, the name of their column, which tells
-- key, precision and hash (schema.sql shows it). Each view
-- * opens files of the wanted hours alone, by the names of their directories (date=…/hour=…);
-- * stops a query whose rows must not be united, so that a statement that is copied out of a file
--   is guarded as well;
-- * counts a file that was copied twice once;
-- * knows the columns that it names. One that a file does not have is NULL: agents that measure
--   less break no question.

-- The hour of a directory, and a time in nanoseconds.
CREATE FUNCTION IF NOT EXISTS flowgauge_hour AS (date, hour) ->
    toDateTime(date, 'UTC') + toIntervalHour(hour);
CREATE FUNCTION IF NOT EXISTS flowgauge_ns AS (text) ->
    toInt64(toUnixTimestamp(parseDateTimeBestEffort(text, 'UTC'))) * 1000000000;
-- The name of a column of sketches.
CREATE FUNCTION IF NOT EXISTS flowgauge_sketch AS (key, registers, hash) -> concat(
    'hll_', replaceAll(ifNull(key, ''), '-', '_'),
    '_p', toString(toUInt8(log2(ifNull(registers, 1)))), '_', ifNull(hash, '')
);

-- All rows of all files, without guards. What a file does not have is NULL: laws.sql finds that.
CREATE VIEW IF NOT EXISTS flowgauge_files AS
SELECT _path AS filename, date, hour, * FROM file({lake:String}, Parquet, '
    schema Nullable(Int64), host Nullable(String), run Nullable(String), source Nullable(String),
    direction Nullable(String), time DateTime64(6, \'UTC\'), window Nullable(Int64),
    last_window Nullable(Int64), silent_windows Nullable(Int64), start_ns Nullable(Int64),
    end_ns Nullable(Int64), scheduled_start_ns Nullable(Int64), scheduled_end_ns Nullable(Int64),
    complete Nullable(Bool), late_ns Nullable(Int64), inner Nullable(Bool),
    checksum Nullable(Int64), packets Nullable(Int64), bytes Nullable(Int64),
    ipv4_packets Nullable(Int64), ipv6_packets Nullable(Int64), non_ip Nullable(Int64),
    truncated Nullable(Int64), bad_header Nullable(Int64), late Nullable(Int64),
    unmatched Nullable(Int64), unmatched_bytes Nullable(Int64), merged Nullable(Int64),
    dropped Nullable(Int64),
    drops Array(Tuple(cause Nullable(String), packets Nullable(Int64))),
    lost_rows Nullable(Int64), hash Nullable(String), row_hash Nullable(String),
    distinct_key Nullable(String), registers Nullable(Int64), distinct Nullable(Float64),
    distinct_low Nullable(Float64), distinct_high Nullable(Float64), entropy Nullable(Float64),
    entropy_low Nullable(Float64), entropy_high Nullable(Float64), entropy_sum Nullable(Int64),
    entropy_key Nullable(String), entropy_sketch Nullable(String), entropy_rows Nullable(Int64),
    entropy_columns Nullable(Int64), entropy_cells Array(Nullable(Int64)),
    entropy_full Array(Nullable(Int64)), entropy2 Nullable(Float64),
    entropy2_low Nullable(Float64), entropy2_high Nullable(Float64),
    entropy2_sum Nullable(Int64), entropy2_key Nullable(String),
    entropy2_sketch Nullable(String), entropy2_rows Nullable(Int64),
    entropy2_columns Nullable(Int64), entropy2_cells Array(Nullable(Int64)),
    entropy2_full Array(Nullable(Int64)), frequency_key Nullable(String),
    frequency_sketch Nullable(String), frequency_rows Nullable(Int64),
    frequency_columns Nullable(Int64), frequency_cells Array(Nullable(Int64)),
    frequency_full Array(Nullable(Int64)), membership_key Nullable(String),
    membership_false_positive Nullable(Float64), heavy_key Nullable(String),
    heavy_unit Nullable(String), heavy_algorithm Nullable(String), heavy_slots Nullable(Int64),
    heavy_total Nullable(Int64), heavy_packets Nullable(Int64),
    heavy_least Nullable(Int64), heavy_least_elsewhere Nullable(Int64),
    heavy Array(Tuple(flow Nullable(String), count Nullable(Int64), inherited Nullable(Int64))),
    spread_key Nullable(String), spread_of Nullable(String), spread_rows Nullable(Int64),
    spread_columns Nullable(Int64), spread_registers Nullable(Int64), spread_rest Nullable(Float64),
    spread Array(Tuple(flow Nullable(String), others Nullable(Float64), low Nullable(Float64),
        high Nullable(Float64))),
    spread2_key Nullable(String), spread2_of Nullable(String), spread2_rows Nullable(Int64),
    spread2_columns Nullable(Int64), spread2_registers Nullable(Int64),
    spread2_rest Nullable(Float64),
    spread2 Array(Tuple(flow Nullable(String), others Nullable(Float64), low Nullable(Float64),
        high Nullable(Float64))),
    length_mean Nullable(Float64), length_p50 Nullable(Float64), lengths_full Nullable(Int64),
    lengths Array(Tuple(low Nullable(Int64), high Nullable(Int64), packets Nullable(Int64),
        excess Nullable(Int64))),
    delay_kinds Nullable(String), delay_algorithm Nullable(String),
    delay_admit_log2 Nullable(Int64), delay_auto Nullable(Bool),
    delay_resolution_ns Nullable(Int64),
    delay Array(Tuple(kind Nullable(String), leaves Nullable(Int64),
        group_number Nullable(Int64), requests Nullable(Int64), admitted Nullable(Int64),
        refused Nullable(Int64), backward Nullable(Int64), unsampled Nullable(Int64),
        admit_log2 Nullable(Int64), p50_ns Nullable(Float64), p95_ns Nullable(Float64),
        p99_ns Nullable(Float64))),
    delay_buckets Array(Tuple(kind Nullable(String), leaves Nullable(Int64),
        group_number Nullable(Int64), fridge Nullable(Int64), low_ns Nullable(Int64),
        high_ns Nullable(Int64), samples Nullable(Int64), weight Nullable(Int64),
        squares Nullable(Int64), beyond Nullable(Int64))),
    reorder_algorithm Nullable(String), reorder_ipv4_bits Nullable(Int64),
    reorder_ipv6_bits Nullable(Int64), reorder_unfollowed Nullable(Int64),
    reorder_contended Nullable(Int64), reorder_crowded Nullable(Int64),
    reorder Array(Tuple(prefix Nullable(String), packets Nullable(Int64),
        out_of_order Nullable(Int64), retransmitted Nullable(Int64), gaps Nullable(Int64),
        flows Nullable(Int64), squares Nullable(Int64), bits Nullable(Int64)))');

-- Rows of plain columns.
CREATE VIEW IF NOT EXISTS flowgauge_rows AS
WITH selected AS (
    SELECT * FROM flowgauge_files(lake = {lake:String})
    WHERE flowgauge_hour(date, hour + 1) > parseDateTimeBestEffort({from:String}, 'UTC')
        AND flowgauge_hour(date, hour) < parseDateTimeBestEffort({to:String}, 'UTC')
        AND scheduled_start_ns >= flowgauge_ns({from:String})
        AND scheduled_end_ns <= flowgauge_ns({to:String})
)
SELECT * FROM selected
WHERE (
    SELECT throwIf(
        countIf(ifNull(schema, 0) != 1) > 0
            OR uniqExact((ifNull(hash, ''), ifNull(row_hash, ''), ifNull(inner, false))) > 1
            OR uniqExactIf((distinct_key, registers), distinct_key IS NOT NULL) > 1,
        'rows of this lake differ in schema, hash, row_hash, distinct_key, registers or inner, '
            || 'or are of another version; schema.sql shows which files have which'
    ) FROM selected
) = 0
LIMIT 1 BY host, run, source, direction, window, start_ns;

-- Registers of distinct flows: `levels`, none where they are not measured. They begin at byte 41 of
-- the image. Their maximum, register by register, is the union, exactly.
CREATE VIEW IF NOT EXISTS flowgauge_sketches AS
WITH selected AS (
    SELECT *, {sketch:Identifier} AS image
    FROM file({lake:String}, Parquet, concat('
        schema Nullable(Int64), host String, run String, source String, direction String,
        time DateTime64(6, \'UTC\'), window Int64, start_ns Int64, scheduled_start_ns Int64,
        scheduled_end_ns Int64, complete Bool, inner Nullable(Bool), packets Int64, bytes Int64,
        dropped Int64, hash Nullable(String), row_hash Nullable(String),
        distinct_key Nullable(String), registers Nullable(Int64), ',
        {sketch:String}, ' Nullable(String)'))
    WHERE flowgauge_hour(date, hour + 1) > parseDateTimeBestEffort({from:String}, 'UTC')
        AND flowgauge_hour(date, hour) < parseDateTimeBestEffort({to:String}, 'UTC')
        AND scheduled_start_ns >= flowgauge_ns({from:String})
        AND scheduled_end_ns <= flowgauge_ns({to:String})
)
SELECT host, run, source, direction, time, window, start_ns, complete, packets, bytes, dropped,
    image IS NOT NULL AS is_measured,
    reinterpret(substring(ifNull(image, ''), 41), 'Array(UInt8)') AS levels
FROM selected
WHERE (
    SELECT throwIf(
        countIf(ifNull(schema, 0) != 1) > 0
            OR uniqExact((ifNull(hash, ''), ifNull(row_hash, ''), ifNull(inner, false))) > 1
            OR uniqExactIf((distinct_key, registers), distinct_key IS NOT NULL) > 1,
        'rows of this lake differ in schema, hash, row_hash, distinct_key, registers or inner, '
            || 'or are of another version; schema.sql shows which files have which'
    ) + throwIf(
        countIf(
            distinct_key IS NOT NULL
                AND flowgauge_sketch(distinct_key, registers, hash) != {sketch:String}
        ) > 0,
        'rows have their sketches in another column than `sketch` names; '
            || 'schema.sql shows in which'
    ) FROM selected
) = 0
LIMIT 1 BY host, run, source, direction, window, start_ns;

-- How many windows have a measurement: '12 of 18 windows', 'not measured' or 'no windows'. Stops if
-- they have it by different settings.
CREATE FUNCTION IF NOT EXISTS flowgauge_measured AS (windows, measured, settings) -> multiIf(
    throwIf(
        settings > 1, 'windows have this measurement by different keys or settings, '
            || 'and no number can be made of them together'
    ) > 0, '',
    windows = 0, 'no windows', measured = 0, 'not measured',
    concat(toString(measured), ' of ', toString(windows), ' windows')
);

-- Ertl's improved raw estimator (2017, algorithm 6), as flowgauge's own: both agree to the last
-- digits.
CREATE FUNCTION IF NOT EXISTS flowgauge_sigma AS (zeros) ->
    zeros + arraySum(k -> pow(zeros, pow(2, k)) * pow(2, k - 1), range(1, 64));
CREATE FUNCTION IF NOT EXISTS flowgauge_tau AS (below) -> if(below = 0 OR below = 1, 0, (
    1 - below - arraySum(k -> pow(1 - pow(below, pow(2, -k)), 2) * pow(2, -k), range(1, 64))
) / 3);
-- Levels go up to 33 - log2(registers).
CREATE FUNCTION IF NOT EXISTS flowgauge_last AS (registers) ->
    toUInt8(33 - log2(greatest(length(registers), 1)));
CREATE FUNCTION IF NOT EXISTS flowgauge_distinct AS (registers) ->
    if(countEqual(registers, 0) = length(registers), 0, pow(length(registers), 2) / (2 * ln(2) * (
        length(registers)
            * flowgauge_tau(
                1 - countEqual(registers, flowgauge_last(registers)) / length(registers)
            )
            * pow(2, 1 - flowgauge_last(registers))
        + arraySum(
            k -> countEqual(registers, toUInt8(k)) * pow(2, -k), range(1, flowgauge_last(registers))
        )
        + length(registers) * flowgauge_sigma(countEqual(registers, 0) / length(registers)))));
-- Half of the 95 % interval, as a share: HyperLogLog's standard error, a little wider than
-- flowgauge's own.
CREATE FUNCTION IF NOT EXISTS flowgauge_error AS (registers) ->
    1.96 * 1.04 / sqrt(length(registers));
