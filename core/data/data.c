/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads data sets: reads lines from files, filters and cuts rows, and keeps
 * their tokens.
 */
#include "core/data/data.h"

#include <stdlib.h>
#include <string.h>

#include <xray/numerics.h>

#include "core/data/filter.h"
#include "core/data/row.h"
#include "core/data/source.h"

struct xr_dataset {
    char **texts; /* one per file; fields_json points into them */
    size_t text_count;
    xr_row *rows;
    size_t count;
    size_t cap;
    size_t filtered;
    size_t truncated;
    size_t unwanted;
    size_t refused;
    const char *note;
    xr_share *parts; /* one per file, or a single one */
    size_t part_count;
    xr_arena arena;
};

/* The state of reading the files once. */
typedef struct load {
    xr_reader reader;
    xr_dataset *set;
    xr_filter *filter;
    uint64_t next_id;
    uint64_t most_rows;
} load;

static size_t count_max_tokens(const xr_reader *r)
{
    int64_t most = r->data->max_prompt_length;
    if (r->want->kind == XR_DATA_SFT)
        most += r->data->max_response_length;
    return most > 0 ? (size_t)most : 0;
}

/* ---- one row ------------------------------------------------------------ */

static xray_status read_source(load *l, const cJSON *json, xr_row *row)
{
    const char *key = l->reader.data->reward_fn_key;
    const cJSON *source = xr_json_get(json, key);
    row->data_source = "";
    if (!source)
        return XRAY_OK;
    /* Most rows of a file name the same source. */
    size_t count = l->set->count;
    const char *last = count ? l->set->rows[count - 1].data_source : "";
    if (cJSON_IsString(source) && strcmp(source->valuestring, last) == 0) {
        row->data_source = last;
        return XRAY_OK;
    }
    return xr_reader_value(&l->reader, source, key, &row->data_source);
}

/* True for a row with nothing to learn from, because its response was cut off
 * completely. */
static int has_no_target(const xr_reader *r, const xr_row *row, size_t first)
{
    if (r->want->kind != XR_DATA_SFT)
        return 0;
    if (!r->masked)
        return row->prompt_count >= row->id_count;
    for (uint32_t i = 1; i < row->id_count; i++)
        if (r->mask[first + i])
            return 0;
    return 1;
}

static xray_status fail_too_long(const xr_reader *r, size_t count, size_t most)
{
    return xr_fail(r->err, XRAY_E_CONFIG,
                   "%s: %zu tokens, but at most %zu are allowed (%s; [data] "
                   "filter_overlong_prompts or truncation would leave out or "
                   "cut such rows)",
                   r->where, count, most,
                   r->want->kind == XR_DATA_SFT
                       ? "max_prompt_length + max_response_length"
                       : "max_prompt_length");
}

/* Cuts, leaves out (*out_keep 0) or refuses a row that is too long. The
 * remaining row is ids[*out_first, *out_first + row->id_count). */
static xray_status fit_row(load *l, xr_row *row, size_t *out_first,
                           int *out_keep)
{
    const xr_reader *r = &l->reader;
    size_t most = count_max_tokens(r);
    size_t count = r->ids.count;
    int over = count > most;
    *out_first = 0;
    *out_keep = 1;
    row->id_count = (uint32_t)(over ? most : count);
    if (over && !r->data->filter_overlong_prompts &&
        r->data->truncation == XR_TRUNCATE_ERROR)
        return fail_too_long(r, count, most);
    if (over && r->data->truncation == XR_TRUNCATE_LEFT) {
        size_t cut = count - most;
        *out_first = cut;
        row->prompt_count -=
            (uint32_t)(cut < row->prompt_count ? cut : row->prompt_count);
    } else if (row->prompt_count > row->id_count) {
        row->prompt_count = row->id_count;
    }
    if ((over && r->data->filter_overlong_prompts) ||
        has_no_target(r, row, *out_first)) {
        l->set->filtered++;
        *out_keep = 0;
        return XRAY_OK;
    }
    l->set->truncated += over ? 1 : 0;
    return XRAY_OK;
}

static xray_status append_row(load *l, const xr_row *row)
{
    xr_dataset *set = l->set;
    if (set->count == set->cap) {
        size_t cap = set->cap ? set->cap * 2 : 256;
        xr_row *rows = realloc(set->rows, cap * sizeof *rows);
        if (!rows)
            return xr_reader_no_memory(&l->reader);
        set->rows = rows;
        set->cap = cap;
    }
    set->rows[set->count++] = *row;
    return XRAY_OK;
}

/* True if the prompt is on the requested side of [data] val_split. Only the
 * prompt's text decides, so that runs with other seeds, and files with more
 * rows, hold out the same prompts. */
