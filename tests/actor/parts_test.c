/* SPDX-License-Identifier: Apache-2.0
 *
 * Units of actors that need no process: pools of regions, setups and errors of
 * runtimes, messages, calls by signature.
 */
#include "core/actor/caller.h"
#include "core/actor/invoke.h"
#include "tests/testing.h"

/* ---- a runtime of this process ------------------------------------------ */

static struct {
    uint32_t made;
    uint32_t destroyed;
    uint64_t last_destroyed; /* its size */
    xray_runtime_setup setup;
    xray_actor_spec spawned;
    uint32_t gives_peer;
} fake;

static xray_status fake_region_create(void *self, uint64_t size,
                                      xray_region **out)
{
    xray_region *region = calloc(1, sizeof(*region));
    (void)self;
    assert_non_null(region);
    *region = (xray_region){ .id = ++fake.made, .size = size };
    region->data = calloc(1, 16);
    *out = region;
    return XRAY_OK;
}

static void fake_region_destroy(void *self, xray_region *region)
{
    (void)self;
    fake.destroyed++;
    fake.last_destroyed = region->size;
    free(region->data);
    free(region);
}

static xray_status refuse_region_create(void *self, uint64_t size,
                                        xray_region **out)
{
    (void)self;
    (void)size;
    (void)out;
    return XRAY_E_NOMEM;
}

static xray_status fake_create(const xray_runtime_setup *setup,
                               const void *config, void **out_self)
{
    (void)config;
    fake.setup = *setup;
    *out_self = &fake;
    return XRAY_OK;
}

static void fake_destroy(void *self)
{
    (void)self;
}

static xray_status fake_spawn(void *self, const xray_actor_spec *spec,
                              xray_peer **out)
{
    (void)self;
    fake.spawned = *spec;
    if (fake.gives_peer > 1)
        *out = (xray_peer *)(void *)&fake;
    return fake.gives_peer ? XRAY_OK : XRAY_E_UNSUPPORTED;
}

static void *lack_record(void *self, xray_peer *peer)
{
    (void)self;
    assert_ptr_equal(peer, &fake);
    return NULL;
}

static xray_runtime_ops ops = { .header = XRAY_HEADER(xray_runtime_ops),
                                .create = fake_create,
                                .destroy = fake_destroy,
                                .spawn = fake_spawn,
                                .record = lack_record,
                                .region_create = fake_region_create,
                                .region_destroy = fake_region_destroy };

/* ---- regions ------------------------------------------------------------ */

static xr_relay relay;

static xr_pool make_pool(void)
{
    memset(&fake, 0, sizeof(fake));
    xr_relay_init(&relay, NULL);
    return (xr_pool){ .ops = &ops, .relay = &relay };
}

static void free_pool_regions(xr_pool *pool)
{
    for (size_t i = 0; i < pool->count; i++)
        if (!pool->entries[i].region->peer)
            fake_region_destroy(NULL, pool->entries[i].region);
    xr_pool_free(pool);
}

static xray_region *get_region(xr_pool *pool, uint64_t size)
{
    xr_err err = { "" };
    xray_region *region = NULL;
    if (xr_pool_get(pool, size, &err, &region) != XRAY_OK)
        fail_msg("%s", err.text);
    return region;
}

/* Sizes are rounded up to pages, and above 32 KiB by at most a quarter. */
static void regions_have_round_sizes(void **state)
{
    (void)state;
    static const uint64_t sizes[][2] = {
        { 1, 4096 },
        { 4096, 4096 },
        { 4097, 8192 },
        { 32767, 32768 },
        { 32768, 32768 },
        { 32769, 40960 },
        { 65536, 65536 },
        { 65537, 81920 },
        { 1u << 20, 1u << 20 },
        { (1u << 20) + 1, 5u << 18 },
    };
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        xr_pool pool = make_pool();
        assert_true(get_region(&pool, sizes[i][0])->size == sizes[i][1]);
        free_pool_regions(&pool);
    }
}

