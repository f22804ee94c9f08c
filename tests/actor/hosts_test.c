/* SPDX-License-Identifier: Apache-2.0
 *
 * The runtime of actors on other hosts by itself, with this host as the other:
 * one program is the parent, which tests, and each actor, which does what the
 * first letter of a message says.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "core/actor/hosts.h"
#include "tests/testing.h"

#define WORDS 1000u
#define PAGE UINT64_C(4096)
#define LARGE (UINT64_C(32) << 20)

#if defined(__SANITIZE_THREAD__)
/* The sanitizer notes what sendmsg has read once the call returns, when the
 * other process may have answered with the same region: the order that the
 * network gives is none that it sees. */
__attribute__((visibility("default"))) const char *
__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "race:receive_bytes\n";
}
#endif

static char said[400];

static xray_status note_reason(const xray_host *host, xray_status status,
                               const char *where, const char *text)
{
    (void)host;
    (void)where;
    (void)snprintf(said, sizeof(said), "%s", text);
    return status;
}

static const xray_host host = { .header = XRAY_HEADER(xray_host),
                                .fail = note_reason };
static const xray_runtime_ops *const ops = &xr_hosts_runtime;

/* ---- the actor ----------------------------------------------------------- */

typedef struct actor {
    void *self;
    xray_peer *up;
    xray_region *made;
} actor;

static xray_status answer(const actor *a, const char *text, xray_region *region)
{
    return ops->send(a->self, a->up, text, strlen(text) + 1, &region,
                     region != NULL);
}

static uint64_t sum_bytes(const xray_region *region)
{
    const unsigned char *bytes = region->data;
    uint64_t sum = 0;
    for (uint64_t i = 0; i < region->size; i++)
        sum += bytes[i];
    return sum;
}

/* Counts in its record until it has got a word. */
static void count_until_word(const actor *a, char *text, size_t size)
{
    _Atomic uint64_t *record = ops->record(a->self, NULL);
    const _Atomic uint32_t *word =
        (const _Atomic uint32_t *)ops->notice(a->self);
    uint64_t count = 0;
    uint32_t got = 0;
    while (!got) {
        atomic_store_explicit(&record[WORDS - 1], ++count,
                              memory_order_relaxed);
        got = atomic_load(word);
    }
    (void)snprintf(text, size, "word %u", got);
}

/* Adds 1 to the bytes of a region that a message names, and answers with those
 * of the second half. */
static xray_status change_region(const actor *a, uint64_t id)
{
    xray_region *region = ops->region_find(a->self, a->up, id);
    unsigned char *bytes = region->data;
    char text[64];
    (void)snprintf(text, sizeof(text), "sum %llu",
                   (unsigned long long)sum_bytes(region));
    for (uint64_t i = 0; i < region->size; i++)
        bytes[i]++;
    region->first = region->size / 2;
    return answer(a, text, region);
}

/* `m` makes a region, `o` sends it again, `d` destroys it. */
static xray_status handle_own_region(actor *a, char what)
{
    xray_status status = XRAY_OK;
    if (what == 'm')
        status = ops->region_create(a->self, 2 * PAGE, &a->made);
    if (what == 'd')
        ops->region_destroy(a->self, a->made);
    if (status != XRAY_OK || what == 'd')
        return status ? status : answer(a, "destroyed", NULL);
    ((char *)a->made->data)[5] = what;
    return answer(a, "region", a->made);
}

static xray_status handle_message(actor *a, const char *data, uint64_t size)
{
    char text[64] = "";
    const uint64_t number = size > 2 ? strtoull(data + 1, NULL, 10) : 0;
    switch (data[0]) {
    case 'c':
        count_until_word(a, text, sizeof(text));
        return answer(a, text, NULL);
    case 'd':
    case 'm':
    case 'o':
        return handle_own_region(a, data[0]);
    case 'g':
        return send(a->up->conn.fd, data, 40, 0) == 40 ? XRAY_OK : XRAY_E_IO;
    case 'r':
        return change_region(a, number);
    case 'x':
        exit((int)number);
    default:
        return ops->send(a->self, a->up, data, size, NULL, 0);
    }
}

