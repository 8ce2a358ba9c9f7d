// Package leaktest fails a package's tests that leave goroutines behind.
package leaktest

import (
	"fmt"
	"os"

	"go.uber.org/goleak"
)

// Main runs the tests of a package, for its TestMain, and returns the exit code. It is 1 if goroutines are
// left after tests that passed; those that end within half a second are waited for.
func Main(run func() int, o ...goleak.Option) (code int) {
	if code = run(); code != 0 {
		return code
	}
	if err := goleak.Find(o...); err != nil {
		fmt.Fprintf(os.Stderr, "goroutines are left after the tests: %v\n", err)
		return 1
	}
	return 0
}