static void the_smallest_that_fits_is_taken(void **state)
{
    (void)state;
    xr_pool pool = make_pool();
    xray_region *big = get_region(&pool, 1u << 20);
    xray_region *small = get_region(&pool, 4096);
    xray_region *middle = get_region(&pool, 65536);
    assert_int_equal(fake.made, 3);
    assert_int_equal(xr_pool_put(&pool, big), 0);
    assert_int_equal(xr_pool_put(&pool, small), 0);
    assert_int_equal(xr_pool_put(&pool, middle), 0);
    assert_ptr_equal(get_region(&pool, 4097), middle);
    assert_ptr_equal(get_region(&pool, 4096), small);
    assert_ptr_equal(get_region(&pool, 1),
                     big); /* a used one is not given out */
    assert_int_equal(fake.made, 3);
    /* With one more reference it stays in use. */
    xr_err err = { "" };
    assert_int_equal(xr_pool_ref(&pool, small, &err), XRAY_OK);
    (void)xr_pool_put(&pool, small);
    assert_ptr_not_equal(get_region(&pool, 1), small);
    (void)xr_pool_put(&pool, small);
    assert_ptr_equal(get_region(&pool, 1), small);
    free_pool_regions(&pool);
}

/* A new region replaces the largest unused one that is too small. */
static void growing_sizes_leave_no_trail(void **state)
{
    (void)state;
    xr_pool pool = make_pool();
    xray_region *one = get_region(&pool, 4096);
    xray_region *two = get_region(&pool, 8192);
    xray_region *used = get_region(&pool, 16384);
    (void)xr_pool_put(&pool, one);
    (void)xr_pool_put(&pool, two);
    (void)get_region(&pool, 32768);
    assert_int_equal(fake.destroyed, 1);
    assert_true(fake.last_destroyed == 8192);
    assert_int_equal(pool.count, 3);
    (void)xr_pool_put(&pool, used);
    (void)get_region(&pool, 65536);
    assert_true(fake.last_destroyed == 16384);
    free_pool_regions(&pool);
}

/* Also where the table of regions grows for the new one. */
static void a_full_table_forgets_what_is_replaced(void **state)
{
    (void)state;
    for (int count = 1; count <= 40; count++) {
        xr_pool pool = make_pool();
        xray_region *small = get_region(&pool, 4096);
        for (int i = 1; i < count; i++)
            (void)get_region(&pool, 4096);
        (void)xr_pool_put(&pool, small);
        xray_region *large = get_region(&pool, 8192);
        assert_int_equal(fake.destroyed, 1);
        assert_int_equal(pool.count, count);
        assert_int_equal(xr_pool_put(&pool, large), 0);
        assert_ptr_equal(get_region(&pool, 8192), large);
        free_pool_regions(&pool);
        assert_int_equal(fake.destroyed, fake.made);
    }
}

static void many_regions_are_reused(void **state)
{
    (void)state;
    xr_pool pool = make_pool();
    xray_region *all[40];
    for (int i = 0; i < 40; i++)
        all[i] = get_region(&pool, 4096);
    assert_int_equal(pool.count, 40);
    for (int i = 0; i < 40; i++)
        (void)xr_pool_put(&pool, all[i]);
    for (int i = 0; i < 40; i++)
        (void)get_region(&pool, 4096);
    assert_int_equal(fake.made, 40);
    free_pool_regions(&pool);
}

