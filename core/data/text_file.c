/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads text files, and decompresses those in gzip and zstd format.
 */
#include "core/data/text_file.h"

#define ZLIB_CONST 1
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "core/base/file.h"
#include "core/base/str.h"

#define PIECE ((size_t)1 << 18)

/* The decompressed text, which grows. */
typedef struct sink {
    const xray_call_service *calls;
    char *data;
    size_t size;
    size_t cap;
} sink;

static xray_status fail_out_of_memory(const char *path, xr_err *err)
{
    return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", path);
}

/* Ensures capacity for PIECE more bytes and a NUL. */
static xray_status reserve_piece(sink *s, const char *path, xr_err *err)
{
    xray_status status = xr_stop_check(s->calls, err);
    if (status != XRAY_OK || s->cap - s->size > PIECE)
        return status;
    size_t cap = s->cap ? s->cap * 2 : 4 * PIECE;
    char *data = s->cap > SIZE_MAX / 4 ? NULL : realloc(s->data, cap);
    if (!data)
        return fail_out_of_memory(path, err);
    s->data = data;
    s->cap = cap;
    return XRAY_OK;
}

/* ---- gzip --------------------------------------------------------------- */

/* Passes the next part of the file to the decoder, whose byte counter has 32
 * bits. */
static void feed_decoder(z_stream *z, const unsigned char *data, size_t size,
                         size_t *at)
{
    if (z->avail_in)
        return;
    size_t left = size - *at;
    size_t piece = left < INT_MAX ? left : INT_MAX;
    z->next_in = data + *at;
    z->avail_in = (uInt)piece;
    *at += piece;
}

static xray_status decompress_members(z_stream *z, const xr_map_file *file,
                                      const char *path, sink *out, xr_err *err)
{
    size_t at = 0;
    int code = Z_OK;
    while (code == Z_OK || at < file->size || z->avail_in) {
        feed_decoder(z, file->data, file->size, &at);
        if (code == Z_STREAM_END && inflateReset(z) != Z_OK)
            return fail_out_of_memory(path, err);
        xray_status status = reserve_piece(out, path, err);
        if (status != XRAY_OK)
            return status;
        z->next_out = (unsigned char *)out->data + out->size;
        z->avail_out = (uInt)PIECE;
        code = inflate(z, Z_NO_FLUSH);
        out->size += PIECE - z->avail_out;
        if (code == Z_BUF_ERROR && at == file->size && !z->avail_in)
            return xr_fail(
                err, XRAY_E_IO,
                "%s: the gzip file is truncated after %zu bytes of text", path,
                out->size);
        if (code == Z_MEM_ERROR)
            return fail_out_of_memory(path, err);
        if (code != Z_OK && code != Z_STREAM_END)
            return xr_fail(err, XRAY_E_IO,
                           "%s: damaged gzip data after %zu bytes of text (%s)",
                           path, out->size,
                           z->msg ? z->msg : "no reason given");
    }
    return XRAY_OK;
}

static xray_status read_gzip(const xr_map_file *file, const char *path,
                             sink *out, xr_err *err)
{
    z_stream z = { .zalloc = NULL };
    if (inflateInit2(&z, 15 + 16) != Z_OK)
        return fail_out_of_memory(path, err);
    xray_status status = decompress_members(&z, file, path, out, err);
    (void)inflateEnd(&z);
    return status;
}

/* ---- zstd --------------------------------------------------------------- */

static xray_status read_zstd(const xr_map_file *file, const char *path,
                             sink *out, xr_err *err)
{
    ZSTD_inBuffer in = { file->data, file->size, 0 };
    ZSTD_DStream *stream = ZSTD_createDStream();
    size_t left = 1;
    if (!stream)
        return fail_out_of_memory(path, err);
    xray_status status = XRAY_OK;
    while (status == XRAY_OK && (in.pos < in.size || left)) {
        status = reserve_piece(out, path, err);
        if (status != XRAY_OK)
            break;
        ZSTD_outBuffer piece = { out->data + out->size, PIECE, 0 };
        size_t before = in.pos;
        left = ZSTD_decompressStream(stream, &piece, &in);
        out->size += piece.pos;
        if (ZSTD_isError(left))
            status = xr_fail(err, XRAY_E_IO,
                             "%s: damaged zstd data after %zu bytes of text "
                             "(%s)",
                             path, out->size, ZSTD_getErrorName(left));
        else if (left && !piece.pos && in.pos == before)
            status = xr_fail(
                err, XRAY_E_IO,
                "%s: the zstd file is truncated after %zu bytes of text", path,
                out->size);
    }
    ZSTD_freeDStream(stream);
    return status;
}

