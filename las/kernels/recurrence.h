// One direction of a layer: what it is given, its step for one row forwards and backwards, and its loops over frames.
// The mathematics is that of las/kernels/passes.py.
//
// Rows of tensors are packed: the true frames of a batch one after the other, row by row of the batch, padding left out.

#pragma once

#include <cmath>

#include "products.h"

enum GateNorm : int64_t { NO_NORM, APART, JOINED, PER_GATE };
enum CellNorm : int64_t { NONE, OUTPUT, STATE, BOTH };

// Rows of a batch whose gradients of parameters are summed together, whoever computes them: the order of summation, and
// with it every result, does not depend on the number of threads.
constexpr int GROUP = 8;
constexpr int64_t PART = 2 * GROUP;  // rows that go through the loops below together; enough for the speed of products

// Pointers are null for what a cell does not have or a caller does not want. H is `hidden`.
template <class T>
struct Direction {
    int64_t batch, frames, hidden, output_stride, reversed;
    GateNorm gate_norm;
    CellNorm cell_norm;
    double eps;
    const int64_t *order, *lengths, *starts;            // of the batch's rows, longest first; first packed rows
    const T *weight;                                    // U, [4H, H]
    const T *input_gain, *gain, *offset;                // [4H]; the offset comes after the norms
    const T *cell_gain, *cell_bias;                     // [H]
    const T *first_hidden, *first_cell;                 // [batch, H]
    const T *d_outputs, *d_last_hidden, *d_last_cell;   // as outputs and the last state
    const T *projected;                                 // W x, [packed, 4H]
    T *summed;                                          // U h, without norms apart W x + U h; [packed, 4H]
    T *hidden_before, *cell_before;                     // [packed, H]
    T *outputs;                                         // [batch, frames, H] with a stride of `output_stride`
    T *last_hidden, *last_cell;                         // [batch, H]
    T *d_projected, *d_summed;                          // [packed, 4H]; the loops below do not keep `d_summed`
    T *d_first_hidden, *d_first_cell;
    T *sums;                                            // for each part the gradient of U, then `Sums`; zeros at first
};

// Gradients of the other parameters, one after the other.
template <class T>
struct Sums {
    Sums(T* room, int64_t h)
        : input_gain(room), gain(room + 4 * h), offset(room + 8 * h), cell_gain(room + 12 * h),
          cell_bias(room + 13 * h) {}
    static int64_t size(int64_t h) { return 14 * h; }

    T *input_gain, *gain, *offset, *cell_gain, *cell_bias;
};

// A layer norm's statistics of one row: n = (z - mean) * scale.
template <class T>
struct Moments {
    T mean, scale;

    static Moments of(const T* values, int size, double eps) {
        const T mean = total<T>(size, [&](int j, auto n) { return load(values + j, n); }) / size;
        const T square = total<T>(size, [&](int j, auto n) {
            const Vector<T> centred = load(values + j, n) - mean;
            return centred * centred;
        });
        return {mean, 1 / std::sqrt(square / size + T(eps))};
    }

    template <class N>
    Vector<T> normalised(const T* values, N lanes) const {
        return (load(values, lanes) - mean) * scale;
    }

    // From the gradient of gain * n + bias to that of z; adds to those of the gain and, if wanted, of the bias.
    void backward(int size, const T* grads, const T* values, const T* gain, T* d_gain, T* d_bias, T* d_values) const {
        Vector<T> plain = {}, weighted = {};
        over<T>(size, [&](int j, auto n) {
            const Vector<T> grad = load(grads + j, n), value = normalised(values + j, n);
            const Vector<T> scaled = only<T>(grad * load(gain + j, n), n);
            plain += scaled;
            weighted += scaled * value;
            add(d_gain + j, grad * value, n);
            if (d_bias) add(d_bias + j, grad, n);
        });
        const T mean_plain = sum<T>(plain) / size, mean_weighted = sum<T>(weighted) / size;
        over<T>(size, [&](int j, auto n) {
            const Vector<T> scaled = load(grads + j, n) * load(gain + j, n);
            store(d_values + j, (scaled - mean_plain - normalised(values + j, n) * mean_weighted) * scale, n);
        });
    }
};

