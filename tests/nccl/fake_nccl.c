/* SPDX-License-Identifier: Apache-2.0
 *
 * A fake NCCL among the processes or threads of one host, over memory that they
 * share. Every operation consists of messages between two ranks, which the
 * thread of its stream carries. As with the real one, a rank that never arrives
 * keeps the streams of the others busy until they abort.
 */
#define _GNU_SOURCE
#include "tests/nccl/fake_internal.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "plugins/comm-nccl/nccl_api.h"

#define MOST 8
#define ROOM 262144u /* bytes in transit between two ranks */

typedef struct wire {
    _Alignas(64) _Atomic uint64_t put;
    _Alignas(64) _Atomic uint64_t got;
    char bytes[ROOM];
} wire;

typedef struct shared {
    _Atomic uint32_t come;
    wire wires[MOST][MOST]; /* sender, receiver */
} shared;

typedef struct comm {
    shared *all;
    int size;
    int rank;
    _Atomic int aborted;
    _Atomic int busy;   /* number of operations on streams */
    _Atomic int inside; /* number of threads in a function of NCCL */
    _Atomic int slow;   /* looks for which the last operation is in progress */
} comm;

/* One message, or a part of it. */
typedef struct message {
    comm *comm;
    char *buf;
    size_t bytes;
    size_t at;
    int peer;
    int sends;
} message;

/* The work of one operation, or of a group of operations, on a stream. */
typedef struct work {
    comm *comm;
    message *messages;
    size_t count;
    char *parts; /* [size][bytes] of a sum or maximum, or NULL */
    void *sum_out;
    size_t sum_count;
    size_t first; /* offset of this rank's share in elements */
    int type;
    int op;
} work;

static _Atomic unsigned aborted_count;
static _Atomic unsigned live_count;
static _Atomic unsigned asked_count;
static _Atomic unsigned interrupted_count;

void fake_pause(void)
{
    struct timespec t = { 0, 20000 };
    (void)nanosleep(&t, NULL);
}

FAKE_API unsigned fake_aborted(void)
{
    return atomic_load(&aborted_count);
}

FAKE_API unsigned fake_live(void)
{
    return atomic_load(&live_count);
}

FAKE_API unsigned fake_asked(void)
{
    return atomic_load(&asked_count);
}

FAKE_API unsigned fake_interrupted(void)
{
    return atomic_load(&interrupted_count);
}

/* ---- one thread at a time ----------------------------------------------- */

static void enter_comm(comm *c)
{
    if (atomic_fetch_add(&c->inside, 1) == 0)
        return;
    (void)fprintf(stderr, "fake nccl: two threads use a communicator\n");
    (void)raise(SIGABRT);
}

static int leave_comm(comm *c, int result)
{
    atomic_fetch_sub(&c->inside, 1);
    return result;
}

/* Begins an operation; unlike NCCL's of communicators that do not block, it may
 * be stuck here until somebody aborts it. Returns 0 then. */
static int begin_operation(comm *c)
{
    enter_comm(c);
    while (fake_code(FAKE_STUCK) && !atomic_load(&c->aborted))
        fake_pause();
    struct timespec t = { 0, fake_code(FAKE_LONG) * 1000000L };
    (void)nanosleep(&t, NULL);
    return !atomic_load(&c->aborted);
}

static int end_operation(comm *c)
{
    int slow = fake_code(FAKE_SLOW);
    atomic_store(&c->slow, slow);
    return leave_comm(c, slow ? NCCL_IN_PROGRESS : NCCL_SUCCESS);
}

/* ---- transfers
 * --------------------------------------------------------------- */

/* Moves as many bytes as possible; returns 1 if there were any. */
static int advance_message(message *m)
{
    comm *c = m->comm;
    wire *p = m->sends ? &c->all->wires[c->rank][m->peer]
                       : &c->all->wires[m->peer][c->rank];
    uint64_t put = atomic_load(&p->put);
    uint64_t got = atomic_load(&p->got);
    uint64_t at = m->sends ? put : got;
    uint64_t n = m->sends ? ROOM - (put - got) : put - got;
    if (n > m->bytes - m->at)
        n = m->bytes - m->at;
    if (n > ROOM - at % ROOM)
        n = ROOM - at % ROOM;
    if (n == 0)
        return 0;
    if (m->sends)
        memcpy(p->bytes + at % ROOM, m->buf + m->at, n);
    else
        memcpy(m->buf + m->at, p->bytes + at % ROOM, n);
    atomic_fetch_add(m->sends ? &p->put : &p->got, n);
    m->at += n;
    return 1;
}