static int is_gzip(const xr_map_file *file)
{
    return file->size >= 2 && memcmp(file->data, "\x1f\x8b", 2) == 0;
}

static int is_zstd(const xr_map_file *file)
{
    return file->size >= 4 && memcmp(file->data, "\x28\xb5\x2f\xfd", 4) == 0;
}

xray_status xr_text_read(const char *path, const xray_call_service *calls,
                         xr_err *err, char **out_text, size_t *out_size)
{
    xr_map_file file;
    xray_status status = xr_file_map(path, err, &file);
    if (status != XRAY_OK)
        return status;
    sink out = { .calls = calls };
    if (is_gzip(&file)) {
        status = read_gzip(&file, path, &out, err);
    } else if (is_zstd(&file)) {
        status = read_zstd(&file, path, &out, err);
    } else {
        xr_file_unmap(&file);
        return xr_file_read_long(path, SIZE_MAX / 4, calls, err, out_text,
                                 out_size);
    }
    xr_file_unmap(&file);
    if (status == XRAY_OK)
        status = reserve_piece(&out, path, err);
    if (status != XRAY_OK) {
        free(out.data);
        return status;
    }
    out.data[out.size] = '\0';
    *out_text = out.data;
    *out_size = out.size;
    return XRAY_OK;
}

/* ---- the beginning ------------------------------------------------------ */

static xray_status peek_gzip(const xr_map_file *file, unsigned char *out,
                             size_t size, size_t *out_count)
{
    z_stream z = { .zalloc = NULL };
    if (inflateInit2(&z, 15 + 16) != Z_OK)
        return XRAY_E_NOMEM;
    z.next_in = file->data;
    z.avail_in = (uInt)(file->size < INT_MAX ? file->size : INT_MAX);
    z.next_out = out;
    z.avail_out = (uInt)size;
    int code = inflate(&z, Z_SYNC_FLUSH);
    *out_count = size - z.avail_out;
    (void)inflateEnd(&z);
    return code == Z_MEM_ERROR ? XRAY_E_NOMEM : XRAY_OK;
}

static xray_status peek_zstd(const xr_map_file *file, unsigned char *out,
                             size_t size, size_t *out_count)
{
    ZSTD_inBuffer in = { file->data, file->size, 0 };
    ZSTD_outBuffer begin = { out, size, 0 };
    ZSTD_DStream *stream = ZSTD_createDStream();
    size_t left = 1;
    if (!stream)
        return XRAY_E_NOMEM;
    while (left && !ZSTD_isError(left) && begin.pos < size && in.pos < in.size)
        left = ZSTD_decompressStream(stream, &begin, &in);
    ZSTD_freeDStream(stream);
    *out_count = begin.pos;
    return XRAY_OK;
}

xray_status xr_text_peek(const char *path, xr_err *err, unsigned char *out,
                         size_t size, size_t *out_count)
{
    uint64_t file_size;
    int fd;
    unsigned char head[4] = "";
    *out_count = 0;
    if (xr_file_open(path, NULL, &fd, &file_size) != XRAY_OK)
        return XRAY_OK;
    ssize_t got = pread(fd, out, size, 0);
    (void)close(fd);
    *out_count = got > 0 ? (size_t)got : 0;
    memcpy(head, out, *out_count < sizeof head ? *out_count : sizeof head);
    xr_map_file file = { head, sizeof head };
    if (!is_gzip(&file) && !is_zstd(&file))
        return XRAY_OK;
    *out_count = 0;
    xray_status status = xr_file_map(path, err, &file);
    if (status != XRAY_OK)
        return status;
    status = is_gzip(&file) ? peek_gzip(&file, out, size, out_count)
                            : peek_zstd(&file, out, size, out_count);
    xr_file_unmap(&file);
    return status == XRAY_OK ? status : fail_out_of_memory(path, err);
}
