/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves what new weights do to requests that run or are held: the log-prob of
 * each token is that of a trainer's forward pass of the token's version over
 * its row, whatever was preempted, cached, paused, aborted or extended before.
 */
#include "tests/serve/engine.h"

enum { ROW_TOKENS = 80, SLOTS = 4, MAX_ROWS = 64, NO_VERSION = -1 };

/* A sample as its caller knows it. */
typedef struct row {
    uint64_t id;
    uint32_t sample;
    uint32_t count;  /* prompt, sampled and appended tokens */
    uint32_t prompt; /* tokens of the prompt */
    uint32_t scored; /* log-probs of the prompt that came */
    uint32_t given;  /* tokens of the current turn that came */
    uint32_t hold;
    uint32_t finish;
    uint32_t reserved; /* keeps rows comparable */
    int32_t tokens[ROW_TOKENS];
    int32_t version[ROW_TOKENS]; /* NO_VERSION: not sampled */
    float raw[ROW_TOKENS];
    float logp[ROW_TOKENS];
    float prompt_logp[ROW_TOKENS];
} row;

typedef struct plan {
    paged_config paged; /* block_size 0: dsinf */
    int64_t step_tokens;
    uint32_t shared; /* 1: the engine has the trainer's weights */
    uint32_t late;
    uint32_t slots;  /* 0: SLOTS */
    uint32_t blocks; /* of the pool; 0: enough for all */
    uint32_t rounds; /* of random calls */
} plan;

typedef struct stage {
    const plan *plan;
    rig *r;
    model *m;
    void *engine;
    xray_weights table;
    uint64_t version;
    uint64_t random;
    uint64_t next_id;
    uint64_t several; /* samples with tokens of more than one version */
    int leases;
    uint32_t count;
    row rows[MAX_ROWS];
} stage;

/* ---- the trainer --------------------------------------------------------- */

static uint64_t trainer_version(void *self)
{
    return ((stage *)self)->version;
}

static xray_status trainer_lease(void *self)
{
    ((stage *)self)->leases++;
    return XRAY_OK;
}

static void trainer_release(void *self)
{
    ((stage *)self)->leases--;
}

static void set_weights(stage *s, uint64_t version)
{
    xr_err err = { "" };
    if (xm_weights_random(s->m->weights, &s->m->config, 70 + version, &err) !=
            XRAY_OK ||
        xm_weights_changed(s->m->weights, version, &err) != XRAY_OK)
        fail_msg("%s", err.text);
    s->version = version;
}

/* ---- what the engine gives ----------------------------------------------- */

static uint32_t pick_number(stage *s, uint32_t below)
{
    s->random = s->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((s->random >> 33) % below);
}

static row *find_row(stage *s, uint64_t id, uint32_t sample)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (s->rows[i].id == id && s->rows[i].sample == sample)
            return &s->rows[i];
    fail_msg("request %llu has no sample %u", (unsigned long long)id, sample);
    return NULL;
}

static void take_part(row *to, const xray_sample_out *part)
{
    assert_true(to->count + part->token_count <= ROW_TOKENS);
    assert_int_equal(part->first, to->given);
    to->given += part->token_count;
    uint32_t told = 0;
    for (uint32_t i = 0; i < part->span_count; i++) {
        assert_true(part->spans[i].first < part->spans[i].last);
        told += part->spans[i].last - part->spans[i].first;
    }
    assert_int_equal(told, part->token_count);
    for (uint32_t i = 0; i < part->span_count; i++)
        for (uint32_t k = part->spans[i].first; k < part->spans[i].last; k++)
            to->version[k] = (int32_t)part->spans[i].version;
    for (uint32_t i = 0; i < part->token_count; i++, to->count++) {
        to->tokens[to->count] = part->tokens[i];
        to->raw[to->count] = part->raw_logp[i];
        to->logp[to->count] = part->logp[i];
        assert_int_not_equal(to->version[to->count], NO_VERSION);
    }
    if (part->prompt_count) {
        memcpy(to->prompt_logp, part->prompt_logp,
               part->prompt_count * sizeof(float));
        to->scored = part->prompt_count;
    }
    to->finish = part->finish;
}

