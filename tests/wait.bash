# wait_for COMMAND...: repeats the command until it succeeds. Fails after two minutes, a limit that only a state which never
# comes reaches, on a loaded machine too.
wait_for() {
	local end=$((SECONDS + 120))
	while ((SECONDS < end)); do
		"$@" && return 0
		sleep 0.02 # polls the state
	done
	echo "timed out after 120 s waiting for: $*" >&2
	return 1
}

# ended PID: the process has exited, even if its parent, such as a first process that looks now and then, has not waited for it.
ended() {
	local stat
	read -r stat 2>/dev/null <"/proc/$1/stat" || return 0
	[[ ${stat##*) } == [ZX]* ]]
}
