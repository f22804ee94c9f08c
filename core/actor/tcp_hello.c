/* SPDX-License-Identifier: Apache-2.0
 *
 * The challenge by which a run and a Workhorse know each other.
 */
#include "core/actor/tcp_hello.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/sha256.h"
#include "core/base/tls.h"

_Static_assert(XR_TLS_KEY == XR_SHA256_BYTES, "a code is a key of TLS");
_Static_assert(sizeof(xr_tcp_opening_bytes) + XR_TCP_TOKEN <= XR_TCP_HELLO_MOST,
               "a stranger is read no further");

static const char magic[8] = { 'x', 'r', 'a', 'y', 't', 'c', 'p', '0' };

/* The sentence of a refusal has this much room in a reply. */
#define TEXT_BYTES (3 * XR_TCP_TOKEN)

static void prove_token(const xr_tcp_hello *hello, const char *side,
                        unsigned char *out)
{
    const size_t unsigned_bytes = offsetof(xr_tcp_reply_bytes, mac);
    unsigned char data[8 + sizeof(hello->opening) + sizeof(hello->reply)] = {
        0
    };
    memcpy(data, side, strlen(side));
    memcpy(data + 8, &hello->opening, sizeof(hello->opening));
    memcpy(data + 8 + sizeof(hello->opening), &hello->reply, unsigned_bytes);
    xr_hmac_sha256(hello->token, XR_TCP_TOKEN, data,
                   8 + sizeof(hello->opening) + unsigned_bytes, out);
}

static void set_bytes_to_send(xr_tcp_hello *hello, const void *bytes,
                              size_t size)
{
    memcpy(hello->send, bytes, size);
    hello->send_size = (uint32_t)size;
}

static void await_bytes(xr_tcp_hello *hello, uint32_t size)
{
    hello->state = XR_TCP_HELLO_MORE;
    hello->have = 0;
    hello->want = size;
}

XRAY_PRINTF(2, 3)
static void refuse_hello(xr_tcp_hello *hello, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(hello->why, sizeof(hello->why), fmt, args);
    va_end(args);
    xr_one_line(hello->why);
    hello->state = XR_TCP_HELLO_REFUSED;
    hello->want = 0;
}

/* Tells the other side, too. */
static void send_refusal(xr_tcp_hello *hello, const char *text)
{
    xr_tcp_reply_bytes reply = { .refused = 1 };
    char room[TEXT_BYTES] = "";
    memcpy(reply.magic, magic, sizeof(magic));
    (void)snprintf(room, sizeof(room), "%s", text);
    memcpy(reply.build, room, XR_TCP_TOKEN);
    memcpy(reply.nonce, room + XR_TCP_TOKEN, XR_TCP_TOKEN);
    memcpy(reply.mac, room + (ptrdiff_t)2 * XR_TCP_TOKEN, XR_TCP_TOKEN);
    set_bytes_to_send(hello, &reply, sizeof(reply));
}

void xr_tcp_build_text(const unsigned char *build, char *out)
{
    for (int i = 0; i < 6; i++)
        (void)snprintf(out + (ptrdiff_t)2 * i, 3, "%02x", build[i]);
}

void xr_tcp_tls_key(const unsigned char *token, unsigned char *out)
{
    static const char label[] = "x-ray: the key of TLS";
    xr_hmac_sha256(token, XR_TCP_TOKEN, label, sizeof(label), out);
}

/* ---- the run's side ------------------------------------------------------ */

void xr_tcp_hello_await(xr_tcp_hello *hello, const unsigned char *build,
                        const unsigned char *nonce)
{
    *hello = (xr_tcp_hello){ .run = 1 };
    memcpy(hello->build, build, XR_TCP_TOKEN);
    memcpy(hello->nonce, nonce, XR_TCP_TOKEN);
    await_bytes(hello, sizeof(hello->opening));
}

static void take_opening(xr_tcp_hello *hello)
{
    const xr_tcp_opening_bytes *opening = &hello->opening;
    char theirs[13];
    char ours[13];
    memcpy(&hello->opening, hello->in, sizeof(hello->opening));
    if (hello->in[0] == XR_TLS_FIRST_BYTE && hello->in[1] == 3) {
        refuse_hello(hello, "it speaks TLS, and [runtime] tls of this run is "
                            "false");
        return;
    }
    if (memcmp(opening->magic, magic, sizeof(magic)) != 0 ||
        (opening->purpose != XR_TCP_FOR_MESSAGES &&
         opening->purpose != XR_TCP_FOR_PULSE)) {
        refuse_hello(hello, "it sent bytes that are no hello of a Workhorse");
        return;
    }
    if (hello->plain) {
        refuse_hello(hello, "it greets without TLS, and [runtime] tls of this "
                            "run is true");
        send_refusal(hello, "[runtime] tls is true, and it greets without TLS");
        return;
    }
    if (memcmp(opening->build, hello->build, XR_TCP_TOKEN) == 0) {
        hello->state = XR_TCP_HELLO_ASKS;
        hello->want = 0;
        return;
    }
    xr_tcp_build_text(opening->build, theirs);
    xr_tcp_build_text(hello->build, ours);
    refuse_hello(hello, "its program is build %s, while this run's is build %s",
                 theirs, ours);
    send_refusal(hello, hello->why);
}

