/* Doubly linked lists through members. An unlinked member points to itself. */
#ifndef GBPF_SOFT_SERVER_LIST_H
#define GBPF_SOFT_SERVER_LIST_H

#include <stdbool.h>

#include "base/compiler.h"

struct list {
	struct list *prev, *next;
};

static inline void list_init(struct list *l)
{
	l->prev = l->next = l;
}

static inline bool list_empty(const struct list *l)
{
	return l->next == l;
}

/* Puts e before at; before the head is the end. */
static inline void list_insert(struct list *at, struct list *e)
{
	e->prev = at->prev;
	e->next = at;
	at->prev->next = e;
	at->prev = e;
}

static inline void list_remove(struct list *e)
{
	e->prev->next = e->next;
	e->next->prev = e->prev;
	list_init(e);
}

static inline void list_append(struct list *head, struct list *e)
{
	list_insert(head, e);
}

#define list_first(head, type, member) container_of((head)->next, type, member)

#define list_each(head, var, type, member)                                                         \
	for (type *var = container_of((head)->next, type, member); &var->member != (head);         \
	     var = container_of(var->member.next, type, member))

/* As list_each; the body may remove var. */
#define list_each_safe(head, var, type, member)                                                    \
	for (type *var = container_of((head)->next, type, member),                                 \
		  *var##_next = container_of(var->member.next, type, member);                      \
	     &var->member != (head);                                                               \
	     var = var##_next, var##_next = container_of(var->member.next, type, member))

#endif
