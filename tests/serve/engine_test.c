/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves what the engine samples: the ids of the goldens, the trainer's
 * log-probabilities, and the same bits for any slots, order, cuts and threads.
 */
#include "tests/serve/engine.h"

#include <math.h>

#include "core/base/json.h"
#include "model/hf/config.h"

/* ---- goldens ------------------------------------------------------------ */

static void *open_directory(rig *r, const char *dir, xm_config *config,
                            char **out_text)
{
    xr_err err = { "" };
    if (xm_config_read(dir, &err, config, out_text) != XRAY_OK)
        fail_msg("%s", err.text);
    xray_model about = { .header = XRAY_HEADER(xray_model),
                         .path = dir,
                         .config_json = *out_text,
                         .dtype = XRAY_F32 };
    xray_world world = { .header = XRAY_HEADER(xray_world), .size = 1 };
    xray_setup setup = { .header = XRAY_HEADER(xray_setup),
                         .host = &r->host,
                         .device = r->device,
                         .device_self = r->device_self,
                         .model = &about,
                         .world = &world,
                         .role = XRAY_ROLE_ROLLOUT };
    xray_workload load = { .header = XRAY_HEADER(xray_workload),
                           .rows = 3,
                           .row_tokens = 400 };
    const engine_size size = { .config = { .max_num_batched_tokens = 7 } };
    engine_config own;
    void *engine = NULL;
    if (r->ops->create(&setup, rig_config(r, &size, &own), &load, &engine) !=
        XRAY_OK)
        fail_msg("%s", r->said);
    return engine;
}

static void check_greedy(const cJSON *wanted, const result *got)
{
    const cJSON *ids = cJSON_GetObjectItem(wanted, "greedy_ids");
    const cJSON *logps = cJSON_GetObjectItem(wanted, "greedy_logprobs");
    assert_int_equal(got->count, cJSON_GetArraySize(ids));
    for (uint32_t i = 0; i < got->count; i++) {
        double logp = cJSON_GetArrayItem(logps, (int)i)->valuedouble;
        assert_int_equal(got->tokens[i],
                         cJSON_GetArrayItem(ids, (int)i)->valueint);
        assert_true(fabs((double)got->logp[i] - logp) < 1e-4);
        assert_memory_equal(&got->logp[i], &got->raw[i], sizeof(float));
    }
}

static void read_greedy_golden(const char *folder, const char *golden)
{
    char dir[600], file[600], name[100];
    xr_err err = { "" };
    (void)snprintf(name, sizeof(name), "models/stories260K/%s", folder);
    (void)test_data(name, dir, sizeof(dir));
    (void)snprintf(name, sizeof(name), "models/stories260K/%s", golden);
    (void)test_data(name, file, sizeof(file));
    cJSON *json = NULL;
    if (xr_json_file(file, &err, &json) != XRAY_OK)
        fail_msg("%s", err.text);
    rig *r = rig_open(2);
    xm_config config;
    char *text = NULL;
    void *engine = open_directory(r, dir, &config, &text);
    const cJSON *cases = cJSON_GetObjectItem(json, "cases");
    int count = cJSON_GetArraySize(cases);
    for (int i = 0; i < count; i++) {
        const cJSON *c = cJSON_GetArrayItem(cases, i);
        int32_t *ids = NULL;
        size_t id_count = 0;
        assert_int_equal(xr_json_ids(cJSON_GetObjectItem(c, "prompt_ids"),
                                     golden, &err, &ids, &id_count),
                         XRAY_OK);
        const cJSON *greedy = cJSON_GetObjectItem(c, "greedy_ids");
        xray_request q = request_make((uint64_t)i, ids, (uint32_t)id_count,
                                      (uint32_t)cJSON_GetArraySize(greedy));
        q.temperature = 0;
        engine_submit(r, engine, &q);
        free(ids);
    }
    results *out = calloc(1, sizeof(*out));
    assert_non_null(out);
    engine_run(r, engine, out);
    assert_int_equal(out->count, count);
    for (int i = 0; i < count; i++)
        check_greedy(cJSON_GetArrayItem(cases, i),
                     result_find(out, (uint64_t)i, 0));
    free(out);
    free(text);
    r->ops->destroy(engine);
    rig_close(r);
    cJSON_Delete(json);
}

