/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that ranks agree before they go on: what a rank reports about another
 * one that failed, and that a failed rank keeps its own message. The other
 * ranks are scripted.
 */
#include "core/base/hash.h"
#include "model/train/trainer.h"
#include "tests/scratch.h"
#include "tests/train/ranks.h"

/* ---- the other ranks ----------------------------------------------------- */

static struct {
    uint32_t ranks;
    uint32_t me;
    uint32_t
        words; /* number of calls so far that exchange one record per rank */
    uint32_t fails_at; /* the one of these calls in which rank `who` reports
                        * `code` */
    uint32_t who;
    xray_status code;
    uint64_t digest;    /* of rank `who`; 0: as this one's */
    xray_status breaks; /* status of the collective itself */
    uint32_t spoils; /* 1: the next copy of the device fails after half of its
                      * bytes */
    uint32_t kinds;  /* bits 1 << XRAY_COPY_* of the copies since */
} others;

/* Gives all ranks the data of this one, except for the scripted record. */
static xray_status all_gather(xray_comm_group *group, xray_stream *stream,
                              const void *in, void *out, uint64_t count,
                              uint32_t dtype)
{
    size_t bytes = count * sizeof(float);
    xm_group_record *words = out;
    (void)group;
    (void)stream;
    assert_int_equal(dtype, XRAY_F32);
    for (uint32_t r = 0; r < others.ranks; r++)
        memmove((char *)out + r * bytes, in, bytes);
    if (bytes != sizeof(xm_group_record))
        return XRAY_OK;
    if (++others.words == others.fails_at)
        words[others.who].code = others.code;
    if (others.digest)
        words[others.who].squares[0] = others.digest;
    return others.breaks;
}

static const xray_comm_ops comm = { .header = XRAY_HEADER(xray_comm_ops),
                                    .all_gather = all_gather };

static void *const nowhere = &others; /* stands for the group */

static xray_world make_world(uint32_t rank, uint32_t ranks)
{
    memset(&others, 0, sizeof(others));
    others.ranks = ranks;
    others.me = rank;
    return (xray_world){ .header = XRAY_HEADER(xray_world),
                         .rank = rank,
                         .size = ranks,
                         .comm = &comm,
                         .group = nowhere };
}

static void script_failure(uint32_t at, uint32_t who, xray_status code)
{
    others.words = 0;
    others.fails_at = at;
    others.who = who;
    others.code = code;
}

static void expect_failure_of(const char *text, uint32_t who, uint32_t ranks,
                              xray_status code)
{
    char want[96];
    (void)snprintf(want, sizeof(want), "rank %u of %u failed (%d)", who, ranks,
                   (int)code);
    assert_int_equal(strncmp(text, want, strlen(want)), 0);
}

/* ---- the group ---------------------------------------------------------- */

static xray_status open_group(const rig_device *device, const xray_world *world,
                              xr_err *err, xm_group *out)
{
    const xray_setup setup = { .header = XRAY_HEADER(xray_setup),
                               .device = device->ops,
                               .device_self = device->self,
                               .world = world };
    return xm_group_open(&setup, "test", err, out);
}

static void ranks_exchange_records_and_agree(void **state)
{
    (void)state;
    rig_device device = rig_device_open(1);
    xray_world world = make_world(1, 3);
    xm_group g;
    xr_err err = { "" };
    assert_int_equal(open_group(&device, &world, &err, &g), XRAY_OK);
    assert_int_equal(g.rank, 1);
    assert_int_equal(xm_group_agree(&g, XRAY_OK, &err), XRAY_OK);
    assert_string_equal(err.text, "");
    for (uint32_t who = 0; who < 3; who += 2) {
        script_failure(1, who, XRAY_E_IO);
        assert_int_equal(xm_group_agree(&g, XRAY_OK, &err), XRAY_E_IO);
        expect_failure_of(err.text, who, 3, XRAY_E_IO);
    }
    /* A rank that failed itself has reported why, whatever the others did. */
    for (uint32_t at = 1; at <= 2; at++) {
        script_failure(at, 0, XRAY_E_IO);
        (void)xr_fail(&err, XRAY_E_CONFIG, "why");
        assert_int_equal(xm_group_agree(&g, XRAY_E_CONFIG, &err),
                         XRAY_E_CONFIG);
        assert_string_equal(err.text, "why");
        /* The other ranks are told as well, with the reason. */
        assert_int_equal(others.words, 4);
    }
    script_failure(0, 0, XRAY_OK);
    others.breaks = XRAY_E_PEER;
    assert_int_equal(xm_group_agree(&g, XRAY_OK, &err), XRAY_E_PEER);
    assert_int_equal(xm_group_agree(&g, XRAY_E_CONFIG, &err), XRAY_E_CONFIG);
    xm_group_close(&g);
    world = make_world(0, 1); /* a single rank asks no other */
    assert_int_equal(open_group(&device, &world, &err, &g), XRAY_OK);
    assert_int_equal(xm_group_agree(&g, XRAY_E_IO, &err), XRAY_E_IO);
    assert_int_equal(xm_group_agree(&g, XRAY_OK, &err), XRAY_OK);
    assert_int_equal(others.words, 0);
    xm_group_close(&g);
    assert_int_equal(open_group(&device, NULL, &err, &g), XRAY_OK);
    assert_int_equal(g.size, 1);
    xm_group_close(&g);
    rig_device_close(&device);
}

