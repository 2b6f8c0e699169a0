#!/usr/bin/env bats
# Virtual GPUs with names (gbpf vgpu), reservations, and programs that wait for memory.

load helpers
load vgpu_helpers

vgpu() { # NAME EXPRESSION: waits until it is true over v, the record in gbpf vgpu show
	eventually shows "any($2 for v in [d])" gbpf vgpu show "$1"
}

waits() { # NAME N: waits until as many processes of that vGPU wait for memory
	vgpu "$1" "v['waiting'] == $2"
}

says() { # EXIT MESSAGE COMMAND...
	run "${@:3}"
	echo "$output"
	[ "$status" -eq "$1" ]
	[ "$output" = "$2" ]
}

@test "a vGPU with a name has limits, holds processes of several starts, and is removed" {
	start_all
	says 0 "train: made; start programs in it with: gbpf run --vgpu train -- PROGRAM" \
		gbpf vgpu create train --mem 64M --compute 25 --copy 30 --prio 7 --burst on
	vgpu train 'v["state"] == "idle" and v["mem"] == 64 << 20 and v["compute"] == 25 and v["copy"] == 30 and v["prio"] == 7 and v["burst"]'
	eventually shows 'd["schema"] == "gbpf.vgpu.ls/1"' gbpf vgpu ls
	eventually shows 'd["schema"] == "gbpf.vgpu.show/1"' gbpf vgpu show train
	start_servers_with "--vgpu train" a
	start_servers_with "--vgpu train" b
	expect ok a alloc 40
	expect CUDA_ERROR_OUT_OF_MEMORY b alloc 26
	expect ok b alloc 24
	expect "64 of 64" b used
	vgpu train 'v["state"] == "running" and v["processes"] == 2 and v["devices"][0]["mem_used"] == 64 << 20'
	eventually tenant "$pid_a" 't["vgpu"] == "train" and t["mem_used"] == 40 << 20 and t["mem_vgpu_used"] == 64 << 20'
	says 7 "gbpf: vgpu rm: virtual GPU 'train' has programs in it (2). End them first, or use --drain: it is then removed when they have ended" \
		gbpf vgpu rm train
	kill -9 "$pid_a" "$pid_b"
	vgpu train 'v["state"] == "idle"'
	says 0 "train: removed" gbpf vgpu rm train
	run -5 gbpf vgpu show train
}

@test "a program that writes over its account harms none that come later" {
	start_all
	gbpf vgpu create train --mem 64M
	start_servers_with "--vgpu train" a
	expect ok a scribble 0
	start_servers_with "--vgpu train" b # the writer still runs
	eventually event "virtual GPU train: a program has written over its account: its format"
	expect ok b scribble 1
	kill -9 "$pid_a" "$pid_b"
	vgpu train 'v["state"] == "idle"'
	start_servers_with "--vgpu train" c
	expect ok c alloc 60
	expect "60 of 64" c used
	expect CUDA_ERROR_OUT_OF_MEMORY c alloc 6
}

@test "gbpf vgpu set and gbpf set change limits of running programs" {
	start_all
	gbpf vgpu create train --mem 64M
	start_servers_with "--vgpu train" a
	expect ok a alloc 60
	expect CUDA_ERROR_OUT_OF_MEMORY a alloc 10
	gbpf vgpu set train --mem 128M
	expect "60 of 128" a used
	expect ok a alloc 10
	gbpf vgpu set train --mem 32M # below use: nothing more until memory is freed
	expect CUDA_ERROR_OUT_OF_MEMORY a alloc 2
	expect ok a free
	expect ok a free
	expect ok a alloc 20
	says 0 "$pid_a: its virtual GPU train is changed, for 1 process" gbpf set "$pid_a" --mem 96M
	expect "20 of 96" a used
	vgpu train 'v["mem"] == 96 << 20'
}

@test "gbpf set changes the limit of a vGPU without a name" {
	start_all
	start_servers 64 a
	expect "0 of 64" a used
	gbpf set "$pid_a" --mem 32M
	expect "0 of 32" a used
	expect CUDA_ERROR_OUT_OF_MEMORY a alloc 34
	gbpf set "$pid_a" --mem none
	expect "0 of 1024" a used
	expect ok a alloc 500
	gbpf set "$pid_a" --mem 600M
	expect "500 of 600" a used
}

