/* Hardware control: how long a level is in force. A level ends with the request it was set for,
 * with the session that has that request, and with the policy version that set it; at the hold
 * limit it is suspended for the tenant's minimum share, so that tenants that wait for each other
 * make progress. */
#include "daemon/hw/hw_control.h"

#include <errno.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "daemon/hw/hw_control_int.h"

/* A request that gbpfd sees for the first time counts as open for at most this time, whatever its
 * tenant says: otherwise a tenant that lies could have others stopped at once. */
#define UNSEEN_MAX_NS UINT64_C(20000000)

void daemon_hw_end_level(struct daemon_hw *hw, uint64_t now)
{
	hw->want.level = GBPF_LEVEL_NONE;
	hw->for_tenant = -1;
	hw->pause_until_ns = 0;
	daemon_hw_update(hw, now);
}

/* Ends it on these GPUs. */
static void end_level_on(struct daemon_hw *hw, uint32_t gpus, uint64_t now)
{
	if (hw->want.gpus & ~gpus) {
		hw->want.gpus &= ~gpus;
		daemon_hw_update(hw, now);
	} else {
		daemon_hw_end_level(hw, now);
	}
}

int daemon_hw_set_level(struct daemon_session *s, uint32_t level, uint32_t gpus, uint64_t version,
			struct daemon_session *for_s)
{
	struct daemon_hw *hw = s->hw.state;
	uint64_t now = clock_now_ns(), key = 0;
	bool joins;

	if (level < GBPF_LEVEL_SLICE) {
		if (hw && hw->want.level != GBPF_LEVEL_NONE) {
			end_level_on(hw, gpus, now);
		}
		return 0;
	}
	if (level > GBPF_LEVEL_OFF) {
		return -EINVAL;
	}
	if (!hw || !(daemon_hw_levels(s) & 1u << level)) {
		return -ENOTSUP;
	}
	if (for_s) {
		(void)daemon_hw_request_since(for_s, (uint32_t)__builtin_ctz(gpus), now, &key);
	}
	if (hw->want.level == GBPF_LEVEL_NONE) {
		hw->level_since_ns = now;
	}
	/* Instances of one version on several GPUs order it each for its own. */
	joins = hw->want.level == level && hw->level_version == version && !for_s &&
		hw->for_tenant < 0;
	hw->want.level = level;
	hw->want.gpus = joins ? hw->want.gpus | gpus : gpus;
	hw->level_version = version;
	hw->for_tenant = for_s ? for_s->tenant : -1;
	hw->for_key = key;
	hw->level_set_ns = now;
	daemon_hw_update(hw, now);
	return 0;
}

/* The board is written by the tenant: every word is read once. The end of the last request
 * identifies the one that follows it. */
uint64_t daemon_hw_request_since(struct daemon_session *s, uint32_t gpu, uint64_t now,
				 uint64_t *ret_key)
{
	const struct proto_board *board = s->board.map;
	const struct proto_board_gpu *b = &board->gpu[gpu];
	uint64_t key = load_relaxed(&b->last_end_ns), opened;

	*ret_key = key;
	if (!proto_board_open(board, gpu, now)) {
		s->hw.request_since[gpu] = 0;
		return 0;
	}
	if (!s->hw.request_since[gpu] || s->hw.request_key[gpu] != key) {
		opened = load_relaxed(&b->opened_ns);
		s->hw.request_key[gpu] = key;
		s->hw.request_since[gpu] =
			opened && opened < now ? MAX(opened, now - MIN(now, UNSEEN_MAX_NS)) : now;
	}
	return s->hw.request_since[gpu];
}

static bool request_is_open(const struct daemon_hw *hw, uint64_t now)
{
	struct daemon_session *t =
		hw->for_tenant >= 0 ? hw->d->sessions.tenant[hw->for_tenant] : NULL;
	uint64_t key;

	return t && !t->dying && t->board.map && t->class_id == GBPF_CLASS_LATENCY &&
	       daemon_hw_request_since(t, (uint32_t)__builtin_ctz(hw->want.gpus), now, &key) &&
	       key == hw->for_key;
}

static void enforce_hold_limit(struct daemon_hw *hw, uint64_t now)
{
	if (!hw->pause_until_ns && now - hw->level_since_ns > DAEMON_HOLD_LIMIT_NS) {
		hw->pause_until_ns =
			now + (uint64_t)DAEMON_HOLD_LIMIT_NS / 1000000u * DAEMON_MIN_SHARE_PPM;
	} else if (hw->pause_until_ns && now > hw->pause_until_ns) {
		hw->pause_until_ns = 0;
		hw->level_since_ns = now;
	}
}

static bool tick(struct daemon_hw *hw, uint64_t now)
{
	if (hw->want.level != GBPF_LEVEL_NONE) {
		bool lasts = hw->for_tenant >= 0 ? request_is_open(hw, now)
						 : now - hw->level_set_ns < DAEMON_HOLD_LIMIT_NS;

		if (lasts) {
			enforce_hold_limit(hw, now);
		} else {
			daemon_hw_end_level(hw, now);
		}
	}
	daemon_hw_update(hw, now);
	return daemon_hw_is_busy(hw);
}

bool daemon_hw_tick(struct daemon *d, uint64_t now)
{
	bool any = false;

	daemon_session_each(d, s)
	{
		any |= s->hw.state && tick(s->hw.state, now);
	}
	return any;
}

void daemon_hw_release_levels(struct daemon *d)
{
	daemon_session_each(d, s)
	{
		if (s->hw.state && s->hw.state->want.level != GBPF_LEVEL_NONE) {
			daemon_hw_end_level(s->hw.state, clock_now_ns());
		}
	}
}
