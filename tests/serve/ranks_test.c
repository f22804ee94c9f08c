/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that an engine of several ranks gives what one rank gives, bit for
 * bit: random requests with wishes, turns and aborts, drafts and new weights,
 * in both engines and for models of several kinds; and that ranks which were
 * asked for different things say so. The ranks are threads.
 */
#include <pthread.h>
#include <signal.h>

#include "tests/serve/engine.h"
#include "tests/train/thread_comm.h"

enum { MOST_RANKS = 4, REQUESTS = 8, SAMPLES = 2, PROMPT = 20, EXTENSION = 5 };

#define MODEL(type, class, more)                                               \
    "{\"model_type\":\"" type "\",\"architectures\":[\"" class                 \
        "\"],"                                                                 \
        "\"hidden_act\":\"silu\",\"hidden_size\":32,\"num_hidden_layers\":2,"  \
        "\"num_attention_heads\":4,\"num_key_value_heads\":4,\"head_dim\":8,"  \
        "\"intermediate_size\":48,\"vocab_size\":120,"                         \
        "\"max_position_embeddings\":128,\"rms_norm_eps\":1e-6,"               \
        "\"rope_theta\":10000.0,\"initializer_range\":0.3,\"bos_token_id\":1," \
        "\"eos_token_id\":2," more "}"

static const char *const models[] = {
    MODEL("llama", "LlamaForCausalLM", "\"tie_word_embeddings\":false"),
    MODEL("qwen3", "Qwen3ForCausalLM", "\"tie_word_embeddings\":true"),
    MODEL("qwen2", "Qwen2ForCausalLM", "\"tie_word_embeddings\":true"),
    MODEL("gemma2", "Gemma2ForCausalLM",
          "\"query_pre_attn_scalar\":8,\"sliding_window\":16,"
          "\"attn_logit_softcapping\":50.0,\"final_logit_softcapping\":30.0,"
          "\"hidden_activation\":\"gelu_pytorch_tanh\""),
};
#define MODELS (sizeof(models) / sizeof(models[0]))

typedef struct dice {
    uint64_t state;
} dice;

static uint32_t throw_dice(dice *d, uint32_t bound)
{
    d->state = d->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(d->state >> 33) % bound;
}

/* What a run is, and what it gave: everything that poll tells of each sample.
 */
typedef struct course {
    unsigned char bytes[16384];
    size_t size;
    int held;
} course;

typedef struct run {
    uint64_t seed;
    const char *json;
    uint32_t dtype;
    uint32_t ranks;
    uint32_t paged;
    uint32_t speculate;
    uint32_t odd;   /* 1: rank 1 is given another prompt */
    uint32_t steps; /* after which rank 1 is lost; 0: never */
    /* Rank 1 makes another call than rank 0, or NULL. */
    const struct difference *difference;
} run;

typedef struct rank {
    const run *run;
    xray_world world;
    course of[REQUESTS][SAMPLES];
    xray_status status; /* of a step that failed */
    char said[2048];
    uint64_t left; /* bytes after the end */
    uint64_t kv;   /* the most bytes of keys and values */
    uint64_t used; /* positions of the cache in use when the course ended */
    uint64_t kept; /* and after all requests were aborted then */
} rank;

/* ---- the run of one rank ------------------------------------------------- */

/* cmocka's assertions serve its own thread alone. */
#define MUST(promise, why)                                                 \
    do {                                                                   \
        if (!(promise)) {                                                  \
            (void)fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, why); \
            (void)raise(SIGABRT);                                          \
        }                                                                  \
    } while (0)

static void keep_bytes(course *c, const void *from, size_t size)
{
    MUST(c->size + size <= sizeof(c->bytes), "a sample is too long");
    if (from && size)
        memcpy(c->bytes + c->size, from, size);
    c->size += from ? size : 0;
}

