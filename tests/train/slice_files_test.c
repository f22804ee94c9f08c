/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that the slices of a model, each divided among data-parallel ranks,
 * read what one rank wrote, update it as one rank does, count every gradient
 * once, and write together the bytes that one rank writes.
 */
#include <pthread.h>

#include <xray/box.h>

#include "model/train/checkpoint.h"
#include "model/train/norm.h"
#include "tests/nn/slice_kinds.h"
#include "tests/scratch.h"
#include "tests/train/thread_comm.h"

/* A rank's part of a slice: its share of each bucket, with moments. */
typedef struct member {
    fixture_device device;
    xm_layout *layout;
    float **memory; /* [bucket_count] shares; NULL: the weights are complete */
    float **shares; /* [bucket_count] where the shares of the weights begin */
    float **grads;
    xm_weights *weights;
    xm_adamw *adamw;
    const char *dir; /* to which all ranks save */
    void *self;      /* of thread_comm */
    uint32_t rank;
    uint32_t ranks;
    xray_status status;
    xr_err err;
} member;

/* `complete`: the rank has all of the slice's weights, but only its share of
 * the moments. */
static void open_member(member *m, const fixture_kind *kind, uint32_t tp_rank,
                        uint32_t tp, uint32_t dp_rank, uint32_t dp,
                        int complete)
{
    const xm_adamw_options options = {
        .beta1 = 0.5, .beta2 = 0.25, .eps = 1e-8, .weight_decay = 0.125
    };
    xm_config slice;
    m->device = fixture_open(1, "auto");
    fixture_ok(xm_config_slice(&kind->config, tp_rank, tp, &m->err, &slice),
               &m->err);
    fixture_ok(xm_layout_create(&slice, kind->value_head, &m->err, &m->layout),
               &m->err);
    xm_layout *layout = m->layout;
    layout->ranks = dp;
    layout->rank = dp_rank;
    m->shares = calloc(layout->bucket_count, sizeof(float *));
    m->grads = calloc(layout->bucket_count, sizeof(float *));
    m->memory = complete ? NULL : calloc(layout->bucket_count, sizeof(float *));
    assert_true(m->shares && m->grads && (complete || m->memory));
    for (uint32_t b = 0; b < layout->bucket_count; b++) {
        uint64_t bytes = xm_bucket_share(layout, b).count * sizeof(float);
        m->grads[b] = fixture_alloc(&m->device, bytes);
        if (!complete)
            m->memory[b] = fixture_alloc(&m->device, bytes);
    }
    fixture_ok(complete
                   ? xm_weights_create(layout, m->device.ops, m->device.self,
                                       "test", 0, &m->err, &m->weights)
                   : xm_weights_create_share(layout, m->device.ops,
                                             m->device.self, m->memory, &m->err,
                                             &m->weights),
               &m->err);
    for (uint32_t b = 0; b < layout->bucket_count; b++)
        m->shares[b] = m->weights->buckets[b] +
                       (complete ? xm_bucket_share(layout, b).first : 0);
    fixture_ok(xm_adamw_create(layout, m->device.ops, m->device.self, &options,
                               "test", &m->err, &m->adamw),
               &m->err);
}

static void close_member(member *m)
{
    xm_adamw_destroy(m->adamw);
    for (uint32_t b = 0; b < m->layout->bucket_count; b++) {
        fixture_free(&m->device, m->grads[b]);
        if (m->memory)
            fixture_free(&m->device, m->memory[b]);
    }
    if (m->memory)
        xm_weights_destroy_share(m->weights);
    else
        xm_weights_destroy(m->weights);
    free(m->memory);
    free(m->shares);
    free(m->grads);
    xm_layout_destroy(m->layout);
    fixture_close(&m->device);
}

/* One update; a weight serves as its own gradient. */
static void update_weights(member *m)
{
    for (uint32_t b = 0; b < m->layout->bucket_count; b++)
        memcpy(m->grads[b], m->shares[b],
               xm_bucket_share(m->layout, b).count * sizeof(float));
    fixture_ok(xm_adamw_step(m->adamw, m->shares, m->grads, 0.25, 0.5, &m->err),
               &m->err);
}

