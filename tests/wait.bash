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

# state_of PID: sets state and parent from /proc, or fails if there is no such process.
state_of() {
	local stat
	read -r stat 2>/dev/null <"/proc/$1/stat" && read -r state parent _ <<<"${stat##*) }"
}

# has_exited PID: true as soon as the process has exited, also while its parent has not waited for it: a container's first process
# may look for orphans that have ended once a second only.
has_exited() {
	local state parent
	! state_of "$1" || [[ $state == [ZX] ]]
}

# killed PID COMMAND...: kills the process and, before its parent can wait for it, runs the command until it succeeds. How a program
# ended can be read only until its parent has waited for it, and gbpfd is not the parent. A child of this shell is refused: it would
# stop itself.
killed() {
	local state parent of failed=0
	if ! state_of "$1" || [ "$parent" = "$BASHPID" ] || [ "$parent" = $$ ]; then
		echo "killed: process $1 does not run, or is a child of this shell" >&2
		return 1
	fi
	of=$parent
	kill -STOP "$of"
	stopped() { state_of "$of" && [[ $state == T ]]; }
	eventually stopped && kill -9 "$1" && eventually "${@:2}" || failed=$?
	kill -CONT "$of"
	return "$failed"
}

# pid_of NAME: prints the process number of the program as soon as `gbpf ps` lists it.
pid_of() { eventually gets "[t['pid'] for t in d['tenants'] if t['name'] == '$1'][0]" "${GBPF:-gbpf}" ps; }

# virtual_time: gbpfd, gbpf-softgpu and what `gbpf run` and `gbpf trace` start in this test from here on use a clock by which time
# passes only while all of these processes wait, so that no duration depends on the load of the machine
# (tests/clock/virtual_time.c). Other verbs of gbpf only read and set, and run by the real clock. The helper files end it when all
# of these processes have ended.
virtual_time() {
	local name build=${GBPF_BUILD:-${BASH_SOURCE[0]%/*}/../build} bin=$GBPF_RUNTIME_DIR/virtual
	build=$(realpath "$build")
	mkdir "$bin"
	"$build/tests/clock/virtual-time" "$bin/clock" 3>&- &
	virtual_time_pid=$!
	eventually [ -e "$bin/clock" ]
	for name in gbpf gbpfd gbpf-softgpu; do
		cat >"$bin/$name" <<-END
			#!/bin/sh
			case "$name \$*" in
			"gbpf "*run\ * | "gbpf "*trace\ * | gbpfd* | gbpf-softgpu*)
				export LD_PRELOAD="$build/tests/clock/interpose.so" GBPF_CLOCK="$bin/clock" ;;
			esac
			exec "$GBPF_PREFIX/bin/$name" "\$@"
		END
		chmod +x "$bin/$name"
	done
	export PATH=$bin:$PATH GBPF_BINDIR=$bin # what gbpf starts itself
	GBPF=$bin/gbpf
}

end_virtual_time() {
	[ "${virtual_time_pid:-}" ] || return 0
	kill "$virtual_time_pid"
	wait "$virtual_time_pid" || true
}

# virtual_ns: the time of that clock.
virtual_ns() { od -An -t u8 -N 8 "$GBPF_RUNTIME_DIR/virtual/clock" | tr -d ' '; }
