/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves for training on several ranks: the same bits for every stage,
 * recomputation and offload, and values close to one another for different
 * numbers of ranks.
 */
#include <math.h>

#include "core/base/file.h"
#include "model/nn/layout.h"
#include "tests/train/ranks.h"

static const char gpt2[] =
    "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],"
    "\"n_embd\":24,\"n_layer\":2,\"n_head\":4,\"n_positions\":64,"
    "\"vocab_size\":37,\"layer_norm_epsilon\":1e-5,"
    "\"initializer_range\":0.08,\"tie_word_embeddings\":true,"
    "\"bos_token_id\":1,\"eos_token_id\":2}";

static void expect_ranks_alike(const ranks_run *run)
{
    for (uint32_t r = 1; r < run->ranks; r++)
        assert_memory_equal(run->norm[0], run->norm[r], sizeof(run->norm[0]));
}

/* ---- bits --------------------------------------------------------------- */

/* Every stage, with recomputation and offload, gives the bits of stage 0. */
static void check_stages(const char *json, uint32_t ranks)
{
    ranks_run base = ranks_of(json, ranks, 0);
    ranks_go(&base);
    expect_ranks_alike(&base);
    for (uint32_t k = 0; k < 10; k++) {
        uint32_t stage = k < 4 ? k : k < 6 ? 3 : (k & 3);
        ranks_run run = ranks_of(json, ranks, stage);
        char what[128];
        run.spec.checkpointing = k >= 4;
        run.spec.offload_optimizer = k >= 5;
        run.spec.offload_param = stage == 3 && k >= 5;
        (void)snprintf(what, sizeof(what),
                       "%u ranks, stage %u, recompute %u, offload %u and %u",
                       ranks, stage, run.spec.checkpointing,
                       run.spec.offload_optimizer, run.spec.offload_param);
        ranks_go(&run);
        expect_ranks_alike(&run);
        ranks_same(&base, &run, what);
        ranks_free(&run);
    }
    ranks_free(&base);
}

static void all_stages_give_the_same_bits(void **state)
{
    (void)state;
    check_stages(rig_tiny, 2);
    check_stages(rig_tiny, 4);
    check_stages(rig_tiny_tied, 3);
    check_stages(gpt2, 2);
}

/* On one rank the stage changes nothing, and neither does offload. */
static void stage_and_offload_change_nothing_on_one_rank(void **state)
{
    (void)state;
    for (uint32_t tied = 0; tied < 2; tied++) {
        const char *json = tied ? rig_tiny_tied : rig_tiny;
        ranks_run base = ranks_of(json, 1, 0);
        base.cuts = 3;
        ranks_go(&base);
        for (uint32_t k = 1; k < 5; k++) {
            ranks_run run = ranks_of(json, 1, k < 3 ? k : 3);
            run.spec.offload_optimizer = k > 1;
            run.spec.offload_param = k > 2;
            run.cuts = k;
            ranks_go(&run);
            ranks_same(&base, &run, "one rank");
            ranks_free(&run);
        }
        ranks_free(&base);
    }
}

/* Stages 0 and 1 accumulate micro-batches before they sum over ranks, so the
 * division into micro-batches changes nothing. Stages 2 and 3 sum each
 * micro-batch over ranks, so the division changes rounding, at both stages
 * alike. */