static int is_blocked(const work *w, size_t i)
{
    /* Messages between the same two ranks keep their order. */
    for (size_t k = 0; k < i; k++)
        if (w->messages[k].peer == w->messages[i].peer &&
            w->messages[k].sends == w->messages[i].sends &&
            w->messages[k].at < w->messages[k].bytes)
            return 1;
    return 0;
}

static float widen_bf16(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

static uint16_t narrow_to_bf16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, 4);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* As in NCCL, each partial sum has the buffer's type, and the order is that of
 * a ring, which begins after this rank: not the rank order. */
static void add_parts(const work *w)
{
    const comm *c = w->comm;
    for (size_t i = 0; i < w->sum_count; i++) {
        float f = 0.0f;
        for (int k = 0; k < c->size; k++) {
            size_t at = (size_t)((k + 1) % c->size) * w->sum_count + i;
            float x = w->type == NCCL_FLOAT32
                          ? ((float *)(void *)w->parts)[at]
                          : widen_bf16(((uint16_t *)(void *)w->parts)[at]);
            if (w->op == NCCL_MAX)
                f = k ? fmaxf(f, x) : x;
            else
                f = k ? f + x : x;
            if (w->type == NCCL_BFLOAT16)
                f = widen_bf16(narrow_to_bf16(f));
        }
        if (w->type == NCCL_FLOAT32)
            ((float *)w->sum_out)[i] = f;
        else
            ((uint16_t *)w->sum_out)[i] = narrow_to_bf16(f);
    }
}

static void perform_work(void *arg)
{
    work *w = arg;
    size_t left = w->count;
    while (left && !atomic_load(&w->comm->aborted)) {
        int moved = 0;
        left = 0;
        for (size_t i = 0; i < w->count; i++) {
            message *m = &w->messages[i];
            if (m->at < m->bytes && !is_blocked(w, i))
                moved |= advance_message(m);
            left += m->at < m->bytes;
        }
        if (!moved && left)
            fake_pause();
    }
    if (w->parts && !left)
        add_parts(w);
    free(w->parts);
    free(w->messages);
    atomic_fetch_sub(&w->comm->busy, 1);
}

static void submit_work(const work *w, void *stream)
{
    atomic_fetch_add(&w->comm->busy, 1);
    fake_stream_call(stream, perform_work, w, sizeof(*w));
}

static void add_message(work *w, int sends, const void *buf, size_t bytes,
                        int peer)
{
    w->messages = realloc(w->messages, (w->count + 1) * sizeof(message));
    message m = { .comm = w->comm, .bytes = bytes, .peer = peer };
    memcpy(&m.buf, &buf, sizeof(buf));
    m.sends = sends;
    w->messages[w->count++] = m;
}

/* ---- groups of sends and receives --------------------------------------- */

static _Thread_local int depth;
static _Thread_local work pending;
static _Thread_local void *pending_stream;

FAKE_API int ncclGroupStart(void)
{
    depth++;
    return NCCL_SUCCESS;
}

FAKE_API int ncclGroupEnd(void)
{
    if (--depth || !pending.comm)
        return NCCL_SUCCESS;
    comm *c = pending.comm;
    int going = begin_operation(c);
    if (going)
        submit_work(&pending, pending_stream);
    else
        free(pending.messages);
    pending = (work){ 0 };
    if (!going)
        return leave_comm(c, 6);
    (void)end_operation(c);
    return NCCL_IN_PROGRESS; /* as communicators that do not block */
}

