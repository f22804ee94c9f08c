/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves the transfer of weights from a trainer to an engine, both made for the
 * test: complete tables, exports in parts, a narrower type, ranges, and a
 * region between processes; and the faults that must stop a run.
 */
#include <xray/box.h>

#include "core/roles/publish.h"
#include "core/roles/ship.h"
#include "tests/rl/fake_memory.h"
#include "tests/rl/fake_roles.h"
#include "tests/testing.h"

enum { TENSORS = 3, COUNT = 8, TABLE_BYTES = TENSORS * COUNT * 4 };

/* ---- a device of host memory -------------------------------------------- */

static struct {
    uint32_t casts;
    uint32_t allocated;
    uint32_t apart; /* 1: the device cannot read the region */
} device;

/* The region between a trainer and an engine in two processes. */
static union {
    uint64_t align;
    unsigned char bytes[4096];
} region;

static int in_region(const void *ptr)
{
    uintptr_t at = (uintptr_t)ptr;
    uintptr_t from = (uintptr_t)region.bytes;
    return at >= from && at < from + sizeof(region);
}

static xray_status device_info(void *self, xray_device_info *info)
{
    (void)self;
    info->host_memory = !device.apart;
    return XRAY_OK;
}

static xray_status device_copy(void *self, xray_stream *stream, void *to,
                               const void *from, uint64_t bytes, uint32_t kind)
{
    (void)self;
    (void)stream;
    assert_int_equal(kind,
                     in_region(to) ? XRAY_COPY_TO_HOST : XRAY_COPY_TO_DEVICE);
    memcpy(to, from, bytes);
    return XRAY_OK;
}

static xray_status device_alloc(void *self, const char *owner, uint32_t tag,
                                uint64_t bytes, void **out)
{
    (void)self;
    (void)owner;
    assert_int_equal(tag, XRAY_TAG_WORKSPACE);
    *out = calloc(1, bytes);
    device.allocated++;
    return XRAY_OK;
}

static void device_free(void *self, void *ptr)
{
    (void)self;
    device.allocated -= ptr != NULL;
    free(ptr);
}

static xray_status device_sum(void *self, const xray_checksum_rows *rows,
                              uint64_t *out)
{
    (void)self;
    if (device.apart && in_region(rows->data))
        return XRAY_E_ARG; /* like a GPU that is given a host address */
    *out = fake_sum_rows(rows);
    return XRAY_OK;
}

static xray_status device_cast(void *self, xray_stream *stream,
                               const xray_cast *op)
{
    (void)self;
    (void)stream;
    assert_int_equal(op->x_dtype, XRAY_F32);
    assert_int_equal(op->y_dtype, XRAY_BF16);
    fake_cast(op);
    device.casts++;
    return XRAY_OK;
}

static xray_status device_sync(void *self, xray_stream *stream)
{
    (void)self;
    (void)stream;
    return XRAY_OK;
}

static const xray_device_ops device_ops = {
    .header = XRAY_HEADER(xray_device_ops),
    .info = device_info,
    .copy = device_copy,
    .alloc = device_alloc,
    .free = device_free,
    .checksum = device_sum,
    .sync = device_sync,
    .cast = device_cast,
};

/* ---- a side of the transfer: a table and its values --------------------- */

typedef struct side {
    xray_tensor tensors[TENSORS + 1];
    xray_weights table;
    uint64_t version;
    float values[TENSORS + 1][COUNT];
    uint16_t narrow[TENSORS + 1][COUNT];
} side;

static side trainer;
static side engine;
static struct {
    uint32_t next;      /* next part of the export */
    uint32_t begun;     /* exports that were not ended */
    uint32_t leave_out; /* tensor + 1 that the export lacks */
    uint32_t twice;     /* tensor + 1 that is exported twice */
    uint32_t partial;   /* tensor + 1 that is exported only in part */
    uint32_t flip;      /* update at which a bit flips */
    uint32_t updates;
    uint32_t lag; /* 1: the engine's version stays behind */
    uint32_t shares;
    uint32_t another; /* 1: the engine shows another table */
} how;

