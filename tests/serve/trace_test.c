/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads traces as a viewer does: they tell the scheduler's decisions, in
 * documents that are whole but for the "]" of a process that was killed.
 */
#include "tests/serve/engine.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/json.h"
#include "core/base/str.h"
#include "model/serve/trace.h"

enum { PROMPT = 40, BLOCKS = 6 };

typedef struct stage {
    rig *r;
    model *m;
    void *engine;
    char dir[64];
    char path[96];
} stage;

static int set_up(void **state)
{
    stage *s = calloc(1, sizeof(*s));
    assert_non_null(s);
    (void)snprintf(s->dir, sizeof(s->dir), "/tmp/xray-trace-XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    (void)snprintf(s->path, sizeof(s->path), "%s/trace.json", s->dir);
    s->r = rig_open(1);
    s->m = model_open(s->r, MODEL_LLAMA);
    *state = s;
    return 0;
}

static int tear_down(void **state)
{
    xr_err err = { "" };
    stage *s = *state;
    s->r->ops->destroy(s->engine);
    model_close(s->m);
    rig_close(s->r);
    assert_int_equal(xr_dir_remove(s->dir, &err), XRAY_OK);
    free(s);
    return 0;
}

static xray_status try_engine(stage *s, int paged, const char *path)
{
    engine_size size = { .rows = 4,
                         .row_tokens = 80,
                         .config = { .max_num_batched_tokens = 32,
                                     .weights = XM_ENGINE_WEIGHTS_FLOAT32,
                                     .trace = path } };
    const xm_config *c = &s->m->config;
    if (paged)
        rig_use_paged(
            s->r, &(paged_config){ .block_size = 16,
                                   .enable_prefix_caching = 1,
                                   .trace = path,
                                   .kv_memory = BLOCKS * 16 * 2 * c->kv_heads *
                                                c->head_dim * sizeof(float) *
                                                c->layers });
    return engine_try(s->r, s->m, &s->m->weights->table, &size, &s->engine);
}

static void open_engine(stage *s, int paged)
{
    if (try_engine(s, paged, s->path) != XRAY_OK)
        fail_msg("%s", s->r->said);
}

static void close_engine(stage *s)
{
    s->r->ops->destroy(s->engine);
    s->engine = NULL;
}

static void run_all(stage *s)
{
    results *out = calloc(1, sizeof(*out));
    assert_non_null(out);
    engine_run(s->r, s->engine, out);
    free(out);
}

/* The events of a file to which `end` is appended. */
static cJSON *read_trace(const char *path, const char *end)
{
    xr_err err = { "" };
    char *data = NULL;
    size_t size = 0;
    cJSON *events = NULL;
    xr_str text = { 0 };
    if (xr_file_read(path, 1u << 24, &err, &data, &size) != XRAY_OK)
        fail_msg("%s", err.text);
    xr_str_append(&text, data, size);
    xr_str_puts(&text, end);
    if (xr_json_parse(xr_str_text(&text), text.size, path, &err, &events) !=
        XRAY_OK)
        fail_msg("%s", err.text);
    free(data);
    xr_str_free(&text);
    assert_true(cJSON_IsArray(events));
    return events;
}

static const char *text_of(const cJSON *object, const char *key)
{
    const cJSON *at = xr_json_get(object, key);
    return cJSON_IsString(at) ? at->valuestring : "";
}

static int64_t count_of(const cJSON *event, const char *key)
{
    xr_err err = { "" };
    int64_t n = 0;
    if (xr_json_int(xr_json_get(event, "args"), key, "trace", &err, &n) !=
        XRAY_OK)
        fail_msg("%s", err.text);
    return n;
}

/* A viewer draws one bar from an event "b" to the event "e" of the same name,
 * and marks of their own names on it. */
static void check_label(const cJSON *event, const char *id, const char *what)
{
    const char *phase = !strcmp(what, "start")    ? "b"
                        : !strcmp(what, "finish") ? "e"
                                                  : "n";
    char bar[64];
    (void)snprintf(bar, sizeof(bar), "%s %s",
                   strchr(id, '.') ? "sample" : "prompt", id);
    assert_string_equal(text_of(event, "ph"), phase);
    assert_string_equal(text_of(event, "name"), *phase == 'n' ? what : bar);
}

/* The course of a sequence, as "start 40, chunk 32, ...". */
static void expect_course(const cJSON *events, const char *id,
                          const char *course)
{
    xr_str text = { 0 };
    const cJSON *event;
    cJSON_ArrayForEach(event, events)
    {
        const cJSON *args = xr_json_get(event, "args");
        if (strcmp(text_of(event, "id"), id) != 0)
            continue;
        assert_string_equal(text_of(event, "cat"), "sequence");
        check_label(event, id, text_of(args, "event"));
        xr_str_printf(&text, "%s%s %d%s%s", text.size ? ", " : "",
                      text_of(args, "event"), (int)count_of(event, "tokens"),
                      *text_of(args, "why") ? " " : "", text_of(args, "why"));
    }
    assert_string_equal(xr_str_text(&text), course);
    xr_str_free(&text);
}

/* Steps have the tokens that were computed, and do not overlap. */
static void check_steps(const cJSON *events, uint64_t want, int64_t tokens)
{
    const cJSON *event;
    uint64_t steps = 0;
    double end = 0;
    cJSON_ArrayForEach(event, events)
    {
        if (strcmp(text_of(event, "ph"), "X") != 0)
            continue;
        double at = cJSON_GetNumberValue(xr_json_get(event, "ts"));
        assert_true(at >= end);
        end = at + cJSON_GetNumberValue(xr_json_get(event, "dur"));
        assert_int_equal(count_of(event, "tokens"),
                         count_of(event, "decode") +
                             count_of(event, "prefill"));
        assert_true(count_of(event, "tokens") <= count_of(event, "budget"));
        tokens -= count_of(event, "tokens");
        steps++;
    }
    assert_int_equal(steps, want);
    assert_int_equal(tokens, 0);
}

static void check_blocks(const cJSON *events)
{
    const cJSON *event;
    int64_t most = 0;
    cJSON_ArrayForEach(event, events)
    {
        if (strcmp(text_of(event, "name"), "blocks") != 0)
            continue;
        int64_t used = count_of(event, "used");
        assert_string_equal(text_of(event, "ph"), "C");
        assert_int_equal(
            used + count_of(event, "cached") + count_of(event, "free"), BLOCKS);
        most = used > most ? used : most;
    }
    assert_true(most == BLOCKS || most == BLOCKS - 1);
}

static xray_infer_stats stats_of(const stage *s)
{
    xray_infer_stats stats = { .header = XRAY_HEADER(xray_infer_stats) };
    assert_int_equal(s->r->ops->stats(s->engine, &stats), XRAY_OK);
    return stats;
}

static void submit(stage *s, uint64_t id, uint32_t count, uint32_t most)
{
    static int32_t ids[PROMPT];
    for (int32_t i = 0; i < PROMPT; i++)
        ids[i] = i;
    xray_request q = request_make(id, ids, PROMPT, most);
    q.count = count;
    engine_submit(s->r, s->engine, &q);
}

/* The document is read while the engine lives, and once more when it has ended
 * the array. */
static cJSON *end_trace(stage *s)
{
    cJSON *live = read_trace(s->path, "]");
    s->r->ops->destroy(s->engine);
    s->engine = NULL;
    cJSON *events = read_trace(s->path, "");
    assert_int_equal(cJSON_GetArraySize(events), cJSON_GetArraySize(live));
    cJSON_Delete(live);
    return events;
}

/* Both samples have the prompt's blocks in common, but for the last one, which
 * is partly filled. The next request finds the two full ones. */
static void a_paged_trace_tells_decisions(void **state)
{
    stage *s = *state;
    open_engine(s, 1);
    submit(s, 1, 2, 12);
    run_all(s);
    submit(s, 2, 1, 12);
    run_all(s);
    uint64_t steps = stats_of(s).steps;
    cJSON *events = end_trace(s);
    expect_course(events, "1", "start 40, chunk 32, chunk 8, finish 40 drawn");
    expect_course(events, "1.0", "start 1, finish 12 length");
    expect_course(events, "1.1", "start 1, fork 40, finish 12 length");
    expect_course(events, "2", "start 8, prefix 32, chunk 8, finish 40 drawn");
    expect_course(events, "2.0", "start 1, finish 12 length");
    check_blocks(events);
    check_steps(events, steps, 40 + 2 * 11 + 8 + 11);
    cJSON_Delete(events);
}

/* Two samples of 70 tokens do not fit 6 blocks: the younger one gives way and
 * is computed again when the other has ended. */
static void a_paged_trace_tells_preemptions(void **state)
{
    stage *s = *state;
    open_engine(s, 1);
    submit(s, 1, 2, 30);
    run_all(s);
    cJSON *events = end_trace(s);
    expect_course(events, "1.0", "start 1, finish 30 length");
    expect_course(events, "1.1",
                  "start 1, fork 40, preempt 64, resume 17, prefix 48, "
                  "chunk 17, finish 30 length");
    cJSON_Delete(events);
}

/* A slot is freed by an abort, and another version comes. */
static void a_trace_tells_versions_and_aborts(void **state)
{
    stage *s = *state;
    for (int paged = 0; paged < 2; paged++) {
        open_engine(s, paged);
        submit(s, 1, 1, 6);
        submit(s, 2, 1, 6);
        for (int i = 0; i < 3; i++)
            assert_int_equal(s->r->ops->step(s->engine), XRAY_OK);
        assert_int_equal(s->r->ops->update(s->engine, &s->m->weights->table, 1),
                         XRAY_OK);
        assert_int_equal(s->r->ops->abort(s->engine, 2, 0), XRAY_OK);
        run_all(s);
        cJSON *events = end_trace(s);
        expect_course(events, "1.0",
                      "start 1, forget 41, resume 42, chunk 32, chunk 10, "
                      "finish 6 length");
        expect_course(events, "2",
                      paged ? "start 8, prefix 32, chunk 8, finish 40 drawn"
                            : "start 40, chunk 24, chunk 16, finish 40 drawn");
        expect_course(events, "2.0",
                      paged ? "start 1, forget 41, finish 2 abort"
                            : "start 1, forget 40, resume 41, finish 1 abort");
        cJSON_Delete(events);
    }
}

/* Samples that end before they have a slot, with their first token or by an
 * abort, have a bar as well. */
static void samples_that_never_ran_are_traced(void **state)
{
    stage *s = *state;
    for (int paged = 0; paged < 2; paged++) {
        open_engine(s, paged);
        submit(s, 1, 2, 1);
        submit(s, 2, 1, 6);
        assert_int_equal(s->r->ops->abort(s->engine, 2, 0), XRAY_OK);
        run_all(s);
        cJSON *events = end_trace(s);
        expect_course(events, "1.0", "start 0, finish 1 length");
        expect_course(events, "1.1", "start 0, finish 1 length");
        expect_course(events, "2", "");
        expect_course(events, "2.0", "start 0, finish 0 abort");
        cJSON_Delete(events);
    }
}

/* Each turn of a sample that is held and extended has a bar of its own. */
static void each_turn_of_a_sample_has_its_bar(void **state)
{
    static const int32_t more[] = { 7, 8, 9 };
    stage *s = *state;
    for (int paged = 0; paged < 2; paged++) {
        int32_t ids[PROMPT] = { 1, 2 };
        open_engine(s, paged);
        xray_request q = request_make(1, ids, PROMPT, 6);
        q.hold = 1;
        engine_submit(s->r, s->engine, &q);
        run_all(s);
        assert_int_equal(s->r->ops->extend(s->engine, 1, 0, more, 3), XRAY_OK);
        run_all(s);
        cJSON *events = end_trace(s);
        expect_course(events, "1",
                      "start 40, chunk 32, chunk 8, finish 40 drawn");
        expect_course(events, "1.0",
                      paged ? "start 1, finish 6 length, start 17, prefix 32, "
                              "chunk 17, finish 6 length"
                            : "start 1, finish 6 length, start 4, chunk 4, "
                              "finish 6 length");
        cJSON_Delete(events);
    }
}

/* A step that was made ahead is a step like others. */
static void a_trace_tells_steps_ahead(void **state)
{
    stage *s = *state;
    rig_make_late(s->r);
    uint32_t before = rig_advances();
    open_engine(s, 1);
    submit(s, 1, 1, 12);
    run_all(s);
    uint64_t steps = stats_of(s).steps;
    cJSON *events = end_trace(s);
    const cJSON *event;
    int64_t ahead = 0;
    cJSON_ArrayForEach(event, events)
    {
        if (strcmp(text_of(event, "ph"), "X") == 0)
            ahead += count_of(event, "ahead");
    }
    assert_true(ahead > 0 && ahead == rig_advances() - before);
    check_steps(events, steps, 40 + 11);
    cJSON_Delete(events);
}

/* ---- files --------------------------------------------------------------- */

static void each_rank_has_its_file(void **state)
{
    stage *s = *state;
    xr_err err = { "" };
    char path[112];
    static char older[4096]; /* longer than what replaces it */
    memset(older, 'x', sizeof(older));
    assert_int_equal(xr_file_write(s->path, older, sizeof(older), &err),
                     XRAY_OK);
    for (uint32_t rank = 0; rank < 2; rank++) {
        xm_trace *trace = NULL;
        assert_int_equal(xm_trace_open(s->path, rank, "test", &err, &trace),
                         XRAY_OK);
        assert_int_equal(xm_trace_close(trace, &err), XRAY_OK);
    }
    (void)snprintf(path, sizeof(path), "%s.1", s->path);
    cJSON *own[2] = { read_trace(s->path, ""), read_trace(path, "") };
    for (int i = 0; i < 2; i++) {
        const cJSON *pid = xr_json_get(cJSON_GetArrayItem(own[i], 0), "pid");
        assert_int_equal((int)cJSON_GetNumberValue(pid), i);
        cJSON_Delete(own[i]);
    }
}

static void a_file_that_cannot_be_opened_is_refused(void **state)
{
    stage *s = *state;
    char path[112];
    char says[200];
    (void)snprintf(path, sizeof(path), "%s/none/trace", s->dir);
    (void)snprintf(says, sizeof(says),
                   "dsinf: %s: cannot open the trace: No such file or "
                   "directory",
                   path);
    assert_int_equal(try_engine(s, 0, path), XRAY_E_IO);
    assert_string_equal(s->r->said, says);
}

/* The disk is full while the run goes on, with the same results, or when it
 * ends; it is told so once. */
static void a_full_disk_ends_the_trace_alone(void **state)
{
    stage *s = *state;
    for (int late = 0; late < 2; late++) {
        struct rlimit before;
        struct stat st;
        open_engine(s, 0);
        assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
        submit(s, 1, 2, 12);
        if (late)
            run_all(s);
        assert_int_equal(stat(s->path, &st), 0);
        const rlim_t most = late ? (rlim_t)st.st_size + 1 : 300;
        const struct rlimit less = { most, before.rlim_max };
        void (*old)(int) = signal(SIGXFSZ, SIG_IGN);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &less), 0);
        if (!late)
            run_all(s);
        else
            close_engine(s);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_true(signal(SIGXFSZ, old) == SIG_IGN);
        assert_non_null(strstr(s->r->log, s->path));
        assert_non_null(strstr(s->r->log, "File too large"));
        assert_non_null(strstr(s->r->log, "; the trace ends here"));
        s->r->log[0] = '\0';
        close_engine(s);
        assert_string_equal(s->r->log, "");
        assert_int_equal(stat(s->path, &st), 0);
        assert_int_equal(st.st_size, most);
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_paged_trace_tells_decisions),
        TEST(a_paged_trace_tells_preemptions),
        TEST(a_trace_tells_versions_and_aborts),
        TEST(samples_that_never_ran_are_traced),
        TEST(each_turn_of_a_sample_has_its_bar),
        TEST(a_trace_tells_steps_ahead),
        TEST(each_rank_has_its_file),
        TEST(a_file_that_cannot_be_opened_is_refused),
        TEST(a_full_disk_ends_the_trace_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
