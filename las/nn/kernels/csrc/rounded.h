// Products of matrices that are rounded to bfloat16 first: the counterparts of `Panels` and of `multiply`.

#pragma once

#include "bfloat16.h"
#include "matrices.h"

// The matrix rounded to bfloat16 and still in fp32, in `room`: for processors without a unit.
inline Matrix<float> rounded_copy(const Matrix<float>& from, int64_t rows, int64_t columns, float* room) {
    if (from.column != 1 && from.row == 1) return rounded_copy(from.transposed(), columns, rows, room).transposed();
    for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < columns; ++j) room[i * columns + j] = rounded(*from.at(i, j));
    }
    return {room, columns, 1};
}

// Four blocks of a result, each written with `rows` full rows: those beyond its edges go to a place of their own first.
class Corners {
  public:
    explicit Corners(int rows) : rows(rows) {}

    // A block of which the result has [height, width].
    void set(int number, Corner target, int64_t height, int64_t width) {
        targets[number] = target;
        heights[number] = int(std::clamp<int64_t>(height, 0, rows));
        widths[number] = int(std::clamp<int64_t>(width, 0, SIDE));
        blocks[number] = whole(number) ? target : Corner{edges[number], SIDE};
    }

    // Asks for the lines that will be written.
    void ask() const {
        for (const Corner& block : blocks) {
            for (int row = 0; row < rows; ++row) __builtin_prefetch(block.at + row * block.stride, 1);
        }
    }

    // Copies what the result holds to where it is added to.
    void read() {
        each([](float* edge, float* target, int width) { std::copy_n(target, width, edge); });
    }

    void write() {
        each([](float* edge, float* target, int width) { std::copy_n(edge, width, target); });
    }

    Corner blocks[4];

  private:
    bool whole(int number) const { return heights[number] == rows && widths[number] == SIDE; }

    template <class Body>
    void each(Body body) {
        for (int number = 0; number < 4; ++number) {
            for (int row = 0; !whole(number) && row < heights[number]; ++row) {
                body(edges[number] + row * SIDE, targets[number].at + row * targets[number].stride, widths[number]);
            }
        }
    }

    const int rows;
    Corner targets[4];
    int heights[4], widths[4];
    alignas(LINE) float edges[4][SIDE * SIDE];
};

// A [inner, columns] matrix, rounded; `multiply` rounds the rows that it is given.
class RoundedPanels {
  public:
    RoundedPanels(int inner, int columns, Unit unit)
        : inner(inner), columns(columns), unit(unit), plain(unit == EMULATED ? inner : 0, columns),
          tiles(unit == EMULATED ? 0 : panels() * 4 * next()) {}

    // A team shares the columns.
    void copy(const Matrix<float>& from, Team team = {}) {
        if (unit == EMULATED) {
            Buffer<float> room(int64_t(inner) * columns);
            plain.copy(rounded_copy(from, inner, columns, room), team);
            return;
        }
        for (int panel = team.first(panels()); panel < team.last(panels()); ++panel) {
            const int first = panel * WIDE;
            copy_tiles(from.from(0, first).transposed(), columns - first, WIDE, inner, false, tiles + 4 * panel * next());
        }
    }

    // to[row] = from[row] * matrix, for all rows; a team shares the columns.
    void multiply(int rows, const float* from, int64_t from_stride, float* to, int64_t to_stride, Team team = {}) const {
        if (unit == EMULATED) {
            Buffer<float> room(int64_t(rows) * inner);
            plain.multiply(rows, rounded_copy({from, from_stride, 1}, rows, inner, room).values, inner, to, to_stride, team);
            return;
        }
        Buffer<uint32_t> left(next());
        for (int row = 0; row < rows; row += SIDE) {
            const int height = std::min(SIDE, rows - row);
            copy_tiles({from + row * from_stride, from_stride, 1}, height, SIDE, inner, true, left);
            const TileRegisters registers(unit, height);
            for (int panel = team.first(panels()); panel < team.last(panels()); ++panel) {
                Corners corners(height);
                for (int c = 0; c < 4; ++c) {
                    const int column = panel * WIDE + c * SIDE;
                    corners.set(c, {to + row * to_stride + column, to_stride}, height, columns - column);
                }
                multiply_row(unit, left, height, tiles + 4 * panel * next(), next(), tiles_of(inner), corners.blocks);
                corners.write();
            }
        }
    }

