/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that a model which is cut among tensor-parallel ranks and stages
 * trains as one that is not: outputs, the loss, gradients, norms and weights of
 * three steps have the bits of zero3 with as many replicas, memory is what was
 * planned, and collectives are those of docs/megatron.md. Where ranks divide
 * rows, gradients are near to those of zero3, collectives are counted as well,
 * and all else has the bits of ranks that divide nothing but rows. The axes are
 * the ways to divide and compute a model. Runs are chosen so that any two
 * values of two axes meet; with the argument "all" every three do.
 */
#include <xray/numerics.h>

#include "model/train/trainer.h"
#include "tests/train/ranks.h"

#define LAYERS 4u
#define STEPS 3u

/* ---- axes ---------------------------------------------------------------- */

enum {
    LAYOUT,
    STAGES,
    CHUNKS,
    CONTEXT,
    MODEL,
    OUTPUTS,
    RECOMPUTE,
    SEQUENCE,
    FROZEN,
    PROMPTS,
    DTYPE,
    OPTIMIZER,
    OVERLAP,
    LOGITS,
    MEMORY,
    CUTS,
    AXES
};

/* The names of each axis's values. */
static const char *const axes[AXES][12] = {
    [LAYOUT] = { "1x1", "1x2", "1x4", "2x1", "2x2", "2x4", "4x1", "4x2",
                 "8x1" },
    [STAGES] = { "1 stage", "2 stages", "4 stages" },
    [CHUNKS] = { "consecutive layers", "2 chunks" },
    [CONTEXT] = { "entire rows", "divided rows" },
    [MODEL] = { "tied qwen3", "untied qwen2", "gpt2" },
    [OUTPUTS] = { "log-probabilities", "and values", "only values" },
    [RECOMPUTE] = { "recomputes norms", "recomputes all", "keeps all" },
    [SEQUENCE] = { "all tokens", "part of the tokens" },
    [FROZEN] = { "trains all", "block 0 is frozen" },
    [PROMPTS] = { "separate prompts", "shared prompts" },
    [DTYPE] = { "fp32", "bf16" },
    [OPTIMIZER] = { "distributed optimizer", "whole optimizer" },
    [OVERLAP] = { "overlap", "no overlap" },
    [LOGITS] = { "auto logits", "kept logits", "recomputed logits" },
    [MEMORY] = { "stays", "optimizer on the host", "turns" },
    [CUTS] = { "1 micro-batch", "2 micro-batches" },
};

static const uint32_t layouts[][2] = { /* ranks of a replica, replicas */
                                       { 1, 1 }, { 1, 2 }, { 1, 4 },
                                       { 2, 1 }, { 2, 2 }, { 2, 4 },
                                       { 4, 1 }, { 4, 2 }, { 8, 1 }
};

static const struct kind {
    const char *json;
    uint32_t most; /* ranks of a replica that share no KV heads */
    uint32_t hidden;
    uint32_t kv;        /* floats of all keys of a token */
    uint32_t head_norm; /* floats of a norm of q or k heads */
    uint32_t norm;      /* and of one of the residual stream */
    uint32_t tied;
} kinds[] = { { ranks_qwen3, 8, 24, 32, 4, 24, 1 },
              { ranks_qwen2, 4, 32, 16, 0, 32, 0 },
              { ranks_gpt2, 8, 32, 32, 0, 64, 1 } };

typedef struct point {
    uint32_t at[AXES];
} point;

static uint32_t count_values(uint32_t axis)
{
    uint32_t count = 0;
    while (axes[axis][count])
        count++;
    return count;
}

static int is_allowed(const point *p)
{
    const uint32_t *layout = layouts[p->at[LAYOUT]];
    uint32_t ranks = layout[0] * layout[1] << p->at[STAGES] << p->at[CONTEXT];
    return layout[0] <= kinds[p->at[MODEL]].most && ranks <= THREAD_COMM_MAX &&
           !(p->at[CONTEXT] && p->at[PROMPTS]) &&
           !(p->at[CHUNKS] && p->at[STAGES] != 1);
}

