# gbpf bench dev copy on the soft GPU, in small.
load helper

setup() {
	cli_setup
	export TMPDIR=$cli_dir/tmp
	mkdir "$TMPDIR"
}

@test "bench dev copy measures all sizes and ways by gBPF and by the driver" {
	run --separate-stderr "$GBPF" --json bench dev copy --device soft --max 4M --threads 1,3 --repeats 2 --save out.json
	echo "$output $stderr"
	[ "$status" -eq 0 ]
	[ -z "$stderr" ]
	json 'd["schema"] == "gbpf.bench.copy/1" and d["missed"] == [] and d["max"] == 4 << 20 and d["cores"] > 0'
	json 'sorted({r["bytes"] for r in d["rows"]}) == [4 ** i for i in range(12)]'
	json '{r["way"] for r in d["rows"]} == {"up", "down", "both"}'
	json '{r["threads"] for r in d["rows"] if r["bytes"] == 4 << 20} == {0, 1, 3}'
	json '{r["threads"] for r in d["rows"] if r["bytes"] < 4 << 20} == {0}'
	json 'sorted({r["bytes"] for r in d["rows"] if r["fresh"]}) == [1 << 20, 4 << 20]'
	json 'all(r["driver_ns"] > 0 and r["gbpf_ns"] > 0 and abs(r["ratio"] - r["gbpf_ns"] / r["driver_ns"]) < 1e-9 for r in d["rows"])'
	json 'all(r["copies"] == 2 * min(max((256 << 20) // r["bytes"], 1), 100) for r in d["rows"])'
	[ -s out.json ]
	[ -z "$(ls "$TMPDIR")" ]
}

@test "bench dev copy measures the ways that are asked for" {
	run --separate-stderr "$GBPF" --json bench dev copy --device soft --max 64K --threads 1 --repeats 1 --ways up
	json '{r["way"] for r in d["rows"]} == {"up"} and len(d["rows"]) == 9'
}

@test "bench dev copy --shares measures shares and latency under each policy, and without" {
	run --separate-stderr "$GBPF" --json bench dev copy --device soft --shares 30,70 --max 16M --seconds 1 --ways down
	echo "$output $stderr"
	[ "$status" -eq 0 ]
	json 'd["schema"] == "gbpf.bench.copy_shares/1" and d["missed"] == [] and d["complete"]'
	json '[(r["policy"], r["kind"]) for r in d["rows"]] == [(p, k) for p in ("copy_fair", "vgpu_auto", "none") for k in ("pageable", "pinned")]'
	json 'all(r["way"] == "down" and r["shares"] == [30, 70] and r["windows"] == 1 for r in d["rows"])'
	json 'all(r["gb_s"] > 0 and r["alone_gb_s"] > 0 and abs(sum(r["got_percent"]) - 100) < 1e-6 for r in d["rows"])'
	json '[r["policy"] for r in d["latency"]] == ["copy_fair", "vgpu_auto", "none"]'
	json 'all(r["calls"] == 200 and r["alone_p50_ns"] > 0 and r["p99_ns"] >= r["p50_ns"] > 0 for r in d["latency"])'
	[ -z "$(ls "$TMPDIR")" ]
}

@test "bench dev copy --shares measures the policies that are asked for, and says what is left" {
	run --separate-stderr "$GBPF" bench dev copy --device soft --shares 50,50 --max 1M --seconds 2 --ways up --policies none --progress
	echo "$output $stderr"
	[ "$status" -eq 0 ]
	[ "$(grep -c '^none  *up  *p' <<<"$output")" -eq 2 ]
	run ! grep -E '^(copy_fair|vgpu_auto)' <<<"$output"
	[ "$(grep -c '^copy: part ' <<<"$stderr")" -eq 6 ]
	grep -q '^copy: part 1 of 6, about 11 s left: none, up, pageable, 1 of 2$' <<<"$stderr"
	grep -q '^copy: part 2 of 6, about 9 s left: none, up, pageable, 2 of 2$' <<<"$stderr"
}

# interrupted: ends $bench, whose messages are in the files out and err, as the terminal does.
interrupted() {
	kill -INT "$bench"
	status=0
	wait "$bench" || status=$?
	cat out err
	[ "$status" -eq 130 ]
}

