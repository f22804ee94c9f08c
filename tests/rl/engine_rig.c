/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements an engine and a reward made for tests, with a fixture around them.
 */
#include "tests/rl/engine_rig.h"
#include "core/plugin/cancel.h"

/* ---- an engine ---------------------------------------------------------- */

rig_engine engine;

xray_status engine_submit(void *self, const xray_request *r)
{
    size_t used = strlen(engine.log);
    (void)self;
    if (engine.fault == FAULT_SUBMIT && engine.requests == engine.when)
        return XRAY_E_RANGE;
    engine.asked[engine.requests++] = *r;
    (void)snprintf(engine.log + used, sizeof(engine.log) - used,
                   "%u of %u: %u x %u, T %g top_p %g min_p %g top_k %d seed "
                   "%llx step %u stop %u\n",
                   (unsigned)r->id, (unsigned)r->prompt_id, r->count,
                   r->max_tokens, (double)r->temperature, (double)r->top_p,
                   (double)r->min_p, r->top_k, (unsigned long long)r->seed,
                   (unsigned)r->step, r->stop_count);
    return XRAY_OK;
}

static xray_status engine_step(void *self)
{
    (void)self;
    if (engine.fault == FAULT_STEP)
        return XRAY_E_RANGE;
    if (++engine.steps == engine.stopped)
        xr_cancel();
    return engine.fault == FAULT_IDLE ? XRAY_END : XRAY_OK;
}

static uint32_t sum_tokens(void)
{
    return engine.requests ? engine.requests * engine.asked[0].count : 0;
}

/* Samples arrive in reverse order, two after each step. Sample k of prompt p
 * has 1 + (p + k) % 3 tokens, p + k, p + k + 1, ... modulo five. A greedy one
 * is sample 4. */
static xray_status engine_poll(void *self, xray_sample_out *out)
{
    static int32_t tokens[8];
    static float logp[8];
    /* Of an engine that knows longer ones. */
    static struct {
        xray_span span;
        uint64_t more;
    } spans[2];
    (void)self;
    engine.polls_after += *engine.aborted != '\0';
    if (*engine.aborted)
        return engine.polls_after > 3 ? XRAY_END : XRAY_OK;
    if (engine.given == sum_tokens() || engine.fault == FAULT_LOST)
        return XRAY_END;
    int later = engine.fault != FAULT_IDLE && engine.given == 2 * engine.steps;
    if (engine.stopped || later)
        return XRAY_AGAIN;
    uint32_t at = sum_tokens() - ++engine.given;
    const xray_request *r = &engine.asked[at / engine.asked[0].count];
    uint32_t k = at % r->count;
    uint64_t seen = r->prompt_id + (r->temperature > 0 ? k : 4);
    int ill = engine.given == engine.when;
    if (ill && engine.fault == FAULT_POLL)
        return XRAY_E_RANGE;
    out->id = r->id + (ill && engine.fault == FAULT_REQUEST ? 9 : 0);
    out->sample = k + (ill && engine.fault == FAULT_SAMPLE ? r->count : 0);
    if (ill && engine.fault == FAULT_TWICE)
        out->sample++;
    out->token_count = ill && engine.fault == FAULT_LONG
                           ? MOST + 1
                           : 1 + (uint32_t)(seen % MOST);
    for (uint32_t t = 0; t < 8; t++) {
        tokens[t] = (int32_t)((seen + t) % 5);
        logp[t] = -(float)(10 * at + t);
    }
    out->tokens = tokens;
    out->logp = logp;
    out->finish = 1 + at % 3;
    out->span_count = at == 1 ? 0 : 2;
    spans[0].span.version = ill && engine.fault == FAULT_VERSION ? 6 : 5;
    spans[1].span.version = ill && engine.fault == FAULT_LATER_VERSION ? 6 : 5;
    out->spans = &spans[0].span;
    out->span_stride = sizeof(spans[0]);
    return XRAY_OK;
}

static xray_status engine_abort(void *self, uint64_t id, uint32_t sample)
{
    size_t used = strlen(engine.aborted);
    (void)self;
    assert_int_equal(sample, XRAY_ALL_SAMPLES);
    (void)snprintf(engine.aborted + used, sizeof(engine.aborted) - used, "%u ",
                   (unsigned)id);
    return XRAY_OK;
}

