// Dropout with the random numbers of torch's generator on a CPU: four units share one of its 64-bit numbers.
// The generator is MT19937 (Matsumoto and Nishimura, Mersenne Twister, 1998).

#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "products.h"

constexpr int NUMBERS = 624;  // of one twist

// How torch.get_rng_state() begins.
struct GeneratorState {
    uint64_t seed;
    int32_t left, seeded;  // numbers before the next twist, and one more
    uint64_t next, numbers[NUMBERS];
};

class Twister {
  public:
    explicit Twister(const GeneratorState& state) : left(state.left), next(int(state.next)) {
        std::copy_n(state.numbers, NUMBERS, numbers);
    }

    void skip(int64_t count) {
        in_runs(count, [](int, int64_t) {});
    }

    void draw(uint32_t* to, int64_t count) {
        in_runs(count, [&](int first, int64_t run) {
            for (int64_t i = 0; i < run; ++i) to[i] = temper(numbers[first + i]);
            to += run;
        });
    }

    void save(GeneratorState& state) const {
        state.left = left;
        state.next = next;
        std::copy_n(numbers, NUMBERS, state.numbers);
    }

  private:
    template <class Body>
    void in_runs(int64_t count, Body body) {
        while (count > 0) {
            if (left == 1) twist();
            const int run = int(std::min<int64_t>(left - 1, count));
            body(next, run);
            left -= run;
            next += run;
            count -= run;
        }
    }

    void twist() {
        constexpr int ahead = 397, behind = NUMBERS - ahead;
        uint32_t* s = numbers;
        for (int i = 0; i < behind; ++i) s[i] = s[i + ahead] ^ mixed(s[i], s[i + 1]);
        for (int i = behind; i < NUMBERS - 1; ++i) s[i] = s[i - behind] ^ mixed(s[i], s[i + 1]);
        s[NUMBERS - 1] = s[ahead - 1] ^ mixed(s[NUMBERS - 1], s[0]);
        left = NUMBERS + 1;
        next = 0;
    }

    static uint32_t mixed(uint32_t upper, uint32_t lower) {
        return (((upper & 0x80000000u) | (lower & 0x7fffffffu)) >> 1) ^ (-(lower & 1u) & 0x9908b0dfu);
    }

    static uint32_t temper(uint32_t y) {
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c5680u;
        y ^= (y << 15) & 0xefc60000u;
        return y ^ (y >> 18);
    }

    int left, next;
    uint32_t numbers[NUMBERS];
};

template <class T>
struct Dropout {
    int64_t units, least;  // a unit is kept if its 16 bits, as a signed number, are at least so much
    double factor;         // of kept units
    GeneratorState* generator;
    const T* values;
    T *factors, *scaled;   // of each unit 0 or `factor`, and the value times that
};

// Every thread of a team goes through the numbers of the units before its own.
template <class T>
void drop(const Dropout<T>& d, Team team) {
    constexpr int run = 1024, of_number = 4;  // 64-bit numbers that are drawn together, units of one
    const int numbers = int((d.units + of_number - 1) / of_number), last = team.last(numbers);
    Twister twister(*d.generator);
    team.wait();  // until all have read the generator
    uint32_t halves[2 * run];
    int16_t bits[of_number * run];
    const T factor = T(d.factor);
    twister.skip(2 * int64_t(team.first(numbers)));
    for (int number = team.first(numbers); number < last; number += run) {
        const int count = std::min(run, last - number);
        twister.draw(halves, 2 * count);
        // The half that is drawn first is the upper one.
        for (int i = 0; i < 2 * count; i += 2) std::swap(halves[i], halves[i + 1]);
        std::memcpy(bits, halves, 2 * count * sizeof(uint32_t));
        const int64_t first = int64_t(number) * of_number;
        const int units = int(std::min<int64_t>(of_number * count, d.units - first));
        const T* values = d.values + first;
        T *factors = d.factors + first, *scaled = d.scaled + first;
        for (int i = 0; i < units; ++i) {
            factors[i] = bits[i] >= d.least ? factor : T(0);
            scaled[i] = values[i] * factors[i];
        }
    }
    if (team.number == team.size - 1) twister.save(*d.generator);
}
