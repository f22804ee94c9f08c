/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads safetensors. A file is eight bytes of header length, a JSON header and
 * the data, which the tensors must cover without holes or overlaps.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/file_format.h"
#include "core/base/json.h"
#include "core/base/map.h"
#include "core/base/str.h"
#include "model/hf/safetensors_internal.h"

/* The format's own limit. */
#define HEADER_LIMIT 100000000u

struct xm_st {
    xm_st_tensor *tensors;
    size_t count;
    size_t cap;
    xr_map *index; /* name -> its file; once all are read, its index in
                    * `tensors` */
    xr_map_file *files;
    cJSON **headers; /* own the names and the metadata */
    size_t file_count;
};

/* The file that is being read. */
typedef struct shard {
    const char *path;
    const unsigned char *data; /* after the header */
    uint64_t size;
    xr_err *err;
} shard;

static xray_status fail_in_file(const shard *s, const char *what)
{
    return xr_fail(s->err, XRAY_E_CONFIG, "%s: %s", s->path, what);
}

static xray_status fail_in_tensor(const shard *s, const char *name,
                                  const char *what)
{
    return xr_fail(s->err, XRAY_E_CONFIG, "%s: tensor \"%.200s\": %s", s->path,
                   name, what);
}

/* Reads an integer from 0 to 2^53, which a double holds exactly. */
static int read_exact_integer(const cJSON *item, uint64_t *out)
{
    if (!cJSON_IsNumber(item))
        return -1;
    double value = item->valuedouble;
    if (!(value >= 0 && value <= 0x1p53) || value != floor(value))
        return -1;
    *out = (uint64_t)value;
    return 0;
}

static xray_status read_tensor_shape(const shard *s, const cJSON *shape,
                                     xm_st_tensor *t)
{
    if (!cJSON_IsArray(shape))
        return fail_in_tensor(s, t->name, "\"shape\" must be an array");
    t->count = 1;
    const cJSON *item;
    cJSON_ArrayForEach(item, shape)
    {
        uint64_t dim;
        if (t->dims == XM_ST_DIMS)
            return fail_in_tensor(s, t->name, "more than 8 dimensions");
        if (cJSON_IsNumber(item) && item->valuedouble > 0x1p53)
            return fail_in_tensor(s, t->name, "the shape is too large");
        if (read_exact_integer(item, &dim))
            return fail_in_tensor(s, t->name,
                                  "\"shape\" must hold integers from 0");
        t->shape[t->dims++] = dim;
        if (dim && t->count > (UINT64_C(1) << 60) / dim)
            return fail_in_tensor(s, t->name, "the shape is too large");
        t->count *= dim;
    }
    return XRAY_OK;
}

static xray_status read_data_offsets(const shard *s, const cJSON *offsets,
                                     xm_st_tensor *t)
{
    uint64_t from = 0;
    uint64_t to = 0;
    const cJSON *first = cJSON_IsArray(offsets) ? offsets->child : NULL;
    const cJSON *second = first ? first->next : NULL;
    if (!second || second->next || read_exact_integer(first, &from) ||
        read_exact_integer(second, &to))
        return fail_in_tensor(s, t->name,
                              "\"data_offsets\" must be two integers from 0");
    if (from > to || to > s->size)
        return xr_fail(s->err, XRAY_E_CONFIG,
                       "%s: tensor \"%.200s\": data_offsets [%llu, %llu] do "
                       "not lie in the %llu bytes of data",
                       s->path, t->name, (unsigned long long)from,
                       (unsigned long long)to, (unsigned long long)s->size);
    t->data = s->data + from;
    t->bytes = to - from;
    return XRAY_OK;
}