static int post_message(int sends, const void *buf, size_t bytes, int type,
                        int peer, void *comm_, void *stream)
{
    work alone = { .comm = comm_ };
    if (type != NCCL_INT8)
        return 4;
    if (!depth) {
        if (!begin_operation(comm_))
            return leave_comm(comm_, 6);
        add_message(&alone, sends, buf, bytes, peer);
        submit_work(&alone, stream);
        return end_operation(comm_);
    }
    pending.comm = comm_;
    pending_stream = stream;
    add_message(&pending, sends, buf, bytes, peer);
    return NCCL_SUCCESS;
}

FAKE_API int ncclSend(const void *buf, size_t count, int type, int peer,
                      void *comm_, void *stream)
{
    if (fake_code(FAKE_SEND))
        return fake_code(FAKE_SEND);
    return post_message(1, buf, count, type, peer, comm_, stream);
}

FAKE_API int ncclRecv(void *buf, size_t count, int type, int peer, void *comm_,
                      void *stream)
{
    return post_message(0, buf, count, type, peer, comm_, stream);
}

/* ---- collectives -------------------------------------------------------- */

static size_t element_width(int type)
{
    return type == NCCL_FLOAT32 ? 4 : type == NCCL_BFLOAT16 ? 2 : 1;
}

typedef struct moved {
    void *to;
    const void *from;
    size_t bytes;
} moved;

static void copy_block(void *arg)
{
    moved *m = arg;
    if (m->to != m->from)
        memmove(m->to, m->from, m->bytes);
}

static void enqueue_copy(void *to, const void *from, size_t bytes, void *stream)
{
    moved m = { to, from, bytes };
    fake_stream_call(stream, copy_block, &m, sizeof(m));
}

/* Rank r receives all ranks' parts at `in` + r * stride, then joins them. */
static int reduce_parts(const char *in, void *out, size_t count, size_t stride,
                        int type, int op, comm *c, void *stream)
{
    size_t bytes = count * element_width(type);
    work w = { .comm = c, .type = type, .op = op };
    if (op != NCCL_SUM && op != NCCL_MAX)
        return 4;
    if (!begin_operation(c))
        return leave_comm(c, 6);
    w.sum_out = out;
    w.sum_count = count;
    w.parts = malloc(bytes * (size_t)c->size);
    for (int r = 0; r < c->size; r++) {
        char *part = w.parts + bytes * (size_t)r;
        if (r == c->rank) {
            enqueue_copy(part, in + stride * (size_t)r, bytes, stream);
            continue;
        }
        add_message(&w, 1, in + stride * (size_t)r, bytes, r);
        add_message(&w, 0, part, bytes, r);
    }
    submit_work(&w, stream);
    return end_operation(c);
}

FAKE_API int ncclAllReduce(const void *in, void *out, size_t count, int type,
                           int op, void *comm_, void *stream)
{
    return reduce_parts(in, out, count, 0, type, op, comm_, stream);
}

FAKE_API int ncclReduceScatter(const void *in, void *out, size_t count,
                               int type, int op, void *comm_, void *stream)
{
    return reduce_parts(in, out, count, count * element_width(type), type, op,
                        comm_, stream);
}

FAKE_API int ncclAllGather(const void *in, void *out, size_t count, int type,
                           void *comm_, void *stream)
{
    comm *c = comm_;
    work w = { .comm = c };
    size_t bytes = count * element_width(type);
    char *to = out;
    if (!begin_operation(c))
        return leave_comm(c, 6);
    enqueue_copy(to + bytes * (size_t)c->rank, in, bytes, stream);
    for (int r = 0; r < c->size; r++) {
        if (r == c->rank)
            continue;
        add_message(&w, 1, to + bytes * (size_t)c->rank, bytes, r);
        add_message(&w, 0, to + bytes * (size_t)r, bytes, r);
    }
    submit_work(&w, stream);
    return end_operation(c);
}

FAKE_API int ncclBroadcast(const void *in, void *out, size_t count, int type,
                           int root, void *comm_, void *stream)
{
    comm *c = comm_;
    work w = { .comm = c };
    if (fake_code(FAKE_CALL))
        return fake_code(FAKE_CALL);
    if (!begin_operation(c))
        return leave_comm(c, 6);
    for (int r = 0; c->rank == root && r < c->size; r++)
        if (r != root)
            add_message(&w, 1, in, count * element_width(type), r);
    if (c->rank != root)
        add_message(&w, 0, out, count * element_width(type), root);
    submit_work(&w, stream);
    return end_operation(c);
}

