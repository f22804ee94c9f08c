/* SPDX-License-Identifier: Apache-2.0
 *
 * Ids to text: a list of pieces goes through the decoder's steps.
 */
#include <stdlib.h>
#include <string.h>

#include "model/text/tok.h"

typedef struct pieces {
    xr_str bytes;
    size_t *ends;
    size_t count;
} pieces;

static const char *piece(const pieces *p, size_t i, size_t *out_size)
{
    size_t start = i ? p->ends[i - 1] : 0;
    *out_size = p->ends[i] - start;
    return xr_str_text(&p->bytes) + start;
}

static void end_piece(pieces *p)
{
    p->ends[p->count++] = p->bytes.size;
}

static int hex(char c)
{
    const char *const digits = "0123456789abcdef0123456789ABCDEF";
    const char *hit = c ? strchr(digits, c) : NULL;
    return hit ? (int)((hit - digits) & 15) : -1;
}

/* The byte of "<0xNN>", or -1. */
static int byte_of(const char *text, size_t size)
{
    if (size != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return -1;
    int high = hex(text[3]);
    int low = hex(text[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

/* Ends a run of bytes: text if they are UTF-8, else a U+FFFD for each. */
static void end_bytes(xr_str *run, pieces *out)
{
    if (!run->size)
        return;
    const char *at = run->data;
    const char *end = at + run->size;
    uint32_t code;
    for (int n; at < end && (n = xr_utf8_decode(at, end, &code));)
        at += n;
    if (at == end) {
        xr_str_append(&out->bytes, run->data, run->size);
        end_piece(out);
    }
    for (size_t i = 0; at < end && i < run->size; i++) {
        xr_str_puts(&out->bytes, "\xEF\xBF\xBD");
        end_piece(out);
    }
    xr_str_clear(run);
}

static void step_bytes(const pieces *in, pieces *out)
{
    xr_str run = { 0 };
    for (size_t i = 0; i < in->count; i++) {
        size_t size;
        const char *text = piece(in, i, &size);
        int byte = byte_of(text, size);
        if (byte >= 0) {
            char c = (char)byte;
            xr_str_append(&run, &c, 1);
            out->bytes.failed |= run.failed;
            continue;
        }
        end_bytes(&run, out);
        xr_str_append(&out->bytes, text, size);
        end_piece(out);
    }
    end_bytes(&run, out);
    xr_str_free(&run);
}

/* Up to `start` and `stop` times the character at the ends of each piece. */
static void step_strip(const xm_step *step, const pieces *in, pieces *out)
{
    size_t unit = strlen(step->from);
    for (size_t i = 0; i < in->count; i++) {
        size_t size;
        const char *text = piece(in, i, &size);
        for (uint32_t n = 0; n < step->start && size >= unit &&
                             memcmp(text, step->from, unit) == 0;
             n++) {
            text += unit;
            size -= unit;
        }
        for (uint32_t n = 0; n < step->stop && size >= unit &&
                             memcmp(text + size - unit, step->from, unit) == 0;
             n++)
            size -= unit;
        xr_str_append(&out->bytes, text, size);
        end_piece(out);
    }
}

static void step_replace(const xm_step *step, const pieces *in, pieces *out)
{
    for (size_t i = 0; i < in->count; i++) {
        size_t size;
        const char *text = piece(in, i, &size);
        xm_tok_replace(step, text, size, &out->bytes);
        end_piece(out);
    }
}

/* One piece out of all: a character's bytes may lie in several tokens. */
static void step_alphabet(const pieces *in, pieces *out)
{
    xr_str bytes = { 0 };
    for (size_t i = 0; i < in->count; i++) {
        size_t size;
        const char *text = piece(in, i, &size);
        xm_alphabet_read(text, size, &bytes);
    }
    xm_utf8_repair(xr_str_text(&bytes), bytes.size, &out->bytes);
    out->bytes.failed |= bytes.failed;
    end_piece(out);
    xr_str_free(&bytes);
}

static void run_step(const xm_step *step, const pieces *in, pieces *out)
{
    switch (step->kind) {
    case XM_STEP_REPLACE:
        step_replace(step, in, out);
        break;
    case XM_STEP_BYTES:
        step_bytes(in, out);
        break;
    case XM_STEP_ALPHABET:
        step_alphabet(in, out);
        break;
    case XM_STEP_STRIP:
        step_strip(step, in, out);
        break;
    case XM_STEP_FUSE:
    case XM_STEP_PREPEND: /* this and the next stand in normalizers only */
    case XM_STEP_NFC:
        xr_str_append(&out->bytes, xr_str_text(&in->bytes), in->bytes.size);
        end_piece(out);
        break;
    }
}

static xray_status gather(const xm_tokenizer *tok, const int32_t *ids,
                          size_t count, int skip_special, pieces *out,
                          xr_err *err)
{
    for (size_t i = 0; i < count; i++) {
        const xm_token *t = ids[i] >= 0 && (size_t)ids[i] < tok->token_count
                                ? &tok->tokens[ids[i]]
                                : NULL;
        int known = t && (t->flags & XM_TOK_KNOWN);
        if (!known && skip_special == 2)
            continue;
        if (!known)
            return xr_fail(err, XRAY_E_RANGE,
                           "id %d (number %zu of the list) is not in the "
                           "tokenizer's vocabulary",
                           (int)ids[i], i);
        if (skip_special && (t->flags & XM_TOK_SPECIAL))
            continue;
        if (!tok->has_decoder && out->count)
            xr_str_puts(&out->bytes, " ");
        xr_str_append(&out->bytes, xr_str_text(&tok->pool) + t->at, t->size);
        end_piece(out);
    }
    return XRAY_OK;
}

xray_status xm_tokenizer_decode(const xm_tokenizer *tok, const int32_t *ids,
                                size_t count, int skip_special, xr_str *out,
                                xr_err *err)
{
    pieces in = { .ends = xr_calloc(count + 1, sizeof(size_t)) };
    pieces to = { .ends = xr_calloc(count + 1, sizeof(size_t)) };
    xray_status status = XRAY_OK;
    if (in.ends && to.ends)
        status = gather(tok, ids, count, skip_special, &in, err);
    else
        status = xr_fail(err, XRAY_E_NOMEM, "tokenizer: out of memory");
    for (size_t i = 0; !status && i < tok->decoder.count; i++) {
        run_step(&tok->decoder.step[i], &in, &to);
        to.bytes.failed |= in.bytes.failed;
        pieces spare = in;
        in = to;
        to = spare;
        xr_str_clear(&to.bytes);
        to.count = 0;
    }
    if (!status) {
        xr_str_append(out, xr_str_text(&in.bytes), in.bytes.size);
        if (in.bytes.failed || out->failed)
            status = xr_fail(err, XRAY_E_NOMEM, "tokenizer: out of memory");
    }
    xr_str_free(&in.bytes);
    xr_str_free(&to.bytes);
    free(in.ends);
    free(to.ends);
    return status;
}
