/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves which memory is offloaded and loaded when models take turns on a
 * device: every call of every plugin in its order, with plugins made for the
 * test.
 */
#include "tests/growth.h"
#include "tests/testing.h"

#include "core/roles/memory_turns.h"
#include "tests/rl/fake_roles.h"

#define BIT(tag) (1u << (tag))
#define W BIT(XRAY_TAG_WEIGHTS)
#define G BIT(XRAY_TAG_GRADS)
#define O BIT(XRAY_TAG_OPTIMIZER)
#define A BIT(XRAY_TAG_ACTIVATIONS)
#define KV BIT(XRAY_TAG_KV)

/* ---- plugins ------------------------------------------------------------ */

static char said[1024];
static const char *refused; /* the call that returns `answer` */
static xray_status answer;
static xray_weights
    *engine_weights; /* NULL: the engine uses the policy's weights */

/* Notes a call: an instance is its name, and a tag is a letter. */
static xray_status note_call(void *self, const char *call, uint32_t tag)
{
    static const char letters[] = "wgoakx";
    char line[64];
    size_t used = strlen(said);
    (void)snprintf(line, sizeof(line), "%s %s %c", (const char *)self, call,
                   letters[tag]);
    (void)snprintf(said + used, sizeof(said) - used, "%s%s", used ? ", " : "",
                   line);
    return refused && strcmp(line, refused) == 0 ? answer : XRAY_OK;
}

static uint32_t find_tag(uint32_t tags)
{
    uint32_t tag = 0;
    while (!(tags & BIT(tag)))
        tag++;
    assert_int_equal(tags, BIT(tag)); /* one at a time */
    return tag;
}

static xray_status train_offload(void *self, uint32_t tag)
{
    return note_call(self, "offload", tag);
}

static xray_status train_onload(void *self, uint32_t tag)
{
    return note_call(self, "onload", tag);
}

static xray_status infer_sleep(void *self, uint32_t tags)
{
    return note_call(self, "sleep", find_tag(tags));
}

static xray_status infer_wake(void *self, uint32_t tags)
{
    return note_call(self, "wake", find_tag(tags));
}

static const xray_weights *infer_weights(void *self)
{
    (void)self;
    return engine_weights;
}

static const xray_train_ops train_ops = { .header = XRAY_HEADER(xray_train_ops),
                                          .offload = train_offload,
                                          .onload = train_onload };
static const xray_infer_ops infer_ops = { .header = XRAY_HEADER(xray_infer_ops),
                                          .weights = infer_weights,
                                          .sleep = infer_sleep,
                                          .wake = infer_wake };

/* ---- a fixture ---------------------------------------------------------- */

typedef struct fixture {
    xr_run run;
    xr_roles roles;
} fixture;

static xr_part *make_part(fixture *f, uint32_t role)
{
    return role == XRAY_ROLE_ACTOR     ? &f->run.train
           : role == XRAY_ROLE_ROLLOUT ? &f->run.infer
                                       : &f->roles.named[role];
}

static int set_up(void **state)
{
    static char names[][12] = {
        "", "actor", "ref", "critic", "engine", "score"
    };
    static xray_weights weights;
    fixture *f = calloc(1, sizeof(*f));
    make_fake_roles(&f->run, &f->roles);
    for (uint32_t role = 1; role <= XRAY_ROLE_REWARD; role++) {
        *make_part(f, role) =
            (xr_part){ .ops = role == XRAY_ROLE_ROLLOUT
                                  ? (const void *)&infer_ops
                                  : (const void *)&train_ops,
                       .instance = names[role],
                       .host = xr_host_new(names[role], NULL) };
        xr_roles_at(&f->roles, role)->self = names[role];
    }
    said[0] = '\0';
    refused = NULL;
    engine_weights = &weights;
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    for (uint32_t role = 1; role <= XRAY_ROLE_REWARD; role++)
        xr_host_free(make_part(f, role)->host);
    free(f);
    return 0;
}

