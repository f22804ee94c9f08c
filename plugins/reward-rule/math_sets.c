/* SPDX-License-Identifier: Apache-2.0
 *
 * Sets of the real line and relations of one variable are compared as what
 * they say of a number: at their ends, beside them, between them, on a grid,
 * and beside every place where one of them changes its mind.
 */
#include <math.h>

#include "plugins/reward-rule/math_equal.h"

#define ENDS 40
#define POINTS 512
#define GRID 25
#define HALVINGS 60

typedef struct line {
    rule_tree *tree;
    uint16_t node[2];
    int ends;
    int points;
    double end[ENDS];
    double point[POINTS];
} line;

static double room(double x)
{
    return 1e-9 * (fabs(x) > 1 ? fabs(x) : 1);
}

static int is_reals(const rule_tree *tree, const rule_node *n)
{
    return n->kind == RULE_NAME && n->name < RULE_NAMES &&
           (tree->name[n->name] == rule_hash(rule_text_of("\\mathbb{R}")) ||
            tree->name[n->name] == rule_hash(rule_text_of("R")));
}

static int is_relation(const rule_tree *tree, const rule_node *n)
{
    if (n->kind != RULE_CHAIN)
        return 0;
    for (uint16_t link = tree->node[n->first].next; link;
         link = tree->node[link].next)
        if (tree->node[link].op != RULE_EQ && tree->node[link].op != RULE_NEAR)
            return 1;
    return 0;
}

int rule_is_relation(const rule_tree *tree, uint16_t node)
{
    const rule_node *n = &tree->node[node];
    if (n->kind != RULE_LIST || !n->first)
        return is_relation(tree, n);
    for (uint16_t child = n->first; child; child = tree->node[child].next)
        if (!rule_is_relation(tree, child))
            return 0;
    return 1;
}

static int is_pair(const rule_node *n)
{
    return n->kind == RULE_TUPLE && n->count == 2 && n->op != '<';
}

static int is_set_node(rule_tree *tree, uint16_t node)
{
    const rule_node *n = &tree->node[node];
    tree->steps++;
    if (is_pair(n) || n->kind == RULE_SET || is_reals(tree, n) ||
        is_relation(tree, n))
        return 1;
    int joined = n->kind == RULE_LIST || n->kind == RULE_UNION ||
                 n->kind == RULE_INTERSECTION || n->kind == RULE_WITHOUT;
    if (!joined || !n->first)
        return 0;
    for (uint16_t child = n->first; child; child = tree->node[child].next)
        if (!is_set_node(tree, child))
            return 0;
    return 1;
}

int rule_is_plain_set(rule_tree *tree, uint16_t node)
{
    const rule_node *n = &tree->node[node];
    if (n->kind == RULE_LIST)
        return n->first && rule_is_plain_set(tree, n->first);
    return n->kind == RULE_UNION || n->kind == RULE_INTERSECTION ||
           n->kind == RULE_WITHOUT || is_relation(tree, n) || is_reals(tree, n);
}

int rule_is_set(rule_tree *tree, uint16_t node)
{
    if (!is_set_node(tree, node) ||
        (rule_contents(tree, node) & (RULE_HAS_OPAQUE | RULE_HAS_MATRIX)))
        return 0;
    uint64_t names = rule_names(tree, node);
    for (uint16_t i = 0; i < tree->names; i++)
        if (tree->name[i] == rule_hash(rule_text_of("\\mathbb{R}")))
            names &= ~((uint64_t)1 << i);
    return !(names & (names - 1));
}

static int real_at(rule_tree *tree, uint16_t node, double x, double *out)
{
    double complex z = 0;
    rule_point point = rule_point_of(0, 1, 1);
    point.bound = 1;
    point.value = x;
    if (!rule_evaluate(tree, node, &point, &z) ||
        fabs(cimag(z)) > room(creal(z)))
        return 0;
    *out = creal(z);
    return 1;
}

static int holds(rule_tree *tree, uint16_t node, double x);

static int related(int op, double a, double b)
{
    double eps = room(fabs(a) > fabs(b) ? a : b);
    int same = fabs(a - b) <= eps;
    switch (op) {
    case RULE_LT:
        return !same && a < b;
    case RULE_GT:
        return !same && a > b;
    case RULE_LE:
        return same || a < b;
    case RULE_GE:
        return same || a > b;
    case RULE_NE:
        return !same;
    default:
        return same;
    }
}

static int chain_holds(rule_tree *tree, const rule_node *n, double x)
{
    double left = 0;
    double right = 0;
    int known = real_at(tree, n->first, x, &left);
    for (uint16_t link = tree->node[n->first].next; link;
         link = tree->node[link].next) {
        if (tree->node[link].op == RULE_IN) {
            if (!holds(tree, tree->node[link].first, x))
                return 0;
            continue;
        }
        int next = real_at(tree, link, x, &right);
        if (!known || !next || !related(tree->node[link].op, left, right))
            return 0;
        left = right;
    }
    return 1;
}

