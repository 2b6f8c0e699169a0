#!/usr/bin/env bats
# A program that gives its device memory back while it sleeps, and keeps the addresses.

load helpers
load vgpu_helpers

SLEEPER=${GBPF_BUILD:-build}/tests/system/vmm_sleeper

@test "memory that is unmapped and released returns at once, and is charged again at the same addresses" {
	start_soft --context-memory 11M
	start_daemon
	run timeout 200 gbpf run --device soft --mem 128M -- "$SLEEPER" 96
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$output" = "slept 3 times" ]
}

@test "the account of a program that sleeps has what is left, and other programs get the rest" {
	start_soft
	start_daemon
	local dir=$GBPF_RUNTIME_DIR
	mkfifo "$dir/in" "$dir/out"
	gbpf run --device soft --mem 128M -- bash -c "'$SLEEPER' 96 --serve <'$dir/in' >'$dir/out' & echo \$! >'$dir/pid'; wait" \
		>>"$dir/servers.log" 2>&1 3>&- &
	pids+=($!)
	exec {to}<>"$dir/in" {from}<>"$dir/out"
	read -r -t "$EVENTUALLY_SECONDS" -u "$from"
	local pid
	pid=$(<"$dir/pid")
	pids+=("$pid")
	[[ "$REPLY" == '{"asleep": '$((126 << 20))', "total": '$((128 << 20))'}' ]]
	eventually tenant "$pid" 't["mem_used"] == t["mem_vgpu_used"] == 2 << 20'
	echo >&"$to"
	read -r -t "$EVENTUALLY_SECONDS" -u "$from"
	[[ "$REPLY" == '{"awake": '$((30 << 20))', "holds": '$((96 << 20))'}' ]]
	eventually tenant "$pid" 't["mem_used"] == t["mem_vgpu_used"] == 98 << 20'
	echo >&"$to"
	read -r -t "$EVENTUALLY_SECONDS" -u "$from"
	[ "$REPLY" = "slept 3 times" ]
}
