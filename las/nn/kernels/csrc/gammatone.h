// Gammatone filters by their recursion, and the windowed sums of their rectified outputs.
// The equations are those of las/nn/gammatone.py; states are in double precision whatever the samples are.

#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "products.h"
#include "vectors.h"

constexpr int SECTIONS = 4;  // of a filter

// Coefficients of the sections are [filters], samples [batch, samples], sums [batch, frames, filters].
template <class T>
struct Gammatone {
    int64_t batch, samples, filters, frames, length, shift;
    const double *real, *squared, *gain;  // r cos(theta), r^2, g^4
    const double* window;                 // [length]
    const T* waveforms;
    T* integrals;
};

// Filters side by side in one vector, of one utterance.
template <class T>
class FilterGroup {
  public:
    FilterGroup(const Gammatone<T>& given, int64_t first)
        : g(given), first(first), lanes(int(std::min<int64_t>(WIDTH<double>, g.filters - first))),
          real(load(g.real + first, lanes)), squared(load(g.squared + first, lanes)),
          gain(load(g.gain + first, lanes)), rectified(g.shift) {}

    void run(int64_t utterance) {
        const T* samples = g.waveforms + utterance * g.samples;
        const int64_t open = (g.length + g.shift - 1) / g.shift;  // frames that one block of samples belongs to
        std::vector<Vector<double>> sums(open, Vector<double>{});
        std::fill_n(&states[0][0], 2 * SECTIONS, Vector<double>{});
        for (int64_t block = 0; block < g.frames + open - 1; ++block) {
            const int64_t begin = block * g.shift, count = std::min(g.shift, g.samples - begin);
            filter(samples + begin, count);
            for (int64_t age = 0; age < std::min(open, block + 1); ++age) {
                const int64_t frame = block - age, offset = age * g.shift;
                if (frame >= g.frames) continue;
                Vector<double>& sum = sums[frame % open];
                if (age == 0) sum = Vector<double>{};
                sum += weighted(g.window + offset, std::min(count, g.length - offset));
                if (age == open - 1) finish(sum, (utterance * g.frames + frame) * g.filters + first);
            }
        }
    }

  private:
    void filter(const T* samples, int64_t count) {
        Vector<double> last[SECTIONS], before[SECTIONS];
        std::copy_n(states[0], SECTIONS, last);
        std::copy_n(states[1], SECTIONS, before);
        for (int64_t i = 0; i < count; ++i) {
            // Without a summand states would decay to subnormal numbers in silence, which are slow.
            Vector<double> value = Vector<double>{} + (double(samples[i]) + 1e-30);
            for (int section = 0; section < SECTIONS; ++section) {
                const Vector<double> inner = value + (2 * real * last[section] - squared * before[section]);
                value = inner - real * last[section];
                before[section] = last[section];
                last[section] = inner;
            }
            rectified[i] = value < 0 ? -value : value;
        }
        std::copy_n(last, SECTIONS, states[0]);
        std::copy_n(before, SECTIONS, states[1]);
    }

    // Four sums, so that an addition need not wait for the one before.
    Vector<double> weighted(const double* window, int64_t count) const {
        Vector<double> sums[4] = {};
        int64_t i = 0;
        for (; i + 4 <= count; i += 4) {
            for (int part = 0; part < 4; ++part) sums[part] += window[i + part] * rectified[i + part];
        }
        for (; i < count; ++i) sums[0] += window[i] * rectified[i];
        return (sums[0] + sums[1]) + (sums[2] + sums[3]);
    }

    void finish(const Vector<double>& sum, int64_t position) const {
        for (int lane = 0; lane < lanes; ++lane) g.integrals[position + lane] = T(gain[lane] * sum[lane]);
    }

    const Gammatone<T>& g;
    const int64_t first;
    const int lanes;
    const Vector<double> real, squared, gain;
    Vector<double> states[2][SECTIONS];  // at the last sample, and at the one before
    std::vector<Vector<double>> rectified;
};

template <class T>
void filter_frames(const Gammatone<T>& g, Team team) {
    const int64_t groups = (g.filters + WIDTH<double> - 1) / WIDTH<double>;
    const int jobs = int(g.batch * groups), last = team.last(jobs);
    for (int job = team.first(jobs); job < last; ++job) {
        FilterGroup<T>(g, job % groups * WIDTH<double>).run(job / groups);
    }
}
