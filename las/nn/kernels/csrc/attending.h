// Attention of one utterance at one step, forwards and backwards. The mathematics is that of las/nn/attention;
// what goes through tanh is computed again on the way back, which is faster than to keep it.

#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "products.h"

enum Energy : int64_t { DOT, ADDITIVE, LOCATION, FEEDBACK };

// B utterances of at most S states; U steps. Weights and contexts have one step more, the first before all others.
template <class T>
struct Attended {
    int64_t batch, steps, states, value_size, key_size, filters, width;
    Energy energy;
    const int64_t* num_states;                // [B]
    const T *keys, *values;                   // [B, S, K], [B, S, V]
    const T *query;                           // [K, H]
    const T *score, *location, *filter;       // [K], [K, F], [F, width]; FEEDBACK has one feature, and no filter
    const T* scale;                           // of FEEDBACK: factors of the weights that are accumulated, [B, S]
    T *queries, *weights, *contexts;          // [B, U, K], [B, U + 1, S], [B, U + 1, V]
    T* accumulated;                           // of FEEDBACK: scaled weights of the steps before, [B, U, S]
    T *d_keys, *d_queries;                    // the first starts as zeros
    T *d_weights, *d_contexts;                // start as what comes from outside the loop
    T *d_scale, *d_accumulated;               // of FEEDBACK, [B, S], both start as zeros

    // Gradients of score, location (transposed) and filters of a group of rows lie one after the other.
    int64_t sums() const { return energy == DOT ? 0 : key_size + filters * (key_size + width); }
};

template <class T>
class Attention {
  public:
    explicit Attention(const Attended<T>& given)
        : a(given), keys(int(given.key_size)), values(int(given.value_size)), middle(int(given.width) / 2),
          columns(padded(given.states, WIDTH<T>)), surrounded(columns + given.width + WIDTH<T>),
          location(given.filters * given.key_size), before(surrounded), features(given.filters * columns),
          d_features(given.filters * surrounded), d_energy(columns), d_meeting(BLOCK * given.key_size) {
        for (int j = 0; j < a.filters; ++j) {
            for (int k = 0; k < keys; ++k) location[j * keys + k] = a.location[k * a.filters + j];
        }
        std::fill_n(static_cast<T*>(before), surrounded, T(0));
        std::fill_n(static_cast<T*>(d_features), a.filters * surrounded, T(0));
    }

    // Weights and context from the query.
    void forward(int64_t row, int64_t step) {
        if (a.energy == FEEDBACK) accumulate(row, step);
        answer(row, a.queries + (row * a.steps + step) * keys, before_at(row, step),
               weights_at(a.weights, row, step + 1), contexts_at(a.contexts, row, step + 1));
    }

    // The same for a query, and the weights before it (of FEEDBACK: accumulated), that lie anywhere.
    void answer(int64_t row, const T* query, const T* last, T* weights, T* context) {
        const int states = int(a.num_states[row]);
        look_back(last, states);
        in_blocks<2>(states, [&](auto count, int state) { energies<count>(row, state, query, weights); });
        softmax(states, weights);
        std::fill(weights + states, weights + a.states, T(0));
        std::fill_n(context, values, T(0));
        for (int s = 0; s < states; ++s) {
            const T *value = a.values + (row * a.states + s) * values, weight = weights[s];
            over<T>(values, [&](int v, auto n) { add(context + v, load(value + v, n) * weight, n); });
        }
    }

    // Sets the gradient of the query, adds to those of the weights before, of the keys, and of the parameters in `sums`.
    void backward(int64_t row, int64_t step, T* sums) {
        const int states = int(a.num_states[row]);
        const T* query = a.queries + (row * a.steps + step) * keys;
        T* d_query = a.d_queries + (row * a.steps + step) * keys;
        std::fill_n(d_query, keys, T(0));
        look_back(before_at(row, step), states);
        energies_backward(row, step, states);
        in_blocks<BLOCK>(states, [&](auto count, int state) {
            states_backward<count>(row, state, query, d_query, sums);
            if (a.filters) features_backward<count>(state, sums + keys);
        });
        if (a.energy == FEEDBACK) accumulate_backward(row, step, states);
        if (a.energy == LOCATION) look_back_backward(row, step, states, sums + keys + a.filters * keys);
    }

  private:
    T* weights_at(T* of, int64_t row, int64_t step) const { return of + (row * (a.steps + 1) + step) * a.states; }
    T* contexts_at(T* of, int64_t row, int64_t step) const { return of + (row * (a.steps + 1) + step) * values; }

