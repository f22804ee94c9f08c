/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests what engines hand to a device, by a device that computes nothing, seems
 * to be at work until it is waited for, and records graphs. The requests are
 * those of bench/gpu/first_contact.sh's item `decode`.
 */
#include "bench/workload.h"
#include "tests/serve/engine.h"

enum { LONGEST = 2048, SAME_BOUND = 256 };

enum { EMBED, NORM, MATMUL, ROPE, GLU, ATTEND, GATHER, SAMPLE, ADVANCE, GRAPH };

/* A call of the device, or a graph that was launched. */
typedef struct call {
    uint32_t what;
    uint32_t items;     /* at most */
    uint32_t positions; /* at most; 0: the call has no such bound */
    uint32_t recorded;  /* 1: for a graph */
} call;

#define CALLS (1u << 17)

typedef struct work {
    call calls[CALLS];
    uint32_t count;
    uint32_t launches;
    uint32_t uploads;
    uint32_t waits;
    uint64_t steps;
} work;

/* A graph of an engine has each of these once. */
struct xray_graph {
    xray_advance advance;
    xray_attention_kv attention;
};

static work works[2];
static work *current;
static xray_graph *recording; /* NULL: calls are made at once */
static const xray_device_ops *cpu;

static void note_call(uint32_t what, uint64_t items, uint64_t positions)
{
    assert_true(current->count < CALLS);
    current->calls[current->count++] =
        (call){ what, (uint32_t)items, (uint32_t)positions, recording != NULL };
}

#define COUNTED(name, type, what, extent)                            \
    static xray_status count_##name(void *self, xray_stream *stream, \
                                    const type *op)                  \
    {                                                                \
        (void)self;                                                  \
        (void)stream;                                                \
        note_call(what, op->extent.bound, 0);                        \
        return XRAY_OK;                                              \
    }

COUNTED(embedding, xray_embedding, EMBED, tokens)
COUNTED(rmsnorm, xray_rmsnorm, NORM, tokens)
COUNTED(matmul, xray_matmul, MATMUL, tokens)
COUNTED(rope, xray_rope, ROPE, tokens)
COUNTED(glu, xray_glu, GLU, tokens)
COUNTED(gather, xray_rows, GATHER, count)
COUNTED(sample, xray_sample, SAMPLE, items)

/* A bound may exceed the positions that there are only in a step that a graph
 * repeats, and there by less than SAME_BOUND. Attention divides keys by it. */
static void check_bound(const xray_attention_kv *op)
{
    const int32_t *live = op->tokens.live;
    uint64_t count = live ? (uint64_t)*live : op->tokens.bound;
    uint64_t least = 0;
    assert_in_range(count, 1, op->tokens.bound);
    for (uint64_t i = 0; i < count; i++)
        if ((uint64_t)op->positions[i] >= least)
            least = (uint64_t)op->positions[i] + 1;
    uint64_t most = (least + SAME_BOUND - 1) / SAME_BOUND * SAME_BOUND;
    assert_in_range(op->position_bound, least, live ? most : least);
}

static xray_status count_attention_kv(void *self, xray_stream *stream,
                                      const xray_attention_kv *op)
{
    (void)self;
    (void)stream;
    note_call(ATTEND, op->tokens.bound, op->position_bound);
    if (recording)
        recording->attention = *op;
    else
        check_bound(op);
    return XRAY_OK;
}

/* The only operator that is computed, since positions come from it. */
static xray_status count_advance(void *self, xray_stream *stream,
                                 const xray_advance *op)
{
    note_call(ADVANCE, op->items.bound, 0);
    if (!recording)
        return cpu->advance(self, stream, op);
    recording->advance = *op;
    return XRAY_OK;
}

static xray_status begin_graph(void *self, xray_stream *stream)
{
    (void)self;
    (void)stream;
    assert_null(recording);
    recording = calloc(1, sizeof(*recording));
    assert_non_null(recording);
    return XRAY_OK;
}

static xray_status end_graph(void *self, xray_stream *stream, xray_graph **out)
{
    (void)self;
    (void)stream;
    *out = recording;
    recording = NULL;
    return XRAY_OK;
}

static xray_status launch_graph(void *self, xray_stream *stream,
                                xray_graph *graph)
{
    current->launches++;
    note_call(GRAPH, graph->attention.tokens.bound,
              graph->attention.position_bound);
    xray_status status = cpu->advance(self, stream, &graph->advance);
    check_bound(&graph->attention);
    return status;
}

static void destroy_graph(void *self, xray_graph *graph)
{
    (void)self;
    free(graph);
}

static xray_status count_copy(void *self, xray_stream *stream, void *to,
                              const void *from, uint64_t bytes, uint32_t kind)
{
    current->uploads += kind == XRAY_COPY_TO_DEVICE;
    return cpu->copy(self, stream, to, from, bytes, kind);
}

static xray_status count_wait(void *self, xray_event *event)
{
    current->waits++;
    return cpu->event_sync(self, event);
}