/* Regions of another process are in the table while they have references. */
static void regions_of_others_are_counted(void **state)
{
    (void)state;
    xr_err err = { "" };
    xr_pool pool = make_pool();
    char one = 0;
    char two = 0;
    xray_region a = { .id = 1, .size = 1u << 20, .peer = (void *)&one };
    xray_region b = { .id = 2, .size = 1u << 20, .peer = (void *)&two };
    xray_region own = { .id = 3, .size = 4096 };
    assert_int_equal(xr_pool_ref(&pool, &own, &err), XRAY_E_ARG);
    assert_string_equal(err.text, "the region was already given back");
    assert_int_equal(xr_pool_put(&pool, &a), 0); /* not known */
    assert_int_equal(xr_pool_ref(&pool, &a, &err), XRAY_OK);
    assert_int_equal(xr_pool_ref(&pool, &a, &err), XRAY_OK);
    assert_int_equal(xr_pool_ref(&pool, &b, &err), XRAY_OK);
    assert_int_equal(xr_pool_put(&pool, &a), 0);
    assert_int_equal(pool.count, 2);
    assert_ptr_not_equal(get_region(&pool, 4096),
                         &a); /* another process owns it */
    assert_int_equal(xr_pool_put(&pool, &a), 1);
    assert_int_equal(xr_pool_put(&pool, &a), 0);
    assert_int_equal(xr_pool_ref(&pool, &a, &err), XRAY_OK);
    xr_pool_forget(&pool, a.peer);
    assert_int_equal(pool.count, 2);
    assert_int_equal(xr_pool_put(&pool, &b), 1);
    free_pool_regions(&pool);
}

static void impossible_regions_are_refused(void **state)
{
    (void)state;
    xr_err err = { "" };
    xray_region *region = NULL;
    xr_pool pool = make_pool();
    assert_int_equal(xr_pool_get(&pool, 0, &err, &region), XRAY_E_RANGE);
    assert_string_equal(err.text, "a region cannot have 0 bytes");
    assert_int_equal(xr_pool_get(&pool, (UINT64_C(1) << 62) + 1, &err, &region),
                     XRAY_E_RANGE);
    ops.region_create = refuse_region_create;
    xray_status status = xr_pool_get(&pool, 7, &err, &region);
    ops.region_create = fake_region_create;
    assert_int_equal(status, XRAY_E_NOMEM);
    assert_string_equal(err.text, "the runtime's region_create failed with "
                                  "status -103");
    assert_int_equal(pool.count, 0);
    free_pool_regions(&pool);
}

/* ---- setup and errors of a runtime -------------------------------------- */

static void setups_have_their_defaults(void **state)
{
    (void)state;
    static const struct {
        uint32_t hang;
        uint32_t start;
        uint32_t got_hang;
        uint32_t got_start;
    } cases[] = { { 0, 0, 3000, 60000 },
                  { 1, 2, 1, 2 },
                  { UINT32_MAX, 7, 0, 7 } };
    for (size_t i = 0; i < 3; i++) {
        const xr_actors_setup setup = { .ops = &ops,
                                        .actors = 3,
                                        .hang_ms = cases[i].hang,
                                        .start_ms = cases[i].start,
                                        .extra = 40 };
        xr_actors *actors = NULL;
        xr_err err = { "" };
        memset(&fake, 0, sizeof(fake));
        assert_int_equal(xr_actors_new(&setup, &err, &actors), XRAY_OK);
        assert_int_equal(fake.setup.hang_ms, cases[i].got_hang);
        assert_int_equal(fake.setup.start_ms, cases[i].got_start);
        assert_int_equal(fake.setup.actors, 3);
        assert_int_equal(fake.setup.record_size, XR_RECORD_PHASE + 40);
        xr_actors_free(actors);
    }
}

/* The runtime is told all that a caller says of an actor, and what it does not
 * give is an error rather than an actor. */