static void load_member(member *m, const char *dir)
{
    xm_optim *optim = NULL;
    fixture_ok(xm_weights_load(m->weights, dir, &m->err), &m->err);
    fixture_ok(xm_optim_open(m->layout, dir, &m->err, &optim), &m->err);
    fixture_ok(xm_optim_restore(optim, m->adamw, &m->err), &m->err);
    xm_optim_close(optim);
}

/* ---- one rank ----------------------------------------------------------- */

/* Writes a checkpoint, and another one that is an update later; returns the
 * rank, which stays at the first. */
static member write_checkpoints(const fixture_kind *kind, const char *before,
                                const char *after)
{
    fixture f;
    member one = { 0 };
    fixture_make(&f, kind, 5);
    fixture_ok(xm_weights_save(f.weights, before, XM_ST_SHARD_BYTES, &one.err),
               &one.err);
    fixture_end(&f);
    open_member(&one, kind, 0, 1, 0, 1, 1);
    fixture_ok(xm_weights_load(one.weights, before, &one.err), &one.err);
    update_weights(&one);
    for (uint32_t i = 0; i < 2; i++) {
        const char *dir = i ? after : before;
        fixture_ok(
            xm_weights_save(one.weights, dir, XM_ST_SHARD_BYTES, &one.err),
            &one.err);
        fixture_ok(xm_optim_save(one.adamw, dir, 4, &one.err), &one.err);
        update_weights(&one);
    }
    load_member(&one, before);
    return one;
}

/* ---- several ------------------------------------------------------------ */

static xray_status agree_with_all(void *ctx, xray_status mine, xr_err *err)
{
    const member *m = ctx;
    xray_status all[THREAD_COMM_MAX] = { XRAY_OK };
    xray_status status = thread_comm_gather(m->self, &mine, sizeof mine, all);
    (void)err;
    for (uint32_t r = 0; r < m->ranks && status == XRAY_OK; r++)
        status = all[r];
    return status;
}

static void *save_member(void *ctx)
{
    member *m = ctx;
    const xm_agreement agreement = { m, agree_with_all, m->rank, 0 };
    m->status = xm_weights_save_share(m->weights, m->layout, m->dir,
                                      XM_ST_SHARD_BYTES, &agreement, &m->err);
    if (m->status == XRAY_OK)
        m->status = xm_optim_save_share(m->adamw, m->layout, m->dir, 4,
                                        &agreement, &m->err);
    return NULL;
}

static void save_together(member *members, uint32_t ranks, const char *dir)
{
    thread_comm *comm = thread_comm_open(ranks);
    pthread_t threads[THREAD_COMM_MAX];
    assert_non_null(comm);
    for (uint32_t r = 0; r < ranks; r++) {
        members[r].self = thread_comm_self(comm, r);
        members[r].rank = r;
        members[r].ranks = ranks;
        members[r].dir = dir;
        assert_int_equal(
            pthread_create(&threads[r], NULL, save_member, &members[r]), 0);
    }
    for (uint32_t r = 0; r < ranks; r++)
        pthread_join(threads[r], NULL);
    for (uint32_t r = 0; r < ranks; r++)
        fixture_ok(members[r].status, &members[r].err);
    thread_comm_close(comm);
}

/* Compares the elements of a box with those of the entire tensor. */
static void check_box(const xray_tensor *box, const float *whole)
{
    uint64_t all_cols = box->dims == 2 ? box->shape[1] : 1;
    uint64_t cols = box->dims == 2 ? box->extent[1] : 1;
    uint64_t col = box->dims == 2 ? box->lo[1] : 0;
    for (uint64_t r = 0; r < box->extent[0]; r++)
        assert_memory_equal((const float *)box->data + r * box->stride[0],
                            whole + (box->lo[0] + r) * all_cols + col,
                            cols * sizeof(float));
}

/* Compares a rank's weights and moments with those of one rank; returns how
 * many elements it has first. */
