package ui

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redrive/redrive/guard"
	"github.com/redrive/redrive/internal/text"
	"github.com/redrive/redrive/internal/wire"
)

// tablePage is a page that is one plain table.
type tablePage struct {
	Headline, Lead string
	Notes          []note
	Columns        []column
	Rows           [][]cell
	Empty, Hint    string // what stands instead of a table without rows
	Next           string
	Command        string
}

// note is a line above the table.
type note struct{ Tone, Text string }

type column struct {
	Name  string
	Class string // n: a number
}

// cell is a text, a chip or a time; small is what stands below it.
type cell struct {
	Text, Path string
	Chip       chip
	When       *moment
	Class      string
	Small      string
	Label      string // on a phone, where the header does not show
}

func headed(names ...string) (all []column) {
	for _, name := range names {
		c := column{Name: name}
		if rest, ok := strings.CutPrefix(name, "#"); ok {
			c = column{rest, "n"}
		}
		all = append(all, c)
	}
	return all
}

// add appends a row; its cells get the labels and classes of their columns.
func (p *tablePage) add(cells ...cell) {
	for i := range cells {
		c := &cells[i]
		if c.Class == "" {
			c.Class = p.Columns[i].Class
		}
		if i > 0 && (c.Text != "" || c.When != nil && c.When.ISO != "") {
			c.Label = strings.ToLower(p.Columns[i].Name)
		}
	}
	p.Rows = append(p.Rows, cells)
}

func count[T int | int64](n T) cell { return cell{Text: number(n)} }

// counter is what a session counts with one, as far as anybody counts.
func counter(n uint64) int { return int(min(n, math.MaxInt32)) }

func whenCell(t, now time.Time) cell {
	m := momentAt(t, now)
	return cell{When: &m, Class: "nowrap"}
}

// guardTones are the states of an endpoint.
var guardTones = map[string]chip{
	guard.Healthy.String(): {"healthy", "✓", toneOK}, guard.Limited.String(): {"limited", "‖", toneWarn}, guard.Down.String(): {"down", "▼", toneBad},
	guard.Recovering.String(): {"recovering", "▲", toneInfo}, guard.Isolated.String(): {"isolated", "✕", toneWarn},
}

func showGuards(v *visit) error {
	v.title = "Guards"
	list, err := get[wire.List[wire.Guard]](v, at("guards"), nil)
	if err != nil {
		return err
	}
	v.show(http.StatusOK, "table", viewGuards(list.Items, v.now))
	return nil
}

func viewGuards(guards []wire.Guard, now time.Time) tablePage {
	p := tablePage{
		Headline: "Guards", Lead: "Endpoints that are called through a guard, as the daemon that answers knows them since its start.", Command: "redrive guards",
		Columns: headed("Endpoint", "State", "Since", "#Let through", "#Calls a second", "#In flight", "#Calls", "#Not asked", "Put off"),
		Empty:   "No guards.", Hint: "Add guard: to a queue in the configuration.",
	}
	for i := range guards {
		g := &guards[i]
		for j := range g.Providers {
			s := &g.Providers[j]
			state, ok := guardTones[s.State]
			if !ok {
				state = chip{Word: s.State, Shape: "–"}
			}
			since, why := whenCell(s.Since, now), s.Reason
			if !s.Until.IsZero() {
				why = strings.TrimPrefix(why+", until "+momentAt(s.Until, now).Short, ", ")
			}
			calls := int64(0)
			for _, n := range s.Calls {
				calls += n
			}
			first := cell{Text: s.Provider, Class: "what", Small: "queue " + g.Queue, Path: queuePath(g.Queue)}
			off := cell{}
			if j == 0 { // of all its endpoints together
				off = cell{Text: counts(g.Deferred), Small: text.Plural(int(g.Failovers), "failover")}
			}
			p.add(first, cell{Chip: state, Small: why}, since, cell{Text: strconv.FormatFloat(100*s.Share, 'f', 0, 64) + " %"},
				cell{Text: strconv.FormatFloat(s.Demand, 'f', 1, 64)}, count(s.InUse), cell{Text: number(calls), Small: counts(s.Calls, guard.ClassSuccess.String())}, count(s.Refused), off)
		}
	}
	return p
}

// counts writes what was counted by name, without zeros and without some names.
func counts(all map[string]int64, without ...string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if all[name] > 0 && !slices.Contains(without, name) {
			parts = append(parts, name+" "+number(all[name]))
		}
	}
	return strings.Join(parts, ", ")
}

