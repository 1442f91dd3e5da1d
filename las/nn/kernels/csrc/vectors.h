// Vectors of the widest registers that the compiler was told of, by GCC's and Clang's vector extensions: the same
// source is right on AVX-512, AVX2, SSE and NEON. A loop over a row runs whole vectors first, then what is left over.

#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__AVX512F__)
constexpr int REGISTER_BYTES = 64;
#elif defined(__AVX__)
constexpr int REGISTER_BYTES = 32;
#else
constexpr int REGISTER_BYTES = 16;
#endif

template <class T>
struct Lanes;

template <>
struct Lanes<float> {
    typedef float Vector __attribute__((vector_size(REGISTER_BYTES)));
    typedef int32_t Bits __attribute__((vector_size(REGISTER_BYTES)));
    static constexpr int mantissa = 23, bias = 127, terms = 7;
    static constexpr float lowest = -87, highest = 88, ln2_high = 0.693359375f, ln2_low = -2.12194440054690582e-4f;
};

template <>
struct Lanes<double> {
    typedef double Vector __attribute__((vector_size(REGISTER_BYTES)));
    typedef int64_t Bits __attribute__((vector_size(REGISTER_BYTES)));
    static constexpr int mantissa = 52, bias = 1023, terms = 14;
    static constexpr double lowest = -708, highest = 709, ln2_high = 0.693145751953125,
                            ln2_low = 1.42860682030941723212e-6;
};

template <class T>
using Vector = typename Lanes<T>::Vector;

template <class T>
constexpr int WIDTH = REGISTER_BYTES / sizeof(T);

struct Whole {};  // instead of a number of lanes: all of them

template <class T>
inline Vector<T> load(const T* from, Whole) {
    Vector<T> values;
    std::memcpy(&values, from, sizeof values);
    return values;
}

template <class T>
inline Vector<T> load(const T* from, int lanes) {
    Vector<T> values = {};
    for (int lane = 0; lane < lanes; ++lane) values[lane] = from[lane];
    return values;
}

template <class T>
inline void store(T* to, Vector<T> values, Whole) {
    std::memcpy(to, &values, sizeof values);
}

template <class T>
inline void store(T* to, Vector<T> values, int lanes) {
    for (int lane = 0; lane < lanes; ++lane) to[lane] = values[lane];
}

template <class T, class N>
inline void add(T* to, Vector<T> values, N lanes) {
    store(to, load(to, lanes) + values, lanes);
}

// Zero where a row has already ended, for sums.
template <class T>
inline Vector<T> only(Vector<T> values, Whole) {
    return values;
}

template <class T>
inline Vector<T> only(Vector<T> values, int lanes) {
    for (int lane = lanes; lane < WIDTH<T>; ++lane) values[lane] = 0;
    return values;
}

template <class T>
inline T sum(Vector<T> values) {
    T total = 0;
    for (int lane = 0; lane < WIDTH<T>; ++lane) total += values[lane];
    return total;
}

// A step of `transpose`: of two rows whose numbers differ in the bit `STEP` alone, the lanes with that bit of the upper
// one change places with those without it of the lower one.
template <int STEP, class T, int... LANE>
inline void exchange(Vector<T>& upper, Vector<T>& lower, std::integer_sequence<int, LANE...>) {
    constexpr int n = WIDTH<T>;
#if defined(__clang__)
    const Vector<T> first = __builtin_shufflevector(upper, lower, (LANE & STEP ? n + LANE - STEP : LANE)...);
    lower = __builtin_shufflevector(upper, lower, (LANE & STEP ? n + LANE : LANE + STEP)...);
#else
    using Bits = typename Lanes<T>::Bits;
    const Vector<T> first = __builtin_shuffle(upper, lower, Bits{(LANE & STEP ? n + LANE - STEP : LANE)...});
    lower = __builtin_shuffle(upper, lower, Bits{(LANE & STEP ? n + LANE : LANE + STEP)...});
#endif
    upper = first;
}

