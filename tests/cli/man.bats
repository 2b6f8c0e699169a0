# The manual pages against the table of verbs, and their examples.
load helper

@test "every verb has its section, and every option its line" {
	"$GBPF" help --json >table.json
	python3 - table.json "$GBPF_PREFIX/share/man" "$GBPF" <<'END'
import json, re, subprocess, sys
table, root = json.load(open(sys.argv[1])), sys.argv[2]
wrong = []
for v in table['verbs']:
	if v['name'].startswith('bench '): # their options are not those of gbpf
		usage = subprocess.run([sys.argv[3], *v['name'].split(), '--help'], capture_output=True, text=True, check=True).stdout
		v['options'] = [{'name': o} for o in sorted(set(re.findall(r'--([a-z][a-z-]*)', usage)) - {'help', 'json'})]
assert sum(len(v['options']) for v in table['verbs'] if v['name'].startswith('bench ')) > 40
def page(name):
	text = open(f'{root}/man{name.rsplit(".", 1)[1]}/{name}', encoding='utf-8').read()
	return text.replace('\\-', '-').replace('\\fB', '').replace('\\fR', '').replace('\\&', '').replace('\\_', '_')
def sections(text):
	return re.split(r'^\.S[SH] ', text, flags=re.M)[1:]
for v in table['verbs']:
	if v['group']:
		continue
	text = page(v['page'])
	mine = [s for s in sections(text) if s.splitlines()[0].strip() == v['name']]
	if len(mine) != 1:
		wrong.append(f'{v["page"]}: {len(mine)} sections named "{v["name"]}"')
	for o in v['options']:
		if f'--{o["name"]}' not in (mine[0] if mine and v['name'].startswith('bench ') else text):
			wrong.append(f'{v["page"]}: no --{o["name"]} of {v["name"]}')
general = page('gbpf.1')
for o in table['options']:
	if f'--{o["name"]}' not in general:
		wrong.append(f'gbpf.1: no --{o["name"]}')
names = {v['name'] for v in table['verbs']}
for p in {v['page'] for v in table['verbs']}:
	known = {o['name'] for v in table['verbs'] if v['page'] == p for o in v['options']} | {o['name'] for o in table['options']}
	for word in re.findall(r'^--([a-z-]+)\b|(?<=, )--([a-z-]+)', page(p), flags=re.M):
		w = word[0] or word[1]
		if w not in known and p != 'gbpf.1':
			wrong.append(f'{p}: --{w} is no option')
sys.exit('\n'.join(wrong) or 0)
END
}

@test "each verb has a page of its name" {
	"$GBPF" help --json >table.json
	python3 - table.json "$GBPF_PREFIX/share/man/man1" <<'END'
import json, sys
table, root = json.load(open(sys.argv[1])), sys.argv[2]
wrong = []
for v in table['verbs']:
	if ' ' in v['name']:
		continue
	page = f'gbpf-{v["name"]}.1'
	try:
		text = open(f'{root}/{page}', encoding='utf-8').read()
	except OSError:
		wrong.append(f'no {page}')
		continue
	if page != v['page'] and not v['group'] and text != f'.so man1/{v["page"]}\n':
		wrong.append(f'{page}: {text[:60]}')
sys.exit('\n'.join(wrong) or 0)
END
}

@test "gbpfd(8) has every option of gbpfd" {
	page=$(sed 's/\\fB//g; s/\\fR//g; s/\\-/-/g' "$GBPF_PREFIX/share/man/man8/gbpfd.8")
	options=$("$GBPF_PREFIX/bin/gbpfd" --help | grep -oE -- '^  --[a-z-]+' | tr -d ' ')
	[ -n "$options" ]
	for o in $options; do
		[[ "$page" == *"$o"* ]]
	done
}

@test "gbpf-softgpu(8) has every option of gbpf-softgpu" {
	page=$(sed 's/\\fB//g; s/\\fR//g; s/\\-/-/g' "$GBPF_PREFIX/share/man/man8/gbpf-softgpu.8")
	options=$("$GBPF_PREFIX/bin/gbpf-softgpu" --help | grep -oE -- '^  --[a-z-]+' | tr -d ' ')
	[ "$(wc -w <<<"$options")" -ge 15 ]
	for o in $options; do
		[[ "$page" == *"$o"* ]]
	done
}

