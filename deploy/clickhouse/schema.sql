-- What must be equal before rows are united, and which files have it.
--   clickhouse-local --param_lake='lake/**/*.parquet' --queries-file schema.sql
SELECT schema, hash, distinct_key, registers, inner, count() AS rows, uniqExact(_path) AS files, min(_path) AS example,
    concat('hll_', replace(distinct_key, '-', '_'), '_p', toString(toUInt8(log2(registers))), '_', hash) AS sketch
FROM file({lake:String}, Parquet)
WHERE distinct_key IS NOT NULL
GROUP BY schema, hash, distinct_key, registers, inner
ORDER BY rows DESC
FORMAT TabSeparatedWithNames;