    T* accumulated_at(int64_t row, int64_t step) const { return a.accumulated + (row * a.steps + step) * a.states; }

    // What the energies of a step read of the steps before it.
    const T* before_at(int64_t row, int64_t step) const {
        return a.energy == FEEDBACK ? accumulated_at(row, step) : weights_at(a.weights, row, step);
    }

    // accumulated = accumulated of the step before + scale * weights of the step before; zero at the first step.
    void accumulate(int64_t row, int64_t step) {
        const T *weights = weights_at(a.weights, row, step), *scale = a.scale + row * a.states;
        T* sum = accumulated_at(row, step);
        over<T>(int(a.states), [&](int s, auto n) {
            const Vector<T> term = load(scale + s, n) * load(weights + s, n);
            store(sum + s, step ? load(sum - a.states + s, n) + term : term, n);
        });
    }

    // From `d_features` to the weights of the step before and the scale. A sum is part of those of all later steps.
    void accumulate_backward(int64_t row, int64_t step, int states) {
        const T *weights = weights_at(a.weights, row, step), *scale = a.scale + row * a.states;
        T *d_sum = a.d_accumulated + row * a.states, *d_scale = a.d_scale + row * a.states;
        T* d_before = weights_at(a.d_weights, row, step);
        over<T>(states, [&](int s, auto n) {
            add(d_sum + s, load(d_features + s, n), n);
            add(d_scale + s, load(d_sum + s, n) * load(weights + s, n), n);
            add(d_before + s, load(d_sum + s, n) * load(scale + s, n), n);
        });
    }

    // `features`, [F, S]: what the filters find in the weights of the step before, or the accumulated weights.
    void look_back(const T* last, int states) {
        if (a.energy == FEEDBACK) std::copy_n(last, states, static_cast<T*>(features));
        if (a.energy != LOCATION) return;
        std::copy_n(last, states, before + middle);
        std::fill(before + middle + states, before + surrounded, T(0));
        for (int j = 0; j < a.filters; ++j) {
            const T* filter = a.filter + j * a.width;
            for (int s = 0; s < states; s += WIDTH<T>) {
                Vector<T> found = {};
                for (int w = 0; w < a.width; ++w) found += filter[w] * load(before + s + w, Whole{});
                store(features + j * columns + s, found, Whole{});
            }
        }
    }

    // body(count, state) for states that are computed together, COUNT or the last ones alone.
    template <int COUNT, class Body>
    static void in_blocks(int states, Body body) {
        int state = 0;
        for (; state + COUNT <= states; state += COUNT) body(std::integral_constant<int, COUNT>{}, state);
        for (; state < states; ++state) body(std::integral_constant<int, 1>{}, state);
    }

    // What goes into the scores of some states.
    template <int COUNT, class N>
    void meet(const T* query, const T* key, int state, int k, N lanes, Vector<T>* met) const {
        for (int each = 0; each < COUNT; ++each) met[each] = load(query + k, lanes) + load(key + each * keys + k, lanes);
        for (int j = 0; j < a.filters; ++j) {
            const Vector<T> weight = load(location + j * keys + k, lanes);
            const T* feature = features + j * columns + state;
            for (int each = 0; each < COUNT; ++each) met[each] += feature[each] * weight;
        }
        for (int each = 0; each < COUNT; ++each) met[each] = hyperbolic_tangent<T>(met[each]);
    }

    template <int COUNT>
    void energies(int64_t row, int state, const T* query, T* to) const {
        const T* key = a.keys + (row * a.states + state) * keys;
        Vector<T> totals[COUNT][TURNS] = {};
        in_turns<T>(keys, [&](int k, auto n, int turn) {
            Vector<T> terms[COUNT];
            if (a.energy == DOT) {
                for (int each = 0; each < COUNT; ++each) terms[each] = load(query + k, n) * load(key + each * keys + k, n);
            } else {
                meet<COUNT>(query, key, state, k, n, terms);
                for (int each = 0; each < COUNT; ++each) terms[each] *= load(a.score + k, n);
            }
            for (int each = 0; each < COUNT; ++each) totals[each][turn] += only<T>(terms[each], n);
        });
        for (int each = 0; each < COUNT; ++each) to[state + each] = sum_of_turns<T>(totals[each]);
    }

