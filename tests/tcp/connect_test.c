/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves what ranks do whose host, network or options keep them from
 * connecting: each failure is told to all ranks with its rank and its reason, a
 * network that finds its way late is waited for, and IPv6 and hosts whose ranks
 * share no memory serve as well.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "plugins/comm-tcp/tcp.h"
#include "tests/comm/ranks.h"
#include "tests/testing.h"

/* ---- the system, as a rank finds it ---------------------------------------
 */

static int connects;      /* attempts so far */
static int refusals;      /* attempts that fail, alternating between the two: */
static int reasons[2];    /* errnos */
static int late_reason;   /* errno of an attempt that was in progress */
static int bind_reason;   /* errno; 0: binding is possible */
static int memory_reason; /* the same of shared memory */
static int random_reason;
static int search_reason;     /* of memory that another process has */
static const char *host_name; /* NULL: that of this host */
static int only_loopback;
static _Thread_local uint64_t own_clock;
#define TICK 200000000u /* ns per reading of it */

int __real_connect(int fd, const struct sockaddr *to, socklen_t size);
int __wrap_connect(int fd, const struct sockaddr *to, socklen_t size);
int __real_getsockopt(int fd, int level, int name, void *out, socklen_t *size);
int __wrap_getsockopt(int fd, int level, int name, void *out, socklen_t *size);
int __real_bind(int fd, const struct sockaddr *to, socklen_t size);
int __wrap_bind(int fd, const struct sockaddr *to, socklen_t size);
int __real_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags);
int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __real_gethostname(char *out, size_t size);
int __wrap_gethostname(char *out, size_t size);
int __real_getifaddrs(struct ifaddrs **out);
int __wrap_getifaddrs(struct ifaddrs **out);
int __real_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out);
int __real_poll(struct pollfd *fds, nfds_t count, int ms);
int __wrap_poll(struct pollfd *fds, nfds_t count, int ms);
int __real_nanosleep(const struct timespec *time, struct timespec *left);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left);
ssize_t __real_getrandom(void *out, size_t size, unsigned flags);
ssize_t __wrap_getrandom(void *out, size_t size, unsigned flags);

int __wrap_connect(int fd, const struct sockaddr *to, socklen_t size)
{
    errno = reasons[connects++ % 2];
    return connects <= refusals ? -1 : __real_connect(fd, to, size);
}

int __wrap_getsockopt(int fd, int level, int name, void *out, socklen_t *size)
{
    int bad = __real_getsockopt(fd, level, name, out, size);
    if (level == SOL_SOCKET && name == SO_ERROR && late_reason)
        memcpy(out, &late_reason, sizeof(late_reason));
    return bad;
}

int __wrap_bind(int fd, const struct sockaddr *to, socklen_t size)
{
    errno = bind_reason;
    return bind_reason ? -1 : __real_bind(fd, to, size);
}

int __wrap_memfd_create(const char *name, unsigned flags)
{
    errno = memory_reason;
    return memory_reason ? -1 : __real_memfd_create(name, flags);
}

int __wrap_open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    const unsigned mode = flags & O_CREAT ? va_arg(args, unsigned) : 0;
    va_end(args);
    errno = search_reason;
    return search_reason && strstr(path, "/fd/")
               ? -1
               : __real_open(path, flags, mode);
}

ssize_t __wrap_getrandom(void *out, size_t size, unsigned flags)
{
    errno = random_reason;
    return random_reason ? -1 : __real_getrandom(out, size, flags);
}

int __wrap_gethostname(char *out, size_t size)
{
    if (!host_name)
        return __real_gethostname(out, size);
    (void)snprintf(out, size, "%s", host_name);
    return 0;
}

/* Those before the first that is not the loopback's. */
int __wrap_getifaddrs(struct ifaddrs **out)
{
    int bad = __real_getifaddrs(out);
    for (struct ifaddrs *at = *out; !bad && only_loopback && at;
         at = at->ifa_next)
        if (strcmp(at->ifa_name, "lo") != 0)
            at->ifa_flags = 0;
    return bad;
}

