/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the options and wishes of a line of xray generate.
 */
#include <stdlib.h>
#include <string.h>

#include "core/cli/generator.h"

void cli_prompt_free(cli_item *item)
{
    cli_prompt *p = item->own;
    if (!p)
        return;
    for (int64_t i = 0; p->samples && i < p->how.n; i++) {
        free(p->samples[i].ids);
        free(p->samples[i].logp);
        free(p->samples[i].top_ids);
        free(p->samples[i].top_logp);
        free(p->samples[i].picked);
        xm_until_free(&p->samples[i].text);
    }
    if (p->stops)
        free(p->how.stops.items);
    cJSON_Delete(p->stops);
    cli_wishes_free(&p->wishes);
    free(p->prompt_logp);
    free(p->samples);
    free(p);
    item->own = NULL;
}

static void *option_field(cli_args *args, const cli_flag *flag)
{
    return (unsigned char *)args + flag->offset;
}

/* Reads a line's own value of an option, with the bounds of the option. */
static xray_status read_option(const cJSON *object,
                               const cli_line_option *option, const char *where,
                               cli_args *how, xr_err *err)
{
    const cli_flag *flag = option->flag;
    const char *key = option->key;
    void *value = option_field(how, flag);
    double number;
    xray_status status;
    if (flag->type == CLI_SWITCH)
        return xr_json_bool_or(object, key, *(int *)value, where, err, value);
    if (flag->type == CLI_INT) {
        int64_t *integer = value;
        status = xr_json_int_or(object, key, *integer, where, err, integer);
        number = (double)*integer;
    } else {
        double *real = value;
        status = xr_json_real_or(object, key, *real, where, err, real);
        number = *real;
    }
    if (status != XRAY_OK)
        return status;
    xr_str buffer = { 0 };
    xr_str got = { 0 };
    const char *wanted = cli_flag_refuses(flag, number, &buffer);
    xr_str_number(&got, number);
    if (wanted)
        status = xr_fail(err, XRAY_E_ARG, "%s: \"%s\" takes %s, not %s", where,
                         key, wanted, xr_str_text(&got));
    xr_str_free(&buffer);
    xr_str_free(&got);
    return status;
}

int cli_is_text(const char *text)
{
    const char *end = text + strlen(text);
    uint32_t code;
    if (text == end)
        return 0;
    for (int n; text < end; text += n) {
        n = xr_utf8_decode(text, end, &code);
        if (!n)
            return 0;
    }
    return 1;
}

/* Reads a line's own texts at which samples stop: one, or a list. */
static xray_status read_stops(const cJSON *object, const char *where,
                              cli_prompt *p, xr_err *err)
{
    const cJSON *value = xr_json_get(object, "stop");
    if (!value)
        return XRAY_OK;
    p->stops = cJSON_Duplicate(value, 1);
    if (!p->stops)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", where);
    int many = cJSON_IsArray(value);
    size_t most = many ? (size_t)cJSON_GetArraySize(value) : 1;
    p->how.stops = (cli_list){ xr_calloc(most, sizeof(const char *)), 0 };
    if (!p->how.stops.items)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", where);
    for (const cJSON *text = many ? p->stops->child : p->stops; text;
         text = text->next) {
        if (!cJSON_IsString(text) || !cli_is_text(text->valuestring))
            return xr_fail(err, XRAY_E_ARG,
                           "%s: \"stop\" takes a text or a list of texts, each "
                           "of at least one character",
                           where);
        p->how.stops.items[p->how.stops.count++] = text->valuestring;
    }
    return XRAY_OK;
}

/* Reads what a line wishes, and adds the end ids to those at which it stops. */
static xray_status read_wishes(const cli_generator *g, const cJSON *object,
                               const char *where, cli_prompt *p, xr_err *err)
{
    xray_status status = cli_wishes_read(object, where, err, &p->wishes);
    if (status == XRAY_OK && !p->how.ignore_eos)
        status = cli_wishes_stop(&p->wishes, g->end_ids, g->end_count, err);
    return status;
}

/* Lines after this one may go on from its answer, once it is there. */
static void expect_answer(cli_generator *g, const cli_item *item)
{
    const cli_prompt *p = item->own;
    if (p->own == CLI_NO_ANSWER)
        return;
    cli_answer *answer = &g->answers.list[p->own];
    answer->samples = p->how.n;
    answer->most = cli_generator_row(g, item);
    answer->state = CLI_ANSWER_COMING;
}

xray_status cli_prompt_read(void *ctx, const cJSON *object, const char *where,
                            cli_item *item, xr_err *err)
{
    cli_generator *g = ctx;
    cli_prompt *p = xr_calloc(1, sizeof *p);
    if (!p)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", where);
    item->own = p;
    p->how = *g->tool.args;
    xray_status status = cli_answers_read(
        &g->answers, object, where, item->number, err, &p->own, &p->after);
    if (status == XRAY_OK && !item->count && p->after == CLI_NO_ANSWER)
        status =
            xr_fail(err, XRAY_E_ARG, "%s: the prompt has no tokens", where);
    for (size_t i = 0; i < g->option_count && status == XRAY_OK; i++)
        status = read_option(object, &g->options[i], where, &p->how, err);
    if (status == XRAY_OK)
        status = read_stops(object, where, p, err);
    if (status == XRAY_OK)
        status = read_wishes(g, object, where, p, err);
    p->watched = p->how.stream || p->how.stops.count;
    if (status == XRAY_OK && p->watched)
        status = cli_generator_watches(g, where, &p->how, err);
    if (status != XRAY_OK)
        return status;
    p->samples = xr_calloc((size_t)p->how.n, sizeof *p->samples);
    if (!p->samples)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", where);
    expect_answer(g, item);
    return XRAY_OK;
}

void cli_generator_find_ends(cli_generator *g)
{
    const xr_run *run = g->tool.run;
    g->end_count = run->end_count;
    memcpy(g->end_ids, run->end_ids, sizeof run->end_ids);
    if (g->end_count || !g->tool.tokenizer)
        return;
    int32_t eos = xm_tokenizer_eos(g->tool.tokenizer);
    if (eos >= 0)
        g->end_ids[g->end_count++] = eos;
}