static uint64_t check_member(const member *m, const member *one)
{
    const xray_weights *table = &m->weights->table;
    uint64_t first = 0;
    for (uint32_t i = 0; i < table->tensor_count; i++) {
        const xray_tensor *box = &table->tensors[i];
        const xm_param *whole = xm_layout_find(one->layout, box->name);
        assert_true(box->shape[0] == whole->rows);
        check_box(box, one->shares[whole->bucket] + whole->offset);
    }
    for (uint32_t i = 0; i < m->layout->param_count; i++) {
        const xm_param *param = &m->layout->params[i];
        const xm_param *whole = xm_layout_find(one->layout, param->name);
        xm_range share = xm_bucket_share(m->layout, param->bucket);
        xm_range here = xm_param_in(param, share);
        uint64_t at = param->offset + here.first - share.first;
        xray_tensor boxes[XM_SHARE_BOXES];
        uint32_t n =
            xm_range_boxes(param, here, m->adamw->v[param->bucket] + at, boxes);
        assert_true(n <= XM_SHARE_BOXES);
        for (uint32_t b = 0; b < n && here.count; b++)
            check_box(&boxes[b], one->adamw->v[whole->bucket] + whole->offset);
        uint64_t end = here.first + here.count;
        if (param->own > here.first)
            first += (end < param->own ? end : param->own) - here.first;
    }
    return first;
}

static void add_squares(member *m, uint64_t *sum)
{
    const xm_grad_share share = { .device = m->device.ops,
                                  .device_self = m->device.self,
                                  .layout = m->layout,
                                  .data = m->shares,
                                  .squares = m->adamw->squares };
    uint64_t mine[XRAY_SQUARES_WORDS];
    fixture_ok(xm_grad_squares(&share, &m->err, mine), &m->err);
    for (uint32_t i = 0; i < XRAY_SQUARES_WORDS; i++)
        sum[i] += mine[i];
}

static void expect_same_file(const char *name)
{
    char paths[2][300];
    char *text[2] = { NULL };
    size_t size[2] = { 0 };
    xr_err err = { "" };
    for (uint32_t i = 0; i < 2; i++) {
        (void)snprintf(paths[i], sizeof paths[i], "%s/%s/%s", scratch_dir(),
                       i ? "together" : "after", name);
        fixture_ok(xr_file_read(paths[i], 1u << 24, &err, &text[i], &size[i]),
                   &err);
    }
    assert_int_equal(size[0], size[1]);
    assert_memory_equal(text[0], text[1], size[0]);
    free(text[0]);
    free(text[1]);
}

static void resume_on_ranks(const fixture_kind *kind, member *one, uint32_t tp,
                            uint32_t dp, int complete)
{
    member members[THREAD_COMM_MAX] = { { { 0 } } };
    uint64_t squares[2][XRAY_SQUARES_WORDS] = { { 0 } };
    uint64_t first = 0;
    uint64_t all = 0;
    for (uint32_t r = 0; r < tp * dp; r++) {
        member *m = &members[r];
        open_member(m, kind, r / dp, tp, r % dp, dp, complete);
        load_member(m, scratch_path("before"));
        first += check_member(m, one);
        add_squares(m, squares[0]);
        update_weights(m);
    }
    for (uint32_t i = 0; i < one->layout->param_count; i++)
        all += one->layout->params[i].count;
    assert_int_equal(first, all);
    add_squares(one, squares[1]);
    for (uint32_t i = 0; i < 2; i++)
        xray_squares_carry(squares[i]);
    assert_memory_equal(squares[0], squares[1], sizeof squares[0]);
    save_together(members, tp * dp, scratch_path("together"));
    expect_same_file("model.safetensors");
    expect_same_file(XM_OPTIM_FILE);
    for (uint32_t r = 0; r < tp * dp; r++)
        close_member(&members[r]);
}

static void every_layout_reads_and_writes_the_files_of_one_rank(void **state)
{
    (void)state;
    for (size_t k = 0; k < slice_kind_count; k++) {
        const fixture_kind *kind = &slice_kinds[k];
        member one = write_checkpoints(kind, scratch_path("before"),
                                       scratch_path("after"));
        uint32_t most = slice_most_ranks(&kind->config);
        for (uint32_t tp = 1; tp <= most; tp *= 2)
            for (uint32_t dp = 1; dp <= 2 && tp * dp <= THREAD_COMM_MAX; dp++)
                resume_on_ranks(kind, &one, tp, dp, (k + tp) % 2 == 0);
        close_member(&one);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout_reads_and_writes_the_files_of_one_rank),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
