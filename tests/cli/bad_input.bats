# Bad input: each refusal names the value, the place and the remedy, and changes nothing that runs.
load helper

daemon() { "$GBPF" run --device soft true; }
active() { "$GBPF" --json policy list | python3 -c 'import json,sys; print(json.load(sys.stdin)["active"])'; }

# full DIR COMMAND...: with a file system at DIR on which nothing can be written any more.
full() {
	unshare -m sh -c 'd=$1; shift; mount -t tmpfs -o size=64k,mode=700 none "$d" &&
		{ head -c 1M /dev/zero >"$d/fill" 2>/dev/null; "$@"; }' sh "$@"
}

needs_mount() {
	[ "$(id -u)" -eq 0 ] || skip "needs root to mount"
	unshare -m true 2>/dev/null || skip "mounting is not permitted here"
}

@test "a full runtime directory: run and gbpfd say which one and what to do" {
	needs_mount
	run --separate-stderr full "$GBPF_RUNTIME_DIR" "$GBPF" run --device soft true
	[ "$status" -eq 125 ]
	[[ "$stderr" == "gbpf: run: "*"$GBPF_RUNTIME_DIR"*full*free* ]]
	run --separate-stderr full "$GBPF_RUNTIME_DIR" "$GBPF_PREFIX/bin/gbpfd" --foreground --device soft
	[ "$status" -eq 1 ]
	[[ "$stderr" == *" error gbpfd: "*"$GBPF_RUNTIME_DIR"*GBPF_RUNTIME_DIR* ]]
}

@test "a full state directory: run says which one, doctor finds it" {
	needs_mount
	run --separate-stderr full "$GBPF_STATE_DIR" "$GBPF" run --device soft true
	[ "$status" -eq 125 ]
	[[ "$stderr" == *"$GBPF_STATE_DIR"* ]]
	run full "$GBPF_STATE_DIR" "$GBPF" doctor --device soft
	[ "$status" -eq 1 ]
	[[ "$output" == *"✗ state directory: $GBPF_STATE_DIR"*"Free space"* ]]
}

@test "a path too long for a socket is refused before a folder is made" {
	long=$cli_dir/$(printf 'l%.0s' {1..120})
	GBPF_RUNTIME_DIR=$long run --separate-stderr "$GBPF" run --device soft true
	[ "$status" -eq 125 ]
	[[ "$stderr" == *"shorter path"* ]]
	[ ! -e "$long" ]
	GBPF_RUNTIME_DIR=$long run "$GBPF" doctor --device soft
	[ "$status" -eq 1 ]
	[[ "$output" == *"✗ runtime directory"*"shorter path"* ]]
}