static void poll_all(rank *k, rig *r, void *engine, const uint32_t *holds)
{
    xray_sample_out s = { .header = XRAY_HEADER(xray_sample_out) };
    while (r->ops->poll(engine, &s) == XRAY_OK) {
        course *c = &k->of[s.id][s.sample];
        size_t n = s.token_count;
        keep_bytes(c, s.tokens, n * sizeof(int32_t));
        keep_bytes(c, s.raw_logp, n * sizeof(float));
        keep_bytes(c, s.logp, n * sizeof(float));
        keep_bytes(c, &s.finish, sizeof(s.finish));
        keep_bytes(c, s.prompt_logp, s.prompt_count * sizeof(float));
        keep_bytes(c, s.top_ids, n * s.top_count * sizeof(int32_t));
        keep_bytes(c, s.top_logp, n * s.top_count * sizeof(float));
        if (s.finish != XRAY_FINISH_NONE)
            c->held = holds[s.id] && s.finish != XRAY_FINISH_ABORT;
    }
}

static void submit_random(const rank *k, rig *r, void *engine, dice *d,
                          uint64_t id, uint32_t *holds)
{
    int32_t ids[PROMPT];
    xray_bias bias = { .id = (int32_t)throw_dice(d, 120), .bias = 3 };
    uint32_t count = 1 + throw_dice(d, PROMPT);
    for (uint32_t i = 0; i < count; i++)
        ids[i] = (int32_t)throw_dice(d, id % 3 ? 120 : 4);
    uint32_t odd = k->world.rank == 1 && id == 1 ? k->run->odd : 0;
    ids[0] ^= odd == 1;
    xray_request q = request_make(id, ids, count, 1 + throw_dice(d, 24));
    q.count = 1 + throw_dice(d, SAMPLES);
    q.temperature = throw_dice(d, 3) ? 1.0f : 0;
    q.top_k = throw_dice(d, 2) ? 7 : 0;
    q.top_p = throw_dice(d, 2) ? 0.8f : 1;
    q.hold = holds[id] = throw_dice(d, 2);
    q.prompt_logp = throw_dice(d, 4) == 0;
    q.top_count = throw_dice(d, 4) ? 0 : 3;
    q.repetition_penalty = throw_dice(d, 3) ? 0 : 1.3f;
    if (throw_dice(d, 3) == 0) {
        q.biases = &bias;
        q.bias_count = 1;
        q.bias_stride = sizeof(bias);
    }
    MUST(r->ops->submit(engine, &q) == XRAY_OK, r->said);
}

/* Each held sample gets one further turn. */
static void extend_held(rank *k, rig *r, void *engine, dice *d, uint32_t *holds)
{
    for (uint64_t id = 0; id < REQUESTS; id++)
        for (uint32_t sample = 0; sample < SAMPLES; sample++) {
            int32_t ids[EXTENSION];
            for (uint32_t i = 0; i < EXTENSION; i++)
                ids[i] = (int32_t)throw_dice(d, 120);
            if (!k->of[id][sample].held)
                continue;
            k->of[id][sample].held = 0;
            if (holds[id] == 1)
                MUST(r->ops->extend(engine, id, sample, ids, EXTENSION) ==
                         XRAY_OK,
                     r->said);
            else
                MUST(r->ops->release(engine, id, sample) == XRAY_OK, r->said);
        }
}

/* Weights of another seed, all of which every rank is given. */
static void update_engine(rig *r, void *engine, const char *json,
                          uint64_t version)
{
    xr_err err = { "" };
    xm_config config;
    xm_layout *layout = NULL;
    xm_weights *weights = NULL;
    MUST(xm_config_parse(json, "test", &err, &config) == XRAY_OK &&
             xm_layout_create(&config, 0, &err, &layout) == XRAY_OK &&
             xm_weights_create(layout, r->device, r->device_self, "new", 0,
                               &err, &weights) == XRAY_OK &&
             xm_weights_random(weights, &config, 70 + version, &err) == XRAY_OK,
         err.text);
    MUST(r->ops->update(engine, &weights->table, version) == XRAY_OK &&
             r->ops->update(engine, NULL, version) == XRAY_OK,
         r->said);
    xm_weights_destroy(weights);
    xm_layout_destroy(layout);
}

