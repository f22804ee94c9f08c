/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products of the CPU as blocks of tiles. Cutting the summed index into
 * blocks is exact, since a chain continues from the stored accumulator.
 */
#ifndef CPU_K_MATMUL_H
#define CPU_K_MATMUL_H

#include "plugins/device-cpu/k_tile.h"

/* 16 KiB per panel of b stay in the L1 cache, a block of `a` in the L2 cache.
 */
#define DEPTH_BLOCK CPU_GEMM_DEPTH
#define ROW_BLOCK CPU_GEMM_ROWS

/* A single row of bf16 prefetches the same offsets of the panels after its own
 * if those fit the L2 cache, otherwise the bytes that follow in its panel. */
#define STEP_AHEAD ((size_t)512 << 10)
#define ROW_AHEAD ((size_t)2 << 10)

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
    else if (kind == KIND_NARROW)
        tiles_narrow_masked_1[rows](g, at);
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
    const void *then = at->b_then ? at->b_then : g->b_next;
    return then ? cpu_element(then, g->b_narrow, i * g->b_panel) : NULL;
}

/* Where the sums of a tile lie in a level that is kept for all tiles. Those of
 * a tile are contiguous, because rows that are far apart would cost time to
 * address. */
VFN size_t sums_offset(const cpu_gemm *g, size_t row, size_t panel, size_t step)
{
    return (panel * g->rows + row * step) * 16;
}

/* Prefetches where the tile at (row, panel) starts or stores its
 * accumulators. */
VFN void fetch_outputs(const cpu_gemm *g, tile_at *at, size_t row, size_t panel,
                       size_t step)
{
    tile_sums *s = at->sums;
    at->next_c = g->c + row * g->c_row + panel * 16;
    if (!s)
        return;
    s->next_row = g->c_row;
    if (s->final)
        return;
    at->next_c = s->base[s->top] + sums_offset(g, row, panel, step);
    s->next_row = step * 16;
}

/* Sets where the sums of a tile lie. */
VFN void place_sums(const cpu_gemm *g, const tile_at *at, size_t step)
{
    tile_sums *s = at->sums;
    size_t offset = s ? sums_offset(g, at->row, at->panel, step) : 0;
    for (size_t i = 0; s && i < s->levels; i++)
        s->level[i] = s->base[i] + (i < s->near ? 0 : offset);
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
    fetch_outputs(g, at, below, at->panel, step);
    at->next = ahead
                   ? ahead
                   : cpu_gemm_b(g, at->panel * g->b_panel + at->k0 * g->b_row);
    at->next_row = g->b_narrow ? g->b_row / 2 : g->b_row;
    at->next_sixteen = 16 * at->next_row;
    if (at->panel > 0 || ahead || below >= g->rows)
        return;
    size_t first = at->sums ? at->sums->runs->a : at->k0;
    at->next = cpu_gemm_a(g, below * g->a_row + first);
    at->next_row = 16;
    at->next_sixteen = g->a_row;
}

/* Computes all tiles of rows [m0, m1), one group of panels after the other, so
 * that each panel is read once. */
