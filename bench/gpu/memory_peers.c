/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of bench-gpu-memory: threads, and blocks that processes share. Peers
 * are told what to do by messages on a socket, which is their standard input.
 */
#include "bench/gpu/memory.h"

#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>

extern char **environ;

/* ---- threads ------------------------------------------------------------- */

/* A thread with a stream of its own. Calls of one instance may not overlap, so
 * threads that share one have a lock. */
typedef struct worker {
    lab l; /* with page-locked memory and a check of its own */
    pthread_t thread;
    xray_stream *stream; /* the main thread made the first one */
    xray_event *event;
    void *from, *to; /* blocks */
    uint64_t bytes, seed;
} worker;

static int work_round(worker *w, uint64_t round)
{
    lab *l = &w->l;
    xray_status s = XRAY_AGAIN;
    double end = read_clock() + 5;
    fill_pattern(l->source, w->bytes, w->seed + round);
    memset(l->sink, 0x5a, w->bytes);
    if (!CALL(l, copy, w->stream, w->from, l->source, w->bytes,
              XRAY_COPY_TO_DEVICE) ||
        !CALL(l, copy, w->stream, w->to, w->from, w->bytes,
              XRAY_COPY_ON_DEVICE) ||
        !CALL(l, event_record, w->stream, w->event))
        return 0;
    while (s == XRAY_AGAIN && read_clock() < end)
        s = TRY(l, event_query, w->event);
    return require(l, s == XRAY_OK, "event_query in a thread gave %d: %s", s,
                   last_reason) &&
           CALL(l, event_sync, w->event) &&
           is_filled(l, "a copy in a thread", w->to, w->bytes) &&
           CALL(l, copy, w->stream, l->sink, w->to, w->bytes,
                XRAY_COPY_TO_HOST) &&
           CALL(l, sync, w->stream) &&
           require(l, memcmp(l->sink, l->source, w->bytes) == 0,
                   "a thread read what it did not write in round %llu",
                   ULL(round));
}

/* The first round uses only what the main thread made, so that its first call
 * of the device is a copy. */
static void *run_worker(void *arg)
{
    worker *w = arg;
    xray_stream *first = w->stream;
    int good = work_round(w, 0) && CALL(&w->l, stream_create, &w->stream);
    for (uint64_t i = 1; good && i < 8; i++)
        good = work_round(w, i);
    if (w->stream != first)
        GIVE(&w->l, stream_destroy, w->stream);
    w->stream = first;
    return NULL;
}

/* Runs two threads, which share the instance with a lock, or have one each. */
static void check_pair(lab *l, const char *name, pthread_mutex_t *lock)
{
    worker w[2];
    void *memory[2] = { NULL, NULL };
    int good = 1;
    begin(l, name, 0);
    for (uint64_t i = 0; good && i < 2; i++) {
        lab *own = &w[i].l;
        uint64_t bytes = least_of(16 * MB + 3, l->most / 8);
        w[i] = (worker){ .l = *l, .bytes = bytes, .seed = 1000 * (i + 1) };
        own->lock = lock;
        good = (lock ||
                check_call(own, "create", __LINE__,
                           l->ops->create(&bench_host, NULL, 1, &own->self))) &&
               CALL(own, alloc, "a", XRAY_TAG_GRADS, bytes, &w[i].from) &&
               CALL(own, alloc, "b", XRAY_TAG_GRADS, bytes, &w[i].to) &&
               CALL(own, stream_create, &w[i].stream) &&
               CALL(own, event_create, &w[i].event) &&
               CALL(own, host_alloc, "a", bytes, &memory[0]) &&
               CALL(own, host_alloc, "b", bytes, &memory[1]);
        own->source = memory[0];
        own->sink = memory[1];
        (void)require(l, good, "%s", own->why);
    }
    for (int i = 0; good && i < 2; i++)
        provide(pthread_create(&w[i].thread, NULL, run_worker, &w[i]) == 0,
                "thread");
    for (int i = 0; good && i < 2; i++) {
        (void)pthread_join(w[i].thread, NULL);
        (void)require(l, !w[i].l.failed, "%s", w[i].l.why);
    }
    for (int i = 0; good && i < 2; i++) {
        GIVE(&w[i].l, host_free, w[i].l.source);
        GIVE(&w[i].l, host_free, w[i].l.sink);
        GIVE(&w[i].l, free, w[i].from);
        GIVE(&w[i].l, free, w[i].to);
        GIVE(&w[i].l, event_destroy, w[i].event);
        GIVE(&w[i].l, stream_destroy, w[i].stream);
        if (!lock)
            l->ops->destroy(w[i].l.self);
    }
    finish(l);
}

