-- Rows that no window can have counted, and windows of which there are different rows: whoever can
-- write to a lake can forge both. `flowgauge merge` refuses them, and other engines do not.
--
--   SET VARIABLE lake = 'lake/*/*/*.parquet';
--
-- Load rows.sql first. Ask this before other questions about a lake that several hosts write. It
-- reads all files. No row is the good answer. Laws of registers' images, of filters' bits, and of
-- names of flows and causes are not here: for those, `flowgauge merge lake > /dev/null`.
--
-- Numbers are compared as DOUBLE, which is exact up to 2^53, the most packets that a law allows.
-- Sums of forged ones then overflow nothing. Sums of 4,096 numbers of bytes are rounded by less than
-- 1e-12.

-- Whether all hold; what is unknown does not.
CREATE OR REPLACE TEMP MACRO flowgauge_all(laws) AS len([it FOR it IN laws IF it]) = len(laws);
CREATE OR REPLACE TEMP MACRO flowgauge_sum(numbers) AS
    coalesce(list_sum([coalesce(it::DOUBLE, 'nan') FOR it IN numbers]), 0);
-- Whether numbers are from 0 to `most`, and in order. NaN is the largest.
CREATE OR REPLACE TEMP MACRO flowgauge_ascending(numbers, most) AS
    flowgauge_all([it BETWEEN 0 AND most FOR it IN numbers]) AND list_sort(numbers) = numbers;
CREATE OR REPLACE TEMP MACRO flowgauge_count(numbers) AS
    flowgauge_all([it BETWEEN 0 AND 9007199254740992 FOR it IN numbers]);
CREATE OR REPLACE TEMP MACRO flowgauge_bytes(numbers) AS
    flowgauge_all([it BETWEEN 0 AND 288230376151711744 FOR it IN numbers]);
CREATE OR REPLACE TEMP MACRO flowgauge_unique(list) AS len(list_distinct(list)) = len(list);
CREATE OR REPLACE TEMP MACRO flowgauge_is_power(number) AS
    number >= 1 AND pow(2, round(log2(greatest(number, 1)))) = number;
-- Whether a histogram has a bucket from `low` to below `high`: `least` of the width `tick`, then
-- half as many in each doubling.
CREATE OR REPLACE TEMP MACRO flowgauge_is_bucket(low, high, tick, least) AS
    low >= 0 AND flowgauge_is_power((high::DOUBLE - low) / tick)
    AND low::DOUBLE % greatest(high::DOUBLE - low, 1) = 0 AND high <= least * (high::DOUBLE - low)
    AND (high::DOUBLE - low = tick OR 2 * low::DOUBLE >= least * (high::DOUBLE - low));
-- Whether each row of a sketch counts all packets, or at most those if some are missing. A packet
-- counts up in count-min, up or down in count-sketch.
CREATE OR REPLACE TEMP MACRO flowgauge_is_sketch(
    kind, number, width, cells, missed, packets, is_complete
) AS CASE
    WHEN number BETWEEN 1 AND 8 AND width BETWEEN 16 AND 65536
        AND len(cells) = number::DOUBLE * width
    THEN flowgauge_all([it BETWEEN 0 AND number * width - 1 FOR it IN missed])
        AND list_sort(list_distinct(missed)) = missed
        AND (kind = 'count-sketch' OR kind = 'count-min' AND list_min(cells) >= 0)
        AND flowgauge_all([
            changes <= packets AND (
                len(missed) > 0 OR NOT is_complete
                OR CASE kind
                    WHEN 'count-min' THEN packets - changes ELSE (packets - changes) % 2 END = 0
            )
            FOR changes IN [
                flowgauge_sum([abs(it::DOUBLE) FOR it IN cells[nth * width + 1:(nth + 1) * width]])
                FOR nth IN range(8) IF nth < number
            ]
        ])
    ELSE false END;

