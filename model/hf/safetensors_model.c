/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the weights of a model directory, as one file or as several with an
 * index. Such a file is called a shard here, as in Hugging Face, whichever
 * ranks write it.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/str.h"
#include "model/hf/safetensors_internal.h"

#define SINGLE "model.safetensors"
#define INDEX "model.safetensors.index.json"
#define NAME_CAP 64

/* transformers checks a file's format. */
static const char *const metadata[] = { "format", "pt", NULL };

typedef struct model_files {
    const char *dir;
    const xm_st_item *items;
    size_t count;
    const xm_st_feed *feed;
    size_t *first; /* first item of each shard, then the end of the last */
    size_t shards;
    uint64_t total; /* bytes */
    xr_err *err;
} model_files;

static xray_status remove_file(const model_files *m, const char *name)
{
    char path[XR_PATH_CAP];
    xray_status status = xr_path_join(m->dir, name, path, sizeof path, m->err);
    if (!status && unlink(path) && errno != ENOENT)
        status = xr_fail(m->err, XRAY_E_IO, "%s: cannot remove: %s", path,
                         strerror(errno));
    return status;
}

/* Supplies item `first + i` of the model as item i of a shard. */
typedef struct shard_feed {
    const xm_st_feed *feed;
    size_t first;
} shard_feed;

static xray_status feed_shard_item(void *ctx, size_t i, xr_err *err,
                                   const void **out)
{
    const shard_feed *p = ctx;
    return p->feed->data(p->feed->ctx, p->first + i, err, out);
}

static xray_status write_shard_file(const model_files *m, const char *name,
                                    size_t first, size_t end)
{
    char path[XR_PATH_CAP];
    shard_feed p = { m->feed, first };
    const xm_st_feed feed = { feed_shard_item, &p, m->feed->calls };
    xray_status status = xr_path_join(m->dir, name, path, sizeof path, m->err);
    return status ? status
                  : xm_st_write_fed(path, m->items + first, end - first,
                                    metadata, &feed, m->err);
}

/* Divides the items into shards; a tensor that does not fit starts the next
 * one. */
static xray_status cut_into_shards(model_files *m, uint64_t max_shard)
{
    uint64_t used = 0;
    m->first[0] = 0;
    m->shards = 1;
    for (size_t i = 0; i < m->count; i++) {
        uint64_t bytes = 0;
        xray_status status =
            xm_st_item_bytes(m->dir, &m->items[i], m->err, &bytes);
        if (status)
            return status;
        if (used && (bytes > max_shard || used > max_shard - bytes)) {
            m->first[m->shards++] = i;
            used = 0;
        }
        used += bytes;
        m->total += bytes;
    }
    m->first[m->shards] = m->count;
    return m->shards <= 99999
               ? XRAY_OK
               : xr_fail(m->err, XRAY_E_RANGE,
                         "%s: shards of %llu bytes would be %zu files, which "
                         "is more than their names can number",
                         m->dir, (unsigned long long)max_shard, m->shards);
}

static void format_shard_name(const model_files *m, size_t shard,
                              char name[NAME_CAP])
{
    (void)snprintf(name, NAME_CAP, "model-%05zu-of-%05zu.safetensors",
                   shard + 1, m->shards);
}

/* Tells whether this is the name of a shard; *out_of is the number of shards in
 * its set. */
static int is_shard_name(const char *name, size_t *out_of)
{
    static const char pattern[] = "model-ddddd-of-ddddd.safetensors";
    size_t digits = 0;
    *out_of = 0;
    if (strlen(name) != sizeof pattern - 1)
        return 0;
    for (size_t i = 0; pattern[i]; i++) {
        int digit = name[i] >= '0' && name[i] <= '9';
        /* Each d is a digit, except for that of "model". */
        if (pattern[i] == 'd' && i > 2) {
            if (!digit)
                return 0;
            if (++digits > 5)
                *out_of = *out_of * 10 + (size_t)(name[i] - '0');
        } else if (name[i] != pattern[i]) {
            return 0;
        }
    }
    return 1;
}

/* Removes the shards of earlier sets, which no index names any more. The set
 * with `keep` shards remains. */
static xray_status remove_other_shards(const model_files *m, size_t keep)
{
    DIR *dir = opendir(m->dir);
    if (!dir)
        return xr_fail(m->err, errno == ENOMEM ? XRAY_E_NOMEM : XRAY_E_IO,
                       "%s: cannot read the folder: %s", m->dir,
                       strerror(errno));
    xray_status status = XRAY_OK;
    for (const char *name;
         !status && (name = xr_dir_next(dir, m->dir, m->err, &status));) {
        size_t of;
        if (is_shard_name(name, &of) && of != keep)
            status = remove_file(m, name);
    }
    (void)closedir(dir);
    return status ? status : xr_dir_sync(m->dir, m->err);
}