static uint64_t side_version(void *owner)
{
    return ((const side *)owner)->version;
}

static void fill_side(side *s, uint32_t dtype)
{
    static const char *const names[] = { "embed", "block", "norm", "value" };
    *s = (side){ .version = 1 };
    for (uint32_t i = 0; i <= TENSORS; i++) {
        s->tensors[i] = (xray_tensor){
            .name = names[i],
            .dtype = dtype,
            .dims = 2,
            .shape = { 2, COUNT / 2 },
            .data =
                dtype == XRAY_F32 ? (void *)s->values[i] : (void *)s->narrow[i],
        };
        xray_box_make_plain(&s->tensors[i]);
    }
    s->table = (xray_weights){
        .header = XRAY_HEADER(xray_weights),
        .tensor_count = TENSORS,
        .tensor_stride = sizeof(xray_tensor),
        .tensors = s->tensors,
        .device = &device_ops,
        .device_self = &device,
        .owner = s,
        .version = side_version,
    };
}

static void update_trainer(void)
{
    trainer.version++;
    for (uint32_t i = 0; i <= TENSORS; i++)
        for (uint32_t k = 0; k < COUNT; k++)
            trainer.values[i][k] = (float)(trainer.version * 16 + i * 4 + k);
}

/* ---- plugins ------------------------------------------------------------ */

static const xray_weights *train_weights(void *self)
{
    (void)self;
    return &trainer.table;
}

static xray_status export_begin(void *self)
{
    (void)self;
    how.next = 0;
    how.begun++;
    return XRAY_OK;
}

/* One tensor per part, which is freed when the next one is made. */
static xray_status export_next(void *self, const xray_weights **out)
{
    static xray_tensor tensor;
    static xray_weights part;
    static float values[COUNT];
    uint32_t i = how.next++;
    (void)self;
    if (i == how.leave_out - 1)
        i = how.next++;
    if (how.twice && i == TENSORS)
        i = how.twice - 1;
    else if (i >= TENSORS)
        return XRAY_END;
    how.twice = i == how.twice - 1 && how.next > TENSORS ? 0 : how.twice;
    tensor = trainer.tensors[i];
    tensor.extent[0] = i == how.partial - 1 ? 1 : 2;
    tensor.data = values;
    memcpy(values, trainer.values[i], sizeof(values));
    part = trainer.table;
    part.tensors = &tensor;
    part.tensor_count = 1;
    *out = &part;
    return XRAY_OK;
}

static void export_end(void *self)
{
    (void)self;
    how.begun--;
}

static void take_weights(const xray_tensor *from)
{
    for (uint32_t i = 0; i < TENSORS; i++) {
        const xray_tensor *to = &engine.tensors[i];
        const float *x = (const float *)from->data + to->lo[0] * to->shape[1];
        if (strcmp(to->name, from->name) != 0)
            continue;
        assert_false(device.apart && in_region(from->data));
        for (uint64_t k = 0; k < xray_box_count(to); k++)
            if (to->dtype == XRAY_F32)
                ((float *)to->data)[k] = x[k];
            else
                ((uint16_t *)to->data)[k] = fake_narrow(x[k]);
    }
}

static xray_status infer_update(void *self, const xray_weights *from,
                                uint64_t version)
{
    (void)self;
    for (uint32_t i = 0; from && i < from->tensor_count; i++)
        take_weights(&from->tensors[i]);
    if (++how.updates == how.flip)
        *(unsigned char *)engine.tensors[1].data ^= 4;
    if (!from)
        engine.version = version - how.lag;
    return XRAY_OK;
}

static const xray_weights *infer_weights(void *self)
{
    static xray_weights another;
    (void)self;
    another = engine.table;
    return how.shares ? NULL : how.another ? &another : &engine.table;
}