@test "every page is there and has its examples" {
	for p in man1/gbpf.1 man1/gbpf-run.1 man1/gbpf-ps.1 man1/gbpf-policy.1 man1/gbpf-map.1 man1/gbpf-mem.1 man1/gbpf-probe.1 man1/gbpf-trace.1 man1/gbpf-bench.1 man8/gbpfd.8 man8/gbpf-softgpu.8; do
		grep -q '^\.SH EXAMPLES' "$GBPF_PREFIX/share/man/$p"
	done
	[ -f "$GBPF_PREFIX/share/man/man7/gbpf-policy.7" ]
}

@test "gbpf-policy(7) describes every hook and helper" {
	page=$(sed 's/\\fB//g; s/\\fR//g; s/\\-/-/g; s/\\&//g; s/\\_/_/g' "$GBPF_PREFIX/share/man/man7/gbpf-policy.7")
	for name in admit queue_create queue_destroy submit dispatch retire tick bpf_map_lookup_elem gbpf_note lc_open \
		GBPF_HOLD; do
		[[ "$page" == *"$name"* ]]
	done
}

@test "gbpf-policy(7) explains every rule of the verifier" {
	page=$(sed 's/\\fB//g; s/\\fR//g' "$GBPF_PREFIX/share/man/man7/gbpf-policy.7")
	rules=$(sed -n 's/^| \(`[a-z`, ]*\) |.*/\1/p' "$REPO/docs/VERIFIER.md" | grep -o '[a-z]*' | sort -u)
	[ "$(wc -w <<<"$rules")" -ge 20 ]
	for r in $rules; do
		grep -qE "^([a-z]+, )*$r(, [a-z]+)*$" <<<"$page" || {
			echo "no rule $r" >&2
			return 1
		}
	done
}

@test "the README's policy is accepted, and its verbs are verbs" {
	python3 - "$REPO/README.md" >wait.bpf.c <<'END'
import re, sys
blocks = re.findall(r'((?:^(?:    .*)?\n)+)', open(sys.argv[1]).read(), re.M)
text = next(b for b in blocks if 'GBPF_PROG' in b)
print('\n'.join(line[4:] for line in text.split('\n') if not re.match(r'    (clang|gbpf) ?', line)))
END
	clang-14 -target bpf -mcpu=v3 -g -O2 -I "$GBPF_PREFIX/include" -c wait.bpf.c -o wait.bpf.o
	run "$GBPF" policy check wait.bpf.o
	echo "$output"
	[ "$status" -eq 0 ]
	"$GBPF" help --json >table.json
	python3 - "$REPO/README.md" table.json <<'END'
import json, re, sys
verbs = {v['name'] for v in json.load(open(sys.argv[2]))['verbs']}
used = set()
for line in re.findall(r'^    (gbpf .*)$', open(sys.argv[1]).read(), re.M):
	for verb, sub in re.findall(r'\bgbpf ([a-z]+)(?: ([a-z|]+)\b)?', line.split('#')[0]):
		group = any(v.startswith(verb + ' ') for v in verbs)
		used |= {f'{verb} {s}' for s in sub.split('|')} if group else {verb}
assert len(used) > 10 and used <= verbs, used - verbs
END
}

@test "the README's options are those of their verbs, and its figures of one GPU those of its measurements" {
	"$GBPF" help --json >table.json
	python3 - "$REPO" table.json <<'END'
import json, re, sys
table, readme = json.load(open(sys.argv[2])), open(sys.argv[1] + '/README.md').read()
options = {v['name']: {o['name'] for o in v['options']} for v in table['verbs']}
globals_ = {o['name'] for o in table['options']}
seen = 0
for line in re.findall(r'\bgbpf (.*)', '\n'.join(l.replace('&& ', '\n') for l in re.findall(r'^    gbpf .*$', readme, re.M))):
	line = re.split(r' -- |#|   ', line)[0]
	words = line.split()
	verb = ' '.join(words[:2]) if ' '.join(words[:2]) in options else words[0]
	for o in re.findall(r' --([a-z-]+)', line):
		assert o in options.get(verb, set()) | globals_, (line, o)
		seen += 1
assert seen > 5
# The table of requests next to batch jobs: default, MPS, auto in ms, and the job's rate, as bench/results has them in us.
rows = re.findall(r'^\| (.+?) \| ([+-][0-9.]+) ms \| ([+-][0-9.]+) ms \| ([+-][0-9.]+) ms \| (\d+) % \|$', readme, re.M)
page = open(sys.argv[1] + '/docs/BENCHMARKS.md').read()
cells = re.findall(r'^\| P99 next to .+? \| .+? \| ([+-][0-9 ]+), .+?\(default ([+-][0-9 ]+), .+?; MPS ([+-][0-9 ]+), ', page, re.M)
number = lambda text: int(text.replace(' ', '')) / 1000
measured = sorted(tuple(number(c) for c in (default, mps, auto)) for auto, default, mps in cells)
assert len(rows) == len(measured) == 9
for (name, *shown, rate), real in zip(sorted(rows, key=lambda r: float(r[1])), measured):
	digits = [len(t.split('.')[1]) for t in shown]
	assert all(abs(float(t) - v) <= 0.51 * 10 ** -d for t, d, v in zip(shown, digits, real)), (name, shown, real)
END
}

