/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that no failure of a device is overlooked: each call that an engine
 * makes to create itself, to compute steps, and to take new weights fails once,
 * and the engine says so and gives back what it had.
 */
#include <pthread.h>

#include "tests/serve/engine.h"
#include "tests/train/thread_comm.h"

/* ---- a device of which one call fails ------------------------------------ */

/* Each rank of an engine has a thread and a device of its own. */
static _Thread_local const xray_device_ops *inner;
static _Thread_local struct {
    uint32_t at; /* the call that fails, from 1; 0: none */
    uint32_t count;
    xray_status status;
    int events;       /* that are not destroyed */
    int host_blocks;  /* that are not freed */
    int graphs;       /* that are not destroyed */
    const char *last; /* the call that failed */
} faults;

static int is_next(const char *name)
{
    if (++faults.count != faults.at)
        return 0;
    faults.last = name;
    return 1;
}

#define TRY(name, ...) \
    (is_next(#name) ? faults.status : inner->name(__VA_ARGS__))

#define OPERATOR(name, type)                                   \
    static xray_status try_##name(void *self, xray_stream *on, \
                                  const type *call)            \
    {                                                          \
        return TRY(name, self, on, call);                      \
    }
OPERATOR(matmul, xray_matmul)
OPERATOR(embedding, xray_embedding)
OPERATOR(gather, xray_rows)
OPERATOR(rmsnorm, xray_rmsnorm)
OPERATOR(rope_table, xray_rope_table)
OPERATOR(rope, xray_rope)
OPERATOR(glu, xray_glu)
OPERATOR(attention_kv, xray_attention_kv)
OPERATOR(sample, xray_sample)
OPERATOR(edit_logits, xray_edit_logits)
OPERATOR(pick_logp, xray_pick_logp)
OPERATOR(advance, xray_advance)
OPERATOR(copy_rows, xray_copy_rows)

static xray_status try_info(void *self, xray_device_info *info)
{
    return TRY(info, self, info);
}

static xray_status try_alloc(void *self, const char *owner, uint32_t tag,
                             uint64_t bytes, void **out)
{
    return TRY(alloc, self, owner, tag, bytes, out);
}

static xray_status try_host_alloc(void *self, const char *owner, uint64_t bytes,
                                  void **out)
{
    xray_status status = TRY(host_alloc, self, owner, bytes, out);
    faults.host_blocks += status == XRAY_OK;
    return status;
}

static void free_host_block(void *self, void *ptr)
{
    faults.host_blocks -= ptr != NULL;
    inner->host_free(self, ptr);
}

static xray_status try_copy(void *self, xray_stream *on, void *to,
                            const void *from, uint64_t bytes, uint32_t kind)
{
    return TRY(copy, self, on, to, from, bytes, kind);
}

static xray_status try_sync(void *self, xray_stream *on)
{
    return TRY(sync, self, on);
}

static xray_status try_event_create(void *self, xray_event **out)
{
    xray_status status = TRY(event_create, self, out);
    faults.events += status == XRAY_OK;
    return status;
}

static void destroy_event(void *self, xray_event *event)
{
    faults.events -= event != NULL;
    inner->event_destroy(self, event);
}

static xray_status try_event_record(void *self, xray_stream *on,
                                    xray_event *event)
{
    return TRY(event_record, self, on, event);
}

static xray_status try_event_query(void *self, xray_event *event)
{
    return TRY(event_query, self, event);
}

static xray_status try_event_sync(void *self, xray_event *event)
{
    return TRY(event_sync, self, event);
}

static xray_status try_weight_create(void *self, const xray_weight_desc *desc,
                                     xray_weight **out)
{
    return TRY(weight_create, self, desc, out);
}

static xray_status try_weight_changed(void *self, xray_weight *weight)
{
    return TRY(weight_changed, self, weight);
}

/* ---- graphs -------------------------------------------------------------- */

/* Work that is recorded here is done at once, for the first launch. Later ones
 * are refused, as after a move of scratch memory. */
struct xray_graph {
    int launches;
};

static uint32_t launches;

static xray_status begin_graph(void *self, xray_stream *on)
{
    (void)self;
    (void)on;
    return is_next("graph_begin") ? faults.status : XRAY_OK;
}

static xray_status end_graph(void *self, xray_stream *on, xray_graph **out)
{
    (void)self;
    (void)on;
    if (is_next("graph_end"))
        return faults.status;
    *out = calloc(1, sizeof(**out));
    assert_non_null(*out);
    faults.graphs++;
    return XRAY_OK;
}

static xray_status launch_graph(void *self, xray_stream *on, xray_graph *graph)
{
    (void)self;
    (void)on;
    if (is_next("graph_launch"))
        return faults.status;
    launches++;
    return graph->launches++ ? XRAY_E_STATE : XRAY_OK;
}

static void destroy_graph(void *self, xray_graph *graph)
{
    (void)self;
    faults.graphs--;
    free(graph);
}

static void offer_graphs(xray_device_ops *ops)
{
    ops->graph_begin = begin_graph;
    ops->graph_end = end_graph;
    ops->graph_launch = launch_graph;
    ops->graph_destroy = destroy_graph;
}

static void make_fragile(rig *r, xray_device_ops *ops)
{
    inner = r->device;
    *ops = *inner;
    ops->matmul = try_matmul;
    ops->embedding = try_embedding;
    ops->gather = try_gather;
    ops->rmsnorm = try_rmsnorm;
    ops->rope_table = try_rope_table;
    ops->rope = try_rope;
    ops->glu = try_glu;
    ops->attention_kv = try_attention_kv;
    ops->sample = try_sample;
    ops->edit_logits = try_edit_logits;
    ops->pick_logp = try_pick_logp;
    ops->advance = try_advance;
    ops->copy_rows = try_copy_rows;
    ops->info = try_info;
    ops->alloc = try_alloc;
    ops->host_alloc = try_host_alloc;
    ops->host_free = free_host_block;
    ops->copy = try_copy;
    ops->sync = try_sync;
    ops->event_create = try_event_create;
    ops->event_destroy = destroy_event;
    ops->event_record = try_event_record;
    ops->event_query = try_event_query;
    ops->event_sync = try_event_sync;
    ops->weight_create = try_weight_create;
    ops->weight_changed = try_weight_changed;
    r->device = ops;
    memset(&faults, 0, sizeof(faults));
}

/* From now on call number `at` fails. */
static void set_fault(uint32_t at, xray_status status)
{
    faults.at = at;
    faults.status = status;
    faults.count = 0;
}

/* ---- a rig and its model ------------------------------------------------- */

typedef struct stage {
    rig *r;
    model *m;
    xray_device_ops ops;
    uint64_t live; /* bytes of the device without an engine */
} stage;

/* Two blocks, so that neither is the only one. */
static const char json[] =
    "{\"model_type\":\"llama\",\"hidden_act\":\"silu\",\"hidden_size\":16,"
    "\"num_hidden_layers\":2,\"num_attention_heads\":2,"
    "\"num_key_value_heads\":1,\"head_dim\":8,\"intermediate_size\":24,"
    "\"vocab_size\":120,\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0,"
    "\"max_position_embeddings\":64,\"tie_word_embeddings\":true,"
    "\"initializer_range\":0.3}";

static const engine_size size = { .rows = 3,
                                  .row_tokens = 40,
                                  .config = { .max_num_batched_tokens = 32 } };

typedef struct kind {
    int paged;
    int late;
    int graphs;
} kind;

static void open_stage(stage *s, kind of)
{
    xr_err err = { "" };
    s->r = rig_open(1);
    if (of.paged)
        rig_use_paged(s->r, &(paged_config){ .block_size = 16,
                                             .enable_prefix_caching = 1 });
    if (of.late)
        rig_make_late(s->r);
    make_fragile(s->r, &s->ops);
    if (of.graphs)
        offer_graphs(&s->ops);
    s->m = calloc(1, sizeof(*s->m));
    assert_non_null(s->m);
    s->m->json = json;
    s->m->seed = 5;
    if (xm_config_parse(json, "test", &err, &s->m->config) != XRAY_OK ||
        xm_layout_create(&s->m->config, 0, &err, &s->m->layout) != XRAY_OK ||
        xm_weights_create(s->m->layout, s->r->device, s->r->device_self,
                          "trainer", 1, &err, &s->m->weights) != XRAY_OK ||
        xm_weights_random(s->m->weights, &s->m->config, s->m->seed, &err) !=
            XRAY_OK ||
        xm_weights_changed(s->m->weights, 0, &err) != XRAY_OK)
        fail_msg("%s", err.text);
}

static void close_stage(stage *s)
{
    model_close(s->m);
    rig_close(s->r);
}

/* All memory of engines is free again. The device itself keeps scratch memory.
 */
static void expect_nothing_left(stage *s)
{
    uint64_t live = rig_live(s->r) - rig_scratch(s->r);
    if (!s->live)
        s->live = live;
    assert_int_equal(live, s->live);
    assert_int_equal(faults.events, 0);
    assert_int_equal(faults.host_blocks, 0);
    assert_int_equal(faults.graphs, 0);
}

static const kind kinds[] = {
    { 0, 0, 0 }, { 0, 1, 0 }, { 1, 1, 0 }, { 0, 1, 1 }
};

enum { KINDS = sizeof(kinds) / sizeof(kinds[0]), MOST_CALLS = 5000 };

/* ---- creation ------------------------------------------------------------ */

static void creations_fail_with_any_call(void **state)
{
    (void)state;
    for (int i = 0; i < KINDS; i++)
        for (int own = 0; own < 2; own++) {
            /* Any other failure makes the engine keep a copy of weights that
             * are the trainer's. */
            xray_status status = own ? XRAY_E_DEVICE : XRAY_E_NOMEM;
            stage s = { 0 };
            uint32_t at = 0;
            open_stage(&s, kinds[i]);
            expect_nothing_left(&s);
            for (;;) {
                void *engine = NULL;
                s.r->said[0] = '\0';
                set_fault(++at, status);
                xray_status got =
                    engine_try(s.r, s.m, own ? NULL : &s.m->weights->table,
                               &size, &engine);
                if (faults.count < at) {
                    assert_int_equal(got, XRAY_OK);
                    s.r->ops->destroy(engine);
                    break;
                }
                if (got != status || !s.r->said[0])
                    fail_msg("call %u, %s: %d, '%s'", at, faults.last, got,
                             s.r->said);
                assert_null(engine);
                expect_nothing_left(&s);
                assert_true(at < MOST_CALLS);
            }
            assert_true(at > 5);
            expect_nothing_left(&s);
            close_stage(&s);
        }
}

/* ---- steps --------------------------------------------------------------- */

/* A prompt that is scored, draws that are changed, further log-probs, a prompt
 * that is copied or shared, and steps that can be made ahead. */
static void submit_all(rig *r, void *engine, uint32_t tokens)
{
    static const int32_t ids[20] = { 1, 2, 3, 4, 5 };
    static const xray_bias bias = { 7, 1 };
    xray_request q = request_make(1, ids, 20, 2);
    q.prompt_logp = 1;
    q.top_count = 2;
    q.logp_ids = ids;
    q.logp_id_count = 3;
    q.biases = &bias;
    q.bias_count = 1;
    q.bias_stride = sizeof(bias);
    q.allowed_ids = ids;
    q.allowed_count = 5;
    engine_submit(r, engine, &q);
    /* Its scored tokens do not follow those of the first one at once. */
    q = request_make(2, ids + 1, 7, tokens);
    q.count = 2;
    q.prompt_logp = 1;
    engine_submit(r, engine, &q);
}

static xray_status run_steps(const rig *r, void *engine)
{
    xray_status status = XRAY_OK;
    while (status == XRAY_OK)
        status = r->ops->step(engine);
    return status;
}

static void steps_fail_with_any_call(void **state)
{
    (void)state;
    for (int i = 0; i < KINDS; i++) {
        stage s = { 0 };
        uint32_t at = 0;
        uint32_t ahead = rig_advances();
        open_stage(&s, kinds[i]);
        expect_nothing_left(&s);
        for (;;) {
            set_fault(0, XRAY_OK);
            void *engine = engine_open(s.r, s.m, &size);
            submit_all(s.r, engine, 16);
            s.r->said[0] = '\0';
            set_fault(++at, XRAY_E_DEVICE);
            xray_status got = run_steps(s.r, engine);
            if (faults.count < at) {
                assert_int_equal(got, XRAY_END);
                s.r->ops->destroy(engine);
                break;
            }
            if (got != XRAY_E_DEVICE || !s.r->said[0])
                fail_msg("call %u, %s: %d, '%s'", at, faults.last, got,
                         s.r->said);
            assert_int_equal(s.r->ops->step(engine), XRAY_E_STATE);
            s.r->ops->destroy(engine);
            expect_nothing_left(&s);
            assert_true(at < MOST_CALLS);
        }
        assert_true(at > 50);
        assert_int_equal(rig_advances() > ahead, kinds[i].late);
        assert_int_equal(launches > 2, kinds[i].graphs);
        expect_nothing_left(&s);
        close_stage(&s);
    }
}

/* Graphs change no bit. */
static void graphs_have_the_same_results(void **state)
{
    (void)state;
    results *out = calloc(2, sizeof(*out));
    assert_non_null(out);
    for (int graphs = 0; graphs < 2; graphs++) {
        stage s = { 0 };
        open_stage(&s, (kind){ .late = 1, .graphs = graphs });
        void *engine = engine_open(s.r, s.m, &size);
        launches = 0;
        submit_all(s.r, engine, 16);
        engine_run(s.r, engine, &out[graphs]);
        assert_int_equal(launches > 2, graphs);
        s.r->ops->destroy(engine);
        assert_int_equal(faults.graphs, 0);
        close_stage(&s);
    }
    results_equal(&out[0], &out[1]);
    free(out);
}

/* ---- new weights --------------------------------------------------------- */

/* A copy that could not be brought up to date may be brought again. */
static void updates_fail_with_any_call(void **state)
{
    (void)state;
    stage s = { 0 };
    uint32_t at = 0;
    engine_size own = size;
    void *engine = NULL;
    own.config.weights = XM_ENGINE_WEIGHTS_BFLOAT16;
    open_stage(&s, (kind){ .late = 1 });
    engine = engine_open(s.r, s.m, &own);
    do {
        s.r->said[0] = '\0';
        set_fault(++at, XRAY_E_DEVICE);
        xray_status got =
            s.r->ops->update(engine, &s.m->weights->table, 100 + at);
        xray_status want = faults.count < at ? XRAY_OK : XRAY_E_DEVICE;
        if (got != want || !s.r->said[0] != (want == XRAY_OK))
            fail_msg("call %u, %s: %d, '%s'", at, faults.last, got, s.r->said);
        assert_true(at < MOST_CALLS);
    } while (faults.count >= at);
    assert_true(at > 1);
    results out = { 0 };
    set_fault(0, XRAY_OK);
    submit_all(s.r, engine, 16);
    engine_run(s.r, engine, &out);
    assert_int_equal(out.count, 3);
    s.r->ops->destroy(engine);
    close_stage(&s);
}

/* ---- several ranks ------------------------------------------------------- */

enum { RANKS = 2 };

static xray_status try_all_gather(xray_comm_group *group, xray_stream *on,
                                  const void *in, void *out, uint64_t count,
                                  uint32_t dtype)
{
    return is_next("all_gather") ? faults.status
                                 : thread_comm_ops()->all_gather(
                                       group, on, in, out, count, dtype);
}

static xray_status try_all_reduce(xray_comm_group *group, xray_stream *on,
                                  void *buf, uint64_t count, uint32_t dtype)
{
    return is_next("all_reduce")
               ? faults.status
               : thread_comm_ops()->all_reduce(group, on, buf, count, dtype);
}

typedef struct rank {
    xray_world world;
    uint32_t at;    /* the call that fails in each rank */
    uint32_t count; /* of calls */
    const char *failed;
    xray_status created;
    xray_status ended;
    xray_status after; /* a step after that */
    char said[256];
} rank;

static void *run_rank(void *data)
{
    rank *k = data;
    const model m = { .json = json,
                      .seed = 5,
                      .config = { .vocab = 120, .max_positions = 64 } };
    engine_size shared = size;
    xray_device_ops ops;
    void *engine = NULL;
    rig *r = rig_open(1);
    shared.config.tensor_model_parallel_size = RANKS;
    rig_make_late(r);
    make_fragile(r, &ops);
    r->world = &k->world;
    k->created = engine_try(r, &m, NULL, &shared, &engine);
    if (k->created == XRAY_OK) {
        submit_all(r, engine, 3);
        set_fault(k->at, XRAY_E_DEVICE);
        r->said[0] = '\0';
        k->ended = run_steps(r, engine);
        k->count = faults.count;
        k->failed = faults.last;
        (void)snprintf(k->said, sizeof(k->said), "%.200s", r->said);
        if (k->ended < 0)
            thread_comm_leave(k->world.comm_self);
        k->after = r->ops->step(engine);
        r->ops->destroy(engine);
    }
    rig_close(r);
    return NULL;
}

/* The same call fails in both ranks, the first of which leaves. */
static void steps_of_ranks_fail_with_any_call(void **state)
{
    (void)state;
    xray_comm_ops wires = *thread_comm_ops();
    wires.all_gather = try_all_gather;
    wires.all_reduce = try_all_reduce;
    /* The later calls are those of further steps, of which some will do. */
    for (uint32_t at = 1;; at += 1 + at / 15) {
        rank ranks[RANKS];
        pthread_t threads[RANKS];
        thread_comm *comm = thread_comm_open(RANKS);
        for (uint32_t i = 0; i < RANKS; i++) {
            ranks[i] =
                (rank){ .at = at,
                        .world = { .header = XRAY_HEADER(xray_world),
                                   .rank = i,
                                   .size = RANKS,
                                   .comm = &wires,
                                   .comm_self = thread_comm_self(comm, i),
                                   .group = thread_comm_group(comm, i) } };
            assert_int_equal(
                pthread_create(&threads[i], NULL, run_rank, &ranks[i]), 0);
        }
        for (uint32_t i = 0; i < RANKS; i++)
            (void)pthread_join(threads[i], NULL);
        thread_comm_close(comm);
        int all = ranks[0].ended == XRAY_END && ranks[1].ended == XRAY_END;
        int failed = 0;
        for (uint32_t i = 0; i < RANKS; i++) {
            const rank *k = &ranks[i];
            assert_int_equal(k->created, XRAY_OK);
            failed += k->ended == XRAY_E_DEVICE;
            /* One that still waits for the other has lost it. */
            if ((all ? k->ended != XRAY_END
                     : k->ended != XRAY_E_DEVICE && k->ended != XRAY_E_PEER) ||
                (k->said[0] != 0) == all)
                fail_msg("call %u, %s, rank %u: %d, '%s'", at, k->failed, i,
                         k->ended, k->said);
            assert_int_equal(k->after, all ? XRAY_END : XRAY_E_STATE);
        }
        assert_int_equal(failed > 0, !all);
        assert_int_equal(ranks[0].count < at && ranks[1].count < at, all);
        if (all)
            break;
        assert_true(at < MOST_CALLS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(creations_fail_with_any_call),
        cmocka_unit_test(steps_fail_with_any_call),
        cmocka_unit_test(graphs_have_the_same_results),
        cmocka_unit_test(updates_fail_with_any_call),
        cmocka_unit_test(steps_of_ranks_fail_with_any_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
