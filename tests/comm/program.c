/* SPDX-License-Identifier: Apache-2.0
 *
 * Draws programs of calls and computes their results. It shares no code with
 * any comm.
 */
#include "tests/comm/program.h"

#include "tests/comm/pairs.h"

#include <math.h>

#include <xray/numerics.h>

/* ---- drawing ------------------------------------------------------------ */

typedef struct dice {
    uint64_t seed;
    uint64_t thrown;
} dice;

static uint32_t throw_dice(dice *d, uint32_t faces)
{
    return (uint32_t)(xray_mix64(d->seed, d->thrown++) >> 33) % faces;
}

static void draw_groups(program *p, dice *d)
{
    for (uint32_t g = 0; g < p->group_count; g++) {
        uint32_t members = 0;
        while (!members)
            members = g < 2 ? 255 : throw_dice(d, 256) & ((1u << p->size) - 1);
        for (uint32_t r = 0; r < p->size; r++)
            if (members >> r & 1)
                p->ranks[g][p->sizes[g]++] = r;
    }
}

/* Sizes at which a comm does something else: pieces, staging, what goes the
 * short way, rings. */
static uint64_t draw_bytes(dice *d, uint32_t brief)
{
    static const uint32_t edges[] = { 0x8000,  0x1000,   0x18000, 0x20000,
                                      0x80000, 0x100000, 0x400000 };
    uint32_t kind = throw_dice(d, 100);
    if (kind < 6)
        return 0;
    if (kind < 60)
        return 1 + throw_dice(d, kind < 25 ? 64 : 5000);
    uint32_t most = kind < 80 ? 2 : kind < (brief ? 99 : 93) ? 4 : 6;
    uint32_t edge = edges[throw_dice(d, most + (brief == 0))];
    return (uint64_t)edge * (1 + throw_dice(d, 2)) + throw_dice(d, 9) * 4 - 16;
}

static uint32_t draw_other(dice *d, uint32_t count, uint32_t than)
{
    uint32_t r = throw_dice(d, count - 1);
    return r + (r >= than);
}

uint64_t program_width(uint32_t dtype)
{
    return dtype == XRAY_F32 ? 4 : 2;
}

static uint64_t count_parts(uint32_t call, uint32_t size)
{
    return call == XRAY_COMM_ALL_GATHER || call == XRAY_COMM_REDUCE_SCATTER ||
                   call == XRAY_COMM_ALL_TO_ALL
               ? size
               : 1;
}

program_step program_draw_step(const program *p, uint64_t seed, uint32_t group,
                               uint32_t brief)
{
    static const uint32_t calls[] = {
        XRAY_COMM_ALL_REDUCE,     XRAY_COMM_ALL_REDUCE_MAX,
        XRAY_COMM_REDUCE_SCATTER, XRAY_COMM_ALL_GATHER,
        XRAY_COMM_BROADCAST,      XRAY_COMM_ALL_TO_ALL,
        XRAY_COMM_SEND,           XRAY_COMM_EXCHANGE,
        XRAY_COMM_EXCHANGE
    };
    dice d = { .seed = seed };
    uint32_t n = p->sizes[group];
    program_step s = { .group = group, .seed = seed, .alone = NOBODY };
    s.call = calls[throw_dice(&d, n > 1 ? 9 : 6)];
    s.root = throw_dice(&d, n);
    s.special = throw_dice(&d, 4) == 0;
    s.in_place = throw_dice(&d, 3) == 0;
    s.last = throw_dice(&d, 2);
    s.stream = throw_dice(&d, PROGRAM_STREAMS);
    s.dtype = throw_dice(&d, 2) ? XRAY_F32 : XRAY_BF16;
    if (s.call == XRAY_COMM_ALL_GATHER || s.call == XRAY_COMM_ALL_TO_ALL)
        s.dtype = 1 + throw_dice(&d, 3);
    s.count = draw_bytes(&d, brief);
    if (s.call == XRAY_COMM_SEND)
        s.peer = draw_other(&d, n, s.root);
    if (s.call == XRAY_COMM_EXCHANGE) {
        s.pair = throw_dice(&d, 3) == 0;
        s.peer = s.pair ? draw_other(&d, n, s.root) : 1 + throw_dice(&d, n - 1);
        s.alone = throw_dice(&d, 3) ? NOBODY : s.root;
    }
    if (s.call == XRAY_COMM_BROADCAST || program_is_message(&s))
        return s;
    s.count /= program_width(s.dtype);
    if (s.count > 5000)
        s.count /= count_parts(s.call, n);
    return s;
}

