package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/wire"
)

const (
	tokenSpace = "tokens"
	usedEvery  = time.Minute // how often the last use is stored
)

// tokenUse is the record of a token's use.
type tokenUse struct {
	LastUsed time.Time `json:"last_used"`
}

// run stores now and then when tokens were used last, until ctx ends; then once more,
// and adds to the quotas what was not yet counted there.
func (s *meters) run(ctx context.Context) {
	tick := time.NewTicker(usedEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.note(ctx)
			continue
		case <-ctx.Done():
		}
		break
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	s.note(ctx)
	for _, m := range s.all() {
		m.mu.Lock()
		if m.quota != nil {
			if _, err := m.quota.add(ctx, 0); err != nil {
				s.log.LogAttrs(ctx, slog.LevelDebug, "last use of a quota not recorded", slog.String("token", m.id), slog.Any("error", err))
			}
		}
		m.mu.Unlock()
	}
}

func (s *meters) all() []*meter {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*meter, 0, len(s.byID))
	for _, m := range s.byID {
		all = append(all, m)
	}
	return all
}

// note stores the last use of every token that was used since.
func (s *meters) note(ctx context.Context) {
	for _, m := range s.all() {
		used := m.used.Load()
		if used == m.written || m.id == "" { // whoever has no token
			continue
		}
		value, err := json.Marshal(tokenUse{time.Unix(used, 0).UTC()})
		if err == nil {
			_, err = s.store.Apply(ctx, driver.Batch{Records: []driver.RecordWrite{{Space: tokenSpace, Key: m.id, Value: value, Version: driver.AnyVersion}}})
		}
		if err != nil {
			s.log.LogAttrs(ctx, slog.LevelWarn, "last use of a token not stored", slog.String("token", m.id), slog.Any("error", err))
			return
		}
		m.written = used
	}
}

// listTokens lists the tokens of the configuration.
func (a *app) listTokens(w http.ResponseWriter, r *http.Request, who *caller) error {
	if err := who.confine(""); err != nil {
		return err
	}
	if _, err := parameters(r); err != nil {
		return err
	}
	cfg := a.conf()
	if cfg == nil {
		return notHere("configuration")
	}
	list := wire.List[wire.Token]{Items: []wire.Token{}, Complete: true}
	for i := range cfg.Tokens {
		one, err := a.describeToken(r.Context(), &cfg.Tokens[i])
		if err != nil {
			return err
		}
		list.Items = append(list.Items, one)
	}
	return writeJSON(w, http.StatusOK, list)
}

func (a *app) describeToken(ctx context.Context, t *config.Token) (wire.Token, error) {
	out := wire.Token{ID: t.ID, Name: t.Name, Queues: t.Queues, Rate: t.Rate.String(), Quota: t.Quota.String()}
	scopes := t.Scopes
	if len(scopes) == 0 {
		scopes = config.Scopes()
	}
	for _, s := range scopes {
		out.Scopes = append(out.Scopes, string(s))
	}
	now, err := a.store.Now(ctx)
	if err != nil {
		return out, err
	}
	if !t.Expires.IsZero() {
		out.Expires, out.Expired = &t.Expires.Time, !now.Before(t.Expires.Time)
	}
	key := t.ID
	if key == "" {
		key = t.Name
	}
	used, err := a.meters.lastUsed(ctx, key)
	if err != nil {
		return out, err
	}
	if !used.IsZero() {
		out.LastUsed = &used
	}
	if t.Quota.Per > 0 {
		used, _, err := readQuota(ctx, a.store, quotaKey(key, quotaWindow(now, t.Quota.Per)))
		if err != nil {
			return out, err
		}
		left := max(int64(t.Quota.Count)-used, 0)
		out.Left = &left
	}
	return out, nil
}

// lastUsed returns when a token was used last: here, or as stored by any daemon.
func (s *meters) lastUsed(ctx context.Context, id string) (time.Time, error) {
	var use tokenUse
	record, err := s.store.GetRecord(ctx, tokenSpace, id)
	if err == nil {
		err = json.Unmarshal(record.Value, &use)
	}
	if err != nil && !errors.Is(err, redrive.ErrNotFound) {
		return use.LastUsed, err
	}
	all := s.all()
	if i := slices.IndexFunc(all, func(m *meter) bool { return m.id == id }); i >= 0 {
		if here := time.Unix(all[i].used.Load(), 0).UTC(); here.After(use.LastUsed) {
			return here, nil
		}
	}
	return use.LastUsed, nil
}
