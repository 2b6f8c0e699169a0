# gbpf run: exit codes, signals, environment.
load helper

# Without gbpfd, so that only the command line is tested.
under() { "$GBPF" run --off --device soft "$@"; }

@test "the program's code is passed on" {
	for code in 0 1 2 7 42 124 255; do
		run under -- sh -c "exit $code"
		[ "$status" -eq "$code" ]
	done
}

@test "a program that a signal ended gives 128 + N" {
	run under -- sh -c "kill -KILL \$\$"
	[ "$status" -eq 137 ]
	for sig in TERM:143 ABRT:134 INT:130; do
		run under -- env --default-signal="${sig%:*}" sh -c "kill -${sig%:*} \$\$" # the parent of the tests may ignore some
		[ "$status" -eq "${sig#*:}" ]
	done
}

@test "the end of a program is seen if the parent of gbpf run ignores SIGCHLD, and the program ignores it" {
	cat >ignoring <<-'PYTHON'
		import os, signal, sys
		signal.signal(signal.SIGCHLD, signal.SIG_IGN)
		os.execv(sys.argv[1], sys.argv[1:])
	PYTHON
	python3 ignoring "$GBPF" run --off --device soft -- python3 -c 'import signal, sys
sys.exit(7 if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN else 8)' &
	eventually has_exited $!
	wait $! && status=0 || status=$?
	[ "$status" -eq 7 ]
}

@test "a command that does not exist is 127" {
	run -127 --separate-stderr under nosuchcommand
	[ "$status" -eq 127 ]
	[[ "$stderr" == *"'nosuchcommand' not found"* ]]
	run -127 under ./nosuchfile
	[ "$status" -eq 127 ]
}

@test "a command that cannot be executed is 126" {
	echo text >notaprogram
	run --separate-stderr under ./notaprogram
	[ "$status" -eq 126 ]
	mkdir dir
	run under ./dir
	[ "$status" -eq 126 ]
	printf '#! /no/such/python3 -u\n' >aprogram
	chmod +x aprogram
	run --separate-stderr under ./aprogram
	[ "$status" -eq 126 ]
	[[ "$stderr" == *"'./aprogram' cannot be executed: its interpreter '/no/such/python3' does not exist"* ]]
	PATH=$PWD:$PATH run --separate-stderr under aprogram
	[ "$status" -eq 126 ]
	[[ "$stderr" == *"its interpreter '/no/such/python3'"* ]]
}

@test "gbpf's own failures are 125" {
	for words in "run" "run --class urgent true" "run --weight 0 true" "run --weight 10001 true" "run --nosuch true" \
		"run --name= true" "run --device tpu true" "run --class"; do
		run --separate-stderr "$GBPF" $words
		echo "$words: $status $stderr"
		[ "$status" -eq 125 ]
		[ -z "$output" ]
		[[ "$stderr" == "gbpf: run: "* ]]
	done
	GBPF_LIBDIR=/nonexistent run --separate-stderr under true
	[ "$status" -eq 125 ]
	[[ "$stderr" == *missing* ]]
	run --separate-stderr "$GBPF" run --name "$(printf 'n%.0s' {1..64})" true
	[ "$status" -eq 125 ]
}

@test "errors under --json leave standard output to the program" {
	run -127 --separate-stderr "$GBPF" --json run --off --device soft nosuchcommand
	[ "$status" -eq 127 ]
	[ -z "$output" ]
	output=$stderr json 'd["error"]["exit"] == 127'
	run --separate-stderr under -- sh -c 'echo data; echo note >&2'
	[ "$output" = data ]
	[ "$stderr" = note ]
}

@test "options after the command are the command's" {
	run under echo --class batch --json -- -h
	[ "$status" -eq 0 ]
	[ "$output" = "--class batch --json -- -h" ]
	run under -- echo -- --name
	[ "$output" = "-- --name" ]
}

@test "standard input reaches the program" {
	run bash -c 'echo hello | "$0" run --off --device soft cat' "$GBPF"
	[ "$output" = hello ]
}

@test "the shim comes first, the driver library is named" {
	LD_LIBRARY_PATH=/opt/x LD_PRELOAD= run under --class batch --name web --weight 50 --strict env
	[ "$status" -eq 0 ]
	lib=$(readlink -f "$GBPF_PREFIX/lib/gbpf")
	for line in "LD_PRELOAD=$lib/shim/libcuda.so.1" "LD_LIBRARY_PATH=$lib/shim:$lib/soft:/opt/x" GBPF_CLASS=batch GBPF_NAME=web \
		GBPF_WEIGHT=50 GBPF_STRICT=1 GBPF_OFF=1 "GBPF_REAL_CUDA=$lib/soft/libcuda.so.1" \
		"GBPF_RUNTIME_DIR=$GBPF_RUNTIME_DIR"; do
		grep -qxF "$line" <<<"$output"
	done
}