void program_draw(program *p, uint64_t seed, uint32_t size, uint32_t brief)
{
    dice d = { .seed = xray_mix64(seed, 77) };
    memset(p, 0, sizeof(*p));
    p->size = size;
    p->group_count = 2 + throw_dice(&d, PROGRAM_GROUPS - 1);
    p->step_count = PROGRAM_STEPS;
    draw_groups(p, &d);
    for (uint32_t i = 0; i < p->step_count; i++)
        p->steps[i] = program_draw_step(p, xray_mix64(seed, 1000 + i),
                                        throw_dice(&d, p->group_count), brief);
}

uint32_t program_twin(program *p, uint32_t group)
{
    uint32_t twin = p->group_count++;
    p->sizes[twin] = p->sizes[group];
    memcpy(p->ranks[twin], p->ranks[group], sizeof(p->ranks[group]));
    return twin;
}

/* ---- who does what ------------------------------------------------------ */

int program_is_message(const program_step *s)
{
    return s->call == XRAY_COMM_SEND || s->call == XRAY_COMM_RECV ||
           s->call == XRAY_COMM_EXCHANGE;
}

uint32_t program_index(const program *p, const program_step *s, uint32_t rank)
{
    int two = s->pair || s->call == XRAY_COMM_SEND;
    for (uint32_t i = 0; i < p->sizes[s->group]; i++)
        if (p->ranks[s->group][i] == rank)
            return !two || i == s->root || i == s->peer ? i : NOBODY;
    return NOBODY;
}

uint32_t program_to(const program *p, const program_step *s, uint32_t index)
{
    if (s->pair || s->call == XRAY_COMM_SEND)
        return index == s->root ? s->peer : s->root;
    return (index + s->peer) % p->sizes[s->group];
}

uint32_t program_from(const program *p, const program_step *s, uint32_t index)
{
    uint32_t n = p->sizes[s->group];
    if (s->pair || s->call == XRAY_COMM_SEND)
        return program_to(p, s, index);
    return (index + n - s->peer) % n;
}

uint64_t program_sent(const program_step *s, uint32_t index)
{
    if (s->call == XRAY_COMM_SEND)
        return s->count;
    if (!s->count || xray_mix64(s->seed, index) % 8 == 0)
        return 0;
    return s->count + 37u * (uint64_t)index;
}

uint64_t program_in_bytes(const program *p, const program_step *s,
                          uint32_t index)
{
    uint64_t bytes = s->count * program_width(s->dtype);
    switch (s->call) {
    case XRAY_COMM_SEND:
        return index == s->root ? s->count : 0;
    case XRAY_COMM_EXCHANGE:
        return program_sent(s, index);
    case XRAY_COMM_ALL_GATHER:
        return bytes;
    case XRAY_COMM_REDUCE_SCATTER:
    case XRAY_COMM_ALL_TO_ALL:
        return bytes * p->sizes[s->group];
    default:
        return 0;
    }
}

uint64_t program_out_bytes(const program *p, const program_step *s,
                           uint32_t index)
{
    uint64_t bytes = s->count * program_width(s->dtype);
    switch (s->call) {
    case XRAY_COMM_SEND:
        return index == s->root ? 0 : s->count;
    case XRAY_COMM_EXCHANGE:
        return program_sent(s, program_from(p, s, index));
    case XRAY_COMM_BROADCAST:
        return s->count;
    case XRAY_COMM_ALL_GATHER:
    case XRAY_COMM_ALL_TO_ALL:
        return bytes * p->sizes[s->group];
    default:
        return bytes;
    }
}

/* ---- values ------------------------------------------------------------- */