@test "what a vGPU was given is taken back while its programs run" {
	start_all
	gbpf vgpu create train --mem 64M --reserve 32M --pinned 32M --wait 200ms --compute 25 --copy 30
	start_servers_with "--vgpu train" a
	expect ok a alloc 60
	expect ok a pin 20
	expect CUDA_ERROR_OUT_OF_MEMORY a alloc 10
	expect CUDA_ERROR_OUT_OF_MEMORY a pin 20
	says 0 "train: changed" gbpf vgpu set train --mem none --pinned none
	expect "60 of 1024" a used
	expect ok a alloc 200
	expect ok a pin 20
	vgpu train 'v["mem"] == 0 and v["pinned"] == 0 and v["reserve"] == 32 << 20 and v["wait_ns"] == 2 * 10**8 and v["compute"] == 25'
	gbpf vgpu set train --reserve none --wait none --compute none --copy none
	vgpu train 'v["reserve"] == v["wait_ns"] == v["compute"] == v["copy"] == 0'
	kill_daemon
	start_daemon
	daemon=${pids[-1]}
	vgpu train 'v["processes"] == 1 and v["mem"] == v["reserve"] == 0'
	expect "260 of 1024" a used
	for word in NONE nonesuch '' 0; do
		run gbpf vgpu set train --mem "$word"
		echo "$output"
		[ "$status" -eq 2 ]
	done
}

@test "swap is given, changed and taken back while programs run" {
	start_all
	gbpf vgpu create train --mem 64M --swap 32M
	eventually prints '\ANAME .* MEMORY +SWAP +RESERVED (.*\n)+train .* 64\.0 MiB +0 B/32\.0 MiB ' gbpf vgpu ls
	eventually prints '\nswap        32\.0 MiB, 0 B in use\n' gbpf vgpu show train
	start_servers_with "--vgpu train" a
	expect "0 of 96" a used
	eventually tenant "$pid_a" 't["swap_limit"] == 32 << 20 and t["swap_used"] == 0'
	eventually prints '\A *PID .* MEMORY +SWAP +POLICY (.*\n)+.* 0 B/64\.0 MiB +0 B/32\.0 MiB ' gbpf ps
	gbpf vgpu set train --swap 64M
	expect "0 of 128" a used
	says 2 "gbpf: vgpu set: a virtual GPU cannot be given that: swap: needs mem, beyond which device memory leaves. See gbpf-vgpu(1) for the allowed values" \
		gbpf vgpu set train --mem none
	gbpf set "$pid_a" --swap 16M
	kill_daemon
	start_daemon
	daemon=${pids[-1]}
	vgpu train 'v["processes"] == 1 and v["mem"] == 64 << 20 and v["swap"] == 16 << 20 and v["swap_used"] == 0'
	expect "0 of 80" a used
	gbpf vgpu set train --swap none
	vgpu train 'v["swap"] == 0 and v["mem"] == 64 << 20'
	expect "0 of 64" a used
	eventually tenant "$pid_a" 't["swap_limit"] == 0'
	eventually prints '\ANAME .* MEMORY +RESERVED ' gbpf vgpu ls
	eventually prints '\A *PID .* MEMORY +POLICY ' gbpf ps
	says 2 "gbpf: vgpu set: invalid size '1M' for --swap. Use a number with K, M, G or T: at least 2M, at most the machine's memory; or none" \
		gbpf vgpu set train --swap 1M
	start_servers_with "--mem 64M --swap 32M" b # in one without a name
	expect "0 of 96" b used
}

@test "what programs see of swap is given and changed while they run, and survives gbpfd" {
	start_all
	gbpf vgpu create train --mem 64M --swap 64M --show mem
	gbpf vgpu create other --mem 64M --swap 64M
	eventually prints '\ANAME .* SWAP +SHOWN +RESERVED (.*\n)+other .* 0 B/64\.0 MiB  all +(.*\n)+train .* 0 B/64\.0 MiB  mem +' gbpf vgpu ls
	eventually prints '\nshown       mem: programs see the memory without swap\n' gbpf vgpu show train
	vgpu train 'v["show"] == "mem" and v["swap"] == 64 << 20'
	vgpu other 'v["show"] == "all"'
	start_servers_with "--vgpu train" a
	expect "0 of 64" a used
	expect ok a alloc 40
	expect "40 of 64" a used
	expect ok a alloc 40
	expect "64 of 64" a used
	eventually tenant "$pid_a" 't["swap_limit"] == 64 << 20 and t["swap_used"] >= 16 << 20'
	gbpf vgpu set train --show all --burst on
	ask a used
	[[ "$REPLY" == *" of 128" ]]
	gbpf set "$pid_a" --show mem
	expect "64 of 64" a used
	vgpu train 'v["show"] == "mem" and v["burst"] is True'
	kill_daemon
	expect "64 of 64" a used
	start_daemon
	daemon=${pids[-1]}
	vgpu train 'v["processes"] == 1 and v["show"] == "mem" and v["burst"] is True'
	expect "64 of 64" a used
	start_servers_with "--vgpu train" b
	expect "64 of 64" b used
	gbpf vgpu set train --show all
	ask a used
	[[ "$REPLY" == *" of 128" ]]
	gbpf vgpu set other --show mem
	gbpf vgpu set train --swap none --show mem # what has left the device stays there, and counts
	expect "64 of 64" a used
	says 2 "gbpf: vgpu set: --show: 'swap' is not one of mem|all. See: gbpf help vgpu set" gbpf vgpu set train --show swap
	gbpf vgpu rm other
	gbpf vgpu create other --show mem
	eventually prints '\nshown       mem: ' gbpf vgpu show other # harmless: it has no swap
	start_servers_with "--mem 64M --swap 32M --show mem" c # in one without a name
	expect "0 of 64" c used
}

