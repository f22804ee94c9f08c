/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that every architecture agrees with transformers: outputs, gradients
 * and greedy continuations of the small models of tests/nn/goldens, which
 * transformers computed with eager attention in double precision
 * (tests/parity/decoders.py wrote models and results).
 */
#include "tests/nn/fixture.h"
#include "tests/nn/goldens.h"

#define TOKENS 64u /* in all rows of a golden */
#define VOCAB 64u

typedef struct golden {
    fixture f;
    cJSON *json;
    fixture_rows rows;
    fixture_items items; /* `dlogp` is the gradient of the mean negative
                          * log-likelihood */
    xm_space *space;
    float logp[TOKENS];
} golden;

/* ---- reading ------------------------------------------------------------ */

static fixture_rows read_rows(const cJSON *list)
{
    uint32_t lengths[8] = { 0 };
    uint32_t count = 0;
    const cJSON *row = NULL;
    cJSON_ArrayForEach(row, list)
    {
        assert_true(count < 8);
        lengths[count++] = (uint32_t)cJSON_GetArraySize(row);
    }
    fixture_rows rows = fixture_rows_make(lengths, count, 2, 1);
    assert_true(rows.pack.tokens > 0 && rows.pack.tokens <= TOKENS);
    uint32_t t = 0;
    cJSON_ArrayForEach(row, list)
    {
        for (uint32_t i = 0; i < (uint32_t)cJSON_GetArraySize(row); i++)
            rows.ids[t++] = (int32_t)golden_at(row, i);
    }
    return rows;
}

static fixture_items make_items(const fixture_rows *rows)
{
    fixture_items items = fixture_items_make(rows, 0, 1);
    items.items.temperature = NULL;
    for (uint32_t i = 0; i < items.items.count; i++) {
        items.dlogp[i] = -1.0f / (float)items.items.count;
        items.dentropy[i] = 0;
    }
    return items;
}

static void golden_open(const char *name, golden *g)
{
    char dir[XR_PATH_CAP];
    xr_err err = { "" };
    golden_dir(name, dir);
    fixture_load(&g->f, dir);
    g->json = golden_read(dir);
    assert_true(g->f.config.vocab <= VOCAB);
    g->rows = read_rows(golden_part(g->json, "rows"));
    g->items = make_items(&g->rows);
    fixture_ok(xm_space_create(g->f.decoder, TOKENS, g->rows.pack.rows, TOKENS,
                               XM_SPACE_TRAIN, "test", &err, &g->space),
               &err);
}

static void golden_close(golden *g)
{
    xm_space_destroy(g->space);
    fixture_items_free(&g->items);
    fixture_rows_free(&g->rows);
    cJSON_Delete(g->json);
    fixture_end(&g->f);
}

/* ---- forward ------------------------------------------------------------ */

static void check_logits(const golden *g)
{
    const cJSON *want = golden_part(g->json, "last_logits");
    uint64_t last = (uint64_t)g->rows.row_start[1] - 1;
    float logits[VOCAB];
    const float *hidden = xm_space_hidden(g->space);
    fixture_logits(&g->f, hidden + last * g->f.config.hidden, 1, logits);
    assert_int_equal(cJSON_GetArraySize(want), g->f.config.vocab);
    for (uint32_t i = 0; i < g->f.config.vocab; i++)
        golden_near((double)logits[i], golden_at(want, i), "logits", i);
}

static void check_scores(golden *g)
{
    fixture_out out = { .logp = g->logp };
    fixture_pass(&g->f, g->space, &g->rows, &g->items, NULL, &out);
    double loss = 0;
    uint32_t n = 0;
    const cJSON *row = NULL;
    cJSON_ArrayForEach(row, golden_part(g->json, "logp"))
    {
        for (uint32_t i = 0; i < (uint32_t)cJSON_GetArraySize(row); i++, n++) {
            golden_near((double)g->logp[n], golden_at(row, i), "log-p", n);
            loss -= (double)g->logp[n];
        }
    }
    assert_int_equal(n, g->items.items.count);
    golden_near(loss / n, golden_part(g->json, "loss")->valuedouble, "loss", 0);
    check_logits(g);
}

/* ---- gradients ---------------------------------------------------------- */

