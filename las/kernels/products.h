// The product of the few rows of one frame with a weight that every frame uses: the weight is copied once into panels
// of columns that are as wide as the accumulators, so that each step reads it front to back, straight from the cache.

#pragma once

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>
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

// Threads that go through the same loops, each with its share of the work.
struct Team {
    int number = 0, size = 1;

    // Until all have come here.
    void wait() const {
        if (size > 1) {
#pragma omp barrier
        }
    }

    // Of `count` things, this thread's first, and the first that is the next one's.
    int first(int count) const { return int64_t(count) * number / size; }
    int last(int count) const { return int64_t(count) * (number + 1) / size; }
};

constexpr int MAX_INNER = 128;  // of a product that is added up over several calls

template <class T>
constexpr int PANEL = 2 * WIDTH<T>;

inline int64_t padded(int64_t columns, int64_t width) { return (columns + width - 1) / width * width; }

// A [inner, columns] matrix in panels [inner, PANEL], zero beyond the last column. `element(k, j)` reads the original.
template <class T>
class Panels {
  public:
    Panels(int inner, int columns) : inner(inner), columns(columns), values(inner * padded(columns, PANEL<T>)) {}

    // From a row-major [inner, columns] matrix.
    void copy(const T* from, Team team = {}) {
        for (int j = first_column(team); j < last_column(team); j += PANEL<T>) {
            const int width = width_at(j);
            T* to = panel(j);
            for (int k = 0; k < inner; ++k, to += PANEL<T>) {
                for (int c = 0; c < width; ++c) to[c] = from[int64_t(k) * columns + j + c];
                std::fill(to + width, to + PANEL<T>, T(0));
            }
        }
    }

    // From its transpose, row-major [columns, inner].
    void copy_transposed(const T* from, Team team = {}) {
        constexpr int block = 16;  // rows of 16 lie in one or two lines of the cache
        for (int j = first_column(team); j < last_column(team); j += PANEL<T>) {
            const int width = width_at(j);
            for (int start = 0; start < inner; start += block) {
                const int stop = std::min(start + block, inner);
                for (int c = 0; c < PANEL<T>; ++c) {
                    const T* row = from + int64_t(j + c) * inner;
                    for (int k = start; k < stop; ++k) panel(j)[k * PANEL<T> + c] = c < width ? row[k] : T(0);
                }
            }
        }
    }

    // Row k of the matrix.
    void set_row(int k, const T* from) {
        for (int j = 0; j < columns; j += PANEL<T>) {
            T* to = panel(j) + k * PANEL<T>;
            const int width = width_at(j);
            std::copy_n(from + j, width, to);
            std::fill(to + width, to + PANEL<T>, T(0));
        }
    }

    // to[row] = from[row] * matrix, for all rows; a team shares the columns.
    void multiply(int rows, const T* from, int64_t from_stride, T* to, int64_t to_stride, Team team = {}) const {
        for (int j = first_column(team); j < last_column(team); j += PANEL<T>) {
            in_blocks(rows, {}, [&](auto size, int first) {
                const T* a = from + first * from_stride;
                Tile<size> tile;
                tile.multiply(inner, panel(j), [&](int row, int k) { return a[row * from_stride + k]; });
                tile.each(width_at(j), [&](int row, int column, Vector<T> values, auto lanes) {
                    store(to + (first + row) * to_stride + j + column, values, lanes);
                });
            });
        }
    }

    // to += left^T * matrix, with the first `rows` rows of both; left has `left_columns`, as `to` has rows, which a team
    // shares.
    void add_product(int rows, const T* left, int64_t left_stride, int left_columns, T* to, Team team = {}) const {
        T block[MAX_INNER * MAX_ROWS];
        in_blocks(left_columns, team, [&](auto size, int first) {
            for (int k = 0; k < rows; ++k) std::copy_n(left + k * left_stride + first, size, block + k * size);
            for (int j = 0; j < columns; j += PANEL<T>) {
                Tile<size> tile;
                tile.multiply(rows, panel(j), [&](int row, int k) { return block[k * size + row]; });
                tile.each(width_at(j), [&](int row, int column, Vector<T> values, auto lanes) {
                    add(to + int64_t(first + row) * columns + j + column, values, lanes);
                });
            }
        });
    }

  private:
    T* panel(int j) const { return values + int64_t(j) * inner; }
    int panels() const { return (columns + PANEL<T> - 1) / PANEL<T>; }
    int first_column(Team team) const { return team.first(panels()) * PANEL<T>; }
    int last_column(Team team) const { return team.last(panels()) * PANEL<T>; }
    int width_at(int j) const { return std::min(PANEL<T>, columns - j); }

    // A few rows of a product, as wide as a panel.
    template <int ROWS>
    struct Tile {
        Vector<T> left[ROWS] = {}, right[ROWS] = {};

        template <class Element>
        void multiply(int inner, const T* panel, Element element) {
#pragma GCC unroll 4
            for (int k = 0; k < inner; ++k, panel += PANEL<T>) {
                const Vector<T> first = load(panel, Whole{}), second = load(panel + WIDTH<T>, Whole{});
#pragma GCC unroll 12
                for (int row = 0; row < ROWS; ++row) {
                    const T value = element(row, k);
                    left[row] += value * first;
                    right[row] += value * second;
                }
            }
        }

        // put(row, column, values, lanes) for each vector of it.
        template <class Put>
        void each(int width, Put put) const {
            for (int row = 0; row < ROWS; ++row) {
                if (width == PANEL<T>) {
                    put(row, 0, left[row], Whole{});
                    put(row, WIDTH<T>, right[row], Whole{});
                } else {
                    put(row, 0, left[row], std::min(width, WIDTH<T>));
                    if (width > WIDTH<T>) put(row, WIDTH<T>, right[row], width - WIDTH<T>);
                }
            }
        }
    };

    // body(size, first) for blocks of rows that are as large as a tile may be and as equal as they can be.
    template <class Body>
    static void in_blocks(int rows, Team team, Body body) {
        const int blocks = (rows + MAX_ROWS - 1) / MAX_ROWS;
        for (int block = team.first(blocks); block < team.last(blocks); ++block) {
            const int first = int64_t(rows) * block / blocks, last = int64_t(rows) * (block + 1) / blocks;
            with_size(last - first, first, body);
        }
    }

    template <int ROWS = MAX_ROWS, class Body>
    static void with_size(int rows, int first, Body body) {
        if constexpr (ROWS > 0) {
            if (rows == ROWS) {
                body(std::integral_constant<int, ROWS>{}, first);
            } else {
                with_size<ROWS - 1>(rows, first, body);
            }
        }
    }

    int inner, columns;
    Buffer<T> values;
};
