/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens files of weights that torch.save wrote: recognizes the older formats,
 * and checks every tensor against the storage that it lies in.
 */
#include "model/hf/torch_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file_format.h"
#include "core/base/json.h"
#include "core/base/str.h"
#include "model/hf/safetensors_internal.h"
#include "model/hf/torch_internal.h"

/* A tensor that repeats its storage, as expand() makes one, may not grow beyond
 * this: a few bytes could otherwise ask for a full disk. */
#define MOST_REPEATED ((uint64_t)1 << 30)

struct xm_torch {
    xr_map_file *files;
    size_t file_count;
    xm_pool tensors; /* of xm_torch_tensor */
    xr_map *index;   /* name of a tensor to its file */
    const char *member;
};

/* A file that is being read. */
typedef struct source {
    const char *path;
    xr_err *err;
    const xr_map_file *file;
    xm_zip zip;
    const char *folder; /* of the archive, "model/" */
    size_t folder_size;
    xm_pickle pickle;
} source;

/* ---- formats ------------------------------------------------------------ */

#define REWRITE                                                             \
    "python3 -c \"import sys, torch; torch.save(torch.load(sys.argv[1], "   \
    "map_location='cpu', weights_only=True), sys.argv[2])\" OLD NEW, with " \
    "PyTorch, writes the present format"

/* Names the format of a file that is no zip archive. */
static xray_status refuse_format(const source *s)
{
    /* The pickle of the number 0x1950a86a20f9469cfc6c begins such a file. */
    static const unsigned char stream[] = {
        0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19
    };
    const unsigned char *data = s->file->data;
    size_t size = s->file->size;
    if (size >= 2 + sizeof stream && data[0] == 0x80 &&
        memcmp(data + 2, stream, sizeof stream) == 0)
        return xr_fail(s->err, XRAY_E_CONFIG,
                       "%s: is in the format of PyTorch before 1.6, which is "
                       "not read; " REWRITE,
                       s->path);
    if (size >= 262 && memcmp(data + 257, "ustar", 5) == 0)
        return xr_fail(s->err, XRAY_E_CONFIG,
                       "%s: is a tar archive, the format of PyTorch before "
                       "0.1.10, which is not read; " REWRITE,
                       s->path);
    xray_status status = xr_format_check(data, size, s->path, s->err);
    return status ? status
                  : xr_fail(s->err, XRAY_E_CONFIG,
                            "%s: is not a file that torch.save wrote, expected "
                            "a zip archive",
                            s->path);
}

static const xm_zip_entry *find_record(const source *s, const char *name,
                                       size_t size)
{
    xr_str full = { 0 };
    xr_str_append(&full, s->folder, s->folder_size);
    xr_str_append(&full, name, size);
    const xm_zip_entry *entry =
        full.failed ? NULL : xm_zip_find(&s->zip, full.data, full.size);
    xr_str_free(&full);
    return entry;
}

/* All entries lie in one folder, whose name may be any; data.pkl is in it. */
static xray_status find_pickle(source *s, const xm_zip_entry **out)
{
    static const char name[] = "/data.pkl";
    for (size_t i = 0; i < s->zip.count; i++) {
        const xm_zip_entry *entry = &s->zip.entries[i];
        const char *slash = memchr(entry->name, '/', entry->name_size);
        size_t at = slash ? (size_t)(slash - entry->name) : 0;
        if (!slash || entry->name_size - at != sizeof name - 1 ||
            memcmp(slash, name, sizeof name - 1) != 0)
            continue;
        s->folder = entry->name;
        s->folder_size = at + 1;
        *out = entry;
        const xm_zip_entry *order = find_record(s, "byteorder", 9);
        if (order &&
            (order->size != 6 || memcmp(order->data, "little", 6) != 0))
            return xr_fail(s->err, XRAY_E_CONFIG,
                           "%s: its byteorder is %.*s, expected little",
                           s->path, (int)(order->size < 20 ? order->size : 20),
                           (const char *)order->data);
        return XRAY_OK;
    }
    return xr_fail(s->err, XRAY_E_CONFIG,
                   "%s: the zip archive holds no data.pkl, expected a file "
                   "that torch.save wrote",
                   s->path);
}

/* ---- tensors ------------------------------------------------------------ */

