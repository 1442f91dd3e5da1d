// The product of the few rows of one frame with a weight that every frame uses: the weight is copied once into panels
// of columns that are as wide as the accumulators, so that each step reads it front to back.

#pragma once

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "vectors.h"

constexpr int LINE = 64;  // bytes that memory gives at once

// Memory of many bytes, which is kept for others when it is given back: a first write to each of its pages would take
// longer than a copy of what is written. Sizes are powers of two.
class Blocks {
  public:
    // The bytes of a block for so many; 0 for those that come from the C library.
    static int64_t size_for(int64_t bytes) {
        int64_t size = LEAST;
        while (size < bytes) size *= 2;
        return bytes < LEAST || size > MOST ? 0 : size;
    }

    static Blocks& shared() {
        static Blocks* blocks = new Blocks;  // other threads may still use it when the process ends
        return *blocks;
    }

    void* take(int64_t size) {
        const std::lock_guard<std::mutex> lock(mutex);
        std::vector<void*>& same = idle[size];
        if (same.empty()) return std::aligned_alloc(LINE, size);
        void* block = same.back();
        same.pop_back();
        return block;
    }

    void give_back(void* block, int64_t size) {
        const std::lock_guard<std::mutex> lock(mutex);
        idle[size].push_back(block);
    }

  private:
    static constexpr int64_t LEAST = 1 << 18, MOST = 1 << 26;
    std::mutex mutex;
    std::map<int64_t, std::vector<void*>> idle;
};

template <class T>
class Buffer {
  public:
    explicit Buffer(int64_t size = 0) : Buffer(size, Blocks::size_for(size * sizeof(T))) {}
    operator T*() const { return values.get(); }

  private:
    Buffer(int64_t size, int64_t block)
        : values(static_cast<T*>(block ? Blocks::shared().take(block)
                                       : std::aligned_alloc(LINE, (size * sizeof(T) / LINE + 1) * LINE)),
                 Release{block}) {
        if (!values) throw std::bad_alloc();
    }

    struct Release {
        int64_t block;
        void operator()(T* values) const { block ? Blocks::shared().give_back(values, block) : std::free(values); }
    };
    std::unique_ptr<T, Release> values;
};

// Accumulators are MAX_ROWS x 2 registers; with those of one operand they fill the register file.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int MAX_ROWS = 12;
#else
constexpr int MAX_ROWS = 6;
#endif

// Where threads wait for each other. One that waits for long gives its processor to others: on a machine that is shared,
// the threads that it waits for may be among those that have none.
class Barrier {
  public:
    void wait(int size) {
        const int now = turn.load(std::memory_order_relaxed);
        if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == size) {
            arrived.store(0, std::memory_order_relaxed);
            turn.store(now + 1, std::memory_order_release);
            return;
        }
        for (int looks = 0; turn.load(std::memory_order_acquire) == now; ++looks) {
            if (looks > PATIENCE) std::this_thread::yield();
        }
    }

  private:
    static constexpr int PATIENCE = 2000;  // looks, some microseconds

    std::atomic<int> arrived{0};
    std::atomic<int> turn{0};
};

// Threads that go through the same loops, each with its share of the work.
struct Team {
    int number = 0, size = 1;
    Barrier* barrier = nullptr;

    // Until all have come here.
    void wait() const {
        if (size > 1) barrier->wait(size);
    }

    // Of `count` things, this thread's first, and the first that is the next one's.
    int first(int count) const { return int64_t(count) * number / size; }
    int last(int count) const { return int64_t(count) * (number + 1) / size; }
};

// Every thread of the pool is asked for: with fewer it would end the others, and start them for the next call.
template <class Body>
void in_team(int64_t threads, Body body) {
    if (threads == 1) {
        body(Team{});
        return;
    }
    Barrier barrier;
#pragma omp parallel num_threads(threads)
    {
        const Team team{omp_get_thread_num(), omp_get_num_threads(), &barrier};
        body(team);
        team.wait();  // else at the end of this region, where threads are never idle
    }
}

template <class T>
constexpr int PANEL = 2 * WIDTH<T>;

inline int64_t padded(int64_t columns, int64_t width) { return (columns + width - 1) / width * width; }

// Element (i, j) is values[i * row + j * column]; one of the strides is 1.
template <class T>
struct Matrix {
    const T* values;
    int64_t row, column;

