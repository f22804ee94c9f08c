/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves pieces of plugins/mesh without lines or ranks: what is said of each
 * rank when a call ends, which calls a broken channel refuses, that a piece is
 * copied whole wherever it lies, and that runs of bytes cover their memory.
 */
#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "plugins/mesh/mesh.h"
#include "tests/testing.h"

/* ---- an instance ----------------------------------------------------------
 */

#define RANKS 8
#define SENT 32

/* Rank 0, whose other ranks answer what `answers` has, unless it is silent. */
static struct {
    xray_host host;
    mesh_comm comm;
    mesh_peer peers[RANKS];
    mesh_channel channel;
    uint32_t ranks[RANKS];
    mesh_activity answers[RANKS];
    int silent[RANKS];
    struct {
        uint32_t to;
        mesh_note note;
    } sent[SENT];
    uint32_t sent_count;
    char said[2048];
} rig;

static void take_sent_note(mesh_comm *comm, uint32_t rank,
                           const mesh_note *note)
{
    if (rig.sent_count < SENT) {
        rig.sent[rig.sent_count].to = rank;
        rig.sent[rig.sent_count++].note = *note;
    }
    if (note->kind != MESH_ASK || rig.silent[rank])
        return;
    const mesh_note answer = { .magic = MESH_NOTE_MAGIC,
                               .kind = MESH_STATE,
                               .activity = rig.answers[rank] };
    assert_int_equal(mesh_take_note(comm, rank, &answer), 1);
}

static const mesh_transport transport = { .name = "mesh",
                                          .send_note = take_sent_note };

static xray_status record_failure(const xray_host *host, xray_status code,
                                  const char *where, const char *text)
{
    (void)host;
    (void)snprintf(rig.said, sizeof(rig.said), "%s: %s", where, text);
    return code;
}

static int open_rig(void **state)
{
    (void)state;
    memset(&rig, 0, sizeof(rig));
    rig.host =
        (xray_host){ .header = XRAY_HEADER(xray_host), .fail = record_failure };
    rig.comm = (mesh_comm){ .host = &rig.host,
                            .size = RANKS,
                            .timeout = 500000000u,
                            .silence = 3000000000u,
                            .via = &transport,
                            .peers = rig.peers,
                            .wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
                            .end = -1 };
    assert_int_equal(pthread_mutex_init(&rig.comm.lock, NULL), 0);
    assert_int_equal(pthread_cond_init(&rig.comm.heard, NULL), 0);
    for (uint32_t r = 0; r < RANKS; r++) {
        rig.ranks[r] = r;
        rig.peers[r].pid = 2000000000u + r; /* no process has it */
        rig.peers[r].is_local = 1;
        rig.peers[r].via = &transport;
    }
    rig.channel = (mesh_channel){ .comm = &rig.comm,
                                  .key = 77,
                                  .calls = 9,
                                  .group = 3,
                                  .count = RANKS,
                                  .ranks = rig.ranks };
    return 0;
}

static int close_rig(void **state)
{
    (void)state;
    free(rig.comm.broken);
    free(rig.channel.broken);
    (void)close(rig.comm.wake);
    (void)pthread_cond_destroy(&rig.comm.heard);
    return pthread_mutex_destroy(&rig.comm.lock);
}

static const mesh_call reduce = { .call = XRAY_COMM_ALL_REDUCE,
                                  .dtype = XRAY_F32,
                                  .call_bytes = 64 };

static mesh_activity activity_of(uint64_t calls, uint32_t call, uint32_t state)
{
    return (mesh_activity){ .calls = calls,
                            .bytes = 64,
                            .group = 3,
                            .call = call,
                            .dtype = XRAY_F32,
                            .state = state };
}

static void expect_said(const char *part)
{
    if (!strstr(rig.said, part))
        fail_msg("no \"%s\" in: %s", part, rig.said);
}

/* The times that ranks have been in their calls are not compared. */
static void drop_times(void)
{
    char *at = rig.said;
    while ((at = strstr(at, " for "))) {
        char *end = at + 5 + strspn(at + 5, "0123456789.");
        memmove(at + 5, end, strlen(end) + 1);
        at += 5;
    }
}

/* ---- reports --------------------------------------------------------------
 */

