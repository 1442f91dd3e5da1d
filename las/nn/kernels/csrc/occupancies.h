// Forward-backward through one graph for chunks of utterances, as many side by side as a vector has lanes; the equations
// are those of las/hmm/occupancies.py.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "products.h"

// Emissions are factors, 0 where a pdf is not allowed, [chunks, frames, pdfs], occupancies alike. Places of the graph
// are its states, and behind them its junctions, which emit nothing. The arcs into place i are first_arc[i] to
// first_arc[i + 1]; those into a junction come from states. `order` lists the chunks, those of one length together.
template <class T>
struct Occupancies {
    int64_t chunks, frames, pdfs, states, junctions;
    const int64_t *num_frames, *order, *pdf, *first_arc, *source;
    const T *emissions, *weight, *initial;
    T *totals, *occupancies;
};

template <class T>
class OccupancyLanes {
  public:
    static constexpr int64_t LANES = WIDTH<T>;

    explicit OccupancyLanes(const Occupancies<T>& given)
        : g(given), size((g.states + g.junctions) * LANES), kept((g.frames / SEGMENT + 1) * size),
          segment(SEGMENT * size), arrived(size), next(size), emission(g.pdfs * LANES), found(g.pdfs * LANES),
          scales(g.frames * LANES) {}

    void run(int64_t first) {
        chunk = g.order + first;
        chunks = std::min(LANES, g.chunks - first);
        int64_t frames = 0;
        for (int64_t lane = 0; lane < LANES; ++lane) {
            lengths[lane] = lane < chunks ? g.num_frames[chunk[lane]] : 0;
            frames = std::max(frames, lengths[lane]);
        }
        double totals[LANES] = {};
        for (int64_t frame = 0; frame < frames; ++frame) {
            const Vector<T> sums = step(frame, forward(frame ? frame - 1 : 0), forward(frame));
            store(scales + frame * LANES, inverse(sums), Whole{});
            for (int64_t lane = 0; lane < chunks; ++lane) {
                if (frame < lengths[lane]) totals[lane] += std::log(double(sums[lane]));
            }
        }
        for (int64_t lane = 0; lane < chunks; ++lane) g.totals[chunk[lane]] = T(totals[lane]);
        Vector<T> scale = {};
        std::fill_n(static_cast<T*>(arrived), size, T(0));
        for (int64_t frame = frames; frame-- > 0;) {
            if (frame % SEGMENT == SEGMENT - 1 || frame == frames - 1) repeat(frame);
            read(frame);
            begin(frame, scale);
            back(frame);
            if (frame > 0) scale = pull(scale);
        }
    }

  private:
    // Forward variables are kept for one frame of so many, and computed again for those between.
    static constexpr int64_t SEGMENT = 16;

    // Where those of a frame are until the next frame is done: two frames by turns, between those that are kept.
    T* forward(int64_t frame) const {
        return frame % SEGMENT ? segment + frame % 2 * size : kept + frame / SEGMENT * size;
    }

    T* again(int64_t frame) const {
        return frame % SEGMENT ? segment + frame % SEGMENT * size : kept + frame / SEGMENT * size;
    }

    void repeat(int64_t last) const {
        for (int64_t frame = last / SEGMENT * SEGMENT + 1; frame <= last; ++frame) {
            step(frame, again(frame - 1), again(frame));
        }
    }

    // Of sums; 0 where no path is left.
    static Vector<T> inverse(Vector<T> sums) {
        for (int64_t lane = 0; lane < LANES; ++lane) sums[lane] = sums[lane] > 0 ? 1 / sums[lane] : T(0);
        return sums;
    }

    // Emissions of a frame, with the lanes of each pdf together; 0 behind the end of a chunk.
    void read(int64_t frame) const {
        for (int64_t lane = 0; lane < LANES; ++lane) {
            const bool inside = frame < lengths[lane];
            const T* row = g.emissions + (inside ? (chunk[lane] * g.frames + frame) * g.pdfs : 0);
            for (int64_t pdf = 0; pdf < g.pdfs; ++pdf) emission[pdf * LANES + lane] = inside ? row[pdf] : T(0);
        }
    }

