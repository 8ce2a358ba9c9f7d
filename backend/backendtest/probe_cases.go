package backendtest

import (
	"sync"

	"github.com/redrive/redrive/driver"
)

var probeCases = []testCase{
	{name: "OpenAndProbeTouchNothing", run: openTouchesNothing, needs: []need{second}, basic: true},
}

func second(c *C) string { return missing(c.connect == nil, "a second process") }

// openTouchesNothing has processes come, look at the settings and go, while one has some
// messages in flight and others wait, beside what belongs to others.
func openTouchesNothing(c *C) {
	c.publishN(6)
	held := c.get(3, c.ask(3))
	look := c.contents
	if look == nil {
		look = func() map[string]string { return nil }
	}
	before := look()
	visitors := []driver.Source{c.connect(), c.connect()}
	var probes sync.WaitGroup
	for _, s := range append(visitors, c.src) {
		probes.Go(func() {
			if len(s.Probe(c.ctx)) == 0 {
				c.Errorf("the probe says nothing")
			}
		})
	}
	probes.Wait()
	for _, s := range visitors {
		c.noError(s.Close(), "close")
	}
	after := look()
	for name, what := range before {
		if is, there := after[name]; !there {
			c.Errorf("%s is gone after an open and a probe", name)
		} else if is != what {
			c.Errorf("%s was %q, and after an open and a probe %q", name, what, is)
		}
	}
	for name, what := range after {
		if _, there := before[name]; !there {
			c.Errorf("an open and a probe left %s: %q", name, what)
		}
	}
	c.done(held...)
	c.rest(3)
}
