/* SPDX-License-Identifier: Apache-2.0
 *
 * Plays programs that are drawn from numbers: with calls of all kinds and
 * sizes, in groups of all forms, however the ranks are timed; and with one
 * fault each, of which every other rank must be told in time, by the right
 * sentence, and after which everything else still works.
 */
#define _GNU_SOURCE
#include "tests/comm/fault.h"
#include "tests/comm/player.h"

#include "tests/testing.h"

#include <xray/numerics.h>

static uint64_t program_seed(uint64_t number, uint32_t size)
{
    return xray_mix64(number, 4242 + size);
}

/* ---- programs that go well ---------------------------------------------- */

#define IN_A_ROW 2u        /* programs that the same processes play */
#define FAULTS_IN_A_ROW 2u /* of each kind */

static int same_holdings(const ranks_env *e, const holdings *a,
                         const holdings *b)
{
    /* The false NCCL keeps one for each id that it gave. */
    return (a->descriptors == b->descriptors || e->compares_not) &&
           a->memory_files == b->memory_files && a->threads == b->threads;
}

/* The thread of an instance may still be ending. */
static void check_holdings(ranks_env *e, const holdings *before)
{
    holdings now = player_holdings();
    for (int i = 0; i < 200 && !same_holdings(e, &now, before); i++) {
        ranks_sleep_ms(10);
        now = player_holdings();
    }
    if (!same_holdings(e, &now, before))
        (void)fprintf(stderr,
                      "before, and now: descriptors %llu %llu, files in memory "
                      "%llu %llu, threads %llu %llu\n",
                      (unsigned long long)before->descriptors,
                      (unsigned long long)now.descriptors,
                      (unsigned long long)before->memory_files,
                      (unsigned long long)now.memory_files,
                      (unsigned long long)before->threads,
                      (unsigned long long)now.threads);
    CHECK(e, same_holdings(e, &now, before));
}

static void play_program(ranks_env *e, uint64_t seed, const void *config)
{
    player pl = { .e = e };
    program_draw(&pl.p, seed, e->size, e->brief);
    player_open(&pl, e, config, 60000);
    for (uint32_t i = 0; i < pl.p.step_count; i++)
        player_step(&pl, &pl.p.steps[i]);
    ranks_meet(e);
    player_close(&pl);
}

static void play_programs(ranks_env *e)
{
    for (uint32_t i = 0; i < IN_A_ROW; i++) {
        holdings before = player_holdings();
        ranks_meet(e);
        play_program(e, program_seed(e->argument + i, e->size),
                     i % 2 && e->other_config ? e->other_config
                                              : e->comm_config);
        /* After the first one all is there that the process keeps for good. */
        ranks_meet(e);
        if (i && !e->shares_process)
            check_holdings(e, &before);
        ranks_meet(e);
    }
}

/* ---- programs with a fault ---------------------------------------------- */

/* Every kind of fault several times, as far as the comm notices it. */
static void play_faults(ranks_env *e)
{
    uint32_t first = e->compares_not ? FAULT_ILLEGAL : 0;
    uint32_t count = (FAULT_ALIVE - first) * FAULTS_IN_A_ROW;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t kind = first + i % (FAULT_ALIVE - first);
        uint64_t seed = program_seed(1000 * e->argument + i, e->size);
        holdings before = player_holdings();
        ranks_meet(e);
        fault_play(e, seed, (fault_kind)kind);
        ranks_meet(e);
        if (i && !e->shares_process)
            check_holdings(e, &before);
        ranks_meet(e);
    }
}

static void play_deadly_fault(ranks_env *e)
{
    uint32_t kind = FAULT_ALIVE + e->argument % (FAULT_KINDS - FAULT_ALIVE);
    fault_play(e, program_seed(e->argument, e->size), (fault_kind)kind);
}

const scenario ranks_scenarios[] = {
    { "programs", play_programs, 60000 },
    { "faults", play_faults, 60000 },
    { "deadly", play_deadly_fault, 60000 },
    { NULL, NULL, 0 },
};

/* ---- the suite ----------------------------------------------------------- */

static uint32_t rounds = 1;

static void run_programs(const char *name, uint64_t number, uint32_t size,
                         int threads)
{
    char what[64];
    (void)snprintf(what, sizeof(what), "%s:%llu", name,
                   (unsigned long long)number);
    if (threads)
        ranks_run_threads(what, size);
    else
        ranks_run(what, size, NULL);
}

static void threads_play_programs(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < rounds; i++) {
        run_programs("programs", 1000 + 10u * i, 3 + i % 2, 1);
        run_programs("faults", 1000 + 10u * i, 3 + i % 2, 1);
    }
}

/* All numbers of ranks, or two of them where another comm has the same tests.
 */
static void run_sizes(const char *name, uint64_t number)
{
    ranks_env e = { .size = 0 };
    ranks_parts(&e);
    for (uint32_t size = 2; size < 6; size++)
        if (rounds > 1 || !e.sends_copies || size == 3 ||
            (size == 5 && !e.compares_not))
            run_programs(name, number, size, 0);
}

static void processes_play_programs(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < rounds; i++)
        run_sizes("programs", 10u * i);
}

static void faults_are_told_to_all_ranks(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < rounds; i++)
        run_sizes("faults", i);
}

static void deaths_are_told_to_all_ranks(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 6 * rounds; i++) {
        char what[64];
        uint32_t size = 2 + i / 2 % 4;
        uint32_t kind = FAULT_ALIVE + i % (FAULT_KINDS - FAULT_ALIVE);
        char fates[MOST_RANKS + 1] = "........";
        fates[size] = '\0';
        (void)snprintf(what, sizeof(what), "deadly:%u", i);
        fates[fault_rank(program_seed(i, size), size, (fault_kind)kind)] =
            fault_fate((fault_kind)kind);
        ranks_run(what, size, fates);
    }
}

/* "all" takes many more programs. */
int main(int argc, char **argv)
{
    ranks_main(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_play_programs),
        cmocka_unit_test(processes_play_programs),
        cmocka_unit_test(faults_are_told_to_all_ranks),
        cmocka_unit_test(deaths_are_told_to_all_ranks),
    };
    const struct CMUnitTest threads[] = { tests[0] };
    if (argc == 2 && strcmp(argv[1], "all") == 0)
        rounds = 20;
    return SEES_THREADS_ONLY ? cmocka_run_group_tests_name("comm.programs",
                                                           threads, NULL, NULL)
                             : cmocka_run_group_tests_name("comm.programs",
                                                           tests, NULL, NULL);
}
