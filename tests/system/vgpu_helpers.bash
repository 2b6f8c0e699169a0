# Programs in virtual GPUs, which several files of tests start.

VGPU=${GBPF_BUILD:-build}/tests/system/vgpu
MACHINE_FILES_SO=$(realpath "${GBPF_BUILD:-build}")/tests/system/machine_files.so

# Servers: programs that carry out commands. start_servers_with "OPTIONS" NAME...: in one vGPU, with the pipes NAME.in and NAME.out.
start_servers_with() {
	local options=$1 name script=
	shift
	for name; do
		mkfifo "$GBPF_RUNTIME_DIR/$name.in" "$GBPF_RUNTIME_DIR/$name.out"
		script+="'$VGPU' serve <'$GBPF_RUNTIME_DIR/$name.in' >'$GBPF_RUNTIME_DIR/$name.out' & "
	done
	# shellcheck disable=SC2086 # several words
	gbpf run --device soft $options -- bash -c "$script wait" >>"$GBPF_RUNTIME_DIR/servers.log" 2>&1 3>&- &
	pids+=($!)
	for name; do
		# Both ends stay open here, so that neither side sees the end of the file.
		exec {fd}<>"$GBPF_RUNTIME_DIR/$name.in"
		declare -g "in_$name=$fd"
		exec {fd}<>"$GBPF_RUNTIME_DIR/$name.out"
		declare -g "out_$name=$fd"
	done
	for name; do
		answer_of "$name"
		declare -g "pid_$name=$REPLY"
		pids+=("$REPLY")
	done
}

# machine FILE TEXT: what programs that start_on_machine starts read in the machine's file.
machine() {
	local file=$GBPF_RUNTIME_DIR/machine/$1
	mkdir -p "${file%/*}"
	echo "$2" >"$file.new"
	mv "$file.new" "$file"
}

start_on_machine() { # "OPTIONS" NAME...
	LD_PRELOAD=$MACHINE_FILES_SO MACHINE_FILES=$GBPF_RUNTIME_DIR/machine start_servers_with "$@"
}

start_servers() { # MIB NAME...
	start_servers_with "--mem $1M" "${@:2}"
}

answer_of() { # NAME: sets REPLY
	local fd=out_$1
	read -r -t "$EVENTUALLY_SECONDS" -u "${!fd}"
}

# ask NAME COMMAND...: its answer is in REPLY.
ask() {
	local fd=in_$1
	echo "${@:2}" >&"${!fd}"
	answer_of "$1"
}

expect() { # ANSWER NAME COMMAND...
	ask "${@:2}"
	[ "$REPLY" = "$1" ] || {
		echo "${*:2}: '$REPLY' instead of '$1'" >&2
		return 1
	}
}

# event TEXT: one has it; else prints them.
event() {
	local events
	events=$(gbpf events)
	[[ $events == *"$1"* ]] || {
		echo "$events"
		return 1
	}
}

# killed_holding_at_most MIB PID: kills the program and checks that its event says so.
killed_holding_at_most() {
	killed "$2" event "(pid $2) was killed by signal 9 (Killed); 0.000 s of GPU time, at most $1.0 MiB of GPU memory"
	eventually shows "[e['mem_peak'] for e in d['events'] if e['kind'] == 'kill' and e['pid'] == $2] == [$1 << 20]" gbpf events
}

kill_daemon() {
	kill -9 "$daemon"
	wait "$daemon" || true
	rm -f "$GBPF_RUNTIME_DIR/control.sock" # start_daemon waits for it
}

start_all() {
	start_soft
	start_daemon
	daemon=${pids[-1]}
}

charged() { # NAME MIB [SHARED]: waits until gbpf ps shows that of a server
	local pid=pid_$1
	eventually tenant "${!pid}" "t['mem_used'] == $2 << 20 and t['mem_shared'] == ${3:-0} << 20"
}

kill_server() { # NAME
	local pid=pid_$1
	kill -9 "${!pid}"
}

restart_daemon() {
	start_daemon
	daemon=${pids[-1]}
}
