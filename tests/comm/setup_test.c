/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests how ranks of comm-shm connect or fail to: setups that are refused,
 * peers that do not fit, and the channels of their shared memory. Only one rank
 * is real.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "plugins/comm-shm/shm.h"
#include "tests/comm/ranks.h"
#include "tests/growth.h"
#include "tests/testing.h"

static char said[1024];

static xray_status record_failure(const xray_host *host, xray_status code,
                                  const char *where, const char *msg)
{
    (void)host;
    (void)snprintf(said, sizeof(said), "%s: %s", where, msg);
    return code;
}

static const xray_host host = { .header = XRAY_HEADER(xray_host),
                                .fail = record_failure };
static ranks_env env;
static void *device;

/* ---- the other rank
 * -------------------------------------------------------- */

/* The replies of the second of two ranks in the first and in the second
 * gather. */
static struct {
    uint32_t calls;
    uint32_t fails_at;   /* number of the gather that fails */
    uint32_t refuses_at; /* number of the gather in which it reports that it
                          * cannot take part */
    uint32_t size;       /* number of ranks for which it was created */
    const char *why;
    shm_offer mine; /* the last offer of this rank */
} other;

static xray_status gather_offers(void *ctx, const void *mine, uint64_t size,
                                 void *all)
{
    shm_offer *offers = all;
    (void)ctx;
    assert_int_equal(size, sizeof(shm_offer));
    memcpy(&other.mine, mine, sizeof(other.mine));
    if (++other.calls == other.fails_at)
        return XRAY_E_IO;
    offers[0] = offers[1] = other.mine;
    offers[1].pid = 4242;
    offers[1].size = other.size;
    if (other.calls == other.refuses_at) {
        offers[1].status = XRAY_E_IO;
        (void)snprintf(offers[1].why, sizeof(offers[1].why), "%s", other.why);
    }
    return XRAY_OK;
}

static xray_comm_setup make_setup_of_two(void)
{
    memset(&other, 0, sizeof(other));
    other.size = 2;
    said[0] = '\0';
    return (xray_comm_setup){ .header = XRAY_HEADER(xray_comm_setup),
                              .host = &host,
                              .device = env.dev,
                              .device_self = device,
                              .size = 2,
                              .timeout_ms = 1000,
                              .gather = gather_offers };
}

static void expect_refused(const xray_comm_setup *setup, xray_status status,
                           const char *want)
{
    void *self = NULL;
    assert_int_equal(env.comm->create(setup, NULL, &self), status);
    assert_string_equal(said, want);
    assert_null(self);
}

/* ---- setups
 * ---------------------------------------------------------------- */

static void invalid_setups_are_refused(void **state)
{
    (void)state;
#define LACKS "comm shm: the setup lacks a device, ranks or the gather"
    xray_comm_setup s = make_setup_of_two();
    s.size = 0;
    expect_refused(&s, XRAY_E_ARG, LACKS);
    s = make_setup_of_two();
    s.rank = 2;
    expect_refused(&s, XRAY_E_ARG, LACKS);
    s = make_setup_of_two();
    s.device = NULL;
    expect_refused(&s, XRAY_E_ARG, LACKS);
    s = make_setup_of_two();
    s.gather = NULL;
    expect_refused(&s, XRAY_E_ARG, LACKS);
    s = make_setup_of_two();
    s.size = 257;
    expect_refused(&s, XRAY_E_RANGE,
                   "comm shm: 257 ranks, but one host takes at most 256");
    s = make_setup_of_two();
    s.header.size = 8;
    expect_refused(&s, XRAY_E_ABI, "");
    expect_refused(NULL, XRAY_E_ABI, "");
}

static void one_rank_needs_nobody(void **state)
{
    (void)state;
    xray_comm_setup s = make_setup_of_two();
    void *self = NULL;
    s.size = 1;
    s.gather = NULL;
    assert_int_equal(env.comm->create(&s, NULL, &self), XRAY_OK);
    const shm_comm *comm = self;
    assert_true(comm->timeout == 1000000000u);
    env.comm->destroy(self);
    env.comm->destroy(NULL);
}