static xray_status read_tensor_entry(const shard *s, const cJSON *entry,
                                     xm_st_tensor *t)
{
    *t = (xm_st_tensor){ .name = entry->string };
    static const char *const keys[] = { "dtype", "shape", "data_offsets" };
    const cJSON *parts[3];
    size_t found = 0;
    for (size_t i = 0; i < 3; i++) {
        parts[i] = cJSON_GetObjectItemCaseSensitive(entry, keys[i]);
        found += parts[i] != NULL;
    }
    if (!cJSON_IsObject(entry) || found != 3 ||
        cJSON_GetArraySize(entry) != 3 || !cJSON_IsString(parts[0]))
        return fail_in_tensor(s, t->name,
                              "expected \"dtype\", \"shape\" and "
                              "\"data_offsets\", each once");
    uint32_t bits;
    t->dtype = xm_st_dtype(parts[0]->valuestring, &bits, &t->type);
    if (!t->dtype)
        return xr_fail(s->err, XRAY_E_CONFIG,
                       "%s: tensor \"%.200s\": unknown dtype \"%.40s\"",
                       s->path, t->name, parts[0]->valuestring);
    xray_status status = read_tensor_shape(s, parts[1], t);
    if (!status)
        status = read_data_offsets(s, parts[2], t);
    if (status)
        return status;
    /* Narrow types are packed: together their bits must fill complete bytes. */
    uint64_t whole_bytes = t->count / 8 * bits;
    uint64_t rest = t->count % 8 * bits;
    if (rest % 8 || whole_bytes + rest / 8 != t->bytes)
        return xr_fail(s->err, XRAY_E_CONFIG,
                       "%s: tensor \"%.200s\": %llu elements of %s do not "
                       "fill the %llu bytes of data_offsets",
                       s->path, t->name, (unsigned long long)t->count,
                       parts[0]->valuestring, (unsigned long long)t->bytes);
    return XRAY_OK;
}

static int compare_data_order(const void *a, const void *b)
{
    const xm_st_tensor *x = a;
    const xm_st_tensor *y = b;
    uintptr_t p = (uintptr_t)x->data;
    uintptr_t q = (uintptr_t)y->data;
    if (p != q)
        return p < q ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Sorts the tensors by their data, which must be contiguous from end to end. */
static xray_status check_data_coverage(const shard *s, xm_st_tensor *tensors,
                                       size_t count)
{
    if (count)
        qsort(tensors, count, sizeof *tensors, compare_data_order);
    uint64_t at = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t from =
            (uint64_t)((uintptr_t)tensors[i].data - (uintptr_t)s->data);
        if (from < at)
            return fail_in_tensor(s, tensors[i].name,
                                  "its data overlaps another tensor's");
        if (from > at)
            return fail_in_tensor(s, tensors[i].name,
                                  "there is a gap in the data before it");
        at += tensors[i].bytes;
    }
    return at == s->size
               ? XRAY_OK
               : fail_in_file(s, "there is data after the last tensor");
}

static xray_status check_metadata(const shard *s, const cJSON *metadata)
{
    if (!cJSON_IsObject(metadata))
        return fail_in_file(s, "\"__metadata__\" must be an object");
    const cJSON *item;
    cJSON_ArrayForEach(item, metadata)
    {
        if (!cJSON_IsString(item))
            return xr_fail(s->err, XRAY_E_CONFIG,
                           "%s: \"__metadata__\": \"%.200s\" must be a string",
                           s->path, item->string);
    }
    return XRAY_OK;
}

static int reserve_tensors(xm_st *st, size_t more)
{
    if (st->cap - st->count >= more)
        return 0;
    size_t cap = (st->count + more) * 2;
    xm_st_tensor *tensors = realloc(st->tensors, cap * sizeof *tensors);
    if (!tensors)
        return -1;
    st->tensors = tensors;
    st->cap = cap;
    return 0;
}

/* Adds the tensors of a parsed header after those of earlier shards. */
static xray_status read_header_entries(xm_st *st, const shard *s,
                                       const cJSON *header)
{
    size_t start = st->count;
    /* Entries are counted here because cJSON_GetArraySize is limited to
     * INT_MAX. */
    size_t entries = 0;
    const cJSON *entry;
    cJSON_ArrayForEach(entry, header) entries++;
    if (reserve_tensors(st, entries))
        return xr_fail(s->err, XRAY_E_NOMEM, "%s: out of memory", s->path);
    cJSON_ArrayForEach(entry, header)
    {
        xray_status status;
        uint64_t seen;
        if (strcmp(entry->string, "__metadata__") == 0) {
            status = check_metadata(s, entry);
        } else if (xr_map_get(st->index, entry->string, strlen(entry->string),
                              &seen)) {
            status = fail_in_tensor(s, entry->string, "the name occurs twice");
        } else {
            status = read_tensor_entry(s, entry, &st->tensors[st->count]);
            st->count += !status;
            if (!status &&
                xr_map_put(st->index, entry->string, strlen(entry->string),
                           st->file_count - 1))
                status =
                    xr_fail(s->err, XRAY_E_NOMEM, "%s: out of memory", s->path);
        }
        if (status)
            return status;
    }
    size_t added = st->count - start;
    return check_data_coverage(s, added ? st->tensors + start : NULL, added);
}

