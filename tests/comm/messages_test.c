/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares what messages between two ranks, exchanges and all_to_all bring with
 * what the other ranks sent: any size, any offset, in rings and pairs, with
 * peers that take their parts one after the other, however the ranks are timed.
 */
#include "tests/comm/ranks.h"

#include "tests/testing.h"

#include <xray/numerics.h>

#define GUARD 8 /* bytes after a buffer that must not change */
#define GUARD_BYTE 0x5a

/* Numbers of elements; messages are larger than a piece of any kind. */
static const uint64_t sizes[] = { 0, 1, 31, 4099, 70001, 800003 };
#define SIZES (sizeof(sizes) / sizeof(*sizes))
#define LONG_COUNT 5000003

/* Byte i of the message of one rank to another. */
static char sent_byte(uint32_t from, uint32_t to, uint64_t turn, uint64_t i)
{
    return (char)xray_mix64(turn * 256 + from * 16 + to, i);
}

typedef struct message {
    char *block;
    char *data;
    uint64_t bytes;
} message;

/* A buffer that begins at any byte. */
static message make_message(ranks_env *e, uint64_t bytes)
{
    uint64_t offset = (bytes + 5u * e->rank) % 13;
    message m = { .block = ranks_alloc(e, bytes + offset + GUARD),
                  .bytes = bytes };
    memset(m.block, GUARD_BYTE, bytes + offset + GUARD);
    m.data = m.block + offset;
    return m;
}

static message make_sent(ranks_env *e, uint32_t to, uint64_t turn,
                         uint64_t bytes)
{
    message m = make_message(e, bytes);
    for (uint64_t i = 0; i < bytes; i++)
        m.data[i] = sent_byte(e->rank, to, turn, i);
    return m;
}

/* Checks a message from another rank, and that nothing around it changed. */
static void check_received(ranks_env *e, message *m, uint32_t from,
                           uint64_t turn)
{
    for (uint64_t i = 0; i < m->bytes; i++)
        CHECK(e, m->data[i] == sent_byte(from, e->rank, turn, i));
    for (const char *b = m->block; b < m->data; b++)
        CHECK(e, *b == GUARD_BYTE);
    for (uint64_t i = 0; i < GUARD; i++)
        CHECK(e, m->data[m->bytes + i] == GUARD_BYTE);
    e->dev->free(e->dev_self, m->block);
}

/* How a rank takes its part of two messages. */
typedef enum manner { TOGETHER, SENDS_FIRST, SENDS_LAST } manner;

static void make_calls(ranks_env *e, const xray_comm_exchange *x, manner how)
{
    const xray_comm_ops *c = e->comm;
    if (how == TOGETHER)
        CHECK_OK(e, c->exchange(e->world, NULL, x));
    if (how == SENDS_FIRST)
        CHECK_OK(e, c->send(e->world, NULL, x->in, x->in_bytes, x->to));
    if (how != TOGETHER)
        CHECK_OK(e, c->recv(e->world, NULL, x->out, x->out_bytes, x->from));
    if (how == SENDS_LAST)
        CHECK_OK(e, c->send(e->world, NULL, x->in, x->in_bytes, x->to));
}

/* Every rank sends a message of its own size. */
static uint64_t bytes_of(uint64_t count, uint32_t from)
{
    return count ? 3 * count + 1000u * from : 0;
}

static void pass_on(ranks_env *e, uint32_t to, uint32_t from, uint64_t count,
                    uint64_t turn, manner how)
{
    message in = make_sent(e, to, turn, bytes_of(count, e->rank));
    message out = make_message(e, bytes_of(count, from));
    const xray_comm_exchange x = { .header = XRAY_HEADER(xray_comm_exchange),
                                   .in = in.data,
                                   .in_bytes = in.bytes,
                                   .out = out.data,
                                   .out_bytes = out.bytes,
                                   .to = to,
                                   .from = from };
    make_calls(e, &x, how);
    check_received(e, &out, from, turn);
    e->dev->free(e->dev_self, in.block);
}

static uint32_t neighbour(const ranks_env *e, uint32_t steps)
{
    return (e->rank + steps) % e->size;
}

/* In an odd ring one rank must do both in the other order. */
static void check_messages(ranks_env *e)
{
    manner how = e->rank % 2 == 0 ? SENDS_FIRST : SENDS_LAST;
    if (e->rank + 1 == e->size && e->size % 2)
        how = SENDS_LAST;
    for (size_t i = 0; i < SIZES; i++)
        pass_on(e, neighbour(e, 1), neighbour(e, e->size - 1), sizes[i], i,
                how);
    CHECK_OK(e, ranks_barrier(e, e->world));
}

/* All ranks at once, in rings of both directions, and in pairs. */
static void check_exchanges(ranks_env *e)
{
    for (size_t i = 0; i < SIZES; i++) {
        for (uint32_t step = 1; step < e->size; step++)
            pass_on(e, neighbour(e, step), neighbour(e, e->size - step),
                    sizes[i], i + 10u * step, TOGETHER);
        if (e->size % 2 == 0)
            pass_on(e, e->rank ^ 1, e->rank ^ 1, sizes[i], i, TOGETHER);
    }
    CHECK_OK(e, ranks_barrier(e, e->world));
    CHECK(e, e->all->traces[e->rank].rest[0] == 0);
}

