//go:build !race

package gateway_test

// longBody is how long a body is that must not be held in memory.
const longBody = 1 << 30