-- Cells of a sketch of spread in memory, where three rows take as much as four; whether it is not too
-- large by itself; and if not, its memory: a byte for each register, and 64 for each cell.
CREATE OR REPLACE TEMP MACRO flowgauge_spread_cells(number, width) AS
    CASE number WHEN 3 THEN 4 ELSE number::DOUBLE END * width;
CREATE OR REPLACE TEMP MACRO flowgauge_spread_fits(number, width, size) AS
    flowgauge_spread_cells(number, width) <= 4096
    AND flowgauge_spread_cells(number, width) * size <= 524288;
CREATE OR REPLACE TEMP MACRO flowgauge_spread_bytes(number, width, size) AS
    CASE WHEN flowgauge_spread_fits(number, width, size)
    THEN flowgauge_spread_cells(number, width) * (size::DOUBLE + 64) ELSE 0 END;
-- Whether keys with the most others are those of a sketch, and none has more than packets.
CREATE OR REPLACE TEMP MACRO flowgauge_is_spread(number, width, size, rest, keys, packets) AS
    number BETWEEN 1 AND 4 AND width BETWEEN 16 AND 4096 AND flowgauge_is_power(width)
    AND size BETWEEN 16 AND 256 AND flowgauge_is_power(size)
    AND flowgauge_spread_fits(number, width, size)
    AND rest BETWEEN 0 AND packets AND len(keys) <= number::DOUBLE * width
    AND flowgauge_all([flowgauge_ascending([it.low, it.others, it.high], packets) FOR it IN keys])
    AND list_reverse_sort([it.others FOR it IN keys]) = [it.others FOR it IN keys]
    AND flowgauge_unique([it.flow FOR it IN keys]);