/* ---- a cover of the axes ------------------------------------------------- */

/* Sets of values of two or three axes. The values of all axes are numbered:
 * value v of axis a is first[a] + v, and a set is three numbers, of which the
 * last two are the same where it has two values. */
typedef struct cover {
    uint32_t strength; /* 2 or 3 */
    uint32_t values;
    uint32_t first[AXES + 1];
    uint32_t drawn;
    unsigned char *met; /* [values ^ 3] 1: the set is in a run */
} cover;

static cover cover_open(uint32_t strength)
{
    cover c = { .strength = strength };
    for (uint32_t a = 0; a < AXES; a++)
        c.first[a + 1] = c.first[a] + count_values(a);
    c.values = c.first[AXES];
    c.met = calloc((size_t)c.values * c.values * c.values, 1);
    assert_non_null(c.met);
    return c;
}

/* Counts the sets of a point that have not met; with `mark` they have met from
 * now on. */
static uint32_t count_new(const cover *c, const point *p, int mark)
{
    uint32_t count = 0;
    for (uint32_t x = 0; x < AXES; x++)
        for (uint32_t y = x + 1; y < AXES; y++)
            for (uint32_t z = y; z < AXES; z++) {
                size_t at = c->first[x] + p->at[x];
                if ((z == y) != (c->strength == 2))
                    continue;
                at = at * c->values + c->first[y] + p->at[y];
                at = at * c->values + c->first[z] + p->at[z];
                count += !c->met[at];
                c->met[at] |= (unsigned char)mark;
            }
    return count;
}

/* Draws a point with the three values. */
static point draw_point(cover *c, const uint32_t set[3])
{
    point p;
    for (uint32_t a = 0; a < AXES; a++) {
        p.at[a] = xray_philox(19, c->drawn++, 5, 0, 0).w[0] % count_values(a);
        for (uint32_t k = 0; k < 3; k++)
            if (set[k] >= c->first[a] && set[k] < c->first[a + 1])
                p.at[a] = set[k] - c->first[a];
    }
    return p;
}

/* Finds a point with the set in which most sets meet first; 0 if no point that
 * is allowed has the set or if it has met. */
static int find_point(cover *c, const uint32_t set[3], point *out)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < 64; i++) {
        point p = draw_point(c, set);
        size_t at = ((size_t)set[0] * c->values + set[1]) * c->values + set[2];
        uint32_t count = is_allowed(&p) ? count_new(c, &p, 0) : 0;
        if (c->met[at])
            return 0;
        if (count > most)
            *out = p;
        most = count > most ? count : most;
    }
    return most > 0;
}

static uint32_t axis_of(const cover *c, uint32_t value)
{
    uint32_t axis = 0;
    while (value >= c->first[axis + 1])
        axis++;
    return axis;
}

/* 1 if number `at` stands for a set of values of different axes, in order. */
static int is_set(const cover *c, size_t at, uint32_t set[3])
{
    set[0] = (uint32_t)(at / c->values / c->values);
    set[1] = (uint32_t)(at / c->values % c->values);
    set[2] = (uint32_t)(at % c->values);
    uint32_t y = axis_of(c, set[1]);
    return axis_of(c, set[0]) < y &&
           (c->strength == 2 ? set[1] == set[2] : y < axis_of(c, set[2]));
}

/* Calls `fn` for points in which all sets meet, and returns their number. */
static uint32_t cover_axes(uint32_t strength, void (*fn)(const point *p))
{
    cover c = cover_open(strength);
    size_t sets = (size_t)c.values * c.values * c.values;
    uint32_t points = 0;
    uint32_t set[3];
    point p;
    for (size_t at = 0; at < sets; at++)
        if (is_set(&c, at, set) && find_point(&c, set, &p)) {
            (void)count_new(&c, &p, 1);
            fn(&p);
            points++;
        }
    free(c.met);
    return points;
}

