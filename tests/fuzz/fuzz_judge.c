/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes the answers of reward.http's servers: the first byte chooses the
 * protocol, the body follows. After a NUL comes a sample, whose request is
 * written: its response, or with another NUL its ground truth after it. Every
 * sample of the request gets one answer, and a reason is one line.
 */
#include "core/base/str.h"
#include "plugins/reward-http/http.h"
#include "tests/fuzz/fuzz.h"

static void drop_line(const xray_host *host, uint32_t level, const char *text)
{
    (void)host;
    fuzz_saw_u64("level", level);
    fuzz_saw_text("logged", text);
    FUZZ_CHECK(*text && !strchr(text, '\n'));
}

static xray_status refuse(const xray_host *host, xray_status code,
                          const char *where, const char *text)
{
    (void)host;
    fuzz_saw_text("where", where);
    fuzz_saw_text("failed", text);
    FUZZ_CHECK(*text && !strchr(text, '\n'));
    return code;
}

static const xray_host host = { .header = XRAY_HEADER(xray_host),
                                .log = drop_line,
                                .fail = refuse };

static const char *template_file(void)
{
    static char path[128];
    if (!path[0]) {
        (void)snprintf(path, sizeof(path), "%s/template", fuzz_dir());
        FUZZ_CHECK(xr_file_write(path, "{response}", 10, NULL) == XRAY_OK);
    }
    return path;
}

static void poll_all(xr_scores *scores, size_t count)
{
    uint64_t seen = 0;
    for (size_t i = 0; i < count; i++) {
        xray_score score = { .header = XRAY_HEADER(xray_score) };
        FUZZ_CHECK(xr_scores_poll(scores, 0, &score) == XRAY_OK);
        FUZZ_CHECK(score.id < count && !(seen >> score.id & 1));
        FUZZ_CHECK(score.score - score.score == 0);
        seen |= (uint64_t)1 << score.id;
        fuzz_saw_u64("sample", score.id);
        fuzz_saw_real("score", score.score);
        for (uint32_t k = 0; k < score.value_count; k++)
            fuzz_saw_real(score.values[k].name, score.values[k].value);
    }
    xray_score none = { .header = XRAY_HEADER(xray_score) };
    FUZZ_CHECK(xr_scores_poll(scores, 0, &none) == XRAY_END);
}

static void write_request(const http_protocol *protocol, const uint8_t *data,
                          size_t size)
{
    fuzz_two two = fuzz_split(data, size);
    char *response = fuzz_text(two.first, two.first_size);
    char *truth = fuzz_text(two.second, two.second_size);
    const xray_sample_in in = { .header = XRAY_HEADER(xray_sample_in),
                                .id = 3,
                                .prompt = "p \"q\"\n",
                                .prompt_size = 6,
                                .response = response,
                                .response_size = two.first_size,
                                .ground_truth = truth,
                                .data_source = "d",
                                .fields_json = "{\"a\":{\"b\":[1]}}" };
    http_sample sample = { .next = NULL };
    xr_err err = { "" };
    xr_str body = { 0 };
    if (http_protocol_sample(protocol, &in, &err, &sample)) {
        fuzz_said(&err);
    } else {
        http_protocol_body(protocol, &sample, &body);
        fuzz_saw_u64("batch", http_protocol_batch(protocol));
        fuzz_saw("request", xr_str_text(&body), body.size);
    }
    for (size_t i = 0; i < HTTP_PARTS; i++)
        xr_str_free(&sample.parts[i]);
    xr_str_free(&body);
    free(response);
    free(truth);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    xr_err err = { "" };
    xr_scores scores;
    http_protocol *protocol = NULL;
    http_sample samples[3] = { { .next = &samples[1], .id = 0 },
                               { .next = &samples[2], .id = 1 },
                               { .id = 2 } };
    if (!size)
        return 0;
    int chat = data[0] % 4 > 1;
    size_t count = chat ? 1 : 3;
    const http_config config = {
        .protocol = chat ? HTTP_CHAT : data[0] % 4,
        .model = chat ? "judge" : "",
        .template_file = chat ? template_file() : "",
        .pattern = data[0] % 4 == 2 ? "(?i)score: *(\\S+)|(a+)+$" : "",
        .score_path = data[0] % 4 == 3 ? "a.score" : "",
        .batch = 3,
    };
    samples[0].next = chat ? NULL : &samples[1];
    FUZZ_CHECK(xr_scores_open(&scores, &host, 0, -1) == 0);
    FUZZ_CHECK(xr_scores_expect(&scores, count) == 0);
    FUZZ_CHECK(http_protocol_open(&config, &err, &protocol) == XRAY_OK);
    fuzz_two two = fuzz_split(data + 1, size - 1);
    char *body = fuzz_text(two.first, two.first_size);
    http_protocol_answer(protocol, samples, body, two.first_size, &scores);
    poll_all(&scores, count);
    write_request(protocol, two.second, two.second_size);
    http_protocol_close(protocol);
    xr_scores_close(&scores);
    free(body);
    return 0;
}
