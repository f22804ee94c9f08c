/* SPDX-License-Identifier: Apache-2.0
 *
 * The exchange on the board: all ranks receive the bytes of all, and missing
 * ranks are named. Threads take the place of processes.
 */
#include <pthread.h>

#include "core/actor/board.h"
#include "tests/testing.h"

#define RANKS 4u

static void *allocate_board(uint32_t actors, uint64_t extra, xr_board *out)
{
    xr_err err = { "" };
    const uint64_t bytes = xr_board_bytes(actors, extra);
    void *memory = calloc(1, (size_t)bytes);
    assert_non_null(memory);
    xr_board_format(memory, actors, extra);
    assert_int_equal(xr_board_map(memory, bytes, &err, out), 0);
    return memory;
}

typedef struct rank {
    xr_board_group group;
    uint64_t bad;
    xray_status status;
    uint32_t rounds;
    uint64_t bytes; /* 0: different in each round */
    xr_err err;
} rank;

static unsigned char pattern_byte(uint32_t of, uint32_t round, uint64_t i)
{
    return (unsigned char)(of * 37 + round * 11 + i * 7);
}

static void *run_rank(void *data)
{
    rank *r = data;
    const uint64_t most = 3 * XR_BOARD_CHUNK;
    unsigned char *mine = malloc((size_t)most);
    unsigned char *all = malloc((size_t)(RANKS * most));
    for (uint32_t round = 0; mine && all && round < r->rounds && !r->status;
         round++) {
        uint64_t bytes = r->bytes ? r->bytes : (round * 617u) % most;
        for (uint64_t i = 0; i < bytes; i++)
            mine[i] = pattern_byte(r->group.rank, round, i);
        r->status = xr_board_exchange(&r->group, mine, bytes, all, &r->err);
        if (r->status)
            break;
        for (uint32_t k = 0; k < r->group.size; k++)
            for (uint64_t i = 0; i < bytes; i++)
                r->bad += all[k * bytes + i] != pattern_byte(k, round, i);
    }
    free(mine);
    free(all);
    return NULL;
}

static void run_ranks(rank *ranks, uint32_t count)
{
    pthread_t threads[RANKS];
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_rank, &ranks[i]),
                         0);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}

static void ranks_exchange_their_bytes(void **state)
{
    (void)state;
    xr_board board;
    void *memory = allocate_board(7, 0, &board);
    static const uint32_t members[RANKS] = { 6, 0, 3, 2 };
    rank ranks[RANKS] = { { .bad = 0 } };
    for (uint32_t i = 0; i < RANKS; i++) {
        ranks[i].group =
            (xr_board_group){ &board, members, RANKS, i, 2, 20000 };
        ranks[i].rounds = 200;
    }
    run_ranks(ranks, RANKS);
    for (uint32_t i = 0; i < RANKS; i++) {
        if (ranks[i].status)
            fail_msg("%s", ranks[i].err.text);
        assert_int_equal(ranks[i].bad, 0);
    }
    free(memory);
}

static void missing_ranks_are_named(void **state)
{
    (void)state;
    xr_board board;
    void *memory = allocate_board(4, 0, &board);
    rank ranks[2] = { { .bad = 0 } };
    for (uint32_t i = 0; i < 2; i++) {
        ranks[i].group = (xr_board_group){ &board, NULL, RANKS, i * 2, 0, 200 };
        ranks[i].rounds = 1;
        ranks[i].bytes = 8;
    }
    run_ranks(ranks, 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(ranks[i].status, XRAY_E_PEER);
        assert_non_null(strstr(ranks[i].err.text, "rank 1, 3 did not arrive"));
    }
    free(memory);
}

static void different_sizes_are_refused(void **state)
{
    (void)state;
    xr_board board;
    void *memory = allocate_board(4, 0, &board);
    rank ranks[3] = { { .bad = 0 } };
    for (uint32_t i = 0; i < 3; i++) {
        ranks[i].group = (xr_board_group){ &board, NULL, 3, i, 0, 5000 };
        ranks[i].rounds = 1;
        ranks[i].bytes = i == 1 ? 16 : 8;
    }
    run_ranks(ranks, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(ranks[i].status, XRAY_E_PEER);
        assert_non_null(strstr(ranks[i].err.text, "16"));
    }
    free(memory);
}

static void impossible_groups_are_refused(void **state)
{
    (void)state;
    xr_board board;
    xr_err err = { "" };
    char byte = 0;
    char all[8];
    void *memory = allocate_board(2, 48, &board);
    assert_true((uintptr_t)board.extra % 16 == 0);
    static const uint32_t members[] = { 0, 5 };
    const xr_board_group groups[] = { { &board, NULL, 3, 0, 0, 10 },
                                      { &board, NULL, 2, 2, 0, 10 },
                                      { &board, members, 2, 0, 0, 10 },
                                      { &board, NULL, 2, 0, 4, 10 } };
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(xr_board_exchange(&groups[i], &byte, 1, all, &err),
                         XRAY_E_ARG);
    assert_int_equal(
        xr_board_map(memory, xr_board_bytes(2, 48) - 1, &err, &board),
        XRAY_E_PEER);
    memset(memory, 0, 8);
    assert_int_equal(xr_board_map(memory, xr_board_bytes(2, 48), &err, &board),
                     XRAY_E_PEER);
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_exchange_their_bytes),
        cmocka_unit_test(missing_ranks_are_named),
        cmocka_unit_test(different_sizes_are_refused),
        cmocka_unit_test(impossible_groups_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