@test "names, limits and processes of vGPUs survive a kill of gbpfd" {
	start_all
	gbpf vgpu create train --mem 64M --wait 3s
	gbpf vgpu create empty --mem 32M
	start_servers_with "--vgpu train" a
	expect ok a alloc 40
	kill_daemon
	expect CUDA_ERROR_OUT_OF_MEMORY a alloc 30
	start_daemon
	daemon=${pids[-1]}
	vgpu train 'v["processes"] == 1 and v["devices"][0]["mem_used"] == 40 << 20 and v["wait_ns"] == 3 * 10**9'
	start_servers_with "--vgpu train" b
	expect "40 of 64" b used
	vgpu empty 'v["mem"] == 32 << 20'
	start_servers_with "--vgpu empty" c # at once: it had no process
	expect "0 of 32" c used
}

@test "a process that starts before those of a restarted gbpfd are back waits for the account" {
	start_all
	gbpf vgpu create train --mem 64M
	start_servers_with "--vgpu train" a
	expect ok a alloc 40
	kill -STOP "$pid_a"
	kill_daemon
	start_daemon
	daemon=${pids[-1]}
	gbpf run --device soft --vgpu train -- "$VGPU" serve <<<used >"$GBPF_RUNTIME_DIR/late" 2>"$GBPF_RUNTIME_DIR/late.err" 3>&- &
	pids+=($!)
	eventually event "gbpfd was restarted; try again"
	kill -CONT "$pid_a"
	joined() { grep -qx "40 of 64" "$GBPF_RUNTIME_DIR/late"; }
	eventually joined
}

@test "rm --drain takes no new programs and removes the vGPU with its last one" {
	start_all
	gbpf vgpu create train --mem 64M
	start_servers_with "--vgpu train" a
	says 0 "train: removed when its 1 process has ended" gbpf vgpu rm --drain train
	run gbpf run --device soft --vgpu train -- "$VGPU" init
	echo "$output"
	[ "${lines[0]}" = "gbpf: gbpfd refused this program: it cannot join its virtual GPU: it is being removed" ]
	expect ok a alloc 10
	kill_daemon
	start_daemon
	daemon=${pids[-1]}
	vgpu train 'v["state"] == "draining" and v["processes"] == 1'
	kill -9 "$pid_a"
	gone() { run -5 gbpf vgpu show train; }
	eventually gone
	saved() { ! grep -q train "$GBPF_STATE_DIR/vgpus.json"; } # by a thread of gbpfd, a moment later
	eventually saved
	kill_daemon
	start_daemon
	run -5 gbpf vgpu show train
}

