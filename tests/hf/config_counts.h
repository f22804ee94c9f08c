/* SPDX-License-Identifier: Apache-2.0
 *
 * The fields of an xm_config that are counts or switches, as rows of a table.
 */
#ifndef TEST_HF_CONFIG_COUNTS_H
#define TEST_HF_CONFIG_COUNTS_H

/* clang-format off */
#define CONFIG_COUNTS(c) \
        { "arch", (c)->arch }, \
        { "hidden", (c)->hidden }, \
        { "layers", (c)->layers }, \
        { "heads", (c)->heads }, \
        { "kv_heads", (c)->kv_heads }, \
        { "head_dim", (c)->head_dim }, \
        { "ffn", (c)->ffn }, \
        { "vocab", (c)->vocab }, \
        { "max_positions", (c)->max_positions }, \
        { "tied", (c)->tied }, \
        { "qkv_bias", (c)->qkv_bias }, \
        { "qk_norm", (c)->qk_norm }, \
        { "o_bias", (c)->o_bias }, \
        { "mlp_bias", (c)->mlp_bias }, \
        { "layer_norm", (c)->layer_norm }, \
        { "post_norms", (c)->post_norms }, \
        { "gated", (c)->gated }, \
        { "act", (c)->act }, \
        { "learned_positions", (c)->learned_positions }, \
        { "fused", (c)->fused }, \
        { "transposed", (c)->transposed }, \
        { "rotary", (c)->rotary }, \
        { "window", (c)->window }
/* clang-format on */

#endif
