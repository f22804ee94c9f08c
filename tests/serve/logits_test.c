/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests what a request may wish of the logits: each token is compared with a
 * plain computation in double on the logits of a trainer's forward pass, and a
 * request has the same bits in any company.
 */
#include "tests/serve/engine.h"

#include <math.h>

#include <xray/numerics.h>

enum { VOCAB = 101, ROW = 40, PROMPT = 7, TOP = 5, PICKS = 3, MAX_SAMPLES = 3 };

/* The results that the engine gave for a sample. */
typedef struct taken {
    uint32_t count;
    uint32_t finish;
    uint32_t prompt_count;
    uint32_t reserved;
    int32_t tokens[ROW];
    float raw[ROW];
    float logp[ROW];
    float prompt_logp[ROW];
    int32_t top_ids[ROW][TOP];
    float top_logp[ROW][TOP];
    float picks[ROW][PICKS];
} taken;

enum { CASES = 13 };
typedef struct takes {
    taken t[CASES][MAX_SAMPLES];
} takes;

static const int32_t prompt[PROMPT] = { 1, 8, 3, 8, 41, 6, 7 };
static const int32_t stops[] = { 17, 18, 19, 20, 21, 22, 23, 24, 25, 26 };
static const int32_t allowed[] = { 2, 3, 5, 7, 11, 13, 17, 64, 95, 96, 100 };
static const int32_t forced[] = { 90, 17, 100, 0 };
static const int32_t picked[PICKS] = { 100, 0, 31 };
static const int32_t banned_ids[] = { 2, 3, 5, 7, 11, 3, 96, 5, 5 };
static const xray_id_list banned[] = {
    { banned_ids, 1, 0 },     /* never 2 */
    { banned_ids + 1, 1, 0 }, /* never 3 */
    { banned_ids + 2, 2, 0 }, /* no 7 after 5 */
    { banned_ids + 7, 2, 0 }, /* no 5 after 5 */
    { banned_ids + 4, 3, 0 }, /* no 96 after 11, 3 */
};
static const xray_bias biases[] = {
    { 50, 1.5f }, { 2, -100 }, { 51, 2 }, { 8, 3 }, { 100, 2.5f }
};

static xray_request make_request(int which, float temperature)
{
    xray_request q = request_make((uint64_t)which, prompt, PROMPT, 24);
    q.temperature = temperature;
    q.count = MAX_SAMPLES;
    q.stop_ids = stops;
    q.stop_count =
        which == 0 || which == 8 ? sizeof(stops) / sizeof(stops[0]) : 0;
    q.min_tokens = which == 0 || which == 8 || which == 12 ? 6 : 0;
    q.repetition_penalty = which == 1 || which == 12 ? 2.0f : 0;
    q.repetition_penalty = which == 2 ? 0.5f : q.repetition_penalty;
    q.frequency_penalty = which == 3 || which == 12 ? 0.7f : 0;
    q.presence_penalty = which == 4 || which == 12 ? 1.1f : 0;
    q.presence_penalty = which == 5 ? -0.9f : q.presence_penalty;
    if (which == 6 || which == 12) {
        q.biases = biases;
        q.bias_stride = sizeof(biases[0]);
        q.bias_count = sizeof(biases) / sizeof(biases[0]);
    }
    if (which == 7 || which == 8) {
        q.allowed_ids = allowed;
        q.allowed_count = sizeof(allowed) / sizeof(allowed[0]);
    }
    if (which == 8 || which == 12) {
        q.banned_lists = banned;
        q.banned_list_stride = sizeof(banned[0]);
        q.banned_list_count = sizeof(banned) / sizeof(banned[0]);
    }
    if (which == 9 || which == 12) {
        q.forced_ids = forced;
        q.forced_count = sizeof(forced) / sizeof(forced[0]);
    }
    if (which == 10 || which == 12) {
        q.top_count = TOP - (which == 12);
        q.logp_ids = picked;
        q.logp_id_count = PICKS;
        q.prompt_logp = 1;
    }
    return q; /* 11 wishes nothing */
}