static void others_that_do_not_fit(void **state)
{
    (void)state;
    xray_comm_setup s = make_setup_of_two();
    other.size = 3;
    expect_refused(
        &s, XRAY_E_PEER,
        "comm shm: rank 1 was created for 3 ranks, but this one for 2");
    s = make_setup_of_two();
    other.size = 1;
    expect_refused(
        &s, XRAY_E_PEER,
        "comm shm: rank 1 was created for 1 ranks, but this one for 2");
    for (uint32_t at = 1; at <= 2; at++) {
        s = make_setup_of_two();
        other.refuses_at = at;
        other.why = "no memory";
        expect_refused(&s, XRAY_E_PEER,
                       "comm shm: rank 1 (pid 4242) cannot "
                       "take part: no memory");
        assert_int_equal(other.calls, at);
        s = make_setup_of_two();
        other.refuses_at = at;
        other.why = "";
        expect_refused(&s, XRAY_E_PEER,
                       "comm shm: rank 1 (pid 4242) cannot "
                       "take part");
        s = make_setup_of_two();
        other.fails_at = at;
        expect_refused(&s, XRAY_E_IO,
                       "comm shm: the ranks could not exchange "
                       "their addresses");
    }
    assert_int_equal(other.mine.pid, getpid());
    assert_int_equal(other.mine.size, 2);
}

/* ---- what a rank's own host lacks ---- */

static int memory_reason; /* errno; 0: there is memory */
static int size_reason;

int __real_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags);
int __real_ftruncate(int fd, off_t size);
int __wrap_ftruncate(int fd, off_t size);

int __wrap_memfd_create(const char *name, unsigned flags)
{
    errno = memory_reason;
    return memory_reason ? -1 : __real_memfd_create(name, flags);
}

int __wrap_ftruncate(int fd, off_t size)
{
    errno = size_reason;
    return size_reason ? -1 : __real_ftruncate(fd, size);
}

static xray_status info_status;

static xray_status tell_info(void *self, xray_device_info *out)
{
    xray_status status = env.dev->info(self, out);
    out->host_memory = 0;
    return info_status ? info_status : status;
}

/* Each is the status of its own rank, and the other one is told as well. */
static void hosts_that_lack_something(void **state)
{
    (void)state;
    xray_device_ops dev = *env.dev;
    xray_comm_setup s = make_setup_of_two();
    memory_reason = EACCES;
    void *self = NULL;
    assert_int_equal(env.comm->create(&s, NULL, &self), XRAY_E_IO);
    assert_null(self);
    assert_int_equal(other.mine.status, XRAY_E_IO);
    assert_string_equal(other.mine.why, "no shared memory for the control "
                                        "page: Permission denied");
    memory_reason = 0;
    size_reason = ENOSPC;
    assert_int_equal(env.comm->create(&s, NULL, &self), XRAY_E_IO);
    assert_string_equal(other.mine.why, "no shared memory for the control "
                                        "page: No space left on device");
    dev.info = tell_info;
    s.device = &dev;
    assert_int_equal(env.comm->create(&s, NULL, &self), XRAY_E_NOMEM);
    assert_int_equal(other.mine.status, XRAY_E_NOMEM);
    size_reason = 0;
    info_status = XRAY_E_DEVICE;
    assert_int_equal(env.comm->create(&s, NULL, &self), XRAY_E_DEVICE);
    assert_int_equal(other.mine.status, XRAY_E_DEVICE);
    for (int i = 0; i < 3 * LACK_WAYS; i++) {
        dev = *env.dev;
        if (i % 3 == 0)
            LACK_MEMBER(xray_device_ops, dev, share, i / 3);
        else if (i % 3 == 1)
            LACK_MEMBER(xray_device_ops, dev, attach, i / 3);
        else
            LACK_MEMBER(xray_device_ops, dev, detach, i / 3);
        assert_int_equal(env.comm->create(&s, NULL, &self), XRAY_E_UNSUPPORTED);
        assert_int_equal(other.mine.status, XRAY_E_UNSUPPORTED);
    }
    assert_null(self);
}

/* The left part of a sum is the largest power of two below the whole. */
static void sums_are_split_at_a_power_of_two(void **state)
{
    (void)state;
    static const uint32_t left[] = { 1, 2, 2, 4, 4, 4, 4, 8, 8 };
    for (uint32_t ranks = 2; ranks <= 10; ranks++)
        assert_int_equal(xray_comm_left(ranks), left[ranks - 2]);
    assert_int_equal(xray_comm_left(4096), 2048);
    assert_int_equal(xray_comm_left(4097), 4096);
    assert_int_equal(xray_comm_left(UINT32_MAX), 1u << 31);
}

