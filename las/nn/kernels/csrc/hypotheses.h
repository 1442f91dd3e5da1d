// A whole search: steps, expansions and the choice of states between them, until every utterance has its hypotheses. The
// mathematics is that of `BeamSearch` in las/decoding/search.py without scorers; a beam of one is `GreedySearch`.

#pragma once

#include <numeric>

#include "beams.h"
#include "searching.h"

// The best N hypotheses of each of B utterances. `longest` is the greatest number of steps of any utterance.
struct Hypotheses {
    int64_t size, nbest, longest, eos;
    double exponent;                         // as in `Expansion`
    const int64_t* limits;                   // tokens at most, [B]
    int64_t *tokens, *lengths;               // with the end symbol, [B, N, longest]; [B, N], zeros at first
    double *symbol_scores, *scores, *ranks;  // [B, N, longest]; [B, N] as the next
};

template <class T, class Make>
class WholeSearch {
  public:
    // `given` holds the first states, one beam of each utterance.
    WholeSearch(const SearchStep<T, Make>& step, const Search<T>& given, const Hypotheses& wanted)
        : step(step), w(wanted), vocab(given.readout.vocab), batch(given.speller.attended.batch),
          cells(given.speller.cells, given.speller.cells + given.speller.count), now(given), living(batch),
          is_final(batch), rows(batch * w.size), room(given, int(rows)), queries(rows * given.speller.attended.key_size),
          log_probs(rows * vocab), end_scores(rows), beams(rows), following(rows), parents(rows), at_limit(batch),
          all_tokens(w.longest * rows), all_parents(w.longest * rows), all_scores(w.longest * rows) {
        std::iota(living.begin(), living.end(), 0);
        const Attended<T>& a = given.speller.attended;
        for (Stepped<T>& cell : cells) {
            keep(cell.cell.first_hidden, cell.cell.last_hidden, cell.cell.hidden);
            keep(cell.cell.first_cell, cell.cell.last_cell, cell.cell.hidden);
        }
        keep(now.contexts, now.speller.attended.contexts, a.value_size);
        keep(now.weights, now.speller.attended.weights, a.states);
        std::copy_n(given.tokens, batch, static_cast<int64_t*>(beams.tokens));
        std::fill_n(static_cast<int64_t*>(beams.lengths), batch, int64_t(0));
        std::fill_n(static_cast<double*>(beams.scores), batch, 0.0);
        std::fill_n(static_cast<bool*>(beams.finished), batch, false);
        now.speller.cells = cells.data();
        now.speller.attended.queries = queries;
        now.readout.log_probs = log_probs;
        now.tokens = beams.tokens;
        now.utterances = living.data();
        now.speller.attended.steps = 1;
    }

    void run(Team team) {
        int64_t count = 1;  // of beams
        for (int64_t index = 0; !living.empty(); ++index) {
            const int64_t kept = std::min(w.size, count * vocab);
            step.run(now, room, team);
            team.wait();
            extend(index, count, kept, team);
            team.wait();
            if (team.number == 0) drop(kept);
            team.wait();
            follow(count, kept, team);
            team.wait();
            count = kept;
        }
    }

  private:
    struct Beams {
        explicit Beams(int64_t rows) : tokens(rows), lengths(rows), scores(rows), ranks(rows), finished(rows) {}
        Buffer<int64_t> tokens, lengths;
        Buffer<double> scores, ranks;
        Buffer<bool> finished;
    };

    // A part of the state, of `size` numbers in a row, before and after a step.
    struct Part {
        Buffer<T> before, after;
        int64_t size;
    };

    // Gives a part of the state memory of its own: `first` is what it is before the first step.
    void keep(const T*& first, T*& last, int64_t size) {
        state.push_back({Buffer<T>(rows * size), Buffer<T>(rows * size), size});
        std::copy_n(first, batch * size, static_cast<T*>(state.back().before));
        first = state.back().before;
        last = state.back().after;
    }

    // Expands the beams of a team's share of the utterances, and ends those whose list no further step can change.
    void extend(int64_t index, int64_t count, int64_t kept, Team team) {
        const Expansion<T> e{int64_t(living.size()), count, vocab, kept, w.eos, w.exponent, log_probs, end_scores,
                             beams.scores, beams.lengths, beams.finished, at_limit, following.tokens, parents,
                             following.lengths, following.scores, following.ranks, following.finished};
        ExpandedBeams<T> expanded(e);
        const int last = team.last(int(living.size()));
        for (int64_t place = team.first(int(living.size())); place < last; ++place) {
            const int64_t utterance = living[place];
            at_limit[place] = index >= w.limits[utterance];
            for (int64_t row = place * count; row < (place + 1) * count; ++row) prepare(row, utterance);
            expanded.extend(place);
            for (int64_t beam = 0; beam < kept; ++beam) {
                const int64_t to = at(index, utterance, beam), from = place * kept + beam;
                all_tokens[to] = following.tokens[from];
                all_parents[to] = parents[from];
                all_scores[to] = log_probs[(place * count + parents[from]) * vocab + following.tokens[from]];
            }
            is_final[place] = ends(utterance, place * kept, kept);
            if (is_final[place]) trace(index, utterance, place * kept, kept);
        }
    }

