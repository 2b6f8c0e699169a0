# Which runtime and state directories are refused, and that no file that other users may open decides about service.
load helper

GBPFD=$GBPF_PREFIX/bin/gbpfd
SAMPLES=$GBPF_PREFIX/lib/gbpf/samples

need_root() { [ "$(id -u)" -eq 0 ] || skip "needs root to become another user"; }
nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
# refused DIRECTORY TEXT...: gbpfd does not start there, says each text, and leaves no socket.
refused() {
	local dir=$1
	shift
	run timeout "$EVENTUALLY_SECONDS" "$GBPFD" --foreground --device soft --runtime-dir "$dir"
	echo "$output"
	[ "$status" -eq 1 ]
	for text in "$@"; do
		[[ "$output" == *"$text"* ]]
	done
	[ ! -e "$dir/control.sock" ]
}
pid_of_daemon() { "$GBPF" --json status | python3 -c 'import json,sys; print(json.load(sys.stdin)["daemon"]["pid"])'; }
started() {
	"$GBPFD" --device soft 3>&-
	pid_of_daemon >/dev/null
}

@test "another user cannot open the lock of root's gbpfd" {
	need_root
	chmod 755 "$cli_dir" "$GBPF_RUNTIME_DIR"
	started
	for f in "$GBPF_RUNTIME_DIR"/* "$GBPF_STATE_DIR"/*; do
		case $f in */control.sock | */session.sock | */gbpfd.state) continue ;; esac
		echo "$f: $(stat -c %a "$f")"
		run nobody sh -c ': <"$0"' "$f"
		[[ "$output" == *"Permission denied"* ]]
	done
}

@test "a lock that another user holds on an old gbpfd.lock does not keep root's gbpfd from starting" {
	need_root
	chmod 755 "$cli_dir" "$GBPF_RUNTIME_DIR"
	touch "$GBPF_RUNTIME_DIR/gbpfd.lock"
	chmod 644 "$GBPF_RUNTIME_DIR/gbpfd.lock"
	mkfifo -m 666 held
	nobody flock --nonblock --no-fork "$GBPF_RUNTIME_DIR/gbpfd.lock" sh -c 'echo >"$0"; exec sleep 1000' "$cli_dir/held" 3>&- &
	holder=$!
	read -r _ <held
	started
	[ "$(stat -c %a "$GBPF_RUNTIME_DIR/gbpfd.lock")" = 600 ]
	run timeout "$EVENTUALLY_SECONDS" "$GBPFD" --foreground --device soft # the new file locks as the old one did
	[ "$status" -eq 1 ]
	echo "$output"
	[[ "$output" == *"pid $(pid_of_daemon)"* ]]
	kill -0 "$holder" # it holds its lock to this moment
	kill "$holder"
}

@test "a lock file that is a link or belongs to another user is refused" {
	touch elsewhere
	ln -s "$cli_dir/elsewhere" "$GBPF_RUNTIME_DIR/gbpfd.lock"
	refused "$GBPF_RUNTIME_DIR" gbpfd.lock
	rm "$GBPF_RUNTIME_DIR/gbpfd.lock"
	need_root
	touch "$GBPF_RUNTIME_DIR/gbpfd.lock"
	chown 65534 "$GBPF_RUNTIME_DIR/gbpfd.lock"
	refused "$GBPF_RUNTIME_DIR" "gbpfd.lock belongs to user 65534"
}

@test "a directory that its group or everybody may write is refused, with the directory's name" {
	chmod 770 "$GBPF_RUNTIME_DIR"
	refused "$GBPF_RUNTIME_DIR" "$GBPF_RUNTIME_DIR" "group"
	chmod 707 "$GBPF_RUNTIME_DIR"
	refused "$GBPF_RUNTIME_DIR" "$GBPF_RUNTIME_DIR" "everybody"
	chmod 700 "$GBPF_RUNTIME_DIR"
	chmod 777 "$cli_dir"
	refused "$GBPF_RUNTIME_DIR" "$cli_dir" "everybody"
	chmod 1777 "$cli_dir" # as /tmp
	started
}

@test "a directory inside another user's is refused, also behind a link" {
	need_root
	mkdir -p theirs/run
	chown 65534 theirs
	refused "$cli_dir/theirs/run" "$cli_dir/theirs" "user 65534"
	ln -s theirs/run link
	refused "$cli_dir/link" "$cli_dir/theirs" "user 65534"
	ln -s run run2
	chown -h 65534 run2
	refused "$cli_dir/run2" "$cli_dir/run2" "user 65534"
	GBPF_STATE_DIR=$cli_dir/theirs/run refused "$GBPF_RUNTIME_DIR" "state directory" "user 65534"
}

@test "gbpfd creates the directory but not its parents" {
	refused "$cli_dir/runn/gbpf" "$cli_dir/runn" "does not exist"
	[ ! -e runn ]
	run "$GBPF" --socket "$cli_dir/runn/gbpf" run --device soft true
	[ "$status" -eq 125 ]
	[ ! -e runn ]
	GBPF_STATE_DIR=$cli_dir/statee/gbpf refused "$GBPF_RUNTIME_DIR" "$cli_dir/statee"
	[ ! -e statee ]
	rm -r "$GBPF_RUNTIME_DIR" "$GBPF_STATE_DIR"
	started
}

