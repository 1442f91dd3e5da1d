// The C interface of the `cpu` kernel: all directions of a layer, forwards or backwards, and products of matrices, on as
// many threads as it may use. A plain C interface needs no header of torch: it compiles in seconds and fits every version.

#include <omp.h>

#include <cstdint>
#include <vector>

#include "loops.h"
#include "matrices.h"
#include "spelling.h"

namespace {

// Weights of all directions that stay in the shared part of the cache while frames go by, roughly.
constexpr int64_t CACHED_BYTES = 16 << 20;

// Every thread of the pool is asked for: with fewer it would end the others, and start them for the next call.
template <class Body>
void in_team(int64_t threads, Body body) {
    if (threads == 1) {
        body(Team{});
        return;
    }
#pragma omp parallel num_threads(threads)
    body(Team{omp_get_thread_num(), omp_get_num_threads()});
}

// run(direction's number, part's number, panels of its weight, threads) for all parts of all directions: side by side,
// which costs no waiting, or all threads together on one part after the other, where that leaves threads without work
// or the weights of all directions at once would be too many for the cache. `copy` puts a weight into panels.
template <class T, class Copy, class Run>
void each_part(const Direction<T>* directions, int64_t count, int64_t threads, int inner, int columns, Copy copy,
               Run run) {
    const int64_t parts = (directions->batch + PART - 1) / PART;
    const int64_t bytes = count * inner * columns * int64_t(sizeof(T));
    if (threads > 1 && (count * parts < threads || bytes > CACHED_BYTES)) {
        Panels<T> weight(inner, columns);
        for (int64_t number = 0; number < count; ++number) {
            in_team(threads, [&](Team team) { copy(weight, directions[number].weight, team); });
            for (int64_t part = 0; part < parts; ++part) run(number, part, weight, threads);
        }
        return;
    }
    std::vector<Panels<T>> weights;
    for (int64_t number = 0; number < count; ++number) weights.emplace_back(inner, columns);
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static, 1)
        for (int64_t number = 0; number < count; ++number) copy(weights[number], directions[number].weight, Team{});
#pragma omp for schedule(dynamic, 1) collapse(2)
        for (int64_t part = 0; part < parts; ++part) {
            for (int64_t number = 0; number < count; ++number) run(number, part, weights[number], 1);
        }
    }
}

template <class T>
void forward(const Direction<T>* directions, int64_t count, int64_t threads) {
    const int hidden = directions->hidden;
    const auto copy = [=](Panels<T>& panels, const T* weight, Team team) { panels.copy({weight, 1, hidden}, team); };
    each_part(directions, count, threads, hidden, 4 * hidden, copy,
              [&](int64_t number, int64_t part, const Panels<T>& weight, int64_t team_size) {
                  const int64_t last = std::min((part + 1) * PART, directions->batch);
                  ForwardLoop<T> loop(directions[number], weight, part * PART, last);
                  in_team(team_size, [&](Team team) { loop.run(team); });
                  loop.finish();
              });
}

template <class T>
void backward(const Direction<T>* directions, int64_t count, int64_t threads) {
    const int hidden = directions->hidden;
    const auto copy = [=](Panels<T>& panels, const T* weight, Team team) { panels.copy({weight, hidden, 1}, team); };
    each_part(directions, count, threads, 4 * hidden, hidden, copy,
              [&](int64_t number, int64_t part, const Panels<T>& weight, int64_t team_size) {
                  const Direction<T>& d = directions[number];
                  const int64_t last = std::min((part + 1) * PART, d.batch);
                  BackwardLoop<T> loop(d, weight, part * PART, last, d.sums + part * Sums<T>::size(hidden));
                  in_team(team_size, [&](Team team) { loop.run(team); });
                  loop.finish();
              });
}

}  // namespace

extern "C" {
void multiply_float32(const Product<float>* product, int64_t threads) {
    in_team(threads, [&](Team team) { multiply(*product, team); });
}
void multiply_float64(const Product<double>* product, int64_t threads) {
    in_team(threads, [&](Team team) { multiply(*product, team); });
}
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
void attend_float32(const Attended<float>* attended, const float* last, int64_t threads) {
    attend(*attended, last, threads);
}
void attend_float64(const Attended<double>* attended, const double* last, int64_t threads) {
    attend(*attended, last, threads);
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
