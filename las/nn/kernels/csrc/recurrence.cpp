// The C interface of the `cpu` kernel: all directions of a layer, forwards or backwards, and products of matrices, on as
// many threads as it may use. A plain C interface needs no header of torch: it compiles in seconds and fits every version.

#include <cstdint>
#include <vector>

#include "beams.h"
#include "dropout.h"
#include "gammatone.h"
#include "loops.h"
#include "matrices.h"
#include "prefixes.h"
#include "rounded.h"
#include "searching.h"
#include "spelling.h"

namespace {

// Weights of all directions that stay in the shared part of the cache while frames go by, roughly.
constexpr int64_t CACHED_BYTES = 16 << 20;

// run(direction's number, part's number, panels of its weight, threads) for all parts of all directions: side by side,
// which costs no waiting, or all threads together on one part after the other, where that leaves threads without work
// or the weights of all directions at once would be too many for the cache. `make` makes empty panels, `copy` puts a
// weight into them.
template <class T, class Make, class Copy, class Run>
void each_part(const Direction<T>* directions, int64_t count, int64_t threads, Make make, Copy copy, Run run) {
    const int64_t parts = (directions->batch + PART - 1) / PART, hidden = directions->hidden;
    const int64_t bytes = count * hidden * 4 * hidden * int64_t(sizeof(T));
    if (threads > 1 && (count * parts < threads || bytes > CACHED_BYTES)) {
        auto weight = make();
        for (int64_t number = 0; number < count; ++number) {
            in_team(threads, [&](Team team) { copy(weight, directions[number].weight, team); });
            for (int64_t part = 0; part < parts; ++part) run(number, part, weight, threads);
        }
        return;
    }
    std::vector<decltype(make())> weights;
    for (int64_t number = 0; number < count; ++number) weights.push_back(make());
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

// make(inner, columns) makes empty panels.
template <class T, class Make>
void forward(const Direction<T>* directions, int64_t count, int64_t threads, Make make) {
    using Weight = decltype(make(0, 0));
    const int hidden = directions->hidden;
    const auto copy = [=](Weight& panels, const T* weight, Team team) { panels.copy({weight, 1, hidden}, team); };
    each_part(directions, count, threads, [=] { return make(hidden, 4 * hidden); }, copy,
              [&](int64_t number, int64_t part, const Weight& weight, int64_t team_size) {
                  const int64_t last = std::min((part + 1) * PART, directions->batch);
                  ForwardLoop<T, Weight> loop(directions[number], weight, part * PART, last);
                  in_team(team_size, [&](Team team) { loop.run(team); });
                  loop.finish();
              });
}

template <class T, class Make>
void backward(const Direction<T>* directions, int64_t count, int64_t threads, Make make) {
    using Weight = decltype(make(0, 0));
    const int hidden = directions->hidden;
    const auto copy = [=](Weight& panels, const T* weight, Team team) { panels.copy({weight, hidden, 1}, team); };
    each_part(directions, count, threads, [=] { return make(4 * hidden, hidden); }, copy,
              [&](int64_t number, int64_t part, const Weight& weight, int64_t team_size) {
                  const Direction<T>& d = directions[number];
                  const int64_t last = std::min((part + 1) * PART, d.batch);
                  BackwardLoop<T, Weight> loop(d, weight, part * PART, last, d.sums + part * Sums<T>::size(hidden));
                  in_team(team_size, [&](Team team) { loop.run(team); });
                  loop.finish();
              });
}

template <class T>
Panels<T> exact(int inner, int columns) {
    return {inner, columns};
}

auto rounding(Unit unit) {
    return [=](int inner, int columns) { return RoundedPanels(inner, columns, unit); };
}

template <class T>
using Searching = SearchStep<T, decltype(&exact<T>)>;

template <class T>
void search_step(const Searching<T>& step, const Search<T>& search, int64_t threads) {
    const typename Searching<T>::Room room(search);
    in_team(threads, [&](Team team) { step.run(search, room, team); });
}

}  // namespace

extern "C" {
void multiply_float32(const Product<float>* product, int64_t threads) {
    in_team(threads, [&](Team team) { multiply(*product, team); });
}
void multiply_float64(const Product<double>* product, int64_t threads) {
    in_team(threads, [&](Team team) { multiply(*product, team); });
}
void multiply_bfloat16(const Product<float>* product, int64_t threads, Unit unit) {
    in_team(threads, [&](Team team) { multiply_rounded(*product, team, unit); });
}
void forward_float32(const Direction<float>* directions, int64_t count, int64_t threads) {
    forward(directions, count, threads, exact<float>);
}
void forward_float64(const Direction<double>* directions, int64_t count, int64_t threads) {
    forward(directions, count, threads, exact<double>);
}
void forward_bfloat16(const Direction<float>* directions, int64_t count, int64_t threads, Unit unit) {
    forward(directions, count, threads, rounding(unit));
}
void backward_float32(const Direction<float>* directions, int64_t count, int64_t threads) {
    backward(directions, count, threads, exact<float>);
}
void backward_float64(const Direction<double>* directions, int64_t count, int64_t threads) {
    backward(directions, count, threads, exact<double>);
}
void backward_bfloat16(const Direction<float>* directions, int64_t count, int64_t threads, Unit unit) {
    backward(directions, count, threads, rounding(unit));
}
void* search_open_float32(const Search<float>* search, int64_t threads) {
    return new Searching<float>(*search, exact<float>, threads);
}
void* search_open_float64(const Search<double>* search, int64_t threads) {
    return new Searching<double>(*search, exact<double>, threads);
}
void search_step_float32(const void* opened, const Search<float>* search, int64_t threads) {
    search_step(*static_cast<const Searching<float>*>(opened), *search, threads);
}
void search_step_float64(const void* opened, const Search<double>* search, int64_t threads) {
    search_step(*static_cast<const Searching<double>*>(opened), *search, threads);
}
void search_close_float32(void* opened) { delete static_cast<Searching<float>*>(opened); }
void search_close_float64(void* opened) { delete static_cast<Searching<double>*>(opened); }
void drop_float32(const Dropout<float>* dropout, int64_t threads) {
    in_team(threads, [&](Team team) { drop(*dropout, team); });
}
void drop_float64(const Dropout<double>* dropout, int64_t threads) {
    in_team(threads, [&](Team team) { drop(*dropout, team); });
}
void filter_frames_float32(const Gammatone<float>* filters, int64_t threads) {
    in_team(threads, [&](Team team) { filter_frames(*filters, team); });
}
void filter_frames_float64(const Gammatone<double>* filters, int64_t threads) {
    in_team(threads, [&](Team team) { filter_frames(*filters, team); });
}
void expand_float32(const Expansion<float>* expansion, int64_t threads) {
    in_team(threads, [&](Team team) { expand(*expansion, team); });
}
void expand_float64(const Expansion<double>* expansion, int64_t threads) {
    in_team(threads, [&](Team team) { expand(*expansion, team); });
}
void prefix_scores(const Prefixes* prefixes, int64_t threads) {
    in_team(threads, [&](Team team) { PrefixRows(*prefixes, team).score(); });
}
void prefix_advance(const Prefixes* prefixes, int64_t threads) {
    in_team(threads, [&](Team team) { PrefixRows(*prefixes, team).advance(); });
}
void spell_float32(const Speller<float>* speller, Feed feed, int64_t threads) {
    Spelling(*speller, threads, exact<float>).forward(feed);
}
void spell_float64(const Speller<double>* speller, Feed feed, int64_t threads) {
    Spelling(*speller, threads, exact<double>).forward(feed);
}
void spell_bfloat16(const Speller<float>* speller, Feed feed, int64_t threads, Unit unit) {
    Spelling(*speller, threads, rounding(unit)).forward(feed);
}
void spell_backward_float32(const Speller<float>* speller, int64_t threads) {
    Spelling(*speller, threads, exact<float>).backward();
}
void spell_backward_float64(const Speller<double>* speller, int64_t threads) {
    Spelling(*speller, threads, exact<double>).backward();
}
void spell_backward_bfloat16(const Speller<float>* speller, int64_t threads, Unit unit) {
    Spelling(*speller, threads, rounding(unit)).backward();
}
int64_t fastest_bfloat16_unit() { return fastest_unit(); }
}
