/* SPDX-License-Identifier: Apache-2.0 */
#include "core/data/data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/json.h"
#include "core/base/str.h"
#include "core/data/arena.h"
#include "core/data/template.h"

struct xr_dataset {
    char **texts; /* a file each; fields_json points into them */
    size_t text_count;
    xr_row *rows;
    size_t count;
    size_t cap;
    size_t filtered;
    size_t truncated;
    xr_arena arena;
};

/* What reading needs beside the set; buffers are used row after row. */
typedef struct reader {
    const xr_data_section *data;
    const xm_tokenizer *tokenizer;
    xr_dataset *set;
    xr_err *err;
    int kind;
    uint64_t next_id;
    uint64_t most_rows;
    xr_template prompt_template;
    xr_template response_template;
    char where[XR_PATH_CAP + 32]; /* "file:line" of the row in hand */
    xr_str text;
    xm_ids ids;
} reader;

static xray_status no_memory(reader *r)
{
    return xr_fail(r->err, XRAY_E_NOMEM, "%s: out of memory", r->where);
}

static size_t most_tokens(const reader *r)
{
    int64_t most = r->data->max_prompt_length;
    if (r->kind == XR_DATA_SFT)
        most += r->data->max_response_length;
    return most > 0 ? (size_t)most : 0;
}

/* ---- one row ------------------------------------------------------------ */

static xray_status keep_text(reader *r, const char **out)
{
    if (r->text.failed)
        return no_memory(r);
    *out = xr_arena_text(&r->set->arena, xr_str_text(&r->text), r->text.size);
    return *out ? XRAY_OK : no_memory(r);
}

static xray_status keep_value(reader *r, const cJSON *value, const char *key,
                              const char **out)
{
    xr_str_clear(&r->text);
    xray_status status = xr_value_text(value, key, r->where, r->err, &r->text);
    return status == XRAY_OK ? keep_text(r, out) : status;
}

static xray_status read_truth(reader *r, const cJSON *json, xr_row *row)
{
    const cJSON *model = xr_json_get(json, "reward_model");
    const cJSON *truth =
        cJSON_IsObject(model) ? xr_json_get(model, "ground_truth") : NULL;
    if (truth)
        return keep_value(r, truth, "reward_model.ground_truth",
                          &row->ground_truth);
    const char *key = r->data->answer_key;
    row->ground_truth = "";
    if (!key[0])
        return XRAY_OK;
    truth = xr_json_get(json, key);
    if (!truth)
        return xr_fail(r->err, XRAY_E_CONFIG,
                       "%s: neither reward_model.ground_truth nor key '%s' of "
                       "[data] answer_key (set it to \"\" for rows without an "
                       "answer)",
                       r->where, key);
    return keep_value(r, truth, key, &row->ground_truth);
}

static xray_status read_source(reader *r, const cJSON *json, xr_row *row)
{
    const cJSON *source = xr_json_get(json, r->data->reward_fn_key);
    row->data_source = "";
    if (!source)
        return XRAY_OK;
    /* Rows of a file mostly name one source. */
    size_t count = r->set->count;
    const char *last = count ? r->set->rows[count - 1].data_source : "";
    if (cJSON_IsString(source) && strcmp(source->valuestring, last) == 0) {
        row->data_source = last;
        return XRAY_OK;
    }
    return keep_value(r, source, r->data->reward_fn_key, &row->data_source);
}

static xray_status encode(reader *r, int special)
{
    xr_err err = { "" };
    xray_status status =
        xm_tokenizer_encode(r->tokenizer, xr_str_text(&r->text), r->text.size,
                            special, &r->ids, &err);
    if (status != XRAY_OK)
        return xr_fail(r->err, status, "%s: %s", r->where, err.text);
    return XRAY_OK;
}

static xray_status read_prompt(reader *r, const cJSON *json, xr_row *row)
{
    xr_alias prompt = { "prompt", r->data->prompt_key };
    xr_str_clear(&r->text);
    xray_status status = xr_template_fill(&r->prompt_template, prompt, json,
                                          r->where, r->err, &r->text);
    if (status == XRAY_OK)
        status = keep_text(r, &row->prompt);
    if (status == XRAY_OK)
        status = encode(r, r->data->special_tokens != 0);
    if (status == XRAY_OK && !r->ids.count)
        status = xr_fail(r->err, XRAY_E_CONFIG, "%s: the prompt has no tokens",
                         r->where);
    row->prompt_count = (uint32_t)r->ids.count;
    return status;
}