static int run_actor(const char *address)
{
    actor a = { 0 };
    xray_runtime_event event = { .header = XRAY_HEADER(xray_runtime_event) };
    xray_status status = ops->attach(&host, address, &a.self, &a.up);
    while (status == XRAY_OK) {
        status = ops->poll(a.self, -1, &event);
        if (status == XRAY_OK && event.size > 1 &&
            strcmp(event.data, "quit") == 0)
            break;
        if (status == XRAY_OK)
            status = handle_message(&a, event.data, event.size);
    }
    if (status != XRAY_OK)
        (void)fprintf(stderr, "%s\n", said);
    ops->destroy(a.self);
    return status == XRAY_OK ? 0 : 9;
}

/* ---- the parent ---------------------------------------------------------- */

/* 1 if the suite runs a second time, over TLS. */
static uint32_t over_tls(void)
{
    return getenv("XRAY_TEST_TLS") != NULL;
}

static const char *const argv_of_actor[] = { "/proc/self/exe", "--actor",
                                             NULL };
static void *self;
static xray_peer *peers[2];
static xray_runtime_event event = { .header = XRAY_HEADER(xray_runtime_event) };
static uint32_t fds;

static uint32_t count_fds(void)
{
    uint32_t n = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    (void)closedir(dir);
    return n;
}

static xray_peer *spawn_program(const char *const *argv, uint32_t index)
{
    const xray_actor_spec spec = { .header = XRAY_HEADER(xray_actor_spec),
                                   .name = "it",
                                   .argv = argv,
                                   .host = index ? "localhost" : NULL,
                                   .index = index };
    xray_peer *peer = NULL;
    assert_int_equal(ops->spawn(self, &spec, &peer), XRAY_OK);
    return peer;
}

static void create_with(uint32_t hang_ms, uint32_t start_ms)
{
    const xray_runtime_setup setup = { .header =
                                           XRAY_HEADER(xray_runtime_setup),
                                       .host = &host,
                                       .record_size = WORDS * sizeof(uint64_t),
                                       .actors = 2,
                                       .hang_ms = hang_ms,
                                       .start_ms = start_ms };
    const xr_hosts_config config = { .tls = over_tls() };
    assert_int_equal(ops->create(&setup, &config, &self), XRAY_OK);
}

static int start_actors(void **state)
{
    (void)state;
    fds = count_fds();
    create_with(20000, 20000);
    for (uint32_t i = 0; i < 2; i++)
        peers[i] = spawn_program(argv_of_actor, i);
    return 0;
}

/* No process and no open file is left. */
static int end_actors(void **state)
{
    (void)state;
    ops->destroy(self);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    assert_int_equal(count_fds(), fds);
    return 0;
}

static void send_text(xray_peer *peer, const char *text, xray_region *region)
{
    xray_status status =
        ops->send(self, peer, text, strlen(text) + 1, &region, region != NULL);
    if (status != XRAY_OK)
        fail_msg("%s: %s", text, said);
}

static void expect_text(const xray_peer *peer, const char *text)
{
    assert_int_equal(ops->poll(self, 60000, &event), XRAY_OK);
    if (event.kind == XRAY_RUNTIME_LOST)
        fail_msg("expected %s, but the actor %s", text, event.reason);
    assert_ptr_equal(event.peer, peer);
    assert_string_equal(event.data, text);
}

static void expect_loss(const xray_peer *peer, const char *reason,
                        uint32_t clean)
{
    assert_int_equal(ops->poll(self, 60000, &event), XRAY_OK);
    assert_int_equal(event.kind, XRAY_RUNTIME_LOST);
    assert_ptr_equal(event.peer, peer);
    if (strncmp(event.reason, reason, strlen(reason)) != 0)
        fail_msg("expected \"%s\", but the actor %s", reason, event.reason);
    assert_int_equal(event.clean, clean);
    assert_int_equal(ops->poll(self, 0, &event), XRAY_AGAIN);
}

static void say_word_of_record(xray_peer *peer, char *text, size_t size)
{
    const _Atomic uint64_t *record = ops->record(self, peer);
    (void)snprintf(text, size, "%llu",
                   (unsigned long long)atomic_load(&record[WORDS - 1]));
}