static xray_status read_file_header(const xr_map_file *file, const char *path,
                                    xr_err *err, cJSON **header, shard *out)
{
    shard s = { path, NULL, 0, err };
    if (file->size < 8)
        return fail_in_file(&s, "is shorter than the 8 bytes of header length");
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--)
        length = length << 8 | file->data[i];
    if (length > HEADER_LIMIT)
        return xr_fail(err, XRAY_E_CONFIG,
                       "%s: the header length %llu is above the format's "
                       "limit of %u",
                       path, (unsigned long long)length, HEADER_LIMIT);
    if (length > file->size - 8)
        return xr_fail(err, XRAY_E_CONFIG,
                       "%s: the file ends inside the header of %llu bytes",
                       path, (unsigned long long)length);
    xr_err fault = { "" };
    xray_status status = xr_json_parse((const char *)file->data + 8,
                                       (size_t)length, path, &fault, header);
    if (status)
        return xr_fail(err, status, "%s (in the header)", fault.text);
    if (!cJSON_IsObject(*header))
        return fail_in_file(&s, "the header must be a JSON object");
    s.data = file->data + 8 + length;
    s.size = file->size - 8 - length;
    *out = s;
    return XRAY_OK;
}

/* Maps and reads one file. The map and header belong to `st` from then on. */
static xray_status read_shard(xm_st *st, const char *path, xr_err *err)
{
    shard s;
    xr_map_file *file = &st->files[st->file_count];
    xray_status status = xr_file_map(path, err, file);
    if (status)
        return status;
    cJSON **header = &st->headers[st->file_count++];
    status = read_file_header(file, path, err, header, &s);
    if (status == XRAY_OK)
        return read_header_entries(st, &s, *header);
    if (status == XRAY_E_CONFIG)
        (void)xr_format_check(file->data, file->size, path, err);
    return status;
}

xray_status xm_st_shard_names(const cJSON *map, const char *path, xr_err *err,
                              const char **names, size_t *count)
{
    xr_map *seen = xr_map_new(64);
    if (!seen)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", path);
    xray_status status = XRAY_OK;
    const cJSON *item;
    cJSON_ArrayForEach(item, map)
    {
        const char *name = cJSON_IsString(item) ? item->valuestring : "";
        uint64_t value;
        if (!*name || strchr(name, '/') || strcmp(name, "..") == 0) {
            status = xr_fail(err, XRAY_E_CONFIG,
                             "%s: the file of tensor \"%.200s\" must be a name "
                             "in the same folder",
                             path, item->string);
            break;
        }
        if (xr_map_get(seen, name, strlen(name), &value))
            continue;
        names[(*count)++] = name;
        if (xr_map_put(seen, name, strlen(name), 1)) {
            status = xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", path);
            break;
        }
    }
    xr_map_free(seen);
    return status;
}

static int allocate_files(xm_st *st, size_t count)
{
    st->files = xr_calloc(count, sizeof *st->files);
    st->headers = xr_calloc(count, sizeof *st->headers);
    return st->files && st->headers ? 0 : -1;
}

xray_status xm_st_check_index(const xr_map *in, const char *path,
                              const cJSON *map, const char *const *files,
                              xr_err *err)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, map)
    {
        uint64_t file;
        if (!xr_map_get(in, item->string, strlen(item->string), &file) ||
            strcmp(files[file], item->valuestring) != 0)
            return xr_fail(err, XRAY_E_CONFIG,
                           "%s: tensor \"%.200s\" is not in %.200s", path,
                           item->string, item->valuestring);
    }
    return XRAY_OK;
}

