/* SPDX-License-Identifier: Apache-2.0
 *
 * The actor's side alone: a parent made for the test sends messages in any
 * order and records the answers.
 */
#include "core/actor/record.h"
#include "core/actor/signature.h"
#include "tests/actor/rig.h"

/* ---- a parent ----------------------------------------------------------- */

static struct {
    xr_str inbox[16]; /* messages that come, in order */
    uint32_t count;
    uint32_t at;
    xray_status fails; /* after them; 0: the end comes */
    const xray_host *host;
    const char *reason; /* of the end after them */
    uint32_t clean;
    char answers[4096]; /* a line per answer */
    char phases[512];   /* at every message of the actor and at its end */
    uint64_t record[XR_RECORD_PHASE / 8];
    uint32_t word;
    uint32_t gathers; /* messages of this kind */
    uint32_t quiet; /* the end comes only when it is waited for without limit */
    xray_region *sent[4]; /* with the last answer */
    uint32_t sent_count;
    uint32_t made; /* regions */
    uint32_t objects;
} parent;

static char one_peer;

static xray_status fake_attach(const xray_host *host, const char *address,
                               void **out_self, xray_peer **out_parent)
{
    parent.host = host;
    assert_string_equal(address, "here");
    *out_self = &parent;
    *out_parent = (void *)&one_peer;
    return XRAY_OK;
}

static xray_status fake_poll(void *self, int64_t timeout_ms,
                             xray_runtime_event *out)
{
    (void)self;
    out->peer = (void *)&one_peer;
    if (parent.at == parent.count && parent.quiet && timeout_ms >= 0)
        return XRAY_AGAIN;
    if (parent.at == parent.count && parent.fails == XRAY_E_IO)
        (void)(parent.host->fail)(parent.host, XRAY_E_IO, "poll", "no way");
    if (parent.at == parent.count && parent.fails)
        return parent.fails;
    if (parent.at == parent.count) {
        out->kind = XRAY_RUNTIME_LOST;
        out->reason = parent.reason;
        out->clean = parent.clean;
        return XRAY_OK;
    }
    out->kind = XRAY_RUNTIME_MESSAGE;
    out->data = parent.inbox[parent.at].data;
    out->size = parent.inbox[parent.at++].size;
    return XRAY_OK;
}

static void note_phase(void)
{
    char phase[64];
    size_t used = strlen(parent.phases);
    xr_record_get_phase(parent.record, phase, sizeof(phase));
    (void)snprintf(parent.phases + used, sizeof(parent.phases) - used, "%s; ",
                   phase);
}

/* "3 done 7", or "3 error -100 the sentence". */
static xray_status fake_send(void *self, xray_peer *peer, const void *data,
                             uint64_t size, xray_region *const *regions,
                             uint32_t region_count)
{
    xr_message m;
    xr_value v[3];
    xr_err err = { "" };
    size_t used = strlen(parent.answers);
    char *to = parent.answers + used;
    size_t cap = sizeof(parent.answers) - used;
    (void)self;
    (void)peer;
    assert_int_equal(xr_message_header(data, (size_t)size, &err, &m), 0);
    note_phase();
    if (m.kind == XR_MESSAGE_GATHER) {
        assert_int_equal(xr_message_values(&m, "Ub", &err, v), 0);
        assert_int_equal(v[0].U, 1500);
        parent.gathers++;
        return XRAY_OK;
    }
    parent.sent_count = region_count;
    for (uint32_t i = 0; i < region_count; i++)
        parent.sent[i] = regions[i];
    if (m.kind == XR_MESSAGE_ERROR) {
        assert_int_equal(xr_message_values(&m, XR_ERROR_LETTERS, &err, v), 0);
        (void)snprintf(to, cap, "%d error %d %s\n", (int)m.call, v[0].i,
                       v[1].s);
    } else if (xr_message_values(&m, "iU", &err, v) == XRAY_OK) {
        (void)snprintf(to, cap, "%d done %d: %d\n", (int)m.call, v[0].i,
                       (int)v[1].U);
    } else if (xr_message_values(&m, "im", &err, v) == XRAY_OK) {
        (void)snprintf(to, cap, "%d done %d: region %d %s\n", (int)m.call,
                       v[0].i, (int)v[1].m.id,
                       v[1].m.senders ? "of mine" : "of yours");
    } else {
        assert_int_equal(xr_message_values(&m, "i", &err, v), 0);
        (void)snprintf(to, cap, "%d done %d\n", (int)m.call, v[0].i);
    }
    return XRAY_OK;
}

static void *fake_record(void *self, xray_peer *peer)
{
    (void)self;
    assert_null(peer);
    return parent.record;
}

