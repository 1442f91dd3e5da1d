// Products of large matrices. What is used again and again is copied into the order in which it is read, in blocks that
// stay in a cache (Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication, 2008).

#pragma once

#include "prepacked.h"

// to [rows, columns], row-major, is left [rows, inner] * right [inner, columns], or that is added to it.
template <class T>
struct Product {
    int64_t rows, inner, columns, adding;
    Matrix<T> left, right;
    T* to;
};

constexpr int DEPTH = 1024;           // of blocks, at most: for each of them the result is read and written once,
constexpr int HEIGHT = 8 * MAX_ROWS;  // so many rows of the left matrix stay in the second cache,
constexpr int BREADTH = 4096;         // so many columns of the right one in the third

constexpr int FEW = 2 * HEIGHT;       // rows that all stay in the second cache: then panels are used up one by one
constexpr int SHORT = 256;            // rows of the left one that are no longer are read where they are

// A corner of the result, [height, width], by a tile of so many rows and vectors: `element` gives the left matrix.
template <int ROWS, int VECTORS, class T, class Element>
void multiply_tile(const Product<T>& p, T* corner, int height, int width, int depth, const T* panel, bool adding,
                   Element element) {
    for (int row = 0; row < height; ++row) __builtin_prefetch(corner + row * p.columns, 1);
    Tile<T, ROWS, VECTORS> tile;
    tile.multiply(depth, panel, element);
    const auto keep = [&](int row, int column, Vector<T> values, auto n) {
        T* at = corner + row * p.columns + column;
        store(at, adding ? load(at, n) + values : values, n);
    };
    if (height == ROWS) {
        tile.each(width, keep);
    } else {
        tile.each(width, [&](int row, int column, Vector<T> values, auto n) {
            if (row < height) keep(row, column, values, n);
        });
    }
}

// By the smallest tile that holds it: of all rows or half of them, of two vectors or one.
template <class T, class Element>
void multiply_corner(const Product<T>& p, T* corner, int height, int width, int depth, const T* panel, bool adding,
                     Element element) {
    const auto by = [&](auto rows) {
        if (width > WIDTH<T>) {
            multiply_tile<rows, 2>(p, corner, height, width, depth, panel, adding, element);
        } else {
            multiply_tile<rows, 1>(p, corner, height, width, depth, panel, adding, element);
        }
    };
    if (height > MAX_ROWS / 2) {
        by(std::integral_constant<int, MAX_ROWS>{});
    } else {
        by(std::integral_constant<int, MAX_ROWS / 2>{});
    }
}

// `kept` are the panels of the right matrix, if they are at hand.
template <class T>
void multiply_alone(const Product<T>& p, const Panels<T>* kept, int64_t first_row, int64_t last_row,
                    int64_t first_column, int64_t last_column) {
    const int64_t blocks = (p.inner + DEPTH - 1) / DEPTH, deep = blocks ? (p.inner + blocks - 1) / blocks : 1;
    const bool in_place = p.left.column == 1 && deep <= SHORT;
    const bool few = last_row - first_row <= FEW;
    const int64_t tallest = few ? FEW : HEIGHT, widest = few ? PANEL<T> : BREADTH;
    Buffer<T> strips(in_place ? 0 : deep * tallest);
    Buffer<T> panels(kept ? 0 : deep * padded(std::min<int64_t>(widest, p.columns), PANEL<T>));
    for (int64_t j = first_column; j < last_column; j += widest) {
        const int width = std::min<int64_t>(widest, last_column - j);
        const bool held = few && blocks == 1 && j > first_column;  // the strips are those of all columns
        for (int64_t k = 0; k == 0 || k < p.inner; k += deep) {  // of nothing, the product is zero
            const int depth = std::min<int64_t>(deep, p.inner - k);
            if (!kept) copy_block<PANEL<T>, T>(p.right.from(k, j), depth, width, panels);
            for (int64_t i = first_row; i < last_row; i += tallest) {
                const int height = std::min<int64_t>(tallest, last_row - i);
                if (!in_place && !held) copy_block<MAX_ROWS, T>(p.left.from(i, k).transposed(), depth, height, strips);
                for (int c = 0; c < width; c += PANEL<T>) {
                    for (int r = 0; r < height; r += MAX_ROWS) {
                        const int tall = std::min(MAX_ROWS, height - r), wide = std::min(PANEL<T>, width - c);
                        T* corner = p.to + (i + r) * p.columns + j + c;
                        const T* panel = kept ? kept->at(k, j + c) : panels + int64_t(c) * depth;
                        const auto multiply = [&](auto element) {
                            multiply_corner(p, corner, tall, wide, depth, panel, k || p.adding, element);
                        };
                        if (in_place) {
                            const T* rows[MAX_ROWS];
                            for (int row = 0; row < MAX_ROWS; ++row) {
                                rows[row] = p.left.at(i + r + std::min(row, tall - 1), k);
                            }
                            multiply([&](int row, int k) { return rows[row][k]; });
                        } else {
                            const T* strip = strips + int64_t(r) * depth;
                            multiply([&](int row, int k) { return strip[k * MAX_ROWS + row]; });
                        }
                    }
                }
            }
        }
    }
}

// A team shares the longer side of the result; every element is summed in one order, whoever does it.
template <class T>
void multiply(const Product<T>& p, Team team, const Panels<T>* kept = nullptr) {
    if (p.rows > p.columns) {
        const int strips = (p.rows + MAX_ROWS - 1) / MAX_ROWS;
        multiply_alone(p, kept, team.first(strips) * MAX_ROWS,
                       std::min<int64_t>(p.rows, team.last(strips) * MAX_ROWS), 0, p.columns);
    } else {
        const int panels = (p.columns + PANEL<T> - 1) / PANEL<T>;
        multiply_alone(p, kept, 0, p.rows, team.first(panels) * PANEL<T>,
                       std::min<int64_t>(p.columns, team.last(panels) * PANEL<T>));
    }
}