static void greedy_ids_are_the_goldens(void **state)
{
    (void)state;
    read_greedy_golden("hf", "golden.json");
    read_greedy_golden("hf_as_qwen2", "golden.json");
    read_greedy_golden("hf_untied", "golden.json");
    read_greedy_golden("hf_sharded", "golden.json");
    read_greedy_golden("hf_bf16", "golden_hf_bf16.json");
    read_greedy_golden("hf_f16", "golden_hf_f16.json");
}

/* ---- a mix of requests -------------------------------------------------- */

enum { MIX = 8, PROMPT = 24 };

static void fill_prompt(uint64_t id, int32_t *ids)
{
    for (uint32_t i = 0; i < PROMPT; i++)
        ids[i] = (int32_t)((id * 17 + i * 29 + 3) % 101);
}

static xray_request make_mix_request(uint64_t id, int32_t *ids, int single)
{
    static const uint32_t prompts[MIX] = { 1, 16, 5, 24, 17, 3, 15, 9 };
    static const uint32_t counts[MIX] = { 4, 1, 3, 2, 1, 9, 2, 1 };
    static const uint32_t tokens[MIX] = { 20, 30, 1, 90, 7, 5, 33, 12 };
    static const float heats[MIX] = { 1, 0.7f, 1, 0.7f, 1.3f, 1, 0.6f, 0 };
    static const int32_t stop[] = { 2, 50, 51, 52 };
    fill_prompt(id, ids);
    xray_request q = request_make(id, ids, prompts[id], tokens[id]);
    q.count = single ? 1 : counts[id];
    q.temperature = heats[id];
    q.stop_ids = stop;
    q.stop_count = id % 2 ? 4 : 0;
    if (id == 4)
        q.top_p = 0.8f;
    if (id == 5)
        q.top_k = 10;
    if (id == 6)
        q.min_p = 0.05f;
    return q;
}

static void submit_mixed_requests(rig *r, void *engine, int order)
{
    for (uint64_t i = 0; i < MIX; i++) {
        int32_t ids[PROMPT];
        uint64_t id = order == 0 ? i : order == 1 ? MIX - 1 - i : (i * 3) % MIX;
        xray_request q = make_mix_request(id, ids, 0);
        engine_submit(r, engine, &q);
    }
}

static results *run_mixed_requests(uint32_t threads, int which, uint64_t slots,
                                   int64_t step_tokens, int order)
{
    rig *r = rig_open(threads);
    model *m = model_open(r, which);
    engine_size size = { .rows = 64,
                         .row_tokens = 80,
                         .config = { .max_num_seqs = (int64_t)slots,
                                     .max_num_batched_tokens = step_tokens } };
    void *engine = engine_open(r, m, &size);
    results *out = calloc(1, sizeof(*out));
    assert_non_null(out);
    submit_mixed_requests(r, engine, order);
    engine_run(r, engine, out);
    r->ops->destroy(engine);
    model_close(m);
    assert_int_equal(rig_live(r), rig_scratch(r));
    rig_close(r);
    return out;
}

static void same_bits_however_it_is_run(void **state)
{
    (void)state;
    for (int which = 0; which < MODEL_COUNT; which++) {
        results *base = run_mixed_requests(1, which, 0, 4096, 0);
        assert_int_equal(base->count, 23);
        struct {
            uint32_t threads;
            uint64_t slots;
            int64_t tokens;
            int order;
        } runs[] = { { 1, 1, 1, 0 },   { 2, 1, 4096, 1 }, { 2, 3, 3, 2 },
                     { 2, 5, 11, 1 },  { 1, 7, 16, 2 },   { 2, 23, 33, 0 },
                     { 2, 64, 100, 1 } };
        for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
            results *other =
                run_mixed_requests(runs[i].threads, which, runs[i].slots,
                                   runs[i].tokens, runs[i].order);
            results_equal(base, other);
            free(other);
        }
        free(base);
    }
}