int __wrap_clock_gettime(clockid_t id, struct timespec *out)
{
    if (!own_clock)
        return __real_clock_gettime(id, out);
    own_clock += TICK;
    out->tv_sec = (time_t)(own_clock / 1000000000u);
    out->tv_nsec = (long)(own_clock % 1000000000u);
    return 0;
}

int __wrap_poll(struct pollfd *fds, nfds_t count, int ms)
{
    return __real_poll(fds, count, own_clock && ms > 1 ? 1 : ms);
}

int __wrap_nanosleep(const struct timespec *time, struct timespec *left)
{
    return own_clock ? 0 : __real_nanosleep(time, left);
}

/* ---- ranks ----------------------------------------------------------------
 */

static char lines[4096]; /* of the log */
static uint32_t gathers; /* of the second instance */
static int hurry;        /* 1: while ranks connect, time passes with readings */
static int comes_late;   /* 1: the rank accepts no lines while others connect */
static xray_status (*gather)(void *ctx, const void *mine, uint64_t size,
                             void *all);

static xray_status gather_cards(void *ctx, const void *mine, uint64_t size,
                                void *all)
{
    ranks_env *e = ctx;
    own_clock = 0;
    atomic_store(&e->all->notes[e->rank][0], gathers);
    xray_status status = gather(ctx, mine, size, all);
    gathers++;
    while (gathers == 2 && comes_late && atomic_load(&e->all->notes[1][0]) < 2)
        ranks_sleep_ms(1); /* until rank 1 has given up */
    own_clock = gathers == 2 && hurry;
    return status;
}

static void keep_line(const xray_host *host, uint32_t level, const char *line)
{
    size_t used = strlen(lines);
    (void)host;
    (void)snprintf(lines + used, sizeof(lines) - used, "%u %s\n", level, line);
}

/* A second instance, while the system is as the caller has made it. */
static xray_comm_trace record; /* of the second instance */

static xray_status create_second(ranks_env *e, const char *interface,
                                 void **out_self)
{
    const tcp_config config = { interface, 3000000000 };
    xray_host host = e->host;
    xray_comm_setup setup = ranks_setup(e, 60000);
    host.log = keep_line;
    setup.host = &host;
    gather = setup.gather;
    setup.gather = gather_cards;
    setup.trace = &record;
    *out_self = NULL;
    xray_status status = e->comm->create(&setup, &config, out_self);
    refusals = bind_reason = memory_reason = random_reason = search_reason = 0;
    late_reason = 0;
    ranks_meet(e);
    return status;
}

static void use_second(ranks_env *e, void *self)
{
    static const uint32_t both[] = { 0, 1 };
    xray_comm_group *group = NULL;
    CHECK_OK(e, e->comm->group(self, both, 2, &group));
    CHECK_OK(e, ranks_barrier(e, group));
    CHECK(e, record.state == 0);
    e->comm->destroy(self);
    CHECK(e, record.state == 4); /* it was destroyed */
}

static void expect_refusal(ranks_env *e, const char *interface,
                           const char *words)
{
    void *self = NULL;
    char all[400];
    CHECK(e, create_second(e, interface, &self) == XRAY_E_PEER);
    (void)snprintf(all, sizeof(all), ") cannot take part: %s", words);
    CHECK(e, ranks_said(e, all));
    CHECK(e, !self);
}

static void take_named_address(ranks_env *e)
{
    void *self = NULL;
    CHECK_OK(e, create_second(e, "127.0.0.1", &self));
    CHECK(e, strstr(lines, "listens at 127.0.0.1:") &&
                 strstr(lines, " (interface lo of "));
    use_second(e, self);
}

static void take_six(ranks_env *e)
{
    void *self = NULL;
    CHECK_OK(e, create_second(e, "::1", &self));
    CHECK(e, strstr(lines, "listens at [::1]:") &&
                 !strstr(lines, "listens at [::1]:0 "));
    use_second(e, self);
}

static void name_no_interface(ranks_env *e)
{
    expect_refusal(e, e->rank ? "none0" : "",
                   "interface = none0: no interface that is up has this name");
    CHECK(e, ranks_said(e, "rank 1 (pid "));
}

