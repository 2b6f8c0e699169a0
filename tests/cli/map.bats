# gbpf map: the maps of the active policy, by the names of their source.
load helper

setup() {
	cli_setup
	test_policies .
	"$GBPF" run --device soft "$GBPF_PREFIX/lib/gbpf/samples/batch" >batch.out 2>&1 &
	eventually grep -q ready batch.out
	pid=$(eventually gets 'd["tenants"][0]["pid"]' "$GBPF" ps)
}

# The policy with a map of each kind, used by the program that runs.
use_many() {
	"$GBPF" -q policy swap many_maps.bpf.o >/dev/null
	eventually eval '"$GBPF" map dump --json table | grep -q "\"n\""'
}

@test "list names maps, types and whose they are" {
	use_many
	run --separate-stderr "$GBPF" map list
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *"table "*"hash "*"each program "*"struct pair {u32 a, u32 b}"* ]]
	[[ "$output" == *".rodata"*"constant"*"{u64 limit}"* ]]
	run "$GBPF" map list --json
	json 'd["schema"] == "gbpf.map.list/1" and {"table", "line", "ring", "sums"} <= {m["map"] for m in d["maps"]}'
}

@test "dump prints a column for each member, and the process" {
	use_many
	run --separate-stderr "$GBPF" map dump table
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "${lines[0]}" =~ ^" "*PID\ +a\ +b\ +n\ +last\ +spare\ +name\ +pair ]]
	[[ "${lines[1]}" =~ ^" "*"$pid " ]]
	run "$GBPF" map dump --json table
	json 'd["schema"] == "gbpf.map.dump/1" and d["entries"][0]["value"]["name"] == "p" and "a" in d["entries"][0]["key"]'
	run "$GBPF" map dump --tenant "$pid" sums
	[ "$status" -eq 0 ]
	run --separate-stderr "$GBPF" map dump --limit 1 sums
	[ "${#lines[@]}" -eq 2 ]
	[[ "$stderr" == *"There are more"* ]]
}

@test "variables are got and set by their names" {
	use_many
	run --separate-stderr "$GBPF" map get limit
	[ "$status" -eq 0 ]
	[[ "$output" =~ ^limit\ +3$ ]]
	run "$GBPF" map set clocks '[1, 2, 3, 4]'
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == "set clocks = ["* ]]
	run --separate-stderr "$GBPF" map set limit 4
	[ "$status" -ne 0 ]
	[[ "$stderr" == *constant* ]]
	run --separate-stderr "$GBPF" map get limit 0
	[ "$status" -eq 2 ]
	[[ "$stderr" == *"global variable"* ]]
}

@test "set changes what is named and leaves the rest; delete removes" {
	use_many
	run "$GBPF" map set -t "$pid" table '{a=70, b=5}' n=5ms 'name="who"'
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *"{a=70, b=5}] = {n=5000000, last=0, spare=0, name=who, pair={a=0, b=0}}"* ]]
	run "$GBPF" map set --json -t "$pid" table '{a=70, b=5}' last=-3
	json 'd["entries"][0]["value"] == {"n": 5000000, "last": -3, "spare": 0, "name": "who", "pair": {"a": 0, "b": 0}}'
	run "$GBPF" map get table '{70, 5}'
	[ "$status" -eq 2 ]
	run "$GBPF" map get table '{"a": 70, "b": 5}'
	[ "$status" -eq 0 ]
	run "$GBPF" map delete -t "$pid" table a=70,b=5
	[ "$status" -eq 0 ]
	run --separate-stderr "$GBPF" map get table a=70,b=5
	[ "$status" -eq 5 ]
}

@test "queues are pushed to and taken from" {
	"$GBPF" -q policy swap many_maps.bpf.o >/dev/null
	"$GBPF" -q off
	are_pushed() { # a hook that had begun before `off` may push, too
		while "$GBPF" map delete -t "$pid" line; do :; done
		"$GBPF" map set -t "$pid" line 41 && "$GBPF" map set -t "$pid" line 42 || return
		run "$GBPF" map dump line
		echo "$output"
		[[ "${lines[1]}" == *" 0 "*41 && "${lines[2]}" == *" 1 "*42 ]]
	}
	eventually are_pushed
	run "$GBPF" map delete -t "$pid" line
	[[ "$output" == *"= 41" ]]
}

@test "histograms are drawn, rings are followed" {
	"$GBPF" policy new look -t observe >/dev/null
	sed -i 's/slow_ns = 10000000/slow_ns = 1/' look/look.bpf.c
	"$GBPF" policy build look
	"$GBPF" -q policy swap look/look.bpf.o >/dev/null
	run "$GBPF" map watch --count 3 slow
	echo "$output"
	[ "$status" -eq 0 ]
	[ "${#lines[@]}" -eq 3 ]
	[[ "${lines[0]}" == *"{kernel="*"duration_ns="*"tenant=0, count="* ]]
	run "$GBPF" map watch --json --count 1 slow
	json 'd["schema"] == "gbpf.map.watch/1" and d["record"]["count"] >= 1'
	run "$GBPF" map dump durations
	echo "$output"
	[[ "${lines[0]}" =~ "durations[0] of process $pid: "[0-9]+" values" ]]
	[[ "$output" =~ \[[0-9]+[KM]?,\ [0-9]+[KM]?\)\ +[0-9]+\ \|@+ ]]
	run --separate-stderr "$GBPF" map dump slow
	[[ "$stderr" == *"gbpf map watch slow"* ]]
}

@test "watch prints changes of a map" {
	run "$GBPF" map watch --interval 20ms --count 2 accounts
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "${lines[0]}" == "$pid  0  {vtime_ns="* ]]
	run "$GBPF" map watch --interval 20ms --count 2 ticked_ns
	[ "$status" -eq 0 ]
	[ "${lines[0]}" != "${lines[1]}" ]
}

@test "what is wrong is said, with what the type looks like" {
	use_many
	run --separate-stderr "$GBPF" map dump tabel
	[ "$status" -eq 5 ]
	[[ "$stderr" == *"table"* ]]
	run --separate-stderr "$GBPF" map get table 7
	[ "$status" -eq 2 ]
	[[ "$stderr" == *"struct pair {u32 a, u32 b}"* ]]
	run --separate-stderr "$GBPF" map set -t "$pid" table a=1,b=2 nn=5
	[ "$status" -eq 2 ]
	[[ "$stderr" == *"no member 'nn'"*"^"* ]]
	run --separate-stderr "$GBPF" map set table a=1,b=2 n=5
	[ "$status" -ne 0 ]
	[[ "$stderr" == *"tenant"* ]]
	run --separate-stderr "$GBPF" map dump --tenant 4194304 table
	[ "$status" -eq 5 ]
	run --separate-stderr "$GBPF" map watch --interval 1ns table
	[ "$status" -eq 2 ]
	run --separate-stderr "$GBPF" map set table
	[ "$status" -eq 2 ]
	"$GBPF" -q policy unload
	run --separate-stderr "$GBPF" map list
	[ "$status" -ne 0 ]
	[[ "$stderr" == *"policy"* ]]
}
