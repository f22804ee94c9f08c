/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves terms of a predicted pass against each other: what ranks divide,
 * messages between stages, weights that are gathered for a forward pass, and
 * waves of a rollout.
 */
#include "core/run/step_time.h"
#include "tests/testing.h"

#define NEAR(A, B) \
    assert_true((A) > (B)*0.999999 - 1e-30 && (A) < (B)*1.000001 + 1e-30)

enum { HIDDEN = 8, TOKENS = 12, COUNT = 5 };

static xm_config config;
static xr_machine machine;
static xr_time_layout layout;
static const xr_time_model model = { &config, &machine, &layout };
static const xr_time_work work = { TOKENS, 6, COUNT };

static int begin_test(void **state)
{
    (void)state;
    config = (xm_config){ .hidden = HIDDEN,
                          .layers = 4,
                          .heads = 2,
                          .kv_heads = 2,
                          .head_dim = 4,
                          .ffn = 16,
                          .vocab = 100,
                          .gated = 1,
                          .dtype = XRAY_BF16 };
    machine = (xr_machine){ .flops = 1e6,
                            .flops32 = 1e6,
                            .memory = 1e6,
                            .node = 4,
                            .link = 1e5,
                            .network = 1e3,
                            .host = 1e5,
                            .link_latency = 0.25,
                            .network_latency = 3,
                            .product_share = 1,
                            .attention_share = 1,
                            .memory_share = 1,
                            .link_share = 0.5 };
    layout = (xr_time_layout){ .tensor = { 1, 1 },
                               .context = { 1, 1 },
                               .pipeline = { 1, 1 },
                               .data = { 1, 1 },
                               .chunks = 1,
                               .sum_bytes = 4,
                               .grad_bytes = 4,
                               .weight_bytes = 2 };
    return 0;
}

/* The time of a message: that of the bubble is one micro-batch with its
 * messages for each stage that waits, and every micro-batch sends its own. */
static double time_of_message(const xr_times *t, double messages)
{
    double others = 0;
    for (int i = 0; i < XR_TIMES; i++)
        others += i == XR_TIME_PIPELINE ? 0 : t->of[i];
    return (t->of[XR_TIME_PIPELINE] - others / COUNT) / (COUNT + 1) / messages;
}

/* Activations of a micro-batch go to the next stage; ranks that divide the
 * tokens of a layer send a part each. */