/* ---- tests --------------------------------------------------------------- */

static size_t size_of_echo(size_t i)
{
    return 1 + i * i * 37 % 90000;
}

/* Messages are sent to both before they have started. */
static void messages_keep_their_order(void **state)
{
    enum { MANY = 300 };
    static unsigned char data[90000];
    size_t next[2] = { 0, 0 };
    (void)state;
    for (size_t i = 0; i < (size_t)2 * MANY; i++) {
        memset(data, 'A' + (int)(i / 2 % 20), size_of_echo(i / 2));
        assert_int_equal(
            ops->send(self, peers[i % 2], data, size_of_echo(i / 2), NULL, 0),
            XRAY_OK);
    }
    while (next[0] < MANY || next[1] < MANY) {
        assert_int_equal(ops->poll(self, 60000, &event), XRAY_OK);
        size_t *i = &next[event.peer == peers[1]];
        const unsigned char *bytes = event.data;
        assert_int_equal(event.size, size_of_echo(*i));
        assert_int_equal(bytes[0], 'A' + *i % 20);
        assert_int_equal(bytes[event.size - 1], 'A' + *i % 20);
        ++*i;
    }
    assert_int_equal(ops->poll(self, 0, &event), XRAY_AGAIN);
}

static void *fill_bytes(xray_region *region, int byte)
{
    return memset(region->data, byte, (size_t)region->size);
}

static void regions_carry_parts(void **state)
{
    xray_region *region = NULL;
    char text[32];
    (void)state;
    assert_int_equal(ops->region_create(self, 2 * PAGE, &region), XRAY_OK);
    assert_ptr_equal(ops->region_find(self, NULL, region->id), region);
    (void)snprintf(text, sizeof(text), "r%llu", (unsigned long long)region->id);
    const unsigned char *bytes = fill_bytes(region, 3);
    region->first = 100;
    region->count = 50;
    send_text(peers[0], text, region);
    (void)fill_bytes(region, 50);
    expect_text(peers[0], "sum 150");
    /* The actor's copy has zeros around the part, and answers the second half.
     */
    assert_int_equal(bytes[2 * PAGE - 1], 1);
    assert_int_equal(bytes[PAGE], 1);
    assert_int_equal(bytes[PAGE - 1], 50);
    region->first = PAGE;
    region->count = 0;
    send_text(peers[0], text, region);
    expect_text(peers[0], "sum 8342"); /* the first half of the last turn */
    assert_int_equal(bytes[PAGE], 2);
    assert_int_equal(bytes[99], 50);
    ops->region_destroy(self, region);
    send_text(peers[0], "A", NULL);
    expect_text(peers[0], "A");
}

static void actors_create_regions(void **state)
{
    (void)state;
    send_text(peers[0], "m", NULL);
    expect_text(peers[0], "region");
    xray_region *region = ops->region_find(self, peers[0], 1);
    assert_non_null(region);
    assert_ptr_equal(region->peer, peers[0]);
    assert_int_equal(region->size, 2 * PAGE);
    assert_int_equal((uintptr_t)region->data % PAGE, 0);
    assert_int_equal(((char *)region->data)[5], 'm');
    assert_null(ops->region_find(self, peers[1], 1));
    assert_null(ops->region_find(self, NULL, 1));
    send_text(peers[0], "o", NULL);
    expect_text(peers[0], "region");
    assert_int_equal(((char *)region->data)[5], 'o');
    assert_int_equal(ops->send(self, peers[1], "A", 1, &region, 1), XRAY_E_ARG);
    region->first = 2 * PAGE;
    region->count = 1;
    assert_int_equal(ops->send(self, peers[0], "A", 1, &region, 1), XRAY_E_ARG);
    send_text(peers[0], "d", NULL);
    expect_text(peers[0], "destroyed");
    assert_null(ops->region_find(self, peers[0], 1));
}

