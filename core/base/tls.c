/* SPDX-License-Identifier: Apache-2.0
 *
 * TLS by GnuTLS, whose functions are declared here as its manual has them, so
 * that no header of it is needed to build.
 */
#include "core/base/tls.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "core/base/err.h"
#include "core/base/library.h"

#define RECORD 16384u   /* the most bytes that TLS encrypts at once */
#define VERSION "3.6.5" /* TLS 1.3 with keys that are shared */

/* The library's numbers that are used here. */
enum {
    IS_SERVER = 1,
    IS_CLIENT = 1 << 1,
    NEVER_BLOCKS = 1 << 3,
    NO_TICKETS = 1 << 10, /* nothing is sent but the handshake and data */
    CREDENTIALS_PSK = 4,
    E_FATAL_ALERT = -12,
    E_WARNING_ALERT = -16,
    E_AGAIN = -28,
    E_INTERRUPTED = -52,
    E_PUSH = -53,
    E_PULL = -54,
    E_ENDED = -110
};

/* ECDHE with a key that is shared, and nothing older. SHA-256 is the hash of
 * such a key, so these are all ciphers that it serves. */
static const char priority[] = "NONE:+VERS-TLS1.3:+ECDHE-PSK:+AES-128-GCM:"
                               "+CHACHA20-POLY1305:+AEAD:+SIGN-ALL:"
                               "+GROUP-X25519:+GROUP-SECP256R1:+COMP-NULL";

typedef struct datum {
    unsigned char *data;
    unsigned int size;
} datum;

typedef struct functions {
    const char *(*check_version)(const char *least);
    int (*init)(void **session, unsigned int flags);
    void (*deinit)(void *session);
    int (*set_priority)(void *session, const char *text, const char **wrong);
    int (*set_credentials)(void *session, int kind, void *credentials);
    int (*new_client)(void **credentials);
    void (*free_client)(void *credentials);
    int (*set_client)(void *credentials, const char *identity, const datum *key,
                      int flags);
    int (*new_server)(void **credentials);
    void (*free_server)(void *credentials);
    void (*set_server)(void *credentials,
                       int (*find)(void *session, const char *identity,
                                   datum *key));
    void (*set_owner)(void *session, void *owner);
    void *(*get_owner)(void *session);
    void (*set_transport)(void *session, void *transport);
    void (*set_push)(void *session,
                     ssize_t (*push)(void *transport, const struct iovec *piece,
                                     int count));
    void (*set_pull)(void *session,
                     ssize_t (*pull)(void *transport, void *out, size_t size));
    void (*set_errno)(void *session, int number);
    int (*handshake)(void *session);
    ssize_t (*send)(void *session, const void *data, size_t size);
    ssize_t (*recv)(void *session, void *data, size_t size);
    size_t (*pending)(void *session);
    const char *(*describe)(int error);
    int (*send_alert)(void *session, int error);
    int (*get_alert)(void *session);
    const char *(*name_alert)(int alert);
    void *(**allocate)(size_t size); /* a variable of the library */
} functions;

static const char *const names[] = {
    "gnutls_check_version",
    "gnutls_init",
    "gnutls_deinit",
    "gnutls_priority_set_direct",
    "gnutls_credentials_set",
    "gnutls_psk_allocate_client_credentials",
    "gnutls_psk_free_client_credentials",
    "gnutls_psk_set_client_credentials",
    "gnutls_psk_allocate_server_credentials",
    "gnutls_psk_free_server_credentials",
    "gnutls_psk_set_server_credentials_function",
    "gnutls_session_set_ptr",
    "gnutls_session_get_ptr",
    "gnutls_transport_set_ptr",
    "gnutls_transport_set_vec_push_function",
    "gnutls_transport_set_pull_function",
    "gnutls_transport_set_errno",
    "gnutls_handshake",
    "gnutls_record_send",
    "gnutls_record_recv",
    "gnutls_record_check_pending",
    "gnutls_strerror",
    "gnutls_alert_send_appropriate",
    "gnutls_alert_get",
    "gnutls_alert_get_name",
    "gnutls_malloc",
};
#define NAMES (sizeof names / sizeof *names)
_Static_assert(sizeof(functions) == NAMES * sizeof(void *),
               "each function has a name");

struct xr_tls {
    functions f;
    /* Held by every call of the library that uses the session. */
    pthread_mutex_t lock;
    void *session;
    void *client; /* credentials; NULL on the other side */
    void *server;
    xr_tls_find *find;
    void *ctx;
    uint64_t left; /* bytes that may still be read */
    int fd;
    int dry; /* the socket had nothing more to read */
    int why; /* the error of the socket */
    int owes;
    char text[160];
    unsigned char record[RECORD];
};

/* ---- the library --------------------------------------------------------- */

static int find_functions(functions *out)
{
    void *symbols[NAMES];
    int found = xr_library_find("libgnutls.so.30", names, NAMES, symbols) ||
                xr_library_find("libgnutls.so", names, NAMES, symbols);
    if (found)
        memcpy(out, symbols, sizeof symbols);
    return found && out->check_version(VERSION);
}

