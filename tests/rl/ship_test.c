/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves the region that carries weights between processes, byte by byte: its
 * size, what it may contain, and how failures of plugins are reported.
 */
#include <xray/box.h>

#include "core/plugin/cancel.h"
#include "core/roles/publish.h"
#include "core/roles/ship.h"
#include "tests/growth.h"
#include "tests/rl/fake_memory.h"
#include "tests/rl/fake_roles.h"
#include "tests/testing.h"

#define LINE 64

/* ---- a device, a trainer and an engine ---------------------------------- */

static struct {
    xray_status checksum; /* statuses of the calls */
    xray_status copy;
    xray_status sync;
    xray_status info;
    xray_status alloc;
    uint64_t allocated; /* bytes of the last allocation */
    uint32_t held;
    uint32_t apart;     /* 1: the region is not memory of the device */
    uint32_t begun;     /* exports that were not ended */
    uint32_t part;      /* next part of an export */
    uint32_t none;      /* 1: the second part of an export is NULL */
    xray_status next;   /* status of the second part of an export */
    uint32_t sums;      /* checksums so far */
    uint32_t cancel_at; /* the checksum during which the run is canceled */
} fake;

static xray_status device_info(void *self, xray_device_info *info)
{
    (void)self;
    info->host_memory = !fake.apart;
    return fake.info;
}

static xray_status device_copy(void *self, xray_stream *stream, void *to,
                               const void *from, uint64_t bytes, uint32_t kind)
{
    (void)self;
    (void)stream;
    (void)kind;
    memcpy(to, from, bytes);
    return fake.copy;
}

static xray_status device_alloc(void *self, const char *owner, uint32_t tag,
                                uint64_t bytes, void **out)
{
    (void)self;
    (void)owner;
    assert_int_equal(tag, XRAY_TAG_WORKSPACE);
    fake.allocated = bytes;
    if (fake.alloc != XRAY_OK)
        return fake.alloc;
    fake.held++;
    *out = calloc(1, bytes);
    return XRAY_OK;
}

static void device_free(void *self, void *ptr)
{
    (void)self;
    fake.held--;
    free(ptr);
}

static xray_status device_sum(void *self, const xray_checksum_rows *rows,
                              uint64_t *out)
{
    (void)self;
    if (++fake.sums == fake.cancel_at)
        xr_cancel();
    *out = fake_sum_rows(rows);
    return fake.checksum;
}

static xray_status device_sync(void *self, xray_stream *stream)
{
    (void)self;
    (void)stream;
    return fake.sync;
}

static const xray_device_ops device = { .header = XRAY_HEADER(xray_device_ops),
                                        .info = device_info,
                                        .copy = device_copy,
                                        .alloc = device_alloc,
                                        .free = device_free,
                                        .checksum = device_sum,
                                        .sync = device_sync };

/* Two tensors of single precision, one of half precision. */
static float embed[6];
static uint16_t block[30];
static float norm[2];
static xray_tensor tensors[3];
static xray_weights table;

static uint64_t weights_version(void *owner)
{
    (void)owner;
    return 41;
}

static const xray_weights *train_weights(void *self)
{
    (void)self;
    return &table;
}

static xray_status export_begin(void *self)
{
    (void)self;
    fake.begun++;
    fake.part = 0;
    return XRAY_OK;
}

static xray_status export_next(void *self, const xray_weights **out)
{
    static xray_weights part;
    (void)self;
    if (fake.part == 1 && fake.next != XRAY_OK)
        return fake.next;
    if (fake.part == 3)
        return XRAY_END;
    part = table;
    part.tensors = &tensors[fake.part++];
    part.tensor_count = 1;
    *out = fake.none && fake.part == 2 ? NULL : &part;
    return XRAY_OK;
}

static void export_end(void *self)
{
    (void)self;
    fake.begun--;
}

/* ---- an engine that keeps what it receives ------------------------------ */

static unsigned char kept[3][64];
static xray_tensor own[3];
static xray_weights engine;
static uint64_t engine_at;

static uint64_t engine_version(void *owner)
{
    (void)owner;
    return engine_at;
}

static const xray_weights *infer_weights(void *self)
{
    (void)self;
    return &engine;
}

