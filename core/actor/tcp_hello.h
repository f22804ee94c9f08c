/* SPDX-License-Identifier: Apache-2.0
 *
 * The greeting of a connection between a run and a Workhorse: both prove by
 * HMAC-SHA-256 over the nonces of both that they know the token that the run
 * gave the Workhorse, and that they are the same build. Neither sends the
 * token.
 *
 *     Workhorse                                run
 *     opening: build, index, nonce   ->
 *                                    <-  reply: build, nonce, mac; or a refusal
 *     proof: mac                     ->
 *
 * This is the state of one side, without a socket: it says how many bytes it
 * wants next, and which bytes to send. Until it has succeeded nothing else is
 * read, XR_TCP_HELLO_MOST bytes in all. With TLS it is the first that passes,
 * after a handshake by a key that is derived from the token.
 */
#ifndef XR_ACTOR_TCP_HELLO_H
#define XR_ACTOR_TCP_HELLO_H

#include <stddef.h>
#include <stdint.h>

#define XR_TCP_TOKEN 32u /* bytes of a token, a build's id and a nonce */
#define XR_TCP_HELLO_MOST 256u
/* The most bytes that are read of a connection over TLS until it has succeeded,
 * of which the handshake has about 400. */
#define XR_TCP_TLS_MOST 2048u

/* Each connection has one of these purposes. */
enum {
    XR_TCP_FOR_MESSAGES = 1,
    XR_TCP_FOR_PULSE /* its end tells the Workhorse that the run's host is gone
                      */
};

typedef struct xr_tcp_opening_bytes {
    char magic[8];
    uint32_t purpose;
    uint32_t index;
    unsigned char build[XR_TCP_TOKEN];
    unsigned char nonce[XR_TCP_TOKEN];
} xr_tcp_opening_bytes;

typedef struct xr_tcp_reply_bytes {
    char magic[8];
    uint32_t refused; /* 1: the rest is a sentence */
    uint32_t reserved;
    unsigned char build[XR_TCP_TOKEN];
    unsigned char nonce[XR_TCP_TOKEN];
    unsigned char mac[XR_TCP_TOKEN];
} xr_tcp_reply_bytes;

enum {
    XR_TCP_HELLO_MORE,   /* `want` more bytes are needed */
    XR_TCP_HELLO_ASKS,   /* the run's side: xr_tcp_hello_answer comes next */
    XR_TCP_HELLO_DONE,   /* it succeeded, once what is to be sent is sent */
    XR_TCP_HELLO_REFUSED /* `why` says so, once what is to be sent is sent */
};

typedef struct xr_tcp_hello {
    uint32_t state; /* XR_TCP_HELLO_* */
    uint32_t run;   /* 1: the run's side */
    uint32_t have;  /* bytes of what is awaited */
    uint32_t want;
    uint32_t send_size; /* bytes of `send` that are to be sent */
    uint32_t plain; /* the run's side: 1 if it is one of TLS, and these bytes
                     * came without */
    unsigned char token[XR_TCP_TOKEN];
    unsigned char build[XR_TCP_TOKEN]; /* this side's */
    unsigned char nonce[XR_TCP_TOKEN];
    unsigned char in[sizeof(xr_tcp_reply_bytes)];
    unsigned char send[sizeof(xr_tcp_reply_bytes)];
    xr_tcp_opening_bytes opening;
    xr_tcp_reply_bytes reply;
    char why[160];
} xr_tcp_hello;

/* The run's side. `nonce` is random. */
void xr_tcp_hello_await(xr_tcp_hello *hello, const unsigned char *build,
                        const unsigned char *nonce);
/* The Workhorse's side, which sends first. */
void xr_tcp_hello_open(xr_tcp_hello *hello, uint32_t purpose, uint32_t index,
                       const unsigned char *token, const unsigned char *build,
                       const unsigned char *nonce);
/* Takes up to `want` bytes that were received. */
void xr_tcp_hello_take(xr_tcp_hello *hello, const void *bytes, uint32_t size);
/* The run's side, once it ASKS: the token of the Workhorse that `opening`
 * names, or NULL if none is awaited. */
void xr_tcp_hello_answer(xr_tcp_hello *hello, const unsigned char *token);

/* The key of TLS between a run and the Workhorse with this token, and the name
 * by which the Workhorse asks for it. */
void xr_tcp_tls_key(const unsigned char *token, unsigned char *out);
#define XR_TCP_TLS_NAME "workhorse "

/* The id of this program's build: the note of the linker, or else the sum of
 * its file. 0 or an errno. */
int xr_tcp_build_id(unsigned char *out);
/* Its first 12 hexadecimal digits, with a NUL. */
void xr_tcp_build_text(const unsigned char *build, char *out);

#endif