static void a_report_tells_of_every_rank(void **state)
{
    (void)state;
    rig.comm.mine = activity_of(10, XRAY_COMM_ALL_REDUCE, MESH_WORKS);
    rig.comm.mine.age = mesh_clock();
    rig.answers[1] = activity_of(10, XRAY_COMM_ALL_REDUCE, MESH_WAITS);
    /* Rank 2 gave up in the channel, and has made another call since. */
    const mesh_note gave_up = { .magic = MESH_NOTE_MAGIC,
                                .kind = MESH_BREAK,
                                .channel = 77,
                                .number = 10,
                                .cause = MESH_LATE,
                                .activity = activity_of(
                                    10, XRAY_COMM_ALL_GATHER, MESH_WAITS) };
    assert_int_equal(mesh_take_note(&rig.comm, 2, &gave_up), 1);
    rig.answers[2] = activity_of(11, XRAY_COMM_ALL_REDUCE, MESH_OUTSIDE);
    /* Rank 3 died in its next call, of which its frames have told. */
    rig.peers[3].told = activity_of(8, XRAY_COMM_ALL_GATHER, MESH_OUTSIDE);
    rig.peers[3].seen = (mesh_frame){ .kind = MESH_CALL,
                                      .channel = 1,
                                      .call = XRAY_COMM_ALL_REDUCE,
                                      .dtype = XRAY_BF16,
                                      .call_bytes = 32,
                                      .extra = 10 };
    mesh_end_notes(&rig.comm, 3, ECONNRESET);
    rig.peers[4].is_local = 0;
    (void)snprintf(rig.peers[4].host, sizeof(rig.peers[4].host), "beta");
    rig.peers[4].told = activity_of(8, XRAY_COMM_ALL_GATHER, MESH_WORKS);
    mesh_end_notes(&rig.comm, 4, ETIMEDOUT);
    rig.silent[5] = 1;
    const mesh_note ended = { .magic = MESH_NOTE_MAGIC, .kind = MESH_END };
    assert_int_equal(mesh_take_note(&rig.comm, 6, &ended), 1);
    mesh_end_notes(&rig.comm, 7, EBADMSG);
    assert_int_equal(mesh_report(&rig.channel, &reduce, MESH_LATE, 0),
                     XRAY_E_PEER);
    drop_times();
    assert_string_equal(
        rig.said,
        "all_reduce of 64 bytes of f32 in group 3: not all ranks arrived "
        "within 0.5 s: rank 0 works in all_reduce of 64 bytes of f32 in group "
        "3 for  s; rank 1 waits in all_reduce of 64 bytes of f32 in group 3 "
        "for  s; rank 2 gave up in all_gather of 64 bytes in group 3; rank "
        "3 (pid 2000000003) is dead, after all_reduce of 32 bytes of bf16 in "
        "group 0; rank 4 (pid 2000000004 on beta) is silent, in all_gather of "
        "64 bytes in group 3; rank 5 (pid 2000000005) does not answer; rank 6 "
        "has ended its part; rank 7 (pid 2000000007) sent bytes that are no "
        "frame of comm mesh");
    /* Only those were asked who can answer, and rank 0 not itself. */
    assert_int_equal(rig.sent_count, 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(rig.sent[i].note.kind, MESH_ASK);
    /* The next question has an answer, although the one before had none. */
    rig.silent[5] = 0;
    rig.answers[5] = activity_of(10, XRAY_COMM_ALL_REDUCE, MESH_WAITS);
    (void)mesh_report(&rig.channel, &reduce, MESH_LATE, 0);
    expect_said("; rank 5 waits in all_reduce of 64 bytes of f32 in group 3");
}

static void causes_are_told(void **state)
{
    static const struct {
        uint32_t cause;
        const char *said;
    } cases[] = {
        { MESH_LATE, "group 3: not all ranks arrived within 0.5 s: " },
        { MESH_DEAD, "group 3: a rank is dead: " },
        { MESH_DIFFERENT, "group 3: the ranks are in different calls: " },
        { MESH_ABORTED, "group 3: rank 5 was told to stop: " },
        { MESH_FAILED, "group 3: rank 5 failed in the call: " },
        { MESH_LEFT, "group 3: a rank has ended its part: " },
        { MESH_CANCELED, "group 3: the run is stopped: " },
        { MESH_SILENT,
          "group 3: the host of a rank has been silent for 3.0 s: " },
        { MESH_GARBLED, "group 3: the line to a rank is garbled: " },
    };
    char first[sizeof(rig.said)];
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const xray_status status =
            cases[i].cause == MESH_CANCELED ? XRAY_E_CANCELED : XRAY_E_PEER;
        assert_int_equal(mesh_report(&rig.channel, &reduce, cases[i].cause, 5),
                         status);
        expect_said(cases[i].said);
        memcpy(first, rig.said, sizeof(first));
        rig.said[0] = '\0';
        assert_int_equal(mesh_report_again(&rig.channel), status);
        assert_string_equal(rig.said, first);
    }
}