static xray_status infer_update(void *self, const xray_weights *from,
                                uint64_t number)
{
    (void)self;
    for (uint32_t i = 0; from && i < from->tensor_count; i++)
        for (int k = 0; k < 3; k++)
            if (strcmp(from->tensors[i].name, own[k].name) == 0)
                memcpy(kept[k], from->tensors[i].data,
                       xray_box_count(&own[k]) *
                           xray_dtype_bytes(own[k].dtype));
    if (!from)
        engine_at = number;
    return XRAY_OK;
}

static xray_train_ops whole = { .header = XRAY_HEADER(xray_train_ops),
                                .weights = train_weights };
static xray_train_ops exports = { .header = XRAY_HEADER(xray_train_ops),
                                  .weights = train_weights,
                                  .export_begin = export_begin,
                                  .export_next = export_next,
                                  .export_end = export_end };
static const xray_infer_ops infer = { .header = XRAY_HEADER(xray_infer_ops),
                                      .update = infer_update,
                                      .weights = infer_weights };

static xr_run run;
static xr_roles roles;
static union {
    uint64_t align;
    unsigned char bytes[4096];
} region;

static int begin_test(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof(fake));
    memset(kept, 0, sizeof(kept));
    memset(&region, 0xee, sizeof(region));
    for (int i = 0; i < 30; i++)
        block[i] = (uint16_t)(i + 1);
    for (int i = 0; i < 6; i++)
        embed[i] = (float)i;
    norm[0] = norm[1] = 9;
    tensors[0] = (xray_tensor){ .name = "embed",
                                .dtype = XRAY_F32,
                                .dims = 2,
                                .shape = { 2, 3 },
                                .data = embed };
    tensors[1] = (xray_tensor){ .name = "block",
                                .dtype = XRAY_BF16,
                                .dims = 2,
                                .shape = { 3, 10 },
                                .data = block };
    tensors[2] = (xray_tensor){ .name = "norm",
                                .dtype = XRAY_F32,
                                .dims = 1,
                                .shape = { 2 },
                                .data = norm };
    for (int i = 0; i < 3; i++)
        xray_box_make_plain(&tensors[i]);
    table = (xray_weights){ .header = XRAY_HEADER(xray_weights),
                            .tensor_count = 3,
                            .tensor_stride = sizeof(xray_tensor),
                            .tensors = tensors,
                            .device = &device,
                            .version = weights_version,
                            .offloaded = 1 };
    engine = table;
    engine.version = engine_version;
    engine.tensors = own;
    for (int i = 0; i < 3; i++) {
        own[i] = tensors[i];
        own[i].data = kept[i];
    }
    run = (xr_run){ .device = { .ops = &device,
                                .instance = "device.fake",
                                .host = xr_host_new("device.fake", NULL) },
                    .train = { .ops = &whole,
                               .instance = "train.fake",
                               .host = xr_host_new("train.fake", NULL) },
                    .infer = { .ops = &infer,
                               .instance = "infer.fake",
                               .host = xr_host_new("infer.fake", NULL) } };
    make_fake_roles(&run, &roles);
    roles.actor.self = roles.engine.self = &fake;
    return 0;
}

static int end_test(void **state)
{
    (void)state;
    xr_transfer_free(&roles);
    xr_host_free(run.device.host);
    xr_host_free(run.train.host);
    xr_host_free(run.infer.host);
    assert_int_equal(fake.held, 0);
    assert_int_equal(fake.begun, 0);
    return 0;
}

static xray_status write_to(uint64_t size, xr_err *err)
{
    err->text[0] = '\0';
    return xr_ship_write(&roles, region.bytes, size, err);
}

static xray_status read_from(uint64_t size, xr_err *err)
{
    err->text[0] = '\0';
    return xr_ship_read(&roles, region.bytes, size, err);
}

/* ---- transfers that succeed --------------------------------------------- */

/* Every tensor takes complete cache lines, at least one; nothing after the
 * region is written. */
