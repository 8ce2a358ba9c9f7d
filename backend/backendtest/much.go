//go:build !race

package backendtest

// muchDead is how many dead letters are many: more than the bound of any library that
// we know.
const muchDead = 12_000
