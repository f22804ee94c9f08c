/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that weights which two ranks hold as boxes reach an engine with a
 * complete copy, and one with boxes of its own, with the bits and the checksums
 * of the complete tensors: column cuts, matrices fused in memory, a padded
 * vocabulary, boxes that both ranks hold, tensors of which a rank holds
 * nothing, flat ranges, and four axes.
 */
#include "core/base/box.h"
#include "core/roles/publish.h"
#include "core/roles/ship.h"
#include "tests/rl/fake_memory.h"
#include "tests/rl/fake_roles.h"
#include "tests/testing.h"

enum { TENSORS = 10, BOXES = 32, FLOATS = 4096, RANKS = 2 };

/* ---- a device of host memory -------------------------------------------- */

static xray_status device_info(void *self, xray_device_info *info)
{
    (void)self;
    info->host_memory = 1;
    return XRAY_OK;
}

static xray_status device_copy(void *self, xray_stream *stream, void *to,
                               const void *from, uint64_t bytes, uint32_t kind)
{
    (void)self;
    (void)stream;
    (void)kind;
    memcpy(to, from, bytes);
    return XRAY_OK;
}

static xray_status device_copy_rows(void *self, xray_stream *stream,
                                    const xray_copy_rows *rows)
{
    (void)self;
    (void)stream;
    assert_true(rows->to_pitch >= rows->bytes &&
                rows->from_pitch >= rows->bytes);
    fake_copy_rows(rows);
    return XRAY_OK;
}

static xray_status device_sum(void *self, const xray_checksum_rows *rows,
                              uint64_t *out)
{
    (void)self;
    *out = fake_sum_rows(rows);
    return XRAY_OK;
}

static uint32_t casts; /* calls so far */

static xray_status device_cast(void *self, xray_stream *stream,
                               const xray_cast *op)
{
    (void)self;
    (void)stream;
    fake_cast(op);
    casts++;
    return XRAY_OK;
}

static xray_status device_alloc(void *self, const char *owner, uint32_t tag,
                                uint64_t bytes, void **out)
{
    (void)self;
    (void)owner;
    (void)tag;
    *out = calloc(1, bytes);
    return XRAY_OK;
}

static void device_free(void *self, void *ptr)
{
    (void)self;
    free(ptr);
}

static xray_status device_sync(void *self, xray_stream *stream)
{
    (void)self;
    (void)stream;
    return XRAY_OK;
}

static const xray_device_ops device = {
    .header = XRAY_HEADER(xray_device_ops),
    .info = device_info,
    .alloc = device_alloc,
    .free = device_free,
    .copy = device_copy,
    .copy_rows = device_copy_rows,
    .checksum = device_sum,
    .sync = device_sync,
    .cast = device_cast,
};

/* ---- tables ------------------------------------------------------------- */

/* An element of a plugin that knows a longer one. */
typedef struct later_tensor {
    xray_tensor tensor;
    uint64_t more;
} later_tensor;

typedef struct side {
    later_tensor boxes[BOXES];
    xray_weights table;
    uint64_t version;
    float memory[FLOATS];
    uint64_t used; /* floats of the memory */
} side;

static side all;          /* the complete tensors */
static side ranks[RANKS]; /* what each rank of the trainer holds */
static side engine;
static uint32_t rank;       /* whose table the trainer shows */
static uint32_t part;       /* next part of the export */
static uint32_t held_twice; /* boxes that an export leaves out on rank 1 */

static uint64_t side_version(void *owner)
{
    return ((const side *)owner)->version;
}

static void make_side(side *s)
{
    *s = (side){ .version = 3 };
    s->table = (xray_weights){ .header = XRAY_HEADER(xray_weights),
                               .tensor_stride = sizeof(s->boxes[0]),
                               .tensors = &s->boxes[0].tensor,
                               .device = &device,
                               .owner = s,
                               .version = side_version };
}

static const xray_tensor *find_tensor(const side *s, const char *name)
{
    for (uint32_t i = 0; i < s->table.tensor_count; i++)
        if (strcmp(s->boxes[i].tensor.name, name) == 0)
            return &s->boxes[i].tensor;
    fail_msg("no tensor %s", name);
    return NULL;
}