static void a_region_has_its_size(void **state)
{
    (void)state;
    xr_err err = { "" };
    uint64_t size = xr_ship_bytes(&roles);
    assert_int_equal(size % LINE, 0);
    table.tensor_count =
        2; /* without the last tensor: its entry and one line */
    uint64_t less = xr_ship_bytes(&roles);
    table.tensor_count = 3;
    assert_true(size > less + LINE && size - less <= 8 * LINE);
    tensors[1].shape[0] = 4; /* 80 bytes take one line more than 60 */
    xray_box_make_plain(&tensors[1]);
    assert_int_equal(xr_ship_bytes(&roles), size + LINE);
    tensors[1].shape[0] = 3;
    xray_box_make_plain(&tensors[1]);
    assert_int_equal(write_to(size - 1, &err), XRAY_E_BUG);
    assert_string_equal(err.text, "the region is too small for the weights");
    for (int how = 0; how < 2; how++) {
        run.train.ops = how ? &exports : &whole;
        memset(&region, 0xee, sizeof(region));
        assert_int_equal(write_to(size, &err), XRAY_OK);
        for (size_t i = size; i < sizeof(region.bytes); i++)
            assert_int_equal(region.bytes[i], 0xee);
        for (int apart = 0; apart < 2; apart++) {
            fake.apart = (uint32_t)apart;
            fake.allocated = 0;
            engine_at = 0;
            memset(kept, 0, sizeof(kept));
            if (read_from(size, &err) != XRAY_OK)
                fail_msg("%s", err.text);
            assert_int_equal(engine_at, 41);
            assert_memory_equal(kept[0], embed, sizeof(embed));
            assert_memory_equal(kept[1], block, sizeof(block));
            assert_memory_equal(kept[2], norm, sizeof(norm));
            /* Device memory for the largest tensor. */
            assert_int_equal(fake.allocated, apart ? 60 : 0);
        }
    }
    /* Weights on the device are written without an export. */
    table.offloaded = 0;
    fake.part = 7;
    memset(&region, 0xee, sizeof(region));
    assert_int_equal(write_to(size, &err), XRAY_OK);
    assert_int_equal(fake.part, 7);
    assert_int_equal(read_from(size, &err), XRAY_OK);
    table.offloaded = 1;
    for (int i = 0; i < 2 * LACK_WAYS; i++) { /* nor if there can be none */
        const xray_weights older = table;
        const xray_train_ops all = exports;
        if (i % 2)
            LACK_MEMBER(xray_weights, table, offloaded, i / 2);
        else
            LACK_MEMBER(xray_train_ops, exports, export_begin, i / 2);
        assert_int_equal(write_to(size, &err), XRAY_OK);
        assert_int_equal(fake.part, 7);
        table = older;
        exports = all;
    }
    for (int way = 0; way < LACK_WAYS; way++) {
        xray_infer_ops shares = infer;
        LACK_MEMBER(xray_infer_ops, shares, weights, way);
        run.infer.ops = &shares;
        assert_int_equal(read_from(size, &err), XRAY_E_BUG);
        assert_non_null(strstr(err.text, "infer.fake keeps no weights of its"));
    }
    run.infer.ops = &infer;
    /* A rank that only takes part writes nothing. */
    assert_int_equal(xr_ship_write(&roles, NULL, 0, &err), XRAY_OK);
    assert_int_equal(fake.part, 3);
}

/* Each element comes from one rank: from the first one where an export or a
 * complete table has all of them, else from the first replica. The others need
 * no room. */
static void each_element_comes_from_one_rank(void **state)
{
    static const struct {
        int exports;
        int shards;
        uint32_t width;
        const char *writes; /* by rank */
    } cases[] = {
        { 0, 0, 1, "1000" }, { 0, 0, 2, "1000" }, { 0, 1, 1, "1111" },
        { 0, 1, 2, "1100" }, { 0, 1, 4, "1111" }, { 1, 0, 1, "1000" },
        { 1, 1, 1, "1000" }, { 1, 1, 2, "1000" },
    };
    (void)state;
    const uint64_t all = xr_ship_bytes(&roles);
    run.placement.actor = (xr_ranks){ 4, { 0, 1, 2, 3 } };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        run.train.ops = cases[i].exports ? &exports : &whole;
        run.layouts[XRAY_ROLE_ACTOR] = (xr_layout){ .width = cases[i].width };
        tensors[1].extent[0] = cases[i].shards ? 1 : 3; /* rows of 20 bytes */
        for (roles.rank = 0; roles.rank < 4; roles.rank++) {
            const uint64_t bytes = xr_ship_bytes(&roles);
            if (cases[i].writes[roles.rank] == '1')
                assert_int_equal(bytes, all);
            else
                assert_int_equal(bytes, 0);
        }
    }
}

/* ---- transfers that are canceled ---------------------------------------- */

static xray_status publish_here(uint64_t size, xr_err *err)
{
    (void)size;
    return xr_publish(&roles, err);
}

