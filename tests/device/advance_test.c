/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of `advance`: sequences whose steps follow one another on the device.
 */
#include "tests/device/bench.h"

#define SEQUENCES 300
#define STEPS 9
#define STOPS 3 /* stop ids of a sequence, at most */

/* The draw of a caller whose struct is longer than the device's. */
typedef struct long_draw {
    xray_draw draw;
    uint64_t more;
} long_draw;

typedef struct batch {
    int32_t ids[SEQUENCES];
    int32_t positions[SEQUENCES];
    int32_t stop[SEQUENCES];
    long_draw draws[SEQUENCES];
} batch;

static int32_t token[SEQUENCES];
static int32_t limit[SEQUENCES];
static int32_t stop_start[SEQUENCES + 1];
static int32_t stop_ids[SEQUENCES * STOPS];

static batch make_batch(void)
{
    batch b;
    memset(&b, 0, sizeof(b));
    for (int32_t i = 0; i < SEQUENCES; i++) {
        b.ids[i] = 500 + i;
        b.positions[i] = 3 * i;
        b.stop[i] = i % 11 == 5;
        b.draws[i] = (long_draw){
            { .key = 7, .position = 3u * (unsigned)i + 1, .temperature = 0.5f },
            (uint64_t)i
        };
        limit[i] = 3 * i + 2 + i % (2 * STEPS);
        stop_start[i + 1] = stop_start[i] + i % (STOPS + 1);
        for (int32_t s = stop_start[i]; s < stop_start[i + 1]; s++)
            stop_ids[s] = 20 * s % 97;
    }
    return b;
}

static void draw_tokens(uint32_t step)
{
    for (uint32_t i = 0; i < SEQUENCES; i++)
        token[i] = (int32_t)((step * 131 + i * 7) % 97);
}

static void follow_sequence(batch *b, size_t i, int with_stop_ids)
{
    if (b->stop[i])
        return;
    b->ids[i] = token[i];
    b->positions[i]++;
    b->draws[i].draw.position++;
    b->stop[i] = (int32_t)b->draws[i].draw.position >= limit[i];
    for (int32_t s = stop_start[i]; with_stop_ids && s < stop_start[i + 1]; s++)
        b->stop[i] = b->stop[i] || stop_ids[s] == token[i];
}

static void check_sequences(const dev *d, int32_t live, int with_stop_ids)
{
    batch got = make_batch();
    batch want = make_batch();
    xray_advance op = { .header = XRAY_HEADER(xray_advance),
                        .items = { SEQUENCES, live < 0 ? NULL : &live },
                        .token = token,
                        .ids = got.ids,
                        .positions = got.positions,
                        .draws = &got.draws[0].draw,
                        .stop = got.stop,
                        .limit = limit,
                        .stop_start = with_stop_ids ? stop_start : NULL,
                        .stop_ids = with_stop_ids ? stop_ids : NULL,
                        .draw_stride = sizeof(long_draw) };
    for (uint32_t step = 0; step < STEPS; step++) {
        draw_tokens(step);
        for (int32_t i = 0; i < (live < 0 ? SEQUENCES : live); i++)
            follow_sequence(&want, (size_t)i, with_stop_ids);
        must(d->ops->advance(d->self, NULL, &op));
        if (memcmp(&got, &want, sizeof(got)) != 0)
            fail_msg("%s: step %u differs", d->name, step);
    }
}

static void sequences_go_on_until_they_stop(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    for (int i = 0; i < b.count; i++)
        for (int32_t live = -1; live < SEQUENCES; live += 100) {
            check_sequences(&b.dev[i], live, 0);
            check_sequences(&b.dev[i], live, 1);
        }
    close_devices(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sequences_go_on_until_they_stop),
    };
    return cmocka_run_group_tests_name("device.advance", tests, NULL, NULL);
}