/* ---- the engine --------------------------------------------------------- */

static void take_part(takes *all, const xray_request *q,
                      const xray_sample_out *s)
{
    taken *t = &all->t[q->id][s->sample];
    assert_true(s->first + s->token_count <= ROW);
    assert_int_equal(s->top_count, q->top_count);
    for (uint32_t i = 0; i < s->token_count; i++) {
        uint32_t at = s->first + i;
        t->tokens[at] = s->tokens[i];
        t->raw[at] = s->raw_logp[i];
        t->logp[at] = s->logp[i];
        for (uint32_t k = 0; k < q->top_count; k++) {
            t->top_ids[at][k] = s->top_ids[i * q->top_count + k];
            t->top_logp[at][k] = s->top_logp[i * q->top_count + k];
        }
        for (uint32_t k = 0; k < q->logp_id_count; k++)
            t->picks[at][k] = s->logp_of_ids[i * q->logp_id_count + k];
    }
    if (s->prompt_count)
        memcpy(t->prompt_logp, s->prompt_logp,
               s->prompt_count * sizeof(*s->prompt_logp));
    assert_true(!s->prompt_logp || s->prompt_count); /* the first part has it */
    t->prompt_count += s->prompt_count;
    t->count = s->first + s->token_count;
    t->finish = s->finish;
}

static void poll_all(rig *r, void *engine, const xray_request *requests,
                     takes *out)
{
    xray_sample_out s = { .header = XRAY_HEADER(xray_sample_out) };
    while (r->ops->poll(engine, &s) == XRAY_OK)
        take_part(out, &requests[s.id], &s);
}

/* Runs until the engine is idle; with `pauses` it stops after every step. */
static void run_all(rig *r, void *engine, const xray_request *requests,
                    int pauses, takes *out)
{
    xray_status status = XRAY_OK;
    while (status == XRAY_OK) {
        status = r->ops->step(engine);
        if (status < 0)
            fail_msg("%s", r->said);
        poll_all(r, engine, requests, out);
        if (!pauses)
            continue;
        assert_int_equal(r->ops->pause(engine, XRAY_PAUSE_KEEP), XRAY_OK);
        assert_int_equal(r->ops->resume(engine), XRAY_OK);
    }
}

/* ---- the plain computation ---------------------------------------------- */

/* The logits of the token after a row, with the softcap, as a trainer's forward
 * pass gives them. */
static void find_logits(rig *r, const model *m, const int32_t *row,
                        uint32_t count, double *out)
{
    xr_err err = { "" };
    xm_decoder *decoder = NULL;
    xm_space *space = NULL;
    int32_t positions[2 * ROW];
    int32_t row_start[2] = { 0, (int32_t)count };
    float z[VOCAB];
    for (uint32_t i = 0; i < count; i++)
        positions[i] = (int32_t)i;
    xm_pack pack = { .rows = 1,
                     .tokens = count,
                     .row_bound = count,
                     .ids = row,
                     .positions = positions,
                     .row_start = row_start };
    if (xm_decoder_create(&m->config, &m->weights->table,
                          m->config.max_positions, "test", &err,
                          &decoder) != XRAY_OK ||
        xm_space_create(decoder, count, 1, count, 0, "test", &err, &space) !=
            XRAY_OK ||
        xm_forward(decoder, space, &pack, &err) != XRAY_OK)
        fail_msg("%s", err.text);
    xray_matmul product = {
        .header = XRAY_HEADER(xray_matmul),
        .weight = xm_decoder_lm_head(decoder),
        .tokens = { .bound = 1 },
        .x = (const float *)xm_space_hidden(space) +
             (size_t)(count - 1) * m->config.hidden,
        .y = z,
        .x_stride = m->config.hidden,
        .y_stride = VOCAB,
        .kind = XRAY_NT,
    };
    assert_int_equal(r->device->matmul(r->device_self, NULL, &product),
                     XRAY_OK);
    double cap = m->config.logit_softcap;
    for (int i = 0; i < VOCAB; i++)
        out[i] = cap > 0 ? cap * tanh(z[i] / cap) : z[i];
    xm_space_destroy(space);
    xm_decoder_destroy(decoder);
}