/* The longest that a transfer does not look is the work on one tensor. */
static void canceled_transfers_end_with_a_tensor(void **state)
{
    static xray_status (*const ways[])(
        uint64_t, xr_err *) = { write_to, read_from, read_from, publish_here };
    (void)state;
    xr_err err = { "" };
    uint64_t size = xr_ship_bytes(&roles);
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t way = i / 2;
        run.train.ops = i % 2 ? &exports : &whole;
        xr_transfer_free(&roles); /* which is planned for one of the two */
        fake.apart = way == 2;
        fake.sums = 0;
        assert_int_equal(ways[way](size, &err), XRAY_OK);
        uint32_t all = fake.sums;
        assert_true(all >= 3);
        for (uint32_t at = 1; at < all; at++) {
            fake.sums = 0;
            fake.cancel_at = at;
            assert_int_equal(ways[way](size, &err), XRAY_E_CANCELED);
            assert_int_equal(fake.sums, at);
            xr_cancel_reset();
        }
        fake.cancel_at = 0;
        assert_int_equal(ways[way](size, &err), XRAY_OK);
    }
}

/* ---- transfers that fail ------------------------------------------------ */

static void shards_need_an_export(void **state)
{
    (void)state;
    xr_err err = { "" };
    tensors[1].extent[0] = 1;
    uint64_t size = xr_ship_bytes(&roles);
    assert_int_equal(write_to(size, &err), XRAY_OK);
    assert_int_equal(read_from(size, &err), XRAY_E_BUG);
    assert_string_equal(err.text,
                        "train.fake holds shards of its weights and offers no "
                        "export, so that infer.fake cannot have them");
}

static void exports_must_match_the_published_table(void **state)
{
    (void)state;
    xr_err err = { "" };
    run.train.ops = &exports;
    uint64_t size = xr_ship_bytes(&roles);
    static char wide[200];
    memset(wide, 'n', 191);
    tensors[2].name = wide; /* the longest name that fits */
    assert_int_equal(write_to(size, &err), XRAY_OK);
    wide[191] = 'n';
    assert_int_equal(write_to(size, &err), XRAY_E_BUG);
    assert_non_null(strstr(err.text, "train.fake exports more than it "
                                     "publishes"));
    tensors[2].name = "norm";
    table.tensor_count = 2;
    assert_int_equal(write_to(xr_ship_bytes(&roles), &err), XRAY_E_BUG);
    assert_string_equal(err.text, "tensor norm: train.fake exports more than "
                                  "it publishes");
    table.tensor_count = 3;
    fake.next = XRAY_E_IO;
    assert_int_equal(write_to(size, &err), XRAY_E_IO);
    assert_non_null(strstr(err.text, "train.fake: export"));
    fake.next = XRAY_OK;
    fake.none = 1;
    for (int here = 0; here < 2; here++) {
        err.text[0] = '\0';
        assert_int_equal(here ? xr_publish(&roles, &err) : write_to(size, &err),
                         XRAY_E_BUG);
        assert_string_equal(err.text, "train.fake gave no table of weights");
    }
}

static void failures_of_a_device_are_passed_on(void **state)
{
    (void)state;
    xr_err err = { "" };
    uint64_t size = xr_ship_bytes(&roles);
    xray_status *const calls[] = { &fake.checksum, &fake.copy, &fake.sync,
                                   &fake.info, &fake.alloc };
    for (int i = 0; i < 5; i++) {
        *calls[i] = XRAY_E_IO;
        assert_int_equal(write_to(size, &err), i < 3 ? XRAY_E_IO : XRAY_OK);
        *calls[i] = XRAY_OK;
        assert_int_equal(write_to(size, &err), XRAY_OK);
        fake.apart = 1;
        *calls[i] = XRAY_E_IO;
        assert_int_equal(read_from(size, &err), XRAY_E_IO);
        assert_int_equal(strncmp(err.text, "device.fake: ", 13), 0);
        *calls[i] = XRAY_OK;
        xr_transfer_free(&roles);
    }
}

