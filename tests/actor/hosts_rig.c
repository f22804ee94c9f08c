/* SPDX-License-Identifier: Apache-2.0
 *
 * An actor that does what the first letter of a message says, and the parent's
 * side of tests with two of them.
 */
#define _GNU_SOURCE
#include "tests/actor/hosts_rig.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>

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

char said[400];

static xray_status note_reason(const xray_host *from, xray_status status,
                               const char *where, const char *text)
{
    (void)from;
    (void)where;
    (void)snprintf(said, sizeof(said), "%s", text);
    return status;
}

char noted[400];
uint32_t notes;

static void note_line(const xray_host *from, uint32_t level, const char *line)
{
    (void)from;
    if (level != XRAY_LOG_INFO)
        fail_msg("%s", line);
    (void)snprintf(noted, sizeof(noted), "%s", line);
    notes++;
}

static const xray_host host = { .header = XRAY_HEADER(xray_host),
                                .log = note_line,
                                .fail = note_reason };
const xray_runtime_ops *const ops = &xr_hosts_runtime;

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

/* Passes other memory of a page for a region of this number. */
static xray_status pass_memory(const actor *a, uint64_t id)
{
    xr_tcp_conn *conn = &a->up->conn;
    xr_tcp_frame frame = xr_tcp_frame_of(XR_TCP_MEMORY, id);
    frame.rest = PAGE;
    conn->give = xr_memory_make("test", PAGE);
    const int bad = xr_tcp_write(conn, &frame, NULL);
    (void)close(conn->give);
    conn->give = -1;
    return bad ? XRAY_E_IO : XRAY_OK;
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
    case 'f':
        return pass_memory(a, number);
    case 'g':
        return send(a->up->conn.fd, data, 40, 0) == 40 ? XRAY_OK : XRAY_E_IO;
    case 'r':
        return change_region(a, number);
    case 't':
        (void)snprintf(text, sizeof(text), "%llu",
                       (unsigned long long)a->up->conn.total);
        return answer(a, text, NULL);
    case 'x':
        exit((int)number);
    default:
        return ops->send(a->self, a->up, data, size, NULL, 0);
    }
}

int run_actor(const char *address)
{
    actor a = { 0 };
    xray_runtime_event got = { .header = XRAY_HEADER(xray_runtime_event) };
    xray_status status = ops->attach(&host, address, &a.self, &a.up);
    while (status == XRAY_OK) {
        status = ops->poll(a.self, -1, &got);
        if (status == XRAY_OK && got.size > 1 && strcmp(got.data, "quit") == 0)
            break;
        if (status == XRAY_OK)
            status = handle_message(&a, got.data, got.size);
    }
    if (status != XRAY_OK)
        (void)fprintf(stderr, "%s\n", said);
    ops->destroy(a.self);
    /* Only what the runtime opened is closed, so the standard input is open. */
    if (fcntl(STDIN_FILENO, F_GETFD) < 0)
        return 8;
    return status == XRAY_OK ? 0 : 9;
}

/* ---- the parent ---------------------------------------------------------- */

const char *const argv_of_actor[] = { "/proc/self/exe", "--actor", NULL };
void *self;
xray_peer *peers[2];
xray_runtime_event event = { .header = XRAY_HEADER(xray_runtime_event) };
uint32_t fds;
uint32_t copies;
const char *launch;
const xray_launcher_ops *launcher;
void *launcher_self;

uint32_t count_fds(void)
{
    uint32_t n = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    (void)closedir(dir);
    return n;
}

/* Memory that this process shares. */
uint32_t count_maps(void)
{
    char line[512];
    uint32_t n = 0;
    FILE *file = fopen("/proc/self/maps", "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file))
        n += strstr(line, "memfd:xray-") != NULL;
    (void)fclose(file);
    return n;
}

xray_peer *spawn_program(const char *const *argv, uint32_t index)
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

uint32_t over_tls(void)
{
    return getenv("XRAY_TEST_TLS") != NULL;
}

void create_with(uint32_t hang_ms, uint32_t start_ms)
{
    const xray_runtime_setup setup = { .header =
                                           XRAY_HEADER(xray_runtime_setup),
                                       .host = &host,
                                       .record_size = WORDS * sizeof(uint64_t),
                                       .actors = 2,
                                       .hang_ms = hang_ms,
                                       .start_ms = start_ms };
    const xr_hosts_config config = { .launch = launch,
                                     .tls = over_tls(),
                                     .copies = copies,
                                     .launcher = launcher,
                                     .launcher_self = launcher_self };
    assert_int_equal(ops->create(&setup, &config, &self), XRAY_OK);
}

int start_actors(void **state)
{
    (void)state;
    fds = count_fds();
    notes = 0;
    create_with(20000, 20000);
    for (uint32_t i = 0; i < 2; i++)
        peers[i] = spawn_program(argv_of_actor, i);
    return 0;
}

/* No process and no open file is left. */
int end_actors(void **state)
{
    (void)state;
    ops->destroy(self);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    assert_int_equal(count_fds(), fds);
    assert_int_equal(count_maps(), 0);
    return 0;
}

void send_text(xray_peer *peer, const char *text, xray_region *region)
{
    xray_status status =
        ops->send(self, peer, text, strlen(text) + 1, &region, region != NULL);
    if (status != XRAY_OK)
        fail_msg("%s: %s", text, said);
}

void expect_text(const xray_peer *peer, const char *text)
{
    assert_int_equal(ops->poll(self, 60000, &event), XRAY_OK);
    if (event.kind == XRAY_RUNTIME_LOST)
        fail_msg("expected %s, but the actor %s", text, event.reason);
    assert_ptr_equal(event.peer, peer);
    assert_string_equal(event.data, text);
}

void expect_loss(const xray_peer *peer, const char *reason, uint32_t clean)
{
    assert_int_equal(ops->poll(self, 60000, &event), XRAY_OK);
    assert_int_equal(event.kind, XRAY_RUNTIME_LOST);
    assert_ptr_equal(event.peer, peer);
    if (strncmp(event.reason, reason, strlen(reason)) != 0)
        fail_msg("expected \"%s\", but the actor %s", reason, event.reason);
    assert_int_equal(event.clean, clean);
    assert_int_equal(ops->poll(self, 0, &event), XRAY_AGAIN);
}

void say_word_of_record(xray_peer *peer, char *text, size_t size)
{
    const _Atomic uint64_t *record = ops->record(self, peer);
    (void)snprintf(text, size, "%llu",
                   (unsigned long long)atomic_load(&record[WORDS - 1]));
}

int count_files(void **state)
{
    (void)state;
    fds = count_fds();
    return 0;
}

void *fill_bytes(xray_region *region, int byte)
{
    return memset(region->data, byte, (size_t)region->size);
}

void await_both(void)
{
    for (uint32_t i = 0; i < 2; i++) {
        send_text(peers[i], "A", NULL);
        expect_text(peers[i], "A");
    }
}