static void gemm_block(const cpu_gemm *g, tile_at *at, size_t m0, size_t m1)
{
    tile_cut cut = cut_tiles(g, m1 - m0);
    int kind = at->sums      ? g->b_narrow ? KIND_JOINED_NARROW : KIND_JOINED
               : g->b_narrow ? KIND_NARROW
                             : KIND_PLAIN;
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
                fetch_outputs(g, at, m0, (p + step) % cut.panels, step);
            place_sums(g, at, step);
            run_tile(kind, &cut, g, at, rows);
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
    at->next =
        cpu_gemm_a(g, k * g->a_row + (last < g->rows ? last : g->rows - 1));
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
    const float *a = cpu_gemm_a(g, at->k0 * g->a_row + at->row);
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

/* The summed index of a block with `rows` rows. Of few rows all of it is taken
 * if it fits where `a` is copied to. */
VFN size_t find_block(const cpu_gemm *g, size_t rows)
{
    if (rows > VEC_ROWS)
        return DEPTH_BLOCK;
    return g->work ? CPU_GEMM_WORK / rows / 16 * 16 - 16 : g->depth;
}

VFN void copy_row(const void *a, int kind, float scale, size_t depth, float *to)
{
    v16 s = v16_set(scale);
    size_t complete = depth / 16 * 16;
    for (size_t k = 0; k < complete; k += 16)
        v16_store(to + k, v16_mul(v16_take(a, kind, k, 16), s));
    if (complete < depth)
        v16_storen(to + complete,
                   v16_mul(v16_take(a, kind, complete, depth - complete), s),
                   depth - complete);
}

/* Copies rows [m0, m1) of a range of `a`, widened and scaled, into rows that
 * lie `row` floats apart. */
static void copy_rows(const cpu_gemm *g, size_t m0, size_t m1, size_t first,
                      size_t depth, float *to, size_t row)
{
    float scale = g->scale == 0.0f ? 1.0f : g->scale;
    for (size_t r = m0; r < m1; r++, to += row) {
        const void *a = cpu_gemm_a(g, r * g->a_row + first);
        if (g->a_narrow)
            copy_row(a, VEC_BF16, scale, depth, to);
        else
            copy_row(a, VEC_F32, scale, depth, to);
    }
}

/* Computes rows [m0, m1) with a copy of the block of `a`, for rows of bf16, for
 * those that are to be scaled, or that are a power of two apart: such rows
 * share sets of the L1 cache and, depending on their physical pages, of the L2
 * cache. */
static void gemm_copied(const cpu_gemm *g, const tile_at *at, size_t m0,
                        size_t m1)
{
    const size_t row = find_block(g, m1 - m0) + 16;
    cpu_gemm one = *g;
    one.a = g->work;
    one.a_row = row;
    one.a_narrow = 0;
    one.b = cpu_gemm_b(g, at->k0 * g->b_row);
    one.c += m0 * g->c_row;
    one.from = g->from ? g->from + m0 * g->from_row : NULL;
    tile_at here = { .start = at->start,
                     .k1 = at->k1 - at->k0,
                     .b_then = at->b_then };
    if (!at->sums) {
        copy_rows(g, m0, m1, at->k0, here.k1, g->work, row);
        gemm_block(&one, &here, 0, m1 - m0);
        return;
    }
    tile_run runs[MOST_RUNS];
    tile_sums sums = *at->sums;
    for (size_t i = 0; i < sums.run_count; i++) {
        runs[i] = sums.runs[i];
        copy_rows(g, m0, m1, runs[i].a, runs[i].depth, g->work + runs[i].before,
                  row);
        runs[i].a = runs[i].before;
        runs[i].b -= at->k0;
    }
    sums.runs = runs;
    here.sums = &sums;
    gemm_block(&one, &here, 0, m1 - m0);
}

static void run_block(const cpu_gemm *g, tile_at *at, size_t m0, size_t m1)
{
    if (g->work)
        gemm_copied(g, at, m0, m1);
    else
        gemm_block(g, at, m0, m1);
}

/* ---- segments ------------------------------------------------------------ */

/* The terms of a segment but the last, which may have fewer. */
VFN size_t segment_length(const cpu_gemm *g)
{
    return g->piece[0] + g->piece[1] + g->piece[2];
}

/* Sets the runs of terms [first, last), counted segment by segment, and returns
 * their number. */
static size_t find_runs(const cpu_gemm *g, size_t first, size_t last,
                        tile_run *runs)
{
    const size_t length = segment_length(g);
    size_t n = 0;
    for (size_t t = first; t < last;) {
        size_t segment = t / length;
        size_t within = t % length;
        size_t begin = 0; /* of the matrix that has the term */
        size_t p = 0;
        for (; within >= g->piece[p]; p++) {
            within -= g->piece[p];
            begin += g->piece[p] * g->segments;
        }
        size_t left = g->piece[p] - within;
        tile_run *run = &runs[n++];
        *run = (tile_run){ .a = begin + segment * g->piece[p] + within,
                           .depth = left < last - t ? left : last - t,
                           .before = t - first };
        run->b = run->a;
        t += run->depth;
        run->ends = t % length == 0 || t == g->depth;
    }
    return n;
}

/* How many terms the block at term t has, about `most`: those of a power of two
 * of complete segments, so that they are a part of the tree, or a range of
 * one. */
static size_t find_depth(const cpu_gemm *g, size_t t, size_t most)
{
    const size_t length = segment_length(g);
    size_t n = XRAY_SEGMENTS;
    while (n > 1 && n * length > most)
        n /= 2;
    size_t depth = n * length;
    size_t left = g->depth - t;
    if (depth > most) {
        size_t blocks = (length + most - 1) / most;
        depth = (length + blocks - 1) / blocks;
        left = left < length - t % length ? left : length - t % length;
    }
    return depth < left ? depth : left;
}

/* Decides where each level of the tree is kept. A block's tiles need the levels
 * below that of its own sum one after the other. */
static void place_levels(const cpu_gemm *g, size_t most, tile_sums *s,
                         float *near)
{
    const size_t length = segment_length(g);
    const size_t block = find_depth(g, 0, most);
    const size_t level = (g->cols + 15) / 16 * 16 * g->rows;
    for (size_t n = 1; n * 2 * length <= block; n *= 2)
        s->near++;
    for (size_t i = 0; g->segments >> i; i++, s->levels++)
        s->base[i] = i < s->near ? near + i * TILE_FLOATS
                                 : g->partial + (i - s->near) * level;
}

/* Computes all rows in segments. A chain that continues in another block is
 * kept in the level that its segment will join, which has no other sum. */
static void gemm_segments(const cpu_gemm *g, size_t most)
{
    _Alignas(64) float near[(MOST_LEVELS - 1) * TILE_FLOATS];
    const size_t length = segment_length(g);
    tile_run runs[MOST_RUNS];
    tile_run then;
    tile_sums sums = { .runs = runs };
    tile_at at = { .sums = &sums, .start = g->start };
    place_levels(g, most, &sums, near);
    for (size_t t = 0, end; t < g->depth; t = end) {
        end = t + find_depth(g, t, most);
        sums.run_count = find_runs(g, t, end, runs);
        sums.segment = t / length;
        sums.load = t % length != 0;
        sums.final = end == g->depth;
        sums.top = (size_t)__builtin_ctzll(~((end - 1) / length));
        at.k0 = runs[0].b;
        at.b_then = !sums.final && find_runs(g, end, end + 1, &then)
                        ? cpu_gemm_b(g, then.b * g->b_row)
                        : NULL;
        run_block(g, &at, 0, g->rows);
    }
}

/* Rows [m0, m1) as one chain. */
static void gemm_chain(const cpu_gemm *g, size_t m0, size_t m1, size_t most)
{
    tile_at at = { .start = g->start };
    do {
        int more = g->depth - at.k0 > most;
        at.k1 = more ? at.k0 + most : g->depth;
        at.b_then = more ? cpu_gemm_b(g, at.k1 * g->b_row) : NULL;
        run_block(g, &at, m0, m1);
        at.k0 = at.k1;
        at.start = GEMM_LOAD;
    } while (at.k0 < g->depth);
}

static void gemm(const cpu_gemm *g)
{
    /* Blocks have nearly equal heights, because one with few rows would read b
     * for little work. */
    size_t left = (g->rows + ROW_BLOCK - 1) / ROW_BLOCK;
    for (size_t m0 = 0, m1; m0 < g->rows; m0 = m1, left--) {
        m1 = m0 + (g->rows - m0 + left - 1) / left;
        size_t most = find_block(g, m1 - m0);
        if (!g->segments) {
            gemm_chain(g, m0, m1, most);
            continue;
        }
        cpu_gemm one = *g;
        one.a = cpu_gemm_a(g, m0 * g->a_row);
        one.c += m0 * g->c_row;
        one.from = g->from ? g->from + m0 * g->from_row : NULL;
        one.rows = m1 - m0;
        gemm_segments(&one, most);
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

#define PACK_AHEAD 8 /* rows of b fetched before they are packed */

VFN void pack_rows(const cpu_gemm *g, int kind, float *to, size_t panel)
{
    const size_t line = kind == VEC_BF16 ? 32 : 16;
    const size_t left = g->cols % 16;
    for (size_t k = 0; k < g->depth; k++) {
        const void *b = cpu_gemm_b(g, k * g->b_row);
        size_t ahead = k + PACK_AHEAD < g->depth ? g->cols : 0;
        for (size_t i = 0; i < ahead; i += line)
            __builtin_prefetch(cpu_gemm_b(g, (k + PACK_AHEAD) * g->b_row + i),
                               0, 3);
        float *dst = to + k * 16;
        size_t i = 0;
        for (; i + 16 <= g->cols; i += 16, dst += panel)
            v16_store(dst, v16_take(b, kind, i, 16));
        if (left)
            v16_store(dst, v16_take(b, kind, i, left));
    }
}

static void pack_b(const cpu_gemm *g, float *to, size_t panel)
{
    if (g->b_narrow)
        pack_rows(g, VEC_BF16, to, panel);
    else
        pack_rows(g, VEC_F32, to, panel);
}

static void widen_row(float *y, const uint16_t *x, size_t n)
{
    copy_row(x, VEC_BF16, 1.0f, n, y);
}

static void narrow_row(uint16_t *y, const float *x, size_t n)
{
    size_t complete = n / 16 * 16;
    for (size_t i = 0; i < complete; i += 16)
        v16_narrow(y + i, v16_load(x + i));
    if (complete < n)
        v16_narrown(y + complete, v16_loadn(x + complete, n - complete),
                    n - complete);
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
            (g->b_narrow ? tiles_narrow_triangle_2
                         : tiles_triangle_2)[g->rows](g, &at);
            p += 2;
            continue;
        }
#endif
        if (p >= complete)
            (g->b_narrow ? tiles_narrow_triangle_masked_1
                         : tiles_triangle_masked_1)[g->rows](g, &at);
        else
            (g->b_narrow ? tiles_narrow_triangle_1
                         : tiles_triangle_1)[g->rows](g, &at);
        p++;
    }
}

#endif