static void want_all(fixture *f)
{
    xr_run_config *ini = &f->run.ini;
    ini->actor.param_offload = ini->actor.grad_offload = 1;
    ini->actor.optimizer_offload = 1;
    ini->critic.param_offload = ini->critic.grad_offload = 1;
    ini->critic.optimizer_offload = 1;
    ini->ref.param_offload = 1;
    ini->rollout.free_cache_engine = 1;
}

static void make_all(xr_roles *roles)
{
    xr_err err = { "" };
    for (uint32_t role = 1; role <= XRAY_ROLE_REWARD; role++)
        assert_int_equal(xr_turn_join(roles, role, &err), XRAY_OK);
}

/* Expects these calls since the last time. */
static void expect_heard(const char *want)
{
    assert_string_equal(said, want);
    said[0] = '\0';
}

/* ---- cases -------------------------------------------------------------- */

/* Each key offloads its own memory, and activations with any of them. The key
 * that is reported is the first that is set. */
static void keys_name_memory(void **state)
{
    fixture *f = *state;
    xr_run_config *ini = &f->run.ini;
    struct {
        uint32_t role;
        uint32_t *key;
        uint32_t tags;
        const char *section;
        const char *name;
    } cases[] = {
        { XRAY_ROLE_ACTOR, &ini->actor.optimizer_offload, O | A, "actor",
          "optimizer_offload" },
        { XRAY_ROLE_ACTOR, &ini->actor.grad_offload, O | G | A, "actor",
          "grad_offload" },
        { XRAY_ROLE_ACTOR, &ini->actor.param_offload, W | G | O | A, "actor",
          "param_offload" },
        { XRAY_ROLE_CRITIC, &ini->critic.optimizer_offload, O | A, "critic",
          "optimizer_offload" },
        { XRAY_ROLE_CRITIC, &ini->critic.grad_offload, O | G | A, "critic",
          "grad_offload" },
        { XRAY_ROLE_CRITIC, &ini->critic.param_offload, W | G | O | A, "critic",
          "param_offload" },
        { XRAY_ROLE_REFERENCE, &ini->ref.param_offload, W | A, "ref",
          "param_offload" },
        { XRAY_ROLE_ROLLOUT, &ini->rollout.free_cache_engine, W | A | KV,
          "rollout", "free_cache_engine" },
    };
    for (uint32_t role = 0; role <= XRAY_ROLE_REWARD; role++)
        assert_int_equal(xr_turn_tags(ini, role), 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *key = NULL;
        *cases[i].key = 1;
        assert_int_equal(xr_turn_tags(ini, cases[i].role), cases[i].tags);
        assert_string_equal(xr_turn_key(ini, cases[i].role, &key),
                            cases[i].section);
        assert_string_equal(key, cases[i].name);
    }
    assert_int_equal(xr_turn_tags(ini, XRAY_ROLE_REWARD), 0);
    assert_int_equal(XR_TURN_FORWARD, W | A);
    assert_int_equal(XR_TURN_GRADS, W | A | G);
    assert_int_equal(XR_TURN_STEP, W | G | O);
    assert_int_equal(XR_TURN_ENGINE, W | A | KV);
}

/* Memory is offloaded before other memory is loaded, and loaded once. Memory
 * that a model will need again stays, and the reward model, for which there is
 * no key, is never moved. */
