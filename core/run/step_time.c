/* SPDX-License-Identifier: Apache-2.0
 *
 * Times of passes: products, attention and elements of each layer, collectives
 * around them, and the schedule of stages.
 */
#include "core/run/step_time.h"

/* Kernels of a block beside its four products and attention: two norms with
 * residuals, rotary positions, the activation. */
#define ELEMENT_KERNELS 4
/* Bytes that an update moves for each element: gradient, weight, two moments,
 * read and written, the rounded copy, and the norm. */
#define UPDATE_BYTES 30

/* ---- sums --------------------------------------------------------------- */

double xr_times_sum(const xr_times *times)
{
    double sum = 0;
    for (int i = 0; i < XR_TIMES; i++)
        sum += times->of[i];
    return sum;
}

void xr_times_add(xr_times *to, const xr_times *from, double factor)
{
    for (int i = 0; i < XR_TIMES; i++)
        to->of[i] += factor * from->of[i];
}

int xr_times_largest(const xr_times *times)
{
    int largest = 0;
    for (int i = 1; i < XR_TIMES; i++)
        if (times->of[i] > times->of[largest])
            largest = i;
    return largest;
}

const char *xr_times_bound(const xr_times *times)
{
    static const char *const names[XR_TIMES] = { "matrix products",
                                                 "attention",
                                                 "device memory",
                                                 "recomputation",
                                                 "tensor-parallel joins",
                                                 "context-parallel joins",
                                                 "pipeline bubble",
                                                 "joins of the replicas",
                                                 "optimizer",
                                                 "host and kernel starts",
                                                 "weights on their way" };
    return names[xr_times_largest(times)];
}

/* ---- links -------------------------------------------------------------- */

/* Counts the members of a group, of one or two axes, that share the first
 * one's node. */
static double count_neighbours(const xr_machine *machine,
                               const xr_time_axis *axes, size_t count)
{
    const xr_time_axis one = { 1, 1 };
    const xr_time_axis *outer = count > 1 ? &axes[1] : &one;
    double found = 0;
    for (uint32_t i = 0; i < axes[0].size; i++)
        for (uint32_t j = 0; j < outer->size; j++)
            if ((double)i * axes[0].stride + (double)j * outer->stride <
                machine->node)
                found++;
            else
                break;
    return found;
}

double xr_time_collective(const xr_machine *machine, const xr_time_axis *axes,
                          size_t count, double bytes)
{
    const double size = (double)axes[0].size * (count > 1 ? axes[1].size : 1.0);
    const double near = count_neighbours(machine, axes, count);
    const double nodes = size / near;
    double inside = 0;
    double across = 0;
    if (size <= 1)
        return 0;
    if (near > 1)
        inside =
            (size - 1) / size * bytes / (machine->link * machine->link_share);
    /* The ranks of a node fetch together what the other nodes have. */
    if (nodes > 1)
        across = (nodes - 1) / nodes * bytes /
                 (near * machine->network * machine->link_share);
    return (inside > across ? inside : across) +
           (size - nodes) * machine->link_latency +
           (nodes > 1 ? (nodes - 1) * machine->network_latency : 0);
}

/* ---- passes ------------------------------------------------------------- */

typedef struct pass {
    const xm_config *config;
    const xr_machine *machine;
    const xr_time_layout *layout;
    double tokens; /* of the replica's micro-batch */
    double own;    /* of them, those of this context-parallel rank */
    double row;
    double bytes; /* of an activation */
} pass;

static pass begin_pass(const xr_time_model *model, const xr_time_work *work)
{
    return (pass){ .config = model->config,
                   .machine = model->machine,
                   .layout = model->layout,
                   .tokens = work->tokens,
                   .own = work->tokens / model->layout->context.size,
                   .row = work->row,
                   .bytes = (double)xm_config_act_bytes(model->config) };
}

static double product_rate(const pass *p)
{
    const xr_machine *m = p->machine;
    double rate = p->config->dtype == XRAY_BF16 ? m->flops : m->flops32;
    if (rate == 0)
        rate = m->flops > 0 ? m->flops : m->flops32;
    return rate;
}

/* Adds `times` products of [tokens, in] with a matrix of [out, in]. */
static void add_product(const pass *p, double in, double out, double times,
                        xr_times *t)
{
    const xr_machine *m = p->machine;
    double moved = p->own * in + in * out + p->own * out;
    double arithmetic =
        2 * p->own * in * out / (product_rate(p) * m->product_share);
    double memory = p->bytes * moved / (m->memory * m->memory_share);
    if (arithmetic >= memory)
        t->of[XR_TIME_PRODUCTS] += times * arithmetic;
    else
        t->of[XR_TIME_MEMORY] += times * memory;
    t->of[XR_TIME_HOST] += times * m->launch;
}

