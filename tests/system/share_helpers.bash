# Shares of what programs use, for copy_shares.bats and time_shares.bats.

# statistics FIELD PID...: prints that statistic of each program, as gbpfd shows them at one moment.
statistics() {
	local list=${*:2}
	eventually gets "[{t['pid']: t['stats']['$1'] for t in d['tenants']}[pid] for pid in (${list// /, },)]" gbpf ps
}

# share FIELD PID-A PID-B AMOUNT: sets percent to A's part of what both use, until that is AMOUNT more than now.
share() {
	local a b a0 b0
	read -r a0 b0 <<<"$(statistics "${@:1:3}")"
	[ "$b0" ]
	eventually have_used "$@"
	percent=$((100 * (a - a0) / (a - a0 + b - b0)))
	echo "share $percent % of $((a - a0 + b - b0)) of $1"
}
have_used() { read -r a b <<<"$(statistics "${@:1:3}")" && ((a - a0 + b - b0 >= $4)); } # in share

within() { ((percent >= $1 && percent <= $2)); } # LEAST MOST