static void poll_all(stage *s)
{
    xray_sample_out part = { .header = XRAY_HEADER(xray_sample_out) };
    xray_status status;
    while ((status = s->r->ops->poll(s->engine, &part)) == XRAY_OK)
        take_part(find_row(s, part.id, part.sample), &part);
    assert_true(status == XRAY_AGAIN || status == XRAY_END);
}

static xray_status step_once(stage *s)
{
    xray_status status = s->r->ops->step(s->engine);
    if (status < 0)
        fail_msg("%s", s->r->said);
    return status;
}

static void step_to_end(stage *s)
{
    while (step_once(s) == XRAY_OK)
        ;
}

static xray_infer_stats stats_of(const stage *s)
{
    xray_infer_stats stats = { .header = XRAY_HEADER(xray_infer_stats) };
    assert_int_equal(s->r->ops->stats(s->engine, &stats), XRAY_OK);
    return stats;
}

/* ---- what can happen ----------------------------------------------------- */

static void submit(stage *s, const xray_request *q)
{
    if (s->count + q->count > MAX_ROWS)
        return;
    for (uint32_t i = 0; i < q->count; i++) {
        row *to = &s->rows[s->count++];
        *to = (row){ .id = q->id,
                     .sample = i,
                     .count = q->id_count,
                     .prompt = q->id_count,
                     .hold = q->hold };
        memcpy(to->tokens, q->ids, q->id_count * sizeof(int32_t));
        for (uint32_t k = 0; k < ROW_TOKENS; k++)
            to->version[k] = NO_VERSION;
    }
    engine_submit(s->r, s->engine, q);
}

/* Half of the prompts begin alike. */
static void submit_some(stage *s)
{
    int32_t ids[48];
    uint32_t count = 1 + pick_number(s, 48);
    uint32_t from = pick_number(s, 2) ? pick_number(s, 60) : 0;
    for (uint32_t i = 0; i < count; i++)
        ids[i] = (int32_t)((from + 7 * i) % 60);
    xray_request q =
        request_make(++s->next_id, ids, count, 1 + pick_number(s, 24));
    q.count = 1 + pick_number(s, 4);
    q.temperature = pick_number(s, 2) ? 1.0f : 0.7f;
    q.stream = pick_number(s, 2);
    q.hold = pick_number(s, 3) == 0;
    q.prompt_logp = pick_number(s, 2);
    submit(s, &q);
}

static void abort_some(stage *s)
{
    if (s->count == 0)
        return;
    const row *at = &s->rows[pick_number(s, s->count)];
    (void)s->r->ops->abort(s->engine, at->id,
                           pick_number(s, 3) ? at->sample : XRAY_ALL_SAMPLES);
}

static xray_status extend_row(stage *s, row *at, const int32_t *more,
                              uint32_t count)
{
    xray_status status =
        s->r->ops->extend(s->engine, at->id, at->sample, more, count);
    if (status != XRAY_OK)
        return status;
    if (count)
        memcpy(at->tokens + at->count, more, count * sizeof(*more));
    at->count += count;
    at->finish = XRAY_FINISH_NONE;
    at->given = 0;
    return XRAY_OK;
}

/* Extends a held sample, or releases it. */
static void extend_some(stage *s)
{
    int32_t more[5] = { 3, 1, 4, 1, 5 };
    poll_all(s);
    for (uint32_t i = pick_number(s, 3); i < s->count; i++) {
        row *at = &s->rows[i];
        uint32_t count = pick_number(s, 6);
        if (!at->hold || at->finish == XRAY_FINISH_NONE)
            continue;
        if (pick_number(s, 4) == 0) {
            (void)s->r->ops->release(s->engine, at->id, at->sample);
            continue;
        }
        (void)extend_row(s, at, more, count);
    }
}

/* Between the parts no step is made. */
static void update_in_parts(stage *s)
{
    xray_weights part = s->table;
    uint32_t count = part.tensor_count;
    part.tensor_count = 1 + pick_number(s, count - 1);
    const xray_infer_ops *ops = s->r->ops;
    assert_int_equal(ops->update(s->engine, &part, s->version), XRAY_OK);
    extend_some(s);
    xray_status status = ops->step(s->engine);
    assert_true(status == XRAY_E_STATE || status == XRAY_END);
    part.tensors =
        (const xray_tensor *)((const char *)part.tensors +
                              (size_t)part.tensor_count * part.tensor_stride);
    part.tensor_count = count - part.tensor_count;
    assert_int_equal(ops->update(s->engine, &part, s->version), XRAY_OK);
    assert_int_equal(ops->update(s->engine, NULL, s->version), XRAY_OK);
}

