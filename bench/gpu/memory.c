/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks the memory of device-cuda on a GPU: blocks, copies and checksums of
 * all sizes, eviction, refused allocations, streams and events, rows with
 * pitches, threads, and blocks shared between processes. Each check prints one
 * line, `name: held` with speeds or `name: FAILED: why`. The exit code is 0 if
 * all held, 1 if one failed and 77 if there is no GPU.
 *
 *     bench-gpu-memory plugins/device-cuda.so [MOST_BYTES]
 *
 * MOST_BYTES, such as 500M or 8G, limits the size of a block. It is 20 GB
 * unless given, and at most 0.8 of the GPU's free memory.
 */
#include "bench/gpu/memory.h"

#include <dlfcn.h>

#include "core/base/str.h"

_Thread_local char last_reason[600];

/* ---- blocks -------------------------------------------------------------- */

static int read_back(lab *l, const char *block, uint64_t bytes)
{
    uint64_t tail = bytes % PIECE ? bytes % PIECE : PIECE;
    uint64_t part = least_of(bytes, MIB + 5);
    int good = 1;
    l->since = read_clock();
    for (uint64_t at = 0; good && at < bytes; at += PIECE)
        good = CALL(l, copy, NULL, l->sink, block + at,
                    least_of(PIECE, bytes - at), XRAY_COPY_TO_HOST);
    good = timed(l, "out", bytes, good && CALL(l, sync, NULL)) &&
           require(l, memcmp(l->sink, l->source, least_of(bytes, tail)) == 0,
                   "the last piece differs from what was written");
    for (uint64_t i = 0; good && i <= 7; i++) {
        uint64_t at = (bytes - part) * i / 7;
        good = range_is(l, block + at, part, l->source, at);
    }
    return good;
}

/* Parts that begin at any byte add up to the checksum of the whole. */
static int add_parts(lab *l, const char *block, uint64_t bytes, uint64_t sum)
{
    const uint64_t cuts[] = { 0, 1, 13, 4096, 100003, bytes };
    int good = 1;
    for (size_t i = 0; good && i + 1 < COUNT(cuts); i++) {
        xray_checksum_rows rows =
            rows_of(block + cuts[i], cuts[i + 1] - cuts[i]);
        uint64_t part = 0;
        rows.at = cuts[i];
        good = CALL(l, checksum, &rows, &part);
        sum -= part;
    }
    return good && require(l, sum == 0, "checksums of parts do not add up");
}

/* The freed block keeps its content, which a later one must not show. */
static void check_block(lab *l, const char *name, uint64_t bytes)
{
    uint64_t sum = sum_on_host(l->source, bytes);
    uint64_t half = bytes / 2;
    begin(l, name, bytes);
    char *block = take_block(l, XRAY_TAG_WEIGHTS, bytes);
    if (timed(l, "alloc", 0, block != NULL) &&
        require(l, (uintptr_t)block % 64 == 0, "it is not aligned") &&
        is_zero(l, "the new block", block, bytes) &&
        TIMED(l, "in", bytes, fill_now(l, block, bytes)) &&
        TIMED(l, "checksum", bytes, sum_is(l, "it", block, bytes, sum)) &&
        (bytes < MIB || add_parts(l, block, bytes, sum)) &&
        read_back(l, block, bytes) &&
        TIMED(l, "on device", half,
              COPY(l, block + half, block, half, XRAY_COPY_ON_DEVICE)) &&
        TIMED(l, "zero", half,
              CALL(l, zero, NULL, block, half) && CALL(l, sync, NULL)) &&
        is_zero(l, "a zeroed half", block, half))
        (void)is_filled(l, "a copied half", block + half, half);
    GIVE(l, free, block);
    finish(l);
}

static void check_blocks(lab *l)
{
    static const uint64_t sizes[] = { 64,          4096,     MIB - 1, MIB,
                                      2 * MIB + 1, 100 * MB, GB,      20 * GB };
    for (size_t i = 0; i < COUNT(sizes); i++)
        if (sizes[i] <= l->most)
            check_block(l, "block", sizes[i]);
}

/* ---- eviction, refused allocations --------------------------------------- */

static uint64_t read_live(lab *l, uint32_t tag)
{
    xray_memory_stats stats = { .header = XRAY_HEADER(xray_memory_stats) };
    (void)CALL(l, memory, &stats);
    return stats.live[tag];
}

