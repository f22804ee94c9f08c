/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares the headers of a model's weights with its config.json: names, shapes
 * and types. Reads no values, except one per tensor to test its type.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/str.h"
#include "core/run/run_setup.h"
#include "model/hf/config.h"
#include "model/hf/safetensors.h"

typedef struct matching {
    const char *path;
    const xm_st *st;
    xr_errors *errors;
    const xm_st_tensor **used;
    size_t used_count;
    size_t cap;
    xr_str first; /* sentence on the first tensor that does not match */
    size_t faults;
    int tied;
    uint32_t kind; /* XR_WEIGHTS_* */
} matching;

/* Keeps only the first mismatch: weights of another model would give as many
 * sentences as they have tensors. */
XRAY_PRINTF(2, 3)
static void note_mismatch(matching *m, const char *fmt, ...)
{
    xr_err text = { "" };
    va_list args;
    va_start(args, fmt);
    if (m->faults++ == 0) {
        (void)vsnprintf(text.text, sizeof(text.text), fmt, args);
        xr_str_printf(&m->first, "%s: tensor %s", m->path, text.text);
    }
    va_end(args);
}

/* Weights saved from the body of a model alone lack the prefix of its names. */
static const xm_st_tensor *find_tensor(const xm_st *st, const char *name)
{
    static const char *const prefixes[] = { "model.", "transformer." };
    const xm_st_tensor *tensor = xm_st_find(st, name);
    for (size_t i = 0; !tensor && i < 2; i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            tensor = xm_st_find(st, name + strlen(prefixes[i]));
    return tensor;
}

static void put_shape(xr_str *out, const uint64_t *shape, uint32_t dims)
{
    for (uint32_t i = 0; i < dims; i++)
        xr_str_printf(out, "%s%llu", i ? ", " : "[",
                      (unsigned long long)shape[i]);
    xr_str_puts(out, dims ? "]" : "[]");
}

static void check_tensor_shape(matching *m, const xm_param_info *p,
                               const xm_st_tensor *t)
{
    uint64_t want[2] = { p->transposed ? p->cols : p->rows,
                         p->transposed ? p->rows : p->cols };
    uint32_t dims = p->cols ? 2 : 1;
    xr_str is = { 0 };
    xr_str should = { 0 };
    if (t->dims == dims && t->shape[0] == want[0] &&
        (dims == 1 || t->shape[1] == want[1]))
        return;
    put_shape(&is, t->shape, t->dims);
    put_shape(&should, want, dims);
    note_mismatch(m, "%s has shape %s, the model's config says %s", p->name,
                  xr_str_text(&is), xr_str_text(&should));
    xr_str_free(&is);
    xr_str_free(&should);
}

static xray_status match_parameter(void *ctx, const xm_param_info *p)
{
    matching *m = ctx;
    xr_err err = { "" };
    float first = 0;
    const xm_st_tensor *t = find_tensor(m->st, p->name);
    if (!t && m->kind != XR_WEIGHTS_POLICY &&
        strcmp(p->name, "lm_head.weight") == 0)
        return XRAY_OK;
    if (!t) {
        note_mismatch(m, "%s is missing, the model's config asks for it",
                      p->name);
        return XRAY_OK;
    }
    if (m->used_count < m->cap)
        m->used[m->used_count++] = t;
    check_tensor_shape(m, p, t);
    /* Reading one value shows whether the type can be converted. */
    if (t->count && xm_st_read_f32(t, 0, 1, &first, &err) != XRAY_OK)
        xr_errors_add(m->errors, "%s: %s", m->path, err.text);
    return XRAY_OK;
}

/* Returns 1 for tensors that files contain although they follow from the config
 * or are tied. */
static int is_known_extra(const matching *m, const char *name)
{
    static const char *const tails[] = { "rotary_emb.inv_freq", ".attn.bias",
                                         ".attn.masked_bias" };
    size_t size = strlen(name);
    for (size_t i = 0; i < 3; i++) {
        size_t tail = strlen(tails[i]);
        if (size >= tail && strcmp(name + size - tail, tails[i]) == 0)
            return 1;
    }
    /* Value heads are checked by the backend. */
    return (m->tied && strcmp(name, "lm_head.weight") == 0) ||
           strcmp(name, "value_head.weight") == 0 ||
           strncmp(name, "score.", 6) == 0 || strncmp(name, "v_head.", 7) == 0;
}

static void check_extra_tensors(matching *m)
{
    for (size_t i = 0; i < xm_st_count(m->st); i++) {
        const xm_st_tensor *t = xm_st_at(m->st, i);
        size_t k = 0;
        while (k < m->used_count && m->used[k] != t)
            k++;
        if (k == m->used_count && !is_known_extra(m, t->name))
            note_mismatch(
                m, "%s does not belong to the model that config.json describes",
                t->name);
    }
}

static int has_value_head(const xm_st *st)
{
    return xm_st_find(st, "score.weight") ||
           xm_st_find(st, "value_head.weight");
}

static void report_new_head(const char *whose, const xray_model *model,
                            xr_str *out)
{
    xm_st *st = NULL;
    if (model->random_init || !model->path ||
        xm_st_open(model->path, NULL, &st) != XRAY_OK)
        return; /* random weights, or a fault that is reported elsewhere */
    if (!has_value_head(st))
        xr_str_printf(out,
                      "the value head of the %s is new and begins with zeros: "
                      "%s has none\n",
                      whose, model->path);
    xm_st_close(st);
}

void xr_run_report_new_heads(const xr_run *run, xr_str *out)
{
    if (run->needs & XRAY_NEED_VALUE_HEAD)
        report_new_head("policy", xr_run_model(run, XRAY_ROLE_ACTOR), out);
    if (run->needs & XRAY_NEED_CRITIC)
        report_new_head("critic", xr_run_model(run, XRAY_ROLE_CRITIC), out);
}

void xr_run_check_weights(const xray_model *model, uint32_t kind,
                          xr_errors *errors)
{
    xr_err err = { "" };
    xm_st *st = NULL;
    xm_config config;
    if (xm_st_open(model->path, &err, &st) != XRAY_OK) {
        xr_errors_add(errors, "%s", err.text);
        return;
    }
    matching m = {
        .path = model->path, .st = st, .errors = errors, .kind = kind
    };
    m.cap = xm_st_count(st);
    m.used = xr_calloc(m.cap + 1, sizeof(*m.used));
    /* A model that the core does not know is checked by its backend. */
    if (m.used && xm_config_parse(model->config_json, "config.json", NULL,
                                  &config) == XRAY_OK) {
        m.tied = config.tied != 0;
        (void)xm_config_params(&config, match_parameter, &m);
        if (!m.faults)
            check_extra_tensors(&m);
        if (kind == XR_WEIGHTS_REWARD && !has_value_head(st))
            note_mismatch(&m,
                          "score.weight is missing, a reward model needs one");
    }
    if (m.faults > 1)
        xr_errors_add(errors, "%s (and %zu more tensors do not match)",
                      xr_str_text(&m.first), m.faults - 1);
    else if (m.faults)
        xr_errors_add(errors, "%s", xr_str_text(&m.first));
    xr_str_free(&m.first);
    free(m.used);
    xm_st_close(st);
}
