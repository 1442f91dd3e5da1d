// The loops over frames of one direction of a layer, forwards and backwards, for a part of the batch.

#pragma once

#include "recurrence.h"

constexpr int GROUPS = 2;
constexpr int64_t PART = GROUPS * GROUP;  // rows that go through the loops together: enough for the speed of products

// The batch's rows from `first` to `last`, longest first. Their states, or the gradients of these, lie close together
// here, with strides that are no powers of two: rows would displace each other in the cache.
template <class T, class Weight>
class Loop {
  protected:
    Loop(const Direction<T>& given, const Weight& weight, int64_t first, int64_t last)
        : d(given), weight(weight), first(first), rows(last - first), size(given.hidden),
          stride(padded(size, PANEL<T>) + PANEL<T>), wide(padded(4 * size, PANEL<T>) + PANEL<T>),
          hidden(rows * stride), cell(rows * stride), summed(rows * wide),
          steps{Step<T>(given), Step<T>(given)} {}

    // body(row, group) for the first `living` rows; a team shares the groups.
    template <class Body>
    static void each_row(int64_t living, Team team, Body body) {
        for (int group = team.number; group * GROUP < living; group += team.size) {
            for (int64_t row = group * GROUP; row < std::min<int64_t>((group + 1) * GROUP, living); ++row) {
                body(row, group);
            }
        }
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
    const Weight& weight;
    const int64_t first, rows, size, stride, wide;
    Buffer<T> hidden, cell, summed;
    Step<T> steps[GROUPS];
};

template <class T, class Weight>
class ForwardLoop : Loop<T, Weight> {
  public:
    ForwardLoop(const Direction<T>& d, const Weight& weight, int64_t first, int64_t last)
        : Loop<T, Weight>(d, weight, first, last) {
        this->gather(d.first_hidden, this->hidden);
        this->gather(d.first_cell, this->cell);
    }

    void run(Team team) {
        for (int64_t frame = 0, living = this->rows; (living = this->living_at(frame, living)) > 0; ++frame) {
            this->weight.multiply(living, this->hidden, this->stride, this->summed, this->wide, team);
            team.wait();
            this->each_row(living, team, [&](int64_t row, int group) { step(row, frame, this->steps[group]); });
            team.wait();
        }
    }

    void finish() {
        const Direction<T>& d = this->d;
        this->scatter(this->hidden, d.last_hidden);
        this->scatter(this->cell, d.last_cell);
        for (int64_t row = 0; row < this->rows; ++row) {
            for (int64_t frame = d.lengths[this->first + row]; frame < d.frames; ++frame) {
                std::fill_n(d.outputs + this->padded_row(row, frame) * d.output_stride, this->size, T(0));
            }
        }
    }

  private:
    void step(int64_t row, int64_t frame, Step<T>& step) {
        const Direction<T>& d = this->d;
        const int64_t size = this->size, packed = this->packed_row(row, frame);
        T* projected = d.projected + packed * 4 * size;
        T *summed = this->summed + row * this->wide, *h = this->hidden + row * this->stride;
        T* c = this->cell + row * this->stride;
        if (d.gate_norm != APART) {
            over<T>(4 * size, [&](int j, auto n) { add(summed + j, load(projected + j, n), n); });
        }
        step.squash(projected, summed);
        if (d.summed) {
            std::copy_n(summed, 4 * size, d.summed + packed * 4 * size);
            std::copy_n(h, size, d.hidden_before + packed * size);
            std::copy_n(c, size, d.cell_before + packed * size);
        }
        step.compute(projected, summed, c);
        step.hidden(h);
        std::copy_n(step.carried(), size, c);
        std::copy_n(h, size, d.outputs + this->padded_row(row, this->position(row, frame)) * d.output_stride);
    }
};

template <class T, class Weight>
class BackwardLoop : Loop<T, Weight> {
  public:
    // Adds the gradients of the other parameters to `totals`.
    BackwardLoop(const Direction<T>& d, const Weight& weight, int64_t first, int64_t last, T* totals)
        : Loop<T, Weight>(d, weight, first, last), totals(totals), count(int(Sums<T>::size(d.hidden))), sums(GROUPS * count) {
        std::fill_n(static_cast<T*>(sums), GROUPS * count, T(0));
        this->gather(d.d_last_hidden, this->hidden);
        this->gather(d.d_last_cell, this->cell);
    }

    void run(Team team) {
        for (int64_t frame = this->rows ? this->d.lengths[this->first] : 0; frame-- > 0;) {
            const int64_t living = this->living_at(frame, this->rows);
            this->each_row(living, team, [&](int64_t row, int group) {
                step(row, frame, this->steps[group], {sums + group * count, this->size});
            });
            team.wait();
            this->weight.multiply(living, this->summed, this->wide, this->hidden, this->stride, team);
            if (team.number == 0 && frame % FRAMES == 0) add_up();
            team.wait();
        }
    }

    void finish() {
        this->scatter(this->hidden, this->d.d_first_hidden);
        this->scatter(this->cell, this->d.d_first_cell);
    }

  private:
    // Sums of few frames are added to the totals: smaller errors than one sum over all of them.
    static constexpr int FRAMES = 8;

    void add_up() {
        for (int group = 0; group < GROUPS; ++group) {
            over<T>(count, [&](int j, auto n) {
                add(totals + j, load(sums + group * count + j, n), n);
                store(sums + group * count + j, Vector<T>{}, n);
            });
        }
    }

    void step(int64_t row, int64_t frame, Step<T>& step, const Sums<T>& of_group) {
        const Direction<T>& d = this->d;
        const int64_t size = this->size, packed = this->packed_row(row, frame);
        const T *projected = d.projected + packed * 4 * size, *summed = d.summed + packed * 4 * size;
        const T* cell_before = d.cell_before + packed * size;
        const T* d_output = d.d_outputs + this->padded_row(row, this->position(row, frame)) * d.output_stride;
        T *d_hidden = this->hidden + row * this->stride, *d_cell = this->cell + row * this->stride;
        over<T>(size, [&](int j, auto n) { add(d_hidden + j, load(d_output + j, n), n); });
        step.compute(projected, summed, cell_before);
        T *d_projected = d.d_projected + packed * 4 * size, *d_summed = this->summed + row * this->wide;
        step.backward(projected, summed, cell_before, d_hidden, d_cell, d_projected, d_summed, of_group);
        if (d.d_summed) std::copy_n(d_summed, 4 * size, d.d_summed + packed * 4 * size);
    }

    T* totals;
    const int count;
    Buffer<T> sums;
};
