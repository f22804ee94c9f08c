/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that weights larger than the staging buffer get the same values from
 * any number of threads, directly or through the buffer, in fp32 or rounded,
 * and that the first bad element of a file is the one that is named.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/hf/safetensors.h"
#include "model/nn/weights_internal.h"
#include "tests/nn/fixture.h"
#include "tests/scratch.h"

#define ELEMENTS 4500000u /* two halves of the buffer and part of a third */

static const xray_device_ops *cpu_ops; /* those of device-cpu */

/* A device whose memory the host cannot access, and whose copies are made as
 * late as it may: when they are waited for. */
typedef struct late_copy {
    void *to;
    const void *from;
    uint64_t bytes;
    const xray_event *event; /* the first that was recorded after it */
} late_copy;

static late_copy late[8];
static size_t late_count;

static xray_status hide_memory(void *self, xray_device_info *info)
{
    xray_status status = cpu_ops->info(self, info);
    info->host_memory = 0;
    return status;
}

/* Makes the first `count` copies. */
static void make_copies(size_t count)
{
    for (size_t i = 0; i < count; i++)
        memcpy(late[i].to, late[i].from, late[i].bytes);
    late_count -= count;
    memmove(late, late + count, late_count * sizeof late[0]);
}

static xray_status copy_late(void *self, xray_stream *stream, void *to,
                             const void *from, uint64_t bytes, uint32_t kind)
{
    if (kind != XRAY_COPY_TO_DEVICE)
        return cpu_ops->copy(self, stream, to, from, bytes, kind);
    assert_true(late_count < sizeof late / sizeof late[0]);
    late[late_count++] = (late_copy){ to, from, bytes, NULL };
    return XRAY_OK;
}

static xray_status record_late(void *self, xray_stream *stream,
                               xray_event *event)
{
    for (size_t i = 0; i < late_count; i++)
        if (!late[i].event)
            late[i].event = event;
    return cpu_ops->event_record(self, stream, event);
}

static xray_status wait_late(void *self, xray_event *event)
{
    size_t count = 0;
    for (size_t i = 0; i < late_count; i++)
        if (late[i].event == event)
            count = i + 1;
    make_copies(count);
    return cpu_ops->event_sync(self, event);
}

static xray_status sync_late(void *self, xray_stream *stream)
{
    make_copies(late_count);
    return cpu_ops->sync(self, stream);
}

static xray_device_ops make_late_device(void)
{
    xray_device_ops ops = *cpu_ops;
    ops.info = hide_memory;
    ops.copy = copy_late;
    ops.sync = sync_late;
    ops.event_record = record_late;
    ops.event_sync = wait_late;
    return ops;
}

/* A model whose embedding has about ELEMENTS, on a device with so many threads.
 */
static void make_model(fixture *f, uint32_t threads)
{
    fixture_kind kind = fixture_kinds[2];
    kind.config.tied = 1;
    kind.config.vocab = ELEMENTS / kind.config.hidden;
    fixture_make_on(f, &kind, 5, fixture_open(threads, "auto"));
    cpu_ops = f->device.ops;
}

/* Asserts that `got` is what `want`, which is fp32, has. */
static void assert_same_values(const xm_weights *got, const xm_weights *want)
{
    for (uint32_t i = 0; i < want->layout->param_count; i++) {
        const xm_held *g = &got->held[i];
        const float *w = want->held[i].data;
        if (g->dtype == XRAY_F32) {
            assert_memory_equal(g->data, w, g->count * sizeof(float));
            continue;
        }
        for (uint64_t k = 0; k < g->count; k++) {
            uint16_t half;
            memcpy(&half, (unsigned char *)g->data + 2 * k, sizeof half);
            if (half != xm_f32_to_bf16(w[k]))
                fail_msg("param %u, element %llu", i, (unsigned long long)k);
        }
    }
}

static void threads_and_buffer_keep_the_bits(void **state)
{
    (void)state;
    xr_err err = { "" };
    fixture one;
    fixture four;
    make_model(&one, 1);
    make_model(&four, 4);
    const xray_device_ops far = make_late_device();
    fixture_ok(xm_weights_random(one.weights, &one.config, 8, &err), &err);
    fixture_ok(
        xm_weights_save(one.weights, scratch_dir(), XM_ST_SHARD_BYTES, &err),
        &err);
    for (int i = 0; i < 4; i++) {
        xm_weights *w = NULL;
        fixture_ok(xm_weights_create(four.layout, i & 1 ? &far : cpu_ops,
                                     four.device.self, "test",
                                     i & 2 ? XM_WEIGHTS_BF16 : 0, &err, &w),
                   &err);
        fixture_ok(xm_weights_random(w, &four.config, 8, &err), &err);
        assert_same_values(w, one.weights);
        fixture_ok(xm_weights_random(w, &four.config, 9, &err), &err);
        fixture_ok(xm_weights_load(w, scratch_dir(), &err), &err);
        assert_same_values(w, one.weights);
        fixture_ok(xm_weights_random(w, &four.config, 9, &err), &err);
        fixture_ok(xm_weights_import(w, &one.weights->table, &err), &err);
        assert_same_values(w, one.weights);
        assert_int_equal(late_count, 0);
        xm_weights_destroy(w);
    }
    fixture_end(&four);
    fixture_end(&one);
}

static void the_first_bad_element_is_named(void **state)
{
    (void)state;
    static const uint64_t bad[] = { 70000, 200000, 1900000, 2500000 };
    xr_err err = { "" };
    fixture f;
    make_model(&f, 4);
    const xm_param *embed =
        xm_layout_find(f.layout, "model.embed_tokens.weight");
    float *values = xm_param_held(f.weights, embed)->data;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        values[bad[i]] = NAN;
    fixture_ok(
        xm_weights_save(f.weights, scratch_dir(), XM_ST_SHARD_BYTES, &err),
        &err);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(xm_weights_load(f.weights, scratch_dir(), &err),
                         XRAY_E_CONFIG);
        if (!strstr(err.text, "element 70000 is NaN"))
            fail_msg("%s", err.text);
    }
    fixture_end(&f);
}

/* All counts from each of these elements on, and batches of several. */
static void fast_normals_have_the_bits_of_plain_ones(void **state)
{
    (void)state;
    static const uint64_t firsts[] = { 0, 1, 7, ((uint64_t)1 << 33) - 5,
                                       ((uint64_t)1 << 34) + 1 };
    enum { MOST = 4000 };
    float fast[MOST + 1];
    float plain[MOST + 1];
    for (uint64_t i = 0; i < sizeof firsts / sizeof firsts[0]; i++)
        for (uint64_t count = 0; count <= MOST; count += count < 40 ? 1 : 99) {
            memset(fast, 0x7f, sizeof fast);
            memset(plain, 0x7f, sizeof plain);
            xm_draw_normals(99 + i, 0.02, firsts[i], count, fast);
            xm_draw_normals_plain(99 + i, 0.02, firsts[i], count, plain);
            assert_memory_equal(fast, plain, sizeof fast);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(threads_and_buffer_keep_the_bits,
                                        scratch_make, scratch_drop),
        cmocka_unit_test_setup_teardown(the_first_bad_element_is_named,
                                        scratch_make, scratch_drop),
        cmocka_unit_test(fast_normals_have_the_bits_of_plain_ones),
    };
    return cmocka_run_group_tests_name("nn.fill", tests, NULL, NULL);
}
