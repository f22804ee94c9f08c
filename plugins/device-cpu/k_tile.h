/* SPDX-License-Identifier: Apache-2.0
 *
 * Tiles of matrix products. A tile of R rows by P panels of 16 columns keeps
 * its accumulators in registers while the summed index runs.
 */
#ifndef CPU_K_TILE_H
#define CPU_K_TILE_H

#include "plugins/device-cpu/kernels.h"
#include "plugins/device-cpu/vec.h"

/* A range of the summed index, which is contiguous in `a` and in b. */
typedef struct tile_run {
    size_t a; /* where it begins in `a`, and */
    size_t b; /* in b */
    size_t depth;
    size_t before; /* steps of the block's runs before it */
    int ends;      /* 1: a segment ends with it */
} tile_run;

#define MOST_RUNS 24 /* three pieces of eight segments */
#define MOST_LEVELS 4
#define TILE_FLOATS ((size_t)32 * 16) /* at least those of a tile */

/* The sums of a product in segments, for a block of the summed index. Level i
 * of the tree has sums of 2^i segments. */
typedef struct tile_sums {
    const tile_run *runs;
    size_t run_count;
    size_t segment; /* of the first run */
    size_t top;     /* the level that the block's last chain joins */
    int load;       /* 1: the first chain continues from level `top` */
    int final;      /* 1: no block follows */
    size_t levels;
    size_t near; /* levels below it are kept for one tile, others for all */
    float *base[MOST_LEVELS];
    float *level[MOST_LEVELS]; /* those of this tile, [rows][panels][16] */
    size_t next_row;           /* floats between the rows of next_c */
} tile_sums;

/* The part of the product that a tile computes, and what it prefetches. */
typedef struct tile_at {
    size_t row;
    size_t panel;
    size_t k0;
    size_t k1; /* not with `sums` */
    int start;
    const float *next;   /* address in a or b that will be read soon */
    size_t next_row;     /* floats between the 16 lines to prefetch */
    size_t next_sixteen; /* floats from these 16 lines to the next 16 */
    const float *next_c; /* the accumulators of the next tile */
    const void *b_then;  /* b of the next block of the summed index, or NULL */
    size_t ahead;        /* a single row of bf16: bytes from b to the line */
    tile_sums *sums;     /* of a product in segments, or NULL */
} tile_at;

/* The compile-time shape of a tile. */
typedef struct tile_form {
    int rows;
    int panels;
    int transposed;
    int masked; /* the last panel of b is read with a mask */
    int triangle;
    int narrow; /* b is bf16 */
    int joined; /* of a product in segments */
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
    const uint16_t *narrow = (const uint16_t *)(const void *)b;
    if (f.narrow)
        return f.masked ? v16_widenn(narrow, lanes) : v16_widen(narrow);
    return f.masked ? v16_loadn(wide, lanes) : v16_load(wide);
}

/* Prefetches line i of the next tile's accumulators, which are read or written
 * there. */
