#!/usr/bin/env bats
# tools/check-rooms on a tree with one breach.

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || return 1
	mkdir -p src/a/part src/b tools
	printf 'a: | a_\nb: | b_\n' >tools/rooms.txt
	source_file a/one
	source_file b/two
}

# source_file NAME: a source and its header, which breach no rule.
source_file() {
	local guard=GBPF_${1^^}_H
	guard=${guard//\//_}
	printf '/* A file. */\n#include "%s.h"\n' "$1" >"src/$1.c"
	printf '/* A file. */\n#ifndef %s\n#define %s\n#endif\n' "$guard" "$guard" >"src/$1.h"
}

# finds LINE...: exactly these.
finds() {
	run "$REPO/tools/check-rooms" .
	echo "$output"
	[ "$status" -eq 1 ]
	[ "$output" = "$(printf '%s\n' "$@")" ]
}

finds_nothing() {
	run "$REPO/tools/check-rooms" .
	echo "$output"
	[ "$status" -eq 0 ]
	[ -z "$output" ]
}

@test "a folder without a line" {
	finds_nothing
	source_file a/part/three
	finds 'tools/rooms.txt:1: src/a/part has no line'
	echo '= a/part' >>tools/rooms.txt
	finds_nothing
	sed -i 's,^= a/part,a/part:,' tools/rooms.txt
	finds_nothing
}

@test "a base name that another folder has" {
	source_file b/one
	finds 'src/b/one.c:1: base name one is also used in src/a'
}

@test "a base name that another folder of the room has" {
	echo '= a/part' >>tools/rooms.txt
	source_file a/part/one
	finds 'src/a/part/one.c:1: base name one is also used in src/a'
}
