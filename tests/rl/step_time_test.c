/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves the prediction of times: each term against numbers computed by hand,
 * the direction in which figures of the machine change it, and the order of
 * published measurements.
 */
#include "core/run/step_time.h"
#include "tests/testing.h"

#define NEAR(A, B) assert_true((A) > (B)*0.999999 && (A) < (B)*1.000001)

/* ---- a model and a machine with round figures --------------------------- */

/* Every block has 4 products of 8 x 8, 8 x 8, 8 x 32 and 16 x 8 weights, so
 * that a token has 2 x 640 FLOPs in them. */
static xm_config make_small_model(void)
{
    return (xm_config){ .hidden = 8,
                        .layers = 4,
                        .heads = 2,
                        .kv_heads = 1,
                        .head_dim = 4,
                        .ffn = 16,
                        .vocab = 100,
                        .gated = 1,
                        .tied = 1,
                        .dtype = XRAY_BF16 };
}
enum { BLOCK_WEIGHTS = 8 * 16 + 8 * 8 + 8 * 32 + 16 * 8, HEAD_WEIGHTS = 800 };

static xr_machine make_machine(void)
{
    return (xr_machine){ .flops = 1e6,
                         .flops32 = 1e5,
                         .memory = 1e12,
                         .node = 4,
                         .link = 1e5,
                         .network = 1e4,
                         .host = 1e3,
                         .product_share = 0.5,
                         .attention_share = 0.25,
                         .memory_share = 1,
                         .link_share = 1 };
}

static xr_time_layout make_layout(void)
{
    return (xr_time_layout){ .tensor = { 1, 1 },
                             .context = { 1, 1 },
                             .pipeline = { 1, 1 },
                             .data = { 1, 1 },
                             .chunks = 1,
                             .zero = 1,
                             .sum_bytes = 4,
                             .grad_bytes = 4,
                             .weight_bytes = 4 };
}

static xm_config config;
static xr_machine machine;
static xr_time_layout layout;
static const xr_time_model model = { &config, &machine, &layout };
static const xr_time_work work = { .tokens = 10, .row = 5, .micro_batches = 3 };

static int reset(void **state)
{
    (void)state;
    config = make_small_model();
    machine = make_machine();
    layout = make_layout();
    return 0;
}

/* ---- compute ------------------------------------------------------------ */

static void
products_take_their_operations_forward_and_twice_backward(void **state)
{
    (void)state;
    const double weights = 4 * BLOCK_WEIGHTS + HEAD_WEIGHTS;
    const double forward = 2 * weights * 10 / (1e6 * 0.5);
    xr_times t = xr_time_update(&model, &work);
    NEAR(t.of[XR_TIME_PRODUCTS], 3 * 3 * forward);
    t = xr_time_forward(&model, &work);
    NEAR(t.of[XR_TIME_PRODUCTS], 3 * forward);
    assert_true(t.of[XR_TIME_UPDATE] == 0);
    config.dtype = XRAY_F32;
    t = xr_time_forward(&model, &work);
    NEAR(t.of[XR_TIME_PRODUCTS], 10 * 3 * forward);
    /* Without a rate of its own, a type is multiplied at that of the other. */
    machine.flops32 = 0;
    t = xr_time_forward(&model, &work);
    NEAR(t.of[XR_TIME_PRODUCTS], 3 * forward);
    config.dtype = XRAY_BF16;
    machine.flops32 = 1e5;
    machine.flops = 0;
    t = xr_time_forward(&model, &work);
    NEAR(t.of[XR_TIME_PRODUCTS], 10 * 3 * forward);
}

/* A query of a row of 5 reads 3 keys in the mean, each for 4 FLOPs in each of 8
 * columns; a window of 2 leaves 9 of the 15 keys. */
