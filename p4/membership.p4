// Seen flows: a partitioned Bloom filter (Bloom 1970), with one row of bits per hash.

const int FLOWGAUGE_MEMBERSHIP_CELL_BITS = FLOWGAUGE_MEMBERSHIP_ROW_BITS - 5;
// Bank and cell.
typedef bit<(FLOWGAUGE_MEMBERSHIP_CELL_BITS + 1)> flowgauge_cell_index_t;

control FlowgaugeMembership(inout FLOWGAUGE_METADATA md) {
    // The hash of a row is 16 bits of a word: the cell, then the bit within its 32 bits.
    //
    // Rows of 32-bit cells, which are read 32 times as fast as single bits. A switch cannot shift
    // by a variable, so a table has the bit at every position.
    bit<32> bit_of_row0;

    action set_bit0(bit<32> value) {
        bit_of_row0 = value;
    }

    table place0 {
        key = {
            FLOWGAUGE_HASHES(FLOWGAUGE_MEMBERSHIP_KEY).rows01[
                15 - FLOWGAUGE_MEMBERSHIP_CELL_BITS:15 - FLOWGAUGE_MEMBERSHIP_CELL_BITS - 4]
                : exact @name("place");
        }
        actions = { set_bit0; }
        const entries = {
            0: set_bit0(0x00000001);
            1: set_bit0(0x00000002);
            2: set_bit0(0x00000004);
            3: set_bit0(0x00000008);
            4: set_bit0(0x00000010);
            5: set_bit0(0x00000020);
            6: set_bit0(0x00000040);
            7: set_bit0(0x00000080);
            8: set_bit0(0x00000100);
            9: set_bit0(0x00000200);
            10: set_bit0(0x00000400);
            11: set_bit0(0x00000800);
            12: set_bit0(0x00001000);
            13: set_bit0(0x00002000);
            14: set_bit0(0x00004000);
            15: set_bit0(0x00008000);
            16: set_bit0(0x00010000);
            17: set_bit0(0x00020000);
            18: set_bit0(0x00040000);
            19: set_bit0(0x00080000);
            20: set_bit0(0x00100000);
            21: set_bit0(0x00200000);
            22: set_bit0(0x00400000);
            23: set_bit0(0x00800000);
            24: set_bit0(0x01000000);
            25: set_bit0(0x02000000);
            26: set_bit0(0x04000000);
            27: set_bit0(0x08000000);
            28: set_bit0(0x10000000);
            29: set_bit0(0x20000000);
            30: set_bit0(0x40000000);
            31: set_bit0(0x80000000);
        }
        size = 32;
    }

    Register<bit<32>, flowgauge_cell_index_t>(2 << FLOWGAUGE_MEMBERSHIP_CELL_BITS, 0) bits0;
    RegisterAction<bit<32>, flowgauge_cell_index_t, bit<32>>(bits0) remember0 = {
        void apply(inout bit<32> cell) {
            cell = cell | bit_of_row0;
        }
    };

    bit<32> bit_of_row1;

    action set_bit1(bit<32> value) {
        bit_of_row1 = value;
    }

    table place1 {
        key = {
            FLOWGAUGE_HASHES(FLOWGAUGE_MEMBERSHIP_KEY).rows01[
                31 - FLOWGAUGE_MEMBERSHIP_CELL_BITS:31 - FLOWGAUGE_MEMBERSHIP_CELL_BITS - 4]
                : exact @name("place");
        }
        actions = { set_bit1; }
        const entries = {
            0: set_bit1(0x00000001);
            1: set_bit1(0x00000002);
            2: set_bit1(0x00000004);
            3: set_bit1(0x00000008);
            4: set_bit1(0x00000010);
            5: set_bit1(0x00000020);
            6: set_bit1(0x00000040);
            7: set_bit1(0x00000080);
            8: set_bit1(0x00000100);
            9: set_bit1(0x00000200);
            10: set_bit1(0x00000400);
            11: set_bit1(0x00000800);
            12: set_bit1(0x00001000);
            13: set_bit1(0x00002000);
            14: set_bit1(0x00004000);
            15: set_bit1(0x00008000);
            16: set_bit1(0x00010000);
            17: set_bit1(0x00020000);
            18: set_bit1(0x00040000);
            19: set_bit1(0x00080000);
            20: set_bit1(0x00100000);
            21: set_bit1(0x00200000);
            22: set_bit1(0x00400000);
            23: set_bit1(0x00800000);
            24: set_bit1(0x01000000);
            25: set_bit1(0x02000000);
            26: set_bit1(0x04000000);
            27: set_bit1(0x08000000);
            28: set_bit1(0x10000000);
            29: set_bit1(0x20000000);
            30: set_bit1(0x40000000);
            31: set_bit1(0x80000000);
        }
        size = 32;
    }

    Register<bit<32>, flowgauge_cell_index_t>(2 << FLOWGAUGE_MEMBERSHIP_CELL_BITS, 0) bits1;
    RegisterAction<bit<32>, flowgauge_cell_index_t, bit<32>>(bits1) remember1 = {
        void apply(inout bit<32> cell) {
            cell = cell | bit_of_row1;
        }
    };

    bit<32> bit_of_row2;

    action set_bit2(bit<32> value) {
        bit_of_row2 = value;
    }

    table place2 {
        key = {
            FLOWGAUGE_HASHES(FLOWGAUGE_MEMBERSHIP_KEY).rows23[
                15 - FLOWGAUGE_MEMBERSHIP_CELL_BITS:15 - FLOWGAUGE_MEMBERSHIP_CELL_BITS - 4]
                : exact @name("place");
        }
        actions = { set_bit2; }
        const entries = {
            0: set_bit2(0x00000001);
            1: set_bit2(0x00000002);
            2: set_bit2(0x00000004);
            3: set_bit2(0x00000008);
            4: set_bit2(0x00000010);
            5: set_bit2(0x00000020);
            6: set_bit2(0x00000040);
            7: set_bit2(0x00000080);
            8: set_bit2(0x00000100);
            9: set_bit2(0x00000200);
            10: set_bit2(0x00000400);
            11: set_bit2(0x00000800);
            12: set_bit2(0x00001000);
            13: set_bit2(0x00002000);
            14: set_bit2(0x00004000);
            15: set_bit2(0x00008000);
            16: set_bit2(0x00010000);
            17: set_bit2(0x00020000);
            18: set_bit2(0x00040000);
            19: set_bit2(0x00080000);
            20: set_bit2(0x00100000);
            21: set_bit2(0x00200000);
            22: set_bit2(0x00400000);
            23: set_bit2(0x00800000);
            24: set_bit2(0x01000000);
            25: set_bit2(0x02000000);
            26: set_bit2(0x04000000);
            27: set_bit2(0x08000000);
            28: set_bit2(0x10000000);
            29: set_bit2(0x20000000);
            30: set_bit2(0x40000000);
            31: set_bit2(0x80000000);
        }
        size = 32;
    }

    Register<bit<32>, flowgauge_cell_index_t>(2 << FLOWGAUGE_MEMBERSHIP_CELL_BITS, 0) bits2;
    RegisterAction<bit<32>, flowgauge_cell_index_t, bit<32>>(bits2) remember2 = {
        void apply(inout bit<32> cell) {
            cell = cell | bit_of_row2;
        }
    };

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
