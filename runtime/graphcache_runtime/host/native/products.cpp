// Products of rows, sorted by expert, with their experts' matrices, which are read where they lie.
//
// All end in one loop (panels.h): some rows times a panel, a small part of a matrix. Sums are fp32. What comes out depends
// neither on threads nor on other rows. Every expert's matrix is cut into as many parts as there are threads.

#include <atomic>
#include <thread>
#include <vector>

#include "products.h"

// As host/products.py declares them. Strides count values.
struct Span { int64_t expert, first, rows; };
struct Rows { void* memory; int64_t stride; };
struct Matrices { void* memory; int64_t expert_stride, stride, height, width; };

namespace {

template <class Work>
void on_threads(int threads, int64_t tasks, Work work) {
    static thread_local std::vector<Scratch> scratches;
    if ((int)scratches.size() < threads) scratches.resize(threads);
    std::atomic<int64_t> next{0};
    auto run = [&](Scratch& scratch) {
        for (int64_t task; (task = next++) < tasks;) work(task, scratch);
    };
    std::vector<std::thread> others;
    for (int t = 1; t < threads; t++) others.emplace_back(run, std::ref(scratches[t]));
    run(scratches[0]);
    for (auto& other : others) other.join();
}

// Where a part begins, in whole panels.
int64_t part_start(int64_t size, int64_t part, int64_t parts) {
    return least((size + PANEL - 1) / PANEL * part / parts * PANEL, size);
}

template <class T>
View<T> rows_of(const Rows& rows, const Span& span) {
    return View<T>{(T*)rows.memory, rows.stride}.from(span.first, 0);
}

template <class T>
View<T> matrix_of(const Matrices& all, const Span& span) {
    return {(T*)all.memory + span.expert * all.expert_stride, all.stride};
}

template <class M>
void all_times_transposed(int threads, const Span* spans, int64_t count, Rows rows, Matrices matrices, Rows out) {
    on_threads(threads, count * threads, [&](int64_t task, Scratch& scratch) {
        const Span& span = spans[task / threads];
        const int64_t part = task % threads, height = matrices.height;
        times_transposed<M>(rows_of<const typename M::Row>(rows, span), span.rows,
                            matrix_of<const typename M::Weight>(matrices, span), part_start(height, part, threads),
                            part_start(height, part + 1, threads), matrices.width, rows_of<typename M::Row>(out, span), scratch);
    });
}

template <class M>
void all_times(int threads, const Span* spans, int64_t count, Rows rows, Matrices matrices, Rows out) {
    on_threads(threads, count * threads, [&](int64_t task, Scratch& scratch) {
        const Span& span = spans[task / threads];
        const int64_t part = task % threads, width = matrices.width;
        times<M>(rows_of<const typename M::Row>(rows, span), span.rows, matrix_of<const typename M::Weight>(matrices, span),
                 matrices.height, part_start(width, part, threads), part_start(width, part + 1, threads),
                 rows_of<typename M::Row>(out, span), scratch);
    });
}

// Where add[i], the products of spans[i] are added to what is there.
template <class M, class Out>
void all_outer_products(int threads, const Span* spans, int64_t count, Rows left, Rows right, Matrices out, const uint8_t* add) {
    on_threads(threads, count * threads, [&](int64_t task, Scratch& scratch) {
        const Span& span = spans[task / threads];
        const int64_t first = part_start(out.height, task % threads, threads);
        const int64_t end = part_start(out.height, task % threads + 1, threads);
        outer_products<M>(rows_of<const typename M::Row>(left, span).from(0, first), rows_of<const typename M::Row>(right, span),
                          span.rows, end - first, out.width, matrix_of<Out>(out, span).from(first, 0), add[task / threads], scratch);
    });
}

}  // namespace

#define EXPORT(name, M, Gradients)                                                                                     \
    extern "C" void times_transposed_##name(int threads, const Span* spans, int64_t count, Rows rows, Matrices m, Rows out) { \
        all_times_transposed<M>(threads, spans, count, rows, m, out);                                                  \
    }                                                                                                                  \
    extern "C" void times_##name(int threads, const Span* spans, int64_t count, Rows rows, Matrices m, Rows out) {     \
        all_times<M>(threads, spans, count, rows, m, out);                                                             \
    }                                                                                                                  \
    extern "C" void outer_products_##name(int threads, const Span* spans, int64_t count, Rows left, Rows right, Matrices m, \
                                          const uint8_t* add) {                                                        \
        all_outer_products<Gradients, M::Weight>(threads, spans, count, left, right, m, add);                          \
    }

EXPORT(fp32, Fp32, Fp32)
EXPORT(widened, Widened, Fp32)  // rows are fp32, and only what comes out is bf16
#ifdef __AVX512BF16__
EXPORT(pairs, Pairs, Pairs)
#endif
