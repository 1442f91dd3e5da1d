// The product of the few rows of one frame with a weight that every frame uses: the weight is copied once into panels
// of columns that are as wide as the accumulators, so that each step reads it front to back, straight from the cache.

#pragma once

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>

#include "vectors.h"

template <class T>
class Buffer {
  public:
    explicit Buffer(int64_t size = 0) : values(static_cast<T*>(allocate(size))) {}
    operator T*() const { return values.get(); }

  private:
    struct Free {
        void operator()(T* values) const { std::free(values); }
    };
    static void* allocate(int64_t size) {
        constexpr int64_t line = 64;
        void* values = std::aligned_alloc(line, (size * sizeof(T) / line + 1) * line);
        if (!values) throw std::bad_alloc();
        return values;
    }
    std::unique_ptr<T, Free> values;
};

// Accumulators are MAX_ROWS x 2 registers; with those of one operand they fill the register file.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int MAX_ROWS = 12;
#else
constexpr int MAX_ROWS = 6;
#endif

template <class T>
constexpr int PANEL = 2 * WIDTH<T>;

inline int64_t padded(int64_t columns, int64_t width) { return (columns + width - 1) / width * width; }

// A [inner, columns] matrix in panels [inner, PANEL], zero beyond the last column. `element(k, j)` reads the original.
template <class T>
class Panels {
  public:
    Panels(int inner, int columns) : inner(inner), columns(columns), values(inner * padded(columns, PANEL<T>)) {}

    // From a row-major [inner, columns] matrix.
    void copy(const T* from) {
        for (int j = 0; j < columns; j += PANEL<T>) {
            const int width = std::min(PANEL<T>, columns - j);
            T* to = panel(j);
            for (int k = 0; k < inner; ++k, to += PANEL<T>) {
                for (int c = 0; c < width; ++c) to[c] = from[int64_t(k) * columns + j + c];
                std::fill(to + width, to + PANEL<T>, T(0));
            }
        }
    }

    // From its transpose, row-major [columns, inner].
    void copy_transposed(const T* from) {
        constexpr int block = 16;  // rows of 16 lie in one or two lines of the cache
        for (int j = 0; j < columns; j += PANEL<T>) {
            const int width = std::min(PANEL<T>, columns - j);
            for (int start = 0; start < inner; start += block) {
                const int stop = std::min(start + block, inner);
                for (int c = 0; c < PANEL<T>; ++c) {
                    const T* row = from + int64_t(j + c) * inner;
                    for (int k = start; k < stop; ++k) panel(j)[k * PANEL<T> + c] = c < width ? row[k] : T(0);
                }
            }
        }
    }

    // to[row] = from[row] * matrix, for all rows.
    void multiply(int rows, const T* from, int64_t from_stride, T* to, int64_t to_stride) const {
        const int blocks = (rows + MAX_ROWS - 1) / MAX_ROWS;
        for (int j = 0; j < columns; j += PANEL<T>) {
            const int width = std::min(PANEL<T>, columns - j);
            for (int block = 0; block < blocks; ++block) {
                const int first = rows * block / blocks, last = rows * (block + 1) / blocks;
                const T* a = from + first * from_stride;
                T* c = to + first * to_stride + j;
                dispatch(last - first, a, from_stride, panel(j), c, to_stride, width);
            }
        }
    }

  private:
    T* panel(int j) const { return values + int64_t(j) * inner; }

    template <int ROWS>
    void tile(const T* from, int64_t from_stride, const T* b, T* to, int64_t to_stride, int width) const {
        Vector<T> left[ROWS] = {}, right[ROWS] = {};
#pragma GCC unroll 4
        for (int k = 0; k < inner; ++k, b += PANEL<T>) {
            const Vector<T> first = load(b, Whole{}), second = load(b + WIDTH<T>, Whole{});
#pragma GCC unroll 12
            for (int row = 0; row < ROWS; ++row) {
                const T value = from[row * from_stride + k];
                left[row] += value * first;
                right[row] += value * second;
            }
        }
        for (int row = 0; row < ROWS; ++row, to += to_stride) {
            if (width == PANEL<T>) {
                store(to, left[row], Whole{});
                store(to + WIDTH<T>, right[row], Whole{});
            } else {
                store(to, left[row], std::min(width, WIDTH<T>));
                store(to + WIDTH<T>, right[row], std::max(width - WIDTH<T>, 0));
            }
        }
    }

    template <int ROWS = MAX_ROWS, class... Rest>
    void dispatch(int rows, Rest... rest) const {
        if constexpr (ROWS > 0) {
            if (rows == ROWS) {
                tile<ROWS>(rest...);
            } else {
                dispatch<ROWS - 1>(rows, rest...);
            }
        }
    }

    int inner, columns;
    Buffer<T> values;
};