// One frame of one row. `compute` leaves everything that `backward` needs.
template <class T>
class Step {
  public:
    explicit Step(const Direction<T>& given)
        : d(given), size(int(given.hidden)), gates(4 * size), d_gates(4 * size), raw(size), normed(size), seen(size),
          slope(size) {}

    void compute(const T* projected, const T* summed, const T* cell) {
        before_activation(projected, summed);
        T *i = gates, *f = i + size, *g = f + size, *o = g + size;
        over<T>(2 * size, [&](int j, auto n) { store(i + j, sigmoid<T>(load(i + j, n)), n); });
        over<T>(size, [&](int j, auto n) {
            store(o + j, sigmoid<T>(load(o + j, n)), n);
            const Vector<T> candidate = hyperbolic_tangent<T>(load(g + j, n));
            store(g + j, candidate, n);
            store(raw + j, load(f + j, n) * load(cell + j, n) + load(i + j, n) * candidate, n);
        });
        if (d.cell_norm != NONE) {
            of_memory = Moments<T>::of(raw, size, d.eps);
            over<T>(size, [&](int j, auto n) {
                const Vector<T> value = of_memory.normalised(raw + j, n);
                store(normed + j, value * load(d.cell_gain + j, n) + load(d.cell_bias + j, n), n);
            });
        }
        const T* from = d.cell_norm == OUTPUT || d.cell_norm == BOTH ? normed : raw;
        over<T>(size, [&](int j, auto n) { store(seen + j, hyperbolic_tangent<T>(load(from + j, n)), n); });
    }

    void hidden(T* to) const {
        const T* o = gates + 3 * size;
        over<T>(size, [&](int j, auto n) { store(to + j, load(o + j, n) * load(seen + j, n), n); });
    }

    // The memory that goes to the next frame.
    const T* carried() const { return d.cell_norm == STATE || d.cell_norm == BOTH ? normed : raw; }

    // `d_cell` goes from the gradient of the memory after this frame to that of the memory before it.
    void backward(const T* projected, const T* summed, const T* cell, const T* d_hidden, T* d_cell, T* d_projected,
                  T* d_summed, const Sums<T>& sums) {
        const T *i = gates, *f = i + size, *g = f + size, *o = g + size;
        T *di = d_gates, *df = di + size, *dg = df + size, *d_o = dg + size;
        over<T>(size, [&](int j, auto n) {
            const Vector<T> s = load(seen + j, n), out = load(o + j, n), dh = load(d_hidden + j, n);
            store(slope + j, dh * out * (T(1) - s * s), n);
            store(d_o + j, dh * s * out * (T(1) - out), n);
        });
        backward_of_memory(d_cell, sums);
        over<T>(size, [&](int j, auto n) {
            const Vector<T> in = load(i + j, n), forget = load(f + j, n), candidate = load(g + j, n);
            const Vector<T> dc = load(d_cell + j, n);
            store(di + j, dc * candidate * in * (T(1) - in), n);
            store(df + j, dc * load(cell + j, n) * forget * (T(1) - forget), n);
            store(dg + j, dc * in * (T(1) - candidate * candidate), n);
            store(d_cell + j, dc * forget, n);
        });
        backward_of_norms(projected, summed, d_projected, d_summed, sums);
    }

  private:
    int norms() const { return d.gate_norm == NO_NORM ? 0 : d.gate_norm == PER_GATE ? 4 : 1; }

    void before_activation(const T* projected, const T* summed) {
        if (d.gate_norm == NO_NORM) {
            over<T>(4 * size, [&](int j, auto n) { store(gates + j, load(summed + j, n) + load(d.offset + j, n), n); });
        }
        const int width = 4 * size / std::max(norms(), 1);
        for (int k = 0; k < norms(); ++k) {
            const int first = k * width;
            of_gates[k] = Moments<T>::of(summed + first, width, d.eps);
            over<T>(width, [&](int start, auto n) {
                const int j = first + start;
                const Vector<T> value = of_gates[k].normalised(summed + j, n);
                store(gates + j, value * load(d.gain + j, n) + load(d.offset + j, n), n);
            });
        }
        if (d.gate_norm == APART && d.input_gain) {
            of_input = Moments<T>::of(projected, 4 * size, d.eps);
            over<T>(4 * size, [&](int j, auto n) {
                add(gates + j, of_input.normalised(projected + j, n) * load(d.input_gain + j, n), n);
            });
        } else if (d.gate_norm == APART) {
            over<T>(4 * size, [&](int j, auto n) { add(gates + j, load(projected + j, n), n); });
        }
    }