void xr_tcp_hello_answer(xr_tcp_hello *hello, const unsigned char *token)
{
    xr_tcp_reply_bytes *reply = &hello->reply;
    if (!token) {
        refuse_hello(hello,
                     "it says that it is Workhorse %u, which the run "
                     "does not await",
                     hello->opening.index);
        send_refusal(hello, "this Workhorse is not awaited");
        return;
    }
    memcpy(hello->token, token, XR_TCP_TOKEN);
    *reply = (xr_tcp_reply_bytes){ 0 };
    memcpy(reply->magic, magic, sizeof(magic));
    memcpy(reply->build, hello->build, XR_TCP_TOKEN);
    memcpy(reply->nonce, hello->nonce, XR_TCP_TOKEN);
    prove_token(hello, "run", reply->mac);
    set_bytes_to_send(hello, reply, sizeof(*reply));
    await_bytes(hello, XR_TCP_TOKEN);
}

static void take_proof(xr_tcp_hello *hello)
{
    unsigned char mac[XR_TCP_TOKEN];
    prove_token(hello, "horse", mac);
    if (!xr_mac_is_equal(mac, hello->in)) {
        refuse_hello(hello,
                     "it does not know the token that Workhorse %u was given",
                     hello->opening.index);
        return;
    }
    hello->state = XR_TCP_HELLO_DONE;
    hello->want = 0;
}

/* ---- the Workhorse's side ------------------------------------------------ */

void xr_tcp_hello_open(xr_tcp_hello *hello, uint32_t purpose, uint32_t index,
                       const unsigned char *token, const unsigned char *build,
                       const unsigned char *nonce)
{
    xr_tcp_opening_bytes *opening = &hello->opening;
    *hello =
        (xr_tcp_hello){ .opening = { .purpose = purpose, .index = index } };
    memcpy(hello->token, token, XR_TCP_TOKEN);
    memcpy(hello->build, build, XR_TCP_TOKEN);
    memcpy(opening->magic, magic, sizeof(magic));
    memcpy(opening->build, build, XR_TCP_TOKEN);
    memcpy(opening->nonce, nonce, XR_TCP_TOKEN);
    set_bytes_to_send(hello, opening, sizeof(*opening));
    await_bytes(hello, sizeof(hello->reply));
}

static void take_reply(xr_tcp_hello *hello)
{
    unsigned char mac[XR_TCP_TOKEN];
    char text[TEXT_BYTES + 1] = "";
    memcpy(&hello->reply, hello->in, sizeof(hello->reply));
    if (memcmp(hello->reply.magic, magic, sizeof(magic)) != 0) {
        refuse_hello(hello, "there is no run of X-ray at this address");
        return;
    }
    if (hello->reply.refused) {
        memcpy(text, hello->reply.build, TEXT_BYTES);
        refuse_hello(hello, "the run refused this Workhorse: %s", text);
        return;
    }
    prove_token(hello, "run", mac);
    if (memcmp(hello->reply.build, hello->build, XR_TCP_TOKEN) != 0 ||
        !xr_mac_is_equal(mac, hello->reply.mac)) {
        refuse_hello(hello, "the program at this address does not know the "
                            "token that this Workhorse was given");
        return;
    }
    prove_token(hello, "horse", mac);
    set_bytes_to_send(hello, mac, sizeof(mac));
    hello->state = XR_TCP_HELLO_DONE;
    hello->want = 0;
}

void xr_tcp_hello_take(xr_tcp_hello *hello, const void *bytes, uint32_t size)
{
    const uint32_t more = size < hello->want ? size : hello->want;
    if (hello->state != XR_TCP_HELLO_MORE)
        return;
    memcpy(hello->in + hello->have, bytes, more);
    hello->have += more;
    hello->want -= more;
    if (hello->want)
        return;
    if (!hello->run)
        take_reply(hello);
    else if (hello->have == sizeof(hello->opening))
        take_opening(hello);
    else
        take_proof(hello);
}
