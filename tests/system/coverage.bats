#!/usr/bin/env bats
# Which kernels of running programs can be probed, and how, on the soft GPU.

load helpers
load talk

# covers FORM KERNEL LAUNCHES WHY: of the program $pid.
covers() {
	gbpf probe coverage "$pid" --json | python3 -c '
import json, re, sys
t = json.load(sys.stdin)["tenants"][0]
k = next(k for k in t["kernels"] if k["name"] == sys.argv[2])
print(k)
ok = t["answered"] and k["form"] == sys.argv[1] and k["launches"] == int(sys.argv[3]) and re.search(sys.argv[4], k["why"])
sys.exit(not ok)' "$@"
}

@test "a kernel with PTX, one with machine code that can be patched, and one that uses its module's variables" {
	begin
	start
	tell load "launch 3 10" "variables 2"
	eventually covers ptx scale 3 '^$'
	eventually covers ptx add 2 '^$'
	eventually shows '[(f["ptx"]["launches"], f["ptx"]["share"], f["none"]["launches"]) for f in [d["tenants"][0]["forms"]]] == [(5, 1, 0)]' \
		gbpf probe coverage "$pid"
	start
	tell code "launch 2 5"
	eventually covers stub scale 2 'linked by the driver'
	start
	tell both "variables 4"
	eventually covers brackets add 4 'linked by the driver; entry stub: .*constants of the module'
	start
	tell stored "variables 1"
	eventually covers ptx add 1 '^$'
	eventually prints "(?s) probed: brackets 100\.0 % of launches.*\b$pid probed: ptx 100\.0 % of launches" gbpf probe coverage
}

# graphs EXPRESSION: of the program $pid: t, what is shown of it; k, its kernels by name, those of graphs as "graph".
graphs() {
	gbpf probe coverage "$pid" --json | python3 -c '
import json, sys
t = json.load(sys.stdin)["tenants"][0]
k = {k["name"].split(":")[0]: k for k in t["kernels"]}
print(k, t["forms"])
sys.exit(not (t["answered"] and eval(sys.argv[1])))' "$1"
}

@test "launches of graphs count at the kernels of their nodes, also after the graph has ended" {
	PROGRAM=probed_graphs
	begin
	start
	tell load "make captured 5" "replay 3" # two nodes with one kernel
	eventually graphs 'k["scale"]["form"] == "ptx" and k["scale"]["launches"] == k["scale"]["graph_launches"] == 6'
	eventually graphs 'len(k) == 1 and t["forms"]["ptx"]["share"] == 1 and t["forms"]["unknown"]["launches"] == 0'
	tell "replay 2" end
	eventually graphs 'k["scale"]["launches"] == 10'
	tell "make explicit 5" "replay 1"
	eventually graphs 'k["scale"]["launches"] == 12 and len(k) == 1'
	eventually prints "ptx 100\.0 % of launches" gbpf probe coverage "$pid"
}

@test "nodes that were changed have the form of their kernel, those that were destroyed have none" {
	PROGRAM=probed_graphs
	begin
	for make in "make kept 5:stale 9" "make kept 5:set 9" "make nested 5:replace 9" "make kept 5:update 9"; do
		start
		tell load "${make%:*}" "${make#*:}" "replay 4"
		eventually graphs 'k["scale"]["form"] == "ptx" and k["scale"]["launches"] == 8 and len(k) == 1'
		eventually graphs 't["forms"]["ptx"]["share"] == 1'
		tell end
	done
	start
	tell load "make kept 5" remove "replay 4"
	eventually graphs 'k["graph"]["form"] == "none" and "was destroyed" in k["graph"]["why"]'
	eventually graphs 'k["graph"]["launches"] == k["scale"]["launches"] == 4'
	eventually graphs 't["forms"]["none"]["launches"] == k["graph"]["launches"] and t["forms"]["unknown"]["launches"] == 0'
}
