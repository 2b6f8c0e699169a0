/* Doubly linked lists through members. An unlinked member points to itself. */
#ifndef GBPF_SOFT_SERVER_LIST_H
#define GBPF_SOFT_SERVER_LIST_H

#include <stdbool.h>

#include "base/compiler.h"

struct softd_list {
	struct softd_list *prev, *next;
};

static inline void softd_list_init(struct softd_list *l)
{
	l->prev = l->next = l;
}

static inline bool softd_list_empty(const struct softd_list *l)
{
	return l->next == l;
}

/* Inserts e before at; before the head is the end of the list. */
static inline void softd_list_insert(struct softd_list *at, struct softd_list *e)
{
	e->prev = at->prev;
	e->next = at;
	at->prev->next = e;
	at->prev = e;
}

static inline void softd_list_remove(struct softd_list *e)
{
	e->prev->next = e->next;
	e->next->prev = e->prev;
	softd_list_init(e);
}

static inline void softd_list_append(struct softd_list *head, struct softd_list *e)
{
	softd_list_insert(head, e);
}

/* Moves all members of from to the front of to. */
static inline void softd_list_move(struct softd_list *to, struct softd_list *from)
{
	if (softd_list_empty(from)) {
		return;
	}
	from->next->prev = to;
	from->prev->next = to->next;
	to->next->prev = from->prev;
	to->next = from->next;
	softd_list_init(from);
}

#define softd_list_first(head, type, member) container_of((head)->next, type, member)

#define softd_list_each(head, var, type, member)                                                   \
	for (type *var = container_of((head)->next, type, member); &var->member != (head);         \
	     var = container_of(var->member.next, type, member))

/* Like softd_list_each; the body may remove var. */
#define softd_list_each_safe(head, var, type, member)                                              \
	for (type *var = container_of((head)->next, type, member),                                 \
		  *var##_next = container_of(var->member.next, type, member);                      \
	     &var->member != (head);                                                               \
	     var = var##_next, var##_next = container_of(var->member.next, type, member))

#endif