VFN void fetch_c(const tile_form f, const tile_at *at, size_t c_row, size_t i)
{
    size_t panels = (size_t)f.panels;
    __builtin_prefetch(at->next_c + i / panels * c_row + i % panels * 16, 1, 3);
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

/* Adds a term to each accumulator: that of index k, which is number `step` of
 * the block. `a` is the first row of the tile. */
VFN void tile_step(const tile_form f, const cpu_gemm *g, const tile_at *at,
                   const float *a, const char *b, size_t k, size_t step,
                   size_t c_row, size_t lanes, v16 (*c)[8])
{
    const size_t b_panel = g->b_panel * (f.narrow ? 2 : sizeof(float));
    v16 x[8];
    if (!f.masked && !f.triangle && !(f.narrow && f.rows == 1))
        __builtin_prefetch(at->next + at->next_row * (step % 16) +
                               at->next_sixteen * (step / 16),
                           0, 2);
    if (!f.triangle && step < (size_t)(f.rows * f.panels))
        fetch_c(f, at, c_row, step);
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
        v16 s = v16_set(f.transposed ? a[step * g->a_row + (size_t)r]
                                     : a[(size_t)r * g->a_row + k]);
        UNROLL_PANELS
        for (int p = 0; p < f.panels; p++)
            c[r][p] = v16_fma(s, x[p], c[r][p]);
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
    const float *a =
        (const float *)g->a +
        (f.transposed ? at->k0 * g->a_row + at->row : at->row * g->a_row);
    const size_t size = f.narrow ? sizeof(uint16_t) : sizeof(float);
    const size_t b_panel = g->b_panel * size;
    const size_t b_row = g->b_row * size;
    const char *b = (const char *)g->b + at->panel * b_panel + at->k0 * b_row;
    for (size_t k = at->k0; k < at->k1; k++, b += b_row)
        tile_step(f, g, at, a, b, k, k - at->k0, g->c_row, lanes, c);
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

/* ---- segments ------------------------------------------------------------ */

VFN float *level_at(const tile_form f, const tile_sums *s, size_t level, int r,
                    int p)
{
    return s->level[level] + (r * f.panels + p) * 16;
}

/* Adds the sums that the tree joins with that of `segment`, and returns the
 * level of the result. After the last segment these are all that are left. */
VFN size_t tile_join(const tile_form f, const tile_sums *s, size_t segment,
                     int last, v16 (*c)[8])
{
    size_t level = 0;
    for (; segment >> level; level++) {
        if (!(segment >> level & 1)) {
            if (last)
                continue;
            break;
        }
        UNROLL_ROWS
        for (int r = 0; r < f.rows; r++)
            UNROLL_PANELS
        for (int p = 0; p < f.panels; p++)
            c[r][p] = v16_add(v16_load(level_at(f, s, level, r, p)), c[r][p]);
    }
    return level;
}

VFN void tile_keep(const tile_form f, const tile_sums *s, size_t level,
                   v16 (*c)[8])
{
    UNROLL_ROWS
    for (int r = 0; r < f.rows; r++)
        UNROLL_PANELS
    for (int p = 0; p < f.panels; p++)
        v16_store(level_at(f, s, level, r, p), c[r][p]);
}

/* The lanes of panel p of the tile in a row at `row` of `from`. */
VFN v16 tile_from(const cpu_gemm *g, const tile_at *at, const float *from,
                  size_t row, int p)
{
    size_t panel = at->panel + (size_t)p;
    return v16_loadn(from + row + panel * 16, lanes_of(g, panel));
}

/* Continues a chain, or starts one from 0 or the bias. */
VFN void tile_open(const tile_form f, const cpu_gemm *g, const tile_at *at,
                   v16 (*c)[8])
{
    const tile_sums *s = at->sums;
    if (s->load) {
        UNROLL_ROWS
        for (int r = 0; r < f.rows; r++)
            UNROLL_PANELS
        for (int p = 0; p < f.panels; p++)
            c[r][p] = v16_load(level_at(f, s, s->top, r, p));
    } else if (g->start == GEMM_BIAS) {
        UNROLL_ROWS
        for (int r = 0; r < f.rows; r++)
            UNROLL_PANELS
        for (int p = 0; p < f.panels; p++)
            c[r][p] = tile_from(g, at, g->bias, 0, p);
    } else {
        UNROLL_ROWS
        for (int r = 0; r < f.rows; r++)
            UNROLL_PANELS
        for (int p = 0; p < f.panels; p++)
            c[r][p] = v16_set(0.0f);
    }
}

/* Adds the bias, unless the chain started from it, and then the residual. */
VFN void tile_finish(const tile_form f, const cpu_gemm *g, const tile_at *at,
                     v16 (*c)[8])
{
    if (g->bias && g->start != GEMM_BIAS) {
        UNROLL_ROWS
        for (int r = 0; r < f.rows; r++)
            UNROLL_PANELS
        for (int p = 0; p < f.panels; p++)
            c[r][p] = v16_add(c[r][p], tile_from(g, at, g->bias, 0, p));
    }
    if (g->from) {
        UNROLL_ROWS
        for (int r = 0; r < f.rows; r++)
            UNROLL_PANELS
        for (int p = 0; p < f.panels; p++)
            c[r][p] = v16_add(tile_from(g, at, g->from,
                                        (at->row + (size_t)r) * g->from_row, p),
                              c[r][p]);
    }
}

/* A tile of a product in segments. */
VFN void tile_joined(const tile_form f, const cpu_gemm *g, const tile_at *at)
{
    const tile_sums *s = at->sums;
    const size_t lanes = lanes_of(g, at->panel + (size_t)f.panels - 1);
    const size_t size = f.narrow ? sizeof(uint16_t) : sizeof(float);
    const size_t b_row = g->b_row * size;
    const tile_run *last = s->runs + s->run_count - 1;
    size_t segment = s->segment;
    v16 c[14][8];
    tile_open(f, g, at, c);
    for (const tile_run *run = s->runs;; run++) {
        const float *a = (const float *)g->a + at->row * g->a_row + run->a;
        const char *b =
            (const char *)g->b + at->panel * g->b_panel * size + run->b * b_row;
        const size_t skipped = run->b - at->k0;
        const size_t depth = run->depth;
        for (size_t k = 0; k < depth; k++, b += b_row)
            tile_step(f, g, at, a, b, k, skipped + k, s->next_row, lanes, c);
        size_t level = s->top;
        if (run->ends)
            level = tile_join(f, s, segment++, s->final && run == last, c);
        if (run == last)
            break;
        if (!run->ends)
            continue;
        tile_keep(f, s, level, c);
        UNROLL_ROWS
        for (int r = 0; r < f.rows; r++)
            UNROLL_PANELS
        for (int p = 0; p < f.panels; p++)
            c[r][p] = v16_set(0.0f);
    }
    if (!s->final) {
        tile_keep(f, s, s->top, c);
        return;
    }
    tile_finish(f, g, at, c);
    tile_store(f, g, at, c, lanes);
}

/* ---- tables of tiles, [rows] --------------------------------------------- */

typedef void tile_fn(const cpu_gemm *g, const tile_at *at);

/* One function per shape, because a single function with all of them would take
 * minutes to compile. KIND is one of the forms below, P the number of
 * panels. */
#define FORM_plain(R, P)    \
    {                       \
        R, P, 0, 0, 0, 0, 0 \
    }
#define FORM_turned(R, P)   \
    {                       \
        R, P, 1, 0, 0, 0, 0 \
    }
#define FORM_masked(R, P)   \
    {                       \
        R, P, 0, 1, 0, 0, 0 \
    }
#define FORM_turned_masked(R, P) \
    {                            \
        R, P, 1, 1, 0, 0, 0      \
    }
#define FORM_triangle(R, P) \
    {                       \
        R, P, 0, 0, 1, 0, 0 \
    }
#define FORM_triangle_masked(R, P) \
    {                              \
        R, P, 0, 1, 1, 0, 0        \
    }
#define FORM_narrow(R, P)   \
    {                       \
        R, P, 0, 0, 0, 1, 0 \
    }
#define FORM_narrow_masked(R, P) \
    {                            \
        R, P, 0, 1, 0, 1, 0      \
    }
#define FORM_narrow_triangle(R, P) \
    {                              \
        R, P, 0, 0, 1, 1, 0        \
    }
#define FORM_narrow_triangle_masked(R, P) \
    {                                     \
        R, P, 0, 1, 1, 1, 0               \
    }
#define FORM_joined(R, P)   \
    {                       \
        R, P, 0, 0, 0, 0, 1 \
    }
#define FORM_joined_narrow(R, P) \
    {                            \
        R, P, 0, 0, 0, 1, 1      \
    }
#define TILE(R, P, KIND)                                           \
    static __attribute__((noinline)) void tile_##KIND##_##R##_##P( \
        const cpu_gemm *g, const tile_at *at)                      \
    {                                                              \
        const tile_form f = FORM_##KIND(R, P);                     \
        if (f.joined)                                              \
            tile_joined(f, g, at);                                 \
        else                                                       \
            tile(f, g, at);                                        \
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
/* The tables of tiles with b as bf16, and of those that join segments. */
#define TABLES_COMMON(ROWS, P) \
    TABLE(narrow, ROWS, P)     \
    TABLE(joined, ROWS, P)     \
    TABLE(joined_narrow, ROWS, P)
/* These, and the tables of tiles that are plain, and with `a` transposed. */
#define TABLES(ROWS, P)    \
    TABLE(plain, ROWS, P)  \
    TABLE(turned, ROWS, P) \
    TABLES_COMMON(ROWS, P)

/* Where masked loads cost nothing, one form of the single panel serves padded
 * and unpadded matrices. */
#if VEC_ROWS == 14
TABLE(masked, ROWS_14, 1)
TABLE(turned_masked, ROWS_14, 1)
TABLE(narrow_masked, ROWS_14, 1)
TABLES_COMMON(ROWS_14, 1)
#define tiles_plain_1 tiles_masked_1
#define tiles_turned_1 tiles_turned_masked_1
TABLES(ROWS_14, 2)
TABLES(ROWS_6, 4)
TABLES(ROWS_3, 8)
TABLE(triangle_masked, ROWS_8, 1)
#define tiles_triangle_1 tiles_triangle_masked_1
TABLE(triangle, ROWS_8, 2)
TABLE(narrow_triangle_masked, ROWS_8, 1)
#define tiles_narrow_triangle_1 tiles_narrow_triangle_masked_1
TABLE(narrow_triangle, ROWS_8, 2)
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
TABLE(narrow_masked, ROWS_MOST, 1)
TABLES(ROWS_MOST, 1)
TABLE(triangle_masked, ROWS_MOST, 1)
TABLE(triangle, ROWS_MOST, 1)
TABLE(narrow_triangle_masked, ROWS_MOST, 1)
TABLE(narrow_triangle, ROWS_MOST, 1)
#endif

#define KIND_PLAIN 0
#define KIND_TURNED 1
#define KIND_NARROW 2
#define KIND_JOINED 3
#define KIND_JOINED_NARROW 4
#define KINDS 5
#define OF_KINDS(P)                                                            \
    {                                                                          \
        tiles_plain_##P, tiles_turned_##P, tiles_narrow_##P, tiles_joined_##P, \
            tiles_joined_narrow_##P                                            \
    }

/* Indexed by the number of panels at once (1, 2, 4, 8), then by KIND_*. */
static tile_fn *const *const tile_tables[4][KINDS] = {
    OF_KINDS(1),
#if VEC_ROWS >= 6
    OF_KINDS(2),
    OF_KINDS(4),
#endif
#if VEC_ROWS == 14
    OF_KINDS(8),
#endif
};

#endif
