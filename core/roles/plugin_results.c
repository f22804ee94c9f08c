/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks sizes, tables and samples that plugins return.
 */
#include "core/roles/plugin_results.h"

#include <math.h>
#include <string.h>

#include <xray/box.h>

#include "core/roles/nonfinite.h"

#define TENSORS_MOST (1u << 20)

/* ---- bytes and names ---------------------------------------------------- */

xray_status xr_check_wanted_size(const xr_part *part, const char *call,
                                 uint64_t size, xr_err *err)
{
    if (size <= XR_BLOB_MOST)
        return XRAY_OK;
    return xr_fail(err, XRAY_E_BUG,
                   "%s: %s asks for %llu bytes, at most %llu are allowed",
                   part->instance, call, (unsigned long long)size,
                   (unsigned long long)XR_BLOB_MOST);
}

xray_status xr_check_written_size(const xr_part *part, const char *call,
                                  uint64_t size, uint64_t cap, xr_err *err)
{
    if (size <= cap)
        return XRAY_OK;
    return xr_fail(err, XRAY_E_BUG,
                   "%s: %s says that it wrote %llu bytes where %llu fit",
                   part->instance, call, (unsigned long long)size,
                   (unsigned long long)cap);
}

xray_status xr_check_metric_names(const xr_part *part, const char *const *names,
                                  xr_err *err, uint64_t *out_count)
{
    uint64_t count = 0;
    while (names && names[count] && count <= XR_NAMES_MOST)
        count++;
    if (!names)
        return xr_fail(err, XRAY_E_BUG, "%s: metric_names gave no list",
                       part->instance);
    if (count > XR_NAMES_MOST)
        return xr_fail(err, XRAY_E_BUG,
                       "%s: metric_names gave a list without an end within %u "
                       "names",
                       part->instance, XR_NAMES_MOST);
    *out_count = count;
    return XRAY_OK;
}

xray_status xr_check_needs(const xr_part *part, uint32_t flags, xr_err *err)
{
    const uint32_t known = XRAY_NEED_CRITIC | XRAY_NEED_REFERENCE |
                           XRAY_NEED_GREEDY | XRAY_NEED_GROUPS |
                           XRAY_NEED_MINI_FORWARD | XRAY_NEED_ENTROPY |
                           XRAY_NEED_VALUE_HEAD;
    const xray_algo_ops *ops = (const xray_algo_ops *)part->ops;
    if (flags & ~known)
        return xr_fail(err, XRAY_E_ABI,
                       "%s: needs has the bits 0x%x, which this xray does not "
                       "know",
                       part->instance, flags & ~known);
    if (flags & XRAY_NEED_MINI_FORWARD && !XRAY_HAS(xray_algo_ops, ops, select))
        return xr_fail(err, XRAY_E_ABI,
                       "%s: needs XRAY_NEED_MINI_FORWARD, and has no select "
                       "that would read it",
                       part->instance);
    return XRAY_OK;
}

/* ---- weights ------------------------------------------------------------ */

/* Returns 1 if all elements of the tensor can be numbered in bytes. */
static int has_countable_shape(const xray_tensor *t)
{
    uint64_t count = 1;
    for (uint32_t d = 0; d < t->dims; d++)
        if (__builtin_mul_overflow(count, t->shape[d], &count) ||
            count > UINT64_MAX / sizeof(float))
            return 0;
    return 1;
}

static int is_box_inside(const xray_tensor *t)
{
    for (uint32_t d = 0; d < t->dims; d++)
        if (t->lo[d] > t->shape[d] || t->extent[d] > t->shape[d] - t->lo[d])
            return 0;
    return 1;
}

/* Returns the fault of the strides of a box that is not empty, or NULL. */
static const char *find_stride_fault(const xray_tensor *t)
{
    uint64_t reach = 1;
    for (uint32_t d = t->dims; d-- > 0;) {
        uint64_t more = 0;
        if (t->extent[d] <= 1)
            continue;
        if (d == t->dims - 1 && t->stride[d] != 1)
            return "the stride of its last axis is not 1";
        if (t->stride[d] < reach)
            return "a stride is shorter than what it steps over";
        if (__builtin_mul_overflow(t->extent[d] - 1, t->stride[d], &more) ||
            __builtin_add_overflow(reach, more, &reach) ||
            reach > UINT64_MAX / sizeof(float))
            return "its strides reach further than can be";
    }
    return NULL;
}

/* Returns the fault of a box by itself, or NULL. */
static const char *find_box_fault(const xray_tensor *t)
{
    if (!t->name || !*t->name)
        return "it has no name";
    if (t->dims > sizeof(t->shape) / sizeof(t->shape[0]))
        return "it has more dimensions than its shape holds";
    if (!has_countable_shape(t))
        return "its shape has more elements than can be";
    if (!is_box_inside(t))
        return "its box reaches outside of its shape";
    if (!xray_box_count(t))
        return NULL;
    return t->data ? find_stride_fault(t) : "it has elements and no data";
}

static const xray_tensor *tensor_at(const xray_weights *table, uint32_t i)
{
    const unsigned char *base = (const unsigned char *)table->tensors;
    return (const xray_tensor *)(const void *)(base + (size_t)i *
                                                          table->tensor_stride);
}

/* Returns the fault of box `i` beside those of the same tensor before it, or
 * NULL. */
