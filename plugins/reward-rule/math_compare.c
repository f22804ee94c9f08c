/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares answers that consist of several values: lists, sets, tuples and
 * relations.
 */
#include "plugins/reward-rule/math_equal.h"

typedef struct items {
    unsigned count;
    int full; /* 1: there are more than fit */
    rule_item at[RULE_ENTRIES];
} items;

static int equal_items(const rule_equal_context *c, rule_item a, rule_item b);

static const rule_node *get_node(const rule_equal_context *c, uint16_t node)
{
    return &c->tree->node[node];
}

/* Returns 1 if the node can name a value, as x, x_1, f(x), (p,q), AB, |AB|, A:B
 * and f^-1 do. */
static int is_name_node(const rule_equal_context *c, uint16_t node)
{
    const rule_node *n = get_node(c, node);
    if (n->kind == RULE_NAME || n->kind == RULE_OPAQUE)
        return 1;
    if (n->kind == RULE_CONSTANT)
        return n->op == 'e' || n->op == 'i';
    if (n->kind == RULE_POWER) /* f^{-1}(x) */
        return is_name_node(c, n->first) &&
               get_node(c, get_node(c, n->first)->next)->kind == RULE_NEGATE;
    int built = n->kind == RULE_TUPLE || n->kind == RULE_RATIO ||
                n->kind == RULE_MULTIPLY || n->kind == RULE_DIVIDE ||
                (n->kind == RULE_CALL && n->op == RULE_ABS);
    if (!built)
        return 0;
    for (uint16_t child = n->first; child; child = get_node(c, child)->next)
        if (!is_name_node(c, child))
            return 0;
    return 1;
}

/* Returns 1 if all relations of a chain state that its sides are equal. */
static int is_equation(const rule_equal_context *c, uint16_t node)
{
    const rule_node *n = get_node(c, node);
    if (n->kind != RULE_CHAIN)
        return 0;
    for (uint16_t link = get_node(c, n->first)->next; link;
         link = get_node(c, link)->next) {
        int op = get_node(c, link)->op;
        if (op != RULE_EQ && op != RULE_NEAR && op != RULE_IN)
            return 0;
    }
    return 1;
}

/* Returns the side of an equation that is its value: the last one, or the last
 * one before an approximation sign. It is the first side in 5 = x, and where
 * the first relation is an approximation and the first side is not a name. */
static uint16_t find_result(const rule_equal_context *c, uint16_t chain)
{
    uint16_t first = get_node(c, chain)->first;
    uint16_t found = 0;
    for (uint16_t link = get_node(c, first)->next; link;
         link = get_node(c, link)->next) {
        int near = get_node(c, link)->op == RULE_NEAR;
        if (near && !found && !is_name_node(c, first))
            return first;
        if (near && found)
            break;
        found = get_node(c, link)->first;
    }
    return is_name_node(c, found) && !is_name_node(c, first) ? first : found;
}

/* Returns 1 if the first relation is an approximation sign. Such a chain does
 * not count as an equation. */
static int is_approximation(const rule_equal_context *c, uint16_t node)
{
    const rule_node *n = get_node(c, node);
    return n->kind == RULE_CHAIN &&
           get_node(c, get_node(c, n->first)->next)->op == RULE_NEAR;
}

/* Returns 1 if the truth gives a name its value, as x = 5 and 5 = x do. */
static int truth_names_value(const rule_equal_context *c, uint16_t chain)
{
    uint16_t first = get_node(c, chain)->first;
    return is_name_node(c, first) || find_result(c, chain) == first;
}

static rule_item resolve_item(const rule_equal_context *c, rule_item item)
{
    for (;;) {
        const rule_node *n = get_node(c, item.node);
        if (n->kind == RULE_LIST && n->count == 1)
            item.node = n->first;
        else if (is_approximation(c, item.node))
            item.node = find_result(c, item.node);
        else
            return item;
    }
}