/* ---- broken channels ------------------------------------------------------
 */

static void all_ranks_are_told_what_broke_a_channel(void **state)
{
    mesh_broken found = { 0 };
    (void)state;
    assert_false(mesh_is_broken(&rig.comm, 77, 100, NULL));
    rig.comm.mine = activity_of(10, XRAY_COMM_ALL_REDUCE, MESH_WAITS);
    rig.comm.mine.age = mesh_clock();
    mesh_break_quietly(&rig.channel, MESH_ABORTED, 5);
    assert_int_equal(rig.sent_count, RANKS - 1);
    for (uint32_t i = 0; i < RANKS - 1; i++) {
        const mesh_note *note = &rig.sent[i].note;
        assert_int_equal(rig.sent[i].to, i + 1);
        assert_int_equal(note->kind, MESH_BREAK);
        assert_int_equal(note->channel, 77);
        assert_int_equal(note->number, 10);
        assert_int_equal(note->cause, MESH_ABORTED);
        assert_int_equal(note->origin, 5);
        assert_int_equal(note->activity.calls, 10);
        assert_true(note->activity.age < 60000000000u); /* no time of day */
    }
    assert_true(mesh_is_broken(&rig.comm, 77, 10, &found));
    assert_int_equal(found.cause, MESH_ABORTED);
    assert_int_equal(found.origin, 5);
    assert_false(mesh_is_broken(&rig.comm, 77, 9, NULL));
    assert_false(mesh_is_broken(&rig.comm, 78, 10, NULL));
    /* The first cause stays, and there is room for any number of channels. */
    for (uint64_t key = 60; key < 120; key++) {
        const mesh_broken more = { key, 4, MESH_DEAD, 2 };
        mesh_note_broken(&rig.comm, &more);
    }
    assert_false(mesh_is_broken(&rig.comm, 77, 9, NULL));
    for (uint64_t key = 60; key < 120; key++) {
        assert_true(mesh_is_broken(&rig.comm, key, 10, &found));
        assert_int_equal(found.channel, key);
        assert_int_equal(found.cause, key == 77 ? MESH_ABORTED : MESH_DEAD);
    }
}

static void all_ranks_are_told_that_one_stops(void **state)
{
    uint64_t woken = 0;
    (void)state;
    rig.comm.rank = 2;
    mesh_abort(&rig.comm);
    assert_int_equal(rig.comm.aborted, 1);
    assert_int_equal(rig.sent_count, RANKS - 1);
    for (uint32_t i = 0; i < RANKS - 1; i++) {
        assert_int_equal(rig.sent[i].to, i + (i >= 2));
        assert_int_equal(rig.sent[i].note.kind, MESH_STOPPED);
    }
    assert_int_equal(read(rig.comm.wake, &woken, sizeof(woken)), sizeof(woken));
}

static void frames_of_another_call_break_their_channel(void **state)
{
    const mesh_frame frame = { .channel = 5, .number = 4 };
    mesh_broken found = { 0 };
    (void)state;
    rig.comm.rank = 3;
    assert_int_equal(mesh_differs(&rig.comm, &rig.peers[6], &frame),
                     -(int)MESH_DIFFERENT);
    assert_true(mesh_is_broken(&rig.comm, 5, 4, &found));
    assert_int_equal(found.cause, MESH_DIFFERENT);
    assert_int_equal(found.origin, 3);
    assert_int_equal(rig.sent_count, 1);
    assert_int_equal(rig.sent[0].to, 6);
    assert_int_equal(rig.sent[0].note.channel, 5);
    assert_int_equal(rig.sent[0].note.number, 4);
    assert_int_equal(rig.sent[0].note.cause, MESH_DIFFERENT);
    assert_int_equal(rig.sent[0].note.origin, 3);
}

