package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/redrive/redrive"
)

// eventMessage makes a message of a CloudEvent in structured JSON.
func eventMessage(m *redrive.Message, event json.RawMessage) error {
	if m.ID != "" || m.Kind != "" || m.Key != "" || len(m.Headers) > 0 || m.Body != nil || !m.ExpiresAt.IsZero() {
		return errors.New("beside cloudevent only queue, result, delay and deliver_at may stand")
	}
	var e struct {
		Version     string    `json:"specversion"`
		ID          string    `json:"id"`
		Source      string    `json:"source"`
		Type        string    `json:"type"`
		Key         string    `json:"partitionkey"`
		TraceParent string    `json:"traceparent"`
		TraceState  string    `json:"tracestate"`
		Expires     time.Time `json:"expirytime"`
	}
	if err := json.Unmarshal(event, &e); err != nil {
		return fmt.Errorf("cloudevent: %w", err)
	}
	if e.Version != "1.0" || e.ID == "" || e.Source == "" || e.Type == "" {
		return errors.New(`cloudevent: specversion "1.0", id, source and type are required`)
	}
	m.ID = redrive.DeriveID("cloudevent", e.Source, e.ID)
	m.Kind, m.Key, m.ExpiresAt, m.Body = e.Type, e.Key, e.Expires, bytes.Clone(event)
	m.Headers.Add("content-type", "application/cloudevents+json")
	if e.TraceParent != "" {
		m.Headers.Add("traceparent", e.TraceParent)
	}
	if e.TraceState != "" {
		m.Headers.Add("tracestate", e.TraceState)
	}
	return nil
}
