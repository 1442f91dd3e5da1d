// Matrices rounded to bfloat16 and their products, which are summed in fp32, by the fastest unit that the processor has.
//
// Both operands lie in tiles: of the left one 16 rows, of the right one 16 columns, by 32 numbers along the inner side.
// Two neighbours along it make one 32-bit word. A left tile is [row][word], a right one [word][column], as the
// instructions of AMX and of AVX512-BF16 read them.

#pragma once

#include "products.h"

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif
#if defined(__AVX512BF16__) && defined(__AMX_BF16__) && defined(__linux__)
#define LAS_AMX
#include <sys/syscall.h>
#include <unistd.h>
#endif

enum Unit : int64_t { EMULATED, AVX512_BF16, AMX_BF16 };

// The nearest bfloat16, of two the even one, in fp32. NaN stays NaN.
inline float rounded(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    bits = value == value ? bits + 0x7fffu + ((bits >> 16) & 1u) : bits | 0x400000u;
    bits &= 0xffff0000u;
    std::memcpy(&value, &bits, sizeof bits);
    return value;
}

// 16 columns of a result: where they go, with which distance between rows.
struct Corner {
    float* at;
    int64_t stride;
};

constexpr int SIDE = 16, DEEP = 32, TILE_WORDS = SIDE * DEEP / 2;

inline int64_t tiles_of(int64_t inner) { return (inner + DEEP - 1) / DEEP; }

#if defined(__AVX512BF16__)
// 32 numbers that lie together.
inline __m512i neighbours(const float* from) {
    return (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + SIDE), _mm512_loadu_ps(from));
}

// 16 columns of two rows, the first in the lower halves.
inline __m512i pairs(const float* first, const float* second) {
    const __m512i lower = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(first)));
    const __m512i upper = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(second)));
    return _mm512_or_si512(lower, _mm512_slli_epi32(upper, 16));
}

// Squares of 1, 2, 4, 8 words beside the diagonal change places.
inline void transpose(__m512i* words) {
    const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
#pragma GCC unroll 4
    for (int square = 1; square < SIDE; square *= 2) {
        const __m512i size = _mm512_set1_epi32(square), other = _mm512_set1_epi32(SIDE);
        const __mmask16 inside = _mm512_test_epi32_mask(lanes, size);
        const __m512i crossed = _mm512_xor_si512(lanes, size);
        const __m512i upper = _mm512_mask_add_epi32(lanes, inside, crossed, other);
        const __m512i lower = _mm512_mask_add_epi32(crossed, inside, lanes, other);
#pragma GCC unroll 16
        for (int row = 0; row < SIDE; ++row) {
            if (row & square) continue;
            const __m512i one = words[row], second = words[row | square];
            words[row] = _mm512_permutex2var_epi32(one, upper, second);
            words[row | square] = _mm512_permutex2var_epi32(one, lower, second);
        }
    }
}

// One tile of elements (outer, inner), zero beyond `outer` and `inner`.
inline void copy_tile(Matrix<float> from, int outer, int inner, bool left, uint32_t* to) {
    alignas(LINE) float edge[SIDE * DEEP];
    if (inner < DEEP || (from.column != 1 && outer < SIDE)) {
        std::fill_n(edge, SIDE * DEEP, 0.0f);
        for (int i = 0; i < outer; ++i) {
            for (int k = 0; k < inner; ++k) edge[i * DEEP + k] = *from.at(i, k);
        }
        from = {edge, DEEP, 1};
    }
    const bool along = from.column == 1;
    __m512i words[SIDE];
#pragma GCC unroll 16
    for (int n = 0; n < SIDE; ++n) {
        if (along) {
            words[n] = n < outer ? neighbours(from.at(n, 0)) : _mm512_setzero_si512();
        } else {
            words[n] = pairs(from.at(0, 2 * n), from.at(0, 2 * n + 1));
        }
    }
    if (along != left) transpose(words);
#pragma GCC unroll 16
    for (int n = 0; n < SIDE; ++n) _mm512_store_si512(to + n * SIDE, words[n]);
}

