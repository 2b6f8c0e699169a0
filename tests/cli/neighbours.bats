# A crash in the shared lane: neighbours get a message, and are restarted where the policy says so. On the soft GPU no program is really
# harmed by it: the test ends the neighbours itself.
load helper

SAMPLES=$GBPF_PREFIX/lib/gbpf/samples

# working NAME [BUT]: prints the process number of the program, another than BUT, as soon as it has launched more than 10 times.
working() { eventually gets "[t['pid'] for t in d['tenants'] if t['name'] == '$1' and t['pid'] != ${2:-0} and t['stats']['launches'] > 10][0]" "$GBPF" ps; }
told() { "$GBPF" events | grep -q "$1"; }

# start NAME OPTION...: a batch program that is killed later, by a signal that the parent of the tests (nohup) may ignore.
start() {
	env --default-signal=HUP "$GBPF" run --device soft --class batch --name "$1" "${@:2}" -- "$SAMPLES/batch" >"$1.out" 2>"$1.err" 3>&- &
	eval "$1_runner=$!"
}
prepare() {
	"$GBPF" policy build "$REPO/tests/data/cli/restart.bpf.c" -o restart.bpf.o >/dev/null
	"$GBPF" run --device soft -- true
	"$GBPF" policy swap restart.bpf.o >/dev/null
}
crash() {
	local pid
	pid=$(working "$1")
	kill -9 "$pid"
	eventually told "pid $pid) has failed in its shared lane\|pid $pid) failed in the shared lane"
}

# `good`, whose first process is $first, asks for restarts; its neighbour `bad` crashes.
crash_beside_good() {
	prepare
	start bad
	start good --restart 3
	working bad
	first=$(working good)
	crash bad
}

@test "neighbours of a crash get a message, and one that has asked for it is restarted as often as the policy allows" {
	crash_beside_good
	eventually told "good (pid $first) may fail: bad (pid [0-9]*) has failed in its shared lane"
	eventually grep -q 'gbpf: bad (pid [0-9]*) has failed in its shared lane: CUDA calls of this program may fail now' good.err
	eventually prints 'may fail: bad \(pid' "$GBPF" ps --why
	kill -9 "$first"
	eventually grep -q "ended with code 137, and bad (pid [0-9]*) has failed in its shared lane: starting it again (1 of 1)" good.err
	second=$(working good "$first")
	kill -9 "$second" # by itself this time
	rc=0
	wait "$good_runner" || rc=$?
	[ "$rc" -eq 137 ]
}

@test "a program that received a signal to end is not restarted, even after a neighbour's crash" {
	crash_beside_good
	eventually told "good (pid $first) may fail"
	kill -HUP "$good_runner" # batch ends well by the others
	eventually has_exited "$good_runner"
	rc=0
	wait "$good_runner" || rc=$?
	[ "$rc" -eq 129 ]
	! grep -q 'starting it again' good.err
}

@test "what the policy does not allow, and what no neighbour has caused, is not started again" {
	prepare
	start bad
	start kept --restart 3 --weight 7
	start alone --restart 3
	for n in bad kept alone; do
		working "$n"
	done
	kill -9 "$(pid_of alone)"
	rc=0
	wait "$alone_runner" || rc=$?
	[ "$rc" -eq 137 ]
	! grep -q 'starting it again' alone.err
	kill -9 "$(pid_of kept)"
	rc=0
	wait "$kept_runner" || rc=$?
	[ "$rc" -eq 137 ]
	! grep -q 'starting it again' kept.err
	run "$GBPF" run --restart 0 -- true
	[ "$status" -eq 125 ]
}