/* The trainer steps while the engine pauses in one of the modes; one with its
 * own weights may also go on. */
static void update_some(stage *s, uint32_t mode)
{
    const xray_infer_ops *ops = s->r->ops;
    if (s->plan->shared && !mode)
        mode = XRAY_PAUSE_KEEP;
    if (mode)
        assert_int_equal(ops->pause(s->engine, mode), XRAY_OK);
    if (mode == XRAY_PAUSE_WAIT)
        step_to_end(s);
    assert_int_equal(s->leases, 0);
    set_weights(s, s->version + 1);
    if (s->plan->shared)
        assert_int_equal(ops->update(s->engine, NULL, s->version), XRAY_OK);
    else
        update_in_parts(s);
    if (mode)
        assert_int_equal(ops->resume(s->engine), XRAY_OK);
}

/* ---- the trainer's log-probs --------------------------------------------- */

static void check_version(stage *s, const row *at, int32_t version)
{
    float want[ROW_TOKENS];
    uint32_t first = 0;
    uint32_t last = 0;
    for (uint32_t i = 0; i < at->count; i++)
        if (at->version[i] == version) {
            first = last ? first : i;
            last = i + 1;
        }
    if (last == 0)
        return;
    trainer_logp(s->r, s->m, at->tokens, last, first, 1, want);
    for (uint32_t i = first; i < last; i++)
        if (at->version[i] == version &&
            memcmp(&want[i - first], &at->raw[i], sizeof(float)) != 0)
            fail_msg("request %llu sample %u: token %u of version %d has %a, "
                     "the trainer %a",
                     (unsigned long long)at->id, at->sample, i, version,
                     (double)at->raw[i], (double)want[i - first]);
    if (at->version[at->prompt] != version || at->scored < 2)
        return;
    assert_int_equal(at->scored, at->prompt);
    trainer_logp(s->r, s->m, at->tokens, at->prompt, 1, 1, want);
    assert_memory_equal(at->prompt_logp + 1, want,
                        (at->prompt - 1) * sizeof(float));
}

static void count_several(stage *s)
{
    for (uint32_t i = 0; i < s->count; i++) {
        const row *at = &s->rows[i];
        int32_t first = at->version[at->prompt];
        int more = 0;
        for (uint32_t k = at->prompt; k < at->count; k++)
            more |= at->version[k] != NO_VERSION && at->version[k] != first;
        s->several += (uint64_t)more;
    }
}

static void check_rows(stage *s)
{
    uint64_t newest = s->version;
    for (uint64_t v = 0; v <= newest; v++) {
        set_weights(s, v);
        for (uint32_t i = 0; i < s->count; i++)
            check_version(s, &s->rows[i], (int32_t)v);
    }
    count_several(s);
}

/* ---- runs ---------------------------------------------------------------- */

static stage *open_stage(const plan *p, uint64_t seed)
{
    stage *s = calloc(1, sizeof(*s));
    assert_non_null(s);
    s->plan = p;
    s->random = seed;
    s->r = rig_open(1);
    s->m = model_open(s->r, MODEL_LLAMA);
    if (p->late)
        rig_make_late(s->r);
    engine_size size = { .rows = p->slots ? p->slots : SLOTS,
                         .row_tokens = ROW_TOKENS,
                         .config = { .max_num_batched_tokens =
                                         p->step_tokens } };
    if (!p->shared)
        size.config.weights = XM_ENGINE_WEIGHTS_FLOAT32;
    if (p->paged.block_size) {
        paged_config own = p->paged;
        own.kv_memory = p->blocks * (uint64_t)own.block_size * 2 *
                        s->m->config.kv_heads * s->m->config.head_dim *
                        sizeof(float) * s->m->config.layers;
        rig_use_paged(s->r, &own);
    }
    s->table = s->m->weights->table;
    s->table.owner = s;
    s->table.version = trainer_version;
    s->table.lease = trainer_lease;
    s->table.release = trainer_release;
    set_weights(s, 0);
    if (engine_try(s->r, s->m, &s->table, &size, &s->engine) != XRAY_OK)
        fail_msg("%s", s->r->said);
    return s;
}

