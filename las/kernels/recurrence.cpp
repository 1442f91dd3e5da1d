// The C interface of the `cpu` kernel: all directions of a layer, forwards or backwards, on as many threads as it may
// use. A plain C interface needs no header of torch: it compiles in seconds and fits every version of torch.

#include <cstdint>
#include <vector>

#include "recurrence.h"
#include "spelling.h"

namespace {

// body(direction's number, part's number, its first row, the row after its last) for all parts of all directions, side
// by side. Every thread of the pool is asked for: with fewer it would end the others, and start them for the next call.
template <class T, class Body>
void each_part(const Direction<T>* directions, int64_t count, int64_t threads, Body body) {
    const int64_t batch = directions->batch, parts = (batch + PART - 1) / PART;
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1) collapse(2)
    for (int64_t part = 0; part < parts; ++part) {
        for (int64_t number = 0; number < count; ++number) {
            body(number, part, part * PART, std::min((part + 1) * PART, batch));
        }
    }
}

// The weight of each direction, as `copy(panels, weight)` puts it into panels.
template <class T, class Copy>
std::vector<Panels<T>> weights_of(const Direction<T>* directions, int64_t count, int64_t threads, int inner,
                                  int columns, Copy copy) {
    std::vector<Panels<T>> weights;
    for (int64_t number = 0; number < count; ++number) weights.emplace_back(inner, columns);
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int64_t number = 0; number < count; ++number) copy(weights[number], directions[number].weight);
    return weights;
}

template <class T>
void forward(const Direction<T>* directions, int64_t count, int64_t threads) {
    const int hidden = directions->hidden;
    const auto weights = weights_of(directions, count, threads, hidden, 4 * hidden,
                                    [](Panels<T>& panels, const T* weight) { panels.copy_transposed(weight); });
    each_part(directions, count, threads, [&](int64_t number, int64_t, int64_t first, int64_t last) {
        Loop<T>(directions[number], weights[number], first, last).forward();
    });
}

template <class T>
void backward(const Direction<T>* directions, int64_t count, int64_t threads) {
    const int hidden = directions->hidden;
    const auto weights = weights_of(directions, count, threads, 4 * hidden, hidden,
                                    [](Panels<T>& panels, const T* weight) { panels.copy(weight); });
    each_part(directions, count, threads, [&](int64_t number, int64_t part, int64_t first, int64_t last) {
        const int64_t of_weight = 4 * int64_t(hidden) * hidden;
        T* sums = directions[number].sums + part * (of_weight + Sums<T>::size(hidden));
        Loop<T>(directions[number], weights[number], first, last).backward(sums, sums + of_weight);
    });
}

}  // namespace

extern "C" {
void forward_float32(const Direction<float>* directions, int64_t count, int64_t threads) {
    forward(directions, count, threads);
}
void forward_float64(const Direction<double>* directions, int64_t count, int64_t threads) {
    forward(directions, count, threads);
}
void backward_float32(const Direction<float>* directions, int64_t count, int64_t threads) {
    backward(directions, count, threads);
}
void backward_float64(const Direction<double>* directions, int64_t count, int64_t threads) {
    backward(directions, count, threads);
}
void spell_float32(const Speller<float>* speller, int64_t threads, Feed feed) {
    Spelling<float>(*speller, threads).forward(feed);
}
void spell_float64(const Speller<double>* speller, int64_t threads, Feed feed) {
    Spelling<double>(*speller, threads).forward(feed);
}
void spell_backward_float32(const Speller<float>* speller, int64_t threads) {
    Spelling<float>(*speller, threads).backward();
}
void spell_backward_float64(const Speller<double>* speller, int64_t threads) {
    Spelling<double>(*speller, threads).backward();
}
}