static int is_on_requested_side(const xr_reader *r, const xr_row *row)
{
    double share = r->data->val_split;
    if (share <= 0 || r->data->val_files.count)
        return 1;
    uint64_t hash = xray_mix64(0x5653504c4954u, 0);
    for (const char *at = row->prompt; *at; at++)
        hash = xray_mix64(hash, (unsigned char)*at);
    int held_out = (double)(hash >> 11) * 0x1p-53 < share;
    return held_out == (r->want->part == XR_DATA_VAL);
}

static xray_status keep_tokens(load *l, xr_row *row, size_t first)
{
    const xr_reader *r = &l->reader;
    xr_arena *arena = &l->set->arena;
    int32_t *ids = xr_arena_take(arena, row->id_count * sizeof *ids);
    uint8_t *mask = r->masked ? xr_arena_take(arena, row->id_count) : NULL;
    if (!ids || (r->masked && !mask))
        return xr_reader_no_memory(&l->reader);
    memcpy(ids, r->ids.data + first, row->id_count * sizeof *ids);
    if (mask)
        memcpy(mask, r->mask + first, row->id_count);
    row->ids = ids;
    row->mask = mask;
    return XRAY_OK;
}

static xray_status read_row(load *l, const cJSON *json, const char *line)
{
    xr_reader *r = &l->reader;
    xr_row row = { .id = l->next_id++,
                   .fields_json = line,
                   .ground_truth = "" };
    int keep = 0;
    size_t first = 0;
    xray_status status =
        row.id ? XRAY_OK : xr_reader_columns(r, json, &l->set->note);
    if (status == XRAY_OK)
        status = xr_filter_row(l->filter, json, r->where, r->err, &keep);
    l->set->unwanted += status == XRAY_OK && !keep ? 1 : 0;
    if (status != XRAY_OK || !keep)
        return status;
    status = xr_reader_tokens(r, json, &row);
    if (status != XRAY_OK || !is_on_requested_side(r, &row))
        return status;
    status = fit_row(l, &row, &first, &keep);
    if (status != XRAY_OK || !keep)
        return status;
    /* An SFT row may lack a ground truth; its target is the response. */
    if (r->want->kind == XR_DATA_PROMPTS)
        status = xr_reader_truth(r, json, &row);
    if (status != XRAY_OK)
        return status;
    status = read_source(l, json, &row);
    if (status != XRAY_OK)
        return status;
    status = keep_tokens(l, &row, first);
    if (status != XRAY_OK)
        return status;
    return append_row(l, &row);
}

/* ---- files -------------------------------------------------------------- */

static xray_status read_line(load *l, char *line, size_t size)
{
    xr_reader *r = &l->reader;
    cJSON *json;
    xray_status status = xr_json_line(line, size, r->where, r->err, &json);
    if (status != XRAY_OK)
        return status;
    status = read_row(l, json, line);
    cJSON_Delete(json);
    return status;
}

/* Leaves out a row that would end a run, for a caller that looks for all of
 * them. */
static xray_status note_refusal(load *l, xray_status status)
{
    xr_errors *errors = l->reader.want->errors;
    xr_err *err = l->reader.err;
    if (status != XRAY_E_CONFIG || !errors)
        return status;
    if (l->set->refused++ < XR_DATA_ERRORS)
        xr_errors_add(errors, "%s", err->text);
    *err = (xr_err){ "" };
    return XRAY_OK;
}

static xray_status read_rows(load *l, xr_source *source)
{
    xr_reader *r = &l->reader;
    while (l->next_id < l->most_rows) {
        char *line;
        size_t size;
        xray_status status = xr_source_next(source, r->err, &line, &size);
        if (status == XRAY_END)
            break;
        if (status != XRAY_OK)
            return status;
        r->where = source->where;
        status = xr_stop_check(r->want->calls, r->err);
        if (status == XRAY_OK)
            status = note_refusal(l, read_line(l, line, size));
        if (status != XRAY_OK)
            return status;
    }
    return XRAY_OK;
}

static xray_status read_file(load *l, const char *path)
{
    xr_reader *r = &l->reader;
    xr_source source;
    xray_status status = xr_source_open(path, r->want->calls, r->err, &source);
    if (status != XRAY_OK)
        return status;
    l->set->texts[l->set->text_count++] = source.text;
    status = read_rows(l, &source);
    r->where = path;
    return status;
}

/* Reports why a set has no rows. */
static xray_status fail_empty(const load *l, const char *path)
{
    const xr_dataset *set = l->set;
    if (set->refused)
        return xr_fail(l->reader.err, XRAY_E_CONFIG,
                       "%s: none of its rows can be used", path);
    if (set->filtered)
        return xr_fail(l->reader.err, XRAY_E_CONFIG,
                       "%s: all %zu rows are longer than %zu tokens", path,
                       set->filtered, count_max_tokens(&l->reader));
    if (set->unwanted)
        return xr_fail(l->reader.err, XRAY_E_CONFIG,
                       "%s: none of %zu rows meets [data] filters", path,
                       set->unwanted);
    if (l->next_id) {
        (void)xr_fail_key(
            l->reader.err, XRAY_E_CONFIG, "data", "val_split",
            " = %g leaves no rows for %s", l->reader.data->val_split,
            l->reader.want->part == XR_DATA_VAL ? "validation" : "training");
        return xr_fail_in(l->reader.err, XRAY_E_CONFIG, "%s", path);
    }
    return xr_fail(l->reader.err, XRAY_E_CONFIG, "%s: there are no rows", path);
}