static void micro_batches_accumulate_as_documented(void **state)
{
    (void)state;
    ranks_run base = ranks_of(rig_tiny_tied, 2, 0);
    ranks_go(&base);
    ranks_run cut[4];
    for (uint32_t stage = 0; stage < 4; stage++) {
        cut[stage] = ranks_of(rig_tiny_tied, 2, stage);
        /* 8 rows per rank, so some micro-batches are empty. */
        cut[stage].cuts = 11;
        ranks_go(&cut[stage]);
        double far = snapshot_distance(&base.grads, &cut[stage].grads);
        if (!(far < 1e-4))
            fail_msg("stage %u: gradients %g away", stage, far);
    }
    /* Sums that were read in between are accumulated further. */
    ranks_run seen[4];
    for (uint32_t stage = 0; stage < 4; stage++) {
        seen[stage] = ranks_of(rig_tiny_tied, 3, stage);
        seen[stage].cuts = 4;
        seen[stage].twice = 1;
        ranks_go(&seen[stage]);
        double far = snapshot_distance(&base.grads, &seen[stage].grads);
        if (!(far < 1e-4))
            fail_msg("stage %u, looked at: gradients %g away", stage, far);
    }
    ranks_same(&seen[0], &seen[1], "stages 0 and 1, looked at");
    ranks_same(&seen[2], &seen[3], "stages 2 and 3, looked at");
    for (uint32_t stage = 0; stage < 4; stage++)
        ranks_free(&seen[stage]);
    ranks_same(&base, &cut[0], "stage 0, cut");
    ranks_same(&base, &cut[1], "stage 1, cut");
    ranks_same(&cut[2], &cut[3], "stages 2 and 3, cut");
    for (uint32_t stage = 0; stage < 4; stage++)
        ranks_free(&cut[stage]);
    ranks_free(&base);
}

/* Another number of ranks changes the order of the sum over tokens;
 * docs/zero3.md states the bound. */
static void number_of_ranks_stays_within_the_bound(void **state)
{
    (void)state;
    for (uint32_t tied = 0; tied < 2; tied++) {
        const char *json = tied ? rig_tiny_tied : rig_tiny;
        ranks_run one = ranks_of(json, 1, 3);
        one.steps = 1;
        ranks_go(&one);
        for (uint32_t ranks = 2; ranks <= 4; ranks += 2) {
            ranks_run run = ranks_of(json, ranks, 3);
            run.steps = 1;
            ranks_go(&run);
            double grads = snapshot_distance(&one.grads, &run.grads);
            if (!(grads < 1e-5))
                fail_msg("%u ranks: gradients %g away", ranks, grads);
            assert_true(fabs(one.nll[0] - run.nll[0]) < 1e-6 * one.nll[0]);
            assert_true(fabs(one.norm[0][0] - run.norm[0][0]) <
                        1e-6 * one.norm[0][0]);
            ranks_free(&run);
        }
        ranks_free(&one);
    }
}

/* One row gives one rank all of the gradient, so its sum over any number of
 * ranks is the same, and so is the norm: it has no order. */
static void the_norm_does_not_depend_on_the_shares(void **state)
{
    (void)state;
    ranks_run one = ranks_of(rig_tiny, 1, 0);
    one.rows = 1;
    ranks_go(&one);
    for (uint32_t ranks = 2; ranks <= 4; ranks++) {
        ranks_run run = ranks_of(rig_tiny, ranks, ranks - 1);
        run.rows = 1;
        ranks_go(&run);
        expect_ranks_alike(&run);
        ranks_same(&one, &run, "one row");
        ranks_free(&run);
    }
    ranks_free(&one);
}

static void rank_count_steps(void **state)
{
    (void)state;
    ranks_run one = ranks_of(rig_tiny, 1, 3);
    ranks_run four = ranks_of(rig_tiny, 4, 3);
    ranks_go(&one);
    ranks_go(&four);
    for (uint32_t i = 0; i < one.steps; i++)
        if (!(fabs(one.nll[i] - four.nll[i]) < 1e-5 * one.nll[i]))
            fail_msg("step %u: loss %.9g, on four ranks %.9g", i, one.nll[i],
                     four.nll[i]);
    double far = snapshot_distance(&one.weights, &four.weights);
    if (!(far < 2e-2))
        fail_msg("weights %g away", far);
    ranks_free(&one);
    ranks_free(&four);
}

/* Log-probabilities have the same bits on any number of ranks at any stage,
 * including a rank without rows. */