void check_threads(lab *l)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    check_pair(l, "two threads with one instance", &lock);
    check_pair(l, "two threads with an instance each", NULL);
}

/* ---- processes ----------------------------------------------------------- */

#define PEERS 4 /* and blocks that a peer can have */

/* The orders that a peer gets; each is about the block in a slot. */
enum command {
    PEER_READY,  /* answer when the device is open */
    PEER_ALLOC,  /* allocate a block, fill it and share it */
    PEER_ATTACH, /* map a handle */
    PEER_SUM,    /* answer the checksum of the block */
    PEER_WRITE,  /* fill the block with the peer's pattern */
    PEER_DETACH, /* unmap the block */
    PEER_LEAVE,  /* exit at once and without an answer */
};

typedef struct message {
    uint32_t command;
    uint32_t slot;
    xray_status status;
    uint64_t bytes;
    uint64_t sum;
    uint8_t handle[XRAY_HANDLE_BYTES];
    char reason[600];
} message;

/* ---- the peer ------------------------------------------------------------ */

static int send_message(int fd, const message *m)
{
    return send(fd, m, sizeof(*m), MSG_NOSIGNAL) == (ssize_t)sizeof(*m);
}

static int obey_order(lab *l, message *m, void **slot)
{
    const xray_checksum_rows rows = rows_of(*slot, m->bytes);
    switch (m->command) {
    case PEER_ALLOC:
        return CALL(l, shareable, 1) &&
               CALL(l, alloc, "peer", XRAY_TAG_GRADS, m->bytes, slot) &&
               fill_now(l, *slot, m->bytes) && CALL(l, share, *slot, m->handle);
    case PEER_ATTACH:
        return CALL(l, attach, m->handle, m->bytes, slot);
    case PEER_SUM:
        return CALL(l, checksum, &rows, &m->sum);
    case PEER_WRITE:
        return fill_now(l, *slot, m->bytes);
    case PEER_DETACH:
        GIVE(l, detach, *slot);
        return 1;
    default:
        return 1;
    }
}

int serve_parent(lab *l)
{
    void *slots[PEERS] = { NULL };
    message m;
    while (recv(STDIN_FILENO, &m, sizeof(m), MSG_WAITALL) ==
           (ssize_t)sizeof(m)) {
        if (m.command == PEER_LEAVE)
            _exit(0);
        m.status =
            obey_order(l, &m, &slots[m.slot % PEERS]) ? XRAY_OK : l->status;
        memcpy(m.reason, last_reason, sizeof(m.reason));
        if (!send_message(STDIN_FILENO, &m))
            break;
    }
    return 0;
}

/* ---- talking to it ------------------------------------------------------- */

typedef struct peer {
    pid_t pid;
    int fd;
} peer;

static void start_peer(lab *l, peer *p)
{
    int ends[2];
    char *const argv[] = { (char *)"bench-gpu-memory", l->module,
                           (char *)"--peer", NULL };
    const struct timeval patience = { .tv_sec = 20 };
    posix_spawn_file_actions_t actions;
    provide(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0 &&
                setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &patience,
                           sizeof(patience)) == 0,
            "socket");
    provide(posix_spawn_file_actions_init(&actions) == 0 &&
                posix_spawn_file_actions_adddup2(&actions, ends[1],
                                                 STDIN_FILENO) == 0 &&
                posix_spawn(&p->pid, "/proc/self/exe", &actions, NULL, argv,
                            environ) == 0,
            "process");
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(ends[1]);
    p->fd = ends[0];
}

/* Waits for a peer that was told to leave, or kills it. Returns the status of
 * waitpid. */
static int stop_peer(peer *p, int signal)
{
    int status = 0;
    if (p->pid <= 0)
        return 0;
    if (signal)
        (void)kill(p->pid, signal);
    (void)close(p->fd);
    (void)waitpid(p->pid, &status, 0);
    p->pid = 0;
    return status;
}