/* ---- what is expected of a point ----------------------------------------- */

static char name[512]; /* of the point that runs */

static void describe_point(const point *p)
{
    name[0] = '\0';
    for (uint32_t a = 0; a < AXES; a++)
        (void)snprintf(name + strlen(name), sizeof(name) - strlen(name), "%s%s",
                       a ? ", " : "", axes[a][p->at[a]]);
}

static void expect_calls(const char *what, uint32_t rank, uint32_t step,
                         thread_comm_calls made, thread_comm_calls want)
{
    if (made.calls != want.calls || made.floats != want.floats)
        fail_msg("%s: rank %u, step %u, %s: %llu calls and %llu floats, not "
                 "%llu and %llu",
                 name, rank, step, what, (unsigned long long)made.calls,
                 (unsigned long long)made.floats,
                 (unsigned long long)want.calls,
                 (unsigned long long)want.floats);
}

static void expect_traffic(const char *what, uint32_t rank, uint32_t step,
                           const thread_comm_traffic *made,
                           const thread_comm_traffic *want)
{
    char call[64];
    (void)snprintf(call, sizeof(call), "%s, all_reduce", what);
    expect_calls(call, rank, step, made->all_reduce, want->all_reduce);
    (void)snprintf(call, sizeof(call), "%s, all_reduce_max", what);
    expect_calls(call, rank, step, made->all_reduce_max, want->all_reduce_max);
    (void)snprintf(call, sizeof(call), "%s, reduce_scatter", what);
    expect_calls(call, rank, step, made->reduce_scatter, want->reduce_scatter);
    (void)snprintf(call, sizeof(call), "%s, all_gather", what);
    expect_calls(call, rank, step, made->all_gather, want->all_gather);
    (void)snprintf(call, sizeof(call), "%s, broadcast", what);
    expect_calls(call, rank, step, made->broadcast, want->broadcast);
    (void)snprintf(call, sizeof(call), "%s, send", what);
    expect_calls(call, rank, step, made->send, want->send);
}

/* Each rank computes this part of the model. */
typedef struct stage {
    uint32_t number;
    uint32_t first; /* 1: it has the embedding */
    uint32_t last;  /* 1: it has the LM head */
    uint32_t layers;
    uint32_t trained; /* layers */
    uint32_t chunks;
    uint32_t back;  /* chunks whose backward pass goes through all layers */
    uint32_t sends; /* of them those that go on to the chunk before */
} stage;

static stage stage_of(const point *p, const ranks_run *run, uint32_t rank)
{
    uint32_t stages = run->spec.stages;
    uint32_t number = rank / run->spec.tensor / run->spec.context % stages;
    uint32_t layers = LAYERS / stages;
    uint32_t frozen = number ? 0 : p->at[FROZEN];
    stage s = { .number = number,
                .first = number == 0,
                .last = number + 1 == stages,
                .layers = layers,
                .trained = layers - frozen,
                .chunks = 1 + p->at[CHUNKS] };
    for (uint32_t c = 0; c < s.chunks; c++) {
        uint32_t first = (c * stages + number) * layers / s.chunks;
        s.back += first >= p->at[FROZEN];
        s.sends += first > p->at[FROZEN];
    }
    return s;
}

/* Where the ranks divide the tokens, a sum is scattered, and what the next
 * product reads is gathered: in a forward pass the inputs of each block's two
 * branches and the hidden states; in a backward pass the gradients of the
 * branches' outputs and of the embedding, and inputs that are not kept. Each
 * norm's gradient goes from rank to rank and then to all. */