static void attention_counts_the_keys_before_each_query(void **state)
{
    (void)state;
    const double forward = 3 * 10 * 4 * 4 * 8 * 3.0 / (1e6 * 0.25);
    xr_times t = xr_time_forward(&model, &work);
    NEAR(t.of[XR_TIME_ATTENTION], forward);
    t = xr_time_update(&model, &work);
    NEAR(t.of[XR_TIME_ATTENTION], 3.5 * forward);
    config.window = 2;
    config.sliding[0] = 15;
    t = xr_time_forward(&model, &work);
    NEAR(t.of[XR_TIME_ATTENTION], forward * 9 / 15);
    NEAR(xr_time_flops(&config, 5),
         2 * (4 * BLOCK_WEIGHTS + HEAD_WEIGHTS) + 4 * 4 * 8 * 9 / 5.0);
}

/* A token of decoding reads all weights, and keys and values of its context. */
static void decoding_reads_weights_and_cache(void **state)
{
    (void)state;
    const xr_time_rollout one = {
        .rows = 6, .batch = 2, .prompt = 10, .prompts = 3, .response = 20
    };
    machine.flops = 1e15;
    machine.memory = 1e6;
    xr_times t = xr_time_sample(&model, &one);
    const double weights = 2 * (4 * BLOCK_WEIGHTS + HEAD_WEIGHTS);
    const double cache = 2 * 2 * 4 * 4 * 2 * 20;
    const double inputs =
        2 * 2 * (4 * (8 + 16 + 8 + 8 + 8 + 32 + 16 + 8) + 108);
    const double elements = 2 * 2 * 4 * (80 + 24 + 48) + 2 * 2 * 100 * 4;
    const xr_time_work prompts = { 30, 10, 1 };
    const xr_times prefill = xr_time_forward(&model, &prompts);
    NEAR(t.of[XR_TIME_MEMORY] - prefill.of[XR_TIME_MEMORY],
         3 * 20 * (weights + cache + inputs + elements) / 1e6);
    assert_string_equal(xr_times_bound(&t), "device memory");
}

static void
what_is_computed_again_is_a_forward_pass_or_its_elements(void **state)
{
    (void)state;
    assert_true(xr_time_update(&model, &work).of[XR_TIME_AGAIN] == 0);
    layout.again = XRAY_RECOMPUTE_FULL;
    const double full = xr_time_update(&model, &work).of[XR_TIME_AGAIN];
    const double blocks = 3 * 4 * 10 * 2 * BLOCK_WEIGHTS / (1e6 * 0.5) +
                          3 * 10 * 4 * 4 * 8 * 3.0 / (1e6 * 0.25);
    NEAR(full, blocks + 3 * 4 * 10 * 2 * (80 + 24 + 48) / 1e12);
    layout.again = XRAY_RECOMPUTE_SELECTIVE;
    NEAR(xr_time_update(&model, &work).of[XR_TIME_AGAIN],
         3 * 4 * 10 * 2 * (32 + 48) / 1e12);
}

/* ---- links -------------------------------------------------------------- */

static void collectives_use_the_links_that_the_ranks_have(void **state)
{
    (void)state;
    const xr_time_axis four = { 4, 1 };
    const xr_time_axis eight = { 8, 1 };
    const xr_time_axis apart = { 2, 4 };
    const xr_time_axis both[] = { { 2, 1 }, { 2, 4 } };
    NEAR(xr_time_collective(&machine, &four, 1, 1000), 750 / 1e5);
    /* Four ranks fetch the other node's half together. */
    NEAR(xr_time_collective(&machine, &eight, 1, 1000), 500 / 4e4);
    NEAR(xr_time_collective(&machine, &apart, 1, 1000), 500 / 1e4);
    NEAR(xr_time_collective(&machine, both, 2, 1000), 500 / 2e4);
    machine.link_latency = 1;
    machine.network_latency = 100;
    NEAR(xr_time_collective(&machine, &eight, 1, 0), 6 + 100);
    assert_true(xr_time_collective(&machine, &layout.data, 1, 1000) == 0);
}

/* Forward and backward have two sums each in a block, and a sum is a
 * reduce-scatter and an all-gather of [10, 8] elements. */
