#!/usr/bin/env bats
# Small copies by the direct plan and by the driver (GBPF_COPY=driver), on the soft GPU.

load helpers

COPIES=${GBPF_BUILD:-build}/tests/system/small_copies

# with PLAN COMMAND...
with() {
	GBPF_COPY=$1 timeout 200 gbpf run --device soft -- "${@:2}"
}

begin() {
	start_soft "$@"
	start_daemon
}

both() { # CASE...: passes with both plans, and prints the same
	local of_driver of_plan
	begin
	of_driver=$(with driver "$COPIES" "$@")
	of_plan=$(with direct "$COPIES" "$@")
	[ "$of_driver" = "$of_plan" ] || {
		diff <(echo "$of_driver") <(echo "$of_plan")
		return 1
	}
}

# counts PLAN [CASE]: sets copies and bytes to what gbpfd shows of the direct copies of a program that makes many.
counts() {
	local out pid
	[ -p "$GBPF_RUNTIME_DIR/out" ] || mkfifo "$GBPF_RUNTIME_DIR/out"
	with "$1" "$COPIES" "${2:-forever}" >"$GBPF_RUNTIME_DIR/out" 3>&- &
	exec {out}<"$GBPF_RUNTIME_DIR/out"
	read -r -t "$EVENTUALLY_SECONDS" -u "$out" pid
	read -r copies bytes up < <(eventually gets "[[s['copies_direct'], s['copy_direct_bytes'], s['copy_up_bytes']] for s in \
		[t['stats'] for t in d['tenants'] if t['pid'] == $pid]][0]" gbpf ps)
	kill -9 "$pid"
	wait $! || true
	exec {out}<&-
}

@test "memory is mapped after some copies, and only with the plan" {
	begin
	[ "$(with direct "$COPIES" windows)" = window ]
	[ "$(with all "$COPIES" windows)" = window ]
	[ "$(with driver "$COPIES" windows)" = "no window" ]
	[ "$(with pipelined "$COPIES" windows)" = "no window" ]
}

@test "with --check memory is not mapped" {
	begin --check
	[ "$(with direct "$COPIES" windows)" = "no window" ]
	with direct "$COPIES" random 5
}

@test "random copies, kernels and frees on four kinds of stream are right" {
	both random "$RANDOM"
}

@test "copies up stay behind the work before them" {
	both order
}

@test "copies down wait for the work before them" {
	both wait
}

@test "copies to freed memory and beyond its end are refused" {
	both freed
}

@test "a fault in the program's memory is taken by the calling thread" {
	both fault
}

@test "a handler may leave a copy" {
	begin
	with direct "$COPIES" jump
}

@test "other memory on the host's side" {
	both odd
}

@test "mapped host memory on the host's side, and beyond its end" {
	both mapped
}

@test "copies next to a capture, and in one" {
	both capture
}

@test "a child has no window" {
	begin
	run with direct "$COPIES" fork
	[ "$status" -eq 0 ]
	[ "$output" = window ]
}

@test "a child has no window that another thread was mapping" {
	begin
	with direct "$COPIES" forks
}

@test "a context is reset" {
	both reset
}

@test "a program exits while other threads copy" {
	local i
	begin
	for i in $(seq 10); do
		with direct "$COPIES" exit
	done
}

@test "direct copies are counted" {
	local copies bytes up
	begin
	counts direct
	echo "$copies $bytes $up"
	[ "$copies" -ge 4 ] # each kind is tried some times, whatever it takes
	[ "$bytes" -ge "$copies" ]
	[ "$up" -ge 1000 ]
	counts driver
	[ "$copies $bytes" = "0 0" ]
	[ "$up" -ge 1000 ]
}

@test "memory of another context than the current one is the driver's" {
	local copies bytes up
	both contexts
	counts direct foreign
	[ "$copies $bytes" = "0 0" ]
	[ "$up" -ge 6400 ]
}

@test "memory that other devices may read is the driver's" {
	local copies bytes up
	begin
	counts direct rdma
	[ "$copies $bytes" = "0 0" ]
	[ "$up" -ge 6400 ]
}

@test "copies without memory on the host's side are refused" {
	both null
}

# A program whose first copies are refused makes most of the others by the direct plan.
direct_wins() {
	counts direct refused
	echo "$copies"
	[ "$copies" -ge 50 ]
}

@test "refused copies are not timed" {
	local copies bytes up
	begin
	eventually direct_wins # the driver may look fast while the machine is busy; refusals always would
}

@test "write-combining memory, which the CPU reads slowly, is read by the device" {
	local copies bytes up
	begin
	counts direct combined
	[ "$copies $bytes" = "0 0" ]
	[ "$up" -ge 1000000 ]
}

# A program makes all of its copies of pageable memory by the direct plan, as the driver takes long for them, but few of those of page-locked
# memory, for which the driver is faster.
timed_apart() {
	counts direct pinned
	echo "$copies"
	[ "$copies" -ge 20 ] && [ "$copies" -lt 200 ]
}

@test "copies of page-locked memory are timed apart" {
	local copies bytes up
	begin
	eventually timed_apart # while the machine is busy, either may look fast
}

@test "a policy leaves copies to the driver" {
	local copies bytes up
	begin
	gbpf policy swap "${GBPF_BUILD:-build}/tests/system/driver_copies.bpf.o"
	counts all
	[ "$copies $bytes" = "0 0" ]
	[ "$up" -ge 1000 ]
	with all "${GBPF_BUILD:-build}/tests/system/copies" random 4
	with all "$COPIES" random 4
}