@test "bench dev copy prints rows as they are measured, and keeps them when it is interrupted" {
	env --default-signal=INT "$GBPF" bench dev copy --device soft --shares 50,50 --max 1M --seconds 1 --ways up,down --policies none \
		--save part.json >out 2>err 3>&- &
	bench=$!
	two_rows() { [ "$(grep -c '^none  *up  *p' out)" -eq 2 ]; }
	eventually two_rows
	interrupted
	two_rows
	grep -q interrupted err
	output=$(cat part.json)
	json 'd["complete"] is False and [(r["way"], r["kind"]) for r in d["rows"][:2]] == [("up", "pageable"), ("up", "pinned")]'
	json 'len(d["rows"]) < 4 and d["missed"] == []'
	[ -z "$(ls "$TMPDIR")" ]
}

@test "bench dev copy prints one document when it is interrupted under --json" {
	env --default-signal=INT "$GBPF" --json bench dev copy --device soft --max 256K --threads 1 --repeats 1000 --ways up --progress >out 2>err 3>&- &
	bench=$!
	second_round() { grep -q '^copy: round 2 of 1000, about [0-9]* s left: ' err; }
	eventually second_round
	interrupted
	output=$(cat out)
	json 'd["schema"] == "gbpf.bench.copy/1" and d["complete"] is False'
	json '[r["bytes"] for r in d["rows"]] == [4 ** i for i in range(10)] and all(r["copies"] >= 100 for r in d["rows"])'
	[ -z "$(ls "$TMPDIR")" ]
}

@test "bench dev copy --overlap measures images alone, two at once, with shares and without gBPF" {
	run --separate-stderr "$GBPF" --json bench dev copy --device soft --overlap --link-bandwidth 64M --max 1M --seconds 2
	echo "$output $stderr"
	[ "$status" -eq 0 ]
	json 'd["schema"] == "gbpf.bench.copy_overlap/1" and d["missed"] == [] and d["complete"] and d["link_bytes_s"] == 64 << 20'
	json '[(r["kind"], r["place"], r["tenants"], r["windows"]) for r in d["rows"]] == [(k, p, t, t) for k in ("pageable", "pinned")
		for p, t in (("gbpf", 1), ("gbpf", 2), ("gbpf-shares", 2), ("native", 1), ("native", 2))]'
	json 'all(i["iterations"] % 2 == 1 and i["kernel_ns"] > 0 and i["copies_ns"] >= 29000000 for i in d["images"].values())'
	json 'all(r["images_per_s"] > 0 and 0 < r["copy_percent"] < 100.001 and 0 < r["compute_percent"] < 100.001 for r in d["rows"])'
	json 'all(r["sum_percent"] < 105 for r in d["rows"] if r["tenants"] == 1)'
	json 'all((r["device_percent"] is None) == (r["place"] == "native") and (r["met"] is None) == (r["tenants"] == 1 or r["place"] == "native")
		for r in d["rows"])'
	json 'all(r["device_percent"] > 0 for r in d["rows"] if r["place"] != "native")'
	# One tenant never overlaps with itself; that the other's copies pass while it computes shows on a loaded machine in some window.
	json 'max(s for r in d["rows"] if r["tenants"] == 2 for s in r["windows_sum_percent"]) > 105'
	[ -z "$(ls "$TMPDIR")" ]
}

@test "bench dev copy refuses values that make no sense" {
	for o in "--max 0" "--max 5G" "--max much" "--threads 0" "--threads 9" "--threads 1,x" "--ways sideways" "--repeats 0" "--shares 30" "--shares 30,80" "--shares 0,50" \
		"--shares 30,x" "--shares 30,70," "--shares 30|70" "--shares -30,70" "--seconds 0" "--policies none" "--shares 30,70 --policies fifo" "--overlap --shares 30,70" \
		"--overlap --max 1K" "--overlap --link-bandwidth 1K" "--overlap --link-bandwidth fast" "--link-bandwidth 1G"; do
		run "$GBPF" bench dev copy --device soft $o
		echo "$o: $output"
		[ "$status" -eq 2 ]
	done
	[ -z "$(ls "$TMPDIR")" ]
}

