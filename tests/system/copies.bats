#!/usr/bin/env bats
# Copies of pageable memory by the pipelined plan and by the driver (GBPF_COPY=driver), on the soft GPU.

load helpers

COPIES=${GBPF_BUILD:-build}/tests/system/copies

# with PLAN THREADS COMMAND...
with() {
	GBPF_COPY=$1 GBPF_COPY_THREADS=$2 timeout 200 gbpf run --device soft -- "${@:3}"
}

begin() {
	start_soft "$@"
	start_daemon
}

both() { # CASE...: passes with both plans, and prints the same
	local of_driver of_pipeline
	begin
	of_driver=$(with driver 1 "$COPIES" "$@")
	of_pipeline=$(with pipelined 4 "$COPIES" "$@")
	[ "$of_driver" = "$of_pipeline" ]
	of_pipeline=$(with pipelined 1 "$COPIES" "$@")
	[ "$of_driver" = "$of_pipeline" ]
}

near() { # NODES CPU: runs the case of that name with NODES in place of the system's
	unshare -m sh -c 'mount --bind "$0" /sys/devices/system/node && exec "$@"' "$1" \
		env GBPF_COPY_THREADS=2 timeout 200 gbpf run --device soft -- "$COPIES" near "$2"
}

@test "the first large copy starts helpers; with the driver's plan there are none" {
	begin
	[ "$(with pipelined 4 "$COPIES" helpers)" = 3 ]
	[ "$(with pipelined 1 "$COPIES" helpers)" = 0 ]
	[ "$(with driver 4 "$COPIES" helpers)" = 0 ]
}

@test "helpers run next to the device where the machine has several NUMA nodes" {
	local cpu nodes=$GBPF_RUNTIME_DIR/nodes
	unshare -m true 2>/dev/null || skip "mounting is not permitted here"
	[ "$(nproc)" -ge 2 ] || skip "the test needs two CPUs"
	cpu=$(sed -n 's/^Cpus_allowed_list:.*[^0-9]//p' /proc/self/status)
	mkdir -p "$nodes/node0" "$nodes/node1"
	echo "$cpu" >"$nodes/node0/cpulist" # the soft GPU is next to node 0
	echo 0-1023 >"$nodes/node1/cpulist"
	begin
	echo 0 >"$nodes/online"
	run ! near "$nodes" "$cpu"
	[[ "$output" == *"no helper went to CPU $cpu"* ]]
	echo 0-1 >"$nodes/online"
	near "$nodes" "$cpu"
}

@test "random copies and kernels on four kinds of stream are right, and the same as the driver's" {
	both random "$RANDOM"
}

@test "copies on a device with two copy engines that run at their own speed" {
	begin --copy-engines 2 --copy-bandwidth 3000000000
	with pipelined 3 "$COPIES" random 7
}

@test "memory may be unmapped when a copy has returned" {
	both unmap
}

@test "copies next to a capture, and in one" {
	both capture
}

@test "a fault in the source is taken by the calling thread" {
	both fault-up
}

@test "a fault in the destination is taken by the calling thread" {
	both fault-down
}

@test "memory that cannot be read ends the program as it does with the driver" {
	begin
	run with driver 1 "$COPIES" dies-up
	[ "$status" -eq 139 ]
	run with pipelined 4 "$COPIES" dies-up
	[ "$status" -eq 139 ]
}

@test "a copy beyond its device memory is refused before anything is copied" {
	both beyond
}

@test "a context is reset in the middle of a copy" {
	begin
	with pipelined 4 "$COPIES" reset
}

@test "children of a program that copies" {
	both fork
}

@test "a program exits while other threads copy" {
	local i
	begin
	for i in $(seq 15); do
		with pipelined 4 "$COPIES" exit
	done
}

@test "a program that is killed in the middle of copies leaves nothing behind" {
	local out pid i
	begin
	mkfifo "$GBPF_RUNTIME_DIR/out"
	for i in 1 2 3 4; do
		with pipelined 4 "$COPIES" forever >"$GBPF_RUNTIME_DIR/out" 3>&- &
		exec {out}<"$GBPF_RUNTIME_DIR/out"
		read -r -t "$EVENTUALLY_SECONDS" -u "$out"
		pid=$REPLY
		read -r -t "$EVENTUALLY_SECONDS" -u "$out" # two copies later
		kill -9 "$pid"
		wait $! || true
		exec {out}<&-
	done
	with pipelined 4 "$COPIES" random 3
}

# counts PLAN: sets up, down, pipelined and sum to the MiB that gbpfd shows of a program that copies.
counts() {
	local out pid
	[ -p "$GBPF_RUNTIME_DIR/out" ] || mkfifo "$GBPF_RUNTIME_DIR/out"
	with "$1" 2 "$COPIES" forever >"$GBPF_RUNTIME_DIR/out" 3>&- &
	exec {out}<"$GBPF_RUNTIME_DIR/out"
	read -r -t "$EVENTUALLY_SECONDS" -u "$out" pid
	read -r -t "$EVENTUALLY_SECONDS" -u "$out"
	read -r up down pipelined sum < <(eventually gets "[[t['stats'][f'copy_{n}bytes'] >> 20 for n in ('up_', 'down_', 'pipelined_', '')] \
		for t in d['tenants'] if t['pid'] == $pid][0]" gbpf ps)
	kill -9 "$pid"
	wait $! || true
	exec {out}<&-
}

@test "copied bytes are counted, by direction and by plan" {
	local up down pipelined sum
	begin
	counts pipelined
	echo "$up $down $pipelined $sum"
	[ "$up" -ge 48 ] && [ "$down" -ge 48 ] && [ "$pipelined" -ge 96 ]
	((up >= down))
	((sum >= 96))
	counts driver
	echo "$up $down $pipelined $sum"
	[ "$up" -ge 48 ] && [ "$down" -ge 48 ] && [ "$pipelined" -eq 0 ]
}

@test "a wrong plan or number of threads is named, and the default used" {
	begin
	run with sideways 4 "$COPIES" helpers
	[ "$status" -eq 0 ]
	[[ "$output" == *"invalid GBPF_COPY: sideways: expected 'all', 'pipelined', 'direct' or 'driver'"* ]]
	[ "${lines[-1]}" = 3 ]
	for n in 0 17 -1 x 2x; do
		run with pipelined "$n" "$COPIES" helpers
		[ "$status" -eq 0 ]
		[[ "$output" == *"invalid GBPF_COPY_THREADS: $n: expected 1 to 16"* ]]
	done
}
