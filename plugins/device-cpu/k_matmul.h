/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products: tiles of R rows by P panels of 16 columns, whose
 * accumulators live in registers while the summed index runs. Cutting it into
 * blocks is exact, since a chain goes on from the stored accumulator.
 */
#ifndef CPU_K_MATMUL_H
#define CPU_K_MATMUL_H

#include "plugins/device-cpu/kernels.h"
#include "plugins/device-cpu/vec.h"

#define DEPTH_BLOCK 256 /* of b rows: 16 KiB a panel stays in the L1 cache */
#define ROW_BLOCK 168   /* of a rows: a block of a stays in the L2 cache */

/* Where a tile lies. */
typedef struct tile_at {
    size_t row;
    size_t panel;
    size_t k0;
    size_t k1;
    int start;
    const float *next;   /* of b, wanted in the cache soon */
    const float *next_c; /* of c: the tile behind this one */
} tile_at;

/* Compile-time shape of a tile. */
typedef struct tile_form {
    int rows;
    int panels;
    int transposed;
    int masked; /* the last panel of b is read with a mask */
    int triangle;
} tile_form;

VFN size_t lanes_of(const cpu_gemm *g, size_t panel)
{
    size_t left = g->cols - panel * 16;
    return left < 16 ? left : 16;
}

VFN v16 tile_start(const cpu_gemm *g, const tile_at *at, size_t row,
                   size_t panel)
{
    size_t n = lanes_of(g, panel);
    if (at->start == GEMM_LOAD)
        return v16_loadn(g->c + row * g->c_row + panel * 16, n);
    if (at->start == GEMM_BIAS)
        return v16_loadn(g->bias + panel * 16, n);
    return v16_set(0.0f);
}

VFN v16 tile_b(const float *b, const tile_form f, size_t lanes)
{
    return f.masked ? v16_loadn(b, lanes) : v16_load(b);
}

/* Line i of the next tile's accumulators. */
VFN void fetch_c(const tile_form f, const cpu_gemm *g, const tile_at *at,
                 size_t i)
{
    size_t panels = (size_t)f.panels;
    __builtin_prefetch(at->next_c + i / panels * g->c_row + i % panels * 16, 1,
                       3);
}

VFN void tile(const tile_form f, const cpu_gemm *g, const tile_at *at)
{
    v16 c[14][8];
    UNROLL_ROWS
    for (int r = 0; r < f.rows; r++)
        UNROLL_PANELS
    for (int p = 0; p < f.panels; p++)
        c[r][p] = tile_start(g, at, at->row + (size_t)r, at->panel + (size_t)p);
    size_t lanes = lanes_of(g, at->panel + (size_t)f.panels - 1);
    const float *a = g->a + (f.transposed ? at->row : at->row * g->a_row);
    const float *b = g->b + at->panel * g->b_panel + at->k0 * g->b_row;
    for (size_t k = at->k0; k < at->k1; k++, b += g->b_row) {
        v16 x[8];
        if (!f.masked && !f.triangle)
            __builtin_prefetch(at->next + 16 * (k - at->k0), 0, 2);
        /* A gradient's accumulators come from memory, not from a packing that
         * was just made. */
        if (f.transposed && k - at->k0 < (size_t)(f.rows * f.panels))
            fetch_c(f, g, at, k - at->k0);
        UNROLL_PANELS
        for (int p = 0; p < f.panels; p++)
            x[p] = tile_b(b + (size_t)p * g->b_panel, f, lanes);
        UNROLL_ROWS
        for (int r = 0; r < f.rows; r++) {
            v16 s = v16_set(f.transposed ? a[k * g->a_row + (size_t)r]
                                         : a[(size_t)r * g->a_row + k]);
            UNROLL_PANELS
            for (int p = 0; p < f.panels; p++)
                c[r][p] = v16_fma(s, x[p], c[r][p]);
        }
    }
    if (f.triangle) {
        UNROLL_PANELS
        for (int j = 1; j < f.rows; j++) {
            v16 x[8];
            UNROLL_PANELS
            for (int p = 0; p < f.panels; p++)
                x[p] = tile_b(b + (size_t)p * g->b_panel, f, lanes);
            b += g->b_row;
            UNROLL_PANELS
            for (int r = j; r < f.rows; r++) {
                v16 s =
                    v16_set(a[(size_t)r * g->a_row + at->k1 + (size_t)j - 1]);
                UNROLL_PANELS
                for (int p = 0; p < f.panels; p++)
                    c[r][p] = v16_fma(s, x[p], c[r][p]);
            }
        }
    }
    UNROLL_ROWS
    for (int r = 0; r < f.rows; r++)
        UNROLL_PANELS
    for (int p = 0; p < f.panels; p++)
        v16_storen(g->c + (at->row + (size_t)r) * g->c_row +
                       (at->panel + (size_t)p) * 16,
                   c[r][p], lanes_of(g, at->panel + (size_t)p));
}

