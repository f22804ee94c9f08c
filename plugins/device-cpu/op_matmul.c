/* SPDX-License-Identifier: Apache-2.0
 *
 * Cuts matrix products into tasks on the CPU. Outputs are cut, never sums, so
 * no result depends on the number of threads.
 */
#include <string.h>

#include "plugins/device-cpu/cut.h"
#include "plugins/device-cpu/device.h"

/* ---- products ----------------------------------------------------------- */

typedef struct product_job {
    const cpu_device *d;
    const cpu_product *op;
    cpu_gemm complete;
    size_t task_rows; /* tasks are numbered by rows, then by columns */
    size_t task_cols;
    size_t row_tasks;
    size_t threads;
    float *scratch; /* or NULL: x is read in place */
    size_t scratch_floats;
    int copies; /* 1: blocks of x are copied where that pays */
    int staged; /* 1: blocks of outputs are in scratch before they are in y */
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

/* A range of outputs. */
typedef struct product_part {
    size_t row;
    size_t rows;
    size_t col;
    size_t cols;
} product_part;

static product_part find_part(const product_job *job, size_t task)
{
    const cpu_gemm *g = &job->complete;
    product_part p = { .row = task % job->row_tasks * job->task_rows,
                       .col = task / job->row_tasks * job->task_cols };
    p.rows = smaller(g->rows - p.row, job->task_rows);
    p.cols = smaller(g->cols - p.col, job->task_cols);
    return p;
}

/* The product of a part, whose first column is the first of a panel. */
static cpu_gemm part_product(const product_job *job, const product_part *p,
                             size_t thread)
{
    cpu_gemm g = job->complete;
    g.rows = p->rows;
    g.cols = p->cols;
    g.a = cpu_gemm_a(&g, p->row * g.a_row);
    g.b = cpu_gemm_b(&g, p->col / 16 * g.b_panel);
    g.c = g.c ? g.c + p->row * g.c_row + p->col : NULL;
    g.bias = g.bias ? g.bias + p->col : NULL;
    g.from = g.from ? g.from + p->row * g.from_row + p->col : NULL;
    if (g.scale != 0.0f || g.a_narrow ||
        (job->copies && g.rows > job->d->k->rows && g.cols >= COPY_COLS))
        g.work = job->scratch + thread * job->scratch_floats;
    if (g.segments)
        g.partial = job->scratch + thread * job->scratch_floats + CPU_GEMM_WORK;
    return g;
}

static void run_product_task(void *ctx, size_t task, size_t thread)
{
    const product_job *job = ctx;
    product_part part = find_part(job, task);
    cpu_gemm g = part_product(job, &part, thread);
    g.b_next = next_task_panels(job, task);
    job->d->k->gemm(&g);
}

/* ---- blocks of outputs -------------------------------------------------- */

/* Blocks of outputs that are activated, or stored as bf16, are computed in
 * scratch. Its rows hold the outputs of one block, or its gates and then its up
 * projections, from the first of a panel on. Where rows are few, those of
 * outputs that are not activated are longer. */
#define STAGE_COLS ((size_t)256)
#define STAGE_UP STAGE_COLS
#define STAGE_ROW (CPU_PRODUCT_STAGE / CPU_GEMM_ROWS)

static void compute_stage(const product_job *job, const product_part *part,
                          size_t thread, float *to)
{
    cpu_gemm g = part_product(job, part, thread);
    g.c = to;
    g.c_row = STAGE_ROW;
    job->d->k->gemm(&g);
}

static void activate_block(const product_job *job, const product_part *part,
                           size_t thread, float *stage)
{
    const cpu_product *op = job->op;
    const size_t y_at = part->row * op->y_row + part->col;
    cpu_activation a = { .gate = stage,
                         .y = cpu_output(op->y, op->y_narrow, y_at),
                         .x_row = STAGE_ROW,
                         .y_row = op->y_row,
                         .rows = part->rows,
                         .cols = part->cols,
                         .silu = op->act == XRAY_ACT_SILU,
                         .narrow = op->y_narrow };
    compute_stage(job, part, thread, stage);
    if (!op->plain) {
        size_t first = job->complete.cols + part->col;
        product_part up = *part;
        up.col = first / 16 * 16;
        up.cols += first - up.col;
        float *to = stage + STAGE_UP;
        compute_stage(job, &up, thread, to);
        a.up = to + (first - up.col);
    }
    job->d->k->activate(&a);
}

/* Widens a residual of bf16 to where the outputs are computed, and rounds
 * outputs that are. `next` is the panels that are read afterwards. */
static void convert_block(const product_job *job, const product_part *part,
                          size_t thread, float *stage, const void *next)
{
    const cpu_product *op = job->op;
    const cpu_kernels *k = job->d->k;
    cpu_gemm g = part_product(job, part, thread);
    g.b_next = next;
    if (op->y_narrow) {
        g.c = stage;
        g.c_row = CPU_PRODUCT_STAGE / part->rows / 16 * 16;
    }
    if (op->residual_narrow) {
        const uint16_t *from = op->residual;
        from += part->row * op->residual_row + part->col;
        for (size_t r = 0; r < part->rows; r++)
            k->widen(g.c + r * g.c_row, from + r * op->residual_row,
                     part->cols);
        g.from = g.c;
        g.from_row = g.c_row;
    }
    k->gemm(&g);
    if (!op->y_narrow)
        return;
    uint16_t *y = (uint16_t *)op->y + part->row * op->y_row + part->col;
    for (size_t r = 0; r < part->rows; r++)
        k->narrow(y + r * op->y_row, stage + r * g.c_row, part->cols);
}

static void run_blocks_task(void *ctx, size_t task, size_t thread)
{
    const product_job *job = ctx;
    const cpu_gemm *g = &job->complete;
    const product_part all = find_part(job, task);
    float *stage = job->scratch + thread * job->scratch_floats + CPU_GEMM_WORK +
                   cpu_gemm_partial(g->segments);
    product_part p = all;
    for (size_t r = 0; r < all.rows; r += p.rows) {
        p.row = all.row + r;
        p.rows = smaller(all.rows - r, CPU_GEMM_ROWS);
        size_t most =
            job->op->act ? STAGE_COLS : CPU_PRODUCT_STAGE / p.rows / 16 * 16;
        for (size_t c = 0; c < all.cols; c += p.cols) {
            p.col = all.col + c;
            p.cols = smaller(all.cols - c, most);
            size_t then = c + p.cols < all.cols ? p.col + p.cols : all.col;
            if (job->op->act)
                activate_block(job, &p, thread, stage);
            else if (then > p.col || r + p.rows < all.rows)
                convert_block(job, &p, thread, stage,
                              cpu_gemm_b(g, then / 16 * g->b_panel));
            else
                convert_block(job, &p, thread, stage,
                              next_task_panels(job, task));
        }
    }
}

/* ---- tasks -------------------------------------------------------------- */

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

/* At most `cols` columns whose sums in segments fit the scratch, so that tasks
 * of `cols` columns are cut evenly. */
static size_t fit_partial(const cpu_gemm *g, size_t rows, size_t cols)
{
    size_t levels = 0;
    for (; g->segments >> levels; levels++)
        ;
    if (levels == 0)
        return cols;
    size_t sums = levels * smaller(rows, CPU_GEMM_ROWS);
    size_t most = cpu_gemm_partial(g->segments) / sums / 32 * 32;
    return cols <= most ? cols
                        : round_up(divide_up(cols, divide_up(cols, most)), 32);
}

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
    if (g->rows > g->cols || g->cols < 64 || (job->copies && g->rows >= many) ||
        (g->depth * g->cols <= SMALL_MATRIX && g->rows >= 16 * parts)) {
        if (g->rows > parts * most)
            parts = round_up(divide_up(g->rows, most), threads);
        job->task_rows = even_task_size(g->rows, 1, threads, parts);
    } else {
        job->task_cols = even_task_size(g->cols, 32, threads, parts);
    }
    job->task_cols = fit_partial(g, job->task_rows, job->task_cols);
    job->row_tasks = divide_up(g->rows, job->task_rows);
}