static void add_tensor(const char *name, uint32_t dims, const uint64_t *shape)
{
    xray_tensor *t = &all.boxes[all.table.tensor_count++].tensor;
    *t = (xray_tensor){ .name = name, .dtype = XRAY_F32, .dims = dims };
    memcpy(t->shape, shape, dims * sizeof(*shape));
    xray_box_make_plain(t);
    t->data = all.memory + all.used;
    all.used += xray_box_count(t);
}

/* Adds a box at the next floats of the side's memory, with `pad` unused floats
 * after each row, and copies its values there. */
static void add_box(side *s, const char *name, const uint64_t *lo,
                    const uint64_t *extent, uint64_t pad)
{
    const xray_tensor *from = find_tensor(&all, name);
    const xr_box_device on = { &device, NULL };
    xray_tensor *t = &s->boxes[s->table.tensor_count++].tensor;
    xray_tensor values;
    uint64_t run = 1;
    *t = *from;
    for (uint32_t d = t->dims; d-- > 0;) {
        t->lo[d] = lo[d];
        t->extent[d] = extent[d];
        t->stride[d] = run;
        run = run * extent[d] + (d + 1 == t->dims ? pad : 0);
    }
    t->data = xray_box_count(t) ? s->memory + s->used : NULL;
    s->used += run;
    assert_true(s->used <= FLOATS && s->table.tensor_count <= BOXES);
    if (xray_box_cut(from, t, &values))
        assert_int_equal(xr_box_copy(on, t, &values, XRAY_COPY_ON_DEVICE),
                         XRAY_OK);
}

#define SHAPE(...)      \
    (const uint64_t[4]) \
    {                   \
        __VA_ARGS__     \
    }
#define ADD(r, name, lo, extent, pad) \
    add_box(&ranks[r], name, SHAPE lo, SHAPE extent, pad)

static void make_tensors(void)
{
    make_side(&all);
    add_tensor("embed", 2, SHAPE(7, 5));
    add_tensor("q", 2, SHAPE(8, 5));
    add_tensor("k", 2, SHAPE(4, 5));
    add_tensor("v", 2, SHAPE(4, 5));
    add_tensor("one_k", 2, SHAPE(2, 5));
    add_tensor("o", 2, SHAPE(5, 9));
    add_tensor("flat", 2, SHAPE(5, 7));
    add_tensor("norm", 1, SHAPE(5));
    add_tensor("groups", 2, SHAPE(6, 3));
    add_tensor("four", 4, SHAPE(2, 3, 4, 5));
    for (uint64_t i = 0; i < all.used; i++)
        all.memory[i] = (float)(i % 256) - 100;
}

/* Makes the tables of two ranks of a backend with tensor parallelism. */
static void make_ranks(void)
{
    for (uint32_t r = 0; r < RANKS; r++) {
        make_side(&ranks[r]);
        /* 7 rows padded to 8, in halves */
        ADD(r, "embed", (4 * r, 0), (4 - r, 5), 0);
        ranks[r].used += 5 * r;
        /* one matrix in memory: heads of q, k and v */
        ADD(r, "q", (4 * r, 0), (4, 5), 0);
        ADD(r, "k", (2 * r, 0), (2, 5), 0);
        ADD(r, "v", (2 * r, 0), (2, 5), 0);
        ADD(r, "one_k", (0, 0), (2, 5), 0);
        held_twice = ranks[r].table.tensor_count - 1;
        ADD(r, "o", (0, 5 * r), (5, 5 - r), 3);
    }
    ADD(0, "flat", (0, 0), (1, 2), 0);
    ADD(0, "flat", (4, 3), (1, 4), 0);
    ADD(1, "flat", (0, 2), (1, 5), 0);
    ADD(1, "flat", (1, 0), (3, 7), 0);
    ADD(1, "flat", (4, 0), (1, 3), 0);
    ADD(0, "norm", (0), (5), 0);
    ADD(1, "norm", (0), (0), 0);
    for (uint32_t r = 0; r < RANKS; r++) {
        /* every second group of two rows */
        ADD(r, "groups", (r, 0), (1, 3), 0);
        ADD(r, "groups", (2 + r, 0), (1, 3), 0);
        ADD(r, "groups", (4 + r, 0), (1, 3), 0);
        /* cut along all axes but the first, so that no two can be merged */
        ADD(r, "four", (0, 0, 2 * r, 0), (2, 2, 2, 4), 1);
        ADD(r, "four", (0, 2, 2 * r, 0), (2, 1, 2, 4), 0);
        ADD(r, "four", (0, 0, 2 * r, 4), (2, 3, 2, 1), 0);
    }
}

