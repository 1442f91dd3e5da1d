// A teacher-forced pass of the speller: cells and attention step by step, each share of the batch by itself.
// The mathematics is that of the plain loop in las/nn/speller.py, with its derivative. Tensors are [batch, steps, ...].

#pragma once

#include <vector>

#include "attending.h"
#include "prepacked.h"
#include "recurrence.h"

// A cell and its input side. Of `cell` neither the rows' order and lengths nor the first state are used: every row has
// all steps and starts at zero.
template <class T>
struct Stepped {
    Direction<T> cell;
    int64_t below;                 // size of the input
    const T *input_weight, *mask;  // W [4H, below]; factors of h on its way up, [B, U, H] or null
    T *projected;                  // starts as what is known of W x; the same as `cell.projected`
    T *inputs;                     // [B, U, below]; null for the first cell, whose inputs are the contexts
};

template <class T>
struct Speller {
    int64_t count;  // of cells, the one that asks the attention last
    Stepped<T>* cells;
    Attended<T> attended;
    T* sums;  // gradients of parameters: of each cell as in `Sums`, then as in `Attended::sums`

    int64_t sums_size() const {
        int64_t size = attended.sums();
        for (int64_t number = 0; number < count; ++number) size += Sums<T>::size(cells[number].cell.hidden);
        return size;
    }
};

// The weights of the cells and of the query as one direction of the pass multiplies by them; make(inner, columns) makes
// empty panels.
template <class T, class Make>
class Multiplied {
  public:
    using Weight = decltype(std::declval<Make>()(0, 0));

    Multiplied(const Speller<T>& s, Make make, bool forwards, int64_t threads) {
        // Forwards, rows are multiplied by the transposed weight.
        const auto of = [=](const T* weight, int rows, int columns) {
            const Matrix<T> given{weight, columns, 1};
            return forwards ? panels_of(given.transposed(), columns, rows, make, threads)
                            : panels_of(given, rows, columns, make, threads);
        };
        for (int64_t number = 0; number < s.count; ++number) {
            const Stepped<T>& cell = s.cells[number];
            const int hidden = int(cell.cell.hidden);
            input.push_back(of(cell.input_weight, 4 * hidden, int(cell.below)));
            recurrent.push_back(of(cell.cell.weight, 4 * hidden, hidden));
        }
        query = of(s.attended.query, int(s.attended.key_size), int(s.cells[s.count - 1].cell.hidden));
    }

    std::vector<std::shared_ptr<const Weight>> input, recurrent;
    std::shared_ptr<const Weight> query;
};

// The state of one cell in the rows of a share, forwards, or its gradients, backwards. Strides as in `Loop`.
template <class T>
struct Held {
    Held(const Stepped<T>& given, int64_t rows)
        : stride(spread(given.cell.hidden)), wide(spread(4 * given.cell.hidden)), deep(spread(given.below)),
          step(given.cell), hidden(rows * stride), cell(rows * stride), gates(rows * wide), below(rows * deep) {
        std::fill_n(static_cast<T*>(hidden), rows * stride, T(0));
        std::fill_n(static_cast<T*>(cell), rows * stride, T(0));
    }
    static int64_t spread(int64_t size) { return padded(size, PANEL<T>) + PANEL<T>; }

    const int64_t stride, wide, deep;
    Step<T> step;
    Buffer<T> hidden, cell, gates, below;
};

// The rows of the batch from `first` to `last`. `forward` is called for each step, or `backward` for each from the last.
template <class T, class Make>
class Share {
  public:
    Share(const Speller<T>& given, const Multiplied<T, Make>& weights, int64_t first, int64_t last)
        : s(given), a(given.attended), weights(weights), first(first), rows(int(last - first)), attention(given.attended) {
        for (int64_t number = 0; number < s.count; ++number) {
            held.push_back(std::make_unique<Held<T>>(s.cells[number], rows));
        }
    }

    void forward(int64_t step) {
        for (int64_t number = 0; number < s.count; ++number) {
            Held<T>& own = *held[number];
            for (int row = 0; row < rows; ++row) gather_below(number, row, step);
            weights.input[number]->multiply(rows, own.below, own.deep, own.gates, own.wide);
            for (int row = 0; row < rows; ++row) project(number, row, step);
            weights.recurrent[number]->multiply(rows, own.hidden, own.stride, own.gates, own.wide);
            for (int row = 0; row < rows; ++row) forward_row(number, row, step);
        }
        const Held<T>& last = *held.back();
        T* queries = a.queries + packed(0, step) * a.key_size;
        weights.query->multiply(rows, last.hidden, last.stride, queries, a.steps * a.key_size);
        for (int row = 0; row < rows; ++row) attention.forward(first + row, step);
    }