static int evict_block(lab *l, char *block, uint64_t bytes)
{
    uint64_t before = read_free(l);
    uint64_t live = read_live(l, XRAY_TAG_KV);
    /* Memory comes in units of some MiB, and the driver has tables. */
    uint64_t slack =
        bytes < 16 * MIB ? before : least_of(16 * MIB, bytes / 8 + MIB);
    int good = TIMED(l, "evict", 0, CALL(l, evict, block)) &&
               CALL(l, evict, block) &&
               require(l, read_live(l, XRAY_TAG_KV) == live - bytes,
                       "memory() still counts the evicted block") &&
               free_is(l, "after evict", before + bytes, slack) &&
               TIMED(l, "restore", 0, CALL(l, restore, block)) &&
               CALL(l, restore, block) &&
               require(l, read_live(l, XRAY_TAG_KV) == live,
                       "memory() does not count the restored block") &&
               free_is(l, "after restore", before, slack) &&
               is_zero(l, "the restored block", block, bytes);
    l->since = read_clock();
    for (int i = 0; good && i < 20; i++)
        good = CALL(l, evict, block) && CALL(l, restore, block);
    return timed(l, "both, 20 times,", 0, good) &&
           free_is(l, "after 20 evictions", before, slack) &&
           is_zero(l, "the block restored again", block, bytes);
}

/* The block in the middle is evicted; its neighbours keep their contents. */
static void check_eviction(lab *l, uint64_t bytes)
{
    uint64_t sum = sum_on_host(l->source, bytes);
    int good = 1;
    char *blocks[3];
    begin(l, "evict and restore", bytes);
    for (int i = 0; i < 3; i++) {
        blocks[i] =
            take_block(l, i == 1 ? XRAY_TAG_KV : XRAY_TAG_OPTIMIZER, bytes);
        good = good && blocks[i] && fill_block(l, NULL, blocks[i], bytes);
    }
    if (good && evict_block(l, blocks[1], bytes) &&
        sum_is(l, "the block before", blocks[0], bytes, sum) &&
        sum_is(l, "the block after", blocks[2], bytes, sum) &&
        fill_block(l, NULL, blocks[1], bytes) &&
        sum_is(l, "the block written again", blocks[1], bytes, sum) &&
        require(l, TRY(l, evict, blocks[1] + 1) == XRAY_E_ARG,
                "evict took an address inside of a block"))
        (void)CALL(l, evict, blocks[1]); /* a free that finds it evicted */
    for (int i = 0; i < 3; i++)
        GIVE(l, free, blocks[i]);
    finish(l);
}

static void check_evictions(lab *l)
{
    const uint64_t sizes[] = { 64, 4096, MIB - 1, 2 * MIB + 1,
                               least_of(GB, l->most / 4) };
    for (size_t i = 0; i < COUNT(sizes); i++)
        if (sizes[i] <= l->most / 4)
            check_eviction(l, sizes[i]);
}

static int refuse_block(lab *l, uint64_t bytes)
{
    void *p = NULL;
    xray_status s = TRY(l, alloc, "actor", XRAY_TAG_WEIGHTS, bytes, &p);
    int good = refused(l, s, XRAY_E_NOMEM, last_reason) &&
               require(l, !p, "a refused allocation wrote its result");
    if (s == XRAY_OK)
        GIVE(l, free, p);
    return good;
}

static void check_refusals(lab *l)
{
    xray_device_info info = { .header = XRAY_HEADER(xray_device_info) };
    begin(l, "memory that the GPU does not have", 0);
    (void)CALL(l, info, &info);
    const uint64_t sizes[] = { info.memory_bytes, info.memory_bytes * 2,
                               UINT64_MAX / 8, UINT64_MAX,
                               info.memory_free + GB };
    int good = refuse_block(l, sizes[0]);
    uint64_t before = read_free(l);
    uint64_t live = read_live(l, XRAY_TAG_WEIGHTS);
    for (size_t i = 0; good && i < COUNT(sizes); i++)
        good = refuse_block(l, sizes[i]);
    add_note(l, "%s", last_reason);
    if (good && free_is(l, "after the refusals", before, 2 * MIB) &&
        require(l, read_live(l, XRAY_TAG_WEIGHTS) == live,
                "memory() counts a refused block")) {
        void *block = take_block(l, XRAY_TAG_WEIGHTS, 3 * MIB);
        (void)(block && is_zero(l, "a block after them", block, 3 * MIB));
        GIVE(l, free, block);
    }
    finish(l);
}

/* ---- streams and events -------------------------------------------------- */

typedef struct stream_pair {
    xray_stream *first, *second;
    xray_event *event;
    char *block, *seen;
    uint64_t bytes; /* of the block; MIB are seen */
} stream_pair;

