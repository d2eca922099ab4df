// The three products for the rows of one expert and a part of its matrix.
//
//   times_transposed   out[r, n] = sum over k of rows[r, k] * matrix[n, k]
//   times              out[r, k] = sum over n of rows[r, n] * matrix[n, k]
//   outer_products     out[n, k] = sum over r of left[r, n] * right[r, k]

#pragma once

#include <cstdlib>
#include <memory>

#include "panels.h"

namespace {

// Memory that is kept from product to product: fresh pages cost more than what is written into them.
class Scratch {
    struct Free { void operator()(char* memory) const { free(memory); } };
    std::unique_ptr<char, Free> memory_;
    int64_t size_ = 0;

  public:
    char* take(int64_t size) {
        if (size > size_) {
            size_ = (size + 4095) / 4096 * 4096;
            memory_.reset((char*)aligned_alloc(4096, size_));
        }
        return memory_.get();
    }
};

constexpr int64_t whole_lines(int64_t bytes) { return (bytes + LINE - 1) / LINE * LINE; }

// ---- few rows: bound by reading the matrix, which is not copied

constexpr int OUTS = VECTOR_BYTES == 64 ? 4 : 2;
constexpr int TOGETHER = 8;  // matrix rows read side by side: 3 rows took 0.24 ms, with 4 or 16 of them 0.27 and 0.33

// out[R, outs] = rows[R, depth] . matrix[outs, depth]
template <class M, int R>
INLINE void dots(View<const typename M::Row> rows, View<const typename M::Weight> matrix, int outs, int64_t depth,
                 View<typename M::Row> out) {
    constexpr int STEP = LANES * M::PAIR;
    Vec sum[R][OUTS] = {};
    int64_t k = 0;
    for (; outs == OUTS && k + STEP <= depth; k += STEP)
        for (int o = 0; o < OUTS; o++) {
            __builtin_prefetch(matrix.row(o + 2 * OUTS) + k, 0, 2);
            auto weights = M::weights(matrix.row(o) + k);
            for (int r = 0; r < R; r++) sum[r][o] = M::multiply_add(sum[r][o], M::operand(rows.row(r) + k), weights);
        }
    for (int r = 0; r < R; r++)
        for (int o = 0; o < outs; o++) {
            float rest = total(sum[r][o]);
            for (int64_t at = k; at < depth; at++) rest += value(rows.row(r)[at]) * value(matrix.row(o)[at]);
            put(out.row(r) + o, rest);
        }
}

template <class M>
void few_times_transposed(View<const typename M::Row> rows, int64_t count, View<const typename M::Weight> matrix,
                          int64_t first, int64_t end, int64_t depth, View<typename M::Row> out) {
    for (int64_t n = first; n < end; n += OUTS)
        for (int64_t r = 0; r < count; r += TILE_ROWS)
            with_tile(count - r, [&](auto size) {
                dots<M, decltype(size)::value>(rows.from(r, 0), matrix.from(n, 0), least(end - n, OUTS), depth, out.from(r, n));
            });
}

// `depth` is a multiple of TOGETHER, `columns` of PANEL.
template <class M, int R>
void few_times(View<const typename M::Row> rows, View<const typename M::Weight> matrix, int64_t depth, int64_t columns,
               View<typename M::Row> out, Scratch& scratch) {
    View<float> sums{(float*)scratch.take(R * columns * sizeof(float)), columns};
    for (int64_t n = 0; n < depth; n += TOGETHER)
        for (int64_t k = 0; k < columns; k += PANEL) {
            Vec sum[R][TILE_VECTORS] = {};
            if (n > 0) resume<R>(sum, sums.from(0, k));
            for (int m = 0; m < TOGETHER; m += M::PAIR) {
                const typename M::Weight* row = matrix.row(n + m) + k;
                Ahead ahead(matrix.from(n + m + TOGETHER, k), M::PAIR, PANEL);
                ahead.fetch(M::PAIR * PANEL * sizeof(*row) / LINE);
                typename M::Operand step[TILE_VECTORS];
                M::step(step, row, row + matrix.stride);
                for (int r = 0; r < R; r++) {
                    auto coefficient = M::broadcast(rows.row(r) + n + m);
                    for (int v = 0; v < TILE_VECTORS; v++) sum[r][v] = M::multiply_add(sum[r][v], coefficient, step[v]);
                }
            }
            if (n + TOGETHER < depth) keep<R>(sum, sums.from(0, k));
            else for (int r = 0; r < R; r++) give<M, Store::plain>(out.row(r) + k, sum[r]);
        }
}

// ---- any number of rows

constexpr int64_t TURNED_BYTES = 4096;  // of a matrix row, turned at a time: 64 rows are 256 KB of a cache of 1 MB

// Columns [first, end) of out.
template <class M>
void times_transposed(View<const typename M::Row> rows, int64_t count, View<const typename M::Weight> matrix, int64_t first,
                      int64_t end, int64_t depth, View<typename M::Row> out, Scratch& scratch) {
    typedef typename M::Packed Packed;
    if (count <= 2 * TILE_ROWS) return few_times_transposed<M>(rows, count, matrix, first, end, depth, out);
    const int64_t block = TURNED_BYTES / sizeof(Packed), panel_bytes = (block + 16) * PANEL * sizeof(Packed);
    char* memory = scratch.take(panel_bytes + count * PANEL * sizeof(float));
    Packed* panel = (Packed*)memory;
    View<float> sums{(float*)(memory + panel_bytes), PANEL};
    for (int64_t n = first; n < end; n += PANEL)
        for (int64_t k = 0; k < depth; k += block) {
            const int64_t here = least(depth - k, block), valid = least(end - n, PANEL);
            const bool last = k + here == depth;
            const int64_t next_n = last ? n + PANEL : n, next_k = last ? 0 : k + here;
            Ahead ahead;
            if (next_n < end) ahead = Ahead(matrix.from(next_n, next_k), least(end - next_n, PANEL), least(depth - next_k, block));
            pack_turned<M>(panel, matrix.from(n, k), valid, here);
            through_panel<M>(rows.from(0, k), count, panel, here, sums, k > 0,
                             last ? out.from(0, n) : View<typename M::Row>{}, valid, ahead);
        }
}

// Matrix rows in a panel: few while the sums of all rows stay in the cache, else many, so that sums are seldom fetched.
constexpr int64_t SUMS_CACHED = 48, DEPTH_CACHED = 64, DEPTH = 1024;

// Columns [first, end) of out.
template <class M>
void times(View<const typename M::Row> rows, int64_t count, View<const typename M::Weight> whole, int64_t depth,
           int64_t first, int64_t end, View<typename M::Row> whole_out, Scratch& scratch) {
    typedef typename M::Packed Packed;
    const View<const typename M::Weight> matrix = whole.from(0, first);
    const View<typename M::Row> out = whole_out.from(0, first);
    const int64_t columns = end - first;
    if (count <= TILE_ROWS && depth % TOGETHER == 0 && columns % PANEL == 0)
        return with_tile(count, [&](auto size) {
            few_times<M, decltype(size)::value>(rows, matrix, depth, columns, out, scratch);
        });
    const int64_t block = count <= SUMS_CACHED ? DEPTH_CACHED : DEPTH;
    const int64_t panel_bytes = block * PANEL * sizeof(Packed), width = (columns + PANEL - 1) / PANEL * PANEL;
    char* memory = scratch.take(panel_bytes + count * width * sizeof(float));
    Packed* panel = (Packed*)memory;
    View<float> sums{(float*)(memory + panel_bytes), width};
    for (int64_t n = 0; n < depth; n += block) {
        const int64_t here = least(depth - n, block);
        const bool last = n + here == depth;
        Ahead ahead(matrix.from(n + here, 0), least(depth - n - here, block), columns);
        for (int64_t k = 0; k < columns; k += PANEL) {
            pack<M>(panel, matrix.from(n, k), here, columns - k);
            through_panel<M>(rows.from(0, n), count, panel, here, sums.from(0, k), n > 0,
                             last ? out.from(0, k) : View<typename M::Row>{}, least(columns - k, PANEL), ahead);
        }
    }
}

// ---- gradients of weights

constexpr int64_t CACHED_BYTES = 400 * 1024;  // of packed rows, which then serve one tile after another

// turned[n, r] = left[r, n], and zeros up to `depth`
template <class Row>
void turn_rows(Row* turned, View<const Row> left, int64_t count, int64_t depth, int64_t height) {
    for (int64_t n = 0; n < height; n += 16)  // a line of each row at a time
        for (int64_t r = 0; r < depth; r++)
            for (int64_t at = n; at < n + 16 && at < height; at++)
                turned[at * depth + r] = r < count ? left.row(r)[at] : Row(0);
}

// `height` rows of out, from those columns of `left`. Written past the cache, unless they are added to what is there.
template <class M, class Out>
void outer_products(View<const typename M::Row> left, View<const typename M::Row> right, int64_t count, int64_t height,
                    int64_t columns, View<Out> out, bool add, Scratch& scratch) {
    typedef typename M::Row Row;
    const int64_t depth = (count + M::PAIR - 1) / M::PAIR * M::PAIR, panels = (columns + PANEL - 1) / PANEL;
    const int64_t turned_bytes = whole_lines(height * depth * sizeof(Row)), panel_size = depth * PANEL;
    char* memory = scratch.take(turned_bytes + panels * panel_size * sizeof(Row));
    Row *turned = (Row*)memory, *packed = (Row*)(memory + turned_bytes);
    turn_rows(turned, left, count, depth, height);
    auto pack_one = [&](int64_t p) { pack<M>(packed + p * panel_size, right.from(0, p * PANEL), count, columns - p * PANEL); };
    auto tile = [&](int64_t n, int64_t p) {
        with_tile(height - n, [&](auto size) __attribute__((always_inline)) {
            constexpr int R = decltype(size)::value;
            const int64_t valid = least(columns - p * PANEL, PANEL);
            Vec sum[R][TILE_VECTORS] = {};
            Ahead none;
            multiply<M, R>(sum, {turned + n * depth, depth}, packed + p * panel_size, depth, none, 0);
            for (int r = 0; r < R; r++) {
                Out* into = out.row(n + r) + p * PANEL;
                if (add || valid < PANEL || (uintptr_t)into % VECTOR_BYTES) give_part<M>(into, sum[r], valid, add);
                else give<M, Store::streamed>(into, sum[r]);
            }
        });
    };
    const bool cached = panels * panel_size * (int64_t)sizeof(Row) <= CACHED_BYTES;
    for (int64_t p = 0; cached && p < panels; p++) pack_one(p);
    for (int64_t n = 0; cached && n < height; n += TILE_ROWS)
        for (int64_t p = 0; p < panels; p++) tile(n, p);
    for (int64_t p = 0; !cached && p < panels; p++) {
        pack_one(p);
        for (int64_t n = 0; n < height; n += TILE_ROWS) tile(n, p);
    }
    _mm_sfence();
}

}  // namespace