static void runtimes_are_told_what_to_start(void **state)
{
    (void)state;
    static const char *const answers[] = {
        "spawn failed with status", "neither a peer nor an error",
        "the runtime's record returned no memory"
    };
    static const char *const argv[] = { "xray", "workhorse", NULL };
    static const xr_actor_class none = { .name = "none" };
    const xr_actors_setup setup = { .ops = &ops, .actors = 1 };
    const xr_actor_spawn_spec specs[] = {
        { &none, argv, "workhorse 3", NULL, 3, 9, "node-7", 2, 0 },
        { &none, argv, "workhorse 0", "text", 0, 1, NULL, 0, 0 },
    };
    for (uint32_t i = 0; i < 6; i++) {
        const xr_actor_spawn_spec *spec = &specs[i / 3];
        xr_actors *actors = NULL;
        xr_actor *actor = NULL;
        xr_err err = { "" };
        memset(&fake, 0, sizeof(fake));
        fake.gives_peer = i % 3;
        assert_int_equal(xr_actors_new(&setup, &err, &actors), XRAY_OK);
        assert_int_equal(xr_actor_spawn(actors, spec, &err, &actor),
                         i % 3 ? XRAY_E_BUG : XRAY_E_UNSUPPORTED);
        assert_non_null(strstr(err.text, answers[i % 3]));
        assert_null(actor);
        assert_string_equal(fake.spawned.name, spec->name);
        assert_ptr_equal(fake.spawned.argv, argv);
        assert_ptr_equal(fake.spawned.host, spec->host);
        assert_int_equal(fake.spawned.index, spec->index);
        assert_int_equal(fake.spawned.devices, spec->devices);
        xr_actors_free(actors);
    }
}

static void phases_are_cut_and_cleaned(void **state)
{
    (void)state;
    uint64_t record[(XR_RECORD_PHASE + 8) / 8] = { 0 };
    char text[100];
    char wide[100];
    memset(wide, 'w', sizeof(wide));
    wide[99] = '\0';
    xr_record_put_phase(record, "forward of block 3");
    xr_record_get_phase(record, text, sizeof(text));
    assert_string_equal(text, "forward of block 3");
    xr_record_put_phase(record, wide);
    xr_record_get_phase(record, text, sizeof(text));
    assert_int_equal(strlen(text), 63);
    assert_int_equal(strspn(text, "w"), 63);
    xr_record_put_phase(record, "a\nb"); /* replaces the longer one */
    xr_record_get_phase(record, text, sizeof(text));
    assert_string_equal(text, "a b");
    xr_record_get_phase(record, text, 3);
    assert_string_equal(text, "a ");
    assert_int_equal(record[XR_RECORD_PHASE / 8], 0); /* the object's bytes */
}

static char logged[100];

static void record_log(const xray_host *host, uint32_t level, const char *msg)
{
    (void)host;
    (void)snprintf(logged, sizeof(logged), "%u %s", level, msg);
}

static const void *find_service(const xray_host *host, const char *id)
{
    (void)host;
    return strcmp(id, "known") == 0 ? &logged : NULL;
}

static void reasons_of_a_runtime_are_kept(void **state)
{
    (void)state;
    static const xray_host outer = { .version = "9",
                                     .log = record_log,
                                     .service = find_service };
    xr_err err = { "" };
    xr_relay r;
    xr_relay_init(&r, NULL);
    assert_string_equal(r.host.version, "");
    assert_null(r.host.service(&r.host, "known"));
    r.host.log(&r.host, 1, "to nobody");
    xr_relay_init(&r, &outer);
    assert_string_equal(r.host.version, "9");
    assert_ptr_equal(r.host.service(&r.host, "known"), &logged);
    r.host.log(&r.host, 3, "line");
    assert_string_equal(logged, "3 line");
    assert_int_equal((r.host.fail)(&r.host, XRAY_E_IO, "x", "inner"),
                     XRAY_E_IO);
    assert_int_equal((r.host.fail)(&r.host, XRAY_E_IO, "x", "outer"),
                     XRAY_E_IO);
    assert_int_equal(xr_relay_error(&r, XRAY_E_IO, "send", &err), XRAY_E_IO);
    assert_string_equal(err.text, "outer: inner");
    assert_int_equal(xr_relay_error(&r, XRAY_E_PEER, "send", &err),
                     XRAY_E_PEER); /* a reason is reported once */
    assert_string_equal(err.text, "the runtime's send failed with status -400");
}