static double find_logp(const double *z, int32_t id, double temperature)
{
    double sum = 0;
    for (int i = 0; i < VOCAB; i++)
        sum += exp((z[i] - z[id]) / temperature);
    return -log(sum);
}

static uint32_t count_id(const int32_t *ids, uint32_t count, int32_t id)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++)
        n += ids[i] == id;
    return n;
}

/* Whether `id` is the end of a list whose other ids the tokens end with. */
static int is_banned(const xray_request *q, const int32_t *tokens, uint32_t n,
                     int32_t id)
{
    for (uint32_t i = 0; i < q->banned_list_count; i++) {
        const xray_id_list *list = &q->banned_lists[i];
        uint32_t same = 0;
        while (same + 1 < list->count && same < n &&
               tokens[n - 1 - same] == list->ids[list->count - 2 - same])
            same++;
        if (same + 1 == list->count && list->ids[same] == id)
            return 1;
    }
    return 0;
}

/* One logit, in the order that xray/infer.h gives. `row` is the prompt with the
 * sampled and appended tokens, `tokens` are those that were sampled. */
static double change_logit(const xray_request *q, const int32_t *row,
                           uint32_t row_count, const int32_t *tokens,
                           uint32_t n, int32_t id, double z)
{
    if (n < q->forced_count)
        return q->forced_ids[n] == id ? z : (double)-INFINITY;
    if ((q->allowed_count && !count_id(q->allowed_ids, q->allowed_count, id)) ||
        is_banned(q, tokens, n, id) ||
        (n < q->min_tokens && count_id(q->stop_ids, q->stop_count, id)))
        return (double)-INFINITY;
    for (uint32_t i = 0; i < q->bias_count; i++)
        z += q->biases[i].id == id ? (double)q->biases[i].bias : 0;
    if (q->repetition_penalty > 0 && count_id(row, row_count, id))
        z = z > 0 ? z / (double)q->repetition_penalty
                  : z * (double)q->repetition_penalty;
    uint32_t seen = count_id(tokens, n, id);
    z -= (double)q->frequency_penalty * seen;
    return z - (seen ? (double)q->presence_penalty : 0);
}

static double draw_noise(const xray_request *q, uint32_t sample,
                         uint32_t position, int32_t id)
{
    if (!(q->temperature > 0))
        return 0;
    uint64_t key = xray_philox_key(q->seed, q->step, q->prompt_id);
    xray_philox_out random =
        xray_philox(key, (uint32_t)id / 4, position, sample, 0);
    return -log(-log((double)xray_unit(random.w[id % 4])));
}

/* Checks token n of a sample. Returns 1 if the unchanged logits would have
 * given another one. */
static int check_token(const xray_request *q, uint32_t sample,
                       const double *logits, const int32_t *row,
                       uint32_t row_count, const taken *t, uint32_t n)
{
    const double t0 = q->temperature > 0 ? (double)q->temperature : 1;
    double score[VOCAB];
    int32_t plain = 0, best = 0;
    double most = -INFINITY;
    for (int32_t id = 0; id < VOCAB; id++) {
        double noise = draw_noise(q, sample, row_count, id);
        double z =
            change_logit(q, row, row_count, t->tokens, n, id, logits[id]);
        score[id] = z / t0 + noise;
        best = score[id] > score[best] ? id : best;
        if (logits[id] / t0 + noise > most) {
            most = logits[id] / t0 + noise;
            plain = id;
        }
    }
    int32_t got = t->tokens[n];
    if (got != best && !(score[best] - score[got] < 1e-4))
        fail_msg("request %d, token %u: %d (%g), %d (%g) was expected",
                 (int)q->id, n, got, score[got], best, score[best]);
    assert_true(fabs(find_logp(logits, got, 1) - (double)t->raw[n]) < 1e-4);
    assert_true(fabs(find_logp(logits, got, t0) - (double)t->logp[n]) < 1e-4);
    return best != plain;
}

