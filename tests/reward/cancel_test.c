/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that grading asks often enough whether it shall end, and that no score
 * of a canceled submit is given.
 */
#include "tests/reward/rig.h"
#include "tests/stopper.h"

#define SAMPLES 16u
#define RESPONSE (1u << 20)

static stopper stop;
static char response[RESPONSE + 1];
static xray_sample_in samples[SAMPLES];

static const void *find_calls(const xray_host *host, const char *id)
{
    (void)host;
    return strcmp(id, XRAY_SERVICE_CALLS) == 0 ? &stop.service : NULL;
}

/* Long answers with a formula wherever one may be looked for. */
static void make_samples(void)
{
    static const char piece[] =
        "Thus $x = \\frac{12}{7} + \\sqrt{2}$, so the answer is 42 or "
        "\\boxed{\\frac{1}{2}}. <answer> 17 </answer>\n";
    for (size_t at = 0; at < RESPONSE; at++)
        response[at] = piece[at % (sizeof(piece) - 1)];
    for (uint32_t i = 0; i < SAMPLES; i++)
        samples[i] = rig_sample(i, response, RESPONSE, "\\frac{1}{2}");
}

static xray_status submit_samples(rig *r, uint32_t stop_at)
{
    stopper_begin(&stop, stop_at);
    xray_status status =
        r->ops->submit(r->self, samples, SAMPLES, sizeof(samples[0]));
    stopper_mark(&stop);
    return status;
}

static void grading_is_canceled(void **state)
{
    static const char *const graders[] = { "math", "gsm8k", "qa", "numeric",
                                           "repetition" };
    (void)state;
    make_samples();
    for (size_t g = 0; g < sizeof(graders) / sizeof(graders[0]); g++) {
        rig r;
        rig_open(&r, RIG_KEYS("grader", graders[g]));
        r.ops->destroy(r.self);
        r.host.api.service = find_calls;
        assert_int_equal(r.ops->create(&r.host.api, r.config, &r.self),
                         XRAY_OK);
        assert_int_equal(submit_samples(&r, 0), XRAY_OK);
        print_message("    %s: %u questions, at most %.3f s apart\n",
                      graders[g], stop.asked, stop.longest);
        assert_true(stop.longest < STOPPER_LIMIT);
        assert_true(stop.asked >= SAMPLES);
        for (uint32_t i = 0; i < SAMPLES; i++)
            (void)rig_next_score(&r);
        assert_int_equal(submit_samples(&r, SAMPLES / 2), XRAY_E_CANCELED);
        assert_int_equal(stop.asked, SAMPLES / 2);
        assert_string_equal(r.host.reason, "submit: the run is stopped");
        stopper_begin(&stop, 0);
        rig_is_empty(&r);
        rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grading_is_canceled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