    static Vector<T> at(const T* values, int64_t place) { return load(values + place * LANES, Whole{}); }

    // Forward variables of a frame from those of the frame before, which are made to sum to one; returns their sums.
    Vector<T> step(int64_t frame, T* last, T* now) const {
        read(frame);
        Vector<T> sums = {}, scale = Vector<T>{} + T(1);
        if (frame > 0) {
            scale = at(scales, frame - 1);
            for (int64_t place = g.states; place < g.states + g.junctions; ++place) {
                store(last + place * LANES, gathered(last, place), Whole{});
            }
        }
        for (int64_t state = 0; state < g.states; ++state) {
            const Vector<T> entered = frame > 0 ? gathered(last, state) : Vector<T>{} + g.initial[state];
            const Vector<T> values = entered * at(emission, g.pdf[state]) * scale;
            sums += values;
            store(now + state * LANES, values, Whole{});
        }
        return sums;
    }

    Vector<T> gathered(const T* from, int64_t place) const {
        Vector<T> sums = {};
        for (int64_t arc = g.first_arc[place]; arc < g.first_arc[place + 1]; ++arc) {
            sums += g.weight[arc] * at(from, g.source[arc]);
        }
        return sums;
    }

    // Backward variables of chunks that end with this frame: ones.
    void begin(int64_t frame, Vector<T>& scale) const {
        for (int64_t lane = 0; lane < LANES; ++lane) {
            if (frame + 1 != lengths[lane]) continue;
            for (int64_t state = 0; state < g.states; ++state) arrived[state * LANES + lane] = 1;
            scale[lane] = 1;
        }
    }

    // Occupancies of a frame, from its backward variables in `arrived`.
    void back(int64_t frame) const {
        const T* now = again(frame);
        std::fill_n(static_cast<T*>(found), g.pdfs * LANES, T(0));
        Vector<T> totals = {};
        for (int64_t state = 0; state < g.states; ++state) {
            const Vector<T> occupied = at(now, state) * at(arrived, state);
            totals += occupied;
            add(found + g.pdf[state] * LANES, occupied, Whole{});
        }
        totals = inverse(totals);
        for (int64_t lane = 0; lane < chunks; ++lane) {
            if (frame >= lengths[lane]) continue;
            T* row = g.occupancies + (chunk[lane] * g.frames + frame) * g.pdfs;
            for (int64_t pdf = 0; pdf < g.pdfs; ++pdf) row[pdf] = found[pdf * LANES + lane] * totals[lane];
        }
    }

    // Backward variables of the frame before, from `scale` times those of this frame and its emissions; returns the scale
    // of the next ones, which keeps them from becoming too small.
    Vector<T> pull(Vector<T> scale) {
        Vector<T> sums = {};
        std::fill_n(static_cast<T*>(next), size, T(0));
        for (int64_t state = 0; state < g.states; ++state) {
            const Vector<T> values = at(arrived, state) * at(emission, g.pdf[state]) * scale;
            sums += values;
            scatter(state, values);
        }
        for (int64_t place = g.states; place < g.states + g.junctions; ++place) scatter(place, at(next, place));
        std::swap(arrived, next);
        return inverse(sums);
    }

    void scatter(int64_t place, Vector<T> values) const {
        for (int64_t arc = g.first_arc[place]; arc < g.first_arc[place + 1]; ++arc) {
            add(next + g.source[arc] * LANES, g.weight[arc] * values, Whole{});
        }
    }

    const Occupancies<T>& g;
    const int64_t size;
    const int64_t* chunk = nullptr;
    int64_t chunks = 0, lengths[LANES] = {};
    Buffer<T> kept, segment, arrived, next, emission, found, scales;
};

template <class T>
void occupy(const Occupancies<T>& given, Team team) {
    constexpr int64_t lanes = OccupancyLanes<T>::LANES;
    const int groups = int((given.chunks + lanes - 1) / lanes);
    if (team.first(groups) == team.last(groups)) return;
    OccupancyLanes<T> run(given);
    for (int64_t group = team.first(groups); group < team.last(groups); ++group) run.run(group * lanes);
}