static void find_no_port(ranks_env *e)
{
    bind_reason = e->rank ? 0 : EADDRINUSE;
    expect_refusal(e, "", "no port at 127.0.0.1:0: Address already in use");
    CHECK(e, ranks_said(e, "rank 0 (pid "));
}

static xray_status lose_device(void *self, xray_device_info *out)
{
    (void)self;
    (void)out;
    return XRAY_E_DEVICE;
}

/* The device has told its host why, and its rank has that status. */
static void lose_the_device(ranks_env *e)
{
    xray_device_ops dev = *e->dev;
    const xray_device_ops *usual = e->dev;
    void *self = NULL;
    if (e->rank)
        dev.info = lose_device;
    e->dev = &dev;
    xray_status status = create_second(e, "", &self);
    e->dev = usual;
    CHECK(e, status == (e->rank ? XRAY_E_DEVICE : XRAY_E_PEER));
    CHECK(e, ranks_said(e, "comm tcp: rank 1 (pid "));
    const char *end = strstr(e->text, " cannot take part");
    CHECK(e, end && strcmp(end, " cannot take part") == 0);
}

/* A device that does not tell of its memory has the host's: calls read it, and
 * need no copies. */
static void have_a_plain_device(ranks_env *e)
{
    static xray_device_ops dev;
    const xray_device_ops *usual = e->dev;
    void *self = NULL;
    dev = *e->dev;
    dev.info = NULL;
    dev.copy = NULL;
    e->dev = &dev;
    CHECK_OK(e, create_second(e, "", &self));
    e->dev = usual;
    use_second(e, self);
}

static void find_no_randomness(ranks_env *e)
{
    random_reason = e->rank ? ENOSYS : 0;
    expect_refusal(e, "", "the system gives no random bytes: ");
    CHECK(e, ranks_said(e, "rank 1 (pid "));
}

/* Hosts that see no network of others. */
static void have_no_address(ranks_env *e)
{
    host_name = e->rank ? "beta" : "alpha";
    only_loopback = 1;
    expect_refusal(e, "", "no interface but the loopback has an address");
    CHECK(e, ranks_said(e, " on alpha)"));
}

/* Each attempt of rank 1 fails, at once or after a while, and the others learn
 * its reason although rank 0 only knows that it did not come. */
static void fail_to_connect(ranks_env *e, int reason, int late,
                            const char *words)
{
    connects = 0;
    hurry = 1;
    if (e->rank) {
        refusals = INT32_MAX;
        reasons[0] = reasons[1] = late ? EINPROGRESS : reason;
        late_reason = late ? reason : 0;
    }
    expect_refusal(e, "", "rank 0 at 127.0.0.1:");
    CHECK(e, ranks_said(e, "rank 1 (pid "));
    CHECK(e, ranks_said(e, words));
}

static void be_refused(ranks_env *e)
{
    fail_to_connect(e, ECONNREFUSED, 0,
                    " cannot be reached: Connection refused");
    CHECK(e, connects == (int)e->rank);
}

static void be_refused_later(ranks_env *e)
{
    fail_to_connect(e, ECONNREFUSED, 1,
                    " cannot be reached: Connection refused");
    CHECK(e, connects == (int)e->rank);
}

/* There is never a way: the rank gives up in time. */
static void find_no_way(ranks_env *e)
{
    fail_to_connect(e, ENETUNREACH, 0,
                    " cannot be reached: Network is unreachable");
    CHECK(e, !e->rank || connects > 2);
}

static void find_no_way_later(ranks_env *e)
{
    fail_to_connect(e, EHOSTUNREACH, 1, " cannot be reached: No route to host");
    CHECK(e, !e->rank || connects > 2);
}

/* The host of rank 0 takes the line, but the rank does not answer. */
static void have_no_answer(ranks_env *e)
{
    hurry = 1;
    comes_late = e->rank == 0;
    expect_refusal(e, "", "rank 0 at 127.0.0.1:");
    CHECK(e, ranks_said(e, " cannot be reached: Connection timed out"));
}

