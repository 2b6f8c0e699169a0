#!/usr/bin/env bats
# The CUDA filters of Debian's ffmpeg on the soft GPU: their frames against those of the filters for the processor. The tolerances
# stand in ffmpeg_filters.py.

load helpers

check() {
	command -v ffmpeg >/dev/null
	start_soft
	start_daemon
	run tests/system/ffmpeg_filters.py "$1" gbpf run --device soft --
	echo "$output"
	[ "$status" -eq 0 ]
}

@test "ffmpeg: scale_cuda equals scale" { check scale; }

@test "ffmpeg: yadif_cuda equals yadif" { check yadif; }

@test "ffmpeg: overlay_cuda equals overlay" { check overlay; }

@test "ffmpeg: thumbnail_cuda chooses the frame that thumbnail chooses" { check thumbnail; }

@test "ffmpeg: chromakey_cuda equals chromakey where the colour is flat" { check chromakey; }