static void scores_are_the_same_on_any_number_of_ranks(void **state)
{
    (void)state;
    ranks_run one = ranks_of(rig_tiny_tied, 1, 3);
    one.score = 1;
    one.rows = 3;
    one.steps = 1;
    ranks_go(&one);
    for (uint32_t stage = 0; stage < 4; stage++) {
        ranks_run run = ranks_of(rig_tiny_tied, 4, stage);
        run.score = 1;
        run.rows = 3;
        run.steps = 1;
        ranks_go(&run);
        assert_memory_equal(one.logp, run.logp, sizeof(one.logp));
        double far = snapshot_distance(&one.grads, &run.grads);
        if (!(far < 1e-5))
            fail_msg("gradients of three rows on four ranks: %g away", far);
        ranks_free(&run);
        /* A reference has no gradients and gives the same values. */
        run = ranks_of(rig_tiny_tied, 4, stage);
        run.score = 1;
        run.rows = 3;
        run.steps = 0;
        run.spec.frozen = 1;
        ranks_go(&run);
        assert_memory_equal(one.logp, run.logp, sizeof(one.logp));
        ranks_free(&run);
    }
    ranks_free(&one);
}

/* The collectives of processes on one host give the same bits as the plain
 * ones. */
static void shm_gives_the_bits_of_plain_collectives(void **state)
{
    (void)state;
    for (uint32_t stage = 0; stage < 4; stage++) {
        ranks_run plain = ranks_of(ranks_deep, 3, stage);
        ranks_run run = ranks_of(ranks_deep, 3, stage);
        plain.cuts = 2;
        run.cuts = 2;
        run.shm = 1;
        run.spec.offload_param = stage == 3;
        ranks_go(&plain);
        ranks_go(&run);
        ranks_same(&plain, &run, "comm-shm");
        ranks_free(&plain);
        ranks_free(&run);
    }
}

/* ---- traffic
 * --------------------------------------------------------------- */

/* Counts the elements of the buckets with their padding: [0] the embedding,
 * then the blocks, then norm and head. */
static uint64_t count_bucket_elements(const char *json, uint32_t ranks,
                                      uint64_t *rooms, uint32_t *out_count)
{
    xr_err err = { "" };
    xm_config config;
    xm_layout *layout = NULL;
    uint64_t sum = 0;
    assert_int_equal(xm_config_parse(json, "test", &err, &config), XRAY_OK);
    assert_int_equal(xm_layout_create(&config, 1, &err, &layout), XRAY_OK);
    layout->ranks = ranks;
    *out_count = layout->bucket_count;
    for (uint32_t b = 0; b < layout->bucket_count; b++) {
        rooms[b] = xm_bucket_capacity(layout, b);
        sum += rooms[b];
    }
    xm_layout_destroy(layout);
    return sum;
}

/* Bytes that a rank receives: (D - 1) / D of all elements that are gathered or
 * summed. P: all elements. P_last: what the forward pass leaves in its slots,
 * namely the last two blocks, the head and the embedding, which the backward
 * pass does not need. */
static void check_traffic(const char *json, uint32_t ranks)
{
    uint64_t rooms[32];
    uint32_t count = 0;
    uint64_t all = count_bucket_elements(json, ranks, rooms, &count);
    uint64_t last =
        rooms[0] + rooms[count - 1] + rooms[count - 2] + rooms[count - 3];
    ranks_run run = ranks_of(json, ranks, 3);
    ranks_go(&run);
    for (uint32_t i = 0; i < run.steps; i++)
        for (uint32_t r = 0; r < ranks; r++)
            assert_int_equal(run.received[r][i], (3 * all - last) / ranks *
                                                     (ranks - 1) *
                                                     sizeof(float));
    ranks_free(&run);
    /* A later micro-batch finds the first two blocks in their slots. */
    run = ranks_of(json, ranks, 3);
    run.cuts = 4;
    ranks_go(&run);
    int tied = strstr(json, "\"tie_word_embeddings\":true") != NULL;
    uint64_t first = rooms[1] + rooms[2];
    if (tied)
        first += rooms[0] + rooms[count - 1];
    assert_int_equal(run.received[0][0], (4 * (3 * all - last) - 3 * first) /
                                             ranks * (ranks - 1) *
                                             sizeof(float));
    ranks_free(&run);
    /* Stage 2 sums every micro-batch, stages 0 and 1 sum once per step. */
    run = ranks_of(json, ranks, 2);
    run.cuts = 4;
    ranks_go(&run);
    assert_int_equal(run.received[0][0],
                     4 * all / ranks * (ranks - 1) * sizeof(float));
    ranks_free(&run);
    run = ranks_of(json, ranks, 1);
    run.cuts = 4;
    ranks_go(&run);
    assert_int_equal(run.received[0][0], 0);
    ranks_free(&run);
}

