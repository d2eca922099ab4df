// Vectors of fp32, the kinds of arithmetic, and how sums leave the registers.

#pragma once

#include <cstdint>
#include <cstring>
#include <immintrin.h>
#include <type_traits>

#define INLINE inline __attribute__((always_inline))

namespace {

#ifdef __AVX512F__
constexpr int VECTOR_BYTES = 64, TILE_ROWS = 6, TILE_VECTORS = 4;  // 24 of 32 registers hold sums
#else
constexpr int VECTOR_BYTES = 32, TILE_ROWS = 6, TILE_VECTORS = 2;  // 12 of 16
#endif
constexpr int LANES = VECTOR_BYTES / 4, PANEL = LANES * TILE_VECTORS, LINE = 64;

typedef float Vec __attribute__((vector_size(VECTOR_BYTES)));
typedef float LooseVec __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));
typedef uint32_t Bits __attribute__((vector_size(VECTOR_BYTES)));
typedef uint16_t Half __attribute__((vector_size(VECTOR_BYTES / 2)));
typedef uint16_t LooseHalf __attribute__((vector_size(VECTOR_BYTES / 2), aligned(2), may_alias));

INLINE Vec load(const float* from) { return *(const LooseVec*)from; }
INLINE void store(float* into, Vec value) { *(LooseVec*)into = value; }
INLINE Vec widened(const uint16_t* from) {
    return (Vec)(__builtin_convertvector(*(const LooseHalf*)from, Bits) << 16);
}
INLINE Half narrowed(Vec value) {  // to the nearest, ties to even; NaN stays NaN
    Bits bits = (Bits)value, number = (Bits)(value == value);
    Bits rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16, quiet = (bits >> 16) | 0x40;
    return __builtin_convertvector((rounded & number) | (quiet & ~number), Half);
}

INLINE float total(Vec v) {
#ifdef __AVX512F__
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256((__m512)v), _mm512_extractf32x8_ps((__m512)v, 1));
#else
    __m256 half = (__m256)v;
#endif
    __m128 sum = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
    return _mm_cvtss_f32(_mm_add_ss(sum, _mm_shuffle_ps(sum, sum, 1)));
}

INLINE float value(float from) { return from; }
INLINE float value(uint16_t from) { Half v = {from}; return widened((const uint16_t*)&v)[0]; }
INLINE void put(float* into, float value) { *into = value; }
INLINE void put(uint16_t* into, float value) { *into = narrowed(Vec{value})[0]; }

// ---- kinds of arithmetic: what rows, weights and panels hold, and how a step is multiplied

struct Fp32 {
    typedef float Row;
    typedef float Weight;
    typedef float Packed;
    static constexpr int PAIR = 1;  // matrix rows in one step
    typedef Vec Operand;
    static INLINE Vec operand(const float* from) { return load(from); }
    static INLINE void keep(float* into, Vec value) { store(into, value); }
    static INLINE Vec weights(const float* from) { return load(from); }  // of a matrix row, as operand gives a row's values
    static INLINE Vec broadcast(const float* from) { return *from - Vec{}; }
    static INLINE Vec multiply_add(Vec sum, Vec a, Vec b) { return sum + a * b; }
    static constexpr int column_of(int vector, int lane) { return vector * LANES + lane; }  // of a panel
    // PANEL columns of PAIR matrix rows, as one step multiplies them.
    static INLINE void step(Vec* into, const float* row, const float*) {
        for (int v = 0; v < TILE_VECTORS; v++) into[v] = load(row + v * LANES);
    }
    static constexpr int UNIT = 1;  // values of a matrix row in 32 bits, which are turned as one
    static INLINE void put_unit(float* panel, int v, Bits unit) { store(panel + v * LANES, (Vec)unit); }
};

// bf16 weights for a CPU that has no bf16 arithmetic: widened once a panel.
struct Widened : Fp32 {
    typedef uint16_t Weight;
    static INLINE Vec weights(const uint16_t* from) { return widened(from); }
    static INLINE void step(Vec* into, const uint16_t* row, const uint16_t*) {
        for (int v = 0; v < TILE_VECTORS; v++) into[v] = widened(row + v * LANES);
    }
    static constexpr int UNIT = 2;
    static INLINE void put_unit(float* panel, int v, Bits unit) {
        store(panel + v * LANES, (Vec)(unit << 16));
        store(panel + PANEL + v * LANES, (Vec)(unit & 0xffff0000));
    }
};

