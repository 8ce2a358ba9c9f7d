package kafka

import (
	"context"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/redrive/redrive/driver"
)

// Probe implements driver.Source.
func (s *Source) Probe(ctx context.Context) []driver.Finding {
	findings, values := probeTopic(ctx, s.admin, s.topic)
	if s.o.Native && values != nil {
		findings = append(findings, s.roomy(ctx, values)...)
	}
	return findings
}

// probeTopic tells what a topic promises, and its settings: nil if the brokers do not answer.
func probeTopic(ctx context.Context, admin *kadm.Client, topic string) ([]driver.Finding, map[string]string) {
	meta, err := admin.Metadata(ctx, topic)
	if err != nil {
		return []driver.Finding{{Level: driver.LevelWarn, Setting: "topic " + topic, Value: err.Error(), Promise: "the brokers do not answer"}}, nil
	}
	values, err := configs(ctx, admin, topic)
	if err != nil {
		values = map[string]string{}
	}
	return topicFindings(meta.Topics[topic], values), values
}

// topicFindings tell what a topic's settings promise.
func topicFindings(topic kadm.TopicDetail, values map[string]string) []driver.Finding {
	replicas := 0
	for _, p := range topic.Partitions {
		if n := len(p.Replicas); replicas == 0 || n < replicas {
			replicas = n
		}
	}
	return []driver.Finding{
		replicated(replicas, values["min.insync.replicas"]),
		elected(values["unclean.leader.election.enable"]),
		kept(values["cleanup.policy"], values["retention.ms"]),
	}
}

// roomy looks at the topics that failed records go to.
func (s *Source) roomy(ctx context.Context, of map[string]string) (findings []driver.Finding) {
	for _, topic := range append(s.tierTopics(), s.dlq) {
		values, err := configs(ctx, s.admin, topic)
		if err != nil {
			return []driver.Finding{{Level: driver.LevelWarn, Setting: "topic " + topic, Value: err.Error(), Promise: "its settings are not known"}}
		}
		if largest, ours := number(of["max.message.bytes"]), number(values["max.message.bytes"]); ours < largest+headroom {
			findings = append(findings, driver.Finding{Level: driver.LevelWarn, Setting: "max.message.bytes of " + topic, Value: values["max.message.bytes"],
				Promise: "a large record that fails is handled again and again, as it does not fit there with its failure history", Hint: "set it to " + room(of["max.message.bytes"])})
		}
		switch v := kept(values["cleanup.policy"], values["retention.ms"]); {
		case v.Level == driver.LevelWarn:
			v.Setting += " of " + topic
			findings = append(findings, v)
		case topic == s.dlq && number(values["retention.ms"]) >= 0:
			findings = append(findings, driver.Finding{Level: driver.LevelWarn, Setting: "retention.ms of " + topic, Value: values["retention.ms"],
				Promise: "dead letters are removed by the broker after that time", Hint: "set it to -1"})
		}
	}
	return findings
}

func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

func replicated(replicas int, inSync string) driver.Finding {
	v := driver.Finding{Level: driver.LevelOK, Setting: "replicas and min.insync.replicas", Value: strconv.Itoa(replicas) + " and " + inSync,
		Promise: "an acknowledged record survives the loss of a broker"}
	if n, err := strconv.Atoi(inSync); err != nil || n < 2 || replicas < 2 {
		v.Level, v.Promise = driver.LevelWarn, "an acknowledged record may be on one broker only, and is lost with it"
		v.Hint = "three replicas with min.insync.replicas=2"
	}
	return v
}

func elected(unclean string) driver.Finding {
	v := driver.Finding{Level: driver.LevelOK, Setting: "unclean.leader.election.enable", Value: unclean, Promise: "no leader is elected that lacks acknowledged records"}
	if unclean == "true" {
		v.Level, v.Promise, v.Hint = driver.LevelWarn, "a leader may be elected that lacks acknowledged records", "set it to false"
	}
	return v
}

func kept(policy, retention string) driver.Finding {
	v := driver.Finding{Level: driver.LevelOK, Setting: "retention.ms", Value: retention, Promise: "records are kept for good"}
	ms, err := strconv.ParseInt(retention, 10, 64)
	switch {
	case policy != "" && policy != "delete":
		v.Setting, v.Value, v.Level = "cleanup.policy", policy, driver.LevelWarn
		v.Promise, v.Hint = "a record that is not handled yet may be removed in favour of a newer one of its key", "use a topic with cleanup.policy=delete"
	case err != nil:
		v.Level, v.Promise = driver.LevelWarn, "it is not known how long records are kept"
	case ms >= 0:
		v.Promise = "a record that is not handled within " + (time.Duration(ms) * time.Millisecond).String() + " is removed by the broker"
	}
	return v
}