@test "what cannot be given is refused" {
	local name
	start_all
	for name in 9x 'a b' a/b .x abcdefghijklmnopqrstuvwxyz012345; do
		run gbpf vgpu create "$name" --mem 64M
		echo "$output"
		[ "$status" -eq 2 ]
		[[ $output = "gbpf: vgpu create: '$name' cannot be the name of a virtual GPU."* ]]
	done
	for option in "--mem 15M" "--mem -1" "--compute 0" "--compute 101" "--copy 101" "--prio 101" "--wait 2h" "--burst maybe" \
		"--mem 64M --reserve 65M" "--pinned 0" "--swap 64M" "--mem none --swap 64M" "--mem 64M --swap 1" "--mem 64M --swap 0" \
		"--mem 64M --swap 2097151" "--mem 64M --swap 2000T" "--mem 64M --swap lots" "--mem 64M --swap -2M"; do
		# shellcheck disable=SC2086 # several words
		run gbpf vgpu create train $option
		echo "$option: $output"
		[ "$status" -eq 2 ]
	done
	says 5 "gbpf: vgpu create: there is no user 'no.such.user'. Give user names or numbers, separated by commas" \
		gbpf vgpu create train --mem 64M --user no.such.user
	eventually prints '\AThere are no virtual GPUs\. `gbpf vgpu create NAME --mem SIZE` makes one\.\n\Z' gbpf vgpu ls
	gbpf vgpu create train --mem 64M
	run gbpf vgpu create train --mem 64M
	[ "$status" -eq 1 ]
	says 5 "gbpf: vgpu set: there is no virtual GPU nosuch. \`gbpf vgpu ls\` lists them" gbpf vgpu set nosuch --mem 64M
	says 125 "gbpf: run: there is no virtual GPU 'nosuch' for this user. \`gbpf vgpu ls\` lists them; \`gbpf vgpu create\` makes one" \
		gbpf run --device soft --vgpu nosuch -- true
	says 125 "gbpf: run: --vgpu names a virtual GPU that has its limits already. \`gbpf vgpu set\` changes what it is given" \
		gbpf run --device soft --vgpu train --mem 64M -- true
}

@test "there are at most 64 vGPUs" {
	local i
	start_all
	for i in {1..64}; do
		gbpf -q vgpu create "v$i" --mem 64M
	done
	run gbpf vgpu create more --mem 64M
	[ "$status" -eq 7 ]
	run gbpf run --device soft --mem 64M -- "$VGPU" init
	[[ $output = *"has 64 virtual GPUs, of 64 that others leave to it"* ]]
	gbpf vgpu rm v33
	gbpf vgpu create more --mem 64M
}

@test "files of vGPUs that are damaged do not keep gbpfd from starting" {
	start_all
	gbpf vgpu create train --mem 64M
	kill_daemon
	python3 - "$GBPF_STATE_DIR/vgpus.json" <<'PY'
import json, sys
good = json.load(open(sys.argv[1]))["vgpus"][0]
bad = [dict(good, name="9x"), dict(good, name="b", mem=-1), dict(good, name="c", mem="x"), dict(good, name="d", uid=-5),
       dict(good, name="e", users=[2**40]), dict(good, name="f", compute=101), good, 7, {}, dict(good, name="good")]
json.dump({"vgpus": [good] + bad}, open(sys.argv[1], "w"))
PY
	start_daemon
	daemon=${pids[-1]}
	eventually shows 'sorted(v["name"] for v in d["vgpus"]) == ["good", "train"]' gbpf vgpu ls
	[ "$(gbpf events | grep -c "is left out")" -eq 9 ]
	kill_daemon
	echo '{"vgpus": [' >"$GBPF_STATE_DIR/vgpus.json"
	start_daemon
	gbpf events | grep -q "vgpus.json cannot be read: no virtual GPU with a name is known"
	gbpf vgpu create fresh --mem 64M # replaces the file
	[ "$(cat "$GBPF_STATE_DIR/vgpus.json.bad")" = '{"vgpus": [' ]
	grep -q fresh "$GBPF_STATE_DIR/vgpus.json"
}

@test "variables of other tools limit programs" {
	start_all
	CUDA_DEVICE_MEMORY_LIMIT=64m run gbpf run --device soft -- "$VGPU" serve <<<used
	[ "${lines[1]}" = "0 of 64" ]
	CUDA_DEVICE_MEMORY_LIMIT=512m CUDA_DEVICE_MEMORY_LIMIT_0=32m run gbpf run --device soft -- "$VGPU" serve <<<used
	[ "${lines[1]}" = "0 of 32" ]
	CUDA_DEVICE_MEMORY_LIMIT=64m run gbpf run --device soft --mem 96M -- "$VGPU" serve <<<used
	[ "${lines[1]}" = "0 of 96" ]
	CUDA_DEVICE_MEMORY_LIMIT=1x run gbpf run --device soft -- true
	[ "$status" -eq 125 ]
	CUDA_DEVICE_SM_LIMIT_0=20 CUDA_DEVICE_SM_LIMIT_1=30 run gbpf run --device soft -- true
	[ "$status" -eq 125 ]
	for name in CUDA_DEVICE_MEMORY_LIMIT_16 CUDA_DEVICE_MEMORY_LIMIT_01 CUDA_DEVICE_SM_LIMIT_4294967296; do
		run env "$name=50" gbpf run --device soft -- true
		[ "$status" -eq 125 ]
		[[ $output = *"$name limits no device"* ]]
	done
	CUDA_DEVICE_MEMORY_LIMIT_16='' CUDA_DEVICE_MEMORY_LIMIT_OLD=1x run gbpf run --device soft -- true
	[ "$status" -eq 0 ]
	run env CUDA_DEVICE_MEMORY_LIMIT="$(printf '9%.0s' {1..5000})" gbpf run --device soft -- true
	[ "$status" -eq 125 ]
	[ "${#output}" -lt 300 ]
	run env CUDA_DEVICE_SM_LIMIT=20 gbpf run --device soft -- bash -c 'echo "${GBPF_VGPU#*:*:}"'
	[ "$output" = "mem=0,compute=20" ]
}

