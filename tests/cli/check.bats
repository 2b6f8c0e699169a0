# gbpf policy check: no daemon, exact reasons.
load helper

setup() {
	cli_setup
	test_policies "$cli_dir"
}

# refused NAME LINE WORD...: check returns 4, names the source line, shows it with a caret, and says each word.
refused() {
	local name=$1 line=$2
	run --separate-stderr "$GBPF" policy check "$name.bpf.o"
	echo "$output"
	[ "$status" -eq 4 ]
	[[ "$output" == "✗ $name.bpf.o: "* ]]
	[[ "$output" == *"$name.bpf.c:$line)"* ]]
	[[ "$output" == *"^"* ]]
	shift 2
	for w in "$@"; do
		[[ "$output" == *"$w"* ]]
	done
}

@test "a good policy is accepted with its figures" {
	run --separate-stderr "$GBPF" policy check good.bpf.o
	[ "$status" -eq 0 ]
	[[ "$output" =~ ^"✓ good.bpf.o: submit "[0-9]+" insns, worst path "[0-9]+" of 4096; retire "[0-9]+" insns" ]]
	[[ "$output" == *"2 maps" ]]
	[ -z "$stderr" ]
}

@test "the shipped policies are accepted" {
	run "$GBPF" policy check "$GBPF_PREFIX"/lib/gbpf/policies/{,examples/}*.bpf.o
	echo "$output"
	[ "$status" -eq 0 ]
	[ "${#lines[@]}" -ge 22 ]
}

@test "a lookup that is not compared with NULL is refused" {
	refused null_lookup 17 NULL 'if (!p)'
}

@test "an endless loop is refused" {
	refused endless 9 loop
}

@test "a path above the budget is refused, with the budget" {
	refused budget 9 4096 loop
}

@test "a write to a read-only field is refused by name" {
	refused read_only 6 class_id
}

@test "a verdict that the hook does not have is refused" {
	refused verdict 6 verdict 7 GBPF_HOLD
}

@test "an unchecked index is refused" {
	refused out_of_bounds 8 map
}