/* Steps a few times, or until the engine is idle; 0 after a failure. */
static int make_steps(rank *k, rig *r, void *engine, uint32_t most,
                      const uint32_t *holds)
{
    for (uint32_t i = 0; i < most; i++) {
        xray_status status = r->ops->step(engine);
        if (status < 0) {
            k->status = status;
            (void)snprintf(k->said, sizeof(k->said), "%s", r->said);
            return 0;
        }
        poll_all(k, r, engine, holds);
        if (status == XRAY_END)
            break;
    }
    return 1;
}

/* A request that was aborted holds nothing any more. */
static void abort_one(rank *k, rig *r, void *engine, uint32_t id,
                      uint32_t *holds)
{
    if (r->ops->abort(engine, id, XRAY_ALL_SAMPLES) != XRAY_OK)
        return;
    holds[id] = 0;
    for (uint32_t sample = 0; sample < SAMPLES; sample++)
        k->of[id][sample].held = 0;
}

static void drive(rank *k, rig *r, void *engine)
{
    dice d = { k->run->seed };
    uint32_t holds[REQUESTS] = { 0 };
    int going = 1;
    for (uint64_t id = 0; id < REQUESTS && going; id++) {
        submit_random(k, r, engine, &d, id, holds);
        if (throw_dice(&d, 3) == 0)
            going = make_steps(k, r, engine, 1 + throw_dice(&d, 6), holds);
        if (going && throw_dice(&d, 6) == 0)
            abort_one(k, r, engine, throw_dice(&d, REQUESTS), holds);
        if (going && id == REQUESTS / 2)
            update_engine(r, engine, k->run->json, 1);
    }
    for (uint32_t turn = 0; turn < 3 && going; turn++) {
        going = make_steps(k, r, engine, UINT32_MAX, holds);
        extend_held(k, r, engine, &d, holds);
        for (uint32_t id = 0; id < REQUESTS; id++)
            holds[id] = holds[id] ? 2 : 0;
    }
}

/* ---- calls that differ between ranks ------------------------------------- */

static const int32_t few_ids[] = { 5, 6, 7, 8, 9 };
static const int32_t other_ids[] = { 5, 7, 6, 8, 9 };
static const int32_t banned_ids[] = { 5, 8 };
static const xray_id_list a_list[] = { { banned_ids, 2, 0 },
                                       { few_ids, 2, 0 } };
static const xray_id_list other_list[] = { { few_ids + 2, 2, 0 },
                                           { few_ids, 2, 0 } };
static const xray_id_list other_end[] = { { banned_ids, 2, 0 },
                                          { few_ids + 1, 2, 0 } };
/* The requests have the last two, before which no bias differs. */
static const xray_bias biases[] = { { 7, 1 }, { 7, 1 }, { 9, 1 } };
static const xray_bias other_biases[] = { { 7, 1 }, { 7, 1 }, { 9, 2 } };

/* What rank 1 gives for a member of the request, or the call of which it gives
 * other arguments. */
typedef struct difference {
    const char *what;
    size_t at;
    size_t size; /* 0: what is a call */
    const void *value;
} difference;

#define OTHER(member, type, ...)                                             \
    {                                                                        \
#member, offsetof(xray_request, member), sizeof(type), &(const type) \
        {                                                                    \
            __VA_ARGS__                                                      \
        }                                                                    \
    }
