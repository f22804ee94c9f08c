/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements the device, the models, the batches and the greedy continuation
 * that the suites of model/nn share.
 */
#include "tests/nn/fixture.h"

#include <xray/numerics.h>
#include <xray/plugin.h>

#include "model/hf/param_slots.h"
#include "tests/testing.h"

const xray_plugin *xray_plugin_query_device_cpu(uint32_t host_abi);

static void host_log(const xray_host *host, uint32_t level, const char *msg)
{
    (void)host;
    (void)level;
    print_message("%s\n", msg);
}

static xray_status host_fail(const xray_host *host, xray_status code,
                             const char *where, const char *msg)
{
    (void)host;
    print_message("device: %s: %s\n", where, msg);
    return code;
}

static const void *host_service(const xray_host *host, const char *id)
{
    (void)host;
    (void)id;
    return NULL;
}

static const xray_host the_host = { .header = XRAY_HEADER(xray_host),
                                    .version = "test",
                                    .log = host_log,
                                    .fail = host_fail,
                                    .service = host_service };

void fixture_ok(xray_status status, const xr_err *err)
{
    if (status != XRAY_OK)
        fail_msg("status %d: %s", status, err ? err->text : "");
}

static int64_t choice_value(const xray_option *option, const char *name)
{
    for (const xray_choice *c = option->choices; c->name; c++) {
        if (strcmp(c->name, name) == 0)
            return c->value;
    }
    fail_msg("option %s: no such choice", option->name);
    return 0;
}

fixture_device fixture_open(uint32_t threads, const char *isa)
{
    fixture_device device = { 0 };
    const xray_plugin *plugin = xray_plugin_query_device_cpu(XRAY_ABI);
    assert_non_null(plugin);
    const xray_component *c = plugin->components[0];
    assert_string_equal(c->iface, XRAY_IFACE_DEVICE);
    assert_true(c->option_count >= 1);
    assert_string_equal(c->options[0].name, "isa");
    int64_t value = choice_value(&c->options[0], isa);
    char *config = calloc(1, c->config_size);
    assert_non_null(config);
    memcpy(config + c->options[0].offset, &value, sizeof value);
    device.ops = c->ops;
    xray_status status =
        device.ops->create(&the_host, config, threads, &device.self);
    free(config);
    if (status != XRAY_OK && strcmp(isa, "auto") == 0)
        fixture_ok(status, NULL);
    return device;
}

void fixture_close(fixture_device *device)
{
    device->ops->destroy(device->self);
    device->self = NULL;
}

void *fixture_alloc(const fixture_device *device, uint64_t bytes)
{
    void *ptr = NULL;
    fixture_ok(device->ops->alloc(device->self, "test", XRAY_TAG_WORKSPACE,
                                  bytes ? bytes : 1, &ptr),
               NULL);
    return ptr;
}

void fixture_free(const fixture_device *device, void *ptr)
{
    device->ops->free(device->self, ptr);
}

float fixture_draw(uint64_t seed, uint64_t i)
{
    xray_philox_out out = xray_philox(xray_mix64(77, seed), (uint32_t)i,
                                      (uint32_t)(i >> 32), 0, 0);
    return 2 * xray_unit(out.w[0]) - 1;
}

static void create_decoder(fixture *f)
{
    xr_err err = { "" };
    fixture_ok(xm_decoder_create(&f->config, &f->weights->table, 512, "test",
                                 &err, &f->decoder),
               &err);
}

static void make_weights(fixture *f, int value_head)
{
    xr_err err = { "" };
    fixture_ok(xm_layout_create(&f->config, value_head, &err, &f->layout),
               &err);
    fixture_ok(xm_weights_create(f->layout, f->device.ops, f->device.self,
                                 "test", 1, &err, &f->weights),
               &err);
}

static uint32_t activations;

void fixture_activations(uint32_t dtype)
{
    activations = dtype;
}

void fixture_load(fixture *f, const char *dir)
{
    xr_err err = { "" };
    *f = (fixture){ .device = fixture_open(1, "auto") };
    fixture_ok(xm_config_read(dir, &err, &f->config, NULL), &err);
    make_weights(f, 0);
    fixture_ok(xm_weights_load(f->weights, dir, &err), &err);
    create_decoder(f);
}