/* Returns where the chains of a product start, as GEMM_*. A residual of bf16 is
 * widened to where they are stored. */
static int find_start(const cpu_product *p)
{
    if (p->segments > 1)
        return GEMM_ZERO;
    if (p->bias)
        return GEMM_BIAS;
    if (!p->residual)
        return GEMM_ZERO;
    int in_place = p->residual == p->y && p->residual_row == p->y_row;
    return in_place || p->residual_narrow ? GEMM_LOAD : GEMM_FROM;
}

/* The product of all outputs. A residual that is added to a chain which starts
 * from the bias makes it one of a single segment. */
static cpu_gemm whole_product(const cpu_product *p, const void *panels)
{
    int nt = p->kind == XRAY_NT;
    size_t depth = nt ? p->weight->cols : p->weight->rows;
    cpu_gemm g = { .a = p->x,
                   .a_row = p->x_row,
                   .b = panels,
                   .b_panel = depth * 16,
                   .b_row = 16,
                   .c = p->act || p->y_narrow ? NULL : p->y,
                   .c_row = p->y_row,
                   .rows = p->tokens,
                   .cols = nt ? p->weight->rows : p->weight->cols,
                   .depth = depth,
                   .bias = p->bias,
                   .from = p->residual_narrow ? NULL : p->residual,
                   .from_row = p->residual_row,
                   .a_narrow = p->x_narrow,
                   .b_narrow = (int)p->weight->narrow,
                   .start = find_start(p),
                   .scale = p->alpha == 1.0f ? 0.0f : p->alpha,
                   .segments = p->bias && p->residual,
                   .piece = { depth } };
    if (p->segments > 1) {
        g.segments = p->segments;
        memcpy(g.piece, p->piece, sizeof(g.piece));
    }
    if (p->act && !p->plain)
        g.cols /= 2;
    return g;
}