static const difference differences[] = {
    OTHER(id, uint64_t, 8),
    OTHER(ids, const int32_t *, other_ids),
    OTHER(id_count, uint32_t, 4),
    OTHER(count, uint32_t, 1),
    OTHER(first_sample, uint32_t, 1),
    OTHER(max_tokens, uint32_t, 7),
    OTHER(seed, uint64_t, 9),
    OTHER(step, uint64_t, 9),
    OTHER(prompt_id, uint64_t, 9),
    OTHER(temperature, float, 0.5f),
    OTHER(top_p, float, 0.5f),
    OTHER(min_p, float, 0.5f),
    OTHER(top_k, int32_t, 8),
    OTHER(stop_ids, const int32_t *, other_ids + 1),
    OTHER(stop_count, uint32_t, 2),
    OTHER(hold, uint32_t, 0),
    OTHER(stream, uint32_t, 1),
    OTHER(stop_lists, const xray_id_list *, other_list),
    OTHER(stop_lists, const xray_id_list *, other_end),
    OTHER(stop_list_count, uint32_t, 1),
    OTHER(repeat_size, uint32_t, 1),
    OTHER(repeat_count, uint32_t, 3),
    OTHER(min_tokens, uint32_t, 3),
    OTHER(repetition_penalty, float, 1.5f),
    OTHER(frequency_penalty, float, 0.5f),
    OTHER(presence_penalty, float, 0.5f),
    OTHER(biases, const xray_bias *, other_biases + 1),
    OTHER(bias_count, uint32_t, 1),
    OTHER(allowed_ids, const int32_t *, few_ids + 1),
    OTHER(allowed_count, uint32_t, 3),
    OTHER(banned_lists, const xray_id_list *, other_list),
    OTHER(banned_lists, const xray_id_list *, other_end),
    OTHER(banned_list_count, uint32_t, 1),
    OTHER(forced_ids, const int32_t *, other_ids + 1),
    OTHER(forced_count, uint32_t, 1),
    OTHER(top_count, uint32_t, 2),
    OTHER(logp_ids, const int32_t *, other_ids + 1),
    OTHER(logp_id_count, uint32_t, 1),
    OTHER(prompt_logp, uint32_t, 1),
    { .what = "abort" },
    { .what = "release" },
    { .what = "extend by other ids" },
    { .what = "extend by fewer ids" },
};

/* A request in which each member matters. */
static xray_request make_full_request(uint64_t id)
{
    xray_request q = request_make(id, few_ids, 5, 8);
    q.count = 2;
    q.top_k = 9;
    q.repeat_size = 2;
    q.repeat_count = 4;
    q.min_tokens = 2;
    q.hold = 1;
    q.stop_ids = few_ids;
    q.stop_count = 1;
    q.stop_lists = q.banned_lists = a_list;
    q.stop_list_count = q.banned_list_count = 2;
    q.stop_list_stride = q.banned_list_stride = sizeof(xray_id_list);
    q.biases = biases + 1;
    q.bias_count = 2;
    q.bias_stride = sizeof(xray_bias);
    q.allowed_ids = few_ids;
    q.allowed_count = 4;
    q.forced_ids = few_ids;
    q.forced_count = 2;
    q.top_count = 1;
    q.logp_ids = few_ids;
    q.logp_id_count = 2;
    return q;
}

/* Samples of request 1 are held; the ranks go on with other calls. */
static void make_other_call(rank *k, rig *r, void *engine, const char *what)
{
    const uint32_t odd = k->world.rank;
    const uint32_t holds[REQUESTS] = { 0 };
    xray_status status = XRAY_OK;
    int extends = strstr(what, "extend") != NULL;
    if (strcmp(what, "abort") != 0)
        MUST(make_steps(k, r, engine, UINT32_MAX, holds), k->said);
    MUST(r->ops->extend(engine, 1, 0, NULL, 2) == XRAY_E_ARG,
         "tokens that are not set are taken");
    if (extends)
        status = r->ops->extend(engine, 1, 0,
                                strstr(what, "other") && odd ? other_ids + 1
                                                             : few_ids + 1,
                                strstr(what, "fewer") && odd ? 1 : 2);
    else if (strcmp(what, "abort") == 0)
        status = r->ops->abort(engine, 1, odd);
    else
        status = r->ops->release(engine, 1, odd);
    MUST(status == XRAY_OK, r->said);
}

static void make_differing_calls(rank *k, rig *r, void *engine)
{
    const difference *d = k->run->difference;
    const uint32_t holds[REQUESTS] = { 0 };
    xray_request q = make_full_request(1);
    if (d->size && k->world.rank)
        memcpy((char *)&q + d->at, d->value, d->size);
    MUST(r->ops->submit(engine, &q) == XRAY_OK, r->said);
    if (!d->size) {
        make_other_call(k, r, engine, d->what);
        q = make_full_request(2);
        MUST(r->ops->submit(engine, &q) == XRAY_OK, r->said);
    }
    (void)make_steps(k, r, engine, 1, holds);
}

