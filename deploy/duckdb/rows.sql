-- Access to the files of a lake, which questions.sql and laws.sql have in common. Load it first.
--
--   SET VARIABLE lake = 'lake/*/*/*.parquet';

-- All rows of all files, without guards. Only columns that are named here are known. One that a
-- file does not have is NULL: agents that measure less break no question.
CREATE OR REPLACE TEMP VIEW flowgauge_files AS
SELECT filename, * FROM read_parquet(getvariable('lake'), schema = map_from_entries([
    {k: it[1], v: {name: it[1], type: it[2], default_value: NULL}} FOR it IN [
        ['schema', 'BIGINT'], ['host', 'VARCHAR'], ['run', 'VARCHAR'], ['source', 'VARCHAR'],
        ['direction', 'VARCHAR'], ['time', 'TIMESTAMPTZ'], ['window', 'BIGINT'],
        ['last_window', 'BIGINT'], ['silent_windows', 'BIGINT'], ['start_ns', 'BIGINT'],
        ['end_ns', 'BIGINT'], ['scheduled_start_ns', 'BIGINT'], ['scheduled_end_ns', 'BIGINT'],
        ['complete', 'BOOLEAN'], ['late_ns', 'BIGINT'], ['inner', 'BOOLEAN'],
        ['checksum', 'BIGINT'], ['packets', 'BIGINT'], ['bytes', 'BIGINT'],
        ['ipv4_packets', 'BIGINT'], ['ipv6_packets', 'BIGINT'], ['non_ip', 'BIGINT'],
        ['truncated', 'BIGINT'], ['bad_header', 'BIGINT'], ['late', 'BIGINT'],
        ['unmatched', 'BIGINT'], ['unmatched_bytes', 'BIGINT'], ['merged', 'BIGINT'],
        ['dropped', 'BIGINT'], ['drops', 'STRUCT(cause VARCHAR, packets BIGINT)[]'],
        ['lost_rows', 'BIGINT'], ['hash', 'VARCHAR'], ['row_hash', 'VARCHAR'], ['distinct_key', 'VARCHAR'],
        ['registers', 'BIGINT'], ['distinct', 'DOUBLE'], ['distinct_low', 'DOUBLE'],
        ['distinct_high', 'DOUBLE'], ['entropy', 'DOUBLE'], ['entropy_low', 'DOUBLE'],
        ['entropy_high', 'DOUBLE'], ['entropy_sum', 'BIGINT'], ['entropy_key', 'VARCHAR'],
        ['entropy_sketch', 'VARCHAR'], ['entropy_rows', 'BIGINT'], ['entropy_columns', 'BIGINT'],
        ['entropy_cells', 'BIGINT[]'], ['entropy_full', 'BIGINT[]'], ['entropy2', 'DOUBLE'],
        ['entropy2_low', 'DOUBLE'], ['entropy2_high', 'DOUBLE'], ['entropy2_sum', 'BIGINT'],
        ['entropy2_key', 'VARCHAR'], ['entropy2_sketch', 'VARCHAR'], ['entropy2_rows', 'BIGINT'],
        ['entropy2_columns', 'BIGINT'], ['entropy2_cells', 'BIGINT[]'],
        ['entropy2_full', 'BIGINT[]'], ['frequency_key', 'VARCHAR'],
        ['frequency_sketch', 'VARCHAR'], ['frequency_rows', 'BIGINT'],
        ['frequency_columns', 'BIGINT'], ['frequency_cells', 'BIGINT[]'],
        ['frequency_full', 'BIGINT[]'], ['membership_key', 'VARCHAR'],
        ['membership_false_positive', 'DOUBLE'], ['heavy_key', 'VARCHAR'],
        ['heavy_unit', 'VARCHAR'], ['heavy_algorithm', 'VARCHAR'], ['heavy_slots', 'BIGINT'],
        ['heavy_total', 'BIGINT'], ['heavy_packets', 'BIGINT'],
        ['heavy_least', 'BIGINT'], ['heavy_least_elsewhere', 'BIGINT'],
        ['heavy', 'STRUCT(flow VARCHAR, count BIGINT, inherited BIGINT)[]'],
        ['spread_key', 'VARCHAR'], ['spread_of', 'VARCHAR'], ['spread_rows', 'BIGINT'],
        ['spread_columns', 'BIGINT'], ['spread_registers', 'BIGINT'], ['spread_rest', 'DOUBLE'],
        ['spread', 'STRUCT(flow VARCHAR, others DOUBLE, low DOUBLE, high DOUBLE)[]'],
        ['spread2_key', 'VARCHAR'], ['spread2_of', 'VARCHAR'], ['spread2_rows', 'BIGINT'],
        ['spread2_columns', 'BIGINT'], ['spread2_registers', 'BIGINT'], ['spread2_rest', 'DOUBLE'],
        ['spread2', 'STRUCT(flow VARCHAR, others DOUBLE, low DOUBLE, high DOUBLE)[]'],
        ['length_mean', 'DOUBLE'], ['length_p50', 'DOUBLE'], ['lengths_full', 'BIGINT'],
        ['lengths', 'STRUCT(low BIGINT, high BIGINT, packets BIGINT, excess BIGINT)[]'],
        ['delay_kinds', 'VARCHAR'], ['delay_algorithm', 'VARCHAR'],
        ['delay_admit_log2', 'BIGINT'], ['delay_auto', 'BOOLEAN'],
        ['delay_resolution_ns', 'BIGINT'],
        ['delay', 'STRUCT(kind VARCHAR, leaves BIGINT, group_number BIGINT, requests BIGINT, '
            || 'admitted BIGINT, refused BIGINT, backward BIGINT, unsampled BIGINT, '
            || 'admit_log2 BIGINT, p50_ns DOUBLE, p95_ns DOUBLE, p99_ns DOUBLE)[]'],
        ['delay_buckets', 'STRUCT(kind VARCHAR, leaves BIGINT, group_number BIGINT, '
            || 'fridge BIGINT, low_ns BIGINT, high_ns BIGINT, samples BIGINT, weight BIGINT, '
            || 'squares BIGINT, beyond BIGINT)[]'],
        ['reorder_algorithm', 'VARCHAR'], ['reorder_ipv4_bits', 'BIGINT'],
        ['reorder_ipv6_bits', 'BIGINT'], ['reorder_unfollowed', 'BIGINT'],
        ['reorder_contended', 'BIGINT'], ['reorder_crowded', 'BIGINT'],
        ['reorder', 'STRUCT(prefix VARCHAR, packets BIGINT, out_of_order BIGINT, '
            || 'retransmitted BIGINT, gaps BIGINT, flows BIGINT, squares BIGINT, bits BIGINT)[]']
    ]
]));
