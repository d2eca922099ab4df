// Panels: a part of a matrix, copied so that one step of the sum lies in consecutive vectors, and the loop over it.

#pragma once

#include "vectors.h"

namespace {

// Rows of values, `stride` values apart.
template <class T>
struct View {
    T* at;
    int64_t stride;
    INLINE T* row(int64_t r) const { return at + r * stride; }
    INLINE View from(int64_t row, int64_t column) const { return {at + row * stride + column, stride}; }
};

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// Walks over memory that will be needed, line by line: a matrix with few rows is bound by reading it.
struct Ahead {
    const char* at = nullptr;
    int64_t rows = 0, row_lines = 0, jump = 0, left = 0;

    Ahead() = default;
    template <class T>
    Ahead(View<T> matrix, int64_t rows, int64_t columns)
        : at((const char*)matrix.at), rows(rows), row_lines((columns * sizeof(T) + LINE - 1) / LINE),
          jump(matrix.stride * sizeof(T) - row_lines * LINE), left(row_lines) {}
    INLINE void fetch(int lines) {
        for (int i = 0; i < lines && rows > 0; i++) {
            __builtin_prefetch(at, 0, 2);
            at += LINE;
            if (--left == 0) at += jump, left = row_lines, rows--;
        }
    }
};

// sum[R][PANEL] += rows[R, depth] * panel[depth, PANEL]; `depth` is a multiple of PAIR.
template <class M, int R>
INLINE void multiply(Vec (&sum)[R][TILE_VECTORS], View<const typename M::Row> rows, const typename M::Packed* panel,
                     int64_t depth, Ahead& ahead, int lines) {
    for (int64_t n = 0; n < depth; n += M::PAIR, panel += PANEL * M::PAIR) {
        if (lines) ahead.fetch(lines);
        for (int r = 0; r < R; r++) {
            auto coefficient = M::broadcast(rows.row(r) + n);
            for (int v = 0; v < TILE_VECTORS; v++)
                sum[r][v] = M::multiply_add(sum[r][v], coefficient, M::operand(panel + v * LANES * M::PAIR));
        }
    }
}

// Calls `run` with the number of rows of a tile as a type.
template <class Run>
INLINE void with_tile(int64_t rows, Run run) {
    switch (least(rows, TILE_ROWS)) {
        case 1: return run(std::integral_constant<int, 1>{});
        case 2: return run(std::integral_constant<int, 2>{});
        case 3: return run(std::integral_constant<int, 3>{});
        case 4: return run(std::integral_constant<int, 4>{});
        case 5: return run(std::integral_constant<int, 5>{});
        case 6: return run(std::integral_constant<int, 6>{});
    }
}

template <int R>
INLINE void resume(Vec (&sum)[R][TILE_VECTORS], View<float> sums) {
    for (int r = 0; r < R; r++)
        for (int v = 0; v < TILE_VECTORS; v++) sum[r][v] = load(sums.row(r) + v * LANES);
}

template <int R>
INLINE void keep(const Vec (&sum)[R][TILE_VECTORS], View<float> sums) {
    for (int r = 0; r < R; r++)
        for (int v = 0; v < TILE_VECTORS; v++) store(sums.row(r) + v * LANES, sum[r][v]);
}

// All rows of an expert times a panel. Sums begin at zero or, if `resumed`, where `sums` left them; they end there or,
// rounded, in the `valid` first columns of `out`.
template <class M>
__attribute__((noinline)) void through_panel(View<const typename M::Row> rows, int64_t count, const typename M::Packed* panel, int64_t depth,
                          View<float> sums, bool resumed, View<typename M::Row> out, int64_t valid, Ahead& ahead) {
    int lines = count <= 3 * TILE_ROWS ? 2 : 1;  // a step uses up 4 lines, shared by all tiles
    for (int64_t first = 0; first < count; first += TILE_ROWS)
        with_tile(count - first, [&](auto size) __attribute__((always_inline)) {
            constexpr int R = decltype(size)::value;
            Vec sum[R][TILE_VECTORS] = {};
            if (resumed) resume<R>(sum, sums.from(first, 0));
            multiply<M, R>(sum, rows.from(first, 0), panel, depth, ahead, ahead.rows > 0 ? lines : 0);
            if (!out.at) return keep<R>(sum, sums.from(first, 0));
            for (int r = 0; r < R; r++)
                if (valid == PANEL) give<M, Store::plain>(out.row(first + r), sum[r]);
                else give_part<M>(out.row(first + r), sum[r], valid, false);
        });
}

// matrix[rows, columns] as a panel; what it lacks is zero.
template <class M, class Weight>
INLINE void pack(typename M::Packed* panel, View<const Weight> matrix, int64_t rows, int64_t columns) {
    for (int64_t n = 0; n < rows; n += M::PAIR, panel += PANEL * M::PAIR) {
        const Weight *row = matrix.row(n), *next = row + matrix.stride;
        Weight edge[2][PANEL];
        if (columns < PANEL || n + M::PAIR > rows) {
            memset(edge, 0, sizeof edge);
            memcpy(edge[0], row, least(columns, PANEL) * sizeof(Weight));
            if (n + 1 < rows) memcpy(edge[1], next, least(columns, PANEL) * sizeof(Weight));
            row = edge[0], next = edge[1];
        }
        typename M::Operand step[TILE_VECTORS];
        M::step(step, row, next);
        for (int v = 0; v < TILE_VECTORS; v++) M::keep(panel + v * LANES * M::PAIR, step[v]);
    }
}

// 16 bytes from each of LANES / 4 places, side by side.
INLINE Bits sixteen_bytes_each(const char* const* places) {
#ifdef __AVX512F__
    __m512i all = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i*)places[0]));
    all = _mm512_mask_broadcast_i32x4(all, 0x00f0, _mm_loadu_si128((const __m128i*)places[1]));
    all = _mm512_mask_broadcast_i32x4(all, 0x0f00, _mm_loadu_si128((const __m128i*)places[2]));
    return (Bits)_mm512_mask_broadcast_i32x4(all, 0xf000, _mm_loadu_si128((const __m128i*)places[3]));
