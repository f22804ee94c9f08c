/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that whatever several ranks have a copy of keeps the same bits on all
 * of them, step for step: parameters that tensor-parallel ranks replicate, KV
 * heads that neighbours share, and all of it in further replicas; also when
 * everything is offloaded in turns, or tokens are divided. With an argument, so
 * many steps.
 */
#include "tests/train/ranks.h"

static uint32_t steps = 20;

static void check_copies(const char *json, uint32_t tensor, uint32_t kv_ranks,
                         uint32_t replicas, uint32_t turns, uint32_t sequence)
{
    ranks_run run = ranks_of(json, tensor * replicas, 1);
    run.spec.tensor = tensor;
    run.spec.sequence = sequence;
    run.kv_ranks = kv_ranks;
    run.steps = steps;
    run.turns = turns;
    run.watch = 1;
    ranks_go(&run);
    for (uint32_t i = 0; i < steps; i++)
        if (run.clashes[i])
            fail_msg("tp %u, dp %u, turns %u: after step %u, %u weights have "
                     "other bits on another rank",
                     tensor, replicas, turns, i, run.clashes[i]);
    ranks_planned(&run, "ranks with copies");
    if (!(run.norm[0][steps - 1] > 0))
        fail_msg("tp %u: the last gradient is 0", tensor);
    ranks_free(&run);
}

static void copies_keep_their_bits(void **state)
{
    (void)state;
    check_copies(ranks_gpt2, 4, 1, 1, 0, 1);
    check_copies(ranks_narrow, 4, 2, 2, 0, 0);
}

static void copies_keep_their_bits_in_turns(void **state)
{
    (void)state;
    check_copies(ranks_qwen2, 8, 2, 1, 1, 1);
    check_copies(ranks_qwen3, 2, 1, 2, 1, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_keep_their_bits),
        cmocka_unit_test(copies_keep_their_bits_in_turns),
    };
    if (argc > 1)
        steps = (uint32_t)strtoul(argv[1], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