static int is_bias_slot(uint32_t slot)
{
    switch (slot) {
    case XM_NORM1_BIAS:
    case XM_NORM2_BIAS:
    case XM_NORM_BIAS:
    case XM_Q_BIAS:
    case XM_K_BIAS:
    case XM_V_BIAS:
    case XM_O_BIAS:
    case XM_GATE_BIAS:
    case XM_UP_BIAS:
    case XM_DOWN_BIAS:
        return 1;
    default:
        return 0;
    }
}

/* Values are large enough that every part of the model affects the result. */
static float draw_value(const xm_config *config, const xm_param *param,
                        uint64_t seed, uint64_t i)
{
    float u = fixture_draw(seed, i);
    if (param->cols)
        return u * 0.4f;
    if (is_bias_slot(param->slot))
        return u * 0.5f;
    return 1 - (float)config->norm_offset + u * 0.4f;
}

void fixture_make(fixture *f, const fixture_kind *kind, uint64_t seed)
{
    fixture_make_on(f, kind, seed, fixture_open(1, "auto"));
}

void fixture_make_on(fixture *f, const fixture_kind *kind, uint64_t seed,
                     fixture_device device)
{
    xr_err err = { "" };
    *f = (fixture){ .device = device, .config = kind->config };
    f->config.dtype = activations;
    make_weights(f, kind->value_head);
    for (uint32_t p = 0; p < f->layout->param_count; p++) {
        const xm_param *param = &f->layout->params[p];
        float *data = f->weights->buckets[param->bucket] + param->offset;
        for (uint64_t i = 0; i < param->count; i++)
            data[i] = draw_value(&f->config, param, seed * 1000 + p, i);
    }
    fixture_ok(xm_weights_changed(f->weights, 0, &err), &err);
    create_decoder(f);
}

void fixture_end(fixture *f)
{
    xm_decoder_destroy(f->decoder);
    xm_weights_destroy(f->weights);
    xm_layout_destroy(f->layout);
    fixture_close(&f->device);
}

static fixture_rows allocate_rows(uint32_t rows, uint32_t tokens)
{
    fixture_rows r = { .ids = calloc(tokens + 1u, sizeof(int32_t)),
                       .positions = calloc(tokens + 1u, sizeof(int32_t)),
                       .row_start = calloc(rows + 1u, sizeof(int32_t)) };
    assert_true(r.ids && r.positions && r.row_start);
    r.pack = (xm_pack){ .rows = rows,
                        .tokens = tokens,
                        .ids = r.ids,
                        .positions = r.positions,
                        .row_start = r.row_start };
    return r;
}

fixture_rows fixture_rows_make(const uint32_t *lengths, uint32_t rows,
                               uint32_t vocab, uint64_t seed)
{
    uint32_t tokens = 0;
    for (uint32_t i = 0; i < rows; i++)
        tokens += lengths[i];
    fixture_rows r = allocate_rows(rows, tokens);
    uint32_t t = 0;
    for (uint32_t i = 0; i < rows; i++) {
        if (lengths[i] > r.pack.row_bound)
            r.pack.row_bound = lengths[i];
        for (uint32_t p = 0; p < lengths[i]; p++, t++) {
            float u = (fixture_draw(seed, t) + 1) / 2;
            r.ids[t] = (int32_t)(u * (float)vocab) % (int32_t)vocab;
            r.positions[t] = (int32_t)p;
        }
        r.row_start[i + 1] = (int32_t)t;
    }
    return r;
}

fixture_rows fixture_rows_cut(const fixture_rows *all, uint32_t first,
                              uint32_t end)
{
    int32_t from = all->row_start[first];
    uint32_t tokens = (uint32_t)(all->row_start[end] - from);
    fixture_rows r = allocate_rows(end - first, tokens);
    memcpy(r.ids, all->ids + from, tokens * sizeof *r.ids);
    memcpy(r.positions, all->positions + from, tokens * sizeof *r.positions);
    for (uint32_t i = 0; i <= end - first; i++)
        r.row_start[i] = all->row_start[first + i] - from;
    r.pack.row_bound = all->pack.row_bound;
    return r;
}

void fixture_rows_free(fixture_rows *rows)
{
    free(rows->ids);
    free(rows->positions);
    free(rows->row_start);
}