#else
    __m256i all = _mm256_castsi128_si256(_mm_loadu_si128((const __m128i*)places[0]));
    return (Bits)_mm256_inserti128_si256(all, _mm_loadu_si128((const __m128i*)places[1]), 1);
#endif
}

#ifdef __AVX512F__
#define UNPACK(how, bits, a, b) (Bits)_mm512_unpack##how##_epi##bits((__m512i)(a), (__m512i)(b))
#else
#define UNPACK(how, bits, a, b) (Bits)_mm256_unpack##how##_epi##bits((__m256i)(a), (__m256i)(b))
#endif

// units[u] = unit u of LANES rows, of which by_row[j] holds four units of each fourth row from j.
INLINE void turn(Bits (&units)[4], const Bits (&by_row)[4]) {
    Bits low01 = UNPACK(lo, 32, by_row[0], by_row[1]), low23 = UNPACK(lo, 32, by_row[2], by_row[3]);
    Bits high01 = UNPACK(hi, 32, by_row[0], by_row[1]), high23 = UNPACK(hi, 32, by_row[2], by_row[3]);
    units[0] = UNPACK(lo, 64, low01, low23), units[1] = UNPACK(hi, 64, low01, low23);
    units[2] = UNPACK(lo, 64, high01, high23), units[3] = UNPACK(hi, 64, high01, high23);
}

constexpr int NEAR_BYTES = 256;

// matrix[rows, depth], turned: its rows are the panel's columns; what it lacks is zero. Up to 15 values behind `depth`
// are written. 256 bytes of each row are copied first: rows that lie 4 KB apart share their places in the cache.
template <class M>
INLINE void pack_turned(typename M::Packed* panel, View<const typename M::Weight> matrix, int64_t rows, int64_t depth) {
    typedef typename M::Weight Weight;
    constexpr int CHUNK = 16 / sizeof(Weight), SOME = NEAR_BYTES / sizeof(Weight);
    for (int v = 0; v < TILE_VECTORS; v++)
        for (int64_t some = 0; some < depth; some += SOME) {
            alignas(LINE) Weight near[LANES][SOME + LINE / sizeof(Weight)];
            const int64_t here = least(depth - some, SOME);
            for (int lane = 0; lane < LANES; lane++) {
                const int n = M::column_of(v, lane);
                if (n >= rows || here < SOME) memset(near[lane], 0, NEAR_BYTES);
                if (n < rows && here == SOME) memcpy(near[lane], matrix.row(n) + some, NEAR_BYTES);
                else if (n < rows) memcpy(near[lane], matrix.row(n) + some, here * sizeof(Weight));
            }
            for (int64_t k = 0; k < here; k += CHUNK) {
                Bits by_row[4], units[4];
                for (int j = 0; j < 4; j++) {
                    const char* places[LANES / 4];
                    for (int q = 0; q < LANES / 4; q++) places[q] = (const char*)(near[q * 4 + j] + k);
                    by_row[j] = sixteen_bytes_each(places);
                }
                turn(units, by_row);
                for (int u = 0; u < 4; u++) M::put_unit(panel + ((some + k) / M::UNIT + u) * PANEL * M::UNIT, v, units[u]);
            }
        }
}

}  // namespace