static const char *find_overlap(const xray_weights *table, uint32_t i)
{
    const xray_tensor *t = tensor_at(table, i);
    for (uint32_t k = i; k-- > 0;) {
        const xray_tensor *before = tensor_at(table, k);
        xray_tensor both;
        if (strcmp(before->name, t->name) != 0)
            break;
        if (before->dtype != t->dtype || before->dims != t->dims ||
            memcmp(before->shape, t->shape, t->dims * sizeof(t->shape[0])) != 0)
            return "its type or shape is not that of its box before";
        if (xray_box_cut(t, before, &both))
            return "it has elements that a box before it has, too";
    }
    return NULL;
}

xray_status xr_check_weights_table(const xr_part *part,
                                   const xray_weights *table, xr_err *err)
{
    if (!table)
        return xr_fail(err, XRAY_E_BUG, "%s gave no table of weights",
                       part->instance);
    if (!XRAY_REACHES(xray_weights, table, release) || !table->version ||
        !table->device)
        return xr_fail(
            err, XRAY_E_BUG,
            "%s gave a table of weights without header, device or version",
            part->instance);
    if (table->tensor_count > TENSORS_MOST ||
        (table->tensor_count &&
         (!table->tensors || table->tensor_stride < sizeof(xray_tensor) ||
          table->tensor_stride % 8)))
        return xr_fail(err, XRAY_E_BUG,
                       "%s gave a table of %u tensors of %u bytes, up to %u of "
                       "at least %zu are expected",
                       part->instance, table->tensor_count,
                       table->tensor_stride, TENSORS_MOST, sizeof(xray_tensor));
    for (uint32_t i = 0; i < table->tensor_count; i++) {
        const xray_tensor *t = tensor_at(table, i);
        const char *fault = find_box_fault(t);
        if (!fault)
            fault = find_overlap(table, i);
        if (fault)
            return xr_fail(err, XRAY_E_BUG,
                           "%s gave a table of weights whose tensor %u (%s) is "
                           "wrong: %s",
                           part->instance, i, t->name ? t->name : "", fault);
    }
    return XRAY_OK;
}

/* ---- samples ------------------------------------------------------------ */

static xray_status fail_finish(const xr_roles *roles,
                               const xray_sample_out *sample, uint64_t at,
                               xr_err *err)
{
    return xr_fail(
        err, XRAY_E_BUG,
        "%s gave sample %llu with finish %u, which is not a known reason",
        roles->engine.part->instance, (unsigned long long)at, sample->finish);
}

xray_status xr_check_sample_part(xr_roles *roles, const xray_sample_out *sample,
                                 const float *logp, uint64_t at, uint32_t given,
                                 uint32_t most, xr_err *err)
{
    const char *who = roles->engine.part->instance;
    unsigned long long number = at;
    uint64_t count = (uint64_t)given + sample->token_count;
    if (sample->finish > XRAY_FINISH_REPEAT)
        return fail_finish(roles, sample, at, err);
    if (sample->first != given)
        return xr_fail(err, XRAY_E_BUG,
                       "%s gave sample %llu from token %u on, after %u tokens "
                       "of it",
                       who, number, sample->first, given);
    if (sample->finish == XRAY_FINISH_NONE && !sample->token_count)
        return xr_fail(err, XRAY_E_BUG,
                       "%s gave a part of sample %llu that has no token and is "
                       "not its end",
                       who, number);
    if (count > most)
        return xr_fail(err, XRAY_E_BUG,
                       "%s gave sample %llu with %llu tokens, at most %u were "
                       "asked for",
                       who, number, (unsigned long long)count, most);
    if (sample->token_count && (!sample->tokens || !logp))
        return xr_fail(err, XRAY_E_BUG,
                       "%s gave sample %llu without tokens or log-probs", who,
                       number);
    if (sample->span_count && !sample->spans)
        return xr_fail(err, XRAY_E_BUG,
                       "%s gave sample %llu with %u spans, but no array of "
                       "them",
                       who, number, sample->span_count);
    if (sample->span_count > sample->token_count + 1)
        return xr_fail(err, XRAY_E_BUG,
                       "%s gave sample %llu with %u spans of %u tokens", who,
                       number, sample->span_count, sample->token_count);
    if (sample->span_count &&
        (sample->span_stride < sizeof(xray_span) || sample->span_stride % 8))
        return xr_fail(err, XRAY_E_BUG,
                       "%s gave sample %llu with spans of %u bytes, expected "
                       "at least %zu",
                       who, number, sample->span_stride, sizeof(xray_span));
    for (uint32_t t = 0; t < sample->token_count; t++)
        if (sample->tokens[t] < 0 ||
            (uint32_t)sample->tokens[t] >= roles->run->actor.model.vocab_size)
            return xr_fail(err, XRAY_E_BUG,
                           "%s gave the id %d for token %u of sample %llu, "
                           "which is outside the vocabulary of %u",
                           who, (int)sample->tokens[t], t, number,
                           roles->run->actor.model.vocab_size);
    for (uint32_t t = 0; t < sample->token_count; t++)
        if (!isfinite(logp[t]))
            return xr_nonfinite(roles, err,
                                "%s gave the log-prob %g for token %u of "
                                "sample %llu, expected a finite number",
                                who, (double)logp[t], t, number);
    return XRAY_OK;
}

xray_status xr_check_sample(xr_roles *roles, const xray_sample_out *sample,
                            const float *logp, uint64_t at, uint32_t most,
                            xr_err *err)
{
    return sample->finish == XRAY_FINISH_NONE
               ? fail_finish(roles, sample, at, err)
               : xr_check_sample_part(roles, sample, logp, at, 0, most, err);
}