// Tiles [outer / 16][inner / 32] of a block, `outer` filled up with zeros to a multiple of `whole`.
inline void copy_tiles(const Matrix<float>& from, int outer, int whole, int inner, bool left, uint32_t* to) {
    const int64_t next = tiles_of(inner) * TILE_WORDS;
    const auto copy = [&](int i, int k) {
        uint32_t* tile = to + i / SIDE * next + k / DEEP * TILE_WORDS;
        copy_tile(from.from(i, k), std::clamp(outer - i, 0, SIDE), std::min(DEEP, inner - k), left, tile);
    };
    // What lies together is read together.
    if (from.column == 1) {
        for (int i = 0; i < padded(outer, whole); i += SIDE) {
            for (int k = 0; k < inner; k += DEEP) copy(i, k);
        }
    } else {
        for (int k = 0; k < inner; k += DEEP) {
            for (int i = 0; i < padded(outer, whole); i += SIDE) copy(i, k);
        }
    }
}

// to (+)= the product of the first `rows` rows, at most HEIGHT, of a row of tiles and one column of tiles.
template <int HEIGHT>
void dot_tiles(const uint32_t* left, const uint32_t* right, int tiles, int rows, Corner to, bool adding) {
    __m512 sums[HEIGHT];
#pragma GCC unroll 16
    for (int row = 0; row < HEIGHT; ++row) {
        sums[row] = adding && row < rows ? _mm512_loadu_ps(to.at + row * to.stride) : _mm512_setzero_ps();
    }
    for (int tile = 0; tile < tiles; ++tile, left += TILE_WORDS, right += TILE_WORDS) {
        for (int word = 0; word < SIDE; ++word) {
            const __m512bh columns = (__m512bh)_mm512_load_si512(right + word * SIDE);
#pragma GCC unroll 16
            for (int row = 0; row < HEIGHT; ++row) {
                const __m512bh pair = (__m512bh)_mm512_set1_epi32(int(left[row * SIDE + word]));
                sums[row] = _mm512_dpbf16_ps(sums[row], pair, columns);
            }
        }
    }
#pragma GCC unroll 16
    for (int row = 0; row < HEIGHT; ++row) {
        if (row < rows) _mm512_storeu_ps(to.at + row * to.stride, sums[row]);
    }
}

// to[4] = a few rows of a row of tiles by four columns of tiles, `next` words apart: each word of these is read once.
template <int ROWS>
void dot_rows(const uint32_t* left, const uint32_t* right, int64_t next, int tiles, const Corner* to) {
    __m512 sums[ROWS][4] = {};
    for (int tile = 0; tile < tiles; ++tile, left += TILE_WORDS, right += TILE_WORDS) {
        for (int word = 0; word < SIDE; ++word) {
#pragma GCC unroll 4
            for (int n = 0; n < 4; ++n) {
                const __m512bh columns = (__m512bh)_mm512_load_si512(right + n * next + word * SIDE);
#pragma GCC unroll 4
                for (int row = 0; row < ROWS; ++row) {
                    const __m512bh pair = (__m512bh)_mm512_set1_epi32(int(left[row * SIDE + word]));
                    sums[row][n] = _mm512_dpbf16_ps(sums[row][n], pair, columns);
                }
            }
        }
    }
    for (int n = 0; n < 4; ++n) {
        for (int row = 0; row < ROWS; ++row) _mm512_storeu_ps(to[n].at + row * to[n].stride, sums[row][n]);
    }
}

#if defined(LAS_AMX)
// The kernel gives the registers of AMX to processes that ask for them.
inline bool amx_permitted() {
    constexpr int request = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    static const bool permitted = syscall(SYS_arch_prctl, request, tile_data) == 0;
    return permitted;
}

// The thread's tile registers, while this lives: 0 to 3 are results and 4, 5 left tiles of so many rows, 6, 7 right ones.
class TileRegisters {
  public:
    TileRegisters(Unit unit, int rows) : used(unit == AMX_BF16) {
        if (!used) return;
        struct alignas(LINE) {
            uint8_t palette = 1, start = 0, reserved[14] = {};
            uint16_t bytes[16] = {};
            uint8_t rows[16] = {};
        } config;
        for (int tile = 0; tile < 8; ++tile) {
            config.bytes[tile] = LINE;
            config.rows[tile] = tile < 6 ? rows : SIDE;
        }
        asm volatile("ldtilecfg %0" : : "m"(config));
    }
    ~TileRegisters() {
        if (used) _tile_release();
    }
    TileRegisters(const TileRegisters&) = delete;

  private:
    const bool used;
};

// Compilers do not know what memory the instructions below read.
inline void fence() { asm volatile("" : : : "memory"); }