// Transposes a square of as many rows as a vector has lanes, in a step for each bit of their numbers.
template <class T, int STEP = 1>
__attribute__((always_inline)) inline void transpose(Vector<T>* rows) {
    if constexpr (STEP < WIDTH<T>) {
#pragma GCC unroll 16
        for (int row = 0; row < WIDTH<T>; ++row) {
            if (row & STEP) continue;
            exchange<STEP, T>(rows[row], rows[row + STEP], std::make_integer_sequence<int, WIDTH<T>>());
        }
        transpose<T, 2 * STEP>(rows);
    }
}

// body(start, lanes) for each vector of a row; `lanes` is Whole but for the last.
template <class T, class Body>
inline void over(int size, Body body) {
    int start = 0;
    for (; start + WIDTH<T> <= size; start += WIDTH<T>) body(start, Whole{});
    if (start < size) body(start, size - start);
}

constexpr int TURNS = 4;  // accumulators of one sum, because one would wait for itself

// body(start, lanes, turn) for each vector of a row, the turns one after the other.
template <class T, class Body>
inline void in_turns(int size, Body body) {
    int start = 0;
    for (; start + TURNS * WIDTH<T> <= size; start += TURNS * WIDTH<T>) {
        for (int turn = 0; turn < TURNS; ++turn) body(start + turn * WIDTH<T>, Whole{}, turn);
    }
    over<T>(size - start, [&](int j, auto lanes) { body(start + j, lanes, 0); });
}

template <class T>
inline T sum_of_turns(const Vector<T>* totals) {
    return sum<T>((totals[0] + totals[1]) + (totals[2] + totals[3]));
}

// The sum of value(start, lanes) over a row.
template <class T, class Value>
inline T total(int size, Value value) {
    Vector<T> totals[TURNS] = {};
    in_turns<T>(size, [&](int j, auto lanes, int turn) { totals[turn] += only<T>(value(j, lanes), lanes); });
    return sum_of_turns<T>(totals);
}

// e^x - 1 in two parts that add up to it exactly enough for small x: 2^n (e^r - 1) and 2^n - 1, where x = n ln 2 + r.
// The Taylor series of e^r - 1 on |r| <= ln(2) / 2 is exact to the type's last digit.
template <class T>
struct Exponential {
    Vector<T> fraction, power;

    __attribute__((always_inline)) explicit Exponential(Vector<T> x) {
        using L = Lanes<T>;
        using Bits = typename L::Bits;
        x = x < L::lowest ? Vector<T>{} + L::lowest : x;
        x = x > L::highest ? Vector<T>{} + L::highest : x;
        // Adding 1.5 * 2^mantissa rounds to an integer, which then is the lowest bits of the number.
        constexpr T round = T(3) * (int64_t(1) << (L::mantissa - 1));
        const Vector<T> shifted = x * T(1.44269504088896340736) + round;
        const Vector<T> n = shifted - round;
        const Vector<T> r = (x - n * L::ln2_high) - n * L::ln2_low;
        Vector<T> series = Vector<T>{} + T(1) / factorial(L::terms);
        for (int k = L::terms - 1; k >= 2; --k) series = series * r + T(1) / factorial(k);
        series = series * (r * r) + r;
        const Bits exponent = __builtin_convertvector(n, Bits) + L::bias;
        const Bits bits = exponent << L::mantissa;
        std::memcpy(&power, &bits, sizeof power);
        fraction = power * series;
    }

    static constexpr T factorial(int k) { return k ? k * factorial(k - 1) : T(1); }
};

template <class T>
inline Vector<T> sigmoid(Vector<T> x) {
    const Exponential<T> e(-x);
    return T(1) / (T(1) + (e.power + e.fraction));
}

template <class T>
inline Vector<T> hyperbolic_tangent(Vector<T> x) {
    x = x > T(20) ? Vector<T>{} + T(20) : x;
    const Exponential<T> e(x + x);
    const Vector<T> less_one = e.fraction + (e.power - T(1));
    return less_one / (less_one + T(2));
}

// Replaces a row by tanh(scale x).
template <class T>
inline void hyperbolic_tangents(int size, T* values, T scale) {
    over<T>(size, [&](int j, auto lanes) {
        store(values + j, hyperbolic_tangent<T>(load(values + j, lanes) * scale), lanes);
    });
}
