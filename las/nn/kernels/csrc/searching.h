// One step of a search: cells, query, attention and output layers of all beams of all utterances, from and to states that
// lie anywhere. The mathematics is that of `Speller.step`, without dropout.

#pragma once

#include <cmath>
#include <limits>

#include "spelling.h"

// The layers that give the distribution of the next token. `pooled` values of the first are reduced to one: two by their
// greater one (maxout), one by tanh.
template <class T>
struct Readout {
    int64_t below, width, pooled, vocab;
    int64_t reads_token;  // whether its inputs are [h; embedding; context] or [h; context]
    const T *weight, *bias, *output_weight, *output_bias;  // [width, below], [vocab, width / pooled]
    T* log_probs;                                          // [rows, vocab]
};

// Rows are beams, those of an utterance one after the other; there are attended.steps of each. Of a cell, `projected` is
// what is added to W x in every row, and first and last states are those before and after the step.
template <class T>
struct Search {
    Speller<T> speller;
    Readout<T> readout;
    int64_t embedding_size;
    const int64_t* tokens;        // before this step, [rows]
    const T *embedding;           // [vocab, E]
    const T *contexts, *weights;  // of the step before, [rows, V] and [rows, S]; of FEEDBACK: accumulated weights
    const int64_t* utterances;    // whose states the rows attend to, [attended.batch]; null for all of them in order
};

template <class T, class Make>
class SearchStep {
  public:
    // The weights are the same at all steps.
    SearchStep(const Search<T>& search, Make make, int64_t threads)
        : weights(search.speller, make, true, threads),
          hidden(of(search.readout.weight, search.readout.below, search.readout.width, make, threads)),
          output(of(search.readout.output_weight, search.readout.width / search.readout.pooled, search.readout.vocab,
                    make, threads)) {}

    // What the threads of a step share.
    struct Room {
        Room(const Search<T>& search, int64_t rows)
            : deep(Held<T>::spread(search.speller.cells[0].below)), wide(widest(search.speller)), below(rows * deep),
              projected(rows * wide), summed(rows * wide), reading(Held<T>::spread(search.readout.below)),
              read(Held<T>::spread(search.readout.width)), inputs(rows * reading), readouts(rows * read) {}

        const int64_t deep, wide;
        Buffer<T> below, projected, summed;
        const int64_t reading, read;
        Buffer<T> inputs, readouts;

      private:
        static int64_t widest(const Speller<T>& s) {
            int64_t size = 0;
            for (int64_t number = 0; number < s.count; ++number) size = std::max(size, s.cells[number].cell.hidden);
            return Held<T>::spread(4 * size);
        }
    };

    void run(const Search<T>& search, const Room& room, Team team) const {
        const Speller<T>& s = search.speller;
        const Attended<T>& a = s.attended;
        const int rows = int(a.batch * a.steps), first = team.first(rows), last = team.last(rows);
        for (int row = first; row < last; ++row) gather(search, row, room.below + row * room.deep);
        team.wait();
        const T* below = room.below;
        int64_t stride = room.deep;
        for (int64_t number = 0; number < s.count; ++number) {
            const Stepped<T>& cell = s.cells[number];
            const int64_t size = cell.cell.hidden;
            weights.input[number]->multiply(rows, below, stride, room.projected, room.wide, team);
            weights.recurrent[number]->multiply(rows, cell.cell.first_hidden, size, room.summed, room.wide, team);
            team.wait();
            Step<T> step(cell.cell);
            for (int row = first; row < last; ++row) compute(cell, room, row, step);
            team.wait();
            below = cell.cell.last_hidden;
            stride = size;
        }
        weights.query->multiply(rows, below, stride, a.queries, a.key_size, team);
        team.wait();
        Attention<T> attention(a);
        for (int row = first; row < last; ++row) {
            const int64_t place = row / a.steps, utterance = search.utterances ? search.utterances[place] : place;
            attention.answer(utterance, a.queries + row * a.key_size, search.weights + row * a.states,
                             a.weights + row * a.states, a.contexts + row * a.value_size);
            gather_read(search, row, below + row * stride, room.inputs + row * room.reading);
        }
        team.wait();
        hidden->multiply(rows, room.inputs, room.reading, room.readouts, room.read, team);
        team.wait();
        const Readout<T>& r = search.readout;
        for (int row = first; row < last; ++row) activate(r, room.readouts + row * room.read);
        team.wait();
        output->multiply(rows, room.readouts, room.read, r.log_probs, r.vocab, team);
        team.wait();
        for (int row = first; row < last; ++row) log_softmax(r, r.log_probs + row * r.vocab);
    }

  private:
    using Weight = typename Multiplied<T, Make>::Weight;

    static std::shared_ptr<const Weight> of(const T* weight, int64_t below, int64_t width, Make make, int64_t threads) {
        return panels_of(Matrix<T>{weight, 1, below}, int(below), int(width), make, threads);
    }

    // The input of the readout layer.
    static void gather_read(const Search<T>& search, int64_t row, const T* state, T* to) {
        const Speller<T>& s = search.speller;
        const int64_t size = s.cells[s.count - 1].cell.hidden, values = s.attended.value_size;
        to = std::copy_n(state, size, to);
        if (search.readout.reads_token) {
            const T* token = search.embedding + search.tokens[row] * search.embedding_size;
            to = std::copy_n(token, search.embedding_size, to);
        }
        std::copy_n(s.attended.contexts + row * values, values, to);
    }

    static void activate(const Readout<T>& r, T* values) {
        over<T>(int(r.width), [&](int j, auto n) { add(values + j, load(r.bias + j, n), n); });
        if (r.pooled == 1) {
            hyperbolic_tangents(int(r.width), values, T(1));
        } else {
            for (int64_t j = 0; j < r.width / 2; ++j) {
                const T one = values[2 * j], other = values[2 * j + 1];
                values[j] = one > other || one != one ? one : other;  // NaN if one of them is
            }
        }
    }

    static void log_softmax(const Readout<T>& r, T* values) {
        T top = -std::numeric_limits<T>::infinity();
        for (int64_t c = 0; c < r.vocab; ++c) {
            values[c] += r.output_bias[c];
            top = std::max(top, values[c]);
        }
        const T sum = total<T>(int(r.vocab), [&](int j, auto n) {
            const Exponential<T> e(load(values + j, n) - top);
            return e.power + e.fraction;
        });
        const T offset = top + std::log(sum);
        for (int64_t c = 0; c < r.vocab; ++c) values[c] -= offset;
    }
    // The input of the first cell.
    static void gather(const Search<T>& search, int64_t row, T* to) {
        const int64_t size = search.embedding_size, values = search.speller.attended.value_size;
        std::copy_n(search.embedding + search.tokens[row] * size, size, to);
        std::copy_n(search.contexts + row * values, values, to + size);
    }

    static void compute(const Stepped<T>& cell, const Room& room, int64_t row, Step<T>& step) {
        const Direction<T>& d = cell.cell;
        const int64_t size = d.hidden;
        T *projected = room.projected + row * room.wide, *summed = room.summed + row * room.wide;
        over<T>(int(4 * size), [&](int j, auto n) {
            const Vector<T> known = load(projected + j, n) + load(cell.projected + j, n);
            store(projected + j, known, n);
            if (d.gate_norm != APART) add(summed + j, known, n);
        });
        step.squash(projected, summed);
        step.compute(projected, summed, d.first_cell + row * size);
        step.hidden(d.last_hidden + row * size);
        std::copy_n(step.carried(), size, d.last_cell + row * size);
    }

    const Multiplied<T, Make> weights;
    const std::shared_ptr<const Weight> hidden, output;
};