static void a_turn_moves_only_what_it_must(void **state)
{
    fixture *f = *state;
    xr_roles *roles = &f->roles;
    xr_err err = { "" };
    want_all(f);
    make_all(roles);
    assert_int_equal(xr_turn_offload_all(roles, &err), XRAY_OK);
    expect_heard(
        "actor offload w, actor offload g, actor offload o, actor offload a, "
        "ref offload w, ref offload a, critic offload w, critic offload g, "
        "critic offload o, critic offload a, engine sleep w, engine sleep a, "
        "engine sleep k");
    assert_int_equal(xr_turn_offload_all(roles, &err), XRAY_OK);
    expect_heard("");
    assert_int_equal(
        xr_turn_take(roles, XRAY_ROLE_ACTOR, XR_TURN_FORWARD, &err), XRAY_OK);
    expect_heard("actor onload w, actor onload a");
    assert_int_equal(xr_turn_take(roles, XRAY_ROLE_ACTOR, XR_TURN_GRADS, &err),
                     XRAY_OK);
    expect_heard("actor onload g");
    assert_int_equal(xr_turn_take(roles, XRAY_ROLE_ACTOR, XR_TURN_STEP, &err),
                     XRAY_OK);
    expect_heard("actor onload o");
    assert_int_equal(
        xr_turn_take(roles, XRAY_ROLE_CRITIC, XR_TURN_FORWARD, &err), XRAY_OK);
    expect_heard(
        "actor offload w, actor offload g, actor offload o, actor offload a, "
        "critic onload w, critic onload a");
    assert_int_equal(
        xr_turn_take(roles, XRAY_ROLE_REWARD, XR_TURN_FORWARD, &err), XRAY_OK);
    expect_heard("critic offload w, critic offload a");
    assert_int_equal(xr_turn_publish(roles, &err), XRAY_OK);
    expect_heard("actor onload w, engine wake w");
    assert_int_equal(
        xr_turn_take(roles, XRAY_ROLE_ROLLOUT, XR_TURN_ENGINE, &err), XRAY_OK);
    expect_heard("actor offload w, engine wake a, engine wake k");
    assert_int_equal(
        xr_turn_take(roles, XRAY_ROLE_REFERENCE, XR_TURN_FORWARD, &err),
        XRAY_OK);
    expect_heard(
        "engine sleep w, engine sleep a, engine sleep k, ref onload w, "
        "ref onload a");
}

/* Without keys nothing is moved. */
static void nothing_moves_without_a_key(void **state)
{
    fixture *f = *state;
    xr_roles *roles = &f->roles;
    xr_err err = { "" };
    make_all(roles);
    assert_int_equal(xr_turn_offload_all(roles, &err), XRAY_OK);
    assert_int_equal(
        xr_turn_take(roles, XRAY_ROLE_ACTOR, XR_TURN_FORWARD, &err), XRAY_OK);
    expect_heard("");
    /* Instances that do not exist yet cannot be moved. */
    want_all(f);
    make_all(roles);
    roles->actor.self = roles->critic.self = roles->engine.self = NULL;
    assert_int_equal(xr_turn_offload_all(roles, &err), XRAY_OK);
    expect_heard("ref offload w, ref offload a");
}

/* An engine that computes with the policy's weights always needs them, so the
 * policy keeps them. */
static void shared_weights_stay(void **state)
{
    static xray_infer_ops older;
    static xray_weights shown;
    fixture *f = *state;
    xr_roles *roles = &f->roles;
    xr_err err = { "" };
    for (int i = 0; i <= LACK_WAYS; i++) {
        if (i) { /* an engine from before it could show a table of weights */
            older = infer_ops;
            LACK_MEMBER(xray_infer_ops, older, weights, i - 1);
            f->run.infer.ops = &older;
        }
        memset(&roles->turns, 0, sizeof(roles->turns));
        engine_weights = i ? &shown : NULL;
        want_all(f);
        make_all(roles);
        roles->critic.self = roles->reference.self = NULL;
        assert_int_equal(xr_turn_offload_all(roles, &err), XRAY_OK);
        expect_heard("actor offload g, actor offload o, actor offload a, "
                     "engine sleep a, engine sleep k");
    }
}

/* A plugin may be unable to free memory that holds nothing; it is not asked
 * again. Any other failure ends the run and names the call. */
