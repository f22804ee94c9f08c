/* SPDX-License-Identifier: Apache-2.0
 *
 * Packs matrices and cuts matrix products into tasks on the CPU. Outputs are
 * cut, never sums, so no result depends on the number of threads.
 */
#include <stdlib.h>
#include <string.h>

#include <immintrin.h>

#include "plugins/device-cpu/device.h"

/* ---- packing ------------------------------------------------------------ */

/* Transposes eight columns of `rows` <= 8 rows; missing rows become zero. */
static void transpose8(float *dst, const float *src, size_t stride, size_t rows)
{
    __m256 r[8];
    __m256 s[8];
    for (size_t i = 0; i < 8; i++)
        r[i] =
            i < rows ? _mm256_loadu_ps(src + i * stride) : _mm256_setzero_ps();
    for (size_t i = 0; i < 8; i += 2) {
        s[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        s[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (size_t i = 0; i < 8; i += 4)
        for (size_t j = 0; j < 2; j++) {
            r[i + 2 * j] = _mm256_shuffle_ps(s[i + j], s[i + j + 2], 0x44);
            r[i + 2 * j + 1] = _mm256_shuffle_ps(s[i + j], s[i + j + 2], 0xEE);
        }
    for (size_t i = 0; i < 4; i++) {
        __m256 low = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
        __m256 high = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
        _mm256_storeu_ps(dst + i * 16, low);
        _mm256_storeu_ps(dst + (i + 4) * 16, high);
    }
}

void cpu_transpose16(float *dst, const float *src, size_t stride, size_t rows,
                     size_t depth)
{
    size_t complete = depth / 8 * 8;
    size_t low = rows < 8 ? rows : 8;
    for (size_t k = 0; k < complete; k += 8) {
        transpose8(dst + k * 16, src + k, stride, low);
        transpose8(dst + k * 16 + 8, src + low * stride + k, stride,
                   rows - low);
    }
    for (size_t k = complete; k < depth; k++)
        for (size_t r = 0; r < 16; r++)
            dst[k * 16 + r] = r < rows ? src[r * stride + k] : 0.0f;
}

/* Packs a panel of bf16. Where the outputs are rows, sixteen lines of depth are
 * read side by side. */
static void pack_narrow(const xray_weight *w, int nt, size_t first,
                        size_t lanes, size_t depth)
{
    const uint16_t *src = w->data;
    uint16_t *dst = (uint16_t *)w->panels[nt ? 0 : 1].data + first * depth;
    size_t outputs = nt ? w->rows : w->cols;
    for (size_t k = 0; k < depth; k++, dst += 16) {
        for (size_t l = 0; l < lanes; l++)
            dst[l] = nt ? src[(first + l) * depth + k]
                        : src[k * outputs + first + l];
        for (size_t l = lanes; l < 16; l++)
            dst[l] = 0;
    }
}

/* Packs panel `p` of the columns of W^T, whose outputs are rows of W, or of W.
 */
static void pack_panel(const xray_weight *w, uint32_t kind, size_t p)
{
    int nt = kind == XRAY_NT;
    size_t depth = nt ? w->cols : w->rows;
    size_t outputs = nt ? w->rows : w->cols;
    size_t first = p * 16;
    size_t lanes = outputs - first < 16 ? outputs - first : 16;
    if (w->dtype == XRAY_BF16) {
        pack_narrow(w, nt, first, lanes, depth);
        return;
    }
    float *dst = (float *)w->panels[kind - XRAY_NT].data + first * depth;
    const uint16_t *half = w->data;
    if (w->dtype == XRAY_F32 && nt) {
        const float *src = w->data;
        cpu_transpose16(dst, src + first * depth, depth, lanes, depth);
        return;
    }
    for (size_t k = 0; k < depth; k++, dst += 16) {
        memset(dst, 0, 16 * sizeof(float));
        if (w->dtype == XRAY_F32) {
            const float *src = w->data;
            memcpy(dst, src + k * outputs + first, lanes * sizeof(float));
            continue;
        }
        for (size_t l = 0; l < lanes; l++)
            dst[l] = cpu_from_f16(
                half[nt ? (first + l) * depth + k : k * outputs + first + l]);
    }
}

typedef struct pack_job {
    const xray_weight *weight;
    uint32_t kind;
} pack_job;

static void pack_panels_range(void *ctx, size_t first, size_t last)
{
    const pack_job *job = ctx;
    for (size_t p = first; p < last; p++)
        pack_panel(job->weight, job->kind, p);
}

static size_t panel_count(uint64_t outputs)
{
    return (size_t)((outputs + 15) / 16);
}

/* ---- weight handles ----------------------------------------------------- */

static xray_status refuse_weight(cpu_device *d, const xray_weight_desc *desc)
{
    if (desc->rows == 0 || desc->cols == 0 || desc->rows > INT32_MAX ||
        desc->cols > INT32_MAX)
        return cpu_fail(d, XRAY_E_RANGE, "weight_create",
                        "a matrix of %llu x %llu is empty or too large",
                        (unsigned long long)desc->rows,
                        (unsigned long long)desc->cols);
    if (desc->dtype < XRAY_F32 || desc->dtype > XRAY_F16)
        return cpu_fail(d, XRAY_E_UNSUPPORTED, "weight_create",
                        "element type %u is not supported", desc->dtype);
    return XRAY_OK;
}

static void *alloc_panels(cpu_device *d, uint32_t dtype, uint64_t outputs,
                          uint64_t depth)
{
    return cpu_alloc(d, XRAY_TAG_WEIGHTS,
                     panel_count(outputs) * 16 * depth *
                         (dtype == XRAY_BF16 ? 2 : sizeof(float)));
}

xray_status cpu_weight_create(void *self, const xray_weight_desc *desc,
                              xray_weight **out)
{
    cpu_device *d = self;
    CPU_CHECK(d, desc, "weight_create", desc->data, out);
    xray_status status = refuse_weight(d, desc);
    if (status != XRAY_OK)
        return status;
    xray_weight *w = calloc(1, sizeof(*w));
    cpu_panels *panels = calloc(2, sizeof(*panels));
    if (w && panels) {
        *w = (xray_weight){ .device = d,
                            .data = desc->data,
                            .rows = desc->rows,
                            .cols = desc->cols,
                            .dtype = desc->dtype,
                            .panels = panels };
        panels[0].data = alloc_panels(d, w->dtype, w->rows, w->cols);
        if (desc->trainable)
            panels[1].data = alloc_panels(d, w->dtype, w->cols, w->rows);
        panels[0].stale = 1;
        panels[1].stale = 1;
    }
    if (!w || !panels || !panels[0].data ||
        (desc->trainable && !panels[1].data)) {
        if (panels) {
            cpu_free(d, panels[0].data);
            cpu_free(d, panels[1].data);
        }
        free(panels);
        free(w);
        return cpu_fail(d, XRAY_E_NOMEM, "weight_create",
                        "no memory to pack a matrix of %llu x %llu",
                        (unsigned long long)desc->rows,
                        (unsigned long long)desc->cols);
    }
    *out = w;
    return XRAY_OK;
}

void cpu_weight_destroy(void *self, xray_weight *weight)
{
    if (!weight)
        return;
    cpu_free(self, weight->panels[0].data);
    cpu_free(self, weight->panels[1].data);
    free(weight->panels);
    free(weight);
}

static xray_status restore_panels(cpu_device *d, xray_weight *w)
{
    for (uint32_t k = 0; k < 2; k++) {
        if (!(w->evicted >> k & 1))
            continue;
        w->panels[k].data = alloc_panels(d, w->dtype, k ? w->cols : w->rows,
                                         k ? w->rows : w->cols);
        if (!w->panels[k].data)
            return cpu_fail(d, XRAY_E_NOMEM, "weight_changed",
                            "no memory to pack a matrix of %llu x %llu again",
                            (unsigned long long)w->rows,
                            (unsigned long long)w->cols);
        w->evicted &= ~(1u << k);
    }
    return XRAY_OK;
}

xray_status cpu_weight_changed(void *self, xray_weight *weight)
{
    if (!weight)
        return cpu_fail(self, XRAY_E_ARG, "weight_changed", "weight is NULL");
    weight->panels[0].stale = 1;
    weight->panels[1].stale = 1;
    return weight->evicted ? restore_panels(self, weight) : XRAY_OK;
}

xray_status cpu_weight_evict(void *self, xray_weight *weight)
{
    if (!weight)
        return cpu_fail(self, XRAY_E_ARG, "weight_evict", "weight is NULL");
    for (uint32_t k = 0; k < 2; k++) {
        cpu_panels *panels = &weight->panels[k];
        if (!panels->data)
            continue;
        cpu_free(self, panels->data);
        panels->data = NULL;
        weight->evicted |= 1u << k;
    }
    return XRAY_OK;
}

/* ---- products ----------------------------------------------------------- */

typedef struct product_job {
    const cpu_device *d;
    cpu_gemm complete;
    size_t task_rows; /* tasks are numbered by rows, then by columns */
    size_t task_cols;
    size_t row_tasks;
    size_t threads;
    float *scratch; /* or NULL: x is read in place */
    size_t scratch_floats;
} product_job;

#define COPY_ROW 512  /* floats between rows where blocks of x are copied */
#define COPY_COLS 256 /* columns from which on the copy pays */

/* The panels of the task that this thread is likely to take next. */
static const void *next_task_panels(const product_job *job, size_t task)
{
    const cpu_gemm *g = &job->complete;
    size_t col = (task + job->threads) / job->row_tasks * job->task_cols;
    return col < g->cols ? cpu_gemm_b(g, col / 16 * g->b_panel) : NULL;
}

static void run_product_task(void *ctx, size_t task, size_t thread)
{
    const product_job *job = ctx;
    cpu_gemm g = job->complete;
    size_t row = task % job->row_tasks * job->task_rows;
    size_t col = task / job->row_tasks * job->task_cols;
    g.rows = g.rows - row < job->task_rows ? g.rows - row : job->task_rows;
    g.cols = g.cols - col < job->task_cols ? g.cols - col : job->task_cols;
    g.a += row * g.a_row;
    g.b = cpu_gemm_b(&g, col / 16 * g.b_panel);
    g.b_next = next_task_panels(job, task);
    g.c += row * g.c_row + col;
    g.bias = g.bias ? g.bias + col : NULL;
    if (job->scratch && g.rows > job->d->k->rows && g.cols >= COPY_COLS)
        g.work = job->scratch + thread * job->scratch_floats;
    job->d->k->gemm(&g);
}

static size_t round_up(size_t n, size_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

static size_t divide_up(size_t n, size_t by)
{
    return (n + by - 1) / by;
}

/* How many tasks this much work is worth: a few per thread, so that a late task
 * costs little, but none of less than a few microseconds. */
static size_t count_parts(size_t threads, double cost)
{
    double enough = cost / 1e5;
    if (enough < (double)threads)
        return (size_t)enough + 1;
    if (enough < 4.0 * (double)threads)
        return (size_t)enough / threads * threads;
    return threads * 4;
}

/* The task size, a multiple of `grain`, that spreads n items most evenly over
 * `threads` with at most `parts` tasks; of equally even ones the smallest. */
static size_t even_task_size(size_t n, size_t grain, size_t threads,
                             size_t parts)
{
    size_t best = round_up(n, grain);
    size_t least = n;
    threads = threads < parts ? threads : parts;
    for (size_t p = threads; p <= parts; p += threads) {
        size_t step = round_up(divide_up(n, p), grain);
        size_t load = divide_up(divide_up(n, step), threads) * step;
        if (load > least + least / 64)
            continue;
        best = step;
        least = load < least ? load : least;
    }
    return best;
}

#define SMALL_MATRIX 65536 /* floats; every thread may read all of them */

/* Many rows, or rows of a small matrix, are cut into ranges of rows. Few rows
 * of a large matrix are cut into ranges of columns, so that the matrix is read
 * once, unless each range would copy blocks of x. */
static void cut_product(const cpu_device *d, product_job *job, double cost)
{
    const cpu_gemm *g = &job->complete;
    size_t threads = cpu_pool_threads(d->pool);
    size_t parts = threads > 1 ? count_parts(threads, cost) : 1;
    size_t most = 12 * d->k->rows;
    size_t many = 6 * d->k->rows * threads;
    job->threads = threads;
    job->task_rows = g->rows;
    job->task_cols = g->cols;
    if (g->rows > g->cols || g->cols < 64 ||
        (g->a_row % COPY_ROW == 0 && g->rows >= many) ||
        (g->depth * g->cols <= SMALL_MATRIX && g->rows >= 16 * parts)) {
        if (g->rows > parts * most)
            parts = round_up(divide_up(g->rows, most), threads);
        job->task_rows = even_task_size(g->rows, 1, threads, parts);
    } else {
        job->task_cols = even_task_size(g->cols, 32, threads, parts);
    }
    job->row_tasks = divide_up(g->rows, job->task_rows);
}

static xray_status find_panels(cpu_device *d, const char *where,
                               const xray_weight *w, uint32_t kind)
{
    cpu_panels *panels = &w->panels[kind - XRAY_NT];
    if (!panels->data)
        return cpu_fail(d, XRAY_E_STATE, where, "%s",
                        w->evicted >> (kind - XRAY_NT) & 1
                            ? "the weight was evicted; call weight_changed"
                            : "XRAY_NN needs a weight that was created "
                              "with trainable = 1");
    if (!panels->stale)
        return XRAY_OK;
    pack_job job = { w, kind };
    size_t outputs = kind == XRAY_NT ? w->rows : w->cols;
    size_t depth = kind == XRAY_NT ? w->cols : w->rows;
    cpu_ranges(d, panel_count(outputs), 1, 8.0 * (double)depth,
               pack_panels_range, &job);
    panels->stale = 0;
    return XRAY_OK;
}

xray_status cpu_product_run(cpu_device *d, const char *where,
                            const cpu_product *p)
{
    xray_status status = find_panels(d, where, p->weight, p->kind);
    if (status != XRAY_OK || p->tokens == 0)
        return status;
    size_t outputs = p->kind == XRAY_NT ? p->weight->rows : p->weight->cols;
    size_t depth = p->kind == XRAY_NT ? p->weight->cols : p->weight->rows;
    product_job job = { .d = d,
                        .complete = { .a = p->x,
                                      .a_row = p->x_row,
                                      .b = p->weight->panels[p->kind - 1].data,
                                      .b_panel = depth * 16,
                                      .b_row = 16,
                                      .c = p->y,
                                      .c_row = p->y_row,
                                      .rows = p->tokens,
                                      .cols = outputs,
                                      .depth = depth,
                                      .bias = p->bias,
                                      .b_narrow = p->weight->dtype == XRAY_BF16,
                                      .start = p->start } };
    double cost = (double)p->tokens * (double)outputs * (double)depth / 8;
    cut_product(d, &job, cost);
    if (job.complete.a_row % COPY_ROW == 0) {
        job.scratch_floats = CPU_GEMM_WORK;
        status = cpu_thread_scratch(d, &job.scratch_floats, &job.scratch);
        if (status != XRAY_OK)
            return status;
    }
    cpu_parallel(d, job.row_tasks * divide_up(outputs, job.task_cols), cost,
                 run_product_task, &job);
    return XRAY_OK;
}

xray_status cpu_matmul(void *self, xray_stream *stream, const xray_matmul *op)
{
    cpu_device *d = self;
    (void)stream;
    CPU_CHECK(d, op, "matmul", op->weight, op->x, op->y);
    if (op->kind != XRAY_NT && op->kind != XRAY_NN)
        return cpu_fail(d, XRAY_E_ARG, "matmul", "unknown kind %u", op->kind);
    if (op->accumulate && op->bias)
        return cpu_fail(d, XRAY_E_ARG, "matmul",
                        "bias and accumulate cannot be combined");
    int nt = op->kind == XRAY_NT;
    size_t in = nt ? op->weight->cols : op->weight->rows;
    size_t out = nt ? op->weight->rows : op->weight->cols;
    if (op->x_stride < in || op->y_stride < out)
        return cpu_fail(d, XRAY_E_ARG, "matmul",
                        "strides %llu and %llu do not fit rows of %zu and %zu",
                        (unsigned long long)op->x_stride,
                        (unsigned long long)op->y_stride, in, out);
    cpu_product p = { .weight = op->weight,
                      .x = op->x,
                      .y = op->y,
                      .x_row = op->x_stride,
                      .y_row = op->y_stride,
                      .tokens = cpu_count(&op->tokens),
                      .bias = op->bias,
                      .kind = op->kind,
                      .start = op->accumulate ? GEMM_LOAD
                               : op->bias     ? GEMM_BIAS
                                              : GEMM_ZERO };
    return cpu_product_run(d, "matmul", &p);
}

/* ---- gradient of the matrix --------------------------------------------- */

#define FOLD_X 65536  /* floats of x that a task reads repeatedly */
#define FOLD_ROWS 336 /* rows of dw per task */
#define FOLD_AHEAD 8  /* tokens fetched before they are packed */
#define LOW_TILE 8    /* a tile with at most this many rows wants x packed */
#define FOLD_TOKENS ((size_t)256) /* packed at a time, where x is packed */

typedef struct fold_job {
    const cpu_device *d;
    const xray_matmul_grad *op;
    float *scratch; /* NULL: x is read in place */
    size_t scratch_floats;
    size_t tokens;
    size_t task_rows;
    size_t task_cols;
    size_t row_tasks;
} fold_job;

/* Floats between packed panels: one cache line more than a panel holds, so that
 * lines of one token do not share a set of the L1 cache. */
static size_t fold_floats(size_t tokens)
{
    return (tokens < FOLD_TOKENS ? tokens : FOLD_TOKENS) * 16 + 16;
}

static void fold_pack(float *pack, const cpu_gemm *g)
{
    size_t complete = g->cols / 16;
    size_t left = g->cols % 16;
    const float *x = g->b;
    for (size_t t = 0; t < g->depth; t++, x += g->b_row) {
        float *dst = pack + t * 16;
        for (size_t i = 0; t + FOLD_AHEAD < g->depth && i < g->cols; i += 16)
            __builtin_prefetch(x + FOLD_AHEAD * g->b_row + i, 0, 3);
        for (size_t p = 0; p < complete; p++, dst += fold_floats(g->depth))
            memcpy(dst, x + p * 16, 16 * sizeof(float));
        if (left == 0)
            continue;
        memset(dst, 0, 16 * sizeof(float));
        memcpy(dst, x + complete * 16, left * sizeof(float));
    }
}

/* Computes the same product with x as packed panels. */
static void fold_packed(const fold_job *job, cpu_gemm g, float *pack)
{
    for (size_t left = job->tokens; left > 0; left -= g.depth) {
        g.depth = left < FOLD_TOKENS ? left : FOLD_TOKENS;
        fold_pack(pack, &g);
        cpu_gemm packed = g;
        packed.b = pack;
        packed.b_panel = fold_floats(g.depth);
        packed.b_row = 16;
        packed.b_tail = 0;
        job->d->k->gemm_t(&packed);
        g.a += g.depth * g.a_row;
        g.b = cpu_gemm_b(&g, g.depth * g.b_row);
    }
}

/* A row of x is contiguous along the lanes, a row of dy along the tile's rows,
 * so high tiles read both in place. Low ones read x so often that lines a power
 * of two apart, which share sets of the L1 cache, cost more than packing. */
static void run_fold_task(void *ctx, size_t task, size_t thread)
{
    const fold_job *job = ctx;
    const xray_matmul_grad *op = job->op;
    size_t row = task % job->row_tasks * job->task_rows;
    size_t col = task / job->row_tasks * job->task_cols;
    size_t rows = op->rows - row;
    size_t cols = op->cols - col;
    rows = rows < job->task_rows ? rows : job->task_rows;
    cols = cols < job->task_cols ? cols : job->task_cols;
    cpu_gemm g = { .a = op->dy + row,
                   .a_row = op->dy_stride,
                   .b = op->x + col,
                   .b_panel = 16,
                   .b_row = op->x_stride,
                   .b_tail = cols % 16 != 0,
                   .c = op->dw + row * op->cols + col,
                   .c_row = op->cols,
                   .rows = rows,
                   .cols = cols,
                   .depth = job->tokens,
                   .start = GEMM_LOAD };
    if (job->scratch)
        fold_packed(job, g, job->scratch + thread * job->scratch_floats);
    else
        job->d->k->gemm_t(&g);
}

static void bias_range(void *ctx, size_t first, size_t last)
{
    const fold_job *job = ctx;
    job->d->k->bias_grad(job->op->dbias + first, job->op->dy + first,
                         job->op->dy_stride, job->tokens, last - first);
}

/* Columns per task: more of them, thus longer runs of dw, fit with few tokens.
 */
static size_t fold_cols(size_t tokens)
{
    return FOLD_X / (tokens < 64 ? 64 : tokens > 256 ? 256 : tokens);
}

/* Cuts dw into blocks that fit the cache, and further to feed all threads: rows
 * anywhere, since tiles have nearly equal heights, columns by full panels. */
static void cut_fold(const cpu_device *d, fold_job *job, double cost)
{
    const xray_matmul_grad *op = job->op;
    size_t threads = cpu_pool_threads(d->pool);
    size_t parts = threads > 1 ? count_parts(threads, cost) : 1;
    parts = parts > 2 * threads ? 2 * threads : parts; /* each reads all of x */
    size_t across = divide_up(op->cols, fold_cols(job->tokens));
    size_t down = divide_up(parts, across);
    size_t least = divide_up(op->rows, FOLD_ROWS);
    if (down * d->k->rows > op->rows) {
        down = divide_up(op->rows, d->k->rows);
        parts = parts > across * down ? parts : across * down;
        across = divide_up(parts, down);
    }
    down = down < least ? least : down;
    while (down * across % threads != 0 && down * d->k->rows < op->rows)
        down++;
    job->task_cols = round_up(divide_up(op->cols, across), 32);
    job->task_rows = divide_up(op->rows, down);
    job->row_tasks = divide_up(op->rows, job->task_rows);
}

xray_status cpu_fold(cpu_device *d, const xray_matmul_grad *op, size_t tokens)
{
    fold_job job = { .d = d, .op = op, .tokens = tokens };
    if (tokens == 0)
        return XRAY_OK;
    double cost = (double)tokens * (double)op->rows * (double)op->cols / 8;
    cut_fold(d, &job, cost);
    if (d->k->rows <= LOW_TILE) {
        job.scratch_floats = divide_up(job.task_cols, 16) * fold_floats(tokens);
        xray_status status =
            cpu_thread_scratch(d, &job.scratch_floats, &job.scratch);
        if (status != XRAY_OK)
            return status;
    }
    cpu_parallel(d, job.row_tasks * divide_up(op->cols, job.task_cols), cost,
                 run_fold_task, &job);
    if (op->dbias)
        cpu_ranges(d, op->rows, 16, (double)tokens / 4, bias_range, &job);
    return XRAY_OK;
}

xray_status cpu_matmul_grad(void *self, xray_stream *stream,
                            const xray_matmul_grad *op)
{
    cpu_device *d = self;
    (void)stream;
    CPU_CHECK(d, op, "matmul_grad", op->dy, op->x, op->dw);
    if (op->dy_stride < op->rows || op->x_stride < op->cols || !op->rows ||
        !op->cols)
        return cpu_fail(
            d, XRAY_E_ARG, "matmul_grad",
            "strides %llu and %llu do not fit rows of %llu and %llu",
            (unsigned long long)op->dy_stride, (unsigned long long)op->x_stride,
            (unsigned long long)op->rows, (unsigned long long)op->cols);
    return cpu_fold(d, op, cpu_count(&op->tokens));
}
