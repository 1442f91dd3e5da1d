// Best paths through graphs of states (Viterbi), one utterance after the other; the equations are those of
// las/hmm/viterbi.py.

#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "products.h"

// Emissions are [batch, frames, pdfs], states [batch, frames]. The states of utterance i are first_state[i] to
// first_state[i + 1], the arcs into state s first_arc[s] to first_arc[s + 1]; sources are counted within an utterance.
template <class T>
struct Paths {
    int64_t batch, frames, pdfs;
    const int64_t *num_frames, *first_state, *pdf, *first_arc, *source;
    const T *emissions, *score, *initial, *final;
    T* totals;
    int64_t* states;
};

// The first of equal arcs, and the first of equal last states, is taken.
template <class T>
void best_path(const Paths<T>& g, int64_t utterance) {
    constexpr T never = -std::numeric_limits<T>::infinity();
    const int64_t begin = g.first_state[utterance], count = g.first_state[utterance + 1] - begin;
    const int64_t frames = g.num_frames[utterance];
    const T* emissions = g.emissions + utterance * g.frames * g.pdfs;
    const int64_t* pdf = g.pdf + begin;
    std::vector<T> before(count), now(count);
    std::vector<int32_t> from(frames * count);
    for (int64_t state = 0; state < count; ++state) now[state] = g.initial[begin + state] + emissions[pdf[state]];
    for (int64_t frame = 1; frame < frames; ++frame) {
        std::swap(before, now);
        const T* emission = emissions + frame * g.pdfs;
        int32_t* chosen = from.data() + frame * count;
        for (int64_t state = 0; state < count; ++state) {
            T best = never;
            int64_t source = 0;
            for (int64_t arc = g.first_arc[begin + state]; arc < g.first_arc[begin + state + 1]; ++arc) {
                const T arrived = before[g.source[arc]] + g.score[arc];
                if (arrived > best) best = arrived, source = g.source[arc];
            }
            now[state] = best + emission[pdf[state]];
            chosen[state] = int32_t(source);
        }
    }
    T& total = g.totals[utterance] = never;
    int64_t last = 0;
    for (int64_t state = 0; state < count; ++state) {
        const T ended = now[state] + g.final[begin + state];
        if (ended > total) total = ended, last = state;
    }
    int64_t* states = g.states + utterance * g.frames;
    for (int64_t frame = frames - 1; frame >= 0; --frame) {
        states[frame] = last;
        last = from[frame * count + last];
    }
}

template <class T>
void best_paths(const Paths<T>& g, Team team) {
    for (int64_t utterance = team.first(int(g.batch)); utterance < team.last(int(g.batch)); ++utterance) {
        best_path(g, utterance);
    }
}