static void ranks_without_collectives_are_refused(void **state)
{
    (void)state;
    rig_device device = rig_device_open(1);
    for (int what = 0; what < 3; what++) {
        xray_world world = make_world(what == 2 ? 2 : 1, 2);
        xm_group g;
        xr_err err = { "" };
        char want[96];
        if (what == 0)
            world.comm = NULL;
        if (what == 1)
            world.group = NULL;
        (void)snprintf(
            want, sizeof(want),
            "rank %u of 2 ranks has no collectives: [run] comm must name them",
            world.rank);
        assert_int_equal(open_group(&device, &world, &err, &g), XRAY_E_CONFIG);
        assert_string_equal(err.text, want);
        xm_group_close(&g);
    }
    rig_device_close(&device);
    assert_int_equal(xm_group_bytes(1), 0);
    assert_int_equal(xm_group_bytes(2), 3 * 168);
    assert_int_equal(xm_group_bytes(5), 6 * 168);
}

static void ranks_that_pass_other_digests_are_named(void **state)
{
    (void)state;
    rig_device device = rig_device_open(1);
    xray_world world = make_world(1, 3);
    xm_group g;
    xr_err err = { "" };
    assert_int_equal(open_group(&device, &world, &err, &g), XRAY_OK);
    assert_int_equal(xm_group_agree_on(&g, XRAY_OK, 7, "fruits", &err),
                     XRAY_OK);
    others.digest = 8;
    for (others.who = 0; others.who < 3; others.who++) {
        assert_int_equal(xm_group_agree_on(&g, XRAY_OK, 7, "fruits", &err),
                         XRAY_E_CONFIG);
        assert_string_equal(err.text,
                            others.who == 2
                                ? "rank 2 of 3 has other fruits than rank 0, "
                                  "expected the same on all ranks"
                                : "rank 1 of 3 has other fruits than rank 0, "
                                  "expected the same on all ranks");
    }
    /* A failure comes before other digests. */
    script_failure(1, 2, XRAY_E_IO);
    assert_int_equal(xm_group_agree_on(&g, XRAY_OK, 7, "fruits", &err),
                     XRAY_E_IO);
    expect_failure_of(err.text, 2, 3, XRAY_E_IO);
    xm_group_close(&g);
    rig_device_close(&device);
}

/* ---- an instance of several ranks --------------------------------------- */

static xray_status open_rank(const rig_device *device, const rig_spec *spec,
                             const xray_world *world, uint32_t role, rig *out)
{
    rig_request r = rig_request_of(spec);
    const xray_setup setup = { .header = XRAY_HEADER(xray_setup),
                               .host = rig_host(),
                               .device = device->ops,
                               .device_self = device->self,
                               .model = &r.model,
                               .world = world,
                               .role = role,
                               .trainable = !spec->frozen };
    *out = (rig){ .ops = rig_component()->ops };
    rig_clear();
    xray_status status =
        out->ops->create(&setup, r.config, &r.load, &out->self);
    rig_request_free(&r);
    return status;
}

static uint64_t live_bytes(const rig_device *device)
{
    xray_memory_stats stats = { .header = XRAY_HEADER(xray_memory_stats) };
    uint64_t sum = 0;
    assert_int_equal(device->ops->memory(device->self, &stats), XRAY_OK);
    for (uint32_t tag = 0; tag < XRAY_TAG_WORKSPACE; tag++)
        sum += stats.live[tag];
    return sum;
}