static xray_status engine_stats(void *self, xray_infer_stats *out)
{
    (void)self;
    out->prompt_tokens = 100;
    out->generation_tokens = engine.made;
    return XRAY_OK;
}

const xray_infer_ops engine_ops = { .header = XRAY_HEADER(xray_infer_ops),
                                    .capabilities = XRAY_INFER_TRUNCATION,
                                    .submit = engine_submit,
                                    .step = engine_step,
                                    .poll = engine_poll,
                                    .abort = engine_abort,
                                    .stats = engine_stats };

/* ---- a reward ----------------------------------------------------------- */

rig_grader grader;

static xray_status grader_submit(void *self, const xray_sample_in *samples,
                                 uint64_t count, uint64_t stride)
{
    (void)self;
    assert_int_equal(stride, sizeof(*samples));
    grader.samples = samples;
    grader.count = count;
    grader.next = 0;
    for (uint64_t i = 0; i < count; i++) {
        const xray_sample_in *s = &samples[i];
        size_t used = strlen(grader.log);
        (void)snprintf(grader.log + used, sizeof(grader.log) - used,
                       "%u: \"%s\" %u \"%s\" %u truth \"%s\" source \"%s\" "
                       "fields %s ids %u from %d prompt %u from %d finish %u\n",
                       (unsigned)s->id, s->prompt, (unsigned)s->prompt_size,
                       s->response, (unsigned)s->response_size, s->ground_truth,
                       s->data_source, s->fields_json, s->id_count, s->ids[0],
                       s->prompt_id_count, s->prompt_ids[0], s->finish);
    }
    return XRAY_OK;
}

/* The score is the sum of the ids; the first token scores a quarter. */
static xray_status grader_poll(void *self, uint64_t wait_ns, xray_score *out)
{
    static const float first[MOST] = { 0.25f };
    (void)self;
    (void)wait_ns;
    if (grader.next == grader.count)
        return XRAY_END;
    const xray_sample_in *s = &grader.samples[grader.next++];
    out->id = s->id;
    for (uint32_t t = 0; t < s->id_count; t++)
        out->score += s->ids[t];
    out->token_scores = first;
    return XRAY_OK;
}

static const xray_reward_ops grader_ops = { .header =
                                                XRAY_HEADER(xray_reward_ops),
                                            .submit = grader_submit,
                                            .poll = grader_poll };

/* ---- a reward that works beside the rollout ------------------------------ */

rig_beside beside;

static xray_status beside_submit(void *self, const xray_sample_in *samples,
                                 uint64_t count, uint64_t stride)
{
    size_t used = strlen(beside.log);
    (void)self;
    assert_int_equal(stride, sizeof(*samples));
    used += (size_t)snprintf(beside.log + used, sizeof(beside.log) - used,
                             "after %u:", engine.given);
    for (uint64_t i = 0; i < count; i++) {
        beside.samples[beside.count++] = &samples[i];
        used += (size_t)snprintf(beside.log + used, sizeof(beside.log) - used,
                                 " %u \"%s\"", (unsigned)samples[i].id,
                                 samples[i].response);
    }
    (void)snprintf(beside.log + used, sizeof(beside.log) - used, "\n");
    return XRAY_OK;
}

/* The score is a third of the sum of the ids, and so is a named value, of which
 * another one is the double; the values have longer elements. The sample that
 * has waited longest comes first, or last. */
static xray_status beside_poll(void *self, uint64_t wait_ns, xray_score *out)
{
    static struct {
        xray_named_value value;
        uint64_t more;
    } values[2];
    static char names[2][8];
    (void)self;
    (void)wait_ns;
    memset(names, 0, sizeof(names)); /* those of the answer before */
    uint32_t left = beside.count - beside.given;
    beside.polled_early += engine.given < 6;
    if (!left)
        return XRAY_END;
    if (beside.silent && !wait_ns)
        return XRAY_AGAIN;
    if (beside.fails && beside.given + 1 == beside.fails)
        return XRAY_E_RANGE;
    uint32_t at = beside.newest_first ? beside.count - 1 : beside.given;
    const xray_sample_in *s = beside.samples[at];
    if (beside.newest_first)
        beside.samples[at] = beside.samples[beside.given];
    beside.given++;
    out->id = s->id;
    for (uint32_t t = 0; t < s->id_count; t++)
        out->score += s->ids[t];
    out->score /= 3;
    for (int k = 0; k < 2; k++)
        (void)snprintf(names[k], sizeof(names[k]), "%s",
                       k ? "double" : "third");
    values[0].value.name = names[0];
    values[1].value.name = names[1];
    values[0].value.value = out->score;
    values[1].value.value = 2 * out->score;
    out->values = &values[0].value;
    out->value_count = 2;
    out->value_stride = sizeof(values[0]);
    return XRAY_OK;
}

