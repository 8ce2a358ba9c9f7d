// Package httpguard puts a guard between an HTTP client and its providers: requests
// and responses as values, a call over an [http.Client], a classifier that knows what
// HTTP says about limits, and a guard as an [http.RoundTripper].
package httpguard