static void memory_that_holds_nothing_may_stay(void **state)
{
    static const struct {
        const char *line;
        xray_status answer;
        int stays;
        const char *says;
    } cases[] = {
        { "actor offload a", XRAY_E_UNSUPPORTED, 1, "" },
        { "engine sleep w", XRAY_E_UNSUPPORTED, 1, "" },
        { "engine sleep a", XRAY_E_UNSUPPORTED, 1, "" },
        { "engine sleep a", XRAY_E_RANGE, 0, "engine: sleep failed" },
        { "actor offload w", XRAY_E_UNSUPPORTED, 0, "actor: offload failed" },
        { "actor offload a", XRAY_E_RANGE, 0, "actor: offload failed" },
        { "engine sleep k", XRAY_E_UNSUPPORTED, 0, "engine: sleep failed" },
        { "engine wake a", XRAY_E_UNSUPPORTED, 0, "engine: wake failed" },
        { "actor onload a", XRAY_E_UNSUPPORTED, 0, "actor: onload failed" },
    };
    fixture *f = *state;
    xr_roles *roles = &f->roles;
    want_all(f);
    roles->critic.self = roles->reference.self = NULL;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        xr_err err = { "" };
        memset(&roles->turns, 0, sizeof(roles->turns));
        make_all(roles);
        refused = cases[i].line;
        answer = cases[i].answer;
        xray_status status = XRAY_OK;
        for (int round = 0; round < 2 && status == XRAY_OK; round++) {
            status = xr_turn_offload_all(roles, &err);
            if (status == XRAY_OK)
                status =
                    xr_turn_take(roles, XRAY_ROLE_ACTOR, XR_TURN_GRADS, &err);
            if (status == XRAY_OK)
                status = xr_turn_take(roles, XRAY_ROLE_ROLLOUT, XR_TURN_ENGINE,
                                      &err);
        }
        assert_int_equal(status, cases[i].stays ? XRAY_OK : answer);
        const char *first = strstr(said, refused);
        assert_non_null(first);
        assert_null(strstr(first + 1, refused));
        if (!strstr(err.text, cases[i].says))
            fail_msg("%s: %s", refused, err.text);
        said[0] = '\0';
    }
}

/* The INI may ask a plugin for offloading that it does not have. */
static void plugins_without_turns_are_refused(void **state)
{
    static xray_train_ops train;
    static xray_infer_ops infer;
    fixture *f = *state;
    xr_roles *roles = &f->roles;
    xr_errors errors = { 0 };
    f->run.config = xr_config_new();
    assert_non_null(f->run.config);
    xr_config_set(f->run.config, "rollout.free_cache_engine=true", &errors);
    f->run.ini.actor.grad_offload = 1;
    f->run.ini.rollout.free_cache_engine = 1;
    for (int i = 0; i < 8; i++) {
        xr_err err = { "" };
        uint32_t role = i < 4 ? XRAY_ROLE_ACTOR : XRAY_ROLE_ROLLOUT;
        train = train_ops;
        infer = infer_ops;
        if (i & 2) {
            LACK_MEMBER(xray_train_ops, train, onload, i % 2);
            LACK_MEMBER(xray_infer_ops, infer, wake, i % 2);
        } else {
            LACK_MEMBER(xray_train_ops, train, offload, i % 2);
            LACK_MEMBER(xray_infer_ops, infer, sleep, i % 2);
        }
        f->run.train.ops = &train;
        f->run.infer.ops = &infer;
        assert_int_equal(xr_turn_join(roles, role, &err), XRAY_E_CONFIG);
        assert_string_equal(err.text,
                            i < 4 ? "configuration: [actor] grad_offload: "
                                    "actor cannot give memory back"
                                  : "--set: [rollout] free_cache_engine: "
                                    "engine cannot give memory back");
    }
    /* A plugin that is not asked for offloading may lack it. */
    xr_err err = { "" };
    assert_int_equal(xr_turn_join(roles, XRAY_ROLE_REFERENCE, &err), XRAY_OK);
    xr_config_free(f->run.config);
    xr_errors_free(&errors);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(keys_name_memory),
        CASE(a_turn_moves_only_what_it_must),
        CASE(nothing_moves_without_a_key),
        CASE(shared_weights_stay),
        CASE(memory_that_holds_nothing_may_stay),
        CASE(plugins_without_turns_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