xray_status cpu_product_run(cpu_device *d, const char *where,
                            const cpu_product *p)
{
    const void *panels = NULL;
    xray_status status =
        cpu_weight_panels(d, where, p->weight, p->kind, &panels);
    if (status != XRAY_OK || p->tokens == 0)
        return status;
    product_job job = { .d = d,
                        .op = p,
                        .copies = p->x_narrow || p->x_row % COPY_ROW == 0,
                        .staged = p->act || p->y_narrow || p->residual_narrow,
                        .complete = whole_product(p, panels) };
    const cpu_gemm *g = &job.complete;
    double cost = (double)p->tokens * (double)p->weight->rows *
                  (double)p->weight->cols / 8;
    cut_product(d, &job, cost);
    if (job.copies || job.staged || g->segments || g->scale != 0.0f) {
        job.scratch_floats = cpu_product_floats(g->segments, job.staged);
        status = cpu_thread_scratch(d, &job.scratch_floats, &job.scratch);
        if (status != XRAY_OK)
            return status;
    }
    cpu_parallel(d, job.row_tasks * divide_up(g->cols, job.task_cols), cost,
                 job.staged ? run_blocks_task : run_product_task, &job);
    return XRAY_OK;
}

/* Refuses what an epilogue cannot be combined with. */
static xray_status check_epilogue(const cpu_device *d, const xray_matmul *op)
{
    if (op->kind != XRAY_NT && op->kind != XRAY_NN)
        return cpu_fail(d, XRAY_E_ARG, "matmul", "unknown kind %u", op->kind);
    if (op->act > XRAY_ACT_GELU_TANH)
        return cpu_fail(d, XRAY_E_UNSUPPORTED, "matmul",
                        "activation %u is not supported", op->act);
    if (op->plain > (op->act != 0))
        return cpu_fail(d, XRAY_E_ARG, "matmul",
                        "plain is %u, but must be 0, or 1 with an activation",
                        op->plain);
    if (op->act && (op->kind != XRAY_NT || op->residual))
        return cpu_fail(d, XRAY_E_ARG, "matmul",
                        "an activation needs kind XRAY_NT and no residual");
    if (op->act && !op->plain && op->weight->rows % 2)
        return cpu_fail(d, XRAY_E_ARG, "matmul",
                        "%llu outputs are not as many gates as up projections",
                        (unsigned long long)op->weight->rows);
    return XRAY_OK;
}