/* Whatever a region contains, nothing after its end is read. */
static void regions_are_not_trusted(void **state)
{
    (void)state;
    xr_err err = { "" };
    uint64_t size = xr_ship_bytes(&roles);
    assert_int_equal(write_to(size, &err), XRAY_OK);
    assert_int_equal(read_from(LINE - 1, &err), XRAY_E_BUG);
    assert_string_equal(err.text, "the weights' region is cut off");
    for (uint64_t cut = LINE; cut < size; cut++) {
        unsigned char *exact = malloc(cut);
        assert_non_null(exact);
        memcpy(exact, region.bytes, cut);
        err.text[0] = '\0';
        assert_int_equal(xr_ship_read(&roles, exact, cut, &err), XRAY_E_BUG);
        assert_string_equal(err.text, "the weights' region is cut off");
        free(exact);
    }
    /* The number of boxes, and the size of the section: too small for a header,
     * and as if another one followed. */
    const uint64_t huge = UINT64_MAX;
    const uint64_t sizes[] = { 0, LINE - 1, size - 1, size + 1 };
    memcpy(region.bytes + 24, &huge, 4);
    assert_int_equal(read_from(size, &err), XRAY_E_BUG);
    assert_string_equal(err.text, "the weights' region is cut off");
    for (int i = 0; i < 4; i++) {
        assert_int_equal(write_to(size, &err), XRAY_OK);
        memcpy(region.bytes + 8, &sizes[i], sizeof(sizes[i]));
        assert_int_equal(read_from(size, &err), XRAY_E_BUG);
        assert_string_equal(err.text, "the weights' region is cut off");
    }
    /* The first box: its name, dims, extent, offset and bytes. */
    unsigned char *box = region.bytes + LINE;
    static const struct {
        size_t at;
        size_t bytes;
        const char *says;
    } broken[] = {
        { 0, 192, "a tensor lies outside of its region" },
        { 196, 4, "a tensor lies outside of its region" },
        { 264, 8,
          "train.fake gave a table of weights whose tensor 0 (embed) "
          "is wrong: its box reaches outside of its shape" },
        { 296, 8, "a tensor lies outside of its region" },
        { 304, 8, "a tensor lies outside of its region" },
    };
    for (size_t i = 0; i < sizeof(broken) / sizeof(*broken); i++) {
        assert_int_equal(write_to(size, &err), XRAY_OK);
        memset(box + broken[i].at, 0xff, broken[i].bytes);
        assert_int_equal(read_from(size, &err), XRAY_E_BUG);
        assert_string_equal(err.text, broken[i].says);
    }
    /* The box is moved to where one line is left, and it takes two. */
    const uint64_t near = size - LINE;
    const uint64_t all = 2 * LINE;
    assert_int_equal(write_to(size, &err), XRAY_OK);
    memcpy(box + 296, &near, sizeof(near));
    memcpy(box + 304, &all, sizeof(all));
    assert_int_equal(read_from(size, &err), XRAY_E_BUG);
    assert_string_equal(err.text, "a tensor lies outside of its region");
    assert_int_equal(write_to(size, &err), XRAY_OK);
    box[304]--;
    assert_int_equal(read_from(size, &err), XRAY_E_BUG);
    assert_string_equal(err.text,
                        "tensor embed has other bytes than its box needs");
}

static void one_bit_is_noticed(void **state)
{
    (void)state;
    xr_err err = { "" };
    uint64_t size = xr_ship_bytes(&roles);
    for (int apart = 0; apart < 2; apart++) {
        fake.apart = (uint32_t)apart;
        assert_int_equal(write_to(size, &err), XRAY_OK);
        region.bytes[size - LINE] ^= 1; /* of the last tensor */
        assert_int_equal(read_from(size, &err), XRAY_E_BUG);
        char want[200];
        float broken[2] = { norm[0], norm[1] };
        unsigned char *bytes = (unsigned char *)broken;
        bytes[0] ^= 1;
        (void)snprintf(want, sizeof(want),
                       "the checksum of tensor norm is %016llx where it "
                       "arrived, %016llx where it was sent; it was damaged on "
                       "the way",
                       (unsigned long long)fake_sum(broken, 8),
                       (unsigned long long)fake_sum(norm, 8));
        assert_string_equal(err.text, want);
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin_test, end_test)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_region_has_its_size),
        CASE(each_element_comes_from_one_rank),
        CASE(canceled_transfers_end_with_a_tensor),
        CASE(shards_need_an_export),
        CASE(exports_must_match_the_published_table),
        CASE(failures_of_a_device_are_passed_on),
        CASE(regions_are_not_trusted),
        CASE(one_bit_is_noticed),
    };
    return cmocka_run_group_tests_name("rl.ship", tests, NULL, NULL);
}