/* ---- against the trainer ------------------------------------------------ */

static void expect_same_bits(const float *a, const float *b, uint32_t count,
                             const char *what)
{
    for (uint32_t i = 0; i < count; i++)
        if (memcmp(&a[i], &b[i], sizeof(float)) != 0)
            fail_msg("%s of token %u: engine %.9g, trainer %.9g", what, i,
                     (double)a[i], (double)b[i]);
}

static void logp_is_the_trainers(void **state)
{
    (void)state;
    for (int which = 0; which < MODEL_COUNT; which++) {
        results *all = run_mixed_requests(2, which, 6, 50, 0);
        rig *r = rig_open(1);
        model *m = model_open(r, which);
        for (uint32_t i = 0; i < all->count; i++) {
            const result *got = &all->r[i];
            int32_t row[PROMPT + MAX_OUT_TOKENS];
            float logp[MAX_OUT_TOKENS];
            xray_request q = make_mix_request(got->id, row, 1);
            memcpy(row + q.id_count, got->tokens, got->count * sizeof(int32_t));
            uint32_t count = q.id_count + got->count;
            trainer_logp(r, m, row, count, q.id_count, 1, logp);
            expect_same_bits(got->raw, logp, got->count, "raw_logp");
            float t = q.temperature > 0 ? q.temperature : 1;
            trainer_logp(r, m, row, count, q.id_count, t, logp);
            expect_same_bits(got->logp, logp, got->count, "logp");
        }
        model_close(m);
        rig_close(r);
        free(all);
    }
}

static void group_is_its_samples_one_by_one(void **state)
{
    (void)state;
    results *all = run_mixed_requests(2, MODEL_QWEN2, 4, 20, 0);
    rig *r = rig_open(1);
    model *m = model_open(r, MODEL_QWEN2);
    engine_size size = { .rows = 8,
                         .row_tokens = 80,
                         .config = { .max_num_batched_tokens = 64 } };
    void *engine = engine_open(r, m, &size);
    results *single = calloc(1, sizeof(*single));
    assert_non_null(single);
    for (uint32_t i = 0; i < all->count; i++) {
        int32_t ids[PROMPT];
        xray_request q = make_mix_request(all->r[i].id, ids, 1);
        q.first_sample = all->r[i].sample;
        q.id = i; /* the id is only a name: prompt_id is the key of the draws */
        engine_submit(r, engine, &q);
    }
    engine_run(r, engine, single);
    for (uint32_t i = 0; i < single->count; i++)
        single->r[i].id = all->r[single->r[i].id].id;
    results_equal(all, single);
    free(single);
    free(all);
    r->ops->destroy(engine);
    model_close(m);
    rig_close(r);
}

/* More draws than fit into one call: a large group and then single prompts, all
 * in one step, against the same requests one at a time. */
