// CTC prefix scores of all beams of all utterances, and the forward variables of their next prefixes, state by state.
// The mathematics is that of las/nn/ctc_prefix.py; a sum of logarithms is that of log_sum.

#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "products.h"

// B utterances of K beams each, T states, V symbols; the forward variables have one value more, before the first state.
struct Prefixes {
    int64_t batch, beams, states, vocab, blank;
    double lowest;                                // stands for -inf in subtractions
    const double *probs, *log_probs;              // p_t, [B, T, V] and, in logarithms, [B, V, T]
    const int64_t *last, *tokens;                 // of each beam, before and after, [B, K]
    const double *prefix, *in_symbol, *in_blank;  // log psi, [B, K]; log n_t and log b_t, [B, K, T + 1]
    double* scores;                               // of every next symbol, [B, K, V]
    double *next_prefix, *next_in_symbol, *next_in_blank;
};

inline double log_sum(double a, double b) {
    const double most = std::max(a, b);
    return most == -std::numeric_limits<double>::infinity() ? most : most + std::log1p(std::exp(std::min(a, b) - most));
}

class PrefixRows {
  public:
    PrefixRows(const Prefixes& given, Team team)
        : p(given), first(team.first(int(p.batch * p.beams))), end(team.last(int(p.batch * p.beams))),
          sums(p.states + 1) {}

    void score() {
        for (int row = first; row < end; ++row) {
            const double *symbol = p.in_symbol + row * (p.states + 1), *blank = p.in_blank + row * (p.states + 1);
            const double* probs = p.probs + row / p.beams * p.states * p.vocab;
            double* scores = p.scores + row * p.vocab;
            for (int64_t t = 0; t <= p.states; ++t) sums[t] = log_sum(symbol[t], blank[t]);
            double top = p.lowest;
            for (int64_t t = 0; t < p.states; ++t) top = std::max(top, sums[t]);
            std::fill_n(scores, p.vocab, 0.0);
            double repeated = 0;
            for (int64_t t = 0; t < p.states; ++t) {
                const double entering = std::exp(sums[t] - top), *of_state = probs + t * p.vocab;
                for (int64_t c = 0; c < p.vocab; ++c) scores[c] += entering * of_state[c];
                repeated += std::exp(blank[t] - top) * of_state[p.last[row]];
            }
            scores[p.last[row]] = repeated;  // the same symbol again follows a blank only
            const double prefix = std::max(p.prefix[row], p.lowest);
            for (int64_t c = 0; c < p.vocab; ++c) scores[c] = std::log(scores[c]) + (top - prefix);
            scores[p.blank] = sums[p.states] - prefix;
        }
    }

    void advance() {
        constexpr double never = -std::numeric_limits<double>::infinity();
        for (int row = first; row < end; ++row) {
            const int64_t start = row * (p.states + 1), token = p.tokens[row];
            const double* utterance = p.log_probs + row / p.beams * p.vocab * p.states;
            const double *of_symbol = utterance + token * p.states, *of_blank = utterance + p.blank * p.states;
            double *symbol = p.next_in_symbol + start, *blank = p.next_in_blank + start, prefix = never;
            symbol[0] = blank[0] = never;
            for (int64_t t = 0; t < p.states; ++t) {
                const double stayed = p.in_blank[start + t];
                const double entering = token == p.last[row] ? stayed : log_sum(p.in_symbol[start + t], stayed);
                prefix = log_sum(prefix, entering + of_symbol[t]);
                symbol[t + 1] = of_symbol[t] + log_sum(symbol[t], entering);
                blank[t + 1] = of_blank[t] + log_sum(blank[t], symbol[t]);
            }
            p.next_prefix[row] = prefix;
        }
    }

  private:
    const Prefixes& p;
    const int first, end;
    std::vector<double> sums;
};