  private:
    static constexpr int WIDE = 4 * SIDE;
    int panels() const { return (columns + WIDE - 1) / WIDE; }
    int64_t next() const { return tiles_of(inner) * TILE_WORDS; }

    int inner, columns;
    Unit unit;
    Panels<float> plain;
    Buffer<uint32_t> tiles;
};

constexpr int ROUNDED_HEIGHT = 128;  // as HEIGHT of matrices.h, for numbers of half the size

inline void multiply_rounded_alone(const Product<float>& p, Unit unit, int64_t first_row, int64_t last_row,
                                   int64_t first_column, int64_t last_column) {
    constexpr int both = 2 * SIDE;
    const int64_t blocks = (p.inner + DEPTH - 1) / DEPTH;
    const int64_t deep = blocks ? tiles_of((p.inner + blocks - 1) / blocks) * DEEP : DEEP;
    const int64_t breadth = padded(std::min<int64_t>(BREADTH, last_column - first_column), both);
    Buffer<uint32_t> strips(ROUNDED_HEIGHT * deep / 2), panels(breadth * deep / 2);
    const TileRegisters registers(unit, SIDE);
    for (int64_t j = first_column; j < last_column; j += BREADTH) {
        const int width = std::min<int64_t>(BREADTH, last_column - j);
        for (int64_t k = 0; k == 0 || k < p.inner; k += deep) {  // of nothing, the product is zero
            const int depth = std::min<int64_t>(deep, p.inner - k);
            const int64_t next = tiles_of(depth) * TILE_WORDS;
            copy_tiles(p.right.from(k, j).transposed(), width, both, depth, false, panels);
            for (int64_t i = first_row; i < last_row; i += ROUNDED_HEIGHT) {
                const int height = std::min<int64_t>(ROUNDED_HEIGHT, last_row - i);
                copy_tiles(p.left.from(i, k), height, both, depth, true, strips);
                for (int c = 0; c < width; c += both) {
                    for (int r = 0; r < height; r += both) {
                        Corners corners(SIDE);
                        for (int n = 0; n < 4; ++n) {
                            const int row = r + n / 2 * SIDE, column = c + n % 2 * SIDE;
                            corners.set(n, {p.to + (i + row) * p.columns + j + column, p.columns}, height - row,
                                        width - column);
                        }
                        const bool adding = k || p.adding;
                        corners.ask();
                        if (adding) corners.read();
                        multiply_square(unit, strips + r / SIDE * next, panels + c / SIDE * next, next,
                                        tiles_of(depth), corners.blocks, adding);
                        corners.write();
                    }
                }
            }
        }
    }
}

// `multiply` of the rounded matrices.
inline void multiply_rounded(const Product<float>& p, Team team, Unit unit) {
    if (unit == EMULATED) {
        Buffer<float> left(p.rows * p.inner), right(p.inner * p.columns);
        Product<float> copied = p;
        copied.left = rounded_copy(p.left, p.rows, p.inner, left);
        copied.right = rounded_copy(p.right, p.inner, p.columns, right);
        multiply(copied, team);
    } else if (p.rows > p.columns) {
        const int strips = (p.rows + SIDE - 1) / SIDE;
        multiply_rounded_alone(p, unit, team.first(strips) * SIDE, std::min<int64_t>(p.rows, team.last(strips) * SIDE),
                               0, p.columns);
    } else {
        const int panels = (p.columns + SIDE - 1) / SIDE;
        multiply_rounded_alone(p, unit, 0, p.rows, team.first(panels) * SIDE,
                               std::min<int64_t>(p.columns, team.last(panels) * SIDE));
    }
}
