// The C interface of the `cpu` kernel: all directions of a layer, forwards or backwards, and products of matrices, on as
// many threads as it may use. A plain C interface needs no header of torch: it compiles in seconds and fits every version.

#include <cstdint>
#include <vector>

#include "beams.h"
#include "dropout.h"
#include "gammatone.h"
#include "hypotheses.h"
#include "loops.h"
#include "matrices.h"
#include "occupancies.h"
#include "paths.h"
#include "prefixes.h"
#include "prepacked.h"
#include "rounded.h"
#include "searching.h"
#include "spelling.h"

namespace {

// Weights of all directions that stay in the shared part of the cache while frames go by, roughly.
constexpr int64_t CACHED_BYTES = 16 << 20;

// run(direction's number, part's number, panels of its weight, threads) for all parts of all directions: side by side,
// which costs no waiting, or all threads together on one part after the other, where that leaves threads without work
// or the weights of all directions at once would be too many for the cache. panels(direction) are those of its weight.
template <class T, class PanelsOf, class Run>
void each_part(const Direction<T>* directions, int64_t count, int64_t threads, PanelsOf panels, Run run) {
    const int64_t parts = (directions->batch + PART - 1) / PART, hidden = directions->hidden;
    const int64_t bytes = count * hidden * 4 * hidden * int64_t(sizeof(T));
    if (threads > 1 && (count * parts < threads || bytes > CACHED_BYTES)) {
        for (int64_t number = 0; number < count; ++number) {
            const auto weight = panels(directions[number]);
            for (int64_t part = 0; part < parts; ++part) run(number, part, *weight, threads);
        }
        return;
    }
    std::vector<decltype(panels(*directions))> weights;
    for (int64_t number = 0; number < count; ++number) weights.push_back(panels(directions[number]));
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1) collapse(2)
    for (int64_t part = 0; part < parts; ++part) {
        for (int64_t number = 0; number < count; ++number) run(number, part, *weights[number], 1);
    }
}