static void divide_joins(const point *p, const ranks_run *run, uint32_t rank,
                         const ranks_work *work, thread_comm_traffic *want)
{
    const struct kind *kind = &kinds[p->at[MODEL]];
    const stage s = stage_of(p, run, rank);
    const uint32_t again[] = { 2, 4, 0 };
    uint64_t gathers = 2 * s.layers + s.chunks +
                       (2 + again[p->at[RECOMPUTE]]) * s.trained + s.back;
    uint64_t norms = work->passes * (2 * s.trained + s.last);
    uint32_t width = run->spec.tensor;
    want->reduce_scatter = want->all_reduce;
    want->reduce_scatter.floats = want->all_reduce.calls / work->passes *
                                  width * work->parts * kind->hidden;
    want->all_reduce = (thread_comm_calls){ 0, 0 };
    want->all_gather =
        (thread_comm_calls){ work->passes * gathers,
                             work->parts * kind->hidden * gathers };
    want->broadcast = (thread_comm_calls){ norms, norms * kind->norm };
    if (rank % width + 1 < width)
        want->send = want->broadcast;
}

/* The collectives of a step within a replica: in a forward pass the embedding,
 * o and down of each block, and two of the head; in a backward pass the head,
 * and q, k and v, and gate and up of each block that is trained. A block that
 * is computed again joins what o gives. Norms of heads are joined once. */
static void expect_joins(const point *p, const ranks_run *run, uint32_t rank,
                         uint32_t step)
{
    const struct kind *kind = &kinds[p->at[MODEL]];
    const ranks_work *work = &run->work[rank][step];
    const stage s = stage_of(p, run, rank);
    uint64_t wide = s.first + 2 * s.layers + 2 * s.trained;
    uint64_t norms = kind->head_norm ? 2 * s.trained : 0;
    thread_comm_traffic want = { 0 };
    if (run->spec.tensor == 1)
        return;
    if (p->at[RECOMPUTE] == XM_TRAINER_RECOMPUTE_FULL)
        wide += s.trained;
    want.all_reduce.calls = work->passes * wide;
    want.all_reduce.floats = work->inputs * kind->hidden * wide;
    if (p->at[SEQUENCE])
        divide_joins(p, run, rank, work, &want);
    want.all_reduce.calls += norms;
    want.all_reduce.floats += norms * kind->head_norm;
    if (s.last && run->spec.outputs != XRAY_OUTPUT_VALUE) {
        want.all_reduce_max.calls = work->passes;
        want.all_reduce_max.floats = work->items;
        want.all_reduce.calls += 2 * work->passes;
        want.all_reduce.floats += work->items * (4 + kind->hidden);
    }
    expect_traffic("slices", rank, step, &run->joins[rank][step], &want);
}

/* The buckets with gradients. */
static thread_comm_calls count_buckets(const point *p, const ranks_run *run,
                                       uint32_t rank)
{
    const stage s = stage_of(p, run, rank);
    int embeds = s.first || (s.last && kinds[p->at[MODEL]].tied);
    return (thread_comm_calls){ s.trained + s.last + (embeds && !p->at[FROZEN]),
                                run->trained[rank] };
}

/* Among replicas each bucket with gradients is reduce-scattered, and its
 * weights are gathered, unless ranks that divide rows take part in that;
 * without the distributed optimizer it is summed. */
static void expect_sums(const point *p, const ranks_run *run, uint32_t rank,
                        uint32_t step)
{
    const thread_comm_calls all = count_buckets(p, run, rank);
    uint32_t replicas = layouts[p->at[LAYOUT]][1];
    thread_comm_traffic want = { 0 };
    if (replicas == 1)
        return;
    if (p->at[OPTIMIZER])
        want.all_reduce = all;
    else
        want.reduce_scatter = all;
    if (!p->at[OPTIMIZER] && !p->at[CONTEXT])
        want.all_gather =
            (thread_comm_calls){ all.calls, all.floats / replicas };
    expect_traffic("replicas", rank, step, &run->sums[rank][step], &want);
}

/* Ranks that divide rows gather keys and values in the forward pass, and again
 * where blocks are trained, sum their gradients, and gather outputs, of as many
 * items as the rank has that has most. What the replicas have summed of
 * gradients they sum further. Weights they gather with the ranks of all
 * replicas. */