static uint64_t count_positions(const rig *r, void *engine)
{
    xray_infer_stats stats = { .header = XRAY_HEADER(xray_infer_stats) };
    MUST(r->ops->stats(engine, &stats) == XRAY_OK, r->said);
    return stats.kv_tokens;
}

/* Ends all requests, also after a step that failed. */
static void give_back(rank *k, const rig *r, void *engine)
{
    xray_sample_out s = { .header = XRAY_HEADER(xray_sample_out) };
    k->used = count_positions(r, engine);
    for (uint64_t id = 0; id < REQUESTS; id++)
        (void)r->ops->abort(engine, id, XRAY_ALL_SAMPLES);
    while (r->ops->poll(engine, &s) == XRAY_OK)
        ;
    k->kept = count_positions(r, engine);
}

/* Rank 1 is gone after some steps, and rank 0 waits for it in the next one. */
static void lose_a_rank(rank *k, rig *r, void *engine)
{
    const uint32_t holds[REQUESTS] = { 0 };
    const xray_request q = request_make(1, few_ids, 5, 8);
    MUST(r->ops->submit(engine, &q) == XRAY_OK, r->said);
    int lost = k->world.rank == 1;
    (void)make_steps(k, r, engine, lost ? k->run->steps : UINT32_MAX, holds);
    if (lost)
        thread_comm_leave(k->world.comm_self);
}

static void *run_rank(void *data)
{
    rank *k = data;
    const run *of = k->run;
    const paged_config paged = { .block_size = 16,
                                 .enable_prefix_caching = 1,
                                 .watermark = 0.1,
                                 .tensor_model_parallel_size = of->ranks };
    const engine_size size = { .rows = 5,
                               .row_tokens = 96,
                               .config = { .max_num_batched_tokens = 24,
                                           .tensor_model_parallel_size =
                                               of->ranks } };
    model m = { .json = of->json,
                .seed = 5,
                .dtype = of->dtype,
                .config = { .vocab = 120, .max_positions = 128 } };
    void *engine = NULL;
    rig *r = rig_open(1);
    r->world = &k->world;
    r->speculate = of->speculate;
    if (of->paged)
        rig_use_paged(r, &paged);
    MUST(engine_try(r, &m, NULL, &size, &engine) == XRAY_OK, r->said);
    if (of->difference)
        make_differing_calls(k, r, engine);
    else if (of->steps)
        lose_a_rank(k, r, engine);
    else
        drive(k, r, engine);
    give_back(k, r, engine);
    r->ops->destroy(engine);
    k->kv = rig_high(r, XRAY_TAG_KV);
    k->left = rig_live(r) - rig_scratch(r);
    rig_close(r);
    return NULL;
}

/* ---- all ranks ----------------------------------------------------------- */

static void run_all(const run *of, rank *ranks)
{
    pthread_t threads[MOST_RANKS];
    thread_comm *comm = thread_comm_open(of->ranks);
    memset(ranks, 0, of->ranks * sizeof(*ranks));
    for (uint32_t i = 0; i < of->ranks; i++) {
        ranks[i].run = of;
        ranks[i].world = (xray_world){ .header = XRAY_HEADER(xray_world),
                                       .rank = i,
                                       .size = of->ranks };
        if (of->ranks > 1) {
            ranks[i].world.comm = thread_comm_ops();
            ranks[i].world.comm_self = thread_comm_self(comm, i);
            ranks[i].world.group = thread_comm_group(comm, i);
        }
    }
    for (uint32_t i = 0; i < of->ranks; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_rank, &ranks[i]),
                         0);
    for (uint32_t i = 0; i < of->ranks; i++)
        (void)pthread_join(threads[i], NULL);
    thread_comm_close(comm);
    for (uint32_t i = 0; i < of->ranks; i++) {
        assert_int_equal(ranks[i].left, 0);
        assert_int_equal(ranks[i].kept, 0);
    }
}

static int thorough;

