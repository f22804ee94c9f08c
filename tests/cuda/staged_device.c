/* SPDX-License-Identifier: Apache-2.0
 *
 * Instances, memory and weight handles of a staged device.
 */
#include "tests/cuda/staged_internal.h"

/* ---- memory -------------------------------------------------------------- */

static xray_status staged_alloc(void *self, const char *owner, uint32_t tag,
                                uint64_t bytes, void **out)
{
    staged *s = self;
    void *dev = NULL;
    xray_status status = s->ops->alloc(s->self, owner, tag, bytes, &dev);
    if (status != XRAY_OK)
        return status;
    mirror *m = calloc(1, sizeof(*m));
    uint64_t complete = (bytes + 64) / 64 * 64;
    void *host = m ? aligned_alloc(64, complete) : NULL;
    if (!host) {
        free(m);
        s->ops->free(s->self, dev);
        return XRAY_E_NOMEM;
    }
    memset(host, 0, complete);
    *m = (mirror){ s->mirrors, host, dev, bytes };
    s->mirrors = m;
    *out = host;
    return XRAY_OK;
}

static mirror **find_mirror(staged *s, const void *ptr)
{
    mirror **link = &s->mirrors;
    while (*link && (*link)->host != ptr)
        link = &(*link)->next;
    return link;
}

static void staged_free(void *self, void *ptr)
{
    staged *s = self;
    mirror **link = find_mirror(s, ptr);
    mirror *m = *link;
    if (!ptr || !m)
        return;
    *link = m->next;
    s->ops->free(s->self, m->dev);
    free(m->host);
    free(m);
}

static xray_status staged_evict(void *self, void *ptr)
{
    staged *s = self;
    const mirror *m = *find_mirror(s, ptr);
    return s->ops->evict(s->self, m ? m->dev : ptr);
}

static xray_status staged_restore(void *self, void *ptr)
{
    staged *s = self;
    const mirror *m = *find_mirror(s, ptr);
    if (m)
        memset(m->host, 0, m->bytes);
    return s->ops->restore(s->self, m ? m->dev : ptr);
}

static xray_status staged_memory(void *self, xray_memory_stats *stats)
{
    staged *s = self;
    return s->ops->memory(s->self, stats);
}

static xray_status staged_info(void *self, xray_device_info *info)
{
    staged *s = self;
    return s->ops->info(s->self, info);
}

static xray_status staged_copy(void *self, xray_stream *stream, void *to,
                               const void *from, uint64_t bytes, uint32_t kind)
{
    (void)self;
    (void)stream;
    (void)kind;
    if (bytes)
        memmove(to, from, bytes);
    return XRAY_OK;
}

static xray_status staged_zero(void *self, xray_stream *stream, void *ptr,
                               uint64_t bytes)
{
    (void)self;
    (void)stream;
    if (bytes)
        memset(ptr, 0, bytes);
    return XRAY_OK;
}

static xray_status staged_sync(void *self, xray_stream *stream)
{
    staged *s = self;
    return s->ops->sync(s->self, stream);
}

static xray_status staged_copy_rows(void *self, xray_stream *stream,
                                    const xray_copy_rows *rows)
{
    (void)self;
    (void)stream;
    for (uint64_t i = 0; i < rows->rows; i++)
        memmove((char *)rows->to + i * rows->to_pitch,
                (const char *)rows->from + i * rows->from_pitch, rows->bytes);
    return XRAY_OK;
}

static xray_status staged_checksum(void *self, const xray_checksum_rows *rows,
                                   uint64_t *out)
{
    staged *s = self;
    void *dev = NULL;
    uint64_t bytes =
        rows->rows ? (rows->rows - 1) * rows->pitch + rows->bytes : 0;
    xray_checksum_rows there = *rows;
    xray_status status =
        s->ops->alloc(s->self, "staged", XRAY_TAG_WORKSPACE, bytes, &dev);
    there.data = dev;
    if (status == XRAY_OK && bytes)
        status = s->ops->copy(s->self, NULL, dev, rows->data, bytes,
                              XRAY_COPY_TO_DEVICE);
    if (status == XRAY_OK)
        status = s->ops->checksum(s->self, &there, out);
    s->ops->free(s->self, dev);
    return status;
}