static xray_train_ops whole_ops = {
    .header = XRAY_HEADER(xray_train_ops),
    .weights = train_weights,
};
static xray_train_ops export_ops = {
    .header = XRAY_HEADER(xray_train_ops),
    .weights = train_weights,
    .export_begin = export_begin,
    .export_next = export_next,
    .export_end = export_end,
};
static xray_infer_ops infer_ops = {
    .header = XRAY_HEADER(xray_infer_ops),
    .update = infer_update,
    .weights = infer_weights,
};

static xr_run run;
static xr_roles roles;

/* An unsharded trainer and an engine with weights of its own. */
static int begin_test(void **state)
{
    (void)state;
    memset(&how, 0, sizeof(how));
    memset(&device, 0, sizeof(device));
    fill_side(&trainer, XRAY_F32);
    fill_side(&engine, XRAY_F32);
    update_trainer();
    run = (xr_run){
        .device = { .ops = &device_ops, .instance = "device.test" },
        .train = { .ops = &whole_ops, .instance = "train.test" },
        .infer = { .ops = &infer_ops, .instance = "infer.test" },
    };
    make_fake_roles(&run, &roles);
    roles.actor.self = roles.engine.self = &how;
    return 0;
}

static int end_test(void **state)
{
    (void)state;
    xr_transfer_free(&roles);
    assert_int_equal(device.allocated, 0);
    assert_int_equal(how.begun, 0);
    return 0;
}

/* Makes the trainer hold the first half of each tensor and export complete
 * ones. */
static void shard_trainer(void)
{
    run.train.ops = &export_ops;
    for (uint32_t i = 0; i < TENSORS; i++)
        trainer.tensors[i].extent[0] = 1;
}

static void expect_ok(void)
{
    xr_err err = { "" };
    assert_int_equal(xr_publish(&roles, &err), XRAY_OK);
    assert_string_equal(err.text, "");
    assert_int_equal(roles.published.version, trainer.version);
    assert_memory_equal(engine.values, trainer.values, TABLE_BYTES);
}

static void expect_stop(const char *want)
{
    xr_err err = { "" };
    assert_int_equal(xr_publish(&roles, &err), XRAY_E_BUG);
    assert_string_equal(err.text, want);
}

/* ---- what works --------------------------------------------------------- */

static void a_complete_table_is_copied_each_time(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        expect_ok();
        assert_int_equal(roles.published.bytes, (i + 1) * TABLE_BYTES);
        update_trainer();
    }
    assert_int_equal(how.updates, 6); /* the table, and the end of the update */
    assert_true(roles.published.seconds > 0);
}

static void parts_of_an_export_are_copied_each_time(void **state)
{
    (void)state;
    shard_trainer();
    for (uint32_t i = 0; i < 3; i++) {
        expect_ok();
        update_trainer();
    }
    assert_int_equal(how.updates, 12);
    assert_int_equal(roles.published.bytes, 3 * TABLE_BYTES);
}

static void shared_weights_are_not_copied(void **state)
{
    (void)state;
    how.shares = 1;
    xr_err err = { "" };
    assert_int_equal(xr_publish(&roles, &err), XRAY_OK);
    assert_int_equal(how.updates, 1);
    assert_null(roles.published.transfer);
    assert_int_equal(roles.published.bytes, 0);
    assert_int_equal(engine.version, trainer.version);
    run.ini.rollout.share_weights = XR_SHARE_OFF;
    run.config = xr_config_new();
    assert_int_equal(xr_publish(&roles, &err), XRAY_E_CONFIG);
    assert_string_equal(err.text,
                        "configuration: [rollout] share_weights: off needs an "
                        "engine that shows its own weights, infer.test does "
                        "not");
    xr_config_free(run.config);
}

/* An engine that sleeps between rollouts receives the weights before the next
 * one. */
static void weights_wait_for_a_rollout(void **state)
{
    xr_err err = { "" };
    (void)state;
    run.ini.rollout.free_cache_engine = 1;
    assert_int_equal(xr_publish_later(&roles, &err), XRAY_OK);
    assert_int_equal(roles.published.due, 1);
    assert_int_equal(how.updates, 0);
    assert_int_equal(roles.published.synced, 0);
    expect_ok();
    assert_int_equal(roles.published.due, 0);
    assert_int_equal(roles.published.synced, 1);
    run.ini.rollout.free_cache_engine = 0;
    update_trainer();
    assert_int_equal(xr_publish_later(&roles, &err), XRAY_OK);
    assert_int_equal(roles.published.due, 0);
    assert_int_equal(roles.published.version, trainer.version);
}

