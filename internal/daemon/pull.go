package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/daemon/gateway"
	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/internal/wire"
)

// Bounds of what pull workers send, in bytes.
const (
	maxClaimBody  = 64 << 10
	maxExtendBody = 1 << 20
	maxSettleBody = 32 << 20
)

// pullable refuses queues that nobody can pull from.
func (a *app) pullable(r *http.Request) (string, error) {
	queue := r.PathValue("queue")
	if a.pull == nil {
		return "", notHere("pull worker")
	}
	if strings.HasPrefix(queue, "_") {
		return "", problem.New(http.StatusForbidden, "system-queue", "The queue belongs to the system", queue, "")
	}
	_, err := a.existing(r, queue)
	return queue, err
}

// claim delivers messages, and waits for them if nothing is due.
func (a *app) claim(w http.ResponseWriter, r *http.Request, _ *caller) error {
	var req wire.ClaimRequest
	if err := readJSON(w, r, maxClaimBody, &req); err != nil {
		return err
	}
	for _, kind := range req.Kinds {
		if err := wire.CheckText("kind", kind); err != nil {
			return err
		}
	}
	queue, err := a.pullable(r)
	if err != nil {
		return err
	}
	ds, err := a.pull.Claim(r.Context(), engine.PullRequest{
		Queue: queue, Kinds: req.Kinds, Max: req.Max, Lease: req.Lease.Std(), Wait: req.Wait.Std(), Worker: req.Worker,
	})
	if err != nil {
		return err
	}
	answer := wire.Claims{Items: make([]wire.Claimed, len(ds))}
	for i := range ds {
		if answer.Items[i], err = wire.ClaimedOf(&ds[i]); err != nil {
			break
		}
	}
	// A worker that left while it waited must not hold what it never got.
	if err == nil {
		err = r.Context().Err() // the cause is reported by fail
	}
	if err == nil {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout)) // not every writer has deadlines
		err = handOver(w, answer)
	}
	if err != nil {
		a.giveBack(ds)
	}
	return err
}

// giveBack releases what could not be handed over.
func (a *app) giveBack(ds []redrive.Delivery) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	results := make([]engine.PullResult, len(ds))
	for i := range ds {
		results[i] = engine.PullResult{Receipt: ds[i].Receipt, Outcome: redrive.OutcomeRelease}
	}
	for _, p := range a.pull.Settle(ctx, results) {
		if p.Err != nil {
			a.log.WarnContext(ctx, "cannot release a claim", "error", p.Err)
		}
	}
}

func (a *app) extend(w http.ResponseWriter, r *http.Request, _ *caller) error {
	var req wire.ExtendRequest
	if err := readJSON(w, r, maxExtendBody, &req); err != nil {
		return err
	}
	queue, err := a.pullable(r)
	if err != nil {
		return err
	}
	if err := countOf("receipts", len(req.Receipts)); err != nil {
		return err
	}
	if req.Lease == 0 {
		req.Lease = wire.Duration(engine.DefaultLease)
	}
	if req.Lease.Std() < time.Second || req.Lease.Std() > engine.MaxPullLease {
		return bad(fmt.Sprintf("lease %s", req.Lease), fmt.Sprintf("use 1s to %s", engine.MaxPullLease))
	}
	answer := wire.Results{Items: make([]wire.Result, len(req.Receipts))}
	var receipts []redrive.Receipt
	var at []int
	for i, text := range req.Receipts {
		receipt, err := receiptOf(text, queue)
		if err != nil {
			answer.Items[i] = failed(err)
			continue
		}
		receipts, at = append(receipts, receipt), append(at, i)
	}
	if len(receipts) > 0 {
		errs := a.pull.Extend(gateway.Lasting(r.Context()), receipts, req.Lease.Std())
		for j, i := range at {
			answer.Items[i] = wire.Result{Status: wire.ResultExtended}
			if errs != nil && errs[j] != nil {
				answer.Items[i] = failed(errs[j])
			}
		}
	}
	return writeJSON(w, http.StatusOK, answer)
}