static int compare_item_names(const void *a, const void *b)
{
    const xm_st_item *const *x = a;
    const xm_st_item *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static size_t find_item_shard(const model_files *m, const xm_st_item *item)
{
    size_t shard = 0;
    while (m->first[shard + 1] <= (size_t)(item - m->items))
        shard++;
    return shard;
}

static void format_index(const model_files *m, const xm_st_item **sorted,
                         xr_str *text)
{
    for (size_t i = 0; i < m->count; i++)
        sorted[i] = &m->items[i];
    qsort(sorted, m->count, sizeof *sorted, compare_item_names);
    xr_str_printf(text,
                  "{\n  \"metadata\": {\n    \"total_size\": %llu\n  },\n"
                  "  \"weight_map\": {",
                  (unsigned long long)m->total);
    for (size_t i = 0; i < m->count; i++) {
        char name[NAME_CAP];
        format_shard_name(m, find_item_shard(m, sorted[i]), name);
        xr_str_puts(text, i ? ",\n    " : "\n    ");
        xr_str_json(text, sorted[i]->name, strlen(sorted[i]->name));
        xr_str_printf(text, ": \"%s\"", name);
    }
    xr_str_puts(text, "\n  }\n}\n");
}

static xray_status write_index_file(const model_files *m)
{
    char path[XR_PATH_CAP];
    xr_str text = { 0 };
    const xm_st_item **sorted = xr_calloc(m->count, sizeof *sorted);
    xray_status status = xr_path_join(m->dir, INDEX, path, sizeof path, m->err);
    if (sorted)
        format_index(m, sorted, &text);
    if (!status && (!sorted || text.failed))
        status = xr_fail(m->err, XRAY_E_NOMEM, "%s: out of memory", path);
    if (!status)
        status = xr_file_write(path, text.data, text.size, m->err);
    xr_str_free(&text);
    free((void *)sorted);
    return status;
}

/* The new weights take effect when the single file is renamed. */
static xray_status write_single_file(const model_files *m)
{
    xray_status status = write_shard_file(m, SINGLE, 0, m->count);
    if (!status)
        status = remove_file(m, INDEX);
    return status ? status : remove_other_shards(m, 0);
}

/* An older index could name new shards, so it is removed first. A single older
 * file is removed last, so readers use it until the new index is there. */
static xray_status write_all_shards(const model_files *m)
{
    xray_status status = remove_file(m, INDEX);
    if (!status)
        status = xr_dir_sync(m->dir, m->err);
    for (size_t i = 0; !status && i < m->shards; i++) {
        char name[NAME_CAP];
        format_shard_name(m, i, name);
        status = write_shard_file(m, name, m->first[i], m->first[i + 1]);
    }
    if (!status)
        status = write_index_file(m);
    if (!status)
        status = remove_file(m, SINGLE);
    return status ? status : remove_other_shards(m, m->shards);
}

xray_status xm_st_write_model(const char *dir, const xm_st_item *items,
                              size_t count, uint64_t max_shard,
                              const xm_st_feed *feed, xr_err *err)
{
    model_files m = { .dir = dir,
                      .items = items,
                      .count = count,
                      .feed = feed,
                      .first = xr_calloc(count + 2, sizeof *m.first),
                      .err = err };
    if (!m.first)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", dir);
    xray_status status = cut_into_shards(&m, max_shard);
    if (!status)
        status = m.shards > 1 ? write_all_shards(&m) : write_single_file(&m);
    free(m.first);
    return status;
}

/* ---- models that several ranks write ------------------------------------ */

/* Adds a part for each file of the model. */
static xray_status add_shard_parts(const model_files *m, xm_st_parts *parts)
{
    xray_status status = XRAY_OK;
    for (size_t i = 0; !status && i < m->shards; i++) {
        char name[NAME_CAP] = SINGLE;
        char path[XR_PATH_CAP];
        if (m->shards > 1)
            format_shard_name(m, i, name);
        status = xr_path_join(m->dir, name, path, sizeof path, m->err);
        if (!status)
            status = xm_st_parts_add(parts, path, m->items, m->first[i],
                                     m->first[i + 1], metadata, m->err);
    }
    return status;
}

/* Renames the parts to the files of the model, in the order of
 * write_single_file and write_all_shards, so that an interruption leaves what
 * it leaves there. */
static xray_status commit_shard_parts(const model_files *m, xm_st_parts *parts)
{
    xray_status status = XRAY_OK;
    if (m->shards > 1) {
        status = remove_file(m, INDEX);
        if (!status)
            status = xr_dir_sync(m->dir, m->err);
    }
    if (!status)
        status = xm_st_parts_rename(parts, m->err);
    if (!status && m->shards > 1)
        status = write_index_file(m);
    if (!status)
        status = remove_file(m, m->shards > 1 ? SINGLE : INDEX);
    return status ? status
                  : remove_other_shards(m, m->shards > 1 ? m->shards : 0);
}

/* Divides the items into shards and calls `fn` with the result. */
static xray_status call_with_shards(const char *dir, const xm_st_item *items,
                                    size_t count, uint64_t max_shard,
                                    xray_status (*fn)(const model_files *m,
                                                      xm_st_parts *parts),
                                    xm_st_parts *parts, xr_err *err)
{
    model_files m = { .dir = dir,
                      .items = items,
                      .count = count,
                      .first = xr_calloc(count + 2, sizeof *m.first),
                      .err = err };
    if (!m.first)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", dir);
    xray_status status = cut_into_shards(&m, max_shard);
    if (!status)
        status = fn(&m, parts);
    free(m.first);
    return status;
}

xray_status xm_st_parts_model(const char *dir, const xm_st_item *items,
                              size_t count, uint64_t max_shard, xr_err *err,
                              xm_st_parts **out)
{
    xm_st_parts *parts = NULL;
    xray_status status = xm_st_parts_new(dir, items, count, err, &parts);
    if (!status)
        status = call_with_shards(dir, items, count, max_shard, add_shard_parts,
                                  parts, err);
    if (status) {
        xm_st_parts_close(parts);
        return status;
    }
    parts->max_shard = max_shard;
    *out = parts;
    return XRAY_OK;
}

xray_status xm_st_parts_commit(xm_st_parts *parts, xr_err *err)
{
    if (!parts->max_shard)
        return xm_st_parts_rename(parts, err);
    return call_with_shards(parts->dir, parts->items, parts->item_count,
                            parts->max_shard, commit_shard_parts, parts, err);
}