static void received_bytes_follow_the_formula(void **state)
{
    (void)state;
    check_traffic(ranks_deep, 2);
    check_traffic(ranks_deep, 4);
    check_traffic(rig_tiny_tied, 3);
}

/* ---- memory ------------------------------------------------------------- */

static void check_memory(ranks_run *run)
{
    xray_plan plan = { .header = XRAY_HEADER(xray_plan) };
    assert_int_equal(rig_plan(&run->spec, run->ranks, &plan), XRAY_OK);
    ranks_go(run);
    for (uint32_t r = 0; r < run->ranks; r++)
        for (uint32_t tag = 0; tag < XRAY_TAG_WORKSPACE; tag++) {
            double high = (double)run->memory[r].high[tag];
            double said = (double)plan.bytes[tag];
            if (!(fabs(said - high) <= 0.01 * high))
                fail_msg("%u ranks, stage %u, recompute %u, offload %u %u: "
                         "tag %u: planned %.0f, used %.0f",
                         run->ranks, run->spec.stage_1 - 1,
                         run->spec.checkpointing, run->spec.offload_optimizer,
                         run->spec.offload_param, tag, said, high);
        }
    ranks_free(run);
}

static void planned_memory_is_what_ranks_allocate(void **state)
{
    (void)state;
    static const uint32_t sizes[] = { 1, 2, 4 };
    for (uint32_t k = 0; k < 3 * 4 * 4; k++) {
        ranks_run run = ranks_of(k % 2 ? ranks_deep : rig_tiny_tied,
                                 sizes[k % 3], k / 3 % 4);
        run.steps = 1;
        run.spec.checkpointing = k / 12 % 2;
        run.spec.offload_optimizer = k / 24 % 2;
        run.spec.offload_param = k / 24 % 2 && k / 3 % 4 == 3;
        check_memory(&run);
    }
}

/* The share of a large model on one rank: bytes of weights, gradients and
 * moments by the formulas of docs/zero3.md. */
static void shares_of_a_large_model_follow_the_formulas(void **state)
{
    (void)state;
    uint64_t rooms[32];
    uint32_t count = 0;
    uint64_t all = count_bucket_elements(ranks_deep, 4, rooms, &count);
    xray_plan plan[4];
    for (uint32_t stage = 0; stage < 4; stage++) {
        ranks_run run = ranks_of(ranks_deep, 4, stage);
        plan[stage] = (xray_plan){ .header = XRAY_HEADER(xray_plan) };
        assert_int_equal(rig_plan(&run.spec, 4, &plan[stage]), XRAY_OK);
    }
    uint64_t slots = 2 * rooms[1] + rooms[count - 1];
    uint64_t part = rooms[1] / 4; /* blocks are the largest buckets here */
    assert_true(rooms[1] > rooms[count - 1]);
    assert_int_equal(plan[1].bytes[XRAY_TAG_OPTIMIZER], 2 * all + 192);
    assert_int_equal(plan[1].bytes[XRAY_TAG_GRADS], 4 * all);
    assert_int_equal(plan[2].bytes[XRAY_TAG_GRADS], all + 4 * (slots + part));
    assert_int_equal(plan[3].bytes[XRAY_TAG_GRADS], all + 4 * (slots + part));
    assert_true(plan[3].bytes[XRAY_TAG_WEIGHTS] <
                plan[2].bytes[XRAY_TAG_WEIGHTS] / 2);
}

/* ---- checkpoints -------------------------------------------------------- */