/* Sends a command and waits for the answer, which replaces it. */
static int ask_peer(lab *l, const peer *p, uint32_t command, message *m,
                    xray_status expected)
{
    m->command = command;
    return require(l,
                   p->pid > 0 && send_message(p->fd, m) &&
                       recv(p->fd, m, sizeof(*m), MSG_WAITALL) ==
                           (ssize_t)sizeof(*m),
                   "the process did not answer command %u", command) &&
           (expected
                ? refused(l, m->status, expected, m->reason)
                : require(l, m->status == XRAY_OK,
                          "command %u of the other process returned %d: %s",
                          command, m->status, m->reason));
}

static int peer_sum_is(lab *l, const peer *p, message *m, uint64_t expected)
{
    return ask_peer(l, p, PEER_SUM, m, XRAY_OK) &&
           require(l, m->sum == expected,
                   "the other process has checksum %016llx instead of %016llx",
                   ULL(m->sum), ULL(expected));
}

static char *share_block(lab *l, uint64_t bytes, message *m)
{
    (void)CALL(l, shareable, 1);
    char *block = take_block(l, XRAY_TAG_GRADS, bytes);
    (void)CALL(l, shareable, 0);
    *m = (message){ .bytes = bytes };
    if (block && is_zero(l, "the new block", block, bytes) &&
        fill_now(l, block, bytes) && CALL(l, share, block, m->handle))
        return block;
    GIVE(l, free, block);
    return NULL;
}

/* The driver may take a moment to clean up after a dead process. */
static void pause_briefly(void)
{
    (void)nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
}

/* ---- checks -------------------------------------------------------------- */

static unsigned char other[PIECE]; /* the pattern of peers */

static int exchange_block(lab *l, const peer *p, char *block, message m)
{
    message longer = m;
    void *own = NULL;
    if (!CALL(l, attach, m.handle, m.bytes, &own) ||
        !require(l, own == block,
                 "an own handle does not give the block's address"))
        return 0;
    GIVE(l, detach, own);
    if (!TIMED(l, "attach", 0, ask_peer(l, p, PEER_ATTACH, &m, XRAY_OK)) ||
        !peer_sum_is(l, p, &m, sum_on_host(l->source, m.bytes)) ||
        !TIMED(l, "the other process in", m.bytes,
               ask_peer(l, p, PEER_WRITE, &m, XRAY_OK)) ||
        !TIMED(l, "detach", 0, ask_peer(l, p, PEER_DETACH, &m, XRAY_OK)))
        return 0;
    longer.bytes++;
    return sum_is(l, "what the other process wrote", block, m.bytes,
                  sum_on_host(other, m.bytes)) &&
           range_is(l, block, least_of(m.bytes, MIB), other, 0) &&
           ask_peer(l, p, PEER_ATTACH, &longer, XRAY_E_RANGE);
}

/* The handle of a freed block is refused, also if a new block has its place. */
static void check_shared(lab *l, const peer *p, uint64_t bytes)
{
    message m;
    message next;
    begin(l, "shared block", bytes);
    char *block = share_block(l, bytes, &m);
    int good = block && exchange_block(l, p, block, m);
    GIVE(l, free, block);
    if (good && ask_peer(l, p, PEER_ATTACH, &m, XRAY_E_ARG)) {
        block = share_block(l, bytes, &next);
        if (block)
            (void)ask_peer(l, p, PEER_ATTACH, &m, XRAY_E_ARG);
        GIVE(l, free, block);
    }
    finish(l);
}

/* A handle reaches from any byte of a block to its end, and outlives an
 * eviction. */
static void check_interior(lab *l, const peer *p)
{
    message m;
    begin(l, "handle from inside a block that was evicted", 0);
    char *block = share_block(l, 3 * MIB, &m);
    m.bytes = 3 * MIB - 4096;
    if (block && CALL(l, evict, block) && CALL(l, restore, block) &&
        fill_now(l, block + 4096, m.bytes) &&
        CALL(l, share, block + 4096, m.handle) &&
        ask_peer(l, p, PEER_ATTACH, &m, XRAY_OK) &&
        peer_sum_is(l, p, &m, sum_on_host(l->source, m.bytes)))
        (void)ask_peer(l, p, PEER_DETACH, &m, XRAY_OK);
    GIVE(l, free, block);
    finish(l);
}

/* Detaching one block leaves the others mapped, wherever they lie. The first
 * turn detaches in the order of attaching, the second in the opposite one. */
