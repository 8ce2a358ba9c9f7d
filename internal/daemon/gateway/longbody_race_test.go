//go:build race

package gateway_test

// longBody is shorter under the race detector, which makes reading it ten times slower.
const longBody = 64 << 20
