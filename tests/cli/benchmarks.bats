#!/usr/bin/env bats
# tools/benchmarks on a tree with one file of results: it writes the page, and refuses damage with its place and reason.

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || return 1
	mkdir -p bench/results docs
	cat >bench/results/copy.json <<'END'
{
	"title": "Copies",
	"order": 10,
	"method": "The driver in the same run.",
	"notes": ["Three machines differ."],
	"figures": [
		{
			"name": "up",
			"goal": "34 GB/s",
			"value": "16.8 GB/s",
			"met": false,
			"card": "H200",
			"date": "2026-11-23",
			"commit": "9995c8cf",
			"command": "gbpf bench dev copy"
		},
		{
			"name": "down, a | b",
			"value": "50.1 GB/s",
			"met": null,
			"card": "H200",
			"date": "2026-11-23",
			"commit": "9995c8cf",
			"command": "gbpf bench dev copy"
		}
	]
}
END
}

benchmarks() {
	run "$REPO/tools/benchmarks" "$@"
	echo "$output"
}

page_has() {
	grep -qxF -- "$1" docs/BENCHMARKS.md || { cat docs/BENCHMARKS.md; return 1; }
}

# refuses SED-EXPRESSION MESSAGE: the damaged file is refused by name, and no page is written.
refuses() {
	sed -i "$1" bench/results/copy.json
	benchmarks .
	[ "$status" -eq 1 ]
	[ "${#lines[@]}" -eq 1 ]
	[[ "${lines[0]}" == "bench/results/copy.json: $2"* ]]
	[ ! -e docs/BENCHMARKS.md ]
}

@test "a valid file becomes a section with its rows, command, method and notes" {
	benchmarks .
	[ "$status" -eq 0 ]
	[ -z "$output" ]
	page_has '## Copies'
	page_has '| up | 34 GB/s | 16.8 GB/s | **missed** | H200 | 2026-11-23 | 9995c8cf |'
	page_has '| down, a \| b |  | 50.1 GB/s |  | H200 | 2026-11-23 | 9995c8cf |'
	page_has 'Command: `gbpf bench dev copy`. The driver in the same run.'
	page_has '- Three machines differ.'
}

@test "the summary counts targets and names the missed ones" {
	benchmarks .
	page_has 'Targets met: 0 of 1; **missed: 1**. Figures without a target: 1.'
	page_has '| [Copies](#copies) | 0 | 1 | up |'
}

@test "commands that differ get a column" {
	sed -i '0,/gbpf bench dev copy/s//gbpf bench dev copy --up/' bench/results/copy.json
	benchmarks .
	[ "$status" -eq 0 ]
	page_has '| up | 34 GB/s | 16.8 GB/s | **missed** | H200 | 2026-11-23 | 9995c8cf | `gbpf bench dev copy --up` |'
}

@test "sections follow in their order" {
	sed 's/"Copies"/"Launches"/; s/"order": 10/"order": 5/' bench/results/copy.json >bench/results/launch.json
	benchmarks .
	[ "$(grep '^## ' docs/BENCHMARKS.md | tr '\n' ' ')" = '## Summary ## Launches ## Copies ' ]
}

@test "an unknown key" {
	refuses 's/"goal": /"gaol": /' "figure 1: up: unknown key 'gaol'; the keys are "
}

@test "a missing key" {
	refuses '0,/"value"/{/"value"/d}' "figure 1: up: no key 'value'"
}

@test "a missing key of the file" {
	refuses '/"method"/d' "no key 'method'"
}

@test "a value of the wrong type" {
	refuses 's/"16.8 GB.s"/16.8/' "figure 1: up: wrong type of 'value': 16.8"
}

@test "an empty text" {
	refuses 's/"16.8 GB.s"/""/' "figure 1: up: 'value' must be one line of text"
}

@test "a goal without a verdict, and a verdict without a goal" {
	refuses 's/"met": false/"met": null/' "figure 1: up: 'met' must be true or false with a goal, and null without one"
	sed -i '0,/"met": null/s//"met": true/' bench/results/copy.json
	refuses 's/"met": null/"met": true/' "figure 2: down, a | b: 'met' must be true or false with a goal, and null without one"
}

@test "a commit that is no hash" {
	refuses '0,/9995c8cf/s//9995c8cg/' "figure 1: up: invalid commit '9995c8cg': expected 7 to 40 hexadecimal digits"
}

@test "a date that does not exist" {
	refuses '0,/2026-11-23/s//2026-11-31/' "figure 1: up: invalid date '2026-11-31': expected YYYY-MM-DD"
}

@test "a date in another form" {
	refuses '0,/2026-11-23/s//20261123/' "figure 1: up: invalid date '20261123': expected YYYY-MM-DD"
}

@test "a name twice on one card" {
	refuses 's/"down, a | b"/"up"/' "figure 2: up: duplicate name on card 'H200'"
}

@test "a name again on another card" {
	sed -i 's/"down, a | b"/"up"/; 0,/"H200"/s//"H100"/' bench/results/copy.json
	benchmarks .
	[ "$status" -eq 0 ]
}

@test "a key twice" {
	refuses 's/\t"value": "16.8 GB.s",/&\n"value": "17 GB\/s",/' "duplicate key 'value'"
}

@test "a file that is not JSON" {
	refuses '1d' 'Extra data: line 1 '
}

@test "two files with one title" {
	cp bench/results/copy.json bench/results/again.json
	refuses '' "title 'Copies' is that of bench/results/again.json"
}

@test "--check passes on the page as written, and fails on an edited one" {
	benchmarks .
	benchmarks --check .
	[ "$status" -eq 0 ]
	[ -z "$output" ]
	sed -i 's/16.8 GB/34.0 GB/' docs/BENCHMARKS.md
	benchmarks --check .
	[ "$status" -eq 1 ]
	[ "${lines[0]}" = 'docs/BENCHMARKS.md: differs from bench/results; edit the files there, run tools/benchmarks and commit both' ]
	grep -q '34.0 GB' docs/BENCHMARKS.md
}

@test "--check fails without a page" {
	benchmarks --check .
	[ "$status" -eq 1 ]
	[ ! -e docs/BENCHMARKS.md ]
}
