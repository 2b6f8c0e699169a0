/* Signals that end a verb after it has cleaned up: SIGINT, SIGQUIT, SIGTERM, SIGHUP. */
#ifndef GBPF_CLI_INTERRUPT_H
#define GBPF_CLI_INTERRUPT_H

#include <signal.h>

/* Records these signals from now on instead of dying of them; blocking calls return EINTR. Signals
 * that are ignored, as by nohup(1), stay so. also, if not NULL, is called in the handler. */
void cli_interrupt_catch(void (*also)(int sig));
/* Returns the first signal that arrived, or 0. */
int cli_interrupted(void);
/* Around a fork: what arrives in the child before its exec would run this process's handler there
 * and be lost. hold() blocks these signals and returns the mask before; the parent restores that
 * mask, and the child calls default(), after which one that has arrived meanwhile ends it. */
void cli_interrupt_hold(sigset_t *ret_mask);
void cli_interrupt_default(const sigset_t *mask);
/* If a signal arrived, ends this process by it, as its parent (a shell's loop, say) expects. Called
 * once by main. */
void cli_interrupt_end(void);

#endif