/* The offset in a parameter of element i of its tensor in the file. */
static uint64_t param_offset_of(const xm_param *param, uint64_t i)
{
    if (!param->transposed)
        return i;
    return i % param->rows * param->cols + i / param->rows;
}

static void check_gradient(const golden *g, const xm_grads *grads,
                           const cJSON *want)
{
    const char *name = want->string;
    const xm_param *param = xm_layout_find(g->f.layout, name);
    if (!param)
        fail_msg("no parameter %s", name);
    const float *grad = grads->buckets[param->bucket] + param->offset;
    double sum = 0;
    for (uint64_t i = 0; i < param->count; i++)
        sum += (double)grad[i] * (double)grad[i];
    golden_near(sqrt(sum), golden_part(want, "norm")->valuedouble, name, 0);
    const cJSON *offsets = golden_part(want, "at");
    for (uint32_t i = 0; i < (uint32_t)cJSON_GetArraySize(offsets); i++) {
        uint64_t offset =
            param_offset_of(param, (uint64_t)golden_at(offsets, i));
        assert_true(offset < param->count);
        golden_near((double)grad[offset],
                    golden_at(golden_part(want, "grad"), i), name,
                    (uint32_t)golden_at(offsets, i));
    }
}

static void check_gradients(golden *g)
{
    xr_err err = { "" };
    xm_grads *grads = fixture_grads(&g->f);
    fixture_pass(&g->f, g->space, &g->rows, &g->items, grads, NULL);
    fixture_ok(xm_grads_finish(grads, &err), &err);
    const cJSON *list = golden_part(g->json, "grads");
    const cJSON *want = NULL;
    assert_int_equal(cJSON_GetArraySize(list), g->f.layout->param_count);
    cJSON_ArrayForEach(want, list)
    {
        check_gradient(g, grads, want);
    }
    xm_grads_destroy(grads);
}

/* ---- greedy continuation, with a KV cache ------------------------------- */

/* The trainer's log-probabilities of the row must have the bits of the
 * sampler's. */
static void check_bits(const golden *g, const int32_t *ids, uint32_t prompt,
                       uint32_t count, const float *logp)
{
    fixture_rows row = fixture_rows_make(&count, 1, 2, 1);
    memcpy(row.ids, ids, count * sizeof *ids);
    fixture_items items = make_items(&row);
    float scored[TOKENS];
    fixture_out out = { .logp = scored };
    fixture_pass(&g->f, g->space, &row, &items, NULL, &out);
    assert_memory_equal(scored + prompt - 1, logp + prompt - 1,
                        (count - prompt) * sizeof *logp);
    fixture_items_free(&items);
    fixture_rows_free(&row);
}

static void check_greedy(const golden *g)
{
    const cJSON *greedy = golden_part(g->json, "greedy");
    const cJSON *prompt = golden_part(greedy, "prompt");
    const cJSON *want = golden_part(greedy, "ids");
    uint32_t start = (uint32_t)cJSON_GetArraySize(prompt);
    uint32_t count = start + (uint32_t)cJSON_GetArraySize(want);
    int32_t ids[TOKENS];
    float logp[TOKENS];
    assert_true(start > 0 && count > start && count <= TOKENS);
    assert_true(golden_part(greedy, "margin")->valuedouble > 2 * GOLDEN_BOUND);
    for (uint32_t i = 0; i < start; i++)
        ids[i] = (int32_t)golden_at(prompt, i);
    fixture_continue(&g->f, ids, start, count, TOKENS, logp);
    for (uint32_t i = start; i < count; i++) {
        assert_int_equal(ids[i], (int32_t)golden_at(want, i - start));
        golden_near((double)logp[i - 1],
                    golden_at(golden_part(greedy, "logp"), i - start),
                    "greedy log-p", i);
    }
    check_bits(g, ids, start, count, logp);
}

/* ---- the suite ---------------------------------------------------------- */

static void golden_agrees_with_transformers(void **state)
{
    golden g = { 0 };
    golden_open(*state, &g);
    check_scores(&g);
    check_gradients(&g);
    check_greedy(&g);
    golden_close(&g);
}

int main(void)
{
    return golden_run("nn.parity", golden_agrees_with_transformers, NULL, NULL);
}
