package wire

import (
	"fmt"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Entry returns the dead letter that a message shows, as an export or an archive
// holds it: the reverse of [Whole]. What it lost to a token or a mask is an error, as
// it would be lost for good.
func (m *Message) Entry() (redrive.Entry, error) {
	ref := redrive.Ref{Queue: m.Queue, ID: m.ID}
	if m.State != redrive.StateDead.String() || m.Reason == nil {
		return redrive.Entry{}, fmt.Errorf("%w dead letter %s: it is %q", redrive.ErrInvalid, ref, m.State)
	}
	if m.Hidden || m.Masked || m.Size == nil {
		return redrive.Entry{}, fmt.Errorf("%w dead letter %s: its body is not there", redrive.ErrInvalid, ref)
	}
	e := redrive.Entry{
		Message: m.message(), State: redrive.StateDead, Reason: *m.Reason, Attempts: m.Attempts, Crashes: m.Crashes, Suspect: m.Suspect, DiedAt: at(m.DiedAt),
	}
	if h := m.History; h != nil {
		e.History = redrive.History{Count: h.Count, First: h.First.std(), Last: h.Last.std()}
		if e.History.First == nil {
			e.History.First, e.History.Last = e.History.Last, nil
		}
	}
	if m.Original != nil {
		o := m.Original.message()
		e.Original, e.OriginalChecksum = &o, m.Original.Checksum
	}
	e.Checksum = m.Checksum
	if err := driver.CheckQueue(e.Queue); err != nil {
		return e, err
	}
	return e, driver.CheckID(e.ID)
}

// message returns what the message carries.
func (m *Message) message() redrive.Message {
	out := redrive.Message{
		Queue: m.Queue, ID: m.ID, Kind: m.Kind, Key: m.Key, Body: m.Bytes(), PublishedAt: at(m.PublishedAt), ExpiresAt: at(m.ExpiresAt), ReplyTo: m.ReplyTo,
		Lineage: redrive.Lineage{Generation: m.Generation, Redrives: m.Redrives, Plan: m.Plan, Origin: m.Origin, EditedFrom: m.EditedFrom},
	}
	if len(m.Headers) > 0 {
		out.Headers = StdHeaders(m.Headers)
	}
	return out
}

func at(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

// std returns a failure as the root package has it.
func (f *Failure) std() *redrive.Failure {
	if f == nil {
		return nil
	}
	out := &redrive.Failure{
		At: f.At, Duration: f.Duration.Std(), Attempt: f.Attempt, Types: f.Types, Message: f.Message,
		Stack: f.Stack, Host: f.Host, IP: f.IP, PID: f.PID, Service: f.Service, Version: f.Version, Env: f.Environment,
		Config: redrive.FailureConfig{
			Target: f.Config.Target, Timeout: f.Config.Timeout.Std(), Policy: f.Config.Policy, MaxAttempts: f.Config.MaxAttempts,
		},
		TraceID: f.TraceID, Signature: f.Signature, Details: f.Details,
	}
	if f.Reason != nil {
		out.Reason = *f.Reason
	}
	out.Clean()
	return out
}