static void tensor_parallel_ranks_join_four_times_in_a_block(void **state)
{
    (void)state;
    layout.tensor.size = 2;
    double t = xr_time_update(&model, &work).of[XR_TIME_TENSOR];
    NEAR(t, 3 * 4 * 4 * 2 * (80 * 4 / 2.0 / 1e5));
    layout.sequence = 1;
    t = xr_time_update(&model, &work).of[XR_TIME_TENSOR];
    NEAR(t, 3 * 4 * 4 * (80 * 4 / 2.0 + 80 * 2 / 2.0) / 1e5);
    layout.again = XRAY_RECOMPUTE_SELECTIVE;
    t = xr_time_update(&model, &work).of[XR_TIME_TENSOR];
    NEAR(t, 3 * 4 * (4 * 80 * 4 / 2.0 + 6 * 80 * 2 / 2.0) / 1e5);
}

/* Keys and values of all tokens are gathered forward and again backward, and
 * their gradients scattered. */
static void context_parallel_ranks_gather_keys_and_values(void **state)
{
    (void)state;
    layout.context.size = 2;
    const double t = xr_time_update(&model, &work).of[XR_TIME_CONTEXT];
    NEAR(t, 3 * 4 * (2 * 10 * 4) * (2 + 2 + 4) / 2.0 / 1e5);
}

/* Four stages with a block each would wait for the one with the head; the
 * bubble is three times the slowest stage, and half of it with two chunks. */
static void stages_wait_while_they_fill_and_drain(void **state)
{
    (void)state;
    machine.link = 1e18;
    const xr_times alone = xr_time_update(&model, &work);
    config.vocab = 1;
    layout.pipeline = (xr_time_axis){ 4, 1 };
    xr_times t = xr_time_update(&model, &work);
    const double each =
        (xr_times_sum(&t) - t.of[XR_TIME_PIPELINE] - t.of[XR_TIME_UPDATE]) / 3;
    NEAR(t.of[XR_TIME_PIPELINE], 3 * each);
    assert_true(t.of[XR_TIME_PRODUCTS] < alone.of[XR_TIME_PRODUCTS] / 3);
    layout.chunks = 2;
    t = xr_time_update(&model, &work);
    NEAR(t.of[XR_TIME_PIPELINE], 3 * each / 2);
}

/* Of the gradients' sum only what is longer than a backward pass shows; the
 * weights are gathered in full view. A sum that every rank has moves twice. */
static void replicas_hide_gradients_behind_the_last_backward_pass(void **state)
{
    (void)state;
    const double bytes = 4.0 * (double)xm_config_param_count(&config);
    layout.data.size = 2;
    xr_times t = xr_time_update(&model, &work);
    NEAR(t.of[XR_TIME_DATA], bytes / 2 / 1e5);
    layout.zero = 0;
    assert_true(xr_time_update(&model, &work).of[XR_TIME_DATA] == 0);
    machine.link = 1;
    const double backward =
        (2 * t.of[XR_TIME_PRODUCTS] / 3 + 2.5 * t.of[XR_TIME_ATTENTION] / 3.5) /
        3;
    const double zero = xr_time_update(&model, &work).of[XR_TIME_DATA];
    assert_true(zero < bytes - backward && zero > bytes - backward * 1.001);
    layout.zero = 1;
    const double one = xr_time_update(&model, &work).of[XR_TIME_DATA];
    assert_true(one < bytes - backward && one > bytes - backward * 1.001);
    /* At stage 2 after each of three micro-batches. */
    layout.zero = 2;
    const double two = xr_time_update(&model, &work).of[XR_TIME_DATA];
    assert_true(two < 2 * bytes - 3 * backward &&
                two > 2 * bytes - 3 * backward * 1.001);
    layout.zero = 3;
    const double three = xr_time_update(&model, &work).of[XR_TIME_DATA];
    assert_true(three > 3 * 1.5 * bytes - 3 * 2 * backward &&
                three < 3 * 1.5 * bytes);
}

