// Package plan redrives, drops, archives and moves dead letters by the million: with a
// dry run, a canary, a ramp, a rate, and a stop when the cause returns. It also removes
// what retention no longer keeps.
package plan
