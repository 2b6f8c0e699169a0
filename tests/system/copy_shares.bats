#!/usr/bin/env bats
# Shares of copy bandwidth: the hook copy_enqueue and the policies that use it, on a soft GPU whose copies have a bandwidth.

load helpers
load vgpu_helpers
load share_helpers

COPY=${GBPF_BUILD:-build}/tests/system/copy_shares
COPIES=${GBPF_BUILD:-build}/tests/system/copies

inputs=()

# begin POLICY BANDWIDTH [OPTIONS of the soft GPU]
begin() {
	virtual_time
	start_soft --copy-bandwidth "$2" "${@:3}"
	start_daemon
	daemon=${pids[-1]}
	gbpf policy swap "$1" >/dev/null
}

# copier NAME "OPTIONS" WAY KIND MIB: a program that copies until its input, NAME.in, is closed. Sets pid_NAME.
copier() {
	local name=$1 options=$2
	mkfifo "$GBPF_RUNTIME_DIR/$name.in" "$GBPF_RUNTIME_DIR/$name.out"
	(
		for fd in "${inputs[@]}"; do # or the other program would not see its end
			exec {fd}>&-
		done
		# shellcheck disable=SC2086 # several words
		exec gbpf run --device soft $options -- "$COPY" "${@:3}" <"$GBPF_RUNTIME_DIR/$name.in" >"$GBPF_RUNTIME_DIR/$name.out" \
			2>"$GBPF_RUNTIME_DIR/$name.log" 3>&-
	) &
	declare -g "job_$name=$!"
	pids+=($!)
	exec {fd}>"$GBPF_RUNTIME_DIR/$name.in"
	declare -g "in_$name=$fd"
	inputs+=("$fd")
	exec {fd}<"$GBPF_RUNTIME_DIR/$name.out"
	declare -g "out_$name=$fd"
	answer_of "$name"
	declare -g "pid_$name=$REPLY"
	pids+=("$REPLY")
}

# ends NAME: the program has copied the right bytes.
ends() {
	local in=in_$1 out=out_$1 job=job_$1 line last=
	eval "exec ${!in}>&-"
	while read -r -t "$EVENTUALLY_SECONDS" -u "${!out}" line; do
		last=$line
	done
	[ "$last" = right ] || {
		echo "$1: $last"
		return 1
	}
	wait "${!job}"
}

copies_twice() { # NAME...: each has made two whole copies from here on
	local name
	for name in "$@" "$@"; do
		answer_of "$name"
	done
}

# shares POLICY WAY KIND LEAST MOST: that of a vGPU with 30 % next to one with 70 %.
shares() {
	begin "$1" 8000000000
	copier a "--copy 30" "$2" "$3" 64
	copier b "--copy 70" "$2" "$3" 64
	copies_twice a b
	share copy_bytes "$pid_a" "$pid_b" $((300 << 20)) "$4" "$5"
	ends a
	ends b
}

@test "two vGPUs copy pageable memory up by their shares" {
	shares copy_fair up pageable 28 32
}

@test "without a policy that has the hook they do not" {
	shares fifo up pageable 48 52
}

@test "two vGPUs copy page-locked memory down by their shares, under vgpu_auto" {
	shares vgpu_auto down pinned 28 32
}

# holding KIND: a program copies, and each piece of a copy, of which there are at least 10, is held up to the limit of 100 ms.
holding() {
	begin fifo 8000000000
	copier a "" up "$1" 16
	copies_twice a
	gbpf policy swap "${GBPF_BUILD:-build}/tests/system/hold_copies.bpf.o" >/dev/null
	eventually takes_long a
}

# The latest copy of a program: its call blocked for so many ms.
took() { answer_of "$1" && ms=$(cut -d. -f1 <<<"${REPLY#* }"); }
takes_long() { took "$1" && [ "$ms" -ge 1000 ]; }
takes_short() { took "$1" && [ "$ms" -lt 100 ]; }

@test "a held copy goes on after the hold limit, and is counted" {
	holding pageable
	eventually tenant "$pid_a" 't["stats"]["limit_hits"] >= 16 and t["stats"]["holds"] >= 16'
	eventually event "hold limit reached: a copy goes"
	ends a
}

@test "holds end when gbpfd is killed" {
	holding pinned
	kill_daemon
	eventually takes_short a
	eventually takes_short a
	ends a
}

@test "holds end when the policy is replaced" {
	holding pageable
	gbpf policy swap fifo >/dev/null
	eventually takes_short a
	eventually takes_short a
	ends a
}

@test "holds end when the policy is unloaded, and with gbpf off" {
	holding pinned
	gbpf off >/dev/null
	eventually takes_short a
	gbpf on >/dev/null
	eventually takes_long a
	gbpf policy unload >/dev/null
	eventually takes_short a
	ends a
}

@test "an event says that the policy ignores a copy share, and none that it is kept" {
	begin fifo 8000000000
	copier a "--copy 30" up pageable 16
	eventually event "has a copy share of 30 % of GPU 0, which policy fifo does not keep"
	gbpf policy swap copy_fair >/dev/null
	copier b "--copy 40" up pageable 16
	eventually event "(pid $pid_b, " # its start, with which gbpfd checks the share
	gbpf events --json >"$GBPF_RUNTIME_DIR/events"
	run ! grep -q "copy share of 40 %" "$GBPF_RUNTIME_DIR/events"
	ends a
	ends b
}

@test "a copy beyond a mapping of host memory is refused as a whole" {
	begin copy_fair 8000000000
	gbpf run --device soft -- "$COPIES" beyond-mapping
}

@test "random copies are right while copies are held and cut" {
	begin copy_fair 8000000000 --copy-engines 2
	copier a "--copy 10" up pageable 64
	GBPF_COPY_THREADS=3 timeout 400 gbpf run --device soft --copy 5 -- "$COPIES" random 5
	ends a
}