static void close_stage(stage *s)
{
    s->r->ops->destroy(s->engine);
    assert_int_equal(s->leases, 0);
    model_close(s->m);
    rig_close(s->r);
    free(s);
}

static void act_randomly(stage *s)
{
    switch (pick_number(s, 8)) {
    case 0:
        submit_some(s);
        break;
    case 1:
        abort_some(s);
        break;
    case 2:
        extend_some(s);
        break;
    case 3:
        update_some(s, pick_number(s, 4) ? 0 : 1 + pick_number(s, 3));
        break;
    case 4:
        poll_all(s);
        break;
    default:
        for (uint32_t i = pick_number(s, 6); i--;)
            (void)step_once(s);
    }
}

static uint64_t count_sampled(const stage *s)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < s->count; i++)
        for (uint32_t k = 0; k < s->rows[i].count; k++)
            count += s->rows[i].version[k] != NO_VERSION;
    return count;
}

/* Runs random calls, and then everything to its end. An abort gives back
 * whatever was sampled, also from what waits to be computed again. */
static stage *run_plan(const plan *p, uint64_t seed)
{
    stage *s = open_stage(p, seed);
    submit_some(s);
    for (uint32_t i = 0; i < p->rounds; i++)
        act_randomly(s);
    step_to_end(s);
    poll_all(s);
    for (uint64_t id = 1; id <= s->next_id; id++)
        (void)s->r->ops->abort(s->engine, id, XRAY_ALL_SAMPLES);
    poll_all(s);
    assert_int_equal(stats_of(s).kv_tokens, 0);
    assert_int_equal(stats_of(s).generation_tokens, count_sampled(s));
    return s;
}

#define POOL(size, cached)                                       \
    {                                                            \
        .block_size = (size), .enable_prefix_caching = (cached), \
    }

static const plan plans[] = {
    { .step_tokens = 8, .shared = 1, .rounds = 80 },
    { .step_tokens = 64, .shared = 0, .rounds = 80 },
    { .step_tokens = 16, .shared = 1, .rounds = 80, .late = 1 },
    { POOL(16, 1), .step_tokens = 8, .shared = 1, .rounds = 80 },
    { POOL(16, 1), .step_tokens = 64, .rounds = 80, .blocks = 6 },
    { POOL(16, 0), .step_tokens = 9, .rounds = 80, .blocks = 7 },
    { POOL(16, 1), .step_tokens = 16, .rounds = 80, .late = 1, .blocks = 8 },
};

static void log_probs_are_those_of_a_tokens_version(void **state)
{
    (void)state;
    uint64_t several = 0;
    uint64_t preempted = 0;
    uint64_t again = 0;
    for (size_t i = 0; i < sizeof(plans) / sizeof(plans[0]); i++)
        for (uint64_t seed = 1; seed <= 2; seed++) {
            stage *s = run_plan(&plans[i], seed);
            check_rows(s);
            several += s->several;
            preempted += stats_of(s).preemptions;
            again += stats_of(s).recomputed_tokens;
            close_stage(s);
        }
    assert_true(several > 50);
    assert_true(preempted > 10);
    assert_true(again > 1000);
}

/* An update in the middle of a prompt: what is sampled from it, and its own
 * log-probs, are those of the new version. */
static void prompts_are_of_one_version(void **state)
{
    (void)state;
    const plan both[] = { { .step_tokens = 16 },
                          { POOL(16, 1), .step_tokens = 16 } };
    for (int i = 0; i < 2; i++) {
        stage *s = open_stage(&both[i], 1);
        int32_t ids[40] = { 7, 8, 9 };
        xray_request q = request_make(1, ids, 40, 3);
        q.count = 2;
        q.prompt_logp = 1;
        submit(s, &q);
        assert_int_equal(step_once(s), XRAY_OK);
        update_some(s, 0);
        step_to_end(s);
        poll_all(s);
        for (uint32_t k = 0; k < 2; k++) {
            assert_int_equal(s->rows[k].version[40], 1);
            assert_int_equal(s->rows[k].scored, 40);
        }
        assert_int_equal(stats_of(s).recomputed_tokens, 16);
        check_rows(s);
        close_stage(s);
    }
}

