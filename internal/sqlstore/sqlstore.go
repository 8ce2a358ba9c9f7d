// Package sqlstore is what the stores in SQL databases decide alike: which rows a
// change, a settlement or a redrive writes, when those who wait are woken, where claims
// begin. The statements are the stores' own.
package sqlstore
