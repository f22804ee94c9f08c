/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds the trees of parsed math answers.
 */
#include "plugins/reward-rule/math_tree.h"

#include <string.h>

void rule_tree_clear(rule_tree *tree)
{
    tree->count = 1;
    tree->names = 0;
    tree->steps = 0;
    memset(&tree->node[0], 0, sizeof(tree->node[0]));
}

uint16_t rule_tree_node(rule_tree *tree, int kind)
{
    if (tree->count == RULE_NODES)
        return 0;
    rule_node *node = &tree->node[tree->count];
    memset(node, 0, sizeof(*node));
    node->kind = (uint8_t)kind;
    return tree->count++;
}

void rule_tree_append(rule_tree *tree, uint16_t parent, uint16_t child)
{
    rule_node *node = &tree->node[parent];
    uint16_t *link = &node->first;
    if (!parent || !child)
        return;
    while (*link)
        link = &tree->node[*link].next;
    *link = child;
    node->count++;
}

static uint64_t hash_text(rule_text text, int fold)
{
    static const char skipped[] = " {}$\\";
    uint64_t hash = 0xCBF29CE484222325u;
    for (size_t i = 0; i < text.size; i++) {
        char c = text.data[i];
        if (fold && c >= 'A' && c <= 'Z')
            c = (char)(c - 'A' + 'a');
        if (!memchr(skipped, c, sizeof(skipped) - 1))
            hash = (hash ^ (unsigned char)c) * 0x100000001B3u;
    }
    return hash;
}

uint64_t rule_hash_name(rule_text text)
{
    return hash_text(text, 0);
}

uint64_t rule_hash_word(rule_text text)
{
    return hash_text(text, 1);
}

uint16_t rule_tree_name(rule_tree *tree, uint64_t hash)
{
    for (uint16_t i = 0; i < tree->names; i++)
        if (tree->name[i] == hash)
            return i;
    if (tree->names == RULE_NAMES)
        return RULE_NAMES;
    tree->name[tree->names] = hash;
    return tree->names++;
}

unsigned rule_contents(rule_tree *tree, uint16_t node)
{
    const rule_node *n = &tree->node[node];
    unsigned bits = 0;
    tree->steps++;
    if (n->kind == RULE_NAME)
        bits = RULE_HAS_NAME;
    if (n->kind == RULE_NUMBER && memchr(n->text.data, '.', n->text.size) &&
        rule_seek(n->text, "\\overline") == n->text.size)
        bits = RULE_HAS_DECIMAL;
    if (n->kind == RULE_PERCENT)
        bits = RULE_HAS_PERCENT;
    if (n->kind == RULE_EITHER)
        bits = RULE_HAS_EITHER;
    if (n->kind == RULE_MATRIX)
        bits = RULE_HAS_MATRIX;
    if (n->kind == RULE_OPAQUE)
        bits = RULE_HAS_OPAQUE | RULE_HAS_NAME;
    for (uint16_t child = n->first; child; child = tree->node[child].next)
        bits |= rule_contents(tree, child);
    return bits;
}

int rule_is_real_line(const rule_tree *tree, const rule_node *n)
{
    return n->kind == RULE_NAME && n->name < RULE_NAMES &&
           (tree->name[n->name] ==
                rule_hash_name(rule_text_of("\\mathbb{R}")) ||
            tree->name[n->name] == rule_hash_name(rule_text_of("R")));
}

int rule_is_any_real(const rule_tree *tree, uint16_t chain)
{
    uint16_t link = tree->node[tree->node[chain].first].next;
    return tree->node[link].op == RULE_IN && !tree->node[link].next &&
           rule_is_real_line(tree, &tree->node[tree->node[link].first]);
}