/* Ranks of other stages keep other parts, and would wait for each other. */
static void ranks_of_other_stages_are_refused(void **state)
{
    (void)state;
    for (uint32_t stage = 1; stage < 3; stage++) {
        ranks_run run = ranks_of(rig_tiny, 2, stage);
        rig_spec odd = run.spec;
        odd.stage_1++;
        run.odd = &odd;
        run.may_fail = 1;
        ranks_go(&run);
        for (uint32_t r = 0; r < 2; r++) {
            assert_int_equal(run.status[r], XRAY_E_CONFIG);
            assert_non_null(strstr(run.error[r],
                                   "rank 1 of 2 has other options or another "
                                   "model than rank 0"));
        }
        ranks_free(&run);
    }
}

/* All ranks create an instance or none does: they agree once all have allocated
 * its memory, and again once all have its weights. */
static void all_ranks_create_or_none(void **state)
{
    (void)state;
    rig_device device = rig_device_open(1);
    for (uint32_t stage = 0; stage < 4; stage++) {
        rig_spec spec = { .stage_1 = stage + 1 };
        xray_world world = make_world(0, 2);
        rig r;
        for (uint32_t at = 1; at <= 2; at++) {
            script_failure(at, 1, XRAY_E_NOMEM);
            assert_int_equal(
                open_rank(&device, &spec, &world, XRAY_ROLE_ACTOR, &r),
                XRAY_E_NOMEM);
            expect_failure_of(rig_error(), 1, 2, XRAY_E_NOMEM);
            assert_int_equal(others.words, at + 3);
            assert_null(r.self);
            assert_int_equal(live_bytes(&device), 0);
        }
        script_failure(3, 1, XRAY_E_NOMEM);
        assert_int_equal(open_rank(&device, &spec, &world, XRAY_ROLE_ACTOR, &r),
                         XRAY_OK);
        assert_int_equal(others.words, 2);
        rig_close(&r);
        script_failure(1, 1,
                       XRAY_E_NOMEM); /* both fail, each with its own message */
        spec.offload_optimizer = 1;
        spec.offload_dir = "/no/such";
        assert_int_equal(open_rank(&device, &spec, &world, XRAY_ROLE_ACTOR, &r),
                         XRAY_E_IO);
        assert_non_null(strstr(rig_error(), "/no/such"));
        assert_int_equal(others.words, 4);
        spec = (rig_spec){ .stage_1 = stage + 1,
                           .path = "/no/such/model",
                           .config_json = rig_tiny };
        script_failure(2, 1, XRAY_E_NOMEM);
        assert_int_equal(open_rank(&device, &spec, &world, XRAY_ROLE_ACTOR, &r),
                         XRAY_E_IO);
        assert_non_null(strstr(rig_error(), "/no/such/model"));
        assert_int_equal(others.words, 5);
    }
    rig_device_close(&device);
}

static uint64_t hash_weights(const rig *r)
{
    const xm_trainer *self = r->self;
    uint64_t hash = 0;
    for (uint32_t b = 0; b < self->layout->bucket_count; b++) {
        uint64_t count = self->hooks.open_weights
                             ? xm_bucket_share(self->layout, b).count
                             : xm_bucket_capacity(self->layout, b);
        hash =
            xr_hash64(self->weights->buckets[b], count * sizeof(float), hash);
    }
    return hash;
}

/* A checkpoint whose optimizer one rank cannot read leaves the weights of all
 * ranks as they are, and no rank goes on alone. */
static void failed_load_keeps_all_weights(void **state)
{
    (void)state;
    rig_device device = rig_device_open(1);
    const char *dir = scratch_dir();
    rig_spec spec = { .seed = 9 };
    rig saved;
    rig r;
    assert_int_equal(rig_open(&device, &spec, &saved), XRAY_OK);
    assert_int_equal(saved.ops->save(saved.self, dir), XRAY_OK);
    for (uint32_t stage = 0; stage < 4; stage++) {
        xray_world world = make_world(1, 2);
        spec = (rig_spec){ .seed = 3, .stage_1 = stage + 1 };
        assert_int_equal(open_rank(&device, &spec, &world, XRAY_ROLE_ACTOR, &r),
                         XRAY_OK);
        uint64_t before = hash_weights(&r);
        rig_clear();
        script_failure(1, 0, XRAY_E_IO);
        assert_int_equal(r.ops->load(r.self, dir), XRAY_E_IO);
        expect_failure_of(rig_error(), 0, 2, XRAY_E_IO);
        assert_true(hash_weights(&r) == before);
        assert_int_equal(others.words, 8);
        script_failure(1, 0, XRAY_E_NOMEM);
        assert_int_equal(r.ops->load(r.self, "/no/such"), XRAY_E_IO);
        assert_non_null(strstr(rig_error(), "/no/such"));
        assert_true(hash_weights(&r) == before);
        assert_int_equal(others.words, 8);
        script_failure(2, 0, XRAY_E_PEER);
        assert_int_equal(r.ops->load(r.self, dir), XRAY_E_PEER);
        expect_failure_of(rig_error(), 0, 2, XRAY_E_PEER);
        script_failure(3, 0, XRAY_E_IO);
        assert_int_equal(r.ops->load(r.self, dir), XRAY_OK);
        assert_true(hash_weights(&r) != before);
        rig_close(&r);
        script_failure(0, 0, XRAY_OK);
        spec.frozen = 1; /* without an optimizer they agree at the end */
        assert_int_equal(
            open_rank(&device, &spec, &world, XRAY_ROLE_REFERENCE, &r),
            XRAY_OK);
        script_failure(1, 0, XRAY_E_IO);
        assert_int_equal(r.ops->load(r.self, dir), XRAY_E_IO);
        expect_failure_of(rig_error(), 0, 2, XRAY_E_IO);
        rig_close(&r);
    }
    rig_close(&saved);
    rig_device_close(&device);
}