    // `sums` has room for those of every group of the batch.
    void backward(int64_t step, T* sums) {
        const int64_t size = s.sums_size();
        for (int row = 0; row < rows; ++row) {
            attention.backward(first + row, step, sums + ((first + row) / GROUP + 1) * size - a.sums());
        }
        Buffer<T> above(rows * widest());  // what reaches h of a cell from above, then what it passes down
        const T* d_queries = a.d_queries + packed(0, step) * a.key_size;
        weights.query->multiply(rows, d_queries, a.steps * a.key_size, above, widest());
        int64_t offset = size - a.sums();
        for (int64_t number = s.count; number-- > 0;) {
            Held<T>& own = *held[number];
            const Direction<T>& d = s.cells[number].cell;
            offset -= Sums<T>::size(d.hidden);
            for (int row = 0; row < rows; ++row) {
                T* of_group = sums + (first + row) / GROUP * size + offset;
                backward_row(number, row, step, above + row * widest(), Sums<T>(of_group, d.hidden));
            }
            const bool apart = d.gate_norm == APART;
            const T* d_input = apart ? d.d_projected + packed(0, step) * 4 * d.hidden : own.gates;
            weights.input[number]->multiply(rows, d_input, apart ? a.steps * 4 * d.hidden : own.wide, above, widest());
            weights.recurrent[number]->multiply(rows, own.gates, own.wide, own.hidden, own.stride);
        }
        for (int row = 0; row < rows; ++row) {
            T* d_context = a.d_contexts + ((first + row) * (a.steps + 1) + step) * a.value_size;
            const T* found = above + row * widest();
            over<T>(int(a.value_size), [&](int v, auto n) { add(d_context + v, load(found + v, n), n); });
        }
    }

  private:
    int64_t packed(int row, int64_t step) const { return (first + row) * a.steps + step; }

    int64_t widest() const {
        int64_t size = s.cells[s.count - 1].cell.hidden;
        for (int64_t number = 0; number < s.count; ++number) size = std::max(size, s.cells[number].below);
        return Held<T>::spread(size);
    }

    // h of a cell, or a gradient of it, on its way up.
    template <class N>
    Vector<T> masked(int64_t number, int row, int64_t step, int j, Vector<T> values, N lanes) const {
        const Stepped<T>& given = s.cells[number];
        return given.mask ? values * load(given.mask + packed(row, step) * given.cell.hidden + j, lanes) : values;
    }

    void gather_below(int64_t number, int row, int64_t step) {
        const int size = int(s.cells[number].below);
        T* below = held[number]->below + row * held[number]->deep;
        if (!number) {
            std::copy_n(a.contexts + ((first + row) * (a.steps + 1) + step) * size, size, below);
            return;
        }
        const T* hidden = held[number - 1]->hidden + row * held[number - 1]->stride;
        T* inputs = s.cells[number].inputs + packed(row, step) * size;
        over<T>(size, [&](int j, auto n) {
            const Vector<T> value = masked(number - 1, row, step, j, load(hidden + j, n), n);
            store(below + j, value, n);
            store(inputs + j, value, n);
        });
    }

    void project(int64_t number, int row, int64_t step) {
        const int width = int(4 * s.cells[number].cell.hidden);
        T* projected = s.cells[number].projected + packed(row, step) * width;
        const T* gates = held[number]->gates + row * held[number]->wide;
        over<T>(width, [&](int j, auto n) { add(projected + j, load(gates + j, n), n); });
    }