@test "frameworks that compile themselves find gBPF's ptxas, unless they have one or it is of no use" {
	lib=$(readlink -f "$GBPF_PREFIX/lib/gbpf")
	unset GBPF_BLOCK TRITON_PTXAS_PATH TRITON_PTXAS_BLACKWELL_PATH
	on() { "$GBPF" run --device soft "$@" -- env; }
	run on --class batch
	grep -qxF "TRITON_PTXAS_PATH=$lib/cuda/bin/ptxas" <<<"$output"
	grep -qxF "TRITON_PTXAS_BLACKWELL_PATH=$lib/cuda/bin/ptxas-blackwell" <<<"$output"
	[ -x "$lib/cuda/bin/ptxas-blackwell" ]
	run on
	grep -qxF "TRITON_PTXAS_PATH=$lib/cuda/bin/ptxas" <<<"$output"
	TRITON_PTXAS_PATH=/opt/ptxas run on
	grep -qx TRITON_PTXAS_PATH=/opt/ptxas <<<"$output"
	run on --class latency
	[[ "$output" != *TRITON_PTXAS* ]]
	GBPF_BLOCK=0 run on --class batch
	[[ "$output" != *TRITON_PTXAS* ]]
	run under --class batch env
	[[ "$output" != *TRITON_PTXAS* ]]
}

@test "lane and hint reach the program; without them the environment's stay" {
	run under --lane shared --hint period:2500 env
	grep -qx GBPF_LANE=shared <<<"$output"
	grep -qx GBPF_HINT=period:2500 <<<"$output"
	GBPF_LANE=process GBPF_HINT=off run under env
	grep -qx GBPF_LANE=process <<<"$output"
	grep -qx GBPF_HINT=off <<<"$output"
	for words in "--lane other" "--hint soon" "--hint period:1" "--hint period:10000001" "--hint period:"; do
		run "$GBPF" run --off --device soft $words true
		[ "$status" -eq 2 ] || [ "$status" -eq 125 ]
	done
}

@test "the class is normal when none is given, and old settings do not leak in" {
	GBPF_NAME=old GBPF_STRICT=1 GBPF_CLASS=batch run under env
	grep -qx GBPF_CLASS=normal <<<"$output"
	run ! grep -qE '^GBPF_(NAME|STRICT|WEIGHT)=' <<<"$output"
}

@test "a run inside a run puts the shim in once" {
	run under -- "$GBPF" run --off --device soft env
	[ "$(grep -c '^LD_PRELOAD=' <<<"$output")" -eq 1 ]
	run under -- "$GBPF" run --off --device soft -- "$GBPF" run --off --device soft env
	run ! grep -E '^LD_PRELOAD=.*:|^LD_LIBRARY_PATH=.*:.*:.*:' <<<"$output"
}

@test "GBPF_REAL_CUDA stays when no device is asked for" {
	touch libcuda.so.1
	GBPF_REAL_CUDA=$PWD/libcuda.so.1 run "$GBPF" run --off env
	grep -qx GBPF_REAL_CUDA="$PWD/libcuda.so.1" <<<"$output"
}

@test "--device nvidia without a driver is refused with what to do" {
	if find /usr/lib* /lib* -name libcuda.so.1 2>/dev/null | grep -q .; then
		skip "this machine has NVIDIA's library"
	fi
	run --separate-stderr "$GBPF" run --off --device nvidia true
	[ "$status" -eq 125 ]
	[[ "$stderr" == *"--device soft"* ]]
}

# A program that says ready, and the name of each signal that it gets; EXIT ends it.
catcher() {
	cat >catcher <<'END'
import os, signal, sys
def say(n, f):
	print(signal.Signals(n).name, flush=True)
for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH,
		signal.SIGTSTP, signal.SIGCONT):
	signal.signal(s, say)
print('ready', os.getpid(), flush=True)
while not os.path.exists('stop'):
	signal.sigtimedwait([], 0.02)
END
	# Not in the background of this shell, which would make it ignore INT and QUIT.
	python3 - "$GBPF" <<'END'
import os, signal, subprocess, sys
for s in (signal.SIGINT, signal.SIGQUIT):
	signal.signal(s, signal.SIG_DFL)
