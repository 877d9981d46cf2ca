// What one build measures. Every setting can be given on the compiler's command line, for example
// -DFLOWGAUGE_KEY=FLOWGAUGE_KEY_FIVE_TUPLE -DFLOWGAUGE_PRECISION=12.
//
// They are settings of a build, not tables: a hash unit's input and a register array's size are fixed when a program is loaded.
#ifndef FLOWGAUGE_SETTINGS
#define FLOWGAUGE_SETTINGS

#define FLOWGAUGE_KEY_SRC 0
#define FLOWGAUGE_KEY_DST 1
#define FLOWGAUGE_KEY_SRC_DST 2
#define FLOWGAUGE_KEY_FIVE_TUPLE 3

#define FLOWGAUGE_HASH_CRC32 0
#define FLOWGAUGE_HASH_TABULATED 1

// What makes a flow.
#ifndef FLOWGAUGE_KEY
#define FLOWGAUGE_KEY FLOWGAUGE_KEY_SRC
#endif

// How a key becomes 32 bits.
#ifndef FLOWGAUGE_HASH
#define FLOWGAUGE_HASH FLOWGAUGE_HASH_TABULATED
#endif

// A bank has 2^FLOWGAUGE_PRECISION HyperLogLog registers.
#ifndef FLOWGAUGE_PRECISION
#define FLOWGAUGE_PRECISION 11
#endif

#if FLOWGAUGE_KEY < FLOWGAUGE_KEY_SRC || FLOWGAUGE_KEY > FLOWGAUGE_KEY_FIVE_TUPLE
#error "FLOWGAUGE_KEY is none of FLOWGAUGE_KEY_SRC, _DST, _SRC_DST, _FIVE_TUPLE"
#endif
#if FLOWGAUGE_HASH != FLOWGAUGE_HASH_CRC32 && FLOWGAUGE_HASH != FLOWGAUGE_HASH_TABULATED
#error "FLOWGAUGE_HASH is neither FLOWGAUGE_HASH_CRC32 nor FLOWGAUGE_HASH_TABULATED"
#endif
#if FLOWGAUGE_PRECISION < 4 || FLOWGAUGE_PRECISION > 16
#error "FLOWGAUGE_PRECISION is not in 4 to 16"
#endif

#endif
