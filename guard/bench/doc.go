// Package bench plays the guard's simulator with other strategies, so that its figures
// have something to stand beside, and measures what a call costs with each. It is a
// module of its own, as it imports what the project does not need:
//
//	cd guard/bench && REDRIVE_PROOF_ROUNDS=1 go test -v -run Controls && go test -bench . -run ^$
package bench
