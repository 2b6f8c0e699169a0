# wait_for COMMAND...: until it succeeds; a minute, which only what never comes needs.
wait_for() {
	local end=$((SECONDS + 60))
	while ((SECONDS < end)); do
		"$@" && return 0
		sleep 0.02
	done
	echo "waited in vain for: $*" >&2
	return 1
}