static void expect_versions(const row *at, uint32_t count, int32_t first,
                            int32_t last)
{
    assert_int_equal(at->count, at->prompt + count);
    assert_int_equal(at->version[at->prompt], first);
    assert_int_equal(at->version[at->count - 1], last);
}

/* Three samples have four tokens when the engine pauses; another request comes
 * before it goes on. */
static void pause_at_update(const plan *p, uint32_t mode)
{
    static const int32_t ids[9] = { 3, 1, 4, 1, 5, 9, 2, 6, 5 };
    stage *s = open_stage(p, 1);
    xray_request q = request_make(1, ids, 9, 10);
    q.count = 3;
    submit(s, &q);
    for (int i = 0; i < 4; i++)
        assert_int_equal(step_once(s), XRAY_OK);
    assert_int_equal(s->r->ops->pause(s->engine, mode), XRAY_OK);
    q.id = 2;
    q.count = 1;
    submit(s, &q);
    step_to_end(s);
    assert_int_equal(s->leases, 0);
    set_weights(s, 1);
    assert_int_equal(s->r->ops->update(s->engine, NULL, 1), XRAY_OK);
    assert_int_equal(s->r->ops->resume(s->engine), XRAY_OK);
    step_to_end(s);
    poll_all(s);
    const int kept = mode == XRAY_PAUSE_KEEP;
    const int aborted = mode == XRAY_PAUSE_ABORT;
    for (uint32_t i = 0; i < 3; i++) {
        expect_versions(&s->rows[i], aborted ? 4 : 10, 0, kept);
        assert_int_equal(s->rows[i].finish,
                         aborted ? XRAY_FINISH_ABORT : XRAY_FINISH_LENGTH);
    }
    expect_versions(&s->rows[3], 10, 1, 1);
    check_rows(s);
    close_stage(s);
}

static void modes_of_a_pause_decide_about_versions(void **state)
{
    (void)state;
    const plan both[] = { { .step_tokens = 64, .shared = 1 },
                          { POOL(16, 1), .step_tokens = 64, .shared = 1 } };
    for (int i = 0; i < 2; i++)
        for (uint32_t mode = XRAY_PAUSE_WAIT; mode <= XRAY_PAUSE_ABORT; mode++)
            pause_at_update(&both[i], mode);
}

/* With room for everything both engines sample each token in the same step,
 * and so from the same weights. */
static void both_engines_are_equal(void **state)
{
    (void)state;
    const plan dsinf = { .step_tokens = 8192, .slots = MAX_ROWS, .rounds = 80 };
    plan paged = dsinf;
    paged.paged = (paged_config)POOL(16, 1);
    for (uint64_t seed = 1; seed <= 6; seed++) {
        stage *a = run_plan(&dsinf, seed);
        stage *b = run_plan(&paged, seed);
        assert_int_equal(a->count, b->count);
        assert_memory_equal(a->rows, b->rows, a->count * sizeof(row));
        count_several(a);
        assert_true(a->several > 2);
        close_stage(a);
        close_stage(b);
    }
}

/* Three samples of a prompt go on in one step. The first one fills a block that
 * the second one finds while it is computed; the third one, whose row is
 * shorter, cannot copy its part of that block yet. What the block held before
 * is of other weights. */
static void turns_that_begin_together(void **state)
{
    (void)state;
    static const int32_t more[3] = { 2, 7, 1 };
    const plan p = { POOL(16, 1), .step_tokens = 64, .shared = 1 };
    stage *s = open_stage(&p, 1);
    xray_request q = request_make(1, (int32_t[14]){ 3, 1, 4 }, 14, 1);
    q.count = 3;
    q.hold = 1;
    q.forced_ids = more;
    q.forced_count = 1;
    submit(s, &q);
    step_to_end(s);
    poll_all(s);
    update_some(s, XRAY_PAUSE_KEEP);
    for (uint32_t k = 3; k--;)
        assert_int_equal(extend_row(s, &s->rows[k], more, k < 2 ? 3 : 0), 0);
    step_to_end(s);
    poll_all(s);
    check_rows(s);
    close_stage(s);
}

#define TEST(f) cmocka_unit_test(f)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(log_probs_are_those_of_a_tokens_version),
        TEST(prompts_are_of_one_version),
        TEST(modes_of_a_pause_decide_about_versions),
        TEST(both_engines_are_equal),
        TEST(turns_that_begin_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