static void check_detach(lab *l, const peer *p)
{
    uint64_t sum = sum_on_host(l->source, 2 * MIB);
    char *blocks[PEERS];
    message m[PEERS];
    int good = 1;
    begin(l, "detach leaves the neighbours mapped", 0);
    for (uint32_t i = 0; i < PEERS; i++) {
        blocks[i] = share_block(l, 2 * MIB, &m[i]);
        good = good && blocks[i];
        m[i].slot = i;
    }
    for (uint32_t turn = 0; good && turn < 2; turn++) {
        for (uint32_t i = 0; good && i < PEERS; i++)
            good = ask_peer(l, p, PEER_ATTACH, &m[i], XRAY_OK);
        for (uint32_t i = 0; good && i < PEERS; i++) {
            good = ask_peer(l, p, PEER_DETACH, &m[turn ? PEERS - 1 - i : i],
                            XRAY_OK);
            for (uint32_t j = i + 1; good && j < PEERS; j++)
                good = peer_sum_is(l, p, &m[turn ? PEERS - 1 - j : j], sum);
        }
    }
    for (uint32_t i = 0; i < PEERS; i++)
        GIVE(l, free, blocks[i]);
    finish(l);
}

/* The peer ends while it maps a block, by exit or by a signal. */
static void check_end(lab *l, peer *p, int signal, const char *name)
{
    uint64_t bytes = least_of(100 * MB, l->most);
    message m;
    begin(l, name, 0);
    char *block = share_block(l, bytes, &m);
    if (block && ask_peer(l, p, PEER_ATTACH, &m, XRAY_OK)) {
        m.command = signal ? PEER_WRITE : PEER_LEAVE;
        (void)require(l, send_message(p->fd, &m), "the process has died");
        int status = stop_peer(p, signal);
        pause_briefly();
        if (require(l, signal ? WIFSIGNALED(status) : status == 0,
                    "its status is %d", status) &&
            fill_block(l, NULL, block, bytes))
            (void)is_filled(l, "the block", block, bytes);
    }
    GIVE(l, free, block);
    finish(l);
}

/* A peer owns the block and dies: what is mapped stays, the handle goes. */
static void check_owner(lab *l, peer *p)
{
    message m = { .bytes = least_of(100 * MB, l->most) };
    uint64_t sum = sum_on_host(other, m.bytes);
    void *block = NULL;
    void *again = NULL;
    begin(l, "the owner of a block dies", 0);
    if (ask_peer(l, p, PEER_ALLOC, &m, XRAY_OK) &&
        CALL(l, attach, m.handle, m.bytes, &block) &&
        sum_is(l, "the owner's block", block, m.bytes, sum)) {
        (void)stop_peer(p, SIGKILL);
        (void)sum_is(l, "a dead owner's block", block, m.bytes, sum);
        for (int mapped = 1; mapped >= 0; mapped--) {
            xray_status s = TRY(l, attach, m.handle, m.bytes, &again);
            (void)refused(l, s, XRAY_E_ARG, last_reason);
            if (mapped)
                GIVE(l, detach, block);
            else
                add_note(l, "%s", last_reason);
        }
    }
    finish(l);
}

void check_processes(lab *l)
{
    static const uint64_t sizes[] = { 64, MIB, 100 * MB, 4 * GB };
    peer p[PEERS];
    message m = { .bytes = 0 };
    int good = 1;
    fill_pattern(other, PIECE, PEER_SEED);
    begin(l, "four more processes use the GPU", 0);
    uint64_t before = read_free(l);
    for (int i = 0; i < PEERS; i++)
        start_peer(l, &p[i]);
    for (int i = 0; good && i < PEERS; i++)
        good = ask_peer(l, &p[i], PEER_READY, &m, XRAY_OK);
    (void)timed(l, "started in", 0, good);
    finish(l);
    for (size_t i = 0; good && i < COUNT(sizes); i++)
        if (sizes[i] <= l->most)
            check_shared(l, &p[0], sizes[i]);
    if (good) {
        check_interior(l, &p[0]);
        check_end(l, &p[0], 0, "a process exits with a block attached");
        check_owner(l, &p[1]);
        check_end(l, &p[2], SIGKILL,
                  "a process is killed with a block attached");
        check_detach(l, &p[3]);
    }
    begin(l, "ended processes return their memory", 0);
    for (int i = 0; i < PEERS; i++)
        (void)stop_peer(&p[i], SIGKILL);
    for (int i = 0; i < 30 && read_free(l) + 64 * MIB < before; i++)
        pause_briefly();
    (void)free_is(l, "at the end", before, 64 * MIB);
    finish(l);
}