static void check_picks(const xray_request *q, const double *logits,
                        const taken *t, uint32_t n)
{
    for (uint32_t k = 0; k < q->logp_id_count; k++)
        assert_true(fabs(find_logp(logits, q->logp_ids[k], 1) -
                         (double)t->picks[n][k]) < 1e-4);
    double before = INFINITY;
    for (uint32_t k = 0; k < q->top_count; k++) {
        uint32_t above = 0;
        double z = logits[t->top_ids[n][k]];
        for (int32_t id = 0; id < VOCAB; id++)
            above += logits[id] > z;
        assert_int_equal(above, k);
        assert_true(z < before);
        before = z;
        assert_true(fabs(find_logp(logits, t->top_ids[n][k], 1) -
                         (double)t->top_logp[n][k]) < 1e-4);
    }
}

static int is_stop(const xray_request *q, int32_t id)
{
    return count_id(q->stop_ids, q->stop_count, id) > 0;
}

static int check_sample(rig *r, const model *m, const xray_request *q,
                        uint32_t sample, const taken *t)
{
    int32_t row[2 * ROW];
    double logits[VOCAB];
    float logp[ROW];
    int changed = 0;
    memcpy(row, q->ids, q->id_count * sizeof(*row));
    for (uint32_t n = 0; n < t->count; n++) {
        find_logits(r, m, row, q->id_count + n, logits);
        changed += check_token(q, sample, logits, row, q->id_count + n, t, n);
        check_picks(q, logits, t, n);
        row[q->id_count + n] = t->tokens[n];
        assert_int_equal(is_stop(q, t->tokens[n]) || n + 1 == q->max_tokens,
                         n + 1 == t->count);
    }
    trainer_logp(r, m, row, q->id_count + t->count, q->id_count, 1, logp);
    assert_memory_equal(logp, t->raw, t->count * sizeof(*logp));
    assert_int_equal(t->prompt_count, q->prompt_logp ? q->id_count : 0);
    if (!q->prompt_logp)
        return changed;
    trainer_logp(r, m, row, q->id_count, 1, 1, logp);
    assert_memory_equal(t->prompt_logp + 1, logp,
                        (q->id_count - 1) * sizeof(*logp));
    assert_true(t->prompt_logp[0] == 0.0f);
    return changed;
}

/* ---- tests -------------------------------------------------------------- */

static void submit_all(rig *r, void *engine, const xray_request *requests)
{
    for (int i = 0; i < CASES; i++)
        engine_submit(r, engine, &requests[i]);
}

static void check_draws(int which, float temperature)
{
    const engine_size size = { 40, ROW, { .max_num_batched_tokens = 512 } };
    rig *r = rig_open(2);
    model *m = model_open(r, which);
    void *engine = engine_open(r, m, &size);
    takes *out = calloc(1, sizeof(*out));
    assert_non_null(out);
    xray_request requests[CASES];
    for (int i = 0; i < CASES; i++)
        requests[i] = make_request(i, temperature);
    submit_all(r, engine, requests);
    run_all(r, engine, requests, 0, out);
    for (int i = 0; i < CASES; i++) {
        int changed = 0;
        for (uint32_t k = 0; k < requests[i].count; k++)
            changed += check_sample(r, m, &requests[i], k, &out->t[i][k]);
        /* The last two but one wish nothing that changes a token. */
        if (i == 10 || i == 11)
            assert_int_equal(changed, 0);
        else if (changed == 0)
            fail_msg("request %d: its wishes changed nothing", i);
    }
    r->ops->destroy(engine);
    free(out);
    model_close(m);
    rig_close(r);
}