/* ---- plugins ------------------------------------------------------------ */

static const xray_weights *train_weights(void *self)
{
    (void)self;
    return rank < RANKS ? &ranks[rank].table : &all.table;
}

static xray_status export_begin(void *self)
{
    (void)self;
    part = 0;
    return XRAY_OK;
}

/* One part for each rank, with every element once. */
static xray_status export_next(void *self, const xray_weights **out)
{
    static later_tensor boxes[BOXES];
    static xray_weights table;
    (void)self;
    if (part == RANKS)
        return XRAY_END;
    table = ranks[part].table;
    memcpy(boxes, ranks[part].boxes, sizeof(boxes));
    table.tensors = &boxes[0].tensor;
    if (part > 0) {
        table.tensor_count--;
        memmove(boxes + held_twice, boxes + held_twice + 1,
                (table.tensor_count - held_twice) * sizeof(*boxes));
    }
    part++;
    *out = &table;
    return XRAY_OK;
}

static void export_end(void *self)
{
    (void)self;
}

static void take_box(const xray_tensor *to, const xray_tensor *from)
{
    const xr_box_device on = { &device, NULL };
    xray_tensor source;
    xray_tensor target;
    if (strcmp(to->name, from->name) != 0 || !xray_box_cut(from, to, &source))
        return;
    (void)xray_box_cut(to, from, &target);
    assert_int_equal(
        to->dtype == from->dtype
            ? xr_box_copy(on, &target, &source, XRAY_COPY_ON_DEVICE)
            : xr_box_cast(on, &target, &source),
        XRAY_OK);
}

static const xray_tensor *tensor_of(const xray_weights *table, uint32_t i)
{
    const char *first = (const char *)table->tensors;
    return (const void *)(first + (size_t)i * table->tensor_stride);
}

static xray_status infer_update(void *self, const xray_weights *from,
                                uint64_t version)
{
    (void)self;
    for (uint32_t i = 0; from && i < from->tensor_count; i++)
        for (uint32_t k = 0; k < engine.table.tensor_count; k++)
            take_box(&engine.boxes[k].tensor, tensor_of(from, i));
    engine.version = from ? 0 : version;
    return XRAY_OK;
}

static const xray_weights *infer_weights(void *self)
{
    (void)self;
    return &engine.table;
}

static const xray_train_ops shard_ops = {
    .header = XRAY_HEADER(xray_train_ops),
    .weights = train_weights,
};
static const xray_train_ops export_ops = {
    .header = XRAY_HEADER(xray_train_ops),
    .weights = train_weights,
    .export_begin = export_begin,
    .export_next = export_next,
    .export_end = export_end,
};
static const xray_infer_ops infer_ops = {
    .header = XRAY_HEADER(xray_infer_ops),
    .update = infer_update,
    .weights = infer_weights,
};

static xr_run run;
static xr_roles roles;
static union {
    uint64_t align;
    unsigned char bytes[1 << 16];
} region;

/* The engine holds the same boxes as `like`, and no values. */
static void make_engine(const side *like, uint32_t dtype)
{
    make_side(&engine);
    engine.version = 0;
    engine.table.tensor_count = like->table.tensor_count;
    for (uint32_t i = 0; i < like->table.tensor_count; i++) {
        const xray_tensor *t = &like->boxes[i].tensor;
        engine.boxes[i].tensor = *t;
        engine.boxes[i].tensor.dtype = dtype;
        if (t->data)
            engine.boxes[i].tensor.data =
                engine.memory + ((const float *)t->data - like->memory);
    }
}

