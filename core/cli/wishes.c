/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the wishes of a line.
 */
#include "core/cli/wishes.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/str.h"

#define MOST_TOP 256

const char *const cli_wish_keys[CLI_WISH_KEYS + 1] = {
    "stop_token_ids",    "stop_id_lists", "allowed_token_ids",
    "bad_words_ids",     "forced_ids",    "logit_bias",
    "logprob_token_ids", "top_logprobs",  "prompt_logprobs",
};

/* ---- ids ----------------------------------------------------------------- */

static xray_status read_ids(const cJSON *array, const char *key,
                            const char *where, cli_ids *out, xr_err *err)
{
    char name[600];
    size_t count = 0;
    (void)snprintf(name, sizeof name, "%s: \"%s\"", where, key);
    xray_status status = xr_json_ids(array, name, err, &out->ids, &count);
    out->count = (uint32_t)count;
    if (status == XRAY_OK && !count)
        return xr_fail(err, XRAY_E_ARG, "%s: at least one id was expected",
                       name);
    return status;
}

static xray_status read_id_lists(const cJSON *array, const char *key,
                                 const char *where, cli_id_lists *out,
                                 xr_err *err)
{
    if (!cJSON_IsArray(array))
        return xr_fail(err, XRAY_E_ARG,
                       "%s: \"%s\" takes a list of lists of ids", where, key);
    size_t most = (size_t)cJSON_GetArraySize(array);
    xray_status status = XRAY_OK;
    out->lists = xr_calloc(most, sizeof *out->lists);
    out->ids = xr_calloc(most, sizeof *out->ids);
    if (!out->lists || !out->ids)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", where);
    for (const cJSON *at = array->child; at && status == XRAY_OK;
         at = at->next) {
        cli_ids ids = { 0 };
        status = read_ids(at, key, where, &ids, err);
        out->ids[out->count] = ids.ids;
        out->lists[out->count++] =
            (xray_id_list){ .ids = ids.ids, .count = ids.count };
    }
    return status;
}

/* ---- other values -------------------------------------------------------- */

/* Reads what is added to logits: numbers by the ids of tokens. */
static xray_status read_biases(const cJSON *value, const char *where,
                               cli_wishes *out, xr_err *err)
{
    int is_map = cJSON_IsObject(value);
    size_t count = is_map ? (size_t)cJSON_GetArraySize(value) : 0;
    out->biases = xr_calloc(count, sizeof *out->biases);
    if (!out->biases)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", where);
    for (const cJSON *at = is_map ? value->child : NULL; at; at = at->next) {
        int64_t id = -1;
        is_map = is_map && xr_parse_int(at->string, &id) == 0 && id >= 0 &&
                 id <= INT32_MAX && cJSON_IsNumber(at) &&
                 at->valuedouble >= -100 && at->valuedouble <= 100;
        out->biases[out->bias_count++] =
            (xray_bias){ (int32_t)id, (float)at->valuedouble };
    }
    if (is_map)
        return XRAY_OK;
    return xr_fail(err, XRAY_E_ARG,
                   "%s: \"logit_bias\" takes an object with ids as keys and "
                   "numbers from -100 to 100",
                   where);
}

static xray_status read_top(const cJSON *object, const char *where,
                            cli_wishes *out, xr_err *err)
{
    int64_t top = 0;
    xray_status status =
        xr_json_int_or(object, "top_logprobs", 0, where, err, &top);
    if (status == XRAY_OK && (top < 0 || top > MOST_TOP))
        return xr_fail(err, XRAY_E_ARG,
                       "%s: \"top_logprobs\" takes a whole number from 0 to %d",
                       where, MOST_TOP);
    out->top_count = (uint32_t)top;
    return status;
}

/* ---- all of them --------------------------------------------------------- */

xray_status cli_wishes_read(const cJSON *object, const char *where, xr_err *err,
                            cli_wishes *out)
{
    const struct {
        const char *key;
        cli_ids *ids;
        cli_id_lists *lists;
    } keys[] = {
        { "stop_token_ids", &out->stops, NULL },
        { "stop_id_lists", NULL, &out->stop_lists },
        { "allowed_token_ids", &out->allowed, NULL },
        { "bad_words_ids", NULL, &out->banned },
        { "forced_ids", &out->forced, NULL },
        { "logprob_token_ids", &out->picked, NULL },
    };
    const cJSON *biases = xr_json_get(object, "logit_bias");
    xray_status status = XRAY_OK;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && status == XRAY_OK;
         i++) {
        const cJSON *value = xr_json_get(object, keys[i].key);
        if (value && keys[i].ids)
            status = read_ids(value, keys[i].key, where, keys[i].ids, err);
        else if (value)
            status =
                read_id_lists(value, keys[i].key, where, keys[i].lists, err);
    }
    if (status == XRAY_OK && biases)
        status = read_biases(biases, where, out, err);
    if (status == XRAY_OK)
        status = read_top(object, where, out, err);
    if (status == XRAY_OK)
        status = xr_json_bool_or(object, "prompt_logprobs", 0, where, err,
                                 &out->prompt_logp);
    return status;
}

xray_status cli_wishes_stop(cli_wishes *wishes, const int32_t *ids,
                            uint32_t count, xr_err *err)
{
    cli_ids *stops = &wishes->stops;
    int32_t *more =
        realloc(stops->ids, (stops->count + count + 1) * sizeof *more);
    if (!more)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory");
    memcpy(more + stops->count, ids, count * sizeof *more);
    stops->ids = more;
    stops->count += count;
    return XRAY_OK;
}

void cli_wishes_fill(const cli_wishes *wishes, xray_request *out)
{
    const cli_wishes *w = wishes;
    out->stop_ids = w->stops.ids;
    out->stop_count = w->stops.count;
    out->stop_lists = w->stop_lists.lists;
    out->stop_list_count = w->stop_lists.count;
    out->stop_list_stride = sizeof(xray_id_list);
    out->allowed_ids = w->allowed.ids;
    out->allowed_count = w->allowed.count;
    out->banned_lists = w->banned.lists;
    out->banned_list_count = w->banned.count;
    out->banned_list_stride = sizeof(xray_id_list);
    out->forced_ids = w->forced.ids;
    out->forced_count = w->forced.count;
    out->biases = w->biases;
    out->bias_count = w->bias_count;
    out->bias_stride = sizeof(xray_bias);
    out->logp_ids = w->picked.ids;
    out->logp_id_count = w->picked.count;
    out->top_count = w->top_count;
    out->prompt_logp = (uint32_t)w->prompt_logp;
}

static void free_lists(cli_id_lists *lists)
{
    for (uint32_t i = 0; i < lists->count; i++)
        free(lists->ids[i]);
    free(lists->ids);
    free(lists->lists);
}

void cli_wishes_free(cli_wishes *wishes)
{
    free(wishes->stops.ids);
    free(wishes->allowed.ids);
    free(wishes->forced.ids);
    free(wishes->picked.ids);
    free_lists(&wishes->stop_lists);
    free_lists(&wishes->banned);
    free(wishes->biases);
}