@test "a policy that is not installed: the nearest is named, or all of them" {
	run "$GBPF" policy swap lcfirst
	[ "$status" -eq 5 ]
	[ "$output" = "gbpf: policy swap: no policy 'lcfirst' is installed. Did you mean 'lc_first'?" ]
	run "$GBPF" policy swap nosuch
	[ "$status" -eq 5 ]
	[[ "$output" == *" is installed. There are auto, "*", vgpu_auto, examples/band, "*", examples/rm_reserve; or give the path of a .bpf.o file" ]]
	cd "$GBPF_PREFIX/lib/gbpf/policies"
	for f in *.bpf.o examples/*.bpf.o; do
		[[ "$output" == *[\ ]"${f%.bpf.o}"[,\;]* ]]
	done
}

@test "an example by its name alone: each verb names examples/NAME" {
	for verb in "policy swap" "policy load" "policy test"; do
		run "$GBPF" $verb mlfq
		[ "$status" -eq 5 ]
		[ "$output" = "gbpf: $verb: no policy 'mlfq' is installed. It is an example: examples/mlfq" ]
	done
	run "$GBPF" policy check mlfq
	[ "$status" -eq 1 ]
	[[ "$output" == "✗ mlfq: cannot be read: No such file or directory"*"It is an example: examples/mlfq"* ]]
	run "$GBPF" policy swap mflq
	[ "$output" = "gbpf: policy swap: no policy 'mflq' is installed. Did you mean 'examples/mlfq'?" ]
	run timeout "$EVENTUALLY_SECONDS" "$GBPF_PREFIX/bin/gbpfd" --foreground --device soft --policy mlfq
	[ "$status" -eq 1 ]
	[[ "$output" == *"no policy 'mlfq' is installed; it is an example: examples/mlfq"* ]]
}

@test "a word like examples/NAME that names nothing: the nearest is named; other words with slashes are paths" {
	run "$GBPF" policy swap examples/mflq
	[ "$status" -eq 5 ]
	[ "$output" = "gbpf: policy swap: examples/mflq: No such file or directory. Did you mean 'examples/mlfq'?" ]
	run "$GBPF" policy swap examples/fair
	[ "$status" -eq 5 ]
	[ "$output" = "gbpf: policy swap: examples/fair: No such file or directory. Did you mean 'fair'?" ]
	for word in examples/../fair examples/../examples/mlfq ./examples/mlfq ../examples/mlfq examples//mlfq examples/mlfq/ examples/ \
		examples/mlfq.bpf.o policies/examples/mlfq policies/fair auto/tunables examples/gdev/vgpus; do
		run "$GBPF" policy swap "$word"
		[ "$status" -eq 5 ]
		[ "$output" = "gbpf: policy swap: $word: No such file or directory" ]
	done
}

@test "a hint that is none is all that is said" {
	run "$GBPF" run --hint often -- true
	[ "$status" -eq 125 ]
	[ "$output" = "gbpf: run: --hint: unknown value 'often'. Use auto, off or period:MICROSECONDS" ]
}

@test "a second gbpfd names the first and what to do" {
	daemon
	pid=$("$GBPF" --json status | python3 -c 'import json,sys; print(json.load(sys.stdin)["pid"])')
	run timeout "$EVENTUALLY_SECONDS" "$GBPF_PREFIX/bin/gbpfd" --foreground --device soft
	[ "$status" -eq 1 ]
	[[ "$output" == *"$GBPF_RUNTIME_DIR"*"(pid $pid)"*"gbpf shutdown"* ]]
}

@test "a gbpfd whose sockets were removed is named with what to do" {
	daemon
	pid=$("$GBPF" --json status | python3 -c 'import json,sys; print(json.load(sys.stdin)["pid"])')
	rm "$GBPF_RUNTIME_DIR"/*.sock
	run "$GBPF" status
	echo "$output"
	[ "$status" -eq 3 ]
	[[ "$output" == *"gbpfd (pid $pid) runs, but does not listen on $GBPF_RUNTIME_DIR"*"kill $pid"* ]]
	kill "$pid"
	eventually has_exited "$pid"
	run "$GBPF" status
	[[ "$output" == *"gbpfd is not running"* ]]
	"$GBPF" run --device soft true
}

@test "verbs wait for a gbpfd that starts or stops, and shutdown until it has exited" {
	daemon
	pid=$("$GBPF" --json status | python3 -c 'import json,sys; print(json.load(sys.stdin)["pid"])')
	[ "$(<"$GBPF_RUNTIME_DIR/gbpfd.state")" = "$pid serves" ]
	"$GBPF" shutdown
	[ ! -e "/proc/$pid" ] || grep -q '^State:.Z' "/proc/$pid/status"
	cp "$(command -v sleep)" gbpfd # by whose name a process is known
	(flock 9 && echo "$BASHPID starts" >"$GBPF_RUNTIME_DIR/gbpfd.state" && exec ./gbpfd 1000) 9>>"$GBPF_RUNTIME_DIR/gbpfd.lock" 3>&- &
	other=$!
	eventually grep -q gbpfd "/proc/$other/comm"
	run -3 "$GBPF" --timeout 300ms status
	[[ "$output" == *"gbpfd (pid $other) is starting, and does not serve $GBPF_RUNTIME_DIR"* ]]
	run timeout "$EVENTUALLY_SECONDS" "$GBPF" --timeout 300ms run --device soft true # gbpfd may take 15 s times GBPF_PATIENCE to start
	[ "$status" -eq 125 ]
	[[ "$output" == *"gbpfd (pid $other) is starting"* ]]
	run "$GBPF" --timeout 300ms doctor --device soft
	[[ "$output" == *"gbpfd (pid $other) is starting"* ]]
	"$GBPF" --timeout 100 status >waits 2>&1 &
	waiter=$!
	kill "$other"
	wait "$waiter" && status=0 || status=$?
	[ "$status" -eq 3 ]
	grep -q "gbpfd is not running" waits
}

@test "shutdown waits for a gbpfd that stops already" {
	cp "$(command -v sleep)" gbpfd
	./gbpfd 1000 3>&- &
	other=$!
	echo "$other stops" >"$GBPF_RUNTIME_DIR/gbpfd.state"
	run -8 "$GBPF" --timeout 300ms shutdown
	[[ "$output" == *"gbpfd (pid $other) is still stopping"* ]]
	"$GBPF" --timeout 0 shutdown >stopped 2>&1 & # waits without a limit
	waiter=$!
	eventually bash -c "readlink /proc/$waiter/fd/* | grep pidfd"
	kill "$other"
	wait "$waiter"
	grep -q "gbpfd has stopped" stopped
}

@test "a command that is nowhere starts no gbpfd" {
	for command in nosuchcommand ./nosuchfile ''; do
		run -127 "$GBPF" run --device soft "$command"
	done
	run -3 "$GBPF" ps
}

@test "gbpfd refuses another protocol with both numbers, and serves on" {
	daemon
	run python3 - "$GBPF_RUNTIME_DIR/control.sock" <<-'END'
		import socket, sys
		s = socket.socket(socket.AF_UNIX)
		s.connect(sys.argv[1])
		s.sendall(b'{"id":1,"method":"hello","params":{"protocol":4711}}\n')
		print(s.makefile().readline())
	END
	echo "$output"
	json '"4711" in d["error"]["message"] and "1" in d["error"]["message"] and d["error"]["hint"]'
	"$GBPF" -q status
}

@test "objects with flipped bytes never crash gbpfd nor change what is active, unless they are accepted" {
	test_policies .
	daemon
	before=$(active)
	run python3 - "$GBPF" <<'END'
import random, subprocess, sys
good = open('good.bpf.o', 'rb').read()
random.seed(11)
for n in range(40):
	bad = bytearray(good)
	for _ in range(random.randrange(1, 6)):
		bad[random.randrange(len(bad))] = random.randrange(256)
	open('bad.bpf.o', 'wb').write(bad)
	r = subprocess.run([sys.argv[1], 'policy', 'swap', './bad.bpf.o'], capture_output=True, text=True)
	assert r.returncode in (0, 1, 4), (n, r)
	if r.returncode == 0:
		subprocess.run([sys.argv[1], 'policy', 'rollback'], check=True, capture_output=True)
	else:
		assert r.stderr.startswith('gbpf: policy swap: ') and len(r.stderr) > 30, (n, r)
END
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(active)" = "$before" ]
}

@test "a policy's source or a bare file name is refused with what to give instead" {
	test_policies .
	daemon
	echo '/* */' >wait.bpf.c
	cp good.bpf.o mine
	run --separate-stderr "$GBPF" policy swap wait.bpf.c
	[ "$status" -eq 1 ]
	[[ "$stderr" == *"Build it first: gbpf policy build wait.bpf.c"* ]]
	run --separate-stderr "$GBPF" policy swap ./nosuch.bpf.c
	[ "$status" -eq 5 ]
	run --separate-stderr "$GBPF" policy swap mine
	[ "$status" -eq 5 ]
	[[ "$stderr" == *"'./mine'"* ]]
}

