package kafka

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Settings of a share group, and of the brokers for all of them.
const (
	shareReset    = "share.auto.offset.reset"
	shareEarliest = "earliest"
	shareLimit    = "group.share.delivery.count.limit"
)

// configure makes a group begin at the topic's start if the address allows it, and
// asks how often the brokers deliver a record. Where they do not tell, it is taken for
// their default.
func (s *Share) configure(ctx context.Context, client *kgo.Client) error {
	if s.create {
		if err := setGroup(ctx, client, s.share, shareReset, shareEarliest); err != nil {
			return openError(fmt.Errorf("set %s of group %s: %w", shareReset, s.share, err), "leave create=true out, and set it by hand")
		}
	}
	s.limit = defaultShareLimit
	if text, err := limitOf(ctx, client); err == nil {
		if n, err := strconv.ParseInt(text, 10, 32); err == nil && n > 0 {
			s.limit = int32(n)
		}
	}
	return nil
}

// defaultShareLimit is Kafka's.
const defaultShareLimit = 5

// setGroup changes a setting of a share group, and waits until the broker confirms it.
func setGroup(ctx context.Context, client *kgo.Client, group, name, value string) error {
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	setting := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	setting.Name, setting.Value = name, new(value)
	resource.Configs = append(resource.Configs, setting)
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Resources = append(req.Resources, resource)
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	for _, r := range resp.Resources {
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			return err
		}
	}
	for { // a member that came before the broker has learned of it would begin at the end
		switch is, err := groupSetting(ctx, client, group, name); {
		case err != nil:
			return err
		case is == value:
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// groupSetting asks for a setting of a share group.
func groupSetting(ctx context.Context, client *kgo.Client, group, name string) (string, error) {
	resource := kmsg.NewDescribeConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	resource.ConfigNames = []string{name}
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.Resources = append(req.Resources, resource)
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return "", err
	}
	for _, r := range resp.Resources {
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			return "", err
		}
		for _, c := range r.Configs {
			if c.Name == name && c.Value != nil {
				return *c.Value, nil
			}
		}
	}
	return "", nil
}

// limitOf asks a broker after how many deliveries it ends a record.
func limitOf(ctx context.Context, client *kgo.Client) (string, error) {
	admin := kadm.NewClient(client)
	brokers, err := admin.ListBrokers(ctx)
	if err != nil {
		return "", err
	}
	if len(brokers) == 0 {
		return "", redrive.ErrNotFound
	}
	all, err := admin.DescribeBrokerConfigs(ctx, brokers[0].NodeID)
	if err != nil {
		return "", err
	}
	for _, c := range all[0].Configs {
		if c.Key == shareLimit {
			return c.MaybeValue(), nil
		}
	}
	return "", cmp.Or(all[0].Err, redrive.ErrNotFound)
}

// Probe implements driver.Source.
func (s *Share) Probe(ctx context.Context) []driver.Finding {
	findings, values := probeTopic(ctx, s.admin, s.topic)
	if values == nil {
		return findings
	}
	return append(findings, s.begins(ctx), s.limited(ctx), s.renewed())
}

func (s *Share) begins(ctx context.Context) driver.Finding {
	where, err := groupSetting(ctx, s.client, s.share, shareReset)
	v := driver.Finding{Level: driver.LevelOK, Setting: shareReset + " of group " + s.share, Value: where, Promise: "the group begins at the topic's start"}
	switch {
	case err != nil:
		v.Level, v.Value, v.Promise = driver.LevelWarn, err.Error(), "it is not known where the group begins"
	case where != shareEarliest:
		v.Level, v.Promise, v.Hint = driver.LevelWarn, "what was published before the group's first member came is not handled", "set it to earliest, or say create=true in the address"
	}
	return v
}

func (s *Share) limited(ctx context.Context) driver.Finding {
	v := driver.Finding{Level: driver.LevelWarn, Setting: shareLimit, Promise: "a record is ended in silence after as many deliveries without an end, such as those to processes that were killed before they began it",
		Hint: "raise it to 10; the store takes what comes for one of the last times"}
	var err error
	if v.Value, err = limitOf(ctx, s.client); err != nil {
		v.Value = err.Error()
	} else if number(v.Value) >= 10 {
		v.Level = driver.LevelOK // it is the most that brokers take
	}
	return v
}

func (s *Share) renewed() driver.Finding {
	if s.renews {
		return driver.Finding{Level: driver.LevelOK, Setting: "renewal of locks", Value: "true", Promise: "a record may take as long as it needs"}
	}
	return driver.Finding{Level: driver.LevelWarn, Setting: "renewal of locks", Value: "false", Promise: "a record that takes longer than the group's share.record.lock.duration.ms is handled again", Hint: "use Kafka 4.2 or newer"}
}

// SourceStats tells of this process; how far the group is behind is not asked for.
func (s *Share) SourceStats(context.Context) (driver.SourceStats, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := driver.SourceStats{Lag: driver.Unknown, Buffered: int64(len(s.buffer)), Unacked: int64(len(s.inflight)), Dead: driver.Unknown, Reconnects: driver.Unknown}
	now := time.Now()
	for _, it := range s.inflight {
		stats.OldestUnacked = max(stats.OldestUnacked, now.Sub(it.since))
	}
	return stats, nil
}