/* The work lasts milliseconds; enqueueing it takes much less. */
static int event_follows(lab *l, const stream_pair *s, int on_device)
{
    const char *where = on_device ? "on the device" : "from the host";
    int good = 1;
    double start = read_clock();
    if (!on_device)
        good = fill_block(l, s->first, s->block, s->bytes);
    for (int i = 0; on_device && good && i < 16; i++)
        good = CALL(l, copy, s->first, s->block + s->bytes / 2, s->block,
                    s->bytes / 2, XRAY_COPY_ON_DEVICE);
    if (!good || !CALL(l, event_record, s->first, s->event))
        return 0;
    xray_status early = TRY(l, event_query, s->event);
    double enqueued = read_clock();
    if (!CALL(l, event_sync, s->event))
        return 0;
    add_note(l, "copies %s enqueued in %.3f ms, done after %.3f ms", where,
             (enqueued - start) * 1e3, (read_clock() - start) * 1e3);
    return require(l, early == (l->emulated ? XRAY_OK : XRAY_AGAIN),
                   "event_query gave %d behind copies of %llu bytes %s", early,
                   ULL(s->bytes), where) &&
           require(l, TRY(l, event_query, s->event) == XRAY_OK,
                   "event_query does not give XRAY_OK after event_sync");
}

/* The first stream fills the block from its start; the second one copies its
 * end, which without the wait it reads too early. */
static int race_streams(lab *l, const stream_pair *s, int wait,
                        xray_status *out_late)
{
    const char *end = s->block + s->bytes - MIB;
    if (!CALL(l, zero, NULL, s->block, s->bytes) ||
        !CALL(l, zero, NULL, s->seen, MIB) || !CALL(l, sync, NULL) ||
        !fill_block(l, s->first, s->block, s->bytes) ||
        !CALL(l, event_record, s->first, s->event) ||
        (wait && !CALL(l, event_wait, s->second, s->event)) ||
        !CALL(l, copy, s->second, s->seen, end, MIB, XRAY_COPY_ON_DEVICE) ||
        !CALL(l, sync, s->second))
        return 0;
    *out_late = TRY(l, event_query, s->event);
    return CALL(l, sync, s->first);
}

static void check_streams(lab *l)
{
    stream_pair s = { .bytes = least_of(GB, l->most / 2) };
    xray_status late = XRAY_OK;
    begin(l, "event behind a copy", 0);
    s.block = take_block(l, XRAY_TAG_KV, s.bytes);
    s.seen = take_block(l, XRAY_TAG_KV, MIB);
    if (!s.block || !s.seen || !CALL(l, stream_create, &s.first) ||
        !CALL(l, stream_create, &s.second) ||
        !CALL(l, event_create, &s.event)) {
        finish(l);
        return;
    }
    (void)(require(l, TRY(l, event_query, s.event) == XRAY_OK,
                   "an event without a record does not count as done") &&
           event_follows(l, &s, 0) && event_follows(l, &s, 1) &&
           CALL(l, sync, s.first));
    if (l->emulated)
        add_note(l, "emulated: work is done at once, XRAY_AGAIN is not tested");
    finish(l);
    begin(l, "event_wait orders two streams", 0);
    int good = 1;
    for (int i = 0; good && i < 3; i++)
        good =
            race_streams(l, &s, 1, &late) &&
            require(l, late == XRAY_OK,
                    "the second stream was done before the event: %d", late) &&
            range_is(l, s.seen, MIB, l->source, s.bytes - MIB);
    if (good && race_streams(l, &s, 0, &late))
        add_note(l, "without it the second stream %s",
                 late == XRAY_AGAIN ? "is done first" : "is not done first");
    finish(l);
    GIVE(l, stream_destroy, s.first);
    GIVE(l, stream_destroy, s.second);
    GIVE(l, event_destroy, s.event);
    GIVE(l, free, s.block);
    GIVE(l, free, s.seen);
}

/* ---- rows with pitches --------------------------------------------------- */

#define ROOM (20 * MB)

/* Rows at a pitch, from byte `first` of some memory on. */
typedef struct place {
    unsigned char *memory;
    uint64_t first, pitch;
} place;

static int copy_rows(lab *l, const place *to, const place *from, uint64_t width,
                     uint64_t rows, uint32_t kind)
{
    const xray_copy_rows r = { .header = XRAY_HEADER(xray_copy_rows),
                               .to = to->memory + to->first,
                               .from = from->memory + from->first,
                               .rows = rows,
                               .bytes = width,
                               .to_pitch = to->pitch,
                               .from_pitch = from->pitch,
                               .kind = kind };
    return CALL(l, copy_rows, NULL, &r);
}