static fixture_items allocate_items(uint32_t cap, uint32_t value)
{
    fixture_items it = { .index = calloc(cap + 1u, sizeof(int32_t)),
                         .target = calloc(cap + 1u, sizeof(int32_t)),
                         .temperature = calloc(cap + 1u, sizeof(float)),
                         .dlogp = calloc(cap + 1u, sizeof(float)),
                         .dentropy = calloc(cap + 1u, sizeof(float)),
                         .dvalue = calloc(cap + 1u, sizeof(float)) };
    assert_true(it.index && it.target && it.temperature && it.dlogp &&
                it.dentropy && it.dvalue);
    it.items = (xm_items){ .value = value,
                           .index = it.index,
                           .target = it.target,
                           .temperature = it.temperature };
    return it;
}

fixture_items fixture_items_make(const fixture_rows *rows, int value,
                                 uint64_t seed)
{
    fixture_items it = allocate_items(rows->pack.tokens, value != 0);
    for (uint32_t r = 0; r < rows->pack.rows; r++) {
        for (int32_t t = rows->row_start[r]; t + 1 < rows->row_start[r + 1];
             t++) {
            uint32_t n = it.items.count++;
            it.index[n] = t;
            it.target[n] = rows->ids[t + 1];
            it.temperature[n] = 1 + 0.3f * fixture_draw(seed, 4 * n);
            it.dlogp[n] = fixture_draw(seed, 4 * n + 1);
            it.dentropy[n] = fixture_draw(seed, 4 * n + 2);
            it.dvalue[n] = fixture_draw(seed, 4 * n + 3);
        }
    }
    return it;
}

fixture_items fixture_items_cut(const fixture_items *all,
                                const fixture_rows *rows, uint32_t first,
                                uint32_t end)
{
    fixture_items it = allocate_items(all->items.count, all->items.value);
    int32_t from = rows->row_start[first];
    for (uint32_t i = 0; i < all->items.count; i++) {
        if (all->index[i] < from || all->index[i] >= rows->row_start[end])
            continue;
        uint32_t n = it.items.count++;
        it.index[n] = all->index[i] - from;
        it.target[n] = all->target[i];
        it.temperature[n] = all->temperature[i];
        it.dlogp[n] = all->dlogp[i];
        it.dentropy[n] = all->dentropy[i];
        it.dvalue[n] = all->dvalue[i];
    }
    return it;
}

void fixture_items_free(fixture_items *it)
{
    free(it->index);
    free(it->target);
    free(it->temperature);
    free(it->dlogp);
    free(it->dentropy);
    free(it->dvalue);
}

static void copy_if_wanted(float *to, const float *from, uint32_t count)
{
    if (to && from)
        memcpy(to, from, count * sizeof *to);
}

void fixture_pass(const fixture *f, xm_space *space, const fixture_rows *rows,
                  const fixture_items *items, xm_grads *grads, fixture_out *out)
{
    xr_err err = { "" };
    xm_token_outputs outputs = { 0 };
    fixture_ok(xm_forward(f->decoder, space, &rows->pack, &err), &err);
    fixture_ok(xm_outputs(f->decoder, space, &items->items, &outputs, &err),
               &err);
    fixture_ok(f->device.ops->sync(f->device.self, NULL), NULL);
    if (out) {
        copy_if_wanted(out->logp, outputs.logp, items->items.count);
        copy_if_wanted(out->entropy, outputs.entropy, items->items.count);
        copy_if_wanted(out->value, outputs.value, items->items.count);
    }
    if (!grads)
        return;
    const float *dhidden = NULL;
    xm_output_grads given = { items->dlogp, items->dentropy, items->dvalue };
    fixture_ok(xm_outputs_backward(f->decoder, space, &items->items, &given,
                                   grads, &dhidden, &err),
               &err);
    fixture_ok(
        xm_backward(f->decoder, space, &rows->pack, dhidden, grads, &err),
        &err);
    fixture_ok(f->device.ops->sync(f->device.self, NULL), NULL);
}

xm_grads *fixture_grads(const fixture *f)
{
    xr_err err = { "" };
    xm_grads *grads = NULL;
    fixture_ok(xm_grads_create(&f->config, f->layout, f->device.ops,
                               f->device.self, "test", &err, &grads),
               &err);
    return grads;
}

int fixture_grads_equal(const xm_grads *a, const xm_grads *b)
{
    for (uint32_t i = 0; i < a->layout->bucket_count; i++) {
        if (memcmp(a->buckets[i], b->buckets[i],
                   a->layout->bucket_sizes[i] * sizeof(float)) != 0)
            return 0;
    }
    return 1;
}

