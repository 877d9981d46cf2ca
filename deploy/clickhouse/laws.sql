-- Rows that no window can have counted, and windows of which there are different rows: whoever can
-- write to a lake can forge both. `flowgauge merge` refuses them, and other engines do not.
--   clickhouse-local --param_lake='lake/*/*/*.parquet' --queries-file rows.sql laws.sql
-- Ask this before other questions about a lake that several hosts write. It reads all files. No row
-- is the good answer. Laws of registers' images, of filters' bits, and of names of flows and causes
-- are not here: for those, `flowgauge merge lake > /dev/null`.
--
-- Numbers are compared as Float64, which is exact up to 2^53, the most packets that a law allows.
-- Sums of forged ones then overflow nothing. Sums of 4,096 numbers of bytes are rounded by less than
-- 1e-12. What is unknown does not hold.

CREATE FUNCTION IF NOT EXISTS flowgauge_sum AS numbers ->
    arraySum(it -> ifNull(toFloat64(it), nan), numbers);
-- Whether numbers are from 0 to `most`, and in order.
CREATE FUNCTION IF NOT EXISTS flowgauge_ascending AS (numbers, most) ->
    arrayAll(it -> it BETWEEN 0 AND most, numbers) AND arraySort(numbers) = numbers;
CREATE FUNCTION IF NOT EXISTS flowgauge_count AS (numbers) ->
    arrayAll(it -> it BETWEEN 0 AND 9007199254740992, numbers);
CREATE FUNCTION IF NOT EXISTS flowgauge_bytes AS (numbers) ->
    arrayAll(it -> it BETWEEN 0 AND 288230376151711744, numbers);
CREATE FUNCTION IF NOT EXISTS flowgauge_unique AS (list) ->
    length(arrayDistinct(list)) = length(list);
CREATE FUNCTION IF NOT EXISTS flowgauge_is_power AS (number) ->
    number >= 1 AND pow(2, round(log2(greatest(number, 1)))) = number;
-- Whether a histogram has a bucket from `low` to below `high`: `least` of the width `tick`, then
-- half as many in each doubling.
CREATE FUNCTION IF NOT EXISTS flowgauge_is_bucket AS (low, high, tick, least) ->
    low >= 0 AND flowgauge_is_power((toFloat64(high) - low) / tick)
    AND toFloat64(low) % greatest(toFloat64(high) - low, 1) = 0
    AND high <= least * (toFloat64(high) - low)
    AND (toFloat64(high) - low = tick
        OR 2 * toFloat64(low) >= least * (toFloat64(high) - low));
-- Whether each row of a sketch counts all packets, or at most those if some are missing. A packet
-- counts up in count-min, up or down in count-sketch.
CREATE FUNCTION IF NOT EXISTS flowgauge_is_sketch AS (
    kind, number, width, cells, missed, packets, is_complete
) -> number BETWEEN 1 AND 8 AND width BETWEEN 16 AND 65536 AND length(cells) = number * width
    AND arrayAll(it -> it BETWEEN 0 AND number * width - 1, missed)
    AND arraySort(arrayDistinct(missed)) = missed
    AND (kind = 'count-sketch' OR kind = 'count-min' AND arrayAll(it -> it >= 0, cells))
    AND arrayAll(
        changes -> changes <= packets AND (
            length(missed) > 0 OR NOT is_complete
            OR if(kind = 'count-min', packets - changes, (packets - changes) % 2) = 0
        ),
        arrayMap(
            nth -> flowgauge_sum(arrayMap(
                it -> abs(toFloat64(it)),
                arraySlice(cells, nth * ifNull(width, 0) + 1, ifNull(width, 0))
            )),
            range(toUInt8(if(number BETWEEN 1 AND 8, number, 0)))
        )
    );

-- Cells of a sketch of spread in memory, where three rows take as much as four; whether it is not too
-- large by itself; and if not, its memory: a byte for each register, and 64 for each cell.
CREATE FUNCTION IF NOT EXISTS flowgauge_spread_cells AS (number, width) ->
    if(number = 3, 4, toFloat64(number)) * width;
CREATE FUNCTION IF NOT EXISTS flowgauge_spread_fits AS (number, width, size) ->
    flowgauge_spread_cells(number, width) <= 4096
    AND flowgauge_spread_cells(number, width) * size <= 524288;