static int adds_up(const program_step *s)
{
    return s->call == XRAY_COMM_ALL_REDUCE ||
           s->call == XRAY_COMM_ALL_REDUCE_MAX ||
           s->call == XRAY_COMM_REDUCE_SCATTER;
}

/* Element i of a member: finite numbers of many magnitudes, so that the order
 * of a sum shows, and now and then what has rules of its own. */
REFERENCE static float draw_value(const program_step *s, uint32_t index,
                                  uint64_t i)
{
    static const uint32_t odd[8] = { 0x7f800000u, 0xff800000u, 0x7fc10000u,
                                     0x80000000u, 0x00010000u, 0x00000000u,
                                     0x7f7f0000u, 0xff7f0000u };
    uint64_t h = xray_mix64(s->seed + index, i);
    uint32_t word = ((uint32_t)h & 0x8fffffffu) | 0x38000000u;
    float v;
    if (s->special && (h >> 32) % 5 == 0)
        word = odd[(h >> 40) % 8];
    if (s->dtype == XRAY_BF16)
        word &= 0xffff0000u;
    memcpy(&v, &word, sizeof(v));
    return v;
}

REFERENCE static void put_value(char *to, uint64_t i, uint32_t dtype, float v)
{
    uint32_t word;
    uint16_t half;
    memcpy(&word, &v, sizeof(word));
    if (dtype == XRAY_F32) {
        memcpy(to + 4 * i, &word, 4);
        return;
    }
    if (!isnan(v))
        word += 0x7fffu + (word >> 16 & 1u);
    half = (uint16_t)(word >> 16);
    memcpy(to + 2 * i, &half, 2);
}

REFERENCE_OF_THREADS static float get_value(const char *from, uint64_t i,
                                            uint32_t dtype)
{
    uint32_t word = 0;
    uint16_t half;
    float v;
    if (dtype == XRAY_F32) {
        memcpy(&word, from + 4 * i, 4);
    } else {
        memcpy(&half, from + 2 * i, 2);
        word = (uint32_t)half << 16;
    }
    memcpy(&v, &word, sizeof(v));
    return v;
}

/* Bytes of a member that are only copied, from byte `first` of its own on. */
REFERENCE static void draw_bytes_of(const program_step *s, uint32_t index,
                                    uint64_t first, uint64_t bytes, char *to)
{
    for (uint64_t i = first; i < first + bytes;) {
        uint64_t word = xray_mix64(s->seed + 16 + index, i / 8) >> i % 8 * 8;
        for (; i < first + bytes; word >>= 8) {
            *to++ = (char)word;
            if (++i % 8 == 0)
                break;
        }
    }
}

REFERENCE uint64_t program_fill(const program *p, const program_step *s,
                                uint32_t index, char *to)
{
    uint64_t bytes = program_in_bytes(p, s, index);
    if (s->call == XRAY_COMM_BROADCAST)
        bytes = s->count;
    if (!adds_up(s)) {
        draw_bytes_of(s, index, 0, bytes, to);
        return bytes;
    }
    uint64_t count = s->count * count_parts(s->call, p->sizes[s->group]);
    for (uint64_t i = 0; i < count; i++)
        put_value(to, i, s->dtype, draw_value(s, index, i));
    return count * program_width(s->dtype);
}

REFERENCE static float find_largest(const float *v, uint32_t count)
{
    float most = NAN;
    for (uint32_t r = 0; r < count; r++)
        if (!isnan(v[r]) && !(v[r] <= most))
            most = v[r];
    return most;
}

REFERENCE static void expect_sums(const program *p, const program_step *s,
                                  uint32_t index, char *to)
{
    uint32_t n = p->sizes[s->group];
    uint64_t first = s->call == XRAY_COMM_REDUCE_SCATTER ? s->count * index : 0;
    for (uint64_t i = 0; i < s->count; i++) {
        float v[MOST_RANKS];
        for (uint32_t r = 0; r < n; r++)
            v[r] = draw_value(s, r, first + i);
        put_value(to, i, s->dtype,
                  s->call == XRAY_COMM_ALL_REDUCE_MAX ? find_largest(v, n)
                                                      : add_in_pairs(v, n));
    }
}