static xray_status read_indexed_shards(xm_st *st, const char *dir,
                                       const char *path, const cJSON *map,
                                       xr_err *err)
{
    size_t tensors = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, map) tensors++;
    const char **names = xr_calloc(tensors, sizeof *names);
    size_t count = 0;
    if (!names)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", path);
    xray_status status = xm_st_shard_names(map, path, err, names, &count);
    if (!status && allocate_files(st, count))
        status = xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", path);
    for (size_t i = 0; !status && i < count; i++) {
        char file[XR_PATH_CAP];
        status = xr_path_join(dir, names[i], file, sizeof file, err);
        if (!status)
            status = read_shard(st, file, err);
    }
    if (!status)
        status = xm_st_check_index(st->index, path, map, names, err);
    free((void *)names);
    return status;
}

static xray_status read_index_file(xm_st *st, const char *dir, const char *path,
                                   xr_err *err)
{
    cJSON *root;
    xray_status status = xr_json_file(path, err, &root);
    if (status)
        return status;
    const cJSON *map = cJSON_GetObjectItemCaseSensitive(root, "weight_map");
    if (cJSON_IsObject(map))
        status = read_indexed_shards(st, dir, path, map, err);
    else
        status = xr_fail(err, XRAY_E_CONFIG,
                         "%s: \"weight_map\" must be an object", path);
    cJSON_Delete(root);
    return status;
}

static xray_status read_single_file(xm_st *st, const char *path, xr_err *err)
{
    if (allocate_files(st, 1))
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", path);
    return read_shard(st, path, err);
}

static xray_status read_model_path(xm_st *st, const char *path, xr_err *err)
{
    if (!xr_path_is_dir(path))
        return read_single_file(st, path, err);
    char file[XR_PATH_CAP];
    xray_status status =
        xr_path_join(path, "model.safetensors", file, sizeof file, err);
    if (status)
        return status;
    if (xr_path_exists(file))
        return read_single_file(st, file, err);
    status = xr_path_join(path, "model.safetensors.index.json", file,
                          sizeof file, err);
    if (status)
        return status;
    if (xr_path_exists(file))
        return read_index_file(st, path, file, err);
    return xr_fail(err, XRAY_E_IO,
                   "%s: holds neither model.safetensors nor "
                   "model.safetensors.index.json",
                   path);
}

/* The tensors were sorted, so their positions are known only now. */
static xray_status index_tensors(xm_st *st, const char *path, xr_err *err)
{
    for (size_t i = 0; i < st->count; i++) {
        const char *name = st->tensors[i].name;
        if (xr_map_put(st->index, name, strlen(name), i))
            return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", path);
    }
    return XRAY_OK;
}

xray_status xm_st_open(const char *path, xr_err *err, xm_st **out)
{
    xm_st *st = xr_calloc(1, sizeof *st);
    if (st)
        st->index = xr_map_new(256);
    if (!st || !st->index) {
        free(st);
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", path);
    }
    xray_status status = read_model_path(st, path, err);
    if (!status)
        status = index_tensors(st, path, err);
    if (status) {
        xm_st_close(st);
        return status;
    }
    *out = st;
    return XRAY_OK;
}

void xm_st_close(xm_st *st)
{
    if (!st)
        return;
    for (size_t i = 0; i < st->file_count; i++) {
        cJSON_Delete(st->headers[i]);
        xr_file_unmap(&st->files[i]);
    }
    free(st->headers);
    free(st->files);
    free(st->tensors);
    xr_map_free(st->index);
    free(st);
}

size_t xm_st_count(const xm_st *st)
{
    return st->count;
}

const xm_st_tensor *xm_st_at(const xm_st *st, size_t i)
{
    return &st->tensors[i];
}

const xm_st_tensor *xm_st_find(const xm_st *st, const char *name)
{
    uint64_t i;
    if (!xr_map_get(st->index, name, strlen(name), &i))
        return NULL;
    return &st->tensors[i];
}

const char *xm_st_metadata(const xm_st *st, const char *key)
{
    for (size_t i = 0; i < st->file_count; i++) {
        const cJSON *all =
            cJSON_GetObjectItemCaseSensitive(st->headers[i], "__metadata__");
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(all, key);
        if (cJSON_IsString(item))
            return item->valuestring;
    }
    return NULL;
}
