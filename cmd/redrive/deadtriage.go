package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/wire"
)

type deadTriageCmd struct {
	remote    `embed:""`
	Signature string `arg:"" help:"The cause, as dead causes shows it."`
	Queue     string `short:"q" placeholder:"QUEUE" help:"In this queue, where several have the cause."`
	Sample    int    `default:"1000" placeholder:"N" help:"Look at so many of its dead letters (at most 1000)."`
}

func (*deadTriageCmd) Help() string {
	return examples(
		"redrive dead triage 2-4f1c09aa52de83b6", "what happened, what it looks like and by which numbers, what the messages have in common, what to run next",
		"redrive dead triage 2-4f1c09aa52de83b6 --queue hooks --json", "as JSON",
	)
}

// triage is all that is known of a cause.
type triage struct {
	wire.Verdict
	Facets wire.Facets  `json:"facets"`
	Sample wire.Message `json:"sample"` // the newest
	Next   []string     `json:"next"`   // commands
}

// Run prints what is known of a cause.
func (c *deadTriageCmd) Run(ctx context.Context, t *terminal, client *client) error {
	query := url.Values{"sample": {fmt.Sprint(c.Sample)}}
	if c.Queue != "" {
		query.Set("queue", c.Queue)
	}
	var all triage
	path := "/v1/causes/" + segment(c.Signature)
	if err := client.do(ctx, http.MethodGet, path+"/verdict", query, nil, &all.Verdict); err != nil {
		return err
	}
	query.Set("queue", all.Cause.Queue)
	if err := client.do(ctx, http.MethodGet, path+"/facets", query, nil, &all.Facets); err != nil {
		return err
	}
	queue, id, _ := strings.Cut(all.Cause.Example, "/")
	err := client.do(ctx, http.MethodGet, deadPath(redrive.Ref{Queue: queue, ID: id}), nil, nil, &all.Sample)
	if err != nil && !isNotFound(err) { // it may be redriven meanwhile
		return err
	}
	all.Next = nextOf(&all.Verdict)
	if t.json {
		return t.writeJSON(&all)
	}
	all.print(t)
	return nil
}

func (all *triage) print(t *terminal) {
	c, e := &all.Cause, &all.Evidence
	t.printf("%s\n", t.paint(strong, clean(fmt.Sprintf("cause %s of queue %s (%s)", c.Signature, c.Queue, c.Reason))))
	now := growth(c).text
	if now != "" {
		now = ", " + now
	}
	t.printf("  %s dead%s; first %s (%s), last %s\n", grouped(c.Count), now, c.First.Local().Format(time.DateTime), since(&c.First), since(&c.Last))
	t.printf("  %s\n", clean(whatHappened(c)))

	if l := c.Life; l != nil {
		t.printf("  %s by %s %s: %s %s\n", clean(l.Decided), clean(l.By), since(&l.At), clean(l.Note), clean(l.Link))
	}

	t.printf("\n%s: %s\n", t.paint(bad, clean(strings.ToUpper(all.Verdict.Verdict))), clean(all.Why))
	t.printf("  %s delivered, %s attempts failed, %s delivered of the same kinds (in %d min)\n", grouped(e.Delivered), grouped(e.Failed), grouped(e.KindDelivered), e.Minutes)
	t.printf("  %s\n", clean(shareText(e)))
	if e.NextProbe != nil {
		t.printf("  breaker %s, next probe %s\n", clean(e.Breaker), e.NextProbe.Local().Format(time.TimeOnly))
	}

	t.printf("\n%s\n", t.paint(strong, fmt.Sprintf("in common (a sample of %s of %s)", grouped(int64(all.Facets.Sample)), grouped(all.Facets.Of))))
	b := newTable("WHAT", "HAVE IT", "VALUES")
	addFacets(b, "", all.Facets.Facets, all.Facets.Sample)
	addFacets(b, "header ", all.Facets.Headers, all.Facets.Sample)
	addFacets(b, "", all.Facets.Paths[:min(len(all.Facets.Paths), triagePaths)], all.Facets.Sample)
	b.print(t)

	if all.Sample.Body != nil {
		t.printf("\n%s\n  %s\n", t.paint(strong, "newest: "+clean(c.Example)), clean(shorten(*all.Sample.Body, triageBody)))
	}
	t.printf("\n%s\n", t.paint(strong, "next"))
	for _, command := range all.Next {
		t.printf("  %s\n", command)
	}
}

const (
	triagePaths = 12  // places in bodies that are shown
	triageBody  = 300 // characters of the newest body
)

func shareText(e *wire.Evidence) string {
	kinds := fmt.Sprintf("%d %s in the sample", e.Kinds, plural(e.Kinds, "kind", "kinds"))
	if e.Shared == "" {
		return kinds + "; nothing in it differs that could tell them apart"
	}
	return fmt.Sprintf("%s; %.0f %% have %s", kinds, 100*e.Share, e.Shared)
}

func addFacets(b *table, prefix string, facets []wire.Facet, sample int) {
	for i := range facets {
		f := &facets[i]
		var values []string
		for _, v := range f.Values {
			if len(values) == triageValues {
				values = append(values, fmt.Sprintf("… %d more", f.Distinct-triageValues))
				break
			}
			values = append(values, fmt.Sprintf("%s %s", v.Value, percent(v.Count, sample)))
		}
		b.add(text(prefix+f.Name), cell{text: percent(f.Present, sample), right: true}, text(strings.Join(values, ", ")))
	}
}

// triageValues is how many values of a facet are shown.
const triageValues = 4

func percent(n, of int) string {
	return fmt.Sprintf("%.0f %%", 100*float64(n)/float64(max(of, 1)))
}

// nextOf are the commands that help with a cause, in order.
func nextOf(v *wire.Verdict) []string {
	f := wire.Filter{Queue: v.Cause.Queue, Signature: v.Cause.Signature}
	of := flagsOf(&f)
	show := "redrive dead show " + quoteWord(clean(v.Cause.Example))
	try := "redrive dead redrive" + of + " --canary 10 --wait"
	switch v.Verdict {
	case wire.VerdictDown:
		return []string{"redrive queues   # is its breaker closed again?", try + "   # when the target is back"}
	case wire.VerdictCredentials:
		return []string{show, try + "   # when the configuration has valid credentials"}
	case wire.VerdictPoison:
		return []string{show, "redrive dead repair" + of + " --set '$.FIELD=VALUE' --dry-run   # shows what would change", try}
	case wire.VerdictBug:
		return []string{show, try + "   # when the handler is mended"}
	}
	return []string{show, try}
}