static void
the_optimizer_moves_thirty_bytes_for_each_of_its_elements(void **state)
{
    (void)state;
    const double all = 30.0 * (double)xm_config_param_count(&config) / 1e12;
    NEAR(xr_time_update(&model, &work).of[XR_TIME_UPDATE], all);
    layout.data.size = 4;
    NEAR(xr_time_update(&model, &work).of[XR_TIME_UPDATE], all / 4);
    layout.zero = 0;
    NEAR(xr_time_update(&model, &work).of[XR_TIME_UPDATE], all);
}

static void weights_go_to_the_host_and_from_there_to_the_engine(void **state)
{
    (void)state;
    const double bytes = 4.0 * (double)xm_config_param_count(&config);
    layout.tensor.size = 2;
    const xr_times t = xr_time_publish(&model, 1);
    NEAR(xr_times_sum(&t), 1.5 * bytes / 1e3);
}

/* ---- directions --------------------------------------------------------- */

static double time_all(void)
{
    const xr_time_rollout rollout = { 6, 2, 10, 3, 20 };
    const xr_times update = xr_time_update(&model, &work);
    const xr_times forward = xr_time_forward(&model, &work);
    const xr_times sample = xr_time_sample(&model, &rollout);
    return xr_times_sum(&update) + xr_times_sum(&forward) +
           xr_times_sum(&sample);
}

static void a_faster_machine_is_never_slower(void **state)
{
    (void)state;
    double *const rates[] = { &machine.flops,         &machine.memory,
                              &machine.link,          &machine.network,
                              &machine.product_share, &machine.attention_share,
                              &machine.memory_share,  &machine.link_share };
    for (uint32_t zero = 0; zero <= 3; zero++)
        for (uint32_t shape = 0; shape < 8; shape++) {
            (void)reset(NULL);
            machine.memory = 1e6;
            layout.zero = zero;
            layout.tensor = (xr_time_axis){ shape & 1 ? 2 : 1, 1 };
            layout.pipeline = (xr_time_axis){ shape & 2 ? 2 : 1, 2 };
            layout.data = (xr_time_axis){ shape & 4 ? 4 : 1, 4 };
            for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
                const double before = time_all();
                *rates[i] *= 1.5;
                assert_true(time_all() <= before);
            }
        }
}

/* ---- published measurements --------------------------------------------- */

/* MFU in percent of training with nanotron on nodes of 8 H100, sequences of
 * 4096 tokens and 2^20 tokens a step: the figure what_we_learnt_heatmap.svg of
 * Hugging Face's "Ultra-Scale Playbook", with the shapes of nanotron's
 * scripts/scaling_benchmarks.py (vocabulary 131072, as many KV heads as heads,
 * embeddings tied if the MLP has less than 10,000 columns). */
typedef struct cell {
    uint32_t shape;
    uint32_t nodes;
    double mfu;
    uint32_t data, tensor, pipeline, micro_batches, rows, zero;
} cell;

static const struct {
    uint32_t layers, hidden, heads, ffn;
} shapes[] = { { 16, 2048, 32, 8192 },
               { 28, 3072, 32, 8192 },
               { 32, 4096, 32, 14336 },
               { 80, 8192, 64, 28672 } };

