/* SPDX-License-Identifier: Apache-2.0
 *
 * Answers made of several: lists, sets, tuples, relations.
 */
#include "plugins/reward-rule/math_equal.h"

typedef struct items {
    unsigned count;
    rule_item at[RULE_ENTRIES];
} items;

static int equal_items(const rule_equal_context *c, rule_item a, rule_item b);

static const rule_node *node_of(const rule_equal_context *c, uint16_t node)
{
    return &c->tree->node[node];
}

/* What a value may be called: x, x_1, f(x), (p,q), AB, |AB|, A:B, f^-1. */
static int is_name(const rule_equal_context *c, uint16_t node)
{
    const rule_node *n = node_of(c, node);
    if (n->kind == RULE_NAME || n->kind == RULE_OPAQUE)
        return 1;
    if (n->kind == RULE_CONSTANT)
        return n->op == 'e' || n->op == 'i';
    if (n->kind == RULE_POWER) /* f^{-1}(x) */
        return is_name(c, n->first) &&
               node_of(c, node_of(c, n->first)->next)->kind == RULE_NEGATE;
    int built = n->kind == RULE_TUPLE || n->kind == RULE_RATIO ||
                n->kind == RULE_MULTIPLY || n->kind == RULE_DIVIDE ||
                (n->kind == RULE_CALL && n->op == RULE_ABS);
    if (!built)
        return 0;
    for (uint16_t child = n->first; child; child = node_of(c, child)->next)
        if (!is_name(c, child))
            return 0;
    return 1;
}

/* 1 if all relations of a chain say that its sides are equal. */
static int is_equation(const rule_equal_context *c, uint16_t node)
{
    const rule_node *n = node_of(c, node);
    if (n->kind != RULE_CHAIN)
        return 0;
    for (uint16_t link = node_of(c, n->first)->next; link;
         link = node_of(c, link)->next) {
        int op = node_of(c, link)->op;
        if (op != RULE_EQ && op != RULE_NEAR && op != RULE_IN)
            return 0;
    }
    return 1;
}

/* What an equation says the value is: its last side, or the last one before
 * "nearly"; the first side of 5 = x, and of what is nearly something but is no
 * name. */
static uint16_t result_of(const rule_equal_context *c, uint16_t chain)
{
    uint16_t first = node_of(c, chain)->first;
    uint16_t found = 0;
    for (uint16_t link = node_of(c, first)->next; link;
         link = node_of(c, link)->next) {
        int near = node_of(c, link)->op == RULE_NEAR;
        if (near && !found && !is_name(c, first))
            return first;
        if (near && found)
            break;
        found = node_of(c, link)->first;
    }
    return is_name(c, found) && !is_name(c, first) ? first : found;
}

/* 1 if the first relation says "nearly": such a one is no equation. */
static int is_nearly(const rule_equal_context *c, uint16_t node)
{
    const rule_node *n = node_of(c, node);
    return n->kind == RULE_CHAIN &&
           node_of(c, node_of(c, n->first)->next)->op == RULE_NEAR;
}

/* The only side of a truth that is a name, in x = 5 or 5 = x. */
static int names_value(const rule_equal_context *c, uint16_t chain)
{
    uint16_t first = node_of(c, chain)->first;
    return is_name(c, first) || result_of(c, chain) == first;
}

static rule_item resolve(const rule_equal_context *c, rule_item item)
{
    for (;;) {
        const rule_node *n = node_of(c, item.node);
        if (n->kind == RULE_LIST && n->count == 1)
            item.node = n->first;
        else if (is_nearly(c, item.node))
            item.node = result_of(c, item.node);
        else
            return item;
    }
}

/* (x, -y) = (1, 2) does not say what (x, y) is. */
static int has_unknown_parts(const rule_equal_context *c, uint16_t chain)
{
    uint16_t first = node_of(c, chain)->first;
    return node_of(c, first)->kind == RULE_TUPLE && !is_name(c, first);
}

/* The form of the ground truth counts: x = 5 is 5 where the other side is no
 * equation; of the ground truth only if x is a name. */
static void unwrap(const rule_equal_context *c, rule_item *given,
                   rule_item *truth)
{
    *given = resolve(c, *given);
    *truth = resolve(c, *truth);
    int one = is_equation(c, given->node);
    int two = is_equation(c, truth->node);
    if (one && !two && !has_unknown_parts(c, given->node))
        given->node = result_of(c, given->node);
    else if (two && !one && names_value(c, truth->node))
        truth->node = result_of(c, truth->node);
    *given = resolve(c, *given);
    *truth = resolve(c, *truth);
}

static void add_item(const rule_equal_context *c, items *list, rule_item item)
{
    item = resolve(c, item);
    int either = (rule_contents(c->tree, item.node) & RULE_HAS_EITHER) != 0;
    for (int sign = 1; sign >= (either ? -1 : 1); sign -= 2) {
        if (list->count == RULE_ENTRIES)
            return;
        item.sign = sign;
        list->at[list->count++] = item;
    }
}

static void collect(const rule_equal_context *c, uint16_t node, items *out)
{
    const rule_node *n = node_of(c, node);
    out->count = 0;
    if (n->kind != RULE_LIST && n->kind != RULE_SET) {
        add_item(c, out, (rule_item){ .node = node, .sign = 1 });
        return;
    }
    for (uint16_t child = n->first; child; child = node_of(c, child)->next)
        add_item(c, out, (rule_item){ .node = child, .sign = 1 });
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
    if (node_of(c, a)->count != node_of(c, b)->count)
        return 0;
    uint16_t x = node_of(c, a)->first;
    uint16_t y = node_of(c, b)->first;
    while (x && y) {
        rule_item left = { .node = x, .sign = 1 };
        rule_item right = { .node = y, .sign = 1 };
        if (!equal_items(c, left, right))
            return 0;
        x = node_of(c, x)->next;
        y = node_of(c, y)->next;
    }
    return 1;
}

