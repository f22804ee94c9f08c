/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products of the CPU. A tile of R rows by P panels of 16 columns keeps
 * its accumulators in registers while the summed index runs. Cutting the summed
 * index into blocks is exact, since a chain continues from the stored
 * accumulator.
 */
#ifndef CPU_K_MATMUL_H
#define CPU_K_MATMUL_H

#include "plugins/device-cpu/kernels.h"
#include "plugins/device-cpu/vec.h"

/* 16 KiB per panel of b stay in the L1 cache, a block of `a` in the L2 cache.
 */
#define DEPTH_BLOCK CPU_GEMM_DEPTH
#define ROW_BLOCK CPU_GEMM_ROWS

/* A single row of bf16 prefetches the same offsets of the panels after its own
 * if those fit the L2 cache, otherwise the bytes that follow in its panel. */
#define STEP_AHEAD ((size_t)512 << 10)
#define ROW_AHEAD ((size_t)2 << 10)

/* The part of the product that a tile computes, and what it prefetches. */
typedef struct tile_at {
    size_t row;
    size_t panel;
    size_t k0;
    size_t k1;
    int start;
    const float *next;   /* address in a or b that will be read soon */
    size_t next_row;     /* floats between the 16 lines to prefetch */
    size_t next_sixteen; /* floats from these 16 lines to the next 16 */
    const float *next_c; /* the accumulators of the next tile */
    size_t ahead;        /* a single row of bf16: bytes from b to the line */
} tile_at;

/* The compile-time shape of a tile. */
typedef struct tile_form {
    int rows;
    int panels;
    int transposed;
    int masked; /* the last panel of b is read with a mask */
    int triangle;
    int narrow; /* b is bf16 */
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
    if (at->start == GEMM_FROM)
        return v16_loadn(g->from + row * g->from_row + panel * 16, n);
    return v16_set(0.0f);
}

VFN v16 tile_b(const char *b, const tile_form f, size_t lanes)
{
    const float *wide = (const float *)(const void *)b;
    if (f.narrow)
        return v16_widen((const uint16_t *)(const void *)b);
    return f.masked ? v16_loadn(wide, lanes) : v16_load(wide);
}

/* Prefetches line i of the next tile's accumulators. */
VFN void fetch_c(const tile_form f, const cpu_gemm *g, const tile_at *at,
                 size_t i)
{
    size_t panels = (size_t)f.panels;
    __builtin_prefetch(at->next_c + i / panels * g->c_row + i % panels * 16, 1,
                       3);
}

VFN float *tile_c(const cpu_gemm *g, const tile_at *at, int row, int panel)
{
    return g->c + (at->row + (size_t)row) * g->c_row +
           (at->panel + (size_t)panel) * 16;
}

VFN void tile_store(const tile_form f, const cpu_gemm *g, const tile_at *at,
                    v16 (*c)[8], size_t lanes)
{
    if (lanes == 16) {
        UNROLL_ROWS
        for (int r = 0; r < f.rows; r++)
            UNROLL_PANELS
        for (int p = 0; p < f.panels; p++)
            v16_store(tile_c(g, at, r, p), c[r][p]);
    } else {
        UNROLL_ROWS
        for (int r = 0; r < f.rows; r++)
            UNROLL_PANELS
        for (int p = 0; p < f.panels; p++)
            v16_storen(tile_c(g, at, r, p), c[r][p],
                       lanes_of(g, at->panel + (size_t)p));
    }
}