/* Both sides send more than a socket holds, and neither waits for the other. */
static void large_regions_pass_both_ways(void **state)
{
    xray_region *regions[2];
    char text[32];
    (void)state;
    for (uint32_t i = 0; i < 2; i++) { /* both have started */
        send_text(peers[i], "A", NULL);
        expect_text(peers[i], "A");
    }
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(ops->region_create(self, LARGE, &regions[i]), XRAY_OK);
        (void)snprintf(text, sizeof(text), "r%llu",
                       (unsigned long long)regions[i]->id);
        (void)fill_bytes(regions[i], 1);
        send_text(peers[0], text, regions[i]);
    }
    for (uint32_t i = 0; i < 2; i++) {
        const unsigned char *bytes = regions[i]->data;
        expect_text(peers[0], "sum 33554432");
        assert_int_equal(bytes[LARGE / 2], 2);
        assert_int_equal(bytes[LARGE - 1], 2);
        assert_int_equal(bytes[0], 1);
    }
    /* One that is gone when its bytes come back takes none. The message before
     * it shows a thread sanitizer that the actor has done with the region. */
    send_text(peers[0], "A", NULL);
    expect_text(peers[0], "A");
    send_text(peers[0], text, regions[1]);
    ops->region_destroy(self, regions[1]);
    expect_text(peers[0], "sum 50331648");
    send_text(peers[0], "A", NULL);
    expect_text(peers[0], "A");
    ops->region_destroy(self, regions[0]);
}

/* The parent reads the record and gives a word while the actor computes. */
static void records_and_words_pass_a_busy_actor(void **state)
{
    char first[32] = "0";
    char later[32] = "0";
    uint64_t stride = 1;
    (void)state;
    assert_null(ops->records(self, &stride));
    assert_null(ops->notice(self));
    send_text(peers[0], "c", NULL);
    while (strcmp(first, "0") == 0) {
        assert_int_equal(ops->poll(self, 10, &event), XRAY_AGAIN);
        say_word_of_record(peers[0], first, sizeof(first));
    }
    do {
        assert_int_equal(ops->poll(self, 10, &event), XRAY_AGAIN);
        say_word_of_record(peers[0], later, sizeof(later));
    } while (strcmp(first, later) == 0);
    assert_int_equal((uintptr_t)ops->record(self, peers[1]) % 64, 0);
    ops->notify(self, peers[0], 7);
    expect_text(peers[0], "word 7");
    /* One that is given before the actor has started arrives as well. */
    ops->kill(self, peers[0]);
    peers[0] = spawn_program(argv_of_actor, 0);
    say_word_of_record(peers[0], later, sizeof(later));
    assert_string_equal(later, "0");
    ops->notify(self, peers[0], 9);
    send_text(peers[0], "c", NULL);
    expect_text(peers[0], "word 9");
}

static void ends_are_reported(void **state)
{
    char text[32] = "0";
    (void)state;
    send_text(peers[0], "c", NULL);
    while (strcmp(text, "0") == 0) {
        assert_int_equal(ops->poll(self, 10, &event), XRAY_AGAIN);
        say_word_of_record(peers[0], text, sizeof(text));
    }
    assert_int_equal(kill((pid_t)ops->pid(self, peers[0]), SIGKILL), 0);
    expect_loss(peers[0], "was killed by signal 9 (Killed)", 0);
    say_word_of_record(peers[0], text, sizeof(text));
    assert_string_not_equal(text, "0");
    assert_int_equal(ops->send(self, peers[0], "A", 1, NULL, 0), XRAY_E_PEER);
    assert_int_equal(ops->pid(self, peers[0]), 0);
    /* Its last message comes before its loss. */
    send_text(peers[1], "A", NULL);
    send_text(peers[1], "x3", NULL);
    expect_text(peers[1], "A");
    expect_loss(peers[1], "exited with status 3", 0);
    ops->kill(self, peers[1]);
    peers[1] = spawn_program(argv_of_actor, 1);
    send_text(peers[1], "quit", NULL);
    expect_loss(peers[1], "exited with status 0", 1);
    ops->kill(self, peers[1]);
    peers[1] = spawn_program(argv_of_actor, 1);
    send_text(peers[1], "gggggggggggggggggggggggggggggggggggggggggggg", NULL);
    expect_loss(peers[1],
                over_tls() ? "sent bytes that arrived damaged"
                           : "sent bytes that are no frame",
                0);
}

