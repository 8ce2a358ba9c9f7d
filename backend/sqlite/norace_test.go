//go:build !race

package sqlite

// How much the long tests do.
const (
	randomSeeds  = 8
	fillRounds   = 60
	damagedCases = 6 // all
	manyDead     = 100_000
)
