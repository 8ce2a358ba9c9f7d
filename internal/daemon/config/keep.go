package config

import (
	"fmt"
	"path/filepath"

	"github.com/redrive/redrive/internal/jsonmask"
	"github.com/redrive/redrive/plan"
)

// DefaultArchive is where dead letters go that are no longer kept, where the store has
// no folder to put them in.
const DefaultArchive = "./redrive-archive"

// Retention says how long dead letters are kept. What goes is archived before, and
// counted. Without a limit they are kept for ever.
type Retention struct {
	// Age is how long ago they may have died. Defaults to no limit.
	Age Duration `yaml:"age" json:"age,omitempty"`
	// Keep is how many of a queue are kept, the newest. Defaults to no limit.
	Keep int64 `yaml:"keep" json:"keep,omitempty"`
	// Archive says whether they are archived before they go; false drops them.
	// Defaults to true.
	Archive *bool `yaml:"archive" json:"archive,omitempty"`
}

// MaskPath names what is not shown of a body: a path such as $.card.number or
// $..password; or of the headers: header:NAME.
type MaskPath string

const maskHeader = "header:"

// RetentionOf returns the rule of a queue: its own, or that of all.
func (c *Config) RetentionOf(queue string) plan.RetentionRule {
	r := c.Retention
	if q := c.Queues[queue]; q != nil && q.Retention != nil {
		r = *q.Retention
	}
	return plan.RetentionRule{Age: r.Age.Std(), Keep: r.Keep, Discard: r.Archive != nil && !*r.Archive}
}

// ArchiveDir returns the folder of the archive.
func (c *Config) ArchiveDir() string {
	if c.Archive != "" {
		return c.Archive
	}
	if dir := c.StoreDir(); dir != "" {
		return ArchiveBeside(dir)
	}
	return DefaultArchive
}

// ArchiveBeside is the folder of the archive of a store that has a folder.
func ArchiveBeside(data string) string { return filepath.Join(data, "archive") }

// MasksOf returns the masks of a queue's messages, those of all queues and its own, and
// the paths and headers that they are.
func (c *Config) MasksOf(queue string) (named []string, paths []jsonmask.Path, headers []string) {
	all := c.Mask
	if q := c.Queues[queue]; q != nil {
		all = append(all[:len(all):len(all)], q.Mask...)
	}
	for _, m := range all {
		named = append(named, string(m))
		if name, ok := m.header(); ok {
			headers = append(headers, name)
		} else if p, err := jsonmask.Parse(string(m)); err == nil { // the check refuses others
			paths = append(paths, p)
		}
	}
	return named, paths, headers
}

func (m MaskPath) header() (string, bool) {
	if len(m) > len(maskHeader) && m[:len(maskHeader)] == maskHeader {
		return string(m[len(maskHeader):]), true
	}
	return "", false
}

func (r *Retention) check(k *checker, path string) {
	if r == nil {
		return
	}
	if r.Keep < 0 || r.Keep == 0 && k.given(path+".keep") {
		k.bad(path+".keep", fmt.Sprintf("%d dead letters cannot be kept", r.Keep), "write a number from 1, or leave it out to keep all")
	}
	if r.Age < 0 || r.Age == 0 && k.given(path+".age") {
		k.bad(path+".age", "dead letters must be kept for some time", "write a duration such as 30d, or leave it out to keep them for ever")
	}
}

func checkMasks(k *checker, path string, masks []MaskPath) {
	for i, m := range masks {
		if _, ok := m.header(); ok {
			continue
		}
		if _, err := jsonmask.Parse(string(m)); err != nil {
			k.bad(fmt.Sprintf("%s[%d]", path, i), err.Error(), "write a path such as $.card.number or $..password, or header:NAME")
		}
	}
}