@test "gbpfd refuses an empty path, a closed --ready-fd and an output that cannot be written" {
	for option in --runtime-dir --state-dir --policy --device; do
		run timeout "$EVENTUALLY_SECONDS" "$GBPF_PREFIX/bin/gbpfd" --foreground "$option" ""
		echo "$output"
		[ "$status" -eq 2 ]
		[[ "$output" == *"empty value for $option"* ]]
	done
	run timeout "$EVENTUALLY_SECONDS" "$GBPF_PREFIX/bin/gbpfd" --foreground --ready-fd 99
	[ "$status" -eq 2 ]
	[[ "$output" == *"descriptor 99 for --ready-fd: Bad file descriptor"* ]]
	for program in gbpfd gbpf-softgpu; do
		run sh -c '"$GBPF_PREFIX/bin/$1" --version >/dev/full' sh "$program"
		[ "$status" -eq 1 ]
	done
	[ -z "$(ls -A "$GBPF_RUNTIME_DIR")" ]
}

# relative VARIABLE COMMAND...: the command fails and names the variable.
relative() {
	local name=$1
	shift
	run --separate-stderr timeout "$EVENTUALLY_SECONDS" env "$name=some/where" "$@"
	echo "$name: $* -> $status: $stderr"
	[ "$status" -ne 0 ]
	[[ "$stderr" == *"$name"*"some/where"*"absolute"* ]]
}

@test "a relative directory in the environment is refused by gbpf and gbpfd" {
	mkdir -p some/where
	for words in status "policy list" off ps shutdown "run --device soft true" "run --off --device soft true"; do
		relative GBPF_RUNTIME_DIR "$GBPF" $words
	done
	for name in GBPF_RUNTIME_DIR GBPF_STATE_DIR; do
		relative "$name" "$GBPFD" --foreground --device soft
	done
	GBPF_RUNTIME_DIR=some/where run "$GBPF" doctor --device soft
	[ "$status" -eq 1 ]
	[[ "$output" == *"GBPF_RUNTIME_DIR 'some/where'"*absolute* ]]
	GBPF_RUNTIME_DIR=some/where run timeout "$EVENTUALLY_SECONDS" "$GBPFD" --foreground --device soft --runtime-dir also/relative
	[ "$status" -eq 1 ]
	[[ "$output" == *"also/relative"* ]]
	started # untouched by all of these
	run "$GBPF" --json status
	json 'd["off"] == False'
}

@test "a relative XDG variable is refused where it decides" {
	chmod 755 "$cli_dir"
	need_root
	mkdir -m 700 home
	chown 65534 home
	unset GBPF_RUNTIME_DIR GBPF_STATE_DIR
	export HOME=$cli_dir/home
	relative XDG_RUNTIME_DIR setpriv --reuid 65534 --clear-groups "$GBPF" status
	relative XDG_STATE_HOME setpriv --reuid 65534 --clear-groups "$GBPFD" --foreground --device soft --runtime-dir "$cli_dir/home/run"
}

@test "the shim says once that a relative directory is refused, and the program runs unmanaged" {
	started
	LD_LIBRARY_PATH=$GBPF_PREFIX/lib/gbpf/shim GBPF_REAL_CUDA=$GBPF_PREFIX/lib/gbpf/soft/libcuda.so.1 \
		GBPF_SOFTGPU_SOCKET=$GBPF_RUNTIME_DIR/softgpu.sock \
		run --separate-stderr env GBPF_RUNTIME_DIR=some/where "$SAMPLES/kernels" vecadd
	echo "$stderr"
	[ "$status" -eq 0 ]
	[ "$(grep -c 'GBPF_RUNTIME_DIR.*some/where.*absolute' <<<"$stderr")" -eq 1 ]
	LD_LIBRARY_PATH=$GBPF_PREFIX/lib/gbpf/shim GBPF_REAL_CUDA=$GBPF_PREFIX/lib/gbpf/soft/libcuda.so.1 \
		GBPF_SOFTGPU_SOCKET=$GBPF_RUNTIME_DIR/softgpu.sock GBPF_STRICT=1 \
		run --separate-stderr env GBPF_RUNTIME_DIR=some/where "$SAMPLES/kernels" vecadd
	[ "$status" -ne 0 ]
	[[ "$stderr" == *"GBPF_RUNTIME_DIR"*"absolute"* ]]
}

@test "without /proc gbpfd refuses to start and says why" {
	unshare -m true 2>/dev/null || skip "mounting is not permitted here"
	run unshare -m sh -c 'mount -t tmpfs none /proc && exec timeout "$1" "$0" --foreground --device soft' "$GBPFD" "$EVENTUALLY_SECONDS"
	echo "$output"
	[ "$status" -eq 1 ]
	[[ "$output" == *"/proc"*"not mounted"* ]]
}