# A program that loads PTX and prints what the driver says of it.
ptx_loader() {
	cat >load.c <<-'END'
		#include <stdio.h>
		#include <stddef.h>
		int cuInit(unsigned), cuDeviceGet(int *, int), cuCtxCreate_v2(void **, unsigned, int);
		int cuModuleLoadDataEx(void **, const void *, unsigned, int *, void **);
		int main(int n, char **arg)
		{
			static char text[65536], log[4096];
			int device, options[] = { 5, 6 }; /* CU_JIT_ERROR_LOG_BUFFER and its size */
			void *ctx, *module, *values[] = { log, (void *)sizeof(log) };
			FILE *f = fopen(arg[1], "r");
			if (!f || !fread(text, 1, sizeof(text) - 1, f) || cuInit(0) || cuDeviceGet(&device, 0) ||
			    cuCtxCreate_v2(&ctx, 0, device))
				return 9;
			int e = cuModuleLoadDataEx(&module, text, 2, options, values);
			printf("%d %s\n", e, log);
			return e != 0;
		}
	END
	gcc -w -o load load.c -L"$GBPF_PREFIX/lib/gbpf/soft" -l:libcuda.so.1
	cat >good.ptx <<-'END'
		.version 6.0
		.target sm_70
		.address_size 64
		.visible .entry k(.param .u64 p)
		{
			.reg .b32 %r<3>;
			mov.u32 %r1, %tid.x;
			ret;
		}
	END
}

@test "bad PTX is refused when it is loaded, with line and instruction" {
	ptx_loader
	run "$GBPF" run --device soft ./load good.ptx
	[ "$status" -eq 0 ]
	while read -r change words; do
		sed "$change" good.ptx >bad.ptx
		run "$GBPF" run --device soft ./load bad.ptx
		echo "$change: $output"
		[ "$status" -eq 1 ]
		[[ "$output" == 218\ *$words* ]]
	done <<-'END'
		s/mov.u32/frobnicate.u32/ :7:*frobnicate.u32
		s/%tid.x// :7:*operands
		s/%r1,/%r9,/ :7:*%r9
		s/ret;/ret/ :9:
		1s/.*/hello/ :1:*hello
	END
}

@test "a GBPF_REAL_CUDA that does not exist is named, and of one that is no library the program ends by itself" {
	ptx_loader
	GBPF_REAL_CUDA=/nonexistent/libcuda.so.1 run "$GBPF" run --off ./load good.ptx
	[ "$status" -eq 125 ]
	[[ "$output" == "gbpf: run: GBPF_REAL_CUDA: /nonexistent/libcuda.so.1: No such file or directory"* ]]
	GBPF_REAL_CUDA=/etc/passwd run "$GBPF" run --off ./load good.ptx
	[ "$status" -eq 9 ]
	[[ "$output" == *"GBPF_REAL_CUDA"*"/etc/passwd"* ]]
}

@test "gbpfd killed: verbs say 3, the next run restores the policy and says so" {
	daemon
	"$GBPF" policy swap fifo
	pid=$("$GBPF" --json status | python3 -c 'import json,sys; print(json.load(sys.stdin)["pid"])')
	kill -KILL "$pid"
	eventually has_exited "$pid"
	run -3 "$GBPF" ps
	daemon
	run "$GBPF" events
	[[ "$output" == *"restore: 'fifo'"* ]]
}
