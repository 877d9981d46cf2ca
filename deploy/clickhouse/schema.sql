-- What must be equal before rows are united, which files have it, and the column of sketches.
--   clickhouse-local --param_lake='lake/*/*/*.parquet' --param_from='2026-11-23 00:00:00' \
--       --param_to='2026-11-24 00:00:00' --queries-file schema.sql
SELECT schema, hash, row_hash, inner, distinct_key, registers, count() AS rows,
    uniqExact(_path) AS files, min(_path) AS example,
    if(distinct_key IS NULL, NULL, concat(
        'hll_', replaceAll(distinct_key, '-', '_'),
        '_p', toString(toUInt8(log2(ifNull(registers, 1)))), '_', hash
    )) AS sketch
FROM file({lake:String}, Parquet, '
    schema Nullable(Int64), hash Nullable(String), row_hash Nullable(String), inner Nullable(Bool),
    distinct_key Nullable(String), registers Nullable(Int64), scheduled_start_ns Int64,
    scheduled_end_ns Int64')
WHERE toDateTime(date, 'UTC') + toIntervalHour(hour + 1)
        > parseDateTimeBestEffort({from:String}, 'UTC')
    AND toDateTime(date, 'UTC') + toIntervalHour(hour) < parseDateTimeBestEffort({to:String}, 'UTC')
    AND fromUnixTimestamp64Nano(scheduled_start_ns, 'UTC')
        >= parseDateTimeBestEffort({from:String}, 'UTC')
    AND fromUnixTimestamp64Nano(scheduled_end_ns, 'UTC')
        <= parseDateTimeBestEffort({to:String}, 'UTC')
GROUP BY schema, hash, row_hash, inner, distinct_key, registers
ORDER BY rows DESC
FORMAT TabSeparatedWithNames;