static const cell cells[] = {
    { 0, 1, 44.32, 4, 1, 2, 16, 4, 1 },   { 1, 1, 46.68, 4, 1, 2, 32, 2, 1 },
    { 2, 1, 45.22, 2, 1, 4, 128, 1, 1 },  { 0, 2, 41.59, 8, 1, 2, 32, 1, 1 },
    { 1, 2, 43.77, 8, 1, 2, 16, 2, 1 },   { 2, 2, 43.94, 4, 4, 1, 16, 4, 1 },
    { 0, 4, 38.38, 16, 1, 2, 16, 1, 1 },  { 1, 4, 40.39, 16, 1, 2, 8, 2, 1 },
    { 2, 4, 43.31, 16, 1, 2, 16, 1, 1 },  { 3, 4, 14.76, 1, 8, 4, 256, 1, 0 },
    { 0, 8, 32.47, 32, 1, 2, 8, 1, 1 },   { 1, 8, 35.53, 32, 1, 2, 8, 1, 1 },
    { 2, 8, 39.50, 32, 1, 2, 8, 1, 1 },   { 3, 8, 30.65, 1, 4, 16, 256, 1, 0 },
    { 0, 16, 29.46, 64, 2, 1, 1, 4, 0 },  { 1, 16, 34.59, 32, 4, 1, 1, 8, 0 },
    { 2, 16, 36.33, 16, 8, 1, 2, 8, 0 },  { 3, 16, 34.29, 1, 4, 32, 256, 1, 0 },
    { 0, 32, 23.20, 64, 4, 1, 1, 4, 0 },  { 1, 32, 26.77, 64, 4, 1, 1, 4, 0 },
    { 2, 32, 32.71, 32, 8, 1, 1, 8, 0 },  { 3, 32, 30.75, 4, 4, 16, 64, 1, 1 },
    { 0, 64, 5.25, 128, 2, 2, 1, 2, 1 },  { 1, 64, 10.49, 128, 4, 1, 1, 2, 1 },
    { 2, 64, 18.69, 128, 4, 1, 1, 2, 0 }, { 3, 64, 17.79, 32, 16, 1, 4, 2, 1 },
};
enum { CELLS = sizeof(cells) / sizeof(cells[0]) };

/* The known H100, of which a program in PyTorch reaches less. Three figures,
 * the same for all cells, were chosen by trying values on them: half of the
 * products' rate, 6 us for each kernel, and 60 ms of the host for each step. */
static xr_machine make_h100(void)
{
    xr_machine h100;
    xr_err err = { "" };
    assert_int_equal(
        xr_machine_read("h100,product_share=0.5,launch=6e-6,update=0.06", &err,
                        &h100),
        XRAY_OK);
    return h100;
}

/* Predicts nanotron's MFU, which counts attention without the causal mask. Its
 * stages are farther apart than its replicas. */
static double predict_mfu(const cell *c, const xr_machine *h100)
{
    const double tokens = 1 << 20;
    const xm_config shape = { .hidden = shapes[c->shape].hidden,
                              .layers = shapes[c->shape].layers,
                              .heads = shapes[c->shape].heads,
                              .kv_heads = shapes[c->shape].heads,
                              .head_dim = shapes[c->shape].hidden /
                                          shapes[c->shape].heads,
                              .ffn = shapes[c->shape].ffn,
                              .vocab = 131072,
                              .tied = shapes[c->shape].ffn < 10000,
                              .gated = 1,
                              .dtype = XRAY_BF16 };
    const xr_time_layout ranks = { .tensor = { c->tensor, 1 },
                                   .context = { 1, 1 },
                                   .data = { c->data, c->tensor },
                                   .pipeline = { c->pipeline,
                                                 c->tensor * c->data },
                                   .chunks = 1,
                                   .sequence = c->tensor > 1,
                                   .zero = c->zero,
                                   .again = XRAY_RECOMPUTE_NONE,
                                   .sum_bytes = 2,
                                   .grad_bytes = 4,
                                   .weight_bytes = 2 };
    const xr_time_model nanotron = { &shape, h100, &ranks };
    const xr_time_work step = { 4096.0 * c->rows, 4096, c->micro_batches };
    const xr_times t = xr_time_update(&nanotron, &step);
    const double causal =
        xr_time_flops(&shape, 4096) - xr_time_flops(&shape, 1);
    const double flops = xr_time_flops(&shape, 4096) + causal;
    assert_true(c->data * c->tensor * c->pipeline == 8 * c->nodes);
    assert_true(c->data * c->rows * c->micro_batches * 4096 == tokens);
    return 100 * 3 * flops * tokens /
           (8 * c->nodes * h100->flops * xr_times_sum(&t));
}