static void tokens_are_drawn_from_changed_logits(void **state)
{
    (void)state;
    check_draws(MODEL_LLAMA, 1.5f);
    check_draws(MODEL_GEMMA2, 0.7f);
}

static void greedy_tokens_are_the_likeliest_of_changed_logits(void **state)
{
    (void)state;
    check_draws(MODEL_QWEN2, 0);
}

typedef struct company {
    engine_size size;
    int alone;
    int pauses;
    int streams;
} company;

static void run_company(const company *c, takes *out)
{
    rig *r = rig_open(1);
    model *m = model_open(r, MODEL_LLAMA);
    void *engine = engine_open(r, m, &c->size);
    xray_request requests[CASES];
    for (int i = 0; i < CASES; i++) {
        requests[i] = make_request(i, 1.2f);
        requests[i].stream = (uint32_t)c->streams;
    }
    for (int i = 0; i < CASES && c->alone; i++) {
        engine_submit(r, engine, &requests[i]);
        run_all(r, engine, requests, c->pauses, out);
    }
    if (!c->alone) {
        submit_all(r, engine, requests);
        run_all(r, engine, requests, c->pauses, out);
    }
    r->ops->destroy(engine);
    model_close(m);
    rig_close(r);
}

/* Alone; with all others at once; two at a time, with prompts in pieces; with a
 * pause after every step, in parts. */
static void bits_do_not_depend_on_the_company(void **state)
{
    const company companies[] = {
        { { 40, ROW, { .max_num_batched_tokens = 512 } }, 1, 0, 0 },
        { { 40, ROW, { .max_num_batched_tokens = 512 } }, 0, 0, 0 },
        { { 2, ROW, { .max_num_batched_tokens = 3 } }, 0, 0, 1 },
        { { 5, ROW, { .max_num_batched_tokens = 9 } }, 0, 1, 1 },
    };
    takes *first = calloc(1, sizeof(*first));
    takes *other = calloc(1, sizeof(*other));
    assert_true(first && other);
    (void)state;
    run_company(&companies[0], first);
    for (size_t i = 1; i < sizeof(companies) / sizeof(companies[0]); i++) {
        memset(other, 0, sizeof(*other));
        run_company(&companies[i], other);
        assert_memory_equal(first, other, sizeof(*first));
    }
    free(first);
    free(other);
}

/* Appended ids count for the repetition penalty and no other, and the tokens of
 * all rounds for all of them. */
static void extensions_go_on_with_penalties(void **state)
{
    static const int32_t answer[] = { 60, 61, 62, 60, 70, 71, 72, 73, 74, 75 };
    const engine_size size = { 1, 2 * ROW, { .max_num_batched_tokens = 8 } };
    rig *r = rig_open(1);
    model *m = model_open(r, MODEL_LLAMA);
    void *engine = engine_open(r, m, &size);
    takes *out = calloc(1, sizeof(*out));
    assert_non_null(out);
    xray_request q = make_request(12, 1.5f);
    int32_t row[2 * ROW];
    taken all = { 0 };
    double logits[VOCAB];
    uint32_t count = PROMPT;
    (void)state;
    q.id = 0;
    q.count = q.hold = 1;
    q.max_tokens = 9;
    q.repetition_penalty = 0.2f;
    memcpy(row, prompt, sizeof(prompt));
    engine_submit(r, engine, &q);
    for (int round = 0; round < 3; round++) {
        run_all(r, engine, &q, 0, out);
        const taken *t = &out->t[0][0];
        assert_int_equal(t->count, 9);
        for (uint32_t i = 0; i < t->count; i++) {
            uint32_t n = all.count++;
            all.tokens[n] = t->tokens[i];
            all.raw[n] = t->raw[i];
            all.logp[n] = t->logp[i];
            memcpy(all.picks[n], t->picks[i], sizeof(t->picks[i]));
            memcpy(all.top_ids[n], t->top_ids[i], sizeof(t->top_ids[i]));
            memcpy(all.top_logp[n], t->top_logp[i], sizeof(t->top_logp[i]));
            find_logits(r, m, row, count, logits);
            (void)check_token(&q, 0, logits, row, count, &all, n);
            check_picks(&q, logits, &all, n);
            row[count++] = t->tokens[i];
        }
        assert_int_equal(r->ops->extend(engine, 0, 0, answer, 10), XRAY_OK);
        memcpy(row + count, answer, sizeof(answer));
        count += 10;
    }
    assert_int_equal(r->ops->abort(engine, 0, XRAY_ALL_SAMPLES), XRAY_OK);
    r->ops->destroy(engine);
    free(out);
    model_close(m);
    rig_close(r);
}

