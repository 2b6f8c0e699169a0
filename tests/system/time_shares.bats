#!/usr/bin/env bats
# Shares and budgets of the GPU's time between processes, on a soft GPU in virtual time: kernels last exactly as long as they state.

load helpers

SPIN=${GBPF_BUILD:-build}/tests/system/traced

begin() { # POLICY
	virtual_time
	start_soft
	start_daemon
	gbpf policy swap "$1" >/dev/null
}

# spinner NAME MS [OPTION of run...]: a program whose kernels of that duration follow one another.
spinner() {
	printf 'load\nspin 1000000 1 32 %d %d\n' "$((1000 * $2))" "$((1000 * $2))" |
		gbpf run --device soft --name "$1" "${@:3}" -- "$SPIN" >"$GBPF_RUNTIME_DIR/$1.log" 2>&1 3>&- &
	pids+=("$(pid_of "$1")")
	eventually tenant "$1" 't["stats"]["busy_ns"] > 0'
}

# used NAME...: prints the ms of GPU time that each has used, at one moment.
used() {
	eventually gets "(lambda b: [b[n] // 10**6 for n in '$*'.split()])({t['name']: t['stats']['busy_ns'] for t in d['tenants']})" gbpf ps |
		tr -d '[],'
}
has_used() { (($(used "$1") >= $2)); } # NAME MS

# share A B: sets percent to A's share of the GPU time of both, over 0.4 s of it.
share() {
	local a b a0 b0
	read -r a0 b0 <<<"$(used "$1" "$2")"
	[ "$b0" ]
	eventually both_have_used "$1" "$2" "$((a0 + b0 + 400))"
	percent=$((100 * (a - a0) / (a - a0 + b - b0)))
	echo "share $percent % of $((a - a0 + b - b0)) ms"
}
both_have_used() { read -r a b <<<"$(used "$1" "$2")" && ((a + b >= $3)); }

# load_of A: sets percent to the part of the time in which the only program uses the GPU, over 0.3 s of GPU time, when its first
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
# used_at NAME [MS TIME]: prints the ms of GPU time used and the time in ms, since these. The clock stands meanwhile.
used_at() {
	kill -STOP "$virtual_time_pid"
	echo "$(($(used "$1") - ${2:-0})) $(($(virtual_ns) / 1000000 - ${3:-0}))"
	kill -CONT "$virtual_time_pid"
}
within() { ((percent >= $1 && percent <= $2)); }

@test "two vGPUs use the GPU by their shares of its time, under vgpu_auto" {
	begin vgpu_auto
	spinner a 2 --compute 30
	spinner b 2 --compute 70
	share a b
	within 27 33
}

@test "kernels of different durations do not change the shares" {
	begin vgpu_auto
	spinner a 4 --compute 50
	spinner b 1 --compute 50
	share a b
	within 46 54
}

@test "a change of weights changes the shares, under fair" {
	begin fair
	spinner a 2 --weight 100
	spinner b 2 --weight 300
	share a b
	within 23 27
	gbpf set "$(pid_of a)" --weight 300 >/dev/null
	share a b
	within 48 52
}

@test "a vGPU without burst uses no more than its share of an idle GPU, and one with burst all of it" {
	begin vgpu_auto
	spinner a 5 --compute 30
	load_of a
	within 27 33
	gbpf vgpu create all --compute 30 --burst on >/dev/null
	kill "${pids[-1]}"
	spinner b 5 --vgpu all
	load_of b
	within 95 102
}