void program_expect(const program *p, const program_step *s, uint32_t index,
                    char *to)
{
    uint64_t bytes = s->count * program_width(s->dtype);
    uint64_t own = program_out_bytes(p, s, index);
    switch (s->call) {
    case XRAY_COMM_BROADCAST:
        draw_bytes_of(s, s->root, 0, own, to);
        return;
    case XRAY_COMM_SEND:
    case XRAY_COMM_EXCHANGE:
        draw_bytes_of(s, program_from(p, s, index), 0, own, to);
        return;
    case XRAY_COMM_ALL_GATHER:
    case XRAY_COMM_ALL_TO_ALL:
        for (uint32_t r = 0; r < p->sizes[s->group]; r++)
            draw_bytes_of(s, r,
                          s->call == XRAY_COMM_ALL_TO_ALL ? index * bytes : 0,
                          bytes, to + r * bytes);
        return;
    default:
        expect_sums(p, s, index, to);
    }
}

REFERENCE_OF_THREADS int program_agrees(const program_step *s, const char *got,
                                        const char *want, uint64_t bytes)
{
    if (memcmp(got, want, bytes) == 0)
        return 1;
    for (uint64_t i = 0; adds_up(s) && i < s->count; i++) {
        float a = get_value(got, i, s->dtype);
        float b = get_value(want, i, s->dtype);
        if (memcmp(&a, &b, sizeof(a)) != 0 && !(isnan(a) && isnan(b)) &&
            !(s->call == XRAY_COMM_ALL_REDUCE_MAX && a == 0 && b == 0))
            return 0;
    }
    return adds_up(s);
}

/* ---- words -------------------------------------------------------------- */

static const char *const names[] = {
    "",     "all_reduce", "reduce_scatter", "all_gather", "broadcast",
    "send", "recv",       "exchange",       "all_to_all", "all_reduce_max"
};

void program_record(const program *p, const program_step *s, uint32_t index,
                    uint32_t part, char *out, size_t cap)
{
    uint64_t bytes = s->count * program_width(s->dtype);
    uint32_t call = s->call;
    if (call == XRAY_COMM_SEND)
        part = index == s->root ? 1 : 2;
    if (call == XRAY_COMM_BROADCAST)
        bytes = s->count;
    if (part) {
        call = part == 1 ? XRAY_COMM_SEND : XRAY_COMM_RECV;
        bytes = part == 1 ? program_in_bytes(p, s, index)
                          : program_out_bytes(p, s, index);
    } else if (call == XRAY_COMM_EXCHANGE) {
        bytes = program_in_bytes(p, s, index) + program_out_bytes(p, s, index);
    }
    (void)snprintf(out, cap, "%s of %llu bytes", names[call],
                   (unsigned long long)bytes);
}

void program_describe(const program *p, const program_step *s, uint32_t index,
                      uint32_t part, char *out, size_t cap)
{
    const uint32_t *ranks = p->ranks[s->group];
    unsigned long long bytes = s->count * program_width(s->dtype);
    unsigned long long in = program_in_bytes(p, s, index);
    unsigned long long got = program_out_bytes(p, s, index);
    if (s->call == XRAY_COMM_BROADCAST) {
        (void)snprintf(out, cap, "broadcast of %llu bytes from rank %u", got,
                       ranks[s->root]);
    } else if (!program_is_message(s)) {
        (void)snprintf(out, cap, "%s of %llu bytes%s", names[s->call], bytes,
                       !adds_up(s)            ? ""
                       : s->dtype == XRAY_F32 ? " of f32"
                                              : " of bf16");
    } else {
        uint32_t to = ranks[program_to(p, s, index)];
        uint32_t from = ranks[program_from(p, s, index)];
        if (s->call == XRAY_COMM_SEND)
            part = index == s->root ? 1 : 2;
        if (part == 1)
            (void)snprintf(out, cap, "send of %llu bytes to rank %u", in, to);
        else if (part == 2)
            (void)snprintf(out, cap, "recv of %llu bytes from rank %u", got,
                           from);
        else
            (void)snprintf(out, cap,
                           "exchange of %llu bytes to rank %u and %llu bytes "
                           "from rank %u",
                           in, to, got, from);
    }
}
