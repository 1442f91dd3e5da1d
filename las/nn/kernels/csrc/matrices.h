// Products of large matrices. What is used again and again is copied into the order in which it is read, in blocks that
// stay in a cache (Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication, 2008).

#pragma once

#include "products.h"

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

template <class T>
void multiply_alone(const Product<T>& p, int64_t first_row, int64_t last_row, int64_t first_column, int64_t last_column) {
    const int64_t blocks = (p.inner + DEPTH - 1) / DEPTH, deep = blocks ? (p.inner + blocks - 1) / blocks : 1;
    Buffer<T> strips(deep * HEIGHT), panels(deep * padded(std::min<int64_t>(BREADTH, p.columns), PANEL<T>));
    for (int64_t j = first_column; j < last_column; j += BREADTH) {
        const int width = std::min<int64_t>(BREADTH, last_column - j);
        for (int64_t k = 0; k == 0 || k < p.inner; k += deep) {  // of nothing, the product is zero
            const int depth = std::min<int64_t>(deep, p.inner - k);
            copy_block<PANEL<T>, T>(p.right.from(k, j), depth, width, panels);
            for (int64_t i = first_row; i < last_row; i += HEIGHT) {
                const int height = std::min<int64_t>(HEIGHT, last_row - i);
                copy_block<MAX_ROWS, T>(p.left.from(i, k).transposed(), depth, height, strips);
                for (int c = 0; c < width; c += PANEL<T>) {
                    for (int r = 0; r < height; r += MAX_ROWS) {
                        T* corner = p.to + (i + r) * p.columns + j + c;
                        const T* strip = strips + int64_t(r) * depth;
                        for (int row = 0; row < std::min(MAX_ROWS, height - r); ++row) {
                            __builtin_prefetch(corner + row * p.columns, 1);
                        }
                        Tile<T, MAX_ROWS> tile;
                        tile.multiply(depth, panels + int64_t(c) * depth,
                                      [&](int row, int k) { return strip[k * MAX_ROWS + row]; });
                        tile.each(std::min(PANEL<T>, width - c), [&](int row, int column, Vector<T> values, auto n) {
                            if (r + row >= height) return;
                            T* at = corner + row * p.columns + column;
                            store(at, k || p.adding ? load(at, n) + values : values, n);
                        });
                    }
                }
            }
        }
    }
}

// A team shares the longer side of the result; every element is summed in one order, whoever does it.
template <class T>
void multiply(const Product<T>& p, Team team) {
    if (p.rows > p.columns) {
        const int strips = (p.rows + MAX_ROWS - 1) / MAX_ROWS;
        multiply_alone(p, team.first(strips) * MAX_ROWS, std::min<int64_t>(p.rows, team.last(strips) * MAX_ROWS), 0,
                       p.columns);
    } else {
        const int panels = (p.columns + PANEL<T> - 1) / PANEL<T>;
        multiply_alone(p, 0, p.rows, team.first(panels) * PANEL<T>,
                       std::min<int64_t>(p.columns, team.last(panels) * PANEL<T>));
    }
}