/* ---- messages ----------------------------------------------------------- */

/* Encodes a value as one letter and reads it as another: 1 if that succeeds. */
static int is_read_as(char from, xr_value value, char to, xr_value *out)
{
    const char letters[] = { from, '\0' };
    const char as[] = { to, '\0' };
    const xr_message header = { XR_MESSAGE_CALL, 0, 1, "m", NULL, 0 };
    xr_message m;
    xr_str text = { 0 };
    xr_err err = { "" };
    assert_int_equal(xr_message_encode(&header, letters, &value, &err, &text),
                     0);
    assert_int_equal(xr_message_header(text.data, text.size, &err, &m), 0);
    int taken = xr_message_values(&m, as, &err, out) == XRAY_OK;
    xr_str_free(&text);
    return taken;
}

static void numbers_keep_to_their_ranges(void **state)
{
    (void)state;
    static const struct {
        char from;
        xr_value value;
        char to;
        int taken;
    } cases[] = {
        { 'U', { .U = UINT32_MAX }, 'u', 1 },
        { 'U', { .U = UINT64_C(1) << 32 }, 'u', 0 },
        { 'U', { .U = INT32_MAX }, 'i', 1 },
        { 'U', { .U = UINT64_C(1) << 31 }, 'i', 0 },
        { 'I', { .I = INT32_MIN }, 'i', 1 },
        { 'I', { .I = (int64_t)INT32_MIN - 1 }, 'i', 0 },
        { 'U', { .U = INT64_MAX }, 'I', 1 },
        { 'U', { .U = UINT64_C(1) << 63 }, 'I', 0 },
        { 'i', { .i = -1 }, 'u', 0 },
        { 'i', { .i = -1 }, 'U', 0 },
        { 'i', { .i = -1 }, 'I', 1 },
        { 'd', { .d = 1 }, 'u', 0 },
        { 'u', { .u = 1 }, 'd', 0 },
        { 'b', { .b = { "x", 2 } }, 's', 0 },
        { 's', { .s = "x" }, 'b', 0 },
        { 'u', { .u = 1 }, 'm', 0 },
        { 's', { .s = "x" }, 'm', 0 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        xr_value out;
        assert_int_equal(
            is_read_as(cases[i].from, cases[i].value, cases[i].to, &out),
            cases[i].taken);
    }
}

/* Bytes of messages: kind, call, name and one value. */
static void malformed_bytes_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
        const char *letters; /* NULL: no header either */
        int taken;
    } cases[] = {
        { "\x01\x05\xa1\x00", 4, "", 1 },
        { "\x08\x05\xa1\x00", 4, "", 1 },
        { "\x09\x05\xa1\x00", 4, NULL, 0 }, /* an unknown kind */
        { "\x01\x05\xa1x", 4, NULL, 0 },    /* a text without its end */
        { "\x01\x05\xa0", 3, NULL, 0 },
        { "\x01\x05\xa2\x00x", 5, NULL, 0 }, /* one with an end inside */
        { "\x01\x05\xa1\x00\xa2x\x00", 7, "s", 1 },
        { "\x01\x05\xa1\x00\xa2xx", 7, "s", 0 },
        { "\x01\x05\xa1\x00\xc0", 5, "m", 1 },
        { "\x01\x05\xa1\x00\x01\x07", 6, "m", 1 },
        { "\x01\x05\xa1\x00\x00\x07", 6, "m", 1 },
        { "\x01\x05\xa1\x00\x02\x07", 6, "m", 0 }, /* of neither side */
        { "\x01\x05\xa1\x00\x01", 5, "m", 0 },
        { "\x01\x05\xa1\x00\x01\xff", 6, "m", 0 },
        { "\x01\x05\xa1\x00\x01", 5, "", 0 }, /* one byte is left over */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        xr_err err = { "" };
        xr_message m;
        xr_value out[2];
        xray_status status =
            xr_message_header(cases[i].bytes, cases[i].size, &err, &m);
        assert_int_equal(status, cases[i].letters ? XRAY_OK : XRAY_E_ARG);
        if (!cases[i].letters)
            assert_string_equal(err.text, "a message does not begin with kind, "
                                          "call and name");
        else
            assert_int_equal(xr_message_values(&m, cases[i].letters, &err, out),
                             cases[i].taken ? XRAY_OK : XRAY_E_ARG);
        if (!status)
            assert_int_equal(m.call, 5);
    }
}