    const T* at(int64_t i, int64_t j) const { return values + i * row + j * column; }
    Matrix from(int64_t i, int64_t j) const { return {at(i, j), row, column}; }
    Matrix transposed() const { return {values, column, row}; }
};

// The block [inner, columns] in pieces [inner, WIDE], zero beyond the last column.
template <int WIDE, class T>
void copy_block(const Matrix<T>& block, int inner, int columns, T* to) {
    constexpr int near = 32, deep = 16;  // pieces whose rows are read together; rows that lie in one line or two
    constexpr int ahead = 8;             // rows
    const int pieces = (columns + WIDE - 1) / WIDE;
    for (int group = 0; block.column == 1 && group < pieces; group += near) {
        const int last = std::min(group + near, pieces), end = std::min(last * WIDE, columns);
        for (int k = 0; k < inner; ++k) {
            // Rows may lie on pages of their own: then the processor does not guess which one is read next.
            const T* next = block.at(std::min(k + ahead, inner - 1), 0);
            for (int c = group * WIDE; c < end; c += LINE / sizeof(T)) __builtin_prefetch(next + c);
            for (int piece = group; piece < last; ++piece) {
                const int width = std::min(WIDE, columns - piece * WIDE);
                T* row = to + (int64_t(piece) * inner + k) * WIDE;
                if (width == WIDE) {
                    std::memcpy(row, block.at(k, piece * WIDE), WIDE * sizeof(T));  // of a known size: no call
                } else {
                    std::copy_n(block.at(k, piece * WIDE), width, row);
                    std::fill(row + width, row + WIDE, T(0));
                }
            }
        }
    }
    for (int piece = 0; block.column != 1 && piece < pieces; ++piece) {
        int start = 0;
        if ((piece + 1) * WIDE <= columns) {  // in squares, whose lines are asked for ahead
            for (; start + WIDTH<T> <= inner; start += WIDTH<T>) {
#pragma GCC unroll 4
                for (int c = 0; c < WIDE; c += WIDTH<T>) {
                    const int width = std::min(WIDTH<T>, WIDE - c);
                    const T* from = block.at(start, piece * WIDE + c);
                    Vector<T> square[WIDTH<T>] = {};
                    for (int lane = 0; lane < width; ++lane) {
                        square[lane] = load(from + lane * block.column, Whole{});
                        __builtin_prefetch(from + lane * block.column + ahead * WIDTH<T>);
                    }
                    transpose<T>(square);
                    T* corner = to + (int64_t(piece) * inner + start) * WIDE + c;
                    for (int k = 0; k < WIDTH<T>; ++k) std::memcpy(corner + k * WIDE, &square[k], width * sizeof(T));
                }
            }
        }
        for (; start < inner; start += deep) {
            const int stop = std::min(start + deep, inner);
            for (int c = 0; c < WIDE; ++c) {
                const bool inside = piece * WIDE + c < columns;
                const T* from = block.at(0, piece * WIDE + c);
                T* column = to + int64_t(piece) * inner * WIDE + c;
                for (int k = start; k < stop; ++k) column[k * WIDE] = inside ? from[k] : T(0);
            }
        }
    }
}

// A few rows of a product, as wide as a panel; with one vector as its first half, with more than two as several.
template <class T, int ROWS, int VECTORS = 2>
struct Tile {
    Vector<T> sums[VECTORS][ROWS] = {};

    // Vectors beyond the first two are of the panels after the first, each `next` numbers after the one before.
    template <class Element>
    void multiply(int inner, const T* panel, Element element, int64_t next = 0) {
#pragma GCC unroll 4
        for (int k = 0; k < inner; ++k, panel += PANEL<T>) {
            Vector<T> weights[VECTORS];
            for (int v = 0; v < VECTORS; ++v) weights[v] = load(panel + v / 2 * next + v % 2 * WIDTH<T>, Whole{});
#pragma GCC unroll 12
            for (int row = 0; row < ROWS; ++row) {
                const T value = element(row, k);
                for (int v = 0; v < VECTORS; ++v) sums[v][row] += value * weights[v];
            }
        }
    }

    // body(row, column, values, lanes) for each vector of it.
    template <class Body>
    void each(int width, Body body) {
        for (int row = 0; row < ROWS; ++row) {
            for (int v = 0; v < VECTORS; ++v) {
                const int column = v * WIDTH<T>;
                if (width == VECTORS * WIDTH<T>) {
                    body(row, column, sums[v][row], Whole{});
                } else if (width > column) {
                    body(row, column, sums[v][row], std::min(width - column, WIDTH<T>));
                }
            }
        }
    }
};