# A GPU's figures: two windows of two tenants, whose kernel takes 10 ms.
@test "the report of bench dev copy --overlap judges the sum of compute and copies" {
	report() { run python3 -IB -X utf8 "$GBPF_PREFIX/lib/gbpf/bench/report" copy "$@"; }
	cat >records <<-'END'
		{"set_up":{"overlap":true,"soft":false,"policy":"auto","policy_shares":"vgpu_auto","share":50,"max":67108864,"seconds":2,"link_bytes_s":0}}
		{"image":{"kind":"pinned","device":"d","cores":16,"iterations":3,"kernel_ns":10000000,"copies_ns":10000000}}
		{"overlap":{"kind":"pinned","place":"gbpf","tenants":1,"windows":1,"elapsed_ns":1000000000,"images":[50],"copy_ns":500000000,"compute_ns":510000000,"busy_ns":[500000000]}}
		{"overlap":{"kind":"pinned","place":"gbpf","tenants":2,"windows":2,"elapsed_ns":1000000000,"images":[40,45],"copy_ns":500000000,"compute_ns":900000000,"busy_ns":[400000000,450000000]}}
		{"overlap":{"kind":"pinned","place":"gbpf","tenants":2,"windows":2,"elapsed_ns":1000000000,"images":[40,35],"copy_ns":520000000,"compute_ns":750000000,"busy_ns":[400000000,350000000]}}
		{"overlap":{"kind":"pinned","place":"native","tenants":2,"windows":1,"elapsed_ns":1000000000,"images":[20,20],"copy_ns":400000000,"compute_ns":350000000,"busy_ns":null}}
		{"end":null}
	END
	report <records
	echo "$output"
	[ "$status" -eq 0 ]
	grep -q '^pinned  *gbpf  *2  *80.0  *1.60  *80.0  *80.0  *51.0  *131.0  *met$' <<<"$output"
	grep -q '^pinned  *native  *2  *40.0  *-  *35.0  *-  *40.0  *75.0  *$' <<<"$output"
	sed 's/520000000/500000000/' records >missed
	report <missed
	echo "$output"
	[ "$status" -eq 1 ]
	grep -q '^MISSED: pinned, gbpf: compute and copies 130.0 % busy, not above 130 %$' <<<"$output"
	sed 's/"soft":false/"soft":true/' missed >soft
	report <soft
	[ "$status" -eq 0 ]
	grep -q ' missed$' <<<"$output"
	# Rows of complete windows, and the one that an interruption cuts short, are kept.
	sed '5,$d' records >cut
	echo '{"error":"interrupted"}' >>cut
	report --json <cut
	[ "$status" -eq 2 ]
	json 'd["complete"] is False and [(r["tenants"], r["windows"]) for r in d["rows"]] == [(1, 1), (2, 1)]'
	sed 's/"interrupted"/"image1: exited"/' cut >failed
	report --json <failed
	[ "$status" -eq 1 ]
	json 'd["error"]["message"] == "bench copy: image1: exited"'
}

# A miss needs a GPU: the report is given the records of one.
@test "the report of bench dev copy exits with 1 if a goal is missed" {
	report() { run python3 -IB -X utf8 "$GBPF_PREFIX/lib/gbpf/bench/report" copy; }
	cat >records <<-'END'
		{"set_up":{"device":"d","soft":false,"policy":"p","cores":16,"max":1073741824,"repeats":1}}
		{"copy":{"bytes":1,"way":"up","fresh":false,"threads":0,"driver":[1000],"gbpf":[1030]}}
		{"copy":{"bytes":1,"way":"down","fresh":true,"threads":0,"driver":[1000],"gbpf":[9000]}}
		{"copy":{"bytes":1073741824,"way":"up","fresh":false,"threads":8,"driver":[200000000],"gbpf":[22000000]}}
		{"copy":{"bytes":1073741824,"way":"up","fresh":false,"threads":4,"driver":[200000000],"gbpf":[31000000]}}
		{"copy":{"bytes":1073741824,"way":"down","fresh":false,"threads":4,"driver":[90000000],"gbpf":[21000000]}}
		{"copy":{"bytes":1073741824,"way":"both","fresh":false,"threads":6,"driver":[200000000],"gbpf":[45000000]}}
		{"end":null}
	END
	report <records
	echo "$output"
	[ "$status" -eq 0 ]
	for change in 's/\[1030\]/[1040]/' 's/\[22000000\]/[23000000]/' 's/\[31000000\]/[32000000]/' 's/\[21000000\]/[22000000]/' \
		's/\[45000000\]/[46000000]/'; do
		sed "$change" records >changed
		! cmp -s records changed
		report <changed
		echo "$change: $output"
		[ "$status" -eq 1 ]
		[ "$(grep -c '^MISSED: ' <<<"$output")" -eq 1 ]
	done
	sed 's/"soft":false/"soft":true/; s/\[1030\]/[9000]/; s/\[22000000\]/[90000000]/' records >changed
	report <changed
	[ "$status" -eq 0 ]
}