// One row of tiles by four columns of tiles, which lie `next` words apart.
inline void amx_row(const uint32_t* left, const uint32_t* right, int64_t next, int tiles, const Corner* to) {
    fence();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int tile = 0; tile < tiles; ++tile, left += TILE_WORDS, right += TILE_WORDS) {
        _tile_loadd(4, left, LINE);
        _tile_loadd(6, right, LINE);
        _tile_loadd(7, right + next, LINE);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(6, right + 2 * next, LINE);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(7, right + 3 * next, LINE);
        _tile_dpbf16ps(2, 4, 6);
        _tile_dpbf16ps(3, 4, 7);
    }
    _tile_stored(0, to[0].at, to[0].stride * sizeof(float));
    _tile_stored(1, to[1].at, to[1].stride * sizeof(float));
    _tile_stored(2, to[2].at, to[2].stride * sizeof(float));
    _tile_stored(3, to[3].at, to[3].stride * sizeof(float));
    fence();
}

// Two rows of tiles by two columns of tiles, both `next` words apart; `to` has the two corners of the upper row first.
inline void amx_square(const uint32_t* left, const uint32_t* right, int64_t next, int tiles, const Corner* to,
                       bool adding) {
    fence();
    if (adding) {
        _tile_loadd(0, to[0].at, to[0].stride * sizeof(float));
        _tile_loadd(1, to[1].at, to[1].stride * sizeof(float));
        _tile_loadd(2, to[2].at, to[2].stride * sizeof(float));
        _tile_loadd(3, to[3].at, to[3].stride * sizeof(float));
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int tile = 0; tile < tiles; ++tile, left += TILE_WORDS, right += TILE_WORDS) {
        _tile_loadd(4, left, LINE);
        _tile_loadd(6, right, LINE);
        _tile_loadd(7, right + next, LINE);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, left + next, LINE);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, to[0].at, to[0].stride * sizeof(float));
    _tile_stored(1, to[1].at, to[1].stride * sizeof(float));
    _tile_stored(2, to[2].at, to[2].stride * sizeof(float));
    _tile_stored(3, to[3].at, to[3].stride * sizeof(float));
    fence();
}
#else
inline bool amx_permitted() { return false; }
struct TileRegisters {
    TileRegisters(Unit, int) {}
};
inline void amx_row(const uint32_t*, const uint32_t*, int64_t, int, const Corner*) {}
inline void amx_square(const uint32_t*, const uint32_t*, int64_t, int, const Corner*, bool) {}
#endif

// to[4] = one row of tiles, of so many rows, by four columns of tiles, which lie `next` words apart.
inline void multiply_row(Unit unit, const uint32_t* left, int rows, const uint32_t* right, int64_t next, int tiles,
                         const Corner* to) {
    if (unit == AMX_BF16) return amx_row(left, right, next, tiles, to);
    switch (rows) {
        case 1: return dot_rows<1>(left, right, next, tiles, to);
        case 2: return dot_rows<2>(left, right, next, tiles, to);
        case 3: return dot_rows<3>(left, right, next, tiles, to);
        case 4: return dot_rows<4>(left, right, next, tiles, to);
    }
    const auto dot = rows > SIDE / 2 ? dot_tiles<SIDE> : dot_tiles<SIDE / 2>;
    for (int n = 0; n < 4; ++n) dot(left, right + n * next, tiles, rows, to[n], false);
}

// to[2][2] = two rows of tiles by two columns of tiles, or that is added to it; both lie `next` words apart.
inline void multiply_square(Unit unit, const uint32_t* left, const uint32_t* right, int64_t next, int tiles,
                            const Corner* to, bool adding) {
    if (unit == AMX_BF16) return amx_square(left, right, next, tiles, to, adding);
    for (int n = 0; n < 4; ++n) {
        dot_tiles<SIDE>(left + n / 2 * next, right + n % 2 * next, tiles, SIDE, to[n], adding);
    }
}

inline Unit fastest_unit() { return amx_permitted() ? AMX_BF16 : AVX512_BF16; }
#else
struct TileRegisters {
    TileRegisters(Unit, int) {}
};
inline void copy_tiles(const Matrix<float>&, int, int, int, bool, uint32_t*) {}
inline void multiply_row(Unit, const uint32_t*, int, const uint32_t*, int64_t, int, const Corner*) {}
inline void multiply_square(Unit, const uint32_t*, const uint32_t*, int64_t, int, const Corner*, bool) {}
inline Unit fastest_unit() { return EMULATED; }
#endif