static void narrower_values_are_compared_as_they_are_kept(void **state)
{
    xr_err err = { "" };
    (void)state;
    for (uint32_t i = 0; i < TENSORS; i++) {
        engine.tensors[i].dtype = XRAY_BF16;
        engine.tensors[i].data = engine.narrow[i];
    }
    engine.tensors[2].extent[0] = 1; /* the largest is not the last */
    shard_trainer();
    for (uint32_t round = 0; round < 2; round++) {
        assert_int_equal(xr_publish(&roles, &err), XRAY_OK);
        for (uint32_t k = 0; k < COUNT; k++)
            assert_int_equal(engine.narrow[1][k],
                             fake_narrow(trainer.values[1][k]));
        update_trainer();
    }
    assert_int_equal(device.casts, 2 * TENSORS);
    /* Received are the trainer's wider values, of the last tensor half. */
    assert_int_equal(roles.published.bytes, 2 * TABLE_BYTES * 5 / 6);
    assert_int_equal(device.allocated, 1);
}

/* An engine that keeps the second half of a tensor. */
static void a_range_is_compared_with_its_range(void **state)
{
    xr_err err = { "" };
    (void)state;
    engine.tensors[1].lo[0] = 1;
    engine.tensors[1].extent[0] = 1;
    assert_int_equal(xr_publish(&roles, &err), XRAY_OK);
    assert_memory_equal(engine.values[1], trainer.values[1] + COUNT / 2,
                        COUNT / 2 * sizeof(float));
    assert_int_equal(roles.published.bytes, TABLE_BYTES * 5 / 6);
}

static void tensors_unknown_to_the_engine_are_not_sent(void **state)
{
    (void)state;
    trainer.table.tensor_count = TENSORS + 1; /* a value head */
    expect_ok();
}

/* Weights come through host memory that a device with memory of its own cannot
 * read, not even for a checksum. */
static void weights_reach_a_device_that_cannot_read_the_region(void **state)
{
    xr_err err = { "" };
    (void)state;
    for (uint32_t round = 0; round < 4; round++) {
        device.apart = round & 1;
        update_trainer();
        memset(&region, 0, sizeof(region));
        assert_true(xr_ship_bytes(&roles) <= sizeof(region));
        uint64_t size = xr_ship_bytes(&roles);
        assert_int_equal(xr_ship_write(&roles, region.bytes, size, &err),
                         XRAY_OK);
        assert_int_equal(xr_ship_read(&roles, region.bytes, size, &err),
                         XRAY_OK);
        assert_int_equal(engine.version, trainer.version);
        assert_memory_equal(engine.values, trainer.values, TABLE_BYTES);
        assert_int_equal(device.allocated, 0);
        size_t at = 0;
        while (memcmp(region.bytes + at, trainer.values[1],
                      sizeof(trainer.values[1])) != 0)
            at++;
        region.bytes[at] ^= 1;
        assert_int_equal(xr_ship_read(&roles, region.bytes, size, &err),
                         XRAY_E_BUG);
        assert_non_null(strstr(err.text, "the checksum of tensor block is "));
        err.text[0] = '\0';
    }
}

/* ---- faults that stop the run ------------------------------------------- */

static void a_flipped_bit_stops_the_run(void **state)
{
    char want[400];
    (void)state;
    expect_ok();
    update_trainer();
    how.flip = how.updates + 1;
    float broken[COUNT];
    memcpy(broken, trainer.values[1], sizeof(broken));
    ((unsigned char *)broken)[0] ^= 4;
    (void)snprintf(
        want, sizeof(want),
        "weights of version 3: the checksum of tensor block is %016llx in "
        "infer.test, that of the values from train.test is %016llx; they were "
        "damaged on the way",
        (unsigned long long)fake_sum(broken, sizeof(broken)),
        (unsigned long long)fake_sum(trainer.values[1], sizeof(broken)));
    expect_stop(want);
}

