package main

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"
)

// The relay's daemon is this program, too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-serve" {
		main()
		return
	}
	m.Run()
}

// TestEveryWorkload keeps the workloads working; it asserts no speed.
func TestEveryWorkload(t *testing.T) {
	o := options{duration: 100 * time.Millisecond, dir: t.TempDir()}
	var results []Result
	for _, d := range []*Driver{&redriveSQLite, &redriveMemory, &bareLog, &natsSynced, &httpRedrive, &httpBare, &wsRedrive, &wsBare, &relayRedrive, &relayBare} {
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
