package main

import (
	"context"
	"strings"
	"testing"
	"time"
)

// TestEveryWorkload keeps the workloads working; it asserts no speed.
func TestEveryWorkload(t *testing.T) {
	o := options{duration: 100 * time.Millisecond, dir: t.TempDir()}
	var results []Result
	for _, d := range []*Driver{&redriveSQLite, &redriveMemory, &bareLog, &natsSynced, &httpRedrive, &httpBare, &wsRedrive, &wsBare} {
		for i := range workloads {
			r, err := runOne(context.Background(), o, d, &workloads[i])
			if err != nil {
				t.Fatalf("%s on %s: %v", workloads[i].Name, d.Name, err)
			}
			if !r.Skipped && r.Rate <= 0 {
				t.Errorf("%s on %s: %+v", workloads[i].Name, d.Name, r)
			}
			results = append(results, r)
		}
	}
	var out strings.Builder
	report(&out, results, "a test")
	for _, l := range workloads {
		if !strings.Contains(out.String(), "### "+l.Name) {
			t.Errorf("no table of %s in:\n%s", l.Name, out.String())
		}
	}
}
