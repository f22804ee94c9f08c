/* SPDX-License-Identifier: Apache-2.0
 *
 * Describes the plugin reward-http: its options and its component.
 */
#include "plugins/reward-http/http.h"

static const xray_choice protocols[] = {
    { "rows", HTTP_ROWS,
      "{\"samples\": [{\"id\", \"prompt\", \"response\", ...}]} to "
      "{\"scores\": [{\"id\", \"score\", ...}]}" },
    { "openrlhf", HTTP_OPENRLHF,
      "{\"query\", \"prompts\", \"labels\"}, lists, to {\"rewards\"}" },
    { "chat", HTTP_CHAT,
      "OpenAI's chat completions: a judge answers a prompt made of the "
      "sample" },
    { NULL, 0, NULL },
};

static const xray_choice errors[] = {
    { "stop", HTTP_STOP, "the run ends and names the sample" },
    { "score", HTTP_SCORE, "the sample gets error_score" },
    { NULL, 0, NULL },
};

static const xray_option options[] = {
    XRAY_STRING(http_config, url, "", 0u, "0.1",
                "The address that requests are posted to, with http:// or "
                "https://."),
    XRAY_CHOICE(http_config, protocol, "rows", protocols, 0u, "0.1",
                "The form of requests and answers."),
    XRAY_STRING(http_config, key_env, "", 0u, "0.1",
                "The name of an environment variable that holds the key, which "
                "is sent as \"Authorization: Bearer KEY\"."),
    XRAY_PATH(http_config, key_file, "", 0u, "0.1",
              "The same from a file of mode 0600."),
    XRAY_INT(http_config, batch, "16", 1, 4096, "samples", 0u, "0.1",
             "rows, openrlhf: most samples of a request."),
    XRAY_INT(http_config, concurrency, "8", 1, 1024, "requests", 0u, "0.1",
             "Most requests at a time."),
    XRAY_DURATION(http_config, timeout, "60s", 1000000, 86400000000000, "s", 0u,
                  "0.1", "Longest time of one attempt."),
    XRAY_INT(
        http_config, retries, "5", 0, 100, "attempts", 0u, "0.1",
        "Number of further attempts if the server cannot be reached, takes "
        "too long, breaks off, or says 408, 425, 429, 500, 502, 503 or "
        "504."),
    XRAY_DURATION(http_config, backoff, "1s", 1000000, 60000000000, "s", 0u,
                  "0.1",
                  "Time before the second attempt; it doubles with each, up to "
                  "a minute, and varies by half. A server's Retry-After "
                  "counts if it is longer."),
    XRAY_STRING(http_config, proxy, "", 0u, "0.1",
                "Address of a proxy; empty: http_proxy, https_proxy and "
                "no_proxy of the environment."),
    XRAY_PATH(http_config, ca_file, "", 0u, "0.1",
              "File of the certificates to trust; empty: those of the system."),
    XRAY_STRING(http_config, model, "", 0u, "0.1",
                "chat: the name of the judging model."),
    XRAY_PATH(http_config, template_file, "", 0u, "0.1",
              "chat: file with the text for the judge, in which "
              "{response}, {prompt}, {ground_truth} or {FIELD} stand for "
              "those of the sample."),
    XRAY_REAL(http_config, temperature, "0", -1, 2, NULL, 0u, "0.1",
              "chat: the judge's temperature; below 0: its own."),
    XRAY_INT(http_config, max_tokens, "1024", 0, 1048576, "tokens", 0u, "0.1",
             "chat: most tokens of the judge's answer; 0: its own limit."),
    XRAY_STRING(http_config, pattern, "", 0u, "0.1",
                "chat: a PCRE2 pattern, whose last match in the answer, or its "
                "first group, is the score."),
    XRAY_STRING(http_config, score_path, "", 0u, "0.1",
                "chat: the member of the JSON object in the answer that is the "
                "score, as in result.score."),
    XRAY_CHOICE(http_config, on_error, "stop", errors, 0u, "0.1",
                "The consequence of a sample that could not be scored."),
    XRAY_REAL(http_config, error_score, "0", -1e9, 1e9, NULL, 0u, "0.1",
              "on_error = score: the score of a sample that could not be "
              "scored."),
};

static const xray_component component = {
    .header = XRAY_HEADER(xray_component),
    .iface = XRAY_IFACE_REWARD,
    .name = "http",
    .summary = "A judge or a verifier behind a URL",
    .ops = &http_ops,
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
    .option_stride = sizeof(xray_option),
    .config_size = sizeof(http_config),
};

static const xray_component *const components[] = { &component };

static const xray_plugin plugin = {
    .header = XRAY_HEADER(xray_plugin),
    .abi_needed = XRAY_ABI_NEEDED,
    .component_count = 1,
    .name = "reward-http",
    .version = "0.1.0",
    .vendor = "xray",
    .license = "Apache-2.0",
    .components = components,
};

XRAY_PLUGIN_DEFINE(reward_http, plugin, "reward-http", "0.1.0",
                   "xray.reward/0:http")