/* Adds the reading and writing of `elements` for each token by `kernels`. */
static void add_elements(const pass *p, double elements, double kernels,
                         xr_times *t)
{
    const xr_machine *m = p->machine;
    t->of[XR_TIME_MEMORY] +=
        p->own * elements * p->bytes / (m->memory * m->memory_share);
    t->of[XR_TIME_HOST] += kernels * m->launch;
}

/* Returns the keys that a query of a row reads in the mean over its positions
 * and all layers. */
static double mean_keys(const xm_config *c, double row)
{
    double window = c->window && c->window < row ? c->window : row;
    double slides = 0;
    for (uint32_t l = 0; l < c->layers; l++)
        slides += xm_config_slides(c, l);
    double full = (row + 1) / 2;
    double cut = (window * (window + 1) / 2 + (row - window) * window) / row;
    return (slides * cut + (c->layers - slides) * full) / c->layers;
}

static double head_columns(const xm_config *c)
{
    return (double)c->heads * c->head_dim;
}

static double kv_columns(const xm_config *c)
{
    return (double)c->kv_heads * c->head_dim;
}

/* Adds the attention of a layer; backward takes `times` of 2.5, for it makes
 * five products where forward makes two. */
static void add_attention(const pass *p, double times, xr_times *t)
{
    const xr_machine *m = p->machine;
    double flops = 4 * p->own * head_columns(p->config) /
                   p->layout->tensor.size * mean_keys(p->config, p->row);
    t->of[XR_TIME_ATTENTION] +=
        times * flops / (product_rate(p) * m->attention_share);
    t->of[XR_TIME_HOST] += times * m->launch;
}

/* Adds what a block computes: `times` is 1 forward and 2 backward. */
static void add_block(const pass *p, double times, xr_times *t)
{
    const xm_config *c = p->config;
    const double ranks = p->layout->tensor.size;
    const double q = head_columns(c) / ranks;
    const double kv = kv_columns(c) / ranks;
    const double ffn = (double)c->ffn / ranks;
    const double up = c->gated ? 2 : 1;
    const double shared = p->layout->sequence ? ranks : 1;
    add_product(p, c->hidden, q + 2 * kv, times, t);
    add_product(p, q, c->hidden, times, t);
    add_product(p, c->hidden, up * ffn, times, t);
    add_product(p, ffn, c->hidden, times, t);
    add_attention(p, times > 1 ? 2.5 : 1, t);
    /* Two norms read and write, two residuals read two and write one; rotary
     * positions of q and k; the activation. */
    add_elements(
        p, times * (10.0 * c->hidden / shared + 2 * (q + kv) + (up + 1) * ffn),
        times * ELEMENT_KERNELS, t);
}

/* Adds the LM head, whose logits are fp32, written and read once. */
static void add_head(const pass *p, double times, xr_times *t)
{
    const double vocab = (double)p->config->vocab / p->layout->tensor.size;
    add_product(p, p->config->hidden, vocab, times, t);
    add_elements(p, 2 * sizeof(float) / p->bytes * vocab, times, t);
}

/* Adds the joins around a block: sums of the tensor-parallel ranks, each of
 * which is a reduce-scatter and an all-gather, and what context-parallel ranks
 * gather of keys and values and sum of their gradients. */
static void add_block_joins(const pass *p, int backward, xr_times *t)
{
    const xr_time_layout *l = p->layout;
    const xr_machine *m = p->machine;
    const double hidden = p->own * p->config->hidden;
    const double sum =
        xr_time_collective(m, &l->tensor, 1, hidden * l->sum_bytes);
    const double gather = xr_time_collective(
        m, &l->tensor, 1, hidden * (l->sequence ? p->bytes : l->sum_bytes));
    /* The inputs of weight gradients are gathered once more. */
    const double more =
        backward && l->sequence && l->again != XRAY_RECOMPUTE_NONE ? 2 : 0;
    const double kv = 2 * p->tokens * kv_columns(p->config) / l->tensor.size;
    t->of[XR_TIME_TENSOR] += 2 * sum + (2 + more) * gather;
    t->of[XR_TIME_CONTEXT] +=
        xr_time_collective(m, &l->context, 1, kv * p->bytes);
    if (backward)
        t->of[XR_TIME_CONTEXT] +=
            xr_time_collective(m, &l->context, 1, kv * sizeof(float));
}

static void add_forward_block(const pass *p, xr_times *t)
{
    add_block(p, 1, t);
    add_block_joins(p, 0, t);
}

static void add_backward_block(const pass *p, xr_times *t)
{
    xr_times again = { { 0 } };
    add_block(p, 2, t);
    add_block_joins(p, 1, t);
    if (p->layout->again == XRAY_RECOMPUTE_FULL)
        add_forward_block(p, &again);
    else if (p->layout->again == XRAY_RECOMPUTE_SELECTIVE)
        /* Norms read and write, and the activation is made again. */
        add_elements(p,
                     4.0 * p->config->hidden +
                         3.0 * p->config->ffn / p->layout->tensor.size,
                     3, &again);
    t->of[XR_TIME_AGAIN] += xr_times_sum(&again);
}