static void expect_same_file(const char *a, const char *b, const char *name)
{
    char path[2][512];
    char *text[2];
    size_t size[2];
    xr_err err = { "" };
    (void)snprintf(path[0], sizeof(path[0]), "%s/%s", a, name);
    (void)snprintf(path[1], sizeof(path[1]), "%s/%s", b, name);
    for (int i = 0; i < 2; i++)
        if (xr_file_read(path[i], 1u << 26, &err, &text[i], &size[i]) !=
            XRAY_OK)
            fail_msg("%s", err.text);
    assert_int_equal(size[0], size[1]);
    assert_memory_equal(text[0], text[1], size[0]);
    free(text[0]);
    free(text[1]);
}

/* A checkpoint of four ranks at stage 3 loads into any other layout; written
 * again from there, it has the same bytes. */
static void check_checkpoint(const char *json)
{
    static const struct {
        uint32_t ranks;
        uint32_t stage;
        uint32_t offload;
    } layouts[] = { { 1, 3, 0 }, { 1, 3, 1 }, { 2, 1, 0 },
                    { 2, 0, 1 }, { 4, 2, 0 }, { 3, 3, 1 } };
    char from[512];
    char to[512];
    ranks_run written = ranks_of(json, 4, 3);
    written.save_dir = rig_mkdir(from, sizeof(from));
    ranks_go(&written);
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
        ranks_run run = ranks_of(json, layouts[i].ranks, layouts[i].stage);
        run.spec.seed = 77;
        run.spec.offload_optimizer = layouts[i].offload;
        run.spec.offload_param = layouts[i].offload && layouts[i].stage == 3;
        run.steps = 0;
        run.load_dir = from;
        run.save_dir = rig_mkdir(to, sizeof(to));
        ranks_go(&run);
        assert_false(snapshot_differ(&written.weights, &run.weights));
        expect_same_file(from, to, "model.safetensors");
        expect_same_file(from, to, "optim.safetensors");
        rig_rmdir(to);
        ranks_free(&run);
    }
    rig_rmdir(from);
    ranks_free(&written);
}

static void checkpoints_are_those_of_one_rank(void **state)
{
    (void)state;
    check_checkpoint(rig_tiny);
    check_checkpoint(rig_tiny_tied);
    check_checkpoint(gpt2);
}

/* Five steps give the same bits as three steps, a checkpoint and two more
 * steps, even if another stage resumes. */
static void resume_continues_at_any_stage(void **state)
{
    (void)state;
    char dir[512];
    ranks_run whole = ranks_of(rig_tiny, 4, 3);
    whole.steps = 5;
    ranks_go(&whole);
    ranks_run first = ranks_of(rig_tiny, 4, 3);
    first.save_dir = rig_mkdir(dir, sizeof(dir));
    ranks_go(&first);
    for (uint32_t stage = 0; stage < 4; stage++) {
        ranks_run rest = ranks_of(rig_tiny, 4, stage);
        rest.spec.seed = 5;
        rest.load_dir = dir;
        rest.steps = 2;
        rest.first_step = 3;
        ranks_go(&rest);
        assert_false(snapshot_differ(&whole.weights, &rest.weights));
        assert_false(snapshot_differ(&whole.grads, &rest.grads));
        ranks_free(&rest);
    }
    rig_rmdir(dir);
    ranks_free(&first);
    ranks_free(&whole);
}

/* ---- failures
 * -------------------------------------------------------------- */

/* With a NaN on one rank no rank steps, and all name the same tensor. */
static void nan_on_one_rank_skips_the_step_on_all(void **state)
{
    (void)state;
    for (uint32_t stage = 0; stage < 4; stage++) {
        ranks_run run = ranks_of(rig_tiny, 3, stage);
        run.poison = 1;
        ranks_go(&run);
        for (uint32_t r = 0; r < 3; r++) {
            assert_int_equal(run.skipped[r], 1);
            assert_string_equal(run.bad[r],
                                "model.layers.1.mlp.down_proj.weight");
        }
        ranks_free(&run);
    }
}

/* A loss that fails on one rank fails there and leaves no other rank
 * waiting. */