/* Counts the values below `value`, and half of those equal to it. */
static double find_place(const double *values, double value)
{
    double place = 0;
    for (size_t i = 0; i < CELLS; i++)
        place += values[i] < value ? 1 : values[i] == value ? 0.5 : 0;
    return place;
}

static void the_order_of_published_layouts_is_predicted(void **state)
{
    (void)state;
    const xr_machine h100 = make_h100();
    double measured[CELLS];
    double predicted[CELLS];
    double squares = 0;
    for (size_t i = 0; i < CELLS; i++) {
        measured[i] = cells[i].mfu;
        predicted[i] = predict_mfu(&cells[i], &h100);
    }
    for (size_t i = 0; i < CELLS; i++) {
        const double far = find_place(measured, measured[i]) -
                           find_place(predicted, predicted[i]);
        squares += far * far;
    }
    const double count = CELLS;
    const double spearman = 1 - 6 * squares / (count * (count * count - 1));
    print_message("Spearman's rank correlation: %.3f\n", spearman);
    assert_true(spearman >= 0.9);
}

/* ---- machines ----------------------------------------------------------- */

static void machines_are_known_or_given_by_figures(void **state)
{
    (void)state;
    xr_machine m;
    xr_err err = { "" };
    assert_int_equal(xr_machine_read("h200", &err, &m), XRAY_OK);
    NEAR(m.memory, 4.8e12);
    assert_int_equal(xr_machine_read("h200,network=25e9", &err, &m), XRAY_OK);
    NEAR(m.network, 25e9);
    NEAR(m.memory, 4.8e12);
    assert_int_equal(xr_machine_read("flops32=4e11,memory=4e10", &err, &m),
                     XRAY_OK);
    NEAR(m.link, 4e10);
    NEAR(m.network, 4e10);
    NEAR(m.host, 4e10);
    assert_true(m.product_share == 1 && m.attention_share == 1 &&
                m.memory_share == 1 && m.link_share == 1 && m.node > 1e300);
    assert_true(m.link_latency == 0 && m.network_latency == 0 &&
                m.launch == 0 && m.update == 0);
    assert_int_equal(xr_machine_read("flops=1,memory=2,link=3", &err, &m), 0);
    assert_true(m.network == 3 && m.host == 2);
}

/* Every figure of docs/cli.md is read into its own place, and 0 is a number for
 * latencies and costs alone. */
static void each_figure_of_a_machine_is_its_own(void **state)
{
    (void)state;
#define FIGURE(NAME, FREE, SHARE)                          \
    {                                                      \
#NAME, offsetof(xr_machine, NAME), (FREE), (SHARE) \
    }
    static const struct {
        const char *name;
        size_t at;
        int free;  /* may be 0 */
        int share; /* is at most 1 */
    } figures[] = {
        FIGURE(flops, 0, 0),         FIGURE(flops32, 0, 0),
        FIGURE(memory, 0, 0),        FIGURE(capacity, 0, 0),
        FIGURE(node, 0, 0),          FIGURE(link, 0, 0),
        FIGURE(network, 0, 0),       FIGURE(host, 0, 0),
        FIGURE(link_latency, 1, 0),  FIGURE(network_latency, 1, 0),
        FIGURE(launch, 1, 0),        FIGURE(update, 1, 0),
        FIGURE(product_share, 0, 1), FIGURE(attention_share, 0, 1),
        FIGURE(memory_share, 0, 1),  FIGURE(link_share, 0, 1),
    };
    xr_machine plain;
    xr_err err = { "" };
    assert_int_equal(xr_machine_read("h100", &err, &plain), XRAY_OK);
    for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++) {
        static const double values[] = { 0.25, 1, 1.25, 0, -0.25 };
        for (size_t v = 0; v < sizeof(values) / sizeof(values[0]); v++) {
            const double value = values[v];
            int fits = (value > 0 || (value == 0 && figures[i].free)) &&
                       (value <= 1 || !figures[i].share);
            char text[64];
            xr_machine m;
            (void)snprintf(text, sizeof(text), "h100,%s=%g", figures[i].name,
                           value);
            if (xr_machine_read(text, &err, &m) !=
                (fits ? XRAY_OK : XRAY_E_CONFIG))
                fail_msg("%s", text);
            xr_machine want = plain;
            memcpy((char *)&want + figures[i].at, &value, sizeof(value));
            if (fits)
                assert_memory_equal(&m, &want, sizeof(m));
        }
    }
}

