# Waiting for a state that another process reaches. What gbpfd learns from programs (kernels, launches, coverage, exits, memory) it
# learns later than the program does it, so a test reads it with `eventually` and never once only.

EVENTUALLY=${BASH_SOURCE[0]%/*}/eventually.py
EVENTUALLY_SECONDS=$((6 * (${GBPF_PATIENCE:-20} > 20 ? ${GBPF_PATIENCE:-20} : 20)))

# eventually COMMAND...: repeats the command, in this shell, until it succeeds, and prints what it printed then. Fails after 6 s times
# GBPF_PATIENCE, with what it printed last: 120 s, also where GBPF_PATIENCE is not set or less than 20, since a test of a timeout of
# the product sets 1. Only a state that never comes reaches the limit, on a loaded machine too.
#
# These forms read gbpf and start one python3 for all repetitions (eventually.py describes them):
#	eventually shows EXPRESSION COMMAND...	the expression is true over d, the document that COMMAND --json prints
#	eventually gets EXPRESSION COMMAND...	likewise, and prints the value
#	eventually prints PATTERN COMMAND...	COMMAND prints text in which the regular expression is found
#	eventually tenant PROGRAM EXPRESSION	the expression is true over t, the record in `gbpf ps` of the process number or name
eventually() {
	local eventually_end=$((SECONDS + EVENTUALLY_SECONDS)) eventually_out=$BATS_TEST_TMPDIR/eventually.$BASHPID.$((++eventually_calls))
	case $1 in
	shows | gets | prints)
		python3 "$EVENTUALLY" "$@"
		return
		;;
	tenant)
		eventually shows "any('$2' in (str(t['pid']), t['name']) and ($3) for t in d['tenants'])" "${GBPF:-gbpf}" ps
		return
		;;
	esac
	while ((SECONDS < eventually_end)); do
		if "$@" >"$eventually_out" 2>&1; then
			cat "$eventually_out"
			return 0
		fi
		sleep 0.02 # polls the state
	done
	echo "timed out after $EVENTUALLY_SECONDS s waiting for: $*; the last output:" >&2
	cat "$eventually_out" >&2
	return 1
}

# has_exited PID: true as soon as the process has exited, also while its parent has not waited for it: a container's first process
# may look for orphans that have ended once a second only.
has_exited() {
	local stat
	read -r stat 2>/dev/null <"/proc/$1/stat" || return 0
	[[ ${stat##*) } == [ZX]* ]]
}

# pid_of NAME: prints the process number of the program as soon as `gbpf ps` lists it.
pid_of() { eventually gets "[t['pid'] for t in d['tenants'] if t['name'] == '$1'][0]" "${GBPF:-gbpf}" ps; }