/* ---- communicators ------------------------------------------------------ */

/* XRAY_FAKE_VERSION is that of one host. */
FAKE_API int ncclGetVersion(int *out)
{
    const char *set = getenv("XRAY_FAKE_VERSION");
    *out = fake_code(FAKE_VERSION) ? fake_code(FAKE_VERSION)
           : set                   ? (int)strtol(set, NULL, 10)
                                   : 22809;
    return NCCL_SUCCESS;
}

/* The id names an unlinked file by the descriptor of the process that created
 * it. */
FAKE_API int ncclGetUniqueId(nccl_id *out)
{
    if (fake_code(FAKE_UNIQUE))
        return fake_code(FAKE_UNIQUE);
    int fd = memfd_create("fake-nccl", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, sizeof(shared)) != 0)
        return 2;
    memset(out, 0, sizeof(*out));
    (void)snprintf(out->bytes, sizeof(out->bytes), "/proc/%d/fd/%d",
                   (int)getpid(), fd);
    return NCCL_SUCCESS;
}

FAKE_API int ncclCommInitRankConfig(void **out, int ranks, nccl_id id, int rank,
                                    nccl_settings *settings)
{
    if (fake_code(FAKE_INIT))
        return fake_code(FAKE_INIT);
    if (settings->magic != 0xcafebeefu || settings->blocking != 0 ||
        ranks > MOST)
        return 4;
    int fd = open(id.bytes, O_RDWR | O_CLOEXEC);
    void *all = fd < 0 ? MAP_FAILED
                       : mmap(NULL, sizeof(shared), PROT_READ | PROT_WRITE,
                              MAP_SHARED, fd, 0);
    if (fd >= 0)
        (void)close(fd);
    comm *c = calloc(1, sizeof(*c));
    if (all == MAP_FAILED || !c) {
        free(c);
        return 2;
    }
    c->all = all;
    c->size = ranks;
    c->rank = rank;
    if (!fake_code(FAKE_ABSENT))
        atomic_fetch_add(&c->all->come, 1);
    atomic_fetch_add(&live_count, 1);
    *out = c;
    return NCCL_IN_PROGRESS;
}

FAKE_API int ncclCommGetAsyncError(void *comm_, int *out)
{
    comm *c = comm_;
    enter_comm(c);
    atomic_fetch_add(&asked_count, 1);
    int late = (int)atomic_load(&c->all->come) < c->size;
    int slow = atomic_load(&c->slow);
    if (slow)
        atomic_store(&c->slow, slow - 1);
    *out = late || slow ? NCCL_IN_PROGRESS : fake_code(FAKE_ASYNC);
    return leave_comm(c, NCCL_SUCCESS);
}

FAKE_API const char *ncclGetErrorString(int result)
{
    return result == 2   ? "unhandled system error"
           : result == 5 ? "invalid usage"
           : result == 6 ? "remote process exited or there was a network error"
                         : "some result";
}

FAKE_API const char *ncclGetLastError(void *comm_)
{
    (void)comm_;
    return "socket closed by peer";
}

static void drop_comm(comm *c)
{
    while (atomic_load(&c->busy))
        fake_pause();
    (void)munmap(c->all, sizeof(shared));
    free(c);
    atomic_fetch_sub(&live_count, 1);
}

FAKE_API int ncclCommFinalize(void *comm_)
{
    (void)comm_;
    return NCCL_SUCCESS;
}

FAKE_API int ncclCommDestroy(void *comm_)
{
    drop_comm(comm_);
    return NCCL_SUCCESS;
}

FAKE_API int ncclCommAbort(void *comm_)
{
    comm *c = comm_;
    atomic_store(&c->aborted, 1);
    atomic_fetch_add(&interrupted_count, atomic_load(&c->inside) != 0);
    atomic_fetch_add(&aborted_count, 1);
    while (atomic_load(&c->inside))
        fake_pause();
    drop_comm(c);
    return NCCL_SUCCESS;
}