/* The figures of docs/time.md. */
static void known_machines_have_their_figures(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double memory;
        double capacity;
    } known[] = { { "h100", 3.35e12, 80e9 }, { "h200", 4.8e12, 141e9 } };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        xr_machine m;
        xr_err err = { "" };
        assert_int_equal(xr_machine_read(known[i].name, &err, &m), XRAY_OK);
        assert_string_equal(m.name, known[i].name);
        NEAR(m.memory, known[i].memory);
        NEAR(m.capacity, known[i].capacity);
        NEAR(m.flops, 989e12);
        NEAR(m.flops32, 67e12);
        NEAR(m.node, 8);
        NEAR(m.link, 450e9);
        NEAR(m.network, 50e9);
        NEAR(m.host, 64e9);
        NEAR(m.link_latency, 3e-6);
        NEAR(m.network_latency, 15e-6);
        NEAR(m.launch, 2e-6);
        NEAR(m.update, 1e-3);
        NEAR(m.product_share, 0.6);
        NEAR(m.attention_share, 0.45);
        NEAR(m.memory_share, 0.9);
        NEAR(m.link_share, 0.8);
    }
}

static void wrong_machines_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *message;
    } wrong[] = {
        { "h9000", "machine \"h9000\" is not known, expected h100, h200, or" },
        { "h200,speed=3", "machine \"speed=3\" is not known" },
        { "h200,link=fast",
          "machine: \"link=fast\": expected a number above 0" },
        { "h200,link=0", "machine: \"link=0\": expected a number above 0" },
        { "h200,link_share=1.5", "above 0 and at most 1" },
        { "h200,launch=-1", "expected a number of at least 0" },
        { "flops=1e12", "has no rate, expected flops or flops32, and memory" },
        { "", "machine \"\" is not known" },
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        xr_machine m;
        xr_err err = { "" };
        assert_int_equal(xr_machine_read(wrong[i].text, &err, &m),
                         XRAY_E_CONFIG);
        if (!strstr(err.text, wrong[i].message))
            fail_msg("%s", err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(
            products_take_their_operations_forward_and_twice_backward, reset),
        cmocka_unit_test_setup(attention_counts_the_keys_before_each_query,
                               reset),
        cmocka_unit_test_setup(decoding_reads_weights_and_cache, reset),
        cmocka_unit_test_setup(
            what_is_computed_again_is_a_forward_pass_or_its_elements, reset),
        cmocka_unit_test_setup(collectives_use_the_links_that_the_ranks_have,
                               reset),
        cmocka_unit_test_setup(tensor_parallel_ranks_join_four_times_in_a_block,
                               reset),
        cmocka_unit_test_setup(context_parallel_ranks_gather_keys_and_values,
                               reset),
        cmocka_unit_test_setup(stages_wait_while_they_fill_and_drain, reset),
        cmocka_unit_test_setup(
            replicas_hide_gradients_behind_the_last_backward_pass, reset),
        cmocka_unit_test_setup(
            the_optimizer_moves_thirty_bytes_for_each_of_its_elements, reset),
        cmocka_unit_test_setup(
            weights_go_to_the_host_and_from_there_to_the_engine, reset),
        cmocka_unit_test_setup(a_faster_machine_is_never_slower, reset),
        cmocka_unit_test(the_order_of_published_layouts_is_predicted),
        cmocka_unit_test(machines_are_known_or_given_by_figures),
        cmocka_unit_test(each_figure_of_a_machine_is_its_own),
        cmocka_unit_test(known_machines_have_their_figures),
        cmocka_unit_test(wrong_machines_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