@test "reserved memory is there for its vGPU, and only for it" {
	start_all
	start_servers_with "--mem 1000M" other # the soft GPU has 1024 MiB
	gbpf vgpu create kept --mem 400M --reserve 300M
	expect ok other alloc 600
	expect CUDA_ERROR_OUT_OF_MEMORY other alloc 130
	expect ok other alloc 100
	start_servers_with "--vgpu kept" kept
	expect ok kept alloc 300
	expect CUDA_ERROR_OUT_OF_MEMORY kept alloc 26 # others have the rest
	expect ok kept alloc 24
	expect CUDA_ERROR_OUT_OF_MEMORY other alloc 2
	expect ok other free # its vGPU may take that again, until another one needs it
	expect ok kept alloc 76
	expect CUDA_ERROR_OUT_OF_MEMORY kept alloc 2 # its limit
	expect CUDA_ERROR_OUT_OF_MEMORY other alloc 26
	expect ok other alloc 24
	expect ok kept free
	expect ok kept free
	expect ok other alloc 100 # but not what is reserved
	expect CUDA_ERROR_OUT_OF_MEMORY other alloc 2
	gbpf vgpu set kept --reserve 0
	expect ok kept free
	expect ok other alloc 200
}

@test "reservations that do not fit are refused with the figures" {
	start_all
	start_servers 64 a # now gbpfd knows the size
	gbpf vgpu create one --mem 800M --reserve 600M
	says 7 "gbpf: vgpu create: 500 MiB cannot be reserved: others leave 424 of 1024 MiB. \`gbpf vgpu ls\` shows all reservations" \
		gbpf vgpu create two --mem 800M --reserve 500M
	gbpf vgpu create two --mem 800M --reserve 424M
	says 7 "gbpf: vgpu set: 601 MiB cannot be reserved: others leave 600 of 1024 MiB. \`gbpf vgpu ls\` shows all reservations" \
		gbpf vgpu set one --reserve 601M
	run gbpf run --device soft --mem 64M --reserve 10M -- "$VGPU" init
	echo "$output"
	[ "${lines[0]}" = "gbpf: gbpfd refused this program: its virtual GPU cannot reserve that: others leave 0 of 1024 MiB" ]
	gbpf vgpu rm two
	run gbpf run --device soft --mem 64M --reserve 10M -- "$VGPU" init
	[ "$output" = CUDA_SUCCESS ]
}

@test "without gbpfd the limit counts, and after its restart reservations do again" {
	start_all
	start_servers_with "--mem 1000M" other
	gbpf vgpu create kept --mem 400M --reserve 300M
	expect ok other alloc 700
	expect CUDA_ERROR_OUT_OF_MEMORY other alloc 100
	kill_daemon
	expect ok other alloc 100
	start_daemon
	daemon=${pids[-1]}
	eventually tenant "$pid_other" 't["mem_used"] == 800 << 20'
	expect CUDA_ERROR_OUT_OF_MEMORY other alloc 2
	expect ok other free
	start_servers_with "--vgpu kept" kept
	expect ok kept alloc 300
}

@test "an allocation waits until memory of its vGPU is freed, in the order of arrival" {
	start_all
	gbpf vgpu create train --mem 64M --wait 1000s
	start_servers_with "--vgpu train" a b c
	expect ok a alloc 60
	echo alloc 50 >&"$in_b"
	waits train 1
	echo alloc 40 >&"$in_c"
	waits train 2
	kill -STOP "$pid_b" # it gets its answer, and c does not take what it is about to
	expect ok a free
	waits train 1
	kill -CONT "$pid_b"
	answer_of b
	[ "$REPLY" = ok ]
	waits train 1 # c does not fit next to b
	kill -9 "$pid_b"
	answer_of c
	[ "$REPLY" = ok ]
	expect "40 of 64" a used
}