static void a_wrong_version_stops_the_run(void **state)
{
    (void)state;
    how.lag = 1;
    expect_stop("infer.test says that its weights are of version 1, version 2 "
                "was published");
}

static void incomplete_exports_stop_the_run(void **state)
{
    (void)state;
    shard_trainer();
    how.leave_out = 2;
    expect_stop("tensor block: train.test did not export it");
    how.leave_out = 0;
    how.partial = 3;
    expect_stop("tensor norm: train.test exports only a part of it");
    how.partial = 0;
    how.twice = 1;
    expect_stop("tensor embed: train.test exports it twice");
    how.twice = 0;
    expect_ok(); /* and the plan can still be used */
}

static void mismatched_tables_stop_the_run(void **state)
{
    (void)state;
    engine.tensors[2].name = "norm.weight";
    expect_stop("tensor norm.weight of infer.test is not among the weights of "
                "train.test");
    engine.tensors[2].name = "embed"; /* not beside its other box */
    expect_stop("infer.test publishes tensor embed twice");
    engine.tensors[2].name = "norm";
    engine.tensors[2].shape[0] = 4;
    engine.tensors[2].shape[1] = 2;
    xray_box_make_plain(&engine.tensors[2]);
    expect_stop("tensor norm has shape [2, 4] in train.test and [4, 2] in "
                "infer.test");
    engine.tensors[2].shape[0] = 2;
    engine.tensors[2].shape[1] = 4;
    xray_box_make_plain(&engine.tensors[2]);
    trainer.tensors[0].name = "norm";
    expect_stop("train.test publishes tensor norm twice");
    trainer.tensors[0].name = "embed";
    engine.tensors[0].lo[0] = 2;
    engine.tensors[0].extent[0] = 1;
    expect_stop("infer.test gave a table of weights whose tensor 0 (embed) is "
                "wrong: its box reaches outside of its shape");
    xray_box_make_plain(&engine.tensors[0]);
    expect_ok();
    engine.tensors[0].dtype = 99; /* which the next tensor does not hide */
    xr_err err = { "" };
    assert_int_equal(xr_publish(&roles, &err), XRAY_E_BUG);
    assert_non_null(strstr(err.text, " and 99 in infer.test, which this xray "
                                     "does not compare"));
    engine.tensors[0].dtype = XRAY_F32;
    how.another = 1;
    expect_stop("infer.test publishes another table than before");
}

static void shards_need_an_export(void **state)
{
    (void)state;
    shard_trainer();
    /* A part of the calls is no export. */
    for (uint32_t i = 0; i < 3; i++) {
        xray_train_ops part = export_ops;
        part.export_begin = i == 0 ? NULL : export_begin;
        part.export_next = i == 1 ? NULL : export_next;
        part.export_end = i == 2 ? NULL : export_end;
        run.train.ops = &part;
        expect_stop("train.test holds shards of its weights and offers no "
                    "export, so that infer.test cannot have them");
    }
    how.shares = 1;
    run.train.ops = &whole_ops;
    expect_stop("infer.test keeps no weights of its own, and train.test holds "
                "shards");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, begin_test, end_test)
        T(a_complete_table_is_copied_each_time),
        T(parts_of_an_export_are_copied_each_time),
        T(shared_weights_are_not_copied),
        T(weights_wait_for_a_rollout),
        T(narrower_values_are_compared_as_they_are_kept),
        T(a_range_is_compared_with_its_range),
        T(tensors_unknown_to_the_engine_are_not_sent),
        T(weights_reach_a_device_that_cannot_read_the_region),
        T(a_flipped_bit_stops_the_run),
        T(a_wrong_version_stops_the_run),
        T(incomplete_exports_stop_the_run),
        T(mismatched_tables_stop_the_run),
        T(shards_need_an_export),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