static void ranks_give_what_one_rank_gives(void **state)
{
    (void)state;
    static rank one[1];
    static rank ranks[MOST_RANKS];
    uint64_t seeds = thorough ? 40 : 2;
    for (uint64_t seed = 1; seed <= seeds; seed++)
        for (uint32_t i = 0; i < 2 * MODELS; i++) {
            run of = { .seed = 100 * seed + i,
                       .json = models[i % MODELS],
                       .dtype = i % 3 == 2 ? XRAY_BF16 : 0,
                       .ranks = 1,
                       .paged = (uint32_t)(seed + i / MODELS) % 2,
                       .speculate = i % 4 ? 0 : 3 };
            run_all(&of, one);
            assert_int_equal(one->status, XRAY_OK);
            of.ranks = 2 << (seed + i) % 2;
            run_all(&of, ranks);
            for (uint32_t k = 0; k < of.ranks; k++) {
                if (memcmp(ranks[k].of, one->of, sizeof(one->of)) != 0)
                    fail_msg("seed %llu, model %u: rank %u of %u gives other "
                             "samples",
                             (unsigned long long)seed, i, k, of.ranks);
                assert_int_equal(ranks[k].kv * of.ranks, one->kv);
            }
        }
}

static void expect_peers_differ(const run *of, const char *what)
{
    static rank ranks[MOST_RANKS];
    run_all(of, ranks);
    for (uint32_t k = 0; k < 2; k++)
        if (ranks[k].status != XRAY_E_PEER ||
            !strstr(ranks[k].said, "rank 1 of 2 was given other requests "
                                   "or weights than rank 0"))
            fail_msg("%s: rank %u ends with %d: %s", what, k, ranks[k].status,
                     ranks[k].said);
}

static void ranks_with_other_requests_say_so(void **state)
{
    (void)state;
    for (uint32_t paged = 0; paged < 2; paged++) {
        run of = {
            .seed = 3, .json = models[0], .ranks = 2, .paged = paged, .odd = 1
        };
        expect_peers_differ(&of, "a prompt");
        of.odd = 0;
        for (size_t i = 0; i < sizeof(differences) / sizeof(differences[0]);
             i++) {
            of.difference = &differences[i];
            expect_peers_differ(&of, differences[i].what);
        }
    }
}

/* The rank that is left says so, and what its requests held is free again. */
static void a_rank_that_is_lost_ends_the_step(void **state)
{
    (void)state;
    static rank ranks[MOST_RANKS];
    for (uint32_t i = 0; i < 4; i++) {
        const run of = { .seed = 4,
                         .json = models[0],
                         .ranks = 2,
                         .paged = i % 2,
                         .steps = 1 + 2 * (i / 2) };
        run_all(&of, ranks);
        assert_int_equal(ranks[0].status, XRAY_E_PEER);
        assert_true(ranks[0].used > 0);
    }
}

static void worlds_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    const model m = { .json = models[0],
                      .config = { .vocab = 120, .max_positions = 128 } };
    const struct {
        int64_t ranks;
        uint32_t size;
        const char *words;
    } rows[] = {
        { 2, 1, "an engine of 2 ranks was planned, but its world has 1" },
        { 3, 3, "tensor_model_parallel_size = 3: a model of 4 query heads" },
        { 8, 8, "the next size that works is 4" },
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        void *engine = NULL;
        const xray_world world = { .header = XRAY_HEADER(xray_world),
                                   .size = rows[i].size };
        const engine_size size = { .rows = 2,
                                   .row_tokens = 32,
                                   .config = { .max_num_batched_tokens = 24,
                                               .tensor_model_parallel_size =
                                                   rows[i].ranks } };
        rig *r = rig_open(1);
        r->world = &world;
        assert_int_equal(engine_try(r, &m, NULL, &size, &engine),
                         XRAY_E_CONFIG);
        if (!strstr(r->said, rows[i].words))
            fail_msg("%s", r->said);
        rig_close(r);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_give_what_one_rank_gives),
        cmocka_unit_test(ranks_with_other_requests_say_so),
        cmocka_unit_test(a_rank_that_is_lost_ends_the_step),
        cmocka_unit_test(worlds_that_do_not_fit_are_refused),
    };
    (void)argv;
    thorough = argc > 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
