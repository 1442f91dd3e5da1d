// One direction of a layer: what it is given, and one step of one row forwards and backwards.
// The mathematics is that of `unroll` (las/nn/kernels/base.py) and of the cells in las/nn/cells, with its derivative.
//
// Rows of tensors are packed: the true frames of a batch one after the other, row by row of the batch, padding left out.

#pragma once

#include <cmath>

#include "products.h"

enum GateNorm : int64_t { NO_NORM, APART, JOINED, PER_GATE };
enum CellNorm : int64_t { NONE, OUTPUT, STATE, BOTH };
enum Norm : int64_t { LAYER, RMS, TANH, IDENTITY };

// Rows of a batch whose gradients of parameters are summed together, independent of the thread: the order of summation,
// and with it every result, does not depend on the number of threads.
constexpr int GROUP = 8;

// Pointers are null for what a cell does not have or a caller does not want. H is `hidden`.
template <class T>
struct Direction {
    int64_t batch, frames, hidden, output_stride, reversed;
    GateNorm gate_norm;
    CellNorm cell_norm;
    Norm norm;
    int64_t left_out;                                   // bits of the parts of `gate_norm` that have no norm
    double eps;
    const int64_t *order, *lengths, *starts;            // of the batch's rows, longest first; first packed rows
    const T *weight;                                    // U, [4H, H]
    const T *input_gain, *gain, *offset;                // [4H]; the offset comes after the norms
    const T *cell_gain, *cell_bias;                     // [H]
    const T *input_scale, *scale;                       // of dynamic tanh, one number each; 1 if null
    const T *first_hidden, *first_cell;                 // [batch, H]
    const T *d_outputs, *d_last_hidden, *d_last_cell;   // as outputs and the last state
    T *projected;                                       // W x, [packed, 4H]
    T *summed;                                          // U h; W x + U h, which may replace W x, without norms apart
    T *hidden_before, *cell_before;                     // [packed, H]
    T *outputs;                                         // [batch, frames, H] with a stride of `output_stride`
    T *last_hidden, *last_cell;                         // [batch, H]
    T *d_projected, *d_summed;                          // [packed, 4H]; the second where it differs
    T *d_first_hidden, *d_first_cell;
    T *sums;                                            // for each part of loops.h, zeros at first
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

// A norm's statistics of one row: n = (z - mean) * scale. Where the norm is tanh(slope z), z is n already (`squash`).
template <class T>
struct Moments {
    T mean, scale;
    Norm norm;
    T slope = 1;

    static Moments of(Norm norm, const T* values, int size, double eps, const T* slope = nullptr) {
        if (norm == TANH || norm == IDENTITY) return {0, 1, norm, slope ? *slope : 1};
        const T mean =
            norm == RMS ? 0 : total<T>(size, [&](int j, auto n) { return load(values + j, n); }) / size;
        const T square = total<T>(size, [&](int j, auto n) {
            const Vector<T> centred = load(values + j, n) - mean;
            return centred * centred;
        });
        return {mean, 1 / std::sqrt(square / size + T(eps)), norm};
    }

    template <class N>
    Vector<T> normalised(const T* values, N lanes) const {
        return (load(values, lanes) - mean) * scale;
    }

    // From the gradient of gain * n + bias to that of z; adds to those of the gain and, if wanted, of the bias.
    void backward(int size, const T* grads, const T* values, const T* gain, T* d_gain, T* d_bias, T* d_values) const {
        if (norm == TANH || norm == IDENTITY) {
            over<T>(size, [&](int j, auto n) {
                const Vector<T> grad = load(grads + j, n), value = normalised(values + j, n);
                const Vector<T> scaled = grad * load(gain + j, n);
                add(d_gain + j, grad * value, n);
                if (d_bias) add(d_bias + j, grad, n);
                store(d_values + j, norm == TANH ? scaled * (T(1) - value * value) * slope : scaled, n);
            });
            return;
        }
        Vector<T> plain = {}, weighted = {};
        over<T>(size, [&](int j, auto n) {
            const Vector<T> grad = load(grads + j, n), value = normalised(values + j, n);
            const Vector<T> scaled = only<T>(grad * load(gain + j, n), n);
            plain += scaled;
            weighted += scaled * value;
            add(d_gain + j, grad * value, n);
            if (d_bias) add(d_bias + j, grad, n);
        });
        const T mean_plain = norm == LAYER ? sum<T>(plain) / size : 0, mean_weighted = sum<T>(weighted) / size;
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

    // Replaces z by its tanh where that is the norm, before `compute` and for `backward`: it is computed once, and its
    // derivative needs nothing else. Neither the memory nor some of the gates have it (`uncompiled` in forms.py).
    void squash(T* projected, T* summed) const {
        if (d.norm != TANH) return;
        if (!d.left_out) hyperbolic_tangents(4 * size, summed, d.scale ? *d.scale : 1);
        if (d.gate_norm != APART || !d.input_gain) return;
        hyperbolic_tangents(4 * size, projected, d.input_scale ? *d.input_scale : 1);
    }

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
            of_memory = Moments<T>::of(d.norm, raw, size, d.eps);
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
            of_gates[k] = Moments<T>::of(d.left_out >> k & 1 ? IDENTITY : d.norm, summed + first, width, d.eps, d.scale);
            over<T>(width, [&](int start, auto n) {
                const int j = first + start;
                const Vector<T> value = of_gates[k].normalised(summed + j, n);
                store(gates + j, value * load(d.gain + j, n) + load(d.offset + j, n), n);
            });
        }
        if (d.gate_norm == APART && d.input_gain) {
            of_input = Moments<T>::of(d.norm, projected, 4 * size, d.eps, d.input_scale);
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