static int flipped(int op)
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

/* The sides of a chain and the relations between them, from either end. */
static unsigned sides(const rule_equal_context *c, uint16_t chain, int reverse,
                      uint16_t *out_side, int *out_op)
{
    unsigned count = 0;
    for (uint16_t side = node_of(c, chain)->first; side && count < RULE_ENTRIES;
         side = node_of(c, side)->next) {
        out_op[count] = node_of(c, side)->op;
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
        out_op[i] = flipped(out_op[count - i]);
        out_op[count - i] = flipped(swap);
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
    unsigned count = sides(c, a, 0, x, ops);
    if (count != sides(c, b, reverse, y, wanted))
        return 0;
    for (unsigned i = 0; i < count; i++) {
        rule_item left = { .node = x[i], .sign = 1 };
        rule_item right = { .node = y[i], .sign = 1 };
        if ((i && ops[i] != wanted[i]) || !equal_items(c, left, right))
            return 0;
    }
    return 1;
}

/* 1 if an equation has two sides, or is x = ... = y: then x and y count. */
static int has_ends(const rule_equal_context *c, uint16_t node)
{
    return is_equation(c, node) && (node_of(c, node)->count == 2 ||
                                    is_name(c, node_of(c, node)->first));
}

static int equal_relations(const rule_equal_context *c, uint16_t a, uint16_t b)
{
    if (equal_chains(c, a, b, 0) || equal_chains(c, a, b, 1))
        return 1;
    if (!has_ends(c, a) || !has_ends(c, b))
        return 0;
    uint16_t x = result_of(c, a);
    uint16_t y = result_of(c, b);
    uint16_t left = node_of(c, a)->first;
    uint16_t right = node_of(c, b)->first;
    if (is_name(c, left) && is_name(c, right) &&
        rule_hash(node_of(c, a)->text) == rule_hash(node_of(c, b)->text))
        return equal_items(c, (rule_item){ .node = x, .sign = 1 },
                           (rule_item){ .node = y, .sign = 1 });
    const uint16_t sides_of[4] = { left, x, right, y };
    return rule_equal_equations(c, sides_of);
}

static int round_open(int op)
{
    return op == '<' ? '(' : op;
}

static int round_close(int op)
{
    return op == '>' ? ')' : op;
}

static int equal_tuples(const rule_equal_context *c, uint16_t a, uint16_t b)
{
    const rule_node *x = node_of(c, a);
    const rule_node *y = node_of(c, b);
    int brackets =
        x->count != 2 || (round_open(x->op) == round_open(y->op) &&
                          round_close(x->close) == round_close(y->close));
    return brackets && equal_children(c, a, b);
}

static int is_vector(const rule_equal_context *c, uint16_t node)
{
    const rule_node *n = node_of(c, node);
    return n->kind == RULE_MATRIX && (n->rows == 1 || n->rows == n->count);
}

static int equal_answers(const rule_equal_context *c, uint16_t a, uint16_t b);

/* 101_2 may stand without its base. */
static int same_digits(const rule_node *numeral, const rule_node *number)
{
    return numeral->kind == RULE_NAME && number->kind == RULE_NUMBER &&
           numeral->text.size > number->text.size &&
           numeral->text.data[number->text.size] == '_' &&
           rule_equal((rule_text){ numeral->text.data, number->text.size },
                      number->text, 0);
}

static int equal_items(const rule_equal_context *c, rule_item a, rule_item b)
{
    unwrap(c, &a, &b);
    const rule_node *x = node_of(c, a.node);
    const rule_node *y = node_of(c, b.node);
    if (!a.node || !b.node || c->tree->steps++ > RULE_STEPS)
        return 0;
    if (same_digits(x, y) || same_digits(y, x))
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
    collect(c, a, &x);
    collect(c, b, &y);
    if (x.count == 1 && y.count == 1)
        return equal_items(c, x.at[0], y.at[0]);
    return equal_in_any_order(c, &x, &y);
}

static int is_single(const rule_tree *tree, uint16_t node)
{
    int kind = tree->node[node].kind;
    return kind != RULE_LIST && kind != RULE_CHAIN;
}

/* 1, 2 and (1, 2): a list or set, and a tuple. */
static int is_bare(const rule_equal_context *c, uint16_t list, uint16_t tuple)
{
    const rule_node *n = node_of(c, tuple);
    int kind = node_of(c, list)->kind;
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
    unwrap(c, &one, &two);
    uint16_t x = one.node;
    uint16_t y = two.node;
    if (!x || !y)
        return 0;
    if (equal_answers(c, x, y))
        return 1;
    if ((is_bare(c, x, y) || is_bare(c, y, x)) && equal_children(c, x, y))
        return 1;
    int sets = rule_is_set(tree, x) && rule_is_set(tree, y) &&
               (rule_is_plain_set(tree, x) || rule_is_plain_set(tree, y));
    int allowed = !how->relation_is_no_set || !rule_is_relation(tree, x) ||
                  rule_is_relation(tree, y);
    return sets && allowed && rule_equal_sets(tree, x, y);
}