static xray_status fail_in_tensor(const source *s, const char *name,
                                  const char *why)
{
    return xr_fail(s->err, XRAY_E_CONFIG, "%s: tensor \"%.200s\": %s", s->path,
                   name, why);
}

/* Computes the number of elements, and the position of the last one after the
 * first; -1 if a number does not fit. */
static int measure_extent(const xm_torch_tensor *t, uint64_t *out_last)
{
    uint64_t last = 0;
    uint64_t count = 1;
    for (uint32_t d = 0; d < t->dims; d++)
        if (!t->shape[d])
            count = 0;
    for (uint32_t d = 0; count && d < t->dims; d++) {
        uint64_t steps = t->shape[d] - 1;
        if (count > (UINT64_MAX >> 8) / t->shape[d] ||
            (steps && t->stride[d] > (UINT64_MAX >> 1) / steps) ||
            steps * t->stride[d] > (UINT64_MAX >> 1) - last)
            return -1;
        count *= t->shape[d];
        last += steps * t->stride[d];
    }
    *out_last = last;
    return 0;
}

static void set_contiguous(xm_torch_tensor *t)
{
    uint64_t stride = 1;
    t->count = 1;
    for (uint32_t d = 0; d < t->dims; d++)
        t->count *= t->shape[d];
    t->contiguous = 1;
    for (uint32_t d = t->count ? t->dims : 0; d > 0; d--) {
        t->contiguous &= t->shape[d - 1] == 1 || t->stride[d - 1] == stride;
        stride *= t->shape[d - 1];
    }
}

static xray_status place_tensor(const source *s,
                                const xm_pickle_tensor *described,
                                xm_torch_tensor *t)
{
    const xm_pickle_storage *storage =
        (const xm_pickle_storage *)s->pickle.storages.data + described->storage;
    uint64_t last = 0;
    xr_str name = { 0 };
    t->dtype = storage->dtype;
    t->width = storage->width;
    t->dims = described->dims;
    memcpy(t->shape, described->shape, sizeof t->shape);
    memcpy(t->stride, described->stride, sizeof t->stride);
    xr_str_puts(&name, "data/");
    xr_str_append(&name, storage->key.is.text, storage->key.size);
    const xm_zip_entry *entry =
        name.failed ? NULL : find_record(s, name.data, name.size);
    xr_str_free(&name);
    if (!entry)
        return fail_in_tensor(s, t->name, "the archive lacks its storage");
    if (storage->count > entry->size / storage->width)
        return fail_in_tensor(s, t->name,
                              "its storage is shorter than the pickle says");
    if (measure_extent(t, &last))
        return fail_in_tensor(s, t->name, "its shape is too large");
    set_contiguous(t);
    if (t->count && (described->offset >= storage->count ||
                     last > storage->count - 1 - described->offset))
        return fail_in_tensor(s, t->name,
                              "its elements do not lie in its storage");
    if (t->count > storage->count && t->count > MOST_REPEATED / t->width)
        return fail_in_tensor(s, t->name,
                              "it repeats its storage to more than 1 GiB");
    t->span = t->count ? (last + 1) * t->width : 0;
    t->data =
        t->count ? entry->data + described->offset * t->width : entry->data;
    return XRAY_OK;
}

/* Safetensors has names of UTF-8, of which one is reserved. */
static char *copy_tensor_name(const xm_pickle_value *key)
{
    const char *at = key->is.text;
    const char *end = at + key->size;
    uint32_t code = 1;
    for (int size = 1; at < end; at += size) {
        size = xr_utf8_decode(at, end, &code);
        if (!size || !code)
            return NULL;
    }
    return xm_pickle_is(key, "__metadata__")
               ? NULL
               : xr_strndup(key->is.text, key->size);
}