// A [inner, columns] matrix in panels [inner, PANEL], zero beyond the last column.
template <class T>
class Panels {
  public:
    Panels(int inner, int columns) : inner(inner), columns(columns), values(inner * padded(columns, PANEL<T>)) {}

    // A team shares the columns.
    void copy(const Matrix<T>& from, Team team = {}) {
        const int first = first_column(team), last = std::min(last_column(team), columns);
        if (first < last) copy_block<PANEL<T>, T>(from.from(0, first), inner, last - first, panel(first));
    }

    // to[row] = from[row] * matrix, for all rows; a team shares the columns. Panels are read in parts that stay in the
    // first cache for all rows; meanwhile the next part is asked for, as weights may be more than the caches hold.
    void multiply(int rows, const T* from, int64_t from_stride, T* to, int64_t to_stride, Team team = {}) const {
        constexpr int part = 256 * sizeof(float) / sizeof(T), step = 4;
        constexpr int lines = step * PANEL<T> * sizeof(T) / LINE;  // of a step
        const int blocks = (rows + MAX_ROWS - 1) / MAX_ROWS, end = last_column(team);
        // Of each block's step: together they ask for all. One or two rows are nothing but loads, which this would delay.
        const int share = std::min(rows, (lines + blocks - 1) / std::max(blocks, 1));
        int j = first_column(team);
        if (rows == 1) {
            for (; j + ABREAST * PANEL<T> <= std::min(end, columns); j += ABREAST * PANEL<T>) multiply_row(from, to, j);
        }
        for (; j < end; j += PANEL<T>) {
            for (int start = 0; start == 0 || start < inner; start += part) {
                const int depth = std::min(part, inner - start);
                const T* values = panel(j) + int64_t(start) * PANEL<T>;
                const char* next = reinterpret_cast<const char*>(values + depth * PANEL<T>);
                in_blocks(rows, blocks, [&](auto size, int first) {
                    const T *a[size], *at = values;
                    for (int row = 0; row < size; ++row) a[row] = from + (first + row) * from_stride + start;
                    T* corner = to + first * to_stride + j;
                    Tile<T, size> tile;
                    if (start) {
                        tile.each(width_at(j), [&](int row, int column, Vector<T>& values, auto lanes) {
                            values = load(corner + row * to_stride + column, lanes);
                        });
                    }
                    int k = 0;
                    const auto element = [&](int row, int ahead) { return a[row][k + ahead]; };
                    for (; k + step <= depth; k += step, at += step * PANEL<T>) {
                        for (int asked = 0; asked < share; ++asked, next += LINE) __builtin_prefetch(next, 0, 2);
                        tile.multiply(step, at, element);
                    }
                    tile.multiply(depth - k, at, element);
                    tile.each(width_at(j), [&](int row, int column, Vector<T>& values, auto lanes) {
                        store(corner + row * to_stride + column, values, lanes);
                    });
                });
            }
        }
    }

    // Column `j`, the first of a panel, from row `k` on.
    const T* at(int64_t k, int64_t j) const { return panel(j) + k * PANEL<T>; }

  private:
    // Panels that one row is multiplied with side by side: with one, each sum would wait for the one before it.
    static constexpr int ABREAST = 4;

    void multiply_row(const T* from, T* to, int j) const {
        Tile<T, 1, 2 * ABREAST> tile;
        tile.multiply(inner, panel(j), [=](int, int k) { return from[k]; }, int64_t(inner) * PANEL<T>);
        tile.each(ABREAST * PANEL<T>, [=](int, int column, Vector<T> values, auto lanes) {
            store(to + j + column, values, lanes);
        });
    }

    T* panel(int j) const { return values + int64_t(j) * inner; }
    int panels() const { return (columns + PANEL<T> - 1) / PANEL<T>; }
    int first_column(Team team) const { return team.first(panels()) * PANEL<T>; }
    int last_column(Team team) const { return team.last(panels()) * PANEL<T>; }
    int width_at(int j) const { return std::min(PANEL<T>, columns - j); }

    // body(size, first) for blocks of rows that are as equal as they can be.
    template <class Body>
    static void in_blocks(int rows, int blocks, Body body) {
        for (int block = 0; block < blocks; ++block) {
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