static int begin_test(void **state)
{
    (void)state;
    make_tensors();
    make_ranks();
    make_engine(&all, XRAY_F32);
    rank = 0;
    run = (xr_run){
        .device = { .ops = &device, .instance = "device.test" },
        .train = { .ops = &shard_ops, .instance = "train.test" },
        .infer = { .ops = &infer_ops, .instance = "infer.test" },
        .placement.actor = { RANKS, { 0, 1 } },
    };
    make_fake_roles(&run, &roles);
    roles.actor.self = roles.engine.self = &all;
    return 0;
}

static int end_test(void **state)
{
    (void)state;
    xr_transfer_free(&roles);
    return 0;
}

/* The checksum of the boxes of one tensor. */
static uint64_t sum_of(const side *s, const char *name)
{
    const xr_box_device on = { &device, NULL };
    uint64_t sum = 0;
    for (uint32_t i = 0; i < s->table.tensor_count; i++) {
        uint64_t one = 0;
        if (strcmp(s->boxes[i].tensor.name, name) != 0)
            continue;
        assert_int_equal(xr_box_checksum(on, &s->boxes[i].tensor, &one),
                         XRAY_OK);
        sum += one;
    }
    return sum;
}

static void expect_ok(xray_status status, const xr_err *err)
{
    if (status != XRAY_OK)
        fail_msg("%s", err->text);
    assert_int_equal(engine.version, 3);
}

static void expect_complete_copy(void)
{
    assert_memory_equal(engine.memory, all.memory, all.used * sizeof(float));
}

/* Writes the sections of the first `count` ranks; returns their bytes. */
static uint64_t write_sections(uint32_t count)
{
    uint64_t at = 0;
    xr_err err = { "" };
    for (rank = 0; rank < count; rank++) {
        roles.rank = rank;
        uint64_t bytes = xr_ship_bytes(&roles);
        assert_true(at + bytes <= sizeof(region.bytes));
        assert_int_equal(xr_ship_write(&roles, region.bytes + at, bytes, &err),
                         XRAY_OK);
        at += bytes;
    }
    rank = roles.rank = 0;
    return at;
}

/* ---- tests -------------------------------------------------------------- */

static void checksums_of_boxes_add_up(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < TENSORS; i++) {
        const xray_tensor *t = &all.boxes[i].tensor;
        uint64_t parts = sum_of(&ranks[0], t->name);
        uint64_t want = sum_of(&all, t->name);
        assert_true(want ==
                    fake_sum(t->data, xray_box_count(t) * sizeof(float)));
        if (strcmp(t->name, "one_k") != 0)
            parts += sum_of(&ranks[1], t->name);
        assert_true(parts == want);
    }
}

static void ranks_ship_their_boxes(void **state)
{
    (void)state;
    xr_err err = { "" };
    uint64_t bytes = write_sections(RANKS);
    expect_ok(xr_ship_read(&roles, region.bytes, bytes, &err), &err);
    expect_complete_copy();
    /* Values change, and boxes stay; that the trainer could export them changes
     * nothing. */
    run.train.ops = &export_ops;
    part = RANKS + 1;
    for (uint64_t i = 0; i < all.used; i++)
        all.memory[i] = (float)((i * 7) % 251);
    make_ranks();
    bytes = write_sections(RANKS);
    expect_ok(xr_ship_read(&roles, region.bytes, bytes, &err), &err);
    expect_complete_copy();
    assert_int_equal(part, RANKS + 1);
}

static void exports_may_be_of_boxes(void **state)
{
    (void)state;
    xr_err err = { "" };
    run.train.ops = &export_ops;
    expect_ok(xr_publish(&roles, &err), &err);
    expect_complete_copy();
}

/* In a narrower type the sums are those of the rounded values. */
static void boxes_may_be_rounded(void **state)
{
    (void)state;
    xr_err err = { "" };
    uint64_t bytes = write_sections(RANKS);
    make_engine(&all, XRAY_BF16);
    expect_ok(xr_ship_read(&roles, region.bytes, bytes, &err), &err);
    for (uint32_t i = 0; i < TENSORS; i++) {
        const xray_tensor *t = &all.boxes[i].tensor;
        for (uint64_t k = 0; k < xray_box_count(t); k++)
            assert_int_equal(((const uint16_t *)engine.boxes[i].tensor.data)[k],
                             fake_narrow(((const float *)t->data)[k]));
    }
}

