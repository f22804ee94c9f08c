/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that ranks which divide the tokens of rows, each a thread, give the
 * bits of one rank in their forward pass: hidden states, log-probabilities,
 * entropies and values; and gradients whose sum over the ranks is that of one
 * rank within a bound. So do tensor-parallel ranks, and those that divide the
 * tokens along the residual stream as well.
 */
#include <math.h>
#include <pthread.h>

#include "tests/nn/joined.h"
#include "tests/nn/slice_kinds.h"
#include "tests/testing.h"
#include "tests/train/thread_comm.h"

#define MOST_CONTEXT 4u
#define MOST_TENSOR 2u
#define POSITIONS 64u
#define TOKENS 40u
#define STATES (TOKENS * 24 * sizeof(float))

/* ---- ranks -------------------------------------------------------------- */

/* The ranks compute one model on the same rows together. */
typedef struct grid {
    const fixture *model;
    const fixture_rows *rows;
    const fixture_items *items;
    uint32_t context; /* ranks that divide rows */
    uint32_t tensor;  /* ranks that share each layer */
    uint32_t flags;
    char hidden[STATES];
    float logp[TOKENS];
    float entropy[TOKENS];
    float value[TOKENS];
    struct rank_state *ranks; /* those that share layers are neighbours */
} grid;

typedef struct rank_state {
    grid *g;
    fixture f;
    joined by;
    xm_grads *grads;
    xm_pack pack;
    xm_items items;
    xm_output_grads given;
    uint32_t whole[TOKENS]; /* the item of all rows that an item is */
    int32_t ids[TOKENS];
    int32_t positions[TOKENS];
    int32_t index[TOKENS];
    int32_t target[TOKENS];
    float temperature[TOKENS];
    float dlogp[TOKENS];
    float dentropy[TOKENS];
    float dvalue[TOKENS];
    int32_t order[TOKENS];
    int32_t start[2][TOKENS + 1];
    int32_t first[2][TOKENS];
    xray_status status;
    xr_err err;
} rank_state;

/* Takes the items that read the rank's token number `at`, which is token
 * `token` of the rows. */
static void take_item(rank_state *s, int32_t at, int32_t token)
{
    const fixture_items *from = s->g->items;
    for (uint32_t i = 0; i < from->items.count; i++) {
        uint32_t n = s->items.count;
        if (from->index[i] != token)
            continue;
        s->items.count++;
        s->whole[n] = i;
        s->index[n] = at;
        s->target[n] = from->target[i];
        s->temperature[n] = from->temperature[i];
        s->dlogp[n] = from->dlogp[i];
        s->dentropy[n] = from->dentropy[i];
        s->dvalue[n] = from->dvalue[i];
    }
}

/* Makes the rank's part of the rows and items. */
static void take_part(rank_state *s)
{
    const grid *g = s->g;
    const xm_context_arrays out = { s->order,
                                    { s->start[0], s->start[1] },
                                    { s->first[0], s->first[1] } };
    uint64_t all = g->rows->pack.tokens;
    uint64_t each = xm_context_each(all, g->context);
    s->pack = g->rows->pack;
    s->pack.ids = s->ids;
    s->pack.positions = s->positions;
    for (int32_t t = 0; t < (int32_t)all; t++)
        s->order[t] = t;
    if (g->context > 1) {
        s->pack.tokens =
            xm_context_divide(g->rows->row_start, s->pack.rows, g->context,
                              s->by.context.rank, &out);
        assert_int_equal(s->pack.tokens,
                         all / g->context +
                             (s->by.context.rank < all % g->context));
        s->pack.context = (xm_context){ all,
                                        s->order,
                                        { s->start[0], s->start[1] },
                                        { s->first[0], s->first[1] } };
    }
    s->items = (xm_items){ .value = g->items->items.value,
                           .index = s->index,
                           .target = s->target,
                           .temperature = s->temperature };
    s->given = (xm_output_grads){ s->dlogp, s->dentropy, s->dvalue };
    for (uint32_t at = 0; at < s->pack.tokens; at++)
        for (uint32_t t = 0; t < all; t++) {
            if ((uint64_t)s->order[t] != s->by.context.rank * each + at)
                continue;
            s->ids[at] = g->rows->ids[t];
            s->positions[at] = g->rows->positions[t];
            take_item(s, (int32_t)at, (int32_t)t);
        }
}

/* ---- what each rank computes -------------------------------------------- */