/* ---- stages ------------------------------------------------------------- */

typedef struct stage {
    xr_times forward;
    xr_times backward;
} stage;

/* Finds what the slowest stage computes of one micro-batch. The last stage has
 * the LM head; blocks are divided so that the slowest is as fast as possible.
 */
static stage find_slowest_stage(const pass *p, int backward)
{
    const uint32_t layers = p->config->layers;
    const uint32_t stages = p->layout->pipeline.size;
    stage block = { { { 0 } }, { { 0 } } };
    stage head = block;
    stage best = block;
    double least = 0;
    add_forward_block(p, &block.forward);
    add_head(p, 1, &head.forward);
    if (backward) {
        add_backward_block(p, &block.backward);
        add_head(p, 2, &head.backward);
    }
    const double block_time =
        xr_times_sum(&block.forward) + xr_times_sum(&block.backward);
    const double head_time =
        xr_times_sum(&head.forward) + xr_times_sum(&head.backward);
    const uint32_t most = layers / stages;
    for (uint32_t last = stages > 1 ? 0 : most; last <= most; last++) {
        const double others =
            stages > 1 ? (layers - last + stages - 2) / (stages - 1) : 0;
        const int heads = last * block_time + head_time >= others * block_time;
        const double blocks = heads ? last : others;
        const double time = blocks * block_time + (heads ? head_time : 0);
        if (least > 0 && time >= least)
            continue;
        least = time;
        best = (stage){ { { 0 } }, { { 0 } } };
        xr_times_add(&best.forward, &block.forward, blocks);
        xr_times_add(&best.backward, &block.backward, blocks);
        if (heads) {
            xr_times_add(&best.forward, &head.forward, 1);
            xr_times_add(&best.backward, &head.backward, 1);
        }
    }
    return best;
}

/* Returns the time of a message with a micro-batch's activations to the next
 * stage. */
static double time_message(const pass *p)
{
    const xr_time_layout *l = p->layout;
    const xr_machine *m = p->machine;
    const int near = (double)l->pipeline.stride * l->pipeline.size <= m->node;
    const double parts = l->sequence ? l->tensor.size : 1;
    return p->own * p->config->hidden * p->bytes / parts /
               ((near ? m->link : m->network) * m->link_share) +
           (near ? m->link_latency : m->network_latency);
}

/* Makes the times of one micro-batch those of all of them: between stages go
 * `messages` for each, and while the stages fill and drain, each waits. */
static void repeat_micro_batches(const pass *p, double messages, double count,
                                 xr_times *t)
{
    const double others = p->layout->pipeline.size - 1.0;
    const double chunks = p->layout->chunks;
    const double sent = others > 0 ? messages * chunks * time_message(p) : 0;
    const double each = xr_times_sum(t) + sent;
    for (int i = 0; i < XR_TIMES; i++)
        t->of[i] *= count;
    t->of[XR_TIME_PIPELINE] = count * sent + others / chunks * each;
}

/* ---- replicas and the optimizer ----------------------------------------- */

/* Returns the elements of the model that a rank computes with. */
static double count_own_elements(const xr_time_model *model)
{
    return (double)xm_config_param_count(model->config) /
           ((double)model->layout->tensor.size * model->layout->pipeline.size);
}

/* Returns the time of joining `bytes` of the model among the ranks that compute
 * with the same part of it, a block at a time. */
static double join_blocks(const xr_time_model *model, double bytes)
{
    const xr_time_layout *l = model->layout;
    const xr_time_axis axes[] = { l->context, l->data };
    const double more = (double)model->config->layers / l->pipeline.size;
    return xr_time_collective(model->machine, axes, 2, bytes) +
           more * xr_time_collective(model->machine, axes, 2, 0);
}

static double exceed(double time, double hidden_behind)
{
    return time > hidden_behind ? time - hidden_behind : 0;
}

/* Adds what the replicas exchange, as far as it does not hide behind the
 * passes of one micro-batch. */
static void add_replica_joins(const xr_time_model *model, const stage *one,
                              double micro_batches, xr_times *t)
{
    const xr_time_layout *l = model->layout;
    const double elements = count_own_elements(model);
    const double forward = xr_times_sum(&one->forward);
    const double backward = xr_times_sum(&one->backward);
    const double gradients = join_blocks(model, elements * l->grad_bytes);
    const double weights = join_blocks(model, elements * l->weight_bytes);
    double *out = &t->of[XR_TIME_DATA];
    switch (l->zero) {
    case 0: /* a sum that all have: twice the way of a share of it */
        *out = exceed(2 * gradients, backward);
        break;
    case 1:
        *out = exceed(gradients, backward) + weights;
        break;
    case 2:
        *out = micro_batches * exceed(gradients, backward) + weights;
        break;
    default:
        *out = micro_batches * (exceed(weights, forward) +
                                exceed(weights + gradients, backward));
        break;
    }
}

