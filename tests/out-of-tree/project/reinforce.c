/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements REINFORCE with the mean score of the batch as baseline (Williams,
 * "Simple statistical gradient-following algorithms", 1992).
 */
#include <stdlib.h>
#include <string.h>

#include <xray/algo.h>
#include <xray/plugin.h>

typedef struct reinforce_config {
    double scale;
} reinforce_config;

static const xray_option options[] = {
    XRAY_REAL(reinforce_config, scale, "1", 0, 1000, NULL, 0u, "0.1",
              "What advantages are multiplied by."),
};

typedef struct reinforce {
    const xray_host *host;
    const reinforce_config *config;
} reinforce;

typedef struct reinforce_context {
    double tokens; /* of the mini-batch */
} reinforce_context;

/* The host adds where the option was set. */
static xray_status refuse_scale(const xray_host *host)
{
    const xray_location location = { .header = XRAY_HEADER(xray_location),
                                     .key = "scale" };
    if (!XRAY_HAS(xray_host, host, fail_at))
        return host->fail(host, XRAY_E_CONFIG, "create",
                          "scale: nothing is learned at 0");
    return host->fail_at(host, XRAY_E_CONFIG, "create", &location,
                         ": nothing is learned at 0");
}

static xray_status reinforce_create(const xray_host *host, const void *config,
                                    void **out_self)
{
    const reinforce_config *c = config;
    if (c->scale == 0)
        return refuse_scale(host);
    reinforce *self = malloc(sizeof(*self));
    if (!self)
        return host->fail(host, XRAY_E_NOMEM, __func__, "out of memory");
    *self = (reinforce){ host, config };
    *out_self = self;
    return XRAY_OK;
}

static void reinforce_destroy(void *self)
{
    free(self);
}

static xray_status reinforce_needs(void *self, xray_needs *out)
{
    const xray_needs none = { .header = XRAY_HEADER(xray_needs) };
    (void)self;
    xray_fill(out, &none);
    return XRAY_OK;
}

static double sum_scores(const xray_batch *batch, uint32_t row)
{
    double score = 0;
    for (int32_t t = batch->row_start[row]; t < batch->row_start[row + 1]; t++)
        score += (double)batch->reward[t];
    return score;
}

static xray_status reinforce_prepare(void *self, xray_batch *batch,
                                     const xray_metric_sink *metrics)
{
    const reinforce *r = self;
    double mean = 0;
    for (uint32_t row = 0; row < batch->rows; row++)
        mean += sum_scores(batch, row) / (double)batch->rows;
    for (uint32_t row = 0; row < batch->rows; row++) {
        double a = r->config->scale * (sum_scores(batch, row) - mean);
        for (int32_t t = batch->row_start[row]; t < batch->row_start[row + 1];
             t++) {
            batch->advantage[t] = batch->loss_mask[t] * (float)a;
            batch->returns[t] = batch->advantage[t];
        }
    }
    metrics->put(metrics->ctx, "reinforce/baseline", mean);
    return XRAY_OK;
}

static xray_status reinforce_make_context(void *self, const xray_batch *mini,
                                          const xray_totals *totals, void *out,
                                          uint64_t cap, uint64_t *out_size)
{
    const reinforce_context context = { totals->tokens };
    (void)self;
    (void)mini;
    *out_size = sizeof(context);
    if (cap < sizeof(context))
        return XRAY_E_RANGE;
    memcpy(out, &context, sizeof(context));
    return XRAY_OK;
}

static const char *const *reinforce_metric_names(void *self)
{
    static const char *const names[] = { "actor/pg_loss", NULL };
    (void)self;
    return names;
}

static xray_status reinforce_loss(const void *data, uint64_t size,
                                  const xray_loss_call *call,
                                  xray_metric_sums *sums)
{
    reinforce_context context;
    const xray_batch *b = call->batch;
    if (size != sizeof(context))
        return XRAY_E_ARG;
    memcpy(&context, data, sizeof(context));
    for (uint32_t t = 0; t < b->tokens; t++) {
        if (b->loss_mask[t] == 0)
            continue;
        double weight = (double)b->advantage[t] / context.tokens;
        call->dlogp[t] = (float)-weight;
        sums->sum[0] -= (double)b->advantage[t] * (double)call->logp[t];
        sums->weight[0] += 1;
    }
    return XRAY_OK;
}

static const xray_algo_ops ops = {
    .header = XRAY_HEADER(xray_algo_ops),
    .create = reinforce_create,
    .destroy = reinforce_destroy,
    .needs = reinforce_needs,
    .prepare = reinforce_prepare,
    .context = reinforce_make_context,
    .metric_names = reinforce_metric_names,
    .loss = reinforce_loss,
};

static const xray_component component = {
    .header = XRAY_HEADER(xray_component),
    .iface = XRAY_IFACE_ALGO,
    .name = "reinforce",
    .summary = "REINFORCE with a mean baseline",
    .ops = &ops,
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
    .option_stride = sizeof(options[0]),
    .config_size = sizeof(reinforce_config),
};

static const xray_component *const components[] = { &component };

static const xray_plugin plugin = {
    .header = XRAY_HEADER(xray_plugin),
    .abi_needed = XRAY_ABI_NEEDED,
    .component_count = 1,
    .name = "algo-reinforce",
    .version = "1.0.0",
    .vendor = "a third party",
    .license = "Apache-2.0",
    .components = components,
};

XRAY_PLUGIN_DEFINE(algo_reinforce, plugin, "algo-reinforce", "1.0.0",
                   "xray.algo/0:reinforce")