p = subprocess.Popen([sys.argv[1], 'run', '--off', '--device', 'soft', 'python3', 'catcher'], stdout=open('log', 'w'),
	start_new_session=True)
open('pid', 'w').write(str(p.pid))
END
	eventually grep -q ready log
}

@test "signals are passed on, each once" {
	catcher
	for s in INT TERM HUP QUIT USR1 USR2 WINCH TSTP; do
		kill "-$s" "$(cat pid)"
		eventually grep -qx "SIG$s" log
	done
	touch stop
	eventually has_exited "$(cat pid)"
	for s in INT TERM HUP QUIT USR1 USR2 WINCH TSTP; do
		[ "$(grep -cx "SIG$s" log)" -eq 1 ]
	done
}

@test "a stop from the terminal stops gbpf too, and CONT wakes both" {
	python3 - "$GBPF" <<'END'
import os, signal, subprocess, sys
p = subprocess.Popen([sys.argv[1], 'run', '--off', '--device', 'soft', 'sh', '-c', 'echo ready; read x; exit 5'],
	stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=os.setpgrp)
assert p.stdout.readline() == b'ready\n'
os.kill(p.pid, signal.SIGTSTP)
pid, status = os.waitpid(p.pid, os.WUNTRACED)
assert os.WIFSTOPPED(status), status
os.kill(p.pid, signal.SIGCONT)
p.stdin.write(b'go\n')
p.stdin.close()
pid, status = os.waitpid(p.pid, 0)
assert os.WEXITSTATUS(status) == 5, status
END
}

@test "the program gets SIGPIPE as we were started with it, and no blocked signals" {
	run bash -c '"$0" run --off --device soft -- yes | head -1' "$GBPF"
	[ "$output" = y ]
	cat >masks.py <<'END'
import signal, subprocess, sys
for how in (signal.SIG_DFL, signal.SIG_IGN):
	signal.signal(signal.SIGPIPE, how)
	direct, under = (subprocess.run([*c, 'grep', '-E', '^Sig(Blk|Ign)', '/proc/self/status'], capture_output=True,
		restore_signals=False).stdout for c in ([], [sys.argv[1], 'run', '--off', '--device', 'soft', '--']))
	assert direct == under and direct, (direct, under)
END
	python3 masks.py "$GBPF"
}

@test "with --json standard error has the document of a failure and nothing else" {
	run -127 --separate-stderr "$GBPF" --json run --hint auto --device soft nosuchcommand
	echo "$stderr"
	python3 -c 'import json, sys; assert json.loads(sys.argv[1])["error"]["code"] == "no-command"' "$stderr"
}

@test "swap without a limit of memory, and wrong sizes of it, are refused" {
	local size
	run -125 --separate-stderr "$GBPF" run --device soft --swap 32M -- true
	[ "$stderr" = "gbpf: run: --swap without --mem. Give --mem, beyond which memory leaves" ]
	run -125 "$GBPF" run --device soft --mem none --swap 32M -- true
	for size in 1 0 2097151 2000T lots '' -2M; do
		run -125 --separate-stderr "$GBPF" run --device soft --mem 64M --swap "$size" -- true
		echo "$stderr"
		[ "$stderr" = "gbpf: run: invalid size '$size' for --swap. Use a number with K, M, G or T: at least 2M, at most the machine's memory; or none" ]
	done
}

@test "a wrong word of what is shown is refused with those that are allowed" {
	local word
	for word in swap none '' MEM mem,all; do
		run -125 --separate-stderr "$GBPF" run --device soft --mem 64M --swap 32M --show "$word" -- true
		echo "$stderr"
		[[ "$stderr" == "gbpf: run: --show: '$word' is not one of mem|all"* ]]
	done
	for word in mem all; do
		run -0 --separate-stderr "$GBPF" run --device soft --mem 64M --swap 32M --show "$word" -- true
		[ -z "$stderr" ]
		run -0 --separate-stderr "$GBPF" run --device soft --show "$word" -- true # without swap it means nothing
		[ -z "$stderr" ]
	done
}

@test "a wrong GBPF_REAL_CUDA is named" {
	run -125 --separate-stderr env GBPF_REAL_CUDA=/nonexistent/libcuda.so.1 "$GBPF" run true
	[ "$stderr" = "gbpf: run: GBPF_REAL_CUDA: /nonexistent/libcuda.so.1: No such file or directory. Unset it, or set it to NVIDIA's libcuda.so.1" ]
}