WITH counted AS (
    -- A list that is not there is empty.
    SELECT * REPLACE (
            coalesce(drops, []) AS drops, coalesce(heavy, []) AS heavy,
            coalesce(spread, []) AS spread, coalesce(spread2, []) AS spread2,
            coalesce(lengths, []) AS lengths, coalesce("delay", []) AS "delay",
            coalesce(delay_buckets, []) AS delay_buckets, coalesce(reorder, []) AS reorder,
            coalesce(entropy_full, []) AS entropy_full,
            coalesce(entropy2_full, []) AS entropy2_full,
            coalesce(frequency_full, []) AS frequency_full
        ), coalesce(last_window, "window") AS last,
        ipv4_packets::DOUBLE + ipv6_packets AS flow_packets,
        log2(greatest(flow_packets, 1)) + 1e-9 AS most_bits,
        -- Eight standard errors.
        exp(8 * 1.04 / sqrt(greatest(registers, 16))) AS distinct_error,
        string_split(delay_kinds, ',') AS kinds,
        -- Weights are below e^8 if delays have any, and raised by up to 16 doublings.
        CASE WHEN delay_algorithm IN ('fridge', 'multi-fridge') THEN 4096 ELSE 1 END::DOUBLE
            * CASE WHEN delay_auto THEN 65536 ELSE 1 END AS heaviest,
        1::BIGINT << 64 - least(greatest(reorder_ipv4_bits, 2), 64) AS ipv4_unit,
        1::BIGINT << 64 - least(greatest(reorder_ipv6_bits, 2), 64) AS ipv6_unit
    FROM flowgauge_files
), checked AS (
    SELECT filename, host, source, "window", unnest([
        {law: 'names and a direction', holds: strlen(host) <= 4096 AND strlen(run) <= 4096
            AND strlen(source) <= 65536 AND direction IN ('ingress', 'egress', 'both')},
        {law: 'times and windows in order',
            holds: start_ns BETWEEN 0 AND end_ns AND late_ns >= 0
                AND scheduled_start_ns BETWEEN 0 AND scheduled_end_ns
                AND "window" BETWEEN 0 AND last AND last <= 4611686018427387904
                AND coalesce(silent_windows, 0) BETWEEN 0 AND "window"},
        {law: 'packets from 0 to 2^53, bytes to 2^58', holds: flowgauge_count([
            packets, ipv4_packets, ipv6_packets, non_ip, truncated, bad_header, late, dropped,
            lost_rows, coalesce(unmatched, 0), coalesce(merged, 0)
        ]) AND flowgauge_bytes([bytes, coalesce(unmatched_bytes, 0)])},
        {law: 'packets are those of all kinds',
            holds: packets = flow_packets + non_ip + truncated + bad_header},
        {law: 'no bytes without a packet', holds: (bytes = 0 OR packets > 0)
            AND (coalesce(unmatched_bytes, 0) = 0 OR unmatched > 0)},
        {law: 'super-packets begin with a packet', holds: coalesce(merged, 0) = 0
            OR merged < packets::DOUBLE + coalesce(unmatched, 0)},
        {law: 'drops of each cause once',
            holds: flowgauge_unique([it.cause FOR it IN drops])
                AND flowgauge_count([it.packets FOR it IN drops])
                AND dropped = flowgauge_sum([it.packets FOR it IN drops])},
        {law: 'distinct flows within their interval',
            holds: CASE WHEN distinct_key IS NULL THEN "distinct" IS NULL
                ELSE flowgauge_ascending(
                    [distinct_low, "distinct", distinct_high], 18446744073709551616::DOUBLE
                ) END},
        -- Estimators differ by a quarter at most.
        {law: 'at most as many distinct flows as packets',
            holds: distinct_key IS NULL
                OR registers BETWEEN 16 AND 65536 AND flowgauge_is_power(registers)
                AND (hash LIKE 'crc32%' OR "distinct"
                    <= flow_packets * distinct_error * greatest(distinct_error, 1.25))
                AND ("distinct" > 0 OR flow_packets = 0 OR NOT complete)},
        -- 34242: the most that a packet adds.
        {law: 'entropy from 0 to log2(packets)',
            holds: CASE WHEN entropy_key IS NULL THEN entropy IS NULL
                ELSE flowgauge_ascending([entropy_low, entropy, entropy_high], most_bits)
                    AND entropy_sum BETWEEN 0 AND 34242 * flow_packets END},
        {law: 'entropy2 from 0 to log2(packets)',
            holds: CASE WHEN entropy2_key IS NULL THEN entropy2 IS NULL
                ELSE flowgauge_ascending([entropy2_low, entropy2, entropy2_high], most_bits)
                    AND entropy2_sum BETWEEN 0 AND 34242 * flow_packets END},
        {law: 'the sketch of entropy counts all packets',
            holds: entropy_key IS NULL OR flowgauge_is_sketch(
                entropy_sketch, entropy_rows, entropy_columns, entropy_cells, entropy_full,
                flow_packets, complete
            )},
        {law: 'the sketch of entropy2 counts all packets',
            holds: entropy2_key IS NULL OR flowgauge_is_sketch(
                entropy2_sketch, entropy2_rows, entropy2_columns, entropy2_cells, entropy2_full,
                flow_packets, complete
            )},
        {law: 'the sketch of frequency counts all packets',
            holds: frequency_key IS NULL OR flowgauge_is_sketch(
                frequency_sketch, frequency_rows, frequency_columns, frequency_cells,
                frequency_full, flow_packets, complete
            )},
        {law: 'a filter has a probability',
            holds: membership_key IS NULL OR membership_false_positive BETWEEN 0 AND 1},
        {law: 'heavy flows have at most all packets',
            holds: CASE WHEN heavy_algorithm IS NULL THEN len(heavy) = 0
                ELSE heavy_packets BETWEEN 0 AND flow_packets AND heavy_total >= 0
                    AND (heavy_unit = 'bytes' AND heavy_total <= bytes
                        OR heavy_unit = 'packets' AND heavy_total <= flow_packets)
                    AND flowgauge_is_power(heavy_slots) AND len(heavy) <= heavy_slots
                    AND flowgauge_all([
                        it.inherited BETWEEN 0 AND it.count AND it.count <= heavy_total
                        FOR it IN heavy
                    ])
                    AND list_reverse_sort([it.count FOR it IN heavy]) = [it.count FOR it IN heavy]
                    AND flowgauge_sum([it.count FOR it IN heavy]) <= 4 * heavy_total::DOUBLE
                    AND flowgauge_sum([it.count::DOUBLE - it.inherited FOR it IN heavy])
                        <= heavy_total * (1 + 1e-12::DOUBLE)
                    AND coalesce(heavy_least, 0) BETWEEN 0 AND 16 * heavy_total::DOUBLE
                    AND coalesce(heavy_least_elsewhere, 0) BETWEEN 0 AND coalesce(heavy_least, 0)
                END},
        {law: 'keys of spread have at most as many others as packets',
            holds: CASE WHEN spread_key IS NULL THEN len(spread) = 0
                ELSE flowgauge_is_spread(
                    spread_rows, spread_columns, spread_registers, spread_rest, spread, flow_packets
                ) END},
        {law: 'keys of spread2 have at most as many others as packets',
            holds: CASE WHEN spread2_key IS NULL THEN len(spread2) = 0
                ELSE flowgauge_is_spread(
                    spread2_rows, spread2_columns, spread2_registers, spread2_rest, spread2,
                    flow_packets
                ) END},
        {law: 'sketches of spread take at most 1 MiB',
            holds: flowgauge_spread_bytes(spread_rows, spread_columns, spread_registers)
                + flowgauge_spread_bytes(spread2_rows, spread2_columns, spread2_registers)
                <= 1048576},
        {law: 'lengths of all packets',
            holds: CASE WHEN lengths_full IS NULL THEN len(lengths) = 0
                ELSE lengths_full BETWEEN 0 AND 1441792
                    AND coalesce(length_mean, 0) BETWEEN 0 AND 65535
                    AND coalesce(length_p50, 0) BETWEEN 0 AND 65535
                    AND flowgauge_unique([it.low FOR it IN lengths])
                    AND list_sort([it.low FOR it IN lengths]) = [it.low FOR it IN lengths]
                    AND flowgauge_count([it.packets FOR it IN lengths])
                    AND flowgauge_bytes([it.excess FOR it IN lengths])
                    AND flowgauge_all([
                        it.high < 65536 AND flowgauge_is_bucket(it.low, it.high::DOUBLE + 1, 1, 128)
                        AND it.excess <= it.packets * (it.high::DOUBLE - it.low)
                        FOR it IN lengths
                    ])
                    AND flowgauge_sum([it.packets FOR it IN lengths]) <= flow_packets
                    AND (flowgauge_sum([it.packets FOR it IN lengths]) = flow_packets
                        OR lengths_full > 0 OR NOT complete) END},
        -- A packet is a request and an answer in each direction at most.
        {law: 'requests of at most all packets',
            holds: CASE WHEN delay_kinds IS NULL THEN len("delay") = 0
                ELSE delay_resolution_ns BETWEEN 0 AND 1000000000
                    AND flowgauge_unique(
                        [(it.kind, it.leaves != 0, it.group_number) FOR it IN "delay"]
                    )
                    AND flowgauge_all([
                        list_contains(kinds, it.kind) AND it.leaves IS NOT NULL
                        AND it.group_number BETWEEN 0 AND 255 AND it.admit_log2 BETWEEN -1 AND 16
                        AND it.requests BETWEEN 0 AND 2 * flow_packets * CASE
                            WHEN delay_auto AND it.kind IN ('tcp-timestamps', 'quic-spin')
                            THEN 65536 ELSE 1 END
                        AND flowgauge_all([
                            number BETWEEN 0 AND 2 * flow_packets
                            FOR number IN [it.admitted, it.refused, it.backward, it.unsampled]
                        ])
                        AND flowgauge_ascending(
                            [
                                ns FOR ns IN [it.p50_ns, it.p95_ns, it.p99_ns]
                                IF isnan(ns) IS NOT TRUE
                            ], 281474976710656
                        )
                        FOR it IN "delay"
                    ]) END},
        {law: 'delays weigh at least 1, and packets give them',
            holds: CASE WHEN delay_kinds IS NULL THEN len(delay_buckets) = 0
                ELSE flowgauge_unique([
                        (it.kind, it.leaves != 0, it.group_number, it.fridge, it.low_ns)
                        FOR it IN delay_buckets
                    ])
                    AND flowgauge_all([
                        list_contains(kinds, it.kind) AND it.leaves IS NOT NULL
                        AND it.group_number BETWEEN 0 AND 255 AND flowgauge_is_bucket(
                            it.low_ns, it.high_ns,
                            CASE it.kind WHEN 'tcp-duration' THEN 4096 ELSE 64 END, 64
                        )
                        AND it.fridge BETWEEN 0
                            AND CASE delay_algorithm WHEN 'multi-fridge' THEN 3 ELSE 0 END
                        AND it.samples BETWEEN 1 AND 4294967295
                        AND it.beyond BETWEEN 0 AND it.samples
                        AND it.weight BETWEEN 4096 * it.samples::DOUBLE
                            AND 4096 * it.samples::DOUBLE * heaviest
                        AND it.squares BETWEEN 256 * it.samples::DOUBLE
                            AND 256 * it.samples::DOUBLE * heaviest * heaviest
                        FOR it IN delay_buckets
                    ])
                    AND flowgauge_all([
                        flowgauge_sum([it.samples FOR it IN delay_buckets IF it.kind = wanted])
                            <= 2 * flow_packets
                        FOR wanted IN kinds
                    ]) END},
        {law: 'reordered segments are at most all',
            holds: CASE WHEN reorder_algorithm IS NULL THEN len(reorder) = 0
                ELSE reorder_ipv4_bits BETWEEN 2 AND 64 AND reorder_ipv6_bits BETWEEN 2 AND 64
                    AND flowgauge_count([reorder_unfollowed, reorder_contended, reorder_crowded])
                    AND flowgauge_unique([it.bits FOR it IN reorder])
                    AND len(reorder) <= 16384
                    AND flowgauge_all([
                        flowgauge_count([
                            it.packets, it.out_of_order, it.retransmitted, it.gaps, it.flows,
                            it.squares
                        ])
                        AND it.out_of_order::DOUBLE + it.retransmitted + it.gaps <= it.packets
                        AND it.flows <= it.packets
                        AND it.squares <= it.out_of_order::DOUBLE * it.out_of_order
                        -- The lowest eight bits are the version, the highest ones the prefix.
                        AND (it.bits - (it.bits & 255))
                            % CASE it.bits & 255 WHEN 4 THEN ipv4_unit WHEN 6 THEN ipv6_unit END = 0
                        FOR it IN reorder
                    ])
                    AND flowgauge_sum([it.packets FOR it IN reorder]) + reorder_unfollowed
                        + reorder_contended + reorder_crowded <= flow_packets END}
    ]) AS it
    FROM counted
), numbered AS (
    -- Rows of one run and place whose windows overlap have one number: the frame of the sum ends
    -- with all rows of a window. Rows of one checksum and other values can be made: all values are
    -- compared that are read.
    SELECT *, sum(begins) OVER (
            PARTITION BY host, run, source, direction ORDER BY "window", last
        ) AS number
    FROM (
        SELECT filename, host, run, source, direction, "window", last,
            sha256(row(*COLUMNS(* EXCLUDE (filename)))::VARCHAR) AS digest,
            coalesce("window" > max(last) OVER (
                PARTITION BY host, run, source, direction ORDER BY "window", last
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ), true)::BIGINT AS begins
        FROM counted
    )
), conflicts AS (
    SELECT string_agg(DISTINCT filename, ' ' ORDER BY filename) AS filename, host, source,
        min("window") AS "window", 'one row of a window' AS law
    FROM numbered
    GROUP BY host, run, source, direction, number HAVING count(DISTINCT digest) > 1
)
SELECT filename, host, source, "window", it.law AS law FROM checked WHERE it.holds IS NOT TRUE
UNION ALL SELECT * FROM conflicts ORDER BY ALL;
