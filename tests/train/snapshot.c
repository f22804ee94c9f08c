/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements tensors that are put together from the parts of several ranks.
 */
#include "tests/train/snapshot.h"

#include <math.h>

#include <xray/box.h>

#include "tests/testing.h"

/* The bytes of elements that no table has had. They are those of a NaN. */
#define NOTHING 0xff

static void store_tensor(snapshot *s, const xray_tensor *t)
{
    uint32_t i = 0;
    uint64_t whole = t->shape[0] * (t->dims > 1 ? t->shape[1] : 1);
    while (i < s->count && strcmp(s->tensors[i].name, t->name) != 0)
        i++;
    if (i == s->count) {
        (void)snprintf(s->tensors[i].name, sizeof(s->tensors[i].name), "%s",
                       t->name);
        s->tensors[i].count = whole;
        s->tensors[i].data = malloc(whole * sizeof(float));
        assert_non_null(s->tensors[i].data);
        memset(s->tensors[i].data, NOTHING, whole * sizeof(float));
        s->count++;
    }
    s->stored += t->data ? xray_box_count(t) : 0;
    uint64_t cols = t->dims > 1 ? t->extent[1] : t->extent[0];
    uint64_t at = t->dims > 1 ? t->lo[0] * t->shape[1] + t->lo[1] : t->lo[0];
    const uint32_t nothing = UINT32_MAX;
    for (uint64_t r = 0; t->data && r < xray_box_count(t) / cols; r++) {
        const float *from = (const float *)t->data + r * t->stride[0];
        float *to = s->tensors[i].data + at + r * t->shape[1];
        for (uint64_t c = 0; c < cols; c++)
            s->clashes += memcmp(to + c, &nothing, sizeof(*to)) != 0 &&
                          memcmp(to + c, from + c, sizeof(*to)) != 0;
        memcpy(to, from, cols * sizeof(float));
    }
}

void snapshot_store(snapshot *s, const xray_weights *table)
{
    for (uint32_t i = 0; table && i < table->tensor_count; i++)
        store_tensor(s, &table->tensors[i]);
}

int snapshot_differ(const snapshot *a, const snapshot *b)
{
    assert_int_equal(a->count, b->count);
    for (uint32_t i = 0; i < a->count; i++) {
        uint32_t k = 0;
        while (k < b->count &&
               strcmp(a->tensors[i].name, b->tensors[k].name) != 0)
            k++;
        assert_true(k < b->count);
        assert_int_equal(a->tensors[i].count, b->tensors[k].count);
        if (memcmp(a->tensors[i].data, b->tensors[k].data,
                   a->tensors[i].count * sizeof(float)) != 0) {
            print_message("first difference in %s\n", a->tensors[i].name);
            return 1;
        }
    }
    return 0;
}

double snapshot_distance(const snapshot *a, const snapshot *b)
{
    double most = 0;
    assert_int_equal(a->count, b->count);
    for (uint32_t i = 0; i < a->count; i++) {
        uint32_t k = 0;
        double scale = 1e-30;
        double far = 0;
        while (strcmp(a->tensors[i].name, b->tensors[k].name) != 0)
            k++;
        for (uint64_t n = 0; n < a->tensors[i].count; n++) {
            double x = (double)a->tensors[i].data[n];
            double y = (double)b->tensors[k].data[n];
            if (isnan(x) != isnan(y))
                return INFINITY;
            scale = fmax(scale, fabs(x));
            far = fmax(far, fabs(x - y));
        }
        most = fmax(most, far / scale);
    }
    return most;
}

void snapshot_free(snapshot *s)
{
    for (uint32_t i = 0; i < s->count; i++)
        free(s->tensors[i].data);
    *s = (snapshot){ 0 };
}
