/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares connections over TLS 1.3 between two processes that share a key, by
 * GnuTLS, which is found at run time. Both prove that they know the key; there
 * are no certificates. Every connection has fresh keys (ECDHE), so whoever
 * learns the shared one later cannot read what was recorded.
 *
 * Nothing here waits: a function that would have to returns EAGAIN. One thread
 * may send while another receives.
 */
#ifndef XR_TLS_H
#define XR_TLS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#define XR_TLS_KEY 32u
#define XR_TLS_FIRST_BYTE 0x16 /* of each connection over TLS */
/* Says that the library was not found. */
#define XR_TLS_MISSING \
    "this host has no GnuTLS of version 3.6.5 or later; install libgnutls30"

typedef struct xr_tls xr_tls;

/* Writes the key of XR_TLS_KEY bytes that belongs to an identity, and returns
 * 1; 0 if there is none. */
typedef int xr_tls_find(void *ctx, const char *identity,
                        unsigned char *out_key);

/* 1 if the library is found. */
int xr_tls_is_there(void);

/* The side that connects, and the one that was connected to. The latter reads
 * up to `most` bytes in all, until xr_tls_admit. They borrow the socket, and
 * return NULL without memory or the library. */
xr_tls *xr_tls_client(int fd, const char *identity, const unsigned char *key);
xr_tls *xr_tls_server(int fd, uint64_t most, xr_tls_find *find, void *ctx);
void xr_tls_free(xr_tls *tls); /* accepts NULL */
/* Goes on with the handshake: 0 once it has succeeded, EAGAIN until then, EPIPE
 * if the other side ended it, EPROTO if it failed, for which `why` is the
 * library's reason. */
int xr_tls_greet(xr_tls *tls);
const char *xr_tls_why(const xr_tls *tls);
void xr_tls_admit(xr_tls *tls);

/* As sendmsg: takes bytes of the pieces, up to a record, or fails with EAGAIN.
 * The next call or xr_tls_flush may still have to send bytes that it took. */
ssize_t xr_tls_send(xr_tls *tls, const struct iovec *pieces, int count);
/* 0, EAGAIN or another errno. */
int xr_tls_flush(xr_tls *tls);
/* 1 if bytes that were taken still have to be sent. Accepts NULL. */
int xr_tls_owes(xr_tls *tls);
/* As recv; EBADMSG for bytes that were changed on their way. */
ssize_t xr_tls_recv(xr_tls *tls, void *out, size_t size);
/* 1 if bytes wait in memory, of which the socket says nothing. Accepts NULL. */
int xr_tls_holds(xr_tls *tls);

#endif
