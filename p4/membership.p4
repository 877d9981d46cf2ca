// Seen flows: a partitioned Bloom filter (Bloom 1970), with one row of bits per hash.

const int FLOWGAUGE_MEMBERSHIP_CELL_BITS = FLOWGAUGE_MEMBERSHIP_ROW_BITS - 5;
// Bank and cell.
typedef bit<(FLOWGAUGE_MEMBERSHIP_CELL_BITS + 1)> flowgauge_cell_index_t;

// The hash of a row is the 16 bits of a word from bit `high` on downwards: the cell, then the bit
// within its 32 bits.
//
// Row of 32-bit cells, which are read 32 times as fast as single bits. A switch cannot shift by a
// variable, so a table has the bit at every position.
#define FLOWGAUGE_FILTER_ROW(row, word, high) \
    bit<32> bit_of_row##row; \
    action set_bit##row(bit<32> value) { \
        bit_of_row##row = value; \
    } \
    table place##row { \
        key = { \
            word[high - FLOWGAUGE_MEMBERSHIP_CELL_BITS:high - FLOWGAUGE_MEMBERSHIP_CELL_BITS - 4] \
                : exact @name("place"); \
        } \
        actions = { set_bit##row; } \
        const entries = { \
            0: set_bit##row(0x00000001); \
            1: set_bit##row(0x00000002); \
            2: set_bit##row(0x00000004); \
            3: set_bit##row(0x00000008); \
            4: set_bit##row(0x00000010); \
            5: set_bit##row(0x00000020); \
            6: set_bit##row(0x00000040); \
            7: set_bit##row(0x00000080); \
            8: set_bit##row(0x00000100); \
            9: set_bit##row(0x00000200); \
            10: set_bit##row(0x00000400); \
            11: set_bit##row(0x00000800); \
            12: set_bit##row(0x00001000); \
            13: set_bit##row(0x00002000); \
            14: set_bit##row(0x00004000); \
            15: set_bit##row(0x00008000); \
            16: set_bit##row(0x00010000); \
            17: set_bit##row(0x00020000); \
            18: set_bit##row(0x00040000); \
            19: set_bit##row(0x00080000); \
            20: set_bit##row(0x00100000); \
            21: set_bit##row(0x00200000); \
            22: set_bit##row(0x00400000); \
            23: set_bit##row(0x00800000); \
            24: set_bit##row(0x01000000); \
            25: set_bit##row(0x02000000); \
            26: set_bit##row(0x04000000); \
            27: set_bit##row(0x08000000); \
            28: set_bit##row(0x10000000); \
            29: set_bit##row(0x20000000); \
            30: set_bit##row(0x40000000); \
            31: set_bit##row(0x80000000); \
        } \
        size = 32; \
    } \
    Register<bit<32>, flowgauge_cell_index_t>(2 << FLOWGAUGE_MEMBERSHIP_CELL_BITS, 0) bits##row; \
    RegisterAction<bit<32>, flowgauge_cell_index_t, bit<32>>(bits##row) remember##row = { \
        void apply(inout bit<32> cell) { \
            cell = cell | bit_of_row##row; \
        } \
    };

control FlowgaugeMembership(inout FLOWGAUGE_METADATA md) {
    FLOWGAUGE_FILTER_ROW(0, FLOWGAUGE_HASHES(FLOWGAUGE_MEMBERSHIP_KEY).rows01, 15)
    FLOWGAUGE_FILTER_ROW(1, FLOWGAUGE_HASHES(FLOWGAUGE_MEMBERSHIP_KEY).rows01, 31)
    FLOWGAUGE_FILTER_ROW(2, FLOWGAUGE_HASHES(FLOWGAUGE_MEMBERSHIP_KEY).rows23, 15)

    apply {
        place0.apply();
        if (md.flowgauge.sound == 1) {
            remember0.execute(
                md.flowgauge.bank ++ FLOWGAUGE_HASHES(FLOWGAUGE_MEMBERSHIP_KEY).rows01[
                    15:15 + 1 - FLOWGAUGE_MEMBERSHIP_CELL_BITS]);
        }
        place1.apply();
        if (md.flowgauge.sound == 1) {
            remember1.execute(
                md.flowgauge.bank ++ FLOWGAUGE_HASHES(FLOWGAUGE_MEMBERSHIP_KEY).rows01[
                    31:31 + 1 - FLOWGAUGE_MEMBERSHIP_CELL_BITS]);
        }
        place2.apply();
        if (md.flowgauge.sound == 1) {
            remember2.execute(
                md.flowgauge.bank ++ FLOWGAUGE_HASHES(FLOWGAUGE_MEMBERSHIP_KEY).rows23[
                    15:15 + 1 - FLOWGAUGE_MEMBERSHIP_CELL_BITS]);
        }
    }
}
