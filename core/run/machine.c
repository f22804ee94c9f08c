/* SPDX-License-Identifier: Apache-2.0
 *
 * Known machines, and the text that names one.
 */
#include "core/run/machine.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* Peaks are of NVIDIA's data sheets of the H100 SXM and H200 SXM: dense
 * bfloat16, float32 without tensor cores, NVLink 4 with 900 GB/s both ways, and
 * of DGX systems: eight devices and a ConnectX-7 of 400 Gb/s for each. On an
 * H200 cuBLASLt reached 600 TFLOP/s and copies 4.3 TB/s; FlashAttention-3
 * reaches 430 to 620 TFLOP/s forward and about 400 backward. Latencies and the
 * share of the links are assumed. */
#define HOPPER(NAME, MEMORY, CAPACITY)                                       \
    {                                                                        \
        .name = NAME, .flops = 989e12, .flops32 = 67e12, .memory = (MEMORY), \
        .capacity = (CAPACITY), .node = 8, .link = 450e9, .network = 50e9,   \
        .host = 64e9, .link_latency = 3e-6, .network_latency = 15e-6,        \
        .launch = 2e-6, .update = 1e-3, .product_share = 0.6,                \
        .attention_share = 0.45, .memory_share = 0.9, .link_share = 0.8      \
    }
static const xr_machine known[] = { HOPPER("h100", 3.35e12, 80e9),
                                    HOPPER("h200", 4.8e12, 141e9) };
#define KNOWN (sizeof(known) / sizeof(known[0]))

typedef struct figure {
    const char *name;
    size_t offset;
    int may_be_zero;
    double most;
} figure;

#define FIGURE(NAME, LEAST, MOST)                          \
    {                                                      \
#NAME, offsetof(xr_machine, NAME), (LEAST), (MOST) \
    }
static const figure figures[] = {
    FIGURE(flops, 0, HUGE_VAL),        FIGURE(flops32, 0, HUGE_VAL),
    FIGURE(memory, 0, HUGE_VAL),       FIGURE(capacity, 0, HUGE_VAL),
    FIGURE(node, 0, HUGE_VAL),         FIGURE(link, 0, HUGE_VAL),
    FIGURE(network, 0, HUGE_VAL),      FIGURE(host, 0, HUGE_VAL),
    FIGURE(link_latency, 1, HUGE_VAL), FIGURE(network_latency, 1, HUGE_VAL),
    FIGURE(launch, 1, HUGE_VAL),       FIGURE(update, 1, HUGE_VAL),
    FIGURE(product_share, 0, 1),       FIGURE(attention_share, 0, 1),
    FIGURE(memory_share, 0, 1),        FIGURE(link_share, 0, 1),
};
#define FIGURES (sizeof(figures) / sizeof(figures[0]))

static double *find_place(xr_machine *machine, const figure *f)
{
    return (double *)(void *)((char *)machine + f->offset);
}

static const figure *find_figure(const char *name, size_t size)
{
    for (size_t i = 0; i < FIGURES; i++)
        if (strlen(figures[i].name) == size &&
            strncmp(figures[i].name, name, size) == 0)
            return &figures[i];
    return NULL;
}

static const xr_machine *find_machine(const char *name, size_t size)
{
    for (size_t i = 0; i < KNOWN; i++)
        if (strlen(known[i].name) == size &&
            strncmp(known[i].name, name, size) == 0)
            return &known[i];
    return NULL;
}

static xray_status refuse_word(const char *word, size_t size, xr_err *err)
{
    xr_str names = { 0 };
    for (size_t i = 0; i < KNOWN; i++)
        xr_str_printf(&names, "%s%s", i ? ", " : "", known[i].name);
    xr_str_puts(&names, ", or figure=value with one of");
    for (size_t i = 0; i < FIGURES; i++)
        xr_str_printf(&names, "%s %s", i ? "," : "", figures[i].name);
    xray_status status = xr_fail(err, XRAY_E_CONFIG,
                                 "machine \"%.*s\" is not known, expected %s",
                                 (int)size, word, xr_str_text(&names));
    xr_str_free(&names);
    return status;
}

/* Reads "network=25e9". */
static xray_status read_figure(const char *word, size_t size, xr_err *err,
                               xr_machine *out)
{
    const char *equals = memchr(word, '=', size);
    const figure *f =
        equals ? find_figure(word, (size_t)(equals - word)) : NULL;
    char text[64];
    double value = 0;
    if (!f)
        return refuse_word(word, size, err);
    (void)snprintf(text, sizeof(text), "%.*s",
                   (int)(size - (size_t)(equals + 1 - word)), equals + 1);
    if (xr_parse_real(text, &value) != 0 || isinf(value) || value > f->most ||
        value < 0 || (value == 0 && !f->may_be_zero))
        return xr_fail(err, XRAY_E_CONFIG,
                       "machine: \"%.*s\": expected a number %s%s", (int)size,
                       word, f->may_be_zero ? "of at least 0" : "above 0",
                       f->most <= 1 ? " and at most 1" : "");
    *find_place(out, f) = value;
    return XRAY_OK;
}

xray_status xr_machine_read(const char *text, xr_err *err, xr_machine *out)
{
    *out = (xr_machine){ .node = HUGE_VAL,
                         .product_share = 1,
                         .attention_share = 1,
                         .memory_share = 1,
                         .link_share = 1 };
    for (const char *word = text; word;) {
        size_t size = strcspn(word, ",");
        const xr_machine *machine =
            word == text ? find_machine(word, size) : NULL;
        if (machine)
            *out = *machine;
        xray_status status =
            machine ? XRAY_OK : read_figure(word, size, err, out);
        if (status != XRAY_OK)
            return status;
        word = word[size] ? word + size + 1 : NULL;
    }
    if ((out->flops == 0 && out->flops32 == 0) || out->memory == 0)
        return xr_fail(err, XRAY_E_CONFIG,
                       "machine \"%s\" has no rate, expected flops or flops32, "
                       "and memory",
                       text);
    if (out->link == 0)
        out->link = out->memory;
    if (out->network == 0)
        out->network = out->link;
    if (out->host == 0)
        out->host = out->memory;
    return XRAY_OK;
}

void xr_machine_text(const xr_machine *machine, xr_str *out)
{
    xr_machine copy = *machine;
    const char *comma = "";
    if (*machine->name) {
        xr_str_puts(out, machine->name);
        comma = ", ";
    }
    for (size_t i = 0; i < FIGURES; i++) {
        double value = *find_place(&copy, &figures[i]);
        if (value == 0 || isinf(value))
            continue;
        xr_str_printf(out, "%s%s %g", comma, figures[i].name, value);
        comma = ", ";
    }
}