const xray_reward_ops beside_ops = { .header = XRAY_HEADER(xray_reward_ops),
                                     .submit = beside_submit,
                                     .poll = beside_poll,
                                     .capabilities = XRAY_REWARD_BESIDE };

/* ---- a fixture ---------------------------------------------------------- */

static const int32_t prompt_ids[] = { 3, 2, 1 };
static const xr_row data[] = {
    { .id = 0,
      .prompt = "p0",
      .ground_truth = "g0",
      .data_source = "x",
      .fields_json = "{0}",
      .ids = prompt_ids,
      .prompt_count = 3 },
    { .id = 1,
      .prompt = "p\n1",
      .ground_truth = "g\"1",
      .data_source = "",
      .fields_json = "{1}",
      .ids = prompt_ids + 1,
      .prompt_count = 2 },
    { .id = 2,
      .prompt = "p2",
      .ground_truth = "",
      .data_source = "x",
      .fields_json = "{2}",
      .ids = prompt_ids + 2,
      .prompt_count = 1 },
};
const xr_row *const rows[3] = { &data[0], &data[1], &data[2] };

int set_up(void **state)
{
    xr_err err = { "" };
    fixture *f = calloc(1, sizeof(*f));
    memset(&engine, 0, sizeof(engine));
    memset(&grader, 0, sizeof(grader));
    memset(&beside, 0, sizeof(beside));
    xr_run *run = &f->run;
    make_fake_roles(run, &f->roles);
    f->roles.published.synced = 1;
    f->roles.published.version = 5;
    run->actor.model.vocab_size = 6;
    run->end_count = 2;
    run->infer = (xr_part){ .ops = &engine_ops,
                            .instance = "infer.fake",
                            .host = xr_host_new("infer.fake", NULL) };
    run->rewards[0] =
        (xr_part){ .ops = &grader_ops, .instance = "reward.sum", .weight = 2 };
    run->reward_count = 1;
    run->tokenizer = make_tokenizer(
        "{\"added_tokens\":[{\"id\":4,\"content\":\"</s>\",\"special\":true}],"
        "\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"a\",\"vocab\":"
        "{\"a\":0,\"b\":1,\"c\":2,\"d\":3,\"</s>\":4}}}");
    f->how = (xr_sampling){
        .n = 2, .max_tokens = MOST, .temperature = 1, .top_p = 1
    };
    assert_int_equal(xr_samples_init(&f->samples, 6, MOST, &err), XRAY_OK);
    *state = f;
    return 0;
}

int tear_down(void **state)
{
    fixture *f = *state;
    xr_samples_free(&f->samples);
    xm_tokenizer_close(f->run.tokenizer);
    xr_host_free(f->run.infer.host);
    free(f);
    return 0;
}

xr_dataset *rig_open_rows(const fixture *f, const char *text)
{
    static const char *file;
    xr_dataset *set = NULL;
    xr_err err = { "" };
    file = scratch_write("val.jsonl", text);
    const xr_data_section section = {
        .val_files = { &file, 1 },
        .prompt_key = "prompt",
        .answer_key = "answer",
        .response_key = "",
        .reward_fn_key = "data_source",
        .template = "{prompt}",
        .response_template = "{answer}",
        .max_prompt_length = 8,
        .max_response_length = MOST,
        .val_max_samples = -1,
        .chat_template = "",
        .chat_template_kwargs = "",
        .chat_date = "2024-07-26",
        .system_prompt = "",
        .messages_key = "messages",
        .tools_key = "tools",
    };
    const xr_data_want want = { .part = XR_DATA_VAL,
                                .tokenizer = f->run.tokenizer };
    if (xr_dataset_open(&section, &want, &err, &set) != XRAY_OK)
        fail_msg("%s", err.text);
    return set;
}