/* Every other rank takes its parts one after the other, in either order. */
static void check_mixed_calls(ranks_env *e)
{
    for (size_t i = 0; i < SIZES; i++)
        for (int last = 0; last < 2; last++) {
            manner how = e->rank % 2 ? TOGETHER
                         : last      ? SENDS_LAST
                                     : SENDS_FIRST;
            pass_on(e, neighbour(e, 1), neighbour(e, e->size - 1), sizes[i], i,
                    how);
        }
    /* Long enough for the ranks to look at each other in between. */
    pass_on(e, neighbour(e, 1), neighbour(e, e->size - 1), LONG_COUNT, 7,
            e->rank % 2 ? TOGETHER : SENDS_FIRST);
    CHECK_OK(e, ranks_barrier(e, e->world));
}

static void deal_out(ranks_env *e, uint64_t count, uint32_t dtype,
                     uint64_t turn)
{
    uint64_t bytes = count * (dtype == XRAY_F32 ? 4 : 2);
    message in = make_message(e, bytes * e->size);
    message out = make_message(e, bytes * e->size);
    for (uint32_t r = 0; r < e->size; r++)
        for (uint64_t i = 0; i < bytes; i++)
            in.data[r * bytes + i] = sent_byte(e->rank, r, turn, i);
    CHECK_OK(e, e->comm->all_to_all(e->world, NULL, in.data, out.data, count,
                                    dtype));
    CHECK_OK(e, e->dev->sync(e->dev_self, NULL));
    for (uint32_t r = 0; r < e->size; r++)
        for (uint64_t i = 0; i < bytes; i++)
            CHECK(e, out.data[r * bytes + i] == sent_byte(r, e->rank, turn, i));
    out.data += out.bytes; /* the guards */
    out.bytes = 0;
    for (uint64_t i = 0; i < GUARD; i++)
        CHECK(e, out.data[i] == GUARD_BYTE);
    e->dev->free(e->dev_self, in.block);
    e->dev->free(e->dev_self, out.block);
}

static void check_all_to_all(ranks_env *e)
{
    for (size_t i = 0; i < SIZES; i++) {
        uint64_t count = sizes[i] > 100000 ? 300007 / e->size : sizes[i];
        deal_out(e, count, XRAY_F32, i);
        deal_out(e, count, i % 2 ? XRAY_BF16 : XRAY_F16, i);
    }
    CHECK_OK(e, ranks_barrier(e, e->world));
}

/* Whichever rank comes first, and whatever calls are around it. */
static void check_random_delays(ranks_env *e)
{
    for (uint64_t turn = 0; turn < (e->brief ? 15 : 60); turn++) {
        uint64_t delay = xray_mix64(turn, e->rank) % 7;
        uint64_t count = xray_mix64(turn, 99) % 20000;
        uint32_t step = 1 + (uint32_t)(turn % (e->size - 1));
        if (delay < 4)
            ranks_sleep_ms(delay);
        pass_on(e, neighbour(e, step), neighbour(e, e->size - step), count,
                turn, TOGETHER);
        if (turn % 3 == 0)
            deal_out(e, count, XRAY_BF16, turn);
        if (turn % 5 == 0)
            CHECK_OK(e, ranks_barrier(e, e->world));
    }
    CHECK_OK(e, ranks_barrier(e, e->world));
}

const scenario ranks_scenarios[] = {
    { "messages", check_messages, 60000 },
    { "exchanges", check_exchanges, 60000 },
    { "mixed", check_mixed_calls, 60000 },
    { "all_to_all", check_all_to_all, 60000 },
    { "delays", check_random_delays, 60000 },
    { NULL, NULL, 0 },
};

static void messages_arrive_whole(void **state)
{
    (void)state;
    ranks_run("messages", 2, NULL);
    ranks_run("messages", 3, NULL);
}

static void exchanges_need_no_order_of_the_ranks(void **state)
{
    (void)state;
    for (uint32_t size = 2; size < 6; size++)
        ranks_run("exchanges", size, NULL);
    ranks_run("mixed", 2, NULL);
    ranks_run("mixed", 4, NULL);
}

static void all_to_all_deals_every_part(void **state)
{
    (void)state;
    for (uint32_t size = 1; size < 6; size++)
        ranks_run("all_to_all", size, NULL);
    ranks_run("all_to_all", 8, NULL);
}

static void delays_change_nothing(void **state)
{
    (void)state;
    ranks_run("delays", 2, NULL);
    ranks_run("delays", 4, NULL);
}

static void threads_are_the_same(void **state)
{
    (void)state;
    ranks_run_threads("delays", 3);
    ranks_run_threads("mixed", 2);
    ranks_run_threads("all_to_all", 3);
}

int main(int argc, char **argv)
{
    ranks_main(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_are_the_same),
        cmocka_unit_test(messages_arrive_whole),
        cmocka_unit_test(exchanges_need_no_order_of_the_ranks),
        cmocka_unit_test(all_to_all_deals_every_part),
        cmocka_unit_test(delays_change_nothing),
    };
    const struct CMUnitTest threads[] = { tests[0] };
    return SEES_THREADS_ONLY ? cmocka_run_group_tests_name("comm.messages",
                                                           threads, NULL, NULL)
                             : cmocka_run_group_tests_name("comm.messages",
                                                           tests, NULL, NULL);
}
