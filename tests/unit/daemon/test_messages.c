/* The features of gbpfd: each type of message that tenants send has one handler, and events reach
 * the features in the order that they need. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/exits/exit_record.h"
#include "daemon/hw/hw_control.h"
#include "daemon/idle/idle_boards.h"
#include "daemon/maps/maps_watch.h"
#include "daemon/policy/policies.h"
#include "daemon/policy/vgpu_maps.h"
#include "daemon/probe/probes.h"
#include "daemon/session/tenant_session.h"
#include "daemon/vgpu/vgpu.h"
#include "daemon/watch/watch.h"

/* Returns whether tenants send messages of the type. Without a default, so that the compiler
 * reports a type that is missing here. */
static bool is_from_tenants(enum proto_type type)
{
	switch (type) {
	case PROTO_HELLO:
	case PROTO_BOARD_MAPPED:
	case PROTO_PREPARED:
	case PROTO_NOTE: /* in both directions */
	case PROTO_DEVICES:
	case PROTO_CONTROL:
	case PROTO_FLAG:
	case PROTO_REQUEST:
	case PROTO_MEM_ASK:
	case PROTO_MEM_RELEASED:
	case PROTO_PROBE_STATE:
	case PROTO_PROBE_ENDED:
	case PROTO_PROBE_DRAINED:
	case PROTO_COVERED:
	case PROTO_COMMUNICATES:
	case PROTO_IPC_OPEN:
	case PROTO_IPC_GIVEN:
		return true;
	case PROTO_WELCOME:
	case PROTO_REFUSED:
	case PROTO_PREPARE:
	case PROTO_DROP:
	case PROTO_BOARD_ADD:
	case PROTO_BOARD_REMOVE:
	case PROTO_SET:
	case PROTO_QUEUED:
	case PROTO_DEVICES_ARE:
	case PROTO_FLAG_ADD:
	case PROTO_FLAG_REMOVE:
	case PROTO_ACCOUNT:
	case PROTO_PROBE:
	case PROTO_PROBE_END:
	case PROTO_PROBE_DRAIN:
	case PROTO_COVERAGE:
	case PROTO_PROBE_SET:
	case PROTO_PEER_ADD:
	case PROTO_PEER_REMOVE:
	case PROTO_MEM_RELEASE:
	case PROTO_IPC_WANTED:
	case PROTO_IPC_OPENED:
	case PROTO_TYPES:
		break;
	}
	return false;
}

static void each_type_that_tenants_send_has_one_handler(void **state)
{
	unsigned handlers[PROTO_TYPES] = { 0 };

	(void)state;
	daemon_features_each(f)
	{
		for (unsigned i = 0; i < DAEMON_FEATURE_MESSAGES; i++) {
			uint32_t type = (*f)->messages[i].type;

			assert_true(type < PROTO_TYPES);
			handlers[type] += type != 0;
		}
	}
	for (unsigned type = 0; type < PROTO_TYPES; type++) {
		unsigned expected = is_from_tenants((enum proto_type)type);

		if (handlers[type] != expected) {
			fail_msg("message type %u: %u handlers, %u expected", type, handlers[type],
				 expected);
		}
	}
}

static void each_handler_has_a_state_in_which_its_message_is_legal(void **state)
{
	(void)state;
	daemon_features_each(f)
	{
		for (unsigned i = 0; i < DAEMON_FEATURE_MESSAGES; i++) {
			const struct daemon_message *m = &(*f)->messages[i];

			if (!m->type) {
				continue;
			}
			assert_non_null(m->take);
			assert_true(m->states & ((2u << DAEMON_SESSION_READY) - 1));
			/* Before its hello a process has no pages, tenant number or devices. One
			 * that opens memory says none. */
			assert_int_equal(m->states & 1u << DAEMON_SESSION_NEW,
					 m->type == PROTO_HELLO || m->type == PROTO_IPC_OPEN
						 ? 1u << DAEMON_SESSION_NEW
						 : 0);
		}
	}
}

static size_t place(const struct daemon_feature *feature)
{
	size_t i = 0;

	while (daemon_features[i] && daemon_features[i] != feature) {
		i++;
	}
	assert_non_null(daemon_features[i]);
	return i;
}

#define FOLLOWS(hook, first, second)                                                               \
	do {                                                                                       \
		assert_non_null((first).hook);                                                     \
		assert_non_null((second).hook);                                                    \
		assert_true(place(&(first)) < place(&(second)));                                   \
	} while (0)

static void events_reach_the_features_in_order(void **state)
{
	(void)state;
	/* The program waits for the end of the list of tools. */
	FOLLOWS(session_ready, daemon_lc_feature, daemon_policies_feature);
	FOLLOWS(session_ready, daemon_policies_feature, daemon_probes_feature);
	FOLLOWS(session_ready, daemon_probes_feature, daemon_vgpu_shares_feature);
	/* Flag pages are taken back while the board has its slot. */
	FOLLOWS(session_ended, daemon_flags_feature, daemon_lc_feature);
	FOLLOWS(session_ended, daemon_idle_feature, daemon_lc_feature);
	FOLLOWS(session_ended, daemon_watches_feature, daemon_lc_feature);
	FOLLOWS(session_ended, daemon_lc_feature, daemon_hw_feature);
	FOLLOWS(session_ended, daemon_hw_feature, daemon_vgpus_feature);
	FOLLOWS(session_ended, daemon_vgpus_feature, daemon_policies_feature);
	FOLLOWS(session_ended, daemon_policies_feature, daemon_probes_feature);
	/* Exit records have the vGPU's peak. */
	FOLLOWS(session_ended, daemon_vgpus_feature, daemon_exits_feature);
	FOLLOWS(sessions_reaped, daemon_policies_feature, daemon_probes_feature);
	FOLLOWS(connection_closed, daemon_maps_feature, daemon_probes_feature);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_type_that_tenants_send_has_one_handler),
		cmocka_unit_test(each_handler_has_a_state_in_which_its_message_is_legal),
		cmocka_unit_test(events_reach_the_features_in_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