// make(inner, columns) makes empty panels.
template <class T, class Make>
void forward(const Direction<T>* directions, int64_t count, int64_t threads, Make make) {
    using Weight = decltype(make(0, 0));
    const int hidden = directions->hidden;
    const auto panels = [=](const Direction<T>& d) {
        return panels_of(Matrix<T>{d.weight, 1, hidden}, hidden, 4 * hidden, make, threads);
    };
    each_part(directions, count, threads, panels,
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
    const auto panels = [=](const Direction<T>& d) {
        return panels_of(Matrix<T>{d.weight, hidden, 1}, 4 * hidden, hidden, make, threads);
    };
    each_part(directions, count, threads, panels,
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

// The panels of a right matrix that is kept as well: others are copied in parts.
template <class T>
void multiply(const Product<T>& p, int64_t threads) {
    const PrepackedWeights* weights = PrepackedWeights::used();
    const bool is_kept = weights && weights->hold(p.right.values);
    const auto kept = is_kept ? panels_of(p.right, int(p.inner), int(p.columns), exact<T>, threads) : nullptr;
    in_team(threads, [&](Team team) { multiply(p, team, kept.get()); });
}

auto rounding(Unit unit) {
    return [=](int inner, int columns) { return RoundedPanels(inner, columns, unit); };
}

template <class T>
using Searching = SearchStep<T, decltype(&exact<T>)>;

template <class T>
void search_step(const Searching<T>& step, const Search<T>& search, int64_t threads) {
    const Attended<T>& attended = search.speller.attended;
    const typename Searching<T>::Room room(search, attended.batch * attended.steps);
    in_team(threads, [&](Team team) { step.run(search, room, team); });
}

template <class T>
void search_whole(const Searching<T>& step, const Search<T>& first, const Hypotheses& wanted, int64_t threads) {
    WholeSearch whole(step, first, wanted);
    in_team(threads, [&](Team team) { whole.run(team); });
}

}  // namespace

// What Python calls by its name and the type of the numbers.
#define OF_NUMBERS(T, TYPE)                                                                          \
    void multiply_##TYPE(const Product<T>* product, int64_t threads) {                               \
        multiply(*product, threads);                                                                 \
    }                                                                                                \
    void forward_##TYPE(const Direction<T>* directions, int64_t count, int64_t threads) {            \
        forward(directions, count, threads, exact<T>);                                               \
    }                                                                                                \
    void backward_##TYPE(const Direction<T>* directions, int64_t count, int64_t threads) {           \
        backward(directions, count, threads, exact<T>);                                              \
    }                                                                                                \
    void* search_open_##TYPE(const Search<T>* search, int64_t threads) {                             \
        return new Searching<T>(*search, exact<T>, threads);                                         \
    }                                                                                                \
    void search_step_##TYPE(const void* opened, const Search<T>* search, int64_t threads) {          \
        search_step(*static_cast<const Searching<T>*>(opened), *search, threads);                    \
    }                                                                                                \
    void search_whole_##TYPE(const void* opened, const Search<T>* first, const Hypotheses* wanted,   \
                             int64_t threads) {                                                      \
        search_whole(*static_cast<const Searching<T>*>(opened), *first, *wanted, threads);           \
    }                                                                                                \
    void search_close_##TYPE(void* opened) { delete static_cast<Searching<T>*>(opened); }            \
    void drop_##TYPE(const Dropout<T>* dropout, int64_t threads) {                                   \
        in_team(threads, [&](Team team) { drop(*dropout, team); });                                  \
    }                                                                                                \
    void filter_frames_##TYPE(const Gammatone<T>* filters, int64_t threads) {                        \
        in_team(threads, [&](Team team) { filter_frames(*filters, team); });                         \
    }                                                                                                \
    void best_paths_##TYPE(const Paths<T>* paths, int64_t threads) {                                 \
        in_team(threads, [&](Team team) { best_paths(*paths, team); });                              \
    }                                                                                                \
    void occupy_##TYPE(const Occupancies<T>* occupancies, int64_t threads) {                         \
        in_team(threads, [&](Team team) { occupy(*occupancies, team); });                            \
    }                                                                                                \
    void expand_##TYPE(const Expansion<T>* expansion, int64_t threads) {                             \
        in_team(threads, [&](Team team) { expand(*expansion, team); });                              \
    }                                                                                                \
    void spell_##TYPE(const Speller<T>* speller, Feed feed, int64_t threads) {                       \
        Spelling(*speller, threads, exact<T>).forward(feed);                                         \
    }                                                                                                \
    void spell_backward_##TYPE(const Speller<T>* speller, int64_t threads) {                         \
        Spelling(*speller, threads, exact<T>).backward();                                            \
    }

extern "C" {
OF_NUMBERS(float, float32)
OF_NUMBERS(double, float64)
void multiply_bfloat16(const Product<float>* product, int64_t threads, Unit unit) {
    in_team(threads, [&](Team team) { multiply_rounded(*product, team, unit); });
}
void forward_bfloat16(const Direction<float>* directions, int64_t count, int64_t threads, Unit unit) {
    forward(directions, count, threads, rounding(unit));
}
void backward_bfloat16(const Direction<float>* directions, int64_t count, int64_t threads, Unit unit) {
    backward(directions, count, threads, rounding(unit));
}
void spell_bfloat16(const Speller<float>* speller, Feed feed, int64_t threads, Unit unit) {
    Spelling(*speller, threads, rounding(unit)).forward(feed);
}
void spell_backward_bfloat16(const Speller<float>* speller, int64_t threads, Unit unit) {
    Spelling(*speller, threads, rounding(unit)).backward();
}
void* weights_open(const PrepackedWeights::Range* ranges, int64_t count) { return new PrepackedWeights(ranges, count); }
void* weights_use(void* weights) {
    return std::exchange(PrepackedWeights::used(), static_cast<PrepackedWeights*>(weights));
}
void weights_close(void* weights) { delete static_cast<PrepackedWeights*>(weights); }
void prefix_scores(const Prefixes* prefixes, int64_t threads) {
    in_team(threads, [&](Team team) { PrefixRows(*prefixes, team).score(); });
}
void prefix_advance(const Prefixes* prefixes, int64_t threads) {
    in_team(threads, [&](Team team) { PrefixRows(*prefixes, team).advance(); });
}
int64_t fastest_bfloat16_unit() { return fastest_unit(); }
}
