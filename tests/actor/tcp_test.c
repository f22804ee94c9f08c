/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of connections between hosts that need no socket: the greeting and
 * frames.
 */
#include "core/actor/tcp_frame.h"
#include "core/actor/tcp_hello.h"
#include "core/actor/tcp_sum.h"
#include "core/base/hash.h"
#include "tests/testing.h"

/* ---- the greeting -------------------------------------------------------- */

static const unsigned char token[XR_TCP_TOKEN] = "the token of this Workhorse";
static const unsigned char build[XR_TCP_TOKEN] = "this build";
static const unsigned char nonces[2][XR_TCP_TOKEN] = { "of the Workhorse",
                                                       "of the run" };

/* Passes what one side sends to the other, in pieces of `piece` bytes. */
static void pass_bytes(xr_tcp_hello *from, xr_tcp_hello *to, uint32_t piece)
{
    for (uint32_t at = 0; at < from->send_size; at += piece) {
        const uint32_t left = from->send_size - at;
        xr_tcp_hello_take(to, from->send + at, left < piece ? left : piece);
    }
    from->send_size = 0;
}

/* Both sides up to the proof; the run expects `expected`. */
static void greet(xr_tcp_hello *horse, xr_tcp_hello *run,
                  const unsigned char *expected, uint32_t piece)
{
    xr_tcp_hello_open(horse, XR_TCP_FOR_MESSAGES, 3, token, build, nonces[0]);
    xr_tcp_hello_await(run, build, nonces[1]);
    assert_int_equal(run->want, 80);
    pass_bytes(horse, run, piece);
    assert_int_equal(run->state, XR_TCP_HELLO_ASKS);
    assert_int_equal(run->opening.index, 3);
    xr_tcp_hello_answer(run, expected);
    pass_bytes(run, horse, piece);
}

static void both_sides_greet_each_other(void **state)
{
    xr_tcp_hello horse;
    xr_tcp_hello run;
    (void)state;
    for (uint32_t piece = 1; piece < 130; piece += 32) {
        greet(&horse, &run, token, piece);
        assert_int_equal(horse.state, XR_TCP_HELLO_DONE);
        assert_int_equal(run.state, XR_TCP_HELLO_MORE);
        pass_bytes(&horse, &run, piece);
        assert_int_equal(run.state, XR_TCP_HELLO_DONE);
        xr_tcp_hello_take(&run, "more", 4); /* which is not of the greeting */
        assert_int_equal(run.state, XR_TCP_HELLO_DONE);
    }
}

static void strangers_are_refused_by_both(void **state)
{
    static const unsigned char other[XR_TCP_TOKEN] = "another token";
    xr_tcp_hello horse;
    xr_tcp_hello run;
    (void)state;
    greet(&horse, &run, other, 7);
    assert_int_equal(horse.state, XR_TCP_HELLO_REFUSED);
    assert_string_equal(horse.why, "the program at this address does not know "
                                   "the token that this Workhorse was given");
    /* A Workhorse that does not check it proves nothing to the run, either. */
    xr_tcp_hello_take(&run, other, XR_TCP_TOKEN);
    assert_int_equal(run.state, XR_TCP_HELLO_REFUSED);
    assert_string_equal(run.why, "it does not know the token that Workhorse 3 "
                                 "was given");
    greet(&horse, &run, NULL, 200);
    assert_int_equal(run.state, XR_TCP_HELLO_REFUSED);
    assert_string_equal(run.why, "it says that it is Workhorse 3, which the "
                                 "run does not await");
    assert_string_equal(horse.why, "the run refused this Workhorse: this "
                                   "Workhorse is not awaited");
}

/* A proof belongs to the nonce of the run that it answers. */
static void replayed_proof_is_refused(void **state)
{
    static const unsigned char later[XR_TCP_TOKEN] = "the next one of the run";
    xr_tcp_hello horse;
    xr_tcp_hello run;
    (void)state;
    greet(&horse, &run, token, 200);
    xr_tcp_hello_await(&run, build, later);
    xr_tcp_hello_take(&run, &horse.opening, sizeof(horse.opening));
    xr_tcp_hello_answer(&run, token);
    pass_bytes(&horse, &run, 200);
    assert_int_equal(run.state, XR_TCP_HELLO_REFUSED);
}