/* ---- signatures and calls ----------------------------------------------- */

static void bad_signatures_are_explained(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        { "u x -> d", "signature \"u x -> d\": 'x' at 3, expected one of u U i "
                      "I d s b m or ->" },
        { "u -> d q",
          "signature \"u -> d q\": 'q' at 8, expected one of u U i I d s b m" },
        { "u U", "signature \"u U\": it ends where one of u U i I d s b m or "
                 "-> was expected" },
        { "uuuuuuuuuuuuuuuuuuuuuuu->uu",
          "signature \"uuuuuuuuuuuuuuuuuuuuuuu->uu\": more than 24 letters" },
    };
    xr_err err = { "" };
    xr_signature s;
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(xr_signature_parse(bad[i][0], &err, &s), XRAY_E_ARG);
        assert_string_equal(err.text, bad[i][1]);
    }
    assert_int_equal(xr_signature_parse("uuuuuuuuuuuuuuuuuuuuuuuu->", &err, &s),
                     XRAY_OK);
    assert_int_equal(s.in_count, 24);
}

/* Writes its outs only if `fill` is 1. */
static xray_status fill_outs(void *self, uint32_t fill, uint64_t *number,
                             xr_str *text, xray_region **region, xr_err *err)
{
    static xray_region one;
    (void)self;
    (void)err;
    assert_int_equal(text->size, 0);
    assert_int_equal(text->failed, 0);
    if (fill) {
        *number = 7;
        xr_str_puts(text, "seven");
        *region = &one;
    }
    return fill ? XRAY_AGAIN : XRAY_OK;
}

static void outs_begin_empty(void **state)
{
    (void)state;
    static xr_invoke invoke;
    static xr_invoke_values values;
    xr_err err = { "" };
    assert_int_equal(xr_invoke_prepare("u -> U s m", &err, &invoke), XRAY_OK);
    for (uint32_t round = 0; round < 3; round++) {
        uint32_t fill = round % 2 == 0;
        values.in[0].u = fill;
        assert_int_equal(
            xr_invoke_call(&invoke, XR_METHOD(fill_outs), NULL, &values, &err),
            fill ? XRAY_AGAIN : XRAY_OK);
        assert_true(values.out[0].U == (fill ? 7 : 0));
        assert_string_equal(xr_str_text(&values.out_str[1]),
                            fill ? "seven" : "");
        assert_int_equal(values.out_region[2] != NULL, fill);
        values.out_str[1].failed = 1; /* of a call that ran out of memory */
    }
    xr_str_free(&values.out_str[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regions_have_round_sizes),
        cmocka_unit_test(the_smallest_that_fits_is_taken),
        cmocka_unit_test(growing_sizes_leave_no_trail),
        cmocka_unit_test(a_full_table_forgets_what_is_replaced),
        cmocka_unit_test(many_regions_are_reused),
        cmocka_unit_test(regions_of_others_are_counted),
        cmocka_unit_test(impossible_regions_are_refused),
        cmocka_unit_test(setups_have_their_defaults),
        cmocka_unit_test(runtimes_are_told_what_to_start),
        cmocka_unit_test(phases_are_cut_and_cleaned),
        cmocka_unit_test(reasons_of_a_runtime_are_kept),
        cmocka_unit_test(numbers_keep_to_their_ranges),
        cmocka_unit_test(malformed_bytes_are_refused),
        cmocka_unit_test(bad_signatures_are_explained),
        cmocka_unit_test(outs_begin_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