/* Returns 1 for (x, -y) = (1, 2), which does not state the value of (x, y). */
static int has_unknown_parts(const rule_equal_context *c, uint16_t chain)
{
    uint16_t first = get_node(c, chain)->first;
    return get_node(c, first)->kind == RULE_TUPLE && !is_name_node(c, first);
}

/* Replaces an equation by its value if the other answer is not an equation, so
 * that x = 5 equals 5. A ground truth is replaced only if x is a name. */
static void unwrap_equations(const rule_equal_context *c, rule_item *given,
                             rule_item *truth)
{
    *given = resolve_item(c, *given);
    *truth = resolve_item(c, *truth);
    int one = is_equation(c, given->node);
    int two = is_equation(c, truth->node);
    if (one && !two && !has_unknown_parts(c, given->node))
        given->node = find_result(c, given->node);
    else if (two && !one && truth_names_value(c, truth->node))
        truth->node = find_result(c, truth->node);
    *given = resolve_item(c, *given);
    *truth = resolve_item(c, *truth);
}

static void add_list_item(const rule_equal_context *c, items *list,
                          rule_item item)
{
    item = resolve_item(c, item);
    int either = (rule_contents(c->tree, item.node) & RULE_HAS_EITHER) != 0;
    for (int sign = 1; sign >= (either ? -1 : 1); sign -= 2) {
        if (list->count == RULE_ENTRIES) {
            list->full = 1;
            return;
        }
        item.sign = sign;
        list->at[list->count++] = item;
    }
}

static void collect_items(const rule_equal_context *c, uint16_t node,
                          items *out)
{
    const rule_node *n = get_node(c, node);
    out->count = 0;
    out->full = 0;
    if (n->kind != RULE_LIST && n->kind != RULE_SET) {
        add_list_item(c, out, (rule_item){ .node = node, .sign = 1 });
        return;
    }
    for (uint16_t child = n->first; child; child = get_node(c, child)->next)
        add_list_item(c, out, (rule_item){ .node = child, .sign = 1 });
}

static void drop_repeated(const rule_equal_context *c, items *list)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < list->count; i++) {
        unsigned k = 0;
        while (k < kept && !equal_items(c, list->at[k], list->at[i]))
            k++;
        if (k == kept)
            list->at[kept++] = list->at[i];
    }
    list->count = kept;
}

static int equal_in_any_order(const rule_equal_context *c, items *a, items *b)
{
    uint64_t used = 0;
    drop_repeated(c, a);
    drop_repeated(c, b);
    if (a->count != b->count)
        return 0;
    for (unsigned i = 0; i < a->count; i++) {
        unsigned k = 0;
        while (k < b->count &&
               ((used >> k & 1) || !equal_items(c, a->at[i], b->at[k])))
            k++;
        if (k == b->count)
            return 0;
        used |= (uint64_t)1 << k;
    }
    return 1;
}

static int equal_children(const rule_equal_context *c, uint16_t a, uint16_t b)
{
    if (get_node(c, a)->count != get_node(c, b)->count)
        return 0;
    uint16_t x = get_node(c, a)->first;
    uint16_t y = get_node(c, b)->first;
    while (x && y) {
        rule_item left = { .node = x, .sign = 1 };
        rule_item right = { .node = y, .sign = 1 };
        if (!equal_items(c, left, right))
            return 0;
        x = get_node(c, x)->next;
        y = get_node(c, y)->next;
    }
    return 1;
}

static int flip_relation(int op)
{
    switch (op) {
    case RULE_LT:
        return RULE_GT;
    case RULE_LE:
        return RULE_GE;
    case RULE_GT:
        return RULE_LT;
    case RULE_GE:
        return RULE_LE;
    default:
        return op;
    }
}

/* Collects the sides of a chain and the relations between them, from either
 * end, and returns the number of sides, or 0 if there are too many. */
