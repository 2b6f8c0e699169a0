#!/usr/bin/env bats
# Shares and budgets of the GPU's time between processes, on a soft GPU in virtual time: kernels last as long as they state.

load helpers
load share_helpers

SPIN=${GBPF_BUILD:-build}/tests/system/traced

begin() { # POLICY
	virtual_time
	start_soft
	start_daemon
	gbpf policy swap "$1" >/dev/null
}

# spinner NAME MS [OPTION of run...]: a program whose kernels of that duration follow one another. Sets pid_NAME.
spinner() {
	printf 'load\nspin 1000000 1 32 %d %d\n' "$((1000 * $2))" "$((1000 * $2))" |
		gbpf run --device soft --name "$1" "${@:3}" -- "$SPIN" >"$GBPF_RUNTIME_DIR/$1.log" 2>&1 3>&- &
	local pid
	pid=$(pid_of "$1")
	pids+=("$pid")
	declare -g "pid_$1=$pid"
	eventually tenant "$1" 't["stats"]["busy_ns"] > 0'
}

share_of_time() { share busy_ns "$pid_a" "$pid_b" 400000000; } # of a, next to b

# load_of PID: sets percent to the part of the time in which the only program uses the GPU, over 0.3 s of GPU time, when its first
# kernels, for which there is a credit, have ended.
load_of() {
	local ms time
	eventually has_used "$1" 300
	read -r ms time <<<"$(used_at "$1")"
	eventually has_used "$1" "$((ms + 300))"
	read -r ms time <<<"$(used_at "$1" "$ms" "$time")"
	percent=$((100 * ms / time))
	echo "load $percent % of $time ms"
}
has_used() { (($(statistics busy_ns "$1") >= $2 * 1000000)); } # PID MS
# used_at PID [MS TIME]: prints the ms of GPU time used and the time in ms, since these. The clock stands meanwhile.
used_at() {
	kill -STOP "$virtual_time_pid"
	echo "$(($(statistics busy_ns "$1") / 1000000 - ${2:-0})) $(($(virtual_ns) / 1000000 - ${3:-0}))"
	kill -CONT "$virtual_time_pid"
}

@test "two vGPUs use the GPU by their shares of its time, under vgpu_auto" {
	begin vgpu_auto
	spinner a 2 --compute 30
	spinner b 2 --compute 70
	share_of_time
	within 27 33
}

@test "kernels of different durations do not change the shares" {
	begin vgpu_auto
	spinner a 4 --compute 50
	spinner b 1 --compute 50
	share_of_time
	within 46 54
}

@test "a change of weights changes the shares, under fair" {
	begin fair
	spinner a 2 --weight 100
	spinner b 2 --weight 300
	share_of_time
	within 23 27
	gbpf set "$pid_a" --weight 300 >/dev/null
	share_of_time
	within 48 52
}

@test "a vGPU without burst uses no more than its share of an idle GPU, and one with burst all of it" {
	begin vgpu_auto
	spinner a 5 --compute 30
	load_of "$pid_a"
	within 27 33
	gbpf vgpu create all --compute 30 --burst on >/dev/null
	kill "${pids[-1]}"
	spinner b 5 --vgpu all
	load_of "$pid_b"
	within 95 102
}