static xray_status read_response(reader *r, const cJSON *json)
{
    const char *key =
        r->data->response_key[0] ? r->data->response_key : r->data->answer_key;
    xr_alias answer = { "answer", key };
    xr_str_clear(&r->text);
    xray_status status = xr_template_fill(&r->response_template, answer, json,
                                          r->where, r->err, &r->text);
    if (status == XRAY_OK)
        status = encode(r, 0);
    if (status != XRAY_OK)
        return status;
    if (r->ids.count == r->ids.cap) {
        int32_t *more = realloc(r->ids.data, (r->ids.cap + 64) * sizeof *more);
        if (!more)
            return no_memory(r);
        r->ids.data = more;
        r->ids.cap += 64;
    }
    r->ids.data[r->ids.count++] = xm_tokenizer_eos(r->tokenizer);
    return XRAY_OK;
}

/* Cuts, leaves out (*out_keep 0) or refuses a row that is too long. Afterwards
 * the row is ids[*out_first, *out_first + row->id_count). */
static xray_status fit_row(reader *r, xr_row *row, size_t *out_first,
                           int *out_keep)
{
    const xr_data_section *data = r->data;
    size_t most = most_tokens(r);
    size_t count = r->ids.count;
    *out_first = 0;
    *out_keep = 1;
    row->id_count = (uint32_t)count;
    if (count <= most)
        return XRAY_OK;
    if (!data->filter_overlong_prompts && data->truncation == XR_TRUNCATE_ERROR)
        return xr_fail(r->err, XRAY_E_CONFIG,
                       "%s: %zu tokens, at most %zu are allowed (%s; [data] "
                       "filter_overlong_prompts or truncation would leave out "
                       "or cut such rows)",
                       r->where, count, most,
                       r->kind == XR_DATA_SFT
                           ? "max_prompt_length + max_response_length"
                           : "max_prompt_length");
    size_t cut = count - most;
    int left = data->truncation == XR_TRUNCATE_LEFT;
    /* A row whose whole response would go has nothing to learn from. */
    int empty = r->kind == XR_DATA_SFT && !left && row->prompt_count >= most;
    if (data->filter_overlong_prompts || empty) {
        r->set->filtered++;
        *out_keep = 0;
        return XRAY_OK;
    }
    r->set->truncated++;
    row->id_count = (uint32_t)most;
    if (left) {
        *out_first = cut;
        row->prompt_count -=
            (uint32_t)(cut < row->prompt_count ? cut : row->prompt_count);
    } else if (row->prompt_count > most) {
        row->prompt_count = (uint32_t)most;
    }
    return XRAY_OK;
}

static xray_status append_row(reader *r, xr_row *row)
{
    xr_dataset *set = r->set;
    if (set->count == set->cap) {
        size_t cap = set->cap ? set->cap * 2 : 256;
        xr_row *rows = realloc(set->rows, cap * sizeof *rows);
        if (!rows)
            return no_memory(r);
        set->rows = rows;
        set->cap = cap;
    }
    set->rows[set->count++] = *row;
    return XRAY_OK;
}

static xray_status read_row(reader *r, const cJSON *json, const char *line)
{
    xr_row row = { .id = r->next_id++, .fields_json = line };
    r->ids.count = 0;
    xray_status status = read_prompt(r, json, &row);
    if (status == XRAY_OK && r->kind == XR_DATA_SFT)
        status = read_response(r, json);
    if (status == XRAY_OK && r->ids.count > UINT32_MAX)
        status = xr_fail(r->err, XRAY_E_RANGE, "%s: too many tokens", r->where);
    size_t first = 0;
    int keep = 0;
    if (status == XRAY_OK)
        status = fit_row(r, &row, &first, &keep);
    if (status != XRAY_OK || !keep)
        return status;
    /* An SFT row may lack a ground truth; its target is the response. */
    row.ground_truth = "";
    if (r->kind == XR_DATA_PROMPTS)
        status = read_truth(r, json, &row);
    if (status == XRAY_OK)
        status = read_source(r, json, &row);
    if (status != XRAY_OK)
        return status;
    int32_t *ids = xr_arena_take(&r->set->arena, row.id_count * sizeof *ids);
    if (!ids)
        return no_memory(r);
    memcpy(ids, r->ids.data + first, row.id_count * sizeof *ids);
    row.ids = ids;
    return append_row(r, &row);
}

/* ---- files -------------------------------------------------------------- */

static xray_status read_line(reader *r, char *line, size_t size)
{
    cJSON *json;
    xray_status status = xr_json_parse(line, size, r->where, r->err, &json);
    if (status != XRAY_OK)
        return status;
    if (cJSON_IsObject(json))
        status = read_row(r, json, line);
    else
        status = xr_fail(r->err, XRAY_E_CONFIG, "%s: a row must be an object",
                         r->where);
    cJSON_Delete(json);
    return status;
}

