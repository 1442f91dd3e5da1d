// The best continuations of all beams by one symbol. The mathematics is that of `BeamExpansion.extend` in
// las/decoding/beam_expansion.py.

#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "products.h"

// B utterances of K beams each, V symbols, `kept` beams afterwards.
template <class T>
struct Expansion {
    int64_t batch, beams, vocab, kept, eos;
    double exponent;                              // of the length normalisation; 0 for none
    const T *symbol_scores, *end_scores;          // [B, K, V], [B, K]
    const double* scores;                         // before the step, as the next two, [B, K]
    const int64_t* lengths;
    const bool *finished, *at_limit;              // [B, K], [B]
    int64_t *new_tokens, *parents, *new_lengths;  // all that follow: [B, kept]
    double *new_scores, *new_ranks;
    bool* new_finished;
};

template <class T>
class ExpandedBeams {
  public:
    explicit ExpandedBeams(const Expansion<T>& given) : e(given) { best.reserve(e.kept + 1); }

    void extend(int64_t utterance) {
        best.clear();
        for (int64_t beam = 0; beam < e.beams; ++beam) {
            const int64_t row = utterance * e.beams + beam;
            const T* symbols = e.symbol_scores + row * e.vocab;
            const double score = e.scores[row], length = double(e.lengths[row] + !e.finished[row]);
            const double divisor = e.exponent ? std::pow(length, e.exponent) : 1.0;
            const bool closed = e.finished[row] || e.at_limit[utterance];
            const double end = e.finished[row] ? 0.0 : closed ? e.end_scores[row] : symbols[e.eos];
            for (int64_t symbol = 0; symbol < e.vocab; ++symbol) {
                constexpr double never = -std::numeric_limits<double>::infinity();
                const double added = symbol == e.eos ? end : closed ? never : symbols[symbol];
                consider({(score + added) / divisor, score + added, beam, symbol});
            }
        }
        for (int64_t place = 0; place < e.kept; ++place) keep(utterance, utterance * e.kept + place, best[place]);
    }

  private:
    struct Candidate {
        double rank, score;
        int64_t beam, symbol;
    };

    // Candidates come in order of their indices, so that of equal ones the first is kept, and stays first.
    void consider(const Candidate& found) {
        const bool is_full = int64_t(best.size()) == e.kept;
        if (is_full && !(found.rank > best.back().rank)) return;
        if (is_full) best.pop_back();
        const auto is_better = [](const Candidate& one, const Candidate& other) { return one.rank > other.rank; };
        best.insert(std::upper_bound(best.begin(), best.end(), found, is_better), found);
    }

    void keep(int64_t utterance, int64_t place, const Candidate& chosen) const {
        const int64_t row = utterance * e.beams + chosen.beam;
        e.new_tokens[place] = chosen.symbol;
        e.parents[place] = chosen.beam;
        e.new_lengths[place] = e.lengths[row] + !e.finished[row];
        e.new_scores[place] = chosen.score;
        e.new_ranks[place] = chosen.rank;
        e.new_finished[place] = chosen.symbol == e.eos || std::isinf(chosen.score);
    }

    const Expansion<T>& e;
    std::vector<Candidate> best;
};

// A team shares the utterances.
template <class T>
void expand(const Expansion<T>& expansion, Team team) {
    ExpandedBeams<T> beams(expansion);
    const int last = team.last(int(expansion.batch));
    for (int utterance = team.first(int(expansion.batch)); utterance < last; ++utterance) beams.extend(utterance);
}