static void stages_send_their_activations(void **state)
{
    static const struct {
        uint32_t tensor, sequence, stride;
        int near;
    } cases[] = {
        { 1, 0, 1, 1 }, { 2, 0, 2, 1 }, { 2, 1, 2, 1 },
        { 1, 0, 2, 1 }, { 1, 0, 3, 0 }, { 2, 1, 4, 0 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const double parts = cases[i].sequence ? cases[i].tensor : 1;
        const double bytes = TOKENS * HIDDEN * 2 / parts;
        const double want = cases[i].near ? bytes / (1e5 * 0.5) + 0.25
                                          : bytes / (1e3 * 0.5) + 3;
        layout.tensor = (xr_time_axis){ cases[i].tensor, 1 };
        layout.sequence = cases[i].sequence;
        layout.pipeline = (xr_time_axis){ 2, cases[i].stride };
        const xr_times t = xr_time_forward(&model, &work);
        NEAR(time_of_message(&t, 1), want);
    }
    layout.pipeline.size = 1; /* nobody waits, and nothing is sent */
    const xr_times alone = xr_time_forward(&model, &work);
    assert_true(alone.of[XR_TIME_PIPELINE] == 0);
}

/* Weights that replicas share are gathered once for each micro-batch, as far as
 * the pass does not hide it. */
static void a_pass_gathers_shared_weights(void **state)
{
    (void)state;
    layout.data = (xr_time_axis){ 2, 1 };
    for (uint32_t zero = 0; zero <= 3; zero++) {
        layout.zero = zero;
        const xr_times t = xr_time_forward(&model, &work);
        assert_int_equal(t.of[XR_TIME_DATA] > 0, zero == 3);
    }
    /* The time that the pass does not hide grows with bytes and latency. */
    const double slow = xr_time_forward(&model, &work).of[XR_TIME_DATA];
    layout.weight_bytes = 1;
    assert_true(xr_time_forward(&model, &work).of[XR_TIME_DATA] < slow);
    layout.weight_bytes = 2;
    machine.link_latency = 0;
    assert_true(xr_time_forward(&model, &work).of[XR_TIME_DATA] < slow);
    machine.link = 1e12; /* a fast link is hidden by the pass */
    assert_true(xr_time_forward(&model, &work).of[XR_TIME_DATA] == 0);
}

/* Fewer rows than an engine takes at once decode as if it took no more; more of
 * them come in waves. */
static void rows_are_decoded_in_waves(void **state)
{
    const xr_time_rollout few = { 5, 10, 4, 1, 20 };
    const xr_time_rollout full = { 5, 5, 4, 1, 20 };
    const xr_time_rollout two = { 10, 5, 4, 1, 20 };
    const xr_time_rollout more = { 15, 5, 4, 1, 20 };
    (void)state;
    const xr_times one = xr_time_sample(&model, &few);
    const xr_times same = xr_time_sample(&model, &full);
    NEAR(xr_times_sum(&one), xr_times_sum(&same));
    const xr_times twice = xr_time_sample(&model, &two);
    const xr_times thrice = xr_time_sample(&model, &more);
    const double wave = xr_times_sum(&twice) - xr_times_sum(&same);
    assert_true(wave > 0);
    NEAR(xr_times_sum(&thrice) - xr_times_sum(&twice), wave);
}

/* Ranks that divide tokens or layers halve products and attention, and those
 * that divide layers the keys and values that the others gather. */
static void ranks_have_their_part_of_each_product(void **state)
{
    (void)state;
    machine.memory = 1e18; /* so that no product is bound by it */
    const xr_times whole = xr_time_update(&model, &work);
    for (int i = 0; i < 2; i++) {
        layout.context.size = i ? 1 : 2;
        layout.tensor.size = i ? 2 : 1;
        const xr_times half = xr_time_update(&model, &work);
        NEAR(half.of[XR_TIME_PRODUCTS], whole.of[XR_TIME_PRODUCTS] / 2);
        NEAR(half.of[XR_TIME_ATTENTION], whole.of[XR_TIME_ATTENTION] / 2);
    }
    machine.link_latency = 0;
    layout.context.size = 2;
    const double gathered = xr_time_update(&model, &work).of[XR_TIME_CONTEXT];
    layout.tensor.size = 1;
    NEAR(xr_time_update(&model, &work).of[XR_TIME_CONTEXT], 2 * gathered);
}

/* Recomputation is a forward pass of the blocks with its joins, or the norms of
 * all ranks and the activation of each. */
static void blocks_are_computed_again_with_their_joins(void **state)
{
    (void)state;
    config.vocab = 0; /* no head, whose inputs take no time either */
    machine.memory = 1e18;
    layout.tensor.size = 2;
    layout.again = XRAY_RECOMPUTE_FULL;
    const xr_times forward = xr_time_forward(&model, &work);
    assert_true(forward.of[XR_TIME_TENSOR] > 0);
    NEAR(xr_time_update(&model, &work).of[XR_TIME_AGAIN],
         xr_times_sum(&forward));
    layout.again = XRAY_RECOMPUTE_SELECTIVE;
    NEAR(xr_time_update(&model, &work).of[XR_TIME_AGAIN],
         COUNT * 4 * TOKENS * 2 * (4 * HIDDEN + 3 * 16 / 2) / 1e18);
}

/* Every rank of a replica writes its part, and every one of an engine reads
 * its own. */
static void weights_are_written_and_read_by_all(void **state)
{
    (void)state;
    const double bytes = 2.0 * (double)xm_config_param_count(&config);
    layout.tensor.size = 2;
    layout.pipeline.size = 2;
    for (int width = 1; width <= 2; width++) {
        const xr_times t = xr_time_publish(&model, width);
        NEAR(t.of[XR_TIME_WEIGHTS], (bytes / 4 + bytes / width) / (1e5 * 0.5));
    }
}

/* Twelve ranks on three nodes take nine steps of a ring within them, and two
 * between them. */
static void rings_have_a_latency_for_each_step(void **state)
{
    const xr_time_axis twelve = { 12, 1 };
    (void)state;
    NEAR(xr_time_collective(&machine, &twelve, 1, 0), 9 * 0.25 + 2 * 3);
}

/* Products, attention and four kernels of elements in each of four blocks; a
 * product and a pass over the logits in the head. */
static void every_kernel_has_its_start(void **state)
{
    (void)state;
    machine.launch = 1;
    NEAR(xr_time_forward(&model, &work).of[XR_TIME_HOST],
         COUNT * (4 * (4 + 1 + 4) + 2));
}

/* An update sends activations and their gradients, for each chunk. */
static void updates_send_both_ways(void **state)
{
    (void)state;
    machine.memory = 1e18;
    layout.pipeline = (xr_time_axis){ 2, 1 };
    const double message = TOKENS * HIDDEN * 2 / (1e5 * 0.5) + 0.25;
    xr_times t = xr_time_update(&model, &work);
    NEAR(time_of_message(&t, 2), message);
    const double waits = xr_times_sum(&t) - t.of[XR_TIME_PIPELINE];
    layout.chunks = 2;
    t = xr_time_update(&model, &work);
    NEAR((t.of[XR_TIME_PIPELINE] - waits / COUNT / 2) / (COUNT + 0.5),
         2 * 2 * message);
}

/* A step of ten keys more for each of two sequences reads those of a rank. */
static void decoding_reads_a_ranks_keys(void **state)
{
    const xr_time_rollout some = { 2, 2, 10, 0, 20 };
    const xr_time_rollout more = { 2, 2, 20, 0, 20 };
    (void)state;
    for (uint32_t ranks = 1; ranks <= 2; ranks++) {
        layout.tensor.size = ranks;
        const xr_times a = xr_time_sample(&model, &some);
        const xr_times b = xr_time_sample(&model, &more);
        NEAR(b.of[XR_TIME_MEMORY] - a.of[XR_TIME_MEMORY],
             20 * 2 * 2 * 10 * 8 * 4 * 2 / 1e6 / ranks);
    }
}

/* A shared optimizer is that of the replicas and of the ranks that divide
 * tokens. */
static void the_optimizer_is_shared_by_all_with_the_same_part(void **state)
{
    (void)state;
    layout.zero = 1;
    const double all = xr_time_update(&model, &work).of[XR_TIME_UPDATE];
    layout.context.size = 2;
    layout.data = (xr_time_axis){ 3, 2 };
    NEAR(xr_time_update(&model, &work).of[XR_TIME_UPDATE], all / 6);
    machine.update = 7;
    const double host = xr_time_update(&model, &work).of[XR_TIME_HOST];
    assert_true(host > 7 - 1e-9 && host < 7 + 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(stages_send_their_activations, begin_test),
        cmocka_unit_test_setup(a_pass_gathers_shared_weights, begin_test),
        cmocka_unit_test_setup(rows_are_decoded_in_waves, begin_test),
        cmocka_unit_test_setup(ranks_have_their_part_of_each_product,
                               begin_test),
        cmocka_unit_test_setup(blocks_are_computed_again_with_their_joins,
                               begin_test),
        cmocka_unit_test_setup(weights_are_written_and_read_by_all, begin_test),
        cmocka_unit_test_setup(rings_have_a_latency_for_each_step, begin_test),
        cmocka_unit_test_setup(every_kernel_has_its_start, begin_test),
        cmocka_unit_test_setup(updates_send_both_ways, begin_test),
        cmocka_unit_test_setup(decoding_reads_a_ranks_keys, begin_test),
        cmocka_unit_test_setup(
            the_optimizer_is_shared_by_all_with_the_same_part, begin_test),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