/* Bytes of a line without the blanks around it; 0 for an empty line. */
static size_t trim(char **line, char *end)
{
    while (*line < end && strchr(" \t\r", **line) && **line)
        (*line)++;
    while (end > *line && strchr(" \t\r", end[-1]) && end[-1])
        end--;
    return (size_t)(end - *line);
}

static xray_status read_lines(reader *r, const char *path, char *text,
                              size_t size)
{
    char *end = text + size;
    size_t number = 0;
    for (char *at = text; at < end && r->next_id < r->most_rows;) {
        char *stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop ? stop : end;
        (void)snprintf(r->where, sizeof r->where, "%s:%zu", path, ++number);
        char *line = at;
        size_t length = trim(&line, stop);
        at = stop + 1;
        if (!length)
            continue;
        line[length] = '\0';
        xray_status status = read_line(r, line, length);
        if (status != XRAY_OK)
            return status;
    }
    return XRAY_OK;
}

static xray_status read_file(reader *r, const char *path)
{
    char *text;
    size_t size;
    xray_status status = xr_file_read(path, SIZE_MAX / 4, r->err, &text, &size);
    if (status != XRAY_OK)
        return status;
    r->set->texts[r->set->text_count++] = text;
    return read_lines(r, path, text, size);
}

static xray_status read_files(reader *r, const xray_list *files)
{
    (void)snprintf(r->where, sizeof r->where, "[data]");
    if (!files->count)
        return xr_fail(r->err, XRAY_E_CONFIG, "no data file is named");
    r->set->texts = xr_calloc(files->count, sizeof *r->set->texts);
    if (!r->set->texts)
        return no_memory(r);
    for (uint64_t i = 0; i < files->count; i++) {
        xray_status status = read_file(r, files->items[i]);
        if (status != XRAY_OK)
            return status;
    }
    if (r->set->count)
        return XRAY_OK;
    if (r->set->filtered)
        return xr_fail(r->err, XRAY_E_CONFIG,
                       "%s: all %zu rows are longer than %zu tokens",
                       files->items[0], r->set->filtered, most_tokens(r));
    return xr_fail(r->err, XRAY_E_CONFIG, "%s: there are no rows",
                   files->items[0]);
}

static xray_status prepare(reader *r)
{
    const xr_data_section *data = r->data;
    xray_status status = xr_template_parse(data->template, "[data] template",
                                           r->err, &r->prompt_template);
    if (status != XRAY_OK || r->kind != XR_DATA_SFT)
        return status;
    if (xm_tokenizer_eos(r->tokenizer) < 0)
        return xr_fail(r->err, XRAY_E_CONFIG,
                       "the tokenizer has no EOS token to end SFT rows with");
    return xr_template_parse(data->response_template,
                             "[data] response_template", r->err,
                             &r->response_template);
}

xray_status xr_dataset_open(const xr_data_section *data, const xray_list *files,
                            int64_t max_samples, int kind,
                            const xm_tokenizer *tokenizer, xr_err *err,
                            xr_dataset **out)
{
    reader r = { .data = data,
                 .tokenizer = tokenizer,
                 .err = err,
                 .kind = kind,
                 .most_rows =
                     max_samples < 0 ? UINT64_MAX : (uint64_t)max_samples };
    r.set = xr_calloc(1, sizeof *r.set);
    if (!r.set)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory");
    xray_status status = prepare(&r);
    if (status == XRAY_OK)
        status = read_files(&r, files);
    xr_template_free(&r.prompt_template);
    xr_template_free(&r.response_template);
    xr_str_free(&r.text);
    xm_ids_free(&r.ids);
    if (status != XRAY_OK) {
        xr_dataset_close(r.set);
        return status;
    }
    *out = r.set;
    return XRAY_OK;
}

void xr_dataset_close(xr_dataset *set)
{
    if (!set)
        return;
    for (size_t i = 0; i < set->text_count; i++)
        free(set->texts[i]);
    free(set->texts);
    free(set->rows);
    xr_arena_free(&set->arena);
    free(set);
}

size_t xr_dataset_count(const xr_dataset *set)
{
    return set->count;
}

const xr_row *xr_dataset_row(const xr_dataset *set, size_t i)
{
    return i < set->count ? &set->rows[i] : NULL;
}

size_t xr_dataset_filtered(const xr_dataset *set)
{
    return set->filtered;
}

size_t xr_dataset_truncated(const xr_dataset *set)
{
    return set->truncated;
}
