/* SPDX-License-Identifier: Apache-2.0
 *
 * Describes the plugin reward-ffi: its options and its component.
 */
#include "plugins/reward-ffi/fn.h"

static const xray_choice languages[] = {
    { "c", FN_C, "a function of a shared object" },
    { "python", FN_PYTHON, "a function of a Python file" },
    { NULL, 0, NULL },
};

static const xray_choice calls[] = {
    { "verl", FN_VERL,
      "f(data_source, solution_str, ground_truth, extra_info), a sample at a "
      "time" },
    { "trl", FN_TRL, "f(prompts, completions, **columns), a prompt at a time" },
    { "batch", FN_BATCH,
      "f(data_sources, solution_strs, ground_truths, extra_infos), a prompt at "
      "a time" },
    { NULL, 0, NULL },
};

static const xray_choice errors[] = {
    { "stop", FN_STOP, "the run ends and names the sample" },
    { "score", FN_SCORE, "the sample gets error_score" },
    { NULL, 0, NULL },
};

static const xray_option options[] = {
    XRAY_CHOICE(fn_config, language, "c", languages, 0u, "0.1",
                "The language of the function."),
    XRAY_PATH(fn_config, library, "", 0u, "0.1",
              "c: the shared object that has the function."),
    XRAY_STRING(fn_config, symbol, "", 0u, "0.1",
                "c: the name of the function in the library."),
    XRAY_STRING(fn_config, signature, "", 0u, "0.1",
                "c: the parts of a sample that the function takes, with their "
                "types, and the type that it returns, as in \"response:s, "
                "ground_truth:s -> d\"; empty: what the library exports as "
                "SYMBOL_sig."),
    XRAY_PATH(fn_config, path, "", 0u, "0.1",
              "python: the file that has the function."),
    XRAY_STRING(fn_config, name, "compute_score", 0u, "0.1",
                "python: the name of the function in the file."),
    XRAY_STRING(fn_config, interpreter, "python3", 0u, "0.1",
                "python: the interpreter, searched for in PATH if it has no "
                "slash."),
    XRAY_CHOICE(fn_config, call, "verl", calls, 0u, "0.1",
                "python: the form in which the function is called."),
    XRAY_INT(fn_config, workers, "2", 1, 256, "processes", 0u, "0.1",
             "Number of processes that run the function."),
    XRAY_DURATION(
        fn_config, timeout, "60s", 1000000, 86400000000000, "s", 0u, "0.1",
        "Longest time of one call; loading the file may take a minute."),
    XRAY_BYTES(fn_config, memory, "4G", 0, 1e15, 0u, "0.1",
               "Most bytes of data that a worker may have; 0: no limit."),
    XRAY_CHOICE(fn_config, on_error, "stop", errors, 0u, "0.1",
                "The consequence of a sample that could not be scored."),
    XRAY_REAL(fn_config, error_score, "0", -1e9, 1e9, NULL, 0u, "0.1",
              "on_error = score: the score of a sample that could not be "
              "scored."),
};

static const xray_component component = {
    .header = XRAY_HEADER(xray_component),
    .iface = XRAY_IFACE_REWARD,
    .name = "ffi",
    .summary = "A C or Python function of yours, in processes of its own",
    .ops = &fn_ops,
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
    .option_stride = sizeof(xray_option),
    .config_size = sizeof(fn_config),
};

static const xray_component *const components[] = { &component };

static const xray_plugin plugin = {
    .header = XRAY_HEADER(xray_plugin),
    .abi_needed = XRAY_ABI_NEEDED,
    .component_count = 1,
    .name = "reward-ffi",
    .version = "0.1.0",
    .vendor = "xray",
    .license = "Apache-2.0",
    .components = components,
};

XRAY_PLUGIN_DEFINE(reward_ffi, plugin, "reward-ffi", "0.1.0",
                   "xray.reward/0:ffi")
