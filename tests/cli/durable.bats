# A swap is on disk before it is active, unless it is volatile; without a disk the old policy stays, and emergency verbs work.
load helper

setup() {
	cli_setup
	"$GBPF" run --device soft true
	"$GBPF" policy swap fifo
	before=$(active)
}

active() { "$GBPF" --json policy list | python3 -c 'import json,sys; print(json.load(sys.stdin)["active"])'; }
active_name() { "$GBPF" --json policy list | python3 -c 'import json,sys
d = json.load(sys.stdin); print("".join(v["name"] for v in d["versions"] if v["version"] == d["active"]))'; }
on_disk() { python3 -c 'import json,sys; print(json.load(open(sys.argv[1]))["active"][0])' "$GBPF_STATE_DIR/policies/state.json"; }

# Nothing can be written any more: as with a full disk, but also for root and without a mount.
break_store() { mv "$GBPF_STATE_DIR/policies" "$GBPF_STATE_DIR/away" && touch "$GBPF_STATE_DIR/policies"; }
mend_store() { rm -r "$GBPF_STATE_DIR/policies" && mv "$GBPF_STATE_DIR/away" "$GBPF_STATE_DIR/policies"; }
# Objects can be written, state.json cannot.
break_state() { mkdir "$GBPF_STATE_DIR/policies/state.json.part"; }

restart() {
	pid=$("$GBPF" --json status | python3 -c 'import json,sys; print(json.load(sys.stdin)["daemon"]["pid"])')
	"$GBPF" -q shutdown
	eventually has_exited "$pid"
	"$GBPF" run --device soft true
}

refused() {
	run --separate-stderr "$GBPF" policy swap lc_first
	echo "$status: $output $stderr"
	[ "$status" -eq 10 ]
	[ -z "$output" ]
	[[ "$stderr" == *"cannot store 'lc_first'"*"$GBPF_STATE_DIR"*"stays active"*"--volatile"* ]]
	run --separate-stderr "$GBPF" --json policy swap lc_first
	[ "$status" -eq 10 ]
	json 'd["error"]["code"] == "not-stored" and d["error"]["exit"] == 10'
	[ "$(active)" = "$before" ]
}

@test "a swap that cannot be stored is refused with code 10, and the old policy stays" {
	break_store
	refused
	mend_store
	[ "$(on_disk)" = "$before" ]
	run "$GBPF" policy swap lc_first
	[ "$status" -eq 0 ]
	[ "$(on_disk)" = "$(active)" ]
}

@test "so is one whose object can be stored but not its being active" {
	break_state
	refused
	"$GBPF" policy list
	[ "$("$GBPF" --json policy list | grep -c lc_first)" -eq 0 ]
	[ -z "$(ls "$GBPF_STATE_DIR"/policies/*lc_first* 2>/dev/null)" ]
	rmdir "$GBPF_STATE_DIR/policies/state.json.part"
	"$GBPF" off
	[ "$(on_disk)" = "$before" ] # what was refused is not what a restart finds
	restart
	[ "$(active)" = "$before" ]
}

@test "a volatile swap works without a disk, says so, and ends with gbpfd" {
	break_store
	run "$GBPF" policy swap --volatile lc_first
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == "swapped fifo@"*"lc_first@"*"volatile"* ]]
	[ "$(active_name)" = lc_first ]
	mend_store
	eventually shows 'd["volatile"] == True' "$GBPF" policy show
	"$GBPF" off # writes the state
	"$GBPF" on
	restart
	[ "$(active)" = "$before" ]
}

@test "a volatile version can be returned to while gbpfd runs" {
	"$GBPF" policy swap --volatile lc_first
	volatile=$(active)
	"$GBPF" policy swap fair
	run "$GBPF" policy rollback "$volatile"
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *volatile* ]]
	[ "$(active)" = "$volatile" ]
	restart
	[ "$(active_name)" = fair ]
}

@test "rollback, unload, off and on take effect without a disk, with a warning and code 10" {
	"$GBPF" policy swap lc_first
	newer=$(active)
	break_state # rollback reads the old object
	run --separate-stderr "$GBPF" policy rollback
	[ "$status" -eq 10 ]
	[[ "$output" == "rolled back lc_first"* ]]
	[[ "$stderr" == *"not stored"*"gbpfd exits"* ]]
	[ "$(active)" = "$before" ]
	run --separate-stderr "$GBPF" off
	[ "$status" -eq 10 ]
	[[ "$stderr" == *"not stored"* ]]
	run "$GBPF" --json status
	json 'd["off"] == True'
	run --separate-stderr "$GBPF" --json on
	[ "$status" -eq 10 ]
	json 'd["off"] == False and d["stored"] == False'
	run --separate-stderr "$GBPF" policy unload
	[ "$status" -eq 10 ]
	[ "$(active)" = 0 ]
	run "$GBPF" events
	[[ "$output" == *"will not survive a restart"* ]]
	restart # what could be stored last
	[ "$(active)" = "$newer" ]
}

@test "gbpfd starts with a policy although its disk is full" {
	"$GBPF" -q shutdown
	rm -r "$GBPF_STATE_DIR"
	mkdir -p -m 700 "$GBPF_STATE_DIR/policies/state.json.part" "$GBPF_STATE_DIR/policies/1.bpf.o.part"
	"$GBPF" run --device soft true
	[ "$(active_name)" = fair ]
}
