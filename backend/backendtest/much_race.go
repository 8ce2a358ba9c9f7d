//go:build race

package backendtest

// muchDead is smaller under the race detector, under which a store is ten times slower.
const muchDead = 2000