func (a *app) settle(w http.ResponseWriter, r *http.Request, who *caller) error {
	var req wire.SettleRequest
	if err := readJSON(w, r, maxSettleBody, &req); err != nil {
		return err
	}
	queue, err := a.pullable(r)
	if err != nil {
		return err
	}
	if err := countOf("settlements", len(req.Settlements)); err != nil {
		return err
	}
	answer := wire.Results{Items: make([]wire.Result, len(req.Settlements))}
	var results []engine.PullResult
	var at []int
	for i := range req.Settlements {
		result, err := a.resultOf(r.Context(), &req.Settlements[i], queue, who)
		if err != nil {
			answer.Items[i] = failed(err)
			continue
		}
		results, at = append(results, result), append(at, i)
	}
	for j, p := range a.pull.Settle(gateway.Lasting(r.Context()), results) {
		if p.Err != nil {
			answer.Items[at[j]] = failed(p.Err)
			continue
		}
		answer.Items[at[j]] = wire.ResultOf(&p)
	}
	return writeJSON(w, http.StatusOK, answer)
}

// resultOf checks and converts one settlement.
func (a *app) resultOf(ctx context.Context, s *wire.Settlement, queue string, who *caller) (engine.PullResult, error) {
	result, err := s.Std()
	if err != nil {
		return result, bad(err.Error(), "")
	}
	if result.Receipt.Queue != queue {
		return result, bad("the receipt is of another queue", "settle it under /v1/queues/"+result.Receipt.Queue+"/settlements")
	}
	for _, e := range s.Emit {
		if err := a.mayEmit(e.Queue, who); err != nil {
			return result, err
		}
		m, err := gateway.ParseLine(e.Message)
		if err != nil {
			return result, err
		}
		m.Queue = e.Queue
		if err := a.mayPassOn(ctx, who, m.ReplyTo, result.Receipt); err != nil {
			return result, err
		}
		result.Emit = append(result.Emit, m)
	}
	if len(s.Reply) > 0 && string(s.Reply) != "null" {
		m, err := gateway.ParseLine(s.Reply)
		if err != nil {
			return result, err
		}
		result.Reply = &m
	}
	return result, nil
}

// mayEmit refuses queues that the caller could not publish into either.
func (a *app) mayEmit(queue string, who *caller) error {
	if !who.may(config.ScopePublish) {
		return problem.New(http.StatusForbidden, "forbidden", "The token does not allow this", "it has no scope publish, which emit needs", "")
	}
	return a.mayEnter(who, queue)
}

// mayPassOn refuses where the result of an emitted message may not go: it may always go
// where that of the claimed message does.
func (a *app) mayPassOn(ctx context.Context, who *caller, replyTo string, claimed redrive.Receipt) error {
	why := a.mayReply(who, replyTo)
	if why == nil {
		return nil
	}
	carried, err := a.pull.ReplyTo(ctx, claimed)
	if err != nil {
		return err
	}
	if replyTo == carried {
		return nil
	}
	return why
}

func receiptOf(text, queue string) (redrive.Receipt, error) {
	var receipt redrive.Receipt
	if err := receipt.UnmarshalText([]byte(text)); err != nil {
		return receipt, bad(err.Error(), "send the receipt as it came with the claim")
	}
	if receipt.Queue != queue {
		return receipt, bad("the receipt is of another queue", "")
	}
	return receipt, nil
}

func countOf(what string, n int) error {
	if n < 1 || n > engine.MaxPull {
		return bad(fmt.Sprintf("%d %s", n, what), fmt.Sprintf("send 1 to %d", engine.MaxPull))
	}
	return nil
}

func failed(err error) wire.Result {
	return wire.Result{Status: wire.ResultError, Error: problem.Of(err)}
}

// handOver answers with claims, and tells if that failed.
func handOver(w http.ResponseWriter, answer wire.Claims) error {
	body, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	_, err = w.Write(append(body, '\n'))
	return err
}