static void add_optimizer(const xr_time_model *model, xr_times *t)
{
    const xr_time_layout *l = model->layout;
    const xr_machine *m = model->machine;
    const double shares = l->zero ? (double)l->data.size * l->context.size : 1;
    t->of[XR_TIME_UPDATE] = count_own_elements(model) / shares * UPDATE_BYTES /
                            (m->memory * m->memory_share);
    t->of[XR_TIME_HOST] += m->update;
}

/* ---- what callers ask for ----------------------------------------------- */

xr_times xr_time_update(const xr_time_model *model, const xr_time_work *work)
{
    const pass p = begin_pass(model, work);
    const stage slowest = find_slowest_stage(&p, 1);
    xr_times t = { { 0 } };
    xr_times_add(&t, &slowest.forward, 1);
    xr_times_add(&t, &slowest.backward, 1);
    repeat_micro_batches(&p, 2, work->micro_batches, &t);
    add_replica_joins(model, &slowest, work->micro_batches, &t);
    add_optimizer(model, &t);
    return t;
}

xr_times xr_time_forward(const xr_time_model *model, const xr_time_work *work)
{
    const pass p = begin_pass(model, work);
    const stage slowest = find_slowest_stage(&p, 0);
    const double weights = join_blocks(model, count_own_elements(model) *
                                                  model->layout->weight_bytes);
    xr_times t = { { 0 } };
    xr_times_add(&t, &slowest.forward, 1);
    repeat_micro_batches(&p, 1, work->micro_batches, &t);
    if (model->layout->zero == 3)
        t.of[XR_TIME_DATA] = work->micro_batches *
                             exceed(weights, xr_times_sum(&slowest.forward));
    return t;
}

/* Returns the keys that a token reads in the mean over all layers if `keys` are
 * in the cache. */
static double count_cached(const xm_config *c, double keys)
{
    double slides = 0;
    for (uint32_t l = 0; l < c->layers; l++)
        slides += xm_config_slides(c, l);
    const double near = c->window && c->window < keys ? c->window : keys;
    return (slides * near + (c->layers - slides) * keys) / c->layers;
}

/* Adds `tokens` steps, each with a token for every one of `batch` sequences
 * that have `keys` keys: all weights and the caches are read. */
static void add_decode(const xr_time_model *model, double batch, double keys,
                       double tokens, xr_times *t)
{
    const xr_time_work one = { batch, 1, 1 };
    const pass p = begin_pass(model, &one);
    const xm_config *c = model->config;
    const double cache = 2 * batch * count_cached(c, keys) * kv_columns(c) *
                         c->layers * p.bytes / model->layout->tensor.size;
    const stage step = find_slowest_stage(&p, 0);
    xr_times_add(t, &step.forward, tokens);
    t->of[XR_TIME_MEMORY] +=
        tokens * cache /
        (model->machine->memory * model->machine->memory_share);
}

xr_times xr_time_sample(const xr_time_model *model, const xr_time_rollout *work)
{
    const double waves = work->batch > 0 ? work->rows / work->batch : 0;
    xr_times t = { { 0 } };
    if (work->rows <= 0 || waves <= 0)
        return t;
    const double batch = waves < 1 ? work->rows : work->batch;
    const xr_time_work prompts = { work->prompts * work->prompt, work->prompt,
                                   1 };
    t = xr_time_forward(model, &prompts);
    const double keys = work->prompt + work->response / 2;
    add_decode(model, batch, keys, work->response * (waves < 1 ? 1 : waves),
               &t);
    return t;
}

xr_times xr_time_publish(const xr_time_model *model, double width)
{
    const xr_machine *m = model->machine;
    const double rate = m->host * m->link_share;
    const double all = (double)xm_config_param_count(model->config) *
                       model->layout->weight_bytes;
    xr_times t = { { 0 } };
    const double writers =
        (double)model->layout->tensor.size * model->layout->pipeline.size;
    t.of[XR_TIME_WEIGHTS] = all / writers / rate + all / width / rate;
    return t;
}

double xr_time_flops(const xm_config *config, double row)
{
    const double q = head_columns(config);
    const double up = config->gated ? 3 : 2;
    const double block = config->hidden * (2 * q + 2 * kv_columns(config)) +
                         config->hidden * up * config->ffn;
    return 2 * (config->layers * block +
                (double)config->hidden * config->vocab) +
           4 * config->layers * q * mean_keys(config, row);
}