static void other_builds_are_named(void **state)
{
    static const unsigned char other[XR_TCP_TOKEN] = "older build";
    xr_tcp_hello horse;
    xr_tcp_hello run;
    (void)state;
    xr_tcp_hello_open(&horse, XR_TCP_FOR_PULSE, 0, token, other, nonces[0]);
    xr_tcp_hello_await(&run, build, nonces[1]);
    pass_bytes(&horse, &run, 200);
    assert_int_equal(run.state, XR_TCP_HELLO_REFUSED);
    assert_string_equal(run.why, "its program is build 6f6c64657220, while "
                                 "this run's is build 746869732062");
    pass_bytes(&run, &horse, 200);
    assert_string_equal(horse.why,
                        "the run refused this Workhorse: its program is build "
                        "6f6c64657220, while this run's is build 746869732062");
    /* The sentence of a stranger is one line, too. */
    xr_tcp_hello_open(&horse, XR_TCP_FOR_PULSE, 0, token, other, nonces[0]);
    xr_tcp_hello_await(&run, build, nonces[1]);
    pass_bytes(&horse, &run, 200);
    run.send[offsetof(xr_tcp_reply_bytes, build) + 3] = '\n';
    run.send[offsetof(xr_tcp_reply_bytes, build) + 11] = '\x1b';
    pass_bytes(&run, &horse, 200);
    assert_string_equal(horse.why,
                        "the run refused this Workhorse: its program is build "
                        "6f6c64657220, while this run's is build 746869732062");
}

static void other_protocols_are_refused(void **state)
{
    static const char get[112] = "GET / HTTP/1.1\r\nHost: here\r\n";
    xr_tcp_hello hello;
    (void)state;
    xr_tcp_hello_await(&hello, build, nonces[0]);
    xr_tcp_hello_take(&hello, get, sizeof(get));
    assert_int_equal(hello.state, XR_TCP_HELLO_REFUSED);
    assert_int_equal(hello.send_size, 0);
    assert_string_equal(hello.why,
                        "it sent bytes that are no hello of a Workhorse");
    xr_tcp_hello_open(&hello, XR_TCP_FOR_PULSE, 0, token, build, nonces[0]);
    xr_tcp_hello_take(&hello, get, sizeof(get));
    assert_string_equal(hello.why, "there is no run of X-ray at this address");
}

static void build_has_an_id(void **state)
{
    static const unsigned char none[XR_TCP_TOKEN];
    unsigned char id[XR_TCP_TOKEN] = { 0 };
    unsigned char again[XR_TCP_TOKEN];
    (void)state;
    assert_int_equal(xr_tcp_build_id(id), 0);
    assert_int_equal(xr_tcp_build_id(again), 0);
    assert_memory_equal(id, again, sizeof(id));
    assert_memory_not_equal(id, none, 16);
}

/* ---- frames -------------------------------------------------------------- */