/* Copies rows to the device, on it, and to the host, with another pitch and
 * another first byte each time, and checks that nothing else was written.
 * memory[0] and memory[3] are the host's, and `model` has what is expected. */
static int copy_around(lab *l, unsigned char *const memory[4],
                       unsigned char *model, uint64_t width, uint64_t rows)
{
    static const uint32_t kinds[] = { XRAY_COPY_TO_DEVICE, XRAY_COPY_ON_DEVICE,
                                      XRAY_COPY_TO_HOST };
    const place at[4] = { { memory[0], 3, width + 13 },
                          { memory[1], 1, width + 7 },
                          { memory[2], 2, rows % 2 ? width : width + 64 },
                          { memory[3], 5, width + 5 } };
    memset(memory[3], 0xee, 5 + rows * (width + 5) + 64);
    int good = CALL(l, zero, NULL, memory[1], ROOM) &&
               CALL(l, zero, NULL, memory[2], ROOM);
    for (int i = 0; good && i < 3; i++)
        good = copy_rows(l, &at[i + 1], &at[i], width, rows, kinds[i]);
    good = good && CALL(l, sync, NULL);
    for (int i = 3; good && i > 0; i--) {
        uint64_t bytes = at[i].first + rows * at[i].pitch + 64;
        memset(model, i == 3 ? 0xee : 0, bytes);
        for (uint64_t row = 0; row < rows; row++)
            memcpy(model + at[i].first + row * at[i].pitch,
                   memory[0] + 3 + row * at[0].pitch, width);
        good = (i == 3 ||
                (COPY(l, memory[3], memory[i], bytes, XRAY_COPY_TO_HOST))) &&
               require(l, memcmp(memory[3], model, bytes) == 0,
                       "%llu rows of %llu bytes are wrong after copy %d",
                       ULL(rows), ULL(width), i);
    }
    return good;
}

static void check_rows(lab *l, const char *name)
{
    static const uint64_t shapes[][2] = {
        { 1, 1000 },   { 3, 777 },  { 16, 4096 }, { 255, 100 }, { 4096, 513 },
        { 65537, 33 }, { MIB, 14 }, { 100, 1 },   { MIB, 1 },
    };
    static unsigned char model[ROOM];
    begin(l, name, 0);
    unsigned char *const memory[4] = {
        l->source, take_block(l, XRAY_TAG_ACTIVATIONS, ROOM),
        take_block(l, XRAY_TAG_ACTIVATIONS, ROOM), l->sink
    };
    const place from = { memory[1], 0, MIB + 64 };
    const place to = { memory[2], 0, MIB };
    int good = memory[1] && memory[2];
    for (size_t i = 0; good && i < COUNT(shapes); i++)
        good = copy_around(l, memory, model, shapes[i][0], shapes[i][1]);
    (void)(good &&
           TIMED(l, "15 rows of 1 MiB on device", 15 * MIB,
                 copy_rows(l, &to, &from, MIB, 15, XRAY_COPY_ON_DEVICE) &&
                     CALL(l, sync, NULL)));
    GIVE(l, free, memory[1]);
    GIVE(l, free, memory[2]);
    finish(l);
}

/* The same checks with host memory that is not page-locked. */
static void check_pageable(lab *l)
{
    static unsigned char memory[2][PIECE];
    lab pageable = *l;
    pageable.source = memcpy(memory[0], l->source, PIECE);
    pageable.sink = memory[1];
    check_block(&pageable, "pageable memory and a block",
                least_of(256 * MB, l->most));
    check_rows(&pageable, "rows with pitches, pageable host memory");
    l->failures = pageable.failures;
}