/* The end of a line of notes says what became of its rank, once. */
static void ends_of_lines_are_told_apart(void **state)
{
    static const struct {
        int reason;
        uint32_t fate;
    } cases[] = {
        { 0, MESH_DEAD },           { ECONNRESET, MESH_DEAD },
        { ETIMEDOUT, MESH_SILENT }, { EHOSTUNREACH, MESH_SILENT },
        { EHOSTDOWN, MESH_SILENT }, { ENETUNREACH, MESH_SILENT },
        { EBADMSG, MESH_GARBLED },
    };
    uint64_t woken = 0;
    (void)state;
    for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        mesh_end_notes(&rig.comm, i, cases[i].reason);
        assert_int_equal(rig.peers[i].fate, cases[i].fate);
        assert_int_equal(rig.peers[i].mute, 1);
        assert_int_equal(read(rig.comm.wake, &woken, sizeof(woken)),
                         sizeof(woken));
    }
    mesh_end_notes(&rig.comm, 0, EBADMSG);
    assert_int_equal(rig.peers[0].fate, MESH_DEAD);
    const mesh_note note = { .magic = MESH_NOTE_MAGIC, .kind = MESH_END };
    mesh_send_note(&rig.comm, 1, &note);
    assert_int_equal(rig.sent_count, 0);
}

static void channels_are_found_by_their_keys(void **state)
{
    mesh_channel messages[2][6] = { { { .key = 0 } } };
    xray_comm_group groups[2] = { { .next = NULL } };
    (void)state;
    for (uint32_t g = 0; g < 2; g++) {
        groups[g].all = (mesh_channel){ .key = 100 * g + 50, .count = 3 };
        groups[g].messages = messages[g];
        for (uint32_t i = 0; i < 6; i++)
            messages[g][i].key = 100 * g + i + 1;
    }
    groups[0].next = &groups[1];
    rig.comm.groups = &groups[0];
    for (uint32_t g = 0; g < 2; g++) {
        assert_ptr_equal(mesh_find_channel(&rig.comm, 100 * g + 50),
                         &groups[g].all);
        for (uint32_t i = 0; i < 6; i++)
            assert_ptr_equal(mesh_find_channel(&rig.comm, 100 * g + i + 1),
                             &messages[g][i]);
    }
    assert_null(mesh_find_channel(&rig.comm, 7));
}

/* Which half a rank has come to is told by the channel and by what it does
 * there, even if it lies. */
static void offers_are_found_by_channel_and_half(void **state)
{
    mesh_peer *peer = &rig.peers[2];
    mesh_offer_seen *last = &peer->offers[MESH_OFFERS - 1];
    (void)state;
    *last =
        (mesh_offer_seen){ .frame = { .channel = 5, .call = XRAY_COMM_SEND },
                           .used = 1 };
    assert_ptr_equal(mesh_find_offer(peer, 5, XRAY_COMM_SEND), last);
    assert_ptr_equal(mesh_find_offer(peer, 0, 0), last); /* any */
    assert_null(mesh_find_offer(peer, 5, XRAY_COMM_RECV));
    assert_null(mesh_find_offer(peer, 6, XRAY_COMM_SEND));
    last->used = 0;
    assert_null(mesh_find_offer(peer, 5, XRAY_COMM_SEND));
    assert_null(mesh_find_offer(peer, 0, 0));
}

/* ---- bytes ----------------------------------------------------------------
 */

static void pieces_are_copied_wherever_they_lie(void **state)
{
    static const uint64_t sizes[] = { 0,          1,
                                      MESH_PIECE, MESH_PIECE + 3,
                                      0x200000,   0x200000 + 77 };
    enum { MOST = 0x200000 + 77 + 64 };
    char *from = malloc(MOST);
    char *to = malloc(MOST);
    (void)state;
    assert_true(from && to);
    for (size_t i = 0; i < MOST; i++)
        from[i] = (char)(i * 7 + i / 251);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        for (uint64_t at = 0; at < 48; at += 8) {
            mesh_copy copy = { .from = from + at + 1,
                               .to = to + at,
                               .bytes = sizes[i] };
            uint64_t pieces = 0;
            memset(to, 0x55, MOST);
            while (mesh_copy_piece(&copy))
                pieces++;
            assert_int_equal(pieces, (sizes[i] + MESH_PIECE - 1) / MESH_PIECE);
            assert_memory_equal(to + at, from + at + 1, sizes[i]);
            assert_true(!at || to[at - 1] == 0x55);
            assert_int_equal(to[at + sizes[i]], 0x55);
        }
    free(from);
    free(to);
}