/* ---- tables of tiles, [transposed][rows] -------------------------------- */

typedef void tile_fn(const cpu_gemm *g, const tile_at *at);

/* A function each: one that held them all would take minutes to compile. */
#define TILE(R, P, T, M, TRI)                                                 \
    static __attribute__((noinline)) void tile_##R##_##P##_##T##_##M##_##TRI( \
        const cpu_gemm *g, const tile_at *at)                                 \
    {                                                                         \
        tile((tile_form){ R, P, T, M, TRI }, g, at);                          \
    }
#define NAME(R, P, T, M, TRI) [R] = tile_##R##_##P##_##T##_##M##_##TRI,

#define ROWS_2(X, P, T, M, TRI) X(1, P, T, M, TRI) X(2, P, T, M, TRI)
#define ROWS_3(X, P, T, M, TRI) ROWS_2(X, P, T, M, TRI) X(3, P, T, M, TRI)
#define ROWS_4(X, P, T, M, TRI) ROWS_3(X, P, T, M, TRI) X(4, P, T, M, TRI)
#define ROWS_6(X, P, T, M, TRI) \
    ROWS_4(X, P, T, M, TRI) X(5, P, T, M, TRI) X(6, P, T, M, TRI)
#define ROWS_8(X, P, T, M, TRI) \
    ROWS_6(X, P, T, M, TRI) X(7, P, T, M, TRI) X(8, P, T, M, TRI)
#define ROWS_14(X, P, T, M, TRI) \
    ROWS_8(X, P, T, M, TRI)      \
    X(9, P, T, M, TRI)           \
    X(10, P, T, M, TRI)          \
    X(11, P, T, M, TRI)          \
    X(12, P, T, M, TRI) X(13, P, T, M, TRI) X(14, P, T, M, TRI)

/* Defines a table [transposed][rows] of tiles of P panels. */
#define TILE_TABLE(name, ROWS, P, M)                           \
    ROWS(TILE, P, 0, M, 0)                                     \
    ROWS(TILE, P, 1, M, 0)                                     \
    static tile_fn *const name[2][VEC_ROWS + 1] = {            \
        { ROWS(NAME, P, 0, M, 0) }, { ROWS(NAME, P, 1, M, 0) } \
    };
#define TRIANGLE_TABLE(name, ROWS, P, M) \
    ROWS(TILE, P, 0, M, 1)               \
    static tile_fn *const name[VEC_ROWS + 1] = { ROWS(NAME, P, 0, M, 1) };

/* Where masked loads cost nothing, one form of the single panel serves padded
 * and unpadded ones. */
#if VEC_ROWS == 14
TILE_TABLE(tiles_masked, ROWS_14, 1, 1)
#define tiles_1 tiles_masked
TILE_TABLE(tiles_2, ROWS_14, 2, 0)
TILE_TABLE(tiles_4, ROWS_6, 4, 0)
TILE_TABLE(tiles_8, ROWS_3, 8, 0)
TRIANGLE_TABLE(triangles_masked, ROWS_8, 1, 1)
#define triangles_1 triangles_masked
TRIANGLE_TABLE(triangles_2, ROWS_8, 2, 0)
#elif VEC_ROWS == 6
TILE_TABLE(tiles_masked, ROWS_6, 1, 1)
TILE_TABLE(tiles_1, ROWS_6, 1, 0)
TILE_TABLE(tiles_2, ROWS_2, 2, 0)
TILE_TABLE(tiles_4, ROWS_2, 4, 0)
TRIANGLE_TABLE(triangles_masked, ROWS_6, 1, 1)
TRIANGLE_TABLE(triangles_1, ROWS_6, 1, 0)
#else
TILE_TABLE(tiles_masked, ROWS_4, 1, 1)
TILE_TABLE(tiles_1, ROWS_4, 1, 0)
TRIANGLE_TABLE(triangles_masked, ROWS_4, 1, 1)
TRIANGLE_TABLE(triangles_1, ROWS_4, 1, 0)
#endif

/* How many panels a tile of so many rows walks at once: enough accumulators to
 * keep the FMA units busy, and no more than there are registers. */
VFN size_t panels_for(size_t rows)
{
#if VEC_ROWS == 14
    return rows <= 3 ? 8 : rows <= 6 ? 4 : 2;
#elif VEC_ROWS == 6
    return rows <= 1 ? 4 : rows <= 2 ? 2 : 1;
#else
    (void)rows;
    return 1;
#endif
}