/* Sets how many terms a segment has of each part of a sum of `depth` terms. */
static xray_status cut_sum(const cpu_device *d, const xray_matmul *op,
                           uint64_t depth, cpu_product *p)
{
    uint32_t n = p->segments;
    const uint64_t *part = op->part;
    const uint64_t one[3] = { depth };
    if (!part[0] && !part[1] && !part[2])
        part = one;
    if (n > XRAY_SEGMENTS || (n & (n - 1)))
        return cpu_fail(d, XRAY_E_ARG, "matmul",
                        "segments is %u, but must be a power of two up to %u",
                        n, XRAY_SEGMENTS);
    if (n > 1 && op->act)
        return cpu_fail(d, XRAY_E_ARG, "matmul",
                        "an activation needs a sum of one segment, not of %u",
                        n);
    for (uint64_t i = 0, left = depth; i < 3; left -= part[i++])
        if (part[i] > left || (i == 2 && part[i] < left))
            return cpu_fail(
                d, XRAY_E_ARG, "matmul",
                "parts of %llu, %llu and %llu do not add up to "
                "%llu",
                (unsigned long long)part[0], (unsigned long long)part[1],
                (unsigned long long)part[2], (unsigned long long)depth);
    for (int i = 0; i < 3; i++) {
        if (part[i] % n)
            return cpu_fail(d, XRAY_E_ARG, "matmul",
                            "a part of %llu cannot be cut into %u segments",
                            (unsigned long long)part[i], n);
        p->piece[i] = part[i] / n;
    }
    return XRAY_OK;
}

xray_status cpu_matmul(void *self, xray_stream *stream, const xray_matmul *op)
{
    cpu_device *d = self;
    (void)stream;
    CPU_CHECK(d, op, "matmul", op->weight, op->x, op->y);
    XR_CHECK_OPERANDS(d->host, "matmul", XR_OPERAND(op, x), XR_OPERAND(op, y),
                      XR_OPERAND(op, residual));
    xray_status status = check_epilogue(d, op);
    if (status != XRAY_OK)
        return status;
    int nt = op->kind == XRAY_NT;
    size_t in = nt ? op->weight->cols : op->weight->rows;
    size_t out = nt ? op->weight->rows : op->weight->cols;
    out /= op->act && !op->plain ? 2 : 1;
    if (op->x_stride < in || op->y_stride < out)
        return cpu_fail(d, XRAY_E_ARG, "matmul",
                        "strides %llu and %llu do not fit rows of %zu and %zu",
                        (unsigned long long)op->x_stride,
                        (unsigned long long)op->y_stride, in, out);
    if (op->residual && op->residual_stride < out)
        return cpu_fail(d, XRAY_E_ARG, "matmul",
                        "residual_stride %llu does not fit rows of %zu",
                        (unsigned long long)op->residual_stride, out);
    cpu_product p = { .weight = op->weight,
                      .x = op->x,
                      .y = op->y,
                      .x_row = op->x_stride,
                      .y_row = op->y_stride,
                      .tokens = cpu_count(&op->tokens),
                      .bias = op->bias,
                      .residual = op->residual,
                      .residual_row = op->residual_stride,
                      .kind = op->kind,
                      .alpha = op->alpha,
                      .act = op->act,
                      .plain = op->plain,
                      .segments = op->segments ? op->segments : 1,
                      .x_narrow = cpu_is_narrow(op->x_dtype),
                      .y_narrow = cpu_is_narrow(op->y_dtype),
                      .residual_narrow =
                          op->residual && cpu_is_narrow(op->residual_dtype) };
    status = cut_sum(d, op, in, &p);
    if (status != XRAY_OK)
        return status;
    return cpu_product_run(d, "matmul", &p);
}