/* Takes what is left of a run in steps, and notes the order of the bytes. */
static uint32_t follow_run(mesh_run_of_bytes *run, uint64_t step,
                           uint64_t *out_offsets, const char *base)
{
    uint32_t count = 0;
    while (run->done < run->total) {
        mesh_segment next = mesh_run_next(run);
        uint64_t n = next.bytes < step ? next.bytes : step;
        assert_true(n > 0 && count < 32);
        out_offsets[count++] = (uint64_t)(next.at - base);
        mesh_run_advance(run, n);
    }
    return count;
}

static void runs_cover_their_segments(void **state)
{
    enum { P = MESH_PIECE };
    static char base[8 * P];
    /* In order, in turn, and with memory that is used again. */
    const mesh_segment segments[3] = { { base, 2 * P },
                                       { base + 4 * P, 10 },
                                       { base + 6 * P, P + 5 } };
    static const uint64_t in_order[] = { 0, P, 4 * P, 6 * P, 6 * P + P };
    static const uint64_t in_turn[] = { 0, 4 * P, 6 * P, P, 6 * P + P };
    static const uint64_t again[] = { 0, P, 0, P, 0 };
    uint64_t found[32];
    (void)state;
    mesh_run_of_bytes run = { .segments = segments,
                              .count = 3,
                              .total = 3 * P + 15 };
    assert_int_equal(follow_run(&run, P, found, base), 5);
    assert_memory_equal(found, in_order, sizeof(in_order));
    run = (mesh_run_of_bytes){
        .segments = segments, .count = 3, .deals = 1, .total = 3 * P + 15
    };
    assert_int_equal(follow_run(&run, P, found, base), 5);
    assert_memory_equal(found, in_turn, sizeof(in_turn));
    const mesh_segment one = { base, 4 * P + 7 };
    run = (mesh_run_of_bytes){
        .segments = &one, .count = 1, .wraps = 2 * P, .total = 4 * P + 7
    };
    assert_int_equal(follow_run(&run, P, found, base), 5);
    assert_memory_equal(found, again, sizeof(again));
}

/* ---- bytes of others ------------------------------------------------------
 */

static void notes_and_frames_are_judged(void **state)
{
    const mesh_note note = { .magic = MESH_NOTE_MAGIC,
                             .kind = MESH_BREAK,
                             .cause = MESH_LATE,
                             .origin = RANKS - 1 };
    mesh_note bad[6] = { note, note, note, note, note, note };
    mesh_note last = note;
    (void)state;
    assert_true(mesh_note_is_valid(&note, RANKS));
    last.cause = MESH_GARBLED;
    assert_true(mesh_note_is_valid(&last, RANKS));
    bad[0].magic++;
    bad[1].kind = 0;
    bad[2].kind = MESH_STOPPED + 1;
    bad[3].origin = RANKS;
    bad[4].cause = MESH_GARBLED + 1;
    bad[5].cause = 0;
    for (size_t i = 0; i < 6; i++) {
        assert_false(mesh_note_is_valid(&bad[i], RANKS));
        assert_int_equal(mesh_take_note(&rig.comm, 1, &bad[i]), 0);
    }
    assert_false(mesh_is_broken(&rig.comm, 0, 1, NULL));
    const mesh_frame frame = { .magic = MESH_FRAME_MAGIC,
                               .kind = MESH_DATA,
                               .lane = MESH_LANES - 1,
                               .bytes = MESH_PIECE };
    mesh_frame wrong[6] = { frame, frame, frame, frame, frame, frame };
    assert_true(mesh_frame_is_valid(&frame));
    wrong[0].magic++;
    wrong[1].kind = 0;
    wrong[2].kind = MESH_LEAVE + 1;
    wrong[3].lane = MESH_LANES;
    wrong[4].bytes = 0;
    wrong[5].bytes = MESH_PIECE + 1;
    for (size_t i = 0; i < 6; i++)
        assert_false(mesh_frame_is_valid(&wrong[i]));
    mesh_frame offer = { .magic = MESH_FRAME_MAGIC,
                         .kind = MESH_OFFER,
                         .call = XRAY_COMM_SEND,
                         .bytes = 1u << 30 };
    assert_true(mesh_frame_is_valid(&offer));
    offer.call = XRAY_COMM_RECV;
    assert_true(mesh_frame_is_valid(&offer));
    offer.call = XRAY_COMM_ALL_REDUCE;
    assert_false(mesh_frame_is_valid(&offer));
    offer.kind = MESH_CALL;
    assert_true(mesh_frame_is_valid(&offer));
    offer.call_bytes = UINT64_MAX;
    assert_false(mesh_frame_is_valid(&offer));
    offer.call_bytes = 0;
    offer.bytes = UINT64_MAX;
    assert_false(mesh_frame_is_valid(&offer));
}