@test "--explain prints the path that leads there" {
	run "$GBPF" policy check --explain null_lookup.bpf.o
	[ "$status" -eq 4 ]
	[[ "$output" == *"bpf_map_lookup_elem"* ]]
	[[ "$output" == *"15 | u64 *n = bpf_map_lookup_elem"*"17 | *n += 1;"*"7: r1 = "* ]]
	with=${#lines[@]}
	run "$GBPF" policy check null_lookup.bpf.o
	[ "$with" -gt "${#lines[@]}" ]
}

@test "--section looks at one hook only" {
	run "$GBPF" policy check --section retire good.bpf.o
	[ "$status" -eq 0 ]
	[[ "$output" == *retire* ]]
	[[ "$output" != *submit* ]]
	run "$GBPF" policy check --section gbpf/submit verdict.bpf.o
	[ "$status" -eq 4 ]
	run "$GBPF" policy check --section tick good.bpf.o
	[ "$status" -eq 1 ]
	run --separate-stderr "$GBPF" policy check --section submmit good.bpf.o
	[ "$status" -eq 2 ]
	[[ "$stderr" == *"Did you mean 'submit'?"* ]]
	run --separate-stderr "$GBPF" policy check --section zzz good.bpf.o
	[ "$status" -eq 2 ]
	[[ "$stderr" == *"Hooks: admit "*" gdev_end" ]]
}

# unusable NAME LINE WORD...: check returns 1, names the source line, shows it with a caret, and says each word.
unusable() {
	local name=$1 line=$2
	run --separate-stderr "$GBPF" policy check "$name.bpf.o"
	echo "$output"
	[ "$status" -eq 1 ]
	[[ "$output" == *"$name.bpf.c:$line)"* ]]
	[[ "$output" == *"^"* ]]
	shift 2
	for w in "$@"; do
		[[ "$output" == *"$w"* ]]
	done
}

@test "programs inside kernels are named by their sections, with their budgets" {
	run --separate-stderr "$GBPF" policy check inside.bpf.o
	[ "$status" -eq 0 ]
	[[ "$output" =~ ^"✓ inside.bpf.o: gdev/block_enter "[0-9]+" insns, worst path "[0-9]+" of 1024; gdev.lane/enter/gemm* "[0-9]+" insns, worst path "[0-9]+" of 256; " ]]
	run --separate-stderr "$GBPF" policy check --json inside.bpf.o
	[ "$(jq -c '.files[0].programs[] | [.hook, .lane, .kernel, .site, .budget]' <<<"$output")" = '["gdev_block_enter",false,"*","",1024]
["gdev_enter",true,"gemm*","",256]' ]
	run "$GBPF" policy check --section gdev_exit inside.bpf.o
	[ "$status" -eq 1 ]
	[[ "$output" == *'SEC("gdev/exit")'* ]]
}

@test "a program of lanes that updates a map for some of them is refused with the source of the variation" {
	refused apart 11 "uniform" "the condition at line 10 varies because of ctx->lane at line 8" "gdev/ instead of gdev.lane/"
}

@test "an unknown helper is named with its source line and the nearest helper" {
	unusable unknown_helper 11 "gbpf_tenant_clas is extern" "Did you mean gbpf_tenant_class?" "gbpf_tenant_clas(1) == 0"
	unusable unknown_function 10 "is_my_business is extern" "efine it in one of the policy's objects"
}

@test "a site that no hook has is named with the words that there are" {
	run --separate-stderr "$GBPF" policy check bad_site.bpf.o
	echo "$output"
	[ "$status" -eq 1 ]
	[[ "$output" == *"invalid site 'load/global'"* ]]
	[[ "$output" == *"words with dots between them, of generic, global, shared"* ]]
	sed 's,/\*/load/global,/*/load.global,' "$BATS_TEST_DIRNAME/../data/cli/bad_site.bpf.c" >good_site.bpf.c
	"$GBPF" -q policy build good_site.bpf.c
	"$GBPF" policy check good_site.bpf.o
}

@test "what is not an object is unusable, code 1" {
	head -c 300 good.bpf.o >cut.bpf.o
	echo hello >text.bpf.o
	: >empty.bpf.o
	for f in cut.bpf.o text.bpf.o empty.bpf.o no_hook.bpf.o missing.bpf.o . /bin/true; do
		run "$GBPF" policy check "$f"
		echo "$f: $status $output"
		[ "$status" -eq 1 ]
		[[ "$output" == "✗ "* ]]
	done
}

@test "an object cut at any place never crashes the check" {
	size=$(stat -c %s good.bpf.o)
	for ((n = 1; n < size; n += size / 25)); do
		head -c "$n" good.bpf.o >cut.bpf.o
		run "$GBPF" policy check cut.bpf.o
		[ "$status" -eq 1 ] || [ "$status" -eq 4 ] || [ "$status" -eq 0 ]
	done
}

@test "several files: each has its line, the worst decides" {
	run "$GBPF" policy check good.bpf.o verdict.bpf.o
	[ "$status" -eq 4 ]
	[[ "$output" == *"✓ good"*"✗ verdict"* ]]
	run "$GBPF" policy check verdict.bpf.o missing.bpf.o good.bpf.o
	[ "$status" -eq 1 ]
}

@test "JSON of accepted and refused policies" {
	run --separate-stderr "$GBPF" --json policy check good.bpf.o verdict.bpf.o
	[ "$status" -eq 4 ]
	[ -z "$stderr" ]
	json 'd["schema"] == "gbpf.policy.check/1" and [f["ok"] for f in d["files"]] == [True, False]'
	json '{p["hook"] for p in d["files"][0]["programs"]} == {"submit", "retire"}'
	json 'all(0 < p["cost"] <= p["budget"] for p in d["files"][0]["programs"])'
	json 'd["files"][1]["error"]["hint"] and "verdict.bpf.c:6" in d["files"][1]["error"]["place"]'
}

# foreign SECTION TEXT: a program in that section is refused with the text.
foreign() {
	printf '#include <gbpf/gbpf.bpf.h>\nSEC("%s") int f(void *ctx) { return 0; }\nGBPF_LICENSE("MIT");\n' "$1" >foreign.bpf.c
	run --separate-stderr "$GBPF" policy build foreign.bpf.c
	echo "$output"
	[ "$status" -eq 1 ]
	[[ "$output" == *"SEC(\"${1:0:120}"* && "$output" == *"$2"* ]]
}

@test "programs of other loaders are refused with the section to write" {
	foreign kprobe/vec_add 'Write SEC("gdev/enter/vec_add")'
	foreign kretprobe/vec_add 'Write SEC("gdev/exit/vec_add")'
	foreign kprobe/__memcapture 'Write SEC("gdev/access")'
	foreign kprobe/__directly_run 'none is launched by itself'
	foreign uprobe/./a:cudaLaunchKernel 'SEC("gbpf/submit") runs at each launch'
	foreign uretprobe 'SEC("gbpf/retire") runs when a launch has ended'
	foreign kprobe/ 'Write SEC("gbpf/<hook>") or SEC("gdev/<hook>")'
	foreign xdp 'Write SEC("gbpf/<hook>") or SEC("gdev/<hook>")'
	local long=$(printf 'k%.0s' {1..1500})
	foreign "kprobe/$long" "SEC(\"gdev/enter/${long:0:254}*\")"
	printf '#include <gbpf/gbpf.bpf.h>\nSEC("kprobe/a\033[2Jb") int f(void *ctx) { return 0; }\nGBPF_LICENSE("MIT");\n' >foreign.bpf.c
	run "$GBPF" policy build foreign.bpf.c
	echo "$output"
	[[ "$output" == *'SEC("gdev/enter/a?[2Jb")'* && "$output" != *$'\e'* ]]
}

@test "a program of another loader that is switched off with ? is left out" {
	cat >off.bpf.c <<-'END'
	#include <gbpf/gbpf.bpf.h>
	SEC("?uprobe/x") int f(void *ctx) { return 0; }
	SEC("gbpf/submit") int GBPF_PROG(g, submit) { return VERDICT; }
	GBPF_LICENSE("MIT");
	END
	run "$GBPF" policy build off.bpf.c
	[ "$status" -eq 1 ]
	"$GBPF" -q policy build -D UNUSED -D VERDICT=GBPF_GO off.bpf.c
	run "$GBPF" policy build -D
	[ "$status" -eq 2 ]
	run "$GBPF" policy build $(printf -- '-DA%d ' {1..33}) off.bpf.c
	[ "$status" -eq 2 ]
	[[ "$output" == *"more than 32 options '--define'"* ]]
}

@test "words to which every warp adds are named, with the place and what to use instead" {
	run --separate-stderr "$GBPF" policy check hot.bpf.o
	echo "$stderr"
	[ "$status" -eq 0 ]
	[ "$(grep -c '^warning: ' <<<"$stderr")" -eq 4 ]
	grep -qE '^warning: .*hot\.bpf\.c:29: program hot_enter: every warp adds to the same word of map .hot_looked_up., where the warps of a kernel wait for each other; use a map of type SM_ARRAY or WARP_ARRAY$' <<<"$stderr"
	grep -qE "hot\.bpf\.c:37: program hot_enter: .* 'hot_helper'" <<<"$stderr"
	grep -qE "program hot_enter: .* 'hot_key'" <<<"$stderr"
	grep -qE "hot\.bpf\.c:45: program hot_access: .* 'hot_helper'.* SM_ARRAY, or WARP_ARRAY with GBPF_F_DEFER$" <<<"$stderr"
	! grep -q cold <<<"$stderr"
	run "$GBPF" --json policy check hot.bpf.o
	json '[(w["program"], w["map"]) for w in d["files"][0]["hot_words"]] == [
		("hot_enter", "hot_looked_up"), ("hot_enter", "hot_helper"), ("hot_enter", "hot_key"), ("hot_access", "hot_helper")]'
	run "$GBPF" --json policy check good.bpf.o
	json 'd["files"][0]["hot_words"] == []'
}

@test "no tool that comes with gBPF has a word to which every warp adds" {
	run --separate-stderr "$GBPF" policy check "$GBPF_PREFIX"/lib/gbpf/tracers/*.bpf.o
	echo "$stderr"
	[ "$status" -eq 0 ]
	[ -z "$stderr" ]
}