static void expect_keys(const point *p, const ranks_run *run, uint32_t rank,
                        uint32_t step)
{
    static const uint32_t outputs[] = { 2, 3, 1 };
    const ranks_work *work = &run->work[rank][step];
    const stage s = stage_of(p, run, rank);
    const thread_comm_calls all = count_buckets(p, run, rank);
    uint32_t replicas = layouts[p->at[LAYOUT]][1];
    uint32_t ranks = run->spec.context;
    uint64_t keys =
        2 * kinds[p->at[MODEL]].kv / run->spec.tensor * work->context;
    uint64_t gathers = s.layers + s.trained;
    uint64_t shown = s.last ? outputs[p->at[OUTPUTS]] : 0;
    thread_comm_traffic want = {
        .all_gather = { work->passes * (gathers + shown),
                        gathers * keys + shown * work->most },
        .reduce_scatter = { work->passes * s.trained, s.trained * keys * ranks }
    };
    if (p->at[OPTIMIZER])
        want.all_reduce = all;
    else {
        want.reduce_scatter.calls += all.calls;
        want.reduce_scatter.floats += all.floats / replicas;
    }
    if (!p->at[OPTIMIZER] && replicas == 1) {
        want.all_gather.calls += all.calls;
        want.all_gather.floats += all.floats / ranks;
    }
    if (p->at[CONTEXT])
        expect_traffic("contexts", rank, step, &run->keys[rank][step], &want);
}

/* Hidden states go to the next stage, gradients to the one before; each of the
 * two stages with a tied embedding sends its gradient once. */
static void expect_messages(const point *p, const ranks_run *run, uint32_t rank,
                            uint32_t step)
{
    const struct kind *kind = &kinds[p->at[MODEL]];
    const ranks_work *work = &run->work[rank][step];
    const stage s = stage_of(p, run, rank);
    thread_comm_traffic want = { 0 };
    uint64_t floats = work->inputs * kind->hidden;
    uint32_t hidden = s.chunks - s.last;
    want.send.calls = work->passes * (hidden + s.sends);
    want.send.floats = hidden * floats / (1 + p->at[DTYPE]) + s.sends * floats;
    if (kind->tied && (s.first || s.last) && !p->at[FROZEN]) {
        want.send.calls++;
        want.send.floats += run->embedding[rank];
    }
    if (p->at[STAGES])
        expect_traffic("stages", rank, step, &run->passed[rank][step], &want);
}

static void expect_bits(const ranks_run *want, const ranks_run *run)
{
    for (uint32_t r = 1; r < run->ranks; r++)
        if (memcmp(run->norm[0], run->norm[r], sizeof(run->norm[0])) != 0)
            fail_msg("%s: rank %u has other norms", name, r);
    ranks_same(want, run, name);
    if (memcmp(want->logp, run->logp, sizeof(want->logp)) != 0)
        fail_msg("%s: other log-probabilities", name);
    if (memcmp(want->value, run->value, sizeof(want->value)) != 0)
        fail_msg("%s: other values", name);
    if (memcmp(want->nll, run->nll, sizeof(want->nll)) != 0)
        fail_msg("%s: other losses", name);
}

/* ---- the runs ------------------------------------------------------------ */

/* Gives a model LAYERS layers, so that it has as many stages. */
static void deepen_model(const char *json, char *out, size_t cap)
{
    (void)snprintf(out, cap, "%s", json);
    char *layers = strstr(out, "n_layers\":");
    layers = layers ? layers : strstr(out, "n_layer\":");
    strchr(layers, ':')[1] = '0' + LAYERS;
}

