/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes every call once with the comm of a rank and once with comm-shm.
 */
#include "tests/comm/both.h"

#include "tests/testing.h"

#include <xray/numerics.h>

const xray_plugin *xray_plugin_query_comm_shm(uint32_t host_abi);

void both_fill(char *to, uint64_t bytes, uint64_t seed)
{
    for (uint64_t i = 0; i < bytes / 4; i++) {
        /* Finite numbers of many magnitudes, for both types. */
        uint32_t word = (uint32_t)xray_mix64(seed, i) & 0x8fff8fffu;
        word |= 0x38003800u;
        memcpy(to + 4 * i, &word, 4);
    }
}

static void both_call(ranks_env *e, const both *b, uint32_t call,
                      uint64_t count, uint32_t dtype)
{
    const xray_comm_ops *ops[2] = { e->comm, b->shm };
    xray_comm_group *groups[2] = { e->world, b->group };
    char *outs[2] = { b->own_out, b->shm_out };
    for (uint32_t k = 0; k < 2; k++) {
        const xray_comm_ops *c = ops[k];
        memcpy(outs[k], b->in, b->bytes);
        if (call == XRAY_COMM_ALL_REDUCE)
            CHECK_OK(e, c->all_reduce(groups[k], NULL, outs[k], count, dtype));
        else if (call == XRAY_COMM_ALL_REDUCE_MAX)
            CHECK_OK(e,
                     c->all_reduce_max(groups[k], NULL, outs[k], count, dtype));
        else if (call == XRAY_COMM_BROADCAST)
            CHECK_OK(e, c->broadcast(groups[k], NULL, outs[k], b->bytes,
                                     (uint32_t)(count % e->size)));
        else if (call == XRAY_COMM_REDUCE_SCATTER)
            CHECK_OK(e, c->reduce_scatter(groups[k], NULL, b->in, outs[k],
                                          count, dtype));
        else
            CHECK_OK(e, c->all_gather(groups[k], NULL, b->in, outs[k], count,
                                      dtype));
    }
    CHECK(e, memcmp(b->own_out, b->shm_out, b->bytes) == 0);
}

both both_begin(ranks_env *e)
{
    uint32_t ranks[MOST_RANKS];
    both b = { .shm =
                   xray_plugin_query_comm_shm(XRAY_ABI)->components[0]->ops };
    xray_comm_setup setup = ranks_setup(e, 60000);
    CHECK_OK(e, b.shm->create(&setup, NULL, &b.shm_self));
    for (uint32_t r = 0; r < e->size; r++)
        ranks[r] = r;
    CHECK_OK(e, b.shm->group(b.shm_self, ranks, e->size, &b.group));
    return b;
}

void both_compare(ranks_env *e)
{
    static const uint64_t counts[] = { 1, 33, 8193, 70001, 300007 };
    static const uint32_t calls[] = { XRAY_COMM_ALL_REDUCE,
                                      XRAY_COMM_REDUCE_SCATTER,
                                      XRAY_COMM_ALL_GATHER };
    both b = both_begin(e);
    for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
        b.bytes = (counts[i] * 4 * e->size + 3) / 4 * 4;
        b.in = ranks_alloc(e, b.bytes);
        b.own_out = ranks_alloc(e, b.bytes);
        b.shm_out = ranks_alloc(e, b.bytes);
        for (uint32_t k = 0; k < 6; k++) {
            uint32_t dtype = k % 2 ? XRAY_BF16 : XRAY_F32;
            both_fill(b.in, b.bytes, 10 * i + e->rank);
            ranks_sleep_ms(xray_mix64(i * 6 + k, e->rank) % 3);
            both_call(e, &b, calls[k / 2], counts[i], dtype);
        }
        both_call(e, &b, XRAY_COMM_ALL_REDUCE_MAX, counts[i], XRAY_BF16);
        both_call(e, &b, XRAY_COMM_BROADCAST, counts[i], XRAY_BF16);
        e->dev->free(e->dev_self, b.in);
        e->dev->free(e->dev_self, b.own_out);
        e->dev->free(e->dev_self, b.shm_out);
    }
    b.shm->destroy(b.shm_self);
}
