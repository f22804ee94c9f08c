/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds a stop in the text of tokens, also where it lies across tokens or in
 * bytes that the decoder still holds back.
 */
#include "model/text/until.h"

#include <string.h>

static void cut_text(xr_str *text, size_t size)
{
    text->size = size;
    if (text->data)
        text->data[size] = '\0';
}

/* Returns where `stop` begins in the text, at `from` or later but before `end`,
 * or `end`. The text may have NUL bytes. */
static size_t find_stop(const xr_str *text, size_t from, size_t end,
                        const char *stop)
{
    size_t size = strlen(stop);
    for (size_t at = from; at < end && at + size <= text->size; at++)
        if (memcmp(text->data + at, stop, size) == 0)
            return at;
    return end;
}

/* Returns the number of bytes at the end of the text with which a stop begins,
 * so that the next token may complete it. */
static size_t count_begun(const xm_until *u)
{
    size_t most = 0;
    for (size_t i = 0; i < u->stop_count; i++) {
        size_t n = strlen(u->stops[i]) - 1;
        if (n > u->text.size)
            n = u->text.size;
        while (n > most &&
               memcmp(u->text.data + u->text.size - n, u->stops[i], n) != 0)
            n--;
        most = n > most ? n : most;
    }
    return most;
}

static void close_stream(xm_until *u)
{
    xm_stream_close(u->stream);
    u->stream = NULL;
    u->ready = u->text.size;
}

/* Looks for stops in the text and in what an end here would append to it. No
 * stop begins in the first `ready` bytes, which earlier calls have seen. */
static xray_status look_for_stops(xm_until *u, xr_err *err)
{
    size_t certain = u->text.size;
    xray_status status = xm_stream_peek(u->stream, &u->text, err);
    size_t first = u->text.size;
    for (size_t i = 0; i < u->stop_count && status == XRAY_OK; i++)
        first = find_stop(&u->text, u->ready, first, u->stops[i]);
    u->stopped = first < u->text.size;
    cut_text(&u->text, u->stopped ? first : certain);
    return status;
}

xray_status xm_until_push(xm_until *u, const xm_tokenizer *tok, int32_t id,
                          xr_err *err)
{
    xray_status status = XRAY_OK;
    if (!u->stream)
        status = xm_stream_open(tok, 2, err, &u->stream);
    if (status == XRAY_OK)
        status = xm_stream_push(u->stream, id, &u->text, err);
    if (status == XRAY_OK && u->stop_count)
        status = look_for_stops(u, err);
    u->ready = u->text.size - count_begun(u);
    if (u->stopped)
        close_stream(u);
    return status;
}

xray_status xm_until_end(xm_until *u, xr_err *err)
{
    xray_status status = XRAY_OK;
    if (u->stream)
        status = xm_stream_end(u->stream, &u->text, err);
    close_stream(u);
    return status;
}

void xm_until_free(xm_until *u)
{
    xm_stream_close(u->stream);
    xr_str_free(&u->text);
    *u = (xm_until){ .stream = NULL };
}
