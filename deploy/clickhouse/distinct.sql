-- Distinct flows of a fleet, from the lake that flowgauge writes: by hour, host and direction, and
-- of all together (the row without a host).
--   clickhouse-local --param_lake='lake/*/*/*.parquet' \
--       --param_from='2026-11-23 00:00:00' --param_to='2026-11-24 00:00:00' \
--       --param_sketch=hll_src_p11_tabulated_790900f3_1 --queries-file rows.sql distinct.sql
-- The views of rows.sql carry the guards. An hour of which a host has no window has no row, and is
-- no zero; `windows` shows hours with fewer.

WITH united AS (
    SELECT toStartOfHour(time) AS hour, host, direction, count() AS windows,
        countIf(is_measured) AS some, countIf(NOT complete) AS incomplete,
        sum(packets) AS packets, sum(bytes) AS bytes, sum(dropped) AS dropped,
        maxForEach(levels) AS registers
    FROM flowgauge_sketches(
        lake = {lake:String}, sketch = {sketch:String}, from = {from:String}, to = {to:String}
    )
    GROUP BY GROUPING SETS ((hour, host, direction), ())
)
SELECT hour, host, direction, windows, incomplete, packets, bytes, dropped,
    if(some = 0, NULL, flowgauge_distinct(registers)) AS estimate,
    estimate / (1 + flowgauge_error(registers)) AS low,
    estimate / (1 - flowgauge_error(registers)) AS high,
    flowgauge_measured(windows, some, 1) AS measured
FROM united
ORDER BY hour, host, direction
FORMAT TabSeparatedWithNames;
