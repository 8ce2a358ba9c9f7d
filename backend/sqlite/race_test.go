//go:build race

package sqlite

// The race detector makes SQLite, which is Go here, ten times slower. It looks at how
// goroutines share memory, for which less of the same is as good.
const (
	randomSeeds  = 2
	fillRounds   = 10
	damagedCases = 2
	manyDead     = 20_000
)