static void find_the_way_late(ranks_env *e)
{
    void *self = NULL;
    connects = 0;
    if (e->rank) {
        refusals = 2;
        reasons[0] = EHOSTUNREACH;
        reasons[1] = ENETUNREACH;
    }
    CHECK_OK(e, create_second(e, "", &self));
    CHECK(e, connects == (e->rank ? 4 : 0));
    use_second(e, self);
}

static void expect_loopback(ranks_env *e)
{
    void *self = NULL;
    CHECK_OK(e, create_second(e, "", &self));
    CHECK(e, strstr(lines, e->rank ? "rank 1 shares no memory with rank 0 of "
                                     "its host, and sends over the loopback"
                                   : "rank 0 shares no memory with rank 1 of "
                                     "its host, and sends over the loopback"));
    use_second(e, self);
}

/* Ranks of one host that share no memory. */
static void share_no_memory(ranks_env *e)
{
    memory_reason = e->rank ? ENOSYS : 0;
    expect_loopback(e);
}

/* One of them finds that of the other one, which does not find its own. */
static void search_in_vain(ranks_env *e)
{
    search_reason = e->rank ? EACCES : 0;
    expect_loopback(e);
}

const scenario ranks_scenarios[] = {
    { "named", take_named_address, 60000 },
    { "six", take_six, 60000 },
    { "interface", name_no_interface, 60000 },
    { "port", find_no_port, 60000 },
    { "device", lose_the_device, 60000 },
    { "plain", have_a_plain_device, 60000 },
    { "random", find_no_randomness, 60000 },
    { "loopback", have_no_address, 60000 },
    { "refused", be_refused, 60000 },
    { "refused_later", be_refused_later, 60000 },
    { "no_answer", have_no_answer, 60000 },
    { "no_way", find_no_way, 60000 },
    { "no_way_later", find_no_way_later, 60000 },
    { "late", find_the_way_late, 60000 },
    { "memory", share_no_memory, 60000 },
    { "search", search_in_vain, 60000 },
    { NULL, NULL, 0 },
};

/* ---- tests ----------------------------------------------------------------
 */

static void addresses_may_be_named(void **state)
{
    (void)state;
    ranks_run("named", 2, NULL);
}

static void ranks_connect_over_ipv6(void **state)
{
    struct sockaddr_in6 at = { .sin6_family = AF_INET6,
                               .sin6_addr = IN6ADDR_LOOPBACK_INIT };
    (void)state;
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int bad = bind(fd, (const struct sockaddr *)(const void *)&at, sizeof(at));
    (void)close(fd);
    if (bad)
        skip();
    ranks_run("six", 2, NULL);
}

static void failures_are_told_with_rank_and_reason(void **state)
{
    static const char *const all[] = { "interface",     "port",      "device",
                                       "random",        "loopback",  "refused",
                                       "refused_later", "no_answer", "no_way",
                                       "no_way_later" };
    (void)state;
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        ranks_run(all[i], 2, NULL);
}

static void a_way_that_is_found_late_is_waited_for(void **state)
{
    (void)state;
    ranks_run("late", 2, NULL);
}

static void devices_need_not_tell_of_their_memory(void **state)
{
    (void)state;
    ranks_run("plain", 2, NULL);
}

static void ranks_that_share_no_memory_use_the_loopback(void **state)
{
    (void)state;
    ranks_run("memory", 2, NULL);
    ranks_run("search", 2, NULL);
}

int main(int argc, char **argv)
{
    ranks_main(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_may_be_named),
        cmocka_unit_test(ranks_connect_over_ipv6),
        cmocka_unit_test(failures_are_told_with_rank_and_reason),
        cmocka_unit_test(a_way_that_is_found_late_is_waited_for),
        cmocka_unit_test(devices_need_not_tell_of_their_memory),
        cmocka_unit_test(ranks_that_share_no_memory_use_the_loopback),
    };
    return cmocka_run_group_tests_name("tcp.connect", tests, NULL, NULL);
}
