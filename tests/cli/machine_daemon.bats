# Root's gbpfd serves all users of a machine: programs of other users find it, and what escapes it is reported. Each test has a /run,
# processes and sockets of its own, in namespaces.
load helper

SAMPLES=$GBPF_PREFIX/lib/gbpf/samples

setup() {
	cli_setup
	[ "$(id -u)" -eq 0 ] || skip "needs root to become another user"
	unshare -mnpf --mount-proc true 2>/dev/null || skip "namespaces are not permitted here"
	chmod 755 "$cli_dir"
	mkdir -m 700 xdg home rootstate
	chown 65534 xdg home
	unset GBPF_RUNTIME_DIR GBPF_STATE_DIR XDG_RUNTIME_DIR
	export GBPF SAMPLES WAIT=$BATS_TEST_DIRNAME/../wait.bash xdg=$cli_dir/xdg home=$cli_dir/home
	cat >functions <<'B'
		set -eE
		trap 'echo "line $LINENO: $BASH_COMMAND"' ERR
		source "$WAIT"
		user() { env HOME="$home" XDG_RUNTIME_DIR="$xdg" setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
		root() { env GBPF_STATE_DIR="$PWD/rootstate" "$@"; }
		has_ended() { "$1" "$GBPF" events | grep "$2.*exit code 0"; } # root or user, NAME
		start_root() { root "$GBPF_PREFIX/bin/gbpfd" --device soft; }
B
	export GBPF_PREFIX
}

teardown() {
	rm -rf "$cli_dir"
}

# alone SCRIPT: runs it in bash in namespaces of its own, with an empty /run. Everything that it starts ends with it.
alone() {
	{ cat functions; echo 'mount -t tmpfs -o mode=755 none /run'; cat; } >script
	timeout 250 unshare -mnpf --kill-child --mount-proc bash script 3>&-
}

@test "a user's program runs under root's gbpfd, and no other one is started" {
	alone <<-'B'
		start_root
		user "$GBPF" run --device soft --name guest -- sh -c 'echo "$GBPF_RUNTIME_DIR"; exec "$0" vecadd' "$SAMPLES/kernels" >out
		grep -qx /run/gbpf out
		eventually has_ended root guest
		[ ! -e "$xdg/gbpf/control.sock" ]
		user "$GBPF" --json status | grep '"runtime_dir": "/run/gbpf"'
	B
}

@test "the shim finds root's gbpfd by itself, also next to one of the user" {
	alone <<-'B'
		start_root
		user env GBPF_RUNTIME_DIR="$xdg/gbpf" "$GBPF" run --device soft true
		[ -S "$xdg/gbpf/session.sock" ]
		user "$GBPF" run --device soft -- env -u GBPF_RUNTIME_DIR GBPF_NAME=lone "$SAMPLES/kernels" vecadd
		eventually has_ended root lone
	B
}

@test "a directory that the user names takes precedence" {
	alone <<-'B'
		start_root
		user env GBPF_RUNTIME_DIR="$xdg/gbpf" "$GBPF" run --device soft --name mine -- "$SAMPLES/kernels" vecadd
		GBPF_RUNTIME_DIR="$xdg/gbpf" eventually has_ended user mine
		! root "$GBPF" events | grep mine
		user env GBPF_RUNTIME_DIR="$xdg/gbpf" "$GBPF" doctor --device soft >out
		grep "root's gbpfd serves this machine in /run/gbpf, but GBPF_RUNTIME_DIR names another directory" out
		grep 'daemon: gbpfd .* named by GBPF_RUNTIME_DIR' out
	B
}

@test "what only operators may do is refused with the reason" {
	alone <<-'B'
		start_root
		for words in "policy swap fifo" off shutdown; do
			code=0
			user "$GBPF" $words 2>err || code=$?
			cat err
			[ "$code" -eq 6 ]
			grep -q "root's gbpfd serves this machine" err
		done
		root "$GBPF" -q status
	B
}

@test "doctor shows both sides of a gbpfd that escapes root's" {
	alone <<-'B'
		start_root
		root "$GBPF" doctor --device soft >out
		grep "✓ users' daemons: none found" out
		user "$GBPF" doctor --device soft >out
		grep 'daemon: gbpfd .* of root, which serves all users' out
		! grep 'own daemon' out
		user env GBPF_RUNTIME_DIR="$xdg/gbpf" "$GBPF" run --device soft true
		user "$GBPF" doctor --device soft >out
		grep "own daemon: a gbpfd of this user (pid [0-9]*) runs in $xdg/gbpf" out
		code=0
		root "$GBPF" doctor --device soft >out || code=$?
		cat out
		[ "$code" -eq 1 ]
		grep "✗ users' daemons: gbpfd (pid [0-9]*) of user [^ ]* in $xdg/gbpf: its programs escape root's gbpfd" out
	B
}

@test "without root's gbpfd a user has its own" {
	alone <<-'B'
		start_root
		root "$GBPF" -q shutdown
		user "$GBPF" run --device soft -- sh -c 'echo "$GBPF_RUNTIME_DIR"' >out
		grep -qx "$xdg/gbpf" out
		[ -S "$xdg/gbpf/control.sock" ]
		user "$GBPF" doctor --device soft >out
		grep 'daemon: gbpfd .* of this user' out
	B
}

@test "while root's gbpfd starts or stops, users wait for it and start no other one" {
	alone <<-'B'
		cp "$(command -v sleep)" gbpfd # by whose name a process is known
		mkdir -m 755 /run/gbpf
		./gbpfd 1000 &
		for state in starts stops; do
			echo "$! $state" >/run/gbpf/gbpfd.state
			code=0
			user "$GBPF" --timeout 300ms status >out 2>&1 || code=$?
			cat out
			[ "$code" -eq 3 ]
			grep "gbpfd (pid $!) is .*ing, and does not serve /run/gbpf" out
		done
		echo "$! starts" >/run/gbpf/gbpfd.state
		user "$GBPF" run --device soft --name guest -- "$SAMPLES/kernels" vecadd &
		guest=$!
		start_root # so that one of the two says at any time that it starts, or serves
		kill %1
		wait $guest
		eventually has_ended root guest
		[ "$(stat -c %a /run/gbpf/gbpfd.state)" = 644 ]
		[ ! -e "$xdg/gbpf/control.sock" ]
	B
}

# begins_while_root_stops WORD...: a user's program begins, by `gbpf WORD... -- PROGRAM`, while a gbpfd of root's stops, and has
# tried to reach it. $stopping: that process; $guest: the program's.
begins_while_root_stops() {
	cat <<-B
		cp "\$(command -v sleep)" gbpfd
		mkdir -m 755 /run/gbpf
		./gbpfd 1000 &
		stopping=\$!
		echo "\$stopping stops" >/run/gbpf/gbpfd.state
		# The first connection is that of the choice, the second one the start's.
		python3 -c '
		import os, socket
		s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
		s.bind("/run/gbpf/control.sock")
		os.chmod("/run/gbpf/control.sock", 0o666)
		s.listen()
		open("listens", "w").close()
		for _ in range(4):
		    s.accept()[0].close()
		open("tried", "w").close()' &
		eventually test -e listens
		user "\$GBPF" $* -- "\$SAMPLES/kernels" vecadd &
		guest=\$!
		eventually test -e tried
	B
}

@test "a start that waits for root's gbpfd uses one of the user's once that one has ended for good" {
	{
		begins_while_root_stops run --device soft --name mine
		cat <<-'B'
			kill "$stopping"
			wait "$guest"
			eventually has_ended user mine
			[ -S "$xdg/gbpf/control.sock" ]
		B
	} | alone 2>err || { cat err; false; }
	cat err
	grep -q "gbpf: run: root's gbpfd has ended: using your own on $xdg/gbpf/control.sock" err
}

# It waits 20 s for the next one.
@test "a start that waits for root's gbpfd uses one of the user's also if its timeout ends first" {
	{
		echo 'export GBPF_PATIENCE=20'
		begins_while_root_stops run --device soft --name mine --timeout 15s
		cat <<-'B'
			kill "$stopping"
			wait "$guest"
			eventually has_ended user mine
			[ -S "$xdg/gbpf/control.sock" ]
		B
	} | alone
}

@test "a trace that starts a program uses the user's gbpfd once root's has ended for good" {
	[ ! -e /dev/nvidiactl ] || skip "it would use the NVIDIA GPU"
	{
		begins_while_root_stops trace smmap
		cat <<-'B'
			kill "$stopping"
			wait "$guest"
			[ -S "$xdg/gbpf/control.sock" ]
		B
	} | alone
}

@test "a start that waits for root's gbpfd waits for the next one" {
	{
		echo 'export GBPF_PATIENCE=60'
		begins_while_root_stops run --device soft --name guest
		cat <<-'B'
			kill "$stopping"
			start_root
			wait "$guest"
			eventually has_ended root guest
			[ ! -e "$xdg/gbpf/control.sock" ]
		B
	} | alone 2>err || { cat err; false; }
	cat err
	! grep "root's gbpfd has ended" err
}

@test "what says that a gbpfd starts counts only from root" {
	alone <<-'B'
		cp "$(command -v sleep)" gbpfd
		mkdir -m 755 /run/gbpf
		setpriv --reuid 65533 --regid 65533 --clear-groups ./gbpfd 1000 &
		echo "$! starts" >/run/gbpf/gbpfd.state
		user "$GBPF" run --device soft --name mine -- "$SAMPLES/kernels" vecadd
		eventually has_ended user mine
		[ -S "$xdg/gbpf/control.sock" ]
	B
}

@test "a listener of another user in /run/gbpf is not used" {
	alone <<-'B'
		mkdir /run/gbpf
		chmod 777 /run/gbpf
		setpriv --reuid 65533 --regid 65533 --clear-groups python3 -c '
import os, signal, socket
for name, kind in (("control", socket.SOCK_STREAM), ("session", socket.SOCK_SEQPACKET)):
    s = socket.socket(socket.AF_UNIX, kind)
    s.bind("/run/gbpf/%s.sock" % name)
    os.chmod("/run/gbpf/%s.sock" % name, 0o666)
    s.listen()
    globals()[name] = s
signal.pause()' &
		eventually test -S /run/gbpf/session.sock
		chown -R 0:0 /run/gbpf
		user "$GBPF" run --device soft --name mine -- "$SAMPLES/kernels" vecadd
		eventually has_ended user mine
		[ -S "$xdg/gbpf/control.sock" ]
	B
}

@test "a program starts although root's gbpfd accepts no connection" {
	alone <<-'B'
		mkdir -m 755 /run/gbpf
		python3 -c '
import os, signal, socket
held = []
for name, kind in (("control", socket.SOCK_STREAM), ("session", socket.SOCK_SEQPACKET)):
    path = "/run/gbpf/%s.sock" % name
    s = socket.socket(socket.AF_UNIX, kind)
    s.bind(path)
    os.chmod(path, 0o666)
    s.listen(0)
    held.append(s)
    try:
        while True:
            c = socket.socket(socket.AF_UNIX, kind)
            c.setblocking(False)
            held.append(c)
            c.connect(path)
    except BlockingIOError:
        pass
open("full", "w").close()
signal.pause()' &
		eventually test -e full
		user env GBPF_RUNTIME_DIR="$xdg/gbpf" timeout 200 \
			"$GBPF" run --device soft -- env -u GBPF_RUNTIME_DIR GBPF_PATIENCE=1 "$SAMPLES/kernels" vecadd
	B
}

@test "a start waits for root's gbpfd while that one is restarted" {
	alone <<-'B'
		mkdir -m 755 /run/gbpf
		user env GBPF_RUNTIME_DIR=/run/gbpf "$GBPF" run --device soft --name guest -- "$SAMPLES/kernels" vecadd &
		guest=$!
		start_root
		wait "$guest"
		eventually has_ended root guest
		root "$GBPF" -q shutdown
		code=0
		user env GBPF_RUNTIME_DIR=/run/gbpf GBPF_PATIENCE=1 "$GBPF" --timeout 1s run --device soft true 2>err || code=$?
		cat err
		[ "$code" -ne 0 ]
		grep "root's gbpfd does not serve /run/gbpf" err
	B
}