/* Puts the outputs of the rank's tokens where those of one rank are. */
static void put_outputs(const rank_state *s, const xm_space *space,
                        const xm_token_outputs *outputs)
{
    grid *g = s->g;
    uint64_t each = xm_context_each(g->rows->pack.tokens, g->context);
    size_t size =
        s->f.config.hidden * (size_t)xm_config_act_bytes(&s->f.config);
    const char *hidden = xm_space_hidden(space);
    if (s->by.slices.rank)
        return;
    for (uint32_t t = 0; t < g->rows->pack.tokens; t++)
        if ((uint64_t)s->order[t] / each == s->by.context.rank)
            memcpy(g->hidden + t * size,
                   hidden + (uint64_t)s->order[t] % each * size, size);
    for (uint32_t i = 0; i < s->items.count; i++) {
        g->logp[s->whole[i]] = outputs->logp[i];
        g->entropy[s->whole[i]] = outputs->entropy[i];
        if (outputs->value)
            g->value[s->whole[i]] = outputs->value[i];
    }
}

static xray_status train_once(rank_state *s, xm_space *space)
{
    xm_decoder *decoder = s->f.decoder;
    xm_token_outputs outputs = { 0 };
    const float *dhidden = NULL;
    xray_status status = xm_forward(decoder, space, &s->pack, &s->err);
    if (status == XRAY_OK)
        status = xm_outputs(decoder, space, &s->items, &outputs, &s->err);
    if (status != XRAY_OK)
        return status;
    put_outputs(s, space, &outputs);
    status = xm_outputs_backward(decoder, space, &s->items, &s->given, s->grads,
                                 &dhidden, &s->err);
    if (status == XRAY_OK)
        status =
            xm_backward(decoder, space, &s->pack, dhidden, s->grads, &s->err);
    return status == XRAY_OK ? xm_grads_finish(s->grads, &s->err) : status;
}

static void *run_rank(void *ctx)
{
    rank_state *s = ctx;
    xm_space *space = NULL;
    s->status = xm_space_create(s->f.decoder, TOKENS, 6, TOKENS, s->g->flags,
                                "test", &s->err, &space);
    if (s->status == XRAY_OK)
        s->status = train_once(s, space);
    xm_space_destroy(space);
    return NULL;
}

/* Makes the decoder of a rank with the model's weights. */
static void make_rank(rank_state *s)
{
    const fixture *model = s->g->model;
    fixture *f = &s->f;
    f->device = fixture_open(1, "auto");
    fixture_ok(xm_config_slice(&model->config, s->by.slices.rank, s->g->tensor,
                               &s->err, &f->config),
               &s->err);
    f->config.context_ranks = s->g->context;
    f->config.context_rank = s->by.context.rank;
    joined_make(&s->by, model, POSITIONS, f);
    s->grads = fixture_grads(f);
    take_part(s);
}

static void run_grid(grid *g)
{
    uint32_t count = g->context * g->tensor;
    rank_state *ranks = calloc(count, sizeof *ranks);
    pthread_t threads[MOST_CONTEXT * MOST_TENSOR];
    thread_comm *tensor[MOST_CONTEXT] = { NULL };
    thread_comm *context[MOST_TENSOR] = { NULL };
    assert_non_null(ranks);
    g->ranks = ranks;
    for (uint32_t k = 0; k < g->context; k++)
        tensor[k] = thread_comm_open(g->tensor);
    for (uint32_t t = 0; t < g->tensor; t++)
        context[t] = thread_comm_open(g->context);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t k = i / g->tensor;
        uint32_t t = i % g->tensor;
        ranks[i] = (rank_state){
            .g = g,
            .by = { { thread_comm_ops(), thread_comm_group(tensor[k], t),
                      g->tensor, t },
                    { thread_comm_ops(), thread_comm_group(context[t], k),
                      g->context, k } },
        };
        make_rank(&ranks[i]);
    }
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_rank, &ranks[i]),
                         0);
    for (uint32_t i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    for (uint32_t i = 0; i < count; i++)
        fixture_ok(ranks[i].status, &ranks[i].err);
    for (uint32_t k = 0; k < g->context; k++)
        thread_comm_close(tensor[k]);
    for (uint32_t t = 0; t < g->tensor; t++)
        thread_comm_close(context[t]);
}

static void free_grid(grid *g)
{
    for (uint32_t i = 0; i < g->context * g->tensor; i++) {
        xm_grads_destroy(g->ranks[i].grads);
        fixture_end(&g->ranks[i].f);
    }
    free(g->ranks);
}

/* ---- comparing ---------------------------------------------------------- */

/* The largest distance of a gradient's elements from those of one rank, in
 * units of the largest element of their tensor: five times what is seen. */
#define BOUND 1e-5

static const char *kind_name;

static void expect_bytes(const grid *g, const void *got, const void *want,
                         size_t bytes, const char *what)
{
    if (memcmp(got, want, bytes) != 0)
        fail_msg("%s, context of %u, tensor of %u, flags %u: other %s",
                 kind_name, g->context, g->tensor, g->flags, what);
}