    void forward_row(int64_t number, int row, int64_t step) {
        Held<T>& own = *held[number];
        const Direction<T>& d = s.cells[number].cell;
        const int64_t size = d.hidden, place = packed(row, step);
        T* projected = d.projected + place * 4 * size;
        T *summed = own.gates + row * own.wide, *h = own.hidden + row * own.stride, *c = own.cell + row * own.stride;
        if (d.gate_norm != APART) {
            over<T>(int(4 * size), [&](int j, auto n) { add(summed + j, load(projected + j, n), n); });
        }
        own.step.squash(projected, summed);
        if (d.summed) {
            std::copy_n(summed, 4 * size, d.summed + place * 4 * size);
            std::copy_n(h, size, d.hidden_before + place * size);
            std::copy_n(c, size, d.cell_before + place * size);
        }
        own.step.compute(projected, summed, c);
        own.step.hidden(h);
        std::copy_n(own.step.carried(), size, c);
        if (d.outputs) std::copy_n(h, size, d.outputs + place * size);
    }

    void backward_row(int64_t number, int row, int64_t step, const T* above, Sums<T> sums) {
        Held<T>& own = *held[number];
        const Direction<T>& d = s.cells[number].cell;
        const int64_t size = d.hidden, place = packed(row, step);
        const T *projected = d.projected + place * 4 * size, *summed = d.summed + place * 4 * size;
        const T* before = d.cell_before + place * size;
        T *d_hidden = own.hidden + row * own.stride, *d_sum = own.gates + row * own.wide;
        over<T>(int(size), [&](int j, auto n) {
            add(d_hidden + j, masked(number, row, step, j, load(above + j, n), n), n);
            if (d.d_outputs) add(d_hidden + j, load(d.d_outputs + place * size + j, n), n);
        });
        own.step.compute(projected, summed, before);
        T* d_projected = d.d_projected + place * 4 * size;
        own.step.backward(projected, summed, before, d_hidden, own.cell + row * own.stride, d_projected, d_sum, sums);
        std::copy_n(d_sum, 4 * size, d.d_summed + place * 4 * size);
    }

    const Speller<T>& s;
    const Attended<T>& a;
    const Multiplied<T, Make>& weights;
    const int64_t first;
    const int rows;
    Attention<T> attention;
    std::vector<std::unique_ptr<Held<T>>> held;
};

// Called before each step but the first, once the step before is done in all rows: it may replace what is known of this
// one. Anything but 0 ends the pass.
using Feed = int (*)(int64_t step);

template <class T, class Make>
class Spelling {
  public:
    Spelling(const Speller<T>& given, int64_t threads, Make make)
        : s(given), make(make), groups((given.attended.batch + GROUP - 1) / GROUP),
          parts(std::clamp<int64_t>(threads, 1, std::max<int64_t>(groups, 1))), threads(threads) {}

    void forward(Feed feed) const {
        const Multiplied<T, Make> weights(s, make, true, threads);
        if (!feed) {
            each_part([&](int64_t, int64_t first, int64_t last) {
                Share<T, Make> share(s, weights, first, last);
                for (int64_t step = 0; step < s.attended.steps; ++step) share.forward(step);
            });
            return;
        }
        std::vector<std::unique_ptr<Share<T, Make>>> shares(parts);
        for (int64_t step = 0; step < s.attended.steps; ++step) {
            if (step && feed(step)) return;
            each_part([&](int64_t part, int64_t first, int64_t last) {
                if (!step) shares[part] = std::make_unique<Share<T, Make>>(s, weights, first, last);
                shares[part]->forward(step);
            });
        }
    }

    void backward() const {
        const Multiplied<T, Make> weights(s, make, false, threads);
        const int64_t size = s.sums_size();
        Buffer<T> sums(groups * size);
        std::fill_n(static_cast<T*>(sums), groups * size, T(0));
        each_part([&](int64_t, int64_t first, int64_t last) {
            Share<T, Make> share(s, weights, first, last);
            for (int64_t step = s.attended.steps; step-- > 0;) share.backward(step, sums);
        });
        std::fill_n(s.sums, size, T(0));
        for (int64_t group = 0; group < groups; ++group) {
            for (int64_t j = 0; j < size; ++j) s.sums[j] += sums[group * size + j];
        }
    }

  private:
    template <class Body>
    void each_part(Body body) const {
#pragma omp parallel for num_threads(threads) schedule(static, 1)
        for (int64_t part = 0; part < parts; ++part) {
            const int64_t first = groups * part / parts * GROUP, last = groups * (part + 1) / parts * GROUP;
            body(part, first, std::min(last, s.attended.batch));
        }
    }

    const Speller<T>& s;
    const Make make;
    const int64_t groups, parts, threads;
};