static unsigned collect_sides(const rule_equal_context *c, uint16_t chain,
                              int reverse, uint16_t *out_side, int *out_op)
{
    unsigned count = 0;
    if (get_node(c, chain)->count > RULE_ENTRIES)
        return 0;
    for (uint16_t side = get_node(c, chain)->first; side;
         side = get_node(c, side)->next) {
        out_op[count] = get_node(c, side)->op;
        out_side[count++] = side;
    }
    if (!reverse)
        return count;
    for (unsigned i = 0; i < count / 2; i++) {
        uint16_t swap = out_side[i];
        out_side[i] = out_side[count - 1 - i];
        out_side[count - 1 - i] = swap;
    }
    for (unsigned i = 1; i <= count / 2; i++) {
        int swap = out_op[i];
        out_op[i] = flip_relation(out_op[count - i]);
        out_op[count - i] = flip_relation(swap);
    }
    return count;
}

static int equal_chains(const rule_equal_context *c, uint16_t a, uint16_t b,
                        int reverse)
{
    uint16_t x[RULE_ENTRIES];
    uint16_t y[RULE_ENTRIES];
    int ops[RULE_ENTRIES];
    int wanted[RULE_ENTRIES];
    unsigned count = collect_sides(c, a, 0, x, ops);
    if (!count || count != collect_sides(c, b, reverse, y, wanted))
        return 0;
    for (unsigned i = 0; i < count; i++) {
        rule_item left = { .node = x[i], .sign = 1 };
        rule_item right = { .node = y[i], .sign = 1 };
        if ((i && ops[i] != wanted[i]) || !equal_items(c, left, right))
            return 0;
    }
    return 1;
}

/* Returns 1 if an equation has two sides, or is x = ... = y, in which case x
 * and y are compared. */
static int has_two_ends(const rule_equal_context *c, uint16_t node)
{
    return is_equation(c, node) && (get_node(c, node)->count == 2 ||
                                    is_name_node(c, get_node(c, node)->first));
}

static int equal_relations(const rule_equal_context *c, uint16_t a, uint16_t b)
{
    if (equal_chains(c, a, b, 0) || equal_chains(c, a, b, 1))
        return 1;
    if (!has_two_ends(c, a) || !has_two_ends(c, b))
        return 0;
    uint16_t x = find_result(c, a);
    uint16_t y = find_result(c, b);
    uint16_t left = get_node(c, a)->first;
    uint16_t right = get_node(c, b)->first;
    if (is_name_node(c, left) && is_name_node(c, right) &&
        rule_hash_name(get_node(c, a)->text) ==
            rule_hash_name(get_node(c, b)->text))
        return equal_items(c, (rule_item){ .node = x, .sign = 1 },
                           (rule_item){ .node = y, .sign = 1 });
    const uint16_t sides_of[4] = { left, x, right, y };
    return rule_equal_equations(c, sides_of);
}

static int normalise_open(int op)
{
    return op == '<' ? '(' : op;
}

static int normalise_close(int op)
{
    return op == '>' ? ')' : op;
}

static int equal_tuples(const rule_equal_context *c, uint16_t a, uint16_t b)
{
    const rule_node *x = get_node(c, a);
    const rule_node *y = get_node(c, b);
    int brackets = x->count != 2 ||
                   (normalise_open(x->op) == normalise_open(y->op) &&
                    normalise_close(x->close) == normalise_close(y->close));
    return brackets && equal_children(c, a, b);
}

static int is_vector(const rule_equal_context *c, uint16_t node)
{
    const rule_node *n = get_node(c, node);
    return n->kind == RULE_MATRIX && (n->rows == 1 || n->rows == n->count);
}

static int equal_answers(const rule_equal_context *c, uint16_t a, uint16_t b);

/* Returns 1 for 101_2 and 101: the base may be left out. */
static int has_same_digits(const rule_node *numeral, const rule_node *number)
{
    return numeral->kind == RULE_NAME && number->kind == RULE_NUMBER &&
           numeral->text.size > number->text.size &&
           numeral->text.data[number->text.size] == '_' &&
           rule_equal((rule_text){ numeral->text.data, number->text.size },
                      number->text, 0);
}