static xray_status refuse_sync(void *self, xray_stream *stream)
{
    (void)self;
    (void)stream;
    fail_msg("a step waits for all of a stream's work");
    return XRAY_E_BUG;
}

/* Nobody reads keys. */
static xray_status alloc_no_keys(void *self, const char *owner, uint32_t tag,
                                 uint64_t bytes, void **out)
{
    return cpu->alloc(self, owner, tag, tag == XRAY_TAG_KV ? 64 : bytes, out);
}

static void make_idle(rig *r)
{
    cpu = r->device;
    rig_make_late(r);
    r->late.alloc = alloc_no_keys;
    r->late.embedding = count_embedding;
    r->late.rmsnorm = count_rmsnorm;
    r->late.matmul = count_matmul;
    r->late.rope = count_rope;
    r->late.glu = count_glu;
    r->late.attention_kv = count_attention_kv;
    r->late.gather = count_gather;
    r->late.sample = count_sample;
    r->late.advance = count_advance;
    r->late.copy = count_copy;
    r->late.event_sync = count_wait;
    r->late.graph_begin = begin_graph;
    r->late.graph_end = end_graph;
    r->late.graph_launch = launch_graph;
    r->late.graph_destroy = destroy_graph;
}

/* ---- the requests -------------------------------------------------------- */

static const char json[] =
    "{\"model_type\":\"qwen2\",\"num_hidden_layers\":2,\"vocab_size\":101,"
    "\"eos_token_id\":2,\"max_position_embeddings\":4096,"
    "\"rms_norm_eps\":1e-6,\"rope_theta\":10000.0,\"hidden_act\":\"silu\","
    "\"hidden_size\":16,\"intermediate_size\":16,"
    "\"num_attention_heads\":2,\"num_key_value_heads\":1,"
    "\"tie_word_embeddings\":true}";

static void make_requests(workload *w, uint32_t vocab)
{
    xr_err err = { "" };
    *w = (workload){ .how = { .requests = 256,
                              .prompts = { 100, LONGEST / 2 },
                              .outputs = { 100, LONGEST / 2 },
                              .samples = 1,
                              .copies = 1,
                              .turns = 1 },
                     .vocab = vocab };
    assert_int_equal(workload_make(w, &err), 0);
}

static void submit_requests(rig *r, void *engine, workload *w)
{
    for (uint32_t i = 0; i < w->count; i++) {
        uint32_t count = workload_row(w, i);
        xray_request q =
            request_make(i, w->ids, count, w->samples[i].max_tokens);
        q.temperature = 0;
        engine_submit(r, engine, &q);
    }
}

static uint64_t run_to_end(rig *r, void *engine)
{
    xray_infer_stats stats = { .header = XRAY_HEADER(xray_infer_stats) };
    xray_status status = XRAY_OK;
    while (status == XRAY_OK) {
        xray_sample_out out = { .header = XRAY_HEADER(xray_sample_out) };
        status = r->ops->step(engine);
        while (r->ops->poll(engine, &out) == XRAY_OK)
            assert_int_equal(out.finish, XRAY_FINISH_LENGTH);
    }
    assert_int_equal(status, XRAY_END);
    assert_int_equal(r->ops->stats(engine, &stats), XRAY_OK);
    return stats.steps;
}

/* Serves the requests with as many slots as there are requests. */
static void serve_requests(int paged, work *out)
{
    const engine_size size = { .rows = 256,
                               .row_tokens = LONGEST,
                               .config = { .max_num_batched_tokens = 2048 } };
    workload w;
    current = out;
    rig *r = rig_open(1);
    make_idle(r);
    if (paged)
        rig_use_paged(r, &(paged_config){ .block_size = 16,
                                          .watermark = 0.1,
                                          .enable_prefix_caching = 1 });
    model *m = model_open_json(r, json);
    void *engine = engine_open(r, m, &size);
    make_requests(&w, m->config.vocab);
    out->count = out->uploads = out->waits = 0;
    r->late.sync = refuse_sync;
    submit_requests(r, engine, &w);
    out->steps = run_to_end(r, engine);
    r->late.sync = cpu->sync;
    workload_free(&w);
    r->ops->destroy(engine);
    model_close(m);
    rig_close(r);
}

/* ---- the suite ----------------------------------------------------------- */

/* Where all sequences have a slot and their keys fit, the engines differ in
 * where keys are, and in the table that tells the device so, which is copied in
 * each step. docs/performance.md has these counts. */
static void engines_hand_over_the_same_work(void **state)
{
    (void)state;
    serve_requests(0, &works[0]);
    serve_requests(1, &works[1]);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(works[i].steps, 1081);
        assert_int_equal(works[i].launches, 758);
        assert_int_equal(works[i].waits, 2463);
    }
    assert_int_equal(works[0].uploads, 1806);
    assert_int_equal(works[1].uploads, 1806 + 1081);
    assert_int_equal(works[0].count, works[1].count);
    assert_memory_equal(works[0].calls, works[1].calls,
                        works[0].count * sizeof(call));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(engines_hand_over_the_same_work),
    };
    return cmocka_run_group_tests_name("serve.work", tests, NULL, NULL);
}
