/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes text files, and compresses those in gzip and zstd format.
 */
#include "core/data/text_out.h"

#define ZLIB_CONST 1
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>
#include <zstd.h>

#define PIECE ((size_t)1 << 16)

static int has_end(const char *path, const char *end)
{
    size_t size = strlen(path);
    size_t length = strlen(end);
    return size > length && strcasecmp(path + size - length, end) == 0;
}

static void free_packer(xr_text_out *out)
{
    if (out->packer && out->zstd) {
        ZSTD_freeCStream(out->packer);
    } else if (out->packer) {
        (void)deflateEnd(out->packer);
        free(out->packer);
    }
    out->packer = NULL;
}

static xray_status fail_to_pack(const xr_text_out *out, xr_err *err)
{
    return xr_fail(err, XRAY_E_NOMEM, "%s: no memory to compress with",
                   out->file.path);
}

/* A z_stream must not move, because its state points to it. */
static z_stream *open_gzip(void)
{
    z_stream *z = calloc(1, sizeof *z);
    if (z && deflateInit2(z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 15 + 16, 8,
                          Z_DEFAULT_STRATEGY) == Z_OK)
        return z;
    free(z);
    return NULL;
}

xray_status xr_text_begin(const char *path, xr_err *err, xr_text_out *out)
{
    *out = (xr_text_out){ .zstd = has_end(path, ".zst") };
    xray_status status = xr_file_begin(path, err, &out->file);
    if (status != XRAY_OK)
        return status;
    int packed = out->zstd || has_end(path, ".gz");
    if (packed)
        out->packer =
            out->zstd ? (void *)ZSTD_createCStream() : (void *)open_gzip();
    if (!packed || out->packer)
        return XRAY_OK;
    status = fail_to_pack(out, err);
    xr_text_drop(out);
    return status;
}

static xray_status put_gzip(xr_text_out *out, const char *text, size_t size,
                            int end, xr_err *err)
{
    unsigned char packed[PIECE];
    z_stream *z = out->packer;
    xray_status status = XRAY_OK;
    z->next_in = (const unsigned char *)text;
    z->avail_in = (uInt)size;
    do {
        z->next_out = packed;
        z->avail_out = (uInt)sizeof packed;
        (void)deflate(z, end ? Z_FINISH : Z_NO_FLUSH);
        status = xr_file_append(&out->file, packed,
                                sizeof packed - z->avail_out, err);
    } while (status == XRAY_OK && !z->avail_out);
    return status;
}

static xray_status put_zstd(xr_text_out *out, const char *text, size_t size,
                            int end, xr_err *err)
{
    unsigned char packed[PIECE];
    ZSTD_inBuffer in = { text, size, 0 };
    size_t left = 0;
    xray_status status = XRAY_OK;
    do {
        ZSTD_outBuffer piece = { packed, sizeof packed, 0 };
        left = ZSTD_compressStream2(out->packer, &piece, &in,
                                    end ? ZSTD_e_end : ZSTD_e_continue);
        if (ZSTD_isError(left))
            return fail_to_pack(out, err);
        status = xr_file_append(&out->file, packed, piece.pos, err);
    } while (status == XRAY_OK && (end ? left > 0 : in.pos < in.size));
    return status;
}

static xray_status put_text(xr_text_out *out, const char *text, size_t size,
                            int end, xr_err *err)
{
    if (!out->packer)
        return xr_file_append(&out->file, text, size, err);
    return out->zstd ? put_zstd(out, text, size, end, err)
                     : put_gzip(out, text, size, end, err);
}

xray_status xr_text_append(xr_text_out *out, const char *text, size_t size,
                           xr_err *err)
{
    xray_status status = XRAY_OK;
    for (size_t at = 0; at < size && status == XRAY_OK; at += PIECE)
        status = put_text(out, text + at, size - at < PIECE ? size - at : PIECE,
                          0, err);
    return status;
}

xray_status xr_text_finish(xr_text_out *out, xr_err *err)
{
    xray_status status = put_text(out, "", 0, 1, err);
    if (status != XRAY_OK) {
        xr_text_drop(out);
        return status;
    }
    free_packer(out);
    return xr_file_finish(&out->file, err);
}

void xr_text_drop(xr_text_out *out)
{
    free_packer(out);
    xr_file_drop(&out->file);
}