/* ---- gathered weights ---------------------------------------------------- */

static const xray_device_ops *cpu;

static xray_status copy_then_fail(void *self, xray_stream *stream, void *to,
                                  const void *from, uint64_t bytes,
                                  uint32_t kind)
{
    others.kinds |= 1u << kind;
    if (!others.spoils)
        return cpu->copy(self, stream, to, from, bytes, kind);
    others.spoils = 0;
    memset(to, 0x7f, bytes);
    return XRAY_E_DEVICE;
}

static void score_rows(const rig *r, float *out)
{
    static rows batch;
    xray_outputs outputs = { .header = XRAY_HEADER(xray_outputs), .logp = out };
    rows_full(&batch, 4, 16, 40);
    assert_int_equal(
        forward_one(r->ops, r->self, &batch.batch, XRAY_OUTPUT_LOGP, &outputs),
        XRAY_OK);
}

/* After weights were imported or loaded, or after a copy failed halfway, a pass
 * computes with the current weights. */
static void passes_use_new_weights_after_import_and_load(void **state)
{
    (void)state;
    float want[64];
    float got[64];
    rig_device device = rig_device_open(1);
    rig_spec spec = { .seed = 9 };
    rig other;
    cpu = device.ops;
    xray_device_ops ops = *cpu;
    ops.copy = copy_then_fail;
    const rig_device spoiled = { .ops = &ops, .self = device.self };
    assert_int_equal(rig_open(&device, &spec, &other), XRAY_OK);
    score_rows(&other, want);
    assert_int_equal(other.ops->save(other.self, scratch_dir()), XRAY_OK);
    for (uint32_t offload = 0; offload < 2; offload++)
        for (uint32_t how = 0; how < 2; how++) {
            rig r;
            spec = (rig_spec){ .seed = 3, .offload_param = offload };
            assert_int_equal(rig_open(&spoiled, &spec, &r), XRAY_OK);
            score_rows(&r, got);
            assert_memory_not_equal(got, want, sizeof(got));
            assert_int_equal(how ? r.ops->load(r.self, scratch_dir())
                                 : rig_debug(&r)->import(
                                       r.self, other.ops->weights(other.self)),
                             XRAY_OK);
            others.kinds = 0;
            score_rows(&r, got);
            assert_memory_equal(got, want, sizeof(got));
            if (offload)
                assert_true(others.kinds & 1u << XRAY_COPY_TO_DEVICE);
            for (int i = 0; offload && i < 3; i++) {
                rows batch;
                xray_outputs out = { .header = XRAY_HEADER(xray_outputs),
                                     .logp = got };
                rows_full(&batch, 4, 16, 40);
                others.spoils = 1;
                assert_int_equal(forward_one(r.ops, r.self, &batch.batch,
                                             XRAY_OUTPUT_LOGP, &out),
                                 XRAY_E_DEVICE);
                score_rows(&r, got);
                assert_memory_equal(got, want, sizeof(got));
            }
            rig_close(&r);
        }
    rig_close(&other);
    rig_device_close(&device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_exchange_records_and_agree),
        cmocka_unit_test(ranks_that_pass_other_digests_are_named),
        cmocka_unit_test(ranks_without_collectives_are_refused),
        cmocka_unit_test(ranks_of_other_stages_are_refused),
        cmocka_unit_test(all_ranks_create_or_none),
        cmocka_unit_test(failed_load_keeps_all_weights),
        cmocka_unit_test(passes_use_new_weights_after_import_and_load),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
