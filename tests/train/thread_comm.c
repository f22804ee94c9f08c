/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements collectives among threads over pointers to one another's buffers.
 */
#include "tests/train/thread_comm.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PATIENCE 30 /* seconds */

struct xray_comm_group {
    thread_comm *m;
    uint32_t rank;
    uint64_t received;
    thread_comm_traffic made;
};

/* A group that ranks have made of some of them. */
typedef struct made_group {
    struct made_group *next;
    thread_comm *m;
    uint32_t ranks[THREAD_COMM_MAX];
    uint32_t count;
    uint32_t taken; /* bit r: rank r of the list has it */
} made_group;

struct thread_comm {
    made_group *groups;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    uint32_t size;
    uint32_t here;
    uint64_t round;
    int broken;
    const float *in[THREAD_COMM_MAX];
    /* [to] [from]; NULL: none */
    const void *mail[THREAD_COMM_MAX][THREAD_COMM_MAX];
    uint64_t count[THREAD_COMM_MAX];
    struct xray_comm_group ranks[THREAD_COMM_MAX];
};

thread_comm *thread_comm_open(uint32_t size)
{
    thread_comm *m = calloc(1, sizeof(*m));
    if (!m)
        return NULL;
    m->size = size;
    (void)pthread_mutex_init(&m->mutex, NULL);
    (void)pthread_cond_init(&m->cond, NULL);
    for (uint32_t r = 0; r < size; r++)
        m->ranks[r] = (struct xray_comm_group){ .m = m, .rank = r };
    return m;
}

void thread_comm_close(thread_comm *m)
{
    while (m->groups) {
        made_group *g = m->groups;
        m->groups = g->next;
        thread_comm_close(g->m);
        free(g);
    }
    (void)pthread_cond_destroy(&m->cond);
    (void)pthread_mutex_destroy(&m->mutex);
    free(m);
}

void *thread_comm_self(thread_comm *m, uint32_t rank)
{
    return &m->ranks[rank];
}

xray_comm_group *thread_comm_group(thread_comm *m, uint32_t rank)
{
    return &m->ranks[rank];
}

void thread_comm_leave(void *self)
{
    thread_comm *m = ((xray_comm_group *)self)->m;
    (void)pthread_mutex_lock(&m->mutex);
    m->broken = 1;
    (void)pthread_cond_broadcast(&m->cond);
    (void)pthread_mutex_unlock(&m->mutex);
}

static int has_ranks(const made_group *g, const uint32_t *ranks, uint32_t count)
{
    return g->count == count &&
           memcmp(g->ranks, ranks, count * sizeof(*ranks)) == 0;
}

const thread_comm *thread_comm_find(thread_comm *m, const uint32_t *ranks,
                                    uint32_t count)
{
    const made_group *g = m->groups;
    while (g && !has_ranks(g, ranks, count))
        g = g->next;
    return g ? g->m : NULL;
}

static made_group *add_group(thread_comm *m, const uint32_t *ranks,
                             uint32_t count)
{
    made_group *g = calloc(1, sizeof(*g));
    made_group **end = &m->groups;
    if (!g)
        return NULL;
    *g = (made_group){ .m = thread_comm_open(count), .count = count };
    memcpy(g->ranks, ranks, count * sizeof(*ranks));
    while (*end)
        end = &(*end)->next;
    *end = g;
    return g;
}

/* The ranks of a list meet in one group; given again it makes another one. */
static xray_status thread_group(void *self, const uint32_t *ranks,
                                uint32_t count, xray_comm_group **out)
{
    thread_comm *m = ((xray_comm_group *)self)->m;
    uint32_t at = 0;
    while (ranks[at] != ((xray_comm_group *)self)->rank)
        at++;
    (void)pthread_mutex_lock(&m->mutex);
    made_group *g = m->groups;
    while (g && (!has_ranks(g, ranks, count) || g->taken >> at & 1))
        g = g->next;
    if (!g)
        g = add_group(m, ranks, count);
    if (g) {
        g->taken |= 1u << at;
        *out = thread_comm_group(g->m, at);
    }
    (void)pthread_mutex_unlock(&m->mutex);
    return g ? XRAY_OK : XRAY_E_NOMEM;
}

static struct timespec end_of_patience(void)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE;
    return until;
}