static xray_status add_tensor(xm_torch *torch, const source *s,
                              const xm_pickle_pair *pair)
{
    uint64_t other;
    if (pair->key.kind != XM_PICKLE_TEXT)
        return xr_fail(s->err, XRAY_E_CONFIG,
                       "%s: a key of the dict is %s, expected the name of a "
                       "tensor",
                       s->path, xm_pickle_kind(pair->key.kind));
    char *name = copy_tensor_name(&pair->key);
    if (!name)
        return xr_fail(s->err, XRAY_E_CONFIG,
                       "%s: a tensor has a name that safetensors cannot have",
                       s->path);
    xm_torch_tensor *t = xm_pool_add(&torch->tensors, sizeof *t);
    if (!t) {
        free(name);
        return xr_fail(s->err, XRAY_E_NOMEM, "%s: out of memory", s->path);
    }
    t->name = name;
    if (pair->value.kind != XM_PICKLE_TENSOR)
        return xr_fail(s->err, XRAY_E_CONFIG,
                       "%s: \"%.200s\" is %s, expected a state dict, which "
                       "holds tensors only",
                       s->path, name, xm_pickle_kind(pair->value.kind));
    if (xr_map_get(torch->index, name, strlen(name), &other))
        return fail_in_tensor(s, name, "the name occurs twice");
    if (xr_map_put(torch->index, name, strlen(name), torch->file_count - 1))
        return xr_fail(s->err, XRAY_E_NOMEM, "%s: out of memory", s->path);
    return place_tensor(s,
                        (const xm_pickle_tensor *)s->pickle.tensors.data +
                            pair->value.is.index,
                        t);
}

static const xm_pickle_pair *first_pair(const source *s,
                                        const xm_pickle_value *dict)
{
    size_t at =
        ((const xm_pickle_dict *)s->pickle.dicts.data)[dict->is.index].first;
    return at ? (const xm_pickle_pair *)s->pickle.pairs.data + at - 1 : NULL;
}

static const xm_pickle_pair *next_pair(const source *s,
                                       const xm_pickle_pair *pair)
{
    return pair->next
               ? (const xm_pickle_pair *)s->pickle.pairs.data + pair->next - 1
               : NULL;
}

/* Returns the dict of the weights, which is the root or a member of it. */
static const xm_pickle_value *find_weights(xm_torch *torch, const source *s)
{
    static const char *const members[] = { "state_dict", "model", "module" };
    const xm_pickle_value *root = &s->pickle.root;
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++)
        for (const xm_pickle_pair *p = first_pair(s, root); p;
             p = next_pair(s, p))
            if (xm_pickle_is(&p->key, members[i]) &&
                p->value.kind == XM_PICKLE_DICT) {
                torch->member = members[i];
                return &p->value;
            }
    return root;
}

static xray_status add_tensors(xm_torch *torch, const source *s)
{
    if (s->pickle.root.kind != XM_PICKLE_DICT)
        return xr_fail(s->err, XRAY_E_CONFIG,
                       "%s: holds %s, expected a state dict", s->path,
                       xm_pickle_kind(s->pickle.root.kind));
    const xm_pickle_pair *pair = first_pair(s, find_weights(torch, s));
    xray_status status = XRAY_OK;
    if (!pair)
        return xr_fail(s->err, XRAY_E_CONFIG, "%s: holds no tensors", s->path);
    for (; !status && pair; pair = next_pair(s, pair))
        status = add_tensor(torch, s, pair);
    return status;
}

/* ---- files -------------------------------------------------------------- */

static xray_status read_archive(xm_torch *torch, source *s)
{
    const xm_zip_entry *pickle = NULL;
    char where[XR_PATH_CAP + 16];
    xray_status status = xm_zip_read(s->file, s->path, s->err, &s->zip);
    if (!status)
        status = find_pickle(s, &pickle);
    if (status)
        return status;
    (void)snprintf(where, sizeof where, "%s: data.pkl", s->path);
    status =
        xm_pickle_read(pickle->data, pickle->size, where, s->err, &s->pickle);
    return status ? status : add_tensors(torch, s);
}

static xray_status read_file(xm_torch *torch, const char *path, xr_err *err)
{
    xr_map_file *file = &torch->files[torch->file_count];
    source s = { .path = path, .err = err, .file = file };
    xray_status status = xr_file_map(path, err, file);
    if (status)
        return status;
    torch->file_count++;
    if (file->size < 4 || memcmp(file->data, "PK\x03\x04", 4) != 0)
        return refuse_format(&s);
    status = read_archive(torch, &s);
    xm_pickle_free(&s.pickle);
    xm_zip_free(&s.zip);
    return status;
}