/* Sets what changes bits, which is the same on both sides. */
static ranks_run run_of(const point *p, uint32_t ranks)
{
    static char json[512];
    static const uint32_t outputs[] = { XRAY_OUTPUT_LOGP | XRAY_OUTPUT_ENTROPY,
                                        XRAY_OUTPUT_LOGP | XRAY_OUTPUT_ENTROPY |
                                            XRAY_OUTPUT_VALUE,
                                        XRAY_OUTPUT_VALUE };
    deepen_model(kinds[p->at[MODEL]].json, json, sizeof(json));
    ranks_run run = ranks_of(json, ranks, 1);
    run.spec.outputs = outputs[p->at[OUTPUTS]];
    run.spec.from_layer = p->at[FROZEN];
    run.spec.dtype = p->at[DTYPE] ? XRAY_BF16 : XRAY_F32;
    run.share = p->at[PROMPTS];
    run.steps = STEPS;
    run.score = 1;
    return run;
}

/* Sets what changes none. */
static ranks_run divided_run(const point *p)
{
    uint32_t tensor = layouts[p->at[LAYOUT]][0];
    uint32_t replicas = layouts[p->at[LAYOUT]][1];
    uint32_t stages = 1u << p->at[STAGES];
    uint32_t context = 1u << p->at[CONTEXT];
    ranks_run run = run_of(p, tensor * context * stages * replicas);
    run.cuts = 1 + p->at[CUTS];
    run.spec.tensor = tensor;
    run.spec.context = context;
    run.spec.stages = stages;
    run.spec.chunks = 1 + p->at[CHUNKS];
    run.spec.checkpointing = p->at[RECOMPUTE];
    run.spec.sequence = p->at[SEQUENCE];
    run.spec.all_moments = p->at[OPTIMIZER];
    run.spec.no_overlap = p->at[OVERLAP];
    run.spec.head_logits = p->at[LOGITS];
    run.spec.offload_optimizer = p->at[MEMORY] == 1;
    run.turns = p->at[MEMORY] == 2;
    return run;
}

/* In which order tokens are summed depends on the division of rows and on
 * micro-batches. */
static void check_rows(const point *p, const ranks_run *run)
{
    uint32_t replicas = layouts[p->at[LAYOUT]][1];
    ranks_run zero3 = run_of(p, replicas);
    ranks_run first = divided_run(p);
    ranks_run alone = run_of(p, 2 * replicas);
    zero3.steps = first.steps = 1;
    alone.cuts = run->cuts;
    alone.spec.tensor = 1;
    alone.spec.context = 2;
    ranks_go(&zero3);
    ranks_go(&first);
    ranks_near(&zero3, &first, name);
    ranks_go(&alone);
    expect_bits(&alone, run);
    ranks_free(&zero3);
    ranks_free(&first);
    ranks_free(&alone);
}

static void check_bits(const point *p, const ranks_run *run)
{
    ranks_run want = run_of(p, layouts[p->at[LAYOUT]][1]);
    want.cuts = 2 - p->at[CUTS];
    ranks_go(&want);
    expect_bits(&want, run);
    ranks_free(&want);
}

static void check_work(const point *p, const ranks_run *run)
{
    for (uint32_t r = 0; r < run->ranks; r++) {
        for (uint32_t i = 0; i < STEPS; i++) {
            expect_joins(p, run, r, i);
            expect_sums(p, run, r, i);
            expect_keys(p, run, r, i);
            expect_messages(p, run, r, i);
        }
    }
}

static void check_point(const point *p)
{
    ranks_run run = divided_run(p);
    describe_point(p);
    ranks_go(&run);
    ranks_planned(&run, name);
    if (p->at[CONTEXT])
        check_rows(p, &run);
    else
        check_bits(p, &run);
    check_work(p, &run);
    ranks_free(&run);
}

static uint32_t strength = 2;

static void any_way_to_divide_and_compute_gives_the_bits_of_zero3(void **state)
{
    (void)state;
    print_message("%u runs\n", cover_axes(strength, check_point));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_way_to_divide_and_compute_gives_the_bits_of_zero3),
    };
    if (argc > 1 && strcmp(argv[1], "all") == 0)
        strength = 3;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