    int64_t at(int64_t index, int64_t utterance, int64_t beam) const {
        return (index * batch + utterance) * w.size + beam;
    }

    // Makes values that are no log-probabilities impossible, and the state of the attention that of the next step.
    void prepare(int64_t row, int64_t utterance) const {
        constexpr T never = -std::numeric_limits<T>::infinity(), above = std::numeric_limits<T>::infinity();
        T* values = log_probs + row * vocab;
        for (int64_t c = 0; c < vocab; ++c) values[c] = values[c] < above ? values[c] : never;  // NaN too
        end_scores[row] = values[w.eos];
        const Attended<T>& a = now.speller.attended;
        if (a.energy != FEEDBACK) return;
        const T *scale = a.scale + utterance * a.states, *before = now.weights + row * a.states;
        T* weights = a.weights + row * a.states;
        for (int64_t s = 0; s < a.states; ++s) weights[s] *= scale[s];  // rounded, as it is in torch
        for (int64_t s = 0; s < a.states; ++s) weights[s] += before[s];
    }

    double rank(double score, int64_t length) const {
        return w.exponent ? score / std::pow(double(length), w.exponent) : score;
    }

    // As `BeamExpansion.is_final`; no log-probability is above 0.
    bool ends(int64_t utterance, int64_t first, int64_t kept) const {
        const bool* finished = following.finished + first;
        if (std::all_of(finished, finished + kept, [](bool each) { return each; })) return true;
        if (kept < w.nbest || !std::all_of(finished, finished + w.nbest, [](bool each) { return each; })) return false;
        double bound = -std::numeric_limits<double>::infinity();
        for (int64_t beam = 0; beam < kept; ++beam) {
            if (!finished[beam]) bound = std::max(bound, rank(following.scores[first + beam], w.limits[utterance] + 1));
        }
        return following.ranks[first + w.nbest - 1] > bound;
    }

    // Writes the hypotheses of an utterance, symbol by symbol from the last one.
    void trace(int64_t index, int64_t utterance, int64_t first, int64_t kept) const {
        for (int64_t number = 0; number < std::min(w.nbest, kept); ++number) {
            const int64_t to = utterance * w.nbest + number, length = following.lengths[first + number];
            w.lengths[to] = length;
            w.scores[to] = following.scores[first + number];
            w.ranks[to] = following.ranks[first + number];
            for (int64_t symbol = index, beam = number; symbol >= 0; --symbol) {
                const int64_t from = at(symbol, utterance, beam);
                if (symbol < length) {
                    w.tokens[to * w.longest + symbol] = all_tokens[from];
                    w.symbol_scores[to * w.longest + symbol] = all_scores[from];
                }
                beam = all_parents[from];
            }
        }
    }

    // Leaves the utterances that have ended out of the following steps.
    void drop(int64_t kept) {
        places.clear();
        for (int64_t place = 0; place < int64_t(living.size()); ++place) {
            if (!is_final[place]) places.push_back(place);
        }
        for (size_t place = 0; place < places.size(); ++place) living[place] = living[places[place]];
        living.resize(places.size());
        now.speller.attended.batch = int64_t(living.size());
        now.speller.attended.steps = kept;
    }

    // Continues each new beam from the state of its parent.
    void follow(int64_t count, int64_t kept, Team team) {
        const int total = int(int64_t(places.size()) * kept), last = team.last(total);
        for (int64_t row = team.first(total); row < last; ++row) {
            const int64_t place = places[row / kept], from = place * kept + row % kept;
            const int64_t parent = place * count + parents[from];
            for (const Part& part : state) {
                std::copy_n(part.after + parent * part.size, part.size, part.before + row * part.size);
            }
            beams.tokens[row] = following.tokens[from];
            beams.lengths[row] = following.lengths[from];
            beams.scores[row] = following.scores[from];
            beams.finished[row] = following.finished[from];
        }
    }

    const SearchStep<T, Make>& step;
    const Hypotheses& w;
    const int64_t vocab, batch;
    std::vector<Stepped<T>> cells;
    Search<T> now;
    std::vector<int64_t> living, places;  // utterances that go on; where they were in the step before
    std::vector<char> is_final;
    const int64_t rows;  // at most
    const typename SearchStep<T, Make>::Room room;
    std::vector<Part> state;
    Buffer<T> queries, log_probs, end_scores;
    Beams beams, following;
    Buffer<int64_t> parents;
    Buffer<bool> at_limit;
    Buffer<int64_t> all_tokens, all_parents;  // of every step, [longest, B, size]
    Buffer<double> all_scores;
};