/* A prompt that is aborted before it is computed has the log-probs that are
 * known. */
static void an_aborted_prompt_gives_what_is_known(void **state)
{
    const engine_size size = { 1, ROW, { .max_num_batched_tokens = 3 } };
    rig *r = rig_open(1);
    model *m = model_open(r, MODEL_LLAMA);
    void *engine = engine_open(r, m, &size);
    xray_sample_out out = { .header = XRAY_HEADER(xray_sample_out) };
    xray_request q = make_request(10, 1);
    float logp[PROMPT];
    (void)state;
    q.count = 1;
    engine_submit(r, engine, &q);
    assert_int_equal(r->ops->step(engine), XRAY_OK);
    assert_int_equal(r->ops->abort(engine, q.id, XRAY_ALL_SAMPLES), XRAY_OK);
    assert_int_equal(r->ops->poll(engine, &out), XRAY_OK);
    assert_int_equal(out.token_count, 0);
    assert_int_equal(out.prompt_count, 4);
    trainer_logp(r, m, prompt, 4, 1, 1, logp);
    assert_memory_equal(out.prompt_logp + 1, logp, 3 * sizeof(*logp));
    r->ops->destroy(engine);
    model_close(m);
    rig_close(r);
}

/* Where nothing may be sampled, the likeliest token is. */
static void a_mask_of_everything_gives_the_likeliest(void **state)
{
    const engine_size size = { 1, ROW, { .max_num_batched_tokens = 8 } };
    static const int32_t only[] = { 2 };
    rig *r = rig_open(1);
    model *m = model_open(r, MODEL_LLAMA);
    void *engine = engine_open(r, m, &size);
    xray_sample_out out = { .header = XRAY_HEADER(xray_sample_out) };
    xray_request q = request_make(1, prompt, PROMPT, 1);
    double logits[VOCAB];
    int32_t best = 0;
    (void)state;
    q.allowed_ids = only;
    q.allowed_count = 1;
    q.banned_lists = banned;
    q.banned_list_count = 1;
    q.banned_list_stride = sizeof(banned[0]);
    engine_submit(r, engine, &q);
    assert_int_equal(r->ops->step(engine), XRAY_END);
    assert_int_equal(r->ops->poll(engine, &out), XRAY_OK);
    find_logits(r, m, prompt, PROMPT, logits);
    for (int32_t id = 0; id < VOCAB; id++)
        best = logits[id] > logits[best] ? id : best;
    assert_int_equal(out.tokens[0], best);
    r->ops->destroy(engine);
    model_close(m);
    rig_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_are_drawn_from_changed_logits),
        cmocka_unit_test(greedy_tokens_are_the_likeliest_of_changed_logits),
        cmocka_unit_test(bits_do_not_depend_on_the_company),
        cmocka_unit_test(extensions_go_on_with_penalties),
        cmocka_unit_test(an_aborted_prompt_gives_what_is_known),
        cmocka_unit_test(a_mask_of_everything_gives_the_likeliest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