static void silent_actors_are_killed(void **state)
{
    static const char *const sleeps[] = { "/bin/sh", "-c", "exec sleep 60",
                                          NULL };
    static const char *const ends[] = { "/bin/true", NULL };
    (void)state;
    create_with(1000, 20000);
    peers[0] = spawn_program(argv_of_actor, 0);
    send_text(peers[0], "A", NULL);
    expect_text(peers[0], "A");
    assert_int_equal(kill((pid_t)ops->pid(self, peers[0]), SIGSTOP), 0);
    expect_loss(peers[0], "hangs: no sign of life for 1.", 0);
    assert_non_null(strstr(event.reason, ", its process is stopped"));
    ops->destroy(self);
    create_with(1000, 200);
    peers[0] = spawn_program(sleeps, 0);
    expect_loss(peers[0], "did not start within 0.2 s", 0);
    peers[1] = spawn_program(ends, 1);
    send_text(peers[1], "A", NULL);
    expect_loss(peers[1], "exited with status 0", 1);
}

/* Sending to a stopped actor ends when that is found to hang. */
static void stopped_actor_delays_a_send(void **state)
{
    xray_region *region = NULL;
    (void)state;
    create_with(1000, 20000);
    peers[0] = spawn_program(argv_of_actor, 0);
    send_text(peers[0], "A", NULL);
    expect_text(peers[0], "A");
    assert_int_equal(ops->region_create(self, LARGE, &region), XRAY_OK);
    assert_int_equal(kill((pid_t)ops->pid(self, peers[0]), SIGSTOP), 0);
    assert_int_equal(ops->send(self, peers[0], "A", 1, &region, 1),
                     XRAY_E_PEER);
    expect_loss(peers[0], "hangs: no sign of life for 1.", 0);
}

static void other_hosts_are_refused(void **state)
{
    const xray_actor_spec spec = { .header = XRAY_HEADER(xray_actor_spec),
                                   .name = "it",
                                   .argv = argv_of_actor,
                                   .host = "elsewhere",
                                   .index = 0 };
    const xray_actor_spec taken = { .header = XRAY_HEADER(xray_actor_spec),
                                    .name = "it",
                                    .argv = argv_of_actor,
                                    .index = 1 };
    xray_peer *peer = NULL;
    (void)state;
    ops->kill(self, peers[0]);
    assert_int_equal(ops->spawn(self, &spec, &peer), XRAY_E_UNSUPPORTED);
    assert_string_equal(said, "actor it: host \"elsewhere\" cannot be reached "
                              "without a launcher");
    assert_int_equal(ops->spawn(self, &taken, &peer), XRAY_E_ARG);
    static const char *const none[] = { "/no/such/program", NULL };
    const xray_actor_spec missing = { .header = XRAY_HEADER(xray_actor_spec),
                                      .name = "it",
                                      .argv = none };
    assert_int_equal(ops->spawn(self, &missing, &peer), XRAY_E_IO);
    assert_string_equal(said, "actor it: starting /no/such/program: No such "
                              "file or directory");
}

static int count_files(void **state)
{
    (void)state;
    fds = count_fds();
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--actor") == 0)
        return run_actor(argv[2]);
    if (over_tls() && !xr_tls_is_there()) {
        print_message("skipped: " XR_TLS_MISSING "\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
#define CASE(name) \
    cmocka_unit_test_setup_teardown(name, start_actors, end_actors)
        CASE(messages_keep_their_order),
        CASE(regions_carry_parts),
        CASE(actors_create_regions),
        CASE(large_regions_pass_both_ways),
        CASE(records_and_words_pass_a_busy_actor),
        CASE(ends_are_reported),
        CASE(other_hosts_are_refused),
        cmocka_unit_test_setup_teardown(silent_actors_are_killed, count_files,
                                        end_actors),
        cmocka_unit_test_setup_teardown(stopped_actor_delays_a_send,
                                        count_files, end_actors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