@test "a waiting allocation ends when its time is over, and when gbpfd dies" {
	start_all
	gbpf vgpu create short --mem 64M --wait 300ms
	start_servers_with "--vgpu short" a
	expect ok a alloc 60
	expect CUDA_ERROR_OUT_OF_MEMORY a alloc 10
	gbpf vgpu create long --mem 64M --wait 1000s
	start_servers_with "--vgpu long" b c
	expect ok b alloc 60
	echo alloc 10 >&"$in_c"
	waits long 1
	kill_daemon
	expect ok b free # c looks by itself
	answer_of c
	[ "$REPLY" = ok ]
}

@test "a call that began to wait without gbpfd waits in the queue of the next one" {
	start_all
	gbpf vgpu create train --mem 64M --wait 1000s
	start_servers_with "--vgpu train" a b
	expect ok a alloc 60
	kill_daemon
	echo alloc 10 >&"$in_b"
	start_daemon
	waits train 1
	expect ok a free
	answer_of b
	[ "$REPLY" = ok ]
	waits train 0
}

# start_part PART: a program of the vGPU `train` that goes on once one of its threads waits.
start_part() {
	mkfifo "$GBPF_RUNTIME_DIR/go"
	gbpf run --device soft --vgpu train -- "${GBPF_BUILD:-build}/tests/system/vgpu_pools" "$1" \
		<"$GBPF_RUNTIME_DIR/go" 3>&- &
	program=$!
	pids+=("$program")
	exec {go}>"$GBPF_RUNTIME_DIR/go"
	waits train 1
	echo go >&"$go"
	wait "$program"
}

@test "threads use pools and free into them while one waits for memory of a pool" {
	start_all
	gbpf vgpu create train --mem 96M --wait 1000s
	start_part wait
}

@test "memory that a pool keeps ends the wait of another thread at the limit" {
	start_all
	gbpf vgpu create train --mem 96M --wait 1000s
	start_part wait-linear
}

@test "threads launch graphs while the launch of one waits for memory" {
	start_all
	gbpf vgpu create train --mem 96M --wait 1000s
	start_part wait-graph
}

@test "overhead of a context ends the wait of another thread once it is destroyed" {
	start_soft --context-memory 24M
	start_daemon
	gbpf vgpu create train --mem 80M --wait 1000s
	start_part wait-context
}

@test "gbpf vgpu ls is ordered by name" {
	start_all
	gbpf vgpu create zeta
	gbpf vgpu create alpha
	gbpf vgpu create mid
	eventually prints '\ANAME [^\n]*\nalpha [^\n]*\nmid [^\n]*\nzeta [^\n]*\n\Z' gbpf vgpu ls
}

active() { # NAME: the policy in force
	gbpf --json policy list | python3 -c '
import json, sys
d = json.load(sys.stdin)
sys.exit([v["name"] for v in d["versions"] if v["version"] == d["active"]] != [sys.argv[1]])' "$1" 2>/dev/null
}

