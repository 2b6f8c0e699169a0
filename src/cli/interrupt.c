/* Records signals for verbs that must clean up before they end. */
#include "cli/interrupt.h"

#include <stddef.h>

#include "base/compiler.h"

static const int signals[] = { SIGINT, SIGQUIT, SIGTERM, SIGHUP };
static volatile sig_atomic_t arrived;
static void (*then)(int sig);

static void on_signal(int sig)
{
	if (!arrived) {
		arrived = sig;
	}
	if (then) {
		then(sig);
	}
}

void cli_interrupt_catch(void (*also)(int sig))
{
	struct sigaction sa = { .sa_handler = on_signal };

	then = also;
	for (size_t i = 0; i < ARRAY_SIZE(signals); i++) {
		struct sigaction was;

		if (sigaction(signals[i], NULL, &was) == 0 && was.sa_handler != SIG_IGN) {
			sigaction(signals[i], &sa, NULL);
		}
	}
}

void cli_interrupt_hold(sigset_t *ret_mask)
{
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_SIZE(signals); i++) {
		sigaddset(&set, signals[i]);
	}
	sigprocmask(SIG_BLOCK, &set, ret_mask);
}

void cli_interrupt_default(const sigset_t *mask)
{
	for (size_t i = 0; i < ARRAY_SIZE(signals); i++) {
		struct sigaction was;

		if (sigaction(signals[i], NULL, &was) == 0 && was.sa_handler == on_signal) {
			signal(signals[i], SIG_DFL);
		}
	}
	sigprocmask(SIG_SETMASK, mask, NULL);
}

int cli_interrupted(void)
{
	return arrived;
}

void cli_interrupt_end(void)
{
	if (arrived) {
		signal(arrived, SIG_DFL);
		raise(arrived);
	}
}
