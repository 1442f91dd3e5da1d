// The C interface of the `cpu` kernel: all directions of a layer, forwards or backwards, on as many threads as it may
// use. A plain C interface needs no header of torch: it compiles in seconds and fits every version of torch.

#include <cstdint>

#include "recurrence.h"

namespace {

// Directions are computed side by side; where there are more threads, each direction's rows are shared out as well.
// Every thread of the pool is asked for, so that it keeps its size, but no more work is cut than there are groups.
template <class T, class Body>
void each_part(const Direction<T>* directions, int64_t count, int64_t threads, Body body) {
    const int64_t groups = std::max<int64_t>((directions->batch + GROUP - 1) / GROUP, 1);
    const int64_t parts = std::clamp<int64_t>(threads / count, 1, groups);
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int64_t part = 0; part < count * parts; ++part) {
        const int64_t number = part / parts;
        const int64_t first = groups * (part % parts) / parts * GROUP;
        const int64_t last = groups * (part % parts + 1) / parts * GROUP;
        body(number, first, std::min(last, directions->batch));
    }
}

template <class T>
void forward(const Direction<T>* directions, int64_t count, int64_t threads) {
    std::unique_ptr<std::unique_ptr<Panels<T>>[]> weights(new std::unique_ptr<Panels<T>>[count]);
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int64_t number = 0; number < count; ++number) {
        const Direction<T>& d = directions[number];
        weights[number] = std::make_unique<Panels<T>>(d.hidden, 4 * d.hidden);
        weights[number]->copy_transposed(d.weight);
    }
    each_part(directions, count, threads, [&](int64_t number, int64_t first, int64_t last) {
        Loop<T>(directions[number], *weights[number], first, last).forward();
    });
}

template <class T>
void backward(const Direction<T>* directions, int64_t count, int64_t threads) {
    std::unique_ptr<std::unique_ptr<Panels<T>>[]> weights(new std::unique_ptr<Panels<T>>[count]);
    const int64_t hidden = directions->hidden, groups = (directions->batch + GROUP - 1) / GROUP;
    const int64_t size = groups * Sums<T>::size(hidden);
    Buffer<T> sums(count * size);
    std::fill_n(static_cast<T*>(sums), count * size, T(0));
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int64_t number = 0; number < count; ++number) {
        weights[number] = std::make_unique<Panels<T>>(4 * hidden, hidden);
        weights[number]->copy(directions[number].weight);
    }
    each_part(directions, count, threads, [&](int64_t number, int64_t first, int64_t last) {
        Loop<T>(directions[number], *weights[number], first, last).backward(sums + number * size);
    });
    for (int64_t number = 0; number < count; ++number) {
        const Direction<T>& d = directions[number];
        T* const totals[] = {d.d_input_gain, d.d_gain, d.d_offset, d.d_cell_gain, d.d_cell_bias};
        const T* from = sums + number * size;
        for (int which = 0; which < 5; ++which) {
            const int64_t width = which < 3 ? 4 * hidden : hidden;
            if (totals[which]) {
                std::fill_n(totals[which], width, T(0));
                for (int64_t group = 0; group < groups; ++group) {
                    const T* part = from + group * Sums<T>::size(hidden);
                    for (int64_t j = 0; j < width; ++j) totals[which][j] += part[j];
                }
            }
            from += width;
        }
    }
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
}