static int interval_holds(rule_tree *tree, const rule_node *n, double x)
{
    double low = 0;
    double high = 0;
    if (!real_at(tree, n->first, x, &low) ||
        !real_at(tree, tree->node[n->first].next, x, &high))
        return 0;
    return related(n->op == '[' ? RULE_LE : RULE_LT, low, x) &&
           related(n->close == ']' ? RULE_LE : RULE_LT, x, high);
}

static int any_holds(rule_tree *tree, const rule_node *n, double x, int all)
{
    for (uint16_t child = n->first; child; child = tree->node[child].next)
        if (holds(tree, child, x) != all)
            return !all;
    return all;
}

static int set_holds(rule_tree *tree, const rule_node *n, double x)
{
    double value = 0;
    for (uint16_t child = n->first; child; child = tree->node[child].next)
        if (real_at(tree, child, x, &value) && related(RULE_EQ, value, x))
            return 1;
    return 0;
}

static int holds(rule_tree *tree, uint16_t node, double x)
{
    const rule_node *n = &tree->node[node];
    if (tree->steps++ > RULE_STEPS)
        return 0;
    switch (n->kind) {
    case RULE_TUPLE:
        return interval_holds(tree, n, x);
    case RULE_SET:
        return set_holds(tree, n, x);
    case RULE_UNION:
        return any_holds(tree, n, x, 0);
    case RULE_INTERSECTION:
        return any_holds(tree, n, x, 1);
    case RULE_WITHOUT:
        return holds(tree, n->first, x) &&
               !holds(tree, tree->node[n->first].next, x);
    case RULE_LIST:
        return any_holds(tree, n, x, n->op == 'a');
    case RULE_CHAIN:
        return chain_holds(tree, n, x);
    default:
        return is_reals(tree, n);
    }
}

static void add_point(line *l, double x)
{
    if (l->points == POINTS || fabs(x) > 1e100)
        return;
    int at = l->points++;
    for (; at > 0 && l->point[at - 1] > x; at--)
        l->point[at] = l->point[at - 1];
    l->point[at] = x;
}

/* The numbers of an answer are where it may change. */
static void add_ends(line *l, uint16_t node)
{
    rule_tree *tree = l->tree;
    double value = 0;
    if (l->ends + 2 > ENDS || tree->steps++ > RULE_STEPS)
        return;
    if (!(rule_contents(tree, node) & RULE_HAS_NAME) &&
        real_at(tree, node, 0, &value) && fabs(value) < 1e100) {
        l->end[l->ends++] = value;
        l->end[l->ends++] = -value;
        return;
    }
    for (uint16_t child = tree->node[node].first; child;
         child = tree->node[child].next)
        add_ends(l, child);
}

static void add_points(line *l)
{
    for (int i = -GRID; i <= GRID; i++)
        add_point(l, 0.37 * i + 0.011 * i * i * i);
    for (int i = 0; i < l->ends; i++) {
        double x = l->end[i];
        double step = 1e-6 * (fabs(x) > 1 ? fabs(x) : 1);
        add_point(l, x);
        add_point(l, x - step);
        add_point(l, x + step);
    }
    int count = l->points;
    double middle[POINTS];
    for (int i = 0; i + 1 < count; i++)
        middle[i] = l->point[i] + (l->point[i + 1] - l->point[i]) / 2;
    for (int i = 0; i + 1 < count; i++)
        add_point(l, middle[i]);
}

static int agree(const line *l, double x)
{
    return holds(l->tree, l->node[0], x) == holds(l->tree, l->node[1], x);
}

/* Between two points of which `node` holds at one: beside the change. */
static int agree_between(const line *l, uint16_t node, double low, double high)
{
    int at_low = holds(l->tree, node, low);
    for (int i = 0; i < HALVINGS; i++) {
        double middle = low + (high - low) / 2;
        if (holds(l->tree, node, middle) == at_low)
            low = middle;
        else
            high = middle;
    }
    double step = 1e-7 * (fabs(low) > 1 ? fabs(low) : 1);
    return agree(l, low - step) && agree(l, high + step);
}

int rule_equal_sets(rule_tree *tree, uint16_t a, uint16_t b)
{
    line l = { .tree = tree, .node = { a, b } };
    add_ends(&l, a);
    add_ends(&l, b);
    add_points(&l);
    for (int i = 0; i < l.points; i++)
        if (!agree(&l, l.point[i]))
            return 0;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i + 1 < l.points; i++) {
            int changes = holds(tree, l.node[k], l.point[i]) !=
                          holds(tree, l.node[k], l.point[i + 1]);
            if (changes &&
                !agree_between(&l, l.node[k], l.point[i], l.point[i + 1]))
                return 0;
        }
    return tree->steps <= RULE_STEPS;
}