static void failing_loss(void **state)
{
    (void)state;
    ranks_run run = ranks_of(rig_tiny, 2, 3);
    run.steps = 1;
    run.cuts = 3;
    run.fail_loss = 1;
    run.may_fail = 1;
    run.one_call = 1;
    ranks_go(&run);
    assert_int_equal(run.status[0], XRAY_OK);
    assert_int_equal(run.status[1], XRAY_E_NUMERIC);
    assert_non_null(strstr(run.error[1], "the loss failed"));
    ranks_free(&run);
}

/* ---- frozen blocks ------------------------------------------------------ */

/* Gradients of the trained blocks are those of a run that trains everything;
 * the frozen weights do not change. */
static void check_frozen(const char *json, uint32_t ranks, uint32_t stage,
                         uint32_t from)
{
    ranks_run all = ranks_of(json, ranks, stage);
    ranks_run some = ranks_of(json, ranks, stage);
    ranks_run still = ranks_of(json, ranks, stage);
    all.steps = 1;
    some.steps = 1;
    some.spec.from_layer = from;
    still.steps = 0;
    ranks_go(&all);
    ranks_go(&some);
    ranks_go(&still);
    assert_true(some.grads.count < all.grads.count);
    uint32_t moved = 0;
    for (uint32_t i = 0; i < some.grads.count; i++)
        for (uint32_t k = 0; k < all.grads.count; k++)
            if (strcmp(some.grads.tensors[i].name, all.grads.tensors[k].name) ==
                0)
                assert_memory_equal(
                    some.grads.tensors[i].data, all.grads.tensors[k].data,
                    some.grads.tensors[i].count * sizeof(float));
    for (uint32_t i = 0; i < some.weights.count; i++) {
        int trained = 0;
        int equal =
            memcmp(some.weights.tensors[i].data, still.weights.tensors[i].data,
                   some.weights.tensors[i].count * sizeof(float)) == 0;
        for (uint32_t k = 0; k < some.grads.count; k++)
            trained |= strcmp(some.grads.tensors[k].name,
                              some.weights.tensors[i].name) == 0;
        if (!trained)
            assert_true(equal);
        moved += !equal;
    }
    assert_true(moved > 0);
    ranks_free(&all);
    ranks_free(&some);
    ranks_free(&still);
}

static void frozen_blocks_keep_gradient_bits(void **state)
{
    (void)state;
    for (uint32_t ranks = 1; ranks <= 2; ranks++)
        for (uint32_t stage = 0; stage < 4; stage++) {
            check_frozen(ranks_deep, ranks, stage, 3);
            check_frozen(rig_tiny_tied, ranks, stage, 1);
        }
    check_frozen(rig_tiny, 2, 3, 2);
    ranks_run run = ranks_of(ranks_deep, 2, 3);
    run.spec.from_layer = 3;
    run.steps = 1;
    check_memory(&run);
    run = ranks_of(ranks_deep, 2, 1);
    run.spec.from_layer = 3;
    run.steps = 1;
    check_memory(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_stages_give_the_same_bits),
        cmocka_unit_test(stage_and_offload_change_nothing_on_one_rank),
        cmocka_unit_test(micro_batches_accumulate_as_documented),
        cmocka_unit_test(number_of_ranks_stays_within_the_bound),
        cmocka_unit_test(the_norm_does_not_depend_on_the_shares),
        cmocka_unit_test(rank_count_steps),
        cmocka_unit_test(scores_are_the_same_on_any_number_of_ranks),
        cmocka_unit_test(shm_gives_the_bits_of_plain_collectives),
        cmocka_unit_test(received_bytes_follow_the_formula),
        cmocka_unit_test(planned_memory_is_what_ranks_allocate),
        cmocka_unit_test(shares_of_a_large_model_follow_the_formulas),
        cmocka_unit_test(checkpoints_are_those_of_one_rank),
        cmocka_unit_test(resume_continues_at_any_stage),
        cmocka_unit_test(nan_on_one_rank_skips_the_step_on_all),
        cmocka_unit_test(failing_loss),
        cmocka_unit_test(frozen_blocks_keep_gradient_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