VFN void tile(const tile_form f, const cpu_gemm *g, const tile_at *at)
{
    v16 c[14][8];
    size_t lanes = lanes_of(g, at->panel + (size_t)f.panels - 1);
    /* Full lines without masks save a fifth of the time of a short chain. */
    if (lanes == 16 && at->start == GEMM_LOAD) {
        UNROLL_ROWS
        for (int r = 0; r < f.rows; r++)
            UNROLL_PANELS
        for (int p = 0; p < f.panels; p++)
            c[r][p] = v16_load(tile_c(g, at, r, p));
    } else {
        UNROLL_ROWS
        for (int r = 0; r < f.rows; r++)
            UNROLL_PANELS
        for (int p = 0; p < f.panels; p++)
            c[r][p] =
                tile_start(g, at, at->row + (size_t)r, at->panel + (size_t)p);
    }
    const float *a = g->a + (f.transposed ? at->k0 * g->a_row + at->row
                                          : at->row * g->a_row);
    const size_t size = f.narrow ? sizeof(uint16_t) : sizeof(float);
    const size_t b_panel = g->b_panel * size;
    const size_t b_row = g->b_row * size;
    const char *b = (const char *)g->b + at->panel * b_panel + at->k0 * b_row;
    for (size_t k = at->k0; k < at->k1; k++, b += b_row) {
        v16 x[8];
        if (!f.masked && !f.triangle && !(f.narrow && f.rows == 1))
            __builtin_prefetch(at->next + at->next_row * ((k - at->k0) % 16) +
                                   at->next_sixteen * ((k - at->k0) / 16),
                               0, 2);
        /* Prefetches the next tile's accumulators, which are read or written
         * there. */
        if (!f.triangle && k - at->k0 < (size_t)(f.rows * f.panels))
            fetch_c(f, g, at, k - at->k0);
        /* A single row of bf16 waits for memory alone. */
        if (f.narrow && f.rows == 1) {
            UNROLL_PANELS
            for (int p = 0; p < f.panels; p++)
                __builtin_prefetch(b + (size_t)p * b_panel + at->ahead, 0, 2);
        }
        UNROLL_PANELS
        for (int p = 0; p < f.panels; p++)
            x[p] = tile_b(b + (size_t)p * b_panel, f, lanes);
        UNROLL_ROWS
        for (int r = 0; r < f.rows; r++) {
            v16 s =
                v16_set(f.transposed ? a[(k - at->k0) * g->a_row + (size_t)r]
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
                x[p] = tile_b(b + (size_t)p * b_panel, f, lanes);
            b += b_row;
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
    tile_store(f, g, at, c, lanes);
}

/* ---- tables of tiles, [rows] --------------------------------------------- */

typedef void tile_fn(const cpu_gemm *g, const tile_at *at);

/* One function per shape, because a single function with all of them would take
 * minutes to compile. KIND is one of the forms below, P the number of
 * panels. */
#define FORM_plain(R, P) \
    {                    \
        R, P, 0, 0, 0, 0 \
    }
#define FORM_turned(R, P) \
    {                     \
        R, P, 1, 0, 0, 0  \
    }
#define FORM_masked(R, P) \
    {                     \
        R, P, 0, 1, 0, 0  \
    }
#define FORM_turned_masked(R, P) \
    {                            \
        R, P, 1, 1, 0, 0         \
    }
#define FORM_triangle(R, P) \
    {                       \
        R, P, 0, 0, 1, 0    \
    }
#define FORM_triangle_masked(R, P) \
    {                              \
        R, P, 0, 1, 1, 0           \
    }
#define FORM_narrow(R, P) \
    {                     \
        R, P, 0, 0, 0, 1  \
    }
#define TILE(R, P, KIND)                                           \
    static __attribute__((noinline)) void tile_##KIND##_##R##_##P( \
        const cpu_gemm *g, const tile_at *at)                      \
    {                                                              \
        tile((tile_form)FORM_##KIND(R, P), g, at);                 \
    }
#define NAME(R, P, KIND) [R] = tile_##KIND##_##R##_##P,

#define ROWS_2(X, P, KIND) X(1, P, KIND) X(2, P, KIND)
#define ROWS_3(X, P, KIND) ROWS_2(X, P, KIND) X(3, P, KIND)
#define ROWS_4(X, P, KIND) ROWS_3(X, P, KIND) X(4, P, KIND)
#define ROWS_6(X, P, KIND) ROWS_4(X, P, KIND) X(5, P, KIND) X(6, P, KIND)
#define ROWS_8(X, P, KIND) ROWS_6(X, P, KIND) X(7, P, KIND) X(8, P, KIND)
#define ROWS_14(X, P, KIND) \
    ROWS_8(X, P, KIND)      \
    X(9, P, KIND)           \
    X(10, P, KIND)          \
    X(11, P, KIND) X(12, P, KIND) X(13, P, KIND) X(14, P, KIND)

/* A table [rows] of the tiles of P panels, named NAME_P. */
#define TABLE(KIND, ROWS, P)                                                 \
    ROWS(TILE, P, KIND)                                                      \
    static tile_fn *const tiles_##KIND##_##P[VEC_ROWS + 1] = { ROWS(NAME, P, \
                                                                    KIND) };
/* The tables of tiles that are plain, with `a` transposed, with b as bf16. */
#define TABLES(ROWS, P)    \
    TABLE(plain, ROWS, P)  \
    TABLE(turned, ROWS, P) \
    TABLE(narrow, ROWS, P)

/* Where masked loads cost nothing, one form of the single panel serves padded
 * and unpadded matrices. */
#if VEC_ROWS == 14
TABLE(masked, ROWS_14, 1)
TABLE(turned_masked, ROWS_14, 1)
TABLE(narrow, ROWS_14, 1)
#define tiles_plain_1 tiles_masked_1
#define tiles_turned_1 tiles_turned_masked_1
TABLES(ROWS_14, 2)
TABLES(ROWS_6, 4)
TABLES(ROWS_3, 8)
TABLE(triangle_masked, ROWS_8, 1)
#define tiles_triangle_1 tiles_triangle_masked_1
TABLE(triangle, ROWS_8, 2)
#else
#if VEC_ROWS == 6
#define ROWS_MOST ROWS_6
TABLES(ROWS_2, 2)
TABLES(ROWS_2, 4)
#else
#define ROWS_MOST ROWS_4
#endif
TABLE(masked, ROWS_MOST, 1)
TABLE(turned_masked, ROWS_MOST, 1)
TABLES(ROWS_MOST, 1)
TABLE(triangle_masked, ROWS_MOST, 1)
TABLE(triangle, ROWS_MOST, 1)
#endif

#define KIND_PLAIN 0
#define KIND_TURNED 1
#define KIND_NARROW 2
#define OF_KINDS(P)                                         \
    {                                                       \
        tiles_plain_##P, tiles_turned_##P, tiles_narrow_##P \
    }

/* Indexed by the number of panels at once (1, 2, 4, 8), then by KIND_*. */
static tile_fn *const *const tile_tables[4][3] = {
    OF_KINDS(1),
#if VEC_ROWS >= 6
    OF_KINDS(2),
    OF_KINDS(4),
#endif
#if VEC_ROWS == 14
    OF_KINDS(8),
#endif
};

/* How many panels a tile of `rows` rows computes at once: enough accumulators
 * to keep the FMA units busy, and no more than there are registers. */
VFN size_t panels_at_once(size_t rows)
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

static tile_fn *tile_of(int kind, size_t panels, size_t rows)
{
    size_t log2 = panels == 8 ? 3 : panels / 2;
    return tile_tables[log2][kind][rows];
}

/* The largest power of two of panels, at most `most`, that fits in `left`. */
VFN size_t panel_step(size_t most, size_t left)
{
    while (most > left)
        most /= 2;
    return most;
}

/* The cut of a block into tiles. Tiles of `a` have nearly equal heights,
 * because one with few rows would wait for its own FMAs. */
typedef struct tile_cut {
    size_t panels;
    size_t padded; /* panels that are read without a mask */
    size_t tiles;  /* tiles above one another */
    size_t most;   /* panels per tile, at most */
} tile_cut;

VFN tile_cut cut_tiles(const cpu_gemm *g, size_t rows)
{
    size_t panels = (g->cols + 15) / 16;
    size_t tiles = (rows + VEC_ROWS - 1) / VEC_ROWS;
    return (tile_cut){ .panels = panels,
                       .padded = g->b_tail ? g->cols / 16 : panels,
                       .tiles = tiles,
                       .most = panels_at_once((rows + tiles - 1) / tiles) };
}

/* The number of panels of the tile at panel p. */
VFN size_t cut_step(const tile_cut *cut, size_t p)
{
    return p >= cut->padded ? 1 : panel_step(cut->most, cut->padded - p);
}

static void run_tile(int kind, const tile_cut *cut, const cpu_gemm *g,
                     const tile_at *at, size_t rows)
{
    if (at->panel < cut->padded)
        tile_of(kind, cut_step(cut, at->panel), rows)(g, at);
    else if (kind == KIND_TURNED)
        tiles_turned_masked_1[rows](g, at);
    else
        tiles_masked_1[rows](g, at);
}

/* Panel i of the next group of panels: in this block, in the next block of the
 * summed index, or in the next task; NULL where it is not known. */
VFN const float *next_panel(const cpu_gemm *g, const tile_at *at,
                            const tile_cut *cut, size_t step, size_t i)
{
    if (at->panel + step + i < cut->panels)
        return cpu_gemm_b(g, (at->panel + step + i) * g->b_panel +
                                 at->k0 * g->b_row);
    if (at->k1 < g->depth)
        return cpu_gemm_b(g, i * g->b_panel + at->k1 * g->b_row);
    size_t skip = i * g->b_panel * (g->b_narrow ? 2 : sizeof(float));
    return g->b_next ? (const void *)((const char *)g->b_next + skip) : NULL;
}

/* Sets what tile i of a group of panels in gemm_block prefetches: panel i of
 * the next group and, where `a` is read for the first time, the rows of the
 * tile below. */
VFN void fetch_next(const cpu_gemm *g, tile_at *at, const tile_cut *cut,
                    size_t i, size_t below)
{
    size_t step = cut_step(cut, at->panel);
    const float *ahead =
        i < step ? next_panel(g, at, cut, step, i) : (const float *)NULL;
    at->next_c = g->c + below * g->c_row + at->panel * 16;
    at->next = ahead
                   ? ahead
                   : cpu_gemm_b(g, at->panel * g->b_panel + at->k0 * g->b_row);
    at->next_row = g->b_narrow ? g->b_row / 2 : g->b_row;
    at->next_sixteen = 16 * at->next_row;
    if (at->panel > 0 || ahead || below >= g->rows)
        return;
    at->next = g->a + below * g->a_row + at->k0;
    at->next_row = 16;
    at->next_sixteen = g->a_row;
}

/* Computes all tiles of rows [m0, m1), one group of panels after the other, so
 * that each panel is read once. */
static void gemm_block(const cpu_gemm *g, tile_at *at, size_t m0, size_t m1)
{
    tile_cut cut = cut_tiles(g, m1 - m0);
    for (size_t p = 0, step; p < cut.panels; p += step) {
        size_t row = m0;
        step = cut_step(&cut, p);
        at->panel = p;
        at->ahead = step * g->b_panel * sizeof(uint16_t);
        if (at->ahead > STEP_AHEAD)
            at->ahead = ROW_AHEAD;
        for (size_t i = 0; i < cut.tiles; i++) {
            size_t rows = (m1 - row + (cut.tiles - i) - 1) / (cut.tiles - i);
            at->row = row;
            fetch_next(g, at, &cut, i, row + rows);
            if (i + 1 == cut.tiles)
                at->next_c =
                    g->c + m0 * g->c_row + (p + step) % cut.panels * 16;
            run_tile(g->b_narrow ? KIND_NARROW : KIND_PLAIN, &cut, g, at, rows);
            row += rows;
        }
    }
}

/* The address that tile `n` after the first row of tiles prefetches: a panel of
 * the next block of b, for which that block's first row of tiles would
 * otherwise wait. After all panels were requested, a cached address. */
static const float *fetch_block(const cpu_gemm *g, const tile_at *at,
                                const tile_cut *cut, size_t n)
{
    if (n < cut->panels && at->k1 < g->depth)
        return cpu_gemm_b(g, n * g->b_panel + at->k1 * g->b_row);
    return cpu_gemm_b(g, at->panel * g->b_panel + at->k0 * g->b_row);
}

/* Sets what a tile of gemm_t_block prefetches for the next at (row, panel): in
 * the first row of tiles the next panel of b, later the next rows of a. */
static void fetch_ahead(const cpu_gemm *g, tile_at *at, const tile_cut *cut,
                        size_t row, size_t panel, size_t n)
{
    at->next_c = g->c + row * g->c_row + panel * 16;
    if (panel > 0) {
        at->next = at->row == 0
                       ? cpu_gemm_b(g, panel * g->b_panel + at->k0 * g->b_row)
                       : fetch_block(g, at, cut, n);
        at->next_row = g->b_row;
        at->next_sixteen = 16 * g->b_row;
        return;
    }
    /* A tile has fewer rows than a cache line has floats, so only the line of
     * its last row has not been read yet. */
    size_t last = row + VEC_ROWS - 1;
    size_t k = row == 0 && at->k1 < g->depth ? at->k1 : at->k0;
    at->next = g->a + k * g->a_row + (last < g->rows ? last : g->rows - 1);
    at->next_row = g->a_row;
    at->next_sixteen = 16 * g->a_row;
}

#define COPY_ROW 8 /* floats per copied row of a tile */

/* A tile with few rows reads `a` so often that lines which share sets of the L1
 * cache cost more than a copy of the tile's rows. The copy is made at the
 * tile's first panel. */
static void run_copied(const tile_cut *cut, const cpu_gemm *g,
                       const tile_at *at, size_t rows, float *copy)
{
    size_t depth = at->k1 - at->k0;
    const float *a = g->a + at->k0 * g->a_row + at->row;
    /* Each row spills into the next one, which is written afterwards. */
    for (size_t k = 0; at->panel == 0 && k < depth; k++)
        v16_store(copy + k * COPY_ROW, v16_loadn(a + k * g->a_row, rows));
    cpu_gemm one = *g;
    tile_at here = *at;
    one.a = copy;
    one.a_row = COPY_ROW;
    one.b = cpu_gemm_b(g, at->k0 * g->b_row);
    one.c += at->row * g->c_row;
    here.row = 0;
    here.k0 = 0;
    here.k1 = depth;
    run_tile(KIND_TURNED, cut, &one, &here, rows);
}

/* The same for a transposed `a`: one row of tiles after the other, so that c is
 * written in the order of its addresses. */
static void gemm_t_block(const cpu_gemm *g, tile_at *at, float *copy)
{
    tile_cut cut = cut_tiles(g, g->rows);
    size_t behind = 0; /* tiles after the first row of tiles */
    at->row = 0;
    for (size_t left = cut.tiles; left > 0; left--) {
        size_t rows = (g->rows - at->row + left - 1) / left;
        size_t below = left > 1 ? at->row + rows : 0;
        for (size_t p = 0; p < cut.panels;) {
            size_t next = p + cut_step(&cut, p);
            at->panel = p;
            if (next < cut.panels)
                fetch_ahead(g, at, &cut, at->row, next, at->row ? behind++ : 0);
            else
                fetch_ahead(g, at, &cut, below, 0, 0);
            if (copy)
                run_copied(&cut, g, at, rows, copy);
            else
                run_tile(KIND_TURNED, &cut, g, at, rows);
            p = next;
        }
        at->row = below;
    }
}

/* Copies a block of `a`, scaled, into rows that lie `row` floats apart. */
static void copy_block(const cpu_gemm *g, const tile_at *at, size_t m0,
                       size_t m1, size_t row)
{
    float scale = g->scale == 0.0f ? 1.0f : g->scale;
    for (size_t r = m0; r < m1; r++) {
        const float *a = g->a + r * g->a_row;
        for (size_t k = at->k0; k < at->k1; k++)
            g->work[(r - m0) * row + k - at->k0] = a[k] * scale;
    }
}

/* The same with a copy of the block of `a`, for rows that are to be scaled, or
 * that are a power of two apart: such rows share sets of the L1 cache and,
 * depending on their physical pages, of the L2 cache. */
static void gemm_copied(const cpu_gemm *g, tile_at *at, size_t m0, size_t m1)
{
    size_t depth = at->k1 - at->k0;
    const size_t row = DEPTH_BLOCK + 16;
    copy_block(g, at, m0, m1, row);
    cpu_gemm one = *g;
    one.a = g->work;
    one.a_row = row;
    one.depth = g->depth - at->k0;
    one.b = cpu_gemm_b(g, at->k0 * g->b_row);
    one.c += m0 * g->c_row;
    one.from = g->from ? g->from + m0 * g->from_row : NULL;
    tile_at here = { .start = at->start, .k1 = depth };
    gemm_block(&one, &here, 0, m1 - m0);
}

static void gemm(const cpu_gemm *g)
{
    size_t depth = g->rows > VEC_ROWS || g->work ? DEPTH_BLOCK : g->depth;
    /* Blocks have nearly equal heights, because one with few rows would read b
     * for little work. */
    size_t left = (g->rows + ROW_BLOCK - 1) / ROW_BLOCK;
    for (size_t m0 = 0, m1; m0 < g->rows; m0 = m1, left--) {
        m1 = m0 + (g->rows - m0 + left - 1) / left;
        tile_at at = { .start = g->start };
        do {
            at.k1 = g->depth - at.k0 > depth ? at.k0 + depth : g->depth;
            if (g->work)
                gemm_copied(g, &at, m0, m1);
            else
                gemm_block(g, &at, m0, m1);
            at.k0 = at.k1;
            at.start = GEMM_LOAD;
        } while (at.k0 < g->depth);
    }
}

static void gemm_t(const cpu_gemm *g)
{
    tile_at at = { .start = g->start };
    _Alignas(64) float copy[DEPTH_BLOCK * COPY_ROW + 16];
    int copies = VEC_ROWS <= COPY_ROW && g->cols >= 128;
    do {
        at.k1 = g->depth - at.k0 > DEPTH_BLOCK ? at.k0 + DEPTH_BLOCK : g->depth;
        gemm_t_block(g, &at, copies ? copy : NULL);
        at.k0 = at.k1;
        at.start = GEMM_LOAD;
    } while (at.k0 < g->depth);
}

/* Row r of the product continues to depth + r, over the keys that later queries
 * of a causal tile see. rows <= TRI_ROWS. */
#define TRI_ROWS (VEC_ROWS < CPU_QUERY_TILE ? VEC_ROWS : CPU_QUERY_TILE)

static void gemm_triangle(const cpu_gemm *g)
{
    size_t complete = g->cols / 16;
    size_t panels = (g->cols + 15) / 16;
    tile_at at = { .start = g->start, .k1 = g->depth };
    for (size_t p = 0; p < panels;) {
        at.panel = p;
#if VEC_ROWS >= 14
        if (complete >= p + 2) {
            tiles_triangle_2[g->rows](g, &at);
            p += 2;
            continue;
        }
#endif
        if (p >= complete)
            tiles_triangle_masked_1[g->rows](g, &at);
        else
            tiles_triangle_1[g->rows](g, &at);
        p++;
    }
}

#endif