int xr_tls_is_there(void)
{
    functions f;
    return find_functions(&f);
}

/* ---- the socket ---------------------------------------------------------- */

static ssize_t push_bytes(void *transport, const struct iovec *pieces,
                          int count)
{
    xr_tls *tls = transport;
    const union {
        const struct iovec *constant;
        struct iovec *plain; /* as POSIX declares what it does not write */
    } from = { .constant = pieces };
    const struct msghdr message = { .msg_iov = from.plain,
                                    .msg_iovlen = (size_t)count };
    ssize_t n = sendmsg(tls->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) {
        tls->why = errno;
        tls->f.set_errno(tls->session, tls->why);
    }
    return n;
}

static ssize_t pull_bytes(void *transport, void *out, size_t size)
{
    xr_tls *tls = transport;
    if (size > tls->left)
        size = (size_t)tls->left;
    ssize_t n = size ? recv(tls->fd, out, size, MSG_DONTWAIT) : -1;
    if (n < 0) {
        tls->why = size ? errno : EPROTO;
        tls->dry = tls->why == EAGAIN;
        tls->f.set_errno(tls->session, tls->why);
        return n;
    }
    if (tls->left != UINT64_MAX)
        tls->left -= (uint64_t)n;
    return n;
}

/* ---- opening ------------------------------------------------------------- */

/* For the library, which frees the key. */
static int find_key(void *session, const char *identity, datum *out)
{
    functions f; /* found once more, since nothing here points at the table */
    if (!find_functions(&f))
        return -1;
    const xr_tls *tls = f.get_owner(session);
    unsigned char key[XR_TLS_KEY];
    if (!tls->find(tls->ctx, identity, key))
        return -1;
    out->data = (*f.allocate)(sizeof(key));
    if (!out->data)
        return -1;
    memcpy(out->data, key, sizeof(key));
    out->size = sizeof(key);
    return 0;
}

static xr_tls *open_session(int fd, unsigned int flags)
{
    xr_tls *tls = calloc(1, sizeof(*tls));
    if (!tls)
        return NULL;
    if (!find_functions(&tls->f) || pthread_mutex_init(&tls->lock, NULL)) {
        free(tls);
        return NULL;
    }
    tls->fd = fd;
    tls->left = UINT64_MAX;
    const functions *f = &tls->f;
    if (f->init(&tls->session, flags | NEVER_BLOCKS | NO_TICKETS) < 0 ||
        f->set_priority(tls->session, priority, NULL) < 0) {
        xr_tls_free(tls);
        return NULL;
    }
    f->set_owner(tls->session, tls);
    f->set_transport(tls->session, tls);
    f->set_push(tls->session, push_bytes);
    f->set_pull(tls->session, pull_bytes);
    return tls;
}

xr_tls *xr_tls_client(int fd, const char *identity, const unsigned char *key)
{
    unsigned char bytes[XR_TLS_KEY];
    const datum shared = { bytes, sizeof(bytes) };
    xr_tls *tls = open_session(fd, IS_CLIENT);
    if (!tls)
        return NULL;
    memcpy(bytes, key, sizeof(bytes));
    if (tls->f.new_client(&tls->client) >= 0 &&
        tls->f.set_client(tls->client, identity, &shared, 0) >= 0 &&
        tls->f.set_credentials(tls->session, CREDENTIALS_PSK, tls->client) >= 0)
        return tls;
    xr_tls_free(tls);
    return NULL;
}

xr_tls *xr_tls_server(int fd, uint64_t most, xr_tls_find *find, void *ctx)
{
    xr_tls *tls = open_session(fd, IS_SERVER);
    if (!tls)
        return NULL;
    tls->left = most;
    tls->find = find;
    tls->ctx = ctx;
    if (tls->f.new_server(&tls->server) < 0 ||
        tls->f.set_credentials(tls->session, CREDENTIALS_PSK, tls->server) <
            0) {
        xr_tls_free(tls);
        return NULL;
    }
    tls->f.set_server(tls->server, find_key);
    return tls;
}

void xr_tls_free(xr_tls *tls)
{
    if (!tls)
        return;
    if (tls->session)
        tls->f.deinit(tls->session);
    if (tls->client)
        tls->f.free_client(tls->client);
    if (tls->server)
        tls->f.free_server(tls->server);
    (void)pthread_mutex_destroy(&tls->lock);
    free(tls);
}

/* ---- the handshake ------------------------------------------------------- */

/* Keeps the reason, and tells it the other side. */
static int fail_handshake(xr_tls *tls, int error)
{
    const functions *f = &tls->f;
    const char *why = f->describe(error);
    const char *name = NULL;
    if (error == E_FATAL_ALERT) {
        why = "the other side refused it";
        name = f->name_alert(f->get_alert(tls->session));
    } else if (error == E_PULL && tls->why == EPROTO) {
        why = "it is longer than any between two Workhorses";
    }
    (void)snprintf(tls->text, sizeof(tls->text), "%s%s%s%s", why,
                   name ? " (" : "", name ? name : "", name ? ")" : "");
    xr_one_line(tls->text);
    if (error == E_ENDED || (error == E_PULL && tls->why == ECONNRESET))
        return EPIPE;
    if (error != E_FATAL_ALERT)
        (void)f->send_alert(tls->session, error);
    return EPROTO;
}

