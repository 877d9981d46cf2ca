-- Rows that no window can have counted, and windows of which there are different rows: whoever can
-- write to a lake can forge both. `flowgauge merge` refuses them, and other engines do not.
--
--   SET VARIABLE lake = 'lake/*/*/*.parquet';
--
-- Ask this before other questions about a lake that several hosts write. It reads all files. No row
-- is the good answer. Laws of registers' images, of filters' bits and of keys cannot be expressed
-- here: for those, `flowgauge merge lake > /dev/null`.

WITH lake AS NOT MATERIALIZED (
    SELECT filename, * FROM read_parquet(getvariable('lake'), schema = MAP {
        'host': {name: 'host', type: 'VARCHAR', default_value: NULL},
        'run': {name: 'run', type: 'VARCHAR', default_value: NULL},
        'source': {name: 'source', type: 'VARCHAR', default_value: NULL},
        'direction': {name: 'direction', type: 'VARCHAR', default_value: NULL},
        'window': {name: 'window', type: 'BIGINT', default_value: NULL},
        'last_window': {name: 'last_window', type: 'BIGINT', default_value: NULL},
        'start_ns': {name: 'start_ns', type: 'BIGINT', default_value: NULL},
        'end_ns': {name: 'end_ns', type: 'BIGINT', default_value: NULL},
        'scheduled_start_ns': {name: 'scheduled_start_ns', type: 'BIGINT', default_value: NULL},
        'scheduled_end_ns': {name: 'scheduled_end_ns', type: 'BIGINT', default_value: NULL},
        'complete': {name: 'complete', type: 'BOOLEAN', default_value: NULL},
        'checksum': {name: 'checksum', type: 'BIGINT', default_value: NULL},
        'packets': {name: 'packets', type: 'BIGINT', default_value: NULL},
        'bytes': {name: 'bytes', type: 'BIGINT', default_value: NULL},
        'ipv4_packets': {name: 'ipv4_packets', type: 'BIGINT', default_value: NULL},
        'ipv6_packets': {name: 'ipv6_packets', type: 'BIGINT', default_value: NULL},
        'non_ip': {name: 'non_ip', type: 'BIGINT', default_value: NULL},
        'truncated': {name: 'truncated', type: 'BIGINT', default_value: NULL},
        'bad_header': {name: 'bad_header', type: 'BIGINT', default_value: NULL},
        'dropped': {name: 'dropped', type: 'BIGINT', default_value: NULL},
        'lost_rows': {name: 'lost_rows', type: 'BIGINT', default_value: NULL},
        'drops': {
            name: 'drops', default_value: NULL,
            type: 'STRUCT(cause VARCHAR, packets BIGINT)[]'
        },
        'hash': {name: 'hash', type: 'VARCHAR', default_value: NULL},
        'registers': {name: 'registers', type: 'BIGINT', default_value: NULL},
        'distinct': {name: 'distinct', type: 'DOUBLE', default_value: NULL},
        'distinct_low': {name: 'distinct_low', type: 'DOUBLE', default_value: NULL},
        'distinct_high': {name: 'distinct_high', type: 'DOUBLE', default_value: NULL},
        'entropy': {name: 'entropy', type: 'DOUBLE', default_value: NULL},
        'entropy_low': {name: 'entropy_low', type: 'DOUBLE', default_value: NULL},
        'entropy_high': {name: 'entropy_high', type: 'DOUBLE', default_value: NULL},
        'entropy2': {name: 'entropy2', type: 'DOUBLE', default_value: NULL},
        'entropy2_low': {name: 'entropy2_low', type: 'DOUBLE', default_value: NULL},
        'entropy2_high': {name: 'entropy2_high', type: 'DOUBLE', default_value: NULL},
        'frequency_sketch': {name: 'frequency_sketch', type: 'VARCHAR', default_value: NULL},
        'frequency_rows': {name: 'frequency_rows', type: 'BIGINT', default_value: NULL},
        'frequency_cells': {name: 'frequency_cells', type: 'BIGINT[]', default_value: NULL},
        'frequency_full': {name: 'frequency_full', type: 'BIGINT[]', default_value: NULL},
        'heavy_unit': {name: 'heavy_unit', type: 'VARCHAR', default_value: NULL},
        'heavy_total': {name: 'heavy_total', type: 'BIGINT', default_value: NULL},
        'heavy': {
            name: 'heavy', default_value: NULL,
            type: 'STRUCT(flow VARCHAR, count BIGINT, inherited BIGINT)[]'
        },
        'lengths_full': {name: 'lengths_full', type: 'BIGINT', default_value: NULL},
        'lengths': {
            name: 'lengths', default_value: NULL,
            type: 'STRUCT(low BIGINT, high BIGINT, packets BIGINT, excess BIGINT)[]'
        },
        'delay_buckets': {
            name: 'delay_buckets', default_value: NULL,
            type: 'STRUCT(kind VARCHAR, samples BIGINT, weight BIGINT, beyond BIGINT)[]'
        },
        'reorder': {
            name: 'reorder', default_value: NULL,
            type: 'STRUCT(prefix VARCHAR, packets BIGINT, out_of_order BIGINT, '
                || 'retransmitted BIGINT, gaps BIGINT, flows BIGINT, squares BIGINT)[]'
        }
    })
), counted AS (
    -- HUGEINT: sums of forged numbers do not fit into others.
    SELECT *, (ipv4_packets::HUGEINT + ipv6_packets)::DOUBLE AS flow_packets,
        log2(greatest(ipv4_packets::HUGEINT + ipv6_packets, 1)) + 1e-9 AS most_bits
    FROM lake
), broken AS (
    SELECT filename, host, source, "window", unnest(list_filter([
        CASE WHEN start_ns < 0 OR end_ns < start_ns OR scheduled_end_ns < scheduled_start_ns
            OR "window" < 0 OR last_window < "window" THEN 'times and windows in order' END,
        CASE WHEN least(packets, bytes, ipv4_packets, ipv6_packets, non_ip, truncated, bad_header,
            lost_rows, dropped) < 0
            OR greatest(packets, bytes, lost_rows, dropped) > 9007199254740992
            THEN 'counts from 0 to 2^53' END,
        CASE WHEN packets != ipv4_packets::HUGEINT + ipv6_packets + non_ip + truncated + bad_header
            THEN 'packets are those of all kinds' END,
        CASE WHEN packets = 0 AND bytes > 0 THEN 'no bytes without a packet' END,
        CASE WHEN list_min(list_transform(drops, lambda it: it.packets)) < 0
            OR len(list_distinct(list_transform(drops, lambda it: it.cause))) < len(drops)
            THEN 'each cause of drops once, from 0' END,
        CASE WHEN NOT (distinct_low >= 0 AND distinct_low <= "distinct"
            AND "distinct" <= distinct_high AND distinct_high <= 18446744073709551616)
            THEN 'distinct flows within their interval' END,
        CASE WHEN hash NOT LIKE 'crc32%'
            AND "distinct" > flow_packets * exp(8 * 1.04 / sqrt(registers))
            THEN 'at most as many distinct flows as packets' END,
        CASE WHEN NOT (entropy_low >= 0 AND entropy_low <= entropy AND entropy <= entropy_high
            AND entropy_high <= most_bits) THEN 'entropy from 0 to log2(packets)' END,
        CASE WHEN NOT (entropy2_low >= 0 AND entropy2_low <= entropy2 AND entropy2 <= entropy2_high
            AND entropy2_high <= most_bits) THEN 'entropy2 from 0 to log2(packets)' END,
        CASE WHEN frequency_sketch = 'count-min' AND (
            list_min(frequency_cells) < 0
            OR list_sum(list_transform(frequency_cells, lambda it: it::HUGEINT))
                > frequency_rows * flow_packets
            OR complete AND len(frequency_full) = 0
                AND list_sum(list_transform(frequency_cells, lambda it: it::HUGEINT))
                    < frequency_rows * flow_packets
        ) THEN 'each row of a count-min sketch counts all packets' END,
        CASE WHEN heavy_total < 0
            OR heavy_total > CASE heavy_unit WHEN 'bytes' THEN bytes::DOUBLE ELSE flow_packets END
            OR list_max(list_transform(heavy, lambda it: it.count)) > heavy_total
            OR list_min(list_transform(heavy, lambda it: it.inherited)) < 0
            OR len(list_filter(heavy, lambda it: it.inherited > it.count)) > 0
            OR list_sum(list_transform(heavy, lambda it: it.count::HUGEINT - it.inherited))
                > heavy_total
            THEN 'heavy flows have at most all packets' END,
        CASE WHEN list_min(list_transform(lengths, lambda it: least(it.packets, it.excess))) < 0
            OR len(list_filter(lengths, lambda it:
                it.excess::HUGEINT > it.packets::HUGEINT * (it.high - it.low))) > 0
            OR list_sum(list_transform(lengths, lambda it: it.packets::HUGEINT)) > flow_packets
            OR complete AND lengths_full = 0 AND flow_packets > 0
                AND coalesce(
                    list_sum(list_transform(lengths, lambda it: it.packets::HUGEINT)), 0
                ) < flow_packets
            THEN 'lengths of all packets' END,
        CASE WHEN list_min(list_transform(delay_buckets, lambda it:
                least(it.samples - 1, it.beyond, it.samples - it.beyond))) < 0
            OR len(list_filter(delay_buckets, lambda it:
                it.weight::HUGEINT < it.samples::HUGEINT * 4096)) > 0
            OR list_sum(list_transform(delay_buckets, lambda it: it.samples::HUGEINT))
                > 2 * flow_packets * len(list_distinct(
                    list_transform(delay_buckets, lambda it: it.kind)))
            THEN 'delays weigh at least 1, and packets give them' END,
        CASE WHEN list_min(list_transform(reorder, lambda it: least(
                it.packets, it.out_of_order, it.retransmitted, it.gaps, it.flows, it.squares))) < 0
            OR len(list_filter(reorder, lambda it: it.packets < it.flows OR it.packets
                < it.out_of_order::HUGEINT + it.retransmitted + it.gaps
                OR it.squares > it.out_of_order::HUGEINT * it.out_of_order)) > 0
            OR list_sum(list_transform(reorder, lambda it: it.packets::HUGEINT)) > flow_packets
            THEN 'reordered segments are at most all' END
    ], lambda law: law IS NOT NULL)) AS law
    FROM counted
), conflicts AS (
    -- A checksum is of all columns. Rows of one checksum and other values can be made, so that a
    -- number of each measurement is compared too.
    SELECT string_agg(DISTINCT filename, ' ') AS filename, host, source, "window",
        'one row of a window' AS law
    FROM lake
    GROUP BY host, run, source, direction, "window"
    HAVING count(DISTINCT (
        start_ns, end_ns, scheduled_start_ns, checksum, packets, bytes, dropped, "distinct",
        entropy, heavy_total, lengths, reorder
    )) > 1
)
SELECT * FROM broken UNION ALL SELECT * FROM conflicts ORDER BY ALL;