static xray_status read_shards(xm_torch *torch, const char *dir,
                               const char *path, const cJSON *map, xr_err *err)
{
    size_t most = 0;
    size_t count = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, map) most++;
    const char **names = xr_calloc(most, sizeof *names);
    torch->files = xr_calloc(most, sizeof *torch->files);
    xray_status status =
        names && torch->files
            ? xm_st_shard_names(map, path, err, names, &count)
            : xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", path);
    for (size_t i = 0; !status && i < count; i++) {
        char file[XR_PATH_CAP];
        status = xr_path_join(dir, names[i], file, sizeof file, err);
        if (!status)
            status = read_file(torch, file, err);
    }
    if (!status)
        status = xm_st_check_index(torch->index, path, map, names, err);
    free((void *)names);
    return status;
}

static xray_status read_index(xm_torch *torch, const char *dir,
                              const char *path, xr_err *err)
{
    cJSON *root;
    xray_status status = xr_json_file(path, err, &root);
    if (status)
        return status;
    const cJSON *map = cJSON_GetObjectItemCaseSensitive(root, "weight_map");
    if (cJSON_IsObject(map) && map->child)
        status = read_shards(torch, dir, path, map, err);
    else
        status =
            xr_fail(err, XRAY_E_CONFIG,
                    "%s: \"weight_map\" must be an object with tensors", path);
    cJSON_Delete(root);
    return status;
}

static xray_status read_path(xm_torch *torch, const char *path, xr_err *err)
{
    char file[XR_PATH_CAP];
    char index[XR_PATH_CAP];
    int is_dir = xr_path_is_dir(path);
    xray_status status = XRAY_OK;
    if (is_dir) {
        status = xr_path_join(path, XM_TORCH_INDEX, index, sizeof index, err);
        if (!status)
            status =
                xr_path_join(path, XM_TORCH_SINGLE, file, sizeof file, err);
        if (status)
            return status;
        if (!xr_path_exists(file) && xr_path_exists(index))
            return read_index(torch, path, index, err);
        if (!xr_path_exists(file))
            return xr_fail(err, XRAY_E_IO,
                           "%s: holds neither " XM_TORCH_SINGLE
                           " nor " XM_TORCH_INDEX,
                           path);
    }
    torch->files = xr_calloc(1, sizeof *torch->files);
    if (!torch->files)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", path);
    return read_file(torch, is_dir ? file : path, err);
}

xray_status xm_torch_open(const char *path, xr_err *err, xm_torch **out)
{
    xm_torch *torch = xr_calloc(1, sizeof *torch);
    if (torch)
        torch->index = xr_map_new(256);
    xray_status status =
        torch && torch->index
            ? read_path(torch, path, err)
            : xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", path);
    if (status) {
        xm_torch_close(torch);
        return status;
    }
    *out = torch;
    return XRAY_OK;
}

void xm_torch_close(xm_torch *torch)
{
    if (!torch)
        return;
    for (size_t i = 0; i < torch->tensors.count; i++) {
        /* The name is this file's own copy. */
        union {
            const char *read;
            void *any;
        } name = { xm_torch_at(torch, i)->name };
        free(name.any);
    }
    free(torch->tensors.data);
    for (size_t i = 0; i < torch->file_count; i++)
        xr_file_unmap(&torch->files[i]);
    free(torch->files);
    xr_map_free(torch->index);
    free(torch);
}

size_t xm_torch_count(const xm_torch *torch)
{
    return torch->tensors.count;
}

const xm_torch_tensor *xm_torch_at(const xm_torch *torch, size_t i)
{
    return (const xm_torch_tensor *)torch->tensors.data + i;
}

const char *xm_torch_member(const xm_torch *torch)
{
    return torch->member;
}

void xm_torch_copy(const xm_torch_tensor *tensor, uint64_t first,
                   uint64_t count, void *out)
{
    uint64_t at[XM_ST_DIMS] = { 0 };
    uint64_t from = 0;
    unsigned char *to = out;
    uint64_t rest = first;
    for (uint32_t d = tensor->dims; count && d > 0; d--) {
        at[d - 1] = rest % tensor->shape[d - 1];
        rest /= tensor->shape[d - 1];
        from += at[d - 1] * tensor->stride[d - 1];
    }
    for (; count; count--, to += tensor->width) {
        memcpy(to, tensor->data + from * tensor->width, tensor->width);
        for (uint32_t d = tensor->dims; d > 0; d--) {
            from += tensor->stride[d - 1];
            if (++at[d - 1] < tensor->shape[d - 1])
                break;
            from -= tensor->stride[d - 1] * tensor->shape[d - 1];
            at[d - 1] = 0;
        }
    }
}
