# Shares of what programs use, for copy_shares.bats, time_shares.bats and gpus.bats.

SPIN=${GBPF_BUILD:-build}/tests/system/traced

# statistics FIELD PID...: prints that statistic of each program, as gbpfd shows them at one moment.
statistics() {
	local list=${*:2}
	eventually gets "[{t['pid']: t['stats']['$1'] for t in d['tenants']}[pid] for pid in (${list// /, },)]" gbpf ps
}

# share FIELD PID-A PID-B AMOUNT LEAST MOST: A's part of what both use from now on is LEAST to MOST percent. It is read when that is
# AMOUNT, and from then on until it is so: a part of a sum, which what one is ahead by changes less and less. Sets percent.
share() {
	local a b a0 b0
	read -r a0 b0 <<<"$(statistics "${@:1:3}")"
	[ "$b0" ]
	eventually has_share "$@" || {
		echo "share $percent % of $((a - a0 + b - b0)) of $1"
		return 1
	}
}
has_share() { # in share
	read -r a b <<<"$(statistics "${@:1:3}")" && ((a - a0 + b - b0 >= $4)) || return
	percent=$((100 * (a - a0) / (a - a0 + b - b0)))
	within "$5" "$6"
}

within() { ((percent >= $1 && percent <= $2)); } # LEAST MOST

# spinner NAME MS [OPTION of run...]: a program whose kernels of that duration follow one another. Sets pid_NAME.
spinner() {
	launcher "$1" "spin 1000000 1 32 $((1000 * $2)) $((1000 * $2))" "${@:3}"
}

# launcher NAME LAUNCHES [OPTION of run...]: a program that makes these launches. Sets pid_NAME.
launcher() {
	printf 'load\n%s\n' "$2" |
		gbpf run --device soft --name "$1" "${@:3}" -- "$SPIN" >"$GBPF_RUNTIME_DIR/$1.log" 2>&1 3>&- &
	local pid
	pid=$(pid_of "$1")
	pids+=("$pid")
	declare -g "pid_$1=$pid"
	eventually tenant "$1" 't["stats"]["busy_ns"] > 0'
}

# load_of PID: sets percent to the part of the time in which the only program uses the GPU, over 0.6 s of GPU time, when its first
# kernels, for which there is a credit, have ended.
load_of() {
	local ms time
	eventually has_used "$1" 300
	read -r ms time <<<"$(used_at "$1")"
	eventually has_used "$1" "$((ms + 600))"
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