static uint64_t staged_kv_block_bytes(void *self, const xray_kv *kv)
{
    staged *s = self;
    return s->ops->kv_block_bytes(s->self, kv);
}

/* ---- matrices ------------------------------------------------------------ */

static xray_status staged_weight_create(void *self,
                                        const xray_weight_desc *desc,
                                        xray_weight **out)
{
    staged *s = self;
    if (!desc || desc->header.size < sizeof(*desc) || !desc->data)
        return s->ops->weight_create(s->self, desc, out);
    xray_weight_desc d = *desc;
    matrix *m = calloc(1, sizeof(*m));
    if (!m)
        return XRAY_E_NOMEM;
    m->host = desc->data;
    m->rows = desc->rows;
    m->cols = desc->cols;
    m->bytes = m->rows * m->cols * element_bytes(desc->dtype);
    xray_status status =
        s->ops->alloc(s->self, "staged", XRAY_TAG_GRADS, m->bytes, &m->dev);
    d.data = m->dev;
    if (status == XRAY_OK)
        status = s->ops->copy(s->self, NULL, m->dev, m->host, m->bytes,
                              XRAY_COPY_TO_DEVICE);
    if (status == XRAY_OK)
        status = s->ops->weight_create(s->self, &d, out);
    if (status != XRAY_OK) {
        s->ops->free(s->self, m->dev);
        free(m);
        return status;
    }
    m->handle = *out;
    m->next = s->matrices;
    s->matrices = m;
    return XRAY_OK;
}

static void staged_weight_destroy(void *self, xray_weight *w)
{
    staged *s = self;
    matrix **link = &s->matrices;
    while (*link && (*link)->handle != w)
        link = &(*link)->next;
    s->ops->weight_destroy(s->self, w);
    if (!*link)
        return;
    matrix *m = *link;
    *link = m->next;
    s->ops->free(s->self, m->dev);
    free(m);
}

static xray_status staged_weight_changed(void *self, xray_weight *w)
{
    staged *s = self;
    const matrix *m = get_matrix(s, w);
    if (m)
        (void)s->ops->copy(s->self, NULL, m->dev, m->host, m->bytes,
                           XRAY_COPY_TO_DEVICE);
    return s->ops->weight_changed(s->self, w);
}

static xray_status staged_weight_evict(void *self, xray_weight *w)
{
    staged *s = self;
    return s->ops->weight_evict(s->self, w);
}

/* ---- the instance -------------------------------------------------------- */

static void staged_destroy(void *self)
{
    staged *s = self;
    if (!s)
        return;
    while (s->matrices)
        staged_weight_destroy(s, s->matrices->handle);
    while (s->mirrors)
        staged_free(s, s->mirrors->host);
    s->ops->destroy(s->self);
    free(s);
}

void *staged_around(const xray_device_ops *real, void *self,
                    const xray_device_ops **out_ops)
{
    staged *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->ops = real;
    s->self = self;
    s->table = (xray_device_ops){
        .header = XRAY_HEADER(xray_device_ops),
        .destroy = staged_destroy,
        .info = staged_info,
        .alloc = staged_alloc,
        .free = staged_free,
        .memory = staged_memory,
        .copy = staged_copy,
        .zero = staged_zero,
        .copy_rows = staged_copy_rows,
        .checksum = staged_checksum,
        .sync = staged_sync,
        .weight_create = staged_weight_create,
        .weight_destroy = staged_weight_destroy,
        .weight_changed = staged_weight_changed,
        .weight_evict = staged_weight_evict,
        .kv_block_bytes = staged_kv_block_bytes,
        .evict = staged_evict,
        .restore = staged_restore,
    };
    staged_operators(&s->table);
    *out_ops = &s->table;
    return s;
}
