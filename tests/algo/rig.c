/* SPDX-License-Identifier: Apache-2.0
 *
 * Creates instances of an algorithm, fills batches, and runs the halves of the
 * driver and of the learner.
 */
#include "tests/algo/rig.h"

#include <math.h>

#include "tests/growth.h"

xray_status rig_try(rig *r, const char *const *keys)
{
    memset(r, 0, sizeof(*r));
    fake_host_init(&r->host);
    assert_null(rig_tested.query(XRAY_ABI + 1));
    const xray_component *c =
        fake_component(rig_tested.query, XRAY_IFACE_ALGO, rig_tested.name);
    assert_true(c->config_size <= sizeof(r->config));
    fake_config(c, keys, r->config);
    r->ops = c->ops;
    return r->ops->create(&r->host.api, r->config, &r->self);
}

void rig_open(rig *r, const char *const *keys)
{
    if (rig_try(r, keys) != XRAY_OK)
        fail_msg("create failed: %s", r->host.reason);
}

void rig_close(rig *r)
{
    r->ops->destroy(r->self);
    r->self = NULL;
}

uint32_t rig_needs(rig *r)
{
    xray_needs whole = { .header = XRAY_HEADER(xray_needs) };
    xray_needs needs;
    assert_int_equal(r->ops->needs(r->self, &whole), XRAY_OK);
    if (whole.flags)
        EXPECT_FILLED_IN_REACH(xray_needs, needs, flags,
                               r->ops->needs(r->self, &needs));
    return whole.flags;
}

/* ---- batches ------------------------------------------------------------ */

void rig_batch_init(rig_batch *batch)
{
    memset(batch, 0, sizeof(*batch));
    batch->b = (xray_batch){ .header = XRAY_HEADER(xray_batch),
                             .row_start = batch->row_start,
                             .prompt_len = batch->prompt_len,
                             .loss_mask = batch->mask,
                             .row_id = batch->row_id,
                             .group = batch->group,
                             .old_logp = batch->old_logp,
                             .ref_logp = batch->ref_logp,
                             .reward = batch->reward,
                             .advantage = batch->advantage,
                             .returns = batch->returns };
    rig_tested.offer(batch);
}

uint32_t rig_row(rig_batch *batch, int32_t prompt, int32_t response,
                 int32_t group, float score)
{
    uint32_t row = batch->b.rows++;
    assert_true(row < RIG_ROWS);
    int32_t first = batch->row_start[row];
    int32_t end = first + prompt + response;
    assert_true(end <= RIG_TOKENS);
    batch->row_start[row + 1] = end;
    batch->prompt_len[row] = prompt;
    batch->group[row] = group;
    batch->row_id[row] = 1000 + row;
    for (int32_t i = first + prompt; i < end; i++)
        batch->mask[i] = 1;
    if (response)
        batch->reward[end - 1] = score;
    batch->scores[row] = score;
    batch->b.tokens = (uint32_t)end;
    return row;
}

static float *advance_if_set(float *tokens, int32_t n)
{
    return tokens ? tokens + n : NULL;
}

xray_batch rig_cut(const rig_batch *batch, uint32_t first, uint32_t rows,
                   int32_t *starts)
{
    int32_t at = batch->row_start[first];
    xray_batch cut = batch->b;
    for (uint32_t i = 0; i <= rows; i++)
        starts[i] = batch->row_start[first + i] - at;
    cut.rows = rows;
    cut.tokens = (uint32_t)starts[rows];
    cut.row_start = starts;
    cut.prompt_len += first;
    cut.row_id += first;
    cut.group += first;
    cut.loss_mask += at;
    cut.old_logp += at;
    cut.ref_logp = advance_if_set(cut.ref_logp, at);
    cut.rollout_logp = advance_if_set(cut.rollout_logp, at);
    cut.value = advance_if_set(cut.value, at);
    cut.reward = advance_if_set(cut.reward, at);
    cut.advantage += at;
    cut.returns = advance_if_set(cut.returns, at);
    cut.baseline = advance_if_set(cut.baseline, (int32_t)first);
    return cut;
}

/* The constants are those of Numerical Recipes. */
float rig_draw(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) * 0x1p-23f - 1.0f;
}

/* ---- the driver's half -------------------------------------------------- */

static void put_metric(void *ctx, const char *name, double value)
{
    rig *r = ctx;
    assert_true(r->puts < sizeof(r->put) / sizeof(r->put[0]));
    (void)snprintf(r->put[r->puts].name, sizeof(r->put[0].name), "%s", name);
    r->put[r->puts++].value = value;
}