/* Waits for all ranks. */
static xray_status wait_for_all(thread_comm *m)
{
    struct timespec until = end_of_patience();
    xray_status status = XRAY_OK;
    (void)pthread_mutex_lock(&m->mutex);
    uint64_t round = m->round;
    if (++m->here == m->size) {
        m->here = 0;
        m->round++;
        (void)pthread_cond_broadcast(&m->cond);
    }
    while (!m->broken && round == m->round)
        if (pthread_cond_timedwait(&m->cond, &m->mutex, &until) != 0)
            m->broken = 1;
    if (m->broken) {
        (void)pthread_cond_broadcast(&m->cond);
        status = XRAY_E_PEER;
    }
    (void)pthread_mutex_unlock(&m->mutex);
    return status;
}

xray_status thread_comm_gather(void *ctx, const void *mine, uint64_t size,
                               void *all)
{
    struct xray_comm_group *g = ctx;
    thread_comm *m = g->m;
    m->in[g->rank] = mine;
    xray_status status = wait_for_all(m);
    for (uint32_t r = 0; status == XRAY_OK && r < m->size; r++)
        memcpy((char *)all + r * size, m->in[r], size);
    return status == XRAY_OK ? wait_for_all(m) : status;
}

/* Publishes this rank's input to the others; all inputs must have the same
 * size. */
static xray_status share_input(xray_comm_group *g, const void *in,
                               uint64_t count)
{
    thread_comm *m = g->m;
    m->in[g->rank] = in;
    m->count[g->rank] = count;
    xray_status status = wait_for_all(m);
    for (uint32_t r = 0; status == XRAY_OK && r < m->size; r++)
        if (m->count[r] != count)
            status = XRAY_E_PEER;
    return status;
}

/* Sums element i of ranks first .. first + n - 1. */
static float sum_ranks(const thread_comm *m, uint64_t i, uint32_t first,
                       uint32_t n)
{
    if (n == 1)
        return m->in[first][i];
    uint32_t left = xray_comm_left(n);
    float sum = sum_ranks(m, i, first, left);
    return sum + sum_ranks(m, i, first + left, n - left);
}

/* Sets out[i] to the sum of all inputs' element first + i. */
static void sum_inputs(const thread_comm *m, uint64_t first, uint64_t count,
                       float *out)
{
    for (uint64_t i = 0; i < count; i++)
        out[i] = sum_ranks(m, first + i, 0, m->size);
}

static void compare_inputs(const thread_comm *m, uint64_t first, uint64_t count,
                           float *out)
{
    for (uint64_t i = 0; i < count; i++) {
        out[i] = m->in[0][first + i];
        for (uint32_t r = 1; r < m->size; r++)
            out[i] = fmaxf(out[i], m->in[r][first + i]);
    }
}

static void add_call(thread_comm_calls *made, uint64_t floats)
{
    made->calls++;
    made->floats += floats;
}

/* Replaces every rank's `buf` by what `join` makes of all of them. */
static xray_status reduce_all(xray_comm_group *g, void *buf, uint64_t count,
                              void (*join)(const thread_comm *m, uint64_t first,
                                           uint64_t count, float *out),
                              thread_comm_calls *made)
{
    float *own = malloc(count * sizeof(float));
    xray_status status = own ? share_input(g, buf, count) : XRAY_E_NOMEM;
    if (status == XRAY_OK)
        join(g->m, 0, count, own);
    if (status == XRAY_OK)
        status = wait_for_all(g->m);
    if (status == XRAY_OK)
        memcpy(buf, own, count * sizeof(float));
    g->received += 2 * (g->m->size - 1) * (count / g->m->size) * sizeof(float);
    add_call(made, count);
    free(own);
    return status;
}

static xray_status thread_all_reduce(xray_comm_group *g, xray_stream *stream,
                                     void *buf, uint64_t count, uint32_t dtype)
{
    (void)stream;
    (void)dtype;
    return reduce_all(g, buf, count, sum_inputs, &g->made.all_reduce);
}

static xray_status thread_all_reduce_max(xray_comm_group *g,
                                         xray_stream *stream, void *buf,
                                         uint64_t count, uint32_t dtype)
{
    (void)stream;
    (void)dtype;
    return reduce_all(g, buf, count, compare_inputs, &g->made.all_reduce_max);
}

static xray_status thread_reduce_scatter(xray_comm_group *g,
                                         xray_stream *stream, const void *in,
                                         void *out, uint64_t count,
                                         uint32_t dtype)
{
    (void)stream;
    (void)dtype;
    float *own = malloc(count * sizeof(float));
    xray_status status = own ? share_input(g, in, count) : XRAY_E_NOMEM;
    if (status == XRAY_OK)
        sum_inputs(g->m, g->rank * count, count, own);
    if (status == XRAY_OK)
        status = wait_for_all(g->m);
    if (status == XRAY_OK)
        memcpy(out, own, count * sizeof(float));
    g->received += (g->m->size - 1) * count * sizeof(float);
    add_call(&g->made.reduce_scatter, g->m->size * count);
    free(own);
    return status;
}