/* Each piece that is sent tells of the whole call as well. */
static void frames_tell_of_their_call(void **state)
{
    const mesh_channel channel = { .key = UINT64_MAX - 4, .calls = 8 };
    const mesh_call call = { .call = 3,
                             .dtype = 4,
                             .root = 5,
                             .bytes = 1,
                             .call_bytes = 2,
                             .extra = 6 };
    const mesh_frame f = mesh_frame_of(&channel, &call, MESH_OFFER);
    (void)state;
    assert_true(f.magic == MESH_FRAME_MAGIC && f.kind == MESH_OFFER);
    assert_true(f.channel == channel.key && f.number == 9);
    assert_true(f.bytes == 1 && f.call_bytes == 2);
    assert_true(f.call == 3 && f.dtype == 4 && f.root == 5 && f.extra == 6);
}

/* The ranks of four hosts, whose blocks have different sizes. */
static void ranks_of_a_block_take_turns(void **state)
{
    static uint32_t host[9] = { 0, 1, 1, 3, 3, 3, 6, 6, 6 };
    static uint32_t first[9] = { 0, 1, 1, 3, 3, 3, 6, 6, 6 };
    static uint32_t count[9] = { 1, 2, 2, 3, 3, 3, 3, 3, 3 };
    static const struct {
        uint32_t dtype;
        uint64_t bytes;
        uint32_t least; /* ranks of a block that is added first */
    } cases[] = { { XRAY_F32, MESH_SMALL + 4, 2 },
                  { XRAY_BF16, MESH_SMALL + 4, 3 },
                  { XRAY_F32, MESH_SMALL, UINT32_MAX } };
    const xray_comm_group group = {
        .layout = { .host = host, .block_first = first, .block_count = count }
    };
    (void)state;
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        const mesh_call call = { .call = XRAY_COMM_ALL_REDUCE,
                                 .dtype = cases[c].dtype,
                                 .bytes = cases[c].bytes };
        for (uint32_t i = 0; i < 9; i++) {
            uint32_t used[9] = { 0 };
            for (uint32_t owner = 0; owner < 9; owner++) {
                const int partial =
                    host[i] != host[owner] && count[i] >= cases[c].least;
                const uint32_t from = mesh_source_of(&group, &call, owner, i);
                assert_int_equal(mesh_is_partial(&group, &call, owner, i),
                                 partial);
                if (!partial)
                    assert_int_equal(from, i);
                else
                    assert_in_range(from, first[i], first[i] + count[i] - 1);
                used[from] += (uint32_t)partial;
            }
            for (uint32_t r = first[i]; r < first[i] + count[i]; r++)
                assert_true(used[r] || count[i] < cases[c].least);
        }
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, open_rig, close_rig)
    const struct CMUnitTest tests[] = {
        CASE(a_report_tells_of_every_rank),
        CASE(causes_are_told),
        CASE(all_ranks_are_told_what_broke_a_channel),
        CASE(all_ranks_are_told_that_one_stops),
        CASE(frames_of_another_call_break_their_channel),
        CASE(ends_of_lines_are_told_apart),
        CASE(channels_are_found_by_their_keys),
        CASE(offers_are_found_by_channel_and_half),
        cmocka_unit_test(pieces_are_copied_wherever_they_lie),
        cmocka_unit_test(runs_cover_their_segments),
        CASE(notes_and_frames_are_judged),
        cmocka_unit_test(frames_tell_of_their_call),
        cmocka_unit_test(ranks_of_a_block_take_turns),
    };
    return cmocka_run_group_tests_name("tcp.mesh", tests, NULL, NULL);
}
