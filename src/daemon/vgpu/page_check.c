/* Records that a process has written words to an account that no process or gbpfd writes. They harm
 * its own vGPU alone (proto/account.h); the record tells its owner why figures are wrong. Also
 * finds whether a page that a process brings is that of another vGPU. */
#include "daemon/vgpu/vgpu_int.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/procfs.h"
#include "mem/ledger.h"

#define AGAIN_NS UINT64_C(60000000000) /* between two events of one vGPU */

/* Returns what is wrong in a row, or NULL. */
static const char *row_fault(const struct daemon_vgpu *v, uint32_t row)
{
	const struct proto_account *a = daemon_vgpu_page(v);

	if (memcmp(a->uuid[row], v->row[row].uuid, sizeof(a->uuid[row])) != 0) {
		return "a device";
	}
	if (load_seqcst(&a->limit[row]) != v->row[row].limit) {
		return "a limit";
	}
	for (uint32_t i = 0; i < PROTO_ACCOUNT_LINES; i++) {
		/* Also true of a line that has released more than it was charged. */
		if (mem_account_line_used(a, row, i) > PROTO_VGPU_MEM_MAX) {
			return "what a process holds";
		}
	}
	return NULL;
}

/* Returns true for the rows whose words are gbpfd's: also that of swap where the vGPU has none. */
static bool is_kept(const struct daemon_vgpu *v, uint32_t row)
{
	return daemon_vgpu_has_row(v, row) || row == PROTO_ACCOUNT_SWAP;
}

static const char *page_fault(const struct daemon_vgpu *v)
{
	const struct proto_account *a = daemon_vgpu_page(v);
	const char *fault = NULL;

	if (load_relaxed(&a->magic) != PROTO_ACCOUNT_MAGIC || load_relaxed(&a->abi) != PROTO_ABI) {
		return "its format";
	}
	if (load_relaxed(&a->vgpu_owner) != 1 + (uint64_t)v->uid) {
		return "its owner";
	}
	if (load_seqcst(&a->lines) > PROTO_ACCOUNT_LINES) {
		return "the number of its lines";
	}
	for (uint32_t row = 0; row < PROTO_ACCOUNT_ROWS && !fault; row++) {
		fault = is_kept(v, row) ? row_fault(v, row) : NULL;
	}
	return fault;
}

void daemon_vgpu_store_shown(struct daemon_vgpu *v)
{
	bool mem = v->is.config.flags & PROTO_VGPU_SHOW_MEM;

	store_relaxed(&daemon_vgpu_page(v)->show_mem, mem ? 1u : 0u);
}

/* Writes gbpfd's own words again, so that programs which join find an account. */
static void restore(struct daemon_vgpu *v)
{
	struct proto_account *a = daemon_vgpu_page(v);

	store_relaxed(&a->magic, PROTO_ACCOUNT_MAGIC);
	store_relaxed(&a->abi, PROTO_ABI);
	store_relaxed(&a->wait_ns, v->is.config.wait_ns);
	daemon_vgpu_store_shown(v);
	store_relaxed(&a->vgpu_owner, 1 + (uint64_t)v->uid);
	for (uint32_t row = 0; row < PROTO_ACCOUNT_ROWS; row++) {
		if (is_kept(v, row)) {
			memcpy(a->uuid[row], v->row[row].uuid, sizeof(a->uuid[row]));
			store_seqcst(&a->limit[row], v->row[row].limit);
			daemon_vgpu_restore_allowed(v, row);
		}
	}
	for (uint32_t i = 0; i < PROTO_ACCOUNT_LINES; i++) {
		bool is_held = v->line[i].death && !v->line[i].gone;

		a->owner[i].start = is_held ? v->line[i].start : 0;
		a->owner[i].pid = is_held ? v->line[i].pid : 0;
	}
	store_seqcst(&a->lines, daemon_vgpu_lines(v));
}

void daemon_vgpu_check_page(struct daemon_vgpu *v, int pid)
{
	const char *fault = page_fault(v);
	uint64_t now = clock_now_ns();
	char number[24];

	if (!fault) {
		return;
	}
	restore(v);
	if ((!v->garbled_ns || now - v->garbled_ns > AGAIN_NS) &&
	    daemon_session_event_allowed(v->d, v->uid)) {
		v->garbled_ns = now;
		snprintf(number, sizeof(number), "%llx", (unsigned long long)v->is.number);
		daemon_history_add_of(&v->d->history, v->uid, "vgpu", -1, pid,
				      "virtual GPU %s: a program has written over its account: "
				      "%s; its figures may be wrong until its programs have ended",
				      v->is.name[0] ? v->is.name : number, fault);
	}
}

bool daemon_vgpu_has_page(const struct daemon_vgpu *v, int fd)
{
	struct stat x, y;

	return v->page.map && fstat(fd, &x) == 0 && fstat(v->page.fd, &y) == 0 &&
	       x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* The folder in /proc has the effective user, also of a process that is not dumpable. */
int daemon_vgpu_open_process(int pid, uint64_t start, uid_t *ret_user)
{
	int fd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
	char path[64];
	long long began;
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d", pid);
	if (fd >= 0 &&
	    (stat(path, &st) < 0 || procfs_stat_field(pid, PROCFS_START, &began, NULL) < 0 ||
	     (uint64_t)began != start)) {
		return fd_close(fd);
	}
	if (fd >= 0) {
		*ret_user = st.st_uid;
	}
	return fd;
}

/* Returns true if a process that started then has not exited, and is of a user that the vGPU is not
 * for. Root's may join any, but was in the one of the stated owner. */
static bool runs_outside(const struct daemon_vgpu *v, int pid, uint64_t start)
{
	uid_t user = 0;
	struct pollfd p = { .fd = daemon_vgpu_open_process(pid, start, &user), .events = POLLIN };
	bool outside = p.fd >= 0 && !daemon_vgpu_is_for(v, user) && poll(&p, 1, 0) == 0;

	fd_close(p.fd);
	return outside;
}

/* Returns true if another vGPU has the page of v. */
static bool is_shared(const struct daemon_vgpu *v)
{
	for (const struct daemon_vgpu *o = v->d->vgpus.first; o; o = o->next) {
		if (o != v && daemon_vgpu_has_page(o, v->page.fd)) {
			return true;
		}
	}
	return false;
}

bool daemon_vgpu_page_is_of_others(const struct daemon_vgpu *v)
{
	const struct proto_account *a = daemon_vgpu_page(v);
	uint64_t owner = load_relaxed(&a->vgpu_owner);
	bool others = is_shared(v);

	if (!owner || owner == 1 + (uint64_t)v->uid) {
		return others;
	}
	for (uint32_t i = 0; i < PROTO_ACCOUNT_LINES && !others; i++) {
		others = runs_outside(v, load_relaxed(&a->owner[i].pid),
				      load_relaxed(&a->owner[i].start));
	}
	return others;
}