static void devices_that_are_served(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int serves;
    } cases[] = { { "cpu", 1 },  { "cuda", 1 }, { "cpu:3", 1 }, { "cuda:0", 1 },
                  { "cpux", 0 }, { "cud", 0 },  { "cp", 0 },    { "", 0 },
                  { "xcpu", 0 }, { NULL, 0 } };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(env.comm->serves(cases[i].name), cases[i].serves);
}

/* ---- the shared memory
 * ----------------------------------------------------- */

/* A key has one channel, whichever rank claims it; states of ranks, channels
 * and rounds do not overlap. */
static void channels_by_their_keys(void **state)
{
    (void)state;
    shm_control c;
    shm_control joined;
    shm_offer offer = { .pid = (uint32_t)getpid(), .size = 3 };
    assert_true(shm_control_create(&c, 3, &offer));
    assert_true(shm_control_join(&joined, &offer));
    assert_ptr_equal(joined.base, c.base); /* the same process */
    for (uint64_t key = 1; key <= SHM_MAX_CHANNELS; key++) {
        uint32_t number = shm_channel_claim(&c, key * 7, key * 100);
        assert_int_equal(number, key - 1);
        assert_int_equal(shm_channel_claim(&joined, key * 7, 5), number);
    }
    assert_true(shm_channel_claim(&c, 6, 0) ==
                UINT32_MAX);                     /* no channel is free */
    assert_true(shm_channel_pair(&c, 0) == 100); /* of the first claim */
    char *at = (char *)shm_rank_state_of(&c, 2);
    assert_true((char *)shm_rank_state_of(&c, 1) + sizeof(shm_rank_state) ==
                at);
    uintptr_t first = (uintptr_t)shm_channel_broken(&c, 0);
    uintptr_t last = (uintptr_t)shm_channel_broken(&c, SHM_MAX_CHANNELS - 1);
    assert_true((uintptr_t)at + sizeof(shm_rank_state) <= first);
    shm_round *step = shm_round_of(&c, 0, 0);
    assert_true(last + sizeof(uint32_t) <= (uintptr_t)step);
    assert_true((char *)(shm_member_of(step, 2) + 1) <=
                (char *)shm_round_of(&c, 0, 1));
    assert_true((char *)(shm_member_of(shm_round_of(&c, 0, 1), 2) + 1) <=
                (char *)shm_round_of(&c, 1, 0));
    shm_round *end = shm_round_of(&c, SHM_MAX_CHANNELS - 1, 1);
    assert_true((char *)(shm_member_of(end, 2) + 1) <= c.base + c.bytes);
    shm_control_leave(&joined);
    assert_int_equal(c.base[0] != 0, 1); /* still mapped for the other rank */
    shm_control_leave(&c);
    shm_control_leave(&c);
    assert_null(c.base);
    (void)close(offer.fd);
}

/* A descriptor that the other process does not have. */
static void memory_that_is_gone_is_refused(void **state)
{
    (void)state;
    shm_control c;
    shm_control joined = { .base = NULL };
    shm_offer offer = { .pid = (uint32_t)getpid(), .size = 3 };
    assert_true(shm_control_create(&c, 3, &offer));
    shm_offer far = offer;
    far.pid = (uint32_t)getppid();
    far.fd = 1 << 20;
    assert_false(shm_control_join(&joined, &far));
    assert_null(joined.base);
    shm_control_leave(&c);
    (void)close(offer.fd);
}

static int begin_suite(void **state)
{
    (void)state;
    ranks_parts(&env);
    const xray_host *none = &host;
    static const uint64_t config[64]; /* options of the device, all 0 */
    return env.dev->create(none, config, 1, &device) == XRAY_OK ? 0 : -1;
}

static int end_suite(void **state)
{
    (void)state;
    env.dev->destroy(device);
    return 0;
}

const scenario ranks_scenarios[] = { { NULL, NULL, 0 } };

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(invalid_setups_are_refused),
        cmocka_unit_test(one_rank_needs_nobody),
        cmocka_unit_test(others_that_do_not_fit),
        cmocka_unit_test(hosts_that_lack_something),
        cmocka_unit_test(sums_are_split_at_a_power_of_two),
        cmocka_unit_test(devices_that_are_served),
        cmocka_unit_test(channels_by_their_keys),
        cmocka_unit_test(memory_that_is_gone_is_refused),
    };
    return cmocka_run_group_tests_name("comm.setup", tests, begin_suite,
                                       end_suite);
}