static xray_status thread_all_gather(xray_comm_group *g, xray_stream *stream,
                                     const void *in, void *out, uint64_t count,
                                     uint32_t dtype)
{
    size_t bytes = count * (dtype == XRAY_BF16 ? 2 : sizeof(float));
    (void)stream;
    xray_status status = share_input(g, in, count);
    for (uint32_t r = 0; status == XRAY_OK && r < g->m->size; r++) {
        char *to = (char *)out + r * bytes;
        if (to != (const char *)g->m->in[r])
            memcpy(to, g->m->in[r], bytes);
    }
    g->received += (g->m->size - 1) * bytes;
    add_call(&g->made.all_gather, count);
    return status == XRAY_OK ? wait_for_all(g->m) : status;
}

static xray_status thread_broadcast(xray_comm_group *g, xray_stream *stream,
                                    void *buf, uint64_t bytes, uint32_t root)
{
    (void)stream;
    xray_status status = share_input(g, buf, bytes);
    add_call(&g->made.broadcast, bytes / sizeof(float));
    if (status == XRAY_OK && g->rank != root) {
        memcpy(buf, g->m->in[root], bytes);
        g->received += bytes;
    }
    return status == XRAY_OK ? wait_for_all(g->m) : status;
}

/* Waits until a rank's mail is there, or is taken. */
static xray_status wait_for_mail(thread_comm *m, const void *const *mail,
                                 int there)
{
    struct timespec until = end_of_patience();
    while (!m->broken && (*mail != NULL) != there)
        if (pthread_cond_timedwait(&m->cond, &m->mutex, &until) != 0)
            m->broken = 1;
    if (m->broken)
        (void)pthread_cond_broadcast(&m->cond);
    return m->broken ? XRAY_E_PEER : XRAY_OK;
}

static xray_status thread_send(xray_comm_group *g, xray_stream *stream,
                               const void *buf, uint64_t bytes, uint32_t peer)
{
    (void)stream;
    const void **mail = &g->m->mail[peer][g->rank];
    add_call(&g->made.send, bytes / sizeof(float));
    (void)pthread_mutex_lock(&g->m->mutex);
    *mail = buf;
    (void)pthread_cond_broadcast(&g->m->cond);
    xray_status status = wait_for_mail(g->m, mail, 0);
    (void)pthread_mutex_unlock(&g->m->mutex);
    return status;
}

static xray_status thread_recv(xray_comm_group *g, xray_stream *stream,
                               void *buf, uint64_t bytes, uint32_t peer)
{
    (void)stream;
    const void **mail = &g->m->mail[g->rank][peer];
    g->received += bytes;
    (void)pthread_mutex_lock(&g->m->mutex);
    xray_status status = wait_for_mail(g->m, mail, 1);
    if (status == XRAY_OK)
        memcpy(buf, *mail, bytes);
    *mail = NULL;
    (void)pthread_cond_broadcast(&g->m->cond);
    (void)pthread_mutex_unlock(&g->m->mutex);
    return status;
}

uint64_t thread_comm_received(const thread_comm *m, uint32_t rank)
{
    return m->ranks[rank].received;
}

thread_comm_traffic thread_comm_made(const thread_comm *m, uint32_t rank)
{
    return m ? m->ranks[rank].made : (thread_comm_traffic){ 0 };
}

static thread_comm_calls subtract_calls(thread_comm_calls a,
                                        thread_comm_calls b)
{
    return (thread_comm_calls){ a.calls - b.calls, a.floats - b.floats };
}

thread_comm_traffic thread_comm_since(thread_comm_traffic made,
                                      thread_comm_traffic before)
{
    return (thread_comm_traffic){
        subtract_calls(made.all_reduce, before.all_reduce),
        subtract_calls(made.all_reduce_max, before.all_reduce_max),
        subtract_calls(made.reduce_scatter, before.reduce_scatter),
        subtract_calls(made.all_gather, before.all_gather),
        subtract_calls(made.broadcast, before.broadcast),
        subtract_calls(made.send, before.send)
    };
}

const xray_comm_ops *thread_comm_ops(void)
{
    static const xray_comm_ops ops = { .header = XRAY_HEADER(xray_comm_ops),
                                       .group = thread_group,
                                       .all_reduce = thread_all_reduce,
                                       .all_reduce_max = thread_all_reduce_max,
                                       .reduce_scatter = thread_reduce_scatter,
                                       .all_gather = thread_all_gather,
                                       .broadcast = thread_broadcast,
                                       .send = thread_send,
                                       .recv = thread_recv };
    return &ops;
}