xray_status rig_prepare(rig *r, rig_batch *batch)
{
    xray_metric_sink sink = { .header = XRAY_HEADER(xray_metric_sink),
                              .ctx = r,
                              .put = put_metric };
    r->puts = 0;
    memset(r->put, 0, sizeof(r->put));
    return r->ops->prepare(r->self, &batch->b, &sink);
}

static const double *find_put_metric(const rig *r, const char *name)
{
    for (uint32_t i = r->puts; i > 0; i--)
        if (strcmp(r->put[i - 1].name, name) == 0)
            return &r->put[i - 1].value;
    return NULL;
}

int rig_was_put(const rig *r, const char *name)
{
    return find_put_metric(r, name) != NULL;
}

double rig_put(const rig *r, const char *name)
{
    const double *value = find_put_metric(r, name);
    if (!value)
        fail_msg("%s was not put", name);
    return *value;
}

/* ---- the learner's half ------------------------------------------------- */

static xray_totals count_totals(const rig_batch *batch, uint32_t first,
                                uint32_t rows)
{
    xray_totals t = { .header = XRAY_HEADER(xray_totals),
                      .max_response = RIG_RESPONSE };
    for (uint32_t r = first; r < first + rows; r++) {
        double row = 0;
        for (int32_t i = batch->row_start[r]; i < batch->row_start[r + 1]; i++)
            row += (double)batch->mask[i];
        t.rows += row > 0;
        t.tokens += row;
    }
    return t;
}

uint64_t rig_context(rig *r, const rig_batch *batch, uint32_t first,
                     uint32_t rows, char *blob, uint64_t cap)
{
    int32_t starts[RIG_ROWS + 1];
    xray_batch mini = rig_cut(batch, first, rows, starts);
    xray_totals totals = count_totals(batch, first, rows);
    uint64_t size = 0;
    assert_int_equal(r->ops->context(r->self, &mini, &totals, blob, 8, &size),
                     XRAY_E_RANGE);
    assert_true(size > 8 && size < cap);
    assert_int_equal(
        r->ops->context(r->self, &mini, &totals, blob + 1, cap - 1, &size),
        XRAY_OK);
    return size;
}

xray_metric_sums rig_sums_open(const rig *r, rig_sums *out)
{
    xray_metric_sums sums = { .header = XRAY_HEADER(xray_metric_sums),
                              .sum = out->sum,
                              .weight = out->weight };
    memset(out, 0, sizeof(*out));
    for (const char *const *n = r->ops->metric_names(r->self); *n; n++)
        sums.count++;
    assert_true(sums.count <= RIG_METRICS);
    return sums;
}

double rig_metric(const rig *r, const rig_sums *sums, const char *name)
{
    const char *const *names = r->ops->metric_names(r->self);
    for (int i = 0; names[i]; i++)
        if (strcmp(names[i], name) == 0)
            return sums->weight[i] > 0 ? sums->sum[i] / sums->weight[i]
                                       : (double)NAN;
    fail_msg("no metric %s", name);
    return 0;
}

/* ---- for second implementations ----------------------------------------- */

double rig_limit(double x, double low, double high)
{
    return fmin(fmax(x, low), high);
}

double rig_aggregate(const char *mode, const double *value, const rig_batch *b)
{
    int mean_of_means = strcmp(mode, "seq-mean-token-mean") == 0;
    double sum = 0;
    double tokens = 0;
    double rows = 0;
    for (uint32_t r = 0; r < b->b.rows; r++) {
        double row = 0;
        double n = 0;
        for (int32_t i = b->row_start[r]; i < b->row_start[r + 1]; i++)
            if (b->mask[i] > 0) {
                row += value[i];
                n++;
            }
        tokens += n;
        rows += n > 0;
        sum += mean_of_means ? row / (n + 1e-8) : row;
    }
    if (strcmp(mode, "token-mean") == 0)
        return sum / tokens;
    if (strcmp(mode, "token-sum") == 0)
        return sum;
    if (strcmp(mode, "seq-mean-token-sum-norm") == 0)
        return sum / rows / RIG_RESPONSE;
    return sum / rows;
}

void rig_near(double got, double want, double tolerance, const char *what)
{
    if (!(fabs(got - want) <= tolerance))
        fail_msg("%s: got %.12g, want %.12g", what, got, want);
}