@test "the default policy keeps shares once a vGPU has one, unless an operator chose another" {
	start_all
	gbpf vgpu create plain --mem 64M
	active fair
	run -0 --separate-stderr gbpf vgpu create part --compute 25
	[ -z "$stderr" ]
	eventually active vgpu_auto
	eventually event "a virtual GPU has a share: 'vgpu_auto' becomes the default policy"
	gbpf policy rollback # wanted
	gbpf vgpu set part --compute 30
	active fair
	kill_daemon
	start_daemon # with vgpus.json
	daemon=${pids[-1]}
	eventually active vgpu_auto
	gbpf policy swap fair # of the operator now: it stays
	run -0 --separate-stderr gbpf vgpu set part --compute 20 --copy 30
	[ "$stderr" = "warning: policy fair does not keep shares of the GPU's time: \`gbpf policy swap vgpu_auto\`
warning: policy fair does not keep shares of copy bandwidth: \`gbpf policy swap vgpu_auto\`" ]
	run -0 --separate-stderr gbpf vgpu set part --mem 64M # of shares that it does not give no more is said
	[ -z "$stderr" ]
	kill_daemon
	start_daemon
	active fair
	start_servers_with "--vgpu part" a
	eventually event "has a share of 20 % of GPU 0, which policy fair does not keep" # gbpfd checks it after the program goes on
	eventually grep -q "warning: the share of 20 % of GPU 0 is not kept by policy fair" "$GBPF_RUNTIME_DIR/servers.log"
	active fair
	run -0 --separate-stderr gbpf --json set "$pid_a" --compute 30
	[ "$stderr" = "warning: policy fair does not keep shares of the GPU's time: \`gbpf policy swap vgpu_auto\`" ]
	python3 -c 'import json, sys; sys.exit(json.loads(sys.argv[1])["schema"] != "gbpf.set.vgpu/1")' "$output"
	run -0 gbpf --json vgpu set part --prio 3
	python3 -c 'import json, sys; sys.exit(json.loads(sys.argv[1])["schema"] != "gbpf.vgpu.set/1")' "$output"
}

@test "no policy is named as one that ignores shares while another is loaded" {
	start_all
	python3 - "$GBPF_RUNTIME_DIR/control.sock" <<'END'
import json, socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
calls = [("hello", {"protocol": 1})] + [("vgpu.create", {"name": n, "compute": 25, "copy": 30}) for n in ("one", "two")]
s.sendall(b"".join(json.dumps({"id": i, "method": m, "params": p}).encode() + b"\n" for i, (m, p) in enumerate(calls)))
answers = s.makefile()
read = [json.loads(answers.readline()) for _ in calls]
assert [a["result"].get("ignored") for a in read[1:]] == [{}, {}], read
END
}

@test "a program on two GPUs is warned once of each kind of share" {
	start_soft --gpus 2
	start_daemon
	gbpf policy swap fifo
	start_servers_with "--compute 25 --copy 30" a
	eventually event "has a copy share of 30 % of GPU 1, which policy fifo does not keep"
	eventually grep -q "warning: the copy share of 30 % of GPU 0 is not kept by policy fifo" "$GBPF_RUNTIME_DIR/servers.log"
	[ "$(grep -c "is not kept" "$GBPF_RUNTIME_DIR/servers.log")" -eq 2 ]
}

@test "a program started with a share changes the default policy too" {
	start_all
	start_servers_with "--mem 64M" plain
	active fair
	start_servers_with "--compute 25" a
	eventually active vgpu_auto
	run gbpf events
	[[ "$output" != *"does not keep"* ]]
	expect ok a alloc 20
}

# A GPU of 1024 MiB of which `other` holds 1000, half of it in one piece.
start_full() {
	start_all
	start_servers_with "--mem 1000M" other
	expect ok other alloc 500
	expect ok other alloc 500
}

@test "an allocation waits while the GPU itself is full, until another vGPU frees memory" {
	start_full
	gbpf vgpu create train --mem 200M --wait 1000s
	start_servers_with "--vgpu train" a
	echo alloc 60 >&"$in_a"
	waits train 1
	expect "1000 of 1000" other used
	eventually tenant "$pid_a" 't["mem_used"] == 0' # but while it tries
	expect ok other free
	answer_of a
	[ "$REPLY" = ok ]
	expect "60 of 200" a used
	waits train 0
}

# Sets first to the one of a and b that has an answer.
either() {
	if read -r -t 0 -u "$out_a"; then
		first=a
	elif read -r -t 0 -u "$out_b"; then
		first=b
	else
		return 1
	fi
}

@test "those that wait for a full GPU are served in the order of arrival, over all vGPUs" {
	GBPF_PATIENCE=20 start_full # a's turn lasts 200 ms times that
	gbpf vgpu create one --mem 600M --wait 1000s
	gbpf vgpu create two --mem 600M --wait 1000s
	start_servers_with "--vgpu one" a
	start_servers_with "--vgpu two" b
	for _ in {1..5}; do
		echo alloc 400 >&"$in_a"
		waits one 1
		echo alloc 400 >&"$in_b"
		waits two 1
		expect ok other free # 524 MiB are free
		eventually either
		[ "$first" != a ] || break
		# The memory was freed between an attempt of a in vain, as four times a second, and that of b: once more.
		answer_of b
		expect ok b free
		answer_of a
		expect ok a free
		expect ok other alloc 500
	done
	[ "$first" = a ]
	answer_of a
	[ "$REPLY" = ok ]
	waits two 1
	kill -9 "$pid_a"
	answer_of b
	[ "$REPLY" = ok ]
}

@test "a call that needs more than is freed does not hold up those behind it" {
	start_full
	gbpf vgpu create one --mem 1000M --wait 1000s
	gbpf vgpu create two --mem 600M --wait 1000s
	start_servers_with "--vgpu one" a
	start_servers_with "--vgpu two" b
	echo alloc 900 >&"$in_a"
	waits one 1
	echo alloc 400 >&"$in_b"
	waits two 1
	expect ok other free
	answer_of b
	[ "$REPLY" = ok ]
	waits one 1 # but while it tries
	kill -9 "$pid_b"
	expect ok other free
	answer_of a
	[ "$REPLY" = ok ]
}

@test "waiting for a full GPU has an end, with an event" {
	start_full
	gbpf vgpu create train --mem 200M --wait 300ms
	start_servers_with "--vgpu train" a
	expect CUDA_ERROR_OUT_OF_MEMORY a alloc 60
	eventually event "cuMemAlloc of 60 MiB refused: the GPU is full, 0 of 200 MiB of the limit are in use"
	expect ok a alloc 20
	gbpf vgpu set train --wait none
	expect CUDA_ERROR_OUT_OF_MEMORY a alloc 60
	waits train 0
}

@test "what a full GPU refuses does not count as the most memory that a program held" {
	start_full
	start_servers_with "--mem 200M" a
	expect CUDA_ERROR_OUT_OF_MEMORY a alloc 60
	expect ok a alloc 20
	expect CUDA_ERROR_OUT_OF_MEMORY a alloc 60
	killed_holding_at_most 20 "$pid_a"
}

@test "every kind of device memory waits while the GPU is full" {
	local kind n=0
	start_full
	start_servers_with "--mem 200M" rest
	expect ok rest alloc 24
	gbpf vgpu create train --mem 400M --wait 1000s
	for kind in linear-3M linear-1000 pitch create array async pool; do
		start_servers_with "--vgpu train" "taker$((++n))"
		local in=in_taker$n
		echo "take-$kind" >&"${!in}"
		waits train $n
	done
	expect ok other free
	for ((; n; n--)); do
		answer_of "taker$n"
		echo "$n: $REPLY"
		[ "$REPLY" = ok ]
	done
	waits train 0
}

@test "memory that a pool keeps ends the wait of another thread while the GPU is full" {
	start_all
	start_servers_with "--mem 1000M" other
	expect ok other alloc 470
	expect ok other alloc 470
	gbpf vgpu create train --mem 200M --wait 1000s
	start_part wait-linear
}

@test "a pool whose room is scattered waits at the limit of its vGPU on a full GPU" {
	start_all
	start_servers_with "--mem 1000M" other
	expect ok other alloc 480
	expect ok other alloc 480
	gbpf vgpu create train --mem 64M --wait 1000s
	start_part wait-scattered
}

@test "an allocation gets what programs in no vGPU free" {
	start_all
	start_servers_with "" other
	expect ok other alloc 500
	expect ok other alloc 500
	gbpf vgpu create train --mem 1000M --wait 1000s
	start_servers_with "--vgpu train" a
	echo alloc 400 >&"$in_a"
	waits train 1
	expect ok other free
	answer_of a
	[ "$REPLY" = ok ]
	echo alloc 500 >&"$in_a"
	waits train 1
	kill -9 "$pid_other"
	answer_of a
	[ "$REPLY" = ok ]
}

@test "without gbpfd a call that waits for a full GPU looks by itself" {
	start_full
	gbpf vgpu create train --mem 200M --wait 1000s
	start_servers_with "--vgpu train" a
	echo alloc 60 >&"$in_a"
	waits train 1
	kill_daemon
	expect ok other free
	answer_of a
	[ "$REPLY" = ok ]
}

# A program that reserves 500 MiB starts; its result goes to the file late. It waits in admit.
start_late() {
	start_soft
	start_daemon --policy "${GBPF_BUILD:-build}/tests/system/memory_admit.bpf.o"
	start_servers_with "--mem 1000M" other # the soft GPU has 1024 MiB
	expect ok other alloc 600
	gbpf run --device soft --mem 600M --reserve 500M -- "$VGPU" serve <<<"alloc 500" >"$GBPF_RUNTIME_DIR/late" 2>&1 3>&- &
	pids+=($!)
	eventually event "waits: admit of the policy returned queue"
	! grep -q . "$GBPF_RUNTIME_DIR/late"
	allocated() { [ "$(tail -n 1 "$GBPF_RUNTIME_DIR/late")" = ok ]; }
}

@test "a policy may queue a program until another one has ended and its reservation is free" {
	start_late
	kill -9 "$pid_other"
	eventually allocated
}

@test "a policy may queue a program until another one frees memory" {
	start_late
	expect ok other free
	eventually allocated
}