static void *fake_records(void *self, uint64_t *out_stride)
{
    (void)self;
    (void)out_stride;
    return NULL;
}

static const uint32_t *fake_notice(void *self)
{
    (void)self;
    return &parent.word;
}

static xray_region theirs = { .id = 5, .size = 64, .peer = (void *)&one_peer };
static xray_region mine[4];

static xray_status fake_region_create(void *self, uint64_t size,
                                      xray_region **out)
{
    (void)self;
    xray_region *region = &mine[parent.made++ % 4];
    *region = (xray_region){ .id = 100 + parent.made, .size = size };
    region->data = region;
    *out = region;
    return XRAY_OK;
}

static void fake_region_destroy(void *self, xray_region *region)
{
    (void)self;
    (void)region;
}

static xray_region *fake_region_find(void *self, xray_peer *peer, uint64_t id)
{
    (void)self;
    if (peer)
        return id == theirs.id ? &theirs : NULL;
    for (int i = 0; i < 4; i++)
        if (mine[i].id == id)
            return &mine[i];
    return NULL;
}

static void fake_destroy(void *self)
{
    (void)self;
}

static const xray_runtime_ops ops = { .header = XRAY_HEADER(xray_runtime_ops),
                                      .attach = fake_attach,
                                      .destroy = fake_destroy,
                                      .poll = fake_poll,
                                      .send = fake_send,
                                      .record = fake_record,
                                      .records = fake_records,
                                      .notice = fake_notice,
                                      .region_create = fake_region_create,
                                      .region_destroy = fake_region_destroy,
                                      .region_find = fake_region_find };

/* ---- an object ---------------------------------------------------------- */

static const xr_actor_context *context;

static xray_status object_create(const xr_actor_context *c, const char *text,
                                 xr_err *err, void **out)
{
    context = c;
    if (strcmp(text, "fail") == 0)
        return XRAY_E_CONFIG;
    if (strcmp(text, "say") == 0)
        return xr_fail(err, XRAY_E_CONFIG, "the text says so");
    assert_string_equal(xr_actor_own_name(c), "name");
    assert_int_equal(xr_actor_index(c), 2);
    assert_int_equal(xr_actor_count(c), 4);
    uint64_t stride = 0;
    assert_ptr_equal(xr_actor_extra(c), parent.record + XR_RECORD_PHASE / 8);
    assert_null(xr_actor_extras(c, &stride));
    parent.objects++;
    *out = &parent;
    return XRAY_OK;
}

static void object_destroy(void *self)
{
    assert_ptr_equal(self, &parent);
    note_phase();
    parent.objects--;
}

static xray_status double_number(void *self, uint64_t number, uint64_t *out,
                                 xr_err *err)
{
    assert_ptr_equal(self, &parent);
    *out = 2 * number;
    if (number == 13)
        return xr_fail(err, XRAY_E_ARG, "thirteen");
    return number == 7 ? XRAY_E_IO : number == 8 ? XRAY_AGAIN : XRAY_OK;
}

static xray_status give_region(void *self, const xray_region *region,
                               xray_region **out, xr_err *err)
{
    (void)self;
    if (region) {
        *out = &theirs;
        return XRAY_OK;
    }
    return xr_actor_region(context, 64, err, out);
}

/* Returns the sum of what the four actors gave. The text of the call is still
 * there after the gather. */
static xray_status gather_number(void *self, const char *text, uint64_t *out,
                                 xr_err *err)
{
    const uint64_t given = 5;
    uint64_t all[4] = { 0 };
    (void)self;
    xray_status status =
        xr_actor_gather(context, &given, sizeof(given), 1500, all, err);
    assert_string_equal(text, "the text of a call");
    *out = all[0] + all[1] + all[2] + all[3];
    return status;
}

static const xr_actor_method methods[] = {
    { "twice", "U->U", XR_METHOD(double_number) },
    { "give", "m->m", XR_METHOD(give_region) },
    { "gather", "s->U", XR_METHOD(gather_number) },
};
static const xr_actor_class kind = { "kind", methods, 3, object_create,
                                     object_destroy };
static const xr_actor_class other = { "other", methods, 3, NULL, NULL };

/* ---- what the parent sends ---------------------------------------------- */

static void begin_script(void)
{
    for (uint32_t i = 0; i < 16; i++)
        xr_str_free(&parent.inbox[i]);
    memset(&parent, 0, sizeof(parent));
    memset(mine, 0, sizeof(mine));
    parent.reason = "went away";
}

static void add_message(uint32_t what, const char *name, const char *letters,
                        const xr_value *values)
{
    xr_err err = { "" };
    uint64_t call = parent.count + 1;
    const xr_message header = { what, 0, call, name, NULL, 0 };
    assert_int_equal(xr_message_encode(&header, letters, values, &err,
                                       &parent.inbox[parent.count++]),
                     0);
}