#ifdef __AVX512BF16__
// Two matrix rows a step, in bf16 arithmetic. Columns lie in the order in which unpack leaves them.
struct Pairs {
    typedef uint16_t Row;
    typedef uint16_t Weight;
    typedef uint16_t Packed;
    static constexpr int PAIR = 2;
    typedef __m512bh Operand;
    static INLINE __m512bh operand(const uint16_t* from) { return (__m512bh)_mm512_loadu_si512(from); }
    static INLINE __m512bh weights(const uint16_t* from) { return operand(from); }
    static INLINE void keep(uint16_t* into, __m512bh value) { _mm512_storeu_si512(into, (__m512i)value); }
    static INLINE __m512bh broadcast(const uint16_t* from) {
        int32_t both;
        memcpy(&both, from, 4);
        return (__m512bh)_mm512_set1_epi32(both);
    }
    static INLINE Vec multiply_add(Vec sum, __m512bh a, __m512bh b) { return (Vec)_mm512_dpbf16_ps((__m512)sum, a, b); }
    static constexpr int column_of(int vector, int lane) {
        return vector / 2 * 32 + lane / 4 * 8 + vector % 2 * 4 + lane % 4;
    }
    static INLINE void step(__m512bh* into, const uint16_t* row, const uint16_t* next) {
        for (int v = 0; v < TILE_VECTORS; v += 2) {
            __m512i a = _mm512_loadu_si512(row + v * LANES), b = _mm512_loadu_si512(next + v * LANES);
            into[v] = (__m512bh)_mm512_unpacklo_epi16(a, b);
            into[v + 1] = (__m512bh)_mm512_unpackhi_epi16(a, b);
        }
    }
    static constexpr int UNIT = 2;
    static INLINE void put_unit(uint16_t* panel, int v, Bits unit) {
        _mm512_store_si512(panel + v * LANES * 2, (__m512i)unit);
    }
};
#endif

// ---- out of the registers: a row of PANEL sums

enum class Store { plain, streamed };

template <Store how>
INLINE void put_bytes(void* into, Vec value) {
    if constexpr (how == Store::plain) store((float*)into, value);
#ifdef __AVX512F__
    else _mm512_stream_ps((float*)into, (__m512)value);
#else
    else _mm256_stream_ps((float*)into, (__m256)value);
#endif
}

template <class M, Store how>
INLINE void give(float* into, const Vec* sums) {
    for (int v = 0; v < TILE_VECTORS; v++) put_bytes<how>(into + v * LANES, sums[v]);
}

template <class M, Store how>
INLINE void give(uint16_t* into, const Vec* sums) {
    for (int v = 0; v < TILE_VECTORS; v += 2) {
        Vec both;
#ifdef __AVX512BF16__
        if constexpr (M::PAIR == 2) {
            __m512i halves = (__m512i)_mm512_cvtne2ps_pbh((__m512)sums[v + 1], (__m512)sums[v]);
            both = (Vec)_mm512_permutexvar_epi64(_mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7), halves);
        } else
#endif
        {
            Half halves[2] = {narrowed(sums[v]), narrowed(sums[v + 1])};
            memcpy(&both, halves, sizeof both);
        }
        put_bytes<how>(into + v * LANES, both);
    }
}

// The first `valid` columns of a row; where there is something, it is added.
template <class M, class Out>
void give_part(Out* into, const Vec* sums, int64_t valid, bool add) {
    alignas(VECTOR_BYTES) Out row[PANEL], before[PANEL] = {};
    give<M, Store::plain>(row, sums);
    if (add) {
        memcpy(before, into, valid * sizeof(Out));
        for (int v = 0; v < TILE_VECTORS; v++) {
            Out* at = row + v * LANES;
            if constexpr (sizeof(Out) == 4) store(at, load(before + v * LANES) + load(at));
            else *(LooseHalf*)at = narrowed(widened(before + v * LANES) + widened(at));
        }
    }
    memcpy(into, row, valid * sizeof(Out));
}

}  // namespace