CREATE FUNCTION IF NOT EXISTS flowgauge_spread_bytes AS (number, width, size) -> if(
    ifNull(flowgauge_spread_fits(number, width, size), false),
    ifNull(flowgauge_spread_cells(number, width) * (toFloat64(size) + 64), 0), 0
);
-- Whether keys with the most others are those of a sketch, and none has more than packets.
CREATE FUNCTION IF NOT EXISTS flowgauge_is_spread AS (
    number, width, size, rest, keys, packets
) -> number BETWEEN 1 AND 4 AND width BETWEEN 16 AND 4096 AND flowgauge_is_power(width)
    AND size BETWEEN 16 AND 256 AND flowgauge_is_power(size)
    AND flowgauge_spread_fits(number, width, size)
    AND rest BETWEEN 0 AND packets AND length(keys) <= toFloat64(number) * width
    AND arrayAll(it -> flowgauge_ascending([it.low, it.others, it.high], packets), keys)
    AND arrayReverseSort(arrayMap(it -> it.others, keys)) = arrayMap(it -> it.others, keys)
    AND flowgauge_unique(arrayMap(it -> it.flow, keys));

WITH counted AS (
    SELECT *, coalesce(last_window, window) AS last,
        toFloat64(ipv4_packets) + ipv6_packets AS flow_packets,
        log2(greatest(flow_packets, 1)) + 1e-9 AS most_bits,
        -- Eight standard errors.
        exp(8 * 1.04 / sqrt(greatest(registers, 16))) AS distinct_error,
        splitByChar(',', ifNull(delay_kinds, '')) AS kinds,
        -- Weights are below e^8 if delays have any, and raised by up to 16 doublings.
        if(delay_algorithm IN ('fridge', 'multi-fridge'), 4096, 1) * if(delay_auto, 65536, 1)
            AS heaviest,
        bitShiftLeft(toInt64(1), 64 - least(greatest(reorder_ipv4_bits, 2), 64)) AS ipv4_unit,
        bitShiftLeft(toInt64(1), 64 - least(greatest(reorder_ipv6_bits, 2), 64)) AS ipv6_unit
    FROM flowgauge_files(lake = {lake:String})
), checked AS (
    SELECT filename, host, source, window, arrayJoin([
        ('names and a direction', length(host) <= 4096 AND length(run) <= 4096
            AND length(source) <= 65536 AND direction IN ('ingress', 'egress', 'both')),
        ('times and windows in order',
            start_ns BETWEEN 0 AND end_ns AND late_ns >= 0
                AND scheduled_start_ns BETWEEN 0 AND scheduled_end_ns
                AND window BETWEEN 0 AND last AND last <= 4611686018427387904
                AND coalesce(silent_windows, 0) BETWEEN 0 AND window),
        ('packets from 0 to 2^53, bytes to 2^58', flowgauge_count([
            packets, ipv4_packets, ipv6_packets, non_ip, truncated, bad_header, late, dropped,
            lost_rows, coalesce(unmatched, 0), coalesce(merged, 0)
        ]) AND flowgauge_bytes([bytes, coalesce(unmatched_bytes, 0)])),
        ('packets are those of all kinds',
            packets = flow_packets + non_ip + truncated + bad_header),
        ('no bytes without a packet', (bytes = 0 OR packets > 0)
            AND (coalesce(unmatched_bytes, 0) = 0 OR unmatched > 0)),
        ('super-packets begin with a packet', coalesce(merged, 0) = 0
            OR merged < toFloat64(packets) + coalesce(unmatched, 0)),
        ('drops of each cause once',
            flowgauge_unique(drops.cause) AND flowgauge_count(drops.packets)
                AND dropped = flowgauge_sum(drops.packets)),
        ('distinct flows within their interval',
            if(distinct_key IS NULL, distinct IS NULL, flowgauge_ascending(
                [distinct_low, distinct, distinct_high], 18446744073709551616.
            ))),
        -- Estimators differ by a quarter at most.
        ('at most as many distinct flows as packets',
            distinct_key IS NULL OR registers BETWEEN 16 AND 65536 AND flowgauge_is_power(registers)
                AND (hash LIKE 'crc32%' OR distinct
                    <= flow_packets * distinct_error * greatest(distinct_error, 1.25))
                AND (distinct > 0 OR flow_packets = 0 OR NOT complete)),
        -- 34242: the most that a packet adds.
        ('entropy from 0 to log2(packets)',
            if(entropy_key IS NULL, entropy IS NULL,
                flowgauge_ascending([entropy_low, entropy, entropy_high], most_bits)
                AND entropy_sum BETWEEN 0 AND 34242 * flow_packets)),
        ('entropy2 from 0 to log2(packets)',
            if(entropy2_key IS NULL, entropy2 IS NULL,
                flowgauge_ascending([entropy2_low, entropy2, entropy2_high], most_bits)
                AND entropy2_sum BETWEEN 0 AND 34242 * flow_packets)),
        ('the sketch of entropy counts all packets',
            entropy_key IS NULL OR flowgauge_is_sketch(
                entropy_sketch, entropy_rows, entropy_columns, entropy_cells, entropy_full,
                flow_packets, complete
            )),
        ('the sketch of entropy2 counts all packets',
            entropy2_key IS NULL OR flowgauge_is_sketch(
                entropy2_sketch, entropy2_rows, entropy2_columns, entropy2_cells, entropy2_full,
                flow_packets, complete
            )),
        ('the sketch of frequency counts all packets',
            frequency_key IS NULL OR flowgauge_is_sketch(
                frequency_sketch, frequency_rows, frequency_columns, frequency_cells,
                frequency_full, flow_packets, complete
            )),
        ('a filter has a probability',
            membership_key IS NULL OR membership_false_positive BETWEEN 0 AND 1),
        ('heavy flows have at most all packets',
            if(heavy_algorithm IS NULL, empty(heavy),
                heavy_packets BETWEEN 0 AND flow_packets AND heavy_total >= 0
                AND (heavy_unit = 'bytes' AND heavy_total <= bytes
                    OR heavy_unit = 'packets' AND heavy_total <= flow_packets)
                AND flowgauge_is_power(heavy_slots) AND length(heavy) <= heavy_slots
                AND arrayAll(
                    it -> it.inherited BETWEEN 0 AND it.count AND it.count <= heavy_total, heavy
                )
                AND arrayReverseSort(heavy.count) = heavy.count
                AND flowgauge_sum(heavy.count) <= 4 * toFloat64(heavy_total)
                AND flowgauge_sum(arrayMap(it -> toFloat64(it.count) - it.inherited, heavy))
                    <= toFloat64(heavy_total) * (1 + 1e-12)
                AND coalesce(heavy_least, 0) BETWEEN 0 AND 16 * toFloat64(heavy_total)
                AND coalesce(heavy_least_elsewhere, 0) BETWEEN 0 AND coalesce(heavy_least, 0))),
        ('keys of spread have at most as many others as packets',
            if(spread_key IS NULL, empty(spread), flowgauge_is_spread(
                spread_rows, spread_columns, spread_registers, spread_rest, spread, flow_packets
            ))),
        ('keys of spread2 have at most as many others as packets',
            if(spread2_key IS NULL, empty(spread2), flowgauge_is_spread(
                spread2_rows, spread2_columns, spread2_registers, spread2_rest, spread2,
                flow_packets
            ))),
        ('sketches of spread take at most 1 MiB',
            flowgauge_spread_bytes(spread_rows, spread_columns, spread_registers)
                + flowgauge_spread_bytes(spread2_rows, spread2_columns, spread2_registers)
                <= 1048576),
        ('lengths of all packets',
            if(lengths_full IS NULL, empty(lengths),
                lengths_full BETWEEN 0 AND 1441792
                AND coalesce(length_mean, 0) BETWEEN 0 AND 65535
                AND coalesce(length_p50, 0) BETWEEN 0 AND 65535
                AND flowgauge_unique(lengths.low) AND arraySort(lengths.low) = lengths.low
                AND flowgauge_count(lengths.packets) AND flowgauge_bytes(lengths.excess)
                AND arrayAll(
                    it -> it.high < 65536
                        AND flowgauge_is_bucket(it.low, toFloat64(it.high) + 1, 1, 128)
                        AND it.excess <= it.packets * (toFloat64(it.high) - it.low),
                    lengths
                )
                AND flowgauge_sum(lengths.packets) <= flow_packets
                AND (flowgauge_sum(lengths.packets) = flow_packets
                    OR lengths_full > 0 OR NOT complete))),
        -- A packet is a request and an answer in each direction at most.
        ('requests of at most all packets',
            if(delay_kinds IS NULL, empty(delay),
                delay_resolution_ns BETWEEN 0 AND 1000000000
                AND flowgauge_unique(
                    arrayMap(it -> (it.kind, it.leaves != 0, it.group_number), delay)
                )
                AND arrayAll(
                    it -> has(kinds, it.kind) AND it.leaves IS NOT NULL
                        AND it.group_number BETWEEN 0 AND 255 AND it.admit_log2 BETWEEN -1 AND 16
                        AND it.requests BETWEEN 0 AND 2 * flow_packets * if(
                            delay_auto AND it.kind IN ('tcp-timestamps', 'quic-spin'), 65536, 1
                        )
                        AND arrayAll(
                            number -> number BETWEEN 0 AND 2 * flow_packets,
                            [it.admitted, it.refused, it.backward, it.unsampled]
                        )
                        AND flowgauge_ascending(
                            arrayFilter(
                                ns -> isNaN(ns) IS NOT TRUE, [it.p50_ns, it.p95_ns, it.p99_ns]
                            ), 281474976710656
                        ),
                    delay
                ))),
        ('delays weigh at least 1, and packets give them',
            if(delay_kinds IS NULL, empty(delay_buckets),
                flowgauge_unique(arrayMap(
                    it -> (it.kind, it.leaves != 0, it.group_number, it.fridge, it.low_ns),
                    delay_buckets
                ))
                AND arrayAll(
                    it -> has(kinds, it.kind) AND it.leaves IS NOT NULL
                        AND it.group_number BETWEEN 0 AND 255 AND flowgauge_is_bucket(
                            it.low_ns, it.high_ns, if(it.kind = 'tcp-duration', 4096, 64), 64
                        )
                        AND it.fridge BETWEEN 0 AND if(delay_algorithm = 'multi-fridge', 3, 0)
                        AND it.samples BETWEEN 1 AND 4294967295
                        AND it.beyond BETWEEN 0 AND it.samples
                        AND it.weight BETWEEN 4096 * toFloat64(it.samples)
                            AND 4096 * toFloat64(it.samples) * heaviest
                        AND it.squares BETWEEN 256 * toFloat64(it.samples)
                            AND 256 * toFloat64(it.samples) * heaviest * heaviest,
                    delay_buckets
                )
                AND arrayAll(
                    wanted -> flowgauge_sum(
                        arrayFilter(it -> it.kind = wanted, delay_buckets).samples
                    ) <= 2 * flow_packets,
                    kinds
                ))),
        ('reordered segments are at most all',
            if(reorder_algorithm IS NULL, empty(reorder),
                reorder_ipv4_bits BETWEEN 2 AND 64 AND reorder_ipv6_bits BETWEEN 2 AND 64
                AND flowgauge_count([reorder_unfollowed, reorder_contended, reorder_crowded])
                AND flowgauge_unique(reorder.bits) AND length(reorder) <= 16384
                AND arrayAll(
                    it -> flowgauge_count([
                            it.packets, it.out_of_order, it.retransmitted, it.gaps, it.flows,
                            it.squares
                        ])
                        AND toFloat64(it.out_of_order) + it.retransmitted + it.gaps <= it.packets
                        AND it.flows <= it.packets
                        AND it.squares <= toFloat64(it.out_of_order) * it.out_of_order
                        -- The lowest eight bits are the version, the highest ones the prefix.
                        AND (it.bits - bitAnd(it.bits, 255)) % multiIf(
                            bitAnd(it.bits, 255) = 4, ipv4_unit,
                            bitAnd(it.bits, 255) = 6, ipv6_unit, NULL
                        ) = 0,
                    reorder
                )
                AND flowgauge_sum(reorder.packets) + reorder_unfollowed
                    + reorder_contended + reorder_crowded <= flow_packets))
    ]) AS it
    FROM counted
), numbered AS (
    -- Rows of one run and place whose windows overlap have one number: the frame of the sum ends
    -- with all rows of a window. Rows of one checksum and other values can be made: all values are
    -- compared that are read.
    SELECT *, sum(begins) OVER (
            PARTITION BY host, run, source, direction ORDER BY window, last
        ) AS number
    FROM (
        SELECT filename, host, run, source, direction, window, last,
            SHA256(
                formatRowNoNewline('JSONCompactEachRow', * EXCEPT (filename, date, hour))
            ) AS digest,
            coalesce(window > max(last) OVER (
                PARTITION BY host, run, source, direction ORDER BY window, last
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ), true) AS begins
        FROM counted
    )
), conflicts AS (
    SELECT arrayStringConcat(arraySort(groupUniqArray(filename)), ' ') AS filename, host, source,
        min(window) AS window, 'one row of a window' AS law
    FROM numbered
    GROUP BY host, run, source, direction, number HAVING uniqExact(digest) > 1
)
SELECT * FROM (
    SELECT filename, host, source, window, it.1 AS law FROM checked WHERE it.2 IS NOT TRUE
    UNION ALL SELECT * FROM conflicts
)
ORDER BY ALL;