    // Turns `d_cell` from the gradient of the carried memory into that of `raw`.
    void backward_of_memory(T* d_cell, const Sums<T>& sums) {
        if (d.cell_norm == NONE) {
            over<T>(size, [&](int j, auto n) { add(d_cell + j, load(slope + j, n), n); });
            return;
        }
        // `through` the norm goes what reached its result, `beside` it what reached `raw` directly.
        T *through = slope, *beside = d_cell;
        if (d.cell_norm == STATE) std::swap(through, beside);
        if (d.cell_norm == BOTH) over<T>(size, [&](int j, auto n) { add(through + j, load(beside + j, n), n); });
        of_memory.backward(size, through, raw, d.cell_gain, sums.cell_gain, sums.cell_bias, through);
        over<T>(size, [&](int j, auto n) {
            const Vector<T> value = load(through + j, n);
            store(d_cell + j, d.cell_norm == BOTH ? value : value + load(beside + j, n), n);
        });
    }

    void backward_of_norms(const T* projected, const T* summed, T* d_projected, T* d_summed, const Sums<T>& sums) {
        if (d.gate_norm == NO_NORM) {
            over<T>(4 * size, [&](int j, auto n) {
                const Vector<T> grad = load(d_gates + j, n);
                store(d_summed + j, grad, n);
                add(sums.offset + j, grad, n);
            });
        }
        const int width = 4 * size / std::max(norms(), 1);
        for (int k = 0; k < norms(); ++k) {
            const int j = k * width;
            of_gates[k].backward(width, d_gates + j, summed + j, d.gain + j, sums.gain + j, sums.offset + j,
                                 d_summed + j);
        }
        if (d.gate_norm == APART && d.input_gain) {
            of_input.backward(4 * size, d_gates, projected, d.input_gain, sums.input_gain, nullptr, d_projected);
        } else {
            std::copy_n(d.gate_norm == APART ? static_cast<const T*>(d_gates) : d_summed, 4 * size, d_projected);
        }
    }

    const Direction<T>& d;
    const int size;
    Buffer<T> gates, d_gates, raw, normed, seen, slope;
    Moments<T> of_gates[4], of_input, of_memory;
};

// The loops over frames for the batch's rows from `first` to `last`, longest first. Their states lie close together
// here, with strides that are no powers of two: rows would displace each other in the cache.
template <class T>
class Loop {
  public:
    Loop(const Direction<T>& given, const Panels<T>& weight, int64_t first, int64_t last)
        : d(given), weight(weight), first(first), rows(last - first), size(given.hidden),
          stride(padded(size, PANEL<T>) + PANEL<T>), wide(padded(4 * size, PANEL<T>) + PANEL<T>), step(given),
          hidden(rows * stride), cell(rows * stride) {}

    void forward() {
        Buffer<T> summed(rows * wide);
        gather(d.first_hidden, hidden);
        gather(d.first_cell, cell);
        for (int64_t frame = 0, living = rows; (living = living_at(frame, living)) > 0; ++frame) {
            weight.multiply(living, hidden, stride, summed, wide);
            for (int64_t row = 0; row < living; ++row) forward_row(row, frame, summed + row * wide);
        }
        scatter(hidden, d.last_hidden);
        scatter(cell, d.last_cell);
        for (int64_t row = 0; row < rows; ++row) {
            for (int64_t frame = d.lengths[first + row]; frame < d.frames; ++frame) {
                std::fill_n(d.outputs + padded_row(row, frame) * d.output_stride, size, T(0));
            }
        }
    }