# Lines that begin with "$ " in literal blocks of a page, each run in one place, must succeed. Benches may miss a goal: how fast they
# are depends on what else the machine does.
run_examples() {
	printf '#!/bin/sh\nexit 0\n' | tee serve >train
	chmod +x serve train
	PATH=$GBPF_PREFIX/bin:$PATH
	grep -E '^\$ ' "$REPO/man/$1" >examples
	[ -s examples ]
	while read -r _ line; do
		run bash -c "$line" </dev/null
		echo "\$ $line: $status"
		echo "$output"
		[ "$status" -eq 0 ] || [[ $line == "gbpf bench "* && $status -eq 1 && $output == *MISSED* ]]
	done <examples
}

@test "examples of gbpf(1) run" {
	run_examples gbpf.1.scd
}

@test "examples of gbpf-run(1) run" {
	run_examples gbpf-run.1.scd
}

@test "examples of gbpf-ps(1) run" {
	"$GBPF" run --device soft true
	run_examples gbpf-ps.1.scd
}

# Every literal block of a page, as it says (tests/cli/examples.py).
all_examples() {
	mkdir examples && cd examples
	run python3 "$BATS_TEST_DIRNAME/examples.py" "$REPO/man/$1"
	echo "$output"
	[ "$status" -eq 0 ]
}

@test "examples of gbpf-policy(1) do what they say" {
	"$GBPF" run --device soft true
	"$GBPF" policy unload || true
	all_examples gbpf-policy.1.scd
}

@test "examples of gbpf-policy(7) do what they say" {
	"$GBPF" run --device soft --name train -- "$GBPF_PREFIX/lib/gbpf/samples/batch" >batch.out 2>&1 &
	eventually grep -q ready batch.out
	all_examples gbpf-policy.7.scd.in
}

@test "examples of gbpf-map(1) do what they say" {
	"$GBPF" run --device soft "$GBPF_PREFIX/lib/gbpf/samples/batch" >batch.out 2>&1 &
	eventually grep -q ready batch.out
	all_examples gbpf-map.1.scd
}

# A server of tests/system/vgpu.c: two allocations of 52 MiB in all exceed the limit with the others.
@test "examples of gbpf-mem(1) do what they say" {
	"$GBPF" run --device soft true
	"$GBPF" -q vgpu create train --mem 64M --swap 256M
	mkfifo commands
	"$GBPF" run --device soft --vgpu train --name train -- "$BUILD/tests/system/vgpu" serve <commands >answers 2>&1 &
	printf '%s\n' 'alloc 52' 'alloc 52' 'take-create' 'take-array' >commands &
	exec {held}>commands # the program reads on
	answered() { [ "$(grep -c ok answers)" -eq 4 ]; }
	eventually answered
	all_examples gbpf-mem.1.scd
	exec {held}>&-
}

@test "examples of gbpf-probe(1) do what they say" {
	"$GBPF" run --device soft -- "$GBPF_PREFIX/lib/gbpf/samples/batch" >batch.out 2>&1 &
	eventually grep -q ready batch.out
	all_examples gbpf-probe.1.scd
}

@test "examples of gbpf-trace(1) do what they say" {
	"$GBPF" run --device soft --name train -- "$GBPF_PREFIX/lib/gbpf/samples/batch" >batch.out 2>&1 &
	eventually grep -q ready batch.out
	all_examples gbpf-trace.1.scd
}

@test "examples of gbpf-bench(1) run" {
	run_examples gbpf-bench.1.scd
}
