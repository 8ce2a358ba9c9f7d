// Package middleware wraps handlers: logging, tracing, metrics, recovery from panics,
// timeouts, and deduplication of effects.
package middleware
