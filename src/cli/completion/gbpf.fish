# fish completion for gbpf; printed by `gbpf completion fish`.
function __gbpf_words
	set -l words (commandline -opc)
	set -l cur (commandline -ct)
	for line in ($words[1] completion words -- $words[2..-1] "$cur" 2>/dev/null)
		switch $line
			case ':commands'
				complete -C "$cur"
			case ':folders'
				__fish_complete_directories "$cur"
			case ':files'
				__fish_complete_path "$cur"
			case ':files *'
				set -l suffix (string escape --style=regex -- (string replace ':files ' '' -- $line))
				__fish_complete_path "$cur" | string match -r -- '^[^\t]*(?:/|'$suffix')(?:\t.*)?$'
			case '*'
				echo $line
		end
	end
end
complete -c gbpf -f -a '(__gbpf_words)'