static int equal_items(const rule_equal_context *c, rule_item a, rule_item b)
{
    unwrap_equations(c, &a, &b);
    const rule_node *x = get_node(c, a.node);
    const rule_node *y = get_node(c, b.node);
    if (!a.node || !b.node || c->tree->steps++ > RULE_STEPS)
        return 0;
    if (has_same_digits(x, y) || has_same_digits(y, x))
        return 1;
    int tuples = (x->kind == RULE_TUPLE) + (y->kind == RULE_TUPLE);
    if (tuples == 2)
        return equal_tuples(c, a.node, b.node);
    if (tuples == 1 && (is_vector(c, a.node) || is_vector(c, b.node)))
        return equal_children(c, a.node, b.node);
    if (x->kind == RULE_SET || y->kind == RULE_SET)
        return x->kind == y->kind && equal_answers(c, a.node, b.node);
    if (x->kind == RULE_CHAIN || y->kind == RULE_CHAIN)
        return x->kind == y->kind && equal_relations(c, a.node, b.node);
    if (x->kind == RULE_RATIO && y->kind == RULE_RATIO &&
        equal_children(c, a.node, b.node))
        return 1;
    if ((rule_contents(c->tree, a.node) | rule_contents(c->tree, b.node)) &
        RULE_HAS_MATRIX)
        return rule_equal_matrices(c, a.node, b.node);
    return rule_equal_scalars(c, a, b);
}

static int equal_answers(const rule_equal_context *c, uint16_t a, uint16_t b)
{
    items x;
    items y;
    collect_items(c, a, &x);
    collect_items(c, b, &y);
    if (x.full || y.full)
        return 0;
    if (x.count == 1 && y.count == 1)
        return equal_items(c, x.at[0], y.at[0]);
    return equal_in_any_order(c, &x, &y);
}

static int is_single(const rule_tree *tree, uint16_t node)
{
    int kind = tree->node[node].kind;
    return kind != RULE_LIST && kind != RULE_CHAIN;
}

/* Returns 1 if a list or set, such as 1, 2, may equal a tuple, such as (1, 2).
 */
static int is_unbracketed_form(const rule_equal_context *c, uint16_t list,
                               uint16_t tuple)
{
    const rule_node *n = get_node(c, tuple);
    int kind = get_node(c, list)->kind;
    return (kind == RULE_LIST || kind == RULE_SET) && n->kind == RULE_TUPLE &&
           ((n->op == '(' && n->close == ')') || n->count > 2);
}

int rule_equal_trees(rule_tree *tree, uint16_t a, uint16_t b,
                     const rule_equality *how)
{
    rule_equal_context context = { tree, how };
    const rule_equal_context *c = &context;
    if (!a || !b)
        return 0;
    tree->steps = 0;
    unsigned differ = rule_contents(tree, a) ^ rule_contents(tree, b);
    if (how->single)
        return is_single(tree, a) && is_single(tree, b) &&
               !(differ & RULE_HAS_EITHER) &&
               rule_equal_scalars(c, (rule_item){ .node = a, .sign = 1 },
                                  (rule_item){ .node = b, .sign = 1 });
    rule_item one = { .node = a, .sign = 1 };
    rule_item two = { .node = b, .sign = 1 };
    unwrap_equations(c, &one, &two);
    uint16_t x = one.node;
    uint16_t y = two.node;
    if (!x || !y)
        return 0;
    if (equal_answers(c, x, y))
        return 1;
    if ((is_unbracketed_form(c, x, y) || is_unbracketed_form(c, y, x)) &&
        equal_children(c, x, y))
        return 1;
    int sets = rule_is_set(tree, x) && rule_is_set(tree, y) &&
               (rule_is_plain_set(tree, x) || rule_is_plain_set(tree, y));
    int allowed = !how->relation_is_no_set || !rule_is_relation(tree, x) ||
                  rule_is_relation(tree, y);
    return sets && allowed && rule_equal_sets(tree, x, y);
}