/* Two rows at pitches around the most that CUDA's own copy of rows takes. */
static void check_far_rows(lab *l)
{
    static const uint64_t pitches[] = { 2147483647, 2147483648, 2500000001 };
    const uint64_t width = MIB + 3;
    uint64_t sum = sum_on_host(l->source, 2 * width);
    uint64_t got = 0;
    if (pitches[2] + 2 * MIB > l->most)
        return;
    begin(l, "rows with pitches above 2 GB", 0);
    char *block = take_block(l, XRAY_TAG_ACTIVATIONS, pitches[2] + 2 * MIB);
    int good = block != NULL;
    for (size_t i = 0; good && i < COUNT(pitches); i++) {
        const place from = { l->source, 0, width };
        const place far = { (unsigned char *)block, 1, pitches[i] };
        const place to = { l->sink, 0, width };
        xray_checksum_rows rows = rows_of(block + 1, width);
        rows.rows = 2;
        rows.pitch = pitches[i];
        rows.at_pitch = width;
        memset(l->sink, 0x5a, 2 * width);
        good = copy_rows(l, &far, &from, width, 2, XRAY_COPY_TO_DEVICE) &&
               copy_rows(l, &to, &far, width, 2, XRAY_COPY_TO_HOST) &&
               CALL(l, sync, NULL) &&
               require(l, memcmp(l->sink, l->source, 2 * width) == 0,
                       "rows at a pitch of %llu come back wrong",
                       ULL(pitches[i])) &&
               range_is(l, block + 1 + pitches[i], width, l->source, width) &&
               CALL(l, checksum, &rows, &got) &&
               require(l, got == sum, "their checksum is wrong");
    }
    GIVE(l, free, block);
    finish(l);
}

/* ---- main ---------------------------------------------------------------- */

static void ignore_line(const xray_host *host, uint32_t level, const char *msg)
{
    (void)host;
    (void)level;
    (void)msg;
}

static xray_status keep_reason(const xray_host *host, xray_status code,
                               const char *where, const char *msg)
{
    (void)host;
    (void)snprintf(last_reason, sizeof(last_reason), "%s: %s",
                   where ? where : "", msg);
    return code;
}

const xray_host bench_host = { .header = XRAY_HEADER(xray_host),
                               .log = ignore_line,
                               .fail = keep_reason };

static const xray_device_ops *load_table(const char *path)
{
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const xray_plugin *(*query)(uint32_t) = NULL;
    if (module)
        *(void **)&query = dlsym(module, XRAY_PLUGIN_QUERY);
    const xray_plugin *p = query ? query(XRAY_ABI) : NULL;
    const xray_device_ops *ops = p ? p->components[0]->ops : NULL;
    provide(ops && XRAY_HAS(xray_device_ops, ops, probe),
            query ? "device plugin of this version" : dlerror());
    return ops;
}

/* Opens an instance with its page-locked memory. Returns an exit code. */
static int open_lab(lab *l, uint64_t seed)
{
    xray_device_info info = { .header = XRAY_HEADER(xray_device_info) };
    void *source = NULL;
    void *sink = NULL;
    if (l->ops->probe(&bench_host, NULL) != XRAY_OK) {
        (void)fprintf(stderr, "%s\n", last_reason);
        return 77;
    }
    provide(l->ops->create(&bench_host, NULL, 1, &l->self) == XRAY_OK &&
                CALL(l, host_alloc, "bench", PIECE, &source) &&
                CALL(l, host_alloc, "bench", PIECE, &sink) &&
                CALL(l, info, &info),
            last_reason);
    l->source = source;
    l->sink = sink;
    fill_pattern(l->source, PIECE, seed);
    l->most = least_of(l->most, info.memory_free / 10 * 8);
    l->emulated = strncmp(info.name, "emulated", 8) == 0;
    if (seed == PARENT_SEED)
        printf("%s: %.1f of %.1f GB free, blocks up to %.3f GB\n", info.name,
               (double)info.memory_free * 1e-9,
               (double)info.memory_bytes * 1e-9, (double)l->most * 1e-9);
    return 0;
}

static int run_checks(lab *l)
{
    double start = read_clock();
    int code = open_lab(l, PARENT_SEED);
    if (code)
        return code;
    check_blocks(l);
    check_evictions(l);
    check_refusals(l);
    check_streams(l);
    check_rows(l, "rows with pitches, page-locked host memory");
    check_pageable(l);
    check_far_rows(l);
    check_threads(l);
    check_processes(l);
    l->ops->destroy(l->self);
    printf("%d checks failed, %.1f s\n", l->failures, read_clock() - start);
    return l->failures ? 1 : 0;
}

int main(int argc, char **argv)
{
    int is_peer = argc > 2 && strcmp(argv[2], "--peer") == 0;
    uint64_t most = 20 * GB;
    if (argc < 2 || argc > 3 ||
        (argc > 2 && !is_peer && xr_parse_bytes(argv[2], &most)) ||
        most < 64 * MIB) {
        (void)fprintf(stderr, "usage: bench-gpu-memory PLUGIN [MOST_BYTES]\n");
        return 1;
    }
    lab l = { .ops = load_table(argv[1]), .most = most, .module = argv[1] };
    if (!is_peer)
        return run_checks(&l);
    int code = open_lab(&l, PEER_SEED);
    return code ? code : serve_parent(&l);
}