static void add_create(const char *class_name, const char *text)
{
    const xr_value values[] = {
        { .s = "name" }, { .u = 2 }, { .u = 4 }, { .s = text }
    };
    add_message(XR_MESSAGE_CREATE, class_name, XR_CREATE_LETTERS, values);
}

static void add_twice_call(uint64_t number)
{
    const xr_value value = { .U = number };
    add_message(XR_MESSAGE_CALL, "twice", "U", &value);
}

static void expect_served(xray_status status, const char *sentence,
                          const char *answers)
{
    static const xr_actor_class *const classes[] = { &other, &kind };
    xr_err err = { "" };
    assert_int_equal(xr_actor_serve(classes, 2, &ops, NULL, "here", &err),
                     status);
    assert_string_equal(err.text, sentence);
    assert_string_equal(parent.answers, answers);
    assert_int_equal(parent.objects, 0); /* destroyed in any case */
}

/* ---- cases -------------------------------------------------------------- */

static void calls_are_answered(void **state)
{
    (void)state;
    begin_script();
    add_create("kind", "");
    add_twice_call(21);
    add_twice_call(8);
    add_twice_call(13);
    add_twice_call(7);
    add_message(XR_MESSAGE_CALL, "none", "", NULL);
    add_message(XR_MESSAGE_CALL, "twice", "", NULL);
    add_message(XR_MESSAGE_STOP, "", "", NULL);
    add_twice_call(1); /* nobody is there any more */
    expect_served(
        XRAY_OK, "",
        "1 done 0\n2 done 0: 42\n3 done 1: 16\n"
        "4 error -100 thirteen\n"
        "5 error -301 it failed with status -301\n"
        "6 error -100 class kind has no such method\n"
        "7 error -100 value 1 of the message is not of type 'U' (expected "
        "\"U\")\n8 done 0\n");
    assert_string_equal(parent.phases,
                        "waiting for a call; waiting for a call; waiting for a "
                        "call; waiting for a call; waiting for a call; waiting "
                        "for a call; waiting for a call; destroy; waiting for "
                        "a call; ");
}

static void calls_out_of_order_are_refused(void **state)
{
    (void)state;
    begin_script();
    add_twice_call(1);
    add_create("kind", "");
    add_create("kind", "");
    add_twice_call(2);
    parent.clean = 1;
    expect_served(XRAY_OK, "",
                  "1 error -200 no object was created\n2 done 0\n"
                  "3 error -200 the object already exists\n"
                  "4 done 0: 4\n");
    begin_script();
    add_message(XR_MESSAGE_STOP, "", "", NULL); /* before there was anything */
    expect_served(XRAY_OK, "", "1 done 0\n");
    begin_script();
    add_create("kind", "");
    add_message(XR_MESSAGE_REPLY, "", "", NULL);
    expect_served(XRAY_E_PEER, "the parent sent a message of kind 2",
                  "1 done 0\n");
    begin_script();
    xr_str_puts(&parent.inbox[parent.count++], "no message");
    expect_served(XRAY_E_ARG,
                  "a message does not begin with kind, call and name", "");
}

static void failed_creations_are_explained(void **state)
{
    (void)state;
    begin_script();
    add_create("ghost", "");
    expect_served(XRAY_E_ARG, "this program has no class ghost",
                  "1 error -100 this program has no class ghost\n");
    begin_script();
    add_message(XR_MESSAGE_CREATE, "kind", "", NULL);
    expect_served(XRAY_E_ARG,
                  "value 1 of the message is not of type 's' (expected "
                  "\"suus\")",
                  "1 error -100 value 1 of the message is not of type 's' "
                  "(expected \"suus\")\n");
    begin_script();
    add_create("kind", "say");
    expect_served(XRAY_E_CONFIG, "the text says so",
                  "1 error -201 the text says so\n");
    begin_script();
    add_create("kind", "fail");
    expect_served(XRAY_E_CONFIG, "create failed with status -201",
                  "1 error -201 create failed with status -201\n");
    begin_script();
    add_create("kind", "");
    expect_served(XRAY_E_PEER, "the parent went away", "1 done 0\n");
}

/* A message says which side made a region; a region that the actor returned is
 * reused once the parent releases it. */