func showSessions(v *visit) error {
	v.title = "Sessions"
	ask := url.Values{"limit": {strconv.Itoa(deadPageSize)}}
	if after := v.query.Get("after"); after != "" {
		ask.Set("after", after)
	}
	list, err := get[wire.List[wire.Session]](v, at("sessions"), ask)
	if err != nil {
		return err
	}
	p := viewSessions(list.Items, v.now)
	if list.Next != "" {
		p.Next = withQuery("/sessions", url.Values{"after": {list.Next}})
	}
	v.show(http.StatusOK, "table", p)
	return nil
}

func viewSessions(sessions []wire.Session, now time.Time) tablePage {
	p := tablePage{
		Headline: "Sessions", Lead: "Clients on WebSocket. A session outlives its connections, and waits for its client to come back.", Command: "redrive sessions",
		Columns: headed("Session", "State", "From", "Connected", "Seen", "#Undecided", "#Without result", "#Pushed", "#Lost"),
		Empty:   "No sessions.", Hint: "Nobody has connected to /v1/ws, or all have ended.",
	}
	for i := range sessions {
		s := &sessions[i]
		state := chip{"away", "–", ""}
		if s.Attached {
			state = chip{"connected here", "▶", toneOK}
		}
		owner := ""
		if s.Token != "" {
			owner = "token " + s.Token
		}
		p.add(cell{Text: s.ID, Class: "id", Small: owner}, cell{Chip: state, Small: text.Plural(counter(s.Epoch), "connection")}, cell{Text: s.Remote},
			whenCell(s.ConnectedAt, now), whenCell(s.SeenAt, now), count(s.Unacked), count(s.Outstanding), count(s.Pushed), count(counter(s.Lost)))
	}
	return p
}

func showConfig(v *visit) error {
	v.title = "Configuration"
	raw, err := get[json.RawMessage](v, at("config"), nil)
	if err != nil {
		return err
	}
	p, err := viewConfig(raw, v.now)
	if err != nil {
		return fmt.Errorf("the configuration: %w", err)
	}
	v.show(http.StatusOK, "table", p)
	return nil
}

func viewConfig(raw json.RawMessage, now time.Time) (tablePage, error) {
	p := tablePage{
		Headline: "Configuration", Lead: "What is in force. Secrets show as ***; what is not here has its default.",
		Columns: headed("Setting", "Value"),
	}
	var status wire.ConfigStatus
	if err := json.Unmarshal(raw, &status); err != nil {
		return p, err
	}
	if status.Refused != "" {
		p.Notes = append(p.Notes, note{toneBad, "The newest change of the file is not in force, since " + momentOf(status.RefusedSince, now).Ago + ": " + status.Refused})
	}
	if status.Differs {
		p.Notes = append(p.Notes, note{toneWarn, "Not all daemons on this store have the same configuration."})
	}
	for _, one := range status.Instances {
		line := fmt.Sprintf("%s, process %d, version %s, configuration %s, started %s", one.Host, one.PID, one.Version, one.Hash, momentAt(one.StartedAt, now).Ago)
		if one.RefusedSince != nil {
			line += ", refuses its file since " + momentAt(*one.RefusedSince, now).Short
		}
		p.Notes = append(p.Notes, note{"", line})
	}
	settings, err := flatten(raw, "hash", "refused", "refused_since", "instances", "differs")
	if err != nil {
		return p, err
	}
	for _, s := range settings {
		p.add(cell{Text: s.Name, Class: "id mono"}, cell{Text: s.Value, Class: "id"})
	}
	return p, nil
}

// flatten returns the values of a JSON object by their paths, in its order, without some of its own keys.
func flatten(raw json.RawMessage, without ...string) (all []pair, err error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var read func(path string) error
	read = func(path string) error {
		t, err := dec.Token()
		if err != nil {
			return err
		}
		open, ok := t.(json.Delim)
		if !ok {
			if t == nil {
				t = "–"
			}
			all = append(all, pair{path, fmt.Sprint(t)})
			return nil
		}
		if !dec.More() && path != "" { // nothing is in it
			all = append(all, pair{path, map[json.Delim]string{'{': "{}", '[': "[]"}[open]})
		}
		for i := 0; dec.More(); i++ {
			next := fmt.Sprintf("%s[%d]", path, i)
			if open == '{' {
				key, err := dec.Token()
				if err != nil {
					return err
				}
				name, _ := key.(string)
				if next = name; path != "" {
					next = path + "." + name
				}
				if path == "" && slices.Contains(without, name) {
					if err := dec.Decode(new(json.RawMessage)); err != nil {
						return err
					}
					continue
				}
			}
			if err := read(next); err != nil {
				return err
			}
		}
		_, err = dec.Token() // the end
		return err
	}
	return all, read("")
}
