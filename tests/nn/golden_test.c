/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that stories260K agrees with its goldens, which were computed in
 * double precision.
 */
#include <math.h>

#include "core/base/json.h"
#include "tests/nn/fixture.h"
#include "tests/testing.h"

#define MODEL "models/stories260K/"
#define BOUND 1e-4
#define CAP 256u
#define VOCAB 512u

static cJSON *read_golden(const char *name)
{
    char path[1024];
    xr_err err = { "" };
    cJSON *json = NULL;
    fixture_ok(xr_json_file(test_data(name, path, sizeof path), &err, &json),
               &err);
    return json;
}

static void load_model(fixture *f, const char *folder)
{
    char name[256];
    char path[1024];
    (void)snprintf(name, sizeof name, MODEL "%s", folder);
    print_message("%s\n", folder);
    fixture_load(f, test_data(name, path, sizeof path));
}

static void check_near(double got, double want, double bound, const char *what,
                       int at)
{
    if (!(fabs(got - want) <= bound))
        fail_msg("%s[%d]: got %.9g, want %.9g", what, at, got, want);
}

static double number_at(const cJSON *array, int i)
{
    return cJSON_GetArrayItem(array, i)->valuedouble;
}

/* One case: the prompt and then the greedy ids, as one row. */
typedef struct story {
    const cJSON *json;
    int32_t ids[CAP];
    uint32_t prompt;
    uint32_t count;
    double margin;
} story;

static story read_story(const cJSON *json)
{
    story s = { .json = json };
    const char *lists[] = { "prompt_ids", "greedy_ids" };
    for (int l = 0; l < 2; l++) {
        const cJSON *id = NULL;
        cJSON_ArrayForEach(id, xr_json_get(json, lists[l]))
        {
            assert_true(s.count < CAP);
            s.ids[s.count++] = id->valueint;
        }
        if (l == 0)
            s.prompt = s.count;
    }
    s.margin = xr_json_get(json, "min_top1_top2_logit_margin")->valuedouble;
    return s;
}

static void check_logits(const fixture *f, const story *s, const float *hidden)
{
    float logits[VOCAB];
    fixture_logits(f, hidden, 1, logits);
    const cJSON *want = xr_json_get(s->json, "next_logits_after_prompt");
    assert_int_equal(cJSON_GetArraySize(want), VOCAB);
    for (uint32_t i = 0; i < VOCAB; i++)
        check_near((double)logits[i], number_at(want, (int)i), BOUND, "logits",
                   (int)i);
}

static void check_scores(const fixture *f, const story *s)
{
    xr_err err = { "" };
    fixture_rows rows = fixture_rows_make(&s->count, 1, VOCAB, 1);
    memcpy(rows.ids, s->ids, s->count * sizeof *s->ids);
    fixture_items items = fixture_items_make(&rows, 0, 1);
    items.items.temperature = NULL;
    xm_space *space = NULL;
    fixture_ok(
        xm_space_create(f->decoder, CAP, 1, CAP, 0, "test", &err, &space),
        &err);
    float logp[CAP];
    float entropy[CAP];
    fixture_out out = { .logp = logp, .entropy = entropy };
    fixture_pass(f, space, &rows, &items, NULL, &out);

    const cJSON *prompt = xr_json_get(s->json, "prompt_logprobs");
    const cJSON *greedy = xr_json_get(s->json, "greedy_logprobs");
    int split = (int)s->prompt - 1;
    for (int i = 0; i + 1 < (int)s->count; i++)
        check_near((double)logp[i],
                   i < split ? number_at(prompt, i)
                             : number_at(greedy, i - split),
                   BOUND, "logprob", i);
    check_near((double)entropy[split],
               xr_json_get(s->json, "entropy_after_prompt")->valuedouble, BOUND,
               "entropy", split);
    check_logits(f, s,
                 (const float *)xm_space_hidden(space) +
                     (uint64_t)split * f->config.hidden);
    xm_space_destroy(space);
    fixture_items_free(&items);
    fixture_rows_free(&rows);
}

/* Continues the prompt with a cache, one token at a time. */
static void check_greedy(const fixture *f, const story *s)
{
    int32_t ids[CAP];
    float logp[CAP];
    memcpy(ids, s->ids, s->prompt * sizeof *ids);
    fixture_continue(f, ids, s->prompt, s->count, CAP, logp);
    for (uint32_t n = s->prompt; n < s->count; n++)
        if (ids[n] != s->ids[n]) {
            if (s->margin > 2 * BOUND)
                fail_msg("token %u: got %d, want %d", n, ids[n], s->ids[n]);
            break; /* later tokens continue a different text */
        }
}