int xr_tls_greet(xr_tls *tls)
{
    (void)pthread_mutex_lock(&tls->lock);
    int error = tls->f.handshake(tls->session);
    while (error == E_INTERRUPTED)
        error = tls->f.handshake(tls->session);
    int bad = error == E_AGAIN ? EAGAIN : 0;
    if (error < 0 && !bad)
        bad = fail_handshake(tls, error);
    (void)pthread_mutex_unlock(&tls->lock);
    return bad;
}

const char *xr_tls_why(const xr_tls *tls)
{
    return tls->text;
}

void xr_tls_admit(xr_tls *tls)
{
    tls->left = UINT64_MAX;
}

/* ---- data ---------------------------------------------------------------- */

/* The bytes of the next record: those of the first piece where it fills one,
 * else a copy, so that a header goes with its payload. */
static const void *gather_record(xr_tls *tls, const struct iovec *pieces,
                                 int count, size_t *out_size)
{
    size_t size = 0;
    if (count == 1 || pieces[0].iov_len >= RECORD) {
        *out_size = pieces[0].iov_len < RECORD ? pieces[0].iov_len : RECORD;
        return pieces[0].iov_base;
    }
    for (int i = 0; i < count && size < RECORD; i++) {
        const size_t room = RECORD - size;
        const size_t more = pieces[i].iov_len < room ? pieces[i].iov_len : room;
        if (more)
            memcpy(tls->record + size, pieces[i].iov_base, more);
        size += more;
    }
    *out_size = size;
    return tls->record;
}

/* Translates what sending gave into 0, EAGAIN or another errno. */
static int note_sent(xr_tls *tls, ssize_t n)
{
    tls->owes = n == E_AGAIN || n == E_INTERRUPTED;
    if (n >= 0)
        return 0;
    if (tls->owes)
        return EAGAIN;
    return n == E_PUSH ? tls->why : EPIPE;
}

/* The library keeps the record that it could not send, and asks for it by no
 * data. */
static int flush_record(xr_tls *tls)
{
    return tls->owes ? note_sent(tls, tls->f.send(tls->session, NULL, 0)) : 0;
}

ssize_t xr_tls_send(xr_tls *tls, const struct iovec *pieces, int count)
{
    ssize_t n = -1;
    (void)pthread_mutex_lock(&tls->lock);
    int bad = flush_record(tls);
    if (!bad) {
        size_t size = 0;
        const void *data = gather_record(tls, pieces, count, &size);
        n = tls->f.send(tls->session, data, size);
        bad = note_sent(tls, n);
        if (bad == EAGAIN) { /* it is encrypted, and waits for the socket */
            bad = 0;
            n = (ssize_t)size;
        }
    }
    (void)pthread_mutex_unlock(&tls->lock);
    errno = bad;
    return bad ? -1 : n;
}

int xr_tls_flush(xr_tls *tls)
{
    (void)pthread_mutex_lock(&tls->lock);
    int bad = flush_record(tls);
    (void)pthread_mutex_unlock(&tls->lock);
    return bad;
}

int xr_tls_owes(xr_tls *tls)
{
    if (!tls)
        return 0;
    (void)pthread_mutex_lock(&tls->lock);
    const int owes = tls->owes;
    (void)pthread_mutex_unlock(&tls->lock);
    return owes;
}

/* 0 at the end, -1 with an errno. */
static ssize_t describe_receipt(const xr_tls *tls, ssize_t n)
{
    if (n >= 0)
        return n;
    if (n == E_ENDED)
        return 0;
    errno = n == E_AGAIN ? EAGAIN : n == E_PULL ? tls->why : EBADMSG;
    return -1;
}

ssize_t xr_tls_recv(xr_tls *tls, void *out, size_t size)
{
    ssize_t n = E_AGAIN;
    (void)pthread_mutex_lock(&tls->lock);
    /* A record without data, such as a change of keys, is no reason to wait. */
    tls->dry = 0;
    for (int i = 0; i < 8 && !tls->dry; i++) {
        n = tls->f.recv(tls->session, out, size);
        if (n != E_AGAIN && n != E_INTERRUPTED && n != E_WARNING_ALERT)
            break;
    }
    n = describe_receipt(
        tls, n == E_INTERRUPTED || n == E_WARNING_ALERT ? E_AGAIN : n);
    (void)pthread_mutex_unlock(&tls->lock);
    return n;
}

int xr_tls_holds(xr_tls *tls)
{
    if (!tls)
        return 0;
    (void)pthread_mutex_lock(&tls->lock);
    const int holds = tls->f.pending(tls->session) > 0;
    (void)pthread_mutex_unlock(&tls->lock);
    return holds;
}