/* Columns of a matrix are one call, and those of an axis outside of them one
 * for each of its indices. */
static void columns_are_rounded_in_one_call(void **state)
{
    (void)state;
    enum { OUTER = 3, ROWS = 5, COLUMNS = 8, WIDTH = 2 };
    const xr_box_device on = { &device, NULL };
    float values[OUTER][ROWS][COLUMNS];
    uint16_t rounded[OUTER][ROWS][WIDTH];
    for (uint32_t i = 0; i < OUTER * ROWS * COLUMNS; i++)
        (&values[0][0][0])[i] = (float)i;
    for (uint64_t outer = 1; outer <= OUTER; outer += 2) {
        xray_tensor to;
        const xray_tensor from = {
            .dtype = XRAY_F32,
            .dims = 3,
            .shape = { outer, 4, COLUMNS },
            .lo = { 0, 0, 3 },
            .extent = { outer, 4, WIDTH }, /* all rows but the last */
            .stride = { ROWS * COLUMNS, COLUMNS, 1 },
            .data = &values[0][0][3],
        };
        xr_box_pack(&from, XRAY_BF16, rounded, &to);
        to.stride[0] = ROWS * WIDTH;
        casts = 0;
        assert_int_equal(xr_box_cast(on, &to, &from), XRAY_OK);
        assert_int_equal(casts, outer);
        for (uint64_t i = 0; i < outer * 4 * WIDTH; i++) {
            uint64_t a = i / (4 * WIDTH);
            uint64_t row = i / WIDTH % 4;
            assert_int_equal(rounded[a][row][i % WIDTH],
                             fake_narrow(values[a][row][3 + i % WIDTH]));
        }
    }
}

/* An engine that is cut as the trainer takes its boxes without an export, and
 * from complete tensors. */
static void engines_may_hold_boxes(void **state)
{
    (void)state;
    for (uint32_t from = 1; from < 3; from++) {
        xr_err err = { "" };
        rank = from;
        make_engine(&ranks[1], XRAY_F32);
        expect_ok(xr_publish(&roles, &err), &err);
        for (uint32_t i = 0; i < TENSORS; i++)
            assert_true(sum_of(&engine, all.boxes[i].tensor.name) ==
                        sum_of(&ranks[1], all.boxes[i].tensor.name));
        assert_memory_equal(engine.memory, ranks[1].memory,
                            ranks[1].used * sizeof(float));
        xr_transfer_free(&roles);
    }
}

static void missing_and_unequal_boxes_are_noticed(void **state)
{
    (void)state;
    xr_err err = { "" };
    uint64_t bytes = write_sections(1);
    assert_int_equal(xr_ship_read(&roles, region.bytes, bytes, &err),
                     XRAY_E_BUG);
    assert_string_equal(err.text,
                        "train.test holds shards of its weights and offers no "
                        "export, so that infer.test cannot have them");
    const xray_tensor *twice = &ranks[1].boxes[held_twice].tensor;
    ((float *)twice->data)[3] += 1;
    bytes = write_sections(RANKS);
    assert_int_equal(xr_ship_read(&roles, region.bytes, bytes, &err),
                     XRAY_E_BUG);
    assert_string_equal(err.text, "tensor one_k: two ranks hold the same "
                                  "elements with different values");
    make_ranks();
    ranks[1].version = 4;
    bytes = write_sections(RANKS);
    assert_int_equal(xr_ship_read(&roles, region.bytes, bytes, &err),
                     XRAY_E_BUG);
    assert_string_equal(err.text, "ranks shipped weights of versions 3 and 4");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin_test, end_test)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(checksums_of_boxes_add_up),
        CASE(ranks_ship_their_boxes),
        CASE(exports_may_be_of_boxes),
        CASE(boxes_may_be_rounded),
        CASE(columns_are_rounded_in_one_call),
        CASE(engines_may_hold_boxes),
        CASE(missing_and_unequal_boxes_are_noticed),
    };
    return cmocka_run_group_tests_name("rl.boxes", tests, NULL, NULL);
}
