/* SPDX-License-Identifier: Apache-2.0
 *
 * Handles of matrices on the CPU, and the packed copies that products read.
 */
#include <stdlib.h>
#include <string.h>

#include <immintrin.h>

#include "plugins/device-cpu/device.h"

/* ---- packing ------------------------------------------------------------ */

/* Transposes eight columns of `rows` <= 8 rows; missing rows become zero. */
static void transpose8(float *dst, const float *src, size_t stride, size_t rows)
{
    __m256 r[8];
    __m256 s[8];
    for (size_t i = 0; i < 8; i++)
        r[i] =
            i < rows ? _mm256_loadu_ps(src + i * stride) : _mm256_setzero_ps();
    for (size_t i = 0; i < 8; i += 2) {
        s[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        s[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (size_t i = 0; i < 8; i += 4)
        for (size_t j = 0; j < 2; j++) {
            r[i + 2 * j] = _mm256_shuffle_ps(s[i + j], s[i + j + 2], 0x44);
            r[i + 2 * j + 1] = _mm256_shuffle_ps(s[i + j], s[i + j + 2], 0xEE);
        }
    for (size_t i = 0; i < 4; i++) {
        __m256 low = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
        __m256 high = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
        _mm256_storeu_ps(dst + i * 16, low);
        _mm256_storeu_ps(dst + (i + 4) * 16, high);
    }
}

void cpu_transpose16(float *dst, const float *src, size_t stride, size_t rows,
                     size_t depth)
{
    size_t complete = depth / 8 * 8;
    size_t low = rows < 8 ? rows : 8;
    for (size_t k = 0; k < complete; k += 8) {
        transpose8(dst + k * 16, src + k, stride, low);
        transpose8(dst + k * 16 + 8, src + low * stride + k, stride,
                   rows - low);
    }
    for (size_t k = complete; k < depth; k++)
        for (size_t r = 0; r < 16; r++)
            dst[k * 16 + r] = r < rows ? src[r * stride + k] : 0.0f;
}

/* Packs a panel of a bf16 matrix. Where the outputs are rows, sixteen lines of
 * depth are read side by side. */
static void pack_bf16(const xray_weight *w, int nt, size_t first, size_t lanes,
                      size_t depth)
{
    const uint16_t *src = w->data;
    uint16_t *dst = (uint16_t *)w->panels[nt ? 0 : 1].data + first * depth;
    size_t outputs = nt ? w->rows : w->cols;
    for (size_t k = 0; k < depth; k++, dst += 16) {
        for (size_t l = 0; l < lanes; l++)
            dst[l] = nt ? src[(first + l) * depth + k]
                        : src[k * outputs + first + l];
        for (size_t l = lanes; l < 16; l++)
            dst[l] = 0;
    }
}

#define PACK_LINES ((size_t)256) /* lines of depth that are rounded at once */

/* Packs n lines of depth, from line k0 on, of a panel as floats. */
static void pack_lines(const xray_weight *w, int nt, size_t first, size_t lanes,
                       size_t k0, size_t n, float *dst)
{
    size_t depth = nt ? w->cols : w->rows;
    size_t outputs = nt ? w->rows : w->cols;
    const float *wide = w->data;
    const uint16_t *half = w->data;
    if (w->dtype == XRAY_F32 && nt) {
        cpu_transpose16(dst, wide + first * depth + k0, depth, lanes, n);
        return;
    }
    for (size_t k = k0; k < k0 + n; k++, dst += 16) {
        memset(dst, 0, 16 * sizeof(float));
        if (w->dtype == XRAY_F32) {
            memcpy(dst, wide + k * outputs + first, lanes * sizeof(float));
            continue;
        }
        for (size_t l = 0; l < lanes; l++)
            dst[l] = cpu_from_f16(
                half[nt ? (first + l) * depth + k : k * outputs + first + l]);
    }
}

/* Packs panel `p` of the columns of W^T, whose outputs are rows of W, or of W.
 */
static void pack_panel(const xray_weight *w, uint32_t kind, size_t p)
{
    int nt = kind == XRAY_NT;
    size_t depth = nt ? w->cols : w->rows;
    size_t outputs = nt ? w->rows : w->cols;
    size_t first = p * 16;
    size_t lanes = outputs - first < 16 ? outputs - first : 16;
    void *panels = w->panels[kind - XRAY_NT].data;
    if (w->dtype == XRAY_BF16) {
        pack_bf16(w, nt, first, lanes, depth);
    } else if (!w->narrow) {
        pack_lines(w, nt, first, lanes, 0, depth,
                   (float *)panels + first * depth);
    } else {
        float some[PACK_LINES * 16];
        uint16_t *dst = (uint16_t *)panels + first * depth;
        for (size_t k = 0, n; k < depth; k += n) {
            n = depth - k < PACK_LINES ? depth - k : PACK_LINES;
            pack_lines(w, nt, first, lanes, k, n, some);
            w->device->k->narrow(dst + k * 16, some, n * 16);
        }
    }
}

typedef struct pack_job {
    const xray_weight *weight;
    uint32_t kind;
} pack_job;

static void pack_panels_range(void *ctx, size_t first, size_t last)
{
    const pack_job *job = ctx;
    for (size_t p = first; p < last; p++)
        pack_panel(job->weight, job->kind, p);
}

static size_t panel_count(uint64_t outputs)
{
    return (size_t)((outputs + 15) / 16);
}

/* ---- weight handles ----------------------------------------------------- */

#define ALL_USES (XRAY_USE_NT | XRAY_USE_NN | XRAY_USE_TN)

static xray_status refuse_weight(cpu_device *d, const xray_weight_desc *desc)
{
    if (desc->rows == 0 || desc->cols == 0 || desc->rows > INT32_MAX ||
        desc->cols > INT32_MAX)
        return cpu_fail(d, XRAY_E_RANGE, "weight_create",
                        "a matrix of %llu x %llu is empty or too large",
                        (unsigned long long)desc->rows,
                        (unsigned long long)desc->cols);
    if (desc->dtype < XRAY_F32 || desc->dtype > XRAY_F16)
        return cpu_fail(d, XRAY_E_UNSUPPORTED, "weight_create",
                        "element type %u is not supported", desc->dtype);
    if (desc->product_dtype && desc->product_dtype != XRAY_BF16)
        return cpu_fail(d, XRAY_E_UNSUPPORTED, "weight_create",
                        "product_dtype is %u, but must be 0 or XRAY_BF16 (%u)",
                        desc->product_dtype, XRAY_BF16);
    if (!desc->uses || desc->uses & ~ALL_USES)
        return cpu_fail(d, XRAY_E_ARG, "weight_create",
                        "uses is 0x%x, which is not a set of XRAY_USE_*",
                        desc->uses);
    return XRAY_OK;
}

/* Panel set k, 0 for XRAY_NT and 1 for XRAY_NN, is kept for use 1 << k. */
static int keeps_panels(uint32_t uses, uint32_t k)
{
    return (int)(uses >> k & 1u);
}

static uint32_t has_narrow_panels(const xray_weight_desc *desc)
{
    return desc->dtype == XRAY_BF16 || desc->product_dtype == XRAY_BF16;
}

/* The bytes of panel set k. */
static uint64_t panel_bytes(const xray_weight_desc *desc, uint32_t k)
{
    uint64_t outputs = k ? desc->cols : desc->rows;
    uint64_t depth = k ? desc->rows : desc->cols;
    return panel_count(outputs) * 16 * depth *
           (has_narrow_panels(desc) ? sizeof(uint16_t) : sizeof(float));
}

uint64_t cpu_plan_weight(const void *config, const xray_weight_desc *desc)
{
    uint64_t bytes = 0;
    (void)config;
    if (!desc || desc->header.size < sizeof(*desc) ||
        refuse_weight(NULL, desc) != XRAY_OK)
        return 0;
    for (uint32_t k = 0; k < 2; k++)
        bytes += keeps_panels(desc->uses, k) ? panel_bytes(desc, k) : 0;
    return bytes;
}

/* Allocates the panel sets of `uses`. On failure none is left. */
static int alloc_panels(cpu_device *d, xray_weight *w, uint32_t uses)
{
    const xray_weight_desc desc = { .rows = w->rows,
                                    .cols = w->cols,
                                    .product_dtype =
                                        w->narrow ? XRAY_BF16 : 0 };
    int complete = 1;
    for (uint32_t k = 0; k < 2; k++) {
        if (!keeps_panels(uses, k))
            continue;
        w->panels[k].data =
            cpu_alloc(d, XRAY_TAG_WEIGHTS, panel_bytes(&desc, k));
        w->panels[k].stale = 1;
        complete = complete && w->panels[k].data;
    }
    for (uint32_t k = 0; !complete && k < 2; k++)
        if (keeps_panels(uses, k)) {
            cpu_free(d, w->panels[k].data);
            w->panels[k].data = NULL;
        }
    return complete;
}

xray_status cpu_weight_create(void *self, const xray_weight_desc *desc,
                              xray_weight **out)
{
    cpu_device *d = self;
    CPU_CHECK(d, desc, "weight_create", desc->data, out);
    xray_status status = refuse_weight(d, desc);
    if (status != XRAY_OK)
        return status;
    xray_weight *w = calloc(1, sizeof(*w));
    cpu_panels *panels = calloc(2, sizeof(*panels));
    if (w)
        *w = (xray_weight){ .device = d,
                            .data = desc->data,
                            .rows = desc->rows,
                            .cols = desc->cols,
                            .dtype = desc->dtype,
                            .uses = desc->uses,
                            .panels = panels,
                            .narrow = has_narrow_panels(desc) };
    if (!w || !panels || !alloc_panels(d, w, w->uses)) {
        free(panels);
        free(w);
        return cpu_fail(d, XRAY_E_NOMEM, "weight_create",
                        "no memory to pack a matrix of %llu x %llu",
                        (unsigned long long)desc->rows,
                        (unsigned long long)desc->cols);
    }
    *out = w;
    return XRAY_OK;
}

void cpu_weight_destroy(void *self, xray_weight *weight)
{
    if (!weight)
        return;
    cpu_free(self, weight->panels[0].data);
    cpu_free(self, weight->panels[1].data);
    free(weight->panels);
    free(weight);
}

static xray_status restore_panels(cpu_device *d, xray_weight *w)
{
    if (!alloc_panels(d, w, w->evicted))
        return cpu_fail(d, XRAY_E_NOMEM, "weight_changed",
                        "no memory to pack a matrix of %llu x %llu again",
                        (unsigned long long)w->rows,
                        (unsigned long long)w->cols);
    w->evicted = 0;
    return XRAY_OK;
}

xray_status cpu_weight_changed(void *self, xray_weight *weight)
{
    if (!weight)
        return cpu_fail(self, XRAY_E_ARG, "weight_changed", "weight is NULL");
    weight->panels[0].stale = 1;
    weight->panels[1].stale = 1;
    return weight->evicted ? restore_panels(self, weight) : XRAY_OK;
}

xray_status cpu_weight_evict(void *self, xray_weight *weight)
{
    if (!weight)
        return cpu_fail(self, XRAY_E_ARG, "weight_evict", "weight is NULL");
    for (uint32_t k = 0; k < 2; k++) {
        cpu_panels *panels = &weight->panels[k];
        if (!panels->data)
            continue;
        cpu_free(self, panels->data);
        panels->data = NULL;
        weight->evicted |= 1u << k;
    }
    return XRAY_OK;
}

xray_status cpu_weight_panels(cpu_device *d, const char *where,
                              const xray_weight *w, uint32_t kind,
                              const void **out)
{
    uint32_t k = kind - XRAY_NT;
    cpu_panels *panels = &w->panels[k];
    if (!keeps_panels(w->uses, k))
        return cpu_fail(
            d, XRAY_E_STATE, where, "%s needs a weight with %s among its uses",
            k ? "XRAY_NN" : "XRAY_NT", k ? "XRAY_USE_NN" : "XRAY_USE_NT");
    if (!panels->data)
        return cpu_fail(d, XRAY_E_STATE, where,
                        "the weight was evicted; call weight_changed");
    *out = panels->data;
    if (!panels->stale)
        return XRAY_OK;
    pack_job job = { w, kind };
    size_t outputs = k ? w->cols : w->rows;
    size_t depth = k ? w->rows : w->cols;
    cpu_ranges(d, panel_count(outputs), 1, 8.0 * (double)depth,
               pack_panels_range, &job);
    panels->stale = 0;
    return XRAY_OK;
}
