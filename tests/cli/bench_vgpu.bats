# gbpf bench dev vgpu on the soft GPU, in small: what it measures and prints, not how well policies keep shares.
load helper

setup() {
	cli_setup
	export TMPDIR=$cli_dir/tmp
	mkdir "$TMPDIR"
}

vgpu() {
	run --separate-stderr "$GBPF" --json bench dev vgpu --device soft --short-us 2000 --long-us 8000 "$@"
	echo "$output $stderr"
}

@test "bench dev vgpu compares policies by the same programs and windows" {
	vgpu --policies band2,none --shares 10,90 --seconds 3 --settle 1 --save out.json
	[ "$status" -eq 0 ]
	[ -z "$stderr" ]
	json 'd["schema"] == "gbpf.bench.vgpu/1" and d["soft"] and d["shares"] == [[10, 90]]'
	json '([(c["policy"], c["lane"], c["shares"], c["kinds"], c["windows"]) for c in d["conditions"]] ==
		[(p, "process", [10, 90], ["short", "long"], 3) for p in ("band2", "none")])'
	json 'all(c["error_mean_points"] <= c["error_max_points"] for c in d["conditions"])'
	# On a slow machine a window may pass in which no kernel ends.
	json 'all(abs(sum(c[w + "_percent"]) - 100 * sum(map(any, c["windows_" + w + "_percent"])) / 3) < 0.01 for c in d["conditions"]
		for w in ("got", "progress"))'
	json 'sorted(a["kind"] for a in d["alone"]) == ["long", "short"] and all(a["kernels_per_s"] > 0 for a in d["alone"])'
	json 'all(len(c["windows_got_percent"]) == len(c["windows_progress_percent"]) == 3 for c in d["conditions"])'
	[ -s out.json ]
	[ -z "$(ls "$TMPDIR")" ]
}

@test "bench dev vgpu runs every policy, with several divisions" {
	vgpu --shares '50,50|20,30,50' --seconds 1 --settle 0
	[ "$status" -eq 0 ]
	json '([c["policy"] for c in d["conditions"]] ==
		[p for p in ("band2", "vgpu_auto", "band", "credit", "fifo_share", "none") for _ in (0, 1)])'
	json 'all(len(c["got_percent"]) == len(c["shares"]) for c in d["conditions"])'
	json 'd["conditions"][1]["kinds"] == ["short", "long", "short"]'
	[ -z "$(ls "$TMPDIR")" ]
}

@test "bench dev vgpu --progress says which part is under way and what is left" {
	vgpu --policies band2 --lanes process --shares '50,50|20,80' --seconds 1 --settle 0 --progress
	[ "$status" -eq 0 ]
	[[ "$stderr" == *"vgpu: part 1 of 4, about 4 s left: process lane, none, short"* ]]
	[[ "$stderr" == *"vgpu: part 4 of 4, about 1 s left: process lane, band2, 20,80"* ]]
}

@test "bench dev vgpu refuses values that make no sense" {
	for o in "--shares 50" "--shares 60,50" "--shares 0,50" "--shares 50,x" "--shares 50,50|" "--policies nosuch" "--lanes far" \
		"--seconds 0" "--short-us 1"; do
		run "$GBPF" bench dev vgpu --device soft $o
		echo "$o: $output"
		[ "$status" -eq 2 ]
	done
	[ -z "$(ls "$TMPDIR")" ]
}