    // From `d_energy` of some states to their keys, the query, the score and `d_meeting`.
    template <int COUNT>
    void states_backward(int64_t row, int state, const T* query, T* d_query, T* d_score) {
        const T *key = a.keys + (row * a.states + state) * keys, *grads = d_energy + state;
        T* d_key = a.d_keys + (row * a.states + state) * keys;
        over<T>(keys, [&](int k, auto n) {
            Vector<T> d_asked = load(d_query + k, n);
            if (a.energy == DOT) {
                for (int each = 0; each < COUNT; ++each) {
                    d_asked += load(key + each * keys + k, n) * grads[each];
                    add(d_key + each * keys + k, load(query + k, n) * grads[each], n);
                }
                store(d_query + k, d_asked, n);
                return;
            }
            Vector<T> met[COUNT], of_score = load(d_score + k, n);
            meet<COUNT>(query, key, state, k, n, met);
            for (int each = 0; each < COUNT; ++each) {
                const Vector<T> d_met = load(a.score + k, n) * grads[each] * (T(1) - met[each] * met[each]);
                of_score += met[each] * grads[each];
                d_asked += d_met;
                add(d_key + each * keys + k, d_met, n);
                if (a.filters) store(d_meeting + each * keys + k, d_met, n);
            }
            store(d_score + k, of_score, n);
            store(d_query + k, d_asked, n);
        });
    }

    static void softmax(int size, T* energies) {
        T highest = std::numeric_limits<T>::lowest();
        for (int s = 0; s < size; ++s) highest = std::max(highest, energies[s]);
        const T all = total<T>(size, [&](int s, auto n) {
            const Exponential<T> e(load(energies + s, n) - highest);
            store(energies + s, e.power + e.fraction, n);
            return e.power + e.fraction;
        });
        for (int s = 0; s < size; ++s) energies[s] /= all;
    }

    // `d_energy`, [S].
    void energies_backward(int64_t row, int64_t step, int states) {
        const T *weights = weights_at(a.weights, row, step + 1), *outside = weights_at(a.d_weights, row, step + 1);
        const T* d_context = contexts_at(a.d_contexts, row, step + 1);
        T mean = 0;
        for (int s = 0; s < states; ++s) {
            const T* value = a.values + (row * a.states + s) * values;
            d_energy[s] = outside[s] + total<T>(values, [&](int v, auto n) {
                return load(value + v, n) * load(d_context + v, n);
            });
            mean += weights[s] * d_energy[s];
        }
        for (int s = 0; s < states; ++s) d_energy[s] = weights[s] * (d_energy[s] - mean);
    }

    // From `d_meeting` to `d_features` of some states.
    template <int COUNT>
    void features_backward(int state, T* d_location) {
        for (int j = 0; j < a.filters; ++j) {
            const T* feature = features + j * columns + state;
            T* grads = d_features + j * surrounded + middle + state;
            Vector<T> totals[COUNT][TURNS] = {};
            in_turns<T>(keys, [&](int k, auto n, int turn) {
                const Vector<T> weight = load(location + j * keys + k, n);
                Vector<T> d_weight = load(d_location + j * keys + k, n);
                for (int each = 0; each < COUNT; ++each) {
                    const Vector<T> grad = load(d_meeting + each * keys + k, n);
                    d_weight += grad * feature[each];
                    totals[each][turn] += only<T>(grad * weight, n);
                }
                store(d_location + j * keys + k, d_weight, n);
            });
            for (int each = 0; each < COUNT; ++each) grads[each] = sum_of_turns<T>(totals[each]);
        }
    }

    // From `d_features` of all states to the weights before and the filters.
    void look_back_backward(int64_t row, int64_t step, int states, T* d_filters) {
        T* d_before = weights_at(a.d_weights, row, step);
        for (int j = 0; j < a.filters; ++j) {
            T* grads = d_features + j * surrounded;
            std::fill(grads + middle + states, grads + surrounded, T(0));
            const T* filter = a.filter + j * a.width;
            over<T>(states, [&](int s, auto n) {
                Vector<T> found = {};
                for (int w = 0; w < a.width; ++w) found += filter[w] * load(grads + s + 2 * middle - w, Whole{});
                add(d_before + s, found, n);
            });
            over<T>(int(a.width), [&](int w, auto n) {
                Vector<T> found = {};
                for (int s = 0; s < states; ++s) found += grads[middle + s] * load(before + s + w, Whole{});
                add(d_filters + j * a.width + w, found, n);
            });
        }
    }

    static constexpr int BLOCK = 4;  // states whose gradients are computed together

    const Attended<T>& a;
    const int keys, values, middle;
    const int64_t columns, surrounded;
    Buffer<T> location, before, features, d_features, d_energy, d_meeting;
};
