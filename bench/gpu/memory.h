/* SPDX-License-Identifier: Apache-2.0
 *
 * The checks of bench-gpu-memory share this: calls of the device whose failure
 * fails the check, times, and blocks that repeat a pattern.
 */
#ifndef BENCH_GPU_MEMORY_H
#define BENCH_GPU_MEMORY_H

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <xray/device.h>
#include <xray/numerics.h>
#include <xray/plugin.h>

#define MB ((uint64_t)1000000)
#define GB (1000 * MB)
#define MIB ((uint64_t)1 << 20)
/* Bytes of the pattern, which a block repeats. Neither they nor their multiples
 * up to 2^34 are powers of two, so an address that wraps around shows. */
#define PIECE ((uint64_t)64000008)
#define LARGE MIB /* what has so many bytes has a speed */
#define PARENT_SEED 1u
#define PEER_SEED 2u
#define ULL(x) ((unsigned long long)(x)) /* to be printed */
#define COUNT(array) (sizeof(array) / sizeof(*(array)))

/* An instance of the device, and the running check: the first thing that went
 * wrong, and what else it found. */
typedef struct lab {
    const xray_device_ops *ops;
    void *self;
    char *module;          /* path of the plugin */
    unsigned char *source; /* page-locked: the pattern */
    unsigned char *sink;   /* page-locked, for what is read back */
    uint64_t most;         /* bytes of a block */
    int emulated;          /* each call does its work before it returns */
    int failures;
    pthread_mutex_t *lock; /* of threads that share the instance, or NULL */
    double since;
    xray_status status; /* of the last CALL */
    int failed;
    char name[80];
    char why[900];
    char notes[500];
} lab;

/* Why the calling thread's last call failed. The last reason is the outermost.
 */
extern _Thread_local char last_reason[600];

extern const xray_host bench_host;

/* In memory_peers.c; the last one is what a peer does. */
void check_threads(lab *l);
void check_processes(lab *l);
int serve_parent(lab *l);

/* ---- checks -------------------------------------------------------------- */