/* Creates the shares of files; `firsts` holds the index of each file's first
 * row. */
static xray_status create_shares(load *l, const xray_list *files,
                                 const size_t *firsts)
{
    xr_dataset *set = l->set;
    const xray_list *weights = &l->reader.data->train_weights;
    int weighted = weights->count && l->reader.want->part == XR_DATA_TRAIN;
    if (weighted && weights->count != files->count)
        return xr_fail_key(l->reader.err, XRAY_E_CONFIG, "data",
                           "train_weights", ": %llu weights for %llu files",
                           (unsigned long long)weights->count,
                           (unsigned long long)files->count);
    set->parts = xr_calloc(weighted ? files->count : 1, sizeof *set->parts);
    if (!set->parts)
        return xr_reader_no_memory(&l->reader);
    set->part_count = weighted ? files->count : 1;
    set->parts[0] = (xr_share){ 0, set->count, (double)set->count };
    for (size_t i = 0; weighted && i < files->count; i++) {
        xr_share *part = &set->parts[i];
        *part = (xr_share){ firsts[i], firsts[i + 1] - firsts[i], 0 };
        if (xr_parse_real(weights->items[i], &part->weight) != 0 ||
            !(part->weight > 0 && part->weight < 1e12))
            return xr_fail_key(
                l->reader.err, XRAY_E_CONFIG, "data", "train_weights",
                ": '%s' is not a weight; expected a number above 0",
                weights->items[i]);
        if (!part->count)
            return xr_fail(l->reader.err, XRAY_E_CONFIG,
                           "%s: the file has no usable rows, but [data] "
                           "train_weights gives it a share",
                           files->items[i]);
    }
    return XRAY_OK;
}

static xray_status read_files(load *l, const xray_list *files)
{
    xr_dataset *set = l->set;
    if (!files->count)
        return xr_fail(l->reader.err, XRAY_E_CONFIG, "no data file is named");
    size_t *firsts = xr_calloc(files->count + 1, sizeof *firsts);
    set->texts = xr_calloc(files->count, sizeof *set->texts);
    xray_status status =
        firsts && set->texts ? XRAY_OK : xr_reader_no_memory(&l->reader);
    for (uint64_t i = 0; i < files->count && status == XRAY_OK; i++) {
        firsts[i] = set->count;
        status = read_file(l, files->items[i]);
        firsts[i + 1] = set->count;
    }
    if (status == XRAY_OK && !set->count)
        status = fail_empty(l, files->items[0]);
    if (status == XRAY_OK)
        status = create_shares(l, files, firsts);
    free(firsts);
    return status;
}

int xr_data_has_val(const xr_data_section *data)
{
    return data->val_files.count || data->val_split > 0;
}

xray_status xr_dataset_open(const xr_data_section *data,
                            const xr_data_want *want, xr_err *err,
                            xr_dataset **out)
{
    int val = want->part == XR_DATA_VAL;
    const xray_list *files =
        val && data->val_files.count ? &data->val_files : &data->train_files;
    int64_t most = val ? data->val_max_samples : data->train_max_samples;
    if (data->val_files.count && data->val_split > 0)
        return xr_fail_key(err, XRAY_E_CONFIG, "data", "val_split",
                           ": val_files already names the validation rows; set "
                           "only one of the two");
    if (val && !xr_data_has_val(data))
        return xr_fail_key(err, XRAY_E_CONFIG, "data", "val_files",
                           " is not set");
    load l = {
        .reader = { .data = data, .want = want, .err = err, .where = "[data]" },
        .most_rows = most < 0 ? UINT64_MAX : (uint64_t)most
    };
    l.set = xr_calloc(1, sizeof *l.set);
    if (!l.set)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory");
    l.reader.arena = &l.set->arena;
    xray_status status = xr_reader_open(&l.reader);
    if (status == XRAY_OK)
        status = xr_filter_parse(&data->filters, err, &l.filter);
    if (status == XRAY_OK)
        status = read_files(&l, files);
    xr_filter_free(l.filter);
    xr_reader_close(&l.reader);
    if (status != XRAY_OK) {
        xr_dataset_close(l.set);
        return status;
    }
    *out = l.set;
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
    free(set->parts);
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

size_t xr_dataset_unwanted(const xr_dataset *set)
{
    return set->unwanted;
}

size_t xr_dataset_refused(const xr_dataset *set)
{
    return set->refused;
}

const char *xr_dataset_note(const xr_dataset *set)
{
    return set->note;
}

const xr_share *xr_dataset_shares(const xr_dataset *set, size_t *out_count)
{
    *out_count = set->part_count;
    return set->parts;
}