    // Adds to the sums of a part, the gradient of U and those of the other parameters.
    void backward(T* d_weight, T* totals) {
        // Both are added up for as many frames at once as there is room for: one product, and smaller errors.
        Buffer<T> d_summed(MAX_INNER * wide), sums(Sums<T>::size(size));
        std::fill_n(static_cast<T*>(sums), Sums<T>::size(size), T(0));
        Panels<T> before(MAX_INNER, size);
        int64_t filled = 0;
        gather(d.d_last_hidden, hidden);
        gather(d.d_last_cell, cell);
        for (int64_t frame = rows ? d.lengths[first] : 0; frame-- > 0;) {
            const int64_t living = living_at(frame, rows);
            if (filled + living > MAX_INNER) {
                before.add_product(filled, d_summed, wide, 4 * size, d_weight);
                move(sums, totals);
                filled = 0;
            }
            T* found = d_summed + filled * wide;
            for (int64_t row = 0; row < living; ++row) {
                before.set_row(filled++, d.hidden_before + packed_row(row, frame) * size);
                backward_row(row, frame, found + row * wide, Sums<T>(sums, size));
            }
            weight.multiply(living, found, wide, hidden, stride);
        }
        before.add_product(filled, d_summed, wide, 4 * size, d_weight);
        move(sums, totals);
        scatter(hidden, d.d_first_hidden);
        scatter(cell, d.d_first_cell);
    }

  private:
    void move(T* sums, T* totals) const {
        over<T>(int(Sums<T>::size(size)), [&](int j, auto n) {
            add(totals + j, load(sums + j, n), n);
            store(sums + j, Vector<T>{}, n);
        });
    }

    // How many rows have this frame, at most `living`.
    int64_t living_at(int64_t frame, int64_t living) const {
        while (living && d.lengths[first + living - 1] <= frame) --living;
        return living;
    }

    // Where this direction is in its row of the batch after `frame` steps.
    int64_t position(int64_t row, int64_t frame) const {
        return d.reversed ? d.lengths[first + row] - 1 - frame : frame;
    }

    int64_t packed_row(int64_t row, int64_t frame) const { return d.starts[first + row] + position(row, frame); }
    int64_t padded_row(int64_t row, int64_t place) const { return d.order[first + row] * d.frames + place; }

    void forward_row(int64_t row, int64_t frame, T* summed) {
        const int64_t packed = packed_row(row, frame);
        const T* projected = d.projected + packed * 4 * size;
        T *h = hidden + row * stride, *c = cell + row * stride;
        if (d.gate_norm != APART) {
            over<T>(4 * size, [&](int j, auto n) { add(summed + j, load(projected + j, n), n); });
        }
        if (d.summed) {
            std::copy_n(summed, 4 * size, d.summed + packed * 4 * size);
            std::copy_n(h, size, d.hidden_before + packed * size);
            std::copy_n(c, size, d.cell_before + packed * size);
        }
        step.compute(projected, summed, c);
        step.hidden(h);
        std::copy_n(step.carried(), size, c);
        std::copy_n(h, size, d.outputs + padded_row(row, position(row, frame)) * d.output_stride);
    }

    void backward_row(int64_t row, int64_t frame, T* d_summed, const Sums<T>& sums) {
        const int64_t packed = packed_row(row, frame);
        const T *projected = d.projected + packed * 4 * size, *summed = d.summed + packed * 4 * size;
        const T* before = d.cell_before + packed * size;
        const T* d_output = d.d_outputs + padded_row(row, position(row, frame)) * d.output_stride;
        T *d_hidden = hidden + row * stride, *d_projected = d.d_projected + packed * 4 * size;
        over<T>(size, [&](int j, auto n) { add(d_hidden + j, load(d_output + j, n), n); });
        step.compute(projected, summed, before);
        step.backward(projected, summed, before, d_hidden, cell + row * stride, d_projected, d_summed, sums);
    }

    void gather(const T* from, T* to) const {
        for (int64_t row = 0; row < rows; ++row) {
            if (from) {
                std::copy_n(from + d.order[first + row] * size, size, to + row * stride);
            } else {
                std::fill_n(to + row * stride, size, T(0));
            }
        }
    }

    void scatter(const T* from, T* to) const {
        if (!to) return;
        for (int64_t row = 0; row < rows; ++row) {
            std::copy_n(from + row * stride, size, to + d.order[first + row] * size);
        }
    }

    const Direction<T>& d;
    const Panels<T>& weight;
    const int64_t first, rows, size, stride, wide;
    Step<T> step;
    Buffer<T> hidden, cell;
};
