/* The words that may stand at the end of a command line of gbpf. */
#ifndef GBPF_CLI_COMPLETE_H
#define GBPF_CLI_COMPLETE_H

/* Prints what may replace the last of n words, which follow "gbpf" on a command line: a line "WORD
 * TAB description" for each that begins with it, and lines that the shell expands itself: ":files",
 * ":files SUFFIX", ":folders", ":commands". Asks gbpfd, for at most 1 s, only where PIDs, versions,
 * maps or virtual GPUs are wanted. socket: the caller's --socket, or NULL. */
void cli_complete(char *const *words, int n, const char *socket);

/* The shells' scripts, src/cli/completion/gbpf.SHELL. */
extern const char cli_completion_bash[], cli_completion_zsh[], cli_completion_fish[];

#endif
