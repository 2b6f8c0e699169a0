/* The test's gbpfd, and a program that uses the built library over the fake libcuda, for cases that
 * each run in their own process, since a process attaches once. */
#ifndef GBPF_TESTS_SHIM_GBPFD_H
#define GBPF_TESTS_SHIM_GBPFD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "base/atomic.h"
#include "../eventually.h"
#include "fake_cuda.h"
#include "proto/wire.h"
#include "policy/ctx.h"
#include "proto/pages.h"

#define WAIT_MS EVENTUALLY_MS /* reached only by a message that never arrives */

#define CHECK(x)                                                                                   \
	do {                                                                                       \
		if (!(x)) {                                                                        \
			fprintf(stderr, "%s:%d: %s\n", __func__, __LINE__, #x);                    \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

struct test_gbpfd {
	int listener, sock;
	int dir_fd, board_fd, stats_fd, other_fd;
	struct proto_directory *dir;
	struct proto_board *board, *other; /* the program's, and another tenant's */
	uint32_t lane;			   /* answer to early hellos */
	struct proto_hello hello;
	struct proto_devices devices;
	int hello_fds[8];
	unsigned hello_nfds;
};
extern struct test_gbpfd d;
extern char socket_path[96];

void make_pages(void);
void receive(union proto_message *m, enum proto_type type, int fds[8], unsigned *nfds);
void accept_hello(void);
void welcome(unsigned nfds); /* answers a request for device numbers with device 0; no tools */
void name_all_tools(void);
void welcome_early(unsigned nfds);
void tell_devices(void);
void add_other_board(void);
/* Prepares a policy: submit returns HOLD while other tenants have open requests; streams of
 * priority < 0 are latency queues. */
void prepare(uint64_t version);
/* Attaches the program, with version 7 in force. */
void attach_with_policy(void);
/* Ends the other tenant's request. */
void end_other_request(void);

/* ---- the program ---- */

extern CUresult (*init)(unsigned);
extern const struct fake_interface *fake;
void *entry(const char *name); /* in the library under test */
void close_library(void);
pthread_t start_init(CUresult *ret);
CUresult launch_on(CUstream stream, uint64_t parameter);
CUresult launch_one(void); /* on the default stream */
unsigned count_of(uint32_t index);
unsigned launches(void);

/* Runs a case in a child with a listening socket and the library loaded; fails unless it exits with
 * 0. */
void in_a_process(void (*run)(void));
int run_cases(int (*run)(void)); /* creates and removes the socket's directory */

#endif