static void regions_belong_to_their_maker(void **state)
{
    (void)state;
    const xr_value none = { .m = { 0 } };
    const xr_value known = { .m = { 5, 1, 1 } };
    const xr_value unknown = { .m = { 9, 1, 1 } };
    const xr_value released = { .U = 101 };
    begin_script();
    add_create("kind", "");
    add_message(XR_MESSAGE_CALL, "give", "m", &none);
    add_message(XR_MESSAGE_CALL, "give", "m", &none); /* the first is in use */
    add_message(XR_MESSAGE_RELEASE, "", "U", &released);
    add_message(XR_MESSAGE_CALL, "give", "m", &none);
    add_message(XR_MESSAGE_CALL, "give", "m", &known);
    add_message(XR_MESSAGE_CALL, "give", "m", &unknown);
    add_message(XR_MESSAGE_STOP, "", "", NULL);
    expect_served(XRAY_OK, "",
                  "1 done 0\n2 done 0: region 101 of mine\n"
                  "3 done 0: region 102 of mine\n"
                  "5 done 0: region 101 of mine\n"
                  "6 done 0: region 5 of yours\n"
                  "7 error -100 argument 1 is region 9, which was not sent\n"
                  "8 done 0\n");
    assert_int_equal(parent.made, 2);
    begin_script();
}

/* While the object waits for what the others give, calls are kept in order. */
static void calls_wait_for_a_gather(void **state)
{
    (void)state;
    const uint64_t given[5] = { 1000, 100, 5, 10, 7 };
    const xr_value text = { .s = "the text of a call" };
    const xr_value all = { .b = { given, 32 } };
    const xr_value wrong[2] = { { .b = { given, 8 } }, { .b = { given, 40 } } };
    const xr_value late[2] = { { .i = XRAY_E_PEER },
                               { .s = "rank 1 is late" } };
    const xr_value full[2] = { { .i = XRAY_E_NOMEM }, { .s = "no memory" } };
    begin_script();
    add_create("kind", "");
    add_message(XR_MESSAGE_CALL, "gather", "s", &text);
    add_twice_call(1);
    add_twice_call(2);
    add_message(XR_MESSAGE_GATHERED, "", "b", &all);
    add_message(XR_MESSAGE_CALL, "gather", "s", &text);
    add_message(XR_MESSAGE_NOT_GATHERED, "", XR_ERROR_LETTERS, late);
    add_message(XR_MESSAGE_CALL, "gather", "s", &text);
    add_message(XR_MESSAGE_NOT_GATHERED, "", XR_ERROR_LETTERS, full);
    for (int i = 0; i < 2; i++) {
        add_message(XR_MESSAGE_CALL, "gather", "s", &text);
        add_message(XR_MESSAGE_GATHERED, "", "b", &wrong[i]);
    }
    add_message(XR_MESSAGE_STOP, "", "", NULL);
    expect_served(XRAY_OK, "",
                  "1 done 0\n2 done 0: 1115\n3 done 0: 2\n4 done 0: 4\n"
                  "6 error -400 rank 1 is late (this is rank 2)\n"
                  "8 error -103 no memory (this is rank 2)\n"
                  "10 error -400 gather: 8 bytes came, not 32\n"
                  "12 error -400 gather: 40 bytes came, not 32\n14 done 0\n");
    assert_int_equal(parent.gathers, 5);
    assert_non_null(strstr(parent.phases, "; gather; "));
}

/* The parent's word reaches a call in progress, and so does its end. */
static void gathers_end_with_the_run(void **state)
{
    (void)state;
    const xr_value text = { .s = "the text of a call" };
    begin_script();
    add_create("kind", "");
    add_message(XR_MESSAGE_CALL, "gather", "s", &text);
    parent.word = 1;
    parent.quiet = 1;
    expect_served(XRAY_E_PEER, "the parent went away",
                  "1 done 0\n2 error -104 the run is stopped\n");
    begin_script();
    add_create("kind", "");
    add_message(XR_MESSAGE_CALL, "gather", "s", &text);
    expect_served(XRAY_E_PEER, "the parent went away",
                  "1 done 0\n2 error -400 the parent went away\n");
    begin_script();
}

/* A runtime that fails has said why, or nothing. */
static void failures_of_the_runtime_end_an_actor(void **state)
{
    (void)state;
    begin_script();
    add_create("kind", "");
    add_twice_call(4);
    parent.fails = XRAY_E_IO;
    expect_served(XRAY_E_IO, "no way", "1 done 0\n2 done 0: 8\n");
    begin_script();
    add_create("kind", "");
    parent.fails = XRAY_E_DEVICE;
    expect_served(XRAY_E_DEVICE, "the runtime's poll failed with status -300",
                  "1 done 0\n");
    begin_script();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_are_answered),
        cmocka_unit_test(calls_out_of_order_are_refused),
        cmocka_unit_test(failed_creations_are_explained),
        cmocka_unit_test(regions_belong_to_their_maker),
        cmocka_unit_test(calls_wait_for_a_gather),
        cmocka_unit_test(gathers_end_with_the_run),
        cmocka_unit_test(failures_of_the_runtime_end_an_actor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