static inline double read_clock(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Ends the program where the machine, apart from its GPU, lacks something. */
static inline void provide(int good, const char *what)
{
    if (good)
        return;
    (void)fprintf(stderr, "missing: %s\n", what);
    exit(1);
}

/* Starts a check of this name, and of so many bytes unless they are 0. */
static inline void begin(lab *l, const char *name, uint64_t bytes)
{
    (void)snprintf(l->name, sizeof(l->name), bytes ? "%s of %llu bytes" : "%s",
                   name, ULL(bytes));
    *l->notes = 0;
    l->failed = 0;
    l->since = read_clock();
}

/* Returns `good`. If it is 0, the check fails for this reason, unless it has
 * already failed. */
XRAY_PRINTF(3, 4)
static inline int require(lab *l, int good, const char *fmt, ...)
{
    va_list args;
    if (good || l->failed)
        return good;
    va_start(args, fmt);
    (void)vsnprintf(l->why, sizeof(l->why), fmt, args);
    va_end(args);
    l->failed = 1;
    return 0;
}

XRAY_PRINTF(2, 3)
static inline void add_note(lab *l, const char *fmt, ...)
{
    size_t at = strlen(l->notes);
    va_list args;
    if (at && at + 3 < sizeof(l->notes))
        at += (size_t)snprintf(l->notes + at, sizeof(l->notes) - at, ", ");
    va_start(args, fmt);
    (void)vsnprintf(l->notes + at, sizeof(l->notes) - at, fmt, args);
    va_end(args);
}

static inline void finish(lab *l)
{
    printf("%s: %s%s", l->name, l->failed ? "FAILED: " : "held",
           l->failed ? l->why : "");
    printf(*l->notes ? " (%s)\n" : "%s\n", l->notes);
    (void)fflush(stdout);
    l->failures += l->failed;
}

/* ---- calls --------------------------------------------------------------- */

static inline void enter(lab *l)
{
    if (l->lock)
        (void)pthread_mutex_lock(l->lock);
    *last_reason = 0;
}

static inline xray_status leave(lab *l, xray_status status)
{
    if (l->lock)
        (void)pthread_mutex_unlock(l->lock);
    return status;
}

static inline int check_call(lab *l, const char *op, int line,
                             xray_status status)
{
    l->status = status;
    return require(l, status == XRAY_OK, "%s in line %d returned %d: %s", op,
                   line, status, last_reason);
}

/* Calls an operation of the device: TRY gives its status, CALL 1 if it did its
 * work and otherwise fails the check. GIVE calls one that returns nothing. */
#define TRY(l, op, ...) \
    (enter(l), leave((l), (l)->ops->op((l)->self, __VA_ARGS__)))
#define CALL(l, op, ...) check_call((l), #op, __LINE__, TRY(l, op, __VA_ARGS__))
#define GIVE(l, op, thing) \
    (enter(l), (l)->ops->op((l)->self, (thing)), (void)leave((l), XRAY_OK))

/* Copies and waits for it. */
#define COPY(l, to, from, bytes, kind) \
    (CALL(l, copy, NULL, (to), (from), (bytes), (kind)) && CALL(l, sync, NULL))

/* Notes how long it took since l->since, or how fast it was, if it was good.
 * Returns `good`. */
static inline int timed(lab *l, const char *what, uint64_t bytes, int good)
{
    double seconds = read_clock() - l->since;
    if (good && bytes == 0)
        add_note(l, "%s %.2f ms", what, seconds * 1e3);
    if (good && bytes >= LARGE)
        add_note(l, "%s %.1f GB/s", what, (double)bytes / seconds * 1e-9);
    return good;
}

#define TIMED(l, what, bytes, good) \
    ((l)->since = read_clock(), timed((l), (what), (bytes), (good)))

/* A reason has to be one sentence for a user: one line of some words. */
static inline int refused(lab *l, xray_status status, xray_status expected,
                          const char *reason)
{
    const char *body = strstr(reason, ": ");
    return require(l,
                   status == expected && body && strlen(body) > 20 &&
                       strchr(body + 2, ' ') && !strchr(reason, '\n'),
                   "status %d instead of %d, or no sentence: '%s'", status,
                   expected, reason);
}

static inline uint64_t least_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline void *take_block(lab *l, uint32_t tag, uint64_t bytes)
{
    void *p = NULL;
    (void)CALL(l, alloc, "bench", tag, bytes, &p);
    return p;
}

static inline uint64_t read_free(lab *l)
{
    xray_device_info info = { .header = XRAY_HEADER(xray_device_info) };
    (void)CALL(l, info, &info);
    return info.memory_free;
}

static inline int free_is(lab *l, const char *when, uint64_t expected,
                          uint64_t slack)
{
    uint64_t left = read_free(l);
    return require(l, left + slack >= expected && left <= expected + slack,
                   "%s %llu bytes are free instead of about %llu", when,
                   ULL(left), ULL(expected));
}

/* ---- patterns ------------------------------------------------------------ */

static inline void fill_pattern(unsigned char *to, uint64_t bytes,
                                uint64_t seed)
{
    for (uint64_t at = 0; at < bytes; at += 8) {
        uint64_t word = xray_mix64(seed, at);
        memcpy(to + at, &word, least_of(8, bytes - at));
    }
}

typedef struct sum_part {
    const unsigned char *piece;
    uint64_t from, to; /* words */
    uint64_t sum;
    pthread_t thread;
} sum_part;

static inline void *sum_words(void *arg)
{
    sum_part *p = arg;
    uint64_t in_piece = p->from % (PIECE / 8);
    for (uint64_t w = p->from; w < p->to; w++) {
        uint64_t word;
        memcpy(&word, p->piece + in_piece * 8, sizeof(word));
        p->sum += xray_checksum_word(w, word);
        in_piece = in_piece + 1 == PIECE / 8 ? 0 : in_piece + 1;
    }
    return NULL;
}

/* The checksum of a block of so many bytes that repeats the pattern. */
static inline uint64_t sum_on_host(const unsigned char *piece, uint64_t bytes)
{
    sum_part parts[16];
    uint64_t words = bytes / 8;
    uint64_t last = 0;
    unsigned count = words < 1u << 20 ? 1 : COUNT(parts);
    memcpy(&last, piece + words * 8 % PIECE, bytes % 8);
    uint64_t sum =
        xray_checksum_word(words, last) + xray_checksum_length(bytes);
    for (unsigned i = 0; i < count; i++) {
        parts[i] = (sum_part){ .piece = piece,
                               .from = words * i / count,
                               .to = words * (i + 1) / count };
        provide(pthread_create(&parts[i].thread, NULL, sum_words, &parts[i]) ==
                    0,
                "thread");
    }
    for (unsigned i = 0; i < count; i++) {
        (void)pthread_join(parts[i].thread, NULL);
        sum += parts[i].sum;
    }
    return sum;
}

static inline xray_checksum_rows rows_of(const void *data, uint64_t bytes)
{
    return (xray_checksum_rows){ .header = XRAY_HEADER(xray_checksum_rows),
                                 .data = data,
                                 .rows = 1,
                                 .bytes = bytes };
}

static inline int sum_is(lab *l, const char *what, const void *data,
                         uint64_t bytes, uint64_t expected)
{
    const xray_checksum_rows rows = rows_of(data, bytes);
    uint64_t sum = 0;
    return CALL(l, checksum, &rows, &sum) &&
           require(l, sum == expected,
                   "the checksum of %s is %016llx instead of %016llx", what,
                   ULL(sum), ULL(expected));
}

/* A block of zeros contributes its length only. */
static inline int is_zero(lab *l, const char *what, const void *data,
                          uint64_t bytes)
{
    return sum_is(l, what, data, bytes, xray_checksum_length(bytes));
}

static inline int is_filled(lab *l, const char *what, const void *data,
                            uint64_t bytes)
{
    return sum_is(l, what, data, bytes, sum_on_host(l->source, bytes));
}

/* Enqueues copies that fill a block with the repeated pattern. */
static inline int fill_block(lab *l, xray_stream *stream, void *block,
                             uint64_t bytes)
{
    int good = 1;
    for (uint64_t at = 0; good && at < bytes; at += PIECE)
        good = CALL(l, copy, stream, (char *)block + at, l->source,
                    least_of(PIECE, bytes - at), XRAY_COPY_TO_DEVICE);
    return good;
}

static inline int fill_now(lab *l, void *block, uint64_t bytes)
{
    return fill_block(l, NULL, block, bytes) && CALL(l, sync, NULL);
}

/* Reads bytes, which have to be those of the repeated pattern from `number` on.
 */
static inline int range_is(lab *l, const void *data, uint64_t bytes,
                           const unsigned char *pattern, uint64_t number)
{
    uint64_t start = number % PIECE;
    uint64_t first = least_of(bytes, PIECE - start);
    memset(l->sink, 0x5a, bytes);
    return COPY(l, l->sink, data, bytes, XRAY_COPY_TO_HOST) &&
           require(l,
                   memcmp(l->sink, pattern + start, first) == 0 &&
                       memcmp(l->sink + first, pattern, bytes - first) == 0,
                   "the %llu bytes from %llu on differ from what was written",
                   ULL(bytes), ULL(number));
}

#endif