static void draws_in_portions(void **state)
{
    (void)state;
    enum { GROUP = 60, SINGLES = 20 };
    rig *r = rig_open(2);
    model *m = model_open(r, MODEL_LLAMA);
    engine_size size = { .rows = 64,
                         .row_tokens = 40,
                         .config = { .max_num_batched_tokens = 2048 } };
    void *engine = engine_open(r, m, &size);
    results *all = calloc(1, sizeof(*all));
    results *each = calloc(1, sizeof(*each));
    assert_true(all && each);
    int32_t ids[PROMPT];
    for (int pass = 0; pass < 2; pass++)
        for (uint64_t id = 0; id <= SINGLES; id++) {
            fill_prompt(id, ids);
            xray_request q = request_make(id, ids, 4 + (uint32_t)id % 7, 2);
            q.count = id ? 1 : GROUP;
            engine_submit(r, engine, &q);
            if (pass || id == SINGLES)
                engine_run(r, engine, pass ? each : all);
        }
    assert_int_equal(all->count, GROUP + SINGLES);
    results_equal(all, each);
    uint32_t other = 0; /* the samples of a group have separate draws */
    for (uint32_t i = 1; i < GROUP; i++)
        other += result_find(all, 0, i)->tokens[0] !=
                 result_find(all, 0, 0)->tokens[0];
    assert_true(other > GROUP / 3);
    free(all);
    free(each);
    r->ops->destroy(engine);
    model_close(m);
    rig_close(r);
}

/* ---- turns of a conversation
 * ------------------------------------------------ */

/* Continues a held sample, and gives the complete row as a new prompt: draws
 * are keyed by prompt, sample and position, so both give the same. */
static void extend_is_a_longer_prompt(void **state)
{
    (void)state;
    static const int32_t seen[] = { 9, 8, 7, 6, 5, 4, 3, 9, 8,
                                    7, 6, 5, 4, 3, 1, 1, 2 };
    enum { SEEN = 17, FIRST = 13, TURN = 8, SAMPLES = 3 };
    rig *r = rig_open(2);
    model *m = model_open(r, MODEL_QWEN3);
    engine_size size = { .rows = 2,
                         .row_tokens = 80,
                         .config = { .max_num_batched_tokens = 6 } };
    void *engine = engine_open(r, m, &size);
    int32_t ids[PROMPT];
    fill_prompt(3, ids);
    xray_request q = request_make(3, ids, FIRST, TURN);
    q.count = SAMPLES;
    q.hold = 1;
    q.temperature = 0.9f;
    engine_submit(r, engine, &q);
    results *first = calloc(1, sizeof(*first));
    results *second = calloc(1, sizeof(*second));
    results *fresh = calloc(1, sizeof(*fresh));
    assert_true(first && second && fresh);
    /* With two slots for three held samples, one is released to let the last
     * one run; in a paged cache held samples have none. */
    engine_run(r, engine, first);
    assert_int_equal(first->count, r->paged.block_size ? SAMPLES : 2);
    uint32_t extended = first->r[0].sample;
    assert_int_equal(r->ops->release(engine, 3, first->r[1].sample), XRAY_OK);
    engine_run(r, engine, first);
    assert_int_equal(first->count, SAMPLES);
    assert_int_equal(r->ops->extend(engine, 3, extended, seen, SEEN), XRAY_OK);
    engine_run(r, engine, second);
    assert_int_equal(second->count, 1);
    assert_int_equal(second->r[0].count, TURN);
    assert_int_equal(r->ops->abort(engine, 3, XRAY_ALL_SAMPLES), XRAY_OK);

    int32_t row[PROMPT + TURN + SEEN];
    memcpy(row, ids, sizeof(ids));
    memcpy(row + FIRST, first->r[0].tokens, TURN * sizeof(int32_t));
    memcpy(row + FIRST + TURN, seen, sizeof(seen));
    q.ids = row;
    q.id_count = FIRST + TURN + SEEN;
    q.count = 1;
    q.first_sample = extended;
    q.hold = 0;
    engine_submit(r, engine, &q);
    engine_run(r, engine, fresh);
    results_equal(second, fresh);
    free(first);
    free(second);
    free(fresh);
    r->ops->destroy(engine);
    model_close(m);
    rig_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_ids_are_the_goldens),
        cmocka_unit_test(same_bits_however_it_is_run),
        cmocka_unit_test(logp_is_the_trainers),
        cmocka_unit_test(group_is_its_samples_one_by_one),
        cmocka_unit_test(draws_in_portions),
        cmocka_unit_test(extend_is_a_longer_prompt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
