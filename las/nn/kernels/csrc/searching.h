// One step of a search: cells, query and attention of all beams of all utterances, from and to states that lie anywhere.
// The mathematics is that of `Speller.decode_step`, without dropout.

#pragma once

#include "spelling.h"

// Rows are beams, those of an utterance one after the other; there are attended.steps of each. Of a cell, `projected` is
// what is added to W x in every row, and first and last states are those before and after the step.
template <class T>
struct Search {
    Speller<T> speller;
    int64_t embedding_size;
    const int64_t* tokens;        // before this step, [rows]
    const T *embedding;           // [vocab, E]
    const T *contexts, *weights;  // of the step before, [rows, V] and [rows, S]; of FEEDBACK: accumulated weights
};

template <class T, class Make>
class SearchStep {
  public:
    // Copies the weights: they are the same at all steps.
    SearchStep(const Search<T>& search, Make make) : weights(search.speller, make, true) {}

    // What the threads of a step share.
    struct Room {
        explicit Room(const Search<T>& search)
            : rows(int(search.speller.attended.batch * search.speller.attended.steps)),
              deep(Held<T>::spread(search.speller.cells[0].below)), wide(widest(search.speller)), below(rows * deep),
              projected(rows * wide), summed(rows * wide) {}

        const int rows;
        const int64_t deep, wide;
        Buffer<T> below, projected, summed;

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
        const int first = team.first(room.rows), last = team.last(room.rows);
        for (int row = first; row < last; ++row) gather(search, row, room.below + row * room.deep);
        team.wait();
        const T* below = room.below;
        int64_t stride = room.deep;
        for (int64_t number = 0; number < s.count; ++number) {
            const Stepped<T>& cell = s.cells[number];
            const int64_t size = cell.cell.hidden;
            weights.input[number]->multiply(room.rows, below, stride, room.projected, room.wide, team);
            weights.recurrent[number]->multiply(room.rows, cell.cell.first_hidden, size, room.summed, room.wide, team);
            team.wait();
            Step<T> step(cell.cell);
            for (int row = first; row < last; ++row) compute(cell, room, row, step);
            team.wait();
            below = cell.cell.last_hidden;
            stride = size;
        }
        weights.query->multiply(room.rows, below, stride, a.queries, a.key_size, team);
        team.wait();
        Attention<T> attention(a);
        for (int row = first; row < last; ++row) {
            attention.answer(row / a.steps, a.queries + row * a.key_size, search.weights + row * a.states,
                             a.weights + row * a.states, a.contexts + row * a.value_size);
        }
    }

  private:
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
        step.compute(projected, summed, d.first_cell + row * size);
        step.hidden(d.last_hidden + row * size);
        std::copy_n(step.carried(), size, d.last_cell + row * size);
    }

    const Multiplied<T, Make> weights;
};