/* Every bit of a frame and of a short payload is covered. */
static void damage_is_noticed(void **state)
{
    unsigned char data[300];
    xr_tcp_frame frame = xr_tcp_frame_of(XR_TCP_MESSAGE, 300);
    unsigned char *header = (unsigned char *)&frame;
    (void)state;
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (unsigned char)(i * 7);
    for (frame.size = 1; frame.size <= sizeof(data); frame.size += 13) {
        xr_tcp_seal(&frame, data);
        assert_true(xr_tcp_is_whole(&frame, data));
        for (size_t bit = 0; bit < 8 * frame.size; bit++) {
            data[bit / 8] ^= (unsigned char)(1u << bit % 8);
            assert_false(xr_tcp_is_whole(&frame, data));
            data[bit / 8] ^= (unsigned char)(1u << bit % 8);
        }
    }
    frame.size = sizeof(data);
    xr_tcp_seal(&frame, data);
    for (size_t bit = 0; bit < 8 * sizeof(frame); bit++) {
        if (bit / 8 >= 8 && bit / 8 < 16) /* `size` says what is summed */
            continue;
        header[bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_false(xr_tcp_is_whole(&frame, data));
        header[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
}

/* ---- sums ---------------------------------------------------------------- */

#define STEP XR_TCP_STEP
#define STEPS 8u /* of a stream */
#define STREAM (STEPS * STEP)
#define TAIL 29u
#define SUMMED (XR_TCP_STREAMS * STREAM + TAIL)

/* The definition in core/actor/tcp_sum.h, word by word. */
static uint64_t define_sum(const unsigned char *data, uint64_t size,
                           uint64_t seed)
{
    enum { WORDS = XR_TCP_STEP / 8 };
    const uint64_t length = size / (XR_TCP_STREAMS * STEP) * STEP;
    uint64_t numbers[2][XR_TCP_STREAMS][WORDS] = { 0 };
    for (uint64_t at = 0; at < XR_TCP_STREAMS * length; at += 8) {
        const uint64_t stream = at / length;
        const uint64_t place = at % STEP / 8;
        uint64_t word;
        memcpy(&word, data + at, sizeof(word));
        numbers[0][stream][place] += word;
        word ^= (at % length / STEP + 1) * UINT64_C(0x9e3779b97f4a7c15);
        numbers[1][stream][place] += (word & 0xffffffffu) * (word >> 32);
    }
    if (length)
        seed = xr_hash64(numbers, sizeof(numbers), seed);
    data += XR_TCP_STREAMS * length;
    size -= XR_TCP_STREAMS * length;
    return size ? xr_hash64(data, (size_t)size, seed) : seed;
}

/* 1 if the sum changed, however it is computed. */
static int sum_differs(const unsigned char *data, uint64_t than)
{
    const uint64_t sum = xr_tcp_sum(data, SUMMED, 1);
    assert_int_equal(sum, xr_tcp_sum_plain(data, SUMMED, 1));
    return sum != than;
}

static void sums_are_as_defined(void **state)
{
    static unsigned char data[XR_TCP_PIECE];
    (void)state;
    for (uint64_t i = 0; i < sizeof(data); i++)
        data[i] = (unsigned char)(i * i * 31 >> 3);
    for (uint64_t size = 0; size < 1300; size++) {
        const uint64_t defined = define_sum(data + size, size, size);
        assert_int_equal(xr_tcp_sum(data + size, size, size), defined);
        assert_int_equal(xr_tcp_sum_plain(data + size, size, size), defined);
    }
    assert_int_equal(xr_tcp_sum(data, sizeof(data), 5),
                     define_sum(data, sizeof(data), 5));
}

static void flip_bit(unsigned char *data, size_t bit)
{
    data[bit / 8] ^= (unsigned char)(1u << bit % 8);
}

/* The bit together with the same one of every earlier word that is summed up in
 * its place, in each stream and in the tail. */
static void flip_pairs(unsigned char *data, size_t bit, uint64_t sum)
{
    for (size_t other = bit % (8 * STEP); other < bit; other += 8 * STEP) {
        flip_bit(data, other);
        assert_true(sum_differs(data, sum));
        flip_bit(data, other);
    }
}

/* Each bit alone; and, as a faulty wire or cell of memory flips them, the bits
 * at the ends of the halves of a word together with their like. */
static void flipped_bits_change_the_sum(unsigned char *data)
{
    const uint64_t sum = xr_tcp_sum(data, SUMMED, 1);
    for (size_t bit = 0; bit < (size_t)8 * SUMMED; bit++) {
        flip_bit(data, bit);
        assert_true(sum_differs(data, sum));
        if (bit % 32 == 0 || bit % 32 == 31)
            flip_pairs(data, bit, sum);
        flip_bit(data, bit);
    }
}

static void exchange_words(unsigned char *data, size_t a, size_t b)
{
    unsigned char word[8];
    memcpy(word, data + a, 8);
    memmove(data + a, data + b, 8);
    memcpy(data + b, word, 8);
}

static void exchanged_words_change_the_sum(unsigned char *data)
{
    const uint64_t sum = xr_tcp_sum(data, SUMMED, 1);
    for (size_t a = 0; a + 8 <= SUMMED; a += 8)
        for (size_t b = 0; b < a; b += 8) {
            if (memcmp(data + a, data + b, 8) == 0)
                continue;
            exchange_words(data, a, b);
            assert_true(sum_differs(data, sum));
            exchange_words(data, a, b);
        }
}

/* A run of zeros that a device wrote over the data, or that hides where they
 * begin. */
static void runs_of_zeros_change_the_sum(unsigned char *data)
{
    unsigned char damaged[SUMMED];
    const uint64_t sum = xr_tcp_sum(data, SUMMED, 1);
    for (size_t size = 1; size < SUMMED; size = 2 * size + 1)
        for (size_t at = 0; at + size <= SUMMED; at += 8) {
            memcpy(damaged, data, SUMMED);
            memset(damaged + at, 0, size);
            assert_true(sum_differs(damaged, sum));
        }
    for (size_t at = 8; at < SUMMED; at += 8) { /* bytes that came later */
        memset(damaged, 0, at);
        memcpy(damaged + at, data, SUMMED - at);
        assert_true(sum_differs(damaged, sum));
    }
}

static void sums_notice_damage(void **state)
{
    unsigned char data[SUMMED];
    (void)state;
    for (size_t i = 0; i < SUMMED; i++)
        data[i] = (unsigned char)(1 + i * 7 % 255);
    flipped_bits_change_the_sum(data);
    exchanged_words_change_the_sum(data);
    runs_of_zeros_change_the_sum(data);
    memset(data, 0, sizeof(data));
    flipped_bits_change_the_sum(data);
    memset(data, 0xff, sizeof(data));
    flipped_bits_change_the_sum(data);
}

/* ---- headers ------------------------------------------------------------- */

static void headers_are_checked(void **state)
{
    xr_tcp_frame good = xr_tcp_frame_of(XR_TCP_MESSAGE, 10);
    (void)state;
    good.size = XR_TCP_PIECE;
    good.rest = 5;
    assert_true(xr_tcp_is_frame(&good));
    xr_tcp_frame bad[6] = { good, good, good, good, good, good };
    bad[0].magic++;
    bad[1].kind = XR_TCP_KINDS;
    bad[2].size++;
    bad[3].size = 0;
    bad[4].rest = UINT64_MAX;
    bad[5].kind = XR_TCP_BEAT;
    for (int i = 0; i < 6; i++)
        assert_false(xr_tcp_is_frame(&bad[i]));
    const xr_tcp_frame beat = xr_tcp_frame_of(XR_TCP_BEAT, 0);
    assert_true(xr_tcp_is_frame(&beat));
    const xr_tcp_frame ends[] = { xr_tcp_frame_of(XR_TCP_UNREGION, 0),
                                  xr_tcp_frame_of(XR_TCP_UNREGION, 1) };
    assert_false(xr_tcp_is_frame(&ends[0])); /* would look like a message */
    assert_true(xr_tcp_is_frame(&ends[1]));
}

static void openings_are_checked(void **state)
{
    struct {
        xr_tcp_head head;
        xr_tcp_part parts[2];
        char message[5];
    } opening = { { 5, 2 },
                  { { 1, 4096, 4096, 0, 0 }, { 2, 100, 10, 90, 1 } },
                  "abcd" };
    const uint64_t size = offsetof(__typeof__(opening), message) + 5;
    xr_tcp_head head;
    uint64_t carried = 0;
    (void)state;
    assert_ptr_equal(xr_tcp_opening(&opening, size, &head, &carried),
                     opening.parts);
    assert_int_equal(carried, 90);
    assert_int_equal(head.size, 5);
    for (uint64_t i = 0; i < size; i++)
        assert_null(xr_tcp_opening(&opening, i, &head, &carried));
    struct {
        uint64_t *member;
        uint64_t value;
    } cases[] = {
        { &opening.head.size, 6 },
        { &opening.head.part_count, 3 },
        { &opening.head.part_count, UINT64_MAX / 40 + 2 },
        { &opening.parts[0].size, 0 },
        { &opening.parts[0].first, 4097 },
        { &opening.parts[1].count, 91 },
        { &opening.parts[1].count, UINT64_MAX },
        { &opening.parts[1].receivers, 2 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const uint64_t before = *cases[i].member;
        *cases[i].member = cases[i].value;
        assert_null(xr_tcp_opening(&opening, size, &head, &carried));
        *cases[i].member = before;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_sides_greet_each_other),
        cmocka_unit_test(strangers_are_refused_by_both),
        cmocka_unit_test(replayed_proof_is_refused),
        cmocka_unit_test(other_builds_are_named),
        cmocka_unit_test(other_protocols_are_refused),
        cmocka_unit_test(build_has_an_id),
        cmocka_unit_test(damage_is_noticed),
        cmocka_unit_test(sums_are_as_defined),
        cmocka_unit_test(sums_notice_damage),
        cmocka_unit_test(headers_are_checked),
        cmocka_unit_test(openings_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