void fixture_logits(const fixture *f, const float *hidden, uint32_t n,
                    float *logits)
{
    uint64_t vocab = f->config.vocab;
    xray_matmul product = { .header = XRAY_HEADER(xray_matmul),
                            .weight = xm_decoder_lm_head(f->decoder),
                            .tokens = { .bound = n },
                            .x = hidden,
                            .y = logits,
                            .x_stride = f->config.hidden,
                            .y_stride = vocab,
                            .kind = XRAY_NT };
    xray_edit_logits cap = { .header = XRAY_HEADER(xray_edit_logits),
                             .items = { .bound = n },
                             .logits = logits,
                             .changed = logits,
                             .stride = vocab,
                             .vocab = vocab,
                             .softcap = (float)f->config.logit_softcap };
    fixture_ok(f->device.ops->matmul(f->device.self, NULL, &product), NULL);
    fixture_ok(f->device.ops->edit_logits(f->device.self, NULL, &cap), NULL);
    fixture_ok(f->device.ops->sync(f->device.self, NULL), NULL);
}

/* ---- greedy continuation, with a KV cache ------------------------------- */

static void choose_likeliest(const fixture *f, const float *hidden,
                             int32_t *token, float *logp)
{
    xray_draw draw = { .temperature = 0, .top_p = 1 };
    float tempered = 0;
    xray_sample call = { .header = XRAY_HEADER(xray_sample),
                         .items = { .bound = 1 },
                         .weight = xm_decoder_lm_head(f->decoder),
                         .x = hidden,
                         .draws = &draw,
                         .token = token,
                         .raw_logp = logp,
                         .logp = &tempered,
                         .softcap = (float)f->config.logit_softcap,
                         .draw_stride = sizeof draw,
                         .segment = xm_vocab_segment(&f->config) };
    fixture_ok(f->device.ops->sample(f->device.self, NULL, &call), NULL);
    fixture_ok(f->device.ops->sync(f->device.self, NULL), NULL);
}

#define KV_BLOCK 16u /* tokens */

xray_kv *fixture_cache_open(const fixture *f, uint32_t capacity)
{
    xray_kv *kv = calloc(f->config.layers, sizeof *kv);
    assert_non_null(kv);
    for (uint32_t l = 0; l < f->config.layers; l++) {
        kv[l] = (xray_kv){ .header = XRAY_HEADER(xray_kv),
                           .table_stride = capacity / KV_BLOCK,
                           .block_tokens = KV_BLOCK,
                           .kv_heads = f->config.kv_heads,
                           .head_dim = f->config.head_dim,
                           .dtype = activations ? activations : XRAY_F32 };
        kv[l].blocks = fixture_alloc(
            &f->device, f->device.ops->kv_block_bytes(f->device.self, &kv[l]) *
                            (capacity / KV_BLOCK));
    }
    return kv;
}

void fixture_cache_close(const fixture *f, xray_kv *kv)
{
    for (uint32_t l = 0; l < f->config.layers; l++)
        fixture_free(&f->device, kv[l].blocks);
    free(kv);
}

void fixture_continue(const fixture *f, int32_t *ids, uint32_t prompt,
                      uint32_t count, uint32_t capacity, float *logp)
{
    xr_err err = { "" };
    xm_space *space = NULL;
    xray_kv *kv = fixture_cache_open(f, capacity);
    int32_t *positions = calloc(capacity, sizeof *positions);
    int32_t *seq =
        calloc(capacity, sizeof *seq); /* all 0: the first sequence */
    assert_true(positions && seq);
    for (uint32_t i = 0; i < capacity; i++)
        positions[i] = (int32_t)i;
    fixture_ok(xm_space_create(f->decoder, capacity, 1, capacity, 0, "test",
                               &err, &space),
               &err);
    uint32_t done = 0;
    for (uint32_t n = prompt; n < count; done = n, n++) {
        int32_t last = (int32_t)(n - done) - 1;
        xm_decode_batch step = { .tokens = n - done,
                                 .position_bound = capacity,
                                 .ids = ids + done,
                                 .seq = seq,
                                 .positions = positions + done,
                                 .kv = kv,
                                 .last = &last,
                                 .last_count = 1 };
        const void *hidden = NULL;
        fixture_ok(xm_decode(f->decoder, space, &step, &hidden, &err), &err);
        choose_likeliest(f, hidden, &ids[n], &logp[n - 1]);
    }
    xm_space_destroy(space);
    fixture_cache_close(f, kv);
    free(positions);
    free(seq);
}