static tile_fn *tile_of(int t, size_t panels, size_t rows)
{
    switch (panels) {
#if VEC_ROWS == 14
    case 8:
        return tiles_8[t][rows];
#endif
#if VEC_ROWS >= 6
    case 4:
        return tiles_4[t][rows];
    case 2:
        return tiles_2[t][rows];
#endif
    default:
        return tiles_1[t][rows];
    }
}

/* Most panels, up to `most`, that fit in `left`: a power of two. */
VFN size_t panel_step(size_t most, size_t left)
{
    while (most > left)
        most /= 2;
    return most;
}

/* All row tiles of one block for panels [p0, p1); tiles have near equal height,
 * because a low one would wait for its own FMAs. */
static void gemm_block(int t, const cpu_gemm *g, tile_at *at, size_t m0,
                       size_t m1)
{
    size_t whole = g->cols / 16;
    size_t panels = (g->cols + 15) / 16;
    size_t padded = g->b_tail ? whole : panels;
    size_t tiles = (m1 - m0 + VEC_ROWS - 1) / VEC_ROWS;
    size_t most = panels_for((m1 - m0) / tiles + ((m1 - m0) % tiles != 0));
    for (size_t p = 0; p < panels;) {
        int masked = p >= padded;
        size_t step = masked ? 1 : panel_step(most, padded - p);
        size_t row = m0;
        at->panel = p;
        for (size_t i = 0; i < tiles; i++) {
            size_t rows = (m1 - row + (tiles - i) - 1) / (tiles - i);
            at->row = row;
            /* Tile i fetches panel i of the next step. */
            size_t ahead = p + step + i < panels && i < step ? step + i : 0;
            at->next = g->b + (p + ahead) * g->b_panel + at->k0 * g->b_row;
            size_t row_c = i + 1 < tiles ? row + rows : m0;
            size_t panel_c = i + 1 < tiles || p + step >= panels ? p : p + step;
            at->next_c = g->c + row_c * g->c_row + panel_c * 16;
            if (masked)
                tiles_masked[t][rows](g, at);
            else
                tile_of(t, step, rows)(g, at);
            row += rows;
        }
        p += step;
    }
}

static void gemm_blocks(int t, const cpu_gemm *g)
{
    size_t depth = g->rows > VEC_ROWS ? DEPTH_BLOCK : g->depth;
    for (size_t m0 = 0; m0 < g->rows; m0 += ROW_BLOCK) {
        size_t m1 = m0 + ROW_BLOCK < g->rows ? m0 + ROW_BLOCK : g->rows;
        tile_at at = { .start = g->start };
        do {
            at.k1 = g->depth - at.k0 > depth ? at.k0 + depth : g->depth;
            gemm_block(t, g, &at, m0, m1);
            at.k0 = at.k1;
            at.start = GEMM_LOAD;
        } while (at.k0 < g->depth);
    }
}

static void gemm(const cpu_gemm *g)
{
    gemm_blocks(0, g);
}

static void gemm_t(const cpu_gemm *g)
{
    gemm_blocks(1, g);
}

/* Row r of the product goes on to depth + r: the keys that later queries of a
 * causal tile see. rows <= TRI_ROWS. */
#define TRI_ROWS (VEC_ROWS < CPU_QUERY_TILE ? VEC_ROWS : CPU_QUERY_TILE)

static void gemm_triangle(const cpu_gemm *g)
{
    size_t whole = g->cols / 16;
    size_t panels = (g->cols + 15) / 16;
    tile_at at = { .start = g->start, .k1 = g->depth };
    for (size_t p = 0; p < panels;) {
        at.panel = p;
#if VEC_ROWS >= 14
        if (whole >= p + 2) {
            triangles_2[g->rows](g, &at);
            p += 2;
            continue;
        }
#endif
        if (p >= whole)
            triangles_masked[g->rows](g, &at);
        else
            triangles_1[g->rows](g, &at);
        p++;
    }
}

/* db[j] = chain over tokens of dy[t, j], each added (a product with 1). */
static void bias_grad(float *db, const float *dy, size_t stride, size_t tokens,
                      size_t n)
{
    for (size_t j = 0; j < n; j += 16) {
        size_t lanes = n - j < 16 ? n - j : 16;
        v16 s = v16_loadn(db + j, lanes);
        for (size_t t = 0; t < tokens; t++)
            s = v16_add(s, v16_loadn(dy + t * stride + j, lanes));
        v16_storen(db + j, s, lanes);
    }
}

#endif
