/* SPDX-License-Identifier: Apache-2.0
 *
 * The gradient of a matrix on the CPU, cut into blocks of its elements.
 */
#include "plugins/device-cpu/cut.h"
#include "plugins/device-cpu/device.h"

#define FOLD_X 65536  /* floats of x that a task reads repeatedly */
#define FOLD_ROWS 336 /* rows of dw per task */
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

/* Computes the same product with x as packed panels. */
static void fold_packed(const fold_job *job, cpu_gemm g, float *pack)
{
    for (size_t left = job->tokens; left > 0; left -= g.depth) {
        g.depth = left < FOLD_TOKENS ? left : FOLD_TOKENS;
        cpu_gemm packed = g;
        packed.b = pack;
        packed.b_panel = fold_floats(g.depth);
        packed.b_row = 16;
        packed.b_tail = 0;
        packed.b_narrow = 0;
        job->d->k->pack(&g, pack, packed.b_panel);
        job->d->k->gemm_t(&packed);
        g.a = cpu_gemm_a(&g, g.depth * g.a_row);
        g.b = cpu_gemm_b(&g, g.depth * g.b_row);
    }
}

/* A row of x is contiguous along the lanes, a row of dy along the tile's rows,
 * so high tiles read both in place. Low ones read x so often that lines a power
 * of two apart, which share sets of the L1 cache, cost more than packing. bf16
 * is packed so that it is widened once. */
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
                   .b = op->x,
                   .b_panel = 16,
                   .b_row = op->x_stride,
                   .b_tail = cols % 16 != 0,
                   .b_narrow = cpu_is_narrow(op->x_dtype),
                   .c = op->dw + row * op->cols + col,
                   .c_row = op->cols,
                   .rows = rows,
                   .cols = cols,
                   .depth = job->tokens,
                   .start = GEMM_LOAD };
    g.b = cpu_gemm_b(&g, col);
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
    if (d->k->rows <= LOW_TILE || cpu_is_narrow(op->x_dtype)) {
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
    XR_CHECK_OPERANDS(d->host, "matmul_grad", XR_OPERAND(op, x));
    if (op->dy_stride < op->rows || op->x_stride < op->cols || !op->rows ||
        !op->cols)
        return cpu_fail(
            d, XRAY_E_ARG, "matmul_grad",
            "strides %llu and %llu do not fit rows of %llu and %llu",
            (unsigned long long)op->dy_stride, (unsigned long long)op->x_stride,
            (unsigned long long)op->rows, (unsigned long long)op->cols);
    return cpu_fold(d, op, cpu_count(&op->tokens));
}