static void check_folder(const char *folder, const char *golden)
{
    fixture f;
    load_model(&f, folder);
    cJSON *json = read_golden(golden);
    const cJSON *one = NULL;
    int count = 0;
    cJSON_ArrayForEach(one, xr_json_get(json, "cases"))
    {
        story s = read_story(one);
        check_scores(&f, &s);
        check_greedy(&f, &s);
        count++;
    }
    assert_int_equal(count, 4);
    cJSON_Delete(json);
    fixture_end(&f);
}

static void llama_matches_its_golden(void **state)
{
    (void)state;
    check_folder("hf", MODEL "golden.json");
}

static void llama_as_qwen2_matches_its_golden(void **state)
{
    (void)state;
    check_folder("hf_as_qwen2", MODEL "golden.json");
}

static void llama_untied_matches_its_golden(void **state)
{
    (void)state;
    check_folder("hf_untied", MODEL "golden.json");
}

static void llama_sharded_matches_its_golden(void **state)
{
    (void)state;
    check_folder("hf_sharded", MODEL "golden.json");
}

static void llama_bf16_matches_its_golden(void **state)
{
    (void)state;
    check_folder("hf_bf16", MODEL "golden_hf_bf16.json");
}

static void llama_f16_matches_its_golden(void **state)
{
    (void)state;
    check_folder("hf_f16", MODEL "golden_hf_f16.json");
}

/* ---- derivatives_match_the_golden of the mean negative log-likelihood --- */

static void check_derivatives(const fixture *f, const xm_grads *grads,
                              const cJSON *list)
{
    const cJSON *one = NULL;
    int count = 0;
    cJSON_ArrayForEach(one, list)
    {
        const char *name = xr_json_get(one, "tensor")->valuestring;
        const cJSON *index = xr_json_get(one, "index");
        double want = xr_json_get(one, "grad")->valuedouble;
        const xm_param *param = xm_layout_find(f->layout, name);
        assert_non_null(param);
        uint64_t i = (uint64_t)number_at(index, 0);
        if (param->cols)
            i = i * param->cols + (uint64_t)number_at(index, 1);
        i += param->offset;
        check_near((double)f->weights->buckets[param->bucket][i],
                   xr_json_get(one, "value")->valuedouble, 1e-7, name, count);
        check_near((double)grads->buckets[param->bucket][i], want,
                   1e-4 * fabs(want) + 1e-6, name, count);
        count++;
    }
    assert_int_equal(count, 58);
}

static void derivatives_match_the_golden(void **state)
{
    (void)state;
    xr_err err = { "" };
    fixture f;
    load_model(&f, "hf");
    cJSON *json = read_golden(MODEL "golden_grad.json");
    const cJSON *ids = xr_json_get(json, "ids");
    uint32_t n = (uint32_t)cJSON_GetArraySize(ids);
    fixture_rows rows = fixture_rows_make(&n, 1, VOCAB, 1);
    for (uint32_t i = 0; i < n; i++)
        rows.ids[i] = (int32_t)number_at(ids, (int)i);
    fixture_items items = fixture_items_make(&rows, 0, 1);
    items.items.temperature = NULL;
    for (uint32_t i = 0; i < items.items.count; i++) {
        items.dlogp[i] = -1.0f / (float)items.items.count;
        items.dentropy[i] = 0;
    }
    xm_space *space = NULL;
    fixture_ok(xm_space_create(f.decoder, n, 1, n, XM_SPACE_TRAIN, "test", &err,
                               &space),
               &err);
    xm_grads *grads = fixture_grads(&f);
    float logp[CAP];
    fixture_out out = { .logp = logp };
    fixture_pass(&f, space, &rows, &items, grads, &out);
    fixture_ok(xm_grads_finish(grads, &err), &err);

    double nll = 0;
    for (uint32_t i = 0; i < items.items.count; i++)
        nll -= (double)logp[i] / items.items.count;
    check_near(nll, xr_json_get(json, "mean_nll")->valuedouble, 1e-5,
               "mean_nll", 0);
    check_derivatives(&f, grads, xr_json_get(json, "grads"));
    xm_grads_destroy(grads);
    xm_space_destroy(space);
    fixture_items_free(&items);
    fixture_rows_free(&rows);
    cJSON_Delete(json);
    fixture_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_matches_its_golden),
        cmocka_unit_test(llama_as_qwen2_matches_its_golden),
        cmocka_unit_test(llama_untied_matches_its_golden),
        cmocka_unit_test(llama_sharded_matches_its_golden),
        cmocka_unit_test(llama_bf16_matches_its_golden),
        cmocka_unit_test(llama_f16_matches_its_golden),
        cmocka_unit_test(derivatives_match_the_golden),
    };
    return cmocka_run_group_tests_name("nn.golden", tests, NULL, NULL);
}