/* Compares the sum over the context of what the ranks at `tensor` have. */
static void compare_gradient(const grid *g, const grid *one, uint32_t tensor,
                             const xm_param *param)
{
    const float *want =
        one->ranks[tensor].grads->buckets[param->bucket] + param->offset;
    double most = 0;
    double error = 0;
    for (uint64_t i = 0; i < param->count; i++) {
        double sum = 0;
        for (uint32_t k = 0; k < g->context; k++)
            sum += (double)g->ranks[k * g->tensor + tensor]
                       .grads->buckets[param->bucket][param->offset + i];
        error = fmax(error, fabs(sum - (double)want[i]));
        most = fmax(most, fabs((double)want[i]));
    }
    if (!(error <= BOUND * most))
        fail_msg("%s, context of %u, tensor of %u, flags %u: %s is %.3g off",
                 kind_name, g->context, g->tensor, g->flags, param->name,
                 error / most);
}

static void compare_grids(const grid *g, const grid *one)
{
    const xm_layout *layout = one->ranks[0].f.layout;
    expect_bytes(g, g->hidden, one->hidden, sizeof g->hidden, "hidden states");
    expect_bytes(g, g->logp, one->logp, sizeof g->logp, "log-probabilities");
    expect_bytes(g, g->entropy, one->entropy, sizeof g->entropy, "entropies");
    expect_bytes(g, g->value, one->value, sizeof g->value, "values");
    for (uint32_t t = 0; t < g->tensor; t++)
        for (uint32_t i = 0; i < layout->param_count; i++)
            compare_gradient(g, one, t, &one->ranks[t].f.layout->params[i]);
}

/* Compares ranks of a context with one, which shares each layer with as many
 * others. */
static void compare_kind(const fixture_kind *kind, const uint32_t *lengths,
                         uint32_t count, uint32_t flags)
{
    fixture model;
    uint64_t seed = kind->config.hidden + kind->config.heads;
    fixture_rows rows =
        fixture_rows_make(lengths, count, kind->config.vocab, seed);
    fixture_items items = fixture_items_make(&rows, kind->value_head, seed + 9);
    fixture_make(&model, kind, seed + 1);
    kind_name = kind->name;
    for (uint32_t tensor = 1;
         tensor <= MOST_TENSOR && tensor <= slice_most_ranks(&kind->config);
         tensor *= 2) {
        grid *grids[2];
        for (uint32_t ranks = 1; ranks <= MOST_CONTEXT; ranks *= 2) {
            grid *g = grids[ranks > 1] = calloc(1, sizeof *g);
            assert_non_null(g);
            *g = (grid){ .model = &model,
                         .rows = &rows,
                         .items = &items,
                         .context = ranks,
                         .tensor = tensor,
                         .flags = flags };
            run_grid(g);
            if (ranks == 1)
                continue;
            compare_grids(g, grids[0]);
            free_grid(g);
            free(g);
        }
        free_grid(grids[0]);
        free(grids[0]);
    }
    fixture_end(&model);
    fixture_items_free(&items);
    fixture_rows_free(&rows);
}

/* ---- tests -------------------------------------------------------------- */

static const uint32_t lengths[] = { 11, 1, 17, 3 };

static void a_context_has_the_bits_of_one_rank(void **state)
{
    (void)state;
    const uint32_t flags[] = { XM_SPACE_TRAIN | XM_SPACE_LOGITS,
                               XM_SPACE_TRAIN | XM_SPACE_INPUTS |
                                   XM_SPACE_SEQUENCE,
                               XM_SPACE_RECOMPUTE };
    for (size_t k = 0; k < slice_kind_count; k++)
        for (uint32_t i = 0; i < sizeof flags / sizeof *flags; i++)
            compare_kind(&slice_kinds[k], lengths, 4, flags[i]);
}

static void so_has_every_architecture(void **state)
{
    (void)state;
    for (size_t k = 0; k < fixture_kind_count; k++)
        compare_kind(&fixture_kinds[k], lengths, 4, XM_SPACE_TRAIN);
}

/* Some ranks have no token of a row, and some of no row. */
static void rows_may_be_shorter_than_a_context(void **state)
{
    (void)state;
    const uint32_t few[] = { 2, 1 };
    compare_kind(&slice_kinds[1], few, 2, XM_SPACE_TRAIN | XM_SPACE_SEQUENCE);
    compare_kind(&slice_kinds[4], few, 2, XM_SPACE_RECOMPUTE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_context_has_the_bits_of_one_rank),
        cmocka_unit_test(so_has_every_architecture),
        cmocka_unit_test(rows_may_be_shorter_than_a_context),
    };
    int failed = cmocka_run_group_tests_name("nn.context", tests, NULL, NULL);
    fixture_activations(XRAY_BF16);
    return failed +
           cmocka_run_group_tests_name("nn.context, bf16", tests, NULL, NULL);
}
