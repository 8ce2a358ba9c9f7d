package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// completionCmd prints a shell's completion, which asks the hidden command below for
// what may follow.
type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

func (*completionCmd) Help() string {
	return examples(
		"redrive completion bash > /etc/bash_completion.d/redrive", "for bash",
		`redrive completion zsh > "${fpath[1]}/_redrive"`, "for zsh",
		"redrive completion fish > ~/.config/fish/completions/redrive.fish", "for fish",
	)
}

var completionScripts = map[string]string{
	"bash": `_redrive() {
    local IFS=$'\n'
    COMPREPLY=($(redrive __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f1))
}
complete -o default -F _redrive redrive
`,
	"zsh": `#compdef redrive
_redrive() {
    local -a found
    local line
    for line in "${(@f)$(redrive __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        [[ -n $line ]] && found+=("${line/$'\t'/:}")
    done
    if (( $#found )); then _describe redrive found; else _files; fi
}
compdef _redrive redrive
`,
	"fish": `function __redrive_complete
    set -l words (commandline -opc) (commandline -ct)
    redrive __complete -- $words[2..-1] 2>/dev/null
end
complete -c redrive -a '(__redrive_complete)'
`,
}

// Run prints the script.
func (c *completionCmd) Run(t *terminal) error {
	_, err := io.WriteString(t.out, completionScripts[c.Shell])
	return err
}

// completeCmd prints what may stand in place of the last word, one a line, with a
// tab and its meaning.
type completeCmd struct {
	Words []string `arg:"" optional:"" passthrough:""`
}

// Run prints the candidates.
func (c *completeCmd) Run(t *terminal, app *kong.Kong) error {
	for _, line := range candidates(app.Model.Node, c.Words) {
		if _, err := fmt.Fprintln(t.out, line); err != nil {
			return err
		}
	}
	return nil
}

func candidates(node *kong.Node, words []string) (list []string) {
	last := ""
	if len(words) > 0 {
		last, words = words[len(words)-1], words[:len(words)-1]
	}
	flags := slices.Clone(node.Flags)
	for _, w := range words {
		i := slices.IndexFunc(node.Children, func(n *kong.Node) bool { return n.Name == w })
		if i >= 0 {
			node = node.Children[i]
			flags = append(flags, node.Flags...)
		}
	}
	if !strings.HasPrefix(last, "-") {
		for _, n := range node.Children {
			if !n.Hidden && strings.HasPrefix(n.Name, last) {
				list = append(list, n.Name+"\t"+n.Help)
			}
		}
		for _, p := range node.Positional {
			for _, v := range p.EnumSlice() {
				if strings.HasPrefix(v, last) && v != "" {
					list = append(list, v+"\t"+p.Help)
				}
			}
		}
		return list
	}
	for d := node.DefaultCmd; d != nil; d = d.DefaultCmd { // "queues" is "queues list"
		flags = append(flags, d.Flags...)
	}
	for _, f := range flags {
		if name := "--" + f.Name; !f.Hidden && strings.HasPrefix(name, last) {
			list = append(list, fmt.Sprintf("%s\t%s", name, f.Help))
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}
